"""The pool of a device's memory: what it gives out, keeps, takes again and gives back; and which code a GPU gets."""

from __future__ import annotations

import itertools
import random

import pytest

from einkorn.compiler.targets import newest_for
from einkorn.dsl.diagnostics.errors import TargetError
from einkorn.graph.driver.allocator import SMALLEST, STEP, Block, MemoryPool, OutOfDeviceMemory, size_class
from einkorn.graph.driver.cuda import newest_ptx


class Device:
    """Memory that counts."""

    def __init__(self, most: int) -> None:
        self.most, self.end = most, 4096
        self.live: dict[int, int] = {}
        self.follows: list[tuple[str, str]] = []
        self.waits = 0
        self.pool = MemoryPool(self.take, self.live.pop, self.follow, self.wait, self.free)

    def take(self, size: int) -> int:
        if size > self.free():
            raise MemoryError
        address, self.end = self.end, self.end + size
        self.live[address] = size
        return address

    def free(self) -> int:
        return self.most - sum(self.live.values())

    def follow(self, stream: str, before: str) -> None:
        self.follows.append((stream, before))

    def wait(self) -> None:
        self.waits += 1

    def get(self, size: int, stream: str = "a", user: str = "owner") -> Block:
        return self.pool.allocate(size, stream, user) or self.pool.fresh(size, stream, user)


def test_sizes_are_few_and_little_is_lost() -> None:
    sizes = [1, 511, 512, 513, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 28, (1 << 40) + 1]
    for size in [*sizes, *(random.Random(0).randrange(1, 1 << 34) for _ in range(1000))]:
        actual = size_class(size)
        assert size <= actual <= max(SMALLEST, size + max(min(size // 4, STEP), SMALLEST)) and actual % SMALLEST == 0
        assert size_class(actual) == actual
    assert len({size_class(size) for size in range(1 << 16, 1 << 17)}) <= 9
    assert size_class(0) == SMALLEST
    assert size_class(33 << 30) == 33 << 30 and size_class((33 << 30) + 1) == (33 << 30) + STEP


def test_large_blocks_are_taken_again_for_near_sizes() -> None:
    device = Device(96 << 30)
    first = device.get(33 << 30)
    device.pool.returned.append(first)
    assert device.get((33 << 30) - (5 << 20)) is first
    device.pool.returned.append(first)
    assert device.get(30 << 30) is first and device.pool.stats.in_use == 33 << 30
    device.pool.returned.append(first)
    small = device.get(20 << 30)  # of which 33 GiB would waste more than an eighth
    assert small is not first and small.size == 20 << 30
    assert device.get(31 << 30, "b") is not first
    device.most = device.pool.stats.reserved
    assert device.get(32 << 30, "c") is first and device.follows == [("c", "a")]  # behind its last use


def test_blocks_are_taken_again_on_their_stream_alone() -> None:
    device = Device(1 << 20)
    first = device.get(1000)
    device.pool.returned.append(first)
    assert device.get(900) is first and first.user == "owner"
    device.pool.returned.append(first)
    assert device.get(900, "b") is not first  # it may still be in use on the other stream
    assert device.follows == [] and device.waits == 0
    stats = device.pool.stats
    assert (stats.in_use, stats.reserved, stats.peak, stats.requested, stats.reused) == (1024, 2048, 1024, 3, 1)


def test_short_memory_is_taken_from_other_streams_then_given_back_then_missed() -> None:
    device = Device(4096)
    block = device.get(4096)
    device.pool.returned.append(block)
    assert device.get(4000, "b") is block and device.follows == [("b", "a")] and block.stream == "b"
    device.pool.returned.append(block)
    small = device.get(512, "c", "a graph")  # of another size: what is kept is given back first
    assert device.waits == 1 and device.live == {small.address: 512}
    other = device.get(2048, "c", "buffers")
    with pytest.raises(OutOfDeviceMemory) as caught:
        device.get(4000)
    assert caught.value.notes == ["1,536 bytes are free", "the largest user is buffers: 2,048 bytes in 1 block"]
    assert str(caught.value).startswith("4,000 bytes are requested; 1,536 bytes are free")
    device.pool.returned.extend((small, other))
    device.pool.trim()
    assert device.live == {} and device.pool.stats.reserved == 0


def test_no_two_users_share_memory() -> None:
    device, number = Device(1 << 16), random.Random(1)
    held: list[tuple[Block, int]] = []
    for _ in range(3000):
        if held and number.random() < 0.5:
            device.pool.returned.append(held.pop(number.randrange(len(held)))[0])
            continue
        size = number.choice([1, 100, 600, 5000, 20000])
        try:
            held.append((device.get(size, number.choice("abc")), size))
        except OutOfDeviceMemory:
            continue
        places = sorted((block.address, block.address + size) for block, size in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
        assert all(device.live[block.address] >= size for block, size in held)
    assert device.pool.stats.in_use == sum(block.size for block, _ in held)


@pytest.mark.parametrize(
    "architecture, target",
    [
        *(("sm_75", "sm_75"), ("sm_86", "sm_86"), ("sm_88", "sm_87"), ("sm_89", "sm_89"), ("sm_90", "sm_90a")),
        *(("sm_100", "sm_100a"), ("sm_999", "sm_121"), ("gfx942", "gfx942"), ("gfx1100", "gfx1100")),
    ],
)
def test_a_gpu_gets_the_newest_code_that_it_runs(architecture: str, target: str) -> None:
    assert newest_for(architecture).name == target


@pytest.mark.parametrize("architecture", ["sm_70", "gfx803", "gfx9999"])
def test_a_gpu_that_is_too_old(architecture: str) -> None:
    with pytest.raises(TargetError, match=f"no target that makes code for {architecture}") as caught:
        newest_for(architecture)
    assert caught.value.code == "EK0835"


def test_versions_of_ptx() -> None:
    actual = {cuda: newest_ptx(cuda) for cuda in (102, 110, 118, 119, 120, 126, 128, 129, 130, 131)}
    assert actual == {102: 0, 110: 70, 118: 78, 119: 78, 120: 80, 126: 85, 128: 87, 129: 88, 130: 90, 131: 91}
