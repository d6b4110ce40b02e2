"""Tables of constants, blocks of memory, pointers to another dtype; instructions, intrinsics and functions by name."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import CompileError, KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

FILE = Path(__file__).parent / "native_kernels.py"
X = np.float32([1, -2.5, 0, 3e38, -0.0])
K = np.int32([0, 2, 1, 3, 2])
BITS = np.array([0, 1, 7, 255, -1], np.int32)


def run(name: str, out: Any, *arrays: Any, session: InferenceSession | None = None) -> Any:
    """What a kernel gives for these arrays, in an output like `out`."""
    session = session or InferenceSession()
    device = session.devices[0]
    where = DeviceRef.from_device(device)
    types = [TensorType(DType.from_numpy(each.dtype), each.shape, where) for each in (*arrays, out)]
    graph = Graph(name, lambda *v: ops.custom(name, where, list(v), types[-1:]), types[:-1], custom_extensions=[FILE])
    return session.load(graph)(*(Buffer.from_numpy(each).to(device) for each in arrays))[0].to_numpy()


def sessions() -> list[Any]:
    return [
        pytest.param(lambda: InferenceSession(), id="compiled"),
        pytest.param(lambda: InferenceSession(checks="all"), id="all checks"),
        pytest.param(lambda: InferenceSession(interpret=True), id="interpreted"),
        pytest.param(lambda: InferenceSession([Accelerator("sim")]), id="simulated"),
        pytest.param(lambda: InferenceSession([Accelerator("sim", checks="all")]), id="simulated, all checks"),
    ]


@pytest.mark.parametrize("session", sessions())
def test_tables_lie_in_the_code(session: Any) -> None:
    wanted = np.float32([1.0, 2.5, -3.25, 0.0])[K] + 3 * np.float32([-4, 5, 6])[K % 3]
    np.testing.assert_array_equal(run("looked_up", X, K, session=session()), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("session", sessions()[::2])
def test_tables_of_any_dtype(session: Any, dtype: str) -> None:
    out = np.zeros(3, DType[dtype].to_numpy())
    np.testing.assert_array_equal(run("rounded_table", out, session=session()).astype(float), [0, 1, 2])


def test_an_index_beyond_a_table_is_found() -> None:
    with pytest.raises(KernelError, match="axis 0 of 'constant_table', whose size is 4"):
        run("looked_up", X, np.int32([0, 1, 4, 0, 0]))


@pytest.mark.parametrize("session", sessions()[:3])
def test_pointers_to_another_dtype(session: Any) -> None:
    wanted = X.view(np.uint8).reshape(-1, 4)
    np.testing.assert_array_equal(run("bytes_of", wanted, X, session=session()), wanted)
    data = np.random.default_rng(0).integers(0, 256, (5, 8), np.uint8)
    numbers = data.view(np.uint64).reshape(-1)
    np.testing.assert_array_equal(run("from_bytes", numbers, data, session=session()), numbers)


@pytest.mark.parametrize("session", sessions()[:3])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 1000])
def test_blocks_are_copied_and_filled(session: Any, size: int) -> None:
    for dtype in (np.float32, np.int8, np.uint16):
        x = np.arange(size).astype(dtype)
        wanted = np.where(np.arange(size) < size // 2, x, np.array(7, dtype))
        np.testing.assert_array_equal(run("blocks", x, x, session=session()), wanted)


def test_intrinsics_by_name() -> None:
    np.testing.assert_array_equal(run("counted", BITS, BITS), [0, 1, 3, 8, 32])
    x, y = np.uint32([1, 0x80000001]), np.uint32([0xF8000000, 1])
    np.testing.assert_array_equal(run("funnelled", x, x, y), (x << np.uint32(5)) | (y >> np.uint32(27)))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the instruction is one of x86")
def test_instructions_by_name() -> None:
    x = np.uint32([1, 0x01020304])
    np.testing.assert_array_equal(run("byte_swapped", x, x), x.byteswap())


@pytest.mark.parametrize("session", [sessions()[0], sessions()[2]])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no C library in the process")
def test_functions_of_libraries(session: Any) -> None:
    x = np.array([3.0, 0.0, -1.0])
    np.testing.assert_array_equal(run("hypotenuse", x, x, session=session()), np.hypot(x, 4))
    np.testing.assert_array_equal(run("copied_by_c", X, X, session=session()), X)


def test_the_interpreter_refuses_instructions() -> None:
    for name in ("counted", "byte_swapped"):
        data = BITS if name == "counted" else BITS.view(np.uint32)
        with pytest.raises(KernelError) as caught:
            run(name, data, data, session=InferenceSession(interpret=True))
        assert caught.value.code == "EK0912" and "native_kernels.py" in str(caught.value)


HEAD = """from einkorn.dsl import *

