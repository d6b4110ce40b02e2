"""Generates the code that checks the memory accesses of a simulated GPU: the last writer and reader of each byte.

    void ek_check_start(state, argument)                          a launch begins
    void ek_check_switch(state, resident)                         this cluster has its turn, of those that run by turns
    void ek_check_begin(state, block)                             a block begins
    void ek_check_sync(state, block, thread, kind, low, high)     threads low to high that wait as `thread` does go on
    int64 ek_check_access(state, thread, address, bytes, what, site)      0, or site + 1 for an uninitialised read
    void ek_check_use(state, thread, unknown, site)               what such a site gave decides something
    int64 ek_check_copy(state, thread, address, bytes, what, site)        a copy into shared memory begins
    void ek_check_commit(state, thread)                           this thread's copies so far are a group
    void ek_check_wait(state, thread, pending)                    all but so many groups have ended; all copies below 0
    void ek_check_branch(state, thread, answer, site)             a thread answers a condition, or makes so many rounds
    void ek_check_promise(state, thread, value, key, scope, site) the author says that this is equal in a scope
    void ek_check_outside(state, thread, element, count, what, site)      an access beyond a thread's own storage
    void ek_check_misaligned(state, thread, address, align, what, site)   an access at no multiple of `align` bytes
    void ek_check_mark(state, address, bytes, flags)              memory is there (or not), and has values (or not)
    void ek_check_flags(state, address, bytes, to)                the flags of bytes; 0 of those that are in no piece

An access leaves the thread, its clock and its place in a cell for each byte: the last store,
the last atomic operation and the last two threads that read. Two accesses race unless the later thread has acquired
that clock of the earlier one: it is the same thread, a barrier or a meeting of its warp lay between, or a release that
it has acquired, directly or through others. The clocks of threads in other blocks are a vector; what a barrier teaches
is one number for the block, so that a barrier costs as much as a store.

The cells lie in pieces of memory that are found by a table, one for each page that is used. All blocks run in one
thread of the host, one after the other, so that nothing here is atomic. The first thing that is found is kept, and
nothing is looked for behind it but the store of another thread to what was read before anything was written there: then
both are a race. See also `graph.driver.findings` (what is said about it).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...dsl.contract import abi, checking
from ...dsl.contract.checking import CELL, COPIES, HEADER, PAGE, PAGE_BITS, PIECES, Check, FindingRecord, Found, What
from ..ir.llvm_text import NO_ADDRESS, Number
from ..ir.program import Scope
from ..ir.simulation import Thread, offset
from ..targets import Target
from .clocks import CLOCK_BIT, THREAD_BIT, StateFunction, clocks_text, exported, note_row
from .memory_orders import orders_text

FUNCTIONS: Final = (
    *("start", "begin", "sync", "access", "use", "mark", "copy", "commit", "wait"),
    *("branch", "promise", "outside", "misaligned", "switch"),
)

# The lowest bits of an entry of a cell: 0 for a plain access, 1 for an atomic one, 3 for one of a cluster alone, 2 for
# one of a block alone.
_KIND, _OF_BLOCK = 3, 2
_SITE = 2  # the bit of the place in an entry of a cell
_SITES = (1 << 18) - 1
_PROMISE = 24  # bytes of an entry of the table of promises
_MIX = -7046029254386353131  # an odd number with bits everywhere
_HALVES = 6  # by how much the halves of an access lie above those of the flags
_STORE, _ATOMIC, _READ, _EARLIER = 0, 8, 16, 24  # where the entries of a cell are


def checker_text(target: Target) -> str:
    """The code as LLVM IR."""
    declared = (
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
        "declare i64 @llvm.smax.i64(i64, i64)\ndeclare i32 @llvm.umax.i32(i32, i32)\n"
    )
    functions = (_piece, _find, _access, _use, _mark, _flags, _copy, _wait, _branch, _promise, _outside, _misaligned)
    return declared + "\n".join([clocks_text(), orders_text(), *(function() for function in functions)])


def _piece() -> str:
    """`piece(page, new)`: the shadow of a page, with cells of this launch; null where there is none."""
    f = StateFunction("@piece", "ptr", ["i64 %page", "i64 %new"], "internal|noinline")
    key = f.add("%page", 1)
    slot = f.variable("i64", f.both(f.right(f.mul("%page", -7046029254386353131), 40), PIECES - 1))
    probes = f.variable("i64", 0)
    result = f.variable("ptr", NO_ADDRESS)
    going = f.variable("i1", "true")
    with f.while_(going.value):
        entry = f.element("pieces", slot.value(), 16)
        here = f.load("i64", entry)
        with f.when(f.compare("eq", here, key)):
            result.set(f.load("ptr", f.at(entry, 8)))
            going.set("false")
        with f.when(f.compare("eq", here, 0)):
            going.set("false")
            with f.when(f.compare("ne", "%new", 0)):
                free = f.pointer("free")
                behind = f.at(free, checking.SHADOW)
                with f.when(f.compare("ule", behind, f.pointer("limit"), "ptr")):
                    f.put("free", behind, "ptr")
                    f.store("i64", key, entry)
                    f.store("ptr", free, f.at(entry, 8))
                    result.set(free)
        slot.set(f.both(f.add(slot.value(), 1), PIECES - 1))
        probes.set(f.add(probes.value(), 1))
        with f.when(f.compare("eq", probes.value(), PIECES)):
            going.set("false")
    shadow = result.value()
    with f.when(f.compare("eq", shadow, NO_ADDRESS, "ptr")):
        with f.when(f.compare("ne", "%new", 0)):
            f.put("exhausted", 1)
        f.leave(NO_ADDRESS)
    launch = f.get("launch")
    with f.when(f.compare("ne", f.load("i64", shadow), launch)):
        f.store("i64", launch, shadow)
        f.zero(f.at(shadow, HEADER + PAGE), PAGE * CELL)
    f.leave(shadow)
    return f.text()


# *** what is found ***


def _find() -> str:
    """`find(found, entry, me, what, other_what, address)`: keeps what was found, and lets the call end."""
    names = ("found", "entry", "me", "what", "other_what", "address")
    f = StateFunction("@find", "void", [f"i64 %{name}" for name in names], "internal|cold noinline")

    def reported(name: str) -> str:
        return f.load("i64", f.at(f.field("finding"), offset(FindingRecord, name)))

    first = f.load("i64", f.field("finding"))
    with f.when(f.compare("ne", first, 0)):
        # A read of uninitialised memory is a race once another thread writes there: that is reported instead.
        kinds = f.both(f.compare("eq", first, Found.UNINITIALISED), f.compare("eq", "%found", Found.RACE), "i1")
        reader = f.compare("eq", reported("thread"), f.sub(f.right("%entry", THREAD_BIT), 1))
        read = f.compare("eq", reported("other_site"), f.both(f.right("%entry", _SITE), _SITES))
        with f.when(f.compare("eq", f.both(kinds, f.both(reader, read, "i1"), "i1"), 0, "i1")):
            f.leave()
    values = {
        "found": "%found",
        "site": f.both(f.right("%me", _SITE), _SITES),
        "other_site": f.both(f.right("%entry", _SITE), _SITES),
        "thread": f.sub(f.right("%me", THREAD_BIT), 1),
        "other_thread": f.sub(f.right("%entry", THREAD_BIT), 1),
        "what": "%what",
        "other_what": "%other_what",
        "address": "%address",
        "threads": f.get("threads"),
    }
    for name, value in values.items():
        f.store("i64", value, f.at(f.field("finding"), offset(FindingRecord, name)))
    status = f.pointer("status")
    with f.when(f.compare("ne", status, NO_ADDRESS, "ptr")):
        f.store("i64", abi.STOPPED, status)
    return f.text()


@contextmanager
def _pieces(f: StateFunction, *, new: bool) -> Iterator[tuple[str, str, str]]:
    """What is done with each part of `bytes` from `address` on that has its shadow in one piece: the piece, the first
    address, and how many bytes there are."""
    end = f.add("%address", "%bytes")
    at = f.variable("i64", "%address")
    with f.while_(lambda: f.compare("ult", at.value(), end)):
        now = at.value()
        behind = f.left(f.add(f.right(now, PAGE_BITS), 1), PAGE_BITS)
        last = f.select(f.compare("ult", behind, end), behind, end)
        piece = f.call("@piece", ["ptr %state", f"i64 {f.right(now, PAGE_BITS)}", f"i64 {int(new)}"], "ptr")
        with f.when(f.compare("ne", piece, NO_ADDRESS, "ptr")):
            yield piece, now, f.sub(last, now)
        at.set(last)


def _mark() -> str:
    f = exported("mark", ["i64 %address", "i64 %bytes", "i64 %flags"])
    with _pieces(f, new=True) as (piece, now, count):
        within = f.both(now, PAGE - 1)
        flags = f.at(piece, f.add(within, HEADER))
        value = f.narrow("%flags", "i8")
        f.call("@llvm.memset.p0.i64", [f"ptr {flags}", f"i8 {value}", f"i64 {count}", "i1 false"])
        cells = f.at(piece, f.add(f.mul(within, CELL), HEADER + PAGE))
        f.zero(cells, f.mul(count, CELL))
    f.put("page", -1)
    return f.text()


def _flags() -> str:
    f = exported("flags", ["i64 %address", "i64 %bytes", "ptr %to"])
    f.zero("%to", "%bytes")
    with _pieces(f, new=False) as (piece, now, count):
        to, flags = f.at("%to", f.sub(now, "%address")), f.at(piece, f.add(f.both(now, PAGE - 1), HEADER))
        f.call("@llvm.memcpy.p0.p0.i64", [f"ptr {to}", f"ptr {flags}", f"i64 {count}", "i1 false"])
    return f.text()


def _access() -> str:
    parameters = ["ptr %thread", "i64 %address", "i64 %bytes", "i64 %what", "i64 %site"]
    f = exported("access", parameters, "i64")
    with f.when(_is_over(f)):
        f.leave(0)
    uninitialised = f.variable("i64", 0)
    number = f.load("i64", f.at("%thread", offset(Thread, "number")))
    clock = f.call("@clock", ["ptr %state", f"i64 {number}"], "i64")
    global_number = f.add(f.get("first"), number)
    me = f.either(f.left(global_number, THREAD_BIT), f.left(clock, CLOCK_BIT))
    me = f.either(me, f.left("%site", _SITE))
    me = f.either(me, _kind(f))
    is_atomic = f.compare("ne", f.both("%what", What.ATOMIC), 0)
    _trace(f, global_number)
    with f.when(f.compare("eq", "%bytes", 0)):
        f.call("@fence", ["ptr %state", f"i64 {number}", "i64 %what"])
        f.leave(0)
    looks = f.get("looks_for")
    mine = f.both(f.right("%what", _HALVES), checking.HALVES)
    whole = f.compare("eq", mine, 0)
    reads = f.compare("ne", f.both("%what", What.READ), 0)
    writes = f.compare("ne", f.both("%what", What.WRITE), 0)
    with f.each("%address", f.add("%address", "%bytes")) as byte:
        page = f.right(byte, PAGE_BITS)
        with f.when(f.compare("ne", page, f.get("page"))):
            f.put("piece", f.call("@piece", ["ptr %state", f"i64 {page}", "i64 0"], "ptr"), "ptr")
            f.put("page", page)
        piece = f.pointer("piece")
        within = f.both(byte, PAGE - 1)
        with f.when(f.compare("eq", piece, NO_ADDRESS, "ptr")):
            with f.when(_wanted(f, looks, Check.BOUNDS)):
                _found(f, Found.OUTSIDE, 0, me, 0, byte)
            f.leave(0)
        flags_at = f.at(piece, f.add(within, HEADER))
        flags = f.wide(f.load("i8", flags_at), "i8")
        outside = f.compare("eq", f.both(flags, checking.ALLOCATED), 0)
        with f.when(outside):
            with f.when(_wanted(f, looks, Check.BOUNDS)):
                _found(f, Found.OUTSIDE, 0, me, 0, byte)
            f.leave(0)
        with f.when(f.compare("ne", f.both(flags, checking.PENDING), 0)):
            stored = f.load("i64", f.at(piece, f.add(f.mul(within, CELL), HEADER + PAGE + _STORE)))
            _found(f, Found.PENDING, stored, me, int(What.WRITE), byte)
            f.leave(0)
        with f.when(f.both(whole, _races_wanted(f, looks), "i1")):
            cell = f.at(piece, f.add(f.mul(within, CELL), HEADER + PAGE))
            _race(f, cell, number, me, is_atomic, reads, writes, byte)
        empty = f.compare("eq", f.both(flags, f.either(checking.INITIALISED, mine)), 0)
        unknown = f.both(f.both(empty, reads, "i1"), _wanted(f, looks, Check.UNINITIALISED), "i1")
        with f.when(unknown):
            uninitialised.set(f.add("%site", 1))
            with f.when(is_atomic):
                _found(f, Found.UNINITIALISED, 0, me, 0, byte)
                f.leave(0)
        with f.when(writes):
            f.store("i8", f.narrow(_stored(f, flags, mine, whole), "i8"), flags_at)
    with f.when(is_atomic):
        f.call("@order", ["ptr %state", f"i64 {number}", "i64 %address", "i64 %what"])
    f.leave(uninitialised.value())
    return f.text()


def _races_wanted(f: StateFunction, looks: str) -> str:
    """Whether races are looked for, in memory that is not for exchanges."""
    others = f.compare("eq", f.both("%what", What.EXCHANGE), 0)
    return f.both(others, _wanted(f, looks, Check.RACES), "i1")


def _kind(f: StateFunction) -> str:
    """The lowest bits of the entry of an access."""
    in_block = f.compare("ne", f.both("%what", What.IN_BLOCK), 0)
    return f.select(in_block, _OF_BLOCK, f.both(f.right("%what", 2), _KIND))


def _is_over(f: StateFunction) -> str:
    """Whether nothing more is reported: after an uninitialised read, its writer is."""
    first = f.load("i64", f.field("finding"))
    return f.both(f.compare("ne", first, 0), f.compare("ne", first, Found.UNINITIALISED), "i1")


def _stored(f: StateFunction, flags: str, mine: str, whole: str) -> str:
    """The flags of a byte that was stored, or of which a half was: the other half keeps what it has."""
    known = f.compare("eq", f.both("%what", What.UNKNOWN), 0)
    every = f.compare("ne", f.both(flags, checking.INITIALISED), 0)
    before = f.both(f.either(flags, f.select(every, checking.HALVES, 0)), checking.HALVES)
    other = f.both(before, f.value(f"xor i64 {mine}, -1"))
    halves = f.select(known, f.either(other, mine), other)
    both = f.compare("eq", halves, checking.HALVES)
    of_half = f.select(both, checking.INITIALISED, halves)
    return f.either(
        f.both(flags, checking.ALLOCATED), f.select(whole, f.select(known, checking.INITIALISED, 0), of_half)
    )


def _copied(f: StateFunction) -> tuple[str, str]:
    """Where the numbers of a thread's copies stand, and the ring of those under way."""
    number = f.load("i64", f.at("%thread", offset(Thread, "number")))
    return f.element("copied", number, 24), f.element("copies", number, 32 * COPIES)


