"""Which threads of a launch know of each other's accesses: clocks, and what teaches them.

Every thread has a clock. What a thread knows of those of its block that a barrier taught is one number; of those of its
warp, another; of others, a vector of clocks that it has acquired. The clock of a block rises with each barrier, each
meeting of some of its threads, and each release.

Output: functions of LLVM IR for `codegen.shadow_memory`. Non-goals: what threads do with memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final

from ...dsl.contract import abi, checking
from ...dsl.contract.checking import COPIES, PLACES, CheckState, What
from ..ir.simulation import FRAME_ALIGNMENT, Argument, Block, State, Thread, offset
from .ir_text import NO_ADDRESS, FunctionText, Number

# An entry of a cell, from the highest bit on: thread + 1 (24 bits), clock (20), site (18), narrow, atomic.
THREAD_BIT: Final = 40
CLOCK_BIT: Final = 20
CLOCKS: Final = (1 << 20) - 1
FENCE: Final = 24  # bytes of what is kept of a fence: the clocks of the thread, of its block and of its warp
PLACE: Final = 32  # bytes of an entry of the table of places


def clocks_text() -> str:
    """The functions."""
    return "\n".join(
        [
            *(
                _room(),
                _take(),
                _switch(),
                _vector(),
                _clock(),
                _knows(),
                _merge(),
                _place(),
                _place_of_block(),
                _learn(),
            ),
            *(_fence(), _publish(), _order(), _start(), _begin(), _join(), _meet()),
        ]
    )


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
_ARRAYS = {"own": 8, "warp_base": 8, "vectors": 8, "informed": 8, "pending": 16, "hinted": 8}
_ARRAYS |= {"fences": 2 * FENCE, "copied": 24, "copies": 32 * COPIES}
_POINTERS = ("known", "shared_vector")
_NUMBERS = ("first", "clock", "base", "knows", "heard", "shared_informed")
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
    found = f.element("residents", "%resident", _KEPT)
    with f.when(f.compare("eq", f.load("i64", found), 0)):
        _make_arrays(f)
        f.leave()
    for number, name in enumerate(names):
        f.put(name, f.load("i64", f.at(found, 8 * number)))
    return f.text()


def _vector() -> str:
    """`vector(at)`: the vector of clocks that a place holds; a new one where it holds none."""
    f = StateFunction("@vector", "ptr", ["ptr %at"])
    found = f.load("ptr", "%at")
    with f.when(f.compare("ne", found, NO_ADDRESS, "ptr")):
        f.leave(found)
    made = f.call("@take", ["ptr %state", f"i64 {f.mul(f.get('total'), 4)}"], "ptr")
    f.store("ptr", made, "%at")
    f.leave(made)
    return f.text()


# *** who knows of whom ***


def _clock() -> str:
    """`clock(number)`: the clock of a thread of the block."""
    f = StateFunction("@clock", "i64", ["i64 %number"], "internal|alwaysinline")
    warp = f.right("%number", f.get("warp_bits"))
    own = f.largest(f.load("i64", f.element("own", "%number")), f.get("base"))
    f.leave(f.largest(own, f.load("i64", f.element("warp_base", warp))))
    return f.text()


def _knows() -> str:
    """`knows(number, entry)`: whether a thread of the block knows of what an entry of a cell stands for."""
    f = StateFunction("@knows", "i1", ["i64 %number", "i64 %entry"])
    thread = f.right("%entry", THREAD_BIT)
    clock = f.both(f.right("%entry", CLOCK_BIT), CLOCKS)
    other = f.sub(thread, f.get("first"))
    with f.when(f.compare("ult", other, f.get("threads"))):
        same = f.compare("eq", other, "%number")
        with f.when(f.either(same, f.compare("ult", clock, f.get("base")), "i1")):
            f.leave("true")
        bits = f.get("warp_bits")
        warp = f.right(other, bits)
        met = f.compare("ult", clock, f.load("i64", f.element("warp_base", warp)))
        with f.when(f.both(met, f.compare("eq", warp, f.right("%number", bits)), "i1")):
            f.leave("true")
        with f.when(f.compare("ne", f.get("knows"), 0)):
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


def _place() -> str:
    """`place(address, new)`: where the vector of a place stands that threads synchronise by; null if there is none."""
    f = StateFunction("@place", "ptr", ["i64 %address", "i64 %new"])
    slot = f.variable("i64", f.both(f.right(f.mul("%address", -7046029254386353131), 40), PLACES - 1))
    tried = f.variable("i64", 0)
    with f.while_(lambda: f.compare("slt", tried.value(), PLACES)):
        entry = f.element("places", slot.value(), PLACE)
        here = f.load("i64", entry)
        with f.when(f.compare("eq", here, "%address")):
            f.leave(f.at(entry, 8))
        with f.when(f.compare("eq", here, 0)):
            with f.when(f.compare("eq", "%new", 0)):
                f.leave(NO_ADDRESS)
            f.store("i64", "%address", entry)
            f.leave(f.at(entry, 8))
        slot.set(f.both(f.add(slot.value(), 1), PLACES - 1))
        tried.set(f.add(tried.value(), 1))
    with f.when(f.compare("ne", "%new", 0)):
        f.put("exhausted", 1)
    f.leave(NO_ADDRESS)
    return f.text()


def _learn() -> str:
    """`learn(number, vector, low, high)`: a thread of the block knows of these threads what a vector says."""
    f = StateFunction("@learn", "void", ["i64 %number", "ptr %source", "i64 %low", "i64 %high"], "internal|noinline")
    informed = f.element("informed", "%number")
    vector = f.call("@vector", ["ptr %state", f"ptr {f.element('vectors', '%number')}"], "ptr")
    with f.when(f.compare("eq", f.load("i64", informed), 0)):
        with f.when(f.compare("ne", vector, NO_ADDRESS, "ptr")):
            f.zero(vector, f.mul(f.get("total"), 4))
        f.store("i64", 1, informed)
        f.put("heard", f.add(f.get("heard"), 1))
    f.call("@merge", ["ptr %state", f"ptr {vector}", "ptr %source", "i64 %low", "i64 %high"])
    return f.text()


def _place_of_block() -> str:
    """`place_of_block(address, new)`: as `place`, of what threads of this block alone synchronise by."""
    f = StateFunction("@place_of_block", "ptr", ["i64 %address", "i64 %new"])
    place = f.call(
        "@place",
        ["ptr %state", f"i64 {f.either(f.either('%address', 1 << 62), f.left(f.get('resident'), 47))}", "i64 %new"],
        "ptr",
    )
    with f.when(f.compare("eq", place, NO_ADDRESS, "ptr")):
        f.leave(NO_ADDRESS)
    of, first = f.at(place, 8), f.get("first")
    with f.when(f.compare("ne", f.load("i64", of), first)):
        f.store("i64", first, of)
        vector = f.load("ptr", place)
        with f.when(f.compare("ne", vector, NO_ADDRESS, "ptr")):
            f.zero(vector, f.mul(f.get("total"), 4))
    f.leave(place)
    return f.text()


def _fence() -> str:
    """`fence(number, what)`: what was seen is learned, what was done may be published, to the scope of the fence."""
    f = StateFunction("@fence", "void", ["i64 %number", "i64 %what"], "internal|noinline")
    clock = f.call("@clock", ["ptr %state", "i64 %number"], "i64")
    wide = f.compare("eq", f.both("%what", What.NARROW), 0)
    acquires = f.compare("ne", f.both("%what", What.ACQUIRE), 0)
    hints = f.element("pending", "%number", 16)
    with f.when(f.both(acquires, f.compare("ne", f.load("i64", f.element("hinted", "%number")), 0), "i1")):
        for at, low, high in ((0, *_range(f, wide)), (8, 0, f.get("total"))):
            source = f.load("ptr", f.at(hints, at))
            f.call("@learn", ["ptr %state", "i64 %number", f"ptr {source}", f"i64 {low}", f"i64 {high}"])
    with f.when(f.compare("ne", f.both("%what", What.RELEASE), 0)):
        met = f.load("i64", f.element("warp_base", f.right("%number", f.get("warp_bits"))))
        own = f.element("fences", "%number", 2 * FENCE)
        for test, record in (("true", f.at(own, FENCE)), (wide, own)):
            with f.when(test):
                for k, value in enumerate((f.add(clock, 1), f.get("base"), met)):
                    f.store("i64", value, f.at(record, 8 * k))
        _tick(f)
    return f.text()


def _range(f: StateFunction, wide: str) -> tuple[str, str]:
    """The threads that are meant: all, or those of the block."""
    start = f.sub(f.get("first"), 1)
    return f.select(wide, 0, start), f.select(wide, f.get("total"), f.add(start, f.get("threads")))


def _tick(f: StateFunction) -> None:
    later = f.add(f.get("clock"), 1)
    f.put("clock", later)
    f.store("i64", later, f.element("own", "%number"))


def _order() -> str:
    """`order(number, address, what)`: what an atomic operation publishes and learns.

    What the threads of a block tell each other alone is kept apart; for what is told to all it is no loss that a
    block hears it too.
    """
    f = StateFunction("@order", "void", ["i64 %number", "i64 %address", "i64 %what"], "internal|noinline")
    acquires = f.compare("ne", f.both("%what", What.ACQUIRE), 0)
    releases = f.compare("ne", f.both("%what", What.RELEASE), 0)
    wide = f.compare("eq", f.both("%what", What.NARROW), 0)
    hints, hinted = f.element("pending", "%number", 16), f.element("hinted", "%number")

    def read(function: str, hint_at: int, low: Number, high: Number) -> None:
        place = f.call(function, ["ptr %state", "i64 %address", "i64 0"], "ptr")
        with f.when(f.compare("ne", place, NO_ADDRESS, "ptr")):
            there = f.load("ptr", place)
            with f.when(f.compare("ne", there, NO_ADDRESS, "ptr")):
                with f.when(acquires):
                    f.call("@learn", ["ptr %state", "i64 %number", f"ptr {there}", f"i64 {low}", f"i64 {high}"])
                with f.when(f.compare("eq", f.load("i64", hinted), 0)):
                    f.store("i64", 1, hinted)
                    for at in (0, 8):
                        old = f.load("ptr", f.at(hints, at))
                        with f.when(f.compare("ne", old, NO_ADDRESS, "ptr")):
                            f.zero(old, f.mul(f.get("total"), 4))
                hint = f.call("@vector", ["ptr %state", f"ptr {f.at(hints, hint_at)}"], "ptr")
                f.call("@merge", ["ptr %state", f"ptr {hint}", f"ptr {there}", f"i64 {low}", f"i64 {high}"])

    with f.when(f.compare("ne", f.both("%what", What.READ), 0)):
        with f.when(wide):
            read("@place", 0, 0, f.get("total"))
        with f.when(f.compare("eq", wide, "false", "i1")):
            read("@place", 8, *_range(f, "false"))
        read("@place_of_block", 8, 0, f.get("total"))
    with f.when(f.compare("ne", f.both("%what", What.WRITE), 0)):
        _publish_all(f, releases, wide)
        with f.when(releases):
            _tick(f)
    return f.text()


def _publish_all(f: StateFunction, releases: str, wide: str) -> None:
    """What a store publishes: all that the thread knows, if it releases, or what it knew at a fence."""
    own = f.element("fences", "%number", 2 * FENCE)
    clock = f.add(f.call("@clock", ["ptr %state", "i64 %number"], "i64"), 1)
    met = f.load("i64", f.element("warp_base", f.right("%number", f.get("warp_bits"))))
    told, any_told = ([f.load("i64", f.at(own, at + 8 * k)) for k in range(3)] for at in (0, FENCE))
    now_known = (clock, f.get("base"), met)
    plain = f.compare("eq", releases, "false", "i1")
    narrow = f.compare("eq", wide, "false", "i1")
    fenced, newer = f.compare("ne", told[0], 0), f.compare("ugt", any_told[0], told[0])
    to_block = f.both(plain, f.compare("ne", any_told[0], 0), "i1")
    to_block = f.both(to_block, f.either(narrow, newer, "i1"), "i1")
    for test, fence, function in (
        (f.both(wide, f.either(releases, fenced, "i1"), "i1"), told, "@place"),
        (f.either(f.both(narrow, releases, "i1"), to_block, "i1"), any_told, "@place_of_block"),
    ):
        with f.when(test):
            place = f.call(function, ["ptr %state", "i64 %address", "i64 1"], "ptr")
            with f.when(f.compare("ne", place, NO_ADDRESS, "ptr")):
                known = [f.select(releases, now, then) for now, then in zip(now_known, fence, strict=True)]
                values = ", ".join(f"i64 {value}" for value in known)
                f.call("@publish", ["ptr %state", "i64 %number", f"ptr {place}", values])


def _publish() -> str:
    """`publish(number, place, clock, base, met)`: raises the vector of a place to what a thread knows, or knew."""
    parameters = ["i64 %number", "ptr %place", "i64 %clock", "i64 %base", "i64 %met"]
    f = StateFunction("@publish", "void", parameters, "internal|noinline")
    start = f.sub(f.get("first"), 1)
    informed, own = f.element("informed", "%number"), f.element("vectors", "%number")
    vector = f.call("@vector", ["ptr %state", "ptr %place"], "ptr")
    total = f.get("total")

    def merge(source: str) -> None:
        f.call("@merge", ["ptr %state", f"ptr {vector}", f"ptr {source}", "i64 0", f"i64 {total}"])

    with f.each(0, f.get("threads")) as k:
        f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", "i64 %base"])
        with f.when(f.compare("ne", f.get("knows"), 0)):
            row = f.mul("%number", f.get("threads"))
            known = f.wide(f.load("i32", f.element("known", f.add(row, k), 4)), "i32")
            f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", f"i64 {known}"])
        bits = f.get("warp_bits")
        with f.when(f.compare("eq", f.right(k, bits), f.right("%number", bits))):
            f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", "i64 %met"])
    f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, '%number')}", "i64 %clock"])
    with f.when(f.compare("ne", f.load("i64", informed), 0)):
        merge(f.load("ptr", own))
    with f.when(f.compare("ne", f.get("shared_informed"), 0)):
        merge(f.pointer("shared_vector"))
    return f.text()


# *** launches, blocks, barriers ***


def _start() -> str:
    f = exported("start", ["ptr %argument"])

    def asked(name: str) -> str:
        return f.load("i64", f.at("%argument", offset(Argument, name)))

    f.put("launch", f.add(f.get("launch"), 1))
    context = f.load("ptr", f.at("%argument", offset(Argument, "context")))
    f.put("status", f.at(context, abi.STATUS_OFFSET), "ptr")
    blocks = f.mul(f.mul(asked("cluster_x"), asked("cluster_y")), asked("cluster_z"))
    own = f.mul(f.mul(asked("block_x"), asked("block_y")), asked("block_z"))
    lanes = asked("lanes")
    warps = f.divide(f.sub(f.add(own, lanes), 1), lanes)
    pitch = f.select(f.compare("eq", blocks, 1), own, f.mul(warps, lanes))
    f.put("pitch", pitch)
    threads = f.mul(pitch, blocks)
    f.put("threads", threads)
    for name in ("block_x", "block_y", "grid_x", "grid_y", "cluster_x", "cluster_y", "cluster_z"):
        f.put(name, asked(name))
    f.put("total", f.mul(threads, asked("total")))
    wide = f.compare("eq", asked("lanes"), 64)
    f.put("warp_bits", f.select(wide, 6, 5))
    trace = f.pointer("trace")
    with f.when(f.compare("ult", trace, f.pointer("trace_end"), "ptr")):
        values: tuple[Number, ...] = (checking.LAUNCH, threads, f.left(1, f.get("warp_bits")), 0)
        for k, value in enumerate(values):
            f.store("i64", value, f.at(trace, 8 * k))
        f.put("trace", f.at(trace, ctypes.sizeof(checking.Access)), "ptr")
    f.put("room_free", f.pointer("room"), "ptr")
    f.put("exhausted", 0)
    f.put("resident", 0)
    kept = f.mul(f.largest(asked("resident"), 1), _KEPT)
    f.put("residents", f.call("@take", ["ptr %state", f"i64 {kept}"], "ptr"), "ptr")
    _make_arrays(f)
    f.put("places", f.call("@take", ["ptr %state", f"i64 {PLACES * PLACE}"], "ptr"), "ptr")
    f.put("promises", NO_ADDRESS, "ptr")
    f.put("page", -1)
    return f.text()


def _begin() -> str:
    f = exported("begin", ["ptr %block"])

    def of_block(name: str, type: str = "i64") -> str:
        return f.load(type, f.at("%block", offset(Block, name)))

    argument = of_block("argument", "ptr")
    x, y = (f.divide(f.get(f"grid_{axis}"), f.get(f"cluster_{axis}")) for axis in "xy")
    at_x, at_y, at_z = (f.divide(of_block(axis), f.get(f"cluster_{axis}")) for axis in "xyz")
    number = f.add(at_x, f.mul(x, f.add(at_y, f.mul(y, at_z))))
    threads = f.get("threads")
    f.put("first", f.add(f.mul(number, threads), 1))
    f.put("clock", 1)
    f.put("base", 1)
    sizes = {"own": 8, "warp_base": 8, "informed": 8, "hinted": 8, "fences": 2 * FENCE, "copied": 24}
    for name, size in sizes.items():
        f.zero(f.pointer(name), f.mul(threads, size))
    with f.when(f.compare("ne", f.get("knows"), 0)):
        f.zero(f.pointer("known"), f.mul(f.mul(threads, threads), 4))
        f.put("knows", 0)
    f.put("heard", 0)
    f.put("shared_informed", 0)
    bytes = f.add(*(f.load("i64", f.at(argument, offset(Argument, name))) for name in ("shared", "dynamic")))
    with f.when(f.compare("sgt", bytes, 0)), f.each(0, f.divide(threads, f.get("pitch"))) as k:
        record = f.at("%block", f.mul(k, ctypes.sizeof(Block)))
        shared = f.load("i64", f.at(record, offset(Block, "shared")))
        f.call("@ek_check_mark", ["ptr %state", f"i64 {shared}", f"i64 {bytes}", f"i64 {checking.ALLOCATED}"])
        behind = f.add(shared, bytes)
        f.call("@ek_check_mark", ["ptr %state", f"i64 {behind}", f"i64 {FRAME_ALIGNMENT}", "i64 0"])
    return f.text()


def _join() -> str:
    """`join(thread, other)`: a thread of the block learns what another one knows of other blocks."""
    f = StateFunction("@join", "void", ["i64 %thread", "i64 %other"], "internal|noinline")
    with f.when(f.compare("eq", f.load("i64", f.element("informed", "%other")), 0)):
        f.leave()
    own = f.call("@vector", ["ptr %state", f"ptr {f.element('vectors', '%thread')}"], "ptr")
    flag = f.element("informed", "%thread")
    with f.when(f.compare("eq", f.load("i64", flag), 0)):
        with f.when(f.compare("ne", own, NO_ADDRESS, "ptr")):
            f.zero(own, f.mul(f.get("total"), 4))
        f.store("i64", 1, flag)
        f.put("heard", f.add(f.get("heard"), 1))
    theirs = f.load("ptr", f.element("vectors", "%other"))
    f.call("@merge", ["ptr %state", f"ptr {own}", f"ptr {theirs}", "i64 0", f"i64 {f.get('total')}"])
    return f.text()


def note_row(f: StateFunction, values: Sequence[Number]) -> None:
    """Notes a row of the trace, where counters are wanted; see `checking.Access`."""
    next_ = f.pointer("trace")
    with f.when(f.compare("ult", next_, f.pointer("trace_end"), "ptr")):
        for k, value in enumerate(values):
            f.store("i64", value, f.at(next_, 8 * k))
        f.put("trace", f.at(next_, ctypes.sizeof(checking.Access)), "ptr")


def note_barrier(f: StateFunction, site: str) -> None:
    """Notes that threads which have met at a site go on."""
    note_row(f, (f.either(f.left(site, 16), int(What.BARRIER)), f.get("first"), 0, 0))


def _meet() -> str:
    parameters = ["ptr %block", "ptr %thread", "i64 %kind", "i64 %low", "i64 %high"]
    f = exported("meet", parameters)

    def of(thread: str, name: str) -> str:
        return f.load("i64", f.at(thread, offset(Thread, name)))

    with f.when(f.compare("eq", of("%thread", "own"), 0)):
        f.leave()
    note_barrier(f, of("%thread", "site"))
    later = f.add(f.get("clock"), 1)
    f.put("clock", later)
    wanted, key = of("%thread", "wanted"), of("%thread", "key")
    whole = f.compare("eq", wanted, 0)
    alone = f.compare("eq", f.get("threads"), f.get("pitch"))
    is_block = f.both(f.compare("eq", "%kind", int(State.BLOCK)), alone, "i1")
    is_block = f.both(whole, f.either(is_block, f.compare("eq", "%kind", int(State.CLUSTER)), "i1"), "i1")
    with f.when(is_block):
        f.put("base", later)
        with f.when(f.compare("ne", f.get("heard"), 0)):
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
            f.put("heard", 0)
            f.zero(f.pointer("informed"), f.mul(f.get("threads"), 8))
        f.leave()
    threads = f.load("ptr", f.at("%block", offset(Block, "all")))

    def meets(number: str) -> str:
        record = f.at(threads, f.mul(number, ctypes.sizeof(Thread)))
        state, where = f.compare("eq", of(record, "state"), "%kind"), f.compare("eq", of(record, "key"), key)
        return f.both(f.both(state, where, "i1"), f.compare("eq", of(record, "wanted"), wanted), "i1")

    _tell(f, meets)
    is_warp = f.both(whole, f.compare("eq", "%kind", int(State.WARP)), "i1")
    with f.when(f.both(is_warp, f.compare("eq", f.get("knows"), 0), "i1")):
        f.store("i64", later, f.element("warp_base", f.right("%low", f.get("warp_bits"))))
        f.leave()
    _meet_in_part(f, meets, later)
    return f.text()


def _tell(f: StateFunction, meets: Callable[[str], str]) -> None:
    """Threads that meet tell each other what they know of other blocks."""
    some = f.compare("ne", f.get("heard"), 0)
    with f.when(some), f.each("%low", "%high") as k:
        met = meets(k)
        with f.when(met), f.each("%low", "%high") as other:
            both = f.both(meets(other), f.compare("ne", k, other), "i1")
            with f.when(both):
                f.call("@join", ["ptr %state", f"i64 {k}", f"i64 {other}"])


def _meet_in_part(f: StateFunction, meets: Callable[[str], str], later: str) -> None:
    """Some threads of a block, or of a warp, meet: each then knows what any of them knew, and of all of them."""
    count = f.get("threads")
    with f.when(f.compare("eq", f.pointer("known"), NO_ADDRESS, "ptr")):
        bytes = f.mul(f.mul(count, count), 4)
        f.put("known", f.call("@take", ["ptr %state", f"i64 {bytes}"], "ptr"), "ptr")
        with f.when(f.compare("eq", f.pointer("known"), NO_ADDRESS, "ptr")):
            f.leave()
    f.put("knows", 1)
    bits = f.get("warp_bits")
    with f.each(0, count) as k:
        best = f.variable("i64", 0)
        best.set(0)
        with f.each("%low", "%high") as m, f.when(meets(m)):
            row = f.mul(m, count)
            known = f.wide(f.load("i32", f.element("known", f.add(row, k), 4)), "i32")
            best.set(f.largest(best.value(), known))
            with f.when(f.compare("eq", f.right(k, bits), f.right(m, bits))):
                best.set(f.largest(best.value(), f.load("i64", f.element("warp_base", f.right(m, bits)))))
            with f.when(f.compare("eq", k, m)):
                own = f.call("@clock", ["ptr %state", f"i64 {m}"], "i64")
                best.set(f.largest(best.value(), f.add(own, 1)))
        with f.each("%low", "%high") as m, f.when(meets(m)):
            place = f.element("known", f.add(f.mul(m, count), k), 4)
            f.store("i32", f.narrow(best.value(), "i32"), place)
    with f.each("%low", "%high") as m, f.when(meets(m)):
        f.store("i64", later, f.element("own", m))
