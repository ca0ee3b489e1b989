"""Size of polyalanine against its length, with and without the Fixman potential.

    python examples/polyalanine_size.py [--picoseconds 60] [--runs 6] [--quick] [-o polyalanine_size.png]

Points: Langevin dynamics of capped Ala_n at 600 K in implicit solvent with U_F on or off; means over independent runs
that start as helix and as strand in turn, with the standard error from their spread. Lines: the same chains without any
forces, from random torsions, where U_F on is the plain average and U_F off has the weight sqrt(det M).
"""

import argparse

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.statistics import weighted_average

TEMPERATURE = 600.0


def sizes(tree: ptd.TreeModel, positions: np.ndarray) -> np.ndarray:
    """Return end-to-end distance (first to last CA) and radius of gyration of positions (n, n_atoms, 3), nm."""
    (ca,) = np.nonzero(tree.atoms.name == "CA")
    centre = (tree.masses[:, None] * positions).sum(axis=1) / tree.masses.sum()
    spread = ((positions - centre[:, None]) ** 2).sum(axis=2)
    gyration = np.sqrt(spread @ tree.masses / tree.masses.sum())
    return np.stack([np.linalg.norm(positions[:, ca[-1]] - positions[:, ca[0]], axis=1), gyration], axis=1)


def with_forces(n: int, fixman: bool, picoseconds: float, runs: int) -> dict[str, float]:
    """Return means and standard errors (nm) from Langevin dynamics, 8 fs; the first fifth is left out."""
    means = []
    for seed in range(runs):
        phi, psi = ((-57, -47), (-120, 130))[seed % 2]
        structure = ptd.build_peptide("A" * n, phi=phi, psi=psi)
        tree = ptd.build_tree(structure, soft="phi psi")
        system = ptd.make_system(structure.topology, solvent="obc2")
        integrator = ptd.TorsionLangevinIntegrator(tree, TEMPERATURE, 1.0, 0.008, fixman=fixman, seed=seed)
        simulation = ptd.TorsionSimulation(structure.topology, system, integrator)
        simulation.minimize_torsions(max_iterations=100)
        simulation.set_velocities_to_temperature(TEMPERATURE)
        simulation.step(round(0.2 * picoseconds / 0.008))
        frames = []
        for _ in range(max(4, round(0.8 * picoseconds / 0.2))):
            simulation.step(25)
            frames.append(tree.positions(integrator.motion()[0]))
        means.append(sizes(tree, np.array(frames)).mean(axis=0))
    (end, gyration), error = np.mean(means, axis=0), np.std(means, axis=0, ddof=1) / np.sqrt(runs)
    return {"end": end, "end_error": error[0], "gyration": gyration, "gyration_error": error[1]}


def without_forces(n: int, fixman: bool, samples: int) -> dict[str, float]:
    """Return the same for random torsions: all alike with U_F, weighted by sqrt(det M) without."""
    tree = ptd.build_tree(ptd.build_peptide("A" * n), soft="phi psi")
    q = np.random.default_rng(n).uniform(-np.pi, np.pi, (samples, tree.n_coordinates))
    values = sizes(tree, np.array([tree.positions(tree.reference.replace(q=row)) for row in q]))
    exponent = np.zeros(samples) if fixman else 0.5 * ptd.FixmanPotential(tree, TEMPERATURE).log_metric(q)
    mean, error = weighted_average(values, np.exp(exponent - exponent.max()))
    return {"end": mean[0], "end_error": error[0], "gyration": mean[1], "gyration_error": error[1]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picoseconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=6, help="independent runs of every chain, two or more")
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--table", default="polyalanine_size.csv", help="results; what is in it is not repeated")
    parser.add_argument("--quick", action="store_true", help="two short chains for a moment")
    parser.add_argument("-o", "--output", default="polyalanine_size.png")
    options = parser.parse_args(arguments)
    lengths = [2, 4] if options.quick else [2, 4, 6, 8, 10]
    time, runs, samples = (1.0, 2, 50) if options.quick else (options.picoseconds, options.runs, options.samples)

    def measure(n: int, forces: bool, fixman: bool) -> dict[str, float]:
        return with_forces(n, fixman, time, runs) if forces else without_forces(n, fixman, samples)

    study = ptd.Study(options.table, n=lengths, forces=[False, True], fixman=[True, False]).run(measure, progress=True)

    figure, panels = new_figure(1, 2, figsize=(9.6, 4.2))
    for axes, name, label in zip(
        panels, ("end", "gyration"), ("end-to-end distance (nm)", "radius of gyration (nm)"), strict=True
    ):
        for fixman, colour, marker, line in ((True, "#1f4e79", "o", "-"), (False, "#c8781e", "s", "--")):
            word = "with" if fixman else "without"
            free = study.column(name, forces=False, fixman=fixman)
            axes.plot(lengths, free, line, color=colour, label=f"{word} $U_F$, no forces")
            mean, error = (study.column(name + s, forces=True, fixman=fixman) for s in ("", "_error"))
            axes.errorbar(lengths, mean, error, fmt=marker, color=colour, capsize=3, label=f"{word} $U_F$, 600 K")
        axes.set(xlabel="residues n", ylabel=label, ylim=(0, None))
    panels[0].legend(frameon=False, fontsize=8)
    save_figure(figure, options.output)
    print(f"{len(study.rows)} rows in {options.table}; picture in {options.output}")


if __name__ == "__main__":
    main()
