"""Fits ready-made code of a package to a graph of a single op.

See also `loading.load`.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence

from ...dsl.contract.kernels import read_kernels
from ...dsl.contract.unit import Piece, op_layout
from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.json_reading import Misread
from ...dsl.package.container import Package, Variant
from ...dsl.package.library import LoadedKernel
from ...dsl.package.shared_object import read_host_half, read_shared_object
from ...dsl.signature.bind import bind
from ...dsl.signature.parameters import identity
from ...dsl.types.dtype import DType
from ..findings.reports import read_reports
from ..ir import Control, GraphIR, Node
from ..passes.memory_plan import Plan, PlannedBuffer, bound_dtypes

_log = logging.getLogger("einkorn.load")


Lacking = Callable[[str, Sequence[str]], Sequence[str]]  # what this machine lacks for a target and requirements
Runs = Callable[[Variant], bool]  # whether a device runs code


def matching(
    kernel: LoadedKernel,
    dtypes: tuple[tuple[str, DType], ...],
    ir: GraphIR,
    node: Node,
    lacking: Lacking,
    runs: Runs | None = None,
) -> Iterator[Variant]:
    """The variants of the kernel that serve the node on this machine, the most specific target first.

    `runs` says it of a device's own code; without it, code that runs in this process is requested.
    """
    ranks = tuple(sorted(node_ranks(ir, node).items()))
    names = tuple((name, dtype.name) for name, dtype in dtypes)
    parameters = {name: identity(value) for name, value in node.parameters}
    for variant in sorted(kernel.variants, key=lambda v: (v.target, len(v.requirements)), reverse=True):
        instance = variant.instance
        same = (
            tuple(sorted(instance.dtypes)) == tuple(sorted(names))
            and tuple(sorted(instance.ranks)) == ranks
            and {name: identity(value) for name, value in instance.parameters} == parameters
            and dict(instance.counts) == dict(kernel.schema.counts)
        )
        if same and (variant.in_process if runs is None else runs(variant) and host_of(variant, lacking)):
            missing = lacking(variant.target, variant.requirements) if runs is None else ()
            if not missing:
                yield variant
            else:
                _log.info("code of '%s' for %s needs %s", variant.op, variant.target, ", ".join(missing))


def host_of(variant: Variant, lacking: Lacking) -> str | None:
    """The target of the host's half that runs here, the best of them."""
    return next((name for name, _ in reversed(variant.host) if not lacking(name, ())), None)


def ready_halves(package: Package, variant: Variant, host: str, architecture: str) -> list[Piece]:
    """The host's half of a variant for a device, read before it is mapped, and the code for the device.

    Raises:
        PackageError: EK0559 one does not match the manifest, EK0562 the first is not what Einkorn writes, EK0625 they
            do not belong together.
    """
    code, data = package.code(variant), package.host_code(variant, host)
    try:
        reports, kernels = read_host_half(data, architecture)
        read_reports(reports)
        table = read_kernels(kernels)
    except Misread as wrong:
        raise _not_ours(package, variant, dict(variant.host)[host].member, wrong) from None
    if not table.fits(code):
        raise PackageError(
            f"{variant.code.member!r} in {package.archive.shown!r} and its half for the host do not belong together",
            code="EK0625",
            op=variant.op,
            expected=table.stamp,
            hint="build the package again from its sources (`einkorn build`)",
        )
    return [Piece("so", host, data), Piece(variant.kind, variant.target, code)]


def _not_ours(package: Package, variant: Variant, member: str, wrong: Misread) -> PackageError:
    return PackageError(
        f"{member!r} in {package.archive.shown!r} is not code as Einkorn writes it: it {wrong}",
        code="EK0562",
        op=variant.op,
        hint="nothing of it was loaded; build the package again from its sources (`einkorn build`)",
    )


