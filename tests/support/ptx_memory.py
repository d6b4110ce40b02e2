"""The memories that PTX sees, read and written by many threads at once; what lies outside is an error.

Global memory is this process's own: arrays that are lent to it, at their addresses. Shared memory has a slab for each
block, local memory one for each thread; their addresses count from 0, and as generic addresses from a window far away.
What nothing wrote has the byte `UNWRITTEN`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # an array of one number a thread, or one number for all threads
Threads = Any  # the numbers of threads

UNWRITTEN = 0xCB
SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
PARAM_WINDOW = 1 << 58
PARAMETER_BYTES = 4096  # so far apart are parameters that have an address, by their numbers
RANK_BIT = 32  # of an address in the shared memory of a cluster: 1 + the number of the block stands above
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class BadAddress(Exception):
    """An address that an instruction may not use; `at` is the first of the threads that do."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class Region:
    """Bytes from an address on, which are seen as numbers of any size."""

    def __init__(self, data: Any, start: int) -> None:
        self.data = data
        self.start, self.end = start, start + data.size
        self._views: dict[int, Any] = {}

    def view(self, bits: int) -> Any:
        """The bytes as numbers: what is left at the end belongs to none."""
        if bits not in self._views:
            size = bits // 8
            self._views[bits] = self.data[: self.data.size // size * size].view(UNSIGNED[bits])
        return self._views[bits]

    def load(self, offset: Array, bits: int) -> Array:
        size = bits // 8
        if self.start % size == 0:
            return self.view(bits)[offset >> (size.bit_length() - 1)]
        places = np.asarray(offset)[..., None] + np.arange(size)
        return np.ascontiguousarray(self.data[places]).view(UNSIGNED[bits])[..., 0]

    def store(self, offset: Array, value: Array, bits: int) -> None:
        size = bits // 8
        if self.start % size == 0:
            self.view(bits)[offset >> (size.bit_length() - 1)] = value
            return
        count = np.broadcast_shapes(np.shape(offset), np.shape(value))
        wide = np.ascontiguousarray(np.broadcast_to(value, count))[..., None]
        places = np.broadcast_to(offset, count)[..., None] + np.arange(size)
        self.data[places] = wide.view(np.uint8)


class Memory:
    """Global memory: the arrays that were lent, and no other byte."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[Region] = []

    def lend(self, array: Any) -> int:
        """Makes the bytes of a contiguous array memory; gives its address. Arrays do not overlap."""
        data = array.reshape(-1).view(np.uint8)
        start = int(data.ctypes.data)
        if data.size:
            at = bisect.bisect_left(self._starts, start)
            if self._starts[at : at + 1] != [start]:
                self._starts.insert(at, start)
                self._regions.insert(at, Region(data, start))
        return start

    def take_back(self, address: int) -> None:
        """Ends what `lend` began."""
        at = bisect.bisect_left(self._starts, address)
        if self._starts[at : at + 1] == [address]:
            del self._starts[at], self._regions[at]

    def at(self, address: int) -> Region | None:
        """The array that an address lies in."""
        at = bisect.bisect(self._starts, address) - 1
        return self._regions[at] if at >= 0 and address < self._regions[at].end else None

    def load(self, address: Array, bits: int) -> Array:
        region = self._whole(address, bits)
        if region is not None:
            return region.load((address - np.uint64(region.start)).astype(np.int64), bits)
        address = np.asarray(address)
        collected = np.empty(address.shape, UNSIGNED[bits])
        for part, of in self._parts(address, bits):
            collected[part] = of.load((address[part] - np.uint64(of.start)).astype(np.int64), bits)
        return collected

    def store(self, address: Array, value: Array, bits: int) -> None:
        region = self._whole(address, bits)
        if region is not None:
            region.store((address - np.uint64(region.start)).astype(np.int64), value, bits)
            return
        address = np.asarray(address)
        values = np.broadcast_to(value, address.shape)
        for part, of in self._parts(address, bits):
            of.store((address[part] - np.uint64(of.start)).astype(np.int64), values[part], bits)

    def _whole(self, address: Array, bits: int) -> Region | None:
        """The region that all addresses lie in, if they do."""
        if np.ndim(address) and not address.size:
            return Region(np.zeros(0, np.uint8), 0)
        low, high = int(np.min(address)), int(np.max(address))
        _aligned(address, bits)
        region = self.at(low)
        return region if region is not None and high + bits // 8 <= region.end else None

    def _parts(self, address: Any, bits: int) -> list[tuple[Any, Region]]:
        """The threads of each region."""
        parts = []
        left = np.ones(address.shape, np.bool_)
        while left.any():
            first = int(np.argmax(left)) if address.shape else 0
            one = int(address[first]) if address.shape else int(address)
            region = self.at(one)
            if region is None or one + bits // 8 > region.end:
                raise BadAddress(self._where(one, bits), first)
            part = left & (address >= np.uint64(region.start)) & (address <= np.uint64(region.end - bits // 8))
            parts.append((part, region))
            left &= ~part
        return parts

    def _where(self, address: int, bits: int) -> str:
        said = f"{bits // 8} bytes at {address:#x} lie in no memory of the kernel"
        near = min(self._regions, key=lambda r: min(abs(address - r.start), abs(address - r.end)), default=None)
        if near is None:
            return said
        distance = (
            f"{address - near.end} bytes behind" if address >= near.end else f"{near.start - address} bytes before"
        )
        if near.start <= address < near.end:
            distance = f"{near.end - address} bytes before the end of"
        return f"{said}; {distance} an array of {near.data.size} bytes is the nearest"


class Slabs:
    """Shared or local memory: the same addresses for all, in a slab of its own for each block or thread."""

    def __init__(self, what: str, slabs: int, size: int) -> None:
        self.what, self.size = what, size
        self.pitch = -(-max(size, 8) // 8) * 8
        self.region = Region(np.full(slabs * self.pitch, UNWRITTEN, np.uint8), 0)

    def load(self, slab: Threads, address: Array, bits: int) -> Array:
        return self.region.load(self._offset(slab, address, bits), bits)

    def store(self, slab: Threads, address: Array, value: Array, bits: int) -> None:
        self.region.store(self._offset(slab, address, bits), value, bits)

    def _offset(self, slab: Threads, address: Array, bits: int) -> Array:
        _aligned(address, bits)
        wrong = address > np.uint64(self.size - bits // 8) if self.size >= bits // 8 else np.ones_like(slab, np.bool_)
        if np.any(wrong):
            first = int(np.argmax(np.broadcast_to(wrong, np.shape(slab))))
            at = int(np.broadcast_to(address, np.shape(slab))[first])
            raise BadAddress(f"{bits // 8} bytes at {at} lie behind the {self.size} bytes of {self.what} memory", first)
        return slab * self.pitch + address.astype(np.int64)


def _aligned(address: Array, bits: int) -> None:
    if bits == 8:
        return
    odd = address & np.uint64(bits // 8 - 1)
    if np.any(odd):
        first = int(np.argmax(odd != 0))
        at = int(np.ravel(address)[first])
        raise BadAddress(f"the address {at:#x} is not a multiple of {bits // 8}", first)


def one_after_another(address: Array, count: int, step: Callable[[Any], None]) -> None:
    """Calls `step` with threads of different addresses, until each had its turn; of one address in their order."""
    if np.ndim(address) == 0:
        for thread in range(count):
            step(np.array([thread]))
        return
    order = np.argsort(address, kind="stable")
    ordered = address[order]
    begins = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    rank = np.arange(count) - np.repeat(begins, np.diff(np.append(begins, count)))
    for turn in range(int(rank.max()) + 1 if count else 0):
        step(order[rank == turn])
