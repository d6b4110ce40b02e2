"""Kernels under `@register(..., override=True)`: in the place of built-in ops, and of ops of other libraries."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, PackageError
from einkorn.dsl.package.library import load_library
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, KernelLibrary, TensorType, ops
from einkorn.graph.staging.kernels import kernel_family, shipped_names

HOST = DeviceRef.CPU()
F32 = TensorType(DType.float32, ["n"])
HEAD = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, Numeric, OutputTensor, float32, foreach, register
from einkorn.stdlib import Sum, reduce

T = TypeVar("T", bound=Numeric)
"""
RELU = """
@register("relu", override=True)
def leaky(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] if x[i] > 0 else x[i] * 0.5)
"""
ADD = """
@register("add", override=True)
def add(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], y: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] + y[i] + 1000.0)
"""
X = np.array([-2, -1, 0, 1, 2], np.float32)


def library(path: Path, text: str) -> Path:
    path.write_text(HEAD + text)
    return path


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    return library(tmp_path / "relu_kernels.py", RELU)


def forward(x: Any) -> Any:
    return ops.relu(x) * 2 + 1


def results(graph: Graph, *arrays: Any, **session: Any) -> list[Any]:
    return [each.to_numpy() for each in InferenceSession(**session).load(graph)(*arrays)]


WANTED = np.where(X > 0, X, X * 0.5) * 2 + 1


@pytest.mark.parametrize("interpret", [False, True])
def test_a_built_in_op_is_overridden_where_the_kernel_is_given(relu: Path, interpret: bool) -> None:
    plain, mine = Graph("g", forward, [F32]), Graph("g", forward, [F32], custom_extensions=[relu])
    for _ in range(2):  # what is kept for one graph is not taken for the other
        np.testing.assert_array_equal(results(plain, X, interpret=interpret)[0], np.maximum(X, 0) * 2 + 1)
        np.testing.assert_array_equal(results(mine, X, interpret=interpret)[0], WANTED)
    loaded = KernelLibrary([relu])
    np.testing.assert_array_equal(results(Graph("g", forward, [F32], kernel_library=loaded), X)[0], WANTED)
    kernel = load_library(relu).kernels["relu"]
    assert kernel.schema.override
    y = results(Graph("g", lambda x: ops.custom("relu", HOST, [x])[0], [F32], custom_extensions=[relu]), X)[0]
    np.testing.assert_array_equal(y, np.where(X > 0, X, X * 0.5))


def test_it_is_fused_as_any_op(relu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))  # code of the cache has no entry
    model = InferenceSession().load(Graph("g", forward, [F32], custom_extensions=[relu]))
    entry = model.code.plan.entry
    assert entry is not None and [len(group.nodes) for group in entry.groups if len(group.nodes) > 1]
    assert len(entry.groups) == 1


def test_other_dtypes_stay_with_the_built_in_op(relu: Path, tmp_path: Path) -> None:
    add = library(tmp_path / "add_kernels.py", ADD)

    def both(x: Any, k: Any) -> Any:
        rounds = ops.while_loop((k, 0), lambda k, n: n < 3, lambda k, n: (k + 2, n + 1))
        return ops.relu(ops.cast(x, DType.float64)), rounds[0], x + x

    graph = Graph("g", both, [F32, TensorType(DType.int64, [])], custom_extensions=[relu, add])
    collected = results(graph, X, np.int64(1))
    np.testing.assert_array_equal(collected[0], np.maximum(X, 0))
    assert collected[1] == 7
    np.testing.assert_array_equal(collected[2], X + X + 1000)


def test_a_session_overrides_in_graphs_that_were_staged_without(relu: Path) -> None:
    graph = Graph("g", lambda x: (forward(x), ops.relu(ops.cast(x, DType.float64))), [F32])
    model = InferenceSession().load(graph, custom_extensions=[relu])
    actual = [each.to_numpy() for each in model(X)]
    np.testing.assert_array_equal(actual[0], WANTED)
    np.testing.assert_array_equal(actual[1], np.maximum(X, 0))
    np.testing.assert_array_equal(results(graph, X)[0], np.maximum(X, 0) * 2 + 1)


