"""Replica exchange of butane at three temperatures, and the data it writes."""

from __future__ import annotations

from pathlib import Path

import butane

import peptidyn as ptd

T = ptd.geometric_temperatures(300, 700, 3)


def make(folder=None, backend="serial", temperatures=T, **options):
    options = {"moves": [ptd.TorsionMove(turn=60), ptd.CartesianHMC(0.006, 4)], "sweeps": 2, "seed": 7, **options}
    return ptd.ReplicaExchange(
        butane.make_tree(), butane.make_system(), temperatures, platform="Reference", folder=folder,
        topology=butane.make_topology(), backend=backend, **options,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """All data of a run; DCD without its header, which holds the date."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".npy", ".csv", ".dcd"):
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = data[276:] if path.suffix == ".dcd" else data
    return found
