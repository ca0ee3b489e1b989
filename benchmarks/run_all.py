"""Run every benchmark that takes minutes, and write numbers, tables and pictures to a folder.

    python benchmarks/run_all.py FOLDER [--repeats N] [--long]

The tables of docs/performance.md are made by these scripts; --long adds those that take an hour. Benchmarks run one
after the other, each in its own process, so that none of them starts with the memory and the warm caches of another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = ("solvers", "fixman", "kernels", "peers", "dynamics", "step_cost", "cold_start", "exchange_speed", "one_core")
"""Those with --repeats."""

OTHERS = ("memory", "drift_tolerance")
LONG = (
    "fuzz", "mutants", "endurance", "time_steps", "kinetic_metric", "backbone_barrier", "sampling_efficiency",
    "pressure",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="where the results go; made if needed")
    parser.add_argument("--repeats", metavar="N", help="rounds of measurements (default: those of each script)")
    parser.add_argument("--long", action="store_true", help=f"also {', '.join(LONG)}")
    options = parser.parse_args(arguments)
    failed = []
    for name in (*ROUNDS, *OTHERS, *(LONG if options.long else ())):
        given = ["-o", options.folder]
        if options.repeats is not None and name in ROUNDS:
            given += ["--repeats", options.repeats]
        print(f"\n$ python benchmarks/{name}.py {' '.join(given)}\n", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py"), *given], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"run_all: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
