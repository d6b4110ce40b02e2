"""Lowering MLIR text: early exits, places in errors, and the steps as something to watch."""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path

import pytest

from einkorn.compiler.codegen import llvm, mlir
from einkorn.compiler.ir.schedule import EXIT
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.diagnostics.places import Place


def compile_library(tmp_path: Path, text: str) -> ctypes.CDLL:
    path = tmp_path / "kernel.so"
    path.write_bytes(llvm.compile_module(mlir.lower_to_llvm(text, host()), host()).link())
    return ctypes.CDLL(str(path))


EARLY_EXITS = """
module {
  llvm.func @ek.exit()
  // Returns 1 at the first element below 0, having doubled those before it; 0 when there is none.
  llvm.func @search(%x: !llvm.ptr, %n: i64) -> i32 {
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %zero = arith.constant 0.0 : f32
    scf.for %i = %c0 to %n step %c1 : i64 {
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %v = llvm.load %p : !llvm.ptr -> f32
      %negative = arith.cmpf olt, %v, %zero : f32
      %r = scf.if %negative -> f32 {
        %w = arith.negf %v : f32
        llvm.call @ek.exit() : () -> ()
        scf.yield %w : f32
      } else {
        %d = arith.addf %v, %v : f32
        scf.yield %d : f32
      }
      llvm.store %r, %p : f32, !llvm.ptr
    }
    %ok = arith.constant 0 : i32
    llvm.return %ok : i32
  }
  // Leaves a loop whose every turn ends in an exit: what follows in the loop cannot be reached.
  llvm.func @always(%x: !llvm.ptr, %n: i64) {
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    scf.for %i = %c0 to %n step %c1 : i64 {
      llvm.store %i, %x : i64, !llvm.ptr
      llvm.call @ek.exit() : () -> ()
    }
    llvm.store %n, %x : i64, !llvm.ptr
    llvm.return
  }
  llvm.func @while_loop(%n: i64) -> i32 {
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %c7 = arith.constant 7 : i64
    %end = scf.while (%i = %c0) : (i64) -> i64 {
      %more = arith.cmpi slt, %i, %n : i64
      scf.condition(%more) %i : i64
    } do {
    ^bb0(%i: i64):
      %seven = arith.cmpi eq, %i, %c7 : i64
      scf.if %seven {
        llvm.call @ek.exit() : () -> ()
      }
      %next = arith.addi %i, %c1 : i64
      scf.yield %next : i64
    }
    %ok = arith.constant 0 : i32
    llvm.return %ok : i32
  }
}
"""


def test_an_early_exit_returns_at_once(tmp_path: Path) -> None:
    library = compile_library(tmp_path, EARLY_EXITS)
    values = (ctypes.c_float * 5)(1, 2, -3, 4, 5)
    assert library.search(values, ctypes.c_int64(5)) == 1
    assert list(values) == [2, 4, -3, 4, 5]
    values = (ctypes.c_float * 5)(1, 2, 3, 4, 5)
    assert library.search(values, ctypes.c_int64(5)) == 0
    assert list(values) == [2, 4, 6, 8, 10]

    seen = ctypes.c_int64(-1)
    library.always(ctypes.byref(seen), ctypes.c_int64(3))
    assert seen.value == 0
    library.always(ctypes.byref(seen), ctypes.c_int64(0))
    assert seen.value == 0
    assert [library.while_loop(ctypes.c_int64(n)) for n in (0, 7, 8, 100)] == [0, 0, 1, 1]


