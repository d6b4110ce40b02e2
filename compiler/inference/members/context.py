"""Evaluates the members of `ctx` and `ctx.target`."""

from __future__ import annotations

from ....dsl.diagnostics.errors import TargetError
from ..evaluator import Point
from ..values.compile_time import ContextValue, TargetValue
from ..values.describe import describe
from .table import member, method


@member(ContextValue, "target")
def context_target(here: Point, owner: object) -> TargetValue:
    return TargetValue()


@member(TargetValue, "is_cpu")
def target_is_cpu(here: Point, owner: object) -> bool:
    return not here.evaluator.target.has_grid


@member(TargetValue, "is_gpu")
def target_is_gpu(here: Point, owner: object) -> bool:
    return here.evaluator.target.has_grid


@member(TargetValue, "name")
def target_name(here: Point, owner: object) -> str:
    return here.evaluator.target.name


@member(TargetValue, "vector_bits")
def target_vector_bits(here: Point, owner: object) -> int:
    return here.evaluator.target.vector_bits


@member(TargetValue, "shared_memory")
def target_shared_memory(here: Point, owner: object) -> int:
    return here.evaluator.target.limits.shared_memory


@member(TargetValue, "multiprocessors")
def target_multiprocessors(here: Point, owner: object) -> int:
    return here.evaluator.target.limits.multiprocessors


@method(TargetValue, "supports")
def target_supports(call: Point, owner: object, feature: object) -> bool:
    if not isinstance(feature, str):
        raise call.error("EK0208", f"supports() takes the name of a feature, not {describe(feature)}", "feature")
    try:
        return call.evaluator.target.supports(feature)
    except TargetError as error:
        raise call.error(error.code, error.message, "feature", notes=error.notes, hint=error.hint) from None
