"""Names the libraries of generated code that are not code of a graph."""

from __future__ import annotations

from ..targets import Target
from .checker import checker_object
from .exchanges import exchange_object
from .launchers import launcher_object


def library_object(name: str, target: Target) -> bytes:
    """The code of a library, as a shared object: "sim", "mpi", "cuda" or "hip".

    Raises:
        TargetError: there is none for the target.
    """
    if name == "sim":
        return checker_object(target)
    return exchange_object(target) if name == "mpi" else launcher_object(name, target)
