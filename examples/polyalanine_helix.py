"""Helix-coil transition of polyalanine: replica exchange from helix and from strand, analysed by MBAR.

    python examples/polyalanine_helix.py [--lengths 5,10,15,20] [--preset flexible] [--iterations 2000] [--workers 2]
        [--scheduler ADDRESS] [--engine both] [--hot 700] [--folder helix-coil] [--pivots 100] [--every 100] [--fixman]
        [--quick] [-o polyalanine_helix.png]

Capped Ala_n in implicit solvent (amber14, OBC2). For every length a short pilot chooses temperatures, so that a quarter
of the exchanges between neighbours are accepted. Then two runs follow, one in which all replicas start as helix and one
in which all start as strand, with Langevin dynamics between exchanges. The first fifth of each is left out. The table
and the picture have, against temperature and from all frames of both runs together: helix content, heat capacity,
hydrogen bonds, radius of gyration, and the weights w and v of Lifson and Roig. Whether the two starts agree is said
beside them: their difference in standard errors, R-hat, and round trips of the replicas.

`--engine openmm` makes the same two runs with OpenMM alone: its ReplicaExchangeSampler and LangevinMiddleIntegrator at
4 fs, bonds of hydrogens constrained, hydrogens of 3 Da, the same temperatures and as many steps between exchanges, so
as many energy calls. `--engine both` makes all four, and compares. Dynamics alone turns phi to its left-handed side and
back so rarely that OpenMM's replicas know for long how they started; `--hot T` gives them further temperatures up to T,
at which that is quicker. Its two runs are made side by side.

`--pivots N` adds N pivot moves to the time steps between exchanges (100, or `--every`), each accepted by its energy and
counted as an energy call: turns of the chain about one phi or psi by any angle.

`--preset torsions` is the rigid model; with `--fixman` its curves without the Fixman potential, by weights of the same
frames, stand beside those with it. Everything is kept in the folder: the same command goes on where it was stopped, and
`--iterations` makes runs longer.
"""

import argparse
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import mdtraj
import numpy as np
import openmm
from openmm import app, unit

import peptidyn as ptd
from peptidyn.analysis.estimates import with_error
from peptidyn.analysis.helix_coil import count_weights, fit_lifson_roig
from peptidyn.analysis.melting import Curve, boltzmann_slopes, heat_capacity, melting_curve, melting_temperature
from peptidyn.analysis.observables import backbone_torsions, is_helical
from peptidyn.analysis.plots import new_figure, save_figure
from peptidyn.core.errors import ArgumentError
from peptidyn.core.one_core import OneCore
from peptidyn.core.progress import Progress
from peptidyn.core.statistics import r_hat, statistical_inefficiency
from peptidyn.core.units import BOLTZMANN
from peptidyn.io.quiet import quiet_readers
from peptidyn.runs.presets import PRESETS
from peptidyn.sampling.backends import connect
from peptidyn.sampling.exchange import count_round_trips
from peptidyn.sampling.ladders import choose_temperatures

STARTS = {"helix": (-57.0, -47.0), "strand": (-120.0, 130.0)}
STEPS = 50
"""Time steps of a trajectory; a sweep of a replica."""

ACCEPTANCE = 0.25
"""Of exchanges between neighbouring temperatures, for which the pilot places them; in the end it is 0.2 to 0.45."""

PIECE = 50
"""Exchanges of an OpenMM run that are kept in one file."""

COLUMNS = ("helix content", "hydrogen bonds", "radius of gyration (nm)", "n_w", "n_v", "left-handed")
HELIX, LEFT = COLUMNS.index("helix content"), COLUMNS.index("left-handed")


