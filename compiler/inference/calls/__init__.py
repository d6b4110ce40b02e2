"""Calls functions: arguments, declarations, folding, inlining, functions of the library."""
