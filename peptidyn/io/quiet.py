"""Readers written in C print to the process's own output; this keeps them quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Discard what compiled code writes to standard output and error (descriptors 1 and 2) within the block.

    MDTraj's DCD reader greets every file in this way, which no setting of it prevents.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nothing, number)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nothing)
