"""Makes structs: `@struct` over a class, which kernels take for a value with named parts.

    @struct
    class Complex:
        re: T
        im: T = 0.0

        def __mul__(self, other):
            return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

In Python such a class is a frozen dataclass. In a kernel it is a value: each field is a value of its own, and `p.x = v`
gives the variable p a new struct.

See also `frontend.python.structs` (its syntax tree).
"""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any, Generic, Protocol, TypeVar, dataclass_transform

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import CompileError
from ..diagnostics.places import Place, user_place
from ..diagnostics.rich import Rich
from ..diagnostics.text import SOURCE, keep_text

__all__ = ["struct"]

INFO = "__einkorn_struct__"
_ORDER = re.compile(r"non-default argument '(\w+)' follows default argument")  # Python's words; 3.12 and later add more
C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class StructInfo:
    """Where a struct is defined, and the names that its text may use."""

    file: str
    line: int
    names: dict[str, Any]


@dataclass_transform()
def struct(cls: C) -> C:
    """Makes a class a struct: its annotated fields are the arguments of its constructor.

    Fields are annotated with scalar and vector types, type variables, other structs, `tuple[...]`, `Any`, or Python's
    `int`, `float`, `bool`, `str` for values known at compile time; they may have defaults. Methods, operators
    (`__add__`, `__getitem__`, ...), properties, static and class methods, and constants work as in Python.

    Raises:
        CompileError: EK0121, the class is not what a struct can be.
    """
    place = user_place()
    if not isinstance(cls, type):
        raise CompileError("@struct belongs on a class", code="EK0121", place=place)
    if "<locals>" in cls.__qualname__:
        raise _refused(cls, place, "is defined in a function", "define it at module level")
    # What is drawn in Python may have a base that draws it: kernels read the text of the class alone.
    others = [base for base in cls.__bases__ if base not in (object, Generic, Protocol) and not issubclass(base, Rich)]
    if others:
        raise _refused(cls, place, f"has the base class '{others[0].__name__}'", "make it a field")
    for name, instead in (("__init__", "give fields defaults, or write a static method"), ("__slots__", "drop it")):
        if name in cls.__dict__:
            raise _refused(cls, place, f"defines {name}", instead)
    caller = sys._getframe(1)
    info = StructInfo(caller.f_code.co_filename, caller.f_lineno, caller.f_globals)
    if info.file not in info.names.get(SOURCE, {}):
        keep_text(info.names, info.file)  # before the file may be written
    try:
        dataclass_: Any = dataclasses.dataclass(frozen=True)(cls)
    except (TypeError, ValueError) as error:
        wrong = _ORDER.match(str(error))
        text = f"field '{wrong[1]}' has no default, and follows a field with one" if wrong else error
        raise _refused(cls, place, f"cannot be one: {text}", None) from None
    setattr(dataclass_, INFO, info)
    return dataclass_  # type: ignore[no-any-return]


def _refused(cls: type, place: Place | None, what: str, hint: str | None) -> CompileError:
    return CompileError(f"the struct '{cls.__name__}' {what}", code="EK0121", place=place, hint=hint)


def is_struct(value: Any) -> bool:
    """Whether a Python object is a class under `@struct`."""
    return isinstance(value, type) and INFO in value.__dict__
