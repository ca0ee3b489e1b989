"""All solvers against each other: time and accuracy as the chain grows, as in the papers they come from.

    python examples/solver_shootout.py [--sizes 30,100,300,1000] [--repeats 5] [--quick] [-o solver_shootout.png]

Left: time of M^-1 b through the public call, for polyalanine with two torsions per residue. Right: how far M^-1 b of
each solver is from that of the dense oracle, on the same chains.
"""

import argparse
import time

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure

LOOKS = {
    "dense": ("k", "x", ":"),
    "articulated": ("#1f4e79", "o", "-"),
    "fixman": ("#c8781e", "s", "-"),
    "fixman-points": ("#c8781e", "D", "--"),
    "spatial-operator": ("#5a9bd4", "^", "-"),
    "udu": ("#5a9bd4", "v", "--"),
    "virtual-work": ("#808080", "P", "-"),
}


def compare(n_torsions: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return, by solver, seconds of M^-1 b for a random b, and its relative distance from the dense one."""
    tree = ptd.build_tree(ptd.build_peptide("A" * (n_torsions // 2)), soft="phi psi")
    state = tree.reference.replace(torsions=tree.reference.torsions + 0.1)
    b = np.random.default_rng(0).standard_normal(tree.n_dof)
    # the first call compiles, or makes a plan for the tree
    answers = {name: ptd.get_solver(name).solve(tree, state, b) for name in LOOKS}
    seconds = dict.fromkeys(LOOKS, np.inf)
    for _ in range(repeats):  # all by turns, so that other work on the machine meets them alike
        for name in LOOKS:
            begin = time.perf_counter()
            ptd.get_solver(name).solve(tree, state, b)
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    exact = answers["dense"]
    return {
        name: (seconds[name], float(np.linalg.norm(answers[name] - exact) / np.linalg.norm(exact))) for name in LOOKS
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="30,100,300,1000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small chains, one round")
    parser.add_argument("-o", "--output", default="solver_shootout.png")
    options = parser.parse_args(arguments)
    sizes = [10, 30] if options.quick else [int(size) for size in options.sizes.split(",")]
    found = [compare(n, 1 if options.quick else options.repeats) for n in sizes]

    figure, (left, right) = new_figure(1, 2, figsize=(9.6, 4.2))
    for name, (colour, marker, line) in LOOKS.items():
        look = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5, "label": name}
        left.loglog(sizes, [1e3 * one[name][0] for one in found], **look)
        if name != "dense":
            right.loglog(sizes, [max(one[name][1], 1e-17) for one in found], **look)
    left.set(xlabel="torsions", ylabel="time of M⁻¹b (ms)")
    right.set(xlabel="torsions", ylabel="relative distance from the dense solver")
    left.legend(frameon=False, fontsize=8)
    save_figure(figure, options.output)
    fastest = min(LOOKS, key=lambda name: found[-1][name][0])
    print(f"fastest at {sizes[-1]} torsions: {fastest}", end="; ")
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
