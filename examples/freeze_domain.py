"""Freezing domains: two helices as rigid bodies, joined by a soft linker.

    python examples/freeze_domain.py [--picoseconds 40] [--quick] [-o freeze_domain.png]

Ala8-Gly4-Ala8. Each helix is one rigid body, so only the linker moves: a few torsions instead of forty. Left: how far
the helices are deformed (not at all) and how far apart they move. Right: the angle between them.
"""

import argparse

import mdtraj
import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure

FIRST, SECOND = "residue 2 to 9", "residue 14 to 21"


def simulate(picoseconds: float) -> tuple[ptd.TreeModel, ptd.TreeModel, mdtraj.Trajectory, np.ndarray]:
    """Return the whole tree, the tree with frozen helices, the frames, and their times (ps)."""
    phi, psi = ([v] * 8 + [w] * 4 + [v] * 8 for v, w in ((-57, -80), (-47, 150)))
    structure = ptd.build_peptide("A" * 8 + "G" * 4 + "A" * 8, phi=phi, psi=psi)
    free = ptd.build_tree(structure, soft="phi psi chi")
    tree = ptd.build_tree(structure, soft="phi psi chi", rigid=[FIRST, SECOND])
    system = ptd.make_system(structure.topology, solvent="obc2")
    integrator = ptd.TorsionLangevinIntegrator(tree, 300.0, 1.0, 0.008, seed=3)
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator)
    simulation.minimize_torsions(max_iterations=200)
    simulation.set_velocities_to_temperature(300)
    frames = []
    for _ in range(max(2, round(picoseconds / 0.2))):
        simulation.step(25)
        frames.append(tree.positions(integrator.motion()[0]))
    trajectory = mdtraj.Trajectory(np.array(frames), structure.to_mdtraj().topology)
    return free, tree, trajectory, 0.2 * np.arange(1, len(frames) + 1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picoseconds", type=float, default=40.0)
    parser.add_argument("--quick", action="store_true", help="a run of seconds")
    parser.add_argument("-o", "--output", default="freeze_domain.png")
    options = parser.parse_args(arguments)
    free, tree, trajectory, time = simulate(1.0 if options.quick else options.picoseconds)

    helices = [trajectory.topology.select(s) for s in (FIRST, SECOND)]
    rmsd = [mdtraj.rmsd(trajectory, trajectory, 0, atom_indices=atoms, precentered=False) for atoms in helices]
    ca = [trajectory.topology.select(f"name CA and {s}") for s in (FIRST, SECOND)]
    centre = [trajectory.xyz[:, atoms].mean(axis=1) for atoms in ca]
    axis = [trajectory.xyz[:, atoms[-4:]].mean(axis=1) - trajectory.xyz[:, atoms[:4]].mean(axis=1) for atoms in ca]
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in axis]
    angle = np.rad2deg(np.arccos(np.clip((unit[0] * unit[1]).sum(axis=1), -1, 1)))

    figure, (left, right) = new_figure(1, 2, figsize=(9.6, 4.0))
    left.plot(time, np.linalg.norm(centre[1] - centre[0], axis=1), color="#1f4e79", label="distance of the helices")
    left.plot(time, rmsd[0], "--", color="#c8781e", label="rmsd of the first helix")
    left.plot(time, rmsd[1], ":", color="black", label="rmsd of the second helix")
    left.set(xlabel="time (ps)", ylabel="nm", ylim=(-0.05, None))
    left.legend(frameon=False)
    right.plot(time, angle, color="#1f4e79")
    right.set(xlabel="time (ps)", ylabel="angle between the helices (degrees)", ylim=(0, 180))
    save_figure(figure, options.output)
    worst = max(map(max, rmsd))
    print(f"{tree.n_torsions} soft torsions instead of {free.n_torsions}; helices deformed by {worst:.0e} nm")
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
