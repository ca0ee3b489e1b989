"""What does a time step cost, beside the force call and beside OpenMM's own integrator?

    python benchmarks/dynamics.py [--repeats N] [-o FOLDER]

share     of a Langevin step of capped Ala50 in OBC2, what is not the OpenMM force call
per ns    wall time per nanosecond of capped Ala10 in OBC2 beside OpenMM's LangevinMiddleIntegrator at 4 fs with
          constraints=HBonds and hydrogens of 1.5 Da, which is how OpenMM recommends to run: the torsion integrator at
          8 fs, and with repartitioned hydrogen mass at the largest step at which GHMC accepts 90% of its proposals

The force call is setPositions and getState(forces=True) at positions that change by a rigid shift. OpenMM runs on its
CPU platform with one thread; wall times, minima over interleaved rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
from harness import Report, Task, cell
from molecules import constrained_system, context, relax
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.progress import Progress
from peptidyn.engine.rigid_terms import drop_rigid_terms
from peptidyn.engine.systems import make_system
from peptidyn.engine.torsion_integrators import TorsionGHMCIntegrator, TorsionLangevinIntegrator
from peptidyn.io.peptides import build_peptide
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree

SHARE_RESIDUES, SPEED_RESIDUES = 50, 10
TEMPERATURE, FRICTION = 300.0, 1.0
STEPS = 20
"""Time steps per call."""

TIMESTEP = 0.008
HYDROGEN_MASS = 4.0
"""Of the repartitioned torsion model, Da. With U_F masses do not change what is sampled."""

PEER_HYDROGEN_MASS, PEER_STEP = 1.5, 0.004
ACCEPTANCE = 0.9
TRIAL_STEPS = (0.008, 0.010, 0.012, 0.014, 0.016, 0.018, 0.020, 0.024, 0.028, 0.032)
PROPOSALS = 1500
PEER, TORSIONS, HEAVY, FORCE_CALL = "LangevinMiddle", "torsions", "torsions, repartitioned", "force call"
_GOALS = {TORSIONS: 0.60, HEAVY: 0.35, "share": 0.15}


class _Peptide:
    """Torsion dynamics of a capped polyalanine on the CPU platform, relaxed and thermal."""

    def __init__(self, residues: int, soft: str = "phi psi chi"):
        built = build_peptide("A" * residues)
        self.topology, self.system = built.topology, make_system(built.topology, "obc2")
        self.positions = relax(self.context(self.system), built.positions)
        self.tree = build_tree(Structure.from_openmm(self.topology, self.system, self.positions), soft)
        self.lean, _ = drop_rigid_terms(self.system, self.tree)

    def context(self, system: Any, integrator: Any = None) -> Any:
        return context(system, integrator, "CPU", {"Threads": "1"})

    def start(self, kind: type, timestep: float, **keywords: Any) -> Any:
        """Return an integrator of this kind, bound to its Context and thermal."""
        integrator = kind(self.tree, TEMPERATURE, FRICTION, timestep, seed=1, **keywords)
        integrator.kept = self.context(self.lean, integrator)  # the Context must live as long as the integrator
        integrator.kept.setPositions(self.positions)
        integrator.set_velocities_to_temperature(TEMPERATURE)
        integrator.step(50)
        return integrator

    def start_peer(self) -> Any:
        """Return OpenMM's LangevinMiddleIntegrator with its Context: HBonds constraints, repartitioned hydrogens."""
        integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, FRICTION, PEER_STEP)
        integrator.setRandomNumberSeed(1)
        system = constrained_system(self.topology, self.system, PEER_HYDROGEN_MASS)
        integrator.kept = self.context(system, integrator)
        integrator.kept.setPositions(self.positions)
        integrator.kept.setVelocitiesToTemperature(TEMPERATURE, 1)
        integrator.step(200)
        return integrator

    def force_call(self) -> Task:
        """Return a task that asks for forces as a step does."""
        bare = self.context(self.lean)
        places = [np.ascontiguousarray(self.positions + shift) for shift in (0.0, 1e-3)]

        def task() -> None:
            for i in range(STEPS):
                bare.setPositions(places[i % 2])
                bare.getState(forces=True)

        return task

    def acceptances(self) -> dict[float, float]:
        """Return the acceptance rate of GHMC with repartitioned hydrogens at growing steps, up to a low one."""
        found: dict[float, float] = {}
        for timestep in TRIAL_STEPS:
            integrator = self.start(TorsionGHMCIntegrator, timestep, hydrogen_mass=HYDROGEN_MASS)
            integrator.step(PROPOSALS)
            found[timestep] = integrator.acceptance
            if found[timestep] < ACCEPTANCE:
                break
        return found


def measure(repeats: int = 7) -> dict[str, Any]:
    """Time steps of the torsion integrator; seconds per step."""
    with Progress(3, "dynamics", unit="parts") as bar:
        share = _measure_share(repeats)
        bar.advance(1)
        speed = []
        for soft in ("phi psi chi", "phi psi chi methyl"):
            speed.append(_measure_speed(soft, repeats))
            bar.advance(1)
    return {"share": share, "speed": speed}


