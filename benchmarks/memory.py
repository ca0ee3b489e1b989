"""Memory per atom of a solvated peptide: structure, tree, and the arrays of the dynamics.

    python benchmarks/memory.py                  # boxes of about 10,000 and 100,000 atoms
    python benchmarks/memory.py --boxes 4.6,10

A capped decaalanine is put into water by OpenMM's Modeller. Bytes are those that Python and NumPy allocate
(tracemalloc), kept and at the peak of each stage; OpenMM's own System and Context are not counted.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
import openmm
from openmm import app, unit

import peptidyn
from peptidyn.analysis.benchmarks import format_machine, load, machine
from peptidyn.integrators.mover import Mover


def measure(box: float) -> dict[str, tuple[float, float, float]]:
    """Return for each stage seconds, and bytes per atom that are kept and that are needed at the peak."""
    peptide = peptidyn.build_peptide("AAAAAAAAAA")
    modeller = app.Modeller(peptide.topology, peptide.positions * unit.nanometer)
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    modeller.addSolvent(field, boxSize=openmm.Vec3(box, box, box) * unit.nanometer)
    topology = modeller.topology
    positions = np.array(modeller.positions.value_in_unit(unit.nanometer))
    system = field.createSystem(topology, nonbondedMethod=app.PME, rigidWater=False)
    n = len(positions)
    rows = {}

    def stage(what, work):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        begin = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - begin
        kept, peak = tracemalloc.get_traced_memory()
        rows[what] = (seconds, (kept - before) / n, (peak - before) / n)
        return result

    def dynamics():
        mover = Mover(tree)
        mover.thermalise(0.0, 2.5, np.random.default_rng(1))
        mover.drift(0.004)
        mover.fixman_torque()
        return mover

    tree = peptidyn.build_tree(peptide)
    dynamics()  # kernels are loaded before anything is counted
    tracemalloc.start()
    structure = stage("structure", lambda: peptidyn.Structure.from_openmm(topology, system, positions))
    tree = stage("tree", lambda: peptidyn.build_tree(structure))
    kept = [structure, tree, stage("dynamics", dynamics)]
    tracemalloc.stop()
    seconds, held, peak = np.array(list(rows.values())).T
    rows["all"] = (seconds.sum(), held.sum(), (np.cumsum(held) - held + peak).max())
    print(f"{n:,d} atoms, {tree.n_molecules:,d} molecules, {tree.n_dof:,d} degrees of freedom")
    del kept
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", default="4.65,10.05", metavar="NM,NM,...", help="edges of the cubic boxes of water")
    options = parser.parse_args()
    before = load()
    for box in options.boxes.split(","):
        rows = measure(float(box))
        print(f"{'':16}{'seconds':>10}{'kept, bytes per atom':>24}{'at the peak':>16}")
        for what, (seconds, kept, peak) in rows.items():
            print(f"{what:16}{seconds:10.2f}{kept:24.0f}{peak:16.0f}")
        print()
    print("\n".join(format_machine({"machine": machine(), "load": [before, load()]})))


if __name__ == "__main__":
    main()
