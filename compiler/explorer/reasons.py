"""Says what was chosen for a program and why: what multiplies and copies tiles, which loops became vectors.

For a GPU its launches are counted for given sizes, too, from which rooflines are estimated.

See also `static_counts` (how launches are counted), `page` (which shows these next to the author's lines).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...dsl.contract.gpus import has_peaks
from ...dsl.contract.launches import LaunchCounters
from ...dsl.contract.unit import EntrySpec, op_layout
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import is_shipped, shown_path
from ...dsl.package.container import Instance
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.variadic import expand
from ..instances import check_names, instance_entries, instance_parameters
from ..ir.matrix_opcodes import TOGETHER
from ..ir.program import Program, walk
from ..pipeline import compile_entry, typed_program
from ..targets.base import Target
from .listing import Spot
from .loop_reports import loop_reports
from .static_counts import static_counts

USUAL_SIZE: Final = 1024  # of an axis of which nothing is said
KINDS: Final = ("product", "copies")  # attributes of typed programs that say what was chosen


@dataclass(frozen=True)
class Reason:
    """What was chosen for a line: `kind` is product, copies or loop; `text` says what, and why nothing better."""

    spot: Spot
    kind: str
    text: str

    def __str__(self) -> str:
        file, line = self.spot
        return f"{shown_path(file)}:{line}: {self.kind}: {self.text}"


@dataclass(frozen=True, eq=False)
class Reasons:
    """The choices of a program in the order of its lines; `program` is None for a CPU, which launches nothing."""

    spec: EntrySpec
    target: Target
    choices: tuple[Reason, ...]
    program: Program | None = None

    def launches(self, sizes: Sequence[int]) -> tuple[LaunchCounters, ...]:
        """What the launches do for these values of the entry's slots, counted without running them."""
        return () if self.program is None else tuple(static_counts(self.program, self.spec, sizes, self.target))


def reasons_of(spec: EntrySpec, target: Target) -> Reasons:
    """The reasons of an entry for a target.

    Raises:
        CompileError: a mistake in a kernel, or something that the target lacks.
    """
    if target.has_grid:
        program = typed_program(spec, target)
        return Reasons(spec, target, tuple(tile_choices(program)), program)
    artifact = compile_entry(spec, target)
    loops = [Reason(spot, "loop", text) for spot, text in loop_reports(artifact).items()]
    return Reasons(spec, target, (*tile_choices(artifact.program), *loops))


def kernel_reasons(kernel: LoadedKernel, instance: Instance, target: Target) -> Reasons:
    """The reasons of an instance of a kernel.

    Raises:
        CompileError: a mistake in the kernel, or something that the target lacks.
    """
    return reasons_of(*instance_entries(kernel.portable, instance, target)[0])


def tile_choices(program: Program) -> Iterator[Reason]:
    """What multiplies and copies the tiles of a program, each choice once, by lines of the author's where there are."""
    found: dict[Reason, None] = {}
    for function in program.functions:
        for op in walk(function.body):
            for kind in KINDS:
                if op.opcode is TOGETHER and (text := op.attrs.get(kind)):
                    places = [(place.file, place.line) for place in op.location.chain()]
                    own = next((spot for spot in places if not is_shipped(spot[0])), places[0])
                    found.setdefault(Reason(own, kind, str(text)))
    yield from sorted(found, key=lambda each: each.spot)


def slot_sizes(kernel: LoadedKernel, instance: Instance, sizes: Mapping[str, int]) -> dict[str, int]:
    """The value of each slot of an instance's entry by the name of its axis, in their order; see `op_layout`."""
    schema = expand(kernel.schema, dict(instance.counts))
    _, sources = op_layout(schema, dict(instance.ranks), instance_parameters(kernel.schema, instance))
    return {source.name: sizes.get(source.name, USUAL_SIZE) for source in sources}


def checked_sizes(kernel: LoadedKernel, instance: Instance, sizes: Mapping[str, int]) -> dict[str, int]:
    """What `slot_sizes` gives.

    Raises:
        CompileError: EK0607 the op has no axis of such a name.
    """
    known = slot_sizes(kernel, instance, sizes)
    check_names(kernel.schema, "axis", sizes, list(known))
    return known


def is_estimated(target: Target) -> bool:
    """Whether rooflines of a target can be estimated: it is a GPU of which figures are known."""
    return target.has_grid and has_peaks(target.name)
