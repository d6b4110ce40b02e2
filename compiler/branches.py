"""How variables pass through branches.

A run-time `if` becomes an operation with one result for each number that its arms leave in a variable. What the arms
cannot agree on is `Undefined` after it, and tells why when somebody asks for it.

Registers the handler of `if`. See `infer` for the frame around it.
"""

from __future__ import annotations

from typing import Any

from ..dsl import syntax as s
from ..dsl.errors import CompileError
from .coerce import DEFAULTS, coerce, weak_kind
from .expressions import open_kind, truth
from .flow import NEXT, Flow
from .infer import Inferer, statement
from .program import Region, Value
from .statements import undefined
from .values import (
    Cascade,
    Frame,
    Poisoned,
    Undefined,
    describe,
)


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
        text = f"'{name}' has a value in one branch only"
        hint = f"give '{name}' a value before the `if`, or in both branches"
        return undefined(self.inferer, self.node, self.frame, "EK0214", lambda: text, hint, "the branches are")

    def differs(self, name: str, a: Any, b: Any) -> Undefined:
        def text() -> str:
            what = f"'{name}'" if name else "the returned value"
            return f"{what} is {describe(a)} in one branch and {describe(b)} in the other"

        numbers = isinstance(a, Value) and isinstance(b, Value)
        hint = "cast one of them, or use two names" if numbers else "use two names"
        where = "the branches are" if name else ""
        return undefined(self.inferer, self.node, self.frame, "EK0203", text, hint, where)

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
