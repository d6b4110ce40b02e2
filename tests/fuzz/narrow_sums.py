"""Random sums of narrow integers, compared with what NumPy makes of the same text: equal, or refused, never wrapped.

`python tests/fuzz/narrow_sums.py --count 2000 --seed 0` writes random functions that add numbers up, ten to an op, and
rows of monoids, scans and ops; it runs each and prints how many were equal and refused. The same text runs in Python:
elements are Python's whole numbers, so that `x[i] * y[i]` does not wrap, and what a number begins is a `Wide`, exact
in 64 bits.

See also `programs` (programs without sums).
"""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "language"), str(HERE.parent)]

import einkorn.functional as F  # noqa: E402
from kernel_harness import KernelFile  # noqa: E402

from einkorn.dsl import DType  # noqa: E402
from einkorn.dsl.diagnostics.errors import EinkornError  # noqa: E402

NARROW = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
SIZE = 24  # elements of the tensors
AT_ONCE = 10  # functions of an op
ROWS, COLUMNS = 3, 41


class Wide:
    """A whole number of 64 bits that widens what it is combined with.

    A sum of unsigned numbers may be an Int64 or a UInt64. Below zero it is an Int64, or refused; from 2**63 on a
    comparison of it is `doubtful`.
    """

    doubtful = False

    def __init__(self, value: int, signed: bool) -> None:
        if signed or not -(2**63) <= value < 2**63:
            value %= 2**64
        self.value = value - 2**64 if signed and value >= 2**63 else value
        self.signed = signed

    def _compared(self) -> int:
        Wide.doubtful |= not self.signed and self.value >= 2**63
        return self.value

    def _with(self, other: Any, result: int) -> Wide:
        return Wide(result, self.signed)

    def __add__(self, other: Any) -> Wide:
        return self._with(other, self.value + int(other))

    def __sub__(self, other: Any) -> Wide:
        return self._with(other, self.value - int(other))

    def __rsub__(self, other: Any) -> Wide:
        return self._with(other, int(other) - self.value)

    def __mul__(self, other: Any) -> Wide:
        return self._with(other, self.value * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        return self.value

    def __gt__(self, other: Any) -> bool:
        return self._compared() > int(other)

    def __lt__(self, other: Any) -> bool:
        return self._compared() < int(other)


@dataclass
class Tally:
    """How many were equal and refused, the refusals by code, and what was wrong."""

    equal: int = 0
    refused: int = 0
    codes: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)

    def refuse(self, error: EinkornError) -> None:
        self.refused += 1
        self.codes[str(error.code)] += 1

    def judge(self, same: bool, text: str) -> None:
        self.equal += same
        if not same:
            self.wrong.append(text)


# *** functions ***