@register("wrong")
def wrong(out: OutputTensor[{0}, "n"], x: InputTensor[{0}, "n"]):
"""
WRONG = {
    "an unknown intrinsic": ("int32", "llvm_intrinsic('llvm.nonsense.i32', int32, x[i])", "unknown intrinsic"),
    "other types": ("int32", "llvm_intrinsic('llvm.ctpop.i32', int32, x[i], x[i])", "LLVM does not take"),
    "no intrinsic": ("int32", "llvm_intrinsic('ctpop', int32, x[i])", "the name of an intrinsic"),
    "unknown instructions": ("int32", "inline_assembly('nonsense $0', int32, x[i], constraints='=r,0')", "nonsense"),
    "wrong constraints": ("int32", "inline_assembly('bswap $0', int32, x[i], constraints='=q!')", "LLVM does not take"),
    "an unknown function": ("float64", "external_call('no_such_function', float64, x[i])", "no library"),
    "a name that is none": ("float64", "external_call('a b', float64, x[i])", "the name of a function"),
    "a number without a dtype": ("float64", "external_call('hypot', float64, x[i], 3)", "native code takes"),
    "a half": ("float16", "external_call('hypot', float16, x[i], x[i])", "native code takes"),
    "a result of nothing": ("float64", "external_call('hypot', 'float64', x[i], x[i])", "the result is a dtype"),
    "a switch": ("int32", "llvm_intrinsic('llvm.ctpop.i32', int32, x[i], has_side_effects=1)", "has_side_effects="),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_llvm_does_not_take_is_an_error(name: str) -> None:
    dtype, body, words = WRONG[name]
    (kernel,) = kernels_of(HEAD.format(dtype) + f"    foreach(out, lambda i: {body})\n").values()
    with pytest.raises(CompileError) as caught:
        kernel(np.ones(3, dtype))
    assert caught.value.code == "EK0911" and words in str(caught.value), caught.value


TABLES = {
    "an unknown dtype": ("constant_table((1, 2), int4)", "EK0208"),
    "rows of other lengths": ("constant_table(((1, 2), (3,)), int32)", "EK0208"),
    "a number that is too large": ("constant_table((1, 300), int8)", "EK0208"),
    "a fraction": ("constant_table((1, 2.5), int32)", "EK0208"),
    "a value": ("constant_table((1, x[0]), int32)", "EK0208"),
    "nothing": ("constant_table((), int32)", "EK0217"),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_table(name: str) -> None:
    body, code = TABLES[name]
    (kernel,) = kernels_of(HEAD.format("int32") + f"    t = {body}\n    foreach(out, lambda i: x[i] + t[0])\n").values()
    with pytest.raises(CompileError) as caught:
        kernel(np.ones(3, np.int32))
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize("body", ["x.pointer().bitcast(int4)", "x.pointer().bitcast(bool8)", "x.pointer().bitcast(8)"])
def test_what_no_pointer_points_to(body: str) -> None:
    (kernel,) = kernels_of(HEAD.format("int32") + f"    p = {body}\n    foreach(out, lambda i: x[i])\n").values()
    with pytest.raises(CompileError) as caught:
        kernel(np.ones(3, np.int32))
    assert caught.value.code == "EK0208"


def test_a_pointer_of_an_input_stays_read_only() -> None:
    body = "    p = x.pointer().bitcast(uint8)\n    p[0] = 3\n    foreach(out, lambda i: x[i])\n"
    (kernel,) = kernels_of(HEAD.format("int32") + body).values()
    with pytest.raises(CompileError) as caught:
        kernel(np.ones(3, np.int32))
    assert caught.value.code == "EK0211"
