"""Gives mypy the calls of kernels: a plugin, which `einkorn.mypy` is the name of in settings.

    [tool.mypy]
    plugins = ["einkorn.mypy"]

A kernel is called without its outputs and its device context, with `out=` and its compile-time parameters by name. The
role of an argument is read off its annotation as it is written: to mypy `OutputTensor` is `Annotated`.

Input: what mypy knows of a function under `@register`. Output: `Kernel[Inputs, Whole]` (see `call_types`). Non-goals:
bodies of kernels are checked without the plugin, and Pyright needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mypy.nodes import ARG_NAMED, ARG_NAMED_OPT, ARG_POS, ARG_STAR, ArgKind, Decorator, TypeInfo
from mypy.plugin import MethodContext, Plugin
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    Parameters,
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


class KernelCalls(Plugin):
    """Types what `@register("name")` makes of a function."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """The hook for the call that a decorator is."""
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
    if several:  # lists of tensors, or one after the other: their number is not checked
        inputs.add(anything, ARG_STAR, None)
    for name, kind, kept, role in zip(function.arg_names, function.arg_kinds, function.arg_types, roles, strict=True):
        if kind in (ARG_NAMED, ARG_NAMED_OPT):
            inputs.add(kept, kind, name)
            whole.add(kept, kind, name)
            continue
        whole.add(destination if role in OUTPUTS - VARIADIC else anything if role != "" else argument, kind, None)
        if several or role in OUTPUTS or role == CONTEXT:
            continue
        inputs.add(argument, ARG_POS, name)
    if whole.types[:1] == [destination] and OUT not in inputs.names:
        inputs.add(anything, ARG_NAMED_OPT, OUT)
    return default.copy_modified(args=[inputs.parameters(), whole.parameters()])


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
