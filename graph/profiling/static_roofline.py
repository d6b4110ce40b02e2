"""Estimates rooflines of programs that do not run: for GPUs that need not be here, from typed programs and sizes alone.

    kernels/product.py:25: product: mma.sync.m16n8k16.bfloat16: not wgmma.m64k16.bfloat16, as the sums are not ...
    for m = 1024, k = 1024, n = 1024:
    kernel                          moved ...

See also `compiler.explorer.static_counts` (what counts), `roofline` (what estimates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...dsl.contract.gpus import has_peaks
from ...dsl.contract.launches import LaunchCounters
from ..arguments import int_of, wrong
from ..ir import GraphIR
from ..loading.compile import graph_reasons
from .roofline import Roofline
from .roofline_picture import STYLE

NOTHING: Final = "nothing to choose: no product and no copy of tiles, and no loop in a kernel of your own"


def launch_counts(ir: GraphIR, target: str, sizes: Mapping[str, int]) -> tuple[LaunchCounters, ...]:
    """What the kernels of a graph do on a GPU for these sizes of its symbols, counted without running them.

    Raises:
        TargetError: an unknown target.
        CompileError: a mistake in a kernel, or something that the target lacks.
    """
    reasons, plan = graph_reasons(ir, target)
    return reasons.launches([dim.evaluate(sizes) for dim in plan.slots])


def symbol_sizes(ir: GraphIR, given: Mapping[str, int], usual: int) -> dict[str, int]:
    """A size for each named dim of a graph.

    Raises:
        GraphError: EK0478, the graph has no dim of a name, or a size is invalid.
    """
    names = sorted({name for type in ir.types for name in type.shape.parameters})
    for name, size in given.items():
        if name not in names:
            wrong("sizes", name, f"sizes of dims by their names: {', '.join(names) or 'the graph has none'}")
        if int_of(f"sizes[{name!r}]", size) < 0:
            wrong(f"sizes[{name!r}]", size, "a size from 0 on")
    return dict.fromkeys(names, usual) | dict(given)


def roofline_html(launches: Sequence[LaunchCounters], target: str) -> tuple[str, str]:
    """Of launches on the GPU of a target: the wall and the share of each in a line; the picture and the table as HTML.

    Raises:
        TargetError: EK0601 no figures of such a device are known.
    """
    found = Roofline.of(launches, target)
    summary = "; ".join(f"{each.share:.0%} of the limit, by {each.wall}" for each in found.kernels)
    return summary or "nothing is launched", f"<style>{STYLE}</style>{found.drawn()}"


def why(choices: Sequence[object], launches: Sequence[LaunchCounters], target: str, sizes: Mapping[str, int]) -> str:
    """The choices of a program, which are shown as they are, and the roofline of its launches, as text."""
    lines = [str(choice) for choice in choices] or [NOTHING]
    if launches and not has_peaks(target):
        lines.append(f"no roofline: no figures of the device of {target} are known")
    elif launches:
        known = ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "the sizes of its inputs"
        lines += ["", f"for {known}:", Roofline.of(launches, target).table()]
    return "\n".join(lines)


def why_graph(ir: GraphIR, target: str, given: Mapping[str, int], usual: int) -> str:
    """What `why` says of a graph; sizes of its symbols that are not given are the usual one.

    Raises:
        GraphError: EK0478, the graph has no dim of a name, or a size is negative.
        TargetError: an unknown target.
        CompileError: a mistake in a kernel, or something that the target lacks.
    """
    sizes = symbol_sizes(ir, given, usual)
    reasons, plan = graph_reasons(ir, target)
    launches = reasons.launches([dim.evaluate(sizes) for dim in plan.slots])
    return why(reasons.choices, launches, target, sizes)
