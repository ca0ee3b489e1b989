"""The HTML of a report. Every text that comes from a file passes through `escape` or `script_json`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""What the page may load: nothing from anywhere."""


@dataclass(frozen=True)
class Section:
    """One tab: a short name for its address, its title, and its HTML."""

    key: str
    title: str
    body: str


def escape(text: object) -> str:
    """Return text that is safe inside HTML and inside attributes."""
    return html.escape(str(text), quote=True)


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table of escaped cells; numbers stand at the right."""
    lines = ["<table>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
    for row in rows:
        cells = "".join(
            f'<td class="number">{cell}</td>'
            if isinstance(cell, int | float) and not isinstance(cell, bool)
            else f"<td>{escape(cell)}</td>"
            for cell in row
        )
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def picture(address: str, caption: str) -> str:
    """Return a picture with a caption that also describes it to those who do not see it."""
    text = escape(caption)
    return f'<figure><img src="{escape(address)}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def paragraph(text: str, kind: str = "") -> str:
    """Return an escaped paragraph."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>"


VIEWER_CONTROLS = """<div class="controls">
<button type="button" id="play">Play</button>
<label for="frame">Frame</label><input type="range" id="frame" min="0" max="{last}" value="0">
<output id="frame-label" for="frame"></output>
<label for="style">Style</label><select id="style">
<option value="sticks"{sticks}>sticks</option><option value="both"{both}>cartoon and sticks</option>
<option value="cartoon">cartoon</option><option value="spheres">spheres</option></select>
<label><input type="checkbox" id="spin"> spin</label></div>
<div id="viewer"></div>"""


def viewer_section(data: dict[str, Any]) -> str:
    """Return the controls and the place of the 3-D view; small peptides begin as sticks."""
    small = data["residues"] < 8
    controls = VIEWER_CONTROLS.format(
        last=len(data["times"]) - 1, sticks=" selected" if small else "", both="" if small else " selected"
    )
    return f'{controls}\n<script type="application/json" id="view-data">{script_json(data)}</script>'


def render_page(title: str, subtitle: str, sections: Sequence[Section], *, with_viewer: bool) -> str:
    """Return the whole page: styles, scripts, pictures and the viewer library are part of it.

    Parameters
    ----------
    title, subtitle : str
        Plain text; escaped here.
    sections : sequence of Section
        The tabs, in order.
    with_viewer : bool
        Whether the 3-D library is needed.
    """
    assets = files("peptidyn.analysis.report").joinpath("assets")

    def asset(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    tabs = "\n".join(
        f'<button type="button" role="tab" id="tab-{s.key}" aria-controls="panel-{s.key}">{escape(s.title)}</button>'
        for s in sections
    )
    panels = "\n".join(
        f'<section role="tabpanel" id="panel-{s.key}" aria-labelledby="tab-{s.key}">\n{s.body}\n</section>'
        for s in sections
    )
    library = ""
    if with_viewer:  # its licence asks that the notice goes with every copy
        notice = asset("3Dmol-LICENSE.txt").replace("--", "- -")
        library = f"<!-- 3Dmol.js 2.5.5\n{notice}\n-->\n<script>{asset('3Dmol-min.js')}</script>\n"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>
<nav role="tablist">
{tabs}
</nav>
<main>
{panels}
</main>
{library}<script>
{asset("page.js")}</script>
</body>
</html>
"""
