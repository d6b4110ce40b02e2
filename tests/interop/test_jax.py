"""Kernels are functions of JAX arrays."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, KernelError

from . import direct_kernels as k
from . import elementwise_kernels as e

jax = pytest.importorskip("jax")
jnp = jax.numpy
ej = pytest.importorskip("einkorn.jax")

add_one, add, axpy, scaled = map(ej.op, (k.add_one, k.add, k.axpy, k.scale_and_shift))
DTYPES = [d for d in DType if d.kind != "float" and not d.is_packed() and d.size_in_bytes < 8 and d is not DType.bool]
FLOATS = [DType.float16, DType.bfloat16, DType.float32]


def test_every_dtype_and_rank_eagerly_and_in_jit() -> None:
    for dtype in (*DTYPES, *FLOATS):
        x = jnp.arange(6, dtype=dtype.to_numpy()).reshape(2, 3)
        actual = jax.jit(add_one)(x)
        assert isinstance(actual, jax.Array) and actual.dtype == x.dtype and np.array_equal(actual, x + 1)
    for shape in ((), (0, 4), (1,), (2, 3, 4)):
        x = jnp.ones(shape)
        assert np.array_equal(add_one(x), x + 1) and add_one(x).shape == shape
    with jax.enable_x64(True):
        x = jnp.arange(3, dtype=jnp.float64)
        assert add_one(x).dtype == jnp.float64 and np.array_equal(add_one(x), x + 1)


def test_parameters_numbers_several_outputs_and_variadic_arguments() -> None:
    x = jnp.arange(5, dtype=jnp.float32)
    assert np.array_equal(jax.jit(lambda v: scaled(v * 2, scale=3.0, shift=1))(x), x * 6 + 1)
    assert np.array_equal(axpy(2, x, x), 3 * x) and np.array_equal(axpy(x[3], x, np.ones(5, np.float32)), 3 * x + 1)
    low, high = jax.jit(ej.op(k.halves))(x)
    assert np.array_equal(low, x[:2]) and np.array_equal(high, x[2:])
    whole, rest = ej.op(e.parts)(x / 2)
    assert whole.dtype == jnp.int32 and np.array_equal(whole + rest, x / 2)
    assert np.array_equal(ej.op(k.total_of)([x, x, x + 1]), 3 * x + 1)
    assert len(ej.op(k.spread)(x, count=3)) == 3
    assert np.array_equal(jax.jit(lambda v: add_one(add(v, v)) * 2)(x), 4 * x + 2)


def test_elements_of_64_and_of_4_bits() -> None:
    x = jnp.arange(3, dtype=jnp.int32)
    assert ej.op(e.widened)(x).dtype == jnp.int32 and np.array_equal(ej.op(e.widened)(x), [0, 7, 14])
    with jax.enable_x64(True):
        assert np.array_equal(ej.op(e.widened)(x + 2**30), (np.arange(3) + 2**30) * 7)
    assert np.array_equal(jax.jit(ej.op(e.unpacked))(x.astype(jnp.int4)), x)
    assert np.array_equal(ej.op(e.flagged)(x), [False, False, True])


def test_what_is_changed_in_place_is_a_result() -> None:
    x, mean = jnp.arange(4, dtype=jnp.float32), jnp.zeros(4)
    actual = jax.jit(ej.op(k.follow))(mean, x, 0.5)
    assert np.array_equal(actual, x / 2) and not mean.any()
    change, after = ej.op(k.follow_and_return)(mean, x, rate=0.25)
    assert np.array_equal(change, x / 4) and np.array_equal(after, x / 4) and not mean.any()
    donated = jax.jit(lambda m, v: ej.op(k.follow)(m + 1, v, 0.5))(mean, x)
    assert np.array_equal(donated, (x + 1) / 2)


def test_batches() -> None:
    x = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)
    calls: list[int] = []
    assert np.array_equal(jax.vmap(jax.vmap(add_one))(x), x + 1)
    assert np.array_equal(jax.vmap(add_one, in_axes=2, out_axes=2)(x), x + 1)
    plus = ej.op(e.plus)
    assert np.array_equal(jax.vmap(plus, in_axes=(0, None))(x, x[0]), x + x[0])
    assert "custom_call" in jax.jit(jax.vmap(plus)).lower(x, x).as_text()
    assert "while" not in jax.jit(jax.vmap(plus)).lower(x, x).as_text()  # one call, and no loop over members
    number = ej.op(e.with_number)
    assert np.array_equal(jax.vmap(number, in_axes=(0, None))(x, 2.0), x * 2)
    assert np.array_equal(jax.vmap(number, in_axes=(None, 0))(x[0, 0], jnp.arange(3.0)), np.outer(range(3), range(4)))
    last = ej.op(e.next_one)  # reads its neighbour: one call for each member
    assert np.array_equal(jax.vmap(last)(x[0]), jnp.roll(x[0], -1, axis=1))
    ruled = ej.op(e.plus)
    ruled.vmap = lambda size, batched, *args: (calls.append(size), ((args[0] * 0,), (True,)))[1]
    assert not jax.vmap(ruled)(x, x).any() and calls == [2]
    ruled = ej.op(e.plus)
    ruled.vmap = "sequential"
    assert np.array_equal(jax.vmap(ruled)(x, x), 2 * x)


def test_gradients_by_a_function() -> None:
    op = ej.op(k.axpy)

    @op.backward
    def backward(context: Any, gradient: Any) -> Any:
        a, x, _ = context.inputs
        assert context.outputs[0].shape == x.shape and context.parameters == {}
        return (gradient * x).sum(), gradient * a, gradient

    x = jnp.arange(1.0, 5.0)
    ours = jax.jit(jax.grad(lambda a, v: (op(a, v * v, v) ** 2).sum(), argnums=(0, 1)))(jnp.float32(3), x)
    theirs = jax.grad(lambda a, v: ((a * v * v + v) ** 2).sum(), argnums=(0, 1))(jnp.float32(3), x)
    assert all(np.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    rows = jnp.stack([x, 2 * x])
    assert np.allclose(jax.vmap(jax.grad(lambda v: op(2.0, v, v).sum()))(rows), 3)

    @op.backward
    def wrong(context: Any, gradient: Any) -> Any:
        return gradient

    with pytest.raises(EinkornError, match="gives 1 gradients for 3 inputs") as caught:
        jax.grad(lambda v: op(2.0, v, v).sum())(x)
    assert caught.value.code == "EK0882"
    with pytest.raises(EinkornError, match="has no backward") as caught:
        jax.grad(lambda v: add_one(v).sum())(x)
    assert caught.value.code == "EK0881" and caught.value.place is not None and caught.value.place.file == __file__


def test_gradients_by_the_record_of_the_kernel() -> None:
    x = jnp.arange(1.0, 5.0)
    by_kernel, by_graph = ej.op(e.squared), ej.op(e.cubed)
    assert np.allclose(jax.grad(lambda v: by_kernel(v).sum())(x), 2 * x)
    assert np.allclose(jax.jit(jax.grad(lambda v: by_graph(v).sum()))(x), 3 * x * x)
    assert np.allclose(jax.vmap(jax.grad(lambda v: by_graph(v).sum()))(jnp.stack([x, x])), 3 * x * x)


def test_wrong_arguments_name_op_argument_and_line() -> None:
    x = jnp.zeros(5)
    cases: list[tuple[str, Any, str]] = [
        ("EK0312", lambda: add(x, x[:3]), "dim 'n' is 5"),
        ("EK0312", lambda: jax.jit(lambda v: add(v, v[:3]))(x), "dim 'n' is 5"),
        ("EK0311", lambda: add(x[None], x[None]), "'x'"),
        ("EK0317", lambda: add(x, x.astype(jnp.int32)), "int32"),
        ("EK0310", lambda: add(x), "2 inputs"),
        ("EK0320", lambda: scaled(x, skale=2.0), "skale"),
        ("EK0890", lambda: add_one([1.0, 2.0]), "is not an array but"),
        ("EK0316", lambda: add_one(jnp.zeros(3, jnp.complex64)), "complex64"),
        ("EK0890", lambda: add_one(jax.random.key(0)), "'x' holds key"),
        ("EK0313", lambda: ej.op(k.pairs)(x, x), "'twice'"),
    ]
    for code, call, text in cases:
        with pytest.raises((EinkornError, DTypeError), match=text) as caught:
            call()
        assert caught.value.code == code and caught.value.place is not None and caught.value.place.file == __file__
    with pytest.raises(EinkornError) as caught:
        ej.op(k.kept)
    assert caught.value.code == "EK0891"


def test_a_kernel_that_stops_itself_is_an_error_with_its_text() -> None:
    positive, parallel = ej.op(k.positive), ej.op(k.in_parallel)
    good, bad = jnp.ones(100_000), jnp.ones(100_000).at[77_777].set(-1)
    for op in (positive, parallel):
        for call in (op, jax.jit(lambda v, op=op: op(v) * 2)):
            with pytest.raises(jax.errors.JaxRuntimeError, match=r"EK0701.*elements have to be positive"):
                call(bad).block_until_ready()
            assert call(good).block_until_ready().shape == good.shape

    def one(_: int) -> bool:
        try:
            jax.jit(parallel)(bad).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            return "elements have to be positive" in str(error)
        return False

    with concurrent.futures.ThreadPoolExecutor(10) as threads:
        assert all(threads.map(one, range(30)))
    with pytest.raises(KernelError, match="elements have to be positive"):  # as direct calls do it
        k.positive(bad)
    assert np.array_equal(k.positive(good), good)


def test_export_with_symbolic_sizes() -> None:
    rows, columns = jax.export.symbolic_shape("rows, columns")
    name = add_one.register(jax.ShapeDtypeStruct((2, 3), jnp.float32))
    assert name == add_one.register(jnp.zeros((5, 1))) and name.startswith("einkorn.add_one.")
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name)]
    exported = jax.export.export(jax.jit(lambda v: add_one(v) * 2), disabled_checks=allowed)(
        jax.ShapeDtypeStruct((rows, columns), jnp.float32)
    )
    assert str(exported.out_avals[0].shape) == "(rows, columns)"
    again = jax.export.deserialize(exported.serialize())
    for shape in ((2, 5), (1, 3), (7, 1)):
        assert np.array_equal(again.call(jnp.ones(shape)), np.full(shape, 4))
    n = jax.export.symbolic_shape("n")
    low, high = jax.eval_shape(lambda v: ej.op(k.halves)(v), jax.ShapeDtypeStruct((5,), jnp.float32))
    assert (low.shape, high.shape) == ((2,), (3,))
    halves = ej.op(k.halves)
    name = halves.register(jax.ShapeDtypeStruct((4,), jnp.float32))
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name)]
    exported = jax.export.export(jax.jit(halves), disabled_checks=allowed)(jax.ShapeDtypeStruct(n, jnp.float32))
    assert [each.shape for each in exported.call(jnp.ones(7))] == [(3,), (4,)]


def test_without_doors_python_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_DOORS", "0")
    x = jnp.arange(4, dtype=jnp.float32)
    double, follow = ej.op(e.doubled), ej.op(e.drift)
    assert double.register(x) == ""
    assert np.array_equal(jax.jit(double)(x), 2 * x) and np.array_equal(jax.vmap(double)(x[None]), 2 * x[None])
    assert np.array_equal(follow(x), x + 1) and x[0] == 0
    with pytest.raises(jax.errors.JaxRuntimeError, match="no half of"):
        jax.block_until_ready(ej.op(e.halved)(x - 9))


def test_by_name_and_as_a_direct_call() -> None:
    actual = ej.op("add_one", extensions=[k.__file__])
    assert np.array_equal(actual(jnp.ones(3)), [2, 2, 2])
    with pytest.raises(EinkornError) as caught:
        ej.op("add_on", extensions=k.__file__)
    assert caught.value.code == "EK0440"
    x = jnp.ones(3)
    result = k.scale_and_shift(x, scale=3.0)
    assert isinstance(result, jax.Array) and np.array_equal(result, [3, 3, 3])
    assert np.array_equal(k.total_of([x, x, x]), 3 * x) and isinstance(k.add(x, np.ones(3, np.float32)), jax.Array)
    assert np.array_equal(jax.jit(lambda v: k.add_one(v))(x), x + 1)
    with pytest.raises(EinkornError) as caught:
        k.add_one(x, out=np.zeros(3, np.float32))
    assert caught.value.code == "EK0893"


def test_elementwise_kernels_broadcast() -> None:
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    op = ej.op(e.minus)
    for call in (e.minus, op, jax.jit(op)):
        for a, b in ((x, x[0]), (x[0], x), (x[:, :1], x[0]), (x, x[:1]), (x, np.float32(2))):
            for _ in range(2):
                assert jnp.array_equal(call(a, b), a - b)
    assert jnp.array_equal(op(x, 2.0), x - 2) and jnp.array_equal(op(2, x), 2 - x)
    assert jnp.array_equal(jax.vmap(lambda row: op(row, x[0]))(x), x - x[0])
    for code, wrong in (
        ("EK0312", lambda: op(x, x[:2])),
        ("EK0412", lambda: e.plus(x.astype(int), 1.5)),
    ):
        with pytest.raises(EinkornError) as caught:
            wrong()
        assert caught.value.code == code
