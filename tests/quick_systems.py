"""Systems that are made once: force fields take longer to read than small molecules to simulate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openmm
import pytest

import peptidyn as ptd
from peptidyn.runs import model


@contextmanager
def systems_made_once() -> Iterator[None]:
    """Let runs take a System of as many atoms that was made with the same arguments already."""
    made: dict[Any, Any] = {}

    def make(topology: Any, *arguments: Any, **options: Any) -> Any:
        key = topology.getNumAtoms(), arguments, tuple(options.items())
        if key not in made:
            made[key] = ptd.make_system(topology, *arguments, **options)
        return openmm.XmlSerializer.clone(made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "make_system", make)
        yield
