"""What the library says while it works. Owns: its logger, the last error. Needs: `trt`. Never: printing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.tensorrt.library import trt

_LONGEST = 400  # letters of an error in a message


class LibraryLog:
    """Keeps the newest error. The library calls it from threads of its own."""

    def __init__(self) -> None:
        self.last_error = ""

    def make_logger(self) -> trt.ILogger:
        """The library's logger, which must live as long as any object of the library."""
        from engines.tensorrt.library import trt

        log = self
        errors = (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR)

        class Logger(trt.ILogger):
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
                if severity in errors:
                    log.last_error = one_line(msg)

        return Logger()


def one_line(text: str) -> str:
    """`text` without line ends, shortened to what a message can hold."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
