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
    collected = np.random.default_rng(3).integers(limits.max // 2, limits.max, count, dtype=dtype, endpoint=True)
    collected[3::7] = 2
    return collected


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_are_as_wide_as_in_numpy(dtype: type, kernels: KernelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(text, "min")  # Python's own from here on
    monkeypatch.delattr(text, "max")
    monkeypatch.setattr(text, "unroll", lambda values: values)
    x = numbers(dtype)
    wide = np.uint64 if np.issubdtype(dtype, np.unsignedinteger) else np.int64
    (got,) = kernels("every_sum", x, outs=[(DType.from_numpy(np.dtype(wide)), (19,))])
    for value, function in zip(got, text.FUNCTIONS, strict=True):
        wanted = function(x.tolist(), len(x))
        assert value == np.array([wanted % 2**64], np.uint64).view(wide)[0], function.__name__


@pytest.mark.parametrize("dtype", NARROW)
def test_terms_of_sums_do_not_wrap(dtype: type, kernels: KernelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("min", "max", "abs"):
        monkeypatch.delattr(text, name)  # Python's own from here on
    monkeypatch.setattr(text, "unroll", lambda values: values)
    x = numbers(dtype, 40)
    wide = np.uint64 if np.issubdtype(dtype, np.unsignedinteger) else np.int64
    (got,) = kernels("every_term", x, outs=[(DType.from_numpy(np.dtype(wide)), (17,))])
    for value, function in zip(got, text.TERMS, strict=True):
        wanted = function(x.tolist(), len(x))
        assert value == np.array([wanted % 2**64], np.uint64).view(wide)[0], function.__name__


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_of_unsigned_numbers_may_be_negative(dtype: type, kernels: KernelFile) -> None:
    """As floats they show what the low 64 bits do not: whether a sum of unsigned numbers is negative."""
    x = numbers(dtype, 40)
    y = np.sort(x)[::-1].copy()
    (got,) = kernels("differences", x, y, outs=[(DType.float64, (9,))])
    a, b = (each.astype(object) for each in (x, y))
    terms = [a - b[0], -a, a - 3 * b, abs(a - b[0]), np.append(a, -b), a - 1 - b, a[:8] - b[0], -a, a - b[0]]
    assert np.allclose(got, [float(each.sum()) for each in terms], rtol=1e-12)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("total -= x[0]", 250),
        ("total = total - x[0]", 250),
        ("total = x[0] - total", -250),
        ("total += x[0] - x[1]", 6),
    ],
)
def test_an_unsigned_sum_is_not_made_smaller(line: str, wanted: int, tmp_path: Path) -> None:
    path = tmp_path / "smaller.py"
    text = f"""from einkorn.dsl import InputTensor, OutputTensor, float64, int64, register, uint8

@register("smaller")
def smaller(out: OutputTensor[float64, ""], x: InputTensor[uint8, "n"]):
    total = 0
    for i in range(x.dim(0)):
        total += x[i]
    {line}
    out[()] = total.cast(float64)
"""
    path.write_text(text)
    x = np.array([3, 250], np.uint8)
    with pytest.raises(CompileError) as error:
        KernelFile(path)("smaller", x)
    assert error.value.code == "EK0237" and error.value.place.line == 8
    path.write_text(text.replace("total = 0", "total = int64(0)"))
    (got,) = KernelFile(path)("smaller", x)
    assert got == wanted


@pytest.mark.parametrize("dtype", NARROW)
def test_a_type_that_is_written_ends_the_wider_arithmetic(dtype: type, kernels: KernelFile) -> None:
    x = numbers(dtype, 40)
    wide = np.uint64 if np.issubdtype(dtype, np.unsignedinteger) else np.int64
    (got,) = kernels("written_type", x, outs=[(DType.from_numpy(np.dtype(wide)), (3,))])
    assert got.tolist() == [(x * x).sum(dtype=wide)] * 3
    assert got[0] != (x.astype(wide) ** 2).sum(), "this test shows nothing"


def test_a_term_that_may_exceed_64_bits_is_refused_where_its_size_matters(tmp_path: Path) -> None:
    path = tmp_path / "long_terms.py"
    text = """from einkorn.dsl import InputTensor, OutputTensor, int64, int32, register

@register("long")
def long(out: OutputTensor[int64, ""], x: InputTensor[int32, "n"]):
    total = 0
    for i in range(x.dim(0)):
        total += x[i] * x[i] * x[i] % 7
    out[()] = total
"""
    path.write_text(text)
    with pytest.raises(CompileError) as error:
        KernelFile(path)("long", np.arange(3, dtype=np.int32))
    assert error.value.code == "EK0235" and error.value.place.line == 7
    path.write_text(text.replace("x[i] * x[i] * x[i] % 7", "(x[i] * x[i] * x[i]).cast(int32) % 7"))
    (got,) = KernelFile(path)("long", np.array([2000, -3, 5], np.int32))
    assert got == (np.array([2000, -3, 5], np.int32) ** 3 % 7).sum()
    path.write_text(text.replace(" % 7", ""))  # the low 64 bits are right, as those of the sum are
    (got,) = KernelFile(path)("long", np.full(4, 2**31 - 1, np.int32))
    assert got == (np.full(4, 2**31 - 1, np.int64) ** 3).sum()


POSITIVE = """from einkorn.dsl import InputTensor, OutputTensor, exact, int64, int8, register, select
from einkorn.stdlib import Sum, reduce

@register("positive")
def positive(out: OutputTensor[int64, ""], x: InputTensor[int8, "n"]):
    total = 0
    for i in range(x.dim(0)):
        p = x[i] * x[0]
        BODY
    out[()] = total
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("if p > 0: total += p", "EK0236"),
        ("total += p if x[i] * x[0] > 0 else 1", "EK0236"),
        ("total += -p if p + 1 > 0 else p", "EK0236"),
        ("q = exact(p)\n        if q > 0: total += q", ""),
        ("p = p.cast(int8)\n        if p > 0: total += p", ""),
        ("if x[i] > 0: total += p", ""),
        ("if total > p: total += p", ""),
        ("total += reduce(x, Sum, of=lambda v: select(v * v > 3, v * v, 0))", "EK0236"),
        ("total += 1 if p > 0 else 2", ""),
    ],
)
def test_a_comparison_and_a_sum_see_the_same_number(body: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "positive.py"
    path.write_text(POSITIVE.replace("BODY", body))
    kernels, x = KernelFile(path), np.array([100, -3, 50, 2, -128], np.int8)
    if code:
        with pytest.raises(CompileError) as error:
            kernels("positive", x)
        assert error.value.code == code and "exact(x * y)" in str(error.value)
        return
    total, wraps = 0, "cast(int8)" in body or body.startswith("total += 1")
    for value in x.tolist():
        p = value * 100
        p = (p + 128) % 256 - 128 if wraps else p
        total += (p if total > p else 0) if body.startswith("if total") else 0
        total += (1 if p > 0 else 2) if body.startswith("total") else p if p > 0 and not body.startswith("if t") else 0
    (got,) = kernels("positive", x)
    assert got == total


@pytest.mark.parametrize("dtype", NARROW)
def test_what_monoids_add_up_does_not_wrap(dtype: type, kernels: KernelFile) -> None:
    x = numbers(dtype, 40)
    wide = np.uint64 if np.issubdtype(dtype, np.unsignedinteger) else np.int64
    outs = [(DType.from_numpy(np.dtype(wide)), (3,)), (DType.from_numpy(np.dtype(dtype)), (1,))]
    got, best, running = kernels("of_monoids", x, outs=[*outs, (DType.from_numpy(np.dtype(wide)), (40,))])
    whole = x.astype(wide)
    assert got.tolist() == [(whole * whole).sum(), (whole + 1).sum(), (whole[:8] ** 2).sum()]
    assert best.tolist() == [(x * x).max()]
    assert np.array_equal(running, np.cumsum(whole * whole))


def test_products_of_half_floats_are_not_rounded_before_they_are_added(kernels: KernelFile) -> None:
    x = np.full(3, 300, np.float16)
    (got,) = kernels("half_dot", x * np.float16(1 / 16))
    assert got[0] == np.float16(3 * 18.75**2)
    (got,) = kernels("half_dot", np.array([255.9, 0], np.float16))
    assert got[0] == np.float16(np.float32(np.float16(255.9)) ** 2)


@pytest.mark.parametrize("dtype", NARROW)
def test_what_is_chosen_keeps_its_dtype(dtype: type, kernels: KernelFile) -> None:
    x = numbers(dtype)
    (got,) = kernels("largest", x)
    assert got.tolist() == [x.max(), x[-1], x.max()]


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
    assert got[0] != np.cumsum(x, dtype=dtype)[-1], "this test shows nothing"


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
