"""What each kind of statement does, and how variables pass through branches and loops.

A run-time `if` becomes an operation with one result for each number that its arms leave in a variable; a run-time loop
carries every number that its body assigns and that existed before. A compile-time number that a loop changes takes
the type that it meets: the body is evaluated once for the types alone (`_trial`), then for good.

Registers a handler for every statement node of `dsl.syntax`. See `infer` for the frame around it.
"""

from __future__ import annotations

from typing import Any

from ..dsl import syntax as s
from ..dsl.errors import CompileError
from ..dsl.source import Place
from ..dsl.types import BOOL, INT, SIMDType
from .attributes import store_into, subscript, to_index
from .coerce import DEFAULTS, binary, coerce, misfit, weak_kind
from .expressions import items, open_kind, snapshot, truth
from .infer import MAX_UNROLL, NEXT, Call, Flow, Inferer, TooMany, statement
from .program import Region, Site, Value
from .tensors import Tensor
from .values import (
    Cascade,
    Closure,
    FormattedValue,
    Frame,
    Index,
    LoopRange,
    Poisoned,
    Undefined,
    Unrolled,
    describe,
    is_comptime_number,
    plural,
)

GO_ON = "$go_on"  # the variable that `break` clears; no author can name it


@statement(s.Assign)
def assign(inferer: Inferer, node: s.Assign, frame: Frame) -> None:
    value = inferer.expr(node.value, frame)
    if node.annotation is not None:
        value = inferer.annotated(node.annotation, value, frame, node.value, frame, "this variable is declared as")
    bind(inferer, node.target, value, node.value, frame)


def bind(inferer: Inferer, target: s.Expr, value: Any, source: s.Expr, frame: Frame) -> None:
    """Gives a name, an element or a tuple of these its value."""
    match target:
        case s.Name(id=name):
            check_same_type(inferer, name, value, target, frame)
            frame.env[name] = value
            frame.origins[name] = frame.place(target)
        case s.Tuple(items=targets):
            values = items(inferer, value, source, frame)
            if len(values) != len(targets):
                text = f"{plural(len(targets), 'name')} cannot take {plural(len(values), 'value')}"
                raise inferer.error("EK0208", text, target, frame)
            for part, item in zip(targets, values, strict=True):
                bind(inferer, part, item, source, frame)
        case s.Subscript():
            owner = inferer.expr(target.value, frame)
            index = inferer.expr(target.index, frame)
            inferer.locate(target, frame)
            call = Call(inferer, target, frame)
            call.nodes |= {"value": source, "target": target, "index": target.index}
            if not isinstance(owner, Tensor):
                call.node = target.value
                hint = "use stack[T](n) for storage that changes" if isinstance(owner, tuple) else None
                raise call.error("EK0207", f"{describe(owner)} has no elements to store into", hint=hint)
            parts = index if isinstance(index, tuple) else (index,)
            if any(isinstance(p, slice) for p in parts):
                raise call.error("EK0207", "a slice cannot be stored to", hint="store element by element")
            store_into(call, owner, to_index(call, owner, index), value)


def check_same_type(inferer: Inferer, name: str, value: Any, target: s.Expr, frame: Frame) -> None:
    """A variable keeps the type of its first run-time value."""
    old = frame.env.get(name)
    if not (isinstance(old, Value) and isinstance(value, Value)) or old.weak or value.weak:
        return
    if old.type != value.type:
        first = frame.origins.get(name)
        raise inferer.error(
            "EK0203",
            f"'{name}' is {old.type} and cannot become {value.type}",
            target,
            frame,
            notes=[f"'{name}' got its type at {first}"] if first else [],
            expected=str(old.type),
            got=str(value.type),
            hint=f"cast the value to {old.type.dtype}, or use another name",
        )


