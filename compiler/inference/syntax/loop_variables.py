"""Carries variables round in a run-time loop.

Every number that the body assigns and that existed before is carried: it is an argument of the loop's region and a
result of its operation. So is every number in a tuple or a struct; what else is in there has to stay. A compile-time
number among them takes the type of its operands: the body is evaluated once for the types alone (`trial`), then for
good.

What a `return` in the body gives only leaves the loop: the next iteration does not read it, so it begins as any number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ....dsl.contract.checks import OFF
from ....dsl.diagnostics.errors import CompileError
from ....dsl.diagnostics.places import Place
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import SIMDType
from ...ir.program import Region, Type, Value
from ...ir.scoped import Scoped
from ..accumulators import accumulating, type_of_sum
from ..conversion import DEFAULTS, coerce, misfit, weak_kind
from ..evaluator import Point
from ..exact_terms import wide_dtype
from ..members.vectors import is_vector
from ..recovery import Cascade
from ..spelling import spelled
from ..tiles.layouts import conforming
from ..values.aggregates import has_numbers, nothing, numbers_of, parts_of, replaced, same_shape
from ..values.compile_time import Poisoned, Undefined, is_comptime_number
from ..values.describe import describe
from ..values.flow import Abandoned
from ..values.tensors import KernelTensor
from ..values.tiles import TileValue
from ..widening import may_widen
from .statements import undefined


class RuntimeLoop(Scoped):
    """A run-time loop and the variables that go round in it."""

    def __init__(self, here: Point, node: s.For | s.While, extra: list[str]) -> None:
        frame = here.frame
        self.here = here
        self.node = node
        self.region = Region()
        self.condition_region = Region()
        lanes = [n for n in s.names_with_stores(node.body) if _is_vector(frame.env.get(n))]
        assigned = list(dict.fromkeys([*s.assigned_names(node.body), *lanes, *extra]))
        targets = s.assigned_names((node,)) if isinstance(node, s.For) else assigned
        self.assigned = list(dict.fromkeys([*assigned, *targets]))
        self.before = dict(frame.env)
        self.carried = [n for n in assigned if n in frame.env and has_numbers(frame.env[n])]
        self.path = (*frame.path, id(node))
        self.tried = Region()  # what the last trial built
        self.lost: set[str] = set()  # variables of open type that are poisoned after a round

    # the two kinds of loop

    def run(self, body: Any, emit: Any) -> None:
        """A counted loop: `body` builds into the region, `emit` appends the operation."""
        self.settle_types(lambda: self._once(body))
        values = self.enter(self.region)
        with self.here.builder.inside(self.region):
            body()
            self.leave()
        self.here.locate()
        self.finish(emit(values))

    def run_while(self, condition: Any, body: Any) -> list[Value]:
        """A conditional loop. `body` gives the values that only leave it; their last ones come back."""
        builder = self.here.builder

        def once() -> None:
            condition()
            body()

        self.settle_types(lambda: self._once(once))
        values = self.enter(self.condition_region)
        with builder.inside(self.condition_region):
            test = condition()
        self.here.frame.env.update(self.rebuild(self._arguments(self.region, values)))
        with builder.inside(self.region):
            leaving = body()
            self.leave(leaving)
        first = [nothing(builder, v.type) for v in leaving]
        self._arguments(self.condition_region, leaving)
        self._arguments(self.region, leaving)
        with builder.inside(self.condition_region):
            builder.add("condition", [test, *self.condition_region.args])
        self.here.locate()
        types = [v.type for v in (*values, *leaving)]
        results = builder.add("while", [*values, *first], types, [self.condition_region, self.region])
        self.finish(results[: len(values)])
        return results[len(values) :]

    def _once(self, body: Any) -> None:
        self.tried = Region()
        with self.scope(region=self.tried), self.here.builder.inside(self.tried):
            body()

    # types

    def settle_types(self, body: object) -> None:
        """Finds the types of variables that are still compile-time numbers, by evaluating the body for its types."""
        self._settle_layouts(body)
        for _ in range(4):
            open_leaves = [key for key, value in self.leaves() if self.type_of(key, value) is None]
            if not open_leaves or not self.trial(body):
                break
        if self.lost:
            # The type that it would have had is unknown: in the body it stands for any, afterwards it is poisoned.
            shaped = self.rebuild_with({key: self._stand_in(key, value) for key, value in self.leaves()})
            self.here.frame.env.update({name: shaped[name] for name in self.lost})
            self.carried = [name for name in self.carried if name not in self.lost]
            self.before.update(dict.fromkeys(self.lost, Poisoned(runtime=True)))
        for key, value in self.leaves():
            if self.type_of(key, value) is None:
                self.here.evaluator.loop_types[key] = DEFAULTS[weak_kind(value) or "int"]

    def _settle_layouts(self, body: Any) -> None:
        """Gives tiles of one number the layouts that a round makes of them, so that later rounds move nothing."""
        env = self.here.frame.env
        filled = {name: env[name] for name in self.carried if isinstance(env[name], TileValue)}
        filled = {name: tile for name, tile in filled.items() if tile.number is not None}
        if not filled:
            return
        with self._tentative():
            self.hide()
            with suppress(CompileError, Cascade, Abandoned):
                body()
            ends = {name: self.here.frame.env[name] for name in filled}
        for name, tile in filled.items():
            self.before[name] = env[name] = conforming(self.here, tile, ends[name])

    def trial(self, body: object) -> bool:
        """One evaluation for types alone; everything that it builds or reports is dropped. True if it learnt."""
        with self._tentative():
            return self._learn(body)

    @contextmanager
    def _tentative(self) -> Iterator[None]:
        """Within it, what is assigned to variables, built and reported is dropped afterwards."""
        evaluator, frame = self.here.evaluator, self.here.frame
        with (
            frame.scope(env=dict(frame.env), origins=dict(frame.origins)),
            evaluator.discarding(),
            evaluator.scope(checks=OFF, trial=True),
            evaluator.builder.inside(Region()),
        ):
            yield

    def _learn(self, body: Any) -> bool:
        """Evaluates the body with numbers of open type, and keeps the types that they get."""
        evaluator, frame = self.here.evaluator, self.here.frame
        stand_ins = {key: self._stand_in(key, value) for key, value in self.leaves()}
        frame.env.update(self.rebuild_with(stand_ins))
        self.hide()
        with suppress(CompileError, Cascade, Abandoned):
            body()
        self.lost = {n for n in self.carried if isinstance(frame.env[n], Poisoned) and self._is_open(n)}
        learnt = False
        known = self._known_leaves(frame.env)
        if self._accumulators(stand_ins, known):
            return True  # other operands of the variables may be wider in the next trial
        for key, value in known:
            fresh = isinstance(value, Value) and value.weak is None and isinstance(value.type, SIMDType)
            if fresh and key not in evaluator.loop_types and stand_ins[key].weak is not None:
                evaluator.loop_types[key] = value.type
                if value.sums is not None:
                    evaluator.sums[key] = value.sums
                learnt = True
            else:
                kind = weak_kind(value)
                if kind in ("float", "complex") and stand_ins[key].weak == ("int" if kind == "float" else "float"):
                    evaluator.loop_types.setdefault(key, DEFAULTS[kind])
            if key not in evaluator.loop_types and key in evaluator.adopted_types:
                evaluator.loop_types[key] = evaluator.adopted_types[key]
                learnt = True
        return learnt

    def _accumulators(self, stand_ins: dict[Any, Value], known: list[tuple[Any, Any]]) -> bool:
        """Widens the variables that add narrow numbers up. True if there are new ones."""
        evaluator = self.here.evaluator
        ends = {key: value for key, value in known if isinstance(value, Value)}
        narrow = {
            key: value
            for key, value in ends.items()
            if stand_ins[key].weak is not None and value.weak is None and wide_dtype(value.dtype) is not None
        }
        if not narrow:
            return False
        numbers = {value.serial: key for key, value in stand_ins.items()}
        grown = accumulating(self.tried, ends, numbers, evaluator.implicit_casts)
        for key in grown & set(narrow):
            type = type_of_sum(self.here, narrow[key])
            assert type is not None
            evaluator.loop_types[key] = type
            evaluator.sums[key] = narrow[key].dtype
        return bool(grown & set(narrow))

    def _is_open(self, name: str) -> bool:
        """Whether a number in a variable has no type yet."""
        leaves = numbers_of(self.before[name], (self.path, name))
        return any(self.type_of(key, value) is None for key, value in leaves)

    def _stand_in(self, key: object, value: object) -> Value:
        type = self.type_of(key, value)
        if type is not None:
            return self._marked(key, value, Value(type))
        kind = weak_kind(value) or "int"
        stand_in = Value(DEFAULTS[kind], weak=kind)
        stand_in.origin = frozenset({key}) | (value.origin if isinstance(value, Value) else frozenset())
        return stand_in

    def type_of(self, key: object, value: object) -> Type | None:
        if isinstance(value, Value) and value.weak is None:
            return value.type
        return self.here.evaluator.loop_types.get(key)

    def leaves(self) -> list[tuple[Any, Any]]:
        """Every number among the carried variables, with a key that is the same in every evaluation."""
        return [leaf for name in self.carried for leaf in numbers_of(self.before[name], (self.path, name))]

    def _known_leaves(self, env: dict[str, Any]) -> list[tuple[Any, Any]]:
        """The numbers of the carried variables that still have their shape."""
        same = [name for name in self.carried if same_shape(env[name], self.before[name])]
        return [leaf for name in same for leaf in numbers_of(env[name], (self.path, name))]

    # passing values round

    def enter(self, region: Region) -> list[Value]:
        """The values before the loop, in their types; the region's arguments take over from here."""
        values = []
        for key, value in self.leaves():
            type = self.type_of(key, value)
            assert type is not None
            values.append(coerce(self.here, value, type))
        self.here.frame.env.update(self.rebuild(self._arguments(region, values)))
        self.hide()
        return values

    def hide(self) -> None:
        """Functions, tensors and similar ones cannot go round: inside, they have no value before they get a new one."""
        for name in self.assigned:
            value = self.before.get(name)
            if name in self.before and name not in self.carried and not isinstance(value, Undefined | Poisoned):
                self.here.frame.env[name] = self._cannot_change(name, value)

    def _arguments(self, region: Region, values: list[Value]) -> list[Value]:
        made = [Value(v.type) for v in values]
        region.args.extend(made)
        return made

    def _marked(self, key: Any, before: Any, value: Value) -> Value:
        """A value that goes round, which is an accumulator where the variable is."""
        known = isinstance(before, Value) and before.weak is None
        value.sums = before.sums if known else self.here.evaluator.sums.get(key)
        return value

    def rebuild(self, values: list[Value]) -> dict[str, Any]:
        leaves = zip(self.leaves(), values, strict=True)
        return self.rebuild_with({key: self._marked(key, before, value) for (key, before), value in leaves})

    def rebuild_with(self, values: dict[Any, Any]) -> dict[str, Any]:
        """The carried variables in their shape, with these numbers as leaves."""

        def new(key: object, value: object) -> Any:
            return values[key]

        return {name: replaced(self.before[name], new, (self.path, name)) for name in self.carried}

    def leave(self, leaving: list[Value] | None = None) -> None:
        """Ends the body with the values that go into the next round, and those that leave."""
        builder, frame = self.here.builder, self.here.frame
        values = []
        for name in self.carried:
            value = frame.env[name]
            if isinstance(value, Poisoned):  # it keeps its type
                types = (self.type_of(key, old) for key, old in numbers_of(self.before[name], (self.path, name)))
                values += [nothing(builder, type) for type in types if type is not None]
                continue
            if isinstance(value, Undefined):
                raise value.error(frame.origins.get(name, frame.place(self.node)))
            value = conforming(self.here, value, self.before[name])
            if not same_shape(value, self.before[name]):
                raise self._changes_type(name)
            first = numbers_of(self.before[name], (self.path, name))
            for (key, old), (_, number) in zip(first, numbers_of(value), strict=True):
                type = self.type_of(key, old)
                assert type is not None
                misfits = is_comptime_number(number) and misfit(number, type.dtype) is not None
                known = isinstance(number, Value) and number.weak is None
                if misfits or (known and number.type != type and not may_widen(number, type)):
                    raise self._changes_type(name, type, number)
                values.append(coerce(self.here, number, type))
        builder.end([*values, *(leaving or [])])

    def finish(self, results: list[Value]) -> None:
        """After the loop: carried variables have their last values; the others may never have got one."""
        env = dict(self.before)
        for name in self.assigned:
            value = self.here.frame.env.get(name)
            if name in self.carried or value is env.get(name):
                continue
            if isinstance(value, Poisoned) or isinstance(env.get(name), Poisoned):
                env[name] = Poisoned()
            elif name not in env:
                env[name] = self._maybe_never(name)
            elif not isinstance(env[name], Undefined):
                env[name] = self._cannot_change(name, env[name])
        self.here.frame.env = env
        env.update(self.rebuild(results))

    def _changes_type(self, name: str, type: Type | None = None, number: object = None) -> CompileError:
        frame = self.here.frame
        value = frame.env[name]
        whole = parts_of(value) is None or type is None
        was = str(type) if type is not None else describe(self.before[name])
        became = describe(value if whole else number)
        text = f"'{name}' is {was} before the loop and {became} after a round"
        if not whole:
            text = f"a part of '{name}' is {was} before the loop and {became} after a round"
        elif was == became:
            text = f"a part of '{name}' that is known at compile time is another one after a round of the loop"
        made = self.here.error(
            "EK0203",
            text,
            notes=[f"the loop is at {frame.place(self.node)}"],
            expected=was,
            got=became,
            hint=f"cast it to {spelled(type.dtype, s.Name(name), frame)} where it is assigned"
            if isinstance(number, Value) and type is not None
            else "use two names",
        )
        if name in frame.origins:
            made.place, made.labels = frame.origins[name], ()
        return made

    def _cannot_change(self, name: str, value: object) -> Undefined:
        if isinstance(self.node, s.For) and isinstance(value, Value) and name in s.assigned_names((self.node,))[:1]:
            return self._counts_twice(name)

        def text() -> str:
            return f"'{name}' is assigned in a run-time loop and cannot change there: it is {describe(value)}"

        hint = "use another name in the loop; only numbers, also in tuples and structs, can change from round to round"
        if isinstance(value, KernelTensor) and value.rank:
            hint = (
                "take one tensor with an axis more and change a number, as in buffer[stage, i], or change pointers: "
                f"p, q = {name}.pointer(), other.pointer()"
            )
        return undefined(self.here, "EK0203", text, hint, "the loop is")

    def _counts_twice(self, name: str) -> Undefined:
        """The variable of this loop is that of one around it: this loop is shown, and where it is read afterwards."""
        node = self.node
        assert isinstance(node, s.For)
        text = f"this loop counts with '{name}', as the one around it does, whose number is gone after it"
        hint = f"use another variable for this loop, so that '{name}' keeps its number"

        def error(place: Place) -> CompileError:
            made = self.here.on(node.target).error("EK0203", text, hint=hint)
            made.notes.insert(0, f"'{name}' is read at {place}")
            return made

        return Undefined(error)

    def _maybe_never(self, name: str) -> Undefined:
        text = f"'{name}' has a value only if the loop runs"
        hint = f"assign '{name}' before the loop"
        return undefined(self.here, "EK0214", lambda: text, hint, "the loop is")


def _is_vector(value: object) -> bool:
    """A lane that is stored to makes another vector of the variable."""
    return isinstance(value, Value) and is_vector(value)
