"""Evaluates each plain statement: assignments, return, expressions, asserts and what they report.

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
from ....dsl.types.dtype import BOOL, DType, SIMDType
from ...ir.program import PointerType, Site, Value
from ..accumulators import begin_accumulators, check_update, widened
from ..advice import over_slice
from ..arithmetic import binary
from ..call_trace import trace_calls
from ..calls.declarations import as_declared
from ..calls.struct_methods import special
from ..conditions import decision
from ..conversion import DEFAULTS, coerce
from ..debug_values import note
from ..evaluator import Point, statement
from ..members.pointers import is_pointer, write_element
from ..members.structs import with_field
from ..members.tensors import store_into, subscript, to_index
from ..members.vectors import is_vector, with_lane
from ..outputs import returned
from ..recovery import Cascade, poison
from ..scoping import is_own_name
from ..spelling import spelled
from ..values.compile_time import Closure, FormattedValue, Frame, Poisoned, StructValue, Undefined
from ..values.describe import describe
from ..values.flow import NEVER, Flow, ended
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor
from ..widening import may_widen, widen
from .expressions import items


@statement(s.Assign)
def assign(here: Point, node: s.Assign) -> None:
    if node.annotation is None:
        begin_accumulators(here, node, lambda: _assign(here, node))
    _assign(here, node)


def _assign(here: Point, node: s.Assign) -> None:
    value = _side_by_side(here, node.target, node.value)
    if node.annotation is not None and not isinstance(value, Poisoned):
        what = "this variable is declared as"
        value = as_declared(here.on(node.value), node.annotation, value, here.frame, what)
    bind(here, node.target, value, node.value)


def _side_by_side(here: Point, target: s.Expr, source: s.Expr) -> Any:
    """The value of an assignment; of `a, b = c, d` item by item, since a mistake in one leaves the others known."""
    if not (isinstance(target, s.Tuple) and isinstance(source, s.Tuple) and len(target.items) == len(source.items)):
        return here.expr_or_poison(source)
    if any(isinstance(item, s.Starred) for item in source.items):
        return here.expr_or_poison(source)
    return tuple(here.expr_or_poison(item) for item in source.items)


def bind(here: Point, target: s.Expr, value: Any, source: s.Expr) -> None:
    """Gives a name, an element or a tuple of these its value."""
    match target:
        case _ if isinstance(value, Poisoned):
            _bind_poisoned(here, target, value)
        case s.Name(id=name):
            old = here.frame.env.get(name)
            if isinstance(old, Value) and isinstance(value, Value) and old.sums is not None:
                value = widened(here.on(source), value, old)
                check_update(here.on(source), old, value)
            value = kept_type(here, name, value, target)
            here.frame.env[name] = value
            here.frame.origins[name] = here.frame.place(target)
            if here.evaluator.level == "device" and isinstance(value, Value):
                here.builder.names.setdefault(value.serial, name)
            note(here.on(target), {name: value})
        case s.Tuple(items=targets):
            values = items(here.on(source), value)
            if len(values) != len(targets):
                text = f"{plural(len(targets), 'name')} cannot take {plural(len(values), 'value')}"
                raise here.on(target).error("EK0208", text)
            for part, item in zip(targets, values, strict=True):
                if here.on(part).recover(partial(bind, here, part, item, source)) is not None:
                    poison(here.frame, s.Assign(part, source, span=target.span))
        case s.Attribute():
            owner = here.expr(target.value)
            changed = with_field(here.on(target), owner, target, value, source)
            bind(here, target.value, changed, source)
        case s.Subscript():
            owner, index = here.values((target.value, target.index))
            here.on(target).locate()
            call = here.on(target)
            call.nodes = {**call.nodes, "value": source, "target": target, "index": target.index}
            if lanes_of_a_name(call, target, owner):
                bind(here, target.value, with_lane(call, owner, index, value), source)
                return
            if is_pointer(owner):
                write_element(call, owner, index, value)
                return
            if special(call, owner, "__setitem__", [index, value]) is not NotImplemented:
                return
            if not isinstance(owner, KernelTensor):
                call.node = target.value
                hint = "use stack[T](n) for storage that changes" if isinstance(owner, tuple) else None
                raise call.error("EK0207", f"{describe(owner)} has no elements to store into", hint=hint)
            parts = index if isinstance(index, tuple) else (index,)
            if any(isinstance(p, slice) for p in parts):
                hint = over_slice(target, parts, value, source, here.frame)
                raise call.error("EK0207", "a slice cannot be stored to", hint=hint)
            store_into(call, owner, to_index(call, owner, index), value)


def _bind_poisoned(here: Point, target: s.Expr, value: Poisoned) -> None:
    """A variable is poisoned with its value; a struct and a tensor stay what they are."""
    match target:
        case s.Name(id=name):
            here.frame.env[name] = value
        case s.Tuple(items=targets):
            for part in targets:
                _bind_poisoned(here, part, value)
        case s.Attribute():
            here.values((target.value,))
        case s.Subscript():
            owner, index = here.values((target.value, target.index))
            if isinstance(owner, KernelTensor) and not isinstance(index, slice):
                call = here.on(target)
                call.nodes = {**call.nodes, "index": target.index}
                to_index(call, owner, index)


def lanes_of_a_name(call: Point, target: s.Subscript, owner: object) -> bool:
    """Whether `target` is a lane of a vector in a variable: storing it gives the variable another vector."""
    if not (isinstance(target.value, s.Name) and isinstance(owner, Value) and is_vector(owner)):
        return False
    name = target.value.id
    if not is_own_name(name, call.frame):
        text = f"'{name}' is a vector of a function around this one, where a changed lane would be lost"
        hint = f"vectors are values: write `own = {name}`, change that and return it, or keep lanes in a `stack[T](n)`"
        raise call.error("EK0125", text, "target", hint=hint)
    return True


def undefined(here: Point, code: str, text: Callable[[], str], hint: str, where: str = "") -> Undefined:
    """A variable without a value to use after `node`: the error explains why, where it is read."""
    at = here.frame.place(here.node)

    def error(place: Place) -> CompileError:
        made = here.error(code, text())
        made.place, made.labels = place, ()
        if where:
            made.notes.insert(0, f"{where} at {at}")
        made.hint = hint
        return made

    return Undefined(error)


def kept_type(here: Point, name: str, value: object, target: s.Expr) -> Any:
    """What is assigned to a variable, in the type of the variable's first run-time value."""
    old = here.frame.env.get(name)
    if not (isinstance(old, Value) and isinstance(value, Value)) or old.weak or value.weak:
        return value
    value = widen(here, value, old.dtype) if may_widen(value, old.type) else value
    if old.type != value.type:
        same_width = getattr(old.type, "width", 0) == getattr(value.type, "width", 0)
        first = here.frame.origins.get(name)
        raise here.on(target).error(
            "EK0203",
            f"'{name}' is {old.type} and cannot become {value.type}",
            notes=[f"'{name}' got its type at {first}"] if first else [],
            expected=str(old.type),
            got=str(value.type),
            hint=f"cast the value to {spelled(old.type.dtype, target, here.frame)}, or use another name"
            if same_width
            else "use another name: this is a vector of another width",
        )
    return value


