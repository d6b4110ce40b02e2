"""Objects of exported files that the cache keeps: what is written in LLVM IR is compiled once for a target."""

from __future__ import annotations

from typing import Final

from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ..targets import Target
from .llvm import emit_object

_SUFFIX: Final = ".o"
_LEVEL: Final = 2


def kept_object(text: str, target: Target) -> bytes:
    """The object of a module, from the cache or compiled at level 2."""
    key = content_key("object", text, target.key, fingerprint())
    code = shared_cache().get(key, _SUFFIX)
    if code is None:
        code = emit_object(text, target, level=_LEVEL)
        shared_cache().put(key, code, _SUFFIX)
    return code
