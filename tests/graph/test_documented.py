"""What the documentation of graphs says: defaults, names, classes of errors, forms of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from einkorn.dsl.package.library import load_library
from einkorn.graph import CPU, Buffer, Dim, DType, Graph, InferenceSession, Model, TensorType, finfo, ops

N = TensorType(DType.float32, ["n", 3], HOST)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scale:
    def __call__(self, value: Any, factor: Any) -> Any:
        return value * factor

    def scale(self, value: Any, factor: Any) -> Any:
        return value * factor


@pytest.fixture(scope="module")
def model() -> Model:
    types = [N, TensorType(DType.float32, [], HOST)]
    return InferenceSession(interpret=True).load(Graph("scale", lambda x, s: x * s, types))


def test_a_graph_needs_no_name() -> None:
    with Graph() as graph:
        graph.output(ops.constant(1.0))
    assert graph.name == "graph" and Graph(forward=lambda: 1.0, output_types=[TensorType(DType.float32, [])])


def test_no_devices_are_the_host() -> None:
    assert InferenceSession(devices=[]).devices == InferenceSession().devices == [CPU()]


def test_models_take_inputs_by_name(model: Model) -> None:
    for result in (
        model(x=X, s=2.0),
        model(X, s=2.0),
        model.execute(input1=2.0, input0=X),
        model(X, input1=2.0),
        model.bind(s=2.0)(X),
    ):
        np.testing.assert_array_equal(result[0].to_numpy(), X * 2)
    assert [spec.name for spec in model.input_metadata] == ["input0", "input1"]


def test_names_of_the_author_win() -> None:
    types = [TensorType(DType.float32, [], HOST)] * 2
    model = InferenceSession(interpret=True).load(Graph("less", lambda input1, input0: input1 - input0, types))
    assert model(input1=5.0, input0=2.0)[0].item() == 3.0


def test_hints_name_the_input() -> None:
    model = InferenceSession(interpret=True).load(Graph("less", lambda x, rows: x - rows, [N, N]))
    with pytest.raises(DTypeError) as raised:
        model(X, X.astype(np.float64))
    assert raised.value.hint == "convert it: rows.astype('float32')"
    with pytest.raises(DTypeError) as raised:
        model(X, X.tolist())
    assert raised.value.hint == "make an array of it: np.array(rows, dtype='float32')"


@pytest.mark.parametrize("forward", [Scale(), Scale().scale])
def test_names_of_objects_and_methods(forward: Any) -> None:
    types = [N, TensorType(DType.float32, [], HOST)]
    model = InferenceSession(interpret=True).load(Graph("scale", forward, types))
    np.testing.assert_array_equal(model(factor=2.0, value=X)[0].to_numpy(), X * 2)


@pytest.mark.parametrize(
    ("code", "args", "kwargs", "text"),
    [
        ("EK0469", (), {"x": X, "z": 1.0}, "has no input 'z'"),
        ("EK0469", (X,), {"x": X}, "gets input 'x' twice"),
        ("EK0469", (), {"x": X, "input0": X}, "gets input 'input0' twice"),
        ("EK0451", (), {"x": X}, "without 's'"),
        ("EK0451", (X, 1.0, 2.0), {}, "takes 2 inputs, 3 are given"),
    ],
)
def test_wrong_names_of_inputs(model: Model, code: str, args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        model(*args, **kwargs)
    assert caught.value.code == code and text in caught.value.message
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_specs_have_none_for_what_calls_bring(model: Model) -> None:
    first, second = model.input_metadata
    assert (first.shape, first.dims, second.shape) == ([None, 3], ("n", 3), [])
    twice = InferenceSession(interpret=True).load(Graph("twice", lambda x: ops.concat([x, x]), [N]))
    assert (twice.output_metadata[0].shape, twice.output_metadata[0].dims) == ([None, 3], (str(2 * Dim("n")), 3))


def test_output_types_are_checked() -> None:
    Graph("g", lambda x: x + 1, [N], output_types=[N])
    for wrong in ([], [N, N], [TensorType(DType.float32, ["n", 2])], [TensorType(DType.float16, ["n", 3])], [3]):
        with pytest.raises(GraphError) as caught:
            Graph("g", lambda x: x + 1, [N], output_types=wrong)  # type: ignore[arg-type]
        assert caught.value.code == "EK0437" and str(caught.value.argument).startswith("output_types")


def test_errors_are_of_the_documented_classes() -> None:
    cases: list[tuple[type[Exception], Any]] = [
        (IndexError, lambda x: ops.sum(x, 2)),
        (ValueError, lambda x: ops.sum(x, 2)),
        (IndexError, lambda x: ops.softmax(x, -3)),
        (IndexError, lambda x: ops.unsqueeze(x, 4)),
        (IndexError, lambda x: ops.permute(x, [0, 2])),
        (TypeError, lambda x: ops.sqrt(ops.cast(x, DType.int32))),
        (ValueError, lambda x: ops.sqrt(ops.cast(x, DType.int32))),
        (ValueError, lambda x: ops.logical_and(x, x)),
        (TypeError, lambda x: ops.add(1, 2)),
        (ValueError, lambda x: x.reshape([7])),
    ]
    for kind, forward in cases:
        with pytest.raises(kind) as caught:
            Graph("g", forward, [N])
        assert isinstance(caught.value, EinkornError)
    with pytest.raises(ValueError, match="datetime64"):
        DType.from_numpy(np.dtype("M8[s]"))
    with pytest.raises(RuntimeError, match="load takes a Graph"):
        InferenceSession().load(3)  # type: ignore[arg-type]
    assert issubclass(DTypeError, TypeError)


def test_what_is_known_of_the_host() -> None:
    stats = CPU().stats
    assert stats["machine"] and int(stats["logical_cores"]) >= 1
    assert {type(stats[name]) for name in ("total_memory", "free_memory", "process_memory") if name in stats} <= {int}


def test_contiguous_is_a_copy() -> None:
    buffer = Buffer.from_numpy(X.copy())
    for copy in (buffer.contiguous(), buffer[:, ::2].contiguous()):
        assert copy.is_contiguous and not np.shares_memory(copy.to_numpy(), buffer.to_numpy())


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.bool_, ml_dtypes.int4])
def test_read_only_mapped_inputs(tmp_path: Path, dtype: Any) -> None:
    known = DType.from_numpy(np.dtype(dtype))
    array = np.arange(6).astype(dtype)
    path = tmp_path / "elements"
    path.write_bytes(Buffer.from_numpy(array).view(DType.uint8, [known.bytes_for(6)]).to_numpy().tobytes())
    graph = Graph("g", lambda x: ops.reshape(x, [3, 2]), [TensorType(known, [6], HOST)])
    model = InferenceSession(interpret=True).load(graph)
    mapped = Buffer.mmap(path, known, [6], mode="readonly")
    given: list[Any] = [mapped]
    if not known.is_packed():
        given += [np.memmap(path, dtype, "r"), mapped.to_numpy()]
    for value in given:
        result = model(value)[0].to_numpy()
        np.testing.assert_array_equal(result.astype(np.float32), array.reshape(3, 2).astype(np.float32))
    if not known.is_packed():
        np.testing.assert_array_equal(Buffer.from_dlpack(mapped).to_numpy(), array)


def test_what_floats_hold() -> None:
    for dtype in (DType.float16, DType.bfloat16, DType.float32, DType.float64, DType.float8_e4m3fn, DType.float8_e5m2):
        known, exact = finfo(dtype), ml_dtypes.finfo(dtype.to_numpy())
        assert (known.bits, known.eps, known.max, known.min, known.tiny, known.smallest_normal) == (
            *(exact.bits, float(exact.eps), float(exact.max), float(exact.min), float(exact.tiny)),
            float(exact.smallest_normal),
        )
    assert (finfo(DType.float4_e2m1fn).max, finfo(DType.float8_e8m0fnu).max) == (6.0, 2.0**127)
    with pytest.raises(TypeError):
        finfo(DType.int8)


def test_kinds_of_dtypes() -> None:
    assert DType.float8_e5m2.is_float8() and not DType.float16.is_float8()
    assert (
        DType.int8.is_signed_integral() and DType.uint8.is_unsigned_integral() and not DType.bool.is_unsigned_integral()
    )
    assert (DType.int4.size_in_bits, DType.bool.size_in_bits, DType.float64.align, DType.int4.align) == (4, 8, 8, 1)


def test_a_class_is_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(CLASSES)
    assert "Adds 1" in load_library(tmp_path).kernels["add_one"].schema.doc

    def forward(x: Any) -> Any:
        (first,) = ops.custom("firsts", HOST, [x], parameters={"count": 2})
        return ops.custom("add_one", HOST, [x])[0], first

    graph = Graph("g", forward, [TensorType(DType.float32, ["n"], HOST)], custom_extensions=[tmp_path])
    for interpret in (False, True):
        more, first = InferenceSession(interpret=interpret).load(graph)(X[0])
        np.testing.assert_array_equal(more.to_numpy(), X[0] + 1)
        np.testing.assert_array_equal(first.to_numpy(), X[0][:2])


@pytest.mark.parametrize("body", ["pass", "def execute(out, x): ...", "execute = 3"])
def test_a_class_without_execute(tmp_path: Path, body: str) -> None:
    (tmp_path / "kernels.py").write_text(f"from einkorn.dsl import *\n\n@register('op')\nclass Op:\n    {body}\n")
    with pytest.raises(EinkornError) as caught:
        Graph("g", custom_extensions=[tmp_path])
    assert caught.value.code == "EK0107" and "execute" in caught.value.message


CLASSES = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Numeric)


@register("add_one")
class AddOne:
    'Adds 1 to every element.'

    @staticmethod
    def execute(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
        foreach(out, lambda i: more(x[i]))


def more(value):
    return value + 1


@register("firsts")
class Firsts:
    @staticmethod
    def execute(out: OutputTensor[T, "m"], x: InputTensor[T, "n"], *, count: int):
        foreach(out, lambda i: x[i])

    @staticmethod
    def shape(x: InputTensor[T, "n"], *, count: int) -> int:
        return min(x.size, count)
"""