@dataclass
class Settings:
    """What all runs of the study share."""

    folder: Path
    preset: str
    timestep: float
    """fs, up to 300 K."""
    tmin: float
    tmax: float
    iterations: int
    pilot: int
    backend: object
    workers: int | None
    sweeps: int = 2
    platform: str = "CPU"
    pivots: int = 0
    """Between exchanges."""
    hot: float = 0.0
    """Up to which OpenMM's temperatures go on, K; 0 if they are the others' own."""

    @property
    def properties(self) -> dict[str, str]:
        """Of the platform: one thread for every replica."""
        return {"Threads": "1"} if self.platform == "CPU" else {}


def prepare(n: int, start: str) -> tuple[app.Topology, openmm.System, ptd.Structure, np.ndarray]:
    """Return topology, System and relaxed helix of capped Ala_n, and positions of a start.

    Both starts have the bond lengths and angles of the relaxed helix, and differ by phi and psi.
    """
    structures = {name: ptd.build_peptide("A" * n, phi=phi, psi=psi) for name, (phi, psi) in STARTS.items()}
    topology = structures["helix"].topology
    system = ptd.make_system(topology, solvent="obc2")
    helix = ptd.Structure.from_openmm(topology, system, relaxed(system, structures["helix"].positions))
    backbone = ptd.build_tree(helix, soft="phi psi")
    torsions = ptd.build_tree(structures[start], soft="phi psi").reference.torsions
    return topology, system, helix, backbone.positions(backbone.reference.replace(torsions=torsions))


def seed_of(n: int, start: str) -> int:
    """Return the seed of a run: starts have different random numbers."""
    return 100 * n + list(STARTS).index(start)


