"""Integrators as words: B kicks, A drifts, O thermalises."""

from __future__ import annotations

from collections import Counter

from peptidyn.core.errors import ArgumentError


def parse_splitting(word: str) -> list[tuple[str, float]]:
    """Return the moves of a splitting word with the fraction of the time step that each takes.

    Every letter's time is divided evenly: BAOAB is B/2 A/2 O A/2 B/2. The word must read the same backwards, which
    makes the step symmetric, and must hold A and B.

    Parameters
    ----------
    word : str
        e.g. ``BAB`` (velocity Verlet, NVE) or ``BAOAB`` (Langevin).
    """
    letters = word.strip().upper()
    unknown = sorted(set(letters) - set("ABO"))
    if unknown or not letters:
        raise ArgumentError(f"the splitting {word!r} may hold the letters A (drift), B (kick) and O (thermostat) only")
    if letters != letters[::-1]:
        raise ArgumentError(f"the splitting {word!r} is not symmetric: it must read the same backwards, like BAOAB")
    if "A" not in letters or "B" not in letters:
        raise ArgumentError(f"the splitting {word!r} needs both A (drift) and B (kick)")
    count = Counter(letters)
    return [(letter, 1.0 / count[letter]) for letter in letters]
