"""How many independent samples of phi and psi per force evaluation, beside Langevin dynamics?

Torsional HMC, Gibbs mixing, and Langevin dynamics with a kinetic metric chosen for a step of 24 fs, beside OpenMM's
LangevinMiddle.

    python benchmarks/sampling_efficiency.py -o efficiency            # about two hours on one core
    python benchmarks/sampling_efficiency.py -o efficiency --quick    # some minutes, to see that it works
    python benchmarks/sampling_efficiency.py -o efficiency --full     # a day: small error bars
    python benchmarks/sampling_efficiency.py -o efficiency --molecule alanine --method Langevin --chains 2   # minutes

Molecules: capped alanine, Ala3 and Ala10 in implicit solvent (amber14, OBC2) at 300 K, and Ala10 and chignolin at 450
K, where they fold and unfold. Chains start by turns in the helix and in polyproline II. Hard coordinates have the same
values in all chains of a method: those of the structure relaxed in the helix, or in polyproline II where a method says
so.

Replica exchange of Langevin dynamics (rows named so) has temperatures from that of the row up to 500 K and exchanges
after 100 steps; frames are those at the lowest temperature, force calls those of all replicas. Its psi jumps by
exchanges, so crossings are not counted.

Langevin dynamics of `angles`, `heavy` and `flexible` (backbone angles and omega; all angles and phases of heavy atoms;
everything) has the joint inertias of ``metric="auto"``, and steps of 24 fs, or 16 fs at 450 K, where atoms that meet
would end a run at 24 fs once in some 10^5 steps. Its rates are not physical: transitions per force call are
compared, not per time.

HMC of `flexible` with pivot moves has trajectories of 10 steps of 16 fs (shorter by the square root of the temperature
above 300 K), with a Metropolis test, and after each 10 turns of the chain about one phi or psi by any angle, each
accepted by its energy. Every turn is one energy evaluation, and counts as one. The distribution is exact. Its psi
jumps, so crossings are not counted.

The time step of any other Metropolised method is the largest that is accepted at least in 0.9 of the proposals, found
once per molecule and method on a ladder of 5% with trajectories of 10 steps (8 to 12, drawn evenly), and used by all
chains.

Two things are slow: psi between alpha and beta, and, rarer by far, phi between its right-handed half (phi < 0) and the
left-handed one. Speeds, crossings and the populations of alpha and beta are about frames with phi < 0 and evaluations
spent there; the population of the left-handed half and entries to it stand beside them.

An independent sample is counted within chains by the slower of cosine and sine of an angle. A crossing goes from the
middle of one of the two main wells of psi to the middle of the other; recrossings of the barrier do not count. R-hat
compares the variance between chains with that within them, for the worst cosine or sine of psi: above 1.1 the chains
still know where they started, populations are not converged, and samples are independent within a basin at best. The
total variation (TV) between Ramachandran histograms (30 degrees) of both starts, and from the chains of LangevinMiddle,
is that of the worst residue. With `--distance` a reference is run too, of the exact method with pivots, ten times as
long as all its chains. The total variation between the histograms of a method and of that reference is drawn over force
calls.
Populations that differ from those of Langevin dynamics by more than three standard errors, and by more than 0.03, are
marked: fast sampling of another distribution is no gain. Speeds relative to Langevin dynamics are given per force
evaluation and per second of CPU time. Helix content is the part of residues that are in alpha with both neighbours.

Chains are kept in the folder: the same command goes on where it was stopped, and `--chains` adds more of them. Writes
sampling_efficiency.json, .md and .png.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openmm
from openmm import app

import harness
import peptidyn as ptd
from molecules import constrained_system, context, positions_of, relax
from peptidyn.analysis.exchange_frames import exchange_frames
from peptidyn.core.files import write_text
from peptidyn.core.one_core import OneCore
from peptidyn.core.progress import Progress
from peptidyn.engine.systems import make_system
from peptidyn.runs.presets import PRESETS
from peptidyn.sampling.exchange import count_round_trips
from sampling_report import REFERENCE, STARTS, distances, draw, judge, mark, ramachandran, tables, variations

HYDROGEN = 3.0
"""Da: mass of hydrogens where masses are repartitioned."""

STEPS, RECORD = 10, 25
"""Time steps of an HMC trajectory, after which a sample is recorded, and between samples of Langevin dynamics."""

ACCEPTANCE = 0.9
RUNG = 1.05
"""Steps are tried on a ladder with this ratio."""

DISCARD = 0.05
"""Part of a chain that is run first and does not count."""


@dataclass(frozen=True)
class Molecule:
    """What is sampled, how often and where. `trials`: proposals from each start on every rung of the ladder."""

    sequence: str
    chains: int
    trials: int
    platform: str
    properties: dict[str, str] = field(default_factory=dict)
    temperature: float = 300.0
    caps: bool = True
    replicas: int = 4
    """Of replica exchange."""


@dataclass(frozen=True)
class Method:
    """What moves, how, and for how many force evaluations in a chain, by molecule.

    No `soft`: OpenMM's Langevin dynamics. With a `timestep` (ps): that of peptidyn, with the metric of the preset.
    """

    evaluations: dict[str, int]
    soft: str = ""
    hydrogen_mass: float | None = None
    cartesian: bool = False
    geometry: str = "helix"
    timestep: float | None = None
    preset: str = ""
    exchange: bool = False
    pivots: int = 0
    """Pivot moves after every trajectory of HMC, which has the given time step and the metric of the preset."""

    @property
    def samples(self) -> str:
        """Which distribution is sampled, in words."""
        if self.cartesian or not self.soft or self.soft == "all":
            return "the force field's" + ("" if self.soft else ", bonds of hydrogens fixed")
        return PRESETS[self.preset].distribution


MOLECULES = {
    "capped alanine": Molecule("A", 6, 1500, "Reference"),
    "capped Ala3": Molecule("AAA", 4, 600, "Reference"),
    "capped Ala10": Molecule("A" * 10, 4, 600, "CPU", {"Threads": "1"}, replicas=6),
    "capped Ala10 at 450 K": Molecule("A" * 10, 4, 600, "CPU", {"Threads": "1"}, 450.0),
    "chignolin at 450 K": Molecule("GYDPETGTWG", 4, 600, "CPU", {"Threads": "1"}, 450.0, caps=False),
}

HARD, OPEN = "phi psi chi", "phi psi chi omega angles"
HOT = {"capped Ala10 at 450 K": 300_000, "chignolin at 450 K": 150_000}
LANGEVIN = {"capped alanine": 150_000, "capped Ala3": 150_000}
EXCHANGE = {"capped Ala3": 200_000, "capped Ala10": 300_000}
ALL = {"capped alanine": 600_000, "capped Ala3": 600_000, "capped Ala10": 60_000}
PIVOTED = {"capped alanine": 150_000, "capped Ala3": 200_000, "capped Ala10": 150_000, "capped Ala10 at 450 K": 100_000}
WITH_PIVOTS = "flexible, HMC and pivots"
METHODS = {
    REFERENCE: Method({**ALL, "capped Ala10 at 450 K": 500_000, "chignolin at 450 K": 250_000}),
    WITH_PIVOTS: Method(PIVOTED, "all", timestep=0.016, preset="flexible", pivots=10),
    "torsions, Langevin 8 fs": Method({**LANGEVIN, **HOT}, HARD, timestep=0.008, preset="torsions"),
    "angles, Langevin 24 fs": Method(LANGEVIN, OPEN, timestep=0.024, preset="angles"),
    "heavy, Langevin 24 fs": Method(LANGEVIN, "heavy", timestep=0.024, preset="heavy"),
    "flexible, Langevin 24 fs": Method(LANGEVIN, "all", timestep=0.024, preset="flexible"),
    "angles, Langevin 16 fs": Method(HOT, OPEN, timestep=0.016, preset="angles"),
    "heavy, Langevin 16 fs": Method(HOT, "heavy", timestep=0.016, preset="heavy"),
    "flexible, Langevin 16 fs": Method(HOT, "all", timestep=0.016, preset="flexible"),
    f"{REFERENCE}, exchange": Method(EXCHANGE, exchange=True),
    "torsions, Langevin 8 fs, exchange": Method(EXCHANGE, HARD, timestep=0.008, preset="torsions", exchange=True),
    "angles, Langevin 24 fs, exchange": Method(EXCHANGE, OPEN, timestep=0.024, preset="angles", exchange=True),
    "heavy, Langevin 24 fs, exchange": Method(EXCHANGE, "heavy", timestep=0.024, preset="heavy", exchange=True),
    "flexible, Langevin 24 fs, exchange": Method(EXCHANGE, "all", timestep=0.024, preset="flexible", exchange=True),
    "torsions, HMC": Method({"capped alanine": 150_000, "capped Ala10": 30_000}, HARD, preset="torsions"),
    "torsions, HMC, geometry of PPII": Method(
        {"capped alanine": 150_000}, HARD, geometry="polyproline II", preset="torsions"
    ),
    "angles, HMC": Method({"capped alanine": 200_000, "capped Ala10": 30_000}, OPEN, preset="angles"),
    "angles, HMC, HMR": Method({"capped alanine": 200_000, "capped Ala10": 30_000}, OPEN, HYDROGEN, preset="angles"),
    "Gibbs: torsions and Cartesian, HMR": Method(
        {"capped alanine": 120_000, "capped Ala10": 30_000}, HARD, HYDROGEN, cartesian=True
    ),
}

HIGHEST, INTERVAL = 500.0, 100
"""Highest temperature (K) of replica exchange, and its time steps between exchanges."""

LONG = 10
"""Chains of the long reference; each has the evaluations of all chains of a method together."""

SIZES = {"quick": (0.25, 0.02), "default": (1, 1.0), "full": (2, 4.0)}
"""Factors for the number of chains, which is at least 2, and for the evaluations of each."""


# ---------------------------------------------------------------------------- molecules


@dataclass
class Prepared:
    """A molecule, its System without constraints, and its relaxed positions in every start."""

    molecule: Molecule
    topology: Any
    system: Any
    relaxed: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        tree = ptd.build_tree(self.structure("helix"), "phi psi")
        atoms = {(c.kind, c.residue): c.atoms for c in tree.torsions}
        pairs = [r for kind, r in atoms if kind == "phi" and ("psi", r) in atoms]
        self.backbone = np.array([[atoms["phi", r], atoms["psi", r]] for r in pairs])
        """Atoms of all (phi, psi), (n_pairs, 2, 4)."""

    def structure(self, geometry: str) -> ptd.Structure:
        """Return the structure relaxed in a basin."""
        return ptd.Structure.from_openmm(self.topology, self.system, self.relaxed[geometry])

    def start(self, geometry: str, basin: str) -> np.ndarray:
        """Return positions with all bond lengths, angles and omegas of `geometry`, and phi and psi of `basin`."""
        tree = ptd.build_tree(self.structure(geometry), "phi psi")
        atoms = np.array([c.atoms for c in tree.torsions])
        angles = dihedrals(self.relaxed[basin][None], atoms)[0]
        return tree.positions(tree.reference.replace(torsions=angles))


def prepare(molecule: Molecule) -> Prepared:
    """Build and relax a molecule in every start."""
    relaxed = {}
    for name, (phi, psi) in STARTS.items():
        structure = ptd.build_peptide(molecule.sequence, phi=phi, psi=psi, caps=molecule.caps)
        system = make_system(structure.topology, "obc2")
        relaxed[name] = relax(context(system), structure.positions)
    return Prepared(molecule, structure.topology, system, relaxed)


def dihedrals(x: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return the dihedrals of positions x (n, n_atoms, 3) as (n, *atoms.shape[:-1])."""
    a, b, c, d = (x[:, atoms[..., i]] for i in range(4))
    u, v, w = b - a, c - b, d - c
    n1, n2 = np.cross(u, v), np.cross(v, w)
    return np.arctan2((np.linalg.norm(v, axis=-1, keepdims=True) * u * n2).sum(-1), (n1 * n2).sum(-1))


