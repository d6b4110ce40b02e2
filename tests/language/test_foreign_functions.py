"""Functions of NumPy, PyTorch and JAX in kernels: those that mean for numbers what functions of the language do."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.dsl.language import foreign_names

TWO = {"arctan2", "atan2", "copysign", "hypot", "maximum", "minimum", "power"}
FROM_ONE = {"acosh", "arccosh"}
LIBRARIES = {"numpy": "np", "torch": "torch", "jax.numpy": "jnp", "jax.lax": "lax"}


def called(name: str) -> str:
    if name == "where":
        return "where(x[i] > y[i], x[i], y[i])"
    if name == "clip":
        return "clip(x[i], 0.25, 0.5)"
    return f"{name}(x[i], y[i])" if name in TWO else f"{name}(x[i])"


def offered(library: str) -> list[str]:
    module = pytest.importorskip(library)
    return [name for name in foreign_names.SAME if foreign_names.same_function(getattr(module, name, None))]


@pytest.mark.parametrize("library", LIBRARIES)
def test_they_give_what_their_libraries_do(library: str) -> None:
    names, short = offered(library), LIBRARIES[library]
    assert len(names) > 25
    rows = [
        f"    out[{k}, i] = select({short}.{called(name)}, x.dtype(1), x.dtype(0))"
        if name.startswith("is")
        else f"    out[{k}, i] = {short}.{called(name)}"
        for k, name in enumerate(names)
    ]
    body = "\n    ".join(rows)
    text = f"""import {library} as {short}
from einkorn.dsl import InputTensor, OutputTensor, float64, register, select

@register("rows")
def rows(out: OutputTensor[float64, "{len(names)} n"], x: InputTensor[float64, "n"], y: InputTensor[float64, "n"]):
    for i in range(x.dim(0)):
    {body}
"""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.1, 0.9, (2, 9))
    with np.errstate(all="ignore"):
        got = kernels_of(text)["rows"](x, y)
        for name, row in zip(names, got, strict=True):
            wanted = expected(name, x, y)
            np.testing.assert_allclose(row, wanted, rtol=1e-13, err_msg=name)


def expected(name: str, x: Any, y: Any) -> Any:
    """By NumPy; by Python's own functions for those that NumPy lacks."""
    if name == "where":
        return np.where(x > y, x, y)
    if name == "clip":
        return np.clip(x, 0.25, 0.5)
    if name == "rsqrt":
        return 1 / np.sqrt(x)
    function = getattr(np, name, None) or np.vectorize(getattr(importlib.import_module("math"), name))
    return function(x, y) if name in TWO else function(x)


@pytest.mark.parametrize("written", ["jnp.max(x[i])", "jax.nn.relu(x[i])", "torch.nn.functional.silu(x[i])"])
def test_the_text_of_a_library_is_not_compiled(written: str) -> None:
    """A function of theirs that is written in Python is refused where it is called, not somewhere in their files."""
    pytest.importorskip(written.partition(".")[0].replace("jnp", "jax"))
    head = "import jax\nimport jax.numpy as jnp\n" if written.startswith("j") else "import torch\n"
    text = f"""{head}from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("op")
def op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: {written})
"""
    with pytest.raises(CompileError) as caught:
        kernels_of(text)["op"](np.ones(2, np.float32))
    assert caught.value.code == "EK0105" and caught.value.hint
    assert caught.value.place is not None and caught.value.place.line == len(inspect.cleandoc(text).splitlines())
