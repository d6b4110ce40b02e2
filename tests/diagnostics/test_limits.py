"""Small inputs that would take much time or memory, and limits of the system: errors that say what is so."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor
from support import graphs

from einkorn import functional as F
from einkorn.dsl.diagnostics.code_keys import code_key
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.package.library import load_library
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.loading import load

HOST = DeviceRef.CPU()


# *** code ***


def nested(depth: int, inner: str = "v + 1.0") -> str:
    for _ in range(depth):
        inner = f"(lambda v: {inner})(v)"
    return inner


def test_functions_nested_40_deep(tmp_path: Path) -> None:
    """Code objects are compared in time that grows with their text; `==` of CPython takes twice as long a level."""
    (tmp_path / "deep.py").write_text(
        "from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register\n\n"
        '@register("deep")\ndef deep(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n'
        f"    foreach(out, lambda i: (lambda v: {nested(40)})(x[i]))\n"
    )
    graph = Graph(
        "g",
        lambda x: ops.custom("deep", HOST, [x])[0],
        [TensorType(DType.float32, ["n"])],
        custom_extensions=[tmp_path / "deep.py"],
    )
    assert InferenceSession().load(graph)(np.ones(2, np.float32))[0].to_numpy().tolist() == [2, 2]
    assert load_library(tmp_path).kernels["deep"].schema.place is not None


TEXTS = [
    "def f(a, /, b=1, *c, d=2.0, **e): return a",
    "def f(a, b=1, *c, d=2.0, **e): return a",
    "def f(x): return x + 0.0",
    "def f(x): return x + -0.0",
    "def f(x): return x + 0",
    "def f(x): return x + False",
    "def f(x): return x in {1, 2, 3}",
    "def f(x): return x in {1, 2, 4}",
    "def f(x): return x in (1, 2, (3, 'a'))",
    "def f(x): return lambda y: x + y",
    "def f(x): return lambda y: x - y",
    "def f(x):  return lambda y: x - y",
    "def f(x): return (1j, b'a', None, ...)",
    "class C:\n    def f(self): return 1",
    "class D:\n    def f(self): return 1",
]


def test_keys_of_code_are_equal_where_code_is() -> None:
    def codes(text: str) -> list[CodeType]:
        actual = [compile(text, "<one>", "exec")]
        for code in actual:
            actual += [each for each in code.co_consts if isinstance(each, CodeType)]
        return actual

    first = [code for text in TEXTS for code in codes(text)]
    again = [code for text in TEXTS for code in codes(text)]
    for one in first:
        for other in again:
            assert (code_key(one) == code_key(other)) == (one == other), (one, other)


# *** memory ***


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (lambda: Tensor.zeros([2**40, 2**40]), "full"),
        (lambda: Tensor.ones([2**63 - 1, 2]), "full"),
        (lambda: Tensor.full([2**62], 1, dtype=DType.int64), "full"),
        (lambda: F.broadcast_to(Tensor.zeros([1]), [2**40, 2**40]), "broadcast_to"),
        (lambda: F.tile(Tensor.zeros([4]), [2**61]), "tile"),
    ],
)
def test_tensors_that_64_bits_do_not_count(make: Any, op: str) -> None:
    with pytest.raises(EinkornError, match="more than 64 bits count") as caught:
        make()
    assert caught.value.code == "EK0476" and op in caught.value.message
    assert caught.value.place is not None and caught.value.place.file == __file__


@pytest.mark.parametrize("part", ["tensor.np.full", "moves.np.broadcast_to"])
def test_tensors_that_no_memory_holds(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise MemoryError  # as NumPy does; a system may promise memory that it does not have

    one = Tensor.zeros([1])
    monkeypatch.setattr(f"einkorn.graph.eager.{part}", refuse)
    with pytest.raises(EinkornError, match="bytes, which cannot be allocated") as caught:
        Tensor.zeros([2**40]) if "full" in part else F.broadcast_to(one, [2**40])
    assert caught.value.code == "EK0813"
    assert caught.value.place is not None and caught.value.place.file == __file__


LIMITED = """
import resource
import numpy as np
from einkorn.graph import DType, Graph, InferenceSession, TensorType, ops

with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2)
try:
    InferenceSession().load(Graph("g", lambda x: ops.exp(x), [TensorType(DType.float32, ["n"])]))
except Exception as error:
    print(error.code, error.message, error.hint)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_a_compiler_that_a_limit_of_memory_keeps_out(tmp_path: Path) -> None:
    run = graphs.python(LIMITED, EINKORN_CACHE_DIR=str(tmp_path))
    assert "EK0602 the MLIR bindings cannot be loaded" in run.stdout, run
    assert "(ulimit -v); raise this limit" in run.stdout


def test_code_that_a_limit_of_memory_keeps_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    graph = Graph("g", lambda x: ops.exp(x) + 17.25, [TensorType(DType.float32, ["n"])])

    def refuse(*_: Any) -> Any:
        raise OSError("g.so: failed to map segment from shared object")

    monkeypatch.setattr(load, "open_code", refuse)
    for limit, hint in ((resource.RLIM_INFINITY, "EINKORN_CACHE_DIR"), (300 << 20, "300 MiB of memory at most")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        with graphs.cache_in(tmp_path / hint[:3]), pytest.raises(EinkornError) as caught:
            InferenceSession().load(graph)
        assert caught.value.code == "EK0518" and hint in str(caught.value.hint)


# *** handlers of signals ***


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_a_first_call_in_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while an op of the program is staged, and stages one of its own."""
    collected: list[Any] = []
    x = Tensor.constant(np.arange(7, dtype=np.float64).reshape(1, 7, 1))

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            collected.append((F.sin(x) - 4.5).to_numpy())
        except EinkornError as error:
            collected.append(error)

    stage, calls = Graph.stage, iter(range(100))

    def staging(*args: Any, **keywords: Any) -> Any:
        if next(calls) == 0:
            signal.raise_signal(signal.SIGUSR1)
        return stage(*args, **keywords)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(Graph, "stage", staging)
        mine = (F.cos(x) * 2.5).to_numpy()
    finally:
        signal.signal(signal.SIGUSR1, before)
    np.testing.assert_allclose(mine, np.cos(x.to_numpy()) * 2.5)
    assert len(collected) == 1 and isinstance(collected[0], np.ndarray), collected
    np.testing.assert_allclose(collected[0], np.sin(x.to_numpy()) - 4.5)