@statement(s.AugAssign)
def aug_assign(inferer: Inferer, node: s.AugAssign, frame: Frame) -> None:
    if isinstance(node.target, s.Subscript):
        owner = inferer.expr(node.target.value, frame)
        index = inferer.expr(node.target.index, frame)
        old = subscript(inferer, owner, index, node.target, frame)
        value = inferer.expr(node.value, frame)
        new = binary(inferer, node.op, old, value, (node.target, node.value), node, frame)
        call = Call(inferer, node.target, frame)
        call.nodes |= {"value": node.value, "target": node.target, "index": node.target.index}
        if not isinstance(owner, Tensor):
            raise call.error("EK0207", f"{describe(owner)} has no elements to store into")
        store_into(call, owner, to_index(call, owner, index), new)
        return
    assert isinstance(node.target, s.Name)
    old = inferer.expr(node.target, frame)
    value = inferer.expr(node.value, frame)
    new = binary(inferer, node.op, old, value, (node.target, node.value), node, frame)
    check_same_type(inferer, node.target.id, new, node.target, frame)
    frame.env[node.target.id] = new
    frame.origins.setdefault(node.target.id, frame.place(node.target))


@statement(s.Expression)
def expression_statement(inferer: Inferer, node: s.Expression, frame: Frame) -> None:
    inferer.expr(node.value, frame)


@statement(s.Function)
def function(inferer: Inferer, node: s.Function, frame: Frame) -> None:
    home = snapshot(frame)
    closure = Closure(node, home)
    home.env[node.name] = closure  # so that recursion is seen as such
    frame.env[node.name] = closure


@statement(s.Return)
def return_(inferer: Inferer, node: s.Return, frame: Frame) -> Flow:
    return Flow("return", None if node.value is None else inferer.expr(node.value, frame))


@statement(s.Break)
def break_(inferer: Inferer, node: s.Break, frame: Frame) -> Flow:
    if GO_ON in frame.env:
        frame.env[GO_ON] = inferer.builder.const(False, BOOL)
        return Flow("continue")
    return Flow("break")


@statement(s.Continue)
def continue_(inferer: Inferer, node: s.Continue, frame: Frame) -> Flow:
    return Flow("continue")


@statement(s.Assert)
def assert_(inferer: Inferer, node: s.Assert, frame: Frame) -> None:
    condition = truth(inferer, inferer.expr(node.test, frame), node.test, frame)
    inferer.locate(node, frame)
    if not isinstance(condition, Value):
        if condition:
            return
        condition = inferer.builder.const(False, BOOL)
    emit_site(inferer, "assert", [condition], node.message, node, frame)


@statement(s.Raise)
def raise_(inferer: Inferer, node: s.Raise, frame: Frame) -> None:
    inferer.locate(node, frame)
    emit_site(inferer, node.kind, [inferer.builder.const(False, BOOL)], node.message, node, frame)


def emit_site(
    inferer: Inferer, kind: str, condition: list[Value], message: s.Expr | None, node: s.Node, frame: Frame
) -> None:
    """An operation that reports to Python, with the parts of its message."""
    parts = [] if message is None else [(inferer.expr(message, frame), "")]
    report(inferer, kind, condition, parts, node, frame)


def report(
    inferer: Inferer, kind: str, condition: list[Value], parts: list[tuple[Any, str]], node: s.Node, frame: Frame
) -> None:
    """Adds the site and the operation that reaches it; `parts` are values with their formats."""
    shown: list[str | tuple[str, str]] = []
    values: list[Value] = []

    def add(value: Any, spec: str) -> None:
        if isinstance(value, FormattedValue):
            for part, part_spec in value.parts:
                add(part, part_spec)
            return
        if isinstance(value, Index):
            value = value.components(inferer.builder)
        if isinstance(value, Value):
            if value.weak is not None:
                value = coerce(inferer, value, DEFAULTS[value.weak], node, frame)
            assert isinstance(value.type, SIMDType)
            for lane_number in range(value.type.width):
                if value.type.width > 1:
                    shown.append("[" if lane_number == 0 else ", ")
                    one = inferer.builder.one("extract", [value], SIMDType(value.dtype), lane=lane_number)
                else:
                    one = value
                shown.append((spec, one.dtype.name))
                values.append(one)
            if value.type.width > 1:
                shown.append("]")
        elif isinstance(value, tuple):
            shown.append("(")
            for number, item in enumerate(value):
                if number:
                    shown.append(", ")
                add(item, spec)
            shown.append(")")
        elif isinstance(value, bool | int | float | str) or value is None:
            shown.append(format(value, spec) if spec else str(value))
        else:
            shown.append(describe(value))

    for value, spec in parts:
        add(value, spec)
    name = "print" if kind == "print" else "assert"
    inferer.sites.append(Site(kind, tuple(shown), frame.place(node), inferer.op))
    inferer.builder.add(name, [*condition, *values], site=len(inferer.sites) - 1)


