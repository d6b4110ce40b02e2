"""Offers kernels as ops of PyTorch: what `einkorn.torch` has, and what a direct call with a tensor does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....dsl.diagnostics.errors import DTypeError, shown_value
from ....dsl.diagnostics.places import user_place
from ....dsl.frontend.python.register import Kernel
from ....dsl.package.library import LibraryKernel, LoadedKernel
from ...staging.kernels import Extensions, extensions_of, open_kernels
from ..specialise import AnyKernel
from .graph_op import graph_op as graph_op
from .library import CustomOpLibrary as CustomOpLibrary
from .library import found_kernel
from .names import untraced
from .op import TorchOp as Op
from .op import op_of


def op(kernel: object, *, extensions: Extensions = ()) -> Op:
    """A kernel as an op of PyTorch: in eager mode, in compiled and exported programs, under vmap and autograd.

    Args:
        kernel: what `@register` gives; or the name of an op in `extensions`.
        extensions: folders of kernel files, single files, or packages; or a library that is loaded.

    Raises:
        GraphError: EK0880, the signature has no counterpart in PyTorch.
        PackageError: a library cannot be loaded, or has no op of this name.
    """
    if isinstance(kernel, str):
        return _op_named(kernel, extensions)
    if not isinstance(kernel, Kernel | LibraryKernel):
        raise DTypeError(
            f"einkorn.torch.op takes a kernel or the name of an op, not {shown_value(kernel)}",
            code="EK0452",
            place=user_place(),
            argument="kernel",
            expected="a function under @register",
            got=type(kernel).__name__,
            hint='put @register("name") over the function',
        )
    return op_of(kernel)


def _op_named(name: str, extensions: Extensions) -> Op:
    kernels = open_kernels(extensions_of(extensions), None)
    return Op(LibraryKernel(found_kernel(kernels, name)))


def define_op(kernel: Any) -> None:
    """Sets `kernel.torch_op` to the op of a kernel; programs that Dynamo traces read it there."""
    kernel.__dict__["torch_op"] = op_of(kernel)


define_op._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo runs it when it traces a program


def _op_traced(kernel: Any, *, extensions: Extensions = ()) -> Op:
    """What Dynamo traces for `op`."""
    if not isinstance(kernel, Kernel | LibraryKernel):
        return _op_named(kernel, extensions)
    define_op(kernel)
    result: Op = getattr(kernel, "torch_op")  # noqa: B009  set for Dynamo alone
    return result


op._torchdynamo_inline = _op_traced  # type: ignore[attr-defined]


@untraced
def call(
    kernel: AnyKernel | LoadedKernel, args: Sequence[object], parameters: Mapping[str, object], out: object = None
) -> Any:
    """A direct call of a kernel where an argument is a tensor of PyTorch: `kernel(*args, **parameters, out=out)`."""
    return op_of(kernel).call(args, parameters, out)
