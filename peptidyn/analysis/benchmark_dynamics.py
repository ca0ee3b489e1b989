"""`peptidyn bench dynamics`: what a time step costs, beside the force call and beside OpenMM's own integrator.

Two measurements, all in one process and interleaved:

share     of a Langevin step of capped Ala50 in OBC2, what is not the OpenMM force call
per ns    wall time per nanosecond of capped Ala10 in OBC2 beside OpenMM's LangevinMiddleIntegrator at 4 fs with
          constraints=HBonds and hydrogens of 1.5 Da, which is how OpenMM recommends to run: the torsion integrator at
          8 fs, and with repartitioned hydrogen mass at the largest step at which GHMC accepts 90% of its proposals

The force call is setPositions and getState(forces=True) at positions that change by a rigid shift. OpenMM runs on its
CPU platform with one thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from peptidyn.analysis.benchmarks import (
    Task,
    Timing,
    first_calls,
    format_machine,
    interleave,
    load,
    machine,
)
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.progress import Progress
from peptidyn.engine.rigid_terms import drop_rigid_terms
from peptidyn.engine.systems import make_system
from peptidyn.engine.torsion_integrators import TorsionGHMCIntegrator, TorsionLangevinIntegrator
from peptidyn.io.peptides import build_peptide
from peptidyn.io.structure import Structure
from peptidyn.model.build import build_tree
from peptidyn.model.tree import TreeModel

SHARE_RESIDUES = 50
TEMPERATURE, FRICTION = 300.0, 1.0
STEPS = 20
"""Time steps per call."""

HYDROGEN_MASS = 4.0
"""Of the repartitioned torsion model, Da. With U_F masses do not change what is sampled."""

PEER_HYDROGEN_MASS, PEER_STEP = 1.5, 0.004
ACCEPTANCE = 0.9
TRIAL_STEPS = (0.008, 0.010, 0.012, 0.014, 0.016, 0.018, 0.020, 0.024, 0.028, 0.032)
PROPOSALS = 1500

_GOALS = {
    "share of a step that is not the force call": 0.15,
    "time per ns, 8 fs / LangevinMiddle 4 fs": 0.60,
    "time per ns, repartitioned / LangevinMiddle 4 fs": 0.35,
}


class _Run:
    """Torsion dynamics of a capped polyalanine on the CPU platform, relaxed and thermal."""

    def __init__(self, residues: int, soft: str = "phi psi chi", solvent: str = "obc2"):
        self.structure = build_peptide("A" * residues)
        self.soft = soft
        self.system = make_system(self.structure.topology, solvent=solvent)
        context = _context(self.system, _verlet())
        context.setPositions(self.structure.positions)
        _relax(context)
        self.positions = context.getState(positions=True).getPositions(asNumpy=True)._value
        relaxed = Structure.from_openmm(self.structure.topology, self.system, self.positions)
        self.tree: TreeModel = build_tree(relaxed, soft)
        self.lean, _ = drop_rigid_terms(self.system, self.tree)

    def start(self, kind: type, timestep: float, **keywords: Any) -> Any:
        """Return an integrator of this kind, bound to its Context and thermal."""
        integrator = kind(self.tree, TEMPERATURE, FRICTION, timestep, seed=1, **keywords)
        integrator.kept = _context(self.lean, integrator)  # the Context must live as long as the integrator
        integrator.kept.setPositions(self.positions)
        integrator.set_velocities_to_temperature(TEMPERATURE)
        integrator.step(50)
        return integrator

    def force_call(self) -> Task:
        """Return a task that asks for forces as a step does."""
        context = _context(self.lean, _verlet())
        places = [np.ascontiguousarray(self.positions + shift) for shift in (0.0, 1e-3)]

        def task() -> object:
            for i in range(STEPS):
                context.setPositions(places[i % 2])
                context.getState(forces=True)
            return context

        return task


def _context(system: Any, integrator: Any) -> Any:
    import openmm

    platform = openmm.Platform.getPlatformByName("CPU")
    return openmm.Context(system, integrator, platform, {"Threads": "1"})


def _verlet() -> Any:
    import openmm

    return openmm.VerletIntegrator(0.001)


def _relax(context: Any) -> None:
    import openmm

    openmm.LocalEnergyMinimizer.minimize(context, 1.0)


def _peer(run: _Run) -> Any:
    """Return OpenMM's LangevinMiddleIntegrator with its Context: HBonds constraints, repartitioned hydrogens, OBC2."""
    import openmm
    from openmm import app, unit

    from peptidyn.engine.systems import load_force_field

    system = load_force_field("vacuum", "amber14").createSystem(
        run.structure.topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds,
        hydrogenMass=PEER_HYDROGEN_MASS * unit.dalton, removeCMMotion=False,
    )  # fmt: skip
    for force in run.system.getForces():
        if isinstance(force, openmm.GBSAOBCForce):
            system.addForce(openmm.XmlSerializer.clone(force))
        elif isinstance(force, openmm.NonbondedForce):
            dielectric = force.getReactionFieldDielectric()
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(dielectric)
    integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, FRICTION, PEER_STEP)
    integrator.setRandomNumberSeed(1)
    integrator.kept = _context(system, integrator)
    integrator.kept.setPositions(run.positions)
    integrator.kept.setVelocitiesToTemperature(TEMPERATURE, 1)
    integrator.step(200)
    return integrator


