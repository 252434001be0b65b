"""Errors that a user can act on. Each message carries the fact, the place and the next step. Our own bugs are asserts."""


class EdgeError(Exception):
    """Base of all errors shown to a user as one line; the command line exits with 1."""


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
