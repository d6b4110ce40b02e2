"""Holds the modules of Einkorn that are named as what they work with: `einkorn.torch`, `einkorn.jax`, `einkorn.random`.

The repository root is the package, and programs that are started there find modules in it: a folder `torch` in the root
would stand before PyTorch itself. So these packages lie here, and `einkorn/__init__.py` lets `import einkorn.torch`
find `graph/public/torch`. Type checkers do not follow that: a wheel has `einkorn/torch` itself (`package-dir` in
pyproject.toml). They import by absolute names, load nothing heavy before it is used, and hold names alone.
"""
