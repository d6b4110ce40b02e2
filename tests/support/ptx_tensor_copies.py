"""The instruction of PTX that copies a box of a tensor by a tensor map: `cp.async.bulk.tensor`.

Places in shared memory are from NVIDIA's PTX ISA manual, "Tensors": elements of a box lie row by row, and bits 4 to 6
of their addresses are changed by bits 7 to 9, as many as the swizzle has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from support.ptx_group import Code, Group, Step
from support.ptx_memory import PARAM_WINDOW, PARAMETER_BYTES, UNSIGNED
from support.ptx_numbers import type_of
from support.ptx_parse import Instruction, Tuple
from support.ptx_threads import address_of
from support.tensor_maps import Refused, TensorMap, read_map

ALIGNMENT = 128  # bytes that a box in shared memory begins at a multiple of


def map_at(ins: Instruction, group: Group, address: int) -> TensorMap:
    """The map that a generic address leads to, which is a parameter of the kernel."""
    number, offset = divmod(address - PARAM_WINDOW, PARAMETER_BYTES)
    names = [parameter.name for parameter in group.machine.compiled.kernel.parameters]
    if offset or not 0 <= number < len(names):
        raise ins.fail(f"{address:#x} is not the address of a parameter")
    try:
        return read_map(group.machine.parameters[names[number]])
    except Refused as refused:
        raise ins.fail(str(refused)) from None


def box_copy(ins: Instruction, code: Code) -> Step:
    """`cp.async.bulk.tensor.Nd.shared::cluster.global.mbarrier::complete_tx::bytes [to], [map, {…}], [barrier]`."""
    from support.ptx_copies import each_with_its_block

    dimension, *rest = ins.parts[3:]
    to_all = rest[-1:] == ["multicast__cluster"]
    rest = rest[:-1] if to_all else rest
    known = [[f"shared__{to}", "global", "mbarrier__complete_tx__bytes"] for to in ("cluster", "cta")]
    if rest not in known or dimension[1:] != "d":
        raise ins.fail("this copy of a tensor is not known")
    source = ins.operands[1]
    if not isinstance(source, Tuple) or not isinstance(source.parts[1], Tuple):
        raise ins.fail("there is no map with coordinates")
    to, barrier, map = (address_of(ins, at, code) for at in (ins.operands[0], ins.operands[2], source.parts[0]))
    coordinates = [code.source(ins, each, type_of("s32")) for each in source.parts[1].parts]
    if len(coordinates) != int(dimension[0]):
        raise ins.fail(f"{len(coordinates)} coordinates for {dimension}")

    mask = code.source(ins, ins.operands[3], type_of("u16")) if to_all else None

    def run(group: Group) -> None:
        given = (to(group), barrier(group), map(group), *(each(group) for each in coordinates))
        blocks = group.spread(mask(group)) if mask is not None else [None] * group.count
        for bits, (block, there, at, described, *place) in zip(blocks, each_with_its_block(group, *given), strict=True):
            known = map_at(ins, group, described)
            if len(known.sizes) != len(place):
                raise ins.fail(f"the map has {len(known.sizes)} axes")
            if there % ALIGNMENT:
                raise ins.fail(f"a box is copied to {there:#x}, which is not a multiple of {ALIGNMENT}")
            for peer in [block] if bits is None else _peers(ins, group, block, int(bits)):
                copy = _Box(ins, group, known, peer, there, tuple(place))
                group.machine.barriers.at(ins, peer, at).copies.append(copy)

    return run


def _peers(ins: Instruction, group: Group, block: int, bits: int) -> list[int]:
    """The blocks of a cluster that a mask names."""
    known = group.machine.peers[block]
    peers = [int(known[rank]) if rank < len(known) else -1 for rank in range(16) if bits >> rank & 1]
    if -1 in peers:
        raise ins.fail(f"the mask {bits:#x} names blocks that the cluster does not have")
    return peers


class _Box:
    """A copy under way."""

    def __init__(
        self, ins: Instruction, group: Group, map: TensorMap, block: int, to: int, place: tuple[int, ...]
    ) -> None:
        self.ins, self.machine, self.map, self.block, self.to, self.place = ins, group.machine, map, block, to, place

    def __call__(self) -> int:
        """Copies all elements, zeros beyond the end of the tensor, and gives the number of bytes."""
        map = self.map
        axes = np.indices(tuple(reversed(map.box))).reshape(len(map.box), -1)[::-1].astype(np.int64)
        inside = np.ones(axes.shape[1], np.bool_)
        source = np.full(axes.shape[1], map.address, np.int64)
        for axis, size, start, stride in zip(axes, map.sizes, self.place, (map.element, *map.strides), strict=True):
            inside &= (axis + start >= 0) & (axis + start < size)
            source += (axis + start) * stride
        bits = 8 * map.element
        values = np.zeros(axes.shape[1], UNSIGNED[bits])
        if inside.any():
            values[inside] = self.machine.memory.load(source[inside].astype(np.uint64), bits)
        places: Any = self.to + np.arange(axes.shape[1]) * map.element
        if map.swizzle:
            places ^= (places >> 7 & (map.swizzle // 16 - 1)) << 4
        self.machine.shared.store(np.full(len(places), self.block), places.astype(np.uint64), values, bits)
        return int(values.nbytes)
