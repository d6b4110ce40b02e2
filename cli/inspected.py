"""Gives what `einkorn inspect` prints of a kernel, a graph or a built-in op: a stage, or what was chosen and why."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dsl.diagnostics.errors import GraphError

if TYPE_CHECKING:
    from ..dsl.package.container import Instance
    from ..dsl.package.library import LoadedKernel
    from ..graph.staging.graph import Graph

KERNELS = ("op", "dtypes", "ranks", "counts")  # options that are of kernels alone


def inspected(
    source: str,
    target: str,
    stage: str,
    inputs: Sequence[str],
    *,
    why: bool = False,
    sizes: Mapping[str, int] | None = None,
    **wanted: Any,
) -> str:
    """The text of a stage; with `why` the choices, and of a GPU the roofline for sizes of axes.

    Raises:
        GraphError: EK0649, options that mean nothing for such a source.
        EinkornError: a mistake in what is compiled, or an unknown target.
    """
    if not why:
        _refuse_options(source, ["--size"] if sizes else [], "--size is of --why")
    graph = _graph(source, target, inputs, wanted["parameters"], [name for name in KERNELS if wanted[name]])
    if graph is not None:
        return _why_graph(graph, target, sizes or {}) if why else graph.code(stage, target)
    _refuse_options(source, ["--input"] if inputs else [])
    from ..compiler.explorer.stage import choose_instance, inspect_stage

    if why:
        return _why_kernel(*choose_instance(source, **wanted), target, sizes or {})
    return inspect_stage(source, target, stage, **wanted)


def _graph(
    source: str, target: str, inputs: Sequence[str], parameters: Mapping[str, str], others: Sequence[str]
) -> Graph | None:
    """The graph or built-in op that a source names; None where it names kernels."""
    if not (source.startswith("ops.") or source.endswith(".onnx") or ".py:" in source):
        return None
    from ..graph.drawing.inspected import graph_of
    from ..graph.onnx import from_onnx

    given = [f"--{name.removesuffix('s')}" for name in others]
    given += ["--input"] if inputs and not source.startswith("ops.") else []
    _refuse_options(source, given)
    values = {name: _literal(text) for name, text in parameters.items()}
    return from_onnx(source) if source.endswith(".onnx") else graph_of(source, inputs, values, target)


def _why_graph(graph: Graph, target: str, sizes: Mapping[str, int]) -> str:
    from ..compiler.explorer.reasons import USUAL_SIZE
    from ..graph.profiling.static_roofline import why_graph

    return why_graph(graph.ir, target, sizes, USUAL_SIZE)


def _why_kernel(kernel: LoadedKernel, instance: Instance, target: str, sizes: Mapping[str, int]) -> str:
    from ..compiler.explorer.reasons import checked_sizes, kernel_reasons
    from ..compiler.targets import lookup
    from ..graph.profiling.static_roofline import why

    known = checked_sizes(kernel, instance, sizes)
    reasons = kernel_reasons(kernel, instance, lookup(target))
    return why(reasons.choices, reasons.launches(list(known.values())), target, known)


def _refuse_options(source: str, given: Sequence[str], hint: str = "") -> None:
    """Refuses options that mean nothing for what is inspected."""
    if given:
        raise GraphError(
            f"{', '.join(given)}: of what '{source}' is, is unknown here",
            code="EK0649",
            argument=given[0],
            got=source,
            hint=hint or "--op, --dtype, --rank and --count are of kernels, --input is of built-in ops: ops.NAME",
        )


def _literal(text: str) -> object:
    """A Python literal; any other text is itself."""
    try:
        found: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return found
