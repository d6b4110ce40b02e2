"""Formulas that hints give for functions of NumPy and PyTorch compile as they stand, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.hints import imports_of

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import CompileErrors, EinkornError
from einkorn.dsl.language.formulas import FORMULAS

torch = pytest.importorskip("torch")

FLOATS = np.array([-3.5, -1.0, -0.25, 0.0, 0.25, 0.75, 1.0, 2.5, 30.0], np.float32)
WHOLE = np.array([-9, -1, 0, 1, 2, 3, 5, 6, 100], np.int32)
OF_INTEGERS = ("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
OF_BOOLS = ("logical_and", "logical_or", "logical_not")
TEXT = """from einkorn.dsl import OutputTensor, InputTensor, foreach, register, {dtype}, {result}
@register("op")
def op(
    out: OutputTensor[{result}, "n"],
    a: InputTensor[{dtype}, "n"],
    b: InputTensor[{dtype}, "n"],
    c: InputTensor[{dtype}, "n"],
):
    foreach(out, lambda i: {body})
"""


def reference(name: str, *arrays: Any) -> Any:
    """What NumPy, PyTorch or Python give."""
    if name in (
        "swish",
        "silu",
        "mish",
        "gelu",
        "relu",
        "relu6",
        "softplus",
        "softsign",
        "elu",
        "hardtanh",
        "logsigmoid",
    ):
        function = getattr(torch.nn.functional, {"swish": "silu"}.get(name, name))
        return function(torch.from_numpy(arrays[0])).numpy()
    if name in ("log_sigmoid", "hardsigmoid", "hardswish"):
        return getattr(torch.nn.functional, name.replace("_", ""))(torch.from_numpy(arrays[0])).numpy()
    if name == "leaky_relu":
        return np.where(arrays[0] > 0, arrays[0], arrays[0] * arrays[1])
    if name == "divmod":
        return np.divmod(arrays[0], arrays[1])[0]
    if hasattr(np, name):
        return getattr(np, name)(*arrays)
    owner = torch.special if name in ("expit", "xlog1py") else torch
    return getattr(owner, name)(*(torch.from_numpy(array) for array in arrays)).numpy()


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_compiles_and_computes_the_same(name: str) -> None:
    arguments = FORMULAS[name][0].split(", ")
    shifts = name.endswith("_shift")
    integers, bools = name in OF_INTEGERS, name in OF_BOOLS
    x = WHOLE if integers else FLOATS > 0 if bools else FLOATS
    second = np.abs(x) % 7 if shifts else np.roll(x, 3)
    arrays = [x, second, np.roll(x, 5)]
    if name in ("divmod", "floor_divide"):
        arrays[1] = np.abs(arrays[1]) + np.float32(0.5)
    if name == "logit":
        arrays[0] = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference(name, *arrays[: len(arguments)]))
    used = dict(zip("abc", arguments, strict=False))
    called = f"{name}({', '.join(f'{key}[i]' for key in used)})"
    dtype = "int32" if integers else "bool8" if bools else "float32"
    names = {"dtype": dtype, "result": "bool8" if wanted.dtype == np.bool_ else dtype}
    with pytest.raises(EinkornError) as caught:
        kernels_of(TEXT.format(body=called, **names))["op"](*arrays)
    error = caught.value.errors[0] if isinstance(caught.value, CompileErrors) else caught.value
    assert error.hint is not None
    said, _, formula = error.hint.partition("; import")[0].partition(" is ")
    assert said == f"{name}({FORMULAS[name][0]})"
    helper = "\n".join([*imports_of(error.hint), f"def {name}({FORMULAS[name][0]}):", f"    return {formula}", ""])
    body = f"{called}[0]" if name == "divmod" else called
    got = kernels_of(helper + TEXT.format(body=body, **names))["op"](*arrays)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)


def test_none_is_known_at_compile_time() -> None:
    text = """from einkorn.dsl import OutputTensor, InputTensor, foreach, register, float32

def shifted(x, by=None):
    if by is None:
        return x
    return x + by

def scaled(x, by=None):
    return x * by if by is not None else x

@register("op")
def op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: shifted(scaled(shifted(x[i]), 2.0), x[i]) if x is not None else 0.0)
"""
    x = np.arange(3, dtype=np.float32)
    assert kernels_of(text)["op"](x).tolist() == [0, 3, 6]
    assert kernels_of(text.replace(" is not None", " != None").replace(" is None", " == None"))["op"](x).tolist() == [
        0,
        3,
        6,
    ]