def measure_dynamics(rounds: int = 7, progress: bool = False) -> dict[str, Any]:
    """Time steps of the torsion integrator; see the top of this file.

    Parameters
    ----------
    rounds : int
        Interleaved rounds.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    dict
        Ready for JSON; times in seconds per step.
    """
    before = load()
    with Progress(4, "bench dynamics", unit="parts", enabled=progress) as bar:
        share = _measure_share(rounds)
        bar.advance(1)
        speed = [_measure_speed(soft, rounds, bar) for soft in ("phi psi chi", "phi psi chi methyl")]
    return {
        "benchmark": "dynamics",
        "machine": machine(),
        "rounds": rounds,
        "share": share,
        "speed": speed,
        "load": [before, load()],
    }


def _seconds(timing: Timing) -> dict[str, float]:
    return {"wall": timing.wall / STEPS, "median": timing.median / STEPS}


def _measure_share(rounds: int) -> dict[str, Any]:
    run = _Run(SHARE_RESIDUES)
    integrator = run.start(TorsionLangevinIntegrator, 0.008)
    tasks: dict[str, Task] = {"step": lambda: integrator.step(STEPS), "force call": run.force_call()}
    first_calls(tasks)
    timings = interleave(tasks, rounds)
    return {
        "residues": SHARE_RESIDUES,
        "torsions": run.tree.n_torsions,
        "atoms": run.tree.n_atoms,
        "seconds": {name: _seconds(t) for name, t in timings.items()},
        "share": 1.0 - timings["force call"].wall / timings["step"].wall,
    }


def _measure_speed(soft: str, rounds: int, bar: Progress, residues: int = 10) -> dict[str, Any]:
    """Time Ala10 with the torsion integrator and with OpenMM's own."""
    run = _Run(residues, soft)
    peer = _peer(run)
    accepted = _acceptances(run)
    good = [h for h, share in accepted.items() if share >= ACCEPTANCE]
    largest = max(good, default=min(accepted))
    plain = run.start(TorsionLangevinIntegrator, 0.008)
    heavy = run.start(TorsionLangevinIntegrator, largest, hydrogen_mass=HYDROGEN_MASS)
    tasks: dict[str, Task] = {
        "LangevinMiddle": lambda: peer.step(STEPS),
        "torsions": lambda: plain.step(STEPS),
        "torsions, repartitioned": lambda: heavy.step(STEPS),
        "force call": run.force_call(),
    }
    first_calls(tasks)
    timings = interleave(tasks, rounds)
    bar.advance(1)
    step = {"LangevinMiddle": PEER_STEP, "torsions": 0.008, "torsions, repartitioned": largest}
    per_ns = {name: 1000.0 / h * timings[name].wall / STEPS for name, h in step.items()}
    return {
        "residues": residues,
        "soft": soft,
        "torsions": run.tree.n_torsions,
        "hydrogen_mass": {"torsions": HYDROGEN_MASS, "LangevinMiddle": PEER_HYDROGEN_MASS},
        "seconds": {name: _seconds(t) for name, t in timings.items()},
        "step": step,
        "per_ns": per_ns,
        "acceptance": {f"{1000 * h:g} fs": share for h, share in accepted.items()},
        "ratio": per_ns["torsions"] / per_ns["LangevinMiddle"],
        "repartitioned_ratio": per_ns["torsions, repartitioned"] / per_ns["LangevinMiddle"],
    }


