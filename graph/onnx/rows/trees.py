"""Converts ensembles of decision trees, in the domain ai.onnx.ml, as scikit-learn, LightGBM and XGBoost export them.

The nodes of all trees become one table (`Forest`), which one kernel walks through for each row.

See also `forest` (the table, and what is checked).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..agreement import equal_size
from ..call import NodeCall
from ..forest import AGGREGATES, EQUAL, MEMBER, MODES, TRACKS, Attributes, Forest
from ..known import Array
from ..scores import TRANSFORMS, chosen_label, labels_of, transformed, two_columns
from ..table import ML, onnx_op
from ..texts import Texts
from .features import as_float, as_rows


def _forest(call: NodeCall, kind: str, attributes: Attributes) -> Forest:
    """The trees of an op type whose nodes and leaves have numbers within their trees.

    Args:
        call: the node.
        kind: "class" or "target": how the names of the attributes of leaves begin.
        attributes: those of the node.
    """
    splits, dtype = attributes.floats("nodes_values")
    weights, weights_dtype = attributes.floats(f"{kind}_weights")
    forest = Forest(DType.float64 if DType.float64 in (dtype, weights_dtype) else DType.float32)
    names = [f"nodes_{each}" for each in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")]
    trees, nodes, features, yes, no = [attributes.ints(name) for name in names]
    modes = attributes.texts("nodes_modes")
    tracks = attributes.ints("nodes_missing_value_tracks_true") or [0] * len(modes)
    columns = (trees, nodes, features, yes, no, modes, splits, tracks)
    _check_lengths(call, (*names, "nodes_modes", "nodes_values", "nodes_missing_value_tracks_true"), columns)
    of_leaves = [f"{kind}_{each}" for each in ("treeids", "nodeids", "ids")]
    places = [attributes.ints(name) for name in of_leaves]
    _check_lengths(call, (*of_leaves, f"{kind}_weights"), (*places, weights))
    votes: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
    for tree, node, target, weight in zip(*places, weights.tolist(), strict=True):
        targets, values = votes.setdefault((tree, node), ([], []))
        targets.append(target)
        values.append(weight)
    numbered: dict[tuple[int, int], int] = {}
    for tree, node, feature, mode, split, missing in zip(
        trees, nodes, features, modes, splits.tolist(), tracks, strict=True
    ):
        if (tree, node) in numbered:
            call.fail(f"tree {tree} has two nodes of the number {node}")
        if mode == "LEAF":
            numbered[tree, node] = forest.add_leaf(*votes.get((tree, node), ([], [])))
        elif mode in MODES[:MEMBER]:
            numbered[tree, node] = forest.add_node(feature, split, MODES.index(mode) + TRACKS * bool(missing))
        else:
            listed = ", ".join(MODES[:MEMBER])
            call.fail(f"node {node} of tree {tree} has the mode {mode!r}, and {listed} and LEAF are known")
    _connect(call, forest, numbered, list(zip(trees, nodes, yes, no, strict=True)))
    return forest


def _check_lengths(call: NodeCall, names: Sequence[str], columns: Sequence[Sequence[object] | Array]) -> None:
    sizes = [len(column) for column in columns]
    if len(set(sizes)) > 1:
        shown = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
        call.fail(f"its attributes have different lengths: {shown}")


def _connect(
    call: NodeCall,
    forest: Forest,
    numbered: dict[tuple[int, int], int],
    successors: Sequence[tuple[int, int, int, int]],
) -> None:
    """Gives nodes their successors, and finds the roots: the nodes that no other leads to."""
    inner: set[int] = set()
    for tree, node, *following in successors:
        number = numbered[tree, node]
        if number < 0:
            continue
        for way, successor in enumerate(following, 1):
            if (tree, successor) not in numbered:
                call.fail(f"node {node} of tree {tree} leads to node {successor}, which the tree does not have")
            forest.nodes[number][way] = numbered[tree, successor]
            inner.add(numbered[tree, successor])
    roots = {tree: number for (tree, _), number in reversed(numbered.items()) if number not in inner}
    trees = list(dict.fromkeys(tree for tree, _ in numbered))
    missing = set(trees) - set(roots)
    if missing:
        call.fail(f"tree {min(missing)} has no first node: each is led to by another")
    forest.roots = [roots[tree] for tree in trees]


def _with_base(call: NodeCall, scores: TensorValue, attributes: Attributes) -> TensorValue:
    """Scores with what the attribute of base values adds to each."""
    base, _ = attributes.floats("base_values")
    if not base.size:
        return scores
    outputs = int(str(scores.shape[1]))
    if base.size not in (1, outputs):
        call.fail(f"has {base.size} base values for {outputs} outputs")
    return scores + ops.constant(base.astype(scores.dtype.to_numpy()), scores.dtype, scores.device)


@onnx_op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: NodeCall, x: TensorValue, **given: object) -> TensorValue:
    """The weights of the leaves that each row reaches, joined over the trees, for each target."""
    attributes = Attributes(given)
    aggregate = attributes.text("aggregate_function", "SUM")
    scores = _forest(call, "target", attributes).evaluated(
        call, as_rows(call, x), attributes.number("n_targets", 1), aggregate
    )
    scores = as_float(_with_base(call, scores, attributes))
    return transformed(call, scores, attributes.text("post_transform", "NONE"))


@onnx_op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    call: NodeCall, x: TensorValue, **given: object
) -> tuple[TensorValue | Texts, TensorValue]:
    """The label with the largest sum of weights of the leaves that a row reaches, and the sums.

    Where leaves have weights for the first of two classes alone, their sum is the score of the second, which is chosen
    above 0.5 if no weight is negative, else above 0; the first column of the result is 1 - score or -score.
    """
    attributes = Attributes(given)
    labels = labels_of(call, attributes.ints("classlabels_int64s"), attributes.texts("classlabels_strings"))
    transform = attributes.text("post_transform", "NONE")
    forest = _forest(call, "class", attributes)
    voted = {target for targets, _ in forest.leaves for target in targets}
    if len(labels) == 2 and len(voted) < 2:
        weights = [weight for _, weights in forest.leaves for weight in weights]
        positive = min(weights, default=0.0) >= 0
        only = 1 if voted == {1} else 0
        scores = forest.evaluated(call, as_rows(call, x), 2, "SUM")[:, only : only + 1]
        scores = scores if only else as_float(_with_base(call, scores, attributes))
        place = ops.cast(ops.greater(ops.squeeze(scores, 1), 0.5 if positive else 0.0), DType.int64)
        if only:
            both = ops.concat([ops.zeros_like(scores), scores], 1)
            return chosen_label(call, place, labels), transformed(call, as_float(both), transform)
        return chosen_label(call, place, labels), two_columns(call, scores, transform, complement=positive)
    scores = as_float(_with_base(call, forest.evaluated(call, as_rows(call, x), len(labels), "SUM"), attributes))
    return chosen_label(call, ops.argmax(scores, 1, False), labels), transformed(call, scores, transform)


@onnx_op("TreeEnsemble", domain=ML)
def tree_ensemble(call: NodeCall, x: TensorValue, **given: object) -> TensorValue:
    """The weights of the leaves that each row reaches, joined over the trees, for each target."""
    attributes = Attributes(given)
    forest = Forest(DType.float64 if x.dtype is DType.float64 else DType.float32)
    _add_nodes(call, forest, attributes)
    aggregate, transform = attributes.number("aggregate_function", 1), attributes.number("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        call.fail("has an 'aggregate_function' that is not among 0 to 3, or a 'post_transform' not among 0 to 4")
    scores = forest.evaluated(
        call, as_rows(call, x), attributes.number("n_targets", 1), ("AVERAGE", "SUM", "MIN", "MAX")[aggregate]
    )
    return ops.cast(transformed(call, scores, TRANSFORMS[transform]), x.dtype)


def _add_nodes(call: NodeCall, forest: Forest, attributes: Attributes) -> None:
    """Adds the nodes and leaves of a TreeEnsemble, whose nodes have numbers across all trees.

    A node that tests whether a feature is a member of a set becomes one node for each member, each the successor of the
    one before it where that does not hold.
    """
    ways = [[attributes.ints(f"nodes_{way}{what}") for what in ("leafs", "nodeids")] for way in ("true", "false")]
    features, modes = attributes.ints("nodes_featureids"), attributes.ints("nodes_modes")
    splits, _ = attributes.floats("nodes_splits")
    tracks = attributes.ints("nodes_missing_value_tracks_true") or [0] * len(modes)
    names = ["featureids", "modes", "splits", "missing_value_tracks_true", "trueleafs", "truenodeids"]
    columns: list[Sequence[object] | Array] = [features, modes, splits, tracks, *ways[0], *ways[1]]
    _check_lengths(call, [f"nodes_{each}" for each in (*names, "falseleafs", "falsenodeids")], columns)
    targets, (weights, _) = attributes.ints("leaf_targetids"), attributes.floats("leaf_weights")
    _check_lengths(call, ("leaf_targetids", "leaf_weights"), (targets, weights))
    for target, weight in zip(targets, weights.tolist(), strict=True):
        forest.add_leaf([target], [weight])
    sets = iter(_member_sets(attributes.floats("membership_values")[0].tolist()))
    added: list[list[int]] = []
    for feature, mode, split, missing in zip(features, modes, splits.tolist(), tracks, strict=True):
        if not 0 <= mode < len(MODES):
            call.fail(f"node {len(added)} has the mode {mode}, and 0 to {len(MODES) - 1} are known")
        members = next(sets, []) if mode == MEMBER else [split]
        if not members:
            call.fail(f"node {len(added)} tests for members of a set, and 'membership_values' has none for it")
        kind = (EQUAL if mode == MEMBER else mode) + TRACKS * bool(missing)
        added.append([forest.add_node(feature, member, kind) for member in members])

    def successor(k: int, way: int) -> int:
        is_leaf, number = ways[way][0][k], ways[way][1][k]
        if not 0 <= number < (len(forest.leaves) if is_leaf else len(added)):
            call.fail(f"node {k} leads to {'leaf' if is_leaf else 'node'} {number}, which there is not")
        return -1 - number if is_leaf else added[number][0]

    for k, numbers in enumerate(added):
        for place, number in enumerate(numbers):
            forest.nodes[number][1] = successor(k, 0)
            forest.nodes[number][2] = numbers[place + 1] if place + 1 < len(numbers) else successor(k, 1)
    roots = attributes.ints("tree_roots")
    if any(not 0 <= root < len(added) for root in roots):
        call.fail(f"attribute 'tree_roots' has a number that is not among those of the {len(added)} nodes")
    forest.roots = [added[root][0] for root in roots]


def _member_sets(values: list[float]) -> list[list[float]]:
    """Numbers cut at each NaN."""
    sets: list[list[float]] = [[]]
    for value in values:
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    return sets if sets[-1] else sets[:-1]


@onnx_op("ZipMap", domain=ML)
def zip_map(
    call: NodeCall,
    x: TensorValue,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> TensorValue:
    """The tensor itself, with a column for each label: a graph returns tensors, where ONNX makes maps of the rows."""
    labels = labels_of(call, classlabels_int64s, classlabels_strings)
    rows = as_rows(call, x)
    equal_size(call, rows.shape[1], Dim(len(labels)), "the number of columns and that of labels")
    return rows
