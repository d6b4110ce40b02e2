"""Sequences that are known at compile time; `test_sequences` gives the same texts to Python.

Each function below `# both` runs in kernels and in Python: a kernel calls it with run-time values, Python with numbers.
"""

from __future__ import annotations

from typing import Any

from einkorn.dsl import InputTensor, OutputTensor, foreach, int64, max, min, parallel_for, register, unroll

# both

WEIGHTS = (3, -1, 2)


def generated(v: Any, w: Any) -> Any:
    terms = tuple(v * k + w for k in WEIGHTS)
    pairs = tuple((a, b) for a in (1, 2) for b in range(a, 4) if (a + b) % 2 == 1)
    total = sum(t * a for t, (a, b) in zip(terms, pairs, strict=False))
    return total + len(pairs) * 100 + sum(w * v for _ in ()) + sum((v, w), 5)


def quantified(v: Any, w: Any) -> Any:
    table = (4, 9, 25)
    result = any(v == k for k in table)
    ordered = all(v < w + k for k in range(3))
    nothing = any(k > 3 for k in ()) or not all(k > 3 for k in ())
    return (1 if result else 0) + (2 if ordered else 0) + (4 if nothing else 0)


def walked(v: Any, w: Any) -> Any:
    total = 0
    for k, (a, b) in enumerate(zip(WEIGHTS, (v, w, v), strict=True), 1):
        total += k * a * b
    for t in reversed((v, w, 7)):
        total = total * 2 + t
    for t in sorted((5, 1, 3), reverse=True):
        total = total * 3 - t
    return total + min((v, w, 3)) - max(t * 2 for t in (v, w))


def downwards(v: Any, w: Any) -> Any:
    total = 0
    for k in range(9, -3, -2):
        total = total * 3 + k
        if total > 5000 + v:
            break
    for k in range(v, w, -3):
        total += k * w
    for k in reversed(range(v % 5, v % 5 + w % 4)):
        total = total * 2 - k
    for k in reversed(range(w, v, -1)):
        total += k
    for k in range(5, v, -1):
        if k % 7 == 3:
            return total * 10 + k
    return total


def requested(v: Any, w: Any) -> Any:
    kinds = ((1, int), (2.5, float), (True, bool), ("a", str), ((1, 2), tuple), (3, (str, int)))
    right = sum(
        1 for value, kind in kinds if isinstance(value, kind) and (isinstance(value, tuple) or str(value) != "3")
    )
    return right + v - w


def unrolled(v: Any, w: Any) -> Any:
    """Every form that `unroll` takes; what stands in the bodies is of the running program."""
    total = 0
    for k in unroll(range(-2, 3)):
        total = total * 2 + k * v
    for k in unroll(range(5, 0, -2)):
        total += k * w
    for k in unroll(range(4)):
        if k == 2:
            continue
        if v + k == w:
            break
        total += 1 << k
    for t in unroll(WEIGHTS):
        total += t * v
    for i, t in unroll(enumerate(WEIGHTS)):
        total += i * t * w
    for i, t in unroll(enumerate((v, w), -1)):
        total -= i * t
    for a, b in unroll(zip(WEIGHTS, (v, w, v), strict=True)):
        total += a * b
    for t in unroll(reversed(WEIGHTS)):
        total = total * 3 + t
    for k in unroll(reversed(range(-1, 4))):
        total += k * k * v
    for t in unroll(sorted(WEIGHTS)):
        total = total * 2 - t
    for t in unroll(tuple(k * v for k in range(3))):
        total += t
    for _ in unroll(()):
        total = 0
    for _ in unroll(range(3, 3)):
        total = 0
    return total


def unrolled_in_each_other(v: Any, w: Any) -> Any:
    table = ((1, 2), (3, -4))
    total = 0
    for y, row in unroll(enumerate(table)):
        for x, t in unroll(enumerate(row)):
            for k in unroll(range(x, -2, -1)):
                if v * k > w * y:
                    break
                if k == 0 and t < 0:
                    continue
                total = total * 2 + t * k + y
            if total > 50 * w:
                return total - v
    for k in range(w % 4):
        for t in unroll(range(-1, 2)):
            if t == k:
                continue
            total += t * v + k
    return total


# kernels


@register("sequences")
def sequences(out: OutputTensor[int64, "7 n"], v: InputTensor[int64, "n"], w: InputTensor[int64, "n"]) -> None:
    functions = (generated, quantified, walked, downwards, requested, unrolled, unrolled_in_each_other)

    def column(i: Any) -> None:
        for k in unroll(7):
            out[k, i] = int64(functions[k](v[i], w[i]))

    parallel_for(v.dim(0), column)


@register("guarded")
def guarded(out: OutputTensor[int64, "n"], v: InputTensor[int64, "n"], at: InputTensor[int64, "n"]) -> None:
    """Items after the one that decides are not computed: these would lie outside."""
    foreach(out, lambda i: 1 if all(at[i] + k < v.dim(0) and v[at[i] + k] > 0 for k in range(3)) else 0)
