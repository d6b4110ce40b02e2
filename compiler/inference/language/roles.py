"""Evaluates `gpu.roles`: the warps of a block run different functions.

    if warp_idx < 1 {role=load}: ...        its first region is that role's, the second one the others'
    else: ...

A role is like a block of its own: `gpu.thread_idx`, `gpu.barrier()`, `gpu.block` and tiles are of its threads alone.
Its barrier is one of the sixteen of the block.

See also `ir.scopes` (what is equal within a role), `mbarriers` (how roles wait for each other).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ....dsl.diagnostics.dataclass import dataclass
from ...ir.program import Region
from ..calls.inlining import inline
from ..evaluator import Point, rule
from ..values.compile_time import Closure
from ..values.describe import describe
from ..values.launched import Launched, WarpRole
from ..values.tiles import TileProduct, TileValue
from .grids import AXES, NAMED_BARRIERS, gpu_value, kernel_of

GROUP = 4  # warps that change their registers together
REGISTERS = range(24, 257, 8)  # what a thread may have
ALL_REGISTERS = 65536  # of a multiprocessor
FORM = "gpu.roles(load=(load, 1), math=(multiply, 4)): by name a function without arguments, and its warps"


@dataclass(frozen=True)
class _Given:
    """A role as the author gives it: what its warps run, and how many registers each thread has, if that is said."""

    role: WarpRole
    function: Closure
    registers: int | None


@rule("gpu.roles")
def roles(call: Point, roles: dict[str, object]) -> None:
    """Lets the warps of the block run different functions.

    Raises:
        CompileError: EK0658, these are no roles, or their warps are not those of the block.
    """
    launched, target = kernel_of(call, "roles()"), call.evaluator.target
    call.locate()
    here = call.builder.location.chain()  # loops are evaluated again until types are known
    if launched.role is not None or launched.roles_at not in ([], here):
        within = f"in role '{launched.role.name}'" if launched.role is not None else "a second time"
        text = f"gpu.roles shares out the warps of a whole block, and stands here {within}"
        raise call.error("EK0658", text, hint="a kernel has one gpu.roles, at its top level")
    given = _given(call, launched, roles)
    threads, lanes = math.prod(launched.block), target.warp_size
    warps = sum(each.role.warps for each in given)
    if warps * lanes != threads:
        text = f"the roles have {warps} warps of {lanes} threads together, and the block has {threads} threads"
        raise call.error("EK0658", text, expected=f"block={warps * lanes}", got=threads)
    registers = _registers(call, launched, given)
    launched.roles, launched.roles_at = len(given), here
    call.builder.add("together", [])
    _share_out(call, launched, given, registers)


def _given(call: Point, launched: Launched, roles: dict[str, object]) -> list[_Given]:
    """The roles in the author's order, whose warps follow each other."""
    if not roles or len(roles) >= NAMED_BARRIERS:
        raise call.error("EK0658", f"a block has 1 to {NAMED_BARRIERS - 1} roles, not {len(roles)}", hint=FORM)
    first, results = 0, []
    for number, (name, value) in enumerate(roles.items()):
        parts = value if isinstance(value, tuple) else ()
        if len(parts) not in (2, 3) or not isinstance(parts[0], Closure):
            text = f"role '{name}' is a function with its number of warps, not {describe(value)}"
            raise call.error("EK0658", text, name, hint=FORM)
        for what, part in zip(("warps", "registers"), parts[1:], strict=False):
            if type(part) is not int or part < 1:
                text = f"the {what} of role '{name}' are {describe(part)}"
                expected = "a whole number that is known at compile time, at least 1"
                raise call.error("EK0658", text, name, expected=expected, hint=FORM)
        role = WarpRole(name, number, first, parts[1], launched.block, NAMED_BARRIERS - 1 - number)
        results.append(_Given(role, parts[0], parts[2] if len(parts) == 3 else None))
        first += parts[1]
    return results


def _registers(call: Point, launched: Launched, given: list[_Given]) -> int | None:
    """How many registers a thread has where the kernel begins; None where roles or the target move none."""
    if all(each.registers is None for each in given):
        return None
    threads = math.prod(launched.block)
    most = launched.registers or min(ALL_REGISTERS // threads, 255)
    most -= most % 8
    for each in given:
        role, count = each.role, each.registers
        if count is None or count not in REGISTERS or role.warps % GROUP or role.first % GROUP:
            got = "none" if count is None else count
            text = f"role '{role.name}' has warps {role.first} to {role.first + role.warps - 1} and {got} registers"
            hint = "if one role states its registers, all roles must: a multiple of 8"
            hint += f" from {REGISTERS[0]} to 256, for groups of {GROUP} warps that begin at a multiple of {GROUP}"
            raise call.error("EK0658", text, role.name, hint=hint)
    if not call.evaluator.target.supports("set_registers"):
        return None
    total = sum(each.role.warps * (each.registers or 0) for each in given)
    if total * call.evaluator.target.warp_size > most * threads:
        text = f"the roles take {total * call.evaluator.target.warp_size} registers together"
        raise call.error("EK0658", text, expected=f"at most {most * threads}, {most} for each thread of the block")
    launched.registers = most
    return most


def _share_out(call: Point, launched: Launched, given: list[_Given], registers: int | None) -> None:
    """The roles from the first one on: a branch for each but the last."""
    first, *others = given
    if not others:
        _run(call, launched, first, registers)
        return
    builder, regions = call.builder, (Region(), Region())
    end = builder.int_(first.role.first + first.role.warps)
    mine = builder.compare("lt", gpu_value(call, "warp_idx"), end)
    with builder.inside(regions[0]):
        _run(call, launched, first, registers)
        builder.end()
    with builder.inside(regions[1]):
        _share_out(call, launched, others, registers)
        builder.end()
    call.locate()
    builder.add("if", [mine], regions=regions, role=first.role.name)


def _run(call: Point, launched: Launched, given: _Given, registers: int | None) -> None:
    """What the warps of a role do."""
    role, function = given.role, given.function
    if given.registers is not None and registers is not None and given.registers != registers:
        call.builder.add("set_registers", [], count=given.registers, more=given.registers > registers)
    with _as_block(call, launched, given):
        result = inline(call, function, [], {})
    if result is not None:
        text = f"'{function.name}', which role '{role.name}' runs, returns {describe(result)}"
        raise call.error("EK0658", text, role.name, hint="a role gives nothing: it stores what others shall have")
    call.locate()


@contextmanager
def _as_block(call: Point, launched: Launched, given: _Given) -> Iterator[None]:
    """The threads of a role are a block; tiles of the whole block are none of its own."""
    evaluator, role = call.evaluator, given.role
    threads = role.warps * evaluator.target.warp_size
    held = tuple(v for v in given.function.frame.env.values() if isinstance(v, TileValue | TileProduct))
    own = Launched(
        (threads, 1, 1),
        launched.cluster,
        launched.shared,
        launched.region,
        used=launched.used,
        given_away=launched.given_away,
        role=role,
        before=launched.before,
        maps=launched.maps,
        begins=launched.begins,
        roles=launched.roles,
        outside=tuple(v.tile if isinstance(v, TileProduct) else v for v in held),
    )
    sizes = dict(zip((f"block_dim.{axis}" for axis in AXES), map(call.builder.int_, own.block), strict=True))
    ids = {**(evaluator.gpu_ids or {}), **sizes}
    with evaluator.scope(launched=own, gpu_ids=ids):
        yield
