"""Run every benchmark of `peptidyn bench` whose peer is installed, and write tables, JSON and pictures to a folder.

    python benchmarks/run_all.py FOLDER [--repeats N]

The tables of docs/performance.md are made by this script. Benchmarks run one after the other, each in its own process,
so that none of them starts with the memory and the warm caches of another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the results go; made if needed")
    parser.add_argument("--repeats", default="7", metavar="N", help="interleaved rounds (default: 7)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = ["solvers", "fixman", "kernels", "dynamics"]
    if find_spec("pinocchio") is None and find_spec("mujoco") is None:
        print("peers: left out, neither Pinocchio nor MuJoCo is installed (pip install pin mujoco)")
    else:
        names.append("peers")
    failed = 0
    for name in names:
        command = [sys.executable, "-m", "peptidyn", "bench", name, "--repeats", options.repeats]
        command += ["-o", str(options.folder), "--overwrite"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        failed += done.returncode != 0
        print(f"\n$ peptidyn bench {name} --repeats {options.repeats}\n\n{done.stdout}", flush=True)
        (options.folder / f"{name}.txt").write_text(done.stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
