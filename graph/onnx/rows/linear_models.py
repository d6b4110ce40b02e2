"""Converts linear models and support vector machines, in the domain ai.onnx.ml.

Where ONNX's text leaves a result open, it is that of ONNX Runtime: such as the two columns of scores of a classifier
that has one score.

See also `trees`, `scores` (scores to results).
"""

from __future__ import annotations

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..agreement import equal_size
from ..call import NodeCall
from ..known import Array
from ..scores import chosen_label, labels_of, transformed, two_columns
from ..table import ML, onnx_op
from ..texts import Texts
from .features import as_float, as_rows


def _floats(numbers: list[float] | None) -> Array:
    return np.asarray(numbers if numbers is not None else [], np.float32)


def _matrix(call: NodeCall, x: TensorValue, numbers: Array, rows: int, what: str) -> TensorValue:
    """An attribute as a matrix of rows with as many numbers as there are features."""
    if rows < 1 or not numbers.size or numbers.size % rows:
        call.fail(f"has {numbers.size} {what}, which make no {rows} rows of equal length")
    matrix = numbers.reshape(rows, -1)
    equal_size(call, x.shape[1], Dim(matrix.shape[1]), f"the number of features and that of {what} in a row")
    return ops.constant(matrix, DType.float32, x.device)


def _row(x: TensorValue, numbers: Array) -> TensorValue:
    return ops.constant(numbers, DType.float32, x.device)


