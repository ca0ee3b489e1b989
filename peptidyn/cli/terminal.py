"""What is printed to a terminal and not to a file: colour."""

from __future__ import annotations

import os
from typing import TextIO

_STYLES = {"error": "1;31", "warning": "1;33", "good": "1;32"}


def paint(text: str, style: str, stream: TextIO) -> str:
    """Return `text` in colour if `stream` is a terminal that shows colours, else as it is.

    Parameters
    ----------
    text : str
    style : {"error", "warning", "good"}
    stream : text file
        Where the text will go. The environment variables NO_COLOR (set to anything) and TERM=dumb switch colours off.
    """
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_STYLES[style]}m{text}\033[0m"
