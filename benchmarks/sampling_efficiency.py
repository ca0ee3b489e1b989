"""Independent samples of phi and psi per force evaluation: torsional HMC and Gibbs mixing beside Langevin dynamics.

    python benchmarks/sampling_efficiency.py -o efficiency            # about 20 minutes on one core
    python benchmarks/sampling_efficiency.py -o efficiency --quick    # a minute, to see that it works
    python benchmarks/sampling_efficiency.py -o efficiency --full     # hours: small error bars

Molecules: capped alanine and capped Ala10 in implicit solvent (amber14, OBC2) at 300 K. Every chain starts at the
relaxed structure, tunes its steps in a warm-up that does not count, and then makes the same number of force
evaluations. An independent sample is counted by the slower of cosine and sine of each angle; the mean over all phi and
psi is reported. The time step of a Metropolised method is tuned towards an acceptance of 0.92, at least 0.9.
Populations of the basins stand beside the speed; one that differs from Langevin dynamics by more than three standard
errors (and by more than 0.03) is marked: fast sampling of another law is no gain.

Writes efficiency.json, efficiency.md and efficiency.png.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import openmm
from openmm import app, unit

import peptidyn as ptd
from peptidyn.engine.forces import make_system
from peptidyn.ensemble.statistics import statistical_inefficiency
from peptidyn.files import write_text
from peptidyn.progress import Progress

T = 300.0
HYDROGEN = 3.0
"""Da: mass of hydrogens where masses are repartitioned."""

STEPS = 10
"""Time steps between recorded samples: length of an HMC trajectory."""

ACCEPTANCE = 0.9
REFERENCE = "OpenMM LangevinMiddle, 4 fs, HMR"

MOLECULES = {"capped alanine": ("A", "Reference", {}), "capped Ala10": ("A" * 10, "CPU", {"Threads": "1"})}

OPEN = "phi psi chi omega angles"
METHODS: dict[str, dict[str, Any]] = {
    REFERENCE: {},
    "torsions": {"soft": "phi psi chi", "hydrogen_mass": None, "cartesian": False, "start": 0.02},
    "torsions + omega + angles": {"soft": OPEN, "hydrogen_mass": None, "cartesian": False, "start": 0.006},
    "torsions + omega + angles, HMR": {"soft": OPEN, "hydrogen_mass": HYDROGEN, "cartesian": False, "start": 0.008},
    "Gibbs: torsions and Cartesian, HMR": {
        "soft": "phi psi chi", "hydrogen_mass": HYDROGEN, "cartesian": True, "start": 0.02,
    },
}  # fmt: skip

SIZES = {"quick": (2, 2_000, 3_000), "default": (4, 40_000, 4_000), "full": (8, 1_000_000, 400_000)}
"""Chains, and force evaluations of each: capped alanine, capped Ala10."""

LONGER = {"capped alanine": 5, "capped Ala10": 5}
"""Langevin dynamics makes so many times more evaluations: it is the reference for populations, and costs little."""


def basin_of(phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Return 0 for alpha, 1 for beta and polyproline, 2 for left-handed."""
    alpha = (phi < 0) & (psi >= np.deg2rad(-120)) & (psi < np.deg2rad(60))
    return np.where(phi >= 0, 2, np.where(alpha, 0, 1))


def prepare(sequence: str) -> tuple[ptd.Structure, Any, np.ndarray]:
    """Return structure, System without constraints, and relaxed positions."""
    structure = ptd.build_peptide(sequence, phi=-70, psi=-40, caps=True)
    system = make_system(structure.topology, "obc2")
    structure = ptd.Structure.from_openmm(structure.topology, system, structure.positions)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(structure.positions)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0)
    return structure, system, context.getState(positions=True).getPositions(asNumpy=True)._value


def backbone(structure: ptd.Structure) -> np.ndarray:
    """Return the atoms of all (phi, psi) pairs, (n_pairs, 2, 4)."""
    tree = ptd.build_tree(structure, "phi psi")
    atoms = {(c.kind, c.residue): c.atoms for c in tree.torsions}
    return np.array([[atoms["phi", r], atoms["psi", r]] for kind, r in atoms if kind == "phi" and ("psi", r) in atoms])


