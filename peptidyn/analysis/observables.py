"""What is measured on trajectories of peptides, with MDTraj: helix content, basins, sizes, hydrogen bonds.

Every function takes an `mdtraj.Trajectory`, frames in the order of time, and returns an `Estimate`: the average with a
standard error that counts the autocorrelation of the frames. Frames of a replica exchange run are those of one
temperature; see `peptidyn.analysis.exchange_frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peptidyn.analysis.estimates import Estimate, estimate
from peptidyn.core.errors import ArgumentError

if TYPE_CHECKING:
    import mdtraj

HELIX_PHI, HELIX_PSI = (-100.0, -30.0), (-67.0, -7.0)
"""Degrees: a residue within both is helical, as for R. B. Best and G. Hummer, J. Phys. Chem. B 113, 9004 (2009)."""

BASINS = ("alpha", "beta", "left")
"""Basins of the Ramachandran map: phi < 0 with -120 <= psi < 60; phi < 0 with all other psi, polyproline II included;
phi >= 0 (degrees)."""

BACKBONE = frozenset({"N", "H", "H1", "H2", "H3", "HN", "HN1", "HN2", "CA", "C", "O", "OXT"})
CAPS = frozenset({"ACE", "NME", "NMA", "NHE", "NH2"})
"""Atoms and caps among which hydrogen bonds of backbones are looked for."""


def helix_content(trajectory: mdtraj.Trajectory, weights: Any = None) -> Estimate:
    """Return the part of residues that are helical together with both neighbours.

    A residue is helical if -100 < phi < -30 and -67 < psi < -7 degrees. Residues without two neighbours in the chain
    that have phi and psi are not counted.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
    weights : (n_frames,), optional
        Of the frames; default all equal.
    """
    helical, chains = helical_residues(trajectory)
    triples = helix_triples(helical, chains)
    if not triples.shape[1]:
        raise ArgumentError("helix content needs a chain of three residues with phi and psi; the trajectory has none")
    return estimate(triples.mean(axis=1), weights, name="helix content")


def helical_residues(trajectory: mdtraj.Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Return which residues are helical (n_frames, n) bool, and the number of the unbroken chain of each (n,) int.

    Residues are those with phi and psi, in the order of the chain.
    """
    phi, psi, chains = backbone_torsions(trajectory)
    return is_helical(phi, psi), chains


def is_helical(phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Return whether phi and psi, both (...) in degrees, are those of a helix."""
    return (phi > HELIX_PHI[0]) & (phi < HELIX_PHI[1]) & (psi > HELIX_PSI[0]) & (psi < HELIX_PSI[1])


def helix_triples(helical: np.ndarray, chains: np.ndarray | None = None) -> np.ndarray:
    """Return which residues are helical with both neighbours, (n_frames, n), without those that lack a neighbour.

    Parameters
    ----------
    helical : (n_frames, n_residues) bool
    chains : (n_residues,) int, optional
        Number of the chain of every residue; default one chain.
    """
    triples = helical[:, :-2] & helical[:, 1:-1] & helical[:, 2:]
    return triples if chains is None else triples[:, chains[:-2] == chains[2:]]


def backbone_torsions(trajectory: mdtraj.Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return phi and psi (n_frames, n), degrees, of all residues that have both, and the number of their chain (n,).

    A peptide bond that is missing ends a chain.
    """
    import mdtraj

    pairs = _phi_psi_atoms(trajectory.topology)
    if not pairs:
        raise ArgumentError("the trajectory has no residue with phi and psi: peptides of one residue need caps")
    atoms = np.array([atoms for pair in pairs for atoms in pair[:2]])
    degrees = np.rad2deg(mdtraj.compute_dihedrals(trajectory, atoms, periodic=False))
    return degrees[:, ::2], degrees[:, 1::2], np.array([chain for _, _, chain in pairs])


def _phi_psi_atoms(topology: Any) -> list[tuple[list[int], list[int], int]]:
    """Return the atoms of phi and of psi, and the number of the chain, for every residue that has both.

    MDTraj finds them by the order of residues, also across chain breaks; here residues are joined by their bond.
    """
    residues = list(topology.residues)
    atom = [{a.name: a.index for a in residue.atoms} for residue in residues]
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds}
    pairs: list[tuple[list[int], list[int], int]] = []
    number = -1
    for before, here, after in zip(atom, atom[1:], atom[2:], strict=False):
        if "C" not in before or not {"N", "CA", "C"} <= here.keys() or "N" not in after:
            continue
        c, n, ca, c1, n1 = before["C"], here["N"], here["CA"], here["C"], after["N"]
        if frozenset((c, n)) not in bonded or frozenset((c1, n1)) not in bonded:
            continue
        if not pairs or pairs[-1][1][3] != n:  # psi of the residue before does not end at this nitrogen
            number += 1
        pairs.append(([c, n, ca, c1], [n, ca, c1, n1], number))
    return pairs


