"""The plugin by which mypy checks the calls of kernels.

    [tool.mypy]
    plugins = ["einkorn.mypy"]

With it `add(x)` of a kernel with two inputs and `swiglu(x, bta=2)` are errors. Pyright finds them without settings.
"""

from einkorn.dsl.frontend.python.mypy_plugin import plugin

__all__ = ["plugin"]
