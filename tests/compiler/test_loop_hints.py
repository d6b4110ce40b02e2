"""Hints of loops in LLVM's text: where they go, and that nothing is left of the calls."""

from __future__ import annotations

import re

import pytest

from einkorn.compiler.codegen.llvm import emit_object
from einkorn.compiler.codegen.loop_hints import hinted
from einkorn.compiler.codegen.mlir import lower_to_llvm
from einkorn.compiler.ir.schedule import HINT, LoopHints
from einkorn.compiler.targets import host
from einkorn.dsl.diagnostics.errors import InternalError


def loop(hint: str, name: str = "f", after: str = "") -> str:
    return f"""
      llvm.func @{name}(%x: !llvm.ptr, %n: i64) {{
        %c0 = arith.constant 0 : i64
        %c1 = arith.constant 1 : i64
        scf.for %i = %c0 to %n step %c1 : i64 {{
          %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
          llvm.store %i, %p : i64, !llvm.ptr
          llvm.call @{hint}() : () -> ()
          {after}
        }}
        llvm.return
      }}"""


def module(*functions: str) -> str:
    marks = {mark for function in functions for mark in re.findall(r"@(ek\.[\w.]+)\(", function)}
    return f"module {{ {''.join(functions)} {''.join(f'llvm.func @{mark}()' for mark in sorted(marks))} }}"


def loop_metadata(text: str) -> list[list[str]]:
    """The metadata of each branch with a hint, in the order of the text."""
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(!\{.*\})$", text, re.MULTILINE))
    collected = []
    for node in re.findall(r"^  br label .*!llvm\.loop (!\d+)$", text, re.MULTILINE):
        first, *rest = re.findall(r"!\d+", nodes[node])
        assert first == node
        collected.append([nodes[other] for other in rest])
    return collected


def test_hints_become_metadata_of_the_branch_back() -> None:
    text = lower_to_llvm(
        module(loop(LoopHints(vectors=4).symbol), loop(LoopHints(vectors=1, lanes=16, masked=True).symbol, "g")), host()
    )
    assert f"@{HINT}" not in text
    assert loop_metadata(text) == [
        ['!{!"llvm.loop.interleave.count", i32 4}'],
        [
            '!{!"llvm.loop.vectorize.predicate.enable", i1 true}',
            '!{!"llvm.loop.vectorize.width", i32 16}',
            '!{!"llvm.loop.interleave.count", i32 1}',
            '!{!"llvm.loop.unroll.disable"}',
        ],
    ]
    assert emit_object(text, host())


def test_rounds_that_stay_apart_are_not_taken_together() -> None:
    text = lower_to_llvm(module(loop(LoopHints(apart=True).symbol)), host())
    assert loop_metadata(text) == [['!{!"llvm.loop.vectorize.enable", i1 false}']]


def test_a_loop_that_ends_in_an_exit_has_no_branch_to_determine() -> None:
    text = lower_to_llvm(module(loop(LoopHints(vectors=2).symbol, after="llvm.call @ek.exit() : () -> ()")), host())
    assert f"@{HINT}" not in text and loop_metadata(text) == []


def test_a_module_without_hints_stays_as_it_is() -> None:
    text = "define void @f() {\n  ret void\n}\n"
    assert hinted(text) is text


def test_a_hint_behind_the_end_of_its_block_is_a_fault() -> None:
    with pytest.raises(InternalError, match="behind the end"):
        hinted("  call void @ek.hint.vectors_2()\n")


def test_nothing_to_determine_is_no_hint() -> None:
    assert LoopHints().symbol == ""