# *** branches ***


@statement(s.If)
def if_(inferer: Inferer, node: s.If, frame: Frame) -> Flow:
    test = truth(inferer, inferer.expr(node.test, frame), node.test, frame)
    if not isinstance(test, Value):
        return inferer.block(node.then if test else node.otherwise, frame)
    before = dict(frame.env)
    origins = dict(frame.origins)
    arms: list[tuple[Region, Flow, dict[str, Any]]] = []
    for body in (node.then, node.otherwise):
        frame.env = dict(before)
        frame.origins = dict(origins)
        region = Region()
        with inferer.builder.inside(region):
            flow = inferer.block(body, frame)
        arms.append((region, flow, frame.env))
        origins |= {k: v for k, v in frame.origins.items() if k not in origins}
    frame.env = before
    frame.origins = origins
    inferer.locate(node, frame)
    return _join(inferer, node, frame, test, arms)


def _join(
    inferer: Inferer, node: s.If, frame: Frame, test: Value, arms: list[tuple[Region, Flow, dict[str, Any]]]
) -> Flow:
    (then, then_flow, then_env), (other, other_flow, other_env) = arms
    kinds = {then_flow.kind, other_flow.kind}
    if kinds == {"next", "return"} and {then_flow.value, other_flow.value} <= {None}:
        kinds = {"return"}
    if kinds == {"next", "continue"}:
        kinds = {"continue"}
    if "break" in kinds:
        raise inferer.error("EK0109", "a run-time condition cannot end an unrolled loop", node, frame)
    if len(kinds) > 1:
        hint = "return a value at the end of the function, too"
        raise inferer.error("EK0109", "one branch returns a value, the other ends without one", node, frame, hint=hint)
    joint = Joint(inferer, node, frame, (then, other))
    kind = kinds.pop()
    if kind == "return":
        if isinstance(then_flow.value, Poisoned) or isinstance(other_flow.value, Poisoned):
            raise Cascade
        value = joint.merge("", then_flow.value, other_flow.value)
        if isinstance(value, Undefined):
            raise value.error(frame.place(node))
        results = joint.close(test)
        return Flow("return", joint.resolve(value, results))
    merged: dict[str, Any] = {}
    for name in {**then_env, **other_env}:
        a, b = then_env.get(name, _MISSING), other_env.get(name, _MISSING)
        merged[name] = joint.merge(name, a, b)
    results = joint.close(test)
    frame.env = {name: joint.resolve(value, results) for name, value in merged.items()}
    return Flow(kind) if kind != "next" else NEXT


class _Missing:
    pass


_MISSING = _Missing()


class _Slot:
    """The number of a result of the operation that is being closed."""

    def __init__(self, number: int) -> None:
        self.number = number


