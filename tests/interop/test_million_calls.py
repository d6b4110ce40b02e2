"""A million calls of each door leave nothing: neither references, nor objects, nor memory; some of them fail."""

from __future__ import annotations

import collections
import gc
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.dsl.types.dtype import DType
from einkorn.graph.driver.buffer import Buffer
from einkorn.graph.interop.specialise import specialise
from einkorn.graph.interop.ufunc import ufunc_of
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as kernels
from . import elementwise_kernels as elementwise

MILLION = 1_000_000
MEMORY = 6 << 20  # bytes that may come and go; a million calls that lose a word each lose more
X = np.arange(1, 17, dtype=np.float32)
BAD = X - 3


def often(call: Callable[..., Any], *args: Any, count: int) -> None:
    """Calls with no step of Python's in between."""
    collections.deque(map(call, *(itertools.repeat(each, count) for each in args)), maxlen=0)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def leaves_nothing(
    calls: Callable[[int], None], kept: Sequence[Any] = (), count: int = MILLION, first: int = 2000
) -> None:
    """Makes so many calls, and looks what there is more of than after the first ones."""
    kept = [None, True, np.ndarray, tuple, list, float, X, BAD, X.dtype, *kept]
    calls(first)
    BACKGROUND.wait()
    calls(first)
    gc.collect()
    before, blocks, memory = [sys.getrefcount(each) for each in kept], sys.getallocatedblocks(), resident()
    calls(count)
    gc.collect()
    grown = [sys.getrefcount(each) - known for each, known in zip(kept, before, strict=True)]
    assert max(map(abs, grown)) < 60, grown
    assert abs(sys.getallocatedblocks() - blocks) < 400
    assert resident() - memory < MEMORY


def with_failures(good: Callable[[int], Any], bad: Callable[[], Any], error: type[Exception] = KernelError) -> Any:
    """Calls, of which each thousandth fails."""

    def calls(count: int) -> None:
        for _ in range(count // 1000):
            good(999)
            try:
                bad()
            except error:
                continue
            raise AssertionError("it did not fail")

    return calls


def test_python() -> None:
    positive = kernels.positive
    for _ in range(3):
        positive(X)
    good = lambda count: often(positive, X, count=count)  # noqa: E731
    leaves_nothing(with_failures(good, lambda: positive(BAD)), [positive])


def test_forms_of_calls_in_python() -> None:
    memory, view, buffer = np.empty_like(X), np.arange(32, dtype=np.float32)[::2], Buffer.from_numpy(X)
    model = specialise(kernels.add_one, [(DType.float32, 1)]).model
    one, scaled, changed = kernels.add_one, kernels.scale_and_shift, X.copy()
    forms: list[Callable[[], Any]] = [
        lambda: one(view),
        lambda: one(X, out=memory),
        lambda: one(buffer),
        lambda: scaled(X, scale=2.0),
        lambda: kernels.axpy(0.5, X, X),
        lambda: kernels.halves(X),
        lambda: kernels.follow(changed, X, 0.5),
        lambda: model(X),
    ]

    def calls(count: int) -> None:
        for _ in range(count // len(forms)):
            for form in forms:
                form()

    leaves_nothing(calls, [memory, view, buffer, changed, "out", one], count=MILLION // 4)


@pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="loops cannot raise before NumPy 2.0")
def test_ufuncs() -> None:
    root = ufunc_of(elementwise.root)
    good = lambda count: often(root, X, count=count)  # noqa: E731
    leaves_nothing(with_failures(good, lambda: root(BAD)), [root])
    pairs, plus = X[::2], ufunc_of(elementwise.plus)
    leaves_nothing(lambda count: often(plus, pairs, 1.0, count=count), [plus, pairs], count=MILLION // 10)


def test_numba() -> None:
    numba = pytest.importorskip("numba")
    positive = pytest.importorskip("einkorn.numba").function(kernels.positive)

    @numba.njit
    def loop(x: Any, count: int) -> float:
        total = 0.0
        for _ in range(count):
            total += positive(x)[0]
        return total

    numba.core.runtime._nrt_python.memsys_enable_stats()
    loop(X, 1)
    before = numba.core.runtime.rtsys.get_allocation_stats()
    leaves_nothing(lambda count: loop(X, count))  # none fails: numba keeps what exceptions pass
    after = numba.core.runtime.rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free >= MILLION


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    positive = pytest.importorskip("einkorn.jax").op(kernels.positive)
    x, bad = jax.numpy.asarray(X), jax.numpy.asarray(BAD)
    loop = jax.jit(lambda v, count: jax.lax.fori_loop(0, count, lambda _, w: positive(v), v))
    good = lambda count: loop(x, count).block_until_ready()  # noqa: E731
    failing = with_failures(good, lambda: loop(bad, 1).block_until_ready(), Exception)
    leaves_nothing(failing, first=MILLION // 4)  # JAX keeps things of the first calls that fail
    arrays = len(jax.live_arrays())
    for _ in range(500):
        positive(x)
    gc.collect()
    assert len(jax.live_arrays()) <= arrays + 2


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    op = pytest.importorskip("einkorn.torch").op(kernels.positive)
    x, bad = torch.from_numpy(X.copy()), torch.from_numpy(BAD.copy())
    for _ in range(3):
        op(x)
    uses = x._use_count(), bad._use_count()
    good = lambda count: often(op.torch, x, count=count)  # noqa: E731
    leaves_nothing(with_failures(good, lambda: op(bad)), [x, bad, torch.Tensor])
    assert (x._use_count(), bad._use_count()) == uses
