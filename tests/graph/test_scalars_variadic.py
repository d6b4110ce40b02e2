"""Scalar and variadic arguments in graphs: from tensors, numbers and lists, fused, from packages, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.compiler.explorer.stage import inspect_stage
from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from einkorn.dsl.package.container import read_package
from einkorn.graph import DeviceRef, DType, TensorType, ops

HOST = DeviceRef.CPU()
KERNELS = str(Path(__file__).parent / "signature_kernels.py")


def custom(op: str, *values: Any, **more: Any) -> list[Any]:
    return ops.custom(op, device=HOST, values=list(values), **more)


def run(forward: Callable[..., Any], *arrays: Any, kernels: Any = KERNELS) -> list[np.ndarray[Any, Any]]:
    return graphs.run(forward, *(np.asarray(a) for a in arrays), extensions=[kernels])


def same(actual: Any, expected: Any) -> None:
    trouble = graphs.difference(np.asarray(actual), np.asarray(expected))
    assert not trouble, trouble


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.uint16])
def test_a_scalar_is_a_tensor_without_axes_or_a_number(dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    three, n = np.array(3, dtype), np.int64(7)

    def forward(x: Any, a: Any, n: Any, flag: Any) -> list[Any]:
        return [
            *custom("blend", a, x, n, flag),
            *custom("blend", 2, x, 9, True),
            *custom("blend", np.uint8(2), x + x, n + 1, False),
            *custom("blend", a + a, x, 4, flag),
        ]

    results = run(forward, x, three, n, np.True_)
    expected = [three * x, x * dtype(2), np.full_like(x, 8), (three + three) * x]
    for actual, wanted in zip(results, expected, strict=True):
        same(actual, wanted)


def test_scalars_in_kernels_with_loops_of_their_own_fuse_too() -> None:
    x = graphs.numbers((3, 5), np.float32)

    def forward(x: Any, s: Any) -> list[Any]:
        rows = custom("scaled_rows", x + 1, s * 2)[0]
        return [ops.relu(rows), *custom("ramp", 1, 2.5, parameters={"count": 4}, out_types=[F32(4)])]

    rows, ramp = run(forward, x, np.float32(0.25))
    same(rows, np.maximum((x + np.float32(1)) * np.float32(0.5), 0))
    same(ramp, np.float32([1, 3.5, 6, 8.5]))


def F32(*shape: int | str) -> TensorType:
    return TensorType(DType.float32, list(shape), HOST)


def test_python_numbers_reach_a_scalar_of_a_model_in_its_dtype() -> None:
    model = graphs.load(
        lambda x, a, n, flag: custom("blend", a, x, n, flag)[0],
        (np.float32, ["k"]),
        (np.float32, []),
        (np.int64, []),
        (np.bool_, []),
        extensions=[KERNELS],
    )
    x = np.float32([1, 2])
    assert graphs.results(model, x, 2.5, 7, True)[0].tolist() == [2.5, 5.0]
    assert graphs.results(model, x, 2, 7, False)[0].tolist() == [7, 7]
    for wrong in ((x, 2.5, 7.5, True), (x, 2.5, 7, 1), (x, "a", 7, True)):
        with pytest.raises(EinkornError) as caught:
            model(*wrong)
        assert caught.value.code in ("EK0452", "EK0412")


@pytest.mark.parametrize("dtype", [np.float64, np.bool_, np.int16])
@pytest.mark.parametrize("rest", [(), (3,), (2, 2)])
def test_each_tensor_of_a_variadic_argument_has_sizes_of_its_own(dtype: Any, rest: tuple[int, ...]) -> None:
    a, b, c = (graphs.numbers((n, *rest), dtype, n) for n in (2, 0, 5))
    for tensors in ([a], [a, b], [c, a, b, c]):
        (result,) = run(lambda *xs: custom("stacked", *xs), *tensors)
        same(result, np.concatenate(tensors))


def test_all_tensors_of_a_shared_name_have_one_size_and_fuse() -> None:
    x = graphs.numbers((4, 3), np.float32)
    for count in (1, 2, 5):
        forward = lambda x, count=count: custom("total", [x * k for k in range(count)])  # noqa: E731
        (result,) = run(forward, x)
        expected = x * np.float32(0)
        for k in range(1, count):
            expected = expected + x * np.float32(k)
        same(result, expected)


def test_variadic_outputs_are_as_many_as_the_input_the_parameter_or_the_types() -> None:
    a, b = graphs.numbers((3,), np.int32), graphs.numbers((2, 2), np.int32)
    first, second = run(lambda a, b: custom("scaled_all", [a, b], 3), a, b)  # *s_k: axes of its own as well
    same(first, a * 3)
    same(second, b * 3)
    types = [TensorType(DType.int32, [n], HOST) for n in (1, 2)]
    one, two = run(lambda a: custom("parts", a, out_types=types), a)
    same(one, a[:1])
    same(two, a[1:])


def test_lists_and_single_tensors_mix() -> None:
    x, y, w = np.float32([5, 6]), np.float32([1, 2]), np.float32(0.5)
    (result,) = run(lambda x, y, w: custom("weighted", [x + 1, y], [x, y, x], w), x, y, w)
    same(result, (x + 1 - y) * np.float32(3) + w)
    (result,) = run(lambda x, y, w: custom("weighted", x, y, x, 0.25), x, y, w)  # xs has two, ys takes the rest
    same(result, (x - y) + np.float32(0.25))
    (result,) = run(lambda x, y, w: custom("weighted", [x, y], [], w), x, y, w)
    same(result, (x - y) * 0 + w)


REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "not a list": (lambda x: custom("weighted", [x, x], x, 1.0), "EK0345", "takes its tensors as a list here"),
    "two open": (lambda x: custom("weighted", [x], [x], 1.0), "EK0345", "stands for 2 tensors, and 1 are given"),
    "own parameter": (
        lambda x: custom("parts", x, parameters={"count": 3}, out_types=[F32(1)] * 2),
        "EK0310",
        "has 3 outputs",
    ),
    "scalar dtype": (lambda x: custom("blend", x[0], x, x[0], True), "EK0316", "'n' has dtype float32"),
    "scalar rank": (lambda x: custom("blend", x, x, 1, True), "EK0311", "argument 'a' has rank 1"),
    "fraction": (lambda x: custom("blend", 1.0, x, 1.5, True), "EK0412", "1.5 is a float and cannot become int64"),
    "too large": (lambda x: custom("blend", 1.0, x, 1 << 64, True), "EK0412", "does not fit int64"),
    "no dtype": (lambda x: custom("ramp", 1, 2, parameters={"count": 3}), "EK0411", "takes its dtype from one"),
    "tensor": (lambda x: custom("blend", 1.0, 2.0, 3, True), "EK0411", "argument 'x' has to be a tensor"),
    "sizes": (lambda x: custom("total", x, x[1:]), "EK0312", r"in argument 'xs\[1\]'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls_name_argument_and_declaration(name: str) -> None:
    forward, code, message = REFUSED[name]
    with pytest.raises((GraphError, DTypeError), match=message) as caught:
        graphs.build(forward, (np.float32, [4]), extensions=[KERNELS])
    assert caught.value.code == code
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_packages_hold_instances_of_scalars_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "instances.json"
    listed.write_text(
        json.dumps(
            {
                "stacked": [{"ranks": {"rest": 1}, "dtypes": {"E": "float32"}, "counts": {"xs": 3}}],
                "blend": [{"ranks": {"s": 1}}],
                "scaled_all": [{"ranks": {"s_k": 1}}],
            }
        )
    )
    package = build_package(KERNELS, str(tmp_path / "k.pkg"), ["host"], instances=str(listed))
    assert {(v.op, v.instance.counts) for v in package.variants} == {
        ("stacked", (("xs", 3),)),
        ("blend", ()),
        ("scaled_all", (("outs", 2), ("xs", 2))),
    }
    again = read_package(tmp_path / "k.pkg")
    assert again.manifest == package.manifest
    assert [str(a) for a in again.op("stacked").schema.tensors] == [
        'out: OutputTensor[E, "(sum(n_k)) *rest"]',
        'xs: VariadicTensors[E, "n_k *rest"]',
    ]
    assert str(again.op("blend").schema.tensors[1]) == "a: T"
    with graphs.cache_in(tmp_path / "cache"):
        monkeypatch.setenv("EINKORN_NO_JIT", "1")
        a, b = graphs.numbers((2, 3), np.float32), graphs.numbers((4, 3), np.float32)
        kernels = str(tmp_path / "k.pkg")
        same(run(lambda a, b: custom("stacked", a, b, b), a, b, kernels=kernels)[0], np.concatenate([a, b, b]))
        with pytest.raises(EinkornError, match="EINKORN_NO_JIT"):
            run(lambda a, b: custom("stacked", a, b), a, b, kernels=kernels)
        (result,) = run(lambda x: custom("blend", 2.0, x, 1, True), a[0], kernels=kernels)
        same(result, a[0] * 2)
        (result,) = run(lambda x, n: custom("blend", 2.0, x, n, False), a[0], np.int64(5), kernels=kernels)
        same(result, np.full(3, 5, np.float32))


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80", "gfx942"])
def test_every_target_compiles_them(target: str) -> None:
    assert "b1" in inspect_stage(KERNELS, target, "typed", op="total", counts={"xs": 3})
    assert inspect_stage(KERNELS, target, "asm", op="blend", ranks={"s": 2})
