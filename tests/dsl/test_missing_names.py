"""Names that the language does not have: what their import and their use as attributes say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from einkorn import dsl

SAID = {
    "prange": "parallel_for(n, body)",
    "parallelize": "parallel_for(n, body)",
    "forech": "did you mean 'foreach'?",
    "where": "write select",
}


@pytest.mark.parametrize("name", SAID)
def test_what_to_write_instead_is_said(name: str) -> None:
    with pytest.raises(ImportError, match="cannot import name") as imported:
        exec(f"from einkorn.dsl import {name}")
    with pytest.raises(AttributeError, match="has no attribute") as read:
        getattr(dsl, name)
    assert SAID[name] in str(imported.value) and SAID[name] in str(read.value)
    assert imported.value.name == "einkorn.dsl"


def test_names_without_a_hint() -> None:
    with pytest.raises(ImportError) as imported:
        exec("from einkorn.dsl import quux17")
    assert str(imported.value) == "cannot import name 'quux17' from 'einkorn.dsl'"
    assert not hasattr(dsl, "quux17") and not hasattr(dsl, "__path_of_wheels__")


def test_modules_of_the_package_are_imported_as_ever() -> None:
    text = "from einkorn.dsl import package, signature; from einkorn.dsl import *; print(package.__name__)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "einkorn.dsl.package\n"
