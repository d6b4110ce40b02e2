"""Einkorn: one kernel, written once in typed Python, that runs on every target.

    einkorn.dsl       the language that kernels are written in
    einkorn.graph     graphs, sessions, buffers: where kernels run
    einkorn.compiler  typed programs, MLIR, LLVM, targets, packages
    einkorn.stdlib    the library, written in the language

    einkorn.load(path)  the ops of a package, a folder of kernel files or one file, as attributes that are called

Importing this module imports none of them, and none of them loads a compiler before one is needed. Each is imported
when it is used first: `einkorn.tensor` needs no import of its own.
"""

__version__ = "0.1.0"

# In the checkout `einkorn.torch` is `graph/public/torch`; see there why.
__path__.append(f"{__path__[0]}/graph/public")

MODULES = frozenset(
    (
        *(
            "array_api",
            "bench",
            "compiler",
            "dsl",
            "errors",
            "functional",
            "graph",
            "jax",
            "numba",
            "profile",
            "random",
        ),
        *("stdlib", "tensor", "testing", "torch"),
    )
)
OPENING = ("Library", "load")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from einkorn.dsl.package.namespace import Library, load

    __all__ = ["Library", "load"]

    def __getattr__(name: str) -> Any: ...

else:

    def __getattr__(name: str) -> object:
        """`load` and `Library`, and the public modules: they are imported when they are used first."""
        from importlib import import_module

        if name not in MODULES and name not in OPENING:
            raise AttributeError(f"module 'einkorn' has no attribute '{name}'")
        value = import_module(f"{__name__}.{name if name in MODULES else 'dsl.package.namespace'}")
        if name in OPENING:
            globals()[name] = value = getattr(value, name)
        return value
