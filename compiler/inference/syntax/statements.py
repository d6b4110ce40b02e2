"""What each plain statement does: assignments, return, expressions, asserts and what they report.

Branches and loops, through which variables pass, are in `branches` and `loops`.

Registers a handler for these statement nodes of `dsl.frontend.syntax`. See `inference.evaluator` for what calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....dsl.diagnostics.errors import CompileError, plural
from ....dsl.diagnostics.places import Place, is_shipped
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, SIMDType
from ...ir.program import Site, Value
from ..arithmetic import binary
from ..call_trace import trail
from ..calls.declarations import declared
from ..conditions import decision
from ..conversion import DEFAULTS, coerce
from ..debug_values import note
from ..evaluator import Call, Evaluator, statement
from ..members.pointers import is_pointer, write_element
from ..members.structs import with_field
from ..members.tensors import store_into, subscript, to_index
from ..members.vectors import is_vector, with_lane
from ..outputs import returned
from ..recovery import Cascade, poisoned
from ..scoping import is_own_name
from ..spelling import spelled
from ..values.compile_time import Closure, FormattedValue, Frame, Poisoned, StructValue, Undefined
from ..values.describe import describe
from ..values.flow import NEVER, Flow, ended
from ..values.index import Index
from ..values.tensors import Tensor
from .expressions import items


@statement(s.Assign)
def assign(evaluator: Evaluator, node: s.Assign, frame: Frame) -> None:
    value = _side_by_side(evaluator, node.target, node.value, frame)
    if node.annotation is not None and not isinstance(value, Poisoned):
        what = "this variable is declared as"
        value = declared(evaluator, node.annotation, value, frame, node.value, frame, what)
    bind(evaluator, node.target, value, node.value, frame)


def _side_by_side(evaluator: Evaluator, target: s.Expr, source: s.Expr, frame: Frame) -> Any:
    """The value of an assignment; of `a, b = c, d` item by item, since a mistake in one leaves the others known."""
    if not (isinstance(target, s.Tuple) and isinstance(source, s.Tuple) and len(target.items) == len(source.items)):
        return evaluator.tried(source, frame)
    if any(isinstance(item, s.Starred) for item in source.items):
        return evaluator.tried(source, frame)
    return tuple(evaluator.tried(item, frame) for item in source.items)


def bind(evaluator: Evaluator, target: s.Expr, value: Any, source: s.Expr, frame: Frame) -> None:
    """Gives a name, an element or a tuple of these its value."""
    match target:
        case _ if isinstance(value, Poisoned):
            _bind_poisoned(evaluator, target, value, frame)
        case s.Name(id=name):
            check_same_type(evaluator, name, value, target, frame)
            frame.env[name] = value
            frame.origins[name] = frame.place(target)
            note(evaluator, {name: value}, target, frame)
        case s.Tuple(items=targets):
            values = items(evaluator, value, source, frame)
            if len(values) != len(targets):
                text = f"{plural(len(targets), 'name')} cannot take {plural(len(values), 'value')}"
                raise evaluator.error("EK0208", text, target, frame)
            for part, item in zip(targets, values, strict=True):
                if evaluator.caught(partial(bind, evaluator, part, item, source, frame), part, frame) is not None:
                    poisoned(frame, s.Assign(part, source, span=target.span))
        case s.Attribute():
            owner = evaluator.expr(target.value, frame)
            changed = with_field(evaluator, owner, target, value, source, frame)
            bind(evaluator, target.value, changed, source, frame)
        case s.Subscript():
            owner, index = evaluator.values((target.value, target.index), frame)
            evaluator.locate(target, frame)
            call = Call(evaluator, target, frame)
            call.nodes |= {"value": source, "target": target, "index": target.index}
            if lanes_of_a_name(call, target, owner):
                bind(evaluator, target.value, with_lane(call, owner, index, value), source, frame)
                return
            if is_pointer(owner):
                write_element(call, owner, index, value)
                return
            if not isinstance(owner, Tensor):
                call.node = target.value
                hint = "use stack[T](n) for storage that changes" if isinstance(owner, tuple) else None
                raise call.error("EK0207", f"{describe(owner)} has no elements to store into", hint=hint)
            parts = index if isinstance(index, tuple) else (index,)
            if any(isinstance(p, slice) for p in parts):
                raise call.error("EK0207", "a slice cannot be stored to", hint="store element by element")
            store_into(call, owner, to_index(call, owner, index), value)


def _bind_poisoned(evaluator: Evaluator, target: s.Expr, value: Poisoned, frame: Frame) -> None:
    """A variable is poisoned with its value; a struct and a tensor stay what they are."""
    match target:
        case s.Name(id=name):
            frame.env[name] = value
        case s.Tuple(items=targets):
            for part in targets:
                _bind_poisoned(evaluator, part, value, frame)
        case s.Attribute():
            evaluator.values((target.value,), frame)
        case s.Subscript():
            owner, index = evaluator.values((target.value, target.index), frame)
            if isinstance(owner, Tensor) and not isinstance(index, slice):
                call = Call(evaluator, target, frame)
                call.nodes["index"] = target.index
                to_index(call, owner, index)


def lanes_of_a_name(call: Call, target: s.Subscript, owner: Any) -> bool:
    """Whether `target` is a lane of a vector in a variable: storing it gives the variable another vector."""
    if not (isinstance(target.value, s.Name) and isinstance(owner, Value) and is_vector(owner)):
        return False
    name = target.value.id
    if not is_own_name(name, call.frame):
        text = f"'{name}' is a vector of a function around this one, where a changed lane would be lost"
        hint = f"vectors are values: write `own = {name}`, change that and return it, or keep lanes in a `stack[T](n)`"
        raise call.error("EK0125", text, "target", hint=hint)
    return True


def undefined(
    evaluator: Evaluator, node: s.Node, frame: Frame, code: str, text: Callable[[], str], hint: str, where: str = ""
) -> Undefined:
    """A variable without a value to use after `node`: the error says why, at the place where somebody reads it."""
    at = frame.place(node)

    def error(place: Place) -> CompileError:
        made = evaluator.error(code, text(), node, frame)
        made.place, made.labels = place, ()
        if where:
            made.notes.insert(0, f"{where} at {at}")
        made.hint = hint
        return made

    return Undefined(error)


def check_same_type(evaluator: Evaluator, name: str, value: Any, target: s.Expr, frame: Frame) -> None:
    """A variable keeps the type of its first run-time value."""
    old = frame.env.get(name)
    if not (isinstance(old, Value) and isinstance(value, Value)) or old.weak or value.weak:
        return
    if old.type != value.type:
        same_width = getattr(old.type, "width", 0) == getattr(value.type, "width", 0)
        first = frame.origins.get(name)
        raise evaluator.error(
            "EK0203",
            f"'{name}' is {old.type} and cannot become {value.type}",
            target,
            frame,
            notes=[f"'{name}' got its type at {first}"] if first else [],
            expected=str(old.type),
            got=str(value.type),
            hint=f"cast the value to {spelled(old.type.dtype, target, frame)}, or use another name"
            if same_width
            else "use another name: this is a vector of another width",
        )


@statement(s.AugAssign)
def aug_assign(evaluator: Evaluator, node: s.AugAssign, frame: Frame) -> None:
    if isinstance(node.target, s.Subscript):
        owner, index, value = evaluator.values((node.target.value, node.target.index, node.value), frame)
        old = subscript(evaluator, owner, index, node.target, frame)
        new = binary(evaluator, node.op, old, value, (node.target, node.value), node, frame)
        call = Call(evaluator, node.target, frame)
        call.nodes |= {"value": node.value, "target": node.target, "index": node.target.index}
        if lanes_of_a_name(call, node.target, owner):
            bind(evaluator, node.target.value, with_lane(call, owner, index, new), node.value, frame)
            return
        if is_pointer(owner):
            write_element(call, owner, index, new)
            return
        if not isinstance(owner, Tensor):
            raise call.error("EK0207", f"{describe(owner)} has no elements to store into")
        store_into(call, owner, to_index(call, owner, index), new)
        return
    old, value = evaluator.values((node.target, node.value), frame)
    new = binary(evaluator, node.op, old, value, (node.target, node.value), node, frame)
    if isinstance(node.target, s.Attribute):
        bind(evaluator, node.target, new, node.value, frame)
        return
    assert isinstance(node.target, s.Name)
    check_same_type(evaluator, node.target.id, new, node.target, frame)
    frame.env[node.target.id] = new
    frame.origins.setdefault(node.target.id, frame.place(node.target))
    note(evaluator, {node.target.id: new}, node, frame)


@statement(s.Expression)
def expression_statement(evaluator: Evaluator, node: s.Expression, frame: Frame) -> None:
    note(evaluator, {}, node, frame)
    value = evaluator.expr(node.value, frame)
    lost = isinstance(value, StructValue) and isinstance(node.value, s.Call) and not calls_stub(node.value, frame)
    if lost and not is_shipped(frame.file):
        text = f"the {value.type.name} that this call gives goes nowhere: structs are values, and no call changes one"
        raise evaluator.error("EK0126", text, node.value, frame, hint="give it to a variable: `p = p.moved(...)`")


def calls_stub(node: s.Call, frame: Frame) -> bool:
    """Whether a call is of a name of the language, such as map_parts."""
    name = node.function
    return isinstance(name, s.Global) and frame.program.globals[name.index].kind == "stub"


@statement(s.Function)
def function(evaluator: Evaluator, node: s.Function, frame: Frame) -> None:
    home = frame.snapshot()
    closure = Closure(node, home)
    home.env[node.name] = closure  # so that recursion is seen as such
    frame.env[node.name] = closure


@statement(s.Return)
def return_(evaluator: Evaluator, node: s.Return, frame: Frame) -> Flow:
    note(evaluator, {}, node, frame)
    value = None if node.value is None else evaluator.tried(node.value, frame)
    if frame.caller is None and value is not None and not isinstance(value, Poisoned):
        raise returned(evaluator, node, value, frame)
    return ended("return", value)


@statement(s.Assert)
def assert_(evaluator: Evaluator, node: s.Assert, frame: Frame) -> None:
    if not evaluator.checks.asserts:
        return
    test = evaluator.caught(lambda: decision(evaluator, node.test, frame), node.test, frame)
    evaluator.locate(node, frame)
    if not isinstance(test, Value | Poisoned):
        if test:
            return
        test = evaluator.builder.const(False, BOOL)
    if isinstance(test, Poisoned):
        evaluator.values([node.message] if node.message else [], frame)
        raise Cascade
    emit_site(evaluator, "assert", [test], node.message, node, frame)
    evaluator.ranges.assume(test)


@statement(s.Raise)
def raise_(evaluator: Evaluator, node: s.Raise, frame: Frame) -> Flow:
    evaluator.locate(node, frame)
    emit_site(evaluator, node.kind, [evaluator.builder.const(False, BOOL)], node.message, node, frame)
    return NEVER


def emit_site(
    evaluator: Evaluator, kind: str, condition: list[Value], message: s.Expr | None, node: s.Node, frame: Frame
) -> None:
    """An operation that reports to Python, with the parts of its message."""
    parts = [] if message is None else [(evaluator.expr(message, frame), "")]
    report(evaluator, kind, condition, parts, node, frame)


def report(
    evaluator: Evaluator, kind: str, condition: list[Value], parts: list[tuple[Any, str]], node: s.Node, frame: Frame
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
            value = value.components(evaluator.builder)
        if isinstance(value, Value):
            if value.weak is not None:
                value = coerce(evaluator, value, DEFAULTS[value.weak], node, frame)
            assert isinstance(value.type, SIMDType)
            for lane_number in range(value.type.width):
                if value.type.width > 1:
                    shown.append("[" if lane_number == 0 else ", ")
                    one = evaluator.builder.one("extract", [value], SIMDType(value.dtype), lane=lane_number)
                else:
                    one = value
                shown.append((spec, one.dtype.name))
                values.append(one)
            if value.type.width > 1:
                shown.append("]")
        elif isinstance(value, StructValue):
            shown.append(f"{value.type.name}(")
            for number, (field, part) in enumerate(zip(value.type.syntax.fields, value.parts, strict=True)):
                shown.append(f"{', ' if number else ''}{field.name}=")
                add(part, spec)
            shown.append(")")
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
    place, calls = trail(frame, node)
    evaluator.sites.append(Site(kind, tuple(shown), place, evaluator.op, (), tuple(calls)))
    evaluator.builder.add(name, [*condition, *values], site=len(evaluator.sites) - 1)