def test_in_subgraphs_and_bodies(relu: Path) -> None:
    def outer(x: Any) -> Any:
        part = Graph.current.add_subgraph("part", forward, [F32])
        called = ops.call(part, x)[0]
        return ops.while_loop((called, 0), lambda x, n: n < 1, lambda x, n: (ops.relu(x), n + 1))[0]

    actual = results(Graph("g", outer, [F32], custom_extensions=[relu]), X)[0]
    np.testing.assert_array_equal(actual, np.where(WANTED > 0, WANTED, WANTED * 0.5))


def test_in_packages(relu: Path, tmp_path: Path) -> None:
    run = graphs.python(
        "import sys\nfrom einkorn.cli.application import main\n"
        "sys.exit(main(['build', sys.argv[1], '-o', sys.argv[2]]))",
        str(relu),
        str(tmp_path / "relu.pkg"),
    )
    assert run.returncode == 0, run.stderr
    relu.unlink()
    graph = Graph("g", forward, [F32], custom_extensions=[tmp_path / "relu.pkg"])
    np.testing.assert_array_equal(results(graph, X)[0], WANTED)


def test_in_pickles(relu: Path) -> None:
    kernel = load_library(relu).kernels["relu"]
    again = pickle.loads(pickle.dumps(kernel))
    assert again.schema.override and again.portable.digest == kernel.portable.digest
    model = InferenceSession().load(Graph("g", forward, [F32], custom_extensions=[relu]))
    data = pickle.dumps(model)
    relu.unlink()
    np.testing.assert_array_equal(pickle.loads(data)(X)[0].to_numpy(), WANTED)


def test_of_two_libraries_the_one_that_overrides_counts(tmp_path: Path) -> None:
    plain = library(
        tmp_path / "plain.py",
        RELU.replace('"relu", override=True', '"mine"').replace("0.5", "0.25"),
    )
    overriding = library(tmp_path / "overriding.py", RELU.replace('"relu"', '"mine"'))
    for order in ([plain, overriding], [overriding, plain]):
        graph = Graph("g", lambda x: ops.custom("mine", HOST, [x])[0], [F32], custom_extensions=order)
        np.testing.assert_array_equal(results(graph, X)[0], np.where(X > 0, X, X * 0.5))
    with pytest.raises(PackageError) as caught:
        Graph("g", forward, [F32], custom_extensions=[plain, library(tmp_path / "third.py", plain.read_text())])
    assert caught.value.code == "EK0443"


def test_what_cannot_override(tmp_path: Path) -> None:
    cases = {
        "EK0418": RELU.replace('"relu"', '"rleu"'),
        "EK0417": ADD.replace("y: In", "z: In").replace("y[i]", "z[i]"),
    }
    for code, text in cases.items():
        path = library(tmp_path / f"{code}.py", text)
        with pytest.raises(PackageError) as caught:
            Graph("g", lambda x: x + x, [F32], custom_extensions=[path])
        error = caught.value
        assert error.code == code and error.place is not None and error.place.file == str(path), error
    named = library(tmp_path / "sums.py", RELU.replace('"relu"', '"sum"'))
    with pytest.raises(PackageError, match="override=True, and there is no op of this name") as caught:
        Graph("g", forward, [F32], custom_extensions=[named])
    assert caught.value.hint == "ops.sum runs the kernel 'reduce_sum'"
    rank = library(tmp_path / "rank.py", RELU.replace('"*s"', '"a b"'))
    with pytest.raises(EinkornError) as other:
        Graph("g", forward, [F32], custom_extensions=[rank])
    assert other.value.op == "relu" and not isinstance(other.value, DTypeError), other.value


def test_the_names_of_built_in_kernels_are_known_without_reading_them() -> None:
    names = shipped_names()
    assert names == {name: file for file in set(names.values()) for name in kernel_family(file).kernels}
