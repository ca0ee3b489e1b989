"""What `sampling_efficiency.py` makes of chains of phi and psi: speeds, populations, distances, tables, a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import Report, cell, table
from peptidyn.core.statistics import statistical_inefficiency

REFERENCE = "OpenMM LangevinMiddle, 4 fs, HMR"

STARTS = {"helix": (-70.0, -40.0), "polyproline II": (-70.0, 145.0)}
WELLS = np.deg2rad([-30.0, 150.0])
"""Middle of the main wells of psi; a crossing has come within `NEAR` of the other one."""
NEAR = np.deg2rad(40.0)

MIXED = 1.1
"""R-hat above this: not converged."""

BINS = 12
"""Of phi and of psi in Ramachandran histograms."""


def basin_of(phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Return 0 for alpha, 1 for beta and polyproline, 2 for left-handed."""
    alpha = (phi < 0) & (psi >= np.deg2rad(-120)) & (psi < np.deg2rad(60))
    return np.where(phi >= 0, 2, np.where(alpha, 0, 1))


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
    trips = [chain["trips"] for chain in chains if "trips" in chain]
    if trips:
        report["round_trips"] = float(np.mean(trips))
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


def ramachandran(chains: Sequence[np.ndarray]) -> np.ndarray:
    """Return histograms of phi and psi (n_residues, BINS, BINS), each with the sum 1, of chains (n, residues, 2)."""
    edges = np.linspace(-np.pi, np.pi, BINS + 1)
    angles = np.concatenate(chains)
    count = np.array(
        [np.histogram2d(one[:, 0], one[:, 1], bins=(edges, edges))[0] for one in angles.transpose(1, 0, 2)]
    )
    return count / count.sum(axis=(1, 2), keepdims=True)


def distances(chains: list[dict[str, Any]], reference: np.ndarray) -> dict[str, list[float]]:
    """Return force calls, and the total variation between the histograms until then and those of a long reference.

    Chains are pooled. `worst` is the residue that is farthest from its reference, `mean` the mean over residues.
    """
    found: dict[str, list[float]] = {"calls": [], "mean": [], "worst": []}
    for part in 2.0 ** -np.arange(7, -1, -1):
        counts = [max(1, int(part * len(chain["angles"]))) for chain in chains]
        made = ramachandran([chain["angles"][:n] for chain, n in zip(chains, counts, strict=True)])
        apart = 0.5 * np.abs(made - reference).sum(axis=(1, 2))
        calls = sum(float(c["calls"]) * n / len(c["angles"]) for c, n in zip(chains, counts, strict=True))
        for name, value in (("calls", calls), ("mean", apart.mean()), ("worst", apart.max())):
            found[name].append(float(value))
    return found


def variations(chains: list[dict[str, Any]], reference: list[dict[str, Any]]) -> tuple[float, float]:
    """Return total variations of Ramachandran histograms, of the worst residue.

    That between chains of the first start and chains of the others, and that between all chains and those of the
    reference.
    """
    first, others, all_chains, right = (
        ramachandran([chain["angles"] for chain in part])
        for part in (chains[:: len(STARTS)], chains[1 :: len(STARTS)], chains, reference)
    )
    between, away = (0.5 * np.abs(a - b).sum(axis=(1, 2)).max() for a, b in ((first, others), (all_chains, right)))
    return float(between), float(away)


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
                _round(one["crossings_per_million"], one["crossings_error"])
                if math.isfinite(one["crossings_per_million"])
                else "-",
                _ratio(method, one["crossings_relative"], one["crossings_relative_error"]),
                *(cell(v, 2) if math.isfinite(v) else "-" for v in (
                    one["independent_cpu_relative"][1], one["crossings_cpu_relative"],
                )),
            ])  # fmt: skip
            alpha, beta, left = (
                f"{p:.3f} ± {e:.3f}" for p, e in zip(one["populations"], one["population_errors"], strict=True)
            )
            people.append([
                method, one.get("samples", ""),
                cell(molecule["calls_per_chain"][method], 0), cell(one["cpu_us_per_call"], 0), alpha, beta,
                " / ".join(f"{v:.2f}" for v in one["alpha_by_start"]), cell(one["r_hat"], 2),
                one["verdict"] if one["verdict"] in ("agrees", "reference") else f"**{one['verdict']}**", left,
                one["left_entries"], _round(one["helix"], one["helix_error"], 3) if "helix" in one else "-",
                f"{one['round_trips']:.1f}" if "round_trips" in one else "-",
                *(f"{v:.3f}" for v in one.get("variations", [])),
            ])  # fmt: skip
        parts += [
            f"{name}, {molecule['temperature_K']:g} K, {molecule['chains']} chains, {molecule['platform']} platform:",
            table(SPEED_HEAD.split("; "), speed),
            table(PEOPLE_HEAD.split("; ")[: len(people[0])], people),
        ]
        curves = {label: one["distance"] for label, one in molecule["methods"].items() if "distance" in one}
        if curves:
            rows = [
                [label, *(f"{w:.3f} at {cell(c / 1e6, 2)}" for c, w in zip(d["calls"], d["worst"], strict=True))]
                for label, d in curves.items()
            ]
            parts += [
                "Total variation between Ramachandran histograms and those of a long reference, worst residue, at "
                "millions of force calls:",
                table(["method", *("" for _ in rows[0][1:])], rows),
            ]
    return "\n\n".join(parts)


SPEED_HEAD = (
    "method; step, fs; acceptance; φ; ψ; ψ by start; ψ, relative; crossings of ψ; crossings, relative; "
    "ψ per CPU s, relative; crossings per CPU s, relative"
)
PEOPLE_HEAD = (
    "method; samples; evaluations in a chain; CPU µs each; α; β, PPII; α by start; R-hat; α and β; left; entries; "
    "helix; round trips; TV of starts; TV from LangevinMiddle"
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
    far = any("distance" in one for m in report["molecules"].values() for one in m["methods"].values())
    figure, axes = new_figure(count, 3 if far else 2, figsize=(16.5 if far else 11.0, 3.6 * count), squeeze=False)
    for (left, right, *rest), (name, molecule) in zip(axes, report["molecules"].items(), strict=True):
        for label, one in molecule["methods"].items() if rest else ():
            if "distance" in one:
                rest[0].loglog(one["distance"]["calls"], one["distance"]["worst"], "o-", markersize=3, label=label)
        for axis in rest:
            axis.set(xlabel="force calls of all chains", ylabel="total variation, worst residue")
            axis.set_title("distance of Ramachandran histograms from a long reference", fontsize=9)
            axis.legend(frameon=False, fontsize=7)
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
