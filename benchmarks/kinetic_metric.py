"""Which step does the metric allow? Acceptance and averages of the presets with chosen joint inertias.

    python benchmarks/kinetic_metric.py -o FOLDER                                  # Ala10 helix, about 15 minutes
    python benchmarks/kinetic_metric.py --frames 300 --proposals 400 --preset flexible --part averages

The molecule (default data/ala10-helix.pdb) is in OBC2 at 300 K and starts from its minimum in Cartesian coordinates.
Every preset is warmed up by Langevin dynamics first.

acceptance  of GHMC with one step per proposal, friction 1/ps, over steps: without joint inertias (`physical`), and with
            those of `joint_inertia` for some numbers of steps per period, or for those of ``metric="auto"``
averages    of Langevin dynamics with joint inertias as by ``metric="auto"``, beside OpenMM's LangevinMiddle on the same
            flexible System at 1 fs: energies, bond lengths and backbone bond angles, and configurational temperatures.
            Means of bonds and angles are differences averaged over all of them; widths are ratios of standard
            deviations. For `angles` and `heavy` the bonds and angles that are hard lack their fluctuations, and
            energies differ by design; the configurational temperature alone tells what the step does there

Configurational temperature: with x any function of a soft coordinate q, and the density J exp(-V/kT),

    kT <dx/dq + x d ln J/dq> = <x dV/dq> .

Here x = sin(q - c) for torsions and phases and q - c for angles and bond lengths, c being the value at the minimum, and
d ln J/dq is 0, cot q and 2/q. Both sides are summed over the coordinates of a kind before they are divided. Unlike the
kinetic temperature, which BAOAB reads low at large steps, it judges configurations. It is computed for the Cartesian
run, too: there it is the temperature within the error if the estimator is right.

Means of energies converge slowly where a molecule folds and unfolds. `--restrain K` adds K (1 - cos(q - c)) for all phi
and psi to the System of all runs: what a step does to averages is then seen within nanoseconds.

Errors are standard errors from 10 blocks of a run, those of the Cartesian run included in differences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openmm

import harness
import peptidyn as ptd
from harness import Report, cell, table
from molecules import context, relax
from peptidyn.core.errors import StepError
from peptidyn.core.progress import Progress
from peptidyn.core.units import BOLTZMANN
from peptidyn.engine.kinetic_metric import LANGEVIN_STEPS, metropolis_steps
from peptidyn.engine.systems import make_system
from peptidyn.runs.presets import PRESETS as ALL_PRESETS

T, FRICTION = 300.0, 1.0
PRESETS = {name: ALL_PRESETS[name].soft for name in ("angles", "heavy", "flexible")}
PHYSICAL = "physical"
WARM_UP, WARM_STEP = 20.0, 0.008
"""ps of warm-up, and its step (ps)."""

REFERENCE_STEP = 0.001
APART = 0.2
"""ps between two frames; a run has a whole number of steps between them, so it may be a little less."""

BLOCKS = 10
GOALS = {"angles": 24.0, "flexible": 12.0}
"""Steps (fs) at which nine proposals of ten should be accepted."""

SEED = 1


@dataclass
class Molecule:
    """A structure relaxed in Cartesian coordinates, its System without constraints, and the trees of the presets."""

    topology: Any
    system: Any
    positions: np.ndarray

    def __post_init__(self) -> None:
        structure = ptd.Structure.from_openmm(self.topology, self.system, self.positions)
        self.trees = {name: ptd.build_tree(structure, soft=soft) for name, soft in PRESETS.items()}
        self.bonds = _terms(self.system, openmm.HarmonicBondForce, 2)
        self.angles = _terms(self.system, openmm.HarmonicAngleForce, 3)
        self.backbone = np.array([c.atoms[-3:] for c in self.trees["angles"].bends])
        """Atoms of the backbone angles, (n, 3)."""

    def context(self, integrator: Any) -> Any:
        return context(self.system, integrator, "CPU", {"Threads": "1"})

    def start(self, integrator: Any, motion: tuple[ptd.State, np.ndarray] | None = None) -> Any:
        """Bind a torsion integrator to a Context, in a given configuration and with thermal momenta."""
        integrator.kept = self.context(integrator)  # the Context must live as long as the integrator
        integrator.kept.setPositions(self.positions if motion is None else motion[0].tree.positions(motion[0]))
        integrator.set_velocities_to_temperature(T)
        return integrator

    def warm(self, preset: str) -> tuple[ptd.State, np.ndarray]:
        """Return a thermal configuration and its momenta."""
        integrator = ptd.TorsionLangevinIntegrator(self.trees[preset], T, FRICTION, WARM_STEP, seed=SEED, metric="auto")
        self.start(integrator).step(round(WARM_UP / WARM_STEP))
        return integrator.motion()


def prepare(file: str | None, restrain: float = 0.0) -> Molecule:
    """Load and relax the molecule; with `restrain` (kJ/mol) phi and psi are held near their values there."""
    default = Path(__file__).parents[1] / "data" / "ala10-helix.pdb"
    structure = ptd.load_structure(file or default)
    system = make_system(structure.topology, "obc2")
    positions = relax(context(system), structure.positions)
    if restrain:
        tree = ptd.build_tree(ptd.Structure.from_openmm(structure.topology, system, positions), "phi psi")
        force = openmm.CustomTorsionForce(f"{restrain} * (1 - cos(theta - theta0))")
        force.addPerTorsionParameter("theta0")
        for torsion, angle in zip(tree.torsions, tree.reference.torsions.tolist(), strict=True):
            force.addTorsion(*torsion.atoms, [angle])
        system.addForce(force)
    return Molecule(structure.topology, system, positions)


def _terms(system: Any, kind: type, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return atoms (m, n), rest values and force constants (m,) of the harmonic bonds or angles of a System."""
    (force,) = (f for f in system.getForces() if isinstance(f, kind))
    count, get = (
        (force.getNumBonds, force.getBondParameters) if n == 2 else (force.getNumAngles, force.getAngleParameters)
    )
    terms = [get(i) for i in range(count())]
    rest, constant = ([t[n + k]._value for t in terms] for k in (0, 1))
    return np.array([t[:n] for t in terms]), np.array(rest), np.array(constant)


