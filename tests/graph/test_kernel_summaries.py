"""What a model says of its kernels; fused kernels next to their ops; progress of a compilation."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.calling.call import Caller
from einkorn.graph.checking import fusion_check
from einkorn.graph.engine.model import Model
from einkorn.graph.loading import progress

HOST = DeviceRef.CPU()
F32 = np.float32
VECTOR = [TensorType(DType.float32, ["n"], HOST)]
KERNELS = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register


@register("closed", fuse=False, writes_once=True)
def closed(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] + 1.0)


@register("lines")
def lines(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i]
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS)
    return [path]


def reasons(model: Model) -> list[str]:
    return [edge.reason for kernel in model.kernel_summaries for edge in kernel.unfused]


# *** summaries ***


def test_what_is_fused_into_what() -> None:
    model = graphs.load(lambda x, w: ops.relu((x * 2.0) @ w + 1.0), (F32, ["n", 4]), (F32, [4, 3]))
    (kernel,) = model.kernel_summaries
    roles = {op.role: [each.name for each in kernel.ops if each.role == op.role] for op in kernel.ops}
    assert kernel.name == "matmul" and kernel.unfused == () and roles["root"] == ["matmul"]
    assert "mul" in roles["read"] and roles["store"][-2:] == ["add", "relu"]
    assert all(op.place is not None and op.place.file == __file__ for op in kernel.ops)
    assert "does where it stores: add" in str(kernel) and Path(__file__).name in str(kernel)


def dear(x: Any) -> Any:
    for _ in range(60):
        x = ops.tanh(x) + 0.5
    return x


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an output": (lambda x: [(y := x + 1.0), ops.softmax(y)], "it is an output of the graph"),
    "two loops": (lambda x: ops.softmax(ops.softmax(x)), "no element of 'softmax' can be computed alone, and neither"),
    "read again": (lambda x: ops.softmax(ops.exp(x)), "its elements are read"),
    "dear": (dear, "operations with all before it"),
    "stored": (lambda x: ops.softmax(ops.relu(ops.softmax(x))), "'relu' is done in the stores of the kernel before it"),
    "closed": (lambda x: ops.custom("closed", HOST, [x])[0] * 2.0, "'closed' is registered with fuse=False"),
    "no promise": (
        lambda x: ops.custom("lines", HOST, [ops.reshape(x, [-1])])[0] * 2.0,
        "'lines' does not promise to store each element once",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_edge_has_its_reason(case: str, kernels: list[Path]) -> None:
    forward, wanted = CASES[case]
    model = graphs.load(forward, (F32, ["n", 4]), extensions=kernels)
    actual = reasons(model)
    assert any(wanted in reason for reason in actual)
    edges = [edge for kernel in model.kernel_summaries for edge in kernel.unfused]
    stored = {op.node for kernel in model.kernel_summaries for op in kernel.ops}
    assert all(edge.producer.node in stored and edge.reader.node in stored for edge in edges)


def test_an_interpreted_graph_says_that_nothing_is_fused() -> None:
    graph = graphs.build(lambda x: ops.relu(x + 1.0), (F32, ["n"]))
    assert "interpreted" in reasons(InferenceSession(interpret=True).load(graph))[0]


def test_buffers_and_control_flow_have_reasons() -> None:
    def forward(b: Any, p: Any) -> Any:
        before = ops.buffer_load(b)
        x = before + 1.0
        b[...] = x
        y = ops.cond(p, VECTOR, lambda: ops.exp(x), lambda: ops.log(before))[0]
        return y * 2.0

    types = [BufferType(DType.float32, ["n"], HOST), TensorType(DType.bool, [], HOST)]
    actual = reasons(InferenceSession().load(Graph("flow", forward=forward, input_types=types)))
    assert any("changes or reads a buffer" in reason for reason in actual)
    assert any("different control flow bodies" in reason for reason in actual)


# *** fused next to unfused ***


@pytest.fixture
def verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_VERIFY_FUSION", "1")


def network(x: Any, w: Any) -> Any:
    y = ops.softmax((x * 2.0) @ w + 1.0) * 3.0
    mean = ops.mean(y, -1)
    return [ops.gelu(y - mean), ops.cast(ops.exp(mean) * 10.0, DType.int32), y > 1.0]


@pytest.mark.usefixtures("verifying")
@pytest.mark.parametrize("dtype", graphs.FLOATS, ids=lambda t: np.dtype(t).name)
def test_fused_kernels_agree_with_their_ops(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = fusion_check.FusionCheck._compare_group

    def noted(self: Any, group: Any, *rest: Any) -> None:
        compared.append(group.root)
        compare(self, group, *rest)

    monkeypatch.setattr(fusion_check.FusionCheck, "_compare_group", noted)
    model = graphs.load(network, (dtype, ["n", 4]), (dtype, [4, 4]))
    for rows in (3, 0, 3):
        model(graphs.numbers((rows, 4), dtype), graphs.numbers((4, 4), dtype).T)
    assert len(compared) == 3 * len(set(compared)) and len(set(compared)) >= 3


@pytest.mark.usefixtures("verifying")
def test_special_values_are_the_same_on_both_sides() -> None:
    model = graphs.load(lambda x: ops.relu(ops.exp(x) - x * 2.0), (F32, ["n"]))
    model(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38], F32))


@pytest.mark.usefixtures("verifying")
def test_buffers_bodies_and_sizes_on_the_way_are_run_as_before() -> None:
    def forward(b: Any, p: Any) -> Any:
        before = ops.buffer_load(b)
        ops.buffer_store(b, ops.exp(before * 0.5) + 1.0)
        y = ops.cond(p, VECTOR, lambda: ops.exp(before) + 1.0, lambda: ops.log(before) + 1.0)[0]
        return ops.relu(y * 2.0 - 1.0)

    types = [BufferType(DType.float32, ["n"], HOST), TensorType(DType.bool, [], HOST)]
    model = InferenceSession().load(Graph("flow", forward=forward, input_types=types))
    memory = np.zeros(3, F32)
    result = model(memory, True)[0].to_numpy()
    np.testing.assert_allclose(memory, np.full(3, 2.0), rtol=1e-6)  # changed once
    np.testing.assert_allclose(result, np.full(3, 3.0), rtol=1e-6)


@pytest.mark.usefixtures("verifying")
def test_a_difference_is_named_with_op_element_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused kernels give one element that they should not."""
    run = Caller.run

    def wrong(self: Caller, inputs: Any) -> Any:
        results = run(self, inputs)
        if self.ir.name == "test" and len(self.ir.outputs) > 1:
            results[-1].to_numpy()[1, 2] += 1e-3
        return results

    model = graphs.load(lambda x: ops.relu(ops.softmax(ops.softmax(x) * 2.0) + 1.0), (F32, ["n", 3]))
    x = graphs.numbers((2, 3), F32)
    model(x)
    monkeypatch.setattr(Caller, "run", wrong)
    with pytest.raises(
        KernelError, match=r"element \[1, 2\] of the result of op 'relu' is .* and .* one by one"
    ) as caught:
        model(x)
    assert caught.value.code == "EK0520" and caught.value.index == (1, 2)
    assert "at most" in str(caught.value.expected) and "softmax" in str(caught.value) and caught.value.place is not None