def make_run(n: int, start: str, temperatures: np.ndarray, folder: Path, settings: Settings) -> ptd.ReplicaExchange:
    """Return replica exchange of capped Ala_n in a folder, new or continued, with all replicas in one start."""
    preset = PRESETS[settings.preset]
    topology, system, helix, positions = prepare(n, start)
    moves = [ptd.TorsionalLangevin(1e-3 * settings.timestep, STEPS, friction=1.0)]
    if settings.pivots:
        moves.append(ptd.PivotMove(tries=max(1, settings.pivots // settings.sweeps)))
    return ptd.ReplicaExchange(
        ptd.build_tree(helix, soft=preset.soft), system, temperatures, moves=moves,
        sweeps=settings.sweeps, metric=preset.metric, platform=settings.platform, properties=settings.properties,
        seed=seed_of(n, start), positions=positions, backend=settings.backend, workers=settings.workers, folder=folder,
        topology=topology, resume=(folder / "checkpoint.npz").exists(),
    )  # fmt: skip


def relaxed(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Return positions (n_atoms, 3), nm, after minimisation in Cartesian coordinates."""
    place = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    place.setPositions(positions)
    openmm.LocalEnergyMinimizer.minimize(place, 10.0)
    return np.array(place.getState(positions=True).getPositions(asNumpy=True)._value)


def find_temperatures(n: int, settings: Settings) -> np.ndarray:
    """Return temperatures between which neighbours exchange at `ACCEPTANCE`, from a short run; kept in the folder."""
    file = settings.folder / f"ala{n}-temperatures.txt"
    if file.exists():
        return np.loadtxt(file)
    first = ptd.geometric_temperatures(settings.tmin, settings.tmax, 6)
    with make_run(n, "helix", first, settings.folder / f"ala{n}-pilot", settings) as pilot:
        pilot.run(settings.pilot, progress=True)
        energies = [pilot.at_temperature(k)[0]["potential"] for k in range(len(first))]
    chosen = choose_temperatures(first, [e[len(e) // 4 :] for e in energies], ACCEPTANCE)
    np.savetxt(file, chosen, fmt="%.2f")
    return np.loadtxt(file)


@dataclass
class Outcome:
    """Frames of one run after its first fifth, by temperature, and how its replicas travelled."""

    values: np.ndarray
    """(n_levels, n_frames, 6), see `COLUMNS`."""
    energies: np.ndarray
    """(n_levels, n_frames): V, kJ/mol."""
    log_weights: np.ndarray
    """(n_levels, n_frames): U_F / kT."""
    acceptance: np.ndarray
    round_trips: np.ndarray
    calls: int
    dropped: float
    memory: float
    """Frames of a replica that count as one, for the slower of helix content and left-handed residues."""


def remembered(values: np.ndarray) -> float:
    """Return the mean statistical inefficiency of replicas (n_replicas, n_frames, 6), of the slower of two columns."""
    return max(float(np.mean([statistical_inefficiency(one) for one in values[..., k]])) for k in (HELIX, LEFT))


def run_peptidyn(n: int, temperatures: np.ndarray, settings: Settings) -> dict[str, Outcome]:
    """Run, or continue, both starts and measure their frames."""
    return {start: run_one(n, start, temperatures, settings) for start in STARTS}


def run_one(n: int, start: str, temperatures: np.ndarray, settings: Settings) -> Outcome:
    """Run, or continue, one start and measure its frames."""
    folder = settings.folder / f"ala{n}-{start}"
    with make_run(n, start, temperatures, folder, settings) as run:
        run.run(settings.iterations, progress=True)
        values, rows = [], []
        for r in range(len(temperatures)):
            with quiet_readers():
                frames = mdtraj.load(str(folder / f"replica-{r:02d}/trajectory.dcd"), top=str(folder / "topology.pdb"))
            values.append(measure(frames))
            rows.append(run.frames_of(r)[0])
        calls, dropped = int(run.move_counts[..., 2].sum()), 1.0 - float(np.nanmean(run.move_acceptance[:, 0]))
        every, shape = np.concatenate(rows), (len(temperatures), run.frames)
    order = np.lexsort((every["iteration"], every["level"])).reshape(shape)  # by level, then by time
    every, kept, late = every[order], np.concatenate(values)[order], slice(shape[1] // 5, None)
    metric = every["fixman"] / (BOLTZMANN * every["temperature"])
    return Outcome(
        kept[:, late], every["potential"][:, late], metric[:, late], run.acceptance, run.round_trips, calls, dropped,
        remembered(np.array(values)[:, late]),
    )  # fmt: skip


# ---------------------------------------------------------------------------- the same with OpenMM alone


def constrained(topology: app.Topology, system: openmm.System, hydrogen_mass: float = 3.0) -> openmm.System:
    """Return a System with constrained bonds of hydrogens, to which their atoms give mass (Da): OpenMM at 4 fs."""
    made = openmm.XmlSerializer.clone(system)
    hydrogen = {atom.index for atom in topology.atoms() if atom.element.symbol == "H"}
    (bonds,) = (force for force in made.getForces() if isinstance(force, openmm.HarmonicBondForce))
    for i in range(bonds.getNumBonds()):
        a, b, length, _ = bonds.getBondParameters(i)
        if {a, b} & hydrogen:
            bonds.setBondParameters(i, a, b, length, 0.0)
            made.addConstraint(a, b, length)
            light, heavy = (a, b) if a in hydrogen else (b, a)
            moved = hydrogen_mass - made.getParticleMass(light)._value
            made.setParticleMass(light, hydrogen_mass)
            made.setParticleMass(heavy, made.getParticleMass(heavy)._value - moved)
    return made


def make_sampler(n: int, start: str, temperatures: np.ndarray, settings: Settings) -> app.ReplicaExchangeSampler:
    """Return OpenMM's replica exchange with all replicas in one start."""
    topology, system, _, positions = prepare(n, start)
    integrator = openmm.LangevinMiddleIntegrator(temperatures[0], 1.0, 0.004)
    platform = openmm.Platform.getPlatformByName(settings.platform)
    simulation = app.Simulation(topology, constrained(topology, system), integrator, platform, settings.properties)
    simulation.context.setPositions(positions)
    simulation.context.applyConstraints(1e-6)
    simulation.context.setVelocitiesToTemperature(temperatures[0], seed_of(n, start))
    states = [{"temperature": T} for T in temperatures.tolist()]
    return app.ReplicaExchangeSampler(states, simulation, settings.sweeps * STEPS)


def hotter(temperatures: np.ndarray, hot: float) -> np.ndarray:
    """Return the temperatures and further ones up to `hot`, which lie about as close as the last two."""
    last, ratio = temperatures[-1], temperatures[-1] / temperatures[-2]
    if hot <= last:
        return temperatures
    steps = max(1, round(np.log(hot / last) / np.log(ratio)))
    return np.append(temperatures, ptd.geometric_temperatures(last, hot, steps + 1)[1:])


def openmm_folder(n: int, start: str, settings: Settings) -> Path:
    """Return where one start with OpenMM is kept; runs with other temperatures are other runs."""
    return settings.folder.parent / (f"openmm-{settings.hot:g}K" if settings.hot else "openmm") / f"ala{n}-{start}"


def extend_openmm(n: int, start: str, temperatures: np.ndarray, settings: Settings) -> None:
    """Run, or continue, one start with OpenMM, in pieces that are files."""
    folder = openmm_folder(n, start, settings)
    folder.mkdir(parents=True, exist_ok=True)
    sampler = make_sampler(n, start, temperatures, settings)
    files = sorted(folder.glob("piece-*.npz"))
    if files:
        with np.load(files[-1]) as last:
            sampler.replicaConformation = [openmm.XmlSerializer.deserialize(str(text)) for text in last["states"]]
            sampler.replicaStateIndex = last["next"].tolist()
            sampler._previousReplicaStateIndex = last["walk"][-1].tolist()
    done = len(files) * PIECE
    with Progress(max(0, settings.iterations - done), f"OpenMM, Ala{n} from {start}", "iterations") as bar, \
            OneCore(settings.platform == "CPU") as core:  # fmt: skip
        while done < settings.iterations:
            _make_piece(sampler, folder, done // PIECE, seed_of(n, start))
            done += PIECE
            bar.advance(PIECE)
            core.look()


def run_openmm(n: int, temperatures: np.ndarray, settings: Settings) -> dict[str, Outcome]:
    """Run, or continue, both starts with OpenMM and measure their frames."""
    jobs = [(n, start, temperatures, replace(settings, backend=None)) for start in STARTS]
    if settings.backend == "serial":
        for job in jobs:
            extend_openmm(*job)
    else:
        with ProcessPoolExecutor(len(jobs), get_context("spawn")) as pool:
            list(pool.map(extend_openmm, *zip(*jobs, strict=True)))
    return {start: measure_openmm(n, start, temperatures, settings) for start in STARTS}


def measure_openmm(n: int, start: str, temperatures: np.ndarray, settings: Settings) -> Outcome:
    """Measure the frames of one start with OpenMM."""
    topology, count = mdtraj.Topology.from_openmm(prepare(n, start)[0]), len(temperatures)
    pieces = [_read_piece(file, topology) for file in sorted(openmm_folder(n, start, settings).glob("piece-*.npz"))]
    values, energies, walk = (np.concatenate(part) for part in zip(*pieces, strict=True))
    done = len(values)
    calls = done * count * (settings.sweeps * STEPS + 1)  # one more for the energy
    late, memory = slice(done // 5, None), remembered(values[done // 5 :].transpose(1, 0, 2))
    order = np.argsort(walk, axis=1)  # (iterations, levels): the replica at every level
    values = np.take_along_axis(values, order[..., None], axis=1).transpose(1, 0, 2)
    energies = np.take_along_axis(energies, order, axis=1).T
    step = np.diff(1.0 / (BOLTZMANN * temperatures))[:, None] * np.diff(energies, axis=0)
    accepted = np.exp(np.minimum(0.0, step[:, late])).mean(axis=1)
    return Outcome(
        values[:, late], energies[:, late], np.zeros_like(energies[:, late]), accepted, count_round_trips(walk, count),
        calls, 0.0, memory,
    )  # fmt: skip


def _make_piece(sampler: app.ReplicaExchangeSampler, folder: Path, number: int, seed: int) -> Path:
    """Make `PIECE` exchanges and write their frames, energies and levels, with all that is needed to go on."""
    positions, energies, walk = [], [], []

    def keep(now: app.ReplicaExchangeSampler) -> None:
        positions.append([state.getPositions(asNumpy=True)._value for state in now.replicaConformation])
        energies.append([one[0] for one in now.replicaStateEnergy.value_in_unit(unit.kilojoules_per_mole)])
        walk.append(list(now.replicaStateIndex))

    # an integrator takes a new seed in a new Context only; its state is a part of this one's noise
    random.seed(f"{seed} {number}")
    sampler.simulation.integrator.setRandomNumberSeed(1 + random.randrange(2**31 - 2))
    sampler.simulation.context.reinitialize()
    sampler.reporters = [keep]
    sampler.simulate(PIECE)
    file = folder / f"piece-{number:05d}.npz"
    partial = file.with_suffix(".partial")
    states = [openmm.XmlSerializer.serialize(state) for state in sampler.replicaConformation]
    with partial.open("wb") as stream:
        np.savez(stream, positions=np.array(positions, np.float32), energies=np.array(energies), walk=np.array(walk),
                 states=states, next=sampler.replicaStateIndex)  # fmt: skip
    return partial.replace(file)


def _read_piece(file: Path, topology: mdtraj.Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what was measured (iterations, replicas, 6), energies and levels (iterations, replicas)."""
    with np.load(file) as piece:
        x, energies, walk = piece["positions"], piece["energies"], piece["walk"]
    frames = mdtraj.Trajectory(x.reshape(-1, *x.shape[2:]), topology)
    return measure(frames).reshape(*x.shape[:2], len(COLUMNS)), energies, walk


# ---------------------------------------------------------------------------- results


def measure(frames: mdtraj.Trajectory) -> np.ndarray:
    """Return `COLUMNS` (n_frames, 6): n_w and n_v count weights of Lifson and Roig; left-handed is phi >= 0."""
    phi, psi, _ = backbone_torsions(frames)
    counts, left = count_weights(is_helical(phi, psi)), (phi >= 0.0).mean(axis=1)
    content, bonds = ptd.helix_content(frames).values, ptd.hydrogen_bonds(frames).values
    return np.column_stack([content, bonds, ptd.radius_of_gyration(frames).values, counts, left])


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


@dataclass
class Study:
    """Curves of one length, from all frames of both starts and of each alone."""

    n: int
    temperatures: np.ndarray
    runs: dict[str, Outcome]
    starts: dict[str, Curve]
    curve: Curve
    """Of `COLUMNS`, at the temperatures of the replicas."""
    fine: Curve
    heat: Curve
    fit: np.ndarray
    fit_error: np.ndarray
    without: Curve | None = None
    """Without the Fixman potential."""

    @property
    def apart(self) -> np.ndarray:
        """Difference of the helix contents of both starts, in standard errors."""
        return apart(*(curve for curve in self.starts.values()))

    @property
    def mixing(self) -> list[float]:
        """R-hat of the helix content at every temperature."""
        return [r_hat([run.values[k, :, 0] for run in self.runs.values()]) for k in range(len(self.temperatures))]


def apart(a: Curve, b: Curve) -> np.ndarray:
    """Return the difference of two helix contents at every temperature of `a`, in standard errors; `b` may go on."""
    n = len(a.mean)
    return np.abs(a.mean[:, 0] - b.mean[:n, 0]) / np.hypot(a.error[:, 0], b.error[:n, 0])


def analyse(n: int, temperatures: np.ndarray, runs: dict[str, Outcome], fixman: bool) -> Study:
    """Return the curves of one length."""
    length = min(run.energies.shape[1] for run in runs.values())
    values, energies, log_weights = (
        np.concatenate([getattr(run, name)[:, -length:] for run in runs.values()], axis=1)
        for name in ("values", "energies", "log_weights")
    )
    grid = np.linspace(temperatures[0], temperatures[-1], 41)
    options = {"runs": len(runs), "memory": max(run.memory for run in runs.values())}
    starts = {
        name: melting_curve(run.values, run.energies, temperatures, temperatures, memory=run.memory)
        for name, run in runs.items()
    }
    curve = melting_curve(values, energies, temperatures, temperatures, **options)
    fine = melting_curve(values, energies, temperatures, grid, **options)
    heat = heat_capacity(energies, temperatures, grid, **options)
    study = Study(n, temperatures, runs, starts, curve, fine, heat, *lifson_roig(n, curve))
    if fixman:
        study.without = melting_curve(values, energies, temperatures, grid, log_weights=log_weights, **options)
    return study


def report(study: Study, engine: str) -> None:
    """Print the table of one length."""
    runs, curve, spread = study.runs, study.curve, study.apart
    length = min(run.energies.shape[1] for run in runs.values())
    print(f"\nAla{study.n}, {engine}: {length} frames per temperature and start; energy calls: "
          + ", ".join(f"{run.calls:,} from {name}" for name, run in runs.items()))  # fmt: skip
    print("  T (K)  helix      from helix  from strand  apart  R-hat  direct     left       H bonds    Rg (nm)     w"
          "          v")  # fmt: skip
    for k, T in enumerate(study.temperatures):
        w, v = np.exp(study.fit[k])
        direct = np.mean([run.values[k, :, 0].mean() for run in runs.values()])
        cells = [with_error(curve.mean[k, i], curve.error[k, i]) for i in (HELIX, LEFT, 1, 2)]
        starts = [with_error(one.mean[k, 0], one.error[k, 0]) for one in study.starts.values()]
        weights = [with_error(w, w * study.fit_error[k, 0]), with_error(v, v * study.fit_error[k, 1])]
        columns = f"{cells[1]:<9}  {cells[2]:<9}  {cells[3]:<10}  {weights[0]:<9}  {weights[1]}"
        print(f"  {T:5.1f}  {cells[0]:<9}  {starts[0]:<10}  {starts[1]:<11}  {spread[k]:5.1f}  {study.mixing[k]:5.2f}  "
              f"{direct:<9.3f}  {columns}")  # fmt: skip
    for name, run in runs.items():
        rates = " ".join(f"{rate:.2f}" for rate in run.acceptance)
        trips = f"round trips per replica {run.round_trips.mean():.1f} (least {run.round_trips.min()})"
        blocks = len(study.starts[name].replicates)
        size = run.energies.shape[1] // blocks
        print(f"  from {name}: exchanges accepted {rates}; {trips}; {run.dropped:.2%} of trajectories dropped; "
              f"replicas remember {run.memory:.0f} exchanges, {blocks} blocks of {size}")  # fmt: skip
        slopes = zip(*boltzmann_slopes(run.energies, study.temperatures), strict=True)
        print("    energies of neighbours, slope of the logarithm of their ratio / expected: "
              + " ".join(with_error(*one) for one in slopes))  # fmt: skip
    report_middle(study)
    agree = bool((spread < 2).all() and max(study.mixing) < 1.1)
    print(f"  the starts {'agree' if agree else 'do not agree'}: largest difference {spread.max():.1f} standard "
          f"errors, R-hat {max(study.mixing):.2f}")  # fmt: skip


def report_middle(study: Study) -> None:
    """Print where half of the helix is left, where the heat capacity is largest, and what the Fixman potential does."""
    fine, grid = study.fine, study.fine.temperatures
    half = Curve(grid, fine.mean[:, 0], fine.error[:, 0], fine.replicates[..., 0])
    melting, melting_error = melting_temperature(half)
    peak, peak_error = study.heat.derived(lambda c: grid[np.argmax(c)])
    middle = "nowhere 0.5, or at one end"
    if np.isfinite(melting + melting_error):
        middle = f"0.5 at {with_error(melting, melting_error)} K"
    edge = peak in (grid[0], grid[-1])
    largest = "has no maximum between the ends" if edge else f"is largest at {with_error(peak, peak_error)} K"
    print(f"  helix content is {middle}; heat capacity {largest}")
    if study.without is not None:
        change = study.without.mean[:, 0] - fine.mean[:, 0]
        place = int(np.abs(change).argmax())
        print(f"  without U_F helix content changes by {change[place]:+.3f} at most, at {grid[place]:.0f} K")


def compare(ours: Study, theirs: Study) -> None:
    """Print the helix content of peptidyn beside that of OpenMM."""
    print(f"\nAla{ours.n}, helix content:\n  T (K)  peptidyn   OpenMM     apart")
    spread = apart(ours.curve, theirs.curve)
    for k, T in enumerate(ours.temperatures):
        cells = [with_error(one.curve.mean[k, 0], one.curve.error[k, 0]) for one in (ours, theirs)]
        print(f"  {T:5.1f}  {cells[0]:<9}  {cells[1]:<9}  {spread[k]:5.1f}")
    calls = [sum(run.calls for run in one.runs.values()) for one in (ours, theirs)]
    trips = [np.mean([run.round_trips.mean() for run in one.runs.values()]) for one in (ours, theirs)]
    theirs_error = theirs.curve.error[: len(ours.temperatures), 0]
    ratio = float(np.median((theirs_error / ours.curve.error[:, 0]) ** 2)) * calls[1] / calls[0]
    print(f"  energy calls {calls[0]:,} and {calls[1]:,}; round trips per replica {trips[0]:.1f} and {trips[1]:.1f}; "
          f"calls for the same error, relative to peptidyn: {ratio:.1f}")  # fmt: skip


def draw(studies: list[Study], openmm_curves: dict[int, Curve], title: str, path: str) -> None:
    """Draw curves of all lengths, and how they converged; those of OpenMM by length, if there are any, beside them."""
    figure, axes = new_figure(2, 3, figsize=(13.5, 7.6))
    looks = zip(studies, ("#1f4e79", "#c8781e", "#5c8a5c", "#8a3c5c"), strict=False)
    for study, colour in looks:
        label, T, fine = f"Ala$_{{{study.n}}}$", study.temperatures, study.fine
        grid = fine.temperatures
        for place, column in ((axes[0, 0], 0), (axes[0, 2], 1), (axes[1, 0], 2)):
            place.plot(grid, fine.mean[:, column], color=colour, label=label)
            low, high = (fine.mean[:, column] + sign * fine.error[:, column] for sign in (-1, 1))
            place.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        for (name, one), mark in zip(study.starts.items(), ("^", "v"), strict=True):
            axes[0, 0].errorbar(T, one.mean[:, 0], one.error[:, 0], fmt=mark, color=colour, capsize=2, markersize=4,
                                label=f"from {name}" if study is studies[0] else None)  # fmt: skip
            series, trips = study.runs[name].values[0, :, 0], study.runs[name].round_trips.sum()
            running = np.cumsum(series) / np.arange(1, len(series) + 1)
            axes[1, 2].plot(running, "-" if name == "helix" else "--", color=colour,
                            label=f"{label} from {name}, {trips} round trips")  # fmt: skip
        if study.n in openmm_curves:
            theirs, shown = openmm_curves[study.n], slice(len(T))
            axes[0, 0].errorbar(theirs.temperatures[shown], theirs.mean[shown, 0], theirs.error[shown, 0], fmt="o",
                                color=colour, mfc="white", capsize=2, label=f"{label}, OpenMM")  # fmt: skip
        if study.without is not None:
            axes[0, 0].plot(grid, study.without.mean[:, 0], ":", color=colour, label=f"{label} without U$_F$")
        heat = study.heat
        axes[0, 1].plot(grid, heat.mean, color=colour, label=label)
        axes[0, 1].fill_between(
            grid, heat.mean - heat.error, heat.mean + heat.error, color=colour, alpha=0.2, linewidth=0
        )
        for column, look in ((0, "o"), (1, "s")):
            fit, error = study.fit[:, column], study.fit_error[:, column]
            axes[1, 1].errorbar(1000 / T, fit, error, fmt=look, color=colour, capsize=2, markersize=4,
                                label=f"{label}: ln {'wv'[column]}")  # fmt: skip
    axes[0, 0].set(xlabel="temperature (K)", ylabel="helix content", ylim=(-0.02, 1.02), title=title)
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
    parser.add_argument("--timestep", type=float, help="fs, up to 300 K (default: that of the preset)")
    parser.add_argument("--iterations", type=int, default=2000, help="exchanges of every run")
    parser.add_argument("--every", type=int, default=100, help=f"time steps between exchanges, a multiple of {STEPS}")
    parser.add_argument("--engine", default="peptidyn", choices=["peptidyn", "openmm", "both"])
    parser.add_argument("--hot", type=float, default=0.0, help="K: further temperatures of OpenMM's runs, up to this")
    parser.add_argument("--pilot", type=int, default=100, help="exchanges of the run that temperatures are chosen from")
    parser.add_argument(
        "--platform",
        default="CPU",
        choices=["CPU", "Reference"],
        help="Reference has no threads of its own: up to Ala5, or where many processes share few cores",
    )
    parser.add_argument("--pivots", type=int, default=0, help="pivot moves between exchanges (default: 0)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of dask; its workers are used")
    parser.add_argument("--fixman", action="store_true", help="draw the curves without the Fixman potential, too")
    parser.add_argument("--folder", type=Path, default=Path("helix-coil"))
    parser.add_argument("--quick", action="store_true", help="a few exchanges of Ala4 in this process")
    parser.add_argument("-o", "--output", default="polyalanine_helix.png")
    options = parser.parse_args(arguments)
    if options.fixman and PRESETS[options.preset].metric != "physical":
        parser.error("--fixman compares rigid models; give --preset torsions")
    if options.every < STEPS or options.every % STEPS:
        parser.error(f"--every is {options.every}, expected a multiple of {STEPS}")
    lengths = [int(n) for n in options.lengths.split(",")]
    backend = connect(options.scheduler) if options.scheduler else "processes" if options.workers != 1 else "serial"
    timestep = options.timestep or PRESETS[options.preset].langevin
    settings = Settings(
        options.folder / options.preset, options.preset, timestep, options.tmin, options.tmax, options.iterations,
        options.pilot, backend, options.workers, options.every // STEPS, options.platform, options.pivots, options.hot,
    )  # fmt: skip
    if options.quick:
        lengths, settings.iterations, settings.sweeps, settings.pilot, settings.backend = [4], 50, 1, 12, "serial"
        options.engine = "both"
    settings.folder.mkdir(parents=True, exist_ok=True)
    engines = {"peptidyn": run_peptidyn, "openmm": run_openmm}
    wanted = list(engines) if options.engine == "both" else [options.engine]
    studies: dict[str, list[Study]] = {engine: [] for engine in wanted}
    for n in lengths:
        temperatures = find_temperatures(n, settings)
        for engine in wanted:
            ladder = hotter(temperatures, settings.hot) if engine == "openmm" else temperatures
            studies[engine].append(analyse(n, ladder, engines[engine](n, ladder, settings), options.fixman))
            report(studies[engine][-1], engine)
        if len(wanted) == 2:
            compare(*(studies[engine][-1] for engine in wanted))
        beside = {one.n: one.curve for one in studies["openmm"]} if len(wanted) == 2 else {}
        title = "OpenMM" if options.engine == "openmm" else f"preset {options.preset}"
        draw(studies[wanted[0]], beside, title, options.output)
    print(f"picture in {options.output}")


if __name__ == "__main__":
    main()
