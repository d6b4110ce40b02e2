"""Typed program -> MLIR, a file for each family of operations."""
