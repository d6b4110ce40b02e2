"""Grids: `ctx.launch`, thread and block indices, barriers.

On a GPU a launch is an operation whose region every thread runs. On a CPU the same kernel runs thread for thread, one
block after the other on each core, as long as it has no barrier.
"""

from __future__ import annotations

from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import INT
from ...ir.program import Region, Value
from ..calls.inlining import inline
from ..conversion import coerce
from ..evaluator import Evaluator, Point, named_value, rule
from ..members.table import method
from ..target_refusals import refuse_barrier, refuse_block
from ..values.compile_time import Closure, ContextValue
from ..values.describe import describe
from ..values.index import unravel

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
        found = here.builder.one("gpu_id", [], INT, which=which)
        here.builder.remember(key, found)
    assert isinstance(found, Value)
    return found


def _register(which: str) -> None:
    named_value(f"gpu.{which}")(lambda call: gpu_value(call, which))


for _what in ("thread_idx", "block_idx", "block_dim", "grid_dim", "global_idx"):
    for _axis in AXES:
        _register(f"{_what}.{_axis}")


@rule("gpu.barrier")
def barrier(call: Point) -> None:
    if call.evaluator.gpu_ids is None:
        text = "gpu.barrier() has a meaning only inside a kernel that ctx.launch runs"
        raise call.error("EK0114", text, hint=LAUNCHED)
    refuse_barrier(call)
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
    node = call.nodes.get("grid", call.node)
    counts = [coerce(call.on(node), n, INT, "grid= takes Ints") for n in blocks]
    one = call.builder.int_(1)
    counts += [one] * (3 - len(counts))
    threads = [*sizes, *(1,) * (3 - len(sizes))]
    refuse_block(call, threads)

    def body() -> None:
        assert isinstance(call.node, s.Call)
        result = inline(call, kernel, list(args), dict(named))
        if result is not None:
            raise call.error("EK0221", f"the launched function '{kernel.name}' returns a value", "kernel")

    run = launch_on_gpu if evaluator.target.has_grid else run_grid_on_cpu
    run(call, counts, threads, body)


def launch_on_gpu(call: Point, counts: list[Value], threads: list[int], body: Any) -> None:
    """The launch itself, on a GPU target."""
    evaluator, builder = call.evaluator, call.builder
    region = Region()
    sizes = [builder.int_(n) for n in threads]
    ids = _ids("block_dim", sizes) | _ids("grid_dim", counts)
    with evaluator.scope(level="device", gpu_ids=ids), builder.inside(region):
        body()
        builder.end()
    call.locate()
    builder.add("launch", [*counts, *sizes], regions=[region])


def run_grid_on_cpu(call: Point, counts: list[Value], threads: list[int], body: Any) -> None:
    """The same grid as loops: blocks in parallel, the threads of a block in order."""
    evaluator, builder = call.evaluator, call.builder
    total = builder.product(counts)
    low, high = builder.counter(Value(INT)), builder.counter(Value(INT), high=total, closed=True)
    region = Region([low, high])
    sizes = [builder.int_(n) for n in threads]
    with evaluator.scope(level="parallel"), builder.inside(region):
        blocks = builder.for_loop(low, high)
        with builder.inside(blocks):
            z, y, x = unravel(builder, blocks.args[0], (counts[2], counts[1], counts[0]))
            ids = _ids("block_dim", sizes) | _ids("grid_dim", counts) | _ids("block_idx", [x, y, z])
            with evaluator.scope(gpu_ids=ids):
                _thread_loops(evaluator, ids, sizes, 2, body)
            builder.end()
        builder.end()
    call.locate()
    builder.add("parallel", [total, builder.int_(1)], regions=[region])


def _ids(what: str, values: list[Value]) -> dict[str, Value]:
    """What `gpu.block_dim.x` and its kind are, axis by axis."""
    return {f"{what}.{axis}": value for axis, value in zip(AXES, values, strict=True)}


def _thread_loops(evaluator: Evaluator, ids: dict[str, Value], sizes: list[Value], axis: int, body: Any) -> None:
    builder = evaluator.builder
    if axis < 0:
        body()
        return
    loop = builder.for_loop(builder.int_(0), sizes[axis])
    with builder.inside(loop):
        inner = {**ids, f"thread_idx.{AXES[axis]}": loop.args[0]}
        with evaluator.scope(gpu_ids=inner):
            _thread_loops(evaluator, inner, sizes, axis - 1, body)
        builder.end()
