"""`peptidyn fixman`: weights of a trajectory, or a map over phi and psi."""

from __future__ import annotations

import argparse
from pathlib import Path

from peptidyn.cli.options import add_input_options, add_tree_options, check_output, examples, read_input
from peptidyn.core.errors import ArgumentError


def add_command(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    p = commands.add_parser(
        "fixman",
        help="weights that remove the mass-metric bias from a trajectory, or a phi/psi map of the Fixman potential",
        description="With a trajectory: the Fixman potential of every frame and the weights that remove the "
        "mass-metric bias of constrained dynamics. With --map: the Fixman potential over phi and psi of one residue.",
        **examples(
            "peptidyn fixman run.xtc --top start.pdb -T 300 -o weights.csv --plot",
            "peptidyn fixman --map data/ala1.pdb --residue 2 -o map.csv --plot",
        ),
    )
    p.add_argument("trajectory", metavar="TRAJ", nargs="?", help="trajectory in any format MDTraj reads")
    p.add_argument(
        "--top", metavar="TOP", help="PDB or mmCIF, or prmtop, psf, top file with the atoms of the trajectory"
    )
    p.add_argument("-T", "--temperature", type=float, metavar="K", help="temperature in K")
    p.add_argument("--select", metavar="SELECTION", help="MDTraj selection of the atoms to use (default: all)")
    p.add_argument("--tolerance", type=float, metavar="NM", help="report frames with units deformed by more than this")
    p.add_argument("--map", metavar="STRUCTURE", help="draw the map of a structure instead of reading a trajectory")
    p.add_argument("--residue", metavar="N", help="with --map: residue number, as in the file")
    p.add_argument("--chain", metavar="ID", help="with --map: chain, if several have that residue")
    p.add_argument("-o", "--output", metavar="CSV", help="table to write")
    p.add_argument("--plot", nargs="?", const="", metavar="PNG", help="picture to write (default: beside the table)")
    p.add_argument("--overwrite", action="store_true", help="replace files that exist")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_input_options(p)
    add_tree_options(p)
    p.set_defaults(run=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if (options.trajectory is None) == (options.map is None):
        raise ArgumentError("give either a trajectory, or --map with a structure")
    source = options.map if options.map is not None else options.trajectory
    picture = options.plot
    if picture == "":
        picture = str(Path(options.output or Path(source).name).with_suffix(".png"))
    for path in (options.output, picture):
        if path is not None:
            check_output(path, options.overwrite)
    return _fixman_map(options, picture) if options.map is not None else _fixman_weights(options, picture)


def _fixman_map(options: argparse.Namespace, picture: str | None) -> int:
    from peptidyn.core.tables import write_csv
    from peptidyn.metric.fixman_map import BASINS, fixman_map
    from peptidyn.model.build import build_tree

    if options.residue is None:
        raise ArgumentError("--map needs --residue, the residue number as in the file")
    structure = read_input(options.map, options)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    chart = fixman_map(tree, options.residue, options.chain)
    print(f"{chart.residue}: U_F spans {chart.range:.3f} kT over phi and psi")
    for name, (phi, psi) in BASINS.items():
        print(f"  {name:4s} ({phi:4.0f}, {psi:4.0f})  {chart.at(phi, psi):.3f} kT above the minimum")
    if options.output:
        write_csv(options.output, ("phi_deg", "psi_deg", "U_F_kT"), chart.rows())
    if picture is not None:
        from peptidyn.analysis.plots import plot_fixman_map

        plot_fixman_map(chart, picture)
    return 0


def _fixman_weights(options: argparse.Namespace, picture: str | None) -> int:
    from peptidyn.core.tables import write_csv
    from peptidyn.io.parameter_files import is_parameter_file
    from peptidyn.metric.fixman_weights import RIGID_TOLERANCE, fixman_weights
    from peptidyn.model.build import build_tree
    from peptidyn.model.trajectory_states import open_trajectory

    if options.top is None or options.temperature is None:
        raise ArgumentError("a trajectory needs --top with a structure file, and -T with the temperature in K")
    structure = read_input(options.top, options)
    topology = structure.to_mdtraj() if is_parameter_file(options.top) else options.top
    if options.select:
        structure = structure.subset(options.select)
    tree = build_tree(structure, soft=options.soft, base=options.base, rigid=options.rigid)
    reader = open_trajectory(tree, options.trajectory, top=topology, atoms=options.select)
    tolerance = RIGID_TOLERANCE if options.tolerance is None else options.tolerance
    weights = fixman_weights(tree, reader, options.temperature, tolerance=tolerance, progress=not options.quiet)
    print(weights.summary())
    if options.output:
        columns = ("frame", "time_ps", "ln_det", "U_F_kJ_per_mol", "weight", "inverse_weight", "misfit_nm", "deformed")
        rows = zip(
            weights.index.tolist(), weights.time.tolist(), weights.log_det.tolist(), weights.energy.tolist(),
            weights.weights.tolist(), weights.inverse_weights.tolist(), weights.misfit.tolist(),
            weights.deformed.astype(int).tolist(), strict=True,
        )  # fmt: skip
        write_csv(options.output, columns, rows)
    if picture is not None:
        from peptidyn.analysis.plots import plot_fixman_weights

        plot_fixman_weights(weights, picture)
    return 0
