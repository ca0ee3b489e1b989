"""How many independent samples of phi and psi per force evaluation, beside Langevin dynamics?

Torsional HMC, Gibbs mixing, and Langevin dynamics with a kinetic metric chosen for a step of 24 fs, beside OpenMM's
LangevinMiddle.

    python benchmarks/sampling_efficiency.py -o efficiency            # about two hours on one core
    python benchmarks/sampling_efficiency.py -o efficiency --quick    # some minutes, to see that it works
    python benchmarks/sampling_efficiency.py -o efficiency --full     # a day: small error bars
    python benchmarks/sampling_efficiency.py -o efficiency --molecule alanine --method Langevin --chains 2   # minutes

Molecules: capped alanine and capped Ala10 in implicit solvent (amber14, OBC2) at 300 K, and Ala10 at 450 K, where it
folds and unfolds. Chains start by turns in the helix and in polyproline II. Hard coordinates have the same values in
all chains of a method: those of the structure relaxed in the helix, or in polyproline II where a method says so.

Langevin dynamics of `angles`, `heavy` and `flexible` (backbone angles and omega; all angles and phases of heavy atoms;
everything) has the joint inertias of ``metric="auto"``. Its rates are not physical: transitions per force call are
compared, not per time.

The time step of a Metropolised method is the largest that is accepted at least in 0.9 of the proposals, found once per
molecule and method on a ladder of 5% with trajectories of 10 steps (8 to 12, drawn evenly), and used by all chains.

Two things are slow: psi between alpha and beta, and, rarer by far, phi between its right-handed half (phi < 0) and the
left-handed one. Speeds, crossings and the populations of alpha and beta are about frames with phi < 0 and evaluations
spent there; the population of the left-handed half and entries to it stand beside them.

An independent sample is counted within chains by the slower of cosine and sine of an angle. A crossing goes from the
middle of one of the two main wells of psi to the middle of the other; recrossings of the barrier do not count.
R-hat compares the variance between chains with that within them, for the worst cosine or sine of psi: above 1.1 the
chains still know where they started, populations are not converged, and samples are independent within a basin at best.
Populations that differ from those of Langevin dynamics by more than three standard errors, and by more than 0.03, are
marked: fast sampling of another distribution is no gain. Speeds relative to Langevin dynamics are given per force
evaluation and per second of CPU time. Helix content is the part of residues that are in alpha with both neighbours.

Chains are kept in the folder: the same command goes on where it was stopped, and `--chains` adds more of them. Writes
sampling_efficiency.json, .md and .png.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
import peptidyn as ptd
from harness import Report, cell, table
from molecules import constrained_system, context, positions_of, relax
from peptidyn.core.files import write_text
from peptidyn.core.progress import Progress
from peptidyn.core.statistics import statistical_inefficiency
from peptidyn.engine.systems import make_system

HYDROGEN = 3.0
"""Da: mass of hydrogens where masses are repartitioned."""

STEPS = 10
"""Time steps between recorded samples: length of an HMC trajectory."""

ACCEPTANCE = 0.9
RUNG = 1.05
"""Steps are tried on a ladder with this ratio."""

DISCARD = 0.05
"""Part of a chain that is run first and does not count."""

MIXED = 1.1
"""R-hat above this: not converged."""

STARTS = {"helix": (-70.0, -40.0), "polyproline II": (-70.0, 145.0)}
WELLS = np.deg2rad([-30.0, 150.0])
"""Middle of the main wells of psi; a crossing has come within `NEAR` of the other one."""
NEAR = np.deg2rad(40.0)


@dataclass(frozen=True)
class Molecule:
    """What is sampled, how often and where. `trials`: proposals from each start on every rung of the ladder."""

    sequence: str
    chains: int
    trials: int
    platform: str
    properties: dict[str, str] = field(default_factory=dict)
    temperature: float = 300.0


@dataclass(frozen=True)
class Method:
    """What moves, how, and for how many force evaluations in a chain, by molecule.

    No `soft`: OpenMM's Langevin dynamics. With a `timestep` (ps): that of peptidyn, with a metric for this step.
    """

    evaluations: dict[str, int]
    soft: str = ""
    hydrogen_mass: float | None = None
    cartesian: bool = False
    geometry: str = "helix"
    timestep: float | None = None


MOLECULES = {
    "capped alanine": Molecule("A", 6, 1500, "Reference"),
    "capped Ala10": Molecule("A" * 10, 4, 600, "CPU", {"Threads": "1"}),
    "capped Ala10 at 450 K": Molecule("A" * 10, 4, 600, "CPU", {"Threads": "1"}, 450.0),
}

REFERENCE = "OpenMM LangevinMiddle, 4 fs, HMR"
HARD, OPEN = "phi psi chi", "phi psi chi omega angles"
LANGEVIN = {"capped alanine": 150_000, "capped Ala10 at 450 K": 200_000}
METHODS = {
    REFERENCE: Method({"capped alanine": 600_000, "capped Ala10": 60_000, "capped Ala10 at 450 K": 500_000}),
    "angles, Langevin 24 fs": Method(LANGEVIN, OPEN, timestep=0.024),
    "heavy, Langevin 24 fs": Method(LANGEVIN, "heavy", timestep=0.024),
    "flexible, Langevin 24 fs": Method(LANGEVIN, "all", timestep=0.024),
    "torsions": Method({"capped alanine": 150_000, "capped Ala10": 30_000}, HARD),
    "torsions, geometry of PPII": Method({"capped alanine": 150_000}, HARD, geometry="polyproline II"),
    "torsions + omega + angles": Method({"capped alanine": 200_000, "capped Ala10": 30_000}, OPEN),
    "torsions + omega + angles, HMR": Method({"capped alanine": 200_000, "capped Ala10": 30_000}, OPEN, HYDROGEN),
    "Gibbs: torsions and Cartesian, HMR": Method(
        {"capped alanine": 120_000, "capped Ala10": 30_000}, HARD, HYDROGEN, cartesian=True
    ),
}

SIZES = {"quick": (0.25, 0.02), "default": (1, 1.0), "full": (2, 4.0)}
"""Factors for the number of chains, which is at least 2, and for the evaluations of each."""


# ---------------------------------------------------------------------------- molecules


def basin_of(phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Return 0 for alpha, 1 for beta and polyproline, 2 for left-handed."""
    alpha = (phi < 0) & (psi >= np.deg2rad(-120)) & (psi < np.deg2rad(60))
    return np.where(phi >= 0, 2, np.where(alpha, 0, 1))


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
        structure = ptd.build_peptide(molecule.sequence, phi=phi, psi=psi, caps=True)
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
        integrator: Any = ptd.TorsionLangevinIntegrator(tree, T, 1.0, method.timestep, seed=seed, metric="auto")
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
    count = calls // STEPS
    angles = np.empty((count, *prepared.backbone.shape[:2]), dtype=np.float32)
    begin = time.process_time()
    for i in range(count):
        integrator.step(STEPS)
        angles[i] = dihedrals(positions_of(place)[None], prepared.backbone)[0]
    seconds = time.process_time() - begin
    return {"angles": angles, "calls": count * STEPS, "seconds": seconds, "accepted": [], "proposed": []}


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
    sampler = make_sampler(prepared, method, start, steps, seed)
    sweeps = max(4, calls // STEPS // len(steps))
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


# ---------------------------------------------------------------------------- judging


def count_crossings(psi: np.ndarray) -> int:
    """Return how often psi (n,) went from the middle of one main well to that of the other."""
    near = np.abs(np.angle(np.exp(1j * (psi[:, None] - WELLS)))) < NEAR
    visits = np.argmax(near, axis=1)[near.any(axis=1)]
    return int(np.count_nonzero(np.diff(visits)))


def count_entries(phi: np.ndarray) -> int:
    """Return how often phi (n,) came to the middle of the left-handed half from that of the right-handed one."""
    sides = (phi > np.deg2rad(30)).astype(int)[np.abs(np.sin(phi)) > 0.5]
    return int(np.count_nonzero(np.diff(sides) > 0))


def helix_content(angles: np.ndarray) -> float:
    """Return the part of residues in alpha with both neighbours, of phi and psi (n, n_residues, 2); nan if too few."""
    alpha = basin_of(angles[..., 0], angles[..., 1]) == 0
    triples = alpha[:, :-2] & alpha[:, 1:-1] & alpha[:, 2:]
    return float(triples.mean()) if triples.size else math.nan


def r_hat(chains: list[np.ndarray]) -> float:
    """Return the potential scale reduction factor of Gelman and Rubin for chains (n,) of one quantity."""
    n = np.mean([len(chain) for chain in chains])
    within = np.mean([chain.var(ddof=1) for chain in chains])
    between = np.var([chain.mean() for chain in chains], ddof=1)
    return float(math.sqrt((n - 1) / n + between / within)) if within > 0 else math.inf


def judge(chains: list[dict[str, Any]], step: list[float]) -> dict[str, Any]:
    """Return speed, crossings and populations of a method, with standard errors over chains.

    All but the population and the entries of the left-handed half are about frames with phi < 0, and evaluations are
    those spent there.
    """
    speeds, populations, crossings, entries, helix = [], [], [], 0, []
    series: list[list[np.ndarray]] = []
    for chain in chains:
        angles = chain["angles"].astype(np.float64)  # (n, pairs, 2)
        independent, crossed, people, columns = [], [], [], []
        for phi, psi in angles.transpose(1, 2, 0):
            right = phi < 0
            calls = float(chain["calls"]) * right.mean()
            parts = [[f(angle[right]) for f in (np.cos, np.sin)] for angle in (phi, psi)]
            g = [max(map(statistical_inefficiency, both)) for both in parts]
            independent.append([right.sum() / slow / calls for slow in g])
            crossed.append(count_crossings(psi[right]) / calls)
            entries += count_entries(phi)
            basin = basin_of(phi, psi)
            people.append([(basin[right] == 0).mean(), (basin[right] == 1).mean(), 1.0 - right.mean()])
            columns += parts[1]
        helix.append(helix_content(chain["angles"]))
        speeds.append(1e6 * np.mean(independent, axis=0))  # of phi, of psi
        crossings.append(1e6 * np.mean(crossed))
        populations.append(np.mean(people, axis=0))
        series.append(columns)

    def summary(values: list[Any]) -> tuple[list[float], list[float]]:
        x = np.array(values, dtype=np.float64).reshape(len(values), -1)
        return x.mean(axis=0).tolist(), (x.std(axis=0, ddof=1) / math.sqrt(len(x))).tolist()

    calls, seconds = (sum(float(chain[name]) for chain in chains) for name in ("calls", "seconds"))
    accepted, proposed = (np.sum([chain[name] for chain in chains], axis=0) for name in ("accepted", "proposed"))
    report: dict[str, Any] = {"step_fs": [1e3 * h for h in step], "acceptance": (accepted / proposed).tolist()}
    report["independent_per_million"], report["independent_error"] = summary(speeds)
    (report["crossings_per_million"],), (report["crossings_error"],) = summary(crossings)
    report["populations"], report["population_errors"] = summary(populations)
    if not np.isnan(helix).any():
        (report["helix"],), (report["helix_error"],) = summary(helix)
    by_start = [slice(i, None, len(STARTS)) for i in range(len(STARTS))]
    report["independent_psi_by_start"] = [float(np.mean([v[1] for v in speeds[part]])) for part in by_start]
    report["alpha_by_start"] = [float(np.mean([p[0] for p in populations[part]])) for part in by_start]
    report["left_entries"] = entries
    report["r_hat"] = max(r_hat([one[k] for one in series]) for k in range(len(series[0])))
    report["calls"], report["cpu_us_per_call"] = int(calls), 1e6 * seconds / calls
    return report


def mark(outcome: dict[str, Any]) -> None:
    """Say of every method whether it samples the distribution of Langevin dynamics, and how fast it is beside it."""
    right = outcome[REFERENCE]
    for one in outcome.values():
        difference = np.abs(np.subtract(one["populations"], right["populations"]))[:2]
        error = np.hypot(one["population_errors"], right["population_errors"])[:2]
        if max(one["r_hat"], right["r_hat"]) > MIXED:
            one["verdict"] = "not converged"
        elif one is right:
            one["verdict"] = "reference"
        else:
            one["verdict"] = "differs" if ((difference > 3 * error) & (difference > 0.03)).any() else "agrees"
        for name in ("independent", "crossings"):
            a, b = (np.array(m[f"{name}_per_million"], dtype=np.float64) for m in (one, right))
            e, f = (np.array(m[f"{name}_error"], dtype=np.float64) for m in (one, right))
            with np.errstate(divide="ignore", invalid="ignore"):
                one[f"{name}_relative"] = (a / b).tolist()
                one[f"{name}_cpu_relative"] = (a / b * right["cpu_us_per_call"] / one["cpu_us_per_call"]).tolist()
                one[f"{name}_relative_error"] = (
                    (a / b * np.hypot(e / a, f / b)).tolist() if one is not right else np.zeros_like(a).tolist()
                )


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


def measure(folder: Folder, size: str, chains: int | None, molecule: str, method: str = "") -> dict[str, Any]:
    """Run methods whose names hold `method`, and the reference, on molecules whose names hold `molecule`.

    Two chains of each run at a time.

    The report is written after each such round.
    """
    report: dict[str, Any] = {"size": size, "molecules": {}}
    for name, which in MOLECULES.items():
        if molecule in name:
            count = chains or max(2, int(SIZES[size][0] * which.chains))
            for outcome in _rounds(folder, name, which, size, count, method):
                report["molecules"][name] = outcome
                harness.write(folder.path, "sampling_efficiency", report, tables(report), draw)
    return report


def _rounds(
    folder: Folder, name: str, molecule: Molecule, size: str, chains: int, wanted: str
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of the wanted methods on a molecule after every round."""
    prepared = prepare(molecule)
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
                key = {**asdict(method), "molecule": name, "temperature": molecule.temperature, "length": STEPS}
                del key["evaluations"]
                trials = max(40, int(min(1.0, SIZES[size][1]) * molecule.trials))
                if label not in steps:
                    steps[label] = [method.timestep or 0.004]
                    if method.soft and method.timestep is None:
                        steps[label] = folder.steps(key, trials, lambda: find_steps(prepared, method, trials))  # noqa: B023
                calls = int(SIZES[size][1] * method.evaluations[name])
                while True:
                    pair = _run_pair(folder, prepared, label, method, steps[label], calls, seed, key)
                    low = _too_large(pair) if seed == 0 else []
                    if not any(low):
                        break
                    lower = [h / RUNG if down else h for h, down in zip(steps[label], low, strict=True)]
                    steps[label] = folder.steps(key, trials, lambda: lower, again=True)  # noqa: B023
                found[label] += pair
                bar.advance(len(pair), label)
            outcome = {label: judge(found[label], steps[label]) for label in methods}
            mark(outcome)
            yield {
                "chains": seed + len(STARTS), "temperature_K": molecule.temperature,
                "platform": molecule.platform, "methods": outcome,
                "calls_per_chain": {m: int(SIZES[size][1] * o.evaluations[name]) for m, o in methods.items()},
            }  # fmt: skip


def _run_pair(
    folder: Folder, prepared: Prepared, label: str, method: Method, steps: list[float], calls: int, seed: int,
    key: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """Run one chain from every start."""
    pair = []
    for i, start in enumerate(STARTS):
        run: Callable[[], dict[str, Any]]
        if method.soft and method.timestep is None:
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


# ---------------------------------------------------------------------------- reporting


def tables(report: Report) -> str:
    """Return the tables of docs/performance.md."""
    parts = []
    for name, molecule in report["molecules"].items():
        speed, people = [], []
        for method, one in molecule["methods"].items():
            phi, psi = map(_round, one["independent_per_million"], one["independent_error"])
            speed.append([
                method, ", ".join(f"{h:.1f}" for h in one["step_fs"]),
                ", ".join(f"{a:.3f}" for a in one["acceptance"]) or "-", phi, psi,
                " / ".join(f"{v:.0f}" for v in one["independent_psi_by_start"]),
                _ratio(method, one["independent_relative"][1], one["independent_relative_error"][1]),
                _round(one["crossings_per_million"], one["crossings_error"]),
                _ratio(method, one["crossings_relative"], one["crossings_relative_error"]),
                *(cell(v, 2) if math.isfinite(v) else "-" for v in (
                    one["independent_cpu_relative"][1], one["crossings_cpu_relative"],
                )),
            ])  # fmt: skip
            alpha, beta, left = (
                f"{p:.3f} ± {e:.3f}" for p, e in zip(one["populations"], one["population_errors"], strict=True)
            )
            people.append([
                method, cell(molecule["calls_per_chain"][method], 0), cell(one["cpu_us_per_call"], 0), alpha, beta,
                " / ".join(f"{v:.2f}" for v in one["alpha_by_start"]), cell(one["r_hat"], 2),
                one["verdict"] if one["verdict"] in ("agrees", "reference") else f"**{one['verdict']}**", left,
                one["left_entries"], _round(one["helix"], one["helix_error"], 3) if "helix" in one else "-",
            ])  # fmt: skip
        parts += [
            f"{name}, {molecule['temperature_K']:g} K, {molecule['chains']} chains, {molecule['platform']} platform:",
            table(SPEED_HEAD.split("; "), speed),
            table(PEOPLE_HEAD.split("; "), people),
        ]
    return "\n\n".join(parts)


SPEED_HEAD = (
    "method; step, fs; acceptance; φ; ψ; ψ by start; ψ, relative; crossings of ψ; crossings, relative; "
    "ψ per CPU s, relative; crossings per CPU s, relative"
)
PEOPLE_HEAD = (
    "method; evaluations in a chain; CPU µs each; α; β, PPII; α by start; R-hat; α and β; left; entries; helix"
)


def _round(value: float, error: float, digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if error >= 2 or not error else 1
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _ratio(method: str, value: float, error: float) -> str:
    if method == REFERENCE:
        return "1"
    return f"{value:.2f} ± {error:.2f}" if math.isfinite(value) and math.isfinite(error) else "-"


COLOURS = {"reference": "#1f4e79", "agrees": "#1f4e79", "differs": "#d9d9d9", "not converged": "#ffffff"}
HATCHES = {"differs": "////", "not converged": "..."}


def draw(report: Report, path: Path) -> None:
    """Draw speed and populations side by side; hatched: another distribution; dotted: not converged."""
    from peptidyn.analysis.plots import new_figure, save_figure

    count = len(report["molecules"])
    figure, axes = new_figure(count, 2, figsize=(11.0, 3.6 * count), squeeze=False)
    for (left, right), (name, molecule) in zip(axes, report["molecules"].items(), strict=True):
        methods = list(molecule["methods"])[::-1]
        values = [molecule["methods"][m] for m in methods]
        y = np.arange(len(methods))
        for place, one in zip(y, values, strict=True):
            left.barh(
                place, one["independent_per_million"][1], xerr=one["independent_error"][1], height=0.65, capsize=3,
                color=COLOURS[one["verdict"]], edgecolor="#1f4e79", hatch=HATCHES.get(one["verdict"]), ecolor="#c8781e",
            )  # fmt: skip
        left.set_yticks(y, methods, fontsize=8)
        left.set(
            xlabel="independent samples of ψ per 10⁶ force evaluations",
            title=f"{name}, {molecule['temperature_K']:.0f} K",
        )
        for k, (label, colour) in enumerate((("α", "#1f4e79"), ("β, PPII", "#c8781e"), ("left", "#5c8a5c"))):
            right.errorbar(
                [v["populations"][k] for v in values], y + 0.15 * (1 - k),
                xerr=[v["population_errors"][k] for v in values], fmt="o", markersize=4, color=colour, label=label,
                capsize=2,
            )  # fmt: skip
        alpha, error = (molecule["methods"][REFERENCE][k][0] for k in ("populations", "population_errors"))
        right.axvspan(alpha - error, alpha + error, color="#1f4e79", alpha=0.15, linewidth=0)
        right.set_yticks(y, [])
        right.set_ylim(left.get_ylim())
        right.set(xlim=(-0.02, 1.02), xlabel="population (α, β: of φ < 0; band: α of Langevin)")
        right.set_title("hatched: another distribution; dotted: not converged", fontsize=9)
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.set_defaults(folder=Path("efficiency"))
    script.add_argument("--molecule", default="", help="only the one whose name holds this")
    script.add_argument("--method", default="", help="only those whose names hold this, and the reference")
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
    return harness.run(script, arguments, partial(measure, Folder(options.folder)), tables, draw)


if __name__ == "__main__":
    sys.exit(main())
