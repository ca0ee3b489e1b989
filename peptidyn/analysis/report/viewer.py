"""The trajectory for the 3-D view of a report: one structure and a bounded number of packed frames."""

from __future__ import annotations

import base64
import io
from typing import Any

import mdtraj
import numpy as np

from peptidyn.core.residues import is_water
from peptidyn.io.quiet import quiet_readers
from peptidyn.runs.run_folder import RunFolder

MOST_BYTES = 4_000_000
"""Packed coordinates that a report may hold; frames are left out beyond."""

MOST_FRAMES = 500


def view_data(run: RunFolder, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what the viewer needs, and sentences that say what was left out; None if there is no trajectory.

    Frames are superposed on the first one, so that the molecule does not tumble. Coordinates are stored as 16-bit
    integers; `scale` (Å per unit) gives them back to better than 0.01 Å for molecules up to 65 nm.

    Parameters
    ----------
    run : RunFolder
    most_bytes : int
        Limit of the packed coordinates, before they are written as base64.
    """
    if run.trajectory is None:
        return None, ["The run has no trajectory to show."]
    notes = []
    atoms = run.structure.atoms
    shown = np.flatnonzero(~is_water(atoms)[atoms.residue])
    if 0 < len(shown) < run.structure.n_atoms:
        notes.append(f"{run.structure.n_atoms - len(shown)} atoms of water are not shown.")
    else:
        shown = np.arange(run.structure.n_atoms)
    topology = run.structure.to_mdtraj().topology
    stride = 1 if run.n_frames < 2 else _stride(run.n_frames, len(shown), most_bytes)
    with quiet_readers():
        frames = mdtraj.load(run.trajectory, top=topology, atom_indices=shown, stride=stride)
    # a run that was killed may have written a frame that the table does not have
    frames = frames[: len(range(0, run.n_frames, stride))]
    if stride > 1:
        notes.append(
            f"Every {_ordinal(stride)} frame is shown, {len(frames)} of {run.n_frames}, to keep this file small."
        )
    if frames.n_atoms > 2:
        frames.superpose(frames, 0)
    xyz = 10.0 * (frames.xyz - frames.xyz[0].mean(axis=0))  # Å, about the middle of the first frame
    scale = max(float(np.abs(xyz).max()) / 32_000.0, 1e-4)
    packed = np.round(xyz / scale).astype("<i2")
    return {
        "pdb": _pdb_text(frames.topology, xyz[0]),
        "atoms": frames.n_atoms,
        "residues": frames.topology.n_residues,
        "scale": scale,
        "frames": base64.b64encode(packed.tobytes()).decode("ascii"),
        "times": [round(float(t), 6) for t in run.table["time"][::stride][: len(frames)]],
    }, notes


def _stride(n_frames: int, n_atoms: int, most_bytes: int) -> int:
    most = max(2, min(MOST_FRAMES, most_bytes // (6 * n_atoms)))
    return -(-n_frames // most)


def _ordinal(n: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if 10 < n % 100 < 14 else endings.get(n % 10, 'th')}"


def _pdb_text(topology: mdtraj.Topology, positions: np.ndarray) -> str:
    """Return positions (n_atoms, 3), Å, as PDB text, which 3Dmol reads and finds the bonds in."""
    from openmm import app

    buffer = io.StringIO()
    app.PDBFile.writeFile(topology.to_openmm(), positions.astype(np.float64), buffer, keepIds=True)
    return buffer.getvalue()
