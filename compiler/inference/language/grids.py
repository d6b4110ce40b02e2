"""Launches grids: `ctx.launch`, thread and block indices, barriers.

A launch is an operation whose region every thread runs. Where no hardware runs grids, `passes.expand_launches` makes
loops of it, as long as it has no barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import INT, SIMDType
from ...ir.program import Region, Value
from ..calls.inlining import inline
from ..conversion import DEFAULTS, coerce
from ..evaluator import Evaluator, Point, named_value, rule
from ..members.table import method
from ..target_refusals import refuse_block
from ..values.compile_time import Closure, ContextValue, is_comptime_number
from ..values.describe import describe

AXES = "xyz"


LAUNCHED = "put it into a function of its own, and run that with ctx.launch(function, ..., grid=..., block=...)"


def gpu_value(here: Point, which: str) -> Value:
    """`gpu.thread_idx.x` and its kind, within a launched kernel."""
    ids = here.evaluator.gpu_ids
    if ids is None:
        raise here.error(
            "EK0114", f"gpu.{which} has a meaning only inside a kernel that ctx.launch runs", hint=LAUNCHED
        )
    what, axis = which.split(".")
    if what == "global_idx":
        builder = here.builder
        block = gpu_value(here, f"block_idx.{axis}")
        size = gpu_value(here, f"block_dim.{axis}")
        thread = gpu_value(here, f"thread_idx.{axis}")
        return builder.iadd(builder.imul(block, size), thread)
    if which in ids:
        return ids[which]
    key = ("gpu_id", which)
    found = here.builder.remembered(key)
    if found is None:
        found = _number(here.evaluator, which, ids[f"{'block' if what == 'thread_idx' else 'grid'}_dim.{axis}"])
        here.builder.remember(key, found)
    assert isinstance(found, Value)
    return found


def block_of(evaluator: Evaluator) -> tuple[int, int, int]:
    """How many threads a block has along each axis, in a launched kernel."""
    assert evaluator.gpu_ids is not None
    x, y, z = (evaluator.gpu_ids[f"block_dim.{axis}"].const or 1 for axis in AXES)
    return x, y, z


def _number(evaluator: Evaluator, which: str, count: Value) -> Value:
    """The number of a thread or block along an axis that has `count` of them."""
    builder = evaluator.builder
    if evaluator.target.has_grid:
        return builder.one("gpu_id", [], INT, which=which)
    if count.const == 1:
        return builder.int_(0)
    return builder.live(builder.counter(builder.one("gpu_id", [], INT, which=which), None, count))


def _register(which: str) -> None:
    named_value(f"gpu.{which}")(lambda call: gpu_value(call, which))


for _what in ("thread_idx", "block_idx", "block_dim", "grid_dim", "global_idx"):
    for _axis in AXES:
        _register(f"{_what}.{_axis}")


@rule("gpu.uniform")
def uniform(call: Point, value: Any, scope: Any = "warp") -> Any:
    if call.evaluator.gpu_ids is None:
        raise call.error("EK0114", "gpu.uniform has a meaning only inside a kernel that ctx.launch runs", hint=LAUNCHED)
    if scope not in ("warp", "block", "cluster", "grid"):
        got = f'"{scope}"' if isinstance(scope, str) else describe(scope)
        raise call.error("EK0208", f'scope= is one of "warp", "block", "cluster", "grid", not {got}', "scope")
    if is_comptime_number(value):
        return value
    if not isinstance(value, Value) or not isinstance(value.type, SIMDType):
        raise call.error("EK0208", f"gpu.uniform takes a number, not {describe(value)}", "value")
    if value.const is not None:
        return value
    if value.weak is not None:
        value = coerce(call, value, DEFAULTS[value.weak])
    return call.builder.one("uniform", [value], value.type, scope=scope)


@rule("gpu.barrier")
def barrier(call: Point) -> None:
    if call.evaluator.gpu_ids is None:
        text = "gpu.barrier() has a meaning only inside a kernel that ctx.launch runs"
        raise call.error("EK0114", text, hint=LAUNCHED)
    call.builder.add("barrier", [])


@method(ContextValue, "launch")
def launch(call: Point, owner: Any, kernel: Any, *args: Any, grid: Any, block: Any, parameters: Any = None) -> None:
    """Runs `kernel(*args)` once for every thread of `grid` blocks of `block` threads."""
    evaluator = call.evaluator
    if not isinstance(kernel, Closure):
        raise call.error("EK0221", f"ctx.launch takes a function, not {describe(kernel)}", "kernel")
    if evaluator.level != "host":
        raise call.error("EK0221", "a kernel cannot launch another one")
    sizes = block if isinstance(block, tuple) else (block,)
    if not 1 <= len(sizes) <= 3 or any(type(n) is not int or n < 1 for n in sizes):
        raise call.error("EK0221", "block= takes one to three whole numbers >= 1 known at compile time", "block")
    blocks = grid if isinstance(grid, tuple) else (grid,)
    if not 1 <= len(blocks) <= 3:
        raise call.error("EK0221", "grid= takes one to three Ints", "grid")
    named = parameters or ()
    if not isinstance(named, tuple) or not all(isinstance(p, tuple) and isinstance(p[0], str) for p in named):
        raise call.error("EK0221", 'parameters= takes the names and values of compile-time parameters: {"BM": 64}')
    counts = [coerce(call.argument("grid"), n, INT, "grid= takes Ints") for n in blocks]
    one = call.builder.int_(1)
    counts += [one] * (3 - len(counts))
    threads = [*sizes, *(1,) * (3 - len(sizes))]
    refuse_block(call, threads)

    def body() -> None:
        assert isinstance(call.node, s.Call)
        result = inline(call, kernel, list(args), dict(named))
        if result is not None:
            raise call.error("EK0221", f"the launched function '{kernel.name}' returns a value", "kernel")

    _launch(call, counts, threads, body)


def _launch(call: Point, counts: list[Value], threads: list[int], body: Callable[[], None]) -> None:
    evaluator, builder = call.evaluator, call.builder
    region = Region()
    sizes = [builder.int_(n) for n in threads]
    ids = _ids("block_dim", sizes) | _ids("grid_dim", counts)
    with evaluator.scope(level="device", gpu_ids=ids), builder.inside(region):
        body()
        builder.end()
    call.locate()
    builder.add("launch", [*counts, *sizes], regions=[region])


def _ids(what: str, values: list[Value]) -> dict[str, Value]:
    """What `gpu.block_dim.x` and its kind are, axis by axis."""
    return {f"{what}.{axis}": value for axis, value in zip(AXES, values, strict=True)}
