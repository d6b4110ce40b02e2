"""Writes the stubs of tensors' methods and functions for type checkers, from the ops that they are.

    python tests/support/eager_stubs.py

A test compares the stubs with the ops.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from einkorn.graph.eager import functional
from einkorn.graph.eager.methods import Methods
from einkorn.graph.eager.nodes import FUNCTIONS
from einkorn.graph.ops.stage import METHODS, OPS
from einkorn.graph.staging.value import TensorValue

FOLDER = Path(functional.__file__).parent
IMPORTS = {
    "collections.abc": "Callable Iterable Iterator Mapping Sequence",
    "contextlib": "AbstractContextManager",
    "pathlib": "Path",
    "typing": "Any TypeVar",
    "...dsl.types.dtype": "DType",
    "..driver.devices": "Device DeviceRef",
    "..quantization.encodings": "QuantizationConfig QuantizationEncoding",
    "..staging.graph": "Graph",
    "..types.dims": "Dim",
    "..types.layouts": "ConvInputLayout FilterLayout InterpolationMode Normalization",
    "..types.tensor_type": "BufferType TensorType",
    ".tensor": "Tensor",
}
ALIASES = """
Axes = int | tuple[int, ...] | None
DimLike = int | str | Dim
Numbers = int | Iterable[int]
TensorLike = Any  # Tensor, a value of a graph, int, float, NumPy scalar or array, any DLPack array
"""
RENAMED = {
    "TensorValueLike": "TensorLike",
    "TensorValue": "Tensor",
    "BufferValue": "Tensor",
    "Axes | Literal[_Default.LAST]": "Axes",
    "object": "Any",
    "Extensions": "Any",
}


def annotation(text: Any) -> str:
    """An annotation of an op as tensors have it."""
    shown = text if isinstance(text, str) else getattr(text, "__name__", "Any")
    if shown == "_empty":
        return "Any"
    shown = shown.replace("Axes | Literal[_Default.LAST]", "Axes")
    return re.sub(r"\w+", lambda found: RENAMED.get(found[0], found[0]), shown)


def default(value: Any) -> str:
    """A default as stubs write it."""
    return repr(value) if value is None or type(value) in (bool, int, float, str) else "..."


def declared(name: str, function: Callable[..., Any], method: bool) -> str:
    """`def` of a function or a method, with the first sentences of its documentation for functions."""
    parts, star = [], False
    parameters = list(inspect.signature(function).parameters.values())
    if method:
        parts.append("self")
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        mark = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        given = "" if parameter.default is inspect.Parameter.empty else f" = {default(parameter.default)}"
        parts.append(f"{mark}{parameter.name}: {annotation(parameter.annotation)}{given}")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and (
            parameter is parameters[-1]
            or parameters[parameters.index(parameter) + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
        ):
            parts.append("/")
    result = annotation(inspect.signature(function).return_annotation)
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


def stub(title: str, lines: list[str]) -> str:
    """A stub with what it imports."""
    body = "\n".join([ALIASES, *lines, ""])
    words = set(re.findall(r"\w+", body))
    head = [f'"""{title}. Written by `python tests/support/eager_stubs.py`."""', ""]
    for module, names in IMPORTS.items():
        used = [name for name in names.split() if name in words]
        head += [f"from {module} import {', '.join(used)}"] if used else []
        head += [""] if module in ("typing",) else []
    return "\n".join(head) + "\n" + body


def functions() -> str:
    """The stub of `functional`."""
    names = ", ".join(f'"{name}"' for name in sorted(functional.__all__))  # star imports take what stands here
    lines = [
        "CustomExtensionType = str | Path",
        'F = TypeVar("F", bound=Callable[..., Any])',
        "",
        f"__all__ = [{names}]",
    ]
    lines += ["", "def functional(op: F) -> F: ...", "def lazy() -> AbstractContextManager[None]: ..."]
    lines += ["def in_graph_context() -> bool: ..."]
    lines += [declared(name, function, False) for name, function in sorted(FUNCTIONS.items()) if "." not in name]
    return stub("Functions over all ops, for tensors and for values of graphs", lines)


def methods() -> str:
    """The stub of `Methods`."""
    lines = ["class Methods:"]
    known = {name: function for (owner, name), function in METHODS.items() if owner is TensorValue}
    for name in sorted(vars(Methods)):
        function = known.get(name) or (OPS[name].function if name in OPS else None)
        if function is None:
            continue
        if name in ("__eq__", "__ne__"):
            lines.append(f"    def {name}(self, other: TensorLike) -> Tensor: ...  # type: ignore[override]")
        elif name.startswith("__"):
            alone = name in ("__neg__", "__abs__", "__round__", "__invert__")
            other = "" if alone else ", indices: Any" if name == "__getitem__" else ", other: TensorLike"
            lines.append(f"    def {name}(self{other}) -> Tensor: ...")
        else:
            lines.append(f"    {declared(name, function, True)}")
    return stub("The methods and operators that ops give tensors", lines)


def written(text: str) -> str:
    """A stub as it is formatted."""
    ruff = [sys.executable, "-m", "ruff", "format", "--line-length=120", "--stdin-filename", "stub.pyi", "-"]
    return subprocess.run(ruff, input=text, text=True, capture_output=True, check=True, cwd=FOLDER).stdout


STUBS = {"functional.pyi": functions, "methods.pyi": methods}

if __name__ == "__main__":
    for file, text in STUBS.items():
        (FOLDER / file).write_text(written(text()))
