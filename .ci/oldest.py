"""Print pip constraints for the oldest releases of the dependencies that pyproject.toml allows, one per line."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
for dependency in project["dependencies"]:
    found = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", dependency)
    if found is None:
        raise SystemExit(f"pyproject.toml: {dependency!r} has no lower bound; write it as name>=version")
    print(f"{found[1]}=={found[2]}")
