"""Helix-coil transition of polyalanine: replica exchange from helix and from strand, analysed by MBAR.

    python examples/polyalanine_helix.py [--lengths 5,10,15,20] [--preset flexible] [--iterations 2000] [--workers 2]
        [--scheduler ADDRESS] [--folder helix-coil] [--fixman] [--quick] [-o polyalanine_helix.png]

Capped Ala_n in implicit solvent (amber14, OBC2). For every length a short pilot chooses temperatures, so that 30% of
the exchanges between neighbours are accepted. Then two runs follow, one in which all replicas start as helix and one in
which all start as strand, with Langevin dynamics between exchanges. The first fifth of each is left out. The table and
the picture have, against temperature and from all frames of both runs together: helix content, heat capacity, hydrogen
bonds, radius of gyration, and the weights w and v of Lifson and Roig. Whether the two starts agree is said beside them:
their difference in standard errors, R-hat, and round trips of the replicas.

`--preset torsions` is the rigid model; with `--fixman` its curves without the Fixman potential, by weights of the same
frames, stand beside those with it. Everything is kept in the folder: the same command goes on where it was stopped, and
`--iterations` makes runs longer.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import mdtraj
import numpy as np
import openmm

import peptidyn as ptd
from peptidyn.analysis.estimates import with_error
from peptidyn.analysis.helix_coil import count_weights, fit_lifson_roig
from peptidyn.analysis.melting import Curve, heat_capacity, melting_curve, melting_temperature
from peptidyn.analysis.observables import helical_residues
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError
from peptidyn.core.statistics import r_hat
from peptidyn.core.units import BOLTZMANN
from peptidyn.io.quiet import quiet_readers
from peptidyn.runs.presets import PRESETS
from peptidyn.sampling.backends import connect
from peptidyn.sampling.ladders import choose_temperatures

STARTS = {"helix": (-57.0, -47.0), "strand": (-120.0, 130.0)}
STEPS = 50
"""Time steps of a trajectory; a sweep of a replica."""

COLUMNS = ("helix content", "hydrogen bonds", "radius of gyration (nm)", "n_w", "n_v")


@dataclass
class Settings:
    """What all runs of the study share."""

    folder: Path
    preset: str
    tmin: float
    tmax: float
    iterations: int
    pilot: int
    backend: object
    workers: int | None
    sweeps: int = 2


def make_run(n: int, start: str, temperatures: np.ndarray, folder: Path, settings: Settings) -> ptd.ReplicaExchange:
    """Return replica exchange of capped Ala_n in a folder, new or continued, with all replicas in one start."""
    preset = PRESETS[settings.preset]
    structures = {name: ptd.build_peptide("A" * n, phi=phi, psi=psi) for name, (phi, psi) in STARTS.items()}
    topology = structures["helix"].topology
    system = ptd.make_system(topology, solvent="obc2")
    helix = ptd.Structure.from_openmm(topology, system, relaxed(system, structures["helix"].positions))
    tree = ptd.build_tree(helix, soft=preset.soft)
    # both starts have the bond lengths and angles of the relaxed helix, and differ by phi and psi
    backbone = ptd.build_tree(helix, soft="phi psi")
    torsions = ptd.build_tree(structures[start], soft="phi psi").reference.torsions
    resume = (folder / "checkpoint.npz").exists()
    return ptd.ReplicaExchange(
        tree, system, temperatures,
        moves=[ptd.TorsionalLangevin(1e-3 * preset.langevin, STEPS, friction=1.0)],
        sweeps=settings.sweeps, metric=preset.metric, platform="CPU", properties={"Threads": "1"}, seed=n,
        positions=backbone.positions(backbone.reference.replace(torsions=torsions)),
        backend=settings.backend, workers=settings.workers, folder=folder, topology=topology, resume=resume,
    )  # fmt: skip


def relaxed(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Return positions (n_atoms, 3), nm, after minimisation in Cartesian coordinates."""
    place = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    place.setPositions(positions)
    openmm.LocalEnergyMinimizer.minimize(place, 10.0)
    return np.array(place.getState(positions=True).getPositions(asNumpy=True)._value)