class Writer:
    """Writes one function `name(x, y, n)`: sums in loops, of elements of x and y."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = itertools.count()

    def function(self, name: str) -> list[str]:
        """Its lines; `BEGIN(1)` stands for a number that begins a sum."""
        rng = self.rng
        self.sums = ["a", "b"][: rng.choice((1, 1, 2))]
        lines = [f"def {name}(x, y, n):"]
        lines += [f"    {each} = BEGIN({rng.choice((0, 0, 0, 1, 2, 3))})" for each in self.sums]
        lines += ["    def plus(p, q):", "        return p + q", ""] if rng.random() < 0.2 else []
        self.helper = "plus" if len(lines) > len(self.sums) + 1 else ""
        for _ in range(rng.choice((1, 1, 2))):
            lines += ["    " + line for line in self.loop(rng.choice((0, 0, 1)))]
        result = self.sums[0] if rng.random() < 0.6 else " + ".join([*self.sums, "x[1]"])
        return [*lines, f"    return {result}", "", ""]

    def loop(self, depth: int) -> list[str]:
        rng, i = self.rng, f"i{next(self.names)}"
        kind = rng.choice(("range", "range", "unroll", "while", "once"))
        if kind == "once":
            return self.update("5")
        size = "n" if depth == 0 else str(rng.choice((2, 3, 4)))
        body = self.loop(depth - 1) if depth else []
        for _ in range(rng.choice((1, 1, 2)) if not body else 1):
            body += self.update(i)
        body = ["    " + line for line in body]
        if kind == "unroll":
            return [f"for {i} in unroll({rng.choice((2, 3, 5))}):", *body]
        if kind == "range":
            return [f"for {i} in range({size}):", *body]
        return [f"{i} = 0", f"while {i} < {size}:", *body, f"    {i} += 1"]

    def update(self, i: str) -> list[str]:
        """One variable anew: most often by a sum."""
        rng, v = self.rng, self.rng.choice(self.sums)
        term, test = self.term(i), self.test(i, v)
        forms = [
            [f"{v} += {term}"],
            [f"{v} = {v} + {term}"],
            [f"{v} = {term} + {v}"],
            [f"{v} -= {term}"],
            [f"{v} = {v} * {rng.choice((2, 3, 31))} + {term}"],
            [f"{v} = {v} + {term} if {test} else {v}"],
            [f"if {test}:", f"    {v} += {term}"],
            [f"if {test}:", f"    {v} += {term}", "else:", f"    {v} = {v} + {rng.choice((1, 2))}"],
            [f"{v} *= {term}"],
            [f"{v}, rest = {v} + {term}, {v}"],
            [f"t = {term}", f"if {test}:", f"    t = t * 2 - {self.term(i)}", f"{v} += t"],
        ]
        if self.helper:
            forms += [[f"{v} = plus({v}, {term})"]] * 3
        if len(self.sums) == 2:
            forms += [[f"a, b = b, a + {term}"]] * 2
        return rng.choice(forms)

    def term(self, i: str) -> str:
        rng = self.rng
        one, other = (f"{rng.choice('xy')}[{i}]" for _ in range(2))
        simple = rng.choice((one, one, f"{rng.choice('xy')}[{rng.choice((0, 3, 7))}]"))
        if rng.random() < 0.4:
            return simple
        return rng.choice(
            (
                f"({one} * {other})",
                f"({one} - {other})",
                f"({one} + {rng.choice((1, 5))})",
                f"({one} if {one} > {other} else {other})",
                f"({one} * {other} if {one} > {other} else {other} - {simple})",
                f"({one} * {other} - {simple} * {rng.choice((3, 100))})",
                f"(-({one} + {other}))",
                f"({one} << {rng.choice((1, 3))})",
                f"abs({one} - {other})",
                f"max({one} * {other}, {simple})",
                f"(({one} + {other}) // {rng.choice((2, 7))})",
                f"(({one} * {other}) % {rng.choice((3, 10))})",
                f"sum({rng.choice('xy')}[k] * {one} for k in unroll(4))" if rng.random() < 0.3 else simple,
            )
        )

    def test(self, i: str, v: str) -> str:
        return self.rng.choice((f"x[{i}] > y[{i}]", f"x[{i}] > 3", f"{v} > 100", f"{v} < y[{i}]"))


def values(rng: random.Random, dtype: Any, shape: Any) -> np.ndarray[Any, Any]:
    """Numbers near the ends of a dtype, and small ones."""
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(rng.randrange(2**32))
    large = generator.integers(limits.max - limits.max // 4, limits.max, shape, dtype, endpoint=True)
    ends = np.where(generator.random(shape) < 0.3, limits.min, large)
    return np.where(generator.random(shape) < 0.3, generator.integers(0, 9, shape), ends).astype(dtype)


def whole(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers in the dtype of their sums."""
    return x.astype(DType.from_numpy(x.dtype).sum_dtype().to_numpy())


HEAD = "from einkorn.dsl import *\n\n\n"


def check_functions(rng: random.Random, folder: Path, count: int, tally: Tally) -> None:
    """So many functions in one op; where that is refused, each in an op of its own."""
    dtype = rng.choice(NARROW)
    x, y = values(rng, dtype, SIZE), values(rng, dtype, SIZE)
    functions = [Writer(rng).function(f"f{k}") for k in range(count)]
    error = _run(folder, dtype, functions, x, y, tally)
    if error is not None and count == 1:
        tally.refuse(error)
    elif error is not None:
        for _, *lines in functions:
            error = _run(folder, dtype, [["def f0(x, y, n):", *lines]], x, y, tally)
            if error is not None:
                tally.refuse(error)


_numbers = itertools.count()


def _run(folder: Path, dtype: Any, functions: list[list[str]], x: Any, y: Any, tally: Tally) -> EinkornError | None:
    """Judges each of the functions, which are one op; gives the error where it is refused."""
    text = "\n".join(line for lines in functions for line in lines)
    wide = DType.from_numpy(np.dtype(dtype)).sum_dtype()
    head = f"@register('sums')\ndef sums(out: OutputTensor[{wide}, '{len(functions)}'], "
    head += f"x: InputTensor[{np.dtype(dtype).name}, 'n'], y: InputTensor[{np.dtype(dtype).name}, 'n']) -> None:\n"
    stores = "".join(f"    out[{k}] = f{k}(x, y, x.dim(0)).cast({wide})\n" for k in range(len(functions)))
    path = folder / f"sums_{next(_numbers)}.py"
    path.write_text(HEAD + text.replace("BEGIN(", "(") + "\n" + head + stores)
    try:
        (got,) = KernelFile(path, interprets=len(functions) == 1)("sums", x, y)
    except EinkornError as error:
        return error
    signed = wide is DType.int64
    scope: dict[str, Any] = {
        "BEGIN": lambda value: Wide(value, signed),
        "unroll": range,
        "sum": lambda terms: sum(terms, Wide(0, signed)),
    }
    exec(text, scope)
    for k, lines in enumerate(functions):
        Wide.doubtful = False
        wanted = int(scope[f"f{k}"](x.tolist(), y.tolist(), len(x)))
        same = Wide.doubtful or (int(got[k]) - wanted) % 2**64 == 0
        tally.judge(same, f"{np.dtype(dtype).name}: {got[k]} for {wanted}\n" + "\n".join(lines))
    return None


# *** rows of monoids, and ops ***

