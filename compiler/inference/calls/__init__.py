"""Calls: arguments, declarations, folding, functions of the library."""
