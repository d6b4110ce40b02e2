"""Finds functions of CPython's C interface: their addresses for generated code, and a few that are called here.

What those take is said by functions of our own: code that imports `ctypes` may change it for those in
`ctypes.pythonapi`, which are everybody's.

See also `calling.python_door` (how objects lie in memory).
"""

from __future__ import annotations

import ctypes
from typing import Any


def address_of(name: str) -> int:
    """Where a function of Python's lies."""
    return address_of_function(getattr(ctypes.pythonapi, name))


def address_of_function(function: Any) -> int:
    """Where a function of `ctypes` lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _own(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


is_capsule = _own("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
pointer_of_capsule = _own("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
new_capsule = _own("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
new_function = _own("PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
