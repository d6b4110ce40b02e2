"""A caching allocator for device memory: the GPU's driver takes a hundred times as long, and synchronises.

Memory is given out in blocks of a few sizes, 4 for each power of two, and from 16 MiB on one for each 2 MiB. A block
that comes back is taken again by work on the stream that used it last, at once: what is enqueued later runs later; a
large one also for what needs an eighth less. Work on other streams gets it only where the
device has no more, behind an event. What comes back is put into a queue, because Python collects garbage in any thread,
at any step, here as well.

See also `streams` (which streams there are).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import plural
from ...dsl.diagnostics.forks import fork_lock

SMALLEST: Final = 512  # bytes: what GPUs align memory to
STEP: Final = 2 << 20  # bytes: what GPUs map memory by
MIN_ROUNDED_BYTES: Final = 16 << 20  # bytes: from here on sizes are so many that near ones serve, too


class OutOfDeviceMemory(MemoryError):
    """A device has no block of a size. `notes` have the free memory and its largest users."""

    code = "EK0833"

    def __init__(self, requested: int, notes: list[str]) -> None:
        super().__init__("; ".join([f"{requested:,} bytes are requested", *notes]))
        self.requested = requested
        self.notes = notes

    def __reduce__(self) -> tuple[Any, ...]:
        return OutOfDeviceMemory, (self.requested, self.notes)


class Block:
    """A piece of a device's memory: `stream` is where it was used last, `user` its owner."""

    __slots__ = ("address", "size", "stream", "user")

    def __init__(self, address: int, size: int, stream: Any, user: str) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.user = user


@dataclass(frozen=True)
class Stats:
    """Bytes in use, bytes kept with those in use, the most that was in use; blocks requested, and taken again."""

    in_use: int
    reserved: int
    peak: int
    requested: int
    reused: int


def size_class(size: int) -> int:
    """The size of the block for so many bytes: at most a quarter and `STEP` larger, and never below `SMALLEST`."""
    if size <= SMALLEST:
        return SMALLEST
    step = min(1 << max((size - 1).bit_length() - 3, 9), STEP)
    return -(-size // step) * step


def _nearest(kept: dict[int, list[Block]], wanted: int) -> list[Block] | None:
    """The kept blocks of a size, or else of the next one above it that wastes an eighth at most, of large ones."""
    if blocks := kept.get(wanted):
        return blocks
    most = wanted + wanted // 8 if wanted > MIN_ROUNDED_BYTES else wanted
    near = min((size for size, blocks in kept.items() if blocks and wanted < size <= most), default=0)
    return kept[near] if near else None


class MemoryPool:
    """The memory of one device.

    Args:
        take: gives the address of so many bytes, or raises MemoryError.
        give: gives such memory back to the library; nothing may use it any more.
        follow: makes a stream wait for what was enqueued on another.
        settle: waits until the device is idle.
        free: how many bytes the device has left, for messages.
    """

    def __init__(
        self,
        take: Callable[[int], int],
        give: Callable[[int], None],
        follow: Callable[[Any, Any], None],
        settle: Callable[[], None],
        free: Callable[[], int],
    ) -> None:
        self._take, self._give, self._follow, self._settle, self._free = take, give, follow, settle, free
        self._lock = fork_lock()
        self._blocks: set[Block] = set()
        self._kept: dict[Any, dict[int, list[Block]]] = {}  # the free ones, by stream and size
        self._classes: dict[int, int] = {}  # what `size_class` said
        self.returned: deque[Block] = deque()  # appended to by code that drops a block, without a lock
        self._in_use = self._reserved = self._peak = self._requested = self._reused = 0

    def allocate(self, size: int, stream: object, user: str) -> Block | None:
        """A kept block of at least so many bytes that work on this stream may use at once; None where there is none."""
        with self._lock:
            if self.returned:
                self._collect()
            self._requested += 1
            wanted = self._classes.get(size) or self._class(size)
            kept = self._kept.get(stream)
            blocks = None if kept is None else kept.get(wanted)
            if not blocks and kept is not None and wanted > MIN_ROUNDED_BYTES:
                blocks = _nearest(kept, wanted)
            return self._given(blocks.pop(), user) if blocks else None

    def _given(self, block: Block, user: str) -> Block:
        block.user = user
        self._reused += 1
        self._in_use += block.size
        if self._in_use > self._peak:
            self._peak = self._in_use
        return block

    def _class(self, size: int) -> int:
        if len(self._classes) > 4096:
            self._classes.clear()
        result = self._classes[size] = size_class(size)
        return result

    def fresh(self, size: int, stream: object, user: str) -> Block:
        """A block for work on a stream, where none is kept for it.

        Raises:
            OutOfDeviceMemory: there is none.
        """
        wanted = size_class(size)
        with self._lock:
            try:
                address = self._take(wanted)
            except MemoryError:
                other = next(filter(None, (_nearest(kept, wanted) for kept in self._kept.values())), None)
                if other:  # behind its last use
                    block = other.pop()
                    self._follow(stream, block.stream)
                    block.stream = stream
                    return self._given(block, user)
                self._trim()
                try:
                    address = self._take(wanted)
                except MemoryError:
                    raise OutOfDeviceMemory(size, self._shortage()) from None
            block = Block(address, wanted, stream, user)
            self._blocks.add(block)
            self._reserved += wanted
            self._reused -= 1
            return self._given(block, user)

    def _collect(self) -> None:
        """Takes up what was given back meanwhile."""
        while self.returned:  # under the lock
            block = self.returned.popleft()
            block.user = ""
            self._in_use -= block.size
            self._kept.setdefault(block.stream, {}).setdefault(block.size, []).append(block)

    def trim(self) -> None:
        """Returns all unused memory to the device."""
        with self._lock:
            self._collect()
            self._trim()

    def _trim(self) -> None:
        unused = [block for kept in self._kept.values() for blocks in kept.values() for block in blocks]
        if unused:
            self._settle()  # which a signal may end
        self._kept.clear()
        for block in unused:
            self._blocks.discard(block)
            self._reserved -= block.size
            self._give(block.address)

    def _shortage(self) -> list[str]:
        notes = [f"{self._free():,} bytes are free"]
        held: defaultdict[str, list[int]] = defaultdict(list)
        for block in self._blocks:
            if block.user:
                held[block.user].append(block.size)
        if held:
            user, sizes = max(held.items(), key=lambda entry: sum(entry[1]))
            notes.append(f"the largest user is {user}: {sum(sizes):,} bytes in {plural(len(sizes), 'block')}")
        return notes

    @property
    def stats(self) -> Stats:
        """What the pool holds."""
        with self._lock:
            self._collect()
            return Stats(self._in_use, self._reserved, self._peak, self._requested, self._reused)
