"""The backbone of a peptide from its torsions, and what proline does to it.

Proline closes a ring over N and CA. Its own phi can only be near -65 degrees, and the ring stands where the residue
before would put an amide hydrogen: in an alpha helix CD would lie 0.17 nm from the carbonyl oxygen four residues
before. Real helices bend there. So when one phi and one psi are asked for the whole chain and they make an alpha
helix, the psi angles next to a proline are changed; see `fit_prolines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import radians

import numpy as np

from peptidyn.core.points import place
from peptidyn.io.residue_templates import residue_templates

# phi + psi of the three residues before a proline in a helix. The sum says how far the chain turns there; the
# values keep CD and CG clear (0.27 nm) of the two carbonyls below for every alpha helix, at the least change of psi.
_KINK = tuple(map(radians, (-79.0, -99.0, -117.0)))
_ALPHA_PHI = (radians(-75.0), radians(-50.0))
_ALPHA_PSI = (radians(-55.0), radians(-35.0))
# psi between two prolines that are neighbours or next to neighbours: there polyproline II is all that fits.
_POLYPROLINE_PSI = tuple(map(radians, (130.0, 145.0, 120.0, 155.0, 165.0, 110.0, 175.0)))
_ROOM = 0.65  # nm that CA atoms five or more residues apart keep; 0.86 in a helix


def trace(
    letters: Sequence[str], phi: np.ndarray, psi: np.ndarray, omega: np.ndarray, head: np.ndarray | None = None
) -> np.ndarray:
    """Return N, CA and C of every residue.

    Parameters
    ----------
    letters : sequence of str
        One-letter codes.
    phi, psi, omega : (n,)
        rad; omega[i] turns the bond from residue i to residue i + 1.
    head : (m, 3, 3), optional
        The first residues where they are known already; the chain goes on from there.

    Returns
    -------
    (n, 3, 3)
        nm; residue, atom (N, CA, C), coordinate.
    """
    templates = [residue_templates()[letter] for letter in letters]
    xyz = np.empty((len(letters), 3, 3))
    done = 0 if head is None else len(head)
    if head is not None:
        xyz[:done] = head
    if not done:
        first = templates[0]
        xyz[0, 0] = 0.0
        xyz[0, 1] = (first.n_ca, 0.0, 0.0)
        xyz[0, 2] = place(np.array([0.0, 1.0, 0.0]), xyz[0, 0], xyz[0, 1], first.ca_c, first.n_ca_c, 0.0)
        done = 1
    for i in range(done, len(letters)):
        before, this = templates[i - 1], templates[i]
        n, ca, c = xyz[i - 1]
        xyz[i, 0] = place(n, ca, c, this.c_n, before.ca_c_n, psi[i - 1])
        xyz[i, 1] = place(ca, c, xyz[i, 0], this.n_ca, this.c_n_ca, omega[i - 1])
        xyz[i, 2] = place(c, xyz[i, 0], xyz[i, 1], this.ca_c, this.n_ca_c, phi[i])
    return xyz


def is_alpha_helix(phi: float, psi: float, omega: float) -> bool:
    """Tell whether one phi, psi and omega (rad) for a whole chain make a right-handed alpha helix."""
    return _ALPHA_PHI[0] <= phi <= _ALPHA_PHI[1] and _ALPHA_PSI[0] <= psi <= _ALPHA_PSI[1] and np.cos(omega) < -0.9


def fit_prolines(letters: Sequence[str], phi: np.ndarray, psi: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """Return psi (rad) of an alpha helix with room made for its prolines.

    A proline with three residues or more before it, a cap included, bends the helix there: phi + psi becomes -117,
    -99 and -79 degrees at one, two and three places before. Where prolines are neighbours, or next to neighbours, psi
    from the first to the last becomes that of polyproline II: 130 degrees, or if the chain would then run into itself
    the first of a few others at which it does not.
    """
    fitted = psi.copy()
    runs = _proline_runs(letters)
    for first, _ in runs:
        if first >= 3:
            for back in (1, 2, 3):
                fitted[first - back] = _KINK[-back] - phi[first - back]
    for which, (first, last) in enumerate(runs):
        if first == last:
            continue
        end = runs[which + 1][0] if which + 1 < len(runs) else len(letters)
        head = trace(letters[: first + 1], phi, fitted, omega)
        best, most_room = 0.0, -1.0
        for value in _POLYPROLINE_PSI:
            fitted[first:last] = value
            room = _closest_approach(trace(letters[:end], phi, fitted, omega, head)[:, 1], first)
            if room > most_room:
                best, most_room = value, room
            if room >= _ROOM:
                break
        fitted[first:last] = best
    return fitted


def _proline_runs(letters: Sequence[str]) -> list[tuple[int, int]]:
    """Return first and last of the prolines that follow each other by one or two places."""
    runs: list[tuple[int, int]] = []
    for i, letter in enumerate(letters):
        if letter == "P":
            if runs and i - runs[-1][1] <= 2:
                runs[-1] = (runs[-1][0], i)
            else:
                runs.append((i, i))
    return runs


def _closest_approach(ca: np.ndarray, first: int) -> float:
    """Return the least distance (nm) of CA atoms past `first` from any CA five or more residues before."""
    apart = np.arange(len(ca))[None, :] + 5 <= np.arange(first, len(ca))[:, None]
    late = ca[first:]
    squares = (late**2).sum(axis=1)[:, None] + (ca**2).sum(axis=1) - 2.0 * late @ ca.T
    return float(np.sqrt(max(np.min(squares, where=apart, initial=np.inf), 0.0)))