def _acceptances(run: _Run) -> dict[float, float]:
    """Return the acceptance of GHMC with repartitioned hydrogens at growing steps, up to the first below the limit."""
    found: dict[float, float] = {}
    for timestep in TRIAL_STEPS:
        integrator = run.start(TorsionGHMCIntegrator, timestep, hydrogen_mass=HYDROGEN_MASS)
        integrator.step(PROPOSALS)
        found[timestep] = integrator.acceptance
        if found[timestep] < ACCEPTANCE:
            break
    return found


# ---------------------------------------------------------------------------- text and picture


def format_dynamics(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    share = report["share"]
    lines = [f"Langevin steps (BAOAB with Fixman torque); {report['rounds']} interleaved rounds, wall time, minimum"]
    lines += ["", f"Capped Ala{share['residues']} in OBC2, {share['torsions']} torsions, {share['atoms']} atoms"]
    lines += [f"{name:50}{1e6 * t['wall']:12.1f} us" for name, t in share["seconds"].items()]
    lines.append(_ratio("share of a step that is not the force call", share["share"]))
    for part in report["speed"]:
        mass = part["hydrogen_mass"]
        lines += ["", f"Capped Ala{part['residues']} in OBC2, soft {part['soft']}: {part['torsions']} torsions"]
        lines.append(f"{'':34}{'step fs':>10}{'us / step':>12}{'s / ns':>10}")
        for name, h in part["step"].items():
            values = f"{1000 * h:>10g}{1e6 * part['seconds'][name]['wall']:>12.1f}{part['per_ns'][name]:>10.1f}"
            lines.append(f"{name:34}{values}")
        lines.append(f"{'force call':34}{'':>10}{1e6 * part['seconds']['force call']['wall']:>12.1f}")
        lines.append(
            f"hydrogens: {mass['LangevinMiddle']:g} Da and constraints=HBonds for LangevinMiddle, "
            f"{mass['torsions']:g} Da for repartitioned torsions"
        )
        accepted = ", ".join(f"{h} {value:.3f}" for h, value in part["acceptance"].items())
        lines.append(f"acceptance of GHMC, repartitioned: {accepted}")
        lines.append(_ratio("time per ns, 8 fs / LangevinMiddle 4 fs", part["ratio"]))
        lines.append(_ratio("time per ns, repartitioned / LangevinMiddle 4 fs", part["repartitioned_ratio"]))
    return "\n".join([*lines, "", *format_machine(report)])


def _ratio(name: str, value: float) -> str:
    return f"{name:50}{value:12.3f}   goal <= {_GOALS[name]:g}"


def plot_dynamics(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the wall time per nanosecond of every way to run Ala10, and what part of it is the force call."""
    figure, panels = new_figure(1, len(report["speed"]), figsize=(9.0, 3.6), squeeze=False)
    for axes, part in zip(panels[0], report["speed"], strict=True):
        names = list(part["step"])
        whole = [part["per_ns"][name] for name in names]
        force = [1000.0 / part["step"][name] * part["seconds"]["force call"]["wall"] for name in names]
        labels = [f"{name}\n{1000 * part['step'][name]:g} fs".replace(", ", ",\n") for name in names]
        axes.bar(labels, whole, color="#c8781e", label="rest of the step")
        axes.bar(labels, force, color="#1f4e79", label="force call of torsions")
        axes.set(ylabel="wall time per ns (s)", title=f"capped Ala{part['residues']}, soft {part['soft']}")
        axes.tick_params(axis="x", labelsize=8)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
