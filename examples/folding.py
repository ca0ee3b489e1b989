"""Folding of small peptides from an extended chain, by replica exchange; one command each.

    python examples/folding.py ala10            # Ala20: ala20; --pivots 100: with pivot moves
    python examples/folding.py chignolin --native 1uao.pdb
    python examples/folding.py trp-cage --native 1l2y.pdb
    python examples/folding.py chen             # torsional Ala10 in vacuum, 8 replicas from 300 to 800 K, five runs

The chain starts extended. Every replica moves by Langevin dynamics of the preset `flexible`, which samples the force
field itself (amber14, OBC2). Frames at the lowest temperature are compared with the folded structure: alanine with an
ideal helix, the others with `--native`, a PDB file of the folded peptide. A frame is folded if the RMSD of its alpha
carbons is below a limit that is printed. If no frame is folded within `--iterations`, the script says so.

`--pivots N` adds N pivot moves to the 100 time steps between exchanges: turns of the chain about one phi or psi by any
angle, accepted by their energy. Each is one energy call, and what a replica does has no time then.

`chen` is a protocol of Chen and co-workers for torsional dynamics of Ala10, with this force field: the mean time until
the replica at 300 K is a helix, over independent runs, for which they report 29 +- 5 ps.

The folder holds trajectories and can be continued by the same command with more `--iterations`; `peptidyn report` makes
a page of it.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import mdtraj
import numpy as np

import peptidyn as ptd
from peptidyn.analysis.estimates import with_error
from peptidyn.analysis.exchange_frames import exchange_frames
from peptidyn.analysis.plots import new_figure, save_figure


@dataclass(frozen=True)
class Molecule:
    """What is folded, and how it is known to be folded."""

    sequence: str
    limit: float
    """nm: RMSD of alpha carbons below which a frame is folded."""
    helix: bool = False
    """Whether an ideal helix is the folded structure; otherwise a file is needed."""
    caps: bool = True
    tmin: float = 280.0
    tmax: float = 550.0
    iterations: int = 1000


MOLECULES = {
    "ala10": Molecule("A" * 10, 0.15, helix=True),
    "ala20": Molecule("A" * 20, 0.25, helix=True, iterations=2000),
    "chignolin": Molecule("GYDPETGTWG", 0.2, caps=False, iterations=4000),
    "trp-cage": Molecule("NLYIQWLKDGGPSSGRPPPS", 0.25, caps=False, iterations=8000),
}
EXTENDED = (-150.0, 150.0)
INTERVAL = 100
"""Time steps between exchanges."""


def start(molecule: Molecule, folder: Path) -> Path:
    """Write the extended chain beside the folder of the run; return the file."""
    structure = ptd.build_peptide(molecule.sequence, phi=EXTENDED[0], psi=EXTENDED[1], caps=molecule.caps)
    file = folder.with_name(f"{folder.name}-extended.pdb")
    file.parent.mkdir(parents=True, exist_ok=True)
    structure.write(file)
    return file


def native_carbons(molecule: Molecule, native: str | None) -> np.ndarray | None:
    """Return alpha carbons of the folded structure (n_residues, 3), nm; None if it is not known."""
    if native is not None:
        frame = mdtraj.load(native)[0]
    elif molecule.helix:
        helix = ptd.build_peptide(molecule.sequence, phi=-57, psi=-47)
        frame = mdtraj.Trajectory(helix.positions[None], mdtraj.Topology.from_openmm(helix.topology))
    else:
        return None
    carbons = frame.xyz[0, frame.topology.select("name CA and protein")]
    if len(carbons) != len(molecule.sequence):
        raise SystemExit(f"{native} has {len(carbons)} residues, expected the {len(molecule.sequence)} of the peptide")
    return carbons.astype(np.float64)


def rmsd(frames: mdtraj.Trajectory, carbons: np.ndarray) -> np.ndarray:
    """Return the RMSD (n_frames,), nm, of alpha carbons after superposition."""
    chosen = frames.atom_slice(frames.topology.select("name CA"))
    return mdtraj.rmsd(chosen, mdtraj.Trajectory(carbons[None], chosen.topology)).astype(np.float64)


def fold(
    name: str, folder: Path, iterations: int, workers: int | None, settings: dict
) -> tuple[dict, mdtraj.Trajectory]:
    """Run or continue replica exchange; return its summary and the frames at the lowest temperature."""
    molecule = MOLECULES[name]
    given = {
        "replicas": 8,
        "tmin": molecule.tmin,
        "tmax": molecule.tmax,
        "interval": INTERVAL,
        "warm_up": 0,
        **settings,
    }
    if (folder / "checkpoint.npz").exists():
        file, given = None, {}
    else:
        file = start(molecule, folder)
    result = ptd.exchange(
        file, folder=folder, resume=file is None, iterations=iterations, backend="auto", workers=workers, **given
    )
    return result.summary, exchange_frames(folder, 0)


def first_folded(distance: np.ndarray, limit: float) -> int | None:
    """Return the first frame that is folded, or None."""
    folded = np.flatnonzero(distance < limit)
    return int(folded[0]) if len(folded) else None


def picoseconds(summary: dict) -> float:
    """Return the time of one replica per iteration at the lowest temperature, ps."""
    return summary["steps"][0][0] * summary["settings"]["interval"]


def progress_of(summary: dict) -> tuple[float, str]:
    """Return how far one exchange leads, and in what: time of a replica, or time steps and pivots if there are any."""
    if pivots := summary["settings"]["pivots"]:
        return 1e-3 * (summary["settings"]["interval"] + pivots), "thousand steps and pivots of each replica"
    return picoseconds(summary), "ps of each replica"


def fold_one(name: str, options: argparse.Namespace) -> None:
    """Fold one molecule, say what happened, and draw it."""
    molecule, folder = MOLECULES[name], options.folder or Path(f"folding-{name}")
    carbons = native_carbons(molecule, options.native)
    settings = {"preset": "flexible", "ensemble": "langevin", "seed": options.seed, "pivots": options.pivots}
    summary, frames = fold(name, folder, options.iterations or molecule.iterations, options.workers, settings)
    (step, unit), calls = progress_of(summary), summary["force_calls"] / summary["iterations"]
    content, size = ptd.helix_content(frames), ptd.radius_of_gyration(frames)
    print(f"{name}: {summary['iterations']} exchanges of 8 replicas, {summary['force_calls']:,} energy calls, "
          f"{summary['iterations'] * step:.3g} {unit}; round trips {summary['round_trips']}")  # fmt: skip
    print(f"at the lowest temperature, all frames: {content}; {size}; {ptd.hydrogen_bonds(frames)}")
    series = [("helix content", content.values), ("radius of gyration (nm)", size.values)]
    if carbons is None:
        print("RMSD is not known without the folded structure; give --native FILE")
    else:
        distance = rmsd(frames, carbons)
        series.insert(0, ("RMSD of Cα (nm)", distance))
        found = first_folded(distance, molecule.limit)
        best = f"smallest RMSD {distance.min():.3f} nm, limit {molecule.limit} nm"
        if found is None:
            print(f"{name} did not fold within this budget: {best}")
        else:
            print(f"{name} folded after {(found + 1) * step:.3g} {unit}, {found + 1} exchanges, "
                  f"{(found + 1) * calls:,.0f} energy calls; folded in {(distance < molecule.limit).mean():.0%} of the "
                  f"frames; {best}")  # fmt: skip
    draw(series, step, unit, molecule.limit, name, options.output)
    print(f"picture in {options.output}; folder {folder}: peptidyn report {folder}")


def chen(options: argparse.Namespace) -> None:
    """Run torsional Ala10 in vacuum several times; print the mean folding time."""
    molecule, folder = MOLECULES["ala10"], options.folder or Path("folding-chen")
    carbons = native_carbons(molecule, None)
    times, calls, series, step = [], 0, [], 1.0
    for run in range(options.runs):
        settings = {"preset": "torsions", "ensemble": "langevin", "solvent": "vacuum", "tmin": 300.0, "tmax": 800.0,
                    "seed": options.seed + run}  # fmt: skip
        summary, frames = fold("ala10", folder / f"run-{run}", options.iterations or 250, options.workers, settings)
        distance, step = rmsd(frames, carbons), picoseconds(summary)
        calls += summary["force_calls"]
        found = first_folded(distance, molecule.limit)
        series.append((f"run {run}: RMSD of Cα (nm)", distance))
        print(f"run {run}: " + ("not folded" if found is None else f"folded after {(found + 1) * step:.1f} ps"))
        if found is not None:
            times.append((found + 1) * step)
    print(f"{len(times)} of {options.runs} runs folded within {len(distance) * step:.0f} ps of each replica; {calls:,} "
          "energy calls in all")  # fmt: skip
    if len(times) > 1:
        error = float(np.std(times, ddof=1) / np.sqrt(len(times)))
        print(
            f"mean folding time {with_error(float(np.mean(times)), error)} ps (reported for the protocol: 29 +- 5 ps)"
        )
    title = "Ala10, torsions, vacuum, 300 K of 300 to 800 K"
    draw(series, step, "ps of each replica", molecule.limit, title, options.output)
    print(f"picture in {options.output}")


def draw(series: list[tuple[str, np.ndarray]], step: float, unit: str, limit: float, title: str, path: str) -> None:
    """Draw what was measured at the lowest temperature along the run."""
    figure, axes = new_figure(len(series), 1, figsize=(7.5, 1.2 + 1.9 * len(series)), sharex=True, squeeze=False)
    for place, (label, values) in zip(axes[:, 0], series, strict=True):
        place.plot(step * np.arange(1, len(values) + 1), values, color="#1f4e79", linewidth=0.8)
        place.set(ylabel=label)
        if "RMSD" in label:
            place.axhline(limit, color="#c8781e", linestyle="--", linewidth=1.0)
    axes[0, 0].set(title=f"{title}: lowest temperature")
    axes[-1, 0].set(xlabel=unit)
    save_figure(figure, path)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="ala10", choices=[*MOLECULES, "chen"])
    parser.add_argument("--native", metavar="FILE", help="the folded structure, e.g. 1l2y.pdb")
    parser.add_argument("--iterations", type=int, help=f"exchanges, after {INTERVAL} time steps each")
    parser.add_argument("--pivots", type=int, default=0, metavar="N", help="pivot moves between exchanges; not of chen")
    parser.add_argument("--runs", type=int, default=5, help="of chen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="four exchanges in this process")
    parser.add_argument("-o", "--output", default="folding.png")
    options = parser.parse_args(arguments)
    if options.quick:
        options.iterations, options.workers, options.runs = 4, 1, 1
    if options.molecule == "chen":
        if options.pivots:
            parser.error("chen is a protocol of dynamics alone; leave --pivots out")
        chen(options)
    else:
        fold_one(options.molecule, options)


if __name__ == "__main__":
    main()
