"""Gives a kernel object a class of its own, whose members hold for it alone: a door as `__call__`, a getter as `ufunc`.

Python looks for what is called in the class of an object. What looks at the class itself finds the `__call__` of all
kernels there, not the door: Dynamo, which traces Python alone, can trace it.

See also `frontend.python.register` (when a kernel is of the class of all kernels again).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...dsl.frontend.caller import Called
from .specialise import AnyKernel

_CALL = "__call__"


class _OwnClass(type):
    """The class of kernels' own classes."""

    @property  # type: ignore[misc]
    def __dict__(cls) -> MappingProxyType[str, Any]:  # type: ignore[override]
        """The members but the door. `inspect.getattr_static`, which Dynamo uses, passes over a class with this."""
        return MappingProxyType({name: member for name, member in _members(cls).items() if name != _CALL})

    def __getattribute__(cls, name: str) -> Any:
        return Called.__call__ if name == _CALL else super().__getattribute__(name)


def _members(own: type) -> Mapping[str, Any]:
    members: Mapping[str, Any] = type.__dict__["__dict__"].__get__(own)
    return members


def own_member(kernel: AnyKernel, name: str) -> Any:
    """A member of the kernel's own class; None where it has none."""
    return _members(type(kernel)).get(name) if isinstance(type(kernel), _OwnClass) else None


def set_own(kernel: AnyKernel, name: str, member: object) -> None:
    """Sets a member of the kernel's own class."""
    own = type(kernel)
    if isinstance(own, _OwnClass):
        setattr(own, name, member)
    else:  # the class is still that of all kernels
        members = {name: member, "__doc__": vars(own)["__doc__"], "__module__": own.__module__}
        kernel.__class__ = _OwnClass(own.__name__, (own,), members)  # type: ignore[assignment]


def drop_own(kernel: AnyKernel, name: str) -> None:
    """Removes a member from the kernel's own class, if it has one: the member of all kernels is back."""
    if own_member(kernel, name) is not None:
        delattr(type(kernel), name)
