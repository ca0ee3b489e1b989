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
from peptidyn.io.rotamers import VDW_RADII, conformers, overlaps, pack, within_three_bonds
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

    atoms = _place_atoms(chain, angles, prescribed, n_cap, c_cap)
    topology = _topology(atoms)
    radii = np.array([VDW_RADII[name[0]] for name in atoms.names])
    bonds = np.array([(a.index, b.index) for a, b in topology.bonds()])
    near = within_three_bonds(len(radii), bonds)
    positions = pack(np.array(atoms.xyz), radii, near, atoms.rows, atoms.choices, atoms.costs)
    # Rounding far below any meaning turns -1e-17 into 0.0, so that files do not show the sign of round-off.
    positions = np.round(positions - positions.mean(axis=0), 12) + 0.0

    if name is None:
        name = "".join(letters) if len(letters) <= 24 else f"{''.join(letters[:21])}..."
    structure = Structure.from_openmm(topology, None, positions, name=name)
    return structure
