"""Reports uninitialised elements of results; a simulated device with memory checks finds them.

See also `unwritten` (devices that do not report it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.places import user_place
from ..driver.buffer import Buffer
from ..driver.device import Array
from ..ir import GraphIR, Node

if TYPE_CHECKING:
    from ..driver.checked_memory import CheckedMemory


def expect_stores(memory: CheckedMemory, results: Iterable[Buffer]) -> None:
    """Before a call: what its results lie in has no values yet, also where an earlier result lay."""
    for buffer in results:
        storage: Any = buffer._array
        memory.mark(storage.address, storage.size, written=False)


def check_stored(ir: GraphIR, memory: CheckedMemory, results: Iterable[Buffer]) -> None:
    """Behind a call.

    Raises:
        KernelError: EK0706, an element of a result was not written, or was made of such an element.
    """
    for position, buffer in enumerate(results):
        storage: Any = buffer._array
        if buffer.dtype.is_packed() or buffer.num_elements == 0:
            continue  # stores of half bytes are not watched
        size = buffer.dtype.size_in_bytes
        bare = memory.without_values(storage.address, buffer.num_elements * size)
        if bare.any():
            where = np.logical_or.reduce(bare.reshape(*buffer.shape, size), axis=-1)
            hint = "store it on every path, from memory that has been written"
            what = "is uninitialised, or depends on uninitialised memory"
            raise unwritten_error(ir, position, where, what, hint)


def unwritten_error(ir: GraphIR, position: int, where: Array, what: str, hint: str) -> KernelError:
    """The error of an output with these elements."""
    op, tensor, node = _made_by(ir, ir.outputs[position])
    index = [int(number) for number in np.argwhere(where)[0]]
    count = int(np.count_nonzero(where))
    more = f" (and {count - 1:,} more of {where.size:,})" if count > 1 else ""
    declared = None if node is None else next((a.place for a in node.kernel.schema.outputs if a.name == tensor), None)
    staged = [f"op '{op}' was staged at {node.place}"] if node is not None and node.place is not None else []
    called = f"graph '{ir.name}' was called at {user_place()}"
    return KernelError(
        f"element {index} of output {position} of graph '{ir.name}'{more} {what}: '{tensor}' of op '{op}'",
        code="EK0706",
        place=declared or (None if node is None else node.place),
        op=op,
        argument=tensor,
        expected="a store to every element",
        got=f"{count:,} of {where.size:,} elements without one",
        notes=[*staged, called],
        hint=hint,
        tensor=tensor,
        index=tuple(index),
        extent=where.shape,
    )


def _made_by(ir: GraphIR, value: int) -> tuple[str, str, Node | None]:
    """The op and the argument that a value is stored by: the author's own, where shipped ops stand behind it."""
    producer = {result: node for node in ir.nodes if isinstance(node, Node) for result in node.results}
    maker = producer.get(value)
    while maker is not None and maker.kernel.shipped:
        own = next((v for v in maker.operands if v in producer), None)
        if own is None:
            break
        value, maker = own, producer[own]
    maker = maker if maker is not None else producer.get(value)
    if maker is None:
        return "", "", None
    outputs = maker.kernel.schema.outputs
    number = min(maker.results.index(value), len(outputs) - 1)
    return maker.name, outputs[number].name, maker
