"""Measures calls: the time of groups and tasks, and the memory accesses of simulated kernels."""
