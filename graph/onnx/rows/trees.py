"""Converts ensembles of decision trees, in the domain ai.onnx.ml, as scikit-learn, LightGBM and XGBoost export them.

The nodes of all trees become one table (`Forest`), which one kernel walks through for each row. Trees are checked at
import: a node that is its own successor would be walked for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ... import ops
from ...ops.operands import check_at_least
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim
from ..agreement import equal_size
from ..call import NodeCall
from ..known import Array, KnownTensor
from ..scores import TRANSFORMS, chosen_label, labels_of, transformed, two_columns
from ..table import ML, onnx_op
from ..texts import Texts
from .features import as_float, as_rows

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
EQUAL, MEMBER, MIXED = 4, 6, 6
AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")  # in the order of the kernel's numbers
TRACKS = 8  # added to the mode of a node where a missing value follows the first way


@dataclass
class Forest:
    """Trees as the kernel `tree_ensemble` takes them.

    Attributes:
        nodes: of each node feature, the node where the comparison holds, the node where it does not, and its mode; a
            node below 0 is leaf -1 - node.
        splits: what a node compares its feature with.
        roots: the first node of each tree.
        leaves: of each leaf the targets and the weights for them.
        dtype: of splits and weights.
    """

    dtype: DType
    nodes: list[list[int]] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    leaves: list[tuple[list[int], list[float]]] = field(default_factory=list)

    def add_leaf(self, targets: Sequence[int], weights: Sequence[float]) -> int:
        """Adds a leaf; its number as the successor of a node."""
        self.leaves.append((list(targets), list(weights)))
        return -len(self.leaves)

    def add_node(self, feature: int, split: float, mode: int) -> int:
        """Adds a node without successors."""
        self.nodes.append([feature, 0, 0, mode])
        self.splits.append(split)
        return len(self.nodes) - 1

    def check(self, call: NodeCall, outputs: int) -> None:
        """Refuses circles of nodes, and what lies out of range."""
        self._check_ends(call)
        if any(target < 0 or target >= outputs for targets, _ in self.leaves for target in targets):
            call.fail(f"a leaf has a weight for an output that is not among the {outputs}")
        if any(node[0] < 0 for node in self.nodes):
            call.fail("a node has a feature below 0")

    def _check_ends(self, call: NodeCall) -> None:
        """Refuses nodes that lead back to themselves."""
        waiting = np.zeros(len(self.nodes), np.int64)  # for each node how many lead to it and were not visited yet
        for node in self.nodes:
            for following in node[1:3]:
                if following >= 0:
                    waiting[following] += 1
        ready = [k for k, count in enumerate(waiting) if not count]
        visited = 0
        while ready:
            visited += 1
            for following in self.nodes[ready.pop()][1:3]:
                if following >= 0:
                    waiting[following] -= 1
                    if not waiting[following]:
                        ready.append(following)
        if visited < len(self.nodes):
            call.fail("its trees have a circle of nodes, which no row would leave")

    def evaluated(self, call: NodeCall, x: TensorValue, outputs: int, aggregate: str) -> TensorValue:
        """For each row what the leaves that it reaches say of each output."""
        if aggregate not in AGGREGATES:
            call.fail(f"attribute 'aggregate_function' is {aggregate!r}, and {', '.join(AGGREGATES)} are known")
        if not self.roots:
            call.fail("has no trees")
        self.check(call, outputs)
        rows = as_rows(call, x)
        rows = rows if rows.dtype is self.dtype else ops.cast(rows, self.dtype)
        most = max((node[0] for node in self.nodes), default=-1)
        text = f"its nodes compare feature {most}, and a row has {rows.shape[1]}"
        check_at_least(call.node.op_type, "X", rows.shape[1], most + 1, text)
        modes = {node[3] % TRACKS for node in self.nodes}
        parameters = {
            "outputs": outputs,
            "mode": modes.pop() if len(modes) == 1 else MIXED,
            "missing": any(node[3] >= TRACKS for node in self.nodes),
            "aggregate": AGGREGATES.index(aggregate),
        }
        return builtin("classical", "tree_ensemble", [rows, *self._tables(rows)], parameters)[0]

    def _tables(self, x: TensorValue) -> list[TensorValue]:
        starts = np.cumsum([0, *(len(targets) for targets, _ in self.leaves)])
        listed: tuple[tuple[Any, DType, tuple[int, ...]], ...] = (
            (self.nodes, DType.int32, (-1, 4)),
            (self.splits, self.dtype, (-1,)),
            (self.roots, DType.int32, (-1,)),
            (starts, DType.int32, (-1,)),
            ([target for targets, _ in self.leaves for target in targets], DType.int32, (-1,)),
            ([weight for _, weights in self.leaves for weight in weights], self.dtype, (-1,)),
        )
        return [
            ops.constant(np.asarray(numbers, dtype.to_numpy()).reshape(shape), dtype, x.device)
            for numbers, dtype, shape in listed
        ]


def _numbers(given: Any, tensor: Any) -> tuple[Array, DType]:
    """An attribute of floats, or the tensor that stands for it, which may have 64 bits."""
    if isinstance(tensor, KnownTensor) and tensor.array.size:
        return tensor.array.reshape(-1), tensor.dtype
    return np.asarray(given if given is not None else [], np.float32), DType.float32


def _forest(call: NodeCall, kind: str, attributes: dict[str, Any]) -> Forest:
    """The trees of an op type whose nodes and leaves have numbers within their trees.

    Args:
        call: the node.
        kind: "class" or "target": how the names of the attributes of leaves begin.
        attributes: those of the node.
    """
    splits, dtype = _numbers(attributes.get("nodes_values"), attributes.get("nodes_values_as_tensor"))
    weights, weights_dtype = _numbers(attributes.get(f"{kind}_weights"), attributes.get(f"{kind}_weights_as_tensor"))
    forest = Forest(DType.float64 if DType.float64 in (dtype, weights_dtype) else DType.float32)
    names = (
        "nodes_treeids",
        "nodes_nodeids",
        "nodes_featureids",
        "nodes_modes",
        "nodes_truenodeids",
        "nodes_falsenodeids",
    )
    columns = [list(attributes.get(name) or []) for name in names]
    sizes = {name: len(column) for name, column in zip(names, columns, strict=True)} | {"nodes_values": len(splits)}
    leaf_names = (f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids")
    of_leaves = [list(attributes.get(name) or []) for name in leaf_names]
    for listed in (
        sizes,
        {n: len(c) for n, c in zip(leaf_names, of_leaves, strict=True)} | {f"{kind}_weights": len(weights)},
    ):
        if len(set(listed.values())) > 1:
            shown = ", ".join(f"{name} {size}" for name, size in listed.items())
            call.fail(f"its attributes have different lengths: {shown}")
    votes: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
    for tree, node, target, weight in zip(*of_leaves, weights.tolist(), strict=True):
        targets, values = votes.setdefault((tree, node), ([], []))
        targets.append(target)
        values.append(weight)
    tracks = attributes.get("nodes_missing_value_tracks_true") or [0] * len(splits)
    if len(tracks) != len(splits):
        call.fail(f"attribute 'nodes_missing_value_tracks_true' has {len(tracks)} numbers for {len(splits)} nodes")
    numbered: dict[tuple[int, int], int] = {}
    for tree, node, feature, mode, split, missing in zip(*columns[:4], splits.tolist(), tracks, strict=True):
        if (tree, node) in numbered:
            call.fail(f"tree {tree} has two nodes of the number {node}")
        if mode == "LEAF":
            numbered[tree, node] = forest.add_leaf(*votes.get((tree, node), ([], [])))
        elif mode in MODES[:MEMBER]:
            numbered[tree, node] = forest.add_node(feature, split, MODES.index(mode) + TRACKS * bool(missing))
        else:
            call.fail(
                f"node {node} of tree {tree} has the mode {mode!r}, and {', '.join(MODES[:MEMBER])} and LEAF are known"
            )
    _connect(call, forest, numbered, columns)
    return forest


def _connect(call: NodeCall, forest: Forest, numbered: dict[tuple[int, int], int], columns: list[list[Any]]) -> None:
    """Gives nodes their successors, and finds the roots: the nodes that no other leads to."""
    inner: set[int] = set()
    for tree, node, mode, yes, no in zip(columns[0], columns[1], columns[3], columns[4], columns[5], strict=True):
        if mode == "LEAF":
            continue
        for way, following in ((1, yes), (2, no)):
            if (tree, following) not in numbered:
                call.fail(f"node {node} of tree {tree} leads to node {following}, which the tree does not have")
            forest.nodes[numbered[tree, node]][way] = numbered[tree, following]
            inner.add(numbered[tree, following])
    roots = {tree: number for (tree, _), number in reversed(numbered.items()) if number not in inner}
    missing = {tree for tree, _ in numbered} - set(roots)
    if missing:
        call.fail(f"tree {min(missing)} has no first node: each is led to by another")
    forest.roots = [roots[tree] for tree in dict.fromkeys(tree for tree, _ in numbered)]


def _with_base(call: NodeCall, scores: TensorValue, attributes: dict[str, Any]) -> TensorValue:
    """Scores with what the attribute of base values adds to each."""
    base, _ = _numbers(attributes.get("base_values"), attributes.get("base_values_as_tensor"))
    if not base.size:
        return scores
    outputs = int(str(scores.shape[1]))
    if base.size not in (1, outputs):
        call.fail(f"has {base.size} base values for {outputs} outputs")
    return scores + ops.constant(base.astype(scores.dtype.to_numpy()), scores.dtype, scores.device)


@onnx_op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: NodeCall, x: TensorValue, **attributes: Any) -> TensorValue:
    """The weights of the leaves that each row reaches, joined over the trees, for each target."""
    targets = int(attributes.get("n_targets", 1))
    aggregate = str(attributes.get("aggregate_function", "SUM"))
    scores = _forest(call, "target", attributes).evaluated(call, x, targets, aggregate)
    scores = as_float(_with_base(call, scores, attributes))
    return transformed(call, scores, str(attributes.get("post_transform", "NONE")))


@onnx_op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    call: NodeCall, x: TensorValue, **attributes: Any
) -> tuple[TensorValue | Texts, TensorValue]:
    """The label with the largest sum of weights of the leaves that a row reaches, and the sums.

    Where leaves have weights for the first of two classes alone, their sum is the score of the second, which is chosen
    above 0.5 if no weight is negative, else above 0; the first column of the result is 1 - score or -score.
    """
    labels = labels_of(call, attributes.get("classlabels_int64s"), attributes.get("classlabels_strings"))
    transform = str(attributes.get("post_transform", "NONE"))
    forest = _forest(call, "class", attributes)
    voted = {target for targets, _ in forest.leaves for target in targets}
    if len(labels) == 2 and len(voted) < 2:
        weights = [weight for _, weights in forest.leaves for weight in weights]
        positive = min(weights, default=0.0) >= 0
        only = 1 if voted == {1} else 0
        scores = forest.evaluated(call, x, 2, "SUM")[:, only : only + 1]
        scores = scores if only else as_float(_with_base(call, scores, attributes))
        place = ops.cast(ops.greater(ops.squeeze(scores, 1), 0.5 if positive else 0.0), DType.int64)
        if only:
            both = ops.concat([ops.zeros_like(scores), scores], 1)
            return chosen_label(call, place, labels), transformed(call, as_float(both), transform)
        return chosen_label(call, place, labels), two_columns(call, scores, transform, complement=positive)
    scores = as_float(_with_base(call, forest.evaluated(call, x, len(labels), "SUM"), attributes))
    return chosen_label(call, ops.argmax(scores, 1, False), labels), transformed(call, scores, transform)


@onnx_op("TreeEnsemble", domain=ML)
def tree_ensemble(call: NodeCall, x: TensorValue, **attributes: Any) -> TensorValue:
    """The weights of the leaves that each row reaches, joined over the trees, for each target."""
    forest = Forest(DType.float64 if x.dtype is DType.float64 else DType.float32)
    _add_nodes(call, forest, attributes)
    aggregate = int(attributes.get("aggregate_function", 1))
    transform = int(attributes.get("post_transform", 0))
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        call.fail("has an 'aggregate_function' that is not among 0 to 3, or a 'post_transform' not among 0 to 4")
    targets = int(attributes.get("n_targets") or 1)
    scores = forest.evaluated(call, x, targets, ("AVERAGE", "SUM", "MIN", "MAX")[aggregate])
    return ops.cast(transformed(call, scores, TRANSFORMS[transform]), x.dtype)


def _add_nodes(call: NodeCall, forest: Forest, attributes: dict[str, Any]) -> None:
    """Adds the nodes and leaves of a TreeEnsemble, whose nodes have numbers across all trees.

    A node that tests whether a feature is a member of a set becomes one node for each member, each the successor of the
    one before it where that does not hold.
    """

    def column(name: str) -> list[Any]:
        value = attributes.get(name)
        return value.array.reshape(-1).tolist() if isinstance(value, KnownTensor) else list(value or [])

    ways_of = [f"nodes_{way}{what}" for way in ("true", "false") for what in ("leafs", "nodeids")]
    names = ["nodes_featureids", "nodes_modes", "nodes_splits", *ways_of]
    features, modes, splits, *ways = [column(name) for name in names]
    tracks = column("nodes_missing_value_tracks_true") or [0] * len(modes)
    for name, listed in zip(
        (*names, "nodes_missing_value_tracks_true"), (features, modes, splits, *ways, tracks), strict=True
    ):
        if len(listed) != len(modes):
            call.fail(f"attribute {name!r} has {len(listed)} numbers for {len(modes)} nodes", argument=name)
    for target, weight in zip(column("leaf_targetids"), column("leaf_weights"), strict=True):
        forest.add_leaf([int(target)], [weight])
    sets = iter(_member_sets(column("membership_values")))
    added: list[list[int]] = []
    for feature, mode, split, missing in zip(features, modes, splits, tracks, strict=True):
        if not 0 <= mode < len(MODES):
            call.fail(f"node {len(added)} has the mode {mode}, and 0 to {len(MODES) - 1} are known")
        members = next(sets, []) if mode == MEMBER else [split]
        if not members:
            call.fail(f"node {len(added)} tests for members of a set, and 'membership_values' has none for it")
        kind = (EQUAL if mode == MEMBER else int(mode)) + TRACKS * bool(missing)
        added.append([forest.add_node(int(feature), float(member), kind) for member in members])

    def successor(k: int, way: int) -> int:
        is_leaf, number = ways[2 * way][k], ways[2 * way + 1][k]
        if not 0 <= number < (len(forest.leaves) if is_leaf else len(added)):
            call.fail(f"node {k} leads to {'leaf' if is_leaf else 'node'} {number}, which there is not")
        return -1 - int(number) if is_leaf else added[number][0]

    for k, numbers in enumerate(added):
        for place, number in enumerate(numbers):
            forest.nodes[number][1] = successor(k, 0)
            forest.nodes[number][2] = numbers[place + 1] if place + 1 < len(numbers) else successor(k, 1)
    roots = column("tree_roots")
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
