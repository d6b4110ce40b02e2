"""Makes the results of classifiers of scores: labels, transformed scores, and the two columns of one score."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...dsl.types.dtype import DType
from .. import ops
from ..staging.value import TensorValue
from .call import NodeCall
from .texts import Texts

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # the numbers that TreeEnsemble has for them


def labels_of(call: NodeCall, numbers: list[int] | None, texts: list[str] | None) -> list[int] | list[str]:
    """The labels of classes, of the one attribute that has them."""
    if bool(numbers) == bool(texts):
        call.fail("has to have labels of classes, either numbers or texts")
    return texts or numbers or []


def chosen_label(call: NodeCall, place: TensorValue, labels: Sequence[int | str]) -> TensorValue | Texts:
    """The label at each place."""
    if isinstance(labels[0], str):
        return Texts(place, tuple(str(label) for label in labels))
    return ops.gather(ops.constant(np.asarray(labels, np.int64), DType.int64, place.device), place, 0)


def transformed(call: NodeCall, scores: TensorValue, transform: str) -> TensorValue:
    """Scores as an attribute `post_transform` requests."""
    _check_transform(call, transform)
    if transform == "LOGISTIC":
        return ops.sigmoid(scores)
    if transform == "SOFTMAX":
        return ops.softmax(scores, -1)
    if transform == "SOFTMAX_ZERO":  # scores of 0 stay 0, and the others share what is left
        zero = ops.equal(scores, 0.0)
        powers = ops.where(zero, 0.0, ops.exp(scores - ops.max(scores, axis=-1)))
        total = ops.sum(powers, -1)
        return powers / ops.where(ops.equal(total, 0.0), 1.0, total)
    return _normal_quantile(scores) if transform == "PROBIT" else scores


def two_columns(call: NodeCall, score: TensorValue, transform: str, *, complement: bool) -> TensorValue:
    """The scores of two classes, of the one that the second has: 1 - score and score, or -score and score."""
    _check_transform(call, transform)
    if transform == "LOGISTIC":
        return ops.concat([ops.sigmoid(ops.negate(score)), ops.sigmoid(score)], 1)
    if transform == "PROBIT":
        score = _normal_quantile(score)
    return ops.concat([1.0 - score if complement else ops.negate(score), score], 1)


def _check_transform(call: NodeCall, transform: str) -> None:
    if transform not in TRANSFORMS:
        call.fail(f"attribute 'post_transform' is {transform!r}, and {', '.join(TRANSFORMS)} are known")


def _normal_quantile(share: TensorValue) -> TensorValue:
    """The number below which a share of the standard normal distribution lies: sqrt(2) * erfinv(2 * share - 1).

    From the approximation of Winitzki (2008) by three steps of Newton's method in float64.
    """
    x = ops.cast(share, DType.float64) * 2.0 - 1.0
    inner = ops.log1p(ops.negate(x * x))
    first = 2 / (math.pi * 0.147) + inner * 0.5
    sign = ops.where(ops.less(x, 0.0), -1.0, ops.full_like(x, 1.0))
    y = ops.sqrt(ops.sqrt(first * first - inner / 0.147) - first) * sign
    for _ in range(3):
        y = y - (ops.erf(y) - x) * ops.exp(y * y) * (math.sqrt(math.pi) / 2)
    return ops.cast(ops.where(ops.equal(ops.abs(x), 1.0), sign * math.inf, y * math.sqrt(2)), DType.float32)
