"""Which threads of a launch know of each other's accesses: clocks, and what teaches them.

Every thread has a clock. The threads of its block that a barrier has ordered before it are one number; of those of its
warp, another; of others, a vector of clocks that it has acquired. The clock of a block rises with each barrier, each
meeting of some of its threads, and each release.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final

from ...dsl.contract import abi, checking
from ...dsl.contract.checking import COPIES, PLACES, CheckState, What
from ..ir.llvm_text import NO_ADDRESS, FunctionText, Number
from ..ir.simulation import FRAME_ALIGNMENT, Argument, BlockRecord, Orders, State, Thread, offset

# An entry of a cell, from the highest bit on: thread + 1 (24 bits), clock (20), site (18), narrow, atomic.
THREAD_BIT: Final = 40
CLOCK_BIT: Final = 20
CLOCKS: Final = (1 << 20) - 1
FENCE: Final = 24  # bytes of what is kept of a fence: the clocks of the thread, of its block and of its warp
PLACE: Final = 32  # bytes of an entry of the table of places


def clocks_text() -> str:
    """The functions."""
    functions = (_room, _take, _switch, _vector, _clock, _happens_before, _merge, _start, _begin, _join, _sync)
    return "\n".join(function() for function in functions)


class StateFunction(FunctionText):
    """A function that has the state at hand."""

    def __init__(self, name: str, result: str, parameters: list[str], attributes: str = "internal|") -> None:
        super().__init__(name, result, ["ptr %state", *parameters], attributes=attributes)

    def field(self, name: str) -> str:
        """The address of a field of the state."""
        return self.at("%state", offset(CheckState, name))

    def get(self, name: str) -> str:
        """A field of the state that is a number."""
        return self.load("i64", self.field(name))

    def pointer(self, name: str) -> str:
        """A field of the state that is an address."""
        return self.load("ptr", self.field(name))

    def put(self, name: str, value: Number, type: str = "i64") -> None:
        self.store(type, value, self.field(name))

    def element(self, array: str, index: Number, size: int = 8) -> str:
        """The address of an element of an array that a field points at."""
        return self.at(self.pointer(array), self.mul(index, size))

    def largest(self, a: Number, b: Number) -> str:
        return self.call("@llvm.smax.i64", [f"i64 {a}", f"i64 {b}"], "i64")

    def zero(self, pointer: str, bytes: Number) -> None:
        self.call("@llvm.memset.p0.i64", [f"ptr {pointer}", "i8 0", f"i64 {bytes}", "i1 false"])


def exported(name: str, parameters: list[str], result: str = "void") -> StateFunction:
    return StateFunction(f"@ek_check_{name}", result, parameters, "|")


# *** memory of the checks themselves ***


def _room() -> str:
    """`room(bytes)`: memory for this launch; null where there is no more."""
    f = StateFunction("@room", "ptr", ["i64 %bytes"])
    start = f.pointer("room_free")
    end = f.at(start, f.both(f.add("%bytes", 63), -64))
    with f.when(f.compare("ugt", end, f.pointer("room_limit"), "ptr")):
        f.put("exhausted", 1)
        f.leave(NO_ADDRESS)
    f.put("room_free", end, "ptr")
    f.leave(start)
    return f.text()


def _take() -> str:
    """`take(bytes)`: the same, zeroed."""
    f = StateFunction("@take", "ptr", ["i64 %bytes"])
    start = f.call("@room", ["ptr %state", "i64 %bytes"], "ptr")
    with f.when(f.compare("ne", start, NO_ADDRESS, "ptr")):
        f.zero(start, "%bytes")
    f.leave(start)
    return f.text()


# What is kept of a cluster: arrays with so many bytes for each thread, of which the last need not be zero; and numbers.
_ARRAYS = {"own": 8, "warp_base": 8, "vectors": 8, "informed": 8, "pending": 24, "hinted": 8}
_ARRAYS |= {"fences": 3 * FENCE, "copied": 24, "copies": 32 * COPIES}
_POINTERS = ("known", "shared_vector")
_NUMBERS = ("first", "clock", "base", "any_known", "informed_count", "shared_informed")
_KEPT = 8 * (len(_ARRAYS) + len(_POINTERS) + len(_NUMBERS))


def _make_arrays(f: StateFunction) -> None:
    """Gives a cluster memory of its own."""
    for name, size in _ARRAYS.items():
        how = "@room" if name == "copies" else "@take"
        f.put(name, f.call(how, ["ptr %state", f"i64 {f.mul(f.get('threads'), size)}"], "ptr"), "ptr")
    for name in _POINTERS:
        f.put(name, NO_ADDRESS, "ptr")
    for name in _NUMBERS:
        f.put(name, 0)


def _switch() -> str:
    f = exported("switch", ["i64 %resident"])
    with f.when(f.compare("eq", "%resident", f.get("resident"))):
        f.leave()
    kept = f.element("residents", f.get("resident"), _KEPT)
    names = (*_ARRAYS, *_POINTERS, *_NUMBERS)
    for number, name in enumerate(names):
        f.store("i64", f.get(name), f.at(kept, 8 * number))
    f.put("resident", "%resident")
    result = f.element("residents", "%resident", _KEPT)
    with f.when(f.compare("eq", f.load("i64", result), 0)):
        _make_arrays(f)
        f.leave()
    for number, name in enumerate(names):
        f.put(name, f.load("i64", f.at(result, 8 * number)))
    return f.text()


def _vector() -> str:
    """`vector(at)`: the vector of clocks that a place holds; a new one where it holds none."""
    f = StateFunction("@vector", "ptr", ["ptr %at"])
    result = f.load("ptr", "%at")
    with f.when(f.compare("ne", result, NO_ADDRESS, "ptr")):
        f.leave(result)
    made = f.call("@take", ["ptr %state", f"i64 {f.mul(f.get('total'), 4)}"], "ptr")
    f.store("ptr", made, "%at")
    f.leave(made)
    return f.text()


# *** which threads are ordered ***


def _clock() -> str:
    """`clock(number)`: the clock of a thread of the block."""
    f = StateFunction("@clock", "i64", ["i64 %number"], "internal|alwaysinline")
    warp = f.right("%number", f.get("warp_bits"))
    own = f.largest(f.load("i64", f.element("own", "%number")), f.get("base"))
    f.leave(f.largest(own, f.load("i64", f.element("warp_base", warp))))
    return f.text()


def _happens_before() -> str:
    """`happens_before(number, entry)`: whether the access in an entry of a cell happens before a thread of the
    block."""
    f = StateFunction("@happens_before", "i1", ["i64 %number", "i64 %entry"])
    thread = f.right("%entry", THREAD_BIT)
    clock = f.both(f.right("%entry", CLOCK_BIT), CLOCKS)
    other = f.sub(thread, f.get("first"))
    with f.when(f.compare("ult", other, f.get("threads"))):
        same = f.compare("eq", other, "%number")
        with f.when(f.either(same, f.compare("ult", clock, f.get("base")), "i1")):
            f.leave("true")
        bits = f.get("warp_bits")
        warp = f.right(other, bits)
        synced = f.compare("ult", clock, f.load("i64", f.element("warp_base", warp)))
        with f.when(f.both(synced, f.compare("eq", warp, f.right("%number", bits)), "i1")):
            f.leave("true")
        with f.when(f.compare("ne", f.get("any_known"), 0)):
            row = f.mul("%number", f.get("threads"))
            known = f.wide(f.load("i32", f.element("known", f.add(row, other), 4)), "i32")
            with f.when(f.compare("ult", clock, known)):
                f.leave("true")
    number = f.sub(thread, 1)
    for vector, informed in (("vectors", "informed"), ("", "")):
        is_own = bool(vector)
        flag = f.load("i64", f.element(informed, "%number")) if is_own else f.get("shared_informed")
        with f.when(f.compare("ne", flag, 0)):
            clocks = f.load("ptr", f.element(vector, "%number")) if is_own else f.pointer("shared_vector")
            known = f.wide(f.load("i32", f.at(clocks, f.mul(number, 4))), "i32")
            with f.when(f.compare("ult", clock, known)):
                f.leave("true")
    f.leave(f.compare("ne", f.get("exhausted"), 0))
    return f.text()


def _merge() -> str:
    """`merge(to, from, low, high)`: the later clock for each of these threads; `raise(vector, thread, clock)`."""
    f = StateFunction("@merge", "void", ["ptr %to", "ptr %from", "i64 %low", "i64 %high"])
    either = f.either(f.compare("eq", "%to", NO_ADDRESS, "ptr"), f.compare("eq", "%from", NO_ADDRESS, "ptr"), "i1")
    with f.when(either):
        f.leave()
    with f.each("%low", "%high") as k:
        at = f.mul(k, 4)
        place = f.at("%to", at)
        ours, theirs = f.load("i32", place), f.load("i32", f.at("%from", at))
        f.store("i32", f.call("@llvm.umax.i32", [f"i32 {ours}", f"i32 {theirs}"], "i32"), place)
    g = StateFunction("@raise", "void", ["ptr %vector", "i64 %thread", "i64 %clock"])
    with g.when(g.compare("eq", "%vector", NO_ADDRESS, "ptr")):
        g.leave()
    place = g.at("%vector", g.mul("%thread", 4))
    more = g.call("@llvm.umax.i32", [f"i32 {g.load('i32', place)}", f"i32 {g.narrow('%clock', 'i32')}"], "i32")
    g.store("i32", more, place)
    return f.text() + g.text()


# *** launches, blocks, barriers ***


def _start() -> str:
    f = exported("start", ["ptr %argument"])

    def queried(name: str) -> str:
        return f.load("i64", f.at("%argument", offset(Argument, name)))

    f.put("launch", f.add(f.get("launch"), 1))
    context = f.load("ptr", f.at("%argument", offset(Argument, "context")))
    f.put("status", f.at(context, abi.STATUS_OFFSET), "ptr")
    blocks = f.mul(f.mul(queried("cluster_x"), queried("cluster_y")), queried("cluster_z"))
    own = f.mul(f.mul(queried("block_x"), queried("block_y")), queried("block_z"))
    lanes = queried("lanes")
    warps = f.divide(f.sub(f.add(own, lanes), 1), lanes)
    pitch = f.select(f.compare("eq", blocks, 1), own, f.mul(warps, lanes))
    f.put("pitch", pitch)
    threads = f.mul(pitch, blocks)
    f.put("threads", threads)
    for name in ("block_x", "block_y", "grid_x", "grid_y", "cluster_x", "cluster_y", "cluster_z"):
        f.put(name, queried(name))
    f.put("total", f.mul(threads, queried("total")))
    wide = f.compare("eq", queried("lanes"), 64)
    f.put("warp_bits", f.select(wide, 6, 5))
    trace = f.pointer("trace")
    with f.when(f.compare("ult", trace, f.pointer("trace_end"), "ptr")):
        bytes = f.add(queried("shared"), queried("dynamic"))
        lanes_and_bytes = f.either(f.left(1, f.get("warp_bits")), f.left(bytes, checking.LANE_BITS))
        values: tuple[Number, ...] = (checking.LAUNCH, threads, lanes_and_bytes, f.get("total"))
        for k, value in enumerate(values):
            f.store("i64", value, f.at(trace, 8 * k))
        f.put("trace", f.at(trace, ctypes.sizeof(checking.TracedAccess)), "ptr")
    f.put("room_free", f.pointer("room"), "ptr")
    f.put("exhausted", 0)
    f.put("resident", 0)
    kept = f.mul(f.largest(queried("resident"), 1), _KEPT)
    f.put("residents", f.call("@take", ["ptr %state", f"i64 {kept}"], "ptr"), "ptr")
    _make_arrays(f)
    f.put("places", f.call("@take", ["ptr %state", f"i64 {PLACES * PLACE}"], "ptr"), "ptr")
    f.put("promises", NO_ADDRESS, "ptr")
    f.put("page", -1)
    return f.text()


def _begin() -> str:
    f = exported("begin", ["ptr %block"])

    def of_block(name: str, type: str = "i64") -> str:
        return f.load(type, f.at("%block", offset(BlockRecord, name)))

    argument = of_block("argument", "ptr")
    x, y = (f.divide(f.get(f"grid_{axis}"), f.get(f"cluster_{axis}")) for axis in "xy")
    at_x, at_y, at_z = (f.divide(of_block(axis), f.get(f"cluster_{axis}")) for axis in "xyz")
    number = f.add(at_x, f.mul(x, f.add(at_y, f.mul(y, at_z))))
    threads = f.get("threads")
    f.put("first", f.add(f.mul(number, threads), 1))
    f.put("clock", 1)
    f.put("base", 1)
    sizes = {"own": 8, "warp_base": 8, "informed": 8, "hinted": 8, "fences": 3 * FENCE, "copied": 24}
    for name, size in sizes.items():
        f.zero(f.pointer(name), f.mul(threads, size))
    with f.when(f.compare("ne", f.get("any_known"), 0)):
        f.zero(f.pointer("known"), f.mul(f.mul(threads, threads), 4))
        f.put("any_known", 0)
    f.put("informed_count", 0)
    f.put("shared_informed", 0)
    bytes = f.add(*(f.load("i64", f.at(argument, offset(Argument, name))) for name in ("shared", "dynamic")))
    with f.when(f.compare("sgt", bytes, 0)), f.each(0, f.divide(threads, f.get("pitch"))) as k:
        record = f.at("%block", f.mul(k, ctypes.sizeof(BlockRecord)))
        shared = f.load("i64", f.at(record, offset(BlockRecord, "shared")))
        f.call("@ek_check_mark", ["ptr %state", f"i64 {shared}", f"i64 {bytes}", f"i64 {checking.ALLOCATED}"])
        behind = f.add(shared, bytes)
        f.call("@ek_check_mark", ["ptr %state", f"i64 {behind}", f"i64 {FRAME_ALIGNMENT}", "i64 0"])
    return f.text()


def _join() -> str:
    """`join(thread, other)`: a thread of the block acquires the clocks that another one has of other blocks."""
    f = StateFunction("@join", "void", ["i64 %thread", "i64 %other"], "internal|noinline")
    with f.when(f.compare("eq", f.load("i64", f.element("informed", "%other")), 0)):
        f.leave()
    own = f.call("@vector", ["ptr %state", f"ptr {f.element('vectors', '%thread')}"], "ptr")
    flag = f.element("informed", "%thread")
    with f.when(f.compare("eq", f.load("i64", flag), 0)):
        with f.when(f.compare("ne", own, NO_ADDRESS, "ptr")):
            f.zero(own, f.mul(f.get("total"), 4))
        f.store("i64", 1, flag)
        f.put("informed_count", f.add(f.get("informed_count"), 1))
    theirs = f.load("ptr", f.element("vectors", "%other"))
    f.call("@merge", ["ptr %state", f"ptr {own}", f"ptr {theirs}", "i64 0", f"i64 {f.get('total')}"])
    return f.text()


def note_row(f: StateFunction, values: Sequence[Number]) -> None:
    """Notes a row of the trace, where counters are wanted; see `checking.Access`."""
    next_ = f.pointer("trace")
    with f.when(f.compare("ult", next_, f.pointer("trace_end"), "ptr")):
        for k, value in enumerate(values):
            f.store("i64", value, f.at(next_, 8 * k))
        f.put("trace", f.at(next_, ctypes.sizeof(checking.TracedAccess)), "ptr")


def note_barrier(f: StateFunction, site: str) -> None:
    """Records that threads synchronised at a site go on."""
    note_row(f, (f.either(f.left(site, 16), int(What.BARRIER)), f.get("first"), 0, 0))


def _sync() -> str:
    parameters = ["ptr %block", "ptr %thread", "i64 %kind", "i64 %low", "i64 %high"]
    f = exported("sync", parameters)

    def of(thread: str, name: str) -> str:
        return f.load("i64", f.at(thread, offset(Thread, name)))

    with f.when(f.compare("eq", of("%thread", "own"), 0)):
        f.leave()
    note_barrier(f, of("%thread", "site"))
    with f.when(f.compare("eq", of("%thread", "own"), int(Orders.EXCHANGE))):
        f.leave()
    later = f.add(f.get("clock"), 1)
    f.put("clock", later)
    wanted, key = of("%thread", "wanted"), of("%thread", "key")
    whole = f.compare("eq", wanted, 0)
    alone = f.compare("eq", f.get("threads"), f.get("pitch"))
    is_block = f.both(f.compare("eq", "%kind", int(State.BLOCK)), alone, "i1")
    is_block = f.both(whole, f.either(is_block, f.compare("eq", "%kind", int(State.CLUSTER)), "i1"), "i1")
    with f.when(is_block):
        f.put("base", later)
        with f.when(f.compare("ne", f.get("informed_count"), 0)):
            vector = f.call("@vector", ["ptr %state", f"ptr {f.field('shared_vector')}"], "ptr")
            with f.when(f.both(f.compare("eq", f.get("shared_informed"), 0),
                               f.compare("ne", vector, NO_ADDRESS, "ptr"), "i1")):  # fmt: skip
                f.zero(vector, f.mul(f.get("total"), 4))
            f.put("shared_informed", 1)
            with f.each("%low", "%high") as k:
                flag = f.element("informed", k)
                with f.when(f.compare("ne", f.load("i64", flag), 0)):
                    theirs = f.load("ptr", f.element("vectors", k))
                    f.call("@merge", ["ptr %state", f"ptr {vector}", f"ptr {theirs}", "i64 0", f"i64 {f.get('total')}"])
            f.put("informed_count", 0)
            f.zero(f.pointer("informed"), f.mul(f.get("threads"), 8))
        f.leave()
    threads = f.load("ptr", f.at("%block", offset(BlockRecord, "all")))

    def syncs(number: str) -> str:
        record = f.at(threads, f.mul(number, ctypes.sizeof(Thread)))
        state, where = f.compare("eq", of(record, "state"), "%kind"), f.compare("eq", of(record, "key"), key)
        return f.both(f.both(state, where, "i1"), f.compare("eq", of(record, "wanted"), wanted), "i1")

    _publish(f, syncs)
    is_warp = f.both(whole, f.compare("eq", "%kind", int(State.WARP)), "i1")
    with f.when(f.both(is_warp, f.compare("eq", f.get("any_known"), 0), "i1")):
        f.store("i64", later, f.element("warp_base", f.right("%low", f.get("warp_bits"))))
        f.leave()
    _sync_in_part(f, syncs, later)
    return f.text()


def _publish(f: StateFunction, syncs: Callable[[str], str]) -> None:
    """Threads that synchronise exchange the clocks that they have of other blocks."""
    some = f.compare("ne", f.get("informed_count"), 0)
    with f.when(some), f.each("%low", "%high") as k:
        synced = syncs(k)
        with f.when(synced), f.each("%low", "%high") as other:
            both = f.both(syncs(other), f.compare("ne", k, other), "i1")
            with f.when(both):
                f.call("@join", ["ptr %state", f"i64 {k}", f"i64 {other}"])


def _sync_in_part(f: StateFunction, syncs: Callable[[str], str], later: str) -> None:
    """Some threads of a block, or of a warp, sync: the clock of each becomes the largest of theirs."""
    count = f.get("threads")
    with f.when(f.compare("eq", f.pointer("known"), NO_ADDRESS, "ptr")):
        bytes = f.mul(f.mul(count, count), 4)
        f.put("known", f.call("@take", ["ptr %state", f"i64 {bytes}"], "ptr"), "ptr")
        with f.when(f.compare("eq", f.pointer("known"), NO_ADDRESS, "ptr")):
            f.leave()
    f.put("any_known", 1)
    bits = f.get("warp_bits")
    with f.each(0, count) as k:
        best = f.variable("i64", 0)
        best.set(0)
        with f.each("%low", "%high") as m, f.when(syncs(m)):
            row = f.mul(m, count)
            known = f.wide(f.load("i32", f.element("known", f.add(row, k), 4)), "i32")
            best.set(f.largest(best.value(), known))
            with f.when(f.compare("eq", f.right(k, bits), f.right(m, bits))):
                best.set(f.largest(best.value(), f.load("i64", f.element("warp_base", f.right(m, bits)))))
            with f.when(f.compare("eq", k, m)):
                own = f.call("@clock", ["ptr %state", f"i64 {m}"], "i64")
                best.set(f.largest(best.value(), f.add(own, 1)))
        with f.each("%low", "%high") as m, f.when(syncs(m)):
            place = f.element("known", f.add(f.mul(m, count), k), 4)
            f.store("i32", f.narrow(best.value(), "i32"), place)
    with f.each("%low", "%high") as m, f.when(syncs(m)):
        f.store("i64", later, f.element("own", m))
