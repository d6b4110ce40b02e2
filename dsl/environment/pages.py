"""Takes memory from the system by pages, and lets the system take back pages of mapped files that have been read.

What is read of a mapped file stays in the memory of the process until the map ends, or until it is released: it is read
from the file again, or from the system's cache, when it is used again.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RELEASE: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)  # None where the system has no such call
_HUGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_HUGE_BYTES: Final = 1 << 22  # from which on large pages are requested, as NumPy does
_OWN_PAGES: Final = 1 << 20  # bytes that are worth pages of their own


def fresh_memory(size: int) -> NDArray[np.uint8]:
    """Memory of so many bytes. A large piece is the system's again as soon as nothing uses it."""
    if size < _OWN_PAGES or sys.platform == "win32":
        return np.empty(size, np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGE is not None and size >= _HUGE_BYTES:
        with suppress(OSError):  # a system without large pages
            pages.madvise(_HUGE)
    return np.frombuffer(pages, np.uint8)


def mapped_file(memory: object) -> mmap.mmap | None:
    """The map that an array or a view of bytes lies in, if it is one that cannot be written."""
    owner, base = memory, memory
    while base is not None:
        owner, base = base, base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None


def release_pages(array: NDArray[np.generic]) -> None:
    """Lets the system take back the pages of a mapped file that an array reaches over; of other memory nothing."""
    mapped = mapped_file(array)
    if mapped is None or _RELEASE is None or not array.size:
        return
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data + sum(min(each, 0) for each in reach)
    high = low + sum(map(abs, reach)) + array.itemsize
    start = low // mmap.PAGESIZE * mmap.PAGESIZE
    mapped.madvise(_RELEASE, start, high - start)
