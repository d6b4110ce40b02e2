"""Tensor maps as NVIDIA's driver makes them, for devices that are none: its rules, and 128 bytes that only we can read.

The rules are those of "cuTensorMapEncodeTiled" in NVIDIA's CUDA driver API.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from einkorn.dsl.contract.abi import TENSOR_MAP_SIZE, TensorMapRequest

MAGIC = 0x6D70616D
SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2)  # bytes of an element of each type: UINT8, UINT16, UINT32, INT32, UINT64, …
SWIZZLES = (0, 32, 64, 128)
INVALID = 1  # CUDA_ERROR_INVALID_VALUE
_FORM = "<IIII Q 5Q 4Q 5I"


class Refused(ValueError):
    """The driver takes no such map."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor, innermost axis first; strides in bytes, of all axes but that one."""

    element: int
    swizzle: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    def __post_init__(self) -> None:
        rank, inner = len(self.sizes), self.box[0] * self.element
        rules = {
            "1 to 5 axes": 1 <= rank <= 5 and len(self.strides) == rank - 1 and len(self.box) == rank,
            "an address at 16 bytes": self.address % 16 == 0 and self.address > 0,
            "sizes from 1 to 2 ** 32": all(1 <= size <= 1 << 32 for size in self.sizes),
            "strides of multiples of 16 bytes": all(s % 16 == 0 and 0 < s < 1 << 40 for s in self.strides),
            "boxes of 1 to 256 along each axis": all(1 <= size <= 256 for size in self.box),
            "rows of a box of multiples of 16 bytes": inner % 16 == 0,
            "rows of a box no longer than the swizzle": not self.swizzle or inner <= self.swizzle,
        }
        broken = [words for words, holds in rules.items() if not holds]
        if broken:
            raise Refused(f"{self}: not {', '.join(broken)}")

    def to_bytes(self) -> bytes:
        rank = len(self.sizes)

        def padded(numbers: Sequence[int], count: int) -> list[int]:
            return [*numbers, *[0] * (count - len(numbers))]

        head = (MAGIC, rank, self.element, self.swizzle, self.address)
        data = struct.pack(_FORM, *head, *padded(self.sizes, 5), *padded(self.strides, 4), *padded(self.box, 5))
        return data.ljust(TENSOR_MAP_SIZE, b"\0")


def read_map(data: bytes) -> TensorMap:
    """The map of 128 bytes.

    Raises:
        Refused: they are none.
    """
    magic, rank, element, swizzle, address, *numbers = struct.unpack_from(_FORM, data)
    if magic != MAGIC or len(data) != TENSOR_MAP_SIZE:
        raise Refused("these bytes are not a tensor map")
    sizes, strides, box = numbers[:rank], numbers[5 : 5 + rank - 1], numbers[9 : 9 + rank]
    return TensorMap(element, swizzle, address, tuple(sizes), tuple(strides), tuple(box))


def encode(request: TensorMapRequest, to: int) -> None:
    """What a launcher does: writes the map of a request to an address."""
    rank = request.rank
    made = TensorMap(
        request.element,
        request.swizzle,
        request.address or 0,
        tuple(request.sizes[:rank]),
        tuple(request.strides[: rank - 1]),
        tuple(request.box[:rank]),
    )
    ctypes.memmove(to, made.to_bytes(), TENSOR_MAP_SIZE)


def encode_tiled(
    to: int,
    type: int,
    rank: int,
    address: int,
    sizes: int,
    strides: int,
    box: int,
    steps: int,
    interleave: int,
    swizzle: int,
    promotion: int,
    fill: int,
) -> None:
    """`cuTensorMapEncodeTiled`.

    Raises:
        Refused: the driver would take no such map, or one that is not known here.
    """
    if to % 64 or interleave or fill or promotion not in range(4) or not 1 <= rank <= 5:
        raise Refused("this form is not known")
    if list((ctypes.c_uint32 * rank).from_address(steps)) != [1] * rank:
        raise Refused("elements have steps")
    made = TensorMap(
        SIZES[type],
        SWIZZLES[swizzle],
        address,
        tuple((ctypes.c_uint64 * rank).from_address(sizes)),
        tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
        tuple((ctypes.c_uint32 * rank).from_address(box)),
    )
    ctypes.memmove(to, made.to_bytes(), TENSOR_MAP_SIZE)
