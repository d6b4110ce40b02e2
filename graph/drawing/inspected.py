"""Shows what graphs and built-in ops are compiled to, for targets whose devices need not be here.

    print(graph.code("asm", "sm_90a"))
    print(op_graph("softmax", ["float32[m, n]"], {"axis": 0}, "gfx942").code("asm", "gfx942"))

See also `compiler.explorer.stage` (kernels of libraries), `load` (code that runs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...dsl.diagnostics.errors import EinkornError, GraphError, did_you_mean, each_of
from ...dsl.environment.knobs import SASS
from ...dsl.environment.tracebacks import placed
from ...dsl.frontend.python.user_programs import running
from ...dsl.types.dtype import DType
from ..arguments import text_of
from ..driver.devices import DeviceRef
from ..loading.compile import graph_stage, has_grids
from ..ops.stage import OPS
from ..passes.devices import Segment, divide
from ..staging.graph import Graph
from ..types.tensor_type import TensorType

PREFIX: Final = "ops."  # of the names of built-in ops
_INPUT = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*")


@placed
def code(graph: Graph, stage: str = "typed", target: str = "host") -> str:
    """What `Graph.code` gives."""
    stage, target = text_of("stage", stage, "the name of a stage"), text_of("target", target, "the name of a target")
    ir = graph.ir
    if len(ir.devices) == 1:
        return graph_stage(ir, target, stage)
    segments = [step for step in divide(ir) if isinstance(step, Segment)]
    parts = []
    for number, segment in enumerate(segments):
        near = segment.device == DeviceRef.CPU() and has_grids(target)
        own = "asm" if near and stage == SASS else stage
        text = graph_stage(segment.ir, "host" if near else target, own)
        parts.append(f"// segment {number} of {len(segments)}, on {segment.device}\n{text}")
    return "\n".join(parts)


def op_graph(name: str, inputs: Sequence[str], parameters: Mapping[str, object], target: str = "host") -> Graph:
    """A graph of one built-in op.

    Args:
        name: as in `ops`, such as "softmax" or "random.normal".
        inputs: a text such as "float32[m, 64]" for each tensor that it takes.
        parameters: its other arguments, by name.
        target: what it is to be compiled for.

    Raises:
        GraphError: EK0647 there is no such op; EK0648 an input is no such text, or the op does not take these; or what
            the op itself raises.
    """
    if name not in OPS:
        raise GraphError(f"there is no op '{name}'", code="EK0647", got=name, hint=did_you_mean(name, OPS))
    device = DeviceRef.GPU() if has_grids(target) else DeviceRef.CPU()
    types = [_type(text, device) for text in inputs]
    example = OPS[name].example
    try:
        return Graph(name, lambda *values: OPS[name].function(*values, **parameters), types)
    except EinkornError as error:
        for each in each_of(error):
            each.place = None  # it was staged here, by no line of the user's
        raise
    except TypeError as error:  # a wrong number of arguments, or a name that it does not have
        given = ", ".join([*inputs, *(f"{key}={value!r}" for key, value in parameters.items())])
        raise GraphError(
            f"op '{name}' does not take ({given}): {error}",
            code="EK0648",
            op=name,
            got=given,
            notes=[f"an example of its use: {example}"] if example else [],
            hint="give --input 'float32[m, n]' for each tensor, --param NAME=VALUE for the rest; or FILE.py:GRAPH",
        ) from None


def _type(text: str, device: DeviceRef) -> TensorType:
    """The type of a text such as "float32[m, 64]"."""
    match = _INPUT.fullmatch(text)
    if match is None or match[1] not in DType.__members__:
        raise GraphError(
            f"'{text}' is not a type of a tensor",
            code="EK0648",
            argument="input",
            expected="a dtype and sizes, such as float32[m, 64]",
            got=text,
            hint=did_you_mean(match[1], DType.__members__) if match else None,
        )
    dims = [dim.strip() for dim in match[2].split(",") if dim.strip()]
    return TensorType(DType[match[1]], [int(dim) if dim.isdecimal() else dim for dim in dims], device)


def graph_of(source: str, inputs: Sequence[str], parameters: Mapping[str, object], target: str) -> Graph | None:
    """The graph that a text names: "ops.NAME" or "FILE.py:NAME"; None where it names none.

    Raises:
        GraphError: EK0647 there is no such op, or NAME is not a graph in the file.
        CompileError: EK0100 the file is not valid Python; EK0915 it raised an exception.
    """
    if source.startswith(PREFIX) and not Path(source).exists():
        return op_graph(source.removeprefix(PREFIX), inputs, parameters, target)
    file, colon, name = source.rpartition(":")
    if not colon or Path(file).suffix != ".py":
        return None
    import runpy  # few processes inspect files

    with running(file):
        names = runpy.run_path(file)
    entry = names.get(name)
    if not isinstance(entry, Graph):
        graphs = [each for each, value in names.items() if isinstance(value, Graph)]
        raise GraphError(
            f"'{name}' is not a graph of {file}" if name in names else f"there is no '{name}' in {file}",
            code="EK0647",
            expected=graphs,
            got=name,
            hint=did_you_mean(name, graphs) or (f"it has {', '.join(graphs)}" if graphs else None),
        )
    return entry
