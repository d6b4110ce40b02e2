"""Holds the decision trees of an ensemble as the kernel that evaluates them takes them, and checks them.

See also `rows.trees` (the op types).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from .. import ops
from ..ops.operands import check_at_least
from ..ops.stage import builtin
from ..staging.value import TensorValue
from .call import NodeCall
from .known import Array, KnownTensor

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
        rows = ops.cast(x, self.dtype)
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
        targets = [target for targets, _ in self.leaves for target in targets]
        weights = [weight for _, weights in self.leaves for weight in weights]
        integers = [np.asarray(each, np.int32) for each in (self.nodes, self.roots, starts, targets)]
        nodes, roots, begins, of = [ops.constant(each, DType.int32, x.device) for each in integers]
        splits, values = (
            ops.constant(np.asarray(each, self.dtype.to_numpy()), self.dtype, x.device)
            for each in (self.splits, weights)
        )
        return [ops.reshape(nodes, [-1, 4]), splits, roots, begins, of, values]


class Attributes:
    """The attributes of a node by name, as lists of one type."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def _elements(self, name: str) -> Sequence[object]:
        value = self.values.get(name)
        if isinstance(value, KnownTensor):
            return [each.item() for each in value.array.reshape(-1)]
        return value if isinstance(value, list) else []

    def ints(self, name: str) -> list[int]:
        """Integers; none where there is no such attribute."""
        return [each for each in self._elements(name) if isinstance(each, int)]

    def texts(self, name: str) -> list[str]:
        """Texts; none where there is no such attribute."""
        return [str(each) for each in self._elements(name)]

    def floats(self, name: str) -> tuple[Array, DType]:
        """Floats and their dtype; a tensor may stand for them, which may have 64 bits."""
        for value in (self.values.get(f"{name}_as_tensor"), self.values.get(name)):
            if isinstance(value, KnownTensor) and value.array.size:
                return value.array.reshape(-1), value.dtype
            if isinstance(value, list) and value:
                return np.asarray(value, np.float32), DType.float32
        return np.asarray([], np.float32), DType.float32

    def number(self, name: str, default: int) -> int:
        """One integer."""
        value = self.values.get(name)
        return value if isinstance(value, int) else default

    def text(self, name: str, default: str) -> str:
        """One text."""
        return str(self.values.get(name, default))