class Joint:
    """Collects what two arms leave behind and closes them into one `if` operation."""

    def __init__(self, inferer: Inferer, node: s.Node, frame: Frame, regions: tuple[Region, Region]) -> None:
        self.inferer = inferer
        self.node = node
        self.frame = frame
        self.regions = regions
        self.pairs: list[tuple[Value, Value]] = []
        self.weak: list[str | None] = []

    def merge(self, name: str, a: Any, b: Any) -> Any:
        """One value for two: itself when equal, a result slot when both are numbers, else Undefined."""
        if a is b or (type(a) is type(b) and not isinstance(a, Value | tuple) and _equal(a, b)):
            return a
        if isinstance(a, Poisoned) or isinstance(b, Poisoned):
            return Poisoned()
        if isinstance(a, _Missing) or isinstance(b, _Missing):
            return self.undefined(name)
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            return a if isinstance(a, Undefined) else b
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            parts = tuple(self.merge(name, x, y) for x, y in zip(a, b, strict=True))
            return next((p for p in parts if isinstance(p, Undefined)), parts)
        kinds = (weak_kind(a), weak_kind(b))
        numbers = all(isinstance(v, Value) or k is not None for v, k in zip((a, b), kinds, strict=True))
        if not numbers:
            return self.differs(name, a, b)
        if kinds[0] is not None and kinds[1] is not None:
            common = DEFAULTS["float" if "float" in kinds else "int" if "int" in kinds else "bool"]
        else:
            common = (b if kinds[0] is not None else a).type
        try:
            values = []
            for value, region in zip((a, b), self.regions, strict=True):
                with self.inferer.builder.inside(region):
                    values.append(coerce(self.inferer, value, common, self.node, self.frame))
        except CompileError:
            return self.differs(name, a, b)
        self.pairs.append((values[0], values[1]))
        self.weak.append(open_kind(a, b))
        return _Slot(len(self.pairs) - 1)

    def undefined(self, name: str) -> Undefined:
        inferer, frame, at = self.inferer, self.frame, self.frame.place(self.node)

        def error(place: Place) -> CompileError:
            made = inferer.error("EK0214", f"'{name}' has a value in one branch only", self.node, frame)
            made.place, made.labels = place, ()
            made.notes.insert(0, f"the branches are at {at}")
            made.hint = f"give '{name}' a value before the `if`, or in both branches"
            return made

        return Undefined(error)

    def differs(self, name: str, a: Any, b: Any) -> Undefined:
        inferer, frame, at = self.inferer, self.frame, self.frame.place(self.node)

        def error(place: Place) -> CompileError:
            what = f"'{name}'" if name else "the returned value"
            text = f"{what} is {describe(a)} in one branch and {describe(b)} in the other"
            made = inferer.error("EK0203", text, self.node, frame)
            made.place, made.labels = place, ()
            if name:
                made.notes.insert(0, f"the branches are at {at}")
            numbers = isinstance(a, Value) and isinstance(b, Value)
            made.hint = f"cast one of them, or use two names" if numbers else "use two names"
            return made

        return Undefined(error)

    def close(self, test: Value) -> list[Value]:
        """Ends both arms with their values and appends the operation."""
        builder = self.inferer.builder
        for number, region in enumerate(self.regions):
            with builder.inside(region):
                builder.end([pair[number] for pair in self.pairs])
        types = [pair[0].type for pair in self.pairs]
        if not types and not any(len(r.ops) > 1 for r in self.regions):
            return []  # both arms are empty
        results = builder.add("if", [test], types, self.regions)
        for result, weak in zip(results, self.weak, strict=True):
            result.weak = weak
        return results

    def resolve(self, value: Any, results: list[Value]) -> Any:
        """A merged value with result slots filled in."""
        if isinstance(value, _Slot):
            return results[value.number]
        if isinstance(value, tuple):
            return tuple(self.resolve(v, results) for v in value)
        return value


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) and repr(a) == repr(b)
    except Exception:
        return False


# *** loops ***


@statement(s.For)
def for_(inferer: Inferer, node: s.For, frame: Frame) -> Flow:
    iterable = inferer.expr(node.iterable, frame)
    if isinstance(iterable, Unrolled | tuple | Index):
        values = iterable.values if isinstance(iterable, Unrolled) else items(inferer, iterable, node, frame)
        return unrolled(inferer, node, frame, values)
    if not isinstance(iterable, LoopRange):
        raise inferer.error(
            "EK0212",
            f"a loop runs over range(...), unroll(...) or a tuple, not over {describe(iterable)}",
            node.iterable,
            frame,
        )
    _refuse_return(inferer, node.body, frame)
    low, high, step = (
        coerce(inferer, v, INT, node.iterable, frame, "the bounds of range() are Ints")
        for v in (iterable.low, iterable.high, iterable.step)
    )
    if s.contains(node.body, (s.Break,), into_loops=False):
        return _for_with_break(inferer, node, frame, low, high, step)
    loop = Loop(inferer, node, frame, [])

    def body() -> list[Any]:
        index = Value(INT)
        loop.region.args.insert(0, index)
        bind(inferer, node.target, index, node.iterable, frame)
        inferer.block(node.body, frame)
        return []

    loop.run(
        body,
        lambda values: inferer.builder.add("for", [low, high, step, *values], [v.type for v in values], [loop.region]),
    )
    return NEXT


