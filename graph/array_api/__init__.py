"""The functions of the Python array API standard, for tensors (see docs/eager.md)."""
