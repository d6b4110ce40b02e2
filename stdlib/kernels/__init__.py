"""The kernels of the built-in graph ops."""
