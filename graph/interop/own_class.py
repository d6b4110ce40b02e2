"""Gives a kernel object a class of its own, whose members hold for it alone: a door as `__call__`, a getter as `ufunc`.

Python looks for what is called in the class of an object. Input: a kernel, a member. Output: none. Non-goals: when a
kernel is of the class of all kernels again (see `frontend.python.register`).
"""

from __future__ import annotations

from typing import Any

from ...dsl.frontend.caller import Called
from .specialise import AnyKernel


def set_own(kernel: AnyKernel, name: str, member: Any) -> None:
    """Sets a member of the kernel's own class."""
    own = type(kernel)
    if Called in own.__bases__:  # the class is still that of all kernels
        members = {name: member, "__doc__": vars(own)["__doc__"], "__module__": own.__module__}
        kernel.__class__ = type(own.__name__, (own,), members)
    else:
        setattr(own, name, member)


def drop_own(kernel: AnyKernel, name: str) -> None:
    """Removes a member from the kernel's own class, if it has one: the member of all kernels is back."""
    own = type(kernel)
    if Called not in own.__bases__ and name in vars(own):
        delattr(own, name)
