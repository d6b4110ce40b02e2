"""Answers attributes, methods and subscripts of values."""
