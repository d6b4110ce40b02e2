"""Constants and custom ops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, PackageError
from einkorn.dsl.package.library import load_library
from einkorn.dsl.signature.schema import OpSchema, Role
from einkorn.dsl.types.dtype import DType
from einkorn.graph import Buffer, DeviceRef, Dim, Graph, TensorType, TensorValue, ops
from einkorn.graph.ir import ConstantTensor, Node
from einkorn.graph.staging.kernels import open_kernels

pytestmark = pytest.mark.usefixtures("kernels")

Shape = list[Any]


def typed(*shapes: Shape, dtype: DType = DType.float32) -> list[TensorType]:
    return [TensorType(dtype, shape) for shape in shapes]


def stage(forward: Callable[..., Any], *shapes: Shape, dtype: DType = DType.float32) -> Graph:
    return Graph("g", forward, typed(*shapes, dtype=dtype))


def refused(code: str, forward: Callable[..., Any], *shapes: Shape, dtype: DType = DType.float32) -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        stage(forward, *shapes, dtype=dtype)
    assert caught.value.code == code, caught.value
    assert caught.value.place is not None and caught.value.place.file == __file__
    return caught.value


# --- constants ---


@pytest.mark.parametrize(
    ("value", "dtype", "result"),
    [
        (1, None, DType.int64),
        (1.5, None, DType.float32),
        (True, None, DType.bool),
        ([[1.0, 2.0]], None, DType.float32),
        ([1, 2], DType.bfloat16, DType.bfloat16),
        (np.ones(2), None, DType.float64),
        (np.float16(2), None, DType.float16),
        (0.1, DType.float64, DType.float64),
        ([3.0, -4.0], DType.int8, DType.int8),
        (2**63, DType.uint64, DType.uint64),
        (Buffer.zeros((2, 3), DType.bfloat16), None, DType.bfloat16),
    ],
)
def test_constants(value: Any, dtype: DType | None, result: DType) -> None:
    with Graph("g") as graph:
        made = ops.constant(value, dtype, DeviceRef.CPU())
        graph.output(made)
    (node,) = graph.ir.nodes
    assert isinstance(node, ConstantTensor) and made.dtype is result
    expected = value.to_numpy() if isinstance(value, Buffer) else np.asarray(value)
    assert node.array.shape == expected.shape == tuple(made.shape)
    assert (node.array == expected.astype(result.to_numpy())).all()
    assert node.array.flags.c_contiguous and not node.array.flags.writeable


def test_constants_are_copies() -> None:
    array = np.zeros(3)
    with Graph("g") as graph:
        graph.output(ops.constant(array))
    array[0] = 1
    assert array.flags.writeable and graph.ir.nodes[0].array.tolist() == [0, 0, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "dtype", "code"),
    [
        (300, DType.int8, "EK0412"),
        (-1, DType.uint8, "EK0412"),
        (1.5, DType.int32, "EK0412"),
        (float("nan"), DType.int32, "EK0412"),
        (2.0**63, DType.int64, "EK0412"),
        (1e39, DType.float32, "EK0412"),
        (2, DType.bool, "EK0412"),
        ([[1], [2, 3]], None, "EK0412"),
        ("x", None, "EK0413"),
        (1j, DType.float32, "EK0412"),
        (None, None, "EK0413"),
    ],
)
def test_constants_that_cannot_be(value: Any, dtype: DType | None, code: str) -> None:
    refused(code, lambda: ops.constant(value, dtype))


# --- custom ---


def custom_graph(kernels: Any, schema: OpSchema, forward: Callable[..., Any], *shapes: Shape) -> Graph:
    kernels.custom[schema.name] = schema
    return Graph("g", forward, typed(*shapes), custom_extensions=["kernels/", "more.pkg"])


def call(*args: Any, **keywords: Any) -> Callable[..., Any]:
    return lambda *values: ops.custom("mine", DeviceRef.CPU(), list(values), *args, **keywords)


def test_custom_infers(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    mine = schema("mine", "T m (n + pad) -> int64 n", "T m n", "T n", parameters=[("pad", "int"), ("mode", "str")])
    graph = custom_graph(kernels, mine, call(parameters={"mode": "fast", "pad": 2}), ["rows", "k"], ["k"])
    assert graph.output_types == [TensorType(DType.float32, ["rows", Dim("k") + 2]), TensorType(DType.int64, ["k"])]
    (node,) = graph.ir.nodes
    assert isinstance(node, Node) and node.operands == (0, 1) and node.results == (2, 3)
    assert node.parameters == (("pad", 2), ("mode", "fast"))
    assert [str(path) for path in graph.kernel_libraries_paths] == ["kernels", "more.pkg"]


def test_custom_checks_out_types(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    mine = schema("mine", "T n", "T n")
    assert custom_graph(kernels, mine, call(typed(["n"])), ["n"]).output_types == typed(["n"])
    for out_types, code in [
        (typed([3]), "EK0312"),
        (typed(["n"], dtype=DType.int8), "EK0317"),
        (typed(["n"], ["n"]), "EK0310"),
        ([TensorType(DType.float32, ["n"], DeviceRef.GPU())], "EK0430"),
        ([DType.float32], "EK0441"),
    ]:
        with pytest.raises(EinkornError) as caught:
            custom_graph(kernels, mine, call(out_types), ["n"])
        assert caught.value.code == code and caught.value.place and caught.value.place.file == __file__


def test_custom_out_types_settle_what_inputs_leave_open(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    mine = schema("mine", "U m", "T n")
    graph = custom_graph(kernels, mine, call(typed([5], dtype=DType.int8)), ["n"])
    assert graph.output_types == typed([5], dtype=DType.int8)
    with pytest.raises(EinkornError):
        custom_graph(kernels, mine, call(), ["n"])


def test_custom_checks_the_call(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    mine = schema("mine", "T n", "T n", parameters=[("size", "int")])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"parameters": {"size": 1.5}}, "EK0322"),
        ({"parameters": {"sise": 1}}, "EK0320"),
        ({}, "EK0321"),
    ]
    for keywords, code in cases:
        with pytest.raises(GraphError) as caught:
            custom_graph(kernels, mine, call(**keywords), ["n"])
        assert caught.value.code == code
    with pytest.raises(GraphError, match="has 1 input"):
        custom_graph(kernels, mine, call(parameters={"size": 1}), ["n"], ["n"])
    with pytest.raises(DTypeError, match="argument 'x' has to be a tensor"):
        custom_graph(kernels, mine, lambda x: ops.custom("mine", DeviceRef.CPU(), [1.0]), ["n"])


def test_custom_devices(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    mine = schema("mine", "T n", "T n")
    with pytest.raises(GraphError) as caught:
        custom_graph(kernels, mine, lambda x: ops.custom("mine", DeviceRef.GPU(), [x]), ["n"])
    assert caught.value.message == "mine: argument 'x' lies on cpu:0, and the op runs on gpu:0"


def test_custom_in_place_is_refused(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    with pytest.raises(GraphError) as caught:
        custom_graph(kernels, schema("mine", "", "T n", role=Role.MUTABLE), call(), ["n"])
    assert caught.value.code == "EK0442"


def test_unknown_custom_op(kernels: Any, schema: Callable[..., OpSchema]) -> None:
    with pytest.raises(PackageError) as caught:
        custom_graph(kernels, schema("mime", "T n", "T n"), call(), ["n"])
    assert caught.value.code == "EK0440"
    assert str(caught.value).splitlines()[0].endswith("error[EK0440]: custom: there is no op 'mine'")
    assert str(caught.value).splitlines()[-2:] == [
        "note: searched kernels, more.pkg; they have mime",
        "hint: did you mean 'mime'?",
    ]
    with pytest.raises(PackageError, match=r"hint: pass Graph\(..., custom_extensions"):
        kernels.custom.clear()
        Graph("g", call(), typed(["n"]))


# --- custom ops from files ---

KERNELS = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)

@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 1)
"""


