"""Kernels as ops of PyTorch. This file loads nothing: `schema` can be read without PyTorch; see `callers`."""