def _seconds_per_step(tasks: dict[str, Task], repeats: int) -> dict[str, float]:
    harness.first_calls(tasks)
    return {name: t.wall / STEPS for name, t in harness.interleave(tasks, repeats).items()}


def _measure_share(repeats: int) -> dict[str, Any]:
    peptide = _Peptide(SHARE_RESIDUES)
    integrator = peptide.start(TorsionLangevinIntegrator, TIMESTEP)
    seconds = _seconds_per_step({"step": lambda: integrator.step(STEPS), FORCE_CALL: peptide.force_call()}, repeats)
    return {
        "residues": SHARE_RESIDUES,
        "torsions": peptide.tree.n_torsions,
        "atoms": peptide.tree.n_atoms,
        "seconds": seconds,
        "share": 1.0 - seconds[FORCE_CALL] / seconds["step"],
    }


def _measure_speed(soft: str, repeats: int) -> dict[str, Any]:
    """Time Ala10 with the torsion integrator and with OpenMM's own."""
    peptide = _Peptide(SPEED_RESIDUES, soft)
    accepted = peptide.acceptances()
    largest = max((h for h, rate in accepted.items() if rate >= ACCEPTANCE), default=min(accepted))
    integrators = {
        PEER: peptide.start_peer(),
        TORSIONS: peptide.start(TorsionLangevinIntegrator, TIMESTEP),
        HEAVY: peptide.start(TorsionLangevinIntegrator, largest, hydrogen_mass=HYDROGEN_MASS),
    }
    tasks: dict[str, Task] = {name: lambda one=one: one.step(STEPS) for name, one in integrators.items()}
    seconds = _seconds_per_step(tasks | {FORCE_CALL: peptide.force_call()}, repeats)
    step = {PEER: PEER_STEP, TORSIONS: TIMESTEP, HEAVY: largest}
    per_ns = {name: 1000.0 / h * seconds[name] for name, h in step.items()}
    return {
        "residues": SPEED_RESIDUES,
        "soft": soft,
        "torsions": peptide.tree.n_torsions,
        "seconds": seconds,
        "step": step,
        "per_ns": per_ns,
        "acceptance": {f"{1000 * h:g} fs": rate for h, rate in accepted.items()},
        "ratio": {name: per_ns[name] / per_ns[PEER] for name in (TORSIONS, HEAVY)},
    }


def tables(report: Report) -> str:
    """Return the report as text for people."""
    share = report["share"]
    parts = [
        f"Langevin steps (BAOAB with Fixman torque); {report['repeats']} interleaved rounds, wall time, minimum",
        f"Capped Ala{share['residues']} in OBC2, {share['torsions']} torsions, {share['atoms']} atoms",
        harness.table(["", "µs"], [[name, cell(t, 1, 1e6)] for name, t in share["seconds"].items()]),
        f"share of a step that is not the force call: {share['share']:.3f}; goal: at most {_GOALS['share']:g}",
    ]
    for part in report["speed"]:
        rows = [
            [name, f"{1000 * h:g}", cell(part["seconds"][name], 1, 1e6), cell(part["per_ns"][name])]
            + [cell(part["ratio"].get(name), 3), f"at most {_GOALS[name]:g}" if name in _GOALS else ""]
            for name, h in part["step"].items()
        ]
        rows.append([FORCE_CALL, "", cell(part["seconds"][FORCE_CALL], 1, 1e6), "", "", ""])
        parts += [
            f"Capped Ala{part['residues']} in OBC2, soft {part['soft']}: {part['torsions']} torsions",
            harness.table(["", "step, fs", "µs per step", "s per ns", f"/ {PEER}", "goal"], rows),
            f"hydrogens: {PEER_HYDROGEN_MASS:g} Da and HBonds constraints for {PEER}; "
            f"{HYDROGEN_MASS:g} Da for {HEAVY}\n"
            "acceptance rate of GHMC, repartitioned: "
            + ", ".join(f"{h} {value:.3f}" for h, value in part["acceptance"].items()),
        ]
    return "\n\n".join(parts)


def draw(report: Report, path: Path) -> None:
    """Draw the wall time per nanosecond of every way to run Ala10, and what part of it is the force call."""
    figure, panels = new_figure(1, len(report["speed"]), figsize=(9.0, 3.6), squeeze=False)
    for axes, part in zip(panels[0], report["speed"], strict=True):
        names = list(part["step"])
        whole = [part["per_ns"][name] for name in names]
        force = [1000.0 / part["step"][name] * part["seconds"][FORCE_CALL] for name in names]
        labels = [f"{name}\n{1000 * part['step'][name]:g} fs".replace(", ", ",\n") for name in names]
        axes.bar(labels, whole, color="#c8781e", label="rest of the step")
        axes.bar(labels, force, color="#1f4e79", label="force call of torsions")
        axes.set(ylabel="wall time per ns (s)", title=f"capped Ala{part['residues']}, soft {part['soft']}")
        axes.tick_params(axis="x", labelsize=8)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    return harness.run(harness.parser(__file__, __doc__, repeats=7), arguments, measure, tables, draw)


if __name__ == "__main__":
    sys.exit(main())