def ramachandran_basins(trajectory: mdtraj.Trajectory, weights: Any = None) -> Estimate:
    """Return the populations (n_residues, 3) of the basins alpha, beta and left of every residue with phi and psi.

    alpha has phi < 0 and -120 <= psi < 60 degrees; beta, with polyproline II in it, all other psi at phi < 0; left
    has phi >= 0.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
    weights : (n_frames,), optional
        Of the frames; default all equal.
    """
    phi, psi, _ = backbone_torsions(trajectory)
    top = trajectory.topology
    residues = [top.atom(atoms[1]).residue for atoms, _, _ in _phi_psi_atoms(top)]
    names = tuple(f"{residue.name}{residue.resSeq}" for residue in residues)
    inside = basin_of(phi, psi)[..., None] == np.arange(len(BASINS))
    return estimate(inside, weights, name=f"populations of {', '.join(BASINS)}", labels=names)


def basin_of(phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Return the index into `BASINS` of phi and psi (...), degrees."""
    return np.where(phi >= 0, 2, np.where((psi >= -120.0) & (psi < 60.0), 0, 1))


def radius_of_gyration(trajectory: mdtraj.Trajectory, weights: Any = None) -> Estimate:
    """Return the radius of gyration, nm, of all atoms weighted by their masses.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
    weights : (n_frames,), optional
        Of the frames; default all equal.
    """
    # mdtraj.compute_rg measures from the centre of geometry, also with masses
    masses = np.array([atom.element.mass for atom in trajectory.topology.atoms])
    masses /= masses.sum()
    x = trajectory.xyz.astype(np.float64)
    x -= np.einsum("a,fai->fi", masses, x)[:, None]
    rg = np.sqrt(np.einsum("a,fai,fai->f", masses, x, x))
    return estimate(rg, weights, name="radius of gyration", unit="nm")


def end_to_end_distance(trajectory: mdtraj.Trajectory, weights: Any = None) -> Estimate:
    """Return the distance, nm, between the first and the last alpha carbon of the chain.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
        Of one chain; choose with ``trajectory.atom_slice(trajectory.topology.select("chainid 0"))``.
    weights : (n_frames,), optional
        Of the frames; default all equal.
    """
    carbons = [a for a in trajectory.topology.atoms if a.name == "CA" and a.element.symbol == "C"]
    if len(carbons) < 2 or len({a.residue.chain.index for a in carbons}) > 1:
        raise ArgumentError(
            f"the end-to-end distance is that of one chain, and the trajectory has {len(carbons)} alpha carbons in "
            f"{len({a.residue.chain.index for a in carbons})}; choose a chain with trajectory.atom_slice"
        )
    ends = trajectory.xyz[:, [carbons[0].index, carbons[-1].index]].astype(np.float64)
    distance = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    return estimate(distance, weights, name="end-to-end distance", unit="nm")


def hydrogen_bonds(trajectory: mdtraj.Trajectory, weights: Any = None) -> Estimate:
    """Return the number of hydrogen bonds between backbones: N-H to O, caps included.

    They are found by MDTraj with the criterion of Wernet and Nilsson: the distance of N and O is below 0.33 nm less
    0.000044 nm per squared degree of the angle between N-O and N-H.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
    weights : (n_frames,), optional
        Of the frames; default all equal.
    """
    import mdtraj

    chosen = [
        a.index for a in trajectory.topology.atoms
        if a.name in BACKBONE and (a.residue.is_protein or a.residue.name in CAPS)
    ]  # fmt: skip
    if not chosen:
        raise ArgumentError("hydrogen bonds between backbones need a peptide; the trajectory has none")
    trajectory = trajectory.atom_slice(chosen)
    found = mdtraj.wernet_nilsson(trajectory, exclude_water=True, periodic=False)
    return estimate([len(bonds) for bonds in found], weights, name="hydrogen bonds")
