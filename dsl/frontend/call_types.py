"""Declares how type checkers see the call of a kernel: its inputs and parameters, without its outputs.

`Inputs` are the parameters of a direct call, `Whole` those of a call in another kernel, where outputs come first. A
`ParamSpec` keeps names, defaults and kinds. What it cannot say stands in overloads by the number of inputs:

- an argument may be an array, a tensor, a value of a graph or a number, whatever dtype a scalar input declares;
- `out=` is a keyword of every direct call;
- a `DeviceContext` behind the inputs is not an argument of a direct call.

What a call returns follows from its arguments: arrays of NumPy for arrays and numbers, else the type of a tensor, a
tuple of these for several outputs, None without outputs.

mypy cannot distinguish outputs from inputs (`OutputTensor` is `Annotated` to it). The plugin `einkorn.mypy` makes the
same signatures and results for it; without the plugin it accepts every call.

See also `caller` (what a call does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, Protocol, TypeAlias, overload

    import numpy as np
    from typing_extensions import ParamSpec, TypeVar

    from ..language.annotations import DeviceContext
    from ..language.members import Argument, Destination, OutputTensor

    MYPY = False  # mypy reads this name as True
    Inputs = ParamSpec("Inputs", default=...)
    Whole = ParamSpec("Whole", default=...)
    P = ParamSpec("P")
    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    D = TypeVar("D")
    E = TypeVar("E")
    F = TypeVar("F")
    K = TypeVar("K", covariant=True)
    M = TypeVar("M")
    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    Operand: TypeAlias = Array | np.generic | complex
    R = TypeVar("R", bound=Argument)
    N = TypeVar("N", covariant=True)
    Outputs = TypeVar("Outputs", default=Any, covariant=True)  # how many outputs there are: one of these classes

    class Gives(Protocol[N]):
        """What comes back for arrays of NumPy; a class, since checkers give up at types with `Any` inside."""

        def arrays(self) -> N: ...

    class Nothing:
        """No outputs."""

        def arrays(self) -> None: ...

    class One:
        """One output."""

        def arrays(self) -> Array: ...

    class Two:
        """Two outputs."""

        def arrays(self) -> tuple[Array, Array]: ...

    class Three:
        """Three outputs."""

        def arrays(self) -> tuple[Array, Array, Array]: ...

    class Four:
        """Four outputs."""

        def arrays(self) -> tuple[Array, Array, Array, Array]: ...

    if MYPY:

        class CalledAs(Generic[Inputs, Whole, Outputs]):
            """A kernel, as its calls are checked; the plugin adds `out=` to `Inputs`."""

            @overload
            def __call__(self, *args: Inputs.args, **kwargs: Inputs.kwargs) -> Any: ...
            @overload
            def __call__(self, *args: Whole.args, **kwargs: Whole.kwargs) -> Any: ...
            def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    else:

        class Takes(Protocol[K]):
            """A kernel that may be called as a type says."""

            @property
            def _call(self) -> K: ...

        class CalledAs(Generic[Inputs, Whole, Outputs]):
            """A kernel, as its calls are checked."""

            @property
            def _call(self) -> Callable[Inputs, Any]: ...
            # Arrays of NumPy and numbers; tensors of one kind, which come back.
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, F, P], Any, Gives[N]],
                a: Operand,
                b: Operand,
                c: Operand,
                d: Operand,
                e: Operand,
                f: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, P], Any, Gives[N]],
                a: Operand,
                b: Operand,
                c: Operand,
                d: Operand,
                e: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, P], Any, Gives[N]],
                a: Operand,
                b: Operand,
                c: Operand,
                d: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, P], Any, Gives[N]],
                a: Operand,
                b: Operand,
                c: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, P], Any, Gives[N]],
                a: Operand,
                b: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, P], Any, One],
                a: Operand,
                b: R,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> R: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, P], Any, Two],
                a: Operand,
                b: R,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> tuple[R, R]: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, P], Any, Gives[N]],
                a: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, P], Any, One],
                a: R,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> R: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, P], Any, Two],
                a: R,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> tuple[R, R]: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, P], Any, One], a: R, b: R, /, *rest: P.args, **kwargs: P.kwargs
            ) -> R: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, DeviceContext, P], Any, Gives[N]],
                a: Operand,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> N: ...
            @overload
            def __call__(self, *args: Inputs.args, **kwargs: Inputs.kwargs) -> Any: ...
            @overload
            def __call__(self, *args: Whole.args, **kwargs: Whole.kwargs) -> Any: ...
            # Numbers and arrays for scalar inputs.
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, P], Any], a: Argument, /, *rest: P.args, **kwargs: P.kwargs
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, P], Any],
                a: Argument,
                b: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, F, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                f: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            # A device context behind the inputs.
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, DeviceContext, P], Any], a: Argument, /, *rest: P.args, **kwargs: P.kwargs
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, DeviceContext, P], Any],
                a: Argument,
                b: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, DeviceContext, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, DeviceContext, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, DeviceContext, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            @overload
            def __call__(
                self: CalledAs[Concatenate[A, B, C, D, E, F, DeviceContext, P], Any],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                f: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> Any: ...
            # Memory for the outputs.
            @overload
            def __call__(self: Takes[Callable[[Any], Any]], a: Argument, /, *, out: M, **kwargs: Any) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any], Any]], a: Argument, b: Argument, /, *, out: M, **kwargs: Any
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any, Any], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any, Any, Any], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                f: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, DeviceContext], Any]], a: Argument, /, *, out: M, **kwargs: Any
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, DeviceContext], Any]],
                a: Argument,
                b: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, DeviceContext], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any, DeviceContext], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any, Any, DeviceContext], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            @overload
            def __call__(
                self: Takes[Callable[[Any, Any, Any, Any, Any, Any, DeviceContext], Any]],
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                f: Argument,
                /,
                *,
                out: M,
                **kwargs: Any,
            ) -> M: ...
            # Numbers in calls by other kernels, with one output and with two.
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, P]],
                out0: Destination,
                a: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, B, P]],
                out0: Destination,
                a: Argument,
                b: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, B, C, P]],
                out0: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, B, C, D, P]],
                out0: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, B, C, D, E, P]],
                out0: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, A, B, C, D, E, F, P]],
                out0: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                e: Argument,
                f: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, OutputTensor, A, P]],
                out0: Destination,
                out1: Destination,
                a: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, OutputTensor, A, B, P]],
                out0: Destination,
                out1: Destination,
                a: Argument,
                b: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, OutputTensor, A, B, C, P]],
                out0: Destination,
                out1: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            @overload
            def __call__(
                self: CalledAs[Any, Concatenate[OutputTensor, OutputTensor, A, B, C, D, P]],
                out0: Destination,
                out1: Destination,
                a: Argument,
                b: Argument,
                c: Argument,
                d: Argument,
                /,
                *rest: P.args,
                **kwargs: P.kwargs,
            ) -> None: ...
            def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    from typing import ParamSpec, TypeVar

    Inputs = ParamSpec("Inputs")
    Whole = ParamSpec("Whole")
    Outputs = TypeVar("Outputs", covariant=True)

    class CalledAs(Generic[Inputs, Whole, Outputs]):
        """A kernel, as type checkers see its calls."""

        __slots__ = ()
