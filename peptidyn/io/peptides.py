"""`build_peptide`: an all-atom peptide from its sequence and torsions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import pi, radians
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.errors import ArgumentError
from peptidyn.io.notes import Note
from peptidyn.io.peptide_backbone import fit_prolines, is_alpha_helix, trace
from peptidyn.io.residue_templates import (
    PROLINE_PHI,
    THREE_LETTER,
    inline_hydrogen,
    methylene_hydrogens,
    place,
    residue_frame,
    residue_templates,
    rotor_hydrogens,
)
from peptidyn.io.rotamers import conformers, overlaps, pack, within_three_bonds
from peptidyn.io.structure import Structure
from peptidyn.units import degrees

if TYPE_CHECKING:
    from openmm.app import Topology

PROLINE_PHI_RANGE = (-85.0, -35.0)
"""Degrees between which the ring of proline closes with its angles within six degrees of their usual values."""

OVERLAP = 0.7
"""Atoms more than three bonds apart overlap if nearer than this fraction of the sum of their van der Waals radii."""

_ONE_LETTER = {three: one for one, three in THREE_LETTER.items()}
_CARBOXYLATE = (0.125, radians(117.0))  # C-O in nm and CA-C-O of a charged C terminus


def build_peptide(
    sequence: str | Sequence[str],
    phi: Any = -57.0,
    psi: Any = -47.0,
    omega: Any = 180.0,
    chi: Sequence[Any] | None = None,
    caps: bool | str = True,
    name: str | None = None,
) -> Structure:
    """Build a peptide with all its atoms.

    The geometry is ideal (averages over crystal structures, planar groups planar) and every residue is L. The
    protonation is that of pH 7: Asp, Glu, Lys, Arg and free termini charged, His neutral with its hydrogen on NE2.
    Atom names are OpenMM's, so that its force fields know every residue. The same call gives the same bits.

    Parameters
    ----------
    sequence : str or sequence of str
        One-letter codes (``"ACDE"``), or three-letter codes joined by hyphens (``"ALA-CYS"``), or a list of either.
    phi, psi, omega : float, sequence of float, or Quantity
        Degrees if plain; one value for the whole chain, or one per residue. ``omega[i]`` turns the peptide bond
        from residue i to the next. Without an ACE cap phi of the first residue does nothing; without NME psi of
        the last sets N-CA-C-OXT. The bond of the ACE cap follows `omega` if that is one value, else it is trans.
    chi : sequence, optional
        One entry per residue: None, or its first chi angles in degrees. The others are taken from standard
        rotamers, chosen so that atoms keep clear of each other.
    caps : bool or str
        True for ACE and NME, False for charged termini, ``"ACE"`` or ``"NME"`` for one of the caps.
    name : str, optional
        Name of the structure; by default the sequence.

    Returns
    -------
    Structure
        Chain A, residues numbered from 1 (an ACE cap counts), centred on the origin. The notes say what was done
        about prolines, and which atoms overlap if the torsions asked for leave them no room.

    Raises
    ------
    ArgumentError
        Empty sequence, unknown residue, wrong number of angles, angle that is not a finite number, proline
        phi at which its ring cannot close.

    Notes
    -----
    Angles given one per residue are kept exactly. One value for the whole chain is kept exactly too, except
    around proline: its phi is then -65 degrees, where the ring is relaxed; and since a proline ring does not fit into
    a straight alpha helix, psi angles before it are changed so that the helix bends
    (`peptidyn.io.peptide_backbone.fit_prolines`). A phi given for one proline must lie within -85 and -35 degrees.

    The cost is linear in the length of the chain: a second or two for 500 residues.
    """
    letters = _read_sequence(sequence)
    n_cap, c_cap = _read_caps(caps)
    torsions = _read_torsions(letters, phi, psi, omega, n_cap)
    prescribed = _read_chi(letters, chi)

    # A cap is traced as a glycine, of which ACE keeps CA, C and O, and NME keeps N and CA.
    chain = ["G"] * n_cap + letters + ["G"] * c_cap
    asked = np.full((3, len(chain)), pi)
    asked[:, n_cap : n_cap + len(letters)] = torsions.phi, torsions.psi, torsions.omega
    asked[2, :n_cap] = torsions.cap_omega
    angles = asked.copy()
    if torsions.uniform_helix:
        angles[1] = fit_prolines(chain, *asked)

    built = _place_atoms(chain, angles, prescribed, n_cap, c_cap)
    topology = built.topology()
    elements = [atom[0] for atom in built.names]  # none has two letters
    bonds = np.array([(a.index, b.index) for a, b in topology.bonds()])
    near = within_three_bonds(len(elements), bonds)
    positions = pack(np.array(built.xyz), elements, near, built.rows, built.choices, built.costs)
    # Rounding far below any meaning turns -1e-17 into 0.0, so that files do not show the sign of round-off.
    positions = np.round(positions - positions.mean(axis=0), 12) + 0.0

    notes = _proline_notes(built, chain, torsions.chain_phi, asked, angles)
    notes += _overlap_notes(built, positions, overlaps(positions, elements, bonds, near, OVERLAP))
    if name is None:
        name = "".join(letters) if len(letters) <= 24 else f"{''.join(letters[:21])}..."
    return Structure.from_openmm(topology, None, positions, name=name, notes=tuple(notes))


# ------------------------------------------------------------------ what is asked for


def _read_sequence(sequence: str | Sequence[str]) -> list[str]:
    codes = sequence
    if isinstance(sequence, str):
        codes = sequence.split("-") if "-" in sequence else "".join(sequence.split())
    letters = []
    for position, code in enumerate(codes, start=1):
        upper = code.strip().upper() if isinstance(code, str) else ""
        letter = _ONE_LETTER.get(upper, upper)
        if letter not in THREE_LETTER:
            raise ArgumentError(
                f"residue {position} of the sequence is {code!r}, which is none of the 20 amino acids; use one-letter "
                f"codes ({''.join(sorted(THREE_LETTER))}), or three-letter codes joined by hyphens"
            )
        letters.append(letter)
    if not letters:
        raise ArgumentError("the sequence is empty; give at least one residue, such as 'A'")
    return letters


def _read_caps(caps: bool | str) -> tuple[int, int]:
    """Return how many residues (0 or 1) the caps add before and after."""
    known: dict[Any, tuple[int, int]] = {True: (1, 1), False: (0, 0), "ACE": (1, 0), "NME": (0, 1)}
    if not isinstance(caps, (bool, str)) or caps not in known:
        raise ArgumentError(f"caps is {caps!r}, expected True, False, 'ACE' or 'NME'")
    return known[caps]


@dataclass(frozen=True)
class _Torsions:
    """Backbone torsions in rad, (n,) each; `cap_omega` is that of the bond after ACE."""

    phi: np.ndarray
    psi: np.ndarray
    omega: np.ndarray
    cap_omega: float
    chain_phi: float | None  # phi, if one value was given for the whole chain
    uniform_helix: bool  # one phi and one psi were given, and they make an alpha helix


def _read_torsions(letters: list[str], phi: Any, psi: Any, omega: Any, n_cap: int) -> _Torsions:
    n = len(letters)
    phis, psis, omegas = (_read_angles(k, v, n) for k, v in (("phi", phi), ("psi", psi), ("omega", omega)))
    prolines = [i for i, letter in enumerate(letters) if letter == "P"]
    one_phi, one_psi = phis.ndim == 0, psis.ndim == 0
    helix = one_phi and one_psi and omegas.ndim == 0 and is_alpha_helix(float(phis), float(psis), float(omegas))
    full_phi = np.broadcast_to(phis, n).copy()
    for i in prolines:
        if one_phi or (i == 0 and not n_cap):  # the first residue of a chain without ACE has no phi
            full_phi[i] = PROLINE_PHI
            continue
        value = np.rad2deg((full_phi[i] + pi) % (2.0 * pi) - pi)
        if not PROLINE_PHI_RANGE[0] <= value <= PROLINE_PHI_RANGE[1]:
            raise ArgumentError(
                f"phi of residue {i + 1} of the sequence, a proline, is {value:g} degrees, but its ring closes only between "
                f"{PROLINE_PHI_RANGE[0]:g} and {PROLINE_PHI_RANGE[1]:g}; give it a value near -65"
            )
    return _Torsions(
        phi=full_phi,
        psi=np.broadcast_to(psis, n),
        omega=np.broadcast_to(omegas, n),
        cap_omega=float(omegas) if omegas.ndim == 0 else pi,
        chain_phi=float(phis) if one_phi else None,
        uniform_helix=helix,
    )


def _read_angles(what: str, value: Any, n: int) -> np.ndarray:
    """Return one angle, or `n`, in rad."""
    angles = _radians(what, value)
    if angles.shape not in ((), (n,)):
        got = f"{angles.size} values" if angles.ndim == 1 else f"shape {angles.shape}"
        raise ArgumentError(
            f"{what} has {got} for a sequence of {n} residues; give one value, or one per residue"
        )
    return angles


def _radians(what: str, value: Any) -> np.ndarray:
    """Return angles in rad from degrees, a Quantity, or a sequence of either."""
    try:
        if isinstance(value, (list, tuple)):
            angles = np.array([float(degrees(v)) for v in value], dtype=np.float64)
        else:
            angles = np.array(degrees(value), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} is {value!r}, expected degrees: a number, or numbers in a row") from error
    if not np.isfinite(angles).all():
        where = f" at residue {int(np.flatnonzero(~np.isfinite(angles))[0]) + 1}" if angles.ndim == 1 else ""
        raise ArgumentError(f"{what} is not a finite number{where}; give degrees")
    return angles


def _read_chi(letters: list[str], chi: Sequence[Any] | None) -> list[tuple[float, ...]]:
    if chi is None:
        return [()] * len(letters)
    if isinstance(chi, str) or not isinstance(chi, Sequence | np.ndarray):
        raise ArgumentError(f"chi is {chi!r}, expected one entry per residue: None, or its chi angles in degrees")
    if len(chi) != len(letters):
        raise ArgumentError(
            f"chi has {len(chi)} entries for a sequence of {len(letters)} residues; "
            "give one per residue, None where rotamers shall decide"
        )
    prescribed = []
    for position, (letter, given) in enumerate(zip(letters, chi, strict=True), start=1):
        angles = np.atleast_1d(_radians(f"chi of residue {position}", () if given is None else given))
        count = residue_templates()[letter].n_chi
        if angles.ndim != 1 or angles.size > count:
            why = "those of its ring follow from phi" if letter == "P" else f"it has {count}"
            raise ArgumentError(
                f"chi of residue {position} ({THREE_LETTER[letter]}) has {angles.size} angles, but {why}; "
                "give at most as many as it has, or None"
            )
        prescribed.append(tuple(angles.tolist()))
    return prescribed


# ------------------------------------------------------------------ atoms


class _Build:
    """The atoms of a peptide as they are laid down, in order."""

    def __init__(self) -> None:
        self.residues: list[str] = []
        self.owner: list[int] = []
        self.names: list[str] = []
        self.xyz: list[np.ndarray] = []
        # for every residue with rotamers: its atoms, where each rotamer puts them, what each rotamer costs
        self.rows: list[np.ndarray] = []
        self.choices: list[np.ndarray] = []
        self.costs: list[np.ndarray] = []

    def start(self, residue: str) -> None:
        self.residues.append(residue)

    def add(self, names: Iterable[str], places: Iterable[np.ndarray]) -> None:
        for name, place_ in zip(names, places, strict=True):
            self.owner.append(len(self.residues) - 1)
            self.names.append(name)
            self.xyz.append(place_)

    def label(self, residue: int) -> str:
        return f"chain A, residue {self.residues[residue]} {residue + 1}"

    def topology(self) -> Topology:
        from openmm.app import Element, Topology

        topology = Topology()
        chain = topology.addChain("A")
        residues = [topology.addResidue(r, chain, id=str(i)) for i, r in enumerate(self.residues, start=1)]
        for name, owner in zip(self.names, self.owner, strict=True):
            topology.addAtom(name, Element.getBySymbol(name[0]), residues[owner])
        topology.createStandardBonds()
        return topology


def _place_atoms(
    chain: list[str], angles: np.ndarray, prescribed: list[tuple[float, ...]], n_cap: int, c_cap: int
) -> _Build:
    """Lay down every atom; those that rotamers decide about are left at the first rotamer."""
    phi, psi, _ = angles
    backbone = trace(chain, *angles)
    last = len(chain) - 1
    built = _Build()
    for i, letter in enumerate(chain):
        template = residue_templates()[letter]
        n, ca, c = backbone[i]
        o = place(n, ca, c, template.c_o, template.ca_c_o, psi[i] + pi)
        before = backbone[i - 1, 2] if i else None
        if n_cap and i == 0:
            built.start("ACE")
            built.add(["CH3", "H1", "H2", "H3"], [ca, *rotor_hydrogens(3, "C", backbone[1, 0], c, ca)])
            built.add(["C", "O"], [c, o])
            continue
        if c_cap and i == last:
            assert before is not None
            built.start("NME")
            built.add(["N", "H"], [n, inline_hydrogen("N", n, [before, ca])])
            built.add(["C", "H1", "H2", "H3"], [ca, *rotor_hydrogens(3, "C", before, n, ca)])
            continue

        rotamers = conformers(letter, prescribed[i - n_cap], float(phi[i]) if letter == "P" else None)
        world = ca + rotamers.xyz @ residue_frame(n, ca, c).T
        built.start(template.name)
        built.add(["N"], [n])
        if before is None and letter == "P":
            built.add(["H2", "H3"], methylene_hydrogens("N", n, ca, world[0, template.names.index("CD")]))
        elif before is None:
            built.add(["H", "H2", "H3"], rotor_hydrogens(3, "N", c, ca, n))
        elif letter != "P":
            built.add(["H"], [inline_hydrogen("N", n, [before, ca])])
        built.add(["CA"], [ca])
        built.rows.append(np.arange(len(template.names) - 3) + len(built.names))
        built.choices.append(np.ascontiguousarray(world[:, 3:]))
        built.costs.append(rotamers.cost)
        built.add(template.names[3:], world[0, 3:])
        built.add(["C"], [c])
        if i == last:
            length, angle = _CARBOXYLATE
            built.add(["O", "OXT"], [place(n, ca, c, length, angle, psi[i] + turn) for turn in (pi, 0.0)])
        else:
            built.add(["O"], [o])
    return built


# ------------------------------------------------------------------ notes


def _proline_notes(
    built: _Build, chain: list[str], chain_phi: float | None, asked: np.ndarray, angles: np.ndarray
) -> list[Note]:
    notes = []
    prolines = [i for i, letter in enumerate(chain) if letter == "P"]
    if prolines and chain_phi is not None and abs(chain_phi - PROLINE_PHI) > 1e-9:
        notes.append(
            Note(
                "proline",
                f"phi is {np.rad2deg(PROLINE_PHI):g} degrees instead of {np.rad2deg(chain_phi):g} at "
                f"{_some(built, prolines)}: the ring of proline is relaxed there; give phi for each residue to set it",
                _alpha_carbons(built, prolines),
            )
        )
    bent = np.flatnonzero(angles[1] != asked[1]).tolist()
    bent = [i for i in bent if built.residues[i] != "ACE"]
    if bent:
        values = ", ".join(f"{np.rad2deg(angles[1, i]):g}" for i in bent[:5])
        notes.append(
            Note(
                "proline",
                f"psi was changed from {np.rad2deg(asked[1, bent[0]]):g} degrees to {values}{', ...' if bent[5:] else ''} at "
                f"{_some(built, bent)}, since the ring of proline does not fit into a straight alpha helix; "
                "give psi for each residue to keep it",
                _alpha_carbons(built, bent),
            )
        )
    return notes


def _overlap_notes(built: _Build, positions: np.ndarray, pairs: np.ndarray) -> list[Note]:
    if not len(pairs):
        return []
    i, j = pairs[0].tolist()
    distance = np.linalg.norm(positions[i] - positions[j])
    first, second = (f"{built.label(built.owner[k])}, atom {built.names[k]}" for k in (i, j))
    return [
        Note(
            "overlap",
            f"{len(pairs)} pairs of atoms are nearer than {OVERLAP:g} of the sum of their van der Waals radii, the worst "
            f"{first} and {second}, {distance:.3f} nm apart; choose other torsions, or minimise before use",
            tuple(np.unique(pairs).tolist()),
        )
    ]


def _some(built: _Build, residues: list[int], most: int = 5) -> str:
    text = "; ".join(built.label(i) for i in residues[:most])
    return text if len(residues) <= most else f"{text}; and {len(residues) - most} more"


def _alpha_carbons(built: _Build, residues: list[int]) -> tuple[int, ...]:
    wanted = set(residues)
    return tuple(k for k, name in enumerate(built.names) if name == "CA" and built.owner[k] in wanted)
