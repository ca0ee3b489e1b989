"""The documentation: every public name is described, pages build without a warning, links inside resolve."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from numpydoc.docscrape import NumpyDocString

import peptidyn as ptd

ROOT = Path(__file__).parents[1]
PUBLIC = [name for name in ptd.__all__ if name != "__version__"]


def signature_names(value):
    function = value.__init__ if isinstance(value, type) else value
    names = inspect.signature(function).parameters.values()
    return [p.name for p in names if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def described_names(doc):
    """Parameters that a docstring describes; ``a, b : ...`` describes two."""
    parsed = NumpyDocString(inspect.cleandoc(doc))
    groups = [p.name for p in (*parsed["Parameters"], *parsed["Attributes"])]
    return {name.strip(" *") for group in groups for name in group.split(",")}


def is_error(value):
    return isinstance(value, type) and issubclass(value, Exception)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_a_first_sentence(name):
    doc = inspect.getdoc(getattr(ptd, name))
    assert doc and doc.splitlines()[0].rstrip().endswith((".", ":"))


@pytest.mark.parametrize("name", [n for n in PUBLIC if not is_error(getattr(ptd, n))])
def test_public_names_describe_their_arguments(name):
    value = getattr(ptd, name)
    doc = inspect.getdoc(value)
    # short functions may name their arguments in the sentence instead of a table
    known = described_names(doc) | set(re.findall(r"`(\w+)`", doc)) | set(re.findall(r"^(\w+) : ", doc, flags=re.M))
    inherited = re.search(r"Parameters are those of `(\w+)`", doc)
    if inherited:
        known |= described_names(inspect.getdoc(getattr(ptd, inherited[1])))
    missing = [p for p in signature_names(value) if p not in known]
    assert not missing, f"{name} does not describe {missing}"


@pytest.mark.parametrize("name", [n for n in PUBLIC if isinstance(getattr(ptd, n), type)])
def test_public_methods_have_docstrings(name):
    for method, value in vars(getattr(ptd, name)).items():
        if not method.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
            assert inspect.getdoc(getattr(getattr(ptd, name), method)), f"{name}.{method}"


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[k] for k in ("id", "name") if values.get(k)}
        self.targets += [values[k] for k in ("href", "src") if values.get(k)]


@pytest.mark.slow
def test_pages_build_and_links_resolve(tmp_path):
    """Sphinx with warnings as errors, then every link of every page to a file and an anchor that exist."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or target.startswith("//"):
                continue
            file = path if not link.path else (path.parent / unquote(link.path)).resolve()
            there = file.exists() and (not link.fragment or file not in pages or link.fragment in pages[file].anchors)
            if not there:
                broken.append((path.name, target))
    assert not broken
    api = pages[tmp_path / "api.html"].anchors
    assert {f"peptidyn.{name}" for name in PUBLIC} <= api
    # no page loads anything from elsewhere
    assert not [t for page in pages.values() for t in page.targets if re.match(r"(https?:)?//.*\.(js|css|png)$", t)]
