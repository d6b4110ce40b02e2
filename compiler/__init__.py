"""Compiles kernels: from a compile unit (programs, dtypes, shapes) and a target to code that can be loaded.

| room | does |
|---|---|
| `pipeline` | runs the passes, all of them in one tuple; `build`, `check`, `explorer` and the graph call it |
| `inference` | evaluates a kernel's syntax tree at compile time; what remains is the typed program |
| `passes` | change the typed program, or say how it shall run: one idea a file, named as its row in the pipeline |
| `lowering` | writes the typed program as MLIR, a file a family of operations |
| `codegen` | takes MLIR to LLVM IR and that to objects, through the libraries that do it; the thread pool's code |
| `interpreter` | runs the typed program on NumPy: the oracle of the tests, and what a debugger steps in |
| `ir` | the typed program: records of operations, builder, ranges, verifier, printer |
| `targets` | one record a machine, requested features and facts |
| `explorer` | shows people what a compilation made |

Arrows: pipeline → inference, passes, lowering, codegen → ir, targets. Inference calls the interpreter to fold
constants; the interpreter imports no pipeline, and inference no passes. Nothing here imports the graph. This file
imports nothing, so that a warm start pays for no more than it uses.
"""
