"""Compares code objects in time that grows with their text.

`==` of CPython compares what is nested in a code object twice, so that a lambda in a lambda 24 deep takes minutes.
"""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any


def code_key(code: CodeType, keys: set[bytes] | None = None) -> bytes:
    """What a code object does, to the column, as a key: all that `==` compares. The keys of what is nested in it, and
    its own, are added to `found`."""
    parts = (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_firstlineno,
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_linetable,
        code.co_exceptiontable,
        [_constant(value, keys) for value in code.co_consts],
    )
    key = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest()
    if keys is not None:
        keys.add(key)
    return key


def _constant(value: object, keys: set[bytes] | None) -> Any:
    if isinstance(value, CodeType):
        return code_key(value, keys)
    if isinstance(value, tuple):
        return [_constant(item, keys) for item in value]
    if isinstance(value, frozenset):
        return {"set": sorted(repr(_constant(item, keys)) for item in value)}
    return value