@statement(s.AugAssign)
def aug_assign(here: Point, node: s.AugAssign) -> None:
    begin_accumulators(here, node, lambda: _aug_assign(here, node))
    _aug_assign(here, node)


def _aug_assign(here: Point, node: s.AugAssign) -> None:
    if isinstance(node.target, s.Subscript):
        owner, index, value = here.values((node.target.value, node.target.index, node.value))
        old = subscript(here.on(node.target), owner, index, node.target)
        new = binary(here, node.op, old, value, (node.target, node.value))
        call = here.on(node.target)
        call.nodes = {**call.nodes, "value": node.value, "target": node.target, "index": node.target.index}
        if lanes_of_a_name(call, node.target, owner):
            bind(here, node.target.value, with_lane(call, owner, index, new), node.value)
            return
        if is_pointer(owner):
            write_element(call, owner, index, new)
            return
        if special(call, owner, "__setitem__", [index, new]) is not NotImplemented:
            return
        if not isinstance(owner, KernelTensor):
            raise call.error("EK0207", f"{describe(owner)} has no elements to store into")
        store_into(call, owner, to_index(call, owner, index), new)
        return
    old, value = here.values((node.target, node.value))
    new = binary(here, node.op, old, value, (node.target, node.value))
    if isinstance(old, Value) and isinstance(new, Value):
        check_update(here, old, new)
    if isinstance(node.target, s.Attribute):
        bind(here, node.target, new, node.value)
        return
    assert isinstance(node.target, s.Name)
    new = kept_type(here, node.target.id, new, node.target)
    here.frame.env[node.target.id] = new
    here.frame.origins.setdefault(node.target.id, here.frame.place(node.target))
    note(here, {node.target.id: new})


@statement(s.Expression)
def expression_statement(here: Point, node: s.Expression) -> None:
    note(here, {})
    value = here.expr(node.value)
    lost = isinstance(value, StructValue) and isinstance(node.value, s.Call) and not calls_stub(node.value, here.frame)
    if lost and not is_shipped(here.frame.file):
        text = (
            f"the {value.type.name} that this call returns is discarded: structs are values, and no call modifies one"
        )
        raise here.on(node.value).error("EK0126", text, hint="assign it to a variable: `p = p.moved(...)`")