# ---------------------------------------------------------------------------- chains


def run_langevin(prepared: Prepared, method: Method, start: str, calls: int, seed: int) -> dict[str, Any]:
    """Run Langevin dynamics: OpenMM's at 4 fs with constrained bonds of hydrogens and repartitioned masses, or ours."""
    molecule = prepared.molecule
    T = molecule.temperature
    positions = prepared.start(method.geometry, start)
    if method.soft:
        tree = ptd.build_tree(prepared.structure(method.geometry), method.soft)
        integrator: Any = ptd.TorsionLangevinIntegrator(
            tree, T, 1.0, method.timestep, seed=seed, metric=PRESETS[method.preset].metric
        )
        place = context(prepared.system, integrator, molecule.platform, molecule.properties)
        place.setPositions(positions)
        integrator.set_velocities_to_temperature(T)
    else:
        system = constrained_system(prepared.topology, prepared.system, HYDROGEN)
        integrator = openmm.LangevinMiddleIntegrator(T, 1.0, 0.004)
        integrator.setRandomNumberSeed(seed + 1)
        place = context(system, integrator, molecule.platform, molecule.properties)
        place.setPositions(positions)
        place.applyConstraints(1e-6)
        place.setVelocitiesToTemperature(T, seed + 1)
    integrator.step(int(DISCARD * calls))
    count, seconds = max(4, calls // RECORD), 0.0
    angles = np.empty((count, *prepared.backbone.shape[:2]), dtype=np.float32)
    for i in range(count):
        begin = time.process_time()
        integrator.step(RECORD)
        seconds += time.process_time() - begin
        angles[i] = dihedrals(positions_of(place)[None], prepared.backbone)[0]
    return {"angles": angles, "calls": count * RECORD, "seconds": seconds, "accepted": [], "proposed": []}


def run_exchange(prepared: Prepared, method: Method, start: str, calls: int, seed: int) -> dict[str, Any]:
    """Run replica exchange of Langevin dynamics, and return its frames at the lowest temperature."""
    molecule = prepared.molecule
    temperatures = ptd.geometric_temperatures(molecule.temperature, HIGHEST, molecule.replicas)
    iterations = max(8, calls // (INTERVAL * molecule.replicas))
    run = _exchange_frames if method.soft else _openmm_frames
    begin = time.process_time()
    positions, walk = run(prepared, method, prepared.start(method.geometry, start), temperatures, iterations, seed)
    seconds = time.process_time() - begin
    late = positions[math.ceil(DISCARD * iterations) :]
    part = len(late) / iterations
    total = iterations * molecule.replicas * (INTERVAL + 1)  # one more for the energy
    angles = dihedrals(late.astype(np.float64), prepared.backbone).astype(np.float32)
    trips = count_round_trips(walk, molecule.replicas)
    return {"angles": angles, "calls": int(part * total), "seconds": part * seconds, "accepted": [], "proposed": [],
            "trips": trips}  # fmt: skip


def _exchange_frames(
    prepared: Prepared, method: Method, start: np.ndarray, temperatures: np.ndarray, iterations: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n, n_atoms, 3) at the lowest temperature of peptidyn's replica exchange, and all levels."""
    with (
        tempfile.TemporaryDirectory() as place,
        ptd.ReplicaExchange(
            ptd.build_tree(prepared.structure(method.geometry), method.soft), prepared.system, temperatures,
            moves=[ptd.TorsionalLangevin(method.timestep, INTERVAL, friction=1.0)], sweeps=1,
            metric=PRESETS[method.preset].metric, positions=start, platform=prepared.molecule.platform,
            properties=prepared.molecule.properties, seed=seed, folder=Path(place) / "run", topology=prepared.topology,
        ) as run,
    ):  # fmt: skip
        run.run(iterations)
        return exchange_frames(Path(place) / "run", 0).xyz, run.walk


def _openmm_frames(
    prepared: Prepared, method: Method, start: np.ndarray, temperatures: np.ndarray, iterations: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n, n_atoms, 3) at the lowest temperature of OpenMM's replica exchange, and all levels."""
    system = constrained_system(prepared.topology, prepared.system, HYDROGEN)
    integrator = openmm.LangevinMiddleIntegrator(temperatures[0], 1.0, 0.004)
    integrator.setRandomNumberSeed(seed + 1)
    platform = openmm.Platform.getPlatformByName(prepared.molecule.platform)
    simulation = app.Simulation(prepared.topology, system, integrator, platform, prepared.molecule.properties)
    simulation.context.setPositions(start)
    simulation.context.applyConstraints(1e-6)
    simulation.context.setVelocitiesToTemperature(temperatures[0], seed + 1)
    random.seed(seed)
    states = [{"temperature": T} for T in temperatures.tolist()]
    sampler = app.ReplicaExchangeSampler(states, simulation, INTERVAL)
    frames, walk = [], []

    def keep(now: Any) -> None:
        walk.append(list(now.replicaStateIndex))
        lowest = now.replicaConformation[now.replicaStateIndex.index(0)]
        frames.append(lowest.getPositions(asNumpy=True)._value)

    sampler.reporters.append(keep)
    sampler.simulate(iterations)
    return np.array(frames), np.array(walk)


def run_pivots(prepared: Prepared, method: Method, start: str, calls: int, seed: int) -> dict[str, Any]:
    """Run HMC with the metric of the preset, and pivot moves."""
    T = prepared.molecule.temperature
    assert method.timestep is not None
    moves: list[Any] = [
        ptd.TorsionalHMC(method.timestep * min(1.0, (300.0 / T) ** 0.5), STEPS, friction=1.0),
        ptd.PivotMove(tries=method.pivots),
    ]
    sampler = ptd.GibbsSampler(
        moves, ptd.build_tree(prepared.structure(method.geometry), method.soft), prepared.system, T,
        positions=prepared.start(method.geometry, start), metric=PRESETS[method.preset].metric,
        platform=prepared.molecule.platform, properties=prepared.molecule.properties, seed=seed,
    )  # fmt: skip
    return _run_sweeps(sampler, prepared, max(4, calls // (STEPS + method.pivots)))


def make_sampler(prepared: Prepared, method: Method, start: str, steps: list[float], seed: int) -> ptd.GibbsSampler:
    """Return the sampler of a method in one of the starts."""
    moves: list[Any] = [ptd.TorsionalHMC(steps[0], STEPS, friction=1.0, target=ACCEPTANCE)]
    if method.cartesian:
        moves.append(ptd.CartesianHMC(steps[1], STEPS, target=ACCEPTANCE))
    return ptd.GibbsSampler(
        moves, ptd.build_tree(prepared.structure(method.geometry), method.soft), prepared.system,
        prepared.molecule.temperature,
        positions=prepared.start(method.geometry, start), hydrogen_mass=method.hydrogen_mass,
        platform=prepared.molecule.platform, properties=prepared.molecule.properties, seed=seed,
    )  # fmt: skip


def run_sampler(
    prepared: Prepared, method: Method, start: str, steps: list[float], calls: int, seed: int
) -> dict[str, Any]:
    """Run torsional HMC, alone or in turn with Cartesian HMC."""
    return _run_sweeps(
        make_sampler(prepared, method, start, steps, seed), prepared, max(4, calls // STEPS // len(steps))
    )


def _run_sweeps(sampler: ptd.GibbsSampler, prepared: Prepared, sweeps: int) -> dict[str, Any]:
    """Run a sampler; its configurations after every sweep are the chain."""
    sampler.run(math.ceil(DISCARD * sweeps))
    sampler.reset()
    begin = time.process_time()
    samples = sampler.run(sweeps, positions=True)
    seconds = time.process_time() - begin
    assert samples.positions is not None
    return {
        "angles": dihedrals(samples.positions.astype(np.float64), prepared.backbone).astype(np.float32),
        "calls": sum(move.force_calls for move in sampler.moves),
        "seconds": seconds,
        "accepted": [move.accepted for move in sampler.moves],
        "proposed": [move.proposed for move in sampler.moves],
    }


def find_steps(prepared: Prepared, method: Method, proposals: int) -> list[float]:
    """Return the largest step of every move, on a ladder, that is accepted in `ACCEPTANCE` of the proposals or more.

    Proposals are counted in walkers from all starts together. At most 300 from each tune the rung where the search
    begins. A rung is taken if it is accepted often enough and the next one above is not.
    """
    first = [0.01, 0.0015] if method.cartesian else [0.01]
    samplers = [make_sampler(prepared, method, start, first, 1000 + i) for i, start in enumerate(STARTS)]
    for sampler in samplers:
        sampler.warm_up(min(300, proposals))
    moves = list(zip(*(sampler.moves for sampler in samplers), strict=True))  # those of one kind together
    bottom = [math.exp(np.mean([math.log(move.step) for move in kind])) for kind in moves]
    rung, found = [0] * len(moves), [False] * len(moves)
    measured: list[dict[int, float]] = [{} for _ in moves]
    while True:
        steps = [low * RUNG**k for low, k in zip(bottom, rung, strict=True)]
        if all(found):
            return steps
        for kind, step in zip(moves, steps, strict=True):
            for move in kind:
                move.step = step
        for sampler in samplers:
            sampler.reset()
            sampler.run(proposals)
        for i, kind in enumerate(moves):
            if not found[i]:
                measured[i][rung[i]] = sum(m.accepted for m in kind) / sum(m.proposed for m in kind)
                rung[i], found[i] = _climb(measured[i], rung[i])


def _climb(measured: dict[int, float], rung: int) -> tuple[int, bool]:
    """Return the rung to try after `rung`, and whether it is known to be the one that is looked for."""
    if measured[rung] >= ACCEPTANCE:
        return (rung, True) if rung + 1 in measured else (rung + 1, False)
    return rung - 1, rung - 1 in measured


# ---------------------------------------------------------------------------- running


class Folder:
    """Steps and chains that were made already, each with the settings that it belongs to."""

    def __init__(self, path: Path):
        self.path = path
        (path / "chains").mkdir(parents=True, exist_ok=True)

    def steps(
        self, key: dict[str, Any], trials: int, find: Callable[[], list[float]], again: bool = False
    ) -> list[float]:
        """Return the steps found for these settings; look for them if there are none, or again."""
        file, name = self.path / "steps.json", json.dumps({**key, "trials": trials}, sort_keys=True)
        known = json.loads(file.read_text()) if file.exists() else {}
        if again or name not in known:
            known[name] = find()
            write_text(file, json.dumps(known, indent=1) + "\n")
        return known[name]

    def chain(self, name: str, key: dict[str, Any], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the chain of these settings; run it if there is none."""
        slug = "".join(c if c.isalnum() else "-" for c in name)
        file, wanted = self.path / "chains" / f"{slug}.npz", json.dumps(key, sort_keys=True)
        if file.exists():
            with np.load(file) as found:
                if str(found["key"]) == wanted:
                    return dict(found)
        chain = run()
        partial = file.with_suffix(".partial.npz")
        np.savez(partial, key=wanted, **chain)
        partial.replace(file)
        return chain


def measure(
    folder: Folder, size: str, chains: int | None, molecule: str, method: str = "", distance: bool = False
) -> dict[str, Any]:
    """Run methods whose names hold `method`, and the reference, on molecules whose names hold `molecule`.

    Two chains of each run at a time, and the report is written after each such round. With `distance` a long reference
    is run first.
    """
    report: dict[str, Any] = {"size": size, "molecules": {}}
    for name, which in MOLECULES.items():
        if molecule in name:
            count = chains or max(2, int(SIZES[size][0] * which.chains))
            for outcome in _rounds(folder, name, which, size, count, method, distance):
                report["molecules"][name] = outcome
                harness.write(folder.path, "sampling_efficiency", report, tables(report), draw)
    return report


def _rounds(
    folder: Folder, name: str, molecule: Molecule, size: str, chains: int, wanted: str, distance: bool
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of the wanted methods on a molecule after every round."""
    prepared = prepare(molecule)
    reference = long_reference(folder, prepared, name, size, chains) if distance else None
    methods = {
        label: method
        for label, method in METHODS.items()
        if name in method.evaluations and (wanted in label or label == REFERENCE)
    }
    found: dict[str, list[dict[str, Any]]] = {label: [] for label in methods}
    steps: dict[str, list[float]] = {}
    with Progress(len(methods) * chains, name, "chains") as bar:
        for seed in range(0, chains, len(STARTS)):
            for label, method in methods.items():
                key = {**asdict(method), "molecule": name, "temperature": molecule.temperature, "length": STEPS,
                       "record": RECORD}  # fmt: skip
                del key["evaluations"]
                trials = max(40, int(min(1.0, SIZES[size][1]) * molecule.trials))
                if label not in steps:
                    steps[label] = [method.timestep or 0.004]
                    if method.soft and method.timestep is None:
                        steps[label] = folder.steps(key, trials, lambda: find_steps(prepared, method, trials))  # noqa: B023
                calls = int(SIZES[size][1] * method.evaluations[name])
                while True:
                    pair = _run_pair(folder, prepared, label, method, steps[label], calls, seed, key)
                    low = _too_large(pair) if seed == 0 and method.timestep is None else []
                    if not any(low):
                        break
                    lower = [h / RUNG if down else h for h, down in zip(steps[label], low, strict=True)]
                    steps[label] = folder.steps(key, trials, lambda: lower, again=True)  # noqa: B023
                found[label] += pair
                bar.advance(len(pair), label)
            outcome = {label: judge(found[label], steps[label]) for label in methods}
            mark(outcome)
            for label, method in methods.items():
                outcome[label]["samples"] = method.samples
                outcome[label]["variations"] = variations(found[label], found[REFERENCE])
                if method.exchange or method.pivots:
                    outcome[label]["crossings_per_million"] = math.nan
                    outcome[label]["crossings_relative"] = outcome[label]["crossings_cpu_relative"] = math.nan
                if reference is not None:
                    outcome[label]["distance"] = distances(found[label], reference)
            yield {
                "chains": seed + len(STARTS), "temperature_K": molecule.temperature,
                "platform": molecule.platform, "methods": outcome,
                "calls_per_chain": {m: int(SIZES[size][1] * o.evaluations[name]) for m, o in methods.items()},
            }  # fmt: skip


def long_reference(folder: Folder, prepared: Prepared, name: str, size: str, chains: int) -> np.ndarray:
    """Return histograms of HMC and pivots, or of Langevin dynamics without such a row, `LONG` times as long as it."""
    label = WITH_PIVOTS if name in PIVOTED else REFERENCE
    method, pieces = METHODS[label], []
    calls = int(SIZES[size][1] * method.evaluations[name]) * chains
    run_one = run_pivots if method.pivots else run_langevin
    with Progress(LONG, f"{name}, long reference", "chains") as bar:
        for seed in range(LONG):
            start = list(STARTS)[seed % len(STARTS)]
            key = {"molecule": name, "method": label, "calls": calls, "start": start, "seed": seed, "record": RECORD}
            run = partial(run_one, prepared, method, start, calls, 10_000 + seed)
            pieces.append(folder.chain(f"{name} long reference {seed}", key, run)["angles"])
            bar.advance(1)
    return ramachandran(pieces)


def _run_pair(
    folder: Folder, prepared: Prepared, label: str, method: Method, steps: list[float], calls: int, seed: int,
    key: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """Run one chain from every start."""
    pair = []
    for i, start in enumerate(STARTS):
        run: Callable[[], dict[str, Any]]
        if method.exchange:
            run = lambda: run_exchange(prepared, method, start, calls, seed + i)  # noqa: B023, E731
        elif method.pivots:
            run = lambda: run_pivots(prepared, method, start, calls, seed + i)  # noqa: B023, E731
        elif method.soft and method.timestep is None:
            run = lambda: run_sampler(prepared, method, start, steps, calls, seed + i)  # noqa: B023, E731
        else:
            run = lambda: run_langevin(prepared, method, start, calls, seed + i)  # noqa: B023, E731
        settings = {**key, "steps": steps, "calls": calls, "start": start, "seed": seed + i}
        pair.append(
            folder.chain(
                f"{prepared.molecule.sequence} {prepared.molecule.temperature:g} K {label} {seed + i}", settings, run
            )
        )
    return pair


def _too_large(chains: list[dict[str, Any]]) -> list[bool]:
    """Return for every move whether chains, which are longer than trials, accept it too rarely."""
    accepted, proposed = (np.sum([chain[name] for chain in chains], axis=0) for name in ("accepted", "proposed"))
    return (accepted < ACCEPTANCE * proposed).tolist() if np.size(accepted) else []


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.set_defaults(folder=Path("efficiency"))
    script.add_argument("--molecule", default="", help="only the one whose name holds this")
    script.add_argument("--method", default="", help="only those whose names hold this, and the reference")
    script.add_argument(
        "--distance",
        action="store_true",
        help="run a long reference too, and draw the distance from it over force calls",
    )
    script.add_argument("--chains", type=harness.positive, help="chains of each method, an even number")
    size = script.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", default="default")
    size.add_argument("--full", dest="size", action="store_const", const="full")
    options = script.parse_args(arguments)
    if not any(options.molecule in name for name in MOLECULES):
        script.error(f"--molecule is {options.molecule!r}, expected a part of: {', '.join(MOLECULES)}")
    if not any(options.method in name for name in METHODS):
        script.error(f"--method is {options.method!r}, expected a part of: {', '.join(METHODS)}")
    if options.chains is not None and options.chains % len(STARTS):
        script.error(f"--chains is {options.chains}, expected an even number")
    with OneCore():  # everything computes on one thread, and CPU times are compared
        return harness.run(script, arguments, partial(measure, Folder(options.folder)), tables, draw)


if __name__ == "__main__":
    sys.exit(main())
