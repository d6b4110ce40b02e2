"""Launches grids: `ctx.launch`, thread and block indices, barriers.

A launch is an operation whose region every thread runs. Where no hardware runs grids, `passes.expand_launches` makes
loops of it, as long as it has no barrier.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import INT, SIMDType
from ...ir.indices import WITHIN_BLOCKS, WITHIN_CLUSTERS
from ...ir.program import Region, Value
from ..calls.inlining import inline
from ..conversion import DEFAULTS, coerce
from ..evaluator import Point, named_value, rule
from ..members.table import method
from ..runtime_checks import add_check
from ..target_refusals import refuse_block, refuse_clusters
from ..values.compile_time import Closure, ContextValue, is_comptime_number
from ..values.describe import describe
from ..values.launched import Launched, WarpRole
from .atomics import ordering_of, scope_of

AXES = "xyz"
NAMED_BARRIERS = 16  # of a block


LAUNCHED = "put it into a function of its own, and run that with ctx.launch(function, ..., grid=..., block=...)"


def kernel_of(here: Point, what: str) -> Launched:
    """The launch whose kernel this is; `what` has a meaning only there."""
    if here.evaluator.gpu_ids is None or here.evaluator.launched is None:
        text = f"gpu.{what} has a meaning only inside a kernel that ctx.launch runs"
        raise here.error("EK0114", text, hint=LAUNCHED)
    return here.evaluator.launched


def gpu_value(here: Point, which: str) -> Value:
    """`gpu.thread_idx.x` and its kind, within a launched kernel."""
    launched, ids, builder = kernel_of(here, which), here.evaluator.gpu_ids, here.builder
    assert ids is not None
    what, _, axis = which.partition(".")
    if launched.role is not None and what in ("thread_idx", "warp_idx"):
        return _within_role(here, launched.role, which)
    if what == "global_idx":
        block = gpu_value(here, f"block_idx.{axis}")
        size = gpu_value(here, f"block_dim.{axis}")
        thread = gpu_value(here, f"thread_idx.{axis}")
        return builder.iadd(builder.imul(block, size), thread)
    if which in ids:
        return ids[which]
    if what in WITHIN_BLOCKS or what == "thread_idx":
        return _within_block(here, launched.whole_block, which)
    blocks = launched.cluster[AXES.index(axis)]
    match what:
        case "cluster_dim":
            return builder.int_(blocks)
        case "block_in_cluster":
            return _number(here, which, builder.int_(blocks), of=(blocks,))
        case "cluster_idx" if blocks == 1:
            return gpu_value(here, f"block_idx.{axis}")
        case "cluster_idx":
            return _number(here, which, ids[f"grid_dim.{axis}"], of=(blocks,))
    return _number(here, which, ids[f"grid_dim.{axis}"])


def _within_block(here: Point, block: tuple[int, int, int], which: str) -> Value:
    """Where a thread is in its whole block."""
    what, _, axis = which.partition(".")
    builder, lanes = here.builder, here.evaluator.target.warp_size
    if what == "thread_idx":
        return _number(here, which, builder.int_(block[AXES.index(axis)]))
    high = lanes if what == "lane_idx" else -(-math.prod(block) // lanes)
    return _number(here, which, builder.int_(high), of=(*block, lanes))


def _within_role(here: Point, role: WarpRole, which: str) -> Value:
    """The number of a thread or a warp in its role, whose threads lie along x."""
    builder, lanes, key = here.builder, here.evaluator.target.warp_size, ("role", role.number, which)
    if which in ("thread_idx.y", "thread_idx.z"):
        return builder.int_(0)
    made = builder.remembered(key)
    if made is None:
        first, count = role.first, role.warps
        if which == "warp_idx":
            made = _within_block(here, role.block, which)
        else:
            first, count = first * lanes, count * lanes
            made = whole_number(here, role.block)
        made = builder.isub(made, builder.int_(first))
        if not here.evaluator.target.has_grid and made.const is None:
            builder.live(builder.counter(made, None, builder.int_(count)))
        builder.remember(key, made)
    assert isinstance(made, Value)
    return made


def whole_number(here: Point, block: tuple[int, int, int]) -> Value:
    """The number of a thread in its whole block, along x, then y, then z."""
    if block[1] == block[2] == 1:
        return _within_block(here, block, "thread_idx.x")
    builder, lanes = here.builder, here.builder.int_(here.evaluator.target.warp_size)
    warp = builder.imul(_within_block(here, block, "warp_idx"), lanes)
    return builder.iadd(warp, _within_block(here, block, "lane_idx"))


def warps_of(launched: Launched, lanes: int) -> int:
    """How many warps a block has; the last one may be a part of one."""
    return -(-math.prod(launched.block) // lanes)


def _number(here: Point, which: str, count: Value, **attrs: object) -> Value:
    """A number that is below `count`."""
    builder, key = here.builder, ("gpu_id", which)
    result = builder.remembered(key)
    if result is None:
        if here.evaluator.target.has_grid:
            result = builder.one("gpu_id", [], INT, which=which, **attrs)
        elif count.const == 1:
            result = builder.int_(0)
        else:
            result = builder.live(builder.counter(builder.one("gpu_id", [], INT, which=which, **attrs), None, count))
        builder.remember(key, result)
    assert isinstance(result, Value)
    return result


def _register(which: str) -> None:
    named_value(f"gpu.{which}")(lambda call: gpu_value(call, which))


for _what in ("thread_idx", "block_idx", "block_dim", "grid_dim", "global_idx", *WITHIN_CLUSTERS, "cluster_dim"):
    for _axis in AXES:
        _register(f"{_what}.{_axis}")
for _what in WITHIN_BLOCKS:
    _register(_what)


@named_value("gpu.warp_size")
def warp_size(here: Point) -> int:
    return here.evaluator.target.warp_size


@named_value("gpu.warps_per_block")
def warps_per_block(here: Point) -> int:
    return warps_of(kernel_of(here, "warps_per_block"), here.evaluator.target.warp_size)


@rule("gpu.uniform")
def uniform(call: Point, value: object, scope: object = "warp") -> Any:
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
def barrier(call: Point, id: Any = 0, threads: Any = None) -> None:
    launched, target = kernel_of(call, "barrier()"), call.evaluator.target
    if launched.role is not None and id == 0 and threads is None:
        synchronise(call)
        return
    known = type(id) is int
    if (known and not 0 <= id < NAMED_BARRIERS) or not (known or isinstance(id, Value)):
        text = f"id= is a number from 0 to {NAMED_BARRIERS - 1}, not {describe(id)}"
        raise call.error("EK0642", text, "id")
    attrs: dict[str, Any] = {"id": id} if known and id else {}
    if known and launched.roles and id >= NAMED_BARRIERS - launched.roles:
        text = f"the {launched.roles} roles of this kernel have the last barriers of the block"
        raise call.error("EK0642", text, "id", expected=f"0 to {NAMED_BARRIERS - launched.roles - 1}", got=id)
    whole, lanes = math.prod(launched.whole_block), target.warp_size
    if threads is not None:
        if type(threads) is not int or not 1 <= threads <= whole or (threads % lanes and threads != whole):
            text = f"threads= is a multiple of {lanes}, a warp's threads, up to the {whole} of the block"
            raise call.error("EK0642", f"{text}, not {describe(threads)}", "threads")
        if attrs or threads != whole:
            attrs["threads"] = threads
    if not known:
        attrs["threads"] = whole if threads is None else threads
    if attrs and target.has_grid and not target.supports("named_barriers"):
        hint = 'guard it by `if ctx.target.supports("named_barriers"):`; gpu.barrier() is for the whole block'
        raise call.error("EK0611", f"{target.name} has one barrier a block, and no further ones", hint=hint)
    numbers = [] if known else [_barrier_number(call, id)]
    call.builder.add("barrier", numbers, **attrs)


def synchronise(call: Point) -> None:
    """Waits for the threads of the block or the role, and orders their memory."""
    role = kernel_of(call, "barrier()").role
    if role is None:
        call.builder.add("barrier", [])
    else:
        role_barrier(call, role)


def role_barrier(call: Point, role: WarpRole, **attrs: bool) -> None:
    """Waits for the threads of a role: the lanes of one warp do so without a barrier of the block."""
    target, builder = call.evaluator.target, call.builder
    lanes = target.warp_size
    builder.add("together", [])
    if role.warps == 1 and target.has_grid and not target.simulates:
        builder.add("warp_sync", [], lanes=lanes, block=role.block)
        return
    if target.has_grid and role.warps > 1 and not target.supports("named_barriers"):
        text = (
            f"{target.name} has one barrier a block, and role '{role.name}' of {role.warps} warps takes one of its own"
        )
        raise call.error("EK0611", text, hint="let the role have one warp, or guard gpu.roles by ctx.target.supports")
    builder.add("barrier", [], (), (), id=role.barrier, threads=role.warps * lanes, **attrs)


def _barrier_number(call: Point, id: Value) -> Value:
    """The number of a barrier that is known at run time only."""
    number = coerce(call.argument("id"), id, INT, "id= of gpu.barrier is an Int")
    if call.evaluator.checks.level != "off" and not call.evaluator.ranges.is_inside(
        number, call.builder.int_(NAMED_BARRIERS), 1
    ):
        builder = call.builder
        call.locate()
        low = builder.compare("ge", number, builder.int_(0))
        holds = builder.row("and_", [low, builder.compare("lt", number, builder.int_(NAMED_BARRIERS))])
        message = ["a block has no barrier ", number, f": their numbers are 0 to {NAMED_BARRIERS - 1}"]
        add_check(call, "barrier", holds, message, {}, [])
    call.locate()
    return number


@rule("gpu.fence")
def fence(call: Point, ordering: object = "acq_rel", scope: object = "block") -> None:
    kernel_of(call, "fence()")
    call.builder.add("fence", [], ordering=ordering_of(call, ordering, "fence"), scope=scope_of(call, scope))


@method(ContextValue, "launch")
def launch(
    call: Point,
    owner: object,
    kernel: object,
    *args: object,
    grid: object,
    block: object,
    cluster: object = 1,
    shared: object = 0,
    parameters: object = None,
    max_registers: object = None,
    min_blocks: object = None,
) -> None:
    """Runs `kernel(*args)` once for every thread of `grid` blocks of `block` threads."""
    evaluator = call.evaluator
    if not isinstance(kernel, Closure):
        raise call.error("EK0221", f"ctx.launch takes a function, not {describe(kernel)}", "kernel")
    if evaluator.level != "host":
        raise call.error("EK0221", "a kernel cannot launch another one")
    threads, blocks = _sizes(call, block, "block"), _sizes(call, cluster, "cluster")
    named = parameters or ()
    if not isinstance(named, tuple) or not all(isinstance(p, tuple) and isinstance(p[0], str) for p in named):
        raise call.error("EK0221", 'parameters= takes the names and values of compile-time parameters: {"BM": 64}')
    counts = _grid(call, grid)
    refuse_block(call, threads)
    refuse_clusters(call, blocks)
    attrs: dict[str, Any] = {} if math.prod(blocks) == 1 else {"cluster": blocks}
    for name, value in (("max_registers", max_registers), ("min_blocks", min_blocks)):
        if value is not None:
            if type(value) is not int or value < 1:
                raise call.error("EK0221", f"{name}= takes a whole number >= 1 known at compile time", name)
            attrs[name] = value
    held = coerce(call.argument("shared"), shared, INT, "shared= takes an Int, a number of bytes")
    launched = Launched(threads, blocks, held, registers=attrs.get("max_registers"))

    def body() -> None:
        assert isinstance(call.node, s.Call)
        result = inline(call, kernel, list(args), dict(named))
        if result is not None:
            raise call.error("EK0221", f"the launched function '{kernel.name}' returns a value", "kernel")

    _launch(call, counts, launched, body, attrs)


@rule("gpu.launch")
def launch_here(
    call: Point, kernel: object, grid: object, block: object, shared: object = 0, min_blocks: object = None
) -> None:
    launch(call, None, kernel, grid=grid, block=block, shared=shared, min_blocks=min_blocks)


def _grid(call: Point, grid: object) -> list[Value]:
    """The blocks along x, y and z."""
    blocks = grid if isinstance(grid, tuple) else (grid,)
    if not 1 <= len(blocks) <= 3:
        raise call.error("EK0221", "grid= takes one to three Ints", "grid")
    counts = [coerce(call.argument("grid"), n, INT, "grid= takes Ints") for n in blocks]
    for count, axis in zip(counts, AXES, strict=False):
        _guard_blocks(call.argument("grid"), count, axis)
    return counts + [call.builder.int_(1)] * (3 - len(counts))


def _guard_blocks(here: Point, count: Value, axis: str) -> None:
    """Refuses fewer than 0 blocks: here, if the number is known, or else at the call."""
    if count.const is not None and count.const < 0:
        raise here.error("EK0221", f"grid= has {int(count.const)} blocks along {axis}")
    if not here.evaluator.ranges.is_at_least(count, 0):
        here.locate()
        holds = here.builder.compare("ge", count, here.builder.int_(0))
        message = ["a launch requests ", count, f" blocks along {axis}, and takes at least 0"]
        add_check(here, "grid", holds, message, {"limit": 0, "size": count}, [])


def _sizes(call: Point, given: object, argument: str) -> tuple[int, int, int]:
    """One to three numbers known at compile time, for x, y and z."""
    sizes = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(sizes) <= 3 or any(type(n) is not int or n < 1 for n in sizes):
        text = f"{argument}= takes one to three whole numbers >= 1 known at compile time"
        raise call.error("EK0221", text, argument)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _launch(
    call: Point, counts: list[Value], launched: Launched, body: Callable[[], None], attrs: dict[str, Any]
) -> None:
    evaluator, builder = call.evaluator, call.builder
    region, before = Region(), Region()
    launched.region, launched.before, launched.begins = region, before, Value(INT).serial
    sizes = [builder.int_(n) for n in launched.block]
    ids = _ids("block_dim", sizes) | _ids("grid_dim", counts)
    with evaluator.scope(level="device", gpu_ids=ids, launched=launched), builder.inside(region):
        body()
        builder.end()
    call.locate()
    if launched.registers is not None:
        attrs = {"max_registers": launched.registers} | attrs
    builder.region.ops += before.ops
    builder.add("launch", [*counts, *sizes, launched.shared], regions=[region], **attrs)


def _ids(what: str, values: list[Value]) -> dict[str, Value]:
    """What `gpu.block_dim.x` and its kind are, axis by axis."""
    return {f"{what}.{axis}": value for axis, value in zip(AXES, values, strict=True)}
