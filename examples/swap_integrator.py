"""A stock OpenMM script with one line changed: the integrator moves torsions only.

    python examples/swap_integrator.py [--steps 20000] [--quick] [-o swap_integrator.png]

Capped alanine tripeptide in vacuum at 300 K, then the backbone torsions it visited.
"""

import argparse

import numpy as np
from openmm import app, unit

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, ramachandran_axes, save_figure


def run(steps: int, interval: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return phi and psi (n_frames, 3) in degrees."""
    structure = ptd.build_peptide("AAA", phi=-120, psi=120)
    system = app.ForceField("amber14-all.xml").createSystem(structure.topology, constraints=None)
    tree = ptd.build_tree(structure, soft="phi psi chi methyl")

    integrator = ptd.TorsionLangevinIntegrator(
        tree, 300 * unit.kelvin, 1 / unit.picosecond, 4 * unit.femtoseconds, seed=1
    )
    simulation = app.Simulation(structure.topology, system, integrator)
    simulation.context.setPositions(structure.positions)

    kinds = np.array([t.kind for t in tree.torsions])
    frames = []
    for _ in range(steps // interval):
        simulation.step(interval)
        frames.append(integrator.mover.state.torsions)
    degrees = np.rad2deg(np.angle(np.exp(1j * np.array(frames))))
    return degrees[:, kinds == "phi"], degrees[:, kinds == "psi"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--quick", action="store_true", help="a run of seconds")
    parser.add_argument("-o", "--output", default="swap_integrator.png")
    options = parser.parse_args(arguments)
    phi, psi = run(100 if options.quick else options.steps)
    figure, axes = new_figure(figsize=(5.0, 4.8))
    for k, marker in enumerate("o^s"):
        colour = ("#1f4e79", "#c8781e", "#808080")[k]
        axes.plot(phi[:, k], psi[:, k], marker, color=colour, markersize=3, alpha=0.5, label=f"residue {k + 2}")
    ramachandran_axes(axes, title="Ala₃ at 300 K, torsions only")
    axes.legend(frameon=False)
    save_figure(figure, options.output)
    print(f"{len(phi)} frames; picture in {options.output}")


if __name__ == "__main__":
    main()
