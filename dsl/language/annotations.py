"""Declares what stands in a kernel's signature: tensor annotations, bounds of type variables, names of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..diagnostics.collecting import Broken, collect
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import CompileError
from ..diagnostics.places import user_place
from ..signature.schema import Form, Role
from ..types import dtype as types
from ..types.dtype import DType, SIMDType
from .stubs import Exported, Storage

__all__ = [
    "SIMD",
    "Comparable",
    "ComplexFloating",
    "DeviceContext",
    "Element",
    "Floating",
    "Inexact",
    "InputTensor",
    "InputVariadicTensors",
    "Integral",
    "MutableInputTensor",
    "Number",
    "Numeric",
    "OutputTensor",
    "OutputVariadicTensors",
    "Pointer",
    "Storable",
    "VariadicTensors",
    "scratch",
    "stack",
]


@dataclass(frozen=True)
class TensorAnnotation:
    """`InputTensor[T, "m n"]`, or `VariadicTensors[T, "m n", count]`, as the registration reads it."""

    role: Role
    dtype: Any
    dims: str
    form: Form = Form.TENSOR
    count: str = ""


def _refused(message: str) -> Broken:
    """Stands for an annotation that is wrong, while a kernel file is read; else the mistake is raised."""
    error = CompileError(message, code="EK0301", place=user_place())
    if not collect(error):
        raise error
    return Broken(error)


class _TensorMarker(Exported):
    def __init__(self, role: Role) -> None:
        self.role = role

    def __getitem__(self, item: Any) -> TensorAnnotation | Broken:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], str):
            return _refused('a tensor annotation takes a dtype and a dims text: InputTensor[T, "m n"]')
        return TensorAnnotation(self.role, *item)


class _VariadicMarker(Exported):
    def __init__(self, role: Role) -> None:
        self.role = role

    def __getitem__(self, item: Any) -> TensorAnnotation | Broken:
        parts: tuple[Any, ...] = item if isinstance(item, tuple) else (item,)
        count = parts[2] if len(parts) == 3 else ""
        number = type(count) is int and count >= 0
        name = isinstance(count, str) and (not count or count.isidentifier())
        if not 2 <= len(parts) <= 3 or not isinstance(parts[1], str) or not (number or name):
            return _refused(
                "a variadic annotation takes a dtype, a dims text and, if it is fixed, the number of tensors or the "
                'name of an int parameter: VariadicTensors[T, "m n_k", 2]'
            )
        return TensorAnnotation(self.role, parts[0], parts[1], Form.VARIADIC, str(count))


if TYPE_CHECKING:
    MYPY = False  # mypy reads this name as True
    if MYPY:  # a tensor of T is a T, and the dims text is metadata
        from typing import Annotated as InputTensor
        from typing import Annotated as InputVariadicTensors
        from typing import Annotated as MutableInputTensor
        from typing import Annotated as OutputTensor
        from typing import Annotated as OutputVariadicTensors
        from typing import Annotated as VariadicTensors
    else:
        from .members import InputTensor, MutableInputTensor, OutputTensor, OutputVariadicTensors, VariadicTensors
        from .members import VariadicTensors as InputVariadicTensors

    from typing import Protocol

    from .members import Members, Numbers, Pointer
else:
    InputTensor = _TensorMarker(Role.INPUT)
    OutputTensor = _TensorMarker(Role.OUTPUT)
    MutableInputTensor = _TensorMarker(Role.MUTABLE)
    VariadicTensors = _VariadicMarker(Role.INPUT)
    InputVariadicTensors = VariadicTensors
    OutputVariadicTensors = _VariadicMarker(Role.OUTPUT)

    class _Pointer(Exported):
        """`Pointer[dtype]`: the address of elements, for the parameters of helpers."""

        def __getitem__(self, item: Any) -> Any:
            return None

    Pointer = _Pointer()

    Members, Numbers, Protocol = (type(name, (), {}) for name in ("Members", "Numbers", "Protocol"))


class Target:
    """What code is compiled for; known at compile time.

    `shared_memory` is that of one block at most, in bytes; `multiprocessors` are those of the largest device of the
    architecture.
    """

    is_cpu: bool
    is_gpu: bool
    name: str
    vector_bits: int
    shared_memory: int
    multiprocessors: int

    def supports(self, feature: str) -> bool:
        """Whether the target has a feature, as LLVM names it: `ctx.target.supports("avx2")`."""
        raise NotImplementedError


class DeviceContext:
    """The device that an op runs on: `ctx.target` (a compile-time value) and `ctx.launch(...)`."""

    target: Target

    def launch(
        self,
        kernel: Callable[..., Any],
        *args: Any,
        grid: Any,
        block: Any,
        cluster: Any = 1,
        shared: Any = 0,
        parameters: Any = None,
        max_registers: int | None = None,
        min_blocks: int | None = None,
    ) -> None:
        """Runs a function by every thread of a grid."""


class _SIMD(Exported):
    """`SIMD[dtype, width]`: the type of a vector of `width` lanes."""

    def __getitem__(self, item: tuple[Any, int]) -> Any:
        dtype, width = item
        return SIMDType(dtype, width)


SIMD = _SIMD()
scratch = Storage(
    "scratch",
    "(*dims, zeroed=False)",
    "Memory of run-time sizes in a CPU kernel, valid until the end of the loop round or function that makes it.",
)
stack = Storage(
    "stack", "(*dims, zeroed=True)", "Zeroed storage of a fixed size that lives as long as the function around it."
)


class _Bound(Members):
    dtypes: ClassVar[tuple[DType, ...]]


class Numeric(_Bound, Numbers, Protocol):  # type: ignore[misc]  # numbers of Python are numeric, too
    """Bound of a type variable: any integer or floating type."""


class Floating(Numeric, Protocol):
    """Bound of a type variable: any floating type."""


class Integral(Numeric, Protocol):
    """Bound of a type variable: any integer type."""


class Element(Numeric, Protocol):
    """Bound of a type variable: any type at all, bool among them."""


class Storable(Numeric, Protocol):
    """Bound of a type variable: every type that memory holds: complex ones and storage types too, which only move."""


class ComplexFloating(Numeric, Protocol):
    """Bound of a type variable: complex64 and complex128."""


class Comparable(Numeric, Protocol):
    """Bound of a type variable: any type that kernels compute with: bool, integers, floats, complex numbers."""


class Inexact(Numeric, Protocol):
    """Bound of a type variable: any floating or complex type."""


class Number(Numeric, Protocol):
    """Bound of a type variable: any integer, floating or complex type."""


# Next to the classes: in them it would be a member that a number needs to be numeric.
Numeric.dtypes = types.NUMERIC
Floating.dtypes = types.FLOATING
Integral.dtypes = types.INTEGRAL
Element.dtypes = types.ANY
Storable.dtypes = types.STORABLE
Comparable.dtypes = types.COMPARABLE
ComplexFloating.dtypes = types.COMPLEX
Inexact.dtypes = types.INEXACT
Number.dtypes = types.NUMBER

BOUNDS: tuple[Any, ...] = (
    Numeric,
    Floating,
    Integral,
    Element,
    Storable,
    Comparable,
    ComplexFloating,
    Inexact,
    Number,
)