def _linear(call: NodeCall, x: TensorValue, coefficients: Array, intercepts: Array, count: int) -> TensorValue:
    """Products with rows of coefficients, and their intercepts."""
    result = x @ ops.transpose(_matrix(call, x, coefficients, count, "coefficients"), 0, 1)
    if not intercepts.size:
        return result
    if intercepts.size not in (1, count):
        call.fail(f"has {intercepts.size} intercepts for {count} results")
    return result + _row(x, intercepts)


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(
    call: NodeCall,
    x: TensorValue,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    targets: int = 1,
    post_transform: str = "NONE",
) -> TensorValue:
    """Sums of features times coefficients, one for each target."""
    rows = as_float(as_rows(call, x))
    result = _linear(call, rows, _floats(coefficients), _floats(intercepts), targets)
    return transformed(call, result, post_transform)


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(
    call: NodeCall,
    x: TensorValue,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[TensorValue | Texts, TensorValue]:
    """The label with the largest score, and the scores; with one row of coefficients the sign says which of two."""
    del multi_class  # the scores of both kinds are the same
    labels = labels_of(call, classlabels_ints, classlabels_strings)
    rows = as_float(as_rows(call, x))
    weights = _floats(coefficients)
    count = len(intercepts) if intercepts else len(labels)
    scores = _linear(call, rows, weights, _floats(intercepts), count)
    if count > 1:
        return chosen_label(call, ops.argmax(scores, 1, False), labels), transformed(call, scores, post_transform)
    if len(labels) != 2:
        call.fail(f"has {len(labels)} labels, and one row of coefficients distinguishes two")
    positive = ops.cast(ops.greater(ops.squeeze(scores, 1), 0.0), DType.int64)
    return chosen_label(call, positive, labels), two_columns(call, scores, post_transform, complement=True)


# *** support vectors ***


def _kernel(
    call: NodeCall, x: TensorValue, vectors: TensorValue, kernel_type: str, parameters: list[float] | None
) -> TensorValue:
    """The kernel of each row with each of the vectors; `parameters` are gamma, coef0 and degree."""
    gamma, coef0, degree = (parameters or [0.0, 0.0, 3.0])[:3]
    product = x @ ops.transpose(vectors, 0, 1)
    if kernel_type == "LINEAR":
        return product
    if kernel_type == "POLY":
        return ops.pow(product * gamma + coef0, ops.constant(degree, DType.float32, x.device))
    if kernel_type == "SIGMOID":
        return ops.tanh(product * gamma + coef0)
    if kernel_type == "RBF":
        apart = ops.unsqueeze(x, 2) - ops.unsqueeze(ops.transpose(vectors, 0, 1), 0)  # neighbours are of other vectors
        return ops.exp(ops.squeeze(ops.sum(apart * apart, 1), 1) * -gamma)
    call.fail(f"attribute 'kernel_type' is {kernel_type!r}, and LINEAR, POLY, RBF and SIGMOID are known")


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(
    call: NodeCall,
    x: TensorValue,
    *,
    coefficients: list[float] | None = None,
    support_vectors: list[float] | None = None,
    rho: list[float] | None = None,
    n_supports: int = 0,
    one_class: int = 0,
    kernel_type: str = "LINEAR",
    kernel_params: list[float] | None = None,
    post_transform: str = "NONE",
) -> TensorValue:
    """The sum of coefficients times kernels with support vectors; of one class 1 where it is positive, else -1."""
    rows = as_float(as_rows(call, x))
    weights, offset = _floats(coefficients), _floats(rho)
    if n_supports > 0:
        vectors = _matrix(call, rows, _floats(support_vectors), n_supports, "support vectors")
        values = _kernel(call, rows, vectors, kernel_type, kernel_params)
        if weights.size != n_supports:
            call.fail(f"has {weights.size} coefficients for {n_supports} support vectors")
        result = values @ _row(rows, weights.reshape(-1, 1))
    else:
        result = _kernel(call, rows, _matrix(call, rows, weights, 1, "coefficients"), kernel_type, kernel_params)
    result = result + float(offset[0]) if offset.size else result
    if one_class:
        return ops.where(ops.greater(result, 0.0), 1.0, ops.full_like(result, -1.0))
    return transformed(call, result, post_transform)


@onnx_op("SVMClassifier", domain=ML)
def svm_classifier(
    call: NodeCall,
    x: TensorValue,
    *,
    coefficients: list[float] | None = None,
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
    rho: list[float] | None = None,
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    kernel_type: str = "LINEAR",
    kernel_params: list[float] | None = None,
    post_transform: str = "NONE",
) -> tuple[TensorValue | Texts, TensorValue]:
    """The class that wins most of the comparisons of two; the comparisons, or how likely the classes are.

    Likelihoods of two classes are logistic functions of their comparison (Platt 1999), and those of all classes follow
    from these (Wu, Lin and Weng 2004, second method).
    """
    labels = labels_of(call, classlabels_ints, classlabels_strings)
    rows = as_float(as_rows(call, x))
    weights, offset = _floats(coefficients), _floats(rho)
    if not vectors_per_class:
        matrix = _matrix(call, rows, weights, len(labels), "coefficients")
        scores = _kernel(call, rows, matrix, kernel_type, kernel_params) + float(offset[0] if offset.size else 0)
        return chosen_label(call, ops.argmax(scores, 1, False), labels), transformed(call, scores, post_transform)
    classes, supports = len(vectors_per_class), sum(vectors_per_class)
    pairs = classes * (classes - 1) // 2
    if classes < 2 or len(labels) < classes or offset.size != pairs or weights.size != (classes - 1) * supports:
        call.fail(
            f"has {classes} classes with {supports} support vectors, {len(labels)} labels, {weights.size} coefficients"
            f" and {offset.size} offsets, which do not fit together"
        )
    vectors = _matrix(call, rows, _floats(support_vectors), supports, "support vectors")
    values = _kernel(call, rows, vectors, kernel_type, kernel_params)
    compared = values @ _row(rows, _pair_weights(weights.reshape(classes - 1, supports), vectors_per_class))
    compared = compared + _row(rows, offset)
    label = chosen_label(call, ops.argmax(_wins(rows, compared, classes), 1, False), labels)
    if prob_a:
        if len(prob_a) != pairs or len(prob_b or ()) != pairs:
            call.fail(
                f"has {len(prob_a)} and {len(prob_b or ())} numbers for likelihoods, and {pairs} pairs of classes"
            )
        exponent = compared * _row(rows, _floats(prob_a)) + _row(rows, _floats(prob_b))
        likely = builtin("classical", "pairwise_coupling", [ops.sigmoid(ops.negate(exponent))], {"classes": classes})[0]
        return label, transformed(call, likely, post_transform)
    if pairs == 1:
        return label, two_columns(call, compared, post_transform, complement=False)
    return label, transformed(call, compared, post_transform)


def _wins(x: TensorValue, compared: TensorValue, classes: int) -> TensorValue:
    """How many of its comparisons each class wins."""
    first = np.zeros((len(_pairs(classes)), classes), np.float32)
    second = first.copy()
    for p, (i, j) in enumerate(_pairs(classes)):
        first[p, i] = second[p, j] = 1
    positive = ops.greater(compared, 0.0)
    wins = ops.cast(positive, DType.float32) @ _row(x, first)
    return wins + ops.cast(ops.logical_not(positive), DType.float32) @ _row(x, second)


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _pair_weights(weights: Array, per_class: list[int]) -> Array:
    """The coefficients of each support vector for each pair of classes: a matrix (supports, pairs).

    Row k of `weights` has those of a vector against the k-th of the other classes.
    """
    begins = np.cumsum([0, *per_class])
    result = np.zeros((weights.shape[1], len(_pairs(len(per_class)))), np.float32)
    for p, (i, j) in enumerate(_pairs(len(per_class))):
        mine, others = slice(begins[i], begins[i + 1]), slice(begins[j], begins[j + 1])
        result[mine, p] = weights[j - 1, mine]
        result[others, p] = weights[i, others]
    return result