def ready_pieces(package: Package, variant: Variant, architecture: str) -> list[Piece]:
    """The pieces of a variant's code for an architecture, read before any is mapped; see `dsl.package.shared_object`.

    Raises:
        PackageError: EK0559 it does not match the manifest, EK0562 it is not what Einkorn writes.
    """
    data = package.code(variant)
    try:
        read_reports(read_shared_object(data, architecture))
    except Misread as wrong:
        raise _not_ours(package, variant, variant.code.member, wrong) from None
    return [Piece(variant.kind, variant.target, data)]


def hint_without_code(ir: GraphIR) -> str:
    """How to come by code for a graph: for one op, the command that makes it out of the package with its program."""
    if ir.patterns:
        return "make the inputs contiguous: np.ascontiguousarray(x)"
    node = single_op(ir)
    if node is None or node.kernel.package is None:
        return "build a package of the op for this machine: einkorn build kernels/ -o name.pkg --target host"
    schema, path = node.kernel.schema, node.kernel.package.path
    dtypes = bound_dtypes(node, [ir.types[value].dtype for value in node.operands])
    options = [("--dtype", name, dtype.name) for name, dtype in dtypes]
    options += [("--rank", name, str(rank)) for name, rank in sorted(node_ranks(ir, node).items())]
    options += [("--count", name, str(count)) for name, count in schema.counts]
    for name, value in node.parameters:
        text = value.name if isinstance(value, DType) else str(value)
        options.append(("--param", name, text.lower() if isinstance(value, bool) else text))
    options_given = [word for option, name, text in options for word in (option, f"{name}={text}")]
    other = str(path.with_name(f"{path.stem}-more.pkg"))
    words = ["einkorn", "build", str(path), "-o", other, "--target", "host", "--op", schema.name, *options_given]
    return f"make a package with this code, and load that one: {shlex.join(words)}"


def node_ranks(ir: GraphIR, node: Node) -> dict[str, int]:
    """How many axes each pack of the node's signature has."""
    inputs = [(ir.types[value].dtype, tuple(ir.types[value].shape)) for value in node.operands]
    outputs = [(type.dtype, tuple(type.shape)) for type in node.out_types]
    bound = bind(node.kernel.schema, inputs, dict(node.parameters), expected_outputs=outputs)
    return {name: len(axes) for name, axes in bound.packs.items()}


def single_op(ir: GraphIR) -> Node | None:
    """The op of a graph that is one op over inputs and constants, and gives back its results; else None."""
    sizes = {step.value for step in ir.steps}  # its shape function is not a second op
    nodes = [node for node in ir.nodes if isinstance(node, Node) and sizes.isdisjoint(node.results)]
    if any(isinstance(node, Control) for node in ir.nodes):
        return None
    return nodes[0] if len(nodes) == 1 and ir.outputs == nodes[0].results else None


def op_plan(ir: GraphIR, node: Node) -> Plan:
    """How to call ready-made code of one op: its inputs, its outputs, and the sizes that its slots stand for."""
    _, sources = op_layout(node.kernel.schema, node_ranks(ir, node), dict(node.parameters))
    made_by = {value: number for number, other in enumerate(ir.nodes) for value in other.results}
    types = [*(ir.types[value] for value in node.operands), *node.out_types]
    places = [("constant", made_by[value]) if value in made_by else ("input", value) for value in node.operands]
    places += [("output", number) for number in range(len(node.out_types))]
    for number, step in enumerate(ir.steps):
        types.append(ir.types[step.value])
        places.append(("sizes", number))
    places += [("input", value) for value in range(len(ir.inputs)) if value not in node.operands]
    types += [ir.types[value] for kind, value in places[len(types) :]]
    first = {place: number for number, place in reversed(list(enumerate(places)))}
    buffers = tuple(PlannedBuffer(t.dtype, t.shape, place) for t, place in zip(types, places, strict=True))
    repeats = tuple((number, first[place]) for number, place in enumerate(places) if first[place] != number)
    slots = tuple(types[s.tensor].shape[s.axis] for s in sources)
    return Plan(None, buffers, slots, (), repeats, ir.steps, (1,) * len(ir.steps))
