"""Answers what a kernel asks of `ctx` and `ctx.target`."""

from __future__ import annotations

from typing import Any

from ....dsl.diagnostics.errors import TargetError
from ....dsl.frontend import syntax as s
from ..evaluator import Call, Evaluator
from ..values.compile_time import ContextValue, Frame, TargetValue
from ..values.describe import describe
from .table import member, method


@member(ContextValue, "target")
def context_target(evaluator: Evaluator, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return TargetValue()


@member(TargetValue, "is_cpu")
def target_is_cpu(evaluator: Evaluator, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return not evaluator.target.has_grid


@member(TargetValue, "is_gpu")
def target_is_gpu(evaluator: Evaluator, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return evaluator.target.has_grid


@member(TargetValue, "name")
def target_name(evaluator: Evaluator, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return evaluator.target.name


@member(TargetValue, "vector_bits")
def target_vector_bits(evaluator: Evaluator, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return evaluator.target.vector_bits


@method(TargetValue, "supports")
def target_supports(call: Call, owner: Any, feature: Any) -> Any:
    if not isinstance(feature, str):
        raise call.error("EK0208", f"supports() takes the name of a feature, not {describe(feature)}", "feature")
    try:
        return call.evaluator.target.supports(feature)
    except TargetError as error:
        raise call.error(error.code, error.message, "feature", notes=error.notes, hint=error.hint) from None
