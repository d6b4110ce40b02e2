"""Defines ops under names of PyTorch's: a name with a number where it is taken.

See also `op` (which name stands for which kernel).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._C._dynamo import eval_frame

from ....dsl.diagnostics.forks import fork_lock
from ....dsl.diagnostics.shield import shielded

NAMESPACE = "einkorn"  # of ops whose names have none
_libraries: dict[str, torch.library.Library] = {}
lock = fork_lock()

F = TypeVar("F", bound=Callable[..., Any])
SKIPPED: Any = None  # how Dynamo treats a frame and those below it; before PyTorch 2.7 there is no such setting
if hasattr(eval_frame, "_FrameExecStrategy"):
    SKIPPED = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


def untraced(function: F) -> F:
    """Marks what the dispatcher or autograd calls: Dynamo does not compile it, nor what it calls."""
    if SKIPPED is not None:
        eval_frame.set_code_exec_strategy(function.__code__, SKIPPED)
    return function


def library_of(namespace: str) -> torch.library.Library:
    """What ops of a namespace are defined in; it lives as long as the process, as they do."""
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    return _libraries[namespace]


def is_taken(namespace: str, name: str) -> bool:
    """Whether there is an op of this name."""
    return hasattr(getattr(torch.ops, namespace), name)


def define(namespace: str, name: str, schema: str, run: Callable[..., object], fake: Callable[..., object]) -> Any:
    """Defines an op.

    Args:
        schema: with the name.
        run: what it does with tensors.
        fake: what it does with fake ones.
    """
    library = library_of(namespace)
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, untraced(run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    return getattr(getattr(torch.ops, namespace), name).default


def defined(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """An op of its own; `schema` begins behind the name."""
    namespace, _, plain = name.rpartition("::")
    namespace, plain = re.sub(r"\W+", "_", namespace) or NAMESPACE, re.sub(r"\W+", "_", plain).strip("_") or "graph"
    with shielded(), lock:  # PyTorch catches exceptions where it looks for the caller
        chosen = next(n for n in _numbered(plain) if not is_taken(namespace, n))
        return define(namespace, chosen, f"{chosen}{schema}", run, fake)


def _numbered(name: str) -> Any:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1
