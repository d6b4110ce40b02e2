"""Names the code of a graph in the cache, and writes what is kept next to it.

See also `dsl.environment.cache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dsl.contract.checks import Checks
from ...dsl.environment.cache import content_key
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.signature.parameters import identity
from ..ir import Carried, ConstantTensor, Control, External, GraphIR
from ..passes.fusion import Partition, make_group


def graph_key(ir: GraphIR, targets: Sequence[str], fuse: bool, checks: Checks) -> str:
    """The key of a graph's code: made of all that the code depends on, the keys of its targets among it."""
    nodes: list[Any] = []
    for node in ir.nodes:
        if isinstance(node, ConstantTensor):
            value = node.array.tobytes().hex() if node.array.size == 1 else ""
            nodes.append(["constant", str(node.type), value])
        elif isinstance(node, External):  # whatever its name and its elements are: one code serves all
            nodes.append(["weight", str(node.type)])
        elif isinstance(node, Control):
            bodies = [[body.first, body.end, list(body.outputs)] for body in node.bodies]
            nodes.append([node.name, list(node.operands), bodies, [str(t) for t in node.out_types]])
        elif isinstance(node, Carried):
            nodes.append(["carried", [str(t) for t in node.out_types]])
        else:
            parameters = [[name, *identity(value)] for name, value in node.parameters]
            types = [str(t) for t in node.out_types]
            nodes.append([node.kernel.digest, node.kernel.shipped, parameters, list(node.operands), types])
    inputs = [str(t) for t in ir.inputs]
    layouts = [pattern and list(pattern) for pattern in ir.patterns]
    steps = [[step.value, list(step.names)] for step in ir.steps]
    graph: list[Any] = [inputs, nodes, list(ir.outputs), layouts, steps, ir.traced]
    return content_key("graph", *graph, list(targets), fuse, str(checks), fingerprint())


def partition_to_json(parts: Partition) -> Any:
    """A partition as plain lists."""
    groups = [[list(g.nodes), g.root, g.epilogue] for g in parts.groups]
    return [groups, list(parts.aliases), list(parts.controls), sorted(parts.apart)]


def partition_from_json(data: Any, ir: GraphIR) -> Partition:
    """The partition of a graph that `partition_to_json` wrote."""
    groups, aliases, controls, apart = data
    made = tuple(make_group(ir, nodes, root, epilogue) for nodes, root, epilogue in groups)
    return Partition(made, tuple(aliases), tuple(controls), frozenset(apart))
