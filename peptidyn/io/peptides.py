"""`build_peptide`: an all-atom peptide from its sequence and torsions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import pi, radians
from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.core.points import place
from peptidyn.io.notes import Note, some
from peptidyn.io.peptide_backbone import fit_prolines, trace
from peptidyn.io.peptide_request import PeptideRequest, read_request
from peptidyn.io.residue_templates import (
    PROLINE_PHI,
    inline_hydrogen,
    methylene_hydrogens,
    residue_frame,
    residue_templates,
    rotor_hydrogens,
)
from peptidyn.io.rotamers import conformers, overlaps, pack, within_three_bonds
from peptidyn.io.structure import Structure

if TYPE_CHECKING:
    from openmm.app import Topology

OVERLAP = 0.7
"""Atoms more than three bonds apart overlap if nearer than this fraction of the sum of their van der Waals radii."""

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

    Notes
    -----
    Angles given one per residue are kept exactly. One value for the whole chain is kept exactly too, except
    around proline: its phi is then -65 degrees, where the ring is relaxed; and since a proline ring does not fit into
    a straight alpha helix, psi angles before it are changed so that the helix bends
    (`peptidyn.io.peptide_backbone.fit_prolines`). A phi given for one proline must lie within -85 and -35 degrees.
    The cost is linear in the length of the chain: a second or two for 500 residues.
    """
    request = read_request(sequence, phi, psi, omega, chi, caps)
    chain, asked, angles = _chain_angles(request)
    built = _place_atoms(chain, angles, request)
    topology = built.topology()
    bonds = np.array([(a.index, b.index) for a, b in topology.bonds()])
    positions, clashes = _pack(built, bonds)
    # Rounding far below any meaning turns -1e-17 into 0.0, so that files do not show the sign of round-off.
    positions = np.round(positions - positions.mean(axis=0), 12) + 0.0

    notes = _proline_notes(built, request.chain_phi, asked[1], angles[1])
    notes += _overlap_notes(built, positions, clashes)
    if name is None:
        name = request.letters if len(request.letters) <= 24 else f"{request.letters[:21]}..."
    return Structure.from_openmm(topology, None, positions, name=name, notes=tuple(notes))


def _chain_angles(request: PeptideRequest) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the letters of the chain, and phi, psi and omega (3, n) as asked for and as they will be, rad.

    A cap is traced as a glycine, of which ACE keeps CA, C and O, and NME keeps N and CA.
    """
    n_cap, c_cap = request.caps
    chain = ["G"] * n_cap + list(request.letters) + ["G"] * c_cap
    asked = np.full((3, len(chain)), pi)
    asked[:, n_cap : len(chain) - c_cap] = request.phi, request.psi, request.omega
    asked[2, :n_cap] = request.cap_omega
    angles = asked.copy()
    if request.uniform_helix:
        angles[1] = fit_prolines(chain, *asked)
    return chain, asked, angles


# ------------------------------------------------------------------ atoms


@dataclass(frozen=True)
class _SideChain:
    """Atoms that rotamers place: HA, CB and all beyond."""

    letter: str
    chi: tuple[float, ...]
    phi: float | None
    rows: np.ndarray
    ca: np.ndarray
    frame: np.ndarray

    def choices(self, fine: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return where each rotamer puts the atoms, (k, m, 3) nm, and what it costs, (k,)."""
        rotamers = conformers(self.letter, self.chi, self.phi, fine)
        return self.ca + rotamers.xyz[:, 3:] @ self.frame.T, rotamers.cost


class _Build:
    """The atoms of a peptide as they are laid down, in order."""

    def __init__(self) -> None:
        self.residues: list[str] = []
        self.owner: list[int] = []
        self.names: list[str] = []
        self.xyz: list[np.ndarray] = []
        self.side_chains: list[_SideChain] = []

    def start(self, residue: str) -> None:
        self.residues.append(residue)

    def add(self, names: Iterable[str], places: Iterable[np.ndarray]) -> None:
        for name, at in zip(names, places, strict=True):
            self.owner.append(len(self.residues) - 1)
            self.names.append(name)
            self.xyz.append(at)

    def label(self, residue: int) -> str:
        return f"chain A, residue {self.residues[residue]} {residue + 1}"

    def labels(self, residues: list[int]) -> str:
        return some([self.label(r) for r in residues])

    def topology(self) -> Topology:
        from openmm.app import Element, Topology

        topology = Topology()
        chain = topology.addChain("A")
        residues = [topology.addResidue(r, chain, id=str(i)) for i, r in enumerate(self.residues, start=1)]
        for name, owner in zip(self.names, self.owner, strict=True):
            topology.addAtom(name, Element.getBySymbol(name[0]), residues[owner])
        topology.createStandardBonds()
        return topology


