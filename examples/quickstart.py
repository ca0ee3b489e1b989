"""From a PDB file to a Ramachandran plot.

    python examples/quickstart.py [FILE] [--picoseconds 40] [--quick] [-o quickstart.png]

Without FILE, a peptide with all 20 amino acids in implicit solvent. Bonds, angles, rings and omega are rigid; torsions
move by Langevin dynamics at 300 K.
"""

import argparse
from pathlib import Path

import numpy as np
from openmm import unit

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, ramachandran_axes, save_figure

DATA = Path(__file__).parents[1] / "data"


def simulate(file: Path, picoseconds: float) -> tuple[ptd.TreeModel, np.ndarray, np.ndarray]:
    """Return the tree, the torsions (n_frames, n_torsions) in degrees, and the energies (n_frames,) in kJ/mol."""
    structure = ptd.load_structure(file, add_hydrogens=True)
    system = ptd.make_system(structure.topology, solvent="obc2")
    tree = ptd.build_tree(structure)
    integrator = ptd.TorsionLangevinIntegrator(
        tree, 300 * unit.kelvin, 1 / unit.picosecond, 4 * unit.femtoseconds, seed=1
    )
    simulation = ptd.TorsionSimulation(structure.topology, system, integrator)
    simulation.relax_geometry(max_iterations=200)
    simulation.minimize_torsions(max_iterations=200)
    simulation.set_velocities_to_temperature(300)
    torsions, energies = [], []
    for _ in range(max(2, round(picoseconds / 0.2))):
        simulation.step(50)
        torsions.append(integrator.motion()[0].torsions)
        energies.append(integrator.potential_energy())
    return tree, np.rad2deg(np.angle(np.exp(1j * np.array(torsions)))), np.array(energies)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA / "all20.pdb")
    parser.add_argument("--picoseconds", type=float, default=40.0)
    parser.add_argument("--quick", action="store_true", help="a run of seconds")
    parser.add_argument("-o", "--output", default="quickstart.png")
    options = parser.parse_args(arguments)
    tree, degrees, energies = simulate(options.file, 1.0 if options.quick else options.picoseconds)

    kinds = {(t.kind, t.residue): column for column, t in enumerate(tree.torsions)}
    pairs = [(column, kinds["psi", r]) for (kind, r), column in kinds.items() if kind == "phi" and ("psi", r) in kinds]
    figure, (left, right) = new_figure(1, 2, figsize=(9.6, 4.4))
    left.plot(0.2 * np.arange(1, len(energies) + 1), energies, color="#1f4e79", linewidth=1)
    left.set(xlabel="time (ps)", ylabel="potential energy (kJ/mol)", title=f"{options.file.name}: {tree.n_dof} dof")
    phi, psi = (degrees[:, [p[k] for p in pairs]] for k in (0, 1))
    shade = np.broadcast_to(0.2 * np.arange(len(phi))[:, None], phi.shape)
    points = right.scatter(phi.ravel(), psi.ravel(), c=shade.ravel(), s=4, cmap="cividis", linewidths=0)
    figure.colorbar(points, ax=right, label="time (ps)")
    ramachandran_axes(right, title=f"{len(pairs)} residues")
    save_figure(figure, options.output)
    print(f"{tree.n_torsions} torsions, {len(energies)} frames; picture in {options.output}")


if __name__ == "__main__":
    main()
