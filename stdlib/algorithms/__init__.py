"""Rows, reductions, scans, sorting, stencils, monoids, random numbers; what kernels and their references share."""
