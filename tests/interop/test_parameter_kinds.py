"""Parameters that are tuples of ints, by all callers; the width of the vectors of a `foreach`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import CompileError, GraphError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops, parse_graph

from . import parameter_kernels as kernels

FILE = Path(__file__).parent / "parameter_kernels.py"
X = np.arange(5, dtype=np.int32)
I32 = TensorType(DType.int32, ["n"], DeviceRef.CPU())


def expected(weights: tuple[int, ...]) -> Any:
    return X * sum(weights) + sum(range(len(weights)))


@pytest.mark.parametrize("weights", [(), (5,), (1, -2), [3, 4, 5]])
def test_a_parameter_is_a_tuple_of_ints(weights: Any) -> None:
    np.testing.assert_array_equal(kernels.weighted(X, weights=weights), expected(tuple(weights)))
    np.testing.assert_array_equal(kernels.weighted(X), expected((1, 2, 3)))


@pytest.mark.parametrize("wrong", [3, "a", (1.0,), (True,), ((1,),), None])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(GraphError, match=r"parameter 'weights' is tuple\[int, ...\]") as caught:
        kernels.weighted(X, weights=wrong)
    assert caught.value.code == "EK0322"


def test_the_signature_shows_it() -> None:
    assert "weights: tuple[int, ...] = (1, 2, 3)" in str(inspect.signature(kernels.weighted))


def test_graphs_have_it_in_their_text() -> None:
    def forward(x: Any) -> Any:
        return ops.custom("weighted", DeviceRef.CPU(), [x], [I32], parameters={"weights": (4, 5)})

    graph = Graph("g", forward, [I32], custom_extensions=[FILE])
    again = parse_graph(str(graph), custom_extensions=[FILE])
    assert str(again) == str(graph) and "{weights = (4, 5)}" in str(graph)
    for each in (graph, again):
        np.testing.assert_array_equal(InferenceSession().load(each)(X)[0].to_numpy(), expected((4, 5)))


def test_a_package_carries_it(tmp_path: Path) -> None:
    package = tmp_path / "kernels.pkg"
    command = [sys.executable, "-m", "einkorn", "build", str(FILE), "-o", str(package)]
    done = subprocess.run([*command, "--param", "weighted.weights=7,8"], capture_output=True, text=True)
    if done.returncode:  # without a choice of parameters
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    graph = Graph(
        "g",
        lambda x: ops.custom("weighted", DeviceRef.CPU(), [x], [I32], parameters={"weights": [7, 8]}),
        [I32],
        custom_extensions=[package],
    )
    np.testing.assert_array_equal(InferenceSession().load(graph)(X)[0].to_numpy(), expected((7, 8)))


def test_pytorch_passes_it() -> None:
    torch = pytest.importorskip("torch")
    import einkorn.torch

    op = einkorn.torch.op(kernels.weighted)
    x = torch.from_numpy(X)
    assert torch.equal(op(x), torch.from_numpy(expected((1, 2, 3))))
    assert torch.equal(op(x, weights=[4, 5]), torch.from_numpy(expected((4, 5))))
    compiled = torch.compile(lambda t: op(t, weights=[6]), backend="eager")
    assert torch.equal(compiled(x), torch.from_numpy(expected((6,))))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (33, 70)])
def test_vectors_of_any_width_compute_the_same(width: int, shape: tuple[int, int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(kernels.in_vectors(x, width=width), x * 2 + 1)
    np.testing.assert_array_equal(kernels.turned_in_vectors(x, width=width), x.T * 2 + 1)


@pytest.mark.parametrize("width", [0, 3, -4, 2048])
def test_a_width_is_a_power_of_two(width: int) -> None:
    with pytest.raises(CompileError) as caught:
        kernels.in_vectors(np.ones((1, 2), np.float32), width=width)
    assert caught.value.code == "EK0846"


@pytest.mark.as_shipped
def test_the_width_is_that_of_the_code() -> None:
    from einkorn.compiler.targets import lookup

    if lookup("host").vector_bits < 256:
        pytest.skip("the vectors of this machine are short")
    texts = {}
    for width in (1, 4):
        command = [sys.executable, "-m", "einkorn", "inspect", str(FILE), "--op", "in_vectors", "--stage", "llvm"]
        done = subprocess.run([*command, "--param", f"width={width}"], capture_output=True, text=True)
        texts[width] = done.stdout
    assert "<4 x float>" in texts[4] and "<8 x float>" not in texts[4]
    assert "x float>" not in texts[1]
