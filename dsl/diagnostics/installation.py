"""Finds the package itself: its name, and the folder that it lies in, however deep the calling module.

See also `environment.fingerprint`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePath

_PARTS = __name__.split(".")
PACKAGE = _PARTS[0]
ROOT = Path(__file__).parents[len(_PARTS) - 2]

_PREFIX = f"{PACKAGE}."


@cache
def is_own_module(name: str) -> bool:
    """Whether a module of this name belongs to the package."""
    return name == PACKAGE or name.startswith(_PREFIX)


# Libraries that call kernels: their frames, and those of what they wrap their functions in, lie between a call in the
# user's text and the kernel.
_BETWEEN = frozenset({PACKAGE, "torch", "functorch", "jax", "jaxlib", "contextlib", "functools"})


@cache
def is_between(name: str) -> bool:
    """Whether a module of this name belongs to the package, or to a library through which kernels are called."""
    return name.partition(".")[0] in _BETWEEN


def is_below(file: str, *folders: str) -> bool:
    """Whether a file lies in one of these folders of the package, or in a folder below."""
    return any(PurePath(file).is_relative_to(ROOT / folder) for folder in folders)
