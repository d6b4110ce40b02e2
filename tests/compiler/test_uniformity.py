"""Barriers under conditions: which ones are refused, with what message, and which are equal in a block after all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.ir.lanes import Lanes, LinearForm
from einkorn.compiler.ir.program import Scope
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError, Several
from einkorn.dsl.package.library import load_library

HEAD = """
from einkorn.dsl import (
    DeviceContext, InputTensor, OutputTensor, atomic, gpu, int64, register, stack, unroll
)
from einkorn.stdlib import Sum

def both(out, i):
    gpu.barrier()
    return out[i]
"""
OP = """
@register("u::{name}")
def op_{name}(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], ctx: DeviceContext):
    n = x.dim(0)
    ctx.launch(kernel_{name}, out, x, n, grid=n, block={block})
"""

# Each body stands in `kernel(out, x, n)` after `t = gpu.thread_idx.x; b = gpu.block_idx.x`.
RIGHT: dict[str, tuple[Any, str]] = {
    "plain": (256, "out[t] = x[t]; gpu.barrier(); out[t] = out[t + 1]"),
    "argument": (256, "if n > 5: gpu.barrier()"),
    "block": (256, "if b < 5: gpu.barrier()"),
    "block_of_grid": (256, "if b + 1 == gpu.grid_dim.x: gpu.barrier()"),
    "work_only": (256, "if t < 5:\n    out[t] = 1\ngpu.barrier()"),
    "both_arms_done": (256, "if t < 5:\n    out[t] = 1\nelse:\n    out[t] = 2\ngpu.barrier()"),
    "early_block": (256, "if b > 3:\n    return\ngpu.barrier()"),
    "input": (256, "if x[b] > 0: gpu.barrier()"),
    "input_of_first": (256, "k = x[0]\nwhile k > 0:\n    gpu.barrier()\n    k -= 1"),
    "counted": (256, "for k in range(0, n, 256):\n    gpu.barrier()"),
    "halving": (
        256,
        "k = 128\nwhile k > 0:\n    if t < k: out[t] = out[t] + out[t + k]\n    gpu.barrier()\n    k //= 2",
    ),
    "break_by_block": (256, "for k in range(10):\n    if x[k] > b: break\n    gpu.barrier()"),
    "continue_by_block": (256, "for k in range(10):\n    if x[k] > b: continue\n    gpu.barrier()"),
    "unrolled": (256, "for k in unroll(range(3)):\n    gpu.barrier()"),
    "always_true": (256, "if t < 256: gpu.barrier()"),
    "never_true": (256, "if t >= 256: gpu.barrier()"),
    "quotient_of_block": (256, "if t // 256 == 0: gpu.barrier()"),
    "one_thread": (1, "if t + x[t] < 5: gpu.barrier()"),
    "one_along_y": ((256, 1), "if gpu.thread_idx.y < 1: gpu.barrier()"),
    "one_warp": (32, "if t // 32 < 1: gpu.barrier()"),
    "same_rounds": (256, "for k in range(t, 1024, 256):\n    gpu.barrier()"),
    "same_rounds_n": (64, "for k in range(t, n * 64, 64):\n    gpu.barrier()"),
    "promised": (256, "if gpu.uniform(x[t], 'block') > 0: gpu.barrier()"),
    "promised_written": (256, "out[t] = x[t]\nk = gpu.uniform(out[0], 'block')\nif k > 0: gpu.barrier()"),
    "promised_grid": (256, "if gpu.uniform(x[t], scope='grid') > 0: gpu.barrier()"),
    "private": (256, "s = stack[int64](4)\ns[0] = x[b]\nif s[0] > 0: gpu.barrier()"),
    "select": (256, "k = 1 if x[b] > 0 else 2\nif k == 1: gpu.barrier()"),
    "joined": (256, "k = 1\nif b > 2:\n    k = n\nif k == 1: gpu.barrier()"),
    "carried": (256, "k = x[0]\nfor j in range(n):\n    k += x[j]\nif k > 3: gpu.barrier()"),
    "after_divergent_loop": (256, "k = 0\nwhile k < t:\n    k += 1\nout[t] = k\ngpu.barrier()"),
    "short_circuit": (256, "if b < 5 and x[b] > 0: gpu.barrier()"),
    "in_a_function": (256, "k = both(out, t)\nif b < 3: out[t] = both(out, k)"),
    "reads_other": (256, "out[t] = x[t]\nif x[0] == 3: gpu.barrier()"),
    "nested": (256, "if b < 5:\n    for k in range(b):\n        if n > k: gpu.barrier()"),
    "warp_first": (256, "if t < 64: out[t] = gpu.warp.shuffle_down(x[t], 1)"),
    "warp_of": (256, "if t // 32 == 1: out[t] = gpu.warp.shuffle_down(x[t], 1)"),
    "warp_behind": (256, "if gpu.global_idx.x >= 64:\n    return\nout[t] = gpu.warp.broadcast(x[t])"),
    "warp_row": ((32, 8), "if gpu.thread_idx.y > 2: out[t] = gpu.warp.shuffle_xor(x[t], 1)"),
    "warp_vote": (256, "if gpu.warp.any(x[t] > 0): out[t] = gpu.warp.shuffle_up(x[t], 1)"),
    "warp_is_block": (32, "if gpu.warp.all(x[t] > 0): gpu.barrier()"),
    "warp_promised": (256, "if gpu.uniform(x[t]) > 0: out[t] = gpu.warp.shuffle_up(x[t], 1)"),
    "same_result": (256, "k = 3\nif t < 5:\n    out[t] = 2\nif k < n: gpu.barrier()"),
}

BLOCK = "under a condition that threads of a block may answer differently"
ROUNDS = "in a loop that threads of a block may leave in different rounds"
LEFT = "behind a `return`, `break` or `continue` that threads of a block may take differently"

# With what the message says, the condition that it marks, and how the note on its source begins.
WRONG: dict[str, tuple[Any, str, str, str, str]] = {
    "thread": (256, "if t < 5: gpu.barrier()", BLOCK, "t < 5", "'t' comes from gpu.thread_idx.x"),
    "directly": (256, "if gpu.thread_idx.x == 0: gpu.barrier()", BLOCK, "gpu.thread_idx.x == 0", "'t' comes from"),
    "else": (256, "if t < 5:\n    out[t] = 1\nelse:\n    gpu.barrier()", BLOCK, "t < 5", "'t' comes from"),
    "both_arms": (256, "if t < 5:\n    gpu.barrier()\nelse:\n    gpu.barrier()", BLOCK, "t < 5", "'t' comes from"),
    "global": (256, "i = gpu.global_idx.x\nif i < n: gpu.barrier()", BLOCK, "i < n", "'i' comes from gpu.global_idx.x"),
    "half": (256, "if t < 128: gpu.barrier()", BLOCK, "t < 128", "'t' comes from"),
    "warps": (256, "if t // 32 == 0: gpu.barrier()", BLOCK, "t // 32 == 0", "'t' comes from"),
    "other_axis": ((32, 8), "if gpu.thread_idx.y > 2: gpu.barrier()", BLOCK, "gpu.thread_idx.y > 2",
                   "gpu.thread_idx.y differs in a block"),
    "partly": (256, "if t < 5 and b < 5: gpu.barrier()", BLOCK, "t < 5", "'t' comes from"),
    "either": (256, "if b < 5 or x[t] > 3: gpu.barrier()", BLOCK, "x[t] > 3", "'t' comes from"),
    "element": (256, "if x[t] > 0: gpu.barrier()", BLOCK, "x[t] > 0", "'t' comes from"),
    "variable": (256, "v = x[t]\nif v > 0: gpu.barrier()", BLOCK, "v > 0", "'v' comes from gpu.thread_idx.x"),
    "written": (256, "out[t] = x[t]\nif out[0] > 0: gpu.barrier()", BLOCK, "out[0] > 0",
                "`out[0]`, which is read from memory that threads of this launch write"),
    "atomic": (256, "k = atomic.add(out, 0, 1)\nif k == 0: gpu.barrier()", BLOCK, "k == 0",
               "'k' comes from"),
    "atomic_load": (256, "k = atomic.load(out, 0)\nif k == 0: gpu.barrier()", BLOCK, "k == 0", "'k' comes from"),
    "return": (256, "if t > 5:\n    return\ngpu.barrier()", LEFT, "t > 5", "'t' comes from"),
    "return_of_tail": (256, "i = gpu.global_idx.x\nif i >= n:\n    return\nout[i] = 1\ngpu.barrier()", LEFT, "i >= n",
                       "'i' comes from gpu.global_idx.x"),
    "break": (256, "for k in range(9):\n    if x[t] > k: break\n    gpu.barrier()", ROUNDS, "x[t] > k",
              "'t' comes from"),
    "break_behind": (256, "for k in range(9):\n    gpu.barrier()\n    if x[t] > k: break", ROUNDS, "x[t] > k",
                     "'t' comes from"),
    "continue": (256, "for k in range(9):\n    if x[t] > k: continue\n    gpu.barrier()", LEFT, "x[t] > k",
                 "'t' comes from"),
    "return_in_loop": (256, "for k in range(9):\n    if x[t] > k: return\ngpu.barrier()", LEFT, "x[t] > k",
                       "'t' comes from"),
    "rounds": (256, "for k in range(t):\n    gpu.barrier()", ROUNDS, "for k in range(t):", "'t' comes from"),
    "rounds_from": (256, "for k in range(t, n, 256):\n    gpu.barrier()", ROUNDS, "for k in range(t, n, 256):",
                    "'t' comes from"),
    "rounds_uneven": (256, "for k in range(t, 1000, 256):\n    gpu.barrier()", ROUNDS, "for k in range(t, 1000, 256):",
                      "'t' comes from"),
    "while": (256, "k = 0\nwhile k < t:\n    k += 1\n    gpu.barrier()", ROUNDS, "k < t", "'t' comes from"),
    "left_behind": (256, "k = 0\nwhile k < t:\n    k += 1\nif k > 3: gpu.barrier()", BLOCK, "k > 3", "'t' comes from"),
    "private_each": (256, "s = stack[int64](4)\ns[0] = t\nif s[0] > 0: gpu.barrier()", BLOCK, "s[0] > 0",
                     "'t' comes from"),
    "private_at": (256, "s = stack[int64](4)\ns[t % 4] = 1\nif s[0] > 0: gpu.barrier()", BLOCK, "s[0] > 0",
                   "'t' comes from"),
    "private_under": (256, "s = stack[int64](4)\nif t < 5:\n    s[0] = 1\nif s[0] > 0: gpu.barrier()", BLOCK,
                      "s[0] > 0", "'t' comes from"),
    "private_later": (256, "s = stack[int64](4)\nfor k in range(3):\n    if s[0] > 0: gpu.barrier()\n    s[0] = t",
                      BLOCK, "s[0] > 0", "'t' comes from"),
    "joined": (256, "k = 1\nif t > 2:\n    k = n\nif k == 1: gpu.barrier()", BLOCK, "k == 1", "'k' comes from"),
    "carried": (256, "k = n\nfor j in range(3):\n    if k > 5: gpu.barrier()\n    k += t", BLOCK, "k > 5", "'t' comes"),
    "select": (256, "k = 1 if t > 2 else 2\nif k == 1: gpu.barrier()", BLOCK, "k == 1", "'k' comes from"),
    "promised_less": (256, "if gpu.uniform(x[t]) > 0: gpu.barrier()", BLOCK, "gpu.uniform(x[t]) > 0", "'t' comes from"),
    "in_a_function": (256, "if t < 3: out[t] = both(out, t)", BLOCK, "t < 3", "'t' comes from"),
    "nested": (256, "if b < 5:\n    if t < 9:\n        for k in range(3):\n            gpu.barrier()", BLOCK, "t < 9",
               "'t' comes from"),
    "two_axes": ((16, 16), "t2 = gpu.thread_idx.y * 16 + t\nif t2 < 64: gpu.barrier()", BLOCK, "t2 < 64",
                 "'t2' comes from"),
}  # fmt: skip

LANES = "that lanes of a warp may"
WARPS: dict[str, tuple[Any, str, str, str]] = {
    "lane": (256, "if t < 5: out[t] = gpu.warp.shuffle_down(x[t], 1)", "`gpu.warp.shuffle_down` under", "t < 5"),
    "uneven": (256, "if t < 40: out[t] = gpu.warp.shuffle_up(x[t], 1)", "`gpu.warp.shuffle_up` under", "t < 40"),
    "element": (256, "if x[t] > 0: out[t] = gpu.warp.broadcast(x[t])", "`gpu.warp.broadcast` under", "x[t] > 0"),
    "rows": ((16, 16), "if gpu.thread_idx.y > 2: out[t] = gpu.warp.shuffle_xor(x[t], 1)",
             "`gpu.warp.shuffle_xor` under", "gpu.thread_idx.y > 2"),
    "shuffled": (256, "v = gpu.warp.shuffle_xor(x[t], 1)\nif v > 0: out[t] = gpu.warp.shuffle_xor(v, 1)",
                 "`gpu.warp.shuffle_xor` under", "v > 0"),
    "left": (256, "i = gpu.global_idx.x\nif i >= n:\n    return\nif gpu.warp.any(x[i] > 0): out[i] = 3",
             "`gpu.warp.any` behind", "i >= n"),
    "rounds": (256, "k = x[t]\nwhile k > 0:\n    k = gpu.warp.shuffle_down(k, 1)", "`gpu.warp.shuffle_down` in a loop",
               "k > 0"),
    "joined": (256, "if x[t] > 0: out[t] = gpu.warp.reduce(x[t], Sum)", "`gpu.warp.reduce` under", "x[t] > 0"),
}  # fmt: skip


def kernel(name: str, block: Any, body: str) -> str:
    lines = textwrap.indent(body, "    ")
    start = "    t = gpu.thread_idx.x\n    b = gpu.block_idx.x\n"
    return f"\ndef kernel_{name}(out, x, n):\n{start}{lines}\n    out[t + b] = x[t]\n" + OP.format(
        name=name, block=block
    )


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The typed program of a kernel of the tables for a target."""
    path = tmp_path_factory.mktemp("uniformity") / "kernels.py"
    texts = [kernel(f"right_{name}", *case) for name, case in RIGHT.items()]
    texts += [kernel(f"wrong_{name}", block, body) for name, (block, body, *_) in WRONG.items()]
    texts += [kernel(f"warp_{name}", block, body) for name, (block, body, *_) in WARPS.items()]
    path.write_text(HEAD + "".join(texts))
    kernels = load_library(str(path)).kernels

    def program(name: str, target: str = "sm_90a") -> Any:
        actual = kernels[f"u::{name}"]
        spec = instance_entry(actual.portable, make_instance(actual.schema, dtypes={}, ranks={}, parameters={}))
        return typed_program(spec, lookup(target))

    return program