def find_temperatures(n: int, settings: Settings) -> np.ndarray:
    """Return temperatures between which neighbours exchange at 30%, from a short run; kept in the folder."""
    file = settings.folder / f"ala{n}-temperatures.txt"
    if file.exists():
        return np.loadtxt(file)
    first = ptd.geometric_temperatures(settings.tmin, settings.tmax, 6)
    with make_run(n, "helix", first, settings.folder / f"ala{n}-pilot", settings) as pilot:
        pilot.run(settings.pilot, progress=True)
        energies = [pilot.at_temperature(k)[0]["potential"] for k in range(len(first))]
    chosen = choose_temperatures(first, [e[len(e) // 4 :] for e in energies])
    np.savetxt(file, chosen, fmt="%.2f")
    return np.loadtxt(file)


@dataclass
class Outcome:
    """Frames of one run after its first fifth, by temperature, and how its replicas travelled."""

    values: np.ndarray
    """(n_levels, n_frames, 5), see `COLUMNS`."""
    energies: np.ndarray
    """(n_levels, n_frames): V, kJ/mol."""
    log_weights: np.ndarray
    """(n_levels, n_frames): U_F / kT."""
    acceptance: np.ndarray
    round_trips: np.ndarray
    calls: int
    dropped: float


def run_one(n: int, start: str, temperatures: np.ndarray, settings: Settings) -> Outcome:
    """Run, or continue, one start and measure its frames."""
    folder = settings.folder / f"ala{n}-{start}"
    with make_run(n, start, temperatures, folder, settings) as run:
        run.run(settings.iterations, progress=True)
        count = len(temperatures)
        values, rows = [], []
        for r in range(count):
            with quiet_readers():
                frames = mdtraj.load(str(folder / f"replica-{r:02d}/trajectory.dcd"), top=str(folder / "topology.pdb"))
            values.append(measure(frames))
            rows.append(run.frames_of(r)[0])
        acceptance, trips = run.acceptance, run.round_trips
        calls, dropped = int(run.move_counts[..., 2].sum()), 1.0 - float(np.nanmean(run.move_acceptance))
    every, kept = np.concatenate(rows), np.concatenate(values)
    order = np.lexsort((every["iteration"], every["level"]))  # by level, then by time
    every, kept = every[order].reshape(count, -1), kept[order].reshape(count, -1, len(COLUMNS))
    late = slice(every.shape[1] // 5, None)
    metric = every["fixman"] / (BOLTZMANN * every["temperature"])
    return Outcome(kept[:, late], every["potential"][:, late], metric[:, late], acceptance, trips, calls, dropped)


def measure(frames: mdtraj.Trajectory) -> np.ndarray:
    """Return helix content, hydrogen bonds, radius of gyration, and counts of Lifson and Roig, (n_frames, 5)."""
    counts = count_weights(helical_residues(frames)[0])
    content, bonds = ptd.helix_content(frames).values, ptd.hydrogen_bonds(frames).values
    return np.column_stack([content, bonds, ptd.radius_of_gyration(frames).values, counts])


def lifson_roig(n: int, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Return ln w and ln v at every temperature of a curve of `COLUMNS`, (t, 2), and their errors; nan if none fit."""

    def weights(means: np.ndarray) -> list[list[float]]:
        fits = []
        for row in means:
            try:
                fit = fit_lifson_roig(n, row[3], row[4])
                fits.append([np.log(fit.w), np.log(fit.v)])
            except ArgumentError:
                fits.append([np.nan, np.nan])
        return fits

    return curve.derived(weights)


def report(n: int, temperatures: np.ndarray, runs: dict[str, Outcome], fixman: bool) -> dict[str, object]:
    """Print the table of one length; return its curves for the picture."""
    length = min(run.energies.shape[1] for run in runs.values())
    both = [np.concatenate([getattr(run, name)[:, -length:] for run in runs.values()], axis=1)
            for name in ("values", "energies", "log_weights")]  # fmt: skip
    values, energies, log_weights = both
    options = {"blocks": 2 * min(10, length // 2)}
    grid = np.linspace(temperatures[0], temperatures[-1], 41)
    at = {name: melting_curve(run.values, run.energies, temperatures, temperatures, blocks=min(10, length // 2))
          for name, run in runs.items()}  # fmt: skip
    curve = melting_curve(values, energies, temperatures, temperatures, **options)
    fine = melting_curve(values, energies, temperatures, grid, **options)
    heat = heat_capacity(energies, temperatures, grid, **options)
    fit, fit_error = lifson_roig(n, curve)
    half = Curve(fine.temperatures, fine.mean[:, 0], fine.error[:, 0], fine.replicates[..., 0])
    melting, melting_error = melting_temperature(half)
    peak, peak_error = heat.derived(lambda c: grid[np.argmax(c)])
    difference = at["helix"].mean[:, 0] - at["strand"].mean[:, 0]
    apart = np.abs(difference) / np.hypot(at["helix"].error[:, 0], at["strand"].error[:, 0])
    mixing = [r_hat([run.values[k, :, 0] for run in runs.values()]) for k in range(len(temperatures))]
    print(f"\nAla{n}: {length} frames per temperature and start; energy calls: "
          + ", ".join(f"{run.calls:,} from {name}" for name, run in runs.items()))  # fmt: skip
    print("  T (K)  helix      from helix  from strand  apart  R-hat  direct     H bonds    Rg (nm)     w          v")
    for k, T in enumerate(temperatures):
        w, v = np.exp(fit[k])
        direct = values[k, :, 0].mean()
        cells = [with_error(curve.mean[k, i], curve.error[k, i]) for i in range(3)]
        starts = [with_error(one.mean[k, 0], one.error[k, 0]) for one in at.values()]
        weights = [with_error(w, w * fit_error[k, 0]), with_error(v, v * fit_error[k, 1])]
        print(f"  {T:5.1f}  {cells[0]:<9}  {starts[0]:<10}  {starts[1]:<11}  {apart[k]:5.1f}  {mixing[k]:5.2f}  "
              f"{direct:<9.3f}  {cells[1]:<9}  {cells[2]:<10}  {weights[0]:<9}  {weights[1]}")  # fmt: skip
    for name, run in runs.items():
        rates = " ".join(f"{rate:.2f}" for rate in run.acceptance)
        trips = f"round trips per replica {run.round_trips.mean():.1f} (least {run.round_trips.min()})"
        print(f"  from {name}: exchanges accepted {rates}; {trips}; {run.dropped:.2%} of trajectories dropped")
    middle = f"0.5 at {with_error(melting, melting_error)} K" if np.isfinite(melting) else "nowhere 0.5"
    edge = peak in (grid[0], grid[-1])
    largest = "has no maximum between the ends" if edge else f"is largest at {with_error(peak, peak_error)} K"
    print(f"  helix content is {middle}; heat capacity {largest}")
    agree = bool((apart < 2).all() and max(mixing) < 1.1)
    print(f"  the starts {'agree' if agree else 'do not agree'}: largest difference {apart.max():.1f} standard errors, "
          f"R-hat {max(mixing):.2f}")  # fmt: skip
    found = {"n": n, "temperatures": temperatures, "starts": at, "fine": fine, "heat": heat, "curve": curve,
             "fit": fit, "fit_error": fit_error, "trips": {name: run.round_trips for name, run in runs.items()},
             "series": {name: run.values[0, :, 0] for name, run in runs.items()}}  # fmt: skip
    if fixman:
        without = melting_curve(values, energies, temperatures, grid, log_weights=log_weights, **options)
        found["without"] = without
        change = without.mean[:, 0] - fine.mean[:, 0]
        place = int(np.abs(change).argmax())
        print(f"  without U_F helix content changes by {change[place]:+.3f} at most, at {grid[place]:.0f} K")
    return found


def draw(studies: list[dict], preset: str, path: str) -> None:
    """Draw curves of all lengths, and how they converged."""
    figure, axes = new_figure(2, 3, figsize=(13.5, 7.6))
    looks = zip(studies, ("#1f4e79", "#c8781e", "#5c8a5c", "#8a3c5c"), strict=False)
    for study, colour in looks:
        label, T, fine = f"Ala$_{{{study['n']}}}$", study["temperatures"], study["fine"]
        grid = fine.temperatures
        for place, column in ((axes[0, 0], 0), (axes[0, 2], 1), (axes[1, 0], 2)):
            place.plot(grid, fine.mean[:, column], color=colour, label=label)
            low, high = (fine.mean[:, column] + sign * fine.error[:, column] for sign in (-1, 1))
            place.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        for (name, one), mark in zip(study["starts"].items(), ("^", "v"), strict=True):
            axes[0, 0].errorbar(T, one.mean[:, 0], one.error[:, 0], fmt=mark, color=colour, capsize=2, markersize=4,
                                label=f"from {name}" if study is studies[0] else None)  # fmt: skip
            running = np.cumsum(study["series"][name]) / np.arange(1, len(study["series"][name]) + 1)
            axes[1, 2].plot(running, "-" if name == "helix" else "--", color=colour,
                            label=f"{label} from {name}, {study['trips'][name].sum()} round trips")  # fmt: skip
        if "without" in study:
            axes[0, 0].plot(grid, study["without"].mean[:, 0], ":", color=colour, label=f"{label} without U$_F$")
        heat = study["heat"]
        axes[0, 1].plot(grid, heat.mean, color=colour, label=label)
        axes[0, 1].fill_between(
            grid, heat.mean - heat.error, heat.mean + heat.error, color=colour, alpha=0.2, linewidth=0
        )
        for column, look in ((0, "o"), (1, "s")):
            fit, error = study["fit"][:, column], study["fit_error"][:, column]
            axes[1, 1].errorbar(1000 / T, fit, error, fmt=look, color=colour, capsize=2, markersize=4,
                                label=f"{label}: ln {'wv'[column]}")  # fmt: skip
    axes[0, 0].set(xlabel="temperature (K)", ylabel="helix content", ylim=(-0.02, 1.02), title=f"preset {preset}")
    axes[0, 1].set(xlabel="temperature (K)", ylabel="heat capacity of V (kJ/mol/K)")
    axes[0, 2].set(xlabel="temperature (K)", ylabel="hydrogen bonds")
    axes[1, 0].set(xlabel="temperature (K)", ylabel="radius of gyration (nm)")
    axes[1, 1].set(xlabel="1000 K / T", ylabel="ln w, ln v (Lifson-Roig)")
    axes[1, 2].set(xlabel="frame at the lowest temperature", ylabel="helix content so far", ylim=(-0.02, 1.02))
    for place in axes.flat:
        place.legend(frameon=False, fontsize=7)
    save_figure(figure, path)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="5,10,15,20")
    parser.add_argument("--preset", default="flexible", choices=list(PRESETS))
    parser.add_argument("--tmin", type=float, default=280.0)
    parser.add_argument("--tmax", type=float, default=500.0)
    parser.add_argument("--iterations", type=int, default=2000, help="exchanges of every run, 100 time steps apart")
    parser.add_argument("--pilot", type=int, default=100, help="exchanges of the run that temperatures are chosen from")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of dask; its workers are used")
    parser.add_argument("--fixman", action="store_true", help="draw the curves without the Fixman potential, too")
    parser.add_argument("--folder", type=Path, default=Path("helix-coil"))
    parser.add_argument("--quick", action="store_true", help="a few exchanges of Ala4 in this process")
    parser.add_argument("-o", "--output", default="polyalanine_helix.png")
    options = parser.parse_args(arguments)
    if options.fixman and PRESETS[options.preset].metric != "physical":
        parser.error("--fixman compares rigid models; give --preset torsions")
    lengths = [int(n) for n in options.lengths.split(",")]
    backend = connect(options.scheduler) if options.scheduler else "processes" if options.workers != 1 else "serial"
    settings = Settings(
        options.folder / options.preset, options.preset, options.tmin, options.tmax, options.iterations,
        options.pilot, backend, options.workers,
    )  # fmt: skip
    if options.quick:
        lengths, settings.iterations, settings.sweeps, settings.pilot, settings.backend = [4], 25, 1, 12, "serial"
    settings.folder.mkdir(parents=True, exist_ok=True)
    studies = []
    for n in lengths:
        temperatures = find_temperatures(n, settings)
        runs = {start: run_one(n, start, temperatures, settings) for start in STARTS}
        studies.append(report(n, temperatures, runs, options.fixman))
        draw(studies, options.preset, options.output)
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