def test_no_exit_function_is_left() -> None:
    assert EXIT not in mlir.lower_to_llvm(EARLY_EXITS, host())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("llvm.func @f() -> i64 { %c = arith.constant 2 : i64\nllvm.call @ek.exit() : () -> ()\nllvm.return %c : i64 }",
         "an early exit from a function of type"),
        ("llvm.func @f(%p: !llvm.ptr, %b: i1) { llvm.call @ek.exit() : () -> ()\n%c = llvm.load %p : !llvm.ptr -> i64\n"
         "scf.if %b { llvm.store %c, %p : i64, !llvm.ptr }\nllvm.return }",
         "values from after an early exit are used elsewhere"),
    ],
)  # fmt: skip
def test_a_misplaced_exit_is_refused(body: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        mlir.lower_to_llvm(f"module {{ llvm.func @ek.exit()\n{body} }}", host())


@pytest.mark.parametrize(
    ("location", "place", "callers"),
    [
        ('"k.py":7:3', Place("k.py", 7, 3), []),
        ('"k.py":7:3 to :9', Place("k.py", 7, 3, 7, 9), []),
        ('"k.py":7:3 to 8:9', Place("k.py", 7, 3, 8, 9), []),
        ('callsite("lib.py":7:3 at "k.py":8:4)', Place("lib.py", 7, 3), ["k.py:8:4"]),
        (
            'callsite("a.py":1:2 at callsite("b.py":3:4 at "c.py":5:6))',
            Place("a.py", 1, 2),
            ["b.py:3:4", "c.py:5:6"],
        ),
        ('fused["k.py":7:3, "l.py":9:1]', Place("k.py", 7, 3), ["l.py:9:1"]),
        ('"a \\22b\\5C.py":1:2', Place('a "b\\.py', 1, 2), []),
        ('"name"("k.py":7:3)', Place("k.py", 7, 3), []),
    ],
)
def test_errors_carry_the_authors_place(location: str, place: Place, callers: list[str]) -> None:
    text = f"""
    module {{
      llvm.func @f(%a: i64) -> i64 {{
        %0 = "arith.addi"(%a) : (i64) -> i64 loc({location})
        llvm.return %0 : i64
      }}
    }}
    """
    with pytest.raises(InternalError) as caught:
        mlir.lower_to_llvm(text, host())
    error = caught.value
    assert error.place == place
    assert error.notes == [f"called from {caller}" for caller in callers]
    assert error.code == "EK0902"
    assert "expected 2 operands" in error.message
    assert "see current operation" not in str(error) and "llvm.func" not in str(error)


def test_errors_in_the_text_itself_quote_the_line() -> None:
    with pytest.raises(InternalError) as caught:
        mlir.lower_to_llvm("module {\n  llvm.func @f() {\n    %0 = no.such : i64\n  }\n}", host())
    assert caught.value.place is None
    assert caught.value.notes == ["at line 3, column 10 of the MLIR text: %0 = no.such : i64"]


def test_operations_that_are_left_over_are_errors() -> None:
    text = 'module { llvm.func @f(%a: f32) -> f32 { %0 = math.exp %a : f32 loc("k.py":3:4)\n llvm.return %0 : f32 } }'
    with pytest.raises(InternalError) as caught:
        mlir.lower_to_llvm(text, host())
    assert caught.value.place == Place("k.py", 3, 4)
    assert "no pass lowers math.exp to LLVM" in caught.value.message


def test_unknown_passes_are_errors() -> None:
    with pytest.raises(InternalError, match="no-such-pass"):
        mlir.lower_to_llvm("module {}", host(), passes=[mlir.MLIRPass("no-such-pass")])


def test_every_step_can_be_watched() -> None:
    seen: list[tuple[str, float, str]] = []
    mlir.lower_to_llvm(EARLY_EXITS, host(), observe=lambda name, seconds, show: seen.append((name, seconds, show())))
    names = [name for name, _, _ in seen]
    assert names[:3] == ["cse", "convert-scf-to-cf", "exit_early"]
    assert all(seconds > 0 for _, seconds, _ in seen)
    texts = {name: text for name, _, text in seen}
    assert "scf.if" in texts["cse"] and "scf.if" not in texts["convert-scf-to-cf"]
    assert "ek.exit" in texts["convert-scf-to-cf"] and "ek.exit" not in texts["exit_early"]
    assert "arith." not in seen[-1][2]


def test_modules_print_with_and_without_locations() -> None:
    text = 'module { llvm.func @f() { llvm.return loc("k.py":3:4) } }'
    assert '"k.py":3:4' in mlir.format_module(text, locations=True)
    plain = mlir.format_module(text)
    assert "loc(" not in plain and mlir.format_module(plain) == plain


def test_the_layout_of_the_target_is_used() -> None:
    body = "%v = llvm.load %p : !llvm.ptr -> i64\n llvm.return %v : i64"
    text = f"module {{ llvm.func @f(%p: !llvm.ptr) -> i64 {{ {body} }} }}"
    for name in ("host", "aarch64", "sm_90", "gfx942"):
        lowered = mlir.lower_to_llvm(text, lookup(name))
        assert "load i64, ptr %0, align 8" in lowered
        assert f'target triple = "{lookup(name).triple}"' in lowered


@pytest.mark.parametrize("name", ["x86-64-v3", "sm_75", "sm_90", "gfx950", "gfx1100"])
def test_bf16_conversion_is_expanded_where_it_must_be(name: str) -> None:
    text = "module { llvm.func @f(%a: f32) -> bf16 { %v = arith.truncf %a : f32 to bf16\n llvm.return %v : bf16 } }"
    lowered = mlir.lower_to_llvm(text, lookup(name))
    assert ("fptrunc" in lowered) == lookup(name).supports("bf16_convert")


def test_threads_lower_at_the_same_time() -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(mlir.lower_to_llvm(EARLY_EXITS, host()))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(set(results)) == 1
    assert re.search(r"define i32 @search", results[0])