@pytest.mark.parametrize("name", RIGHT)
def test_a_barrier_that_whole_blocks_come_to(name: str, check: Callable[..., Any]) -> None:
    check(f"right_{name}")


def text_at(place: Any) -> str:
    line = place.source_line()
    return line[place.column - 1 : place.end_column - 1 if place.end_line in (0, place.line) else None]


@pytest.mark.parametrize("name", WRONG)
def test_a_barrier_where_threads_may_part(name: str, check: Callable[..., Any]) -> None:
    _, body, way, condition, origin = WRONG[name]
    with pytest.raises(CompileError) as raised:
        check(f"wrong_{name}")
    error = raised.value.errors[0] if isinstance(raised.value, Several) else raised.value
    assert (error.code, error.message, error.op) == ("EK0620", f"barrier {way}", f"u::wrong_{name}")
    assert text_at(error.place) == "gpu.barrier()" and error.hint
    marks = {label.text: text_at(label.place) for label in error.labels}
    assert marks == {"all threads of a block come here together": "gpu.barrier()", "this may differ": condition}
    assert error.notes[0].startswith(origin), error.notes
    assert any(note.startswith("called at") for note in error.notes)
    if isinstance(raised.value, Several):
        assert body.count("gpu.barrier()") == len(raised.value.errors) == 2


