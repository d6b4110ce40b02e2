"""Einkorn: one kernel, written once in typed Python, that runs on every target.

    einkorn.dsl       the language that kernels are written in
    einkorn.graph     graphs, sessions, buffers: where kernels run
    einkorn.compiler  typed programs, MLIR, LLVM, targets, packages
    einkorn.stdlib    the library, written in the language

Importing this module imports none of them, and none of them loads a compiler before one is needed.
"""

__version__ = "0.1.0"

# In the checkout `einkorn.torch` is `graph/public/torch`; see there why.
__path__.append(f"{__path__[0]}/graph/public")