def _place_atoms(chain: list[str], angles: np.ndarray, request: PeptideRequest) -> _Build:
    """Lay down every atom; those that rotamers decide about are left at the first rotamer."""
    phi, psi, _ = angles
    n_cap, c_cap = request.caps
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

        built.start(template.name)
        built.add(["N"], [n])
        frame = residue_frame(n, ca, c)
        if before is None and letter == "P":
            cd = ca + frame @ template.proline_conformers(phi[i])[0, template.names.index("CD")]
            built.add(["H2", "H3"], methylene_hydrogens("N", n, ca, cd))
        elif before is None:
            built.add(["H", "H2", "H3"], rotor_hydrogens(3, "N", c, ca, n))
        elif letter != "P":
            built.add(["H"], [inline_hydrogen("N", n, [before, ca])])
        built.add(["CA"], [ca])
        names = template.names[3:]
        rows = np.arange(len(names)) + len(built.names)
        ring_phi = float(phi[i]) if letter == "P" else None
        side_chain = _SideChain(letter, request.chi[i - n_cap], ring_phi, rows, ca, frame)
        built.side_chains.append(side_chain)
        built.add(names, side_chain.choices()[0][0])
        built.add(["C"], [c])
        if i == last:
            length, angle = _CARBOXYLATE
            built.add(["O", "OXT"], [place(n, ca, c, length, angle, psi[i] + turn) for turn in (pi, 0.0)])
        else:
            built.add(["O"], [o])
    return built


def _pack(built: _Build, bonds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all positions with the side chains in their rotamers, and the pairs of atoms that overlap."""
    elements = [name[0] for name in built.names]  # none has two letters
    near = within_three_bonds(len(elements), bonds)
    start = np.array(built.xyz)
    rows = [side_chain.rows for side_chain in built.side_chains]

    def packed(crowded: set[int]) -> tuple[np.ndarray, np.ndarray]:
        options = [s.choices(fine=k in crowded) for k, s in enumerate(built.side_chains)]
        places, costs = zip(*options, strict=True)
        positions = pack(start, elements, near, rows, places, costs)
        return positions, overlaps(positions, elements, bonds, near, OVERLAP)

    positions, clashes = packed(set())
    if len(clashes):
        involved = set(clashes.ravel().tolist())
        finer, fewer = packed({k for k, atoms in enumerate(rows) if involved.intersection(atoms.tolist())})
        if len(fewer) < len(clashes):
            return finer, fewer
    return positions, clashes


# ------------------------------------------------------------------ notes


def _proline_notes(built: _Build, chain_phi: float | None, asked: np.ndarray, psi: np.ndarray) -> list[Note]:
    notes = []

    def note(residues: list[int], text: str) -> None:
        carbons = (k for k, name in enumerate(built.names) if name == "CA" and built.owner[k] in residues)
        notes.append(Note("proline", text, tuple(carbons)))

    # the first residue of a chain without a cap has no phi
    prolines = [i for i, name in enumerate(built.residues) if name == "PRO" and i > 0]
    if prolines and chain_phi is not None and abs(chain_phi - PROLINE_PHI) > 1e-9:
        note(
            prolines,
            f"phi is {np.rad2deg(PROLINE_PHI):g} degrees instead of {np.rad2deg(chain_phi):g} at "
            f"{built.labels(prolines)}: the ring of proline is relaxed there; give phi for each residue to set it",
        )
    bent = [i for i in np.flatnonzero(psi != asked).tolist() if built.residues[i] != "ACE"]
    if bent:
        values = ", ".join(f"{np.rad2deg(psi[i]):g}" for i in bent[:5]) + (", ..." if bent[5:] else "")
        note(
            bent,
            f"psi is {values} degrees instead of {np.rad2deg(asked[bent[0]]):g} at {built.labels(bent)}: a "
            "straight alpha helix has no room for the ring of proline; give psi for each residue to keep it",
        )
    return notes


def _overlap_notes(built: _Build, positions: np.ndarray, pairs: np.ndarray) -> list[Note]:
    if not len(pairs):
        return []
    i, j = pairs[0].tolist()
    distance = np.linalg.norm(positions[i] - positions[j])
    first, second = (f"{built.label(built.owner[k])}, atom {built.names[k]}" for k in (i, j))
    text = (
        f"these torsions leave too little room: atoms overlap (pairs: {len(pairs)}), the worst {first} and {second}, "
        f"{distance:.3f} nm apart; choose other torsions, or minimise before use"
    )
    return [Note("overlap", text, tuple(np.unique(pairs).tolist()))]