@pytest.mark.parametrize("name", WARPS)
def test_what_a_warp_does_where_lanes_may_part(name: str, check: Callable[..., Any]) -> None:
    _, _, what, condition = WARPS[name]
    with pytest.raises(CompileError) as raised:
        check(f"warp_{name}")
    error = raised.value
    assert error.code == "EK0621" and error.message.startswith(f"{what} ") and LANES in error.message
    assert {label.text: text_at(label.place) for label in error.labels}["this may differ"] == condition
    assert ("mask=" in (error.hint or "")) is ("block" not in what)


def test_the_message_shows_barrier_and_condition(check: Callable[..., Any]) -> None:
    with pytest.raises(CompileError) as raised:
        check("wrong_return_of_tail")
    lines = [line.partition("|")[2].strip() for line in str(raised.value).splitlines()]
    assert [line for line in lines if line] == [
        "if i >= n:",
        "^^^^^^ this may differ",
        "gpu.barrier()",
        "^^^^^^^^^^^^^ all threads of a block come here together",
    ]


@pytest.mark.parametrize("target", ["sm_75", "gfx942", "gfx1100"])
def test_every_gpu_refuses_the_same(target: str, check: Callable[..., Any]) -> None:
    check("right_halving", target)
    with pytest.raises(CompileError, match="EK0620"):
        check("wrong_thread", target)


