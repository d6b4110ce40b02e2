"""Evaluates branches: `if`, `x if c else y`, and what follows a statement that may have left.

A run-time `if` becomes an operation with one result for each number that its arms leave in a variable. What the arms
cannot agree on is `Undefined` after it, and the error on use explains why. An arm that has left the function
leaves nothing: then the other arm's values hold.

Registers the handlers of `If`, `Rest` and `Conditional`. See `inference.evaluator` for what calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.errors import CompileError
from ....dsl.diagnostics.places import is_shipped
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, SIMDType
from ...ir.opcodes import CONST
from ...ir.program import Region, Value
from ..accumulators import marked
from ..conditions import decision, joint_type, open_kind, select, splice
from ..conversion import DEFAULTS, coerce, weak_kind, widest_kind
from ..evaluator import Point, expression, statement
from ..recovery import Cascade, Undecided
from ..tiles.layouts import conforming
from ..values.aggregates import PLAIN, is_number, is_static, nothing, parts_of, same_constant, same_kind, with_parts
from ..values.compile_time import Poisoned, Undefined, is_comptime_number, is_poisoned
from ..values.describe import describe
from ..values.flow import ABSENT, NEXT, Absent, Flow, NeverReturns, Rest, is_pure
from ..values.tiles import TileProduct, TileValue
from ..widening import may_widen
from .statements import undefined


@dataclass
class Arm:
    """One arm of a branch: its operations, how it ended, and its variables at the end."""

    region: Region
    flow: Flow
    env: dict[str, Any]


@statement(s.If)
def if_(here: Point, node: s.If) -> Flow:
    end = here.frame.end
    try:
        test = decision(here.on(node.test))
    except Cascade:
        if here.evaluator.folding or not here.evaluator.errors or is_shipped(here.frame.file):
            raise
        raise Undecided from None
    if not isinstance(test, Value):
        return here.block(node.then if test else node.otherwise, end)

    def arm(body: tuple[s.Stmt, ...]) -> Callable[[], Flow]:
        return lambda: here.block(body, end)

    return branch(here, test, [arm(node.then), arm(node.otherwise)], end)


@statement(Rest)
def rest(here: Point, node: Rest) -> Flow:
    """The statements after one that may have left: they are run where it did not."""
    end = here.frame.end
    return unless_left(here, node.flow, lambda: here.block(node.statements, end), end)


def unless_left(here: Point, flow: Flow, body: Callable[[], Flow], end: str) -> Flow:
    """What comes after a flow: `body`, where it goes on."""
    if flow.kinds == NEXT.kinds or not flow.goes_on():
        return body() if flow.goes_on() else flow
    here.locate()
    left = [flow.flag(kind) for kind in flow.leaving()]
    test = left[0]
    for flag in left[1:]:
        test = here.builder.row("or_", [test, flag])
    gone = Flow(flow.kinds - {"next"}, flow.value, flow.flags)
    return branch(here, test, [lambda: gone, body], end)


def branch(here: Point, test: Value, bodies: list[Callable[[], Flow]], end: str) -> Flow:
    """Two bodies, of which one runs; `end` is what comes after the branch."""
    before, origins = dict(here.frame.env), dict(here.frame.origins)
    known = dict(origins)
    arms: list[Arm] = []
    launched = here.evaluator.launched
    given = frozenset() if launched is None else launched.given_away
    given_by_arms = given
    for body in bodies:
        here.frame.env, here.frame.origins = dict(before), dict(origins)
        region = Region()
        with here.builder.inside(region):
            here.evaluator.ranges.assume(test, body is bodies[0])
            flow = body()
        arms.append(Arm(region, flow, here.frame.env))
        if launched is not None:  # what an arm gives to a product, the other one may read
            given_by_arms |= launched.given_away
            launched.given_away = given
        known = {**here.frame.origins, **known}
    here.frame.env, here.frame.origins = before, known
    if launched is not None:
        launched.given_away = given_by_arms
    here.locate()
    return _join(here, test, arms, end)


def _join(here: Point, test: Value, arms: list[Arm], end: str) -> Flow:
    if end == "loop":
        for arm in arms:
            arm.flow = arm.flow.catch("continue")
    kinds = arms[0].flow.kinds | arms[1].flow.kinds
    if end == "function" and {"next", "return"} <= kinds:
        _end_of_function(here, arms)
        kinds = arms[0].flow.kinds | arms[1].flow.kinds
    joint = Joint(here.on(here.node), test, (arms[0].region, arms[1].region))
    values = [arm.flow.value for arm in arms]
    if any(isinstance(value, Poisoned) for value in values):
        raise Cascade
    value = joint.merge("", values[0], values[1])
    if isinstance(value, Undefined):
        raise value.error(here.frame.place(here.node))
    flags = {}
    if len(kinds) > 1:
        flags = {k: joint.flag(arms[0].flow.flag(k), arms[1].flow.flag(k)) for k in sorted(kinds - {"next"})}
    # Where no path continues, the variables stay as they were: for a branch around this one they are not another value.
    merged = _merged_variables(joint, arms) if kinds - {"return"} else {}
    results = joint.close()
    here.frame.env |= {name: joint.resolve(v, results) for name, v in merged.items()}
    if here.evaluator.level == "device":
        names = ((name, here.frame.env[name]) for name in merged)
        here.builder.names.update({v.serial: name for name, v in names if isinstance(v, Value) and v in results})
    if kinds == NEXT.kinds:
        return NEXT
    return Flow(kinds, joint.resolve(value, results), {k: joint.resolve(f, results) for k, f in flags.items()})


def _end_of_function(here: Point, arms: list[Arm]) -> None:
    """At the end of a function, `return` and running off the end are the same."""
    if all(arm.flow.value is None or arm.flow.value is ABSENT for arm in arms):
        for arm in arms:
            arm.flow = Flow(arm.flow.kinds & {"next"}) if arm.flow.kinds <= {"next"} else NEXT
        return
    hint = "return a value at the end of the function, too"
    raise here.error("EK0109", "one branch returns a value, the other ends without one", hint=hint)


def _merged_variables(joint: Joint, arms: list[Arm]) -> dict[str, Any]:
    """The variables after a branch. An arm that has left the function has no say."""
    gone = [not arm.flow.kinds - {"return"} for arm in arms]
    merged: dict[str, object] = {}
    for name in {**arms[0].env, **arms[1].env}:
        results = [arm.env.get(name, _MISSING) for arm in arms]
        for k in (0, 1):
            if gone[k]:
                results[k] = _absent_like(results[1 - k], results[k])
        merged[name] = joint.merge(name, results[0], results[1])
    return merged


def _absent_like(stays: object, gone: object) -> Any:
    """The value of a variable in an arm that never falls through: nothing, but for parts that both arms share."""
    if stays is gone:
        return gone
    if not same_kind(stays, gone):
        return ABSENT
    pairs = enumerate(zip(parts_of(stays) or (), parts_of(gone) or (), strict=True))
    return with_parts(stays, tuple(a if is_static(stays, k) else _absent_like(a, b) for k, (a, b) in pairs))


def _is_narrower(a: object, b: object) -> bool:
    """Whether the type of b holds all numbers of that of a; a number without a type yet has none."""
    return isinstance(b, Value) and b.weak is None and may_widen(a, b.type)


class _Missing:
    pass


_MISSING = _Missing()


@dataclass(frozen=True)
class _ResultSlot:
    """The number of a result of the operation that is being closed."""

    number: int


class Joint:
    """Collects what two arms leave behind and closes them into one `if` operation."""

    def __init__(self, here: Point, test: Value, regions: tuple[Region, Region]) -> None:
        self.here = here
        self.test = test
        self.regions = regions
        self.pairs: list[tuple[Value, Value]] = []
        self.weak: list[str | None] = []

    def merge(self, name: str, a: Any, b: Any) -> Any:
        """One value for two: itself when equal, a result slot when both are numbers, else Undefined."""
        if same_constant(a, b):
            return a
        if isinstance(a, Poisoned) or isinstance(b, Poisoned):
            return Poisoned()
        if isinstance(a, Absent) or isinstance(b, Absent):
            return self.only(name, a if isinstance(b, Absent) else b, isinstance(b, Absent))
        if isinstance(a, _Missing) or isinstance(b, _Missing):
            return self.undefined(name)
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            return a if isinstance(a, Undefined) else b
        if isinstance(a, TileValue | TileProduct):
            with self.here.builder.inside(self.regions[1]):
                b = conforming(self.here, b, a)
        if same_kind(a, b):
            return self.merge_parts(name, a, b)
        if not (is_number(a) and is_number(b)):
            return self.differs(name, a, b)
        kinds = (weak_kind(a), weak_kind(b))
        if kinds[0] is not None and kinds[1] is not None:
            common = DEFAULTS[widest_kind(kinds)]
        else:
            common = (b if kinds[0] is not None or _is_narrower(a, b) else a).type
        try:
            values = [self.within(k, value, common) for k, value in enumerate((a, b))]
        except CompileError:
            return self.differs(name, a, b)
        return self.slot(values[0], values[1], open_kind(a, b))

    def merge_parts(self, name: str, a: object, b: object) -> Any:
        """Two tuples of one length, or two of the same struct, part by part."""
        parts = []
        for number, (x, y) in enumerate(zip(parts_of(a) or (), parts_of(b) or (), strict=True)):
            if is_static(a, number) and not same_constant(x, y):
                return self.differs(name, x, y)
            part = self.merge(name, x, y)
            if isinstance(part, Undefined | Poisoned):
                return part
            parts.append(part)
        return with_parts(a, tuple(parts))

    def only(self, name: str, value: object, first: bool) -> Any:
        """The value of the one arm that continues; the value of the other is not read."""
        parts = parts_of(value)
        if parts is not None:
            results = tuple(self.only(name, part, first) for part in parts)
            return next((p for p in results if isinstance(p, Undefined | Poisoned)), with_parts(value, results))
        if isinstance(value, Value):
            with self.here.builder.inside(self.regions[1 if first else 0]):
                filler = nothing(self.here.builder, value.type)
            return self.slot(*((value, filler) if first else (filler, value)), value.weak)
        if isinstance(value, (*PLAIN, Undefined, Poisoned)) or is_comptime_number(value):
            return value
        return self.undefined(name, value)

    def within(self, arm: int, value: object, type: SIMDType) -> Value:
        """A value as an arm yields it."""
        with self.here.builder.inside(self.regions[arm]):
            return coerce(self.here, value, type)

    def slot(self, a: Value, b: Value, weak: str | None) -> _ResultSlot:
        self.pairs.append((a, b))
        self.weak.append(weak)
        return _ResultSlot(len(self.pairs) - 1)

    def flag(self, a: object, b: object) -> Any:
        """Whether the arm that ran left in some way."""
        if a is b:
            return a
        if a is True and b is False:
            return self.test
        return self.slot(self.within(0, a, BOOL), self.within(1, b, BOOL), None)

    def undefined(self, name: str, value: object = None) -> Undefined:
        text = (
            f"'{name}' has a value in one branch only" if name else f"{describe(value)} is returned in one branch only"
        )
        hint = f"assign '{name}' before the `if`, or in both branches" if name else "choose it at compile time"
        return undefined(self.here, "EK0214", lambda: text, hint, "the branches are")

    def differs(self, name: str, a: object, b: object) -> Undefined:
        def text() -> str:
            what = f"'{name}'" if name else "the returned value"
            return f"{what} is {describe(a)} in one branch and {describe(b)} in the other"

        numbers = isinstance(a, Value) and isinstance(b, Value)
        hint = "cast one of them, or use two names" if numbers else "use two names"
        where = "the branches are" if name else ""
        return undefined(self.here, "EK0203", text, hint, where)

    def close(self) -> list[Value]:
        """Ends both arms with their values and appends the operation."""
        builder = self.here.builder
        if not self.pairs and not any(op.opcode is not CONST for region in self.regions for op in region.ops):
            return []  # both arms are empty
        for number, region in enumerate(self.regions):
            with builder.inside(region):
                builder.end([pair[number] for pair in self.pairs])
        types = [pair[0].type for pair in self.pairs]
        attrs = {"rare": True} if self.test.serial in self.here.evaluator.rare else {}
        results = builder.add("if", [self.test], types, self.regions, **attrs)
        for result, weak, pair in zip(results, self.weak, self.pairs, strict=True):
            result.weak = weak
            marked(result, pair)
        return results

    def resolve(self, value: object, results: list[Value]) -> Any:
        """A merged value with result slots filled in; itself where none is in it: branches around compare by it."""
        if isinstance(value, _ResultSlot):
            return results[value.number]
        parts = parts_of(value)
        if parts is not None:
            collected = tuple(self.resolve(part, results) for part in parts)
            if any(new is not old for new, old in zip(collected, parts, strict=True)):
                return with_parts(value, collected)
        return value


# *** x if c else y ***


@expression(s.Conditional)
def conditional(here: Point, node: s.Conditional) -> Any:
    test = decision(here.on(node.test))
    if not isinstance(test, Value):
        return here.expr(node.then if test else node.otherwise)
    regions = (Region(), Region())
    values = []
    for region, side in zip(regions, (node.then, node.otherwise), strict=True):
        with here.builder.inside(region):
            here.evaluator.ranges.assume(test, side is node.then)
            try:
                values.append(here.expr_or_poison(side))
            except NeverReturns:
                values.append(ABSENT)
    if is_poisoned(values):
        raise Cascade
    here.locate()
    nodes = (node.then, node.otherwise)
    if all(is_pure(region) for region in regions):
        for region in regions:
            splice(here.evaluator, region)
        return select(here, test, values[0], values[1], nodes)
    if is_number(values[0]) and is_number(values[1]):
        joint_type(here, "if/else", values[0], values[1], nodes)  # says what is wrong
    joint = Joint(here.on(node), test, regions)
    value = joint.merge("", values[0], values[1])
    if isinstance(value, Undefined):
        raise here.error("EK0202", f"a value cannot be {describe(values[0])} or else {describe(values[1])}")
    result = joint.resolve(value, joint.close())
    if result is ABSENT:
        raise NeverReturns
    return result