def _set_pending(f: StateFunction, address: str, bytes: str, pending: bool) -> None:
    with f.each(address, f.add(address, bytes)) as byte:
        piece = f.call("@piece", ["ptr %state", f"i64 {f.right(byte, PAGE_BITS)}", "i64 0"], "ptr")
        with f.when(f.compare("ne", piece, NO_ADDRESS, "ptr")):
            at = f.at(piece, f.add(f.both(byte, PAGE - 1), HEADER))
            flags = f.load("i8", at)
            without = f.both(flags, ~checking.PENDING, "i8")
            f.store("i8", f.either(without, checking.PENDING, "i8") if pending else without, at)


def _copy() -> str:
    """A copy stores when it ends: until then its bytes are not initialised."""
    f = exported("copy", ["ptr %thread", "i64 %address", "i64 %bytes", "i64 %what", "i64 %site"], "i64")
    access = ["ptr %state", "ptr %thread", "i64 %address", "i64 %bytes", "i64 %what", "i64 %site"]
    f.call("@ek_check_access", access, "i64")
    with f.when(f.compare("eq", f.both(f.get("looks_for"), int(Check.COPIES)), 0)):
        f.leave(0)
    numbers, ring = _copied(f)
    ended, begun = f.load("i64", numbers), f.load("i64", f.at(numbers, 8))
    with f.when(f.compare("sge", f.sub(begun, ended), COPIES)):
        f.leave(0)  # more than are looked after
    with f.when(f.compare("ne", f.load("i64", f.field("finding")), 0)):
        f.leave(0)
    entry = f.at(ring, f.mul(f.both(begun, COPIES - 1), 32))
    values = ("%address", "%bytes", f.either(f.left("%site", 16), "%what"), f.load("i64", f.at(numbers, 16)))
    for k, value in enumerate(values):
        f.store("i64", value, f.at(entry, 8 * k))
    f.store("i64", f.add(begun, 1), f.at(numbers, 8))
    _set_pending(f, "%address", "%bytes", True)
    f.leave(0)
    g = exported("commit", ["ptr %thread"])
    numbers, _ = _copied(g)
    groups = g.at(numbers, 16)
    g.store("i64", g.add(g.load("i64", groups), 1), groups)
    return f.text() + g.text()


