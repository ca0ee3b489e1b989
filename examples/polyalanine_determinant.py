"""ln det M of polyalanine: how it grows with the chain, and how it depends on the conformation.

    python examples/polyalanine_determinant.py [--longest 60] [--quick] [-o polyalanine_determinant.png]

Left: ln det M grows in proportion to n. Right: the Fixman potential (1/2) ln det M relative to the helix, in kT: this
is by how much rigid dynamics without U_F prefers one conformation to another.
"""

import argparse

import numpy as np

import peptidyn as ptd
from peptidyn.analysis.plots import new_figure, save_figure

CONFORMATIONS = {"alpha helix": (-57, -47), "beta strand": (-139, 135), "polyproline II": (-75, 145), "C7eq": (-80, 75)}


def log_det(n: int, conformation: str) -> dict[str, float]:
    """Return ln det M (Da, nm) of capped Ala_n in one conformation, over the base and all phi and psi."""
    phi, psi = CONFORMATIONS[conformation]
    tree = ptd.build_tree(ptd.build_peptide("A" * n, phi=phi, psi=psi), soft="phi psi")
    return {"ln_det": ptd.get_solver("articulated").log_det(tree, tree.reference), "torsions": tree.n_torsions}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, default=60)
    parser.add_argument("--table", default="polyalanine_determinant.csv", help="results; what is in it is not repeated")
    parser.add_argument("--quick", action="store_true", help="short chains")
    parser.add_argument("-o", "--output", default="polyalanine_determinant.png")
    options = parser.parse_args(arguments)
    longest = 8 if options.quick else options.longest
    lengths = [n for n in (1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100) if n <= longest]
    study = ptd.Study(options.table, n=lengths, conformation=list(CONFORMATIONS)).run(log_det)

    figure, (left, right) = new_figure(1, 2, figsize=(9.6, 4.2))
    helix = study.column("ln_det", conformation="alpha helix")
    for name, look in zip(CONFORMATIONS, ("o-", "s--", "^:", "D-."), strict=True):
        values = study.column("ln_det", conformation=name)
        left.plot(lengths, values, look, color="#1f4e79", markersize=4, label=name)
        right.plot(lengths, 0.5 * (values - helix), look, color="#1f4e79", markersize=4, label=name)
    left.set(xlabel="residues n", ylabel="ln det M (Da, nm)")
    right.set(xlabel="residues n", ylabel="$U_F$ relative to the helix (kT)")
    right.legend(frameon=False)
    save_figure(figure, options.output)
    slope = np.polyfit(lengths, helix, 1)[0]
    print(f"helix: ln det M grows by {slope:.2f} per residue; picture in {options.output}, table in {options.table}")


if __name__ == "__main__":
    main()
