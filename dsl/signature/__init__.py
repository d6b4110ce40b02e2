"""Dims, schemas, binding of calls, shapes."""