# ---------------------------------------------------------------------------- acceptance


def acceptance(
    molecule: Molecule,
    preset: str,
    start: tuple[ptd.State, np.ndarray],
    step: float,
    period: float | None,
    proposals: int,
) -> float:
    """Return the acceptance rate of GHMC at a step (ps), without joint inertias if there is no period (in steps)."""
    tree, metric = molecule.trees[preset], PHYSICAL
    if period is not None:
        period = period or metropolis_steps(tree)
        metric = ptd.joint_inertia(tree, molecule.system, step, steps_per_period=period, temperature=T)
    integrator = ptd.TorsionGHMCIntegrator(tree, T, FRICTION, step, seed=SEED, metric=metric)
    molecule.start(integrator, start).step(proposals)
    return integrator.acceptance


def acceptances(
    molecule: Molecule, preset: str, physical: Sequence[float], steps: Sequence[float], periods: Sequence[float],
    proposals: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return acceptance rates over steps (fs), by metric."""
    start = molecule.warm(preset)
    rows = []
    for period, tried in ((None, physical), *((p, steps) for p in periods)):
        rates = [acceptance(molecule, preset, start, 1e-3 * h, period, proposals) for h in tried]
        rows.append({"preset": preset, "period": period, "steps": list(tried), "rates": rates})
    return rows


# ---------------------------------------------------------------------------- averages


class Frames:
    """What is averaged, frame by frame."""

    def __init__(self, molecule: Molecule, tree: ptd.TreeModel):
        self.molecule, self.tree = molecule, tree
        self.energy: list[float] = []
        self.positions: list[np.ndarray] = []
        self.q: list[np.ndarray] = []
        self.torque: list[np.ndarray] = []

    def add(self, place: Any, state: ptd.State | None = None) -> None:
        """Take a frame from a Context; the state of the tree is found from positions if it is not given."""
        found = place.getState(positions=True, forces=True, energy=True)
        x = np.array(found.getPositions(asNumpy=True)._value)
        state = self.tree.state(x) if state is None else state
        self.positions.append(x)
        self.energy.append(found.getPotentialEnergy()._value)
        self.q.append(state.q)
        forces = found.getForces(asNumpy=True)._value
        self.torque.append(self.tree.generalized_forces(state, forces)[self.tree.coordinate_dof])

    def summary(self) -> dict[str, Any]:
        """Return averages (BLOCKS, ...) of every block of frames, by name."""
        x = np.array(self.positions)
        lengths, (bonds, angles) = _lengths(x, self.molecule.bonds[0]), (self.molecule.bonds, self.molecule.angles)
        found = {
            "V": np.array(self.energy),
            "V of bonds": 0.5 * ((lengths - bonds[1]) ** 2) @ bonds[2],
            "V of angles": 0.5 * ((_angles(x, angles[0]) - angles[1]) ** 2) @ angles[2],
        }
        blocks = {name: np.array([part.mean() for part in np.array_split(v, BLOCKS)]) for name, v in found.items()}
        for name, values in (("bond", lengths), ("backbone angle", _angles(x, self.molecule.backbone))):
            parts = np.array_split(values, BLOCKS)
            blocks[f"{name} mean"] = np.array([part.mean(axis=0) for part in parts])
            centre = values.mean(axis=0)  # of the whole run, so that blocks do not lose their own shift
            blocks[f"{name} variance"] = np.array([((part - centre) ** 2).mean(axis=0) for part in parts])
        return {**blocks, "temperature": self.temperatures()}

    def temperatures(self) -> dict[str, tuple[float, float]]:
        """Return the configurational temperature and its error (K) of every kind of coordinate, and of all."""
        tree = self.tree
        above, below = temperature_terms(tree, np.array(self.q), np.array(self.torque))
        kinds = {"all": np.arange(tree.n_coordinates), "torsions": tree.torsion_index, "phases": tree.phase_index}
        kinds |= {"angles": tree.bend_index, "bonds": tree.stretch_index}
        found = {}
        for name, places in kinds.items():
            if len(places):
                a, b = (v[:, places].sum(axis=1) / BOLTZMANN**k for v, k in ((above, 1), (below, 0)))
                whole = a.mean() / b.mean()
                rest = [part.mean() for part in np.array_split(a - whole * b, BLOCKS)]
                found[name] = (float(whole), float(np.std(rest, ddof=1) / np.sqrt(BLOCKS) / b.mean()))
        return found


def temperature_terms(tree: ptd.TreeModel, q: np.ndarray, torque: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x dV/dq and dx/dq + x d ln J/dq, both (n_frames, n_coordinates): kT is the ratio of their averages.

    Parameters
    ----------
    tree : TreeModel
    q, torque : (n_frames, n_coordinates)
        Soft coordinates, and -dV/dq without U_F.
    """
    away = q - tree.q_reference
    bends, lengths = tree.bend_index, tree.stretch_index
    x, below = np.sin(away), np.cos(away)
    x[:, bends], x[:, lengths] = away[:, bends], away[:, lengths]
    below[:, bends] = 1.0 + away[:, bends] / np.tan(q[:, bends])
    below[:, lengths] = 1.0 + 2.0 * away[:, lengths] / q[:, lengths]
    return -x * torque, below


def _lengths(x: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x[:, atoms[:, 0]] - x[:, atoms[:, 1]], axis=-1)


def _angles(x: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    u, v = (x[:, atoms[:, k]] - x[:, atoms[:, 1]] for k in (0, 2))
    return np.arctan2(np.linalg.norm(np.cross(u, v), axis=-1), (u * v).sum(axis=-1))


def cartesian_frames(molecule: Molecule, count: int) -> Frames:
    """Run OpenMM's LangevinMiddle on the flexible System."""
    integrator = openmm.LangevinMiddleIntegrator(T, FRICTION, REFERENCE_STEP)
    integrator.setRandomNumberSeed(SEED)
    place = molecule.context(integrator)
    place.setPositions(molecule.positions)
    place.setVelocitiesToTemperature(T, SEED)
    integrator.step(round(WARM_UP / REFERENCE_STEP))
    frames = Frames(molecule, molecule.trees["flexible"])
    _collect(frames, count, lambda: integrator.step(round(APART / REFERENCE_STEP)), lambda: frames.add(place))
    return frames


def preset_frames(
    molecule: Molecule, preset: str, start: tuple[ptd.State, np.ndarray], step: float, period: float, count: int
) -> Frames:
    """Run Langevin dynamics of a preset at a step (ps) with the metric that follows from it, and from the period."""
    tree = molecule.trees[preset]
    metric = ptd.joint_inertia(tree, molecule.system, step, steps_per_period=period, temperature=T)
    integrator = ptd.TorsionLangevinIntegrator(tree, T, FRICTION, step, seed=SEED, metric=metric)
    molecule.start(integrator, start).step(round(0.25 * WARM_UP / step))
    frames = Frames(molecule, tree)
    between = max(1, int(APART / step + 1e-9))
    _collect(
        frames, count, lambda: integrator.step(between), lambda: frames.add(integrator.kept, integrator.mover.state)
    )
    return frames


def _collect(frames: Frames, count: int, advance: Callable[[], Any], take: Callable[[], None]) -> None:
    for _ in range(count):
        advance()
        take()


def compare(found: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    """Return differences from the Cartesian run: (value, error) by name."""
    row: dict[str, Any] = {"temperature": found["temperature"]}

    def error(*blocks: np.ndarray) -> float:
        return float(np.sqrt(sum(b.var(ddof=1) / len(b) for b in blocks)))

    for name in ("V", "V of bonds", "V of angles"):
        a, b = found[name], reference[name]
        row[name] = (float(a.mean()), float(a.mean() - b.mean()), error(a, b), error(a))
    for name in ("bond", "backbone angle"):
        a, b = found[f"{name} mean"], reference[f"{name} mean"]
        scale = b.mean(axis=0)
        row[f"{name} mean"] = (
            float((a.mean(axis=0) / scale - 1.0).mean()),
            error((a / scale).mean(axis=1), (b / scale).mean(axis=1)),
        )
        a, b = found[f"{name} variance"], reference[f"{name} variance"]
        scale = b.mean(axis=0)
        ratio = float(np.sqrt((a.mean(axis=0) / scale).mean()))
        row[f"{name} width"] = (
            ratio,
            0.5 * error((a / scale).mean(axis=1), (b / scale).mean(axis=1)) / max(ratio, 1e-9),
        )
    return row


def averages(
    molecule: Molecule, presets: Sequence[str], steps: Sequence[float], period: float, frames: int, bar: Progress
) -> dict[str, Any]:
    """Return what Langevin dynamics of the presets averages over steps (fs), beside the Cartesian run."""
    reference = cartesian_frames(molecule, frames).summary()
    bar.advance(1)
    rows = [{"run": "Cartesian", "step": 1e3 * REFERENCE_STEP, **compare(reference, reference)}]
    for preset in presets:
        start = molecule.warm(preset)
        for step in steps:
            try:
                found = compare(
                    preset_frames(molecule, preset, start, 1e-3 * step, period, frames).summary(), reference
                )
            except StepError as stop:
                found = {"stopped": str(stop)}
            rows.append({"run": preset, "step": step, **found})
            bar.advance(1)
    return {"rows": rows}


# ---------------------------------------------------------------------------- script


def measure(
    file: str | None, preset: str, part: str, physical: Sequence[float], steps: Sequence[float],
    periods: Sequence[float], langevin: Sequence[float], langevin_period: float, proposals: int, frames: int,
    restrain: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """Measure acceptance rates, averages, or both, of the presets whose names hold `preset`."""
    molecule = prepare(file, restrain)
    presets = [name for name in PRESETS if preset in name]
    report: dict[str, Any] = {"coordinates": {name: molecule.trees[name].n_coordinates for name in presets}}
    both = part == "both"
    turns = (len(presets) if both or part == "acceptance" else 0) + (
        1 + len(presets) * len(langevin) if both or part == "averages" else 0
    )
    with Progress(turns, "kinetic metric", "parts") as bar:
        if part != "averages":
            report["acceptance"] = []
            for name in presets:
                report["acceptance"] += acceptances(molecule, name, physical, steps, periods, proposals)
                bar.advance(1)
        if part != "acceptance":
            report["averages"] = averages(molecule, presets, langevin, langevin_period, frames, bar)
    return report


def tables(report: Report) -> str:
    """Return the tables of docs/timestep.md."""
    parts = []
    for name, count in report["coordinates"].items():
        rows = [row for row in report.get("acceptance", ()) if row["preset"] == name]
        if not rows:
            continue
        steps = sorted({h for row in rows for h in row["steps"]})
        lines = []
        for row in rows:
            rates = dict(zip(row["steps"], row["rates"], strict=True))
            lines.append([
                _name_metric(row["period"]),
                *(cell(rates.get(h), 3) for h in steps),
            ])  # fmt: skip
        parts += [
            f"{name}, {count} soft coordinates: GHMC acceptance, {report['proposals']} proposals each"
            + (f"; goal: 0.9 at {GOALS[name]:g} fs" if name in GOALS else ""),
            table(["metric", *(f"{h:g} fs" for h in steps)], lines),
        ]  # fmt: skip
    if "averages" in report:
        parts += _average_tables(report)
    return "\n\n".join(parts)


def _average_tables(report: Report) -> list[str]:
    energies, shapes, heats, stops = [], [], [], []
    kinds = ("all", "torsions", "phases", "angles", "bonds")
    for row in report["averages"]["rows"]:
        label = [row["run"], f"{row['step']:g}"]
        if "stopped" in row:
            energies.append([*label, "stopped", *"---"])
            stops.append(f"{row['run']} at {row['step']:g} fs: {row['stopped']}")
            continue
        whole, *parts = (row[name] for name in ("V", "V of bonds", "V of angles"))
        percent = [f"{100 * difference / abs(value - difference):+.2f}" for value, difference, *_ in (whole, *parts)]
        energies.append([*label, f"{whole[0]:.1f} ± {whole[3]:.1f}", *(
            f"{d:+.1f} ± {e:.1f} ({p}%)" for (_, d, e, _), p in zip((whole, *parts), percent, strict=True)
        )])  # fmt: skip
        shapes.append(label + [
            f"{100 * v:+.3f} ± {100 * e:.3f}" if name.endswith("mean") else f"{v:.3f} ± {e:.3f}"
            for name in ("bond mean", "bond width", "backbone angle mean", "backbone angle width")
            for v, e in [row[name]]
        ])  # fmt: skip
        heats.append(label + [
            f"{row['temperature'][k][0]:.1f} ± {row['temperature'][k][1]:.1f}" if k in row["temperature"] else "-"
            for k in kinds
        ])  # fmt: skip
    head = ["Langevin", "step, fs"]
    return [
        f"Energies (kJ/mol) and their differences from the Cartesian run, {report['frames']} frames {APART:g} ps apart",
        table([*head, "<V>", "V", "V of bonds", "V of angles"], energies),
        "Bond lengths and backbone angles: difference of the means (%), ratio of the widths",
        table([*head, "bonds, mean", "bonds, width", "angles, mean", "angles, width"], shapes),
        f"Configurational temperature (K), set: {T:g}",
        table([*head, *kinds], heats),
        *stops,
    ]


def draw(report: Report, path: Path) -> None:
    """Draw acceptance rates over steps, a panel for every preset."""
    from peptidyn.analysis.plots import new_figure, save_figure

    rows = report.get("acceptance", [])
    names = list(dict.fromkeys(row["preset"] for row in rows)) or ["no acceptance rates asked for"]
    figure, panels = new_figure(1, len(names), figsize=(4.0 * len(names), 3.6), squeeze=False, sharey=True)
    for axes, name in zip(panels[0], names, strict=True):
        colours = iter(("#808080", "#c8781e", "#1f4e79", "#5c8a5c", "#7a4a8a"))
        for row in (row for row in rows if row["preset"] == name):
            label = _name_metric(row["period"])
            axes.plot(row["steps"], row["rates"], "o-", color=next(colours, "black"), markersize=4, label=label)
        axes.axhline(0.9, color="black", linewidth=0.6, linestyle=":")
        axes.set(xlabel="step (fs)", title=name, ylim=(0.0, 1.02))
        if rows:
            axes.legend(frameon=False, fontsize=8, loc="lower left")
    panels[0][0].set_ylabel("GHMC acceptance")
    save_figure(figure, path)


def _name_metric(period: float | None) -> str:
    if period is None:
        return PHYSICAL
    return f"{period:g} steps per period" if period else "auto"


def _numbers(text: str) -> list[float]:
    return [0.0 if part == "auto" else float(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    script = harness.parser(__file__, __doc__)
    script.add_argument("file", metavar="FILE", nargs="?", help="structure with hydrogens (default: Ala10 helix)")
    script.add_argument("--preset", default="", help="only those whose names hold this")
    script.add_argument("--part", choices=("both", "acceptance", "averages"), default="both")
    for name, default, what in (
        ("physical", [4.0, 6.0, 8.0], "steps without joint inertias"),
        ("steps", [8.0, 12.0, 16.0, 24.0], "steps with joint inertias"),
        ("periods", [8.0, 12.0, 16.0], "steps per period of the stiffest motions; auto: as metric='auto'"),
        ("langevin", [16.0, 24.0, 32.0], "steps of Langevin dynamics"),
    ):
        usual = ",".join(f"{value:g}" for value in default)
        script.add_argument(
            f"--{name}", type=_numbers, default=default, metavar="N,N,...", help=f"{what} (default: {usual})"
        )
    script.add_argument(
        "--langevin-period", type=float, default=LANGEVIN_STEPS, metavar="N",
        help=f"steps per period in Langevin dynamics (default: {LANGEVIN_STEPS:g}, as metric='auto')",
    )  # fmt: skip
    script.add_argument("--proposals", type=harness.positive, default=2000, help="for every rate (default: 2000)")
    script.add_argument("--frames", type=harness.positive, default=2000, help="of every run (default: 2000)")
    script.add_argument(
        "--restrain", type=float, default=0.0, metavar="K",
        help="hold phi and psi with K (1 - cos) kJ/mol: averages then need no folding and unfolding (default: 0)",
    )  # fmt: skip
    options = script.parse_args(arguments)
    if not any(options.preset in name for name in PRESETS):
        script.error(f"--preset is {options.preset!r}, expected a part of: {', '.join(PRESETS)}")
    if options.frames < 2 * BLOCKS:
        script.error(f"--frames is {options.frames}, expected at least {2 * BLOCKS}")
    return harness.run(script, arguments, measure, tables, draw)


if __name__ == "__main__":
    sys.exit(main())