def test_what_the_dtypes_allow() -> None:
    between = fusion_check._Difference.between
    ones = np.ones(4, F32)
    near, far = ones.copy(), ones.copy()
    near[1], far[3] = 1 + 4e-6, 1 + 1e-4
    assert between(near, ones, [ones], 2.0**-23) is None
    actual = between(far, ones, [ones], 2.0**-23)
    assert actual is not None and actual.index == (3,) and actual.count == 1
    assert between(far, ones, [near * F32(1.0001)], 2.0**-23) is None  # its ops are as sensitive
    flags = np.array([True, False])
    assert between(~flags, flags, [~flags], 0.0) is None and between(~flags, flags, [flags], 0.0) is not None


# *** progress ***


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("watched", [True, False])
def test_long_compilations_show_how_far_they_are(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if watched else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress.shown_progress("encoder [0]") as report:
        report(1, 3)
        for _ in range(500 if watched else 1):
            time.sleep(0.01)
            if "1 of 3 kernels" in stream.getvalue():
                break
        report(3, 3)
    assert ("compiling graph 'encoder [0]'" in stream.getvalue() and "1 of 3" in stream.getvalue()) is watched
    monkeypatch.setenv("EINKORN_PROGRESS", "0")
    length = len(stream.getvalue())
    with progress.shown_progress("encoder") as report:
        report(1, 3)
        time.sleep(0.02)
    assert len(stream.getvalue()) == length


def test_short_compilations_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.shown_progress("short") as report:
        report(1, 1)
    assert stream.getvalue() == ""


def test_numbers_and_weights_without_axes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy makes rank 1 of them when it makes them contiguous."""
    monkeypatch.setenv("EINKORN_VERIFY_FUSION", "1")
    scale = Weight("scale", DType.float32, [], graphs.HOST)
    graph = graphs.build(lambda x, t: ops.exp(x / t * scale) + t, (np.float32, ["n"]), (np.float32, []))
    model = InferenceSession().load(graph, weights_registry={"scale": np.array(2, np.float32)})
    np.testing.assert_allclose(model(np.float32([0, 1]), 2.0)[0].to_numpy(), np.exp([0, 1]) + 2, rtol=1e-6)


def test_a_notebook_shows_a_line_without_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(progress, "interactive_shell", lambda: SimpleNamespace(kernel="of Jupyter"))
    with progress.shown_progress("encoder") as report:
        while not written.getvalue():
            time.sleep(0.001)
        report(2, 5)
    lines = written.getvalue().split("\r")
    assert lines[:3] == ["", "compiling graph 'encoder'", "compiling graph 'encoder': 2 of 5 kernels"]
    assert [line.strip() for line in lines[3:]] == ["", ""] and len(lines[3]) == len(lines[2])
