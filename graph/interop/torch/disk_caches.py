"""Keeps the caches of `torch.compile` on disk apart by what ops mean.

Inductor finds a compiled program by the text of its graph, which names an op and holds neither its signature nor its
backward. So the tag of these caches, `torch.compiler.config.cache_key_tag`, has a digest of the files in which the
kernels and backwards of all ops stand. A file that is edited makes the caches miss; a tag of the user's own is kept.
"""

from __future__ import annotations

import hashlib
import linecache
import re
from collections.abc import Iterator

import torch

from ..specialise import AnyKernel

_OURS = re.compile(r";einkorn-[0-9a-f]*")
_meanings: dict[str, str] = {}


def keep_apart(name: str, kernel: AnyKernel) -> None:
    """Puts what an op means now into the tag of the caches."""
    config: object = torch.compiler.config
    if not hasattr(config, "cache_key_tag"):  # before PyTorch 2.7
        return
    gradient = kernel.gradient
    functions = [kernel, *([] if gradient is None else [gradient.compute])]
    meaning = _digest(part for function in functions for part in _texts(function))
    if _meanings.get(name) == meaning:
        return
    _meanings[name] = meaning
    ours = _digest(f"{each}={_meanings[each]}" for each in sorted(_meanings))
    config.cache_key_tag = _OURS.sub("", config.cache_key_tag) + f";einkorn-{ours}"


def _digest(parts: Iterator[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _texts(function: object) -> Iterator[str]:
    """The text of the file of a function or kernel; of a kernel of a package, the digest of its program."""
    code = getattr(getattr(function, "function", function), "__code__", None)
    lines = linecache.getlines(code.co_filename) if code is not None else []
    if lines:
        yield "".join(lines)
    elif code is not None:
        yield code.co_code.hex()
    elif (digest := getattr(function, "digest", None)) is not None:
        yield str(digest)
