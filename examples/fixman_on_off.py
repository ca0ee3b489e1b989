"""What the Fixman potential does: a chain without any forces, with and without it, and the map of capped alanine.

    python examples/fixman_on_off.py [--samples 20000] [--quick] [-o fixman_on_off.png]

Left: six beads. Rigid dynamics samples sqrt(det M) although nothing acts on the torsions; with U_F they are uniform, as
they should be. Right: U_F of capped alanine over phi and psi, which rigid dynamics without it would follow.
"""

import argparse

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, ramachandran_axes, save_figure
from peptidyn.core.statistics import weighted_histogram
from peptidyn.core.units import BOLTZMANN
from peptidyn.integrators.mover import Mover
from peptidyn.integrators.stepper import Stepper

KT = BOLTZMANN * 300


def sample(tree: ptd.TreeModel, fixman: bool, n: int, seed: int = 2) -> np.ndarray:
    """Return torsions (n, 3) in rad from Langevin dynamics, with or without the Fixman torque."""

    def forces(mover: Mover, want_energy: bool) -> tuple[float, np.ndarray]:
        return 0.0, KT * mover.fixman_torque() if fixman else np.zeros(tree.n_dof)

    rng = np.random.default_rng(seed)
    mover = Mover(tree)
    mover.thermalise(0.0, KT, rng)
    stepper = Stepper(mover, forces, timestep=0.015, splitting="BAOAB", kT=KT, friction=2.0, rng=rng)
    torsions = np.empty((n, tree.n_torsions))
    for row in torsions:
        for _ in range(8):
            stepper.step()
        row[:] = np.angle(np.exp(1j * mover.q))
    return torsions


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--quick", action="store_true", help="a run of seconds")
    parser.add_argument("-o", "--output", default="fixman_on_off.png")
    options = parser.parse_args(arguments)
    tree = ptd.bead_chain(6, 0.15, np.deg2rad(110), 12.0, torsion=1.2)
    grid = np.linspace(-np.pi, np.pi, 36, endpoint=False)
    mesh = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    metric = np.exp(0.5 * ptd.FixmanPotential(tree, 300).log_metric(mesh)).reshape(36, 36, 36).sum(axis=(0, 2))
    expected = metric / metric.mean() / (2 * np.pi)

    samples = 200 if options.quick else options.samples
    figure, (axes, right) = new_figure(1, 2, figsize=(10.4, 4.2))
    for fixman, marker, color in ((False, "s", "#c8781e"), (True, "o", "#1f4e79")):
        middle = sample(tree, fixman, samples)[:, 1]
        density, error, edges = weighted_histogram(middle, np.ones(len(middle)), 18, (-np.pi, np.pi))
        centre = np.rad2deg(0.5 * (edges[1:] + edges[:-1]))
        label = "with U_F" if fixman else "without U_F"
        axes.errorbar(centre, density, 2 * error, fmt=marker, color=color, capsize=2, markersize=5, label=label)
    axes.plot(np.rad2deg(grid), expected, "--", color="#c8781e", label="sqrt(det M)")
    axes.axhline(1 / (2 * np.pi), color="#1f4e79", linewidth=1, label="uniform")
    axes.set(
        xlabel="middle torsion (degrees)", ylabel="density (1/rad)", title="Six beads, no forces, 300 K", ylim=(0, None)
    )
    axes.legend(frameon=False, ncol=2)
    chart = ptd.fixman_map(ptd.build_tree(ptd.build_peptide("A"), soft="phi psi"), 2, points=36)
    lines = right.contour(chart.phi, chart.psi, chart.energy.T, levels=8, cmap="cividis")
    right.clabel(lines, fmt="%.2f", fontsize=7)
    ramachandran_axes(right, title="$U_F$ of capped alanine (kT)")
    save_figure(figure, options.output)
    print(f"{samples} samples each, bars are two standard errors; picture in {options.output}")


if __name__ == "__main__":
    main()
