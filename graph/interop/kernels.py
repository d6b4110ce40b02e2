"""Finds the kernel that a caller from outside of graphs means: an object, or a name in libraries.

See also `specialise` (what is made of it).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import GraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.frontend.python.register import Kernel
from ...dsl.package.library import LibraryKernel
from ..staging.kernels import Extensions, KernelLibrary, Kernels
from .specialise import AnyKernel


def kernel_named(kernel: AnyKernel | str, extensions: Extensions = ()) -> AnyKernel:
    """The kernel itself, or the one of this name in folders of kernel files, single files or packages.

    Raises:
        PackageError: EK0440 there is none of this name, EK0443 there are several.
        GraphError: EK0895 it is neither a kernel nor a name.
    """
    if isinstance(kernel, Kernel | LibraryKernel):
        return kernel
    if not isinstance(kernel, str):
        raise GraphError(
            f"{shown_value(kernel)} is not a kernel",
            code="EK0895",
            place=user_place(),
            argument="kernel",
            expected='a function under @register, or the name of an op with extensions=["kernels/"]',
            got=type(kernel).__name__,
            hint='put @register("name") above the function' if callable(kernel) else None,
        )
    library = KernelLibrary(extensions)
    library.verify_custom_op(kernel)
    result = Kernels(library.libraries).find(kernel)
    assert result is not None
    return LibraryKernel(result)
