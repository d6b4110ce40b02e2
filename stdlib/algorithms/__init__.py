"""Rows, reductions, scans, sorting, stencils, monoids, random numbers."""