@pytest.fixture
def real_kernels(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes `kernels`: libraries are read from files."""
    monkeypatch.setattr("einkorn.graph.staging.graph.open_kernels", open_kernels)


@pytest.mark.usefixtures("real_kernels")
def test_kernel_files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KERNELS)

    def forward(x: TensorValue) -> TensorValue:
        return ops.custom("add_one", DeviceRef.CPU(), [x])[0]

    graph = Graph("g", forward, typed(["n", 3]), custom_extensions=[tmp_path])
    (node,) = graph.ir.nodes
    assert isinstance(node, Node) and node.kernel.origin == str(tmp_path / "mine.py")
    assert graph.output_types == typed(["n", 3])
    library = load_library(tmp_path)
    assert str(Graph("g", forward, typed(["n", 3]), kernel_library=library)) == str(graph)
    assert str(Graph("g", forward, typed(["n", 3]), custom_extensions=str(tmp_path / "mine.py"))) == str(graph)
    with pytest.raises(DTypeError) as caught:
        Graph("g", forward, typed([3], dtype=DType.int32), custom_extensions=tmp_path)
    assert caught.value.code == "EK0316" and caught.value.place and caught.value.place.file == __file__


@pytest.mark.usefixtures("real_kernels")
def test_wrong_libraries(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no kernel library at") as caught:
        Graph("g", custom_extensions=[tmp_path / "none"])
    assert caught.value.place and caught.value.place.file == __file__
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(KERNELS)
    with pytest.raises(PackageError, match="op 'add_one' is in two libraries") as caught:
        Graph("g", custom_extensions=[tmp_path / "a.py", tmp_path / "b.py"])
    assert caught.value.code == "EK0443"
    assert Graph("g", custom_extensions=[tmp_path / "a.py", tmp_path / "a.py"]).kernels.find("add_one")
