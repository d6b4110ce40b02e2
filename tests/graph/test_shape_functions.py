"""Sizes that are computed on the way: `@op.shape`, dims that it defines, graphs that run in stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.cli.application import run as main
from einkorn.compiler.build import build_package
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError, GraphError
from einkorn.dsl.frontend.read_program import read_program
from einkorn.dsl.package.library import load_library
from einkorn.graph import BufferType, DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

HOST = DeviceRef.CPU()
KERNELS = str(Path(__file__).parent / "shape_kernels.py")
F32, I64 = DType.float32, DType.int64


def custom(op: str, *values: Any, **more: Any) -> list[Any]:
    return ops.custom(op, device=HOST, values=list(values), **more)


def T(dtype: DType, *shape: Any) -> TensorType:
    return TensorType(dtype, list(shape), HOST)


def load(forward: Callable[..., Any], *types: Any, kernels: str = KERNELS, interpret: bool = False) -> Model:
    graph = Graph("test", forward=forward, input_types=types, custom_extensions=[kernels])
    return InferenceSession(interpret=interpret).load(graph)


@pytest.mark.parametrize("interpret", [False, True])
def test_what_follows_works_on_the_new_size(interpret: bool) -> None:
    def forward(x: Any) -> list[Any]:
        y = custom("kept", x, 0.5)[0]
        z = custom("kept", ops.exp(y) - 2.0, 0.0)[0]  # of a size that depends on a size that is computed
        return [x * 2, y, y * 2 + 1, ops.sum(y * y, 0), z, ops.concat([y, z, x[:1]]), ops.softmax(y)]

    def reference(x: Any) -> list[Any]:
        y = x[x > np.float32(0.5)]
        e = np.exp(y) - np.float32(2)
        z = e[e > 0]
        s = np.exp(y - y.max()) if y.size else y
        return [x * 2, y, y * 2 + 1, (y * y).sum(keepdims=True), z, np.concatenate([y, z, x[:1]]), s / s.sum()]

    model = load(forward, T(F32, "n"), interpret=interpret)
    sizes = (10, 10, 3, 40) if interpret else (10, 10, 3, 1000, 1000, 1, 200_000)
    for seed, n in enumerate(sizes):
        x = graphs.numbers((n,), np.float32, seed)
        for array in (x, -x, x[::-1], np.zeros_like(x)):
            for actual, expected in zip(graphs.results(model, array), reference(array), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)
    assert [spec.dims for spec in model.output_metadata][:2] == [("n",), ("kept_k",)]
    assert [spec.dims for spec in model.output_metadata][4] == ("kept_k_2",)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float64])
def test_nonzero_of_every_rank(dtype: Any) -> None:
    for rank in range(9):
        shape = (3, 2, 1, 2, 3, 1, 2, 2)[:rank]
        names = [f"d{k}" for k in range(rank)]
        model = graphs.load(lambda x: custom("nonzero", x), (dtype, names), extensions=[KERNELS])
        for seed in range(2):
            x = graphs.numbers(shape, dtype, seed) * (graphs.numbers(shape, np.bool_, seed + 9))
            x = np.asarray(x, dtype)
            np.testing.assert_array_equal(graphs.results(model, x)[0], np.argwhere(x))
        empty = np.zeros((0, *shape[1:]), dtype)
        if rank:
            assert graphs.results(model, empty)[0].shape == (0, rank)


def test_out_types_name_the_size_or_promise_it() -> None:
    def forward(x: Any) -> list[Any]:
        (y,) = custom("kept", x, 0.0, out_types=[T(F32, "hits")])
        (pairs,) = custom("nonzero", x, out_types=[T(I64, "rows", 1)])
        return [y.reshape([Dim("hits"), 1]), pairs[:, 0], *custom("kept", x, 1.0, out_types=[T(F32, 2)])]

    model = load(forward, T(F32, "n"))
    x = np.float32([2, 0, -1, 3, 0.5])
    y, rows, two = graphs.results(model, x)
    assert y.tolist() == [[2], [3], [0.5]] and rows.tolist() == [0, 2, 3, 4] and two.tolist() == [2, 3]
    with pytest.raises(GraphError, match="returns another size for 'k' than out_types, which say 2") as caught:
        model(np.float32([2, 3, 4]))
    assert caught.value.code == "EK0454"
    assert graphs.results(model, x)[0].shape == (3, 1)  # as good as before
    same = load(lambda x: custom("kept", x, 0.0, out_types=[T(F32, "n")]), T(F32, "n"))
    assert graphs.results(same, np.float32([1, 2]))[0].tolist() == [1, 2]
    with pytest.raises(GraphError, match="another size"):
        same(np.float32([1, -2]))


def test_parameters_several_outputs_and_views() -> None:
    model = load(
        lambda x, n: [*custom("repeated", x, n), *custom("repeated", x, n + 1, parameters={"times": 2})],
        T(DType.int16, "n", "m"),
        T(I64, "n"),
    )
    x = graphs.numbers((4, 3), np.int16)
    for counts in ([0, 2, 1, 0], [0, 0, 0, 0], [3, 1, 4, 1]):
        n = np.array(counts)
        for array in (x, graphs.numbers((3, 4), np.int16).T, x[::-1]):
            once, ends, twice, later = graphs.results(model, array, n)
            np.testing.assert_array_equal(once, np.repeat(array, n, axis=0))
            np.testing.assert_array_equal(ends, np.cumsum(n))
            np.testing.assert_array_equal(twice, np.repeat(array, (n + 1) * 2, axis=0))
            np.testing.assert_array_equal(later, np.cumsum((n + 1) * 2))


def test_variadic_inputs_and_computed_sizes() -> None:
    model = load(lambda a, b, c: custom("common_prefix", a, b, c), T(I64, "a"), T(I64, "b"), T(I64, "c"))
    once, twice = graphs.results(model, np.array([1, 2, 3]), np.array([1, 2, 4, 5]), np.array([1, 2]))
    assert once.tolist() == [1, 2] and twice.tolist() == [1, 2, 1, 2]
    once, twice = graphs.results(model, np.array([1, 2, 3]), np.array([7]), np.array([1, 2]))
    assert once.tolist() == [] and twice.tolist() == []


def test_a_shape_function_reads_buffers_as_they_are() -> None:
    def forward(stack: Any, used: Any) -> Any:
        stack[0] = 7.0
        (out,) = ops.inplace_custom("popped", HOST, [stack, used])
        return out, used[...]

    model = load(forward, BufferType(F32, ["n"], HOST), BufferType(I64, [], HOST))
    stack, used = np.float32([1, 2, 3, 4]), np.array(3)
    out, left = graphs.results(model, stack, used)
    assert out.tolist() == [3, 2, 7] and left == 0 and used == 0
    assert graphs.results(model, stack, used)[0].tolist() == []


def test_a_size_that_cannot_be_is_refused() -> None:
    model = load(lambda x, k: custom("requests_too_much", x, k)[0] + 1, T(F32, "n"), T(I64))
    x = np.float32([1])
    for wrong, code in ((-1, "EK0465"), (1 << 60, "EK0813"), (1 << 62, "EK0476")):
        with pytest.raises(EinkornError) as caught:
            model(x, wrong)
        assert caught.value.code == code and caught.value.place is not None
        assert graphs.results(model, x, 2)[0].tolist() == [2, 2]


def test_nothing_is_computed_for_nothing() -> None:
    def forward(x: Any) -> Any:
        custom("kept", x, 0.0)
        return x + 1

    graph = Graph("test", forward, [T(F32, "n")], custom_extensions=[KERNELS])
    model = InferenceSession().load(graph)
    assert not model.code.plan.steps and "defines kept_k" in str(graph)
    assert graphs.results(model, np.float32([1]))[0].tolist() == [2]
    with Graph("undone", input_types=[T(F32, "n")], custom_extensions=[KERNELS]) as undone:
        with pytest.raises(EinkornError):
            custom("kept", undone.inputs[0], 0.0, out_types=[T(F32, "hits"), T(F32, "hits")])
        assert not undone.has_dim("hits") and str(undone).count("\n") == 1
        (y,) = custom("kept", undone.inputs[0], 0.0, out_types=[T(F32, "hits")])
        undone.output(y)


def test_packages_carry_shape_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = load_library(KERNELS)
    program = library.kernels["nonzero"].portable
    again = read_program(program.to_json())
    assert again.shape is not None and program.shape is not None and again.shape.digest == program.shape.digest
    assert again.schema.late == ("count", "rank") == library.kernels["nonzero"].schema.late
    listed = tmp_path / "instances.json"
    listed.write_text(
        '{"kept": [{}], "repeated": [{"dtypes": {"E": "int16"}}], "common_prefix": [{"dtypes": {"E": "int64"}}],'
        ' "nonzero": [{"ranks": {"s": 2}}]}'
    )
    build_package(KERNELS, str(tmp_path / "k.pkg"), ["host", "sm_80"][:1], instances=str(listed))
    kernels = str(tmp_path / "k.pkg")
    x = np.float32([1, -2, 3])
    with graphs.cache_in(tmp_path / "jit"):  # from the portable program alone
        model = load(lambda x: custom("kept", x + 1, 0.0)[0] * 2, T(F32, "n"), kernels=kernels)
        assert graphs.results(model, x)[0].tolist() == [4, 8]
    with graphs.cache_in(tmp_path / "ready"):
        monkeypatch.setenv("EINKORN_NO_JIT", "1")
        model = load(lambda x, limit: custom("kept", x, limit), T(F32, "n"), T(F32), kernels=kernels)
        assert graphs.results(model, x, 0.0)[0].tolist() == [1, 3]
        assert graphs.results(model, x[:1], 5.0)[0].tolist() == []
        model = load(lambda x, n: custom("repeated", x, n), T(DType.int16, "n", "m"), T(I64, "n"), kernels=kernels)
        rows, ends = graphs.results(model, np.int16([[1, 2], [3, 4]]), np.array([1, 2]))
        assert rows.tolist() == [[1, 2], [3, 4], [3, 4]] and ends.tolist() == [1, 3]
        model = load(lambda a, b: custom("common_prefix", a, b), T(I64, "a"), T(I64, "b"), kernels=kernels)
        assert graphs.results(model, np.array([5, 6]), np.array([5, 7]))[1].tolist() == [5, 5]
        model = load(lambda x: custom("nonzero", x), T(F32, "a", "b"), kernels=kernels)
        np.testing.assert_array_equal(graphs.results(model, np.eye(3, dtype=np.float32))[0], [[0, 0], [1, 1], [2, 2]])


GPU_KERNELS = """
from einkorn.dsl import Float32, InputTensor, OutputTensor, float32, foreach, int64, parallel_for, register


