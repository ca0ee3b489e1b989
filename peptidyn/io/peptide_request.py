"""What is asked of `build_peptide`, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np

from peptidyn.core.errors import ArgumentError
from peptidyn.core.residues import THREE_LETTER
from peptidyn.core.units import degrees
from peptidyn.io.peptide_backbone import is_alpha_helix
from peptidyn.io.residue_templates import PROLINE_PHI, residue_templates

PROLINE_PHI_RANGE = (-85.0, -35.0)
"""Degrees between which the ring of proline closes with its angles within six degrees of their usual values."""

_ONE_LETTER = {three: one for one, three in THREE_LETTER.items()}
_CAPS: dict[Any, tuple[int, int]] = {True: (1, 1), False: (0, 0), "ACE": (1, 0), "NME": (0, 1)}


@dataclass(frozen=True)
class PeptideRequest:
    """A peptide to build, for n residues without caps; angles in rad.

    Attributes
    ----------
    letters : str
        One-letter codes.
    caps : (int, int)
        How many residues (0 or 1) caps add before and after.
    phi, psi, omega : (n,) float64
        Prolines already have a phi that their ring allows.
    cap_omega : float
        Of the bond from ACE to the first residue.
    chi : tuple of n tuples
        The prescribed first chi angles of each residue.
    chain_phi : float or None
        Phi, if one value was given for the whole chain.
    uniform_helix : bool
        One phi, one psi and one omega were given, and they make an alpha helix.
    """

    letters: str
    caps: tuple[int, int]
    phi: np.ndarray
    psi: np.ndarray
    omega: np.ndarray
    cap_omega: float
    chi: tuple[tuple[float, ...], ...]
    chain_phi: float | None
    uniform_helix: bool


def read_request(
    sequence: str | Sequence[str], phi: Any, psi: Any, omega: Any, chi: Sequence[Any] | None, caps: bool | str
) -> PeptideRequest:
    """Check the arguments of `build_peptide`, described there; ArgumentError says which is wrong, and where."""
    letters = _read_sequence(sequence)
    if not isinstance(caps, bool | str) or caps not in _CAPS:
        raise ArgumentError(f"caps is {caps!r}, expected True, False, 'ACE' or 'NME'")
    n = len(letters)
    phis, psis, omegas = (_read_torsions(k, v, n) for k, v in (("phi", phi), ("psi", psi), ("omega", omega)))
    one_for_all = phis.ndim == psis.ndim == omegas.ndim == 0
    return PeptideRequest(
        letters=letters,
        caps=_CAPS[caps],
        phi=_proline_phi(letters, phis, _CAPS[caps][0]),
        psi=np.broadcast_to(psis, n),
        omega=np.broadcast_to(omegas, n),
        cap_omega=float(omegas) if omegas.ndim == 0 else pi,
        chi=_read_chi(letters, chi),
        chain_phi=float(phis) if phis.ndim == 0 else None,
        uniform_helix=one_for_all and is_alpha_helix(float(phis), float(psis), float(omegas)),
    )


def _read_sequence(sequence: str | Sequence[str]) -> str:
    if isinstance(sequence, str):
        text = "".join(sequence.strip().splitlines())
        codes: Sequence[Any] = text.split("-") if "-" in text else text
    elif isinstance(sequence, Sequence | np.ndarray):
        codes = sequence
    else:
        raise ArgumentError(f"the sequence is {sequence!r}, expected letters such as 'AAGA', or a list of codes")
    letters = ""
    for position, code in enumerate(codes, start=1):
        upper = code.strip().upper() if isinstance(code, str) else ""
        letter = _ONE_LETTER.get(upper, upper)
        if letter not in THREE_LETTER:
            raise ArgumentError(
                f"residue {position} of the sequence is {code!r}, which is none of the 20 amino acids; use one-letter "
                f"codes ({''.join(sorted(THREE_LETTER))}), or three-letter codes joined by hyphens"
            )
        letters += letter
    if not letters:
        raise ArgumentError("the sequence is empty; give at least one residue, such as 'A'")
    return letters


def _read_torsions(what: str, value: Any, n: int) -> np.ndarray:
    """Return one angle, (), or one per residue, (n,), in rad."""
    angles = _radians(what, value)
    if angles.shape not in ((), (n,)):
        got = f"{angles.size} values" if angles.ndim == 1 else f"shape {angles.shape}"
        raise ArgumentError(f"{what} has {got} for a sequence of {n} residues; give one value, or one per residue")
    return angles


def _radians(what: str, value: Any) -> np.ndarray:
    """Return angles in rad from degrees, a Quantity, or a sequence of either."""
    try:
        if isinstance(value, list | tuple):
            angles = np.array([float(degrees(v)) for v in value], dtype=np.float64)
        else:
            angles = np.array(degrees(value), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} is {value!r}, expected degrees: a number, or numbers in a row") from error
    bad = np.argwhere(~np.isfinite(angles))
    if len(bad):
        where = f" at place {bad[0][0] + 1}" if angles.ndim else ""
        raise ArgumentError(f"{what} is not a finite number{where}; give degrees")
    return angles


def _proline_phi(letters: str, phi: np.ndarray, n_cap: int) -> np.ndarray:
    """Return phi of every residue, (n,), with prolines where their ring closes."""
    full = np.broadcast_to(phi, len(letters)).copy()
    low, high = PROLINE_PHI_RANGE
    for i, letter in enumerate(letters):
        if letter != "P":
            continue
        if phi.ndim == 0 or (i == 0 and not n_cap):  # the first residue of a chain without ACE has no phi
            full[i] = PROLINE_PHI
            continue
        value = np.rad2deg((full[i] + pi) % (2.0 * pi) - pi)
        if not low - 1e-9 <= value <= high + 1e-9:
            raise ArgumentError(
                f"phi of residue {i + 1} of the sequence, a proline, is {value:g} degrees, but its ring closes only "
                f"between {low:g} and {high:g}; give it a value near {np.rad2deg(PROLINE_PHI):g}"
            )
    return full


def _read_chi(letters: str, chi: Sequence[Any] | None) -> tuple[tuple[float, ...], ...]:
    if chi is None:
        return ((),) * len(letters)
    if isinstance(chi, str) or not isinstance(chi, Sequence | np.ndarray):
        raise ArgumentError(f"chi is {chi!r}, expected one entry per residue: None, or its chi angles in degrees")
    if len(chi) != len(letters):
        raise ArgumentError(
            f"chi has {len(chi)} entries for a sequence of {len(letters)} residues; "
            "give one per residue, None where rotamers shall decide"
        )
    prescribed = []
    for position, (letter, given) in enumerate(zip(letters, chi, strict=True), start=1):
        label = f"chi of residue {position} ({THREE_LETTER[letter]})"
        angles = np.atleast_1d(_radians(label, () if given is None else given))
        count = residue_templates()[letter].n_chi
        if angles.ndim != 1 or angles.size > count:
            why = "those of its ring follow from phi" if letter == "P" else f"the residue has {count}"
            raise ArgumentError(f"{label} has {angles.size} angles, but {why}; give no more than that, or None")
        prescribed.append(tuple(angles.tolist()))
    return tuple(prescribed)