def _refuse_return(inferer: Inferer, body: tuple[s.Stmt, ...], frame: Frame) -> None:
    for stmt in body:
        if s.contains((stmt,), (s.Return,)):
            raise inferer.error(
                "EK0109",
                "return inside a run-time loop is not supported",
                stmt,
                frame,
                hint="set a variable, leave the loop with `break`, and return after it",
            )


def unrolled(inferer: Inferer, node: s.For, frame: Frame, values: tuple[Any, ...]) -> Flow:
    """The body once for each value."""
    if len(values) > MAX_UNROLL:
        raise inferer.error(
            "EK0216",
            f"unrolling {len(values)} times is more than {MAX_UNROLL}",
            node.iterable,
            frame,
            hint="use `range` for a run-time loop",
        )
    hidden = frame.env.pop(GO_ON, None)
    for value in values:
        bind(inferer, node.target, value, node.iterable, frame)
        flow = inferer.block(node.body, frame)
        if flow.kind == "return":
            return flow
        if flow.kind == "break":
            break
    if hidden is not None:
        frame.env[GO_ON] = hidden
    return NEXT


def _for_with_break(inferer: Inferer, node: s.For, frame: Frame, low: Value, high: Value, step: Value) -> Flow:
    """`for` that a `break` may end: a while loop over the index and a flag."""
    builder = inferer.builder
    outer = frame.env.get(GO_ON)
    frame.env[GO_ON] = builder.const(True, BOOL)
    name = f"$index of {id(node)}"  # loops nest
    frame.env[name] = low
    loop = Loop(inferer, node, frame, [GO_ON, name])

    def condition() -> Value:
        more = builder.compare("lt", frame.env[name], high)
        return builder.row("and_", [more, frame.env[GO_ON]])

    def body() -> None:
        bind(inferer, node.target, frame.env[name], node.iterable, frame)
        frame.env[name] = builder.iadd(frame.env[name], step)
        inferer.block(node.body, frame)

    loop.run_while(condition, body)
    frame.env.pop(name, None)
    frame.env.pop(GO_ON, None)
    if outer is not None:
        frame.env[GO_ON] = outer
    return NEXT


@statement(s.While)
def while_(inferer: Inferer, node: s.While, frame: Frame) -> Flow:
    _refuse_return(inferer, node.body, frame)
    builder = inferer.builder
    outer = frame.env.get(GO_ON)
    breaks = s.contains(node.body, (s.Break,), into_loops=False)
    if breaks:
        frame.env[GO_ON] = builder.const(True, BOOL)
    loop = Loop(inferer, node, frame, [GO_ON] if breaks else [])

    def condition() -> Value:
        test = truth(inferer, inferer.expr(node.test, frame), node.test, frame)
        if not isinstance(test, Value):
            if test and not breaks:
                raise inferer.error("EK0212", "this loop never ends", node.test, frame, hint="leave it with `break`")
            test = builder.const(test, BOOL)
        return builder.row("and_", [frame.env[GO_ON], test]) if breaks else test

    def body() -> None:
        inferer.block(node.body, frame)

    loop.run_while(condition, body)
    frame.env.pop(GO_ON, None)
    if outer is not None:
        frame.env[GO_ON] = outer
    return NEXT


