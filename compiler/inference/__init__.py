"""Infers the typed program of a kernel from its syntax tree, by evaluating it."""
