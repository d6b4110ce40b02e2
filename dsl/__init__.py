"""The kernel language: everything that a kernel file imports.

    from einkorn.dsl import InputTensor, OutputTensor, foreach, register

A name is declared in one place, a file of `language`, which exports it by its `__all__`.
"""

from __future__ import annotations

from inspect import currentframe as _currentframe
from typing import TYPE_CHECKING

from .diagnostics.shield import shielded as _shielded

with _shielded():
    from . import language as _language
    from .frontend.python.autotune import autotune as autotune
    from .frontend.python.from_text import kernels_of as kernels_of
    from .frontend.python.register import implements as implements
    from .frontend.python.register import register as register
    from .language.annotations import *
    from .language.arithmetic import *
    from .language.atomics import *
    from .language.bits import *
    from .language.dtypes import *
    from .language.gpu import *
    from .language.kinds import *
    from .language.loops import *
    from .language.mathematics import *
    from .language.missing_names import missing as _missing
    from .language.native import *
    from .language.python import *
    from .language.structs import *
    from .types.dtype import DType as DType

if not TYPE_CHECKING:  # checkers follow the imports
    __all__ = ["DType", "autotune", "implements", "kernels_of", "register"]
    for _family in vars(_language).values():
        __all__ += getattr(_family, "__all__", ())

    def __getattr__(name: str) -> object:
        """Refuses a name that the language does not have, with what to write instead."""
        frame = _currentframe()
        raise _missing(__name__, name, __all__, None if frame is None else frame.f_back)