def dihedrals(x: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return the dihedrals of positions x (n, n_atoms, 3) as (n, *atoms.shape[:-1])."""
    a, b, c, d = (x[:, atoms[..., i]] for i in range(4))
    u, v, w = b - a, c - b, d - c
    n1, n2 = np.cross(u, v), np.cross(v, w)
    return np.arctan2((np.linalg.norm(v, axis=-1, keepdims=True) * u * n2).sum(-1), (n1 * n2).sum(-1))


def run_langevin(
    structure: ptd.Structure, start: np.ndarray, calls: int, seed: int, platform: str, properties: dict[str, str]
) -> dict[str, Any]:
    """Run LangevinMiddle at 4 fs with constrained bonds of hydrogens and repartitioned masses."""
    field = app.ForceField("amber14-all.xml")
    system = field.createSystem(
        structure.topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds, hydrogenMass=HYDROGEN * unit.dalton
    )
    free = make_system(structure.topology, "obc2")
    for force in free.getForces():
        if isinstance(force, openmm.GBSAOBCForce):
            system.addForce(openmm.XmlSerializer.clone(force))
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            force.setReactionFieldDielectric(1.0)
    integrator = openmm.LangevinMiddleIntegrator(T, 1.0, 0.004)
    integrator.setRandomNumberSeed(seed + 1)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform), properties)
    context.setPositions(start)
    context.applyConstraints(1e-6)
    context.setVelocitiesToTemperature(T, seed + 1)
    integrator.step(calls // 50)
    count = calls // STEPS
    x = np.empty((count, structure.n_atoms, 3), dtype=np.float32)
    begin = time.perf_counter()
    for i in range(count):
        integrator.step(STEPS)
        x[i] = context.getState(positions=True).getPositions(asNumpy=True)._value
    return {"x": x, "calls": count * STEPS, "seconds": time.perf_counter() - begin, "step": 0.004, "acceptance": None}


def run_sampler(
    structure: ptd.Structure, system: Any, start: np.ndarray, calls: int, seed: int, platform: str,
    properties: dict[str, str], soft: str, hydrogen_mass: float | None, cartesian: bool, start_step: float,
) -> dict[str, Any]:  # fmt: skip
    """Run torsional HMC, alone or in turn with Cartesian HMC."""
    torsional = ptd.TorsionalHMC(start_step, STEPS, friction=1.0, target=ACCEPTANCE + 0.02)
    moves: list[Any] = [torsional]
    if cartesian:
        moves.append(ptd.CartesianHMC(0.0015, STEPS, target=ACCEPTANCE + 0.02))
    sampler = ptd.GibbsSampler(
        moves, ptd.build_tree(structure, soft), system, T, positions=start, hydrogen_mass=hydrogen_mass,
        platform=platform, properties=properties, seed=seed,
    )  # fmt: skip
    sampler.warm_up(max(150, calls // 20 // STEPS))
    while True:  # smaller steps until the acceptance stays above its limit
        sampler.run(max(40, calls // 40 // STEPS))
        low = [move for move in sampler.moves if move.acceptance < ACCEPTANCE]
        if not low:
            break
        for move in low:
            move.step *= 0.93
        sampler.reset()
    sampler.reset()
    sweeps = calls // STEPS // len(moves)
    samples = sampler.run(sweeps, positions=True)
    return {
        "x": samples.positions,
        "calls": sum(move.force_calls for move in sampler.moves),
        "seconds": samples.seconds,
        "step": torsional.step,
        "acceptance": [move.acceptance for move in sampler.moves],
    }


def judge(chains: list[dict[str, Any]], atoms: np.ndarray) -> dict[str, Any]:
    """Return speed and populations of a method, with standard errors over chains."""
    speeds, populations, crossings = [], [], []
    for chain in chains:
        angles = dihedrals(chain["x"].astype(np.float64), atoms)  # (n, pairs, 2)
        g = np.array(
            [
                max(statistical_inefficiency(np.cos(column)), statistical_inefficiency(np.sin(column)))
                for column in angles.reshape(len(angles), -1).T
            ]
        )
        speeds.append((len(angles) / g).mean() / chain["calls"])
        where = basin_of(angles[..., 0], angles[..., 1])
        populations.append([(where == k).mean() for k in range(3)])
        crossings.append((np.diff(where, axis=0) != 0).mean(axis=0).mean() * len(where) / chain["calls"])
    root = math.sqrt(len(chains))
    speed, population = np.array(speeds), np.array(populations)
    return {
        "effective_per_million_calls": 1e6 * speed.mean(),
        "effective_error": 1e6 * speed.std(ddof=1) / root,
        "crossings_per_million_calls": 1e6 * float(np.mean(crossings)),
        "populations": population.mean(axis=0).tolist(),
        "population_errors": (population.std(axis=0, ddof=1) / root).tolist(),
        "step_fs": 1e3 * float(np.mean([chain["step"] for chain in chains])),
        "acceptance": None
        if chains[0]["acceptance"] is None
        else np.mean([c["acceptance"] for c in chains], 0).tolist(),
        "calls": int(sum(chain["calls"] for chain in chains)),
        "calls_per_second": sum(c["calls"] for c in chains) / sum(c["seconds"] for c in chains),
    }


def measure(size: str, only: str | None, file: Path) -> dict[str, Any]:
    """Run all methods on all molecules; the report is written to `file` after each of them."""
    chains, *calls = SIZES[size]
    report: dict[str, Any] = {"size": size, "temperature_K": T, "chains": chains, "molecules": {}}
    for (name, (sequence, platform, properties)), budget in zip(MOLECULES.items(), calls, strict=True):
        if only is not None and only not in name:
            continue
        structure, system, start = prepare(sequence)
        atoms = backbone(structure)
        outcome = {}
        with Progress(len(METHODS) * chains, name, "chains") as bar:
            for method, options in METHODS.items():
                found = []
                for seed in range(chains):
                    if options:
                        o = options
                        found.append(
                            run_sampler(
                                structure,
                                system,
                                start,
                                budget,
                                seed,
                                platform,
                                properties,
                                o["soft"],
                                o["hydrogen_mass"],
                                o["cartesian"],
                                o["start"],
                            )
                        )
                    else:
                        found.append(run_langevin(structure, start, LONGER[name] * budget, seed, platform, properties))
                    bar.advance(1, method)
                outcome[method] = judge(found, atoms)
        mark(outcome)
        report["molecules"][name] = {"calls_per_chain": budget, "platform": platform, "methods": outcome}
        write_text(file, json.dumps(report, indent=1) + "\n")
    return report


def mark(outcome: dict[str, Any]) -> None:
    """Mark populations that differ from those of Langevin dynamics."""
    right = outcome[REFERENCE]
    for one in outcome.values():
        difference = np.abs(np.subtract(one["populations"], right["populations"]))
        error = np.hypot(one["population_errors"], right["population_errors"])
        one["differs"] = bool(((difference > 3 * error) & (difference > 0.03)).any())
        one["relative_speed"] = one["effective_per_million_calls"] / right["effective_per_million_calls"]


def to_markdown(report: dict[str, Any]) -> str:
    """Return the tables of docs/performance.md."""
    lines = []
    for name, molecule in report["molecules"].items():
        lines += [
            f"{name}, {report['chains']} chains of {molecule['calls_per_chain']:,} force evaluations "
            f"({LONGER[name]} times as many for Langevin dynamics), {molecule['platform']} platform:",
            "",
            "| method | step, fs | accepted | independent per 10⁶ evaluations | relative | α | β, PPII | left | law |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for method, one in molecule["methods"].items():
            accepted = "-" if one["acceptance"] is None else ", ".join(f"{a:.2f}" for a in one["acceptance"])
            people = " | ".join(
                f"{p:.2f} ± {e:.2f}" for p, e in zip(one["populations"], one["population_errors"], strict=True)
            )
            lines.append(
                f"| {method} | {one['step_fs']:.1f} | {accepted} | {one['effective_per_million_calls']:.0f} ± "
                f"{one['effective_error']:.0f} | {one['relative_speed']:.2f} | {people} | "
                f"{'**differs**' if one['differs'] else 'agrees'} |"
            )
        lines.append("")
    return "\n".join(lines)


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw speed and populations side by side; hatched bars sample another law."""
    from peptidyn.analysis.plots import new_figure, save_figure

    count = len(report["molecules"])
    figure, axes = new_figure(count, 2, figsize=(11.0, 3.4 * count), squeeze=False)
    for (left, right), (name, molecule) in zip(axes, report["molecules"].items(), strict=True):
        methods = list(molecule["methods"])[::-1]
        values = [molecule["methods"][m] for m in methods]
        y = np.arange(len(methods))
        for place, one in zip(y, values, strict=True):
            left.barh(
                place, one["effective_per_million_calls"], xerr=one["effective_error"], color="#1f4e79" if not
                one["differs"] else "#d9d9d9", edgecolor="#1f4e79", hatch="//" if one["differs"] else None, capsize=3,
            )  # fmt: skip
        left.set_yticks(y, methods, fontsize=8)
        left.set(xlabel="independent samples of φ, ψ per 10⁶ force evaluations", title=name)
        for k, (label, colour) in enumerate((("α", "#1f4e79"), ("β, PPII", "#c8781e"), ("left", "#5c8a5c"))):
            right.errorbar(
                [v["populations"][k] for v in values], y + 0.15 * (1 - k),
                xerr=[v["population_errors"][k] for v in values], fmt="o", markersize=4, color=colour, label=label,
                capsize=2,
            )  # fmt: skip
        right.set_yticks(y, [])
        right.set_ylim(left.get_ylim())
        right.set(xlim=(-0.02, 1.02), xlabel="population", title="basins (hatched bars: another law is sampled)")
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="efficiency", help="folder to write")
    parser.add_argument("--molecule", help="only the one whose name holds this")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick", default="default")
    size.add_argument("--full", dest="size", action="store_const", const="full")
    options = parser.parse_args()
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    report = measure(options.size, options.molecule, folder / "efficiency.json")
    text = to_markdown(report)
    write_text(folder / "efficiency.md", text)
    draw(report, folder / "efficiency.png")
    print(text)


if __name__ == "__main__":
    main()
