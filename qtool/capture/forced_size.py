"""Where in the user's code a size that was to stay dynamic became a number.

torch.export says that it happened and not where. But it logs the moment, so a second export with an ear on that log
finds the line of the model that is running then.
"""

from __future__ import annotations

import logging
import sysconfig
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOGGER = logging.getLogger("torch.fx.experimental.symbolic_shapes")


def forcing_line(export: Callable[[], object]) -> str:
    """Return ` at FILE:LINE: CODE` for the line of user code that fixed a dynamic size, or an empty string.

    Args:
        export: runs the failing export once more; what it raises is expected.
    """
    listener = _Listener()
    before = _LOGGER.level, _LOGGER.propagate, _LOGGER.handlers
    _LOGGER.handlers = [listener]
    _LOGGER.propagate = False
    _LOGGER.setLevel(logging.INFO)
    try:
        export()
    except Exception:  # noqa: S110 - it failed before, and why is known
        pass
    finally:
        level, _LOGGER.propagate, _LOGGER.handlers = before
        _LOGGER.setLevel(level)
    return listener.line


class _Listener(logging.Handler):
    """Notes the user's line at the moment a size is replaced by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Look at the stack if the record says that a size became a number."""
        message = record.getMessage()
        if self.line or not message.startswith("set_replacement") or "singleton" not in message:
            return
        frame = last_user_frame(traceback.extract_stack())
        if frame is not None:
            self.line = f" at {frame.filename}:{frame.lineno}: {frame.line}"


def last_user_frame(frames: Iterable[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost frame that is neither torch's, qtool's nor Python's own."""
    users = [frame for frame in frames if frame.lineno and not _is_machinery(frame.filename)]
    return users[-1] if users else None


def _is_machinery(filename: str) -> bool:
    """Whether a file is torch's, ours or Python's own; installed packages of the user's are none of these."""
    if "/torch/" in filename or "/qtool/" in filename or filename.startswith("<"):
        return True
    return filename.startswith(sysconfig.get_path("stdlib")) and "site-packages" not in filename
