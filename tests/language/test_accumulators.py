"""Sums that a number begins are as wide as NumPy's; what is too narrow for one is refused with a hint that works."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import accumulator_kernels as text
import numpy as np
import pytest
from kernel_harness import KernelFile, bfloat16

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError

NARROW = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "accumulator_kernels.py")


def numbers(dtype: type, count: int = 100) -> np.ndarray:
    """Large ones, so that sums of a few do not fit their dtype."""
    limits = np.iinfo(dtype)
    found = np.random.default_rng(3).integers(limits.max // 2, limits.max, count, dtype=dtype, endpoint=True)
    found[3::7] = 2
    return found


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_are_as_wide_as_in_numpy(dtype: type, kernels: KernelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(text, "min")  # Python's own from here on
    monkeypatch.delattr(text, "max")
    monkeypatch.setattr(text, "unroll", lambda values: values)
    x = numbers(dtype)
    wide = np.uint64 if np.issubdtype(dtype, np.unsignedinteger) else np.int64
    (got,) = kernels("every_sum", x, outs=[(DType.from_numpy(np.dtype(wide)), (17,))])
    for value, function in zip(got, text.FUNCTIONS, strict=True):
        wanted = function(x.tolist(), len(x))
        assert value == np.array([wanted % 2**64], np.uint64).view(wide)[0], function.__name__


def test_what_is_chosen_keeps_its_dtype(kernels: KernelFile) -> None:
    x = numbers(np.uint8)
    (got,) = kernels("largest", x)
    assert got.tolist() == [x.max(), x[-1]]


def test_a_sum_of_a_given_type_keeps_it(kernels: KernelFile) -> None:
    x = numbers(np.int16)
    (got,) = kernels("typed", x)
    assert got.tolist() == [x.sum(dtype=np.int16)] * 2


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_half_floats_are_added_up_in_float32(dtype: type, kernels: KernelFile) -> None:
    x = np.random.default_rng(5).uniform(0, 2, 3000).astype(dtype)
    (got,) = kernels("half_sum", x)
    total = np.float32(0)
    for value in x.astype(np.float32):
        total += value
    assert got.tolist() == [total.astype(dtype), (total / 2 + np.float32(x[0])).astype(dtype)]
    assert got[0] != np.cumsum(x, dtype=dtype)[-1], "this test tells nothing"


@pytest.mark.parametrize("dtype", NARROW)
def test_a_sum_is_not_stored_where_it_does_not_fit(dtype: type, kernels: KernelFile) -> None:
    with pytest.raises(CompileError) as error:
        kernels("into", np.zeros(1, dtype), numbers(dtype))
    name = np.dtype(dtype).name
    assert error.value.code == "EK0213"
    assert error.value.hint == "write total.cast(N)"
    limits = np.iinfo(dtype)
    assert f"clamp(..., {limits.min}, {limits.max})" in str(error.value) and name in str(error.value)


# *** hints, followed to the letter ***

BLURS = {
    "a loop": """
        total = 0
        for dy in range(3):
            for dx in range(3):
                total += x[y + dy, c + dx]
        out[y, c] = total / 9
    """,
    "unrolled": """
        total = 0
        for dy in unroll(3):
            for dx in unroll(3):
                total = total + x[y + dy, c + dx]
        out[y, c] = total / 9
    """,
    "a sum": """
        out[y, c] = sum(x[y + dy, c + dx] for dy in unroll(3) for dx in unroll(3)) / 9
    """,
    "weighted": """
        total = 0
        weights = (1, 2, 1)
        for dy in unroll(3):
            for dx in unroll(3):
                total += weights[dy] * x[y + dy, c + dx].cast(int32) * weights[dx]
        out[y, c] = total / 16
    """,
}
HEAD = """from einkorn.dsl import *


@register("blur")
def blur(out: OutputTensor[uint8, "(h-2) (w-2)"], x: InputTensor[uint8, "h w"]) -> None:
    def pixel(number):
        y = number // out.dim(1)
        c = number % out.dim(1)
"""


def _with_hint(source: str, error: CompileError) -> str:
    """The text with what the hint says, written where the error points."""
    place, hint = error.place, error.hint
    assert place is not None and hint is not None, str(error)
    lines = source.split("\n")
    line = lines[place.line - 1]
    marked = line[place.column - 1 : place.end_column - 1]
    if "`//`" in hint:
        assert marked.count("/") == 1, str(error)
        new = marked.replace("/", "//")
    else:
        assert hint.startswith("write "), str(error)
        new = hint.removeprefix("write ")
    lines[place.line - 1] = line[: place.column - 1] + new + line[place.end_column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize("name", BLURS)
def test_the_hints_of_a_blur_lead_to_a_right_picture(name: str, tmp_path: Path) -> None:
    body = textwrap.indent(textwrap.dedent(BLURS[name].rstrip()), " " * 8)
    source = f"{HEAD}{body}\n\n    parallel_for(out.dim(0) * out.dim(1), pixel)\n"
    x = np.random.default_rng(1).integers(180, 256, (8, 9), dtype=np.uint8)
    for attempt in itertools.count():
        path = tmp_path / f"blur_{attempt}.py"
        path.write_text(source)
        try:
            (got,) = KernelFile(path)("blur", x)
            break
        except CompileError as error:
            assert attempt < 4, str(error)
            source = _with_hint(source, error)
    assert attempt == 2  # `//` for `/`, then a cast
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3))
    weights = np.outer([1, 2, 1], [1, 2, 1]) if name == "weighted" else np.ones((3, 3), np.int64)
    assert (got == (windows * weights).sum((2, 3)) // weights.sum()).all()
