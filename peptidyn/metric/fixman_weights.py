"""Weights that remove the mass-metric bias from trajectories of constrained dynamics.

A trajectory with rigid bonds and angles samples sqrt(det M) exp(-V/kT) unless its force already held U_F. The weights

    w = exp(-U_F / kT) = (det M / J^2)^(-1/2)

turn averages over it into averages over exp(-V/kT); the inverse weights do the opposite, for a trajectory that was
made with U_F. What they do not correct (geometry that cannot relax, stiffness of hard modes) is in docs/theory.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from peptidyn.core.errors import ArgumentError, TrajectoryError
from peptidyn.core.progress import Progress
from peptidyn.core.statistics import kish_size, statistical_inefficiency, weighted_average, weighted_histogram
from peptidyn.metric.fixman_potential import FixmanPotential
from peptidyn.model.fitting import fit_frames
from peptidyn.model.trajectory_states import TrajectoryReader, open_trajectory
from peptidyn.model.tree import TreeModel

RIGID_TOLERANCE = 5e-3
"""Default deviation (nm) beyond which a rigid unit of a frame counts as deformed; xtc files round to 0.5e-3."""


@dataclass(frozen=True, eq=False, repr=False)
class FixmanWeights:
    """Fixman energies and weights of the frames of a trajectory.

    Attributes
    ----------
    index : (n,) int
        Place of each frame in the file.
    time : (n,), ps
    log_det : (n,)
        ln(det M / J^2); J is the product of the sines of soft bond angles, 1 without them.
    energy : (n,)
        U_F, kJ/mol.
    misfit : (n,)
        Deviation (nm) of the most deformed rigid unit of each frame.
    worst_unit : str
        Name of the most deformed unit of all frames.
    torsions : (n, n_torsions), rad
    temperature : float, K
    tolerance : float
        Misfits beyond it (nm) count as deformed.
    kT : float, kJ/mol
    """

    index: np.ndarray
    time: np.ndarray
    log_det: np.ndarray
    energy: np.ndarray
    misfit: np.ndarray
    worst_unit: str
    torsions: np.ndarray
    temperature: float
    tolerance: float
    kT: float

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        size = f"effective {self.effective_sample_size:.1f}" if len(self) else "empty"
        return f"<FixmanWeights: {len(self)} frames ({size}), {self.temperature:g} K>"

    @property
    def weights(self) -> np.ndarray:
        """Normalised weights (n,) that remove the bias of rigid dynamics."""
        return softmax(-self.energy / self.kT)

    @property
    def inverse_weights(self) -> np.ndarray:
        """Normalised weights (n,) that restore the bias, for trajectories made with U_F."""
        return softmax(self.energy / self.kT)

    @property
    def deformed(self) -> np.ndarray:
        """Mask (n,) of frames with a unit deformed beyond the tolerance: their weights are approximate."""
        return self.misfit > self.tolerance

    @property
    def effective_sample_size(self) -> float:
        """Frames of equal weight with the same information, (sum w)^2 / sum w^2; autocorrelation is not counted."""
        return kish_size(self.weights)

    @property
    def independent_samples(self) -> float:
        """Effective sample size with the autocorrelation of U_F counted."""
        return self.effective_sample_size / statistical_inefficiency(self.energy)

    def average(self, observable: Any, inverse: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted mean of `observable` (n,) or (n, m) and its standard error, autocorrelation counted."""
        return weighted_average(np.asarray(observable), self.inverse_weights if inverse else self.weights)

    def histogram(
        self, observable: Any, bins: Any = 36, limits: tuple[float, float] | None = None, inverse: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weighted density of `observable` (n,), its standard error, and the bin edges."""
        weights = self.inverse_weights if inverse else self.weights
        return weighted_histogram(np.asarray(observable), weights, bins, limits)

    def summary(self) -> str:
        """Return a few sentences for people."""
        spread = self.energy.max() - self.energy.min()
        lines = [
            f"{len(self)} frames at {self.temperature:g} K: U_F {self.energy.mean():.3f} kJ/mol on average, standard "
            f"deviation {self.energy.std() / self.kT:.3f} kT, range {spread / self.kT:.3f} kT",
            f"effective sample size {self.effective_sample_size:.1f} of {len(self)} frames; "
            f"{self.independent_samples:.1f} with the autocorrelation of U_F",
        ]
        worst = int(self.misfit.argmax())
        if self.deformed.any():
            lines.append(
                f"warning: in {int(self.deformed.sum())} frames a rigid unit is deformed by more than "
                f"{self.tolerance:g} nm, most in frame {self.index[worst]}: the {self.worst_unit} by "
                f"{self.misfit[worst]:.2e} nm; such frames were not made with these constraints"
            )
        else:
            lines.append(f"all frames are rigid within {self.tolerance:g} nm (worst {self.misfit[worst]:.1e} nm)")
        return "\n".join(lines)


def fixman_weights(
    tree: TreeModel,
    trajectory: Any,
    temperature: Any,
    *,
    top: Any = None,
    tolerance: float = RIGID_TOLERANCE,
    progress: bool = False,
) -> FixmanWeights:
    """Return Fixman energies and weights of every frame of a trajectory.

    Frames are read in chunks, so memory does not grow with the length of the trajectory beyond the results; each chunk
    is evaluated on all cores.

    Parameters
    ----------
    tree : TreeModel
        The model whose constraints the trajectory obeys.
    trajectory : path, TrajectoryReader, mdtraj.Trajectory or (n_frames, n_atoms, 3) array in nm
    temperature : float or Quantity
        K.
    top : path or mdtraj topology, optional
        For a path: the topology of the file; see `open_trajectory`.
    tolerance : float
        Deviation of a rigid unit (nm) beyond which a frame is reported as deformed.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    FixmanWeights
    """
    potential = FixmanPotential(tree, temperature)
    if not tolerance > 0:
        raise ArgumentError(f"tolerance is {tolerance:g} nm, expected a positive length")
    parts: list[tuple[np.ndarray, ...]] = []
    worst, worst_link = -1.0, 0
    chunks, total = _chunks(tree, trajectory, top)
    with Progress(total, "Fixman weights", enabled=progress) as bar:
        for index, time, fits in chunks:
            log_det = potential.log_metric(fits.q)
            parts.append((index, time, log_det, fits.misfit, fits.q[:, tree.torsion_index]))
            peak = int(fits.misfit.argmax())
            if fits.misfit[peak] > worst:
                worst, worst_link = float(fits.misfit[peak]), int(fits.worst_link[peak])
            bar.advance(len(index))
    if not parts:
        raise TrajectoryError("the trajectory holds no frames")
    index, time, log_det, misfit, torsions = (np.concatenate(column) for column in zip(*parts, strict=True))
    energy = 0.5 * potential.kT * log_det
    unit = tree.unit(worst_link).name
    T, kT = potential.temperature, potential.kT
    return FixmanWeights(index, time, log_det, energy, misfit, unit, torsions, T, tolerance, kT)


def _chunks(tree: TreeModel, trajectory: Any, top: Any) -> tuple[Iterator[tuple[np.ndarray, np.ndarray, Any]], Any]:
    """Return an iterator over (index, time, fits), and the number of frames if it is known."""
    if isinstance(trajectory, str | os.PathLike):
        trajectory = open_trajectory(tree, Path(trajectory), top)
    if isinstance(trajectory, TrajectoryReader):
        return ((c.index, c.time, c.fits) for c in trajectory.chunks()), trajectory.n_frames
    xyz = np.asarray(getattr(trajectory, "xyz", trajectory))
    if xyz.ndim != 3 or xyz.shape[1:] != (tree.n_atoms, 3):
        raise TrajectoryError(f"the trajectory has shape {xyz.shape}, expected (n_frames, {tree.n_atoms}, 3)")
    bad = np.flatnonzero(~np.isfinite(xyz).all(axis=(1, 2)))
    if bad.size:
        raise TrajectoryError(f"frame {bad[0]} of the trajectory holds positions that are not finite numbers")
    times = np.asarray(getattr(trajectory, "time", np.arange(len(xyz))), dtype=np.float64)
    size = 100
    pieces = (slice(start, min(start + size, len(xyz))) for start in range(0, len(xyz), size))
    return ((np.arange(len(xyz))[s], times[s], fit_frames(tree, xyz[s])) for s in pieces), len(xyz)
