"""Gives mypy the calls of kernels: a plugin, which `einkorn.mypy` is the name of in settings.

    [tool.mypy]
    plugins = ["einkorn.mypy"]

A kernel is called without its outputs and its device context, with `out=` and its compile-time parameters by name. The
role of an argument is read off its annotation as it is written: to mypy `OutputTensor` is `Annotated`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mypy.nodes import ARG_NAMED, ARG_NAMED_OPT, ARG_POS, ARG_STAR, ARG_STAR2, ArgKind, Decorator, TypeInfo
from mypy.plugin import MethodContext, Plugin
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    LiteralType,
    NoneType,
    Parameters,
    TupleType,
    Type,
    TypeOfAny,
    UnboundType,
    UnionType,
    get_proper_type,
)

REGISTER = f"{__name__.removesuffix('.mypy_plugin')}.register"
MEMBERS = f"{__name__.removesuffix('.frontend.python.mypy_plugin')}.language.members"
OUTPUTS = {"OutputTensor", "OutputVariadicTensors"}
VARIADIC = {"VariadicTensors", "InputVariadicTensors", "OutputVariadicTensors"}
CONTEXT = "DeviceContext"
OUT = "out"
CALLS = {f"{REGISTER}.Kernel.__call__", f"{REGISTER.rpartition('.python.')[0]}.call_types.CalledAs.__call__"}
ARRAY = "numpy.ndarray"
NUMBERS = {"builtins.bool", "builtins.int", "builtins.float", "builtins.complex"}


class KernelCalls(Plugin):
    """Types what `@register("name")` makes of a function."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """The hooks for the call that a decorator is, and for calls of kernels."""
        if fullname in CALLS:
            return _result
        return _kernel if fullname == f"{REGISTER}.Registering.__call__" else None


def plugin(version: str) -> Any:
    """The entry point of mypy's plugins."""
    return KernelCalls


def _kernel(context: MethodContext) -> Type:
    """`Kernel[Inputs, Whole]` for the function under the decorator; without a look at classes."""
    default = get_proper_type(context.default_return_type)
    function = get_proper_type(context.arg_types[0][0])
    if not (isinstance(default, Instance) and isinstance(function, CallableType)):
        return default
    if not isinstance(context.context, Decorator):
        return default
    written = context.context.func.unanalyzed_type
    if not isinstance(written, CallableType):
        return default
    anything = AnyType(TypeOfAny.special_form)
    numbers, memory, destination = (_member(context, name) for name in ("Numbers", "Memory", "Members"))
    argument = UnionType([numbers, memory])
    inputs, whole = _Signature(), _Signature()
    roles = [each.name.rpartition(".")[2] if isinstance(each, UnboundType) else "" for each in written.arg_types]
    several = not VARIADIC.isdisjoint(set(roles) - OUTPUTS)
    checked = OUTPUTS.isdisjoint(roles) and not several and CONTEXT not in roles  # both ways to call it are one
    others: Type = UnionType([numbers, memory, destination]) if checked else anything
    if several:  # lists of tensors, or one after the other: their number is not checked
        inputs.add(anything, ARG_STAR, None)
    for name, kind, kept, role in zip(function.arg_names, function.arg_kinds, function.arg_types, roles, strict=True):
        if kind in (ARG_NAMED, ARG_NAMED_OPT):
            inputs.add(kept, kind, name)
            whole.add(kept, kind, name)
            continue
        whole.add(destination if role in OUTPUTS - VARIADIC else others if role != "" else argument, kind, None)
        if several or role in OUTPUTS or role == CONTEXT:
            continue
        inputs.add(argument, ARG_POS, name)
    if whole.types[:1] == [destination] and OUT not in inputs.names:
        inputs.add(anything, ARG_NAMED_OPT, OUT)
    return default.copy_modified(args=[inputs.parameters(), whole.parameters()])


def _result(context: MethodContext) -> Type:
    """What a call of a kernel returns: the memory of `out=`, or arrays of the kind of its arguments."""
    default, kernel = context.default_return_type, get_proper_type(context.type)
    if not isinstance(kernel, Instance) or len(kernel.args) < 2:
        return default
    whole = get_proper_type(kernel.args[1])
    if not isinstance(whole, Parameters) or ARG_STAR2 in whole.arg_kinds:  # a kernel whose signature is not known
        return default
    count = sum(_is_destination(each) for each in whole.arg_types)
    given: list[Type] = []
    for name, types in zip(context.callee_arg_names, context.arg_types, strict=False):
        if name == OUT and types:
            return default if isinstance(get_proper_type(types[0]), NoneType) else types[0]
        given += types if name not in whole.arg_names or name is None else []
    if whole.arg_names and len(given) == sum(kind == ARG_POS for kind in whole.arg_kinds) and count:
        return default  # with its outputs, in another kernel
    kind = _kind(given[:6])
    if count == 0:
        return NoneType() if kind is not None else default
    if kind is None:
        return default
    if count == 1:
        return kind
    return TupleType([kind] * count, context.api.named_generic_type("builtins.tuple", [kind]))


def _is_destination(type_: Type) -> bool:
    proper = get_proper_type(type_)
    return isinstance(proper, Instance) and proper.type.fullname == f"{MEMBERS}.Members"


def _kind(given: Sequence[Type]) -> Type | None:
    """The type of the arrays that come back for these; None where it is not known."""
    arrays: list[Instance] = []
    for each in map(get_proper_type, given):
        each = each.fallback if isinstance(each, LiteralType) else each
        if not isinstance(each, Instance):
            return None
        if each.type.fullname in NUMBERS or each.type.has_base("numpy.generic"):
            continue
        arrays.append(each)
    for array in arrays:
        if not array.type.has_base(ARRAY):
            return array if array.type.has_readable_member("__dlpack__") or array.type.name.endswith("Value") else None
    if not arrays:
        return None
    anything = AnyType(TypeOfAny.special_form)
    return arrays[0].copy_modified(args=[anything] * len(arrays[0].args), last_known_value=None)


def _member(context: MethodContext, name: str) -> Type:
    """A class of `members`, which `call_types` imports."""
    module = context.api.modules[MEMBERS]  # type: ignore[attr-defined]
    node = module.names[name].node
    assert isinstance(node, TypeInfo)
    return Instance(node, [])


class _Signature:
    """Collects the parameters of a call."""

    def __init__(self) -> None:
        self.types: list[Type] = []
        self.kinds: list[ArgKind] = []
        self.names: list[str | None] = []

    def add(self, type_: Type, kind: ArgKind, name: str | None) -> None:
        self.types.append(type_)
        self.kinds.append(kind)
        self.names.append(name)

    def parameters(self) -> Parameters:
        return Parameters(self.types, self.kinds, self.names)
