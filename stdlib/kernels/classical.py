"""Evaluates classical models: ensembles of decision trees, tables of values by key, likelihoods of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ...dsl import (
    AnyTensor,
    Element,
    Floating,
    Index,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    Storable,
    abs,
    ceildiv,
    float64,
    foreach,
    int32,
    isnan,
    max,
    min,
    parallel_for,
    register,
    select,
    stack,
)
from ..algorithms.references import Array

F = TypeVar("F", bound=Floating)
S = TypeVar("S", bound=Storable)
E = TypeVar("E", bound=Element)
TASK = 4096  # nodes that are worth a task of their own
STEPS = 16  # nodes that a tree is taken to pass on the way to a leaf
LEQ, LT, GTE, GT, EQ, NEQ, MIXED = range(7)
SUM, AVERAGE, MIN, MAX = range(4)


@register("tree_ensemble")
def tree_ensemble(
    out: OutputTensor[F, "n outputs"],
    x: InputTensor[F, "n f"],
    nodes: InputTensor[int32, "k 4"],
    splits: InputTensor[F, "k"],
    roots: InputTensor[int32, "t"],
    starts: InputTensor[int32, "l"],
    targets: InputTensor[int32, "m"],
    weights: InputTensor[F, "m"],
    *,
    outputs: int,
    mode: int,
    missing: bool,
    aggregate: int,
) -> None:
    """For each row of x what the leaves that it reaches in all trees add to each output.

    Row k of `nodes` has the feature that node k compares with its split, the nodes that follow where the comparison
    holds and where it does not, and its mode, to which 8 is added where NaN follows the first way. A node below 0 is
    leaf -1 - node. Leaf l has the weights from starts[l] to starts[l + 1], each for one of the targets.

    `mode` is that of all nodes, or MIXED; `missing` says whether any node has 8 added; `aggregate` is SUM, AVERAGE
    (over the trees), MIN or MAX. An output that no leaf has a weight for is 0.
    """
    begin = 0.0 if aggregate <= AVERAGE else float("inf") if aggregate == MIN else -float("inf")
    trees = roots.dim(0)

    def of_all_trees(r: Index, start: Floating, add: Callable[[Floating, Index], Floating]):
        total = start
        for t in range(trees):
            leaf = -1 - _reached(x, nodes, splits, roots[t], r, mode, missing)
            for w in range(starts[leaf], starts[leaf + 1]):
                total = add(total, w)
        return total

    def finished(total: Floating):
        if aggregate == AVERAGE:
            return total / trees.cast(F)
        return total if aggregate == SUM else select(total == F(begin), F(0), total)

    def row(r: Index):
        def add(total: Floating, w: Index):
            out[r, targets[w]] = _joined(out[r, targets[w]], weights[w], aggregate)
            return total

        if outputs == 1:
            out[r, 0] = finished(of_all_trees(r, F(begin), lambda total, w: _joined(total, weights[w], aggregate)))
        else:
            for c in range(outputs):
                out[r, c] = F(begin)
            of_all_trees(r, F(begin), add)
            for c in range(outputs):
                out[r, c] = finished(out[r, c])

    parallel_for(x.dim(0), row, grain=ceildiv(TASK, trees * STEPS + 1))


def _joined(total: Floating, weight: Floating, aggregate: int):
    if aggregate == MIN:
        return min(total, weight)
    return max(total, weight) if aggregate == MAX else total + weight


def _reached(x: AnyTensor, nodes: AnyTensor, splits: AnyTensor, root: Integral, r: Index, mode: int, missing: bool):
    """The leaf that a row of x reaches from a root, as a number below 0."""
    node = root
    while node >= 0:
        value = x[r, nodes[node, 0]]
        holds = _compared(value, splits[node], nodes[node, 3] % 8 if mode == MIXED else Int(mode), mode)
        if missing:
            holds = holds or (isnan(value) and nodes[node, 3] >= 8)
        node = nodes[node, 1] if holds else nodes[node, 2]
    return node


def _compared(value: Element, split: Element, kind: Integral, mode: int):
    """A comparison of one mode, or of that which `kind` says."""
    if mode == LEQ:
        return value <= split
    if mode == LT:
        return value < split
    if mode == GTE:
        return value >= split
    if mode == GT:
        return value > split
    if mode == EQ:
        return value == split
    if mode == NEQ:
        return value != split
    below = (kind == LEQ and value <= split) or (kind == LT and value < split)
    above = (kind == GTE and value >= split) or (kind == GT and value > split)
    return below or above or (kind == EQ and value == split) or (kind == NEQ and value != split)


@tree_ensemble.reference
def _(
    x: Array,
    nodes: Array,
    splits: Array,
    roots: Array,
    starts: Array,
    targets: Array,
    weights: Array,
    *,
    outputs: int,
    mode: int,
    missing: bool,
    aggregate: int,
) -> Array:
    compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    join = (np.add, np.add, np.minimum, np.maximum)[aggregate]
    begin = (0.0, 0.0, np.inf, -np.inf)[aggregate]
    result = np.full((len(x), outputs), begin)
    for r, values in enumerate(x):
        for node in roots:
            while node >= 0:
                feature, yes, no, kind = nodes[node]
                value = values[feature]
                holds = compare[kind % 8 if mode == MIXED else mode](value, splits[node])
                node = yes if holds or (missing and kind >= 8 and np.isnan(value)) else no
            for w in range(starts[-1 - node], starts[-node]):
                result[r, targets[w]] = join(result[r, targets[w]], weights[w])
    result[np.isinf(result) & (result == begin)] = 0
    return (result / len(roots) if aggregate == AVERAGE else result).astype(x.dtype)


# *** tables ***


@register("lookup", writes_once=True)
def lookup(
    out: OutputTensor[S, "*s"],
    x: InputTensor[E, "*s"],
    keys: InputTensor[E, "n"],
    values: InputTensor[S, "(n + 2)"],
) -> None:
    """For each element of x the value at the place of the key that it equals, in keys in order.

    Behind the values of the keys come that of elements without a key, and that of NaN.
    """
    n = keys.dim(0)

    def element(i: tuple[Index, ...]):
        given = x[i]
        low = Int(0)
        high = n
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < given:
                low = middle + 1
            else:
                high = middle
        place = n
        if low < n and keys[low] == given:
            place = low
        if given.dtype.is_float() and isnan(given):
            place = n + 1
        return values[place]

    foreach(out, element)


@lookup.reference
def _(x: Array, keys: Array, values: Array) -> Array:
    places = np.searchsorted(keys, x)
    found = (
        (places < len(keys)) & (keys[np.minimum(places, len(keys) - 1)] == x) if len(keys) else np.zeros(x.shape, bool)
    )
    return np.where(
        np.isnan(x) if x.dtype.kind == "f" else False, values[-1], values[np.where(found, places, len(keys))]
    )


# *** likelihoods of classes ***

LEAST = 1e-7  # a likelihood is this far from 0 and from 1
ROUNDS = 100


@register("pairwise_coupling", writes_once=True)
def pairwise_coupling(out: OutputTensor[F, "n classes"], pairs: InputTensor[F, "n p"], *, classes: int) -> None:
    """Likelihoods of classes, from those that class i is the right one of i and j, for all i below j in order.

    The second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling"
    (2004): it minimises the sum over pairs of (r_ji p_i - r_ij p_j)^2, in rounds over the classes, until the conditions
    of the minimum hold to 0.005 / classes.
    """

    def row(n: Index):
        p = stack[float64](classes)
        gradient = stack[float64](classes)
        for i in range(classes):
            p[i] = float64(1) / classes
        done = False
        rounds = 0
        while not done and rounds < max(ROUNDS, classes):
            total = float64(0)
            for i in range(classes):
                gradient[i] = float64(0)
                for j in range(classes):
                    gradient[i] += _product(pairs, n, i, j, classes) * p[j]
                total += p[i] * gradient[i]
            worst = float64(0)
            for i in range(classes):
                worst = max(worst, abs(gradient[i] - total))
            done = worst < 0.005 / classes
            if not done:
                for i in range(classes):
                    own = _product(pairs, n, i, i, classes)
                    step = (total - gradient[i]) / own
                    total = (total + step * (step * own + 2 * gradient[i])) / (1 + step) / (1 + step)
                    p[i] += step
                    for j in range(classes):
                        gradient[j] = (gradient[j] + step * _product(pairs, n, i, j, classes)) / (1 + step)
                        p[j] = p[j] / (1 + step)
            rounds += 1
        for i in range(classes):
            out[n, i] = p[i].cast(F)

    parallel_for(pairs.dim(0), row)


def _share(pairs: AnyTensor, n: Index, i: Index, j: Index, classes: int):
    """How likely class i is of i and j."""
    low, high = min(i, j), max(i, j)
    given = pairs[n, low * classes - low * (low + 1) // 2 + high - low - 1].cast(float64)
    bounded = min(max(given, float64(LEAST)), float64(1 - LEAST))
    return bounded if i < j else 1 - bounded


def _product(pairs: AnyTensor, n: Index, i: Index, j: Index, classes: int):
    """An element of the matrix whose quadratic form is minimised."""
    result = float64(0)
    if i == j:
        for k in range(classes):
            if k != i:
                other = _share(pairs, n, k, i, classes)
                result += other * other
    else:
        result = -_share(pairs, n, j, i, classes) * _share(pairs, n, i, j, classes)
    return result


@pairwise_coupling.reference
def _(pairs: Array, *, classes: int) -> Array:
    result = np.empty((len(pairs), classes))
    for n, row in enumerate(np.clip(pairs.astype(np.float64), LEAST, 1 - LEAST)):
        share = np.zeros((classes, classes))
        share[np.triu_indices(classes, 1)] = row
        share.T[np.triu_indices(classes, 1)] = 1 - row
        q = -share.T * share
        np.fill_diagonal(q, (share**2).sum(0))
        p = np.full(classes, 1 / classes)
        for _ in range(max(ROUNDS, classes)):
            gradient = q @ p
            total = p @ gradient
            if np.abs(gradient - total).max() < 0.005 / classes:
                break
            for i in range(classes):
                step = (total - gradient[i]) / q[i, i]
                total = (total + step * (step * q[i, i] + 2 * gradient[i])) / (1 + step) ** 2
                p[i] += step
                gradient = (gradient + step * q[i]) / (1 + step)
                p = p / (1 + step)
        result[n] = p
    return result.astype(pairs.dtype)
