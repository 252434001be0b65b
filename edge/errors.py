"""Errors that a user can act on. Each message carries the fact, the place and the next step. Our own bugs are asserts."""

_BEGIN, _END = 600, 300  # characters that stay of a longer message: the fact and the place, and the next step


class EdgeError(Exception):
    """Base of all errors shown to a user as one line; the command line exits with 1.

    Whatever a file puts into its message, it is one line of printable characters, and short: a key can hold line ends,
    escape sequences of a terminal, or megabytes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """`text` shortened in its middle, and its unprintable characters as Python writes them: \\n, \\x1b, \\u2028."""
    if len(text) > _BEGIN + _END:
        text = f"{text[:_BEGIN]} ... {text[-_END:]}"
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class ConfigError(EdgeError):
    """A YAML file, an environment variable or an option is wrong."""


class SourceError(EdgeError):
    """A model file is truncated, inconsistent or not supported."""


class BuildError(EdgeError):
    """A package could not be built."""


class PackageError(EdgeError):
    """A package is damaged, foreign, or of another contract."""


class BudgetError(EdgeError):
    """What was asked does not fit in the memory budget."""


class RequestError(EdgeError):
    """A request cannot be answered as asked: empty, too long, not possible with this engine."""


class ExecutorError(EdgeError):
    """The engine failed while running."""


class PullError(EdgeError):
    """A model of the catalog could not be fetched."""
