"""Helix content of polyalanine against temperature, by replica exchange.

    python examples/polyalanine_helix.py [--lengths 4,6] [--iterations 150] [--quick] [-o polyalanine_helix.png]

Capped Ala_n in implicit solvent; replicas start as helix and as strand in turn. A residue counts as helical if it and
its two neighbours have phi and psi of a helix. The first fifth is left out; bars are one standard error. The number of
round trips between lowest and highest temperature is printed: without any, helices merely sort themselves to the low
temperatures and the curve is not that of equilibrium.
"""

import argparse

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.statistics import statistical_inefficiency


def helix_content(tree: ptd.TreeModel, q: np.ndarray) -> np.ndarray:
    """Return the helical part (n_frames,) of the residues with two neighbours, from q (n_frames, n_coordinates)."""
    degrees = np.rad2deg(np.angle(np.exp(1j * q[:, tree.torsion_index])))
    kinds = np.array([t.kind for t in tree.torsions])
    phi, psi = degrees[:, kinds == "phi"], degrees[:, kinds == "psi"]
    turn = (np.abs(phi + 65) < 35) & (np.abs(psi + 40) < 40)
    return (turn[:, :-2] & turn[:, 1:-1] & turn[:, 2:]).mean(axis=1)


def sample(n: int, temperatures: np.ndarray, iterations: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, str]:
    """Return helix content and its error at every temperature, and a sentence about the exchanges."""
    helix, strand = (ptd.build_peptide("A" * n, phi=phi, psi=psi) for phi, psi in ((-57, -47), (-120, 130)))
    tree = ptd.build_tree(helix, soft="phi psi")
    system = ptd.make_system(helix.topology, solvent="obc2")
    x = [tree.positions(tree.reference.replace(torsions=_torsions(tree, s))) for s in (helix, strand)]
    exchange = ptd.ReplicaExchange(
        tree,
        system,
        temperatures,
        moves=[ptd.TorsionalHMC(0.008, 10, friction=1.0)],
        sweeps=5,
        positions=np.array([x[i % 2] for i in range(len(temperatures))]),
        seed=seed,
    )
    exchange.run(iterations, progress=True)
    content, error = [], []
    for level in range(len(temperatures)):
        _, q = exchange.at_temperature(level)
        values = helix_content(tree, q[len(q) // 5 :])
        content.append(values.mean())
        error.append(values.std() * np.sqrt(statistical_inefficiency(values) / len(values)))
    accepted = np.nanmean(exchange.acceptance)
    words = f"Ala{n}: {accepted:.0%} of exchanges accepted, {exchange.round_trips.sum()} round trips"
    return np.array(content), np.array(error), words


def _torsions(tree: ptd.TreeModel, structure: ptd.Structure) -> np.ndarray:
    return ptd.build_tree(structure, soft="phi psi").reference.torsions


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="4,6")
    parser.add_argument("--iterations", type=int, default=150, help="exchanges; 0.4 ps of every replica between two")
    parser.add_argument("--quick", action="store_true", help="a few exchanges of three replicas")
    parser.add_argument("-o", "--output", default="polyalanine_helix.png")
    options = parser.parse_args(arguments)
    temperatures = ptd.geometric_temperatures(270, 600, 3 if options.quick else 8)
    iterations = 6 if options.quick else options.iterations
    figure, axes = new_figure(figsize=(6.0, 4.4))
    lengths = [4] if options.quick else [int(n) for n in options.lengths.split(",")]
    for n, look in zip(lengths, ("o-", "s--", "^:", "D-."), strict=False):
        content, error, words = sample(n, temperatures, iterations)
        print(words)
        axes.errorbar(temperatures, content, error, fmt=look, color="#1f4e79", capsize=3, label=f"Ala$_{{{n}}}$")
    axes.set(xlabel="temperature (K)", ylabel="helix content", ylim=(-0.02, 1.02))
    axes.legend(frameon=False)
    save_figure(figure, options.output)
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
