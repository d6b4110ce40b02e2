"""Writes the types of a kernel file for editors and checkers: `kernels.pyi`, which stands next to `kernels.py`.

A kernel is there what it is when it is called from Python: a function that takes tensors of one kind, NumPy arrays say,
and returns tensors of that kind. What else the file has is of any type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ...diagnostics.errors import EinkornError, joined
from ...signature.description import kind_text, tensor_text, value_text
from ...signature.schema import Form, OpSchema, Parameter, TensorArgument
from ...types.dtype import DType
from .import_file import import_file
from .register import Kernel

_HEAD = '''"""The types of the kernels in {file}. `einkorn build --stubs` writes this file."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, SupportsFloat, TypeVar

from einkorn.dsl import DType
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.graph import TensorValue

class _HasMemory(Protocol):
    @property
    def __dlpack__(self) -> Callable[..., Any]: ...

_Tensor = TypeVar("_Tensor", bound=_HasMemory | TensorValue)
_Number = SupportsFloat | _HasMemory | TensorValue
'''
_TAIL = """
def __getattr__(name: str) -> Any: ...
"""


def write_stubs(files: Iterable[Path]) -> dict[Path, str]:
    """The text of the stub next to each kernel file.

    Raises:
        EinkornError: a file cannot be imported.
    """
    mistakes: list[EinkornError] = []
    modules = {file: import_file(file, mistakes) for file in files}
    if mistakes:
        raise joined(mistakes)
    return {file.with_suffix(".pyi"): stub_text(module) for file, module in modules.items() if module is not None}


def stub_text(module: ModuleType) -> str:
    """The stub of a module: each name that is a kernel of its own."""
    kernels = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Kernel) and value.function.__module__ == module.__name__
    }
    parts = [_HEAD.format(file=Path(str(module.__file__)).name)]
    parts += [_kernel(name, kernel.schema) for name, kernel in kernels.items()]
    return "".join(parts) + _TAIL


def _kernel(name: str, schema: OpSchema) -> str:
    result = _result(schema)
    free = any("_Tensor" in _type(a) for a in schema.inputs)  # whether what is passed says what kind comes back
    arguments = ["self", *(f"{a.name}: {_type(a)}" for a in schema.inputs), *(["/"] if schema.inputs else [])]
    keywords = [f"{p.name}: {kind_text(p)}{'' if p.required else f' = {_default(p)}'}" for p in schema.parameters]
    if schema.outputs:
        keywords.append(f"out: {result} | None = None")
    arguments += ["*", *keywords] if keywords else []
    call = f"({', '.join(arguments)}) -> {result}"
    if not free:
        call = call.replace("_Tensor", "Any")
    promise = [f"Returns {a.name}: {tensor_text(a)}" for a in schema.outputs]
    doc = inspect.cleandoc(schema.doc).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = "\n        ".join(line for line in (doc or "\n".join(promise)).splitlines())
    docs = f'        """{text}"""' if text else "        ..."
    return f"\nclass _{name}(Kernel):\n    def __call__{call}:\n{docs}\n\n{name}: _{name}\n"


def _type(argument: TensorArgument) -> str:
    if argument.form is Form.VARIADIC:
        return "Sequence[_Tensor]"
    return "_Number" if argument.form is Form.SCALAR or argument.dims == "" else "_Tensor"


def _result(schema: OpSchema) -> str:
    each = ["list[_Tensor]" if a.form is Form.VARIADIC else "_Tensor" for a in schema.outputs]
    return {0: "None", 1: each[0] if each else ""}.get(len(each), f"tuple[{', '.join(each)}]")


def _default(parameter: Parameter) -> str:
    default = parameter.default
    return f"DType.{default.name}" if isinstance(default, DType) else value_text(parameter)