class Loop:
    """A run-time loop and the variables that go round in it."""

    def __init__(self, inferer: Inferer, node: s.For | s.While, frame: Frame, extra: list[str]) -> None:
        self.inferer = inferer
        self.node = node
        self.frame = frame
        self.region = Region()
        self.condition_region = Region()
        assigned = list(dict.fromkeys([*s.assigned_names(node.body), *extra]))
        targets = s.assigned_names((node,)) if isinstance(node, s.For) else assigned
        self.assigned = list(dict.fromkeys([*assigned, *targets]))
        self.before = dict(frame.env)
        self.carried = [n for n in assigned if n in frame.env and _is_number(frame.env[n])]
        self.path = (*frame.path, id(node))

    # the two kinds of loop

    def run(self, body: Any, emit: Any) -> None:
        """A counted loop: `body` builds into the region, `emit` appends the operation."""
        self.settle_types(lambda: self._once(body))
        values = self.enter(self.region)
        with self.inferer.builder.inside(self.region):
            body()
            self.leave()
        self.inferer.locate(self.node, self.frame)
        self.finish(emit(values))

    def run_while(self, condition: Any, body: Any) -> None:
        """A conditional loop."""
        builder = self.inferer.builder

        def once() -> None:
            condition()
            body()

        self.settle_types(lambda: self._once(once))
        values = self.enter(self.condition_region)
        with builder.inside(self.condition_region):
            test = condition()
            builder.add("condition", [test, *self.condition_region.args])
        self.frame.env.update(self.rebuild(self._arguments(self.region, values)))
        with builder.inside(self.region):
            body()
            self.leave()
        self.inferer.locate(self.node, self.frame)
        types = [v.type for v in values]
        self.finish(builder.add("while", values, types, [self.condition_region, self.region]))

    def _once(self, body: Any) -> None:
        region, self.region = self.region, Region()
        try:
            with self.inferer.builder.inside(self.region):
                body()
        finally:
            self.region = region

    # types

    def settle_types(self, body: Any) -> None:
        """Finds the types of variables that are still compile-time numbers, by evaluating the body for its types."""
        for _ in range(4):
            open_leaves = [key for key, value in self.leaves() if self.type_of(key, value) is None]
            if not open_leaves or not self.trial(body):
                break
        for key, value in self.leaves():
            if self.type_of(key, value) is None:
                self.inferer.hints[key] = DEFAULTS[weak_kind(value) or "int"]

    def trial(self, body: Any) -> bool:
        """One evaluation for types alone; everything that it builds or reports is dropped. True if it learnt."""
        inferer, frame = self.inferer, self.frame
        saved_env, saved_origins = dict(frame.env), dict(frame.origins)
        sites, errors = len(inferer.sites), len(inferer.errors)
        learnt = False
        with inferer.builder.inside(Region()):
            stand_ins = {key: self._stand_in(key, value) for key, value in self.leaves()}
            frame.env.update(self.rebuild_with(stand_ins))
            self.hide()
            try:
                body()
            except (CompileError, Cascade, TooMany):
                pass
            for key, value in self.leaves(frame.env):
                fresh = isinstance(value, Value) and value.weak is None and isinstance(value.type, SIMDType)
                if fresh and key not in inferer.hints and stand_ins[key].weak is not None:
                    inferer.hints[key] = value.type
                    learnt = True
                elif weak_kind(value) == "float" and stand_ins[key].weak == "int":
                    inferer.hints.setdefault(key, DEFAULTS["float"])
                if key not in inferer.hints and key in inferer.met:
                    inferer.hints[key] = inferer.met[key]
                    learnt = True
        frame.env, frame.origins = saved_env, saved_origins
        del inferer.sites[sites:]
        del inferer.errors[errors:]
        return learnt

    def _stand_in(self, key: Any, value: Any) -> Value:
        type = self.type_of(key, value)
        if type is not None:
            return Value(type)
        kind = weak_kind(value) or "int"
        stand_in = Value(DEFAULTS[kind], weak=kind)
        stand_in.origin = frozenset({key}) | (value.origin if isinstance(value, Value) else frozenset())
        return stand_in

    def type_of(self, key: Any, value: Any) -> SIMDType | None:
        if isinstance(value, Value) and value.weak is None:
            assert isinstance(value.type, SIMDType)
            return value.type
        return self.inferer.hints.get(key)

    def leaves(self, env: dict[str, Any] | None = None) -> list[tuple[Any, Any]]:
        """Every number among the carried variables, with a key that is the same in every evaluation."""
        out: list[tuple[Any, Any]] = []

        def visit(key: Any, value: Any) -> None:
            if isinstance(value, tuple):
                for number, item in enumerate(value):
                    visit((*key, number), item)
            else:
                out.append((key, value))

        for name in self.carried:
            visit((self.path, name), (env or self.before)[name])
        return out

    # passing values round

    def enter(self, region: Region) -> list[Value]:
        """The values before the loop, in their types; the region's arguments take over from here."""
        inferer = self.inferer
        values = []
        for key, value in self.leaves():
            type = self.type_of(key, value)
            assert type is not None
            values.append(coerce(inferer, value, type, self.node, self.frame))
        self.frame.env.update(self.rebuild(self._arguments(region, values)))
        self.hide()
        return values

    def hide(self) -> None:
        """Functions, tensors and the like cannot go round: inside, they have no value before they get a new one."""
        for name in self.assigned:
            value = self.before.get(name)
            if name in self.before and name not in self.carried and not isinstance(value, Undefined | Poisoned):
                self.frame.env[name] = self._cannot_change(name, value)

    def _arguments(self, region: Region, values: list[Value]) -> list[Value]:
        made = [Value(v.type) for v in values]
        region.args.extend(made)
        return made

    def rebuild(self, values: list[Value]) -> dict[str, Any]:
        keys = [key for key, _ in self.leaves()]
        return self.rebuild_with(dict(zip(keys, values, strict=True)))

    def rebuild_with(self, values: dict[Any, Any]) -> dict[str, Any]:
        """The carried variables in their shape, with these numbers as leaves."""

        def fill(key: Any, value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(fill((*key, number), item) for number, item in enumerate(value))
            return values[key]

        return {name: fill((self.path, name), self.before[name]) for name in self.carried}

    def leave(self) -> None:
        """Ends the body with the values that go into the next round."""
        inferer, frame = self.inferer, self.frame
        after = {}
        for name in self.carried:
            if isinstance(frame.env[name], Poisoned):
                raise Cascade
        try:
            after = dict(self.leaves(frame.env))
        except KeyError:
            after = {}
        values = []
        for key, value in self.leaves():
            type = self.type_of(key, value)
            assert type is not None
            new = after.get(key)
            misfits = is_comptime_number(new) and misfit(new, type.dtype) is not None
            if misfits or not _is_number(new) or (isinstance(new, Value) and new.type != type and new.weak is None):
                raise self._changes_type(key[1], type)
            values.append(coerce(inferer, new, type, self.node, frame))
        inferer.builder.end(values)

    def finish(self, results: list[Value]) -> None:
        """After the loop: carried variables have their last values; the others may never have got one."""
        env = dict(self.before)
        for name in self.assigned:
            value = self.frame.env.get(name)
            if name in self.carried or value is env.get(name):
                continue
            if isinstance(value, Poisoned) or isinstance(env.get(name), Poisoned):
                env[name] = Poisoned()
            elif name not in env:
                env[name] = self._maybe_never(name)
            elif not isinstance(env[name], Undefined):
                env[name] = self._cannot_change(name, env[name])
        self.frame.env = env
        env.update(self.rebuild(results))

    def _changes_type(self, name: str, type: SIMDType) -> CompileError:
        frame = self.frame
        value = frame.env[name]
        made = self.inferer.error(
            "EK0203",
            f"'{name}' is {type} before the loop and {describe(value)} after a round",
            self.node,
            frame,
            notes=[f"the loop is at {frame.place(self.node)}"],
            expected=str(type),
            got=describe(value),
            hint=f"cast it to {type.dtype} where it is assigned" if isinstance(value, Value) else "use two names",
        )
        if name in frame.origins:
            made.place, made.labels = frame.origins[name], ()
        return made

    def _cannot_change(self, name: str, value: Any) -> Undefined:
        inferer, frame, at = self.inferer, self.frame, self.frame.place(self.node)

        def error(place: Place) -> CompileError:
            text = f"'{name}' is assigned in a run-time loop and cannot change there: it is {describe(value)}"
            made = inferer.error("EK0203", text, self.node, frame)
            made.place, made.labels = place, ()
            made.notes.insert(0, f"the loop is at {at}")
            made.hint = "use another name in the loop; only numbers can change from round to round"
            return made

        return Undefined(error)

    def _maybe_never(self, name: str) -> Undefined:
        inferer, frame, at = self.inferer, self.frame, self.frame.place(self.node)

        def error(place: Place) -> CompileError:
            made = inferer.error("EK0214", f"'{name}' has a value only if the loop runs", self.node, frame)
            made.place, made.labels = place, ()
            made.notes.insert(0, f"the loop is at {at}")
            made.hint = f"give '{name}' a value before the loop"
            return made

        return Undefined(error)


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_is_number(v) for v in value)
    if isinstance(value, Value):
        return isinstance(value.type, SIMDType)
    return isinstance(value, bool | int | float)