def test_a_promise_has_one_of_four_scopes(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + kernel("scope", 32, "out[t] = gpu.uniform(x[t], 'world')"))
    actual = load_library(str(file)).kernels["u::scope"]
    spec = instance_entry(actual.portable, make_instance(actual.schema, dtypes={}, ranks={}, parameters={}))
    with pytest.raises(CompileError, match='scope= is one of "warp", "block", "cluster", "grid", not "world"'):
        typed_program(spec, lookup("sm_90a"))


def test_a_promise_changes_no_number(tmp_path: Path, run_kernel: Callable[..., Any]) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + kernel("promise", 4, "out[t] = gpu.uniform(x[t], 'grid') + gpu.uniform(3) + gpu.uniform(n)"))
    x = np.arange(4, dtype=np.int64)
    file.write_text(file.read_text().replace("out[t + b] = x[t]", "pass").replace("grid=n", "grid=1"))
    assert run_kernel(file, "u::promise", [x], outputs=[(DType.int64, x.shape)])[0].tolist() == [7, 8, 9, 10]


# *** numbers that follow the threads ***

X, Y = LinearForm((1, 0, 0)), LinearForm((0, 1, 0))


def const(value: int) -> LinearForm:
    return LinearForm(constant=value)


def some(multiple: int, scope: Scope = Scope.block) -> LinearForm:
    return LinearForm(multiple=multiple, scope=scope)


