"""Frames for a report: for its 3-D view, one structure and a bounded number of packed frames; for its tables, more."""

from __future__ import annotations

import base64
import io
from typing import Any

import mdtraj
import numpy as np

from peptidyn.core.residues import is_water
from peptidyn.io.plain_paths import plain_path
from peptidyn.io.quiet import quiet_readers
from peptidyn.io.structure import Structure
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.runs.run_folder import RunFolder

MOST_BYTES = 4_000_000
"""Packed coordinates that a report may hold; frames are left out beyond."""

MOST_FRAMES = 500


def shown_atoms(structure: Structure) -> tuple[np.ndarray, list[str]]:
    """Return the atoms that a report looks at, all but those of water, and a sentence if some are left out."""
    atoms = structure.atoms
    shown = np.flatnonzero(~is_water(atoms)[atoms.residue])
    if 0 < len(shown) < structure.n_atoms:
        return shown, [f"{structure.n_atoms - len(shown)} atoms of water are not shown."]
    return np.arange(structure.n_atoms), []


def run_frames(run: RunFolder, atoms: np.ndarray, most: int) -> tuple[mdtraj.Trajectory | None, np.ndarray, list[str]]:
    """Return at most `most` frames of a run, their times (ps), and a sentence if frames were left out.

    There are none if the run has no trajectory.
    """
    if run.trajectory is None:
        return None, np.empty(0), ["The run has no trajectory to show."]
    stride = 1 if run.n_frames < 2 else -(-run.n_frames // max(2, most))
    topology = run.structure.to_mdtraj().topology
    with plain_path(run.trajectory) as path, quiet_readers():
        frames = mdtraj.load(path, top=topology, atom_indices=atoms, stride=stride)
    # a run that was killed may have written a frame that the table does not have
    frames = frames[: len(range(0, run.n_frames, stride))]
    return frames, run.table["time"][::stride][: len(frames)], _left_out(stride, len(frames), run.n_frames)


def level_frames(
    run: ExchangeRun, level: int, atoms: np.ndarray, most: int
) -> tuple[mdtraj.Trajectory, np.ndarray, list[str]]:
    """Return at most `most` frames of one temperature, their energies, and a sentence if frames were left out."""
    places = run.places(level)
    stride = 1 if len(places) < 2 else -(-len(places) // max(2, most))
    frames = run.frames(places[::stride], atoms)
    return frames, run.energies(level)[::stride], _left_out(stride, len(frames), len(places))


def most_frames(n_atoms: int, most_bytes: int) -> int:
    """Return how many frames of `n_atoms` atoms fit into `most_bytes` of packed coordinates."""
    return max(2, min(MOST_FRAMES, most_bytes // (6 * n_atoms)))


def view_data(run: RunFolder, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what the viewer needs, and sentences that say what was left out; None if there is no trajectory.

    Parameters
    ----------
    run : RunFolder
    most_bytes : int
        Limit of the packed coordinates, before they are written as base64.
    """
    shown, notes = shown_atoms(run.structure)
    frames, times, left_out = run_frames(run, shown, most_frames(len(shown), most_bytes))
    if frames is None:
        return None, left_out
    return pack(frames, times, "", " ps"), notes + left_out


def pack(frames: mdtraj.Trajectory, labels: np.ndarray, before: str, after: str) -> dict[str, Any]:
    """Return frames as the viewer reads them; every frame is named by its label between the words before and after.

    Frames are superposed on the first one, so that the molecule does not tumble. Coordinates are stored as 16-bit
    integers; `scale` (Å per unit) gives them back to better than 0.01 Å for molecules up to 65 nm.
    """
    if frames.n_atoms > 2:
        frames = frames.slice(range(len(frames)))
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
        "times": [round(float(t), 6) for t in labels],
        "before": before,
        "after": after,
    }


def _left_out(stride: int, shown: int, of: int) -> list[str]:
    if stride == 1:
        return []
    return [f"Every {_ordinal(stride)} frame is shown, {shown} of {of}, to keep this file small."]


def _ordinal(n: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if 10 < n % 100 < 14 else endings.get(n % 10, 'th')}"


def _pdb_text(topology: mdtraj.Topology, positions: np.ndarray) -> str:
    """Return positions (n_atoms, 3), Å, as PDB text, which 3Dmol reads and finds the bonds in."""
    from openmm import app

    buffer = io.StringIO()
    app.PDBFile.writeFile(topology.to_openmm(), positions.astype(np.float64), buffer, keepIds=True)
    return buffer.getvalue()
