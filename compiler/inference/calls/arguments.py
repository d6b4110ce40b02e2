"""Binds the arguments of a call to parameters, and remembers where each stands in the author's text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.errors import CompileError, did_you_mean, plural
from ....dsl.diagnostics.places import is_shipped
from ....dsl.frontend import syntax
from ....dsl.frontend import syntax as s
from ....dsl.language.stubs import STUBS
from ....dsl.types.dtype import SIMDType
from ...ir.program import Value
from .. import advice
from ..advice import library_argument
from ..evaluator import Point
from ..recovery import Cascade
from ..values.compile_time import Closure, Frame, Poisoned, is_comptime_number
from ..values.describe import describe
from ..values.index import BodyIndex
from .declarations import as_declared


def check_number(call: Point, name: str, operand: object, key: str) -> None:
    """Refuses an argument that is neither a number nor a run-time value."""
    if (isinstance(operand, Value) and isinstance(operand.type, SIMDType)) or is_comptime_number(operand):
        return
    hint: str | None = None
    if isinstance(operand, BodyIndex):
        hint = "take a component of the index: `i[0]`, or unpack it: `y, x = i`"
    elif hasattr(operand, "dims"):
        hint = advice.over_elements(name, call.nodes.get(key, call.node), call.frame)
    raise call.error("EK0204", f"'{name}' works on numbers, not on {describe(operand)}", key, hint=hint)


def bind_stub(call: Point, name: str, args: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of a stub's signature; remembers where each stands in the text."""
    return bind_signature(call, name, STUBS[name].signature, args, keywords)