def calls_stub(node: s.Call, frame: Frame) -> bool:
    """Whether a call is of a name of the language, such as map_parts."""
    name = node.function
    return isinstance(name, s.Global) and frame.program.globals[name.index].kind == "stub"


@statement(s.Function)
def function(here: Point, node: s.Function) -> None:
    home = here.frame.snapshot()
    closure = Closure(node, home)
    home.env[node.name] = closure  # so that recursion is seen as such
    here.frame.env[node.name] = closure


@statement(s.Return)
def return_(here: Point, node: s.Return) -> Flow:
    note(here, {})
    value = None if node.value is None else here.expr_or_poison(node.value)
    if here.frame.caller is None and value is not None and not isinstance(value, Poisoned):
        raise returned(here, node, value)
    return ended("return", value)


@statement(s.Assert)
def assert_(here: Point, node: s.Assert) -> None:
    if not here.evaluator.checks.asserts:
        return
    test = here.on(node.test).recover(lambda: decision(here.on(node.test)))
    here.locate()
    if not isinstance(test, Value | Poisoned):
        if test:
            return
        test = here.builder.const(False, BOOL)
    if isinstance(test, Poisoned):
        here.values([node.message] if node.message else [])
        raise Cascade
    emit_site(here, "assert", [test], node.message)
    here.evaluator.ranges.assume(test)


@statement(s.Raise)
def raise_(here: Point, node: s.Raise) -> Flow:
    here.locate()
    emit_site(here, node.kind, [here.builder.const(False, BOOL)], node.message)
    return NEVER


def emit_site(here: Point, kind: str, condition: list[Value], message: s.Expr | None) -> None:
    """An operation that reports to Python, with the parts of its message."""
    parts = [] if message is None else [(here.expr(message), "")]
    report(here, kind, condition, parts)


ADDRESS_FORMAT = "#x"


def report(here: Point, kind: str, condition: list[Value], parts: list[tuple[Any, str]]) -> None:
    """Adds the site and the operation that reaches it; `parts` are values with their formats."""
    message_parts: list[str | tuple[str, str]] = []
    values: list[Value] = []

    def add_scalar(value: Value, spec: str) -> None:
        """A number; a complex one as its parts, `(1.5 + -2.0j)`."""
        parts = [here.builder.part(value, which) for which in ("real", "imag")] if value.dtype.is_complex() else [value]
        for number, part in enumerate(parts):
            message_parts.extend([] if len(parts) == 1 else [" + " if number else "("])
            message_parts.append((spec, part.dtype.name))
            values.append(part)
        message_parts.extend([] if len(parts) == 1 else ["j)"])

    def add(value: Any, spec: str) -> None:
        if isinstance(value, FormattedValue):
            for part, part_spec in value.parts:
                add(part, part_spec)
            return
        if isinstance(value, BodyIndex):
            value = value.components(here.builder)
        if isinstance(value, Value) and isinstance(value.type, PointerType):
            message_parts.append((spec or ADDRESS_FORMAT, DType.uint64.name))
            values.append(value)
        elif isinstance(value, Value):
            if value.weak is not None:
                value = coerce(here, value, DEFAULTS[value.weak])
            assert isinstance(value.type, SIMDType)
            for lane_number in range(value.type.width):
                if value.type.width > 1:
                    message_parts.append("[" if lane_number == 0 else ", ")
                    one = here.builder.one("extract", [value], SIMDType(value.dtype), lane=lane_number)
                else:
                    one = value
                add_scalar(one, spec)
            if value.type.width > 1:
                message_parts.append("]")
        elif isinstance(value, StructValue):
            message_parts.append(f"{value.type.name}(")
            for number, (field, part) in enumerate(zip(value.type.syntax.fields, value.parts, strict=True)):
                message_parts.append(f"{', ' if number else ''}{field.name}=")
                add(part, spec)
            message_parts.append(")")
        elif isinstance(value, tuple):
            message_parts.append("(")
            for number, item in enumerate(value):
                message_parts.extend([", "] if number else [])
                add(item, spec)
            message_parts.append(")")
        elif isinstance(value, bool | int | float | complex | str) or value is None:
            message_parts.append(format(value, spec) if spec else str(value))
        else:
            message_parts.append(describe(value))

    for value, spec in parts:
        add(value, spec)
    name = "print" if kind == "print" else "assert"
    place, calls = trace_calls(here.frame, here.node)
    here.evaluator.sites.append(Site(kind, tuple(message_parts), place, here.evaluator.op, (), tuple(calls)))
    here.builder.add(name, [*condition, *values], site=len(here.evaluator.sites) - 1)