@pytest.mark.parametrize(
    ("block", "form", "divisor", "scope"),
    [
        ((256, 1, 1), X, 32, Scope.warp),
        ((256, 1, 1), X, 64, Scope.warp),
        ((256, 1, 1), X, 256, Scope.grid),
        ((256, 1, 1), X, 16, Scope.none),
        ((256, 1, 1), X, 48, Scope.none),
        ((256, 1, 1), X.plus(const(1)), 32, Scope.none),
        ((256, 1, 1), X.plus(const(64)), 32, Scope.warp),
        ((256, 1, 1), X.plus(some(256)), 32, Scope.warp),
        ((256, 1, 1), X.plus(some(256)), 256, Scope.block),
        ((256, 1, 1), X.plus(some(8)), 32, Scope.none),
        ((256, 1, 1), X.times(const(2)), 64, Scope.none),
        ((32, 1, 1), X, 32, Scope.grid),
        ((16, 16, 1), X, 32, Scope.none),
        ((16, 16, 1), Y.times(const(16)).plus(X), 32, Scope.warp),  # type: ignore[union-attr]
        ((64, 4, 1), X, 32, Scope.warp),
        ((64, 4, 1), X.plus(Y.times(const(100))), 32, Scope.none),  # type: ignore[arg-type]
        ((64, 4, 1), X.plus(Y.times(const(96))), 32, Scope.warp),  # type: ignore[arg-type]
        ((1, 64, 1), Y, 32, Scope.warp),
    ],
)
def test_quotients_of_numbers_that_count_threads(
    block: tuple[int, int, int], form: LinearForm, divisor: int, scope: Scope
) -> None:
    lanes = Lanes(block, 32)
    assert lanes.quotient(form, divisor) is scope
    if form.multiple == 0:
        assert scope < Scope.warp or all(len({v // divisor for v in g}) == 1 for g in _values(block, form, 32))


@pytest.mark.parametrize("block", [(256, 1, 1), (64, 2, 1), (16, 8, 1), (33, 1, 1), (1, 96, 1), (8, 4, 4)])
def test_comparisons_are_equal_in_every_warp_where_that_is_said(block: tuple[int, int, int]) -> None:
    lanes = Lanes(block, 32)
    x, y, _ = block
    forms = [
        X,
        LinearForm((1, x, x * y)),
        X.plus(const(32)),
        LinearForm((1, 32, 0)),
        const(0).plus(X, -1),
        LinearForm((1, 7, 0)),
    ]
    said = 0
    for form in forms:
        values = _values(block, form, 32)
        for number in (-64, -33, 0, 1, 31, 32, 33, 64, 95, 96, 128, 1000):
            for name in ("lt", "le", "gt", "ge"):
                scope = lanes.compared(name, form, const(number))
                meaning = getattr(int, f"__{name}__")
                equal = all(len({meaning(value, number) for value in group}) == 1 for group in values)
                assert equal or scope < Scope.warp, (form, name, number)
                everywhere = {meaning(value, number) for group in values for value in group}
                assert len(everywhere) == 1 or scope < Scope.block, (form, name, number)
                said += scope >= Scope.warp
    assert said > 25


def _values(block: tuple[int, int, int], form: LinearForm, warp: int) -> list[list[int]]:
    """The numbers of the threads of a block, warp by warp."""
    x, y, z = block
    threads = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    values = [form.constant + sum(a * b for a, b in zip(form.axes, thread, strict=True)) for thread in threads]
    return [values[at : at + warp] for at in range(0, len(values), warp)]
