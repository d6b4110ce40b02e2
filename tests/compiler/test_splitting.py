"""Loops along axes of known size: cut where conditions on the counter change, vectors in each part, and the numbers of
NumPy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile
from support.harness import assembly_of
from support.inner_loops import innermost_loops

from einkorn.compiler.ir.program import Op, walk
from einkorn.compiler.passes.vectorize_loops import stays_apart
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import EntrySpec

SHAPES = Path(__file__).parents[2] / "benchmarks" / "kernels" / "shapes.py"
F = DType.float32
HEAD = """\
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, max, min, register

@register("pieces")
def pieces(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    n = x.dim(1)

    def element(index):
        y, k = index
        value = x[y, k]
"""


def spec_of(op: str, *shapes: tuple[int, ...]) -> EntrySpec:
    return KernelFile(SHAPES).entry(op, [(F, shape) for shape in shapes], {})[0]


def loops_of(spec: EntrySpec) -> list[Op]:
    """The loops over columns: those with no loop within."""
    program = typed_program(spec, lookup("x86-64-v4"))
    loops = [op for function in program.functions for op in walk(function.body) if op.name == "for"]
    return [loop for loop in loops if not any(op.name == "for" for op in walk(loop.regions[0]))]


@pytest.mark.parametrize("target", ("x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("width", (32, 64, 128))
def test_rotary_embedding_is_vector_code(width: int, target: str) -> None:
    spec = spec_of("shapes::rope", (2, 16, width), (16, width // 2), (16, width // 2))
    for loop in loops_of(spec):
        assert not {op.name for op in walk(loop.regions[0])} & {"if", "mod", "floordiv", "select"}
    loops = [loop for loop in innermost_loops(assembly_of(spec, target)) if loop.function.startswith("body")]
    for loop in loops:
        assert not loop.scalar or not loop.packed
        assert not any("div" in line.split()[0] for line in loop.instructions)
    assert not any(loop.scalar and not loop.packed for loop in loops) or target == "x86-64-v3"


def test_parts_end_where_the_answer_changes() -> None:
    loops = loops_of(spec_of("shapes::rope", (2, 16, 64), (16, 32), (16, 32)))
    assert [(loop.operands[0].const, loop.operands[1].const) for loop in loops] == [(0, 32), (32, 64)]
    turned = loops_of(spec_of("shapes::rolled", (16, 100)))
    assert [loop.operands[1].const is None for loop in turned] == [True, True]
    assert not any(op.name == "mod" for loop in turned for op in walk(loop.regions[0]))


@pytest.mark.parametrize("op", ("shapes::rope", "shapes::conv", "shapes::clamped", "shapes::causal", "shapes::flipped"))
def test_code_of_known_sizes_stays_small(op: str) -> None:
    """Not more than a few times what is made for any size, whichever size it is."""
    for width in (6, 8, 12, 30, 64, 100, 384):
        inputs = {
            "shapes::rope": [(2, 16, width), (16, width // 2), (16, width // 2)],
            "shapes::conv": [(64, width), (3,)],
        }
        asm = assembly_of(spec_of(op, *inputs.get(op, [(64, width)])), "x86-64-v4")
        assert sum(line.startswith("\t") and not line.startswith("\t.") for line in asm.splitlines()) < 2500, width


def condition(rng: random.Random, n: int) -> tuple[str, Any]:
    """A line of a kernel with a condition on k, and the same for NumPy."""
    a, c = rng.randint(-3, 3), rng.randint(1, max(1, n))
    at = f"(k + {a})" if a >= 0 else f"(k - {-a})"
    choices = [
        (f"value += ({at} % {c}).cast(float32)", lambda k: (k + a) % c),
        (f"value += ({at} // {c}).cast(float32)", lambda k: (k + a) // c),
        (f"value += x[y, min(max({at}, 0), n - 1)]", lambda k: ("x", np.clip(k + a, 0, n - 1))),
        (f"value += 1.0 if {at} < {c} else 2.0", lambda k: np.where(k + a < c, 1, 2)),
        (f"value += 1.0 if {c} <= {at} else 4.0", lambda k: np.where(c <= k + a, 1, 4)),
        (f"value += 8.0 if {at} == {c} or k > {c} else 3.0", lambda k: np.where((k + a == c) | (k > c), 8, 3)),
        (f"value += 5.0 if not {at} != {c} else 7.0", lambda k: np.where(k + a == c, 5, 7)),
        (
            f"if k >= {c}:\n            value += x[y, k - {c}]\n        else:\n            value -= 1.0",
            lambda k: ("y", k - c),
        ),
    ]
    return rng.choice(choices)


@pytest.mark.parametrize("seed", range(24))
def test_random_pieces_give_the_numbers_of_numpy(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    n = rng.choice([1, 2, 3, 5, 8, 13, 16, 31, 32, 47, 64, 65, 100])
    lines = [condition(rng, n) for _ in range(rng.randint(1, 4))]
    file = tmp_path / "kernels.py"
    body = "".join(f"        {line}\n" for line, _ in lines)
    file.write_text(f"{HEAD}{body}        return value\n\n    foreach(out, element)\n")
    x = np.random.default_rng(seed).integers(-8, 9, (rng.choice([1, 3, 70]), n)).astype(np.float32)
    k = np.arange(n)
    expected = x.copy()
    for _, numbers in lines:
        collected = numbers(k)
        if not isinstance(collected, tuple):
            expected += collected.astype(np.float32)
        elif collected[0] == "x":
            expected += x[:, collected[1]]
        else:
            expected += np.where(collected[1] >= 0, x[:, np.maximum(collected[1], 0)], -1)
    (out,) = KernelFile(file)("pieces", x)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("target", ("x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("width", (16, 20, 64, 128))
def test_what_changes_with_every_element_is_written_out_for_a_period(width: int, target: str) -> None:
    spec = spec_of("shapes::rope_pairs", (64, width), (64, width // 2), (64, width // 2))
    loops = [loop for loop in loops_of(spec) if sum(op.name == "store" for op in walk(loop.regions[0])) == 2]
    assert loops
    for loop in loops:
        assert not {op.name for op in walk(loop.regions[0])} & {"if", "mod", "floordiv", "select"}
    asm = assembly_of(spec, target)
    if width <= 64:  # of longer rows tasks begin and end at any element: what they leave of a period is taken by itself
        assert "gather" not in asm
    sorted_lanes = [loop for loop in innermost_loops(asm) if any("perm" in line for line in loop.instructions)]
    assert sorted_lanes or "perm" in asm or "unpck" in asm


PERIODS = """\
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("periods")
def periods(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    def element(index):
        y, k = index
        value = x[y, k] + ((k + {a}) // {p}).cast(float32) * 16.0
        if (k - {b}) % {p} == {r}:
            value += 1.0 if k < {c} else 2.0
        else:
            value += (k % {p}).cast(float32)
        return value

    foreach(out, element)
"""


@pytest.mark.parametrize("period", (2, 3, 4, 5))
@pytest.mark.parametrize("width", (4, 8, 12, 24, 30, 60, 72, 120, 240))
def test_periods_give_the_numbers_of_numpy(width: int, period: int, tmp_path: Path) -> None:
    """Rows of all lengths; the long ones are cut by tasks at any element."""
    rng = random.Random(width * 8 + period)
    a, b, c, r = rng.randint(0, 5), rng.randint(0, 5), rng.randint(0, width), rng.randrange(period)
    file = tmp_path / "kernels.py"
    file.write_text(PERIODS.format(a=a, b=b, c=c, p=period, r=r))
    k = np.arange(width)
    added = np.where((k - b) % period == r, np.where(k < c, 1, 2), k % period) + (k + a) // period * 16
    for rows in (1, 7, 500):
        x = np.random.default_rng(rows).integers(-8, 9, (rows, width)).astype(np.float32)
        (out,) = KernelFile(file, interprets=rows < 500)("periods", x)
        np.testing.assert_array_equal(out, (x + added).astype(np.float32))


@pytest.mark.parametrize("width", (9, 12, 15, 16, 17, 20, 24))
def test_rows_written_out_are_not_gathered(width: int) -> None:
    """LLVM makes vectors of the loop around them, of one element of each row; of more than 8 it reads each alone."""
    for target in ("x86-64-v3", "x86-64-v4"):
        assert "gather" not in assembly_of(spec_of("shapes::dots", (64, width), (64, width)), target)


@pytest.mark.parametrize(("op", "far"), (("shapes::dots", True), ("shapes::product", False)))
def test_loops_around_rows_stay_apart_where_neighbours_are_not_reached(op: str, far: bool) -> None:
    spec = spec_of(op, (64, 12), (64, 12) if far else (12, 12))
    program = typed_program(spec, lookup("x86-64-v4"))
    loops = [op for function in program.functions for op in walk(function.body) if op.name == "for"]
    around = [loop for loop in loops if any(op.name == "for" for op in loop.regions[0].ops)]
    innermost = around[-1]
    assert stays_apart(innermost) is far
