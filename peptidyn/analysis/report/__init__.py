"""`peptidyn report`: one HTML file about a run or about replica exchange, which needs nothing else to be read."""

from __future__ import annotations

import os
from pathlib import Path

from peptidyn.analysis.report.exchange_page import exchange_page
from peptidyn.analysis.report.run_page import run_page
from peptidyn.analysis.report.viewer import MOST_BYTES
from peptidyn.core.files import write_text
from peptidyn.runs.exchange_run import ExchangeRun
from peptidyn.runs.run_folder import read_run
from peptidyn.sampling.storage import EXCHANGES

__all__ = ["read_run", "write_report"]


def write_report(
    folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None, *, most_bytes: int = MOST_BYTES
) -> Path:
    """Write a report about a run or about replica exchange as one HTML file; return its path.

    Parameters
    ----------
    folder : str or path
        The folder that `peptidyn run`, `peptidyn exchange` or `ReplicaExchange` wrote. The run may be finished,
        interrupted, killed or running.
    output : str or path, optional
        File to write; report.html in the folder if not given.
    most_bytes : int
        Limit of the coordinates that the 3-D view carries; frames are left out beyond, and the report says so.
    """
    target = Path(folder) / "report.html" if output is None else Path(output)
    if (Path(folder) / EXCHANGES).exists():
        page = exchange_page(ExchangeRun(folder), most_bytes)
    else:
        page = run_page(read_run(folder), most_bytes)
    write_text(target, page)
    return target
