"""Differences that `testing.check_op` finds: when arrays differ, a small case, and a program that shows it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..dsl.diagnostics.errors import EinkornError
from ..dsl.types.dtype import DType
from ..graph.driver.arrays import rounding

Array = np.ndarray[Any, Any]
TRIALS = 200  # calls that making a case small may take


class CheckError(EinkornError, AssertionError):
    """An op does not do what its reference or the interpreter says."""


@dataclass(frozen=True)
class Tolerance:
    """How far apart two elements may be: `rtol` of the wanted one, and `atol`."""

    rtol: float
    atol: float

    @staticmethod
    def exact() -> Tolerance:
        return Tolerance(0.0, 0.0)


def tolerance_for(wanted: Array, rtol: float | None, atol: float | None) -> Tolerance:
    """The given tolerance, or one that follows from the dtype and the largest element."""
    if wanted.dtype.kind == "c":  # a part may be small next to the products that it is the sum of
        parts = [tolerance_for(part, rtol, atol) for part in (wanted.real, wanted.imag)]
        return Tolerance(max(part.rtol for part in parts), max(part.atol for part in parts))
    if not DType.from_numpy(wanted.dtype).is_float():
        return Tolerance(rtol or 0.0, atol or 0.0)
    of_each, of_all = rounding(wanted)
    return Tolerance(of_each if rtol is None else rtol, of_all if atol is None else atol)


@dataclass(frozen=True)
class Difference:
    """Where two ways to compute an output part."""

    output: int
    at: tuple[int, ...]
    wanted: Any
    got: Any
    count: int
    total: int
    by: str
    way: str
    outputs: tuple[Array, ...]

    def error(self, op: str, inputs: Sequence[Array], about: str, file: Path) -> CheckError:
        """The error of it."""
        shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in inputs)
        where = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        element = f"output {self.output}{where}"
        if self.count == 0:
            message = f"op '{op}' gives {self.got} for output {self.output}, {self.by} says {self.wanted}"
        else:
            message = f"op '{op}' differs from {self.by} at {element}: expected {self.wanted!r}, got {self.got!r}"
        return CheckError(
            message,
            code="EK0730",
            op=op,
            expected=self.wanted,
            got=self.got,
            notes=[
                f"the inputs are {shown or 'none'}" + (f" ({about})" if about else ""),
                f"{self.count} of {self.total} elements differ; {self.way} is compared with {self.by}",
                f"{file} shows this case alone",
            ],
        )


def difference(
    wanted: Sequence[Array], got: Sequence[Array], tolerances: Sequence[Tolerance], by: str, way: str
) -> Difference | None:
    """The first element in which outputs differ, or None. NaN equals NaN; without tolerance, zeros keep their sign."""
    outputs = tuple(np.asarray(a) for a in wanted)
    if len(wanted) != len(got):
        return Difference(0, (), f"{len(wanted)} outputs", f"{len(got)}", 0, 0, by, way, outputs)
    for number, (a, b, tolerance) in enumerate(zip(outputs, got, tolerances, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            said, is_ = (f"{x.dtype}{list(x.shape)}" for x in (a, b))
            return Difference(number, (), said, is_, 0, b.size, by, way, outputs)
        wrong = _wrong(a, b, tolerance)
        if wrong.any():
            at = tuple(int(k[0]) for k in np.nonzero(wrong)) if wrong.ndim else ()
            return Difference(number, at, a[at], b[at], int(wrong.sum()), wrong.size, by, way, outputs)
    return None


def _wrong(wanted: Array, got: Array, tolerance: Tolerance) -> Array:
    if wanted.dtype.kind == "c":
        return _wrong(wanted.real, got.real, tolerance) | _wrong(wanted.imag, got.imag, tolerance)
    if not DType.from_numpy(wanted.dtype).is_float():
        if not (tolerance.rtol or tolerance.atol):
            return np.asarray(wanted != got)
        limit = tolerance.atol + tolerance.rtol * np.abs(wanted.astype(np.float64))
        return np.asarray(np.abs(wanted.astype(np.float64) - got.astype(np.float64)) > limit)
    with np.errstate(all="ignore"):
        a, b = wanted.astype(np.float64), got.astype(np.float64)
        if tolerance == Tolerance.exact():
            same = (a == b) & (np.signbit(a) == np.signbit(b))
        else:
            limit = tolerance.atol + tolerance.rtol * np.abs(a)
            same = (a == b) | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= limit))
        return np.asarray(~(same | (np.isnan(a) & np.isnan(b))))


# *** making a case small ***


def shrink(arrays: list[Array], fails: Callable[[list[Array]], bool]) -> list[Array]:
    """The same shapes with as many zeros and ones as possible instead of elements, still failing."""
    budget = TRIALS
    best = [np.array(a) for a in arrays]
    shared = {k: next(j for j, b in enumerate(arrays) if b is a) for k, a in enumerate(arrays)}
    for number in range(len(best)):
        if shared[number] != number:
            continue
        for plain in (0, 1):
            size = best[number].size
            chunk = size
            while chunk >= 1 and budget > 0:
                for start in range(0, size, chunk):
                    changed = best[number].reshape(-1).copy()
                    part = changed[start : start + chunk]
                    if budget <= 0 or not np.any((part != 0) & (part != 1)):
                        continue
                    part[...] = plain
                    array = changed.reshape(best[number].shape)
                    candidate = [array if shared[k] == number else a for k, a in enumerate(best)]
                    budget -= 1
                    if fails(candidate):
                        best = candidate
                chunk //= 2
    return best


# *** a program that shows it ***


def save(
    folder: Path,
    op: str,
    library: str | None,
    inputs: Sequence[Array],
    parameters: dict[str, object],
    differing: Difference,
) -> Path:
    """Writes a program that checks this case alone; gives its path."""
    arguments = [repr(op), *([repr(library)] if library is not None else [])]
    given = ", ".join(f"{name!r}: {_literal(value)}" for name, value in parameters.items())
    lines = [
        f'"""Shows a failure of op {op!r}: {differing.way} differs from {differing.by}."""',
        "",
        "import ml_dtypes  # noqa: F401",
        "import numpy as np",
        "",
        "from einkorn.dsl import DType  # noqa: F401",
        "from einkorn.testing import check_op",
        "",
        "inputs = [",
        *(f"    {array_text(a)}," for a in inputs),
        "]",
    ]
    if differing.by == "the reference":
        lines += ["expected = [", *(f"    {array_text(a)}," for a in differing.outputs), "]"]
    else:
        lines.append("expected = None  # the expected results come from the interpreter")
    lines.append(f"check_op({', '.join(arguments)}, inputs=inputs, expected=expected, parameters={{{given}}})")
    text = "\n".join(lines) + "\n"
    name = re.sub(r"\W+", "_", op)
    file = folder / f"failing_{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.py"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _literal(value: object) -> str:
    return f"DType.{value.name}" if isinstance(value, DType) else repr(value)


def array_text(array: Array) -> str:
    """An expression that gives the array back, to the bit."""
    dtype = DType.from_numpy(array.dtype)
    kind = f"ml_dtypes.{array.dtype.name}" if array.dtype.type.__module__.startswith("ml_dtypes") else None
    kind = kind or ("np.bool_" if dtype is DType.bool else f"np.{array.dtype.name}")
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.is_float() or dtype.is_complex():
        bits = f"u{dtype.part.size_in_bytes}"
        numbers = ", ".join(hex(int(n)) for n in flat.view(bits))
        return f"np.array([{numbers}], np.{np.dtype(bits).name}).view({kind}).reshape({array.shape})"
    numbers = ", ".join(str(n) for n in flat.tolist())
    return f"np.array([{numbers}], {kind}).reshape({array.shape})"