def _wait() -> str:
    f = exported("wait", ["ptr %thread", "i64 %pending"])
    numbers, ring = _copied(f)
    groups, begun = f.load("i64", f.at(numbers, 16)), f.load("i64", f.at(numbers, 8))
    every = f.compare("slt", "%pending", 0)
    below = f.select(every, (1 << 62), f.sub(groups, "%pending"))
    ended = f.variable("i64", 0)
    going = f.variable("i1", "true")
    ended.set(f.load("i64", numbers))

    def more() -> str:
        return f.both(f.compare("slt", ended.value(), begun), going.value(), "i1")

    with f.while_(more):
        entry = f.at(ring, f.mul(f.both(ended.value(), COPIES - 1), 32))
        address, bytes, reported, group = (f.load("i64", f.at(entry, 8 * k)) for k in range(4))
        over = f.compare("slt", group, below)
        going.set(over)
        with f.when(over):
            _set_pending(f, address, bytes, False)
            what, site = f.both(reported, (1 << 16) - 1), f.right(reported, 16)
            values = ["ptr %state", "ptr %thread", *(f"i64 {value}" for value in (address, bytes, what, site))]
            f.call("@ek_check_access", values, "i64")
            ended.set(f.add(ended.value(), 1))
    f.store("i64", ended.value(), numbers)
    return f.text()


