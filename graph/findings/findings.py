"""Says what the checks of a simulated device have found: the error, with both places and both threads.

    error[EK0740]: race in op 'sums': two threads of a launch use one byte, and one writes
       12 |     total[0] = total[0] + x[t]
          |     ^^^^^^^^ thread 5 of block 0 writes here, ...

See also `compiler.simulation.shadow_memory` (what is looked for).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.contract.checking import CheckState, FindingRecord, Found, What
from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.places import Label, Place
from ...dsl.frontend.anchors import place_at
from ...dsl.frontend.program import PortableKernel
from ...dsl.types.dtype import DType
from .reports import Report

_HINTS = {
    Found.RACE: "put a barrier between them, make the operations atomic, or let each thread have elements of its own",
    Found.OUTSIDE: "compare the index with the size before it is used",
    Found.PENDING: "wait for the copy, or for its group, and let a barrier follow, before any thread uses it",
    Found.UNINITIALISED: "write all of it before it is read",
    Found.MISALIGNED: "leave out align=, or access elements whose addresses are multiples of it",
    Found.PROMISE: "leave out gpu.uniform, and let all threads come to what waits; or promise a narrower scope",
}


def finding_error(
    found: FindingRecord,
    state: CheckState,
    reports: Sequence[Report],
    kernels: Sequence[PortableKernel],
    notes: Sequence[str],
) -> KernelError:
    """The error for what was found; `kernels` are those whose text the reports are about."""
    kind = Found(found.found)
    here, there = reports[found.site], reports[found.other_site]
    place, other = place_at(here.anchor, kernels), place_at(there.anchor, kernels)
    space, function = (str(part) for part in here.parts[:2])
    if space == "used":
        space = str(there.parts[0])
    own = f"{_thread(found.thread, state)} {_does(found.what)}"
    labels = [(place, own)]
    if kind is Found.RACE:
        text = f"data race: unordered accesses to {space} memory by two threads"
        labels = [(other, f"{_thread(found.other_thread, state)} {_does(found.other_what)}"), (place, own)]
        code = "EK0740"
    elif kind is Found.PENDING:
        text = "pending copy: a thread uses shared memory that a copy may still write"
        labels = [(other, f"{_thread(found.other_thread, state)} copies"), (place, own)]
        code = "EK0743"
    elif kind is Found.PROMISE:
        dtype, scope = (str(part) for part in here.parts[2:4])
        text = f"broken promise: gpu.uniform declares a value equal in a {scope}, and it differs"
        mine, theirs = (_shown(bits, DType[dtype]) for bits in (found.what, found.other_what))
        labels = [
            (place, f"{theirs} in {_thread(found.other_thread, state)}, {mine} in {_thread(found.thread, state)}")
        ]
        code = "EK0708"
    elif kind is Found.OUTSIDE:
        text = f"out of bounds: a thread {_does(found.what)} {space} memory that belongs to no buffer"
        if space == "stack":  # of which the element is known, and how many there are
            which = f"element {found.address} of {found.other_what} on its stack"
            text = f"out of bounds: a thread {_does(found.what)} {which}"
        if space == "peer":
            text = f"out of bounds: a thread accesses block {found.address} of a cluster of {found.other_what}"
        code = "EK0741"
    elif kind is Found.MISALIGNED:
        text, code = _misaligned(found, space), "EK0745"
    else:
        text = f"uninitialised read: a thread depends on uninitialised {space} memory"
        code = "EK0742"
        if not found.what:  # where it is used is not where it was read
            labels = [(other, "this is read"), (place, f"{_thread(found.thread, state)} depends on it here")]
    calls = [f"{said} {at}" for said, anchor in here.notes if (at := place_at(anchor, kernels)) is not None]
    hidden = [(at, said) for at, said in labels if at is None or at.source_line() is None]
    about = [f"{said}: {at}" if at is not None else said for at, said in hidden]
    return KernelError(
        f"{text}, in kernel '{function}' of op '{here.op}'",
        code=code,
        place=place,
        labels=_labels(labels),
        op=here.op,
        notes=[*about, *calls, *notes],
        hint=_HINTS[kind],
    )


def _misaligned(found: FindingRecord, space: str) -> str:
    beyond = f"{found.address % found.other_what} bytes behind a multiple of {found.other_what}"
    return f"misaligned access: a thread {_does(found.what)} {space} memory at address {found.address:#x}, {beyond}"


def _shown(bits: int, dtype: DType) -> str:
    """A number, of which the bits are known."""
    own = bits & (1 << dtype.bits) - 1
    if dtype.is_float():
        return str(dtype.format.decode(own))
    if dtype is DType.bool:
        return str(bool(own))
    return str(own - (1 << dtype.bits) if dtype.is_signed() and own >> dtype.bits - 1 else own)


def _labels(labels: Sequence[tuple[Place | None, str]]) -> list[Label]:
    """What stands under each place; what is said of one place twice stands there once."""
    texts: dict[Place, list[str]] = {}
    for place, text in labels:
        if place is not None:
            texts.setdefault(place, []).append(text)
    made = [Label(place, "; ".join(said)) for place, said in texts.items()]
    return sorted(made, key=lambda label: (label.place.file, label.place.line))


def _does(what: int) -> str:
    """What an access does, in words."""
    if what & What.ATOMIC:
        return "changes it atomically" if what & What.WRITE else "reads it atomically"
    return "writes" if what & What.WRITE else "reads"


def _thread(number: int, state: CheckState) -> str:
    """A thread, by its index in its block and that of the block; axes that have one are left out."""
    cluster, within = divmod(number, max(1, state.threads))
    rank, thread = divmod(within, max(1, state.pitch))
    sizes = [max(1, size) for size in (state.cluster_x, state.cluster_y, state.cluster_z)]
    clusters = _axes(cluster, state.grid_x // sizes[0], state.grid_y // sizes[1])
    block = [n * size + k for n, size, k in zip(clusters, sizes, _axes(rank, *sizes[:2]), strict=True)]
    return f"thread {_index(_axes(thread, state.block_x, state.block_y))} of block {_index(block)}"


def _index(axes: Sequence[int]) -> str:
    return f"({', '.join(map(str, axes))})"


def _axes(number: int, x: int, y: int) -> list[int]:
    """A number that counts along x, then y, then z, axis by axis."""
    row, column = divmod(number, max(1, x))
    plane, row = divmod(row, max(1, y))
    return [column, row, plane]
