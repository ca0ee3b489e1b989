"""The kinetic metric is free: larger steps, and more transitions per force call, of the same distribution.

    python examples/kinetic_metric.py [--steps 40000] [--quick] [-o kinetic_metric.png]

Capped alanine in implicit solvent at 300 K with every coordinate soft, bond lengths included. Left: how many one-step
proposals of GHMC are accepted, with the physical kinetic energy and with joint inertias for each step. Right: how often
psi crosses between its two wells per million force calls of Langevin dynamics, beside OpenMM's LangevinMiddle at 4 fs
with heavy hydrogens; bars are square roots of the counts. Joint inertias change rates, but not what is sampled.
"""

import argparse

import numpy as np
import openmm
from openmm import app, unit

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure

T, FRICTION = 300.0, 1.0
WELLS, NEAR = np.deg2rad([-30.0, 150.0]), np.deg2rad(40.0)
"""Middles of the wells of psi; a crossing has come that near to the other one."""

COLOURS = {"physical": "#808080", "auto": "#c8781e"}
LABELS = {"physical": "physical", "auto": "joint inertias for the step"}


def start(tree: ptd.TreeModel, system: openmm.System, integrator: openmm.Integrator) -> openmm.Context:
    """Return a thermal Context at the reference of the tree."""
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(tree.positions(tree.reference))
    if hasattr(integrator, "set_velocities_to_temperature"):
        integrator.set_velocities_to_temperature(T)
    else:
        context.applyConstraints(1e-6)
        context.setVelocitiesToTemperature(T, 1)
    return context


def acceptance(tree: ptd.TreeModel, system: openmm.System, metric: str, step: float, proposals: int) -> float:
    """Return the acceptance rate of GHMC at a step (fs)."""
    integrator = ptd.TorsionLangevinIntegrator(tree, T, 10.0, min(1e-3 * step, 0.008), seed=1, metric="auto")
    context = start(tree, system, integrator)
    integrator.step(200)
    warm = context.getState(positions=True)
    integrator = ptd.TorsionGHMCIntegrator(tree, T, FRICTION, 1e-3 * step, seed=1, metric=metric)
    context = start(tree, system, integrator)
    context.setState(warm)
    integrator.set_velocities_to_temperature(T)
    integrator.step(proposals)
    return integrator.acceptance


def crossings(context: openmm.Context, atoms: tuple[int, ...], calls: int, between: int = 10) -> int:
    """Return how often psi went from the middle of one well to that of the other."""
    visits = []
    for _ in range(calls // between):
        context.getIntegrator().step(between)
        x = context.getState(positions=True).getPositions(asNumpy=True)._value
        u, v, w = np.diff(x[list(atoms)], axis=0)
        psi = np.arctan2(np.linalg.norm(v) * u @ np.cross(v, w), np.cross(u, v) @ np.cross(v, w))
        near = np.abs(np.angle(np.exp(1j * (psi - WELLS)))) < NEAR
        if near.any():
            visits.append(int(near.argmax()))
    return int(np.count_nonzero(np.diff(visits)))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40000, help="of every Langevin run")
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("-o", "--output", default="kinetic_metric.png")
    options = parser.parse_args(arguments)
    calls, proposals = (200, 40) if options.quick else (options.steps, 1000)
    grid = {"physical": [0.5, 1.0, 2.0], "auto": [4.0, 24.0] if options.quick else [4.0, 8.0, 12.0, 16.0, 24.0]}
    langevin = [24.0] if options.quick else [8.0, 16.0, 24.0]

    structure = ptd.build_peptide("A", phi=-70, psi=-40)
    system = ptd.make_system(structure.topology, solvent="obc2")
    relaxed = ptd.TorsionSimulation(
        structure.topology, system, ptd.TorsionVerletIntegrator(ptd.build_tree(structure), 0.001)
    )
    relaxed.relax_geometry()
    positions = relaxed.tree.positions(relaxed.tree.reference)
    tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, positions), soft="all")
    (psi,) = (torsion.atoms for torsion in tree.torsions if torsion.kind == "psi")

    figure, (left, right) = new_figure(1, 2, figsize=(9.0, 3.8))
    for metric, steps in grid.items():
        rates = [acceptance(tree, system, metric, step, proposals) for step in steps]
        left.plot(steps, rates, "o-", color=COLOURS[metric], label=LABELS[metric])
        print(f"{metric}: " + ", ".join(f"{h:g} fs {rate:.2f}" for h, rate in zip(steps, rates, strict=True)))
    left.set(
        xlabel="step (fs)", ylabel="GHMC acceptance", ylim=(0.0, 1.03), title=f"{tree.n_coordinates} soft coordinates"
    )
    left.legend(frameon=False)

    counts = {}
    for step in langevin:
        integrator = ptd.TorsionLangevinIntegrator(tree, T, FRICTION, 1e-3 * step, seed=1, metric="auto")
        counts[f"everything\nsoft, {step:g} fs"] = crossings(start(tree, system, integrator), psi, calls)
    heavy = app.ForceField("amber14-all.xml", "implicit/obc2.xml").createSystem(
        structure.topology, constraints=app.HBonds, hydrogenMass=3 * unit.dalton
    )
    peer = openmm.LangevinMiddleIntegrator(T, FRICTION, 0.004)
    peer.setRandomNumberSeed(1)
    counts["LangevinMiddle,\nHMR, 4 fs"] = crossings(start(tree, heavy, peer), psi, calls)
    scale = 1e6 / calls
    right.bar(
        list(counts), [scale * n for n in counts.values()], yerr=[scale * max(n, 1) ** 0.5 for n in counts.values()],
        color=["#c8781e"] * len(langevin) + ["#1f4e79"], capsize=3,
    )  # fmt: skip
    right.tick_params(axis="x", labelsize=8)
    right.set(ylabel="crossings of psi per 10⁶ force calls", title="Langevin dynamics")
    save_figure(figure, options.output)
    print(
        f"crossings in {calls} force calls each: " + ", ".join(f"{k} {n}" for k, n in counts.items()).replace("\n", " ")
    )
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
