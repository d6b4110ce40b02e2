"""Einkorn: one kernel, written once in typed Python, that runs on every target.

    einkorn.dsl       the language that kernels are written in
    einkorn.graph     graphs, sessions, buffers: where kernels run
    einkorn.compiler  typed programs, MLIR, LLVM, targets, packages
    einkorn.stdlib    the library, written in the language

    einkorn.load(path)  the ops of a package, a folder of kernel files or one file, as attributes that are called

Importing this module imports none of them, and none of them loads a compiler before one is needed.
"""

__version__ = "0.1.0"

# In the checkout `einkorn.torch` is `graph/public/torch`; see there why.
__path__.append(f"{__path__[0]}/graph/public")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from einkorn.dsl.package.namespace import Library, load

    __all__ = ["Library", "load"]


def __getattr__(name: str) -> object:
    """`load` and `Library`, which are imported when they are used first."""
    if name not in ("load", "Library"):
        raise AttributeError(f"module 'einkorn' has no attribute '{name}'")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.dsl.package.namespace"), name)
    globals()[name] = found
    return found
