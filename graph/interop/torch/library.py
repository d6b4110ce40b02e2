"""Calls the ops of a library of kernels on PyTorch's tensors, all of them given: `library.grayscale(result, picture)`.

Each op takes its tensors in the order of its kernel's signature and writes those that are outputs.
`library.scale[{"factor": 2.0}]` is the op with values for its parameters.

See also `op` (ops that make their outputs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ....dsl.diagnostics.errors import DTypeError, PackageError, did_you_mean, shown_value
from ....dsl.diagnostics.places import user_place
from ....dsl.diagnostics.shield import raise_if_of_handler
from ....dsl.package.library import LibraryKernel, LoadedKernel
from ....dsl.package.library import LoadedLibrary as Library
from ....dsl.signature.parameters import bind_parameters
from ...staging.kernels import Extension, KernelLibrary, Kernels
from ..specialise import AnyKernel
from .arguments import explained
from .op import register
from .python_fallback import PythonFallback


class CustomOp:
    """An op that is given its outputs, with values for some of its parameters."""

    def __init__(self, fallback: PythonFallback, overload: Any, parameters: Mapping[str, object]) -> None:
        self._fallback = fallback
        self.torch = overload
        self.parameters = dict(parameters)
        self.__name__ = fallback.schema.name
        self.__doc__ = fallback.schema.doc

    def __getitem__(self, parameters: Mapping[str, object]) -> CustomOp:
        """The op with these values for its parameters, by name.

        Raises:
            GraphError: EK0320 it has no such parameter, EK0322 it is of another kind.
        """
        if torch.compiler.is_compiling():  # the call says what is wrong
            return CustomOp(self._fallback, self.torch, {**self.parameters, **parameters})
        if not isinstance(parameters, Mapping):
            raise DTypeError(
                f"op {self.__name__!r} takes parameters as a dict, not {shown_value(parameters)}",
                code="EK0452",
                place=user_place(),
                op=self.__name__,
                expected="dict",
                got=type(parameters).__name__,
                hint=f'write library.{self.__name__}[{{"name": value}}](...)',
            )
        known = {**self.parameters, **parameters}
        required = {p.name: p for p in self._fallback.schema.parameters if p.required and p.name not in known}
        if not required:  # else the call says which are missing
            bind_parameters(self._fallback.schema, known, place=user_place())
        return CustomOp(self._fallback, self.torch, known)

    def __call__(self, *tensors: Any) -> None:
        """Runs the op on all of its tensors, in the order of the kernel's signature; outputs are written."""
        try:
            self.torch(*tensors, **self.parameters)
        except (RuntimeError, TypeError) as error:
            raise_if_of_handler(error)
            schema = self._fallback.schema
            raise explained(schema, schema.tensors, error, tensors, self.parameters) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _custom_op, (self._fallback.kernel, self.parameters)

    def __copy__(self) -> CustomOp:
        return self

    def __deepcopy__(self, memo: object) -> CustomOp:
        return self

    def __repr__(self) -> str:
        return f"<einkorn.torch.CustomOp {self.torch.name()} {self.parameters or ''}>"


def _custom_op(kernel: AnyKernel, parameters: Mapping[str, object]) -> CustomOp:
    fallback = PythonFallback(kernel)
    return CustomOp(fallback, register(fallback, into=True).overload, parameters)


_OF = "_op_"  # begins attributes of a library that hold its ops: Dynamo reads them one by one


class CustomOpLibrary:
    """The kernels of a library as ops of PyTorch, by their names.

    Args:
        kernel_library: the path of a folder of kernel files, of one such file or of a package; or a library that is
            loaded, such as `einkorn.load(path)` gives.

    Raises:
        PackageError: the path holds no library.
        CompileError: a kernel file is not valid Python, or a signature is wrong.
    """

    def __init__(self, kernel_library: Extension) -> None:
        libraries = KernelLibrary([kernel_library]).libraries
        self._libraries, self._kernels = libraries, Kernels(libraries)

    def define(self, name: str) -> None:
        """Defines the op of this name, unless it is.

        Raises:
            PackageError: EK0440, there is none.
        """
        if f"{_OF}{name}" not in vars(self):
            vars(self)[f"{_OF}{name}"] = _custom_op(LibraryKernel(found_kernel(self._kernels, name)), {})

    def __getattr__(self, name: str) -> CustomOp:
        if name.startswith(("__", _OF)):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> CustomOp:
        """The op of this name, for names that are not identifiers of Python: `library["mine::scale"]`."""
        _define_op(self, name)
        result: CustomOp = getattr(self, f"{_OF}{name}")
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _library_of, (self._libraries,)

    def __copy__(self) -> CustomOpLibrary:
        return self

    def __deepcopy__(self, memo: object) -> CustomOpLibrary:
        return self

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels.names())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.rpartition("::")[2] for name in self)]

    def __repr__(self) -> str:
        return f"CustomOpLibrary({', '.join(self._kernels.searched())})"


def _define_op(library: CustomOpLibrary, name: str) -> None:
    library.define(name)


_define_op._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo runs it when it traces a program


def _library_of(libraries: list[Library]) -> CustomOpLibrary:
    shared = KernelLibrary()
    shared.libraries = libraries
    return CustomOpLibrary(shared)


def found_kernel(kernels: Kernels, name: str) -> LoadedKernel:
    """The kernel of this name.

    Raises:
        PackageError: EK0440, there is none.
    """
    kernel = kernels.find(name)
    if kernel is None:
        known = sorted(kernels.names())
        raise PackageError(
            f"there is no op {name!r}",
            code="EK0440",
            place=user_place(),
            expected=known,
            got=name,
            notes=[f"searched {', '.join(kernels.searched())}; they have {', '.join(known)}"],
            hint=did_you_mean(name, known),
        )
    return kernel
