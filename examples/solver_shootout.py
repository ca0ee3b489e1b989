"""All solvers against each other: time and accuracy as the chain grows, as in the papers they come from.

    python examples/solver_shootout.py [--sizes 30,100,300,1000] [--repeats 5] [--quick] [-o solver_shootout.png]

Left: time of M^-1 b through the public call, for polyalanine with two torsions per residue. Right: how far M^-1 b of
each solver is from that of the dense oracle, on the same chains.
"""

import argparse

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.benchmark_solvers import measure_solvers
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


def difference_from_dense(n_torsions: int) -> dict[str, float]:
    """Return, by solver, the relative distance of M^-1 b from the dense one, for a random b."""
    tree = ptd.build_tree(ptd.build_peptide("A" * (n_torsions // 2)), soft="phi psi")
    state = tree.reference.replace(torsions=tree.reference.torsions + 0.1)
    b = np.random.default_rng(0).standard_normal(tree.n_dof)
    exact = ptd.get_solver("dense").solve(tree, state, b)
    return {
        name: float(np.linalg.norm(ptd.get_solver(name).solve(tree, state, b) - exact) / np.linalg.norm(exact))
        for name in ptd.list_solvers()
        if name != "dense"
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="30,100,300,1000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small chains, one round")
    parser.add_argument("-o", "--output", default="solver_shootout.png")
    options = parser.parse_args(arguments)
    sizes = [10, 30] if options.quick else [int(size) for size in options.sizes.split(",")]
    report = measure_solvers(sizes=sizes, rounds=1 if options.quick else options.repeats)
    small = [n for n in sizes if n <= 300]
    distances = {n: difference_from_dense(n) for n in small}

    figure, (left, right) = new_figure(1, 2, figsize=(9.6, 4.2))
    for name, (colour, marker, line) in LOOKS.items():
        row = report["solve"][name]
        look = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5, "label": name}
        left.loglog(row["n"], [1e3 * seconds for seconds in row["cpu"]], **look)
        if name != "dense":
            right.loglog(small, [max(distances[n][name], 1e-17) for n in small], **look)
    left.set(xlabel="torsions", ylabel="time of M⁻¹b (ms)")
    right.set(xlabel="torsions", ylabel="relative distance from the dense solver")
    left.legend(frameon=False, fontsize=8)
    save_figure(figure, options.output)
    fastest = min(LOOKS, key=lambda name: report["solve"][name]["cpu"][-1])
    print(f"fastest at {max(sizes)} torsions: {fastest}", end="; ")
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
