"""What atomic operations and fences teach threads of a launch, by their orders and scopes.

Output: functions of LLVM IR for `codegen.shadow_memory`. Non-goals: what barriers teach (see `codegen.clocks`).
"""

from __future__ import annotations

from ...dsl.contract.checking import PLACES, What
from .clocks import FENCE, PLACE, StateFunction
from .ir_text import NO_ADDRESS, Number


def orders_text() -> str:
    """The functions."""
    functions = (_place, _place_of_block, _learn, _fence, _publish, _order)
    return "\n".join(function() for function in functions)


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
