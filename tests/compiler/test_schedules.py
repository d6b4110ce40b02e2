"""What the passes before emission say about loops, regions and stores: by attributes that mean nothing to a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.ir.opcodes import OPCODES
from einkorn.compiler.ir.printer import print_program
from einkorn.compiler.ir.program import Op, Program, Region
from einkorn.compiler.ir.schedule import BUDGET, LoopHints
from einkorn.compiler.passes.mark_lone_stores import mark_lone_stores
from einkorn.compiler.passes.merge_small_entry import merge_small_entry
from einkorn.compiler.passes.place_polls import place_polls
from einkorn.compiler.passes.stream_loops import stream_loops
from einkorn.compiler.passes.vectorize_loops import vectorize_loops
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import Target, lookup
from einkorn.dsl.package.library import load_library

Typed = Callable[..., tuple[Program, Target]]
KERNELS = """
from einkorn.dsl import InputTensor, OutputTensor, exp, float32, foreach, int4, int64, parallel_for, register

@register("one_region")
def one_region(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: exp(x[i]) + exp(x[i] * 2))

@register("two_regions")
def two_regions(a: OutputTensor[float32, "n"], b: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(a, lambda i: x[i] + 1)
    foreach(b, lambda i: x[i] + 2)

@register("loop_of_the_host")
def loop_of_the_host(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):
    for i in range(x.dim(0)):
        left = x[i]
        while left > 1:
            left = left // 2 if left % 2 == 0 else 3 * left + 1
        out[i] = left

@register("nibbles_of_the_host")
def nibbles_of_the_host(out: OutputTensor[int4, "n"], x: InputTensor[int4, "n"]):
    for i in range(x.dim(0)):
        out[i] = x[i]

@register("nibbles_of_threads")
def nibbles_of_threads(out: OutputTensor[int4, "n"], x: InputTensor[int4, "n"]):
    def one(i):
        out[i] = x[i]

    parallel_for(x.dim(0), one)
"""


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Typed:
    path = tmp_path_factory.mktemp("schedules") / "kernels.py"
    path.write_text(KERNELS)
    library = load_library(path)

    def make(op: str, target: str = "x86-64-v4") -> tuple[Program, Target]:
        kernel = library.kernels[op]
        spec = instance_entry(kernel.portable, make_instance(kernel.schema, {}, {}, {}))
        return typed_program(spec, lookup(target)), lookup(target)

    return make


def operations(program: Program, name: str, *inside: str) -> Iterator[Op]:
    """Operations of a name, in regions of operations of the other names."""

    def visit(region: Region, around: tuple[str, ...]) -> Iterator[Op]:
        for op in region.ops:
            if op.name == name and set(inside) <= set(around):
                yield op
            for inner in op.regions:
                yield from visit(inner, (*around, op.name))

    for function in program.functions:
        yield from visit(function.body, ())


def test_loops_that_may_take_long_poll_on_cpus(typed: Typed) -> None:
    program, target = typed("loop_of_the_host")
    place_polls(program, target)
    (outer,), (inner,) = operations(program, "for"), operations(program, "while")
    assert 0 < outer.attrs["fuel"] < BUDGET and inner.attrs["fuel"] > 0
    assert "strip" not in outer.attrs
    for name in ("sm_90a", "gfx942"):
        program, target = typed("one_region", name)
        before = print_program(program, schedule=True)
        place_polls(program, target)
        assert print_program(program, schedule=True) == before


def test_a_long_loop_with_a_short_body_runs_in_strips(typed: Typed) -> None:
    program, target = typed("nibbles_of_the_host")
    place_polls(program, target)
    (loop,) = operations(program, "for")
    strip = loop.attrs["strip"]
    assert strip.bit_count() == 1 and "fuel" not in loop.attrs
    assert BUDGET // 256 < strip <= BUDGET


def test_loops_over_elements_are_cut_where_vectors_are_long(typed: Typed) -> None:
    program, target = typed("one_region")
    vectorize_loops(program, target)
    (loop,) = operations(program, "for", "parallel")
    cut = loop.attrs["cut"]
    assert cut.elements % (target.vector_bits // 32) == 0 and not cut.whole.masked and cut.rest.masked
    program, target = typed("one_region", "x86-64-v3")
    vectorize_loops(program, target)
    assert all("cut" not in op.attrs for op in operations(program, "for"))


def test_shorter_vectors_are_for_light_regions_of_long_ones(typed: Typed) -> None:
    for op, name, expected in (("two_regions", "x86-64-v4", 256), ("two_regions", "x86-64-v3", None)):
        program, target = typed(op, name)
        stream_loops(program, target)
        assert {region.attrs.get("vector_bits") for region in operations(program, "parallel")} == {expected}
    program, target = typed("one_region")  # two exps are no light work
    stream_loops(program, target)
    assert all("vector_bits" not in region.attrs for region in operations(program, "parallel"))


def test_an_entry_that_only_spreads_work_is_one_function(typed: Typed) -> None:
    for op, merged, here in (
        ("one_region", True, True),
        ("two_regions", True, False),
        ("loop_of_the_host", False, False),
    ):
        program, target = typed(op)
        merge_small_entry(program, target)
        assert program.one_function is merged
        assert any("spread_here" in region.attrs for region in operations(program, "parallel")) is here


def test_stores_of_the_host_alone_need_no_atomic_operations(typed: Typed) -> None:
    program, target = typed("nibbles_of_the_host")
    mark_lone_stores(program, target)
    assert [op.attrs.get("lone") for op in operations(program, "store")] == [True]
    program, target = typed("nibbles_of_threads")
    mark_lone_stores(program, target)
    assert [op.attrs.get("lone") for op in operations(program, "store", "parallel")] == [None]


def test_a_schedule_is_shown_on_demand_only(typed: Typed) -> None:
    program, target = typed("one_region")
    plain = print_program(program)
    for schedule in (stream_loops, vectorize_loops, place_polls, mark_lone_stores, merge_small_entry):
        schedule(program, target)
    assert print_program(program) == plain
    shown = print_program(program, schedule=True)
    decided = {key for opcode in OPCODES.values() for key, attribute in opcode.attrs.items() if attribute.decided}
    assert shown != plain and any(f"{key}=" in shown for key in decided)


@pytest.mark.parametrize(
    "hints", [LoopHints(vectors=4), LoopHints(masked=True, lanes=16, vectors=1), LoopHints(rolled=True, apart=True)]
)
def test_the_name_of_hints_says_all_of_them(hints: LoopHints) -> None:
    assert LoopHints.of_symbol(hints.symbol) == hints
