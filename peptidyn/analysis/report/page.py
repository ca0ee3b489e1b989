"""The HTML of a report: templates in assets/, in which every value from a file is escaped."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from peptidyn.core.errors import MissingDependencyError


def render_page(template: str, **values: Any) -> str:
    """Return the whole page: styles, scripts, pictures and the viewer library are part of it.

    Parameters
    ----------
    template : str
        ``run.html`` or ``exchange.html``.
    values
        What the template names.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingDependencyError.of("reports need jinja2", "plots") from error
    assets = files("peptidyn.analysis.report").joinpath("assets")

    def text(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template(template).render(asset=lambda name: Markup(text(name)), **values)