def _use() -> str:
    f = exported("use", ["ptr %thread", "i64 %unknown", "i64 %site"])
    number = f.add(f.get("first"), f.load("i64", f.at("%thread", offset(Thread, "number"))))
    me = f.either(f.left(number, THREAD_BIT), f.left("%site", _SITE))
    entry = f.either(f.left(number, THREAD_BIT), f.left(f.sub("%unknown", 1), _SITE))
    values = [f"i64 {int(Found.UNINITIALISED)}", f"i64 {entry}", f"i64 {me}", "i64 0", f"i64 {int(What.READ)}", "i64 0"]
    f.call("@find", ["ptr %state", *values])
    return f.text()


def _branch() -> str:
    f = exported("branch", ["ptr %thread", "i64 %answer", "i64 %site"])
    note_row(f, (f.either(f.left("%site", 16), int(What.BRANCH)), _number(f), "%answer", 0))
    return f.text()


def _number(f: StateFunction) -> str:
    """1 + the number of a thread over all blocks."""
    return f.add(f.get("first"), f.load("i64", f.at("%thread", offset(Thread, "number"))))


def _outside() -> str:
    parameters = ["ptr %thread", "i64 %element", "i64 %count", "i64 %what", "i64 %site"]
    f = exported("outside", parameters)
    with f.when(_wanted(f, f.get("looks_for"), Check.BOUNDS)):
        me = f.either(f.left(_number(f), THREAD_BIT), f.left("%site", _SITE))
        _found(f, Found.OUTSIDE, 0, me, "%count", "%element")
    return f.text()


