"""Libraries that print, or draw from Python's own random numbers: kept quiet and reproducible."""

from __future__ import annotations

import os
import random
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


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Let what OpenMM's Modeller draws from Python's global generator follow from `seed`; give it back as it was."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
