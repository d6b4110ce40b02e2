"""Callers of kernels from outside of graphs: Python itself, and what other libraries call."""