def bind_signature(
    call: Point, name: str, signature: inspect.Signature, args: list[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by the names of a signature; remembers where each stands in the text."""
    form = _form_of(signature)
    given = _bound(form, args, keywords)
    parameters = signature.parameters
    if given is not None:
        _know_nodes(call, parameters, form)
        return given
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        bare = [p.replace(annotation=p.empty, default=p.empty) for p in signature.parameters.values()]
        listed = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        hint = None
        if "'body'" in str(error):  # as a loop over it, which numba's prange is
            hint = f"its body is a function, given last: def body(...): ..., and then {name}(..., body)"
        raise call.error("EK0208", f"wrong arguments for {name}{listed}: {error}", hint=hint) from None
    _know_nodes(call, parameters, form)
    bound.apply_defaults()
    return dict(bound.arguments)


_MISSING = inspect.Parameter.empty
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, eq=False)
class _Form:
    """What `_bound` has to know of a signature.

    Attributes:
        defaults: of all parameters, in their order.
        positions: how many arguments may be given by position.
        plain: whether all parameters can be given by name, so that none takes several arguments.
        several: whether the only parameter takes all of them.
    """

    signature: inspect.Signature
    defaults: dict[str, object]
    positions: int
    plain: bool
    several: bool


_forms: dict[int, _Form] = {}  # by the signature's id, for to hash one takes as long as to bind it


def _form_of(signature: inspect.Signature) -> _Form:
    form = _forms.get(id(signature))
    if form is None:
        parameters = signature.parameters.values()
        kinds = [p.kind for p in parameters]
        form = _forms[id(signature)] = _Form(
            signature,
            {p.name: p.default for p in parameters},
            sum(kind in _BY_POSITION for kind in kinds),
            all(kind in _BY_NAME for kind in kinds),
            kinds == [inspect.Parameter.VAR_POSITIONAL],
        )
    return form


def _bound(form: _Form, args: list[Any], keywords: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments and defaults by name, as `Signature.bind` gives them; None where it has to say more."""
    defaults = form.defaults
    if form.several:
        return None if keywords else dict.fromkeys(defaults, tuple(args))
    if not form.plain or len(args) > form.positions:
        return None
    if len(args) == len(defaults) and not keywords:
        return dict(zip(defaults, args, strict=True))
    if not keywords.keys() <= defaults.keys():
        return None
    bound = defaults | dict(zip(defaults, args, strict=False))
    for position, name in enumerate(defaults):
        if name in keywords:
            if position < len(args):
                return None
            bound[name] = keywords[name]
        elif bound[name] is _MISSING:
            return None
    return bound


def _know_nodes(call: Point, parameters: Mapping[str, inspect.Parameter], form: _Form) -> None:
    """Remembers where each argument stands."""
    node = call.node
    if not isinstance(node, syntax.Call):
        return
    given = node.arguments
    for argument in given:
        if isinstance(argument, syntax.Starred):
            return
    nodes: dict[str, syntax.SyntaxNode] = dict(zip(parameters, given, strict=False))
    if not form.plain:
        for place, (name, parameter) in enumerate(parameters.items()):
            if parameter.kind is parameter.VAR_POSITIONAL:
                several = given[place:]
                if len(several) > 1:
                    span = (*several[0].span[:2], *several[-1].span[2:])
                    nodes[name] = syntax.Tuple(several, span=span)
                break
    for keyword in node.keywords:
        nodes[keyword.name] = keyword.value
    call.nodes = nodes


def bind_params(here: Point, closure: Closure, args: list[Any], keywords: dict[str, Any], inner: Frame) -> bool:
    """Gives every parameter of a function its argument or default; whether the arguments are as many as it takes.

    When they are not, which is noted, the parameters are poisoned, and the function can still be looked into.
    """
    params = closure.function.params
    try:
        given = match_arguments(here, closure.name, closure.function, args, keywords, closure.frame)
    except CompileError as error:
        here.evaluator.collect(error, here.frame)
        if is_shipped(inner.file):
            raise Cascade from None
        inner.env |= {param.name: Poisoned() for param in params}
        return False
    from_author = is_shipped(inner.file) and not is_shipped(here.frame.file)
    for param in params:
        name = param.name
        value = given[name]
        wrong = library_argument(closure.name, name, given) if from_author else None
        if wrong is not None:
            raise here.on(argument_node(here.node, param, params)).error("EK0208", wrong[0], hint=wrong[1])
        if param.annotation is not None and not isinstance(value, Poisoned):
            what = f"argument '{name}' of '{closure.name}' is declared as"
            at = here.on(argument_node(here.node, param, params))
            value = at.recover(partial(as_declared, at, param.annotation, value, inner, what))
        inner.env[name] = value
        inner.origins.pop(name, None)
    return True


def match_arguments(
    here: Point,
    name: str,
    text: s.Function | s.Lambda | s.Struct,
    args: list[Any],
    keywords: dict[str, Any],
    home: Frame,
) -> dict[str, Any]:
    """An argument or a default for every parameter; `home` is where the defaults' names are known."""
    params = text.fields if isinstance(text, s.Struct) else text.params
    positional = [p for p in params if not p.keyword_only]
    if len(args) == len(params) == len(positional) and not keywords:
        return dict(zip((p.name for p in params), args, strict=True))
    if len(args) > len(positional):
        raise here.error(
            "EK0208",
            f"'{name}' takes {plural(len(positional), 'positional argument')}, not {len(args)}",
            notes=[f"'{name}' is defined at {home.place(text)}"],
        )
    given = dict(zip((p.name for p in positional), args, strict=False))
    for keyword, value in keywords.items():
        if keyword in given or all(p.name != keyword for p in params):
            message = f"'{name}' has no argument '{keyword}'"
            if keyword in given:
                message = f"argument '{keyword}' of '{name}' is given twice"
            hint = None if keyword in given else did_you_mean(keyword, [p.name for p in params])
            raise here.error("EK0208", message, hint=hint)
        given[keyword] = value
    for param in params:
        if param.name not in given:
            if param.default is None:
                raise here.error("EK0208", f"'{name}' misses its argument '{param.name}'")
            given[param.name] = here.evaluator.expr(param.default, home)
    return given


def argument_node(node: syntax.SyntaxNode, param: syntax.Param, params: tuple[syntax.Param, ...]) -> syntax.SyntaxNode:
    """Where an argument of a plain call stands; the call itself when that is unknown."""
    if not isinstance(node, syntax.Call) or any(isinstance(a, syntax.Starred) for a in node.arguments):
        return node
    named = {k.name: k.value for k in node.keywords}
    position = params.index(param)
    if param.name in named:
        return named[param.name]
    if len(node.arguments) + len(named) <= len(params) and position < len(node.arguments):
        return node.arguments[position]
    return node
