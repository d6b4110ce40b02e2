"""What is recorded runs with equal bits op by op and as one graph, compiled once for all sizes and numbers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import DType
from einkorn.graph.eager import programs, realize
from einkorn.graph.eager.programs import COUNTS
from einkorn.graph.loading.background import BACKGROUND


@contextmanager
def compiled(single: int | None = None, whole: int | None = None) -> Iterator[None]:
    """Counts the graphs that are compiled within."""
    BACKGROUND.wait()
    before = dict(COUNTS)
    yield
    BACKGROUND.wait()
    actual = {name: COUNTS[name] - before[name] for name in COUNTS}
    wanted = {name: count for name, count in (("single", single), ("whole", whole)) if count is not None}
    assert {name: actual[name] for name in wanted} == wanted


def vector(n: int, seed: int = 0) -> Tensor:
    return Tensor.constant(np.random.default_rng(seed).standard_normal(n).astype(np.float32))


def lazily(function: Callable[..., Any], *args: Any) -> Any:
    with F.lazy():
        result = function(*args)
    tensors = result if isinstance(result, tuple) else (result,)
    realize.realize(tensors)
    return [each.numpy() for each in tensors]


def mixed(x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, ...]:
    z = F.tanh(x * rate + y) / (1.0 + F.exp(-x))
    total = z.sum()
    return z - total, (z > 0) & (y < rate), F.concat([z, y], 0)[3:], (z.cast(DType.float64) * 3).reshape([-1, 1])


def test_equal_bits_in_both_tiers() -> None:
    x, y = vector(37), vector(37, 1)
    with compiled(whole=0):
        first = lazily(mixed, x, y, 0.3)
    with compiled(whole=1):
        for _ in range(realize.MEETINGS):
            lazily(mixed, x, y, 0.3)
    with compiled(0, 0):
        whole = lazily(mixed, x, y, 0.3)
        for n, rate in ((64, 0.7), (1001, -2.5), (4, 1e-3)):
            a, b = vector(n, n), vector(n, n + 1)
            one = lazily(mixed, a, b, rate)
            for left, right in zip(one, [each.numpy() for each in mixed(a, b, rate)], strict=True):
                np.testing.assert_array_equal(left, right)
    for left, right in zip(first, whole, strict=True):
        np.testing.assert_array_equal(left, right)
    model = F.functional(mixed)
    with compiled(0, 0):
        model(x, y, 0.9)


def test_no_size_is_compiled_again() -> None:
    def step(x: Tensor, n: int) -> Tensor:
        y = F.softmax(x @ x.T) * 0.5
        left, right = F.split(y, [n // 2, n - n // 2], axis=1)
        z = F.concat([right, left], axis=1).reshape([n * n])
        return F.pad(z[1:-1], [1, 1]).reshape([n, -1]).broadcast_to([2, n, n]) + F.full([n, n], 2.0)

    step(Tensor.ones([5, 3]), 5)
    with compiled(0, 0):
        for n, m in ((6, 4), (9, 5), (40, 3), (7, 64)):
            x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
            actual = step(Tensor.constant(x), n).numpy()
            product = x @ x.T
            weights = np.exp(product - product.max(1, keepdims=True))
            y = weights / weights.sum(1, keepdims=True) * 0.5
            flat = np.concatenate([y[:, n // 2 :], y[:, : n // 2]], 1).reshape(-1)
            flat[[0, -1]] = 0
            np.testing.assert_allclose(actual, np.broadcast_to(flat.reshape(n, n) + 2, (2, n, n)), rtol=2e-5)


def test_that_a_matrix_is_square_compiles_nothing_again() -> None:
    rng = np.random.default_rng(3)
    cases: list[tuple[Callable[[Any, Any], Any], tuple[Any, ...], tuple[Any, ...]]] = [
        (lambda x, y: x - y, (4, 6), (4, 6)),
        (lambda x, y: x * y, (4, 6), (6,)),
        (lambda x, y: x @ y, (4, 6), (6, 3)),
        (lambda x, y: x @ y, (2, 4, 6), (2, 6, 3)),
        (lambda x, y: x.sum(axis=1) if isinstance(x, Tensor) else x.sum(1, keepdims=True), (4, 6), ()),
        (lambda x, y: F.sqrt(x) if isinstance(x, Tensor) else np.sqrt(x), (2, 3, 4), ()),
    ]
    for call, first, second in cases:
        like = [(7,) * len(first), (7,) * len(second)]
        for turn in ([like, [first, second]], [[first, second], like]):
            for number, shapes in enumerate(turn):
                x, y = (rng.random(shape) + 1 for shape in shapes)
                with compiled(0, 0) if number else nullcontext():
                    actual = call(Tensor.constant(x), Tensor.constant(y))
                np.testing.assert_allclose(actual, call(x, y), rtol=1e-12)
    with pytest.raises(EinkornError, match="inner sizes are 7 and 6"):
        Tensor.ones([7, 7]) @ Tensor.ones([6, 6])


def test_no_number_is_compiled_again() -> None:
    x = vector(8)
    _ = x * 0.5 + 3 - (1.5 - x) / 7.0, x[1], x[1:3], F.clip(x, -0.5, 0.5), F.where(x > 0.1, x, -3.0)
    with compiled(0, 0):
        for k in range(3, 8):
            np.testing.assert_array_equal((x * (k / 7)).numpy(), x.numpy() * np.float32(k / 7))
            assert x[k].item() == x.numpy()[k]
            np.testing.assert_array_equal(x[k - 2 : k].numpy(), x.numpy()[k - 2 : k])
            assert F.clip(x, -k / 10, k / 10).numpy().max() <= np.float32(k / 10)
            _ = F.where(x > k / 10, x, -float(k)), x + k, k - x, x / (k + 0.5)


def test_a_loop_is_cut_and_compiled_once() -> None:
    x, y = vector(16), vector(16, 1)
    one = x * 1.001 + y
    with compiled(0, 1), F.lazy():
        z, expected = x, x.numpy()
        for _ in range(1000):
            z = z * 1.001 + y
            expected = expected * np.float32(1.001) + y.numpy()
    np.testing.assert_allclose(z.numpy(), expected, rtol=1e-3)
    assert one.real


def test_values_that_something_sees_are_kept_and_others_are_not() -> None:
    x = vector(5)
    with F.lazy():
        a = x * 2
        b = a + 1
        hidden = b * 3
        c = hidden - 1
        del hidden
        d = c / 4
    assert not any(each.real for each in (a, b, c, d))
    _ = d.realize
    assert a.real and b.real and c.real
    with F.lazy():
        unused = F.exp(a)
        e = a * 5
    _ = e.realize
    assert not unused.real


def test_one_function_is_one_graph() -> None:
    @F.functional
    def linear(x: Tensor, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
        assert not (x @ weight.T).real
        return {"out": x @ weight.T + bias}

    with compiled(whole=1):
        result = linear(Tensor.ones([2, 3]), Tensor.ones([6, 3]), Tensor.ones([6]))["out"]
        assert result.real and result.tolist() == [[4.0] * 6] * 2
        assert linear(Tensor.ones([4, 5]), Tensor.ones([7, 5]), Tensor.ones([7]))["out"].tolist() == [[6.0] * 7] * 4
    assert F.functional(F.exp.__wrapped__) is F.exp  # type: ignore[attr-defined]


def test_errors_of_arguments_are_raised_when_an_op_is_recorded() -> None:
    x, y = Tensor.ones([3]), Tensor.ones([4])
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("EK0420", lambda: x + y),
        ("EK0410", lambda: Tensor.ones([3], dtype=DType.float16) + Tensor.ones([3], dtype=DType.bfloat16)),
        ("EK0412", lambda: Tensor.ones([3], dtype=DType.int8) + 300),
        ("EK0412", lambda: Tensor.ones([3], dtype=DType.int32) * 0.5),
        ("EK0412", lambda: x + 1e39),
        ("EK0403", lambda: x + "a"),
        ("EK0423", lambda: x.reshape([2, 2])),
        ("EK0422", lambda: x.sum(axis=3)),
        ("EK0425", lambda: x[5]),
        ("EK0425", lambda: x[1:9]),
        ("EK0413", lambda: F.exp(Tensor.ones([3], dtype=DType.int32))),
        ("EK0427", lambda: Tensor.ones([2, 3]) @ Tensor.ones([2, 3])),
    ]
    for code, call in cases:
        for mode in (lambda: contextmanager(lambda: iter([None]))(), F.lazy):
            with mode(), pytest.raises(EinkornError) as caught:
                call()
            assert caught.value.code == code
            assert caught.value.place is not None and caught.value.place.file == __file__
            assert caught.value.place.line == call.__code__.co_firstlineno
    assert (x + 1).tolist() == [2, 2, 2]


def test_errors_of_kernels_name_the_line_that_called_the_op() -> None:
    x = vector(3)
    wrong = Tensor.constant([99], dtype=DType.int64)

    def build() -> Tensor:
        y = x * 2
        z = F.gather(y, wrong, 0)
        return z + 1

    line = build.__code__.co_firstlineno + 2
    with pytest.raises(KernelError, match="index 99") as caught:
        build()
    assert caught.value.place is not None and caught.value.place.line == line
    for _ in range(realize.MEETINGS + 1):  # op by op, and as one graph
        with F.lazy():
            later = build()
        for _ in range(2):
            with pytest.raises(KernelError, match="index 99") as caught:
                later.numpy()
            assert caught.value.place is not None
            assert (caught.value.place.file, caught.value.place.line) == (__file__, line)
        assert not later.real
        BACKGROUND.wait()


def test_sizes_that_only_a_run_determines() -> None:
    x = Tensor.constant([[1, 0, 2], [0, 0, 3]])
    with F.lazy():
        actual = F.nonzero(x)
        assert actual.real and actual.tolist() == [[0, 0], [0, 2], [1, 2]]
        assert F.nonzero(x[:1] * 0).shape == [0, 2]


def test_threads_share_and_lose_nothing() -> None:
    x = vector(100)
    with F.lazy():
        shared = x * 2 + 1
    collected: list[Any] = []

    def work(k: int) -> None:
        for _ in range(20):
            y = x * float(k) + x
            with F.lazy():
                z = y - shared
            collected.append((k, z.numpy(), shared.numpy()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(collected) == 120
    for k, z, one in collected:
        np.testing.assert_array_equal(one, x.numpy() * 2 + 1)
        np.testing.assert_array_equal(z, x.numpy() * np.float32(k) + x.numpy() - one)


def test_a_child_after_a_fork() -> None:
    x = vector(10)
    with F.lazy():
        waiting = x * 2 + 3
    expected = x.numpy() * 2 + 3
    locks = [realize._lock, *(program.lock for program, _ in realize._known.values())]
    for lock in locks:  # other threads may hold them
        lock.acquire()
    child = os.fork()
    if child == 0:
        status = 2
        try:
            good = np.array_equal(waiting.numpy(), expected) and np.array_equal((x + x).numpy(), x.numpy() + x.numpy())
            status = 0 if good else 1
        finally:
            os._exit(status)
    for lock in locks:
        lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(waiting.numpy(), expected)


def test_an_interrupt_leaves_tensors_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    x = vector(6)
    with F.lazy():
        y = F.lgamma(F.abs(x)) * 2

    def interrupt(self: Any, graph: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(programs.InferenceSession, "load", interrupt)
        with pytest.raises(KeyboardInterrupt):
            y.numpy()
    assert not y.real and y.numpy().shape == (6,)
