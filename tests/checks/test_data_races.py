"""Data races of parallel bodies on a CPU are refused where the compiler sees them, and found by `checks="all"`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import kernels_of
from einkorn.dsl.diagnostics.errors import CompileError, KernelError

KERNELS = Path(__file__).parent / "racing_kernels.py"
SPEC = importlib.util.spec_from_file_location("racing_kernels", KERNELS)
assert SPEC is not None and SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)

X = np.arange(1, 7, dtype=np.float32)
MATRIX = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
ZEROS = np.zeros(6, np.int64)
TWICE = np.array([0, 3, 4, 3, 1, 5])
ONCE = np.array([5, 3, 4, 0, 1, 2])


def kernel(name: str) -> Any:
    return getattr(MODULE, name)


def run(name: str, *given: Any) -> Any:
    arguments = [np.array(array) for array in given]
    result = kernel(name).compile(*arguments, checks="all")(*arguments)
    return arguments[0] if result is None else result


def line_of(name: str, text: str) -> int:
    lines = KERNELS.read_text().splitlines()
    start = lines.index(f'@register("{name}")')
    return next(n for n, line in enumerate(lines[start:], start + 1) if text in line)


@pytest.mark.parametrize(
    ("name", "x", "text"),
    [
        ("update_one", X, "out[0] += x[i]"),
        ("last_one", X, "store(out, 0, x[i])"),
        ("count_some", X, "out[0] = out[0] + 1"),
        ("whole_row", MATRIX, "out[j] += row[j]"),
        ("vector_of_all", X, "out.store"),
        ("next_to_elements", X, "top[0] = top[0] + x[i]"),
    ],
)
@pytest.mark.parametrize("checks", ["off", "safe"])
def test_what_the_compiler_sees_is_refused(name: str, x: Any, text: str, checks: str) -> None:
    with pytest.raises(CompileError, match="every call of a parallel body writes the same element") as caught:
        kernel(name).compile(x, checks=checks)
    assert caught.value.code == "EK0252"
    assert caught.value.place is not None and caught.value.place.line == line_of(name, text)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("histogram", (ZEROS, TWICE), "out[x[i]] += 1"),
        ("scattered", (X, TWICE), "store(out, at[i], x[i])"),
        ("running", (X,), "else out[i - 1] + x[i]"),
        ("pairs", (X,), "store(out, i // 2, x[i])"),
        ("overlapping_vectors", (X,), "out.store"),
        ("scattered_vectors", (X, TWICE), "out.scatter"),
    ],
)
def test_what_data_decide_is_found_by_all_checks(name: str, given: Any, text: str) -> None:
    kernel(name).compile(*given)(*map(np.array, given))  # other levels do not look
    for _ in range(3):
        with pytest.raises(KernelError, match=r"data race: calls . and . of a parallel body") as caught:
            run(name, *given)
        assert caught.value.code == "EK0740" and caught.value.tensor == "out"
        assert caught.value.place is not None and caught.value.place.line == line_of(name, text)
        assert any(KERNELS.name in note for note in caught.value.notes)


def test_an_atomic_update_and_a_plain_one_race() -> None:
    with pytest.raises(KernelError, match=r"and call . (updates|writes) it"):
        run("mixed_atomics", ZEROS, np.array([1, 1, 2]))


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("histogram", (ZEROS, ONCE), np.ones(6)),
        ("scattered", (X, ONCE), X[np.argsort(ONCE)]),
        ("scattered_vectors", (X, ONCE), X[np.argsort(ONCE)]),
        ("first_alone", (X,), X[:1]),
        ("any_positive", (X,), [1]),
        ("find_unique", (X, np.float32(3)), [2]),
        ("rows", (MATRIX,), np.cumsum(MATRIX, 1) + 1),
        ("own_storage", (X,), X * 2),
        ("counted", (ZEROS, TWICE), np.bincount(TWICE, minlength=6)),
        ("claimed", (ONCE,), ONCE),
        ("two_loops", (X,), X[::-1] * 2),
        ("digits", (MATRIX,), MATRIX),
        ("update_one", (X[:1],), None),
    ],
)
def test_no_call_is_blamed_without_a_race(name: str, given: Any, wanted: Any) -> None:
    if wanted is None:
        with pytest.raises(CompileError):
            run(name, *given)
    else:
        assert np.array_equal(run(name, *given), wanted)


def test_a_loop_of_one_call_may_write_where_it_likes(tmp_path: Path) -> None:
    text = (
        "from einkorn.dsl import *\n\n\n@register('one')\ndef one(out: OutputTensor[float32, '1'],"
        " x: InputTensor[float32, '1']):\n    parallel_for(1, lambda i: store(out, 0, x[0]))\n"
    )
    assert kernels_of(text)["one"](X[:1]).tolist() == [1.0]


def test_large_scatters_are_recorded_on_all_threads() -> None:
    at = np.random.default_rng(0).permutation(20_000)
    x = np.arange(20_000, dtype=np.float32)
    assert np.array_equal(run("scattered", x, at), x[np.argsort(at)])
    at[19_000] = at[17]
    with pytest.raises(KernelError, match=rf"calls 17 and 19000 of a parallel body access element \[{at[17]}\]"):
        run("scattered", x, at)
