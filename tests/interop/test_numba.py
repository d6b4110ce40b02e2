"""Kernels are called inside of functions that numba compiles."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError, KernelError

from . import direct_kernels as k

numba = pytest.importorskip("numba")
function = pytest.importorskip("einkorn.numba").function

add_one, add, spread, axpy = map(function, (k.add_one, k.add, k.spread, k.axpy))
follow, halves, pairs, swap_pairs = map(function, (k.follow, k.halves, k.pairs, k.swap_pairs))
total_of, positive, in_parallel = map(function, (k.total_of, k.positive, k.in_parallel))
twice, shifted = function(k.scale_and_shift, scale=2.0), function(k.scale_and_shift, shift=1.5)


@numba.njit
def plain(x: Any) -> Any:
    return add_one(x)


@numba.njit
def sum_of(x: Any, y: Any) -> Any:
    return add(x, y)


@numba.njit(nogil=True)
def checked(x: Any) -> Any:
    return positive(x)


def test_dtypes_and_ranks_are_those_of_the_arguments() -> None:
    for x in (np.arange(5, dtype=np.float32), np.ones((2, 3, 0)), np.array(3, np.int8), np.ones((2, 3), np.uint16)):
        actual = plain(x)
        assert actual.dtype == x.dtype and np.array_equal(actual, x + 1) and actual.shape == x.shape
    assert np.array_equal(add_one(np.ones(3)), [2, 2, 2])  # in Python it is the kernel


def test_outputs_scalars_parameters_and_what_is_changed() -> None:
    @numba.njit
    def everything(x: Any, mean: Any, both: Any) -> Any:
        low, high = halves(x)
        follow(mean, x, 0.5)
        swapped = swap_pairs(x, both)
        total = total_of((x, x, swapped))
        return low, high, axpy(2, x, total), pairs(x, both), twice(x) + shifted(x), spread(x, count=2)

    x = np.arange(1, 6, dtype=np.float32)
    mean, both = np.zeros(5, np.float32), np.arange(10, dtype=np.float32)
    low, high, line, paired, scaled, parts = everything(x, mean, both)
    assert np.array_equal(low, x[:2]) and np.array_equal(high, x[2:])
    assert np.array_equal(mean, x / 2) and np.array_equal(both[::2], x) and np.array_equal(paired, x + x)
    assert np.array_equal(line, 2 * x + (2 * x + [1, 3, 5, 7, 9])) and np.array_equal(scaled, 3 * x + 1.5)
    assert np.array_equal(parts, [x, x + 1])


def test_sizes_that_contradict_each_other_raise() -> None:
    x = np.zeros(5, np.float32)
    assert sum_of(x, x).shape == (5,)
    with pytest.raises(EinkornError, match=r"dim 'n' is 5 in argument 'x' \(axis 0\) but 3 in argument 'y'") as caught:
        sum_of(x, x[:3])
    assert caught.value.code == "EK0312" and caught.value.place is not None and caught.value.place.file == __file__

    @numba.njit
    def computed(x: Any, both: Any) -> Any:
        return pairs(x, both)

    with pytest.raises(EinkornError) as caught:
        computed(x, x)
    assert caught.value.code == "EK0313"


def test_memory_that_is_changed_is_not_shared() -> None:
    @numba.njit
    def smoothed(mean: Any, x: Any) -> Any:
        follow(mean, x, np.float32(0.25))

    x = np.ones(5, np.float32)
    with pytest.raises(EinkornError, match=r"'mean' is changed in place, and shares memory with 'x'") as caught:
        smoothed(x, x)
    assert caught.value.code == "EK0897" and np.array_equal(x, np.ones(5))
    fixed = x.copy()
    fixed.flags.writeable = False
    with pytest.raises(numba.core.errors.TypingError, match=r"'mean' is changed in place, and takes a writable array"):
        smoothed(fixed, x)


@pytest.mark.parametrize("variable", [("EINKORN_CHECKS", "all"), ("EINKORN_DOORS", "0")])
def test_without_a_native_entry_python_is_called(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*variable)

    @numba.njit(nogil=True)
    def caller(x: Any, mean: Any) -> Any:
        follow(mean, x.astype(np.float32), np.float32(0.5))
        low, high = halves(x)
        return add_one(x), axpy(2, x, x), low, high, total_of((x, x, x)), positive(x.astype(np.float32))

    x, mean = np.arange(1, 6, dtype=np.int16), np.zeros(5, np.float32)
    collected = caller(x, mean)
    for got, wanted in zip(collected, (x + 1, 3 * x, x[:2], x[2:], 3 * x, x), strict=True):
        assert np.array_equal(got, wanted) and got.dtype in (np.int16, np.float32)
    assert np.array_equal(mean, x / 2)
    with pytest.raises(KernelError, match="elements have to be positive"):
        caller(x - 3, mean)
    with pytest.raises(EinkornError, match="'x'"):
        caller(x, mean[:3])

    @numba.njit(parallel=True)
    def rows(x: Any) -> Any:
        collected = np.zeros_like(x)
        for i in numba.prange(x.shape[0]):
            collected[i] = add_one(x[i])
        return collected

    square = np.arange(16, dtype=np.uint8).reshape(4, 4)
    assert np.array_equal(rows(square), square + 1)


def test_sizes_that_are_computed_from_elements() -> None:
    kept = function(k.kept)

    @numba.njit
    def caller(x: Any) -> Any:
        return kept(x)

    x = np.array([1.0, -1.0, 3.0])
    assert caller(x).tolist() == [1, 3] and caller(-x).tolist() == [1] and caller(x[:0]).shape == (0,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_after_a_fork_calls(recwarn: pytest.WarningsRecorder) -> None:
    big = np.ones(100_000, np.float32)
    checked(big)
    child = os.fork()
    if child == 0:
        try:
            checked(-big)
        except KernelError:
            os._exit(0 if np.array_equal(checked(big), big) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "arguments, why",
    [
        ((np.ones(6)[::2],), r"'x' takes a C-contiguous array, not .*np.ascontiguousarray\(x\)"),
        ((np.asfortranarray(np.ones((2, 3))),), r"'x' takes a C-contiguous array"),
        ((np.zeros(3, "datetime64[s]"),), r"'x' takes an array of a dtype that kernels support"),
        (((1.0, 2.0),), r"'x' takes an array or a number"),
    ],
)
def test_wrong_types_name_the_argument(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(numba.core.errors.TypingError, match=why):
        plain(*arguments)


def test_parameters_that_are_not_known_are_refused() -> None:
    scale = function(k.scale_and_shift)

    @numba.njit
    def scaled(x: Any, by: Any) -> Any:
        return scale(x, scale=by)

    with pytest.raises(numba.core.errors.TypingError, match=r"einkorn.numba.function\(scale_and_shift, scale=...\)"):
        scaled(np.ones(3), 2.0)
    with pytest.raises(EinkornError) as caught:
        function(k.scale_and_shift, skale=2.0)
    assert caught.value.code == "EK0320"


def test_kernels_that_cannot_be_called_so() -> None:
    with pytest.raises(EinkornError, match="is not a kernel") as caught:
        function(len)
    assert caught.value.code == "EK0895"


def test_a_kernel_that_stops_itself_raises_and_the_next_call_works() -> None:
    good, bad = np.ones(100_000, np.float32), np.full(100_000, -1, np.float32)
    for x in (bad[:3], bad):
        with pytest.raises(KernelError, match="elements have to be positive") as caught:
            checked(x)
        assert caught.value.code == "EK0701" and np.array_equal(checked(good), good)
    errors: list[Exception] = []

    def call() -> None:
        for _ in range(5):
            try:
                checked(bad)
            except KernelError as error:
                errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 50


def test_prange_calls_kernels_and_nothing_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    @numba.njit(parallel=True)
    def rows(x: Any) -> Any:
        out = np.zeros_like(x)
        for row in numba.prange(x.shape[0]):
            out[row] = in_parallel(x[row])
        return out

    x = np.random.default_rng(3).random((40, 3000)).astype(np.float32) + 1
    assert np.array_equal(rows(x), x)
    big = np.ones((4, 100_000), np.float32)  # large enough for our own threads, next to those of numba
    assert np.array_equal(rows(big), big)
    x[:, 7] = -1
    try:
        rows(x)  # numba loses exceptions of its threads
    except (KernelError, SystemError):
        pass
    else:
        reported = capfd.readouterr().err
        assert (
            "elements have to be positive" in reported
            and "op 'in_parallel' was called" in reported
            and "None" not in reported
        )


def test_what_is_compiled_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "cached_caller.py"
    source.write_text("import numba\n\nf = None\n\n@numba.njit(cache=True)\ndef g(x):\n    return f(x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import cached_caller  # type: ignore[import-not-found]

    with pytest.warns(numba.core.errors.NumbaWarning, match="Cannot cache compiled function"):
        cached_caller.f = add_one
        cached_caller.g(np.ones(3))
    assert not list(tmp_path.rglob("*.nbi"))


@pytest.mark.parametrize("variable", [None, ("EINKORN_DOORS", "0")])
def test_a_try_of_numba_catches_what_a_kernel_reports(
    variable: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(*variable)
    positive, add = function(k.positive), function(k.add)  # compiled anew

    # One `try` in each function: with Python 3.13 numba does not catch what is raised in a second one.
    @numba.njit
    def sum_of_positive(x: Any) -> Any:
        try:
            return positive(x).sum()
        except Exception:
            return -1.0

    @numba.njit
    def sum_of_both(x: Any, y: Any) -> Any:
        try:
            return add(x, y).sum()
        except Exception:
            return -2.0

    @numba.njit
    def guarded(x: Any, y: Any) -> Any:
        return np.array([sum_of_positive(x), sum_of_both(x, y), add(x, x).sum()])

    @numba.njit
    def raises_anew(x: Any) -> Any:
        failed, actual = False, x
        try:
            actual = positive(x)
        except Exception:
            failed = True
        if failed:
            raise ValueError("of its own")
        return actual

    good, bad = np.ones(3, np.float32), -np.ones(3, np.float32)
    for _ in range(3):
        assert guarded(good, good).tolist() == [3, 6, 6]
        assert guarded(bad, good).tolist() == [-1, 0, -6]
        assert guarded(bad, good[:2]).tolist() == [-1, -2, -6]
        with pytest.raises(ValueError, match="of its own"):
            raises_anew(bad)
        with pytest.raises(KernelError, match="elements have to be positive"):
            numba.njit(lambda x: positive(x))(bad)


def test_sizes_beyond_64_bits_are_refused() -> None:
    table = function(k.flat_table)
    caller = numba.njit(lambda x, y: table(x, y))
    assert caller(np.ones((3, 1), np.float32), np.ones((4, 1), np.float32)).shape == (12,)
    for size in (2**33, 2**32, 3_037_000_500):  # products that wrap to 0, to 0 and to below 0
        empty = np.empty((size, 0), np.float32)
        with pytest.raises(EinkornError, match="more than 64 bits count") as caught:
            caller(empty, empty)
        assert caught.value.code == "EK0476"
    assert caller(np.empty((2**33, 0), np.float32), np.empty((0, 0), np.float32)).shape == (0,)


def test_an_error_that_is_kept_is_raised_once() -> None:
    with pytest.raises(KernelError) as caught:
        checked(-np.ones(2, np.float32))
    again = weakref.ref(caught.value)
    del caught
    gc.collect()
    assert again() is None
