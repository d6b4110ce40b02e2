"""Dtypes, number formats and packing."""