ROW_KERNELS = """from einkorn.dsl import *
from einkorn.stdlib import Product, Sum, reduce, rowwise, scan

@register("rows")
def rows(
    a: OutputTensor[{wide}, "m"], b: OutputTensor[{wide}, "n"], c: OutputTensor[{wide}, "m n"],
    d: OutputTensor[{wide}, "2"], x: InputTensor[{dtype}, "m n"], y: InputTensor[{dtype}, "m n"],
) -> None:
    rowwise({many}, {row}, lambda row, found: store(a, row, found), of={of})
    rowwise(x, {column}, lambda row, found: store(b, row, found), axis=0)
    scan(c, x, {scanned}, axis={axis}, exclusive={exclusive}, reverse={reverse})
    d[0] = reduce(x, {row})
    total = 0
    for i in range(m := x.dim(0)):
        total += x.load(i, 0, width=8).reduce_add()
    d[1] = total
"""


def check_rows(rng: random.Random, folder: Path, tally: Tally) -> None:
    """A kernel of monoids and lanes: five results, each a kernel of the tally."""
    dtype = rng.choice(NARROW)
    wide = DType.from_numpy(np.dtype(dtype)).sum_dtype()
    m, n = rng.choice(((ROWS, COLUMNS), (2, 5000), (300, 9), (1, 17000)))
    x, y = values(rng, dtype, (m, n)), values(rng, dtype, (m, n))
    pick = {name: rng.choice(("Sum", "Sum", "Product")) for name in ("row", "column", "scanned")}
    axis, exclusive, reverse = rng.choice((0, 1)), rng.random() < 0.5, rng.random() < 0.5
    of, term = rng.choice((("None", x), ("lambda v: v + 1", whole(x) + 1), ("lambda v, w: v * w", whole(x) * whole(y))))
    path = folder / f"rows_{next(_numbers)}.py"
    many = "(x, y)" if "w" in of.split(":")[0] else "x"
    path.write_text(
        ROW_KERNELS.replace("m := ", "").format(
            wide=wide, dtype=np.dtype(dtype).name, many=many, of=of, axis=axis, exclusive=exclusive,
            reverse=reverse, **pick,
        )
    )  # fmt: skip
    got = KernelFile(path, interprets=False)("rows", x, y)
    reduce = {"Sum": np.add, "Product": np.multiply}
    kind = wide.to_numpy()
    turned = np.flip(x, axis) if reverse else x
    running = reduce[pick["scanned"]].accumulate(turned, axis, dtype=kind)
    if exclusive:
        first = np.full_like(np.take(running, [0], axis), reduce[pick["scanned"]].identity)
        running = np.concatenate([first, np.delete(running, -1, axis)], axis)
    wanted = (
        reduce[pick["row"]].reduce(term, 1, dtype=kind),
        reduce[pick["column"]].reduce(x, 0, dtype=kind),
        np.flip(running, axis) if reverse else running,
        np.array([reduce[pick["row"]].reduce(x.reshape(-1), dtype=kind), x[:, :8].sum(dtype=kind)]),
    )
    for mine, theirs, name in zip(got, wanted, ("row", "column", "scan", "whole"), strict=True):
        tally.judge(np.array_equal(mine, theirs), f"{name} of {np.dtype(dtype).name} {x.shape}: {pick} {of}")


def check_op(rng: random.Random, tally: Tally) -> None:
    """An op on eager tensors, with NumPy's dtype and numbers."""
    dtype = rng.choice((*NARROW, np.bool_))
    shape = rng.choice(((7,), (3, 41), (2, 3, 5), (2, 5000)))
    x = values(rng, np.int8, shape) > 0 if dtype is np.bool_ else values(rng, dtype, shape)
    axis = rng.randrange(len(shape))
    name = rng.choice(("sum", "sum", "prod", "cumsum", "cumprod"))
    keep = {"keepdims": rng.random() < 0.5} if name in ("sum", "prod") else {}
    given: Any = rng.choice((axis, None)) if keep else axis
    got = np.asarray(getattr(F, name)(x, axis=given, **keep))
    wanted = getattr(np, name)(x, axis=given, **keep)
    same = got.dtype == wanted.dtype and np.array_equal(got, wanted)
    tally.judge(same, f"{name} of {np.dtype(dtype).name} {shape} along {given}: {got.dtype}")


def campaign(count: int, seed: int) -> Tally:
    """`count` sums: three in four are functions, the others rows and ops."""
    tally, rng = Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for kind in _kinds():
            done = tally.equal + tally.refused + len(tally.wrong)
            if done >= count:
                return tally
            if kind == "functions":
                check_functions(rng, Path(folder), min(AT_ONCE, count - done), tally)
            elif kind == "rows":
                check_rows(rng, Path(folder), tally)
            else:
                check_op(rng, tally)
    return tally


def _kinds() -> Iterator[str]:
    return itertools.cycle(("functions", "rows", "functions", "op", "op", "functions"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = campaign(chosen.count, chosen.seed)
    print(f"{found.equal} equal, {found.refused} refused {dict(found.codes)}, {len(found.wrong)} wrong")
    print("\n".join(found.wrong[:20]))
    sys.exit(bool(found.wrong))