def _misaligned() -> str:
    parameters = ["ptr %thread", "i64 %address", "i64 %align", "i64 %what", "i64 %site"]
    f = exported("misaligned", parameters)
    with f.when(_wanted(f, f.get("looks_for"), Check.BOUNDS)):
        me = f.either(f.left(_number(f), THREAD_BIT), f.left("%site", _SITE))
        _found(f, Found.MISALIGNED, 0, me, "%align", "%address")
    return f.text()


def _promise() -> str:
    """The first thread of a scope leaves its value, under a number of what was promised; others compare theirs."""
    parameters = ["ptr %thread", "i64 %value", "i64 %key", "i64 %scope", "i64 %site"]
    f = exported("promise", parameters)
    with f.when(f.compare("eq", f.both(f.get("looks_for"), int(Check.PROMISES)), 0)):
        f.leave()
    size = checking.PROMISES * _PROMISE
    with f.when(f.compare("eq", f.pointer("promises"), NO_ADDRESS, "ptr")):
        f.put("promises", f.call("@take", ["ptr %state", f"i64 {size}"], "ptr"), "ptr")
        f.put("promised", 0)
    with f.when(f.compare("eq", f.pointer("promises"), NO_ADDRESS, "ptr")):
        f.leave()
    with f.when(f.compare("ugt", f.get("promised"), checking.PROMISES * 3 // 4)):
        f.zero(f.pointer("promises"), size)  # what was promised before is forgotten
        f.put("promised", 0)
    number = f.load("i64", f.at("%thread", offset(Thread, "number")))
    warp = f.add(f.left(f.get("first"), 16), f.right(number, f.get("warp_bits")))
    of_block = f.add(f.get("first"), f.divide(number, f.get("pitch")))
    of_block = f.select(f.compare("eq", "%scope", int(Scope.cluster)), f.get("first"), of_block)
    of_block = f.select(f.compare("eq", "%scope", int(Scope.warp)), f.either(warp, 1 << 62), of_block)
    where = f.select(f.compare("eq", "%scope", int(Scope.grid)), 0, of_block)
    mixed = f.mul(f.value(f"xor i64 {f.mul(where, _MIX)}, %key"), _MIX)
    mixed = f.mul(f.value(f"xor i64 {f.value(f'xor i64 {mixed}, {f.right(mixed, 29)}')}, %site"), _MIX)
    what = f.either(mixed, 1)
    me = f.either(f.left(_number(f), THREAD_BIT), f.left("%site", _SITE))
    slot = f.variable("i64", f.both(f.right(what, 40), checking.PROMISES - 1))
    going = f.variable("i1", "true")
    with f.while_(going.value):
        entry = f.element("promises", slot.value(), _PROMISE)
        here = f.load("i64", entry)
        with f.when(f.compare("eq", here, what)):
            other = f.load("i64", f.at(entry, 8))
            with f.when(f.compare("ne", other, "%value")):
                values = [f"i64 {int(Found.PROMISE)}", f"i64 {f.load('i64', f.at(entry, 16))}", f"i64 {me}"]
                f.call("@find", ["ptr %state", *values, "i64 %value", f"i64 {other}", "i64 0"])
            going.set("false")
        with f.when(f.compare("eq", here, 0)):
            for at, value in ((0, what), (8, "%value"), (16, me)):
                f.store("i64", value, f.at(entry, at))
            f.put("promised", f.add(f.get("promised"), 1))
            going.set("false")
        slot.set(f.both(f.add(slot.value(), 1), checking.PROMISES - 1))
    return f.text()


def _wanted(f: StateFunction, looks: str, check: Check) -> str:
    return f.compare("ne", f.both(looks, int(check)), 0)


def _found(f: StateFunction, found: Found, entry: Number, me: str, other_what: Number, byte: str) -> None:
    values = [f"i64 {int(found)}", f"i64 {entry}", f"i64 {me}", "i64 %what", f"i64 {other_what}", f"i64 {byte}"]
    f.call("@find", ["ptr %state", *values])


def _trace(f: StateFunction, thread: str) -> None:
    """Notes an access, where counters are wanted."""
    note_row(f, (f.either(f.left("%site", 16), "%what"), thread, "%address", "%bytes"))


def _race(f: StateFunction, cell: str, number: str, me: str, atomic: str, reads: str, writes: str, byte: str) -> None:
    """Compares an access with what is in the cell of a byte, and leaves itself there."""
    conflict = f.variable("i64", 0)
    conflict.set(0)
    other_what = f.variable("i64", 0)

    def entry(at: int) -> str:
        return f.load("i64", f.at(cell, at))

    def against(value: str, what: Number, wanted: str) -> None:
        with f.when(f.both(f.compare("ne", value, 0), wanted, "i1")):
            known = f.call("@happens_before", ["ptr %state", f"i64 {number}", f"i64 {value}"], "i1")
            unknown = f.value(f"xor i1 {known}, true")
            conflict.set(f.select(unknown, value, conflict.value()))
            other_what.set(f.select(unknown, what, other_what.value()))

    def apart(value: str) -> str:
        """Whether one of two atomic operations is for its cluster or its block alone, and the other of another one."""
        narrow = f.compare("ne", f.both(f.either(me, value), 2), 0)
        other = f.sub(f.right(value, THREAD_BIT), f.get("first"))
        far = f.both(narrow, f.compare("uge", other, f.get("threads")), "i1")
        of_block = [f.compare("eq", f.both(entry, _KIND), _OF_BLOCK) for entry in (me, value)]
        blocks = [f.divide(thread, f.get("pitch")) for thread in (number, other)]
        extra = f.both(f.either(of_block[0], of_block[1], "i1"), f.compare("ne", blocks[0], blocks[1]), "i1")
        return f.either(far, extra, "i1")

    stored, last, read, earlier = (entry(at) for at in (_STORE, _ATOMIC, _READ, _EARLIER))
    against(stored, int(What.WRITE), "true")
    plain = f.value(f"xor i1 {atomic}, true")
    against(last, int(What.WRITE | What.ATOMIC), plain)
    against(last, int(What.WRITE | What.ATOMIC), f.both(atomic, apart(last), "i1"))
    for value in (read, earlier):
        also_atomic = f.compare("ne", f.both(value, _KIND), 0)
        harmless = f.both(f.both(atomic, also_atomic, "i1"), f.value(f"xor i1 {apart(value)}, true"), "i1")
        what = f.select(also_atomic, int(What.READ | What.ATOMIC), int(What.READ))
        against(value, what, f.both(writes, f.value(f"xor i1 {harmless}, true"), "i1"))
    with f.when(f.compare("ne", conflict.value(), 0)):
        _found(f, Found.RACE, conflict.value(), me, other_what.value(), byte)
        f.leave(0)
    with f.when(f.both(writes, plain, "i1")):
        f.store("i64", me, f.at(cell, _STORE))
        for at in (_ATOMIC, _READ, _EARLIER):
            f.store("i64", 0, f.at(cell, at))
    with f.when(f.both(writes, atomic, "i1")):
        f.store("i64", me, f.at(cell, _ATOMIC))
    only = f.both(reads, f.value(f"xor i1 {writes}, true"), "i1")
    with f.when(only):
        other = f.compare("ne", f.right(read, THREAD_BIT), f.right(me, THREAD_BIT))
        with f.when(f.both(other, f.compare("ne", read, 0), "i1")):
            f.store("i64", read, f.at(cell, _EARLIER))
        f.store("i64", me, f.at(cell, _READ))
