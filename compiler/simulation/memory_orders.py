"""What atomic operations and fences teach threads of a launch, by their orders and scopes.

What is published at an address is kept for each scope: for all threads, for those of the cluster, and for those of the
block. An operation publishes to its own scope and the narrower ones, and learns what was published to these: so two
operations synchronise if the scope of each includes the thread of the other, one releases, and the other acquires. A
store that is not an update ends what was published before.

See also `simulation.clocks` (what barriers teach).
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract.checking import PLACES, What
from ..ir.llvm_text import NO_ADDRESS
from .clocks import FENCE, PLACE, StateFunction

_PLACES: Final = ("@place", "@place_of_cluster", "@place_of_block")  # from the widest scope to the narrowest
_MIX: Final = -7046029254386353131  # an odd number with bits everywhere


def orders_text() -> str:
    """The functions."""
    functions = (_place, _place_of_cluster, _place_of_block, _learn, _fence, _publish, _order)
    return "\n".join(function() for function in functions)


def _place() -> str:
    """`place(address, new)`: where the vector of a place stands that threads synchronise by; null if there is none."""
    f = StateFunction("@place", "ptr", ["i64 %address", "i64 %new"])
    slot = f.variable("i64", f.both(f.right(f.mul("%address", _MIX), 40), PLACES - 1))
    probes = f.variable("i64", 0)
    with f.while_(lambda: f.compare("slt", probes.value(), PLACES)):
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
        probes.set(f.add(probes.value(), 1))
    with f.when(f.compare("ne", "%new", 0)):
        f.put("exhausted", 1)
    f.leave(NO_ADDRESS)
    return f.text()


def _own_place(f: StateFunction, key: str) -> None:
    """Gives the place of a key that is of this cluster alone: what another one has left there is forgotten."""
    place = f.call("@place", ["ptr %state", f"i64 {key}", "i64 %new"], "ptr")
    with f.when(f.compare("eq", place, NO_ADDRESS, "ptr")):
        f.leave(NO_ADDRESS)
    of, first = f.at(place, 8), f.get("first")
    with f.when(f.compare("ne", f.load("i64", of), first)):
        f.store("i64", first, of)
        vector = f.load("ptr", place)
        with f.when(f.compare("ne", vector, NO_ADDRESS, "ptr")):
            f.zero(vector, f.mul(f.get("total"), 4))
    f.leave(place)


def _key_of_cluster(f: StateFunction) -> str:
    return f.either(f.either("%address", 1 << 62), f.left(f.get("resident"), 47))


def _place_of_cluster() -> str:
    """`place_of_cluster(number, address, new)`: as `place`, of what is published to this cluster alone."""
    f = StateFunction("@place_of_cluster", "ptr", ["i64 %number", "i64 %address", "i64 %new"])
    _own_place(f, _key_of_cluster(f))
    return f.text()


def _place_of_block() -> str:
    """`place_of_block(number, address, new)`: the same of the block of a thread."""
    f = StateFunction("@place_of_block", "ptr", ["i64 %number", "i64 %address", "i64 %new"])
    rank = f.add(f.divide("%number", f.get("pitch")), 1)
    _own_place(f, f.value(f"xor i64 {_key_of_cluster(f)}, {f.mul(rank, _MIX)}"))
    return f.text()


def _learn() -> str:
    """`learn(number, vector, low, high)`: a thread of the block acquires the clocks of these threads from a vector."""
    f = StateFunction("@learn", "void", ["i64 %number", "ptr %source", "i64 %low", "i64 %high"], "internal|noinline")
    informed = f.element("informed", "%number")
    vector = f.call("@vector", ["ptr %state", f"ptr {f.element('vectors', '%number')}"], "ptr")
    with f.when(f.compare("eq", f.load("i64", informed), 0)):
        with f.when(f.compare("ne", vector, NO_ADDRESS, "ptr")):
            f.zero(vector, f.mul(f.get("total"), 4))
        f.store("i64", 1, informed)
        f.put("informed_count", f.add(f.get("informed_count"), 1))
    f.call("@merge", ["ptr %state", f"ptr {vector}", "ptr %source", "i64 %low", "i64 %high"])
    return f.text()


def _scopes(f: StateFunction) -> list[str]:
    """For each kind of place whether an operation is for it; a cluster of one block has none of its own for that."""
    alone = f.compare("eq", f.get("threads"), f.get("pitch"))
    wide = f.compare("eq", f.both("%what", What.NARROW), 0)
    beyond_block = f.compare("eq", f.both("%what", What.IN_BLOCK), 0)
    return [wide, f.either(beyond_block, alone, "i1"), f.compare("eq", alone, "false", "i1")]


def _place_at(f: StateFunction, kind: int, *, new: bool) -> str:
    number = [] if kind == 0 else ["i64 %number"]
    return f.call(_PLACES[kind], ["ptr %state", *number, "i64 %address", f"i64 {int(new)}"], "ptr")


def _fence() -> str:
    """`fence(number, what)`: what was seen is learned, what was done may be published, to the scope of the fence."""
    f = StateFunction("@fence", "void", ["i64 %number", "i64 %what"], "internal|noinline")
    clock = f.call("@clock", ["ptr %state", "i64 %number"], "i64")
    scopes = _scopes(f)
    acquires = f.compare("ne", f.both("%what", What.ACQUIRE), 0)
    hints = f.element("pending", "%number", 8 * len(_PLACES))
    with f.when(f.both(acquires, f.compare("ne", f.load("i64", f.element("hinted", "%number")), 0), "i1")):
        for kind, meant in enumerate(scopes):
            with f.when(meant):
                source = f.load("ptr", f.at(hints, 8 * kind))
                f.call("@learn", ["ptr %state", "i64 %number", f"ptr {source}", "i64 0", f"i64 {f.get('total')}"])
    with f.when(f.compare("ne", f.both("%what", What.RELEASE), 0)):
        synced = f.load("i64", f.element("warp_base", f.right("%number", f.get("warp_bits"))))
        own = f.element("fences", "%number", len(_PLACES) * FENCE)
        for kind, meant in enumerate(scopes):
            with f.when(meant):
                for k, value in enumerate((f.add(clock, 1), f.get("base"), synced)):
                    f.store("i64", value, f.at(own, FENCE * kind + 8 * k))
        _tick(f)
    return f.text()


def _tick(f: StateFunction) -> None:
    later = f.add(f.get("clock"), 1)
    f.put("clock", later)
    f.store("i64", later, f.element("own", "%number"))


def _order() -> str:
    """`order(number, address, what)`: what an atomic operation publishes and learns."""
    f = StateFunction("@order", "void", ["i64 %number", "i64 %address", "i64 %what"], "internal|noinline")
    releases = f.compare("ne", f.both("%what", What.RELEASE), 0)
    reads = f.compare("ne", f.both("%what", What.READ), 0)
    scopes = _scopes(f)
    with f.when(reads):
        for kind, meant in enumerate(scopes):
            with f.when(meant):
                _read(f, kind)
    with f.when(f.compare("ne", f.both("%what", What.WRITE), 0)):
        with f.when(f.compare("eq", reads, "false", "i1")):
            for kind, meant in enumerate(scopes):
                with f.when(meant):
                    _forget(f, kind)
        _publish_all(f, releases, scopes)
        with f.when(releases):
            _tick(f)
    return f.text()


def _read(f: StateFunction, kind: int) -> None:
    """Learns what was published in a place, or keeps it for a fence that follows."""
    total = f.get("total")
    hints, hinted = f.element("pending", "%number", 8 * len(_PLACES)), f.element("hinted", "%number")
    acquires = f.compare("ne", f.both("%what", What.ACQUIRE), 0)
    place = _place_at(f, kind, new=False)
    with f.when(f.compare("ne", place, NO_ADDRESS, "ptr")):
        there = f.load("ptr", place)
        with f.when(f.compare("ne", there, NO_ADDRESS, "ptr")):
            with f.when(acquires):
                f.call("@learn", ["ptr %state", "i64 %number", f"ptr {there}", "i64 0", f"i64 {total}"])
            with f.when(f.compare("eq", f.load("i64", hinted), 0)):
                f.store("i64", 1, hinted)
                for each in range(len(_PLACES)):
                    old = f.load("ptr", f.at(hints, 8 * each))
                    with f.when(f.compare("ne", old, NO_ADDRESS, "ptr")):
                        f.zero(old, f.mul(total, 4))
            hint = f.call("@vector", ["ptr %state", f"ptr {f.at(hints, 8 * kind)}"], "ptr")
            f.call("@merge", ["ptr %state", f"ptr {hint}", f"ptr {there}", "i64 0", f"i64 {total}"])


def _forget(f: StateFunction, kind: int) -> None:
    """Ends what was published in a place."""
    place = _place_at(f, kind, new=False)
    with f.when(f.compare("ne", place, NO_ADDRESS, "ptr")):
        vector = f.load("ptr", place)
        with f.when(f.compare("ne", vector, NO_ADDRESS, "ptr")):
            f.zero(vector, f.mul(f.get("total"), 4))


def _publish_all(f: StateFunction, releases: str, scopes: list[str]) -> None:
    """What a store publishes: the clocks of the thread, if it releases, or those that it had at a fence."""
    own = f.element("fences", "%number", len(_PLACES) * FENCE)
    clock = f.add(f.call("@clock", ["ptr %state", "i64 %number"], "i64"), 1)
    synced = f.load("i64", f.element("warp_base", f.right("%number", f.get("warp_bits"))))
    now_known = (clock, f.get("base"), synced)
    for kind, meant in enumerate(scopes):
        fence = [f.load("i64", f.at(own, FENCE * kind + 8 * k)) for k in range(3)]
        fenced = f.compare("ne", fence[0], 0)
        with f.when(f.both(meant, f.either(releases, fenced, "i1"), "i1")):
            place = _place_at(f, kind, new=True)
            with f.when(f.compare("ne", place, NO_ADDRESS, "ptr")):
                known = [f.select(releases, now, then) for now, then in zip(now_known, fence, strict=True)]
                values = ", ".join(f"i64 {value}" for value in known)
                f.call("@publish", ["ptr %state", "i64 %number", f"ptr {place}", values])


def _publish() -> str:
    """`publish(number, place, clock, base, synced)`: raises the vector of a place to the clocks of a thread."""
    parameters = ["i64 %number", "ptr %place", "i64 %clock", "i64 %base", "i64 %synced"]
    f = StateFunction("@publish", "void", parameters, "internal|noinline")
    start = f.sub(f.get("first"), 1)
    informed, own = f.element("informed", "%number"), f.element("vectors", "%number")
    vector = f.call("@vector", ["ptr %state", "ptr %place"], "ptr")
    total = f.get("total")

    def merge(source: str) -> None:
        f.call("@merge", ["ptr %state", f"ptr {vector}", f"ptr {source}", "i64 0", f"i64 {total}"])

    with f.each(0, f.get("threads")) as k:
        f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", "i64 %base"])
        with f.when(f.compare("ne", f.get("any_known"), 0)):
            row = f.mul("%number", f.get("threads"))
            known = f.wide(f.load("i32", f.element("known", f.add(row, k), 4)), "i32")
            f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", f"i64 {known}"])
        bits = f.get("warp_bits")
        with f.when(f.compare("eq", f.right(k, bits), f.right("%number", bits))):
            f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, k)}", "i64 %synced"])
    f.call("@raise", ["ptr %state", f"ptr {vector}", f"i64 {f.add(start, '%number')}", "i64 %clock"])
    with f.when(f.compare("ne", f.load("i64", informed), 0)):
        merge(f.load("ptr", own))
    with f.when(f.compare("ne", f.get("shared_informed"), 0)):
        merge(f.pointer("shared_vector"))
    return f.text()
