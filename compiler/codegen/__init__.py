"""MLIR -> LLVM IR -> machine code, and the thread pool."""
