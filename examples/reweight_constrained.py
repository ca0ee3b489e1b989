"""Weights for a trajectory of OpenMM itself: its constraints bias the torsions, and Fixman weights remove the bias.

    python examples/reweight_constrained.py [--frames 20000] [--quick] [-o reweight_constrained.png]

A chain of six beads without forces; OpenMM's own distance constraints hold bonds and angles. No force acts on the
torsions, so their distribution should be flat. The plain histogram is not flat; the weighted one is, within its errors.
(Bond angles are 90 degrees, because OpenMM's constraint solver fails on such a chain with angles of 110 degrees.)
"""

import argparse

import numpy as np
import openmm

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure

BOND, ANGLE, MASS, TEMPERATURE = 0.15, np.deg2rad(90), 12.0, 300.0


def constrained_trajectory(tree: ptd.TreeModel, frames: int) -> np.ndarray:
    """Return positions (frames, 6, 3), nm, from stock OpenMM: constraints for bonds and angles, Langevin dynamics."""
    system = openmm.System()
    for _ in range(tree.n_atoms):
        system.addParticle(MASS)
    for i in range(tree.n_atoms - 1):
        system.addConstraint(i, i + 1, BOND)
    for i in range(tree.n_atoms - 2):
        system.addConstraint(i, i + 2, 2 * BOND * np.sin(ANGLE / 2))
    integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, 2.0, 0.004)
    integrator.setConstraintTolerance(1e-8)
    integrator.setRandomNumberSeed(1)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(tree.positions(tree.reference))
    context.setVelocitiesToTemperature(TEMPERATURE, 1)
    positions = np.empty((frames, tree.n_atoms, 3))
    for frame in positions:
        integrator.step(20)
        frame[:] = context.getState(positions=True).getPositions(asNumpy=True)._value
    return positions


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=20000)
    parser.add_argument("--quick", action="store_true", help="few frames")
    parser.add_argument("-o", "--output", default="reweight_constrained.png")
    options = parser.parse_args(arguments)
    tree = ptd.bead_chain(6, BOND, ANGLE, MASS, torsion=1.2)
    positions = constrained_trajectory(tree, 400 if options.quick else options.frames)
    weights = ptd.fixman_weights(tree, positions, TEMPERATURE)
    print(weights.summary())

    middle = weights.torsions[:, 1]
    limits, bins = (-np.pi, np.pi), 18
    figure, axes = new_figure(figsize=(6.0, 4.2))
    edges = np.linspace(*limits, bins + 1)
    centre = np.rad2deg(0.5 * (edges[1:] + edges[:-1]))
    plain = np.histogram(middle, edges, density=True)[0]
    axes.stairs(plain, np.rad2deg(edges), color="#c8781e", linewidth=1.6, linestyle="--", label="as OpenMM made it")
    density, error, _ = weights.histogram(middle, bins, limits)
    axes.errorbar(centre, density, 2 * error, fmt="o", color="#1f4e79", capsize=2, label="with Fixman weights")
    axes.axhline(1 / (2 * np.pi), color="black", linewidth=1, label="flat")
    axes.set(xlabel="middle torsion (degrees)", ylabel="density (1/rad)", ylim=(0, None))
    axes.set_title("Six beads, constraints of OpenMM, no forces", fontsize=11)
    axes.legend(frameon=False)
    save_figure(figure, options.output)
    print(f"bars are two standard errors; picture in {options.output}")


if __name__ == "__main__":
    main()
