"""Benchmarks: how functions are timed, which functions of a file are, and how two runs are compared."""