@register("filled")
def filled(out: OutputTensor[float32, "k"], n: InputTensor[int64, "1"], value: Float32):
    foreach(out, lambda i: value)


@filled.shape
def filled_shape(n, value):
    total = 0
    for i in range(n.dim(0)):  # in a loop of the host, which a GPU has not
        total += n[i]
    return total


@register("plain")
def plain(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] + 1)
"""
ON_THE_HOST = """

@register("first")
def first(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"]):
    out[0] = x[0]
"""


@pytest.mark.parametrize("target, kind", (("sm_90a", "ptx"), ("gfx942", "hsaco")))
def test_ops_with_shape_functions_have_code_for_gpus(target: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(GPU_KERNELS)
    package = build_package(str(tmp_path / "k.py"), str(tmp_path / "k.pkg"), [target, "x86-64-v3"])
    returned = {(variant.op, variant.target): variant for variant in package.variants}
    assert returned["filled", target].kind == kind and returned["filled", "x86-64-v3"].kind == "so"
    if kind == "ptx":
        text = package.code(returned["filled", target]).decode()
        assert text.count(".entry") == 1 and "filled" in text
    wrong = GPU_KERNELS.replace("total += n[i]", "total += value")
    (tmp_path / "wrong.py").write_text(wrong)
    with pytest.raises(EinkornError) as caught:
        build_package(str(tmp_path / "wrong.py"), str(tmp_path / "w.pkg"), [target])
    assert caught.value.op == "filled.shape" and not (tmp_path / "w.pkg").exists()


def test_an_op_that_no_gpu_can_run_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(GPU_KERNELS + ON_THE_HOST)
    source, into = str(tmp_path / "k.py"), str(tmp_path / "k.pkg")
    with pytest.raises(EinkornError) as caught:  # without a request for the reasons gets them as mistakes
        build_package(source, into, ["sm_90a"])
    assert {error.code for error in getattr(caught.value, "errors", [caught.value])} == {"EK0820"}
    assert main(["build", source, "-o", into, "--target", "sm_90a", "--target", "x86-64-v3"]) == 0
    shown = capsys.readouterr()
    assert "No code for these ops:" in shown.err and shown.err.count("error[EK0820]") == 1
    assert "compiled for op 'first' [target=sm_90a]" in shown.err
    assert "sm_90a: no code for first\n" in shown.out and "x86-64-v3: no code" not in shown.out
    assert main(["pkg", "info", into]) == 0
    assert "sm_90a: no code for first\n" in capsys.readouterr().out
    (tmp_path / "alone.py").write_text(GPU_KERNELS.partition("@register")[0] + ON_THE_HOST)
    assert main(["build", str(tmp_path / "alone.py"), "-o", into, "--target", "sm_90a"]) == 1
    assert "error[EK0820]" in capsys.readouterr().err
    (tmp_path / "k.py").write_text(GPU_KERNELS + ON_THE_HOST.replace("x[0]", "x[0] + 1 + n"))
    assert main(["build", source, "-o", into, "--target", "sm_90a"]) == 1  # a mistake stays one
    assert "error[EK0101]" in capsys.readouterr().err


def test_references_stand_next_to_shape_functions() -> None:
    kernel = load_library(KERNELS).kernels["kept"]
    assert kernel.reference is not None and kernel.shape is not None
    x = graphs.numbers((20,), np.float32)
    (result,) = graphs.run(lambda x: custom("kept", x, 0.25), x, extensions=[KERNELS])
    np.testing.assert_array_equal(result, kernel.reference(x, np.float32(0.25))[0])


def test_shape_functions_that_cannot_be_are_refused() -> None:
    @register("op")
    def op(out: OutputTensor[float32, "n (2*n)"], x: InputTensor[float32, "n"]) -> None:
        foreach(out, lambda i: x[i[0]])

    def nothing(x: Any) -> Any: ...

    def other(x: Any, y: Any) -> Any: ...

    for function, code in ((nothing, "EK0342"), (other, "EK0340")):
        with pytest.raises(CompileError) as caught:
            op.shape(function)
        assert caught.value.code == code


def test_mistakes_in_shape_functions_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    start = (
        "from einkorn.dsl import *\n"
        '@register("op")\n'
        'def op(out: OutputTensor[float32, "k j"], x: InputTensor[float32, "n"]):\n'
        "    foreach(out, lambda i: x[i[0]])\n"
        "@op.shape\n"
        "def op_shape(x):\n"
    )
    for body, code, message in (
        ("    return x.dim(0)\n", "EK02", "Int64"),
        ("    return x[0], 3\n", "EK0213", "cannot store Float32"),
        ("    return (x.dim(0), y)\n", "EK0101", "'y'"),
    ):
        file.write_text(start + body)
        with pytest.raises(CompileError, match=message) as caught:
            load(lambda x: custom("op", x), T(F32, "n"), kernels=str(file))
        assert caught.value.code.startswith(code)
        assert caught.value.place is not None and caught.value.place.file == str(file)
