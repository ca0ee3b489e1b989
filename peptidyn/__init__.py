"""peptidyn: torsion-space molecular dynamics of polypeptides, and of any molecule an OpenMM System holds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peptidyn._version import __version__

if TYPE_CHECKING:
    from peptidyn.analysis.report import write_report
    from peptidyn.analysis.study import Study
    from peptidyn.engine.fixman_force import FixmanForce
    from peptidyn.engine.forces import make_system
    from peptidyn.engine.simulation import TorsionSimulation
    from peptidyn.engine.torsion_integrators import (
        TorsionGHMCIntegrator,
        TorsionLangevinIntegrator,
        TorsionVerletIntegrator,
    )
    from peptidyn.engine.torsion_reporter import TorsionReporter
    from peptidyn.ensemble.fixman_map import fixman_map
    from peptidyn.ensemble.fixman_potential import FixmanPotential
    from peptidyn.ensemble.reweighting import fixman_weights
    from peptidyn.errors import PeptidynError
    from peptidyn.io.peptides import build_peptide
    from peptidyn.io.readers import load_structure
    from peptidyn.io.structure import Structure
    from peptidyn.io.trajectories import open_trajectory
    from peptidyn.model.backbone import backbone_frames
    from peptidyn.model.beads import bead_chain
    from peptidyn.model.build import build_tree
    from peptidyn.model.state import State
    from peptidyn.model.tree import TreeModel
    from peptidyn.sampling.ensembles import run_ensemble
    from peptidyn.sampling.exchange import ReplicaExchange, geometric_temperatures
    from peptidyn.sampling.gibbs import GibbsSampler
    from peptidyn.sampling.moves import CartesianHMC, PivotMove, TorsionalHMC, TorsionMove
    from peptidyn.solvers.dense import mass_matrix
    from peptidyn.solvers.dh_chain import DHChain
    from peptidyn.solvers.dynamics import inverse_dynamics, kinetic_energy
    from peptidyn.solvers.protocol import get_solver, list_solvers

# Public names and where they live: imported on first use, so that `import peptidyn` is quick.
_PUBLIC = {
    "PeptidynError": "peptidyn.errors",
    "Structure": "peptidyn.io.structure",
    "load_structure": "peptidyn.io.readers",
    "open_trajectory": "peptidyn.io.trajectories",
    "build_peptide": "peptidyn.io.peptides",
    "build_tree": "peptidyn.model.build",
    "bead_chain": "peptidyn.model.beads",
    "backbone_frames": "peptidyn.model.backbone",
    "TreeModel": "peptidyn.model.tree",
    "State": "peptidyn.model.state",
    "list_solvers": "peptidyn.solvers.protocol",
    "get_solver": "peptidyn.solvers.protocol",
    "mass_matrix": "peptidyn.solvers.dense",
    "inverse_dynamics": "peptidyn.solvers.dynamics",
    "kinetic_energy": "peptidyn.solvers.dynamics",
    "DHChain": "peptidyn.solvers.dh_chain",
    "FixmanPotential": "peptidyn.ensemble.fixman_potential",
    "FixmanForce": "peptidyn.engine.fixman_force",
    "fixman_weights": "peptidyn.ensemble.reweighting",
    "fixman_map": "peptidyn.ensemble.fixman_map",
    "TorsionVerletIntegrator": "peptidyn.engine.torsion_integrators",
    "TorsionLangevinIntegrator": "peptidyn.engine.torsion_integrators",
    "TorsionGHMCIntegrator": "peptidyn.engine.torsion_integrators",
    "make_system": "peptidyn.engine.forces",
    "TorsionSimulation": "peptidyn.engine.simulation",
    "TorsionReporter": "peptidyn.engine.torsion_reporter",
    "TorsionalHMC": "peptidyn.sampling.moves",
    "CartesianHMC": "peptidyn.sampling.moves",
    "TorsionMove": "peptidyn.sampling.moves",
    "PivotMove": "peptidyn.sampling.moves",
    "GibbsSampler": "peptidyn.sampling.gibbs",
    "ReplicaExchange": "peptidyn.sampling.exchange",
    "geometric_temperatures": "peptidyn.sampling.exchange",
    "run_ensemble": "peptidyn.sampling.ensembles",
    "Study": "peptidyn.analysis.study",
    "write_report": "peptidyn.analysis.report",
}

__all__ = [  # noqa: RUF022 - in the order of the flow, as in _PUBLIC
    "__version__", "PeptidynError", "Structure", "load_structure", "open_trajectory", "build_peptide", "build_tree",
    "bead_chain", "backbone_frames", "TreeModel", "State", "list_solvers", "get_solver", "mass_matrix",
    "inverse_dynamics", "kinetic_energy", "DHChain", "FixmanPotential", "FixmanForce", "fixman_weights", "fixman_map",
    "TorsionVerletIntegrator", "TorsionLangevinIntegrator", "TorsionGHMCIntegrator", "make_system",
    "TorsionSimulation", "TorsionReporter", "TorsionalHMC", "CartesianHMC", "TorsionMove", "PivotMove", "GibbsSampler",
    "ReplicaExchange", "geometric_temperatures", "run_ensemble", "Study", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'peptidyn' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
