"""The primitive `einkorn_call`: a call of a kernel among the operations of JAX.

Its rules say to JAX what a call is: the types of its results, with their sharding and the mesh axes over which they
vary, how it is differentiated (`jax_gradients`), batched, lowered to a call of a handler (`jax_handlers`), and split
over devices (`jax_sharding`).

A call has levels of batching where its kernel takes no further axis: for each level, outermost first, which operands
have an axis for it. It is lowered as one call for each member.

See also `jax` (signatures and parameters).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .jax_callee import Callee, Levels, at_front, batch_sizes, members, varying_alike
from .jax_gradients import differentiate
from .jax_sharding import SharedAxes, is_split, result_sharding

call_p = Primitive("einkorn_call")
call_p.multiple_results = True


def call(callee: Callee, args: Sequence[object]) -> tuple[Any, ...]:
    """One call in a trace, with all rules."""
    return tuple(call_p.bind(*varying_alike(args), callee=callee, levels=()))


def _shared(callee: Callee, avals: Sequence[Any], levels: Levels) -> SharedAxes:
    """Which axes of operands and results are worked on element for element, or member for member."""
    if levels:
        present = [tuple(k for k, level in enumerate(levels) if level[number]) for number, _ in enumerate(avals)]
        return SharedAxes(tuple(present), len(levels))
    if not callee.adds_axis(avals):
        batch = callee.batch(avals) or (0,) * len(avals)
        return SharedAxes(tuple(tuple(range(count)) for count in batch), max(batch, default=0))
    single = callee.numbers()
    axes = [() if one else tuple(range(len(aval.shape))) for aval, one in zip(avals, single, strict=True)]
    return SharedAxes(tuple(axes), max(map(len, axes)))


def _abstract(*avals: Any, callee: Callee, levels: Levels) -> list[Any]:
    sizes = batch_sizes([aval.shape for aval in avals], levels)
    results = [((*sizes, *shape), dtype) for shape, dtype in callee.results(members(avals, levels))]
    if not avals:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]
    whole = avals[0].sharding.mesh.empty
    shared = SharedAxes(((),) * len(avals), 0) if whole else _shared(callee, avals, levels)
    return [
        avals[0].update(
            shape=shape,
            dtype=dtype,
            weak_type=False,
            sharding=result_sharding(callee.name, avals, shared, len(shape)),
        )
        for shape, dtype in results
    ]


def _lowered(ctx: Any, *values: object, callee: Callee, levels: Levels) -> Any:
    fixed = all(isinstance(size, int) for aval in ctx.avals_in for size in aval.shape)
    split = _shared(callee, ctx.avals_in, levels).count if fixed and is_split(ctx) else 0

    def run(*args: object) -> tuple[Any, ...]:
        return callee.run(args, levels, split)

    return mlir.lower_fun(run, multiple_results=True)(ctx, *values)


def _evaluated(*args: object, **settings: object) -> Any:
    return jax.jit(lambda *values: call_p.bind(*values, **settings))(*args)


def _differentiated(primals: Sequence[object], tangents: Sequence[object], *, callee: Callee, levels: Levels) -> Any:
    results = call_p.bind(*primals, callee=callee, levels=levels)
    return results, differentiate(callee, levels, primals, tangents, results)


def _batched(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, callee: Callee, levels: Levels) -> Any:
    batched, size = tuple(dim is not None for dim in dims), axis_data.size
    if not any(batched):
        results = call_p.bind(*args, callee=callee, levels=levels)
        return results, [None] * len(results)
    if callee.batching is not None and not levels:
        moved = [at_front(size, value, dim, False) for value, dim in zip(args, dims, strict=True)]
        result, has_axis = callee.batching(size, list(batched), *moved)
        return jax.tree.leaves(result), [0 if has else None for has in jax.tree.leaves(has_axis)]
    single = callee.numbers()
    one_of_all = members(args, (batched, *levels))
    numbers = any(has and one for has, one in zip(batched, single, strict=True))
    apart = levels or numbers or not callee.adds_axis(one_of_all)
    if apart:
        changed = callee.changed(one_of_all)
        batched = tuple(has or k in changed for k, has in enumerate(batched))
        levels = (batched, *levels)
    whole = batched if apart else [not one for one in single]
    moved = [at_front(size, *each) for each in zip(args, dims, whole, strict=True)]
    results = call_p.bind(*moved, callee=callee, levels=levels)
    return results, [0] * len(results)


call_p.def_impl(_evaluated)
call_p.def_abstract_eval(_abstract)
ad.primitive_jvps[call_p] = _differentiated
batching.fancy_primitive_batchers[call_p] = _batched
mlir.register_lowering(call_p, _lowered)
