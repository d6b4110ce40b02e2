"""Finds what runs a kernel that is called without a graph. This floor has no graphs, so it is found by its name.

See also `graph.interop.direct` (what a call means).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol, Self

from ..diagnostics.extension_points import ExtensionPoint
from ..signature.description import help_text, python_signature
from ..signature.schema import OpSchema
from .base import Gradient, gradient_of

CallFunction = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]


class KernelTools(Protocol):
    """What compiles, shows and times kernels."""

    def compiled(
        self, kernel: object, examples: object, checks: str | None, parameters: Mapping[str, object]
    ) -> Any: ...
    def inspected(
        self, kernel: object, examples: object, stage: str, target: str, parameters: Mapping[str, object]
    ) -> str: ...
    def explored(
        self, kernel: object, examples: object, target: str | tuple[str, ...], parameters: Mapping[str, object]
    ) -> Any: ...
    def benchmarked(
        self, kernel: object, args: object, peers: Mapping[str, object], kwargs: Mapping[str, object]
    ) -> Any: ...


CALL: ExtensionPoint[CallFunction] = ExtensionPoint("graph.interop.direct", "call")
TOOLS: ExtensionPoint[KernelTools] = ExtensionPoint("graph.interop.tools")
UFUNC_OF: ExtensionPoint[Callable[[object], object]] = ExtensionPoint("graph.interop.ufunc", "ufunc_of")
DEFINE_TORCH_OP: ExtensionPoint[Callable[[object], None]] = ExtensionPoint("graph.interop.torch.callers", "define_op")
PICKLING: ExtensionPoint[ModuleType] = ExtensionPoint("dsl.package.pickled")


def _define_torch_op(kernel: Called) -> None:
    """Sets `kernel.torch_op`, the op of PyTorch that programs of `torch.compile` call in the place of the kernel."""
    DEFINE_TORCH_OP.get()(kernel)


_define_torch_op._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo runs it when it traces a program


def _call_traced(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """What Dynamo traces for a call of a kernel."""
    _define_torch_op(kernel)
    return kernel.torch_op.traced(args, kwargs)


class Called:
    """What is called like a function: on arrays of NumPy, buffers, tensors of other libraries, and numbers."""

    __slots__ = ()
    schema: OpSchema

    @property
    def gradient(self) -> Gradient | None:
        """What computes its gradients, if there is something."""
        record: Gradient | None = self.__dict__.get("gradient")
        return record

    @gradient.setter
    def gradient(self, record: Gradient | None) -> None:
        self.__dict__["gradient"] = record
        self._gradient_changed()

    def watch_gradient(self, function: Callable[[], None]) -> None:
        """Calls a function whenever a backward is recorded, for as long as the kernel lives."""
        self.__dict__["watchers"] = (*self.__dict__.get("watchers", ()), function)

    def _gradient_changed(self) -> None:
        for function in self.__dict__.get("watchers", ()):
            function()

    def backward(self, function: object = None, *, graph: bool = False) -> Any:
        """`@op.backward`: records what computes the op's gradients, for PyTorch, JAX and `check_op`.

            @layer_norm.backward
            def layer_norm_backward(context, grad): ...          # returns a gradient, or None, for each input

        `context` has the `inputs`, `outputs` and `parameters` of the call, as arrays of the library that calls; other
        kernels can be called with them. Under `@op.backward(graph=True)` they are values of a graph, and the function
        is staged once for all sizes. `op.backward(kernel)` takes a kernel whose arguments are named after inputs and
        outputs of the op and `grad_...` of these.

        Raises:
            CompileError: EK0340 it is none of these.
        """
        if function is None:
            return lambda given: self.backward(given, graph=graph)
        self.gradient = gradient_of(self.schema, function, graph)
        return function

    @property
    def __signature__(self) -> inspect.Signature:
        return python_signature(self.schema)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel: its inputs by their places, compile-time parameters by their names.

        Outputs are allocated, and come back as what was passed: NumPy in, NumPy out. `out=` gives the memory for them,
        a tuple where there are several. A `MutableInputTensor` is changed in place. Code is made for dtypes, ranks and
        parameters at their first call, and serves all sizes. With values of a graph that is being built, the op is
        staged there.

        Raises:
            GraphError, DTypeError, DeviceError: the arguments contradict the signature.
            CompileError: a mistake in the kernel.
            KernelError: the kernel stopped itself.
        """
        __tracebackhide__ = True
        return CALL.get()(self, args, kwargs)

    def compile(self, *examples: object, checks: str | None = None, **parameters: object) -> Any:
        """The kernel for arguments of these types, compiled now: what is returned is called like the kernel.

        Args:
            examples: one for each input: a `TensorType`, a tensor, or a number. Their sizes do not matter.
            checks: what the code checks as it runs, as for sessions: "off", "safe" or "all".
            parameters: compile-time parameters.
        """
        return TOOLS.get().compiled(self, examples, checks, parameters)

    def inspect(self, *examples: object, stage: str = "typed", target: str = "host", **parameters: object) -> str:
        """The text of a stage of the compilation for such arguments: "typed", "mlir", "llvm", "asm" or "sass"."""
        return TOOLS.get().inspected(self, examples, stage, target, parameters)

    def explore(self, *examples: object, target: str | tuple[str, ...] = "host", **parameters: object) -> Any:
        """The page with all stages side by side, for such arguments: shown by notebooks; `save(path)` writes it."""
        return TOOLS.get().explored(self, examples, target, parameters)

    def benchmark(
        self, *args: object, peers: Mapping[str, Callable[..., object]] | None = None, **kwargs: object
    ) -> Any:
        """Times calls with these arguments, in turns with `peers`: functions that are called with the same arguments.

        Gives a table; `rows` has its numbers.
        """
        return TOOLS.get().benchmarked(self, args, peers or {}, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[object, ...] = PICKLING.get().reduced(self)
        return reduced

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Takes what was pickled with a kernel, where this one has none: its backward."""
        if getattr(self, "gradient", None) is None:
            self.__dict__.update(state)
            self._gradient_changed()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    __call__._torchdynamo_inline = _call_traced  # type: ignore[attr-defined]

    @property
    def ufunc(self) -> Any:
        """The kernel as a `numpy.ufunc`: broadcasting, `where=`, `out=`, strides; for kernels of one `foreach`.

        Raises:
            GraphError: EK0898 it is not elementwise, with the reason.
        """
        return UFUNC_OF.get()(self)


class _Help:
    """What `help` shows: of a kernel its own text, of the class that of the class."""

    def __init__(self, of_the_class: str | None) -> None:
        self.of_the_class = of_the_class

    def __get__(self, kernel: Called | None, owner: type) -> str | None:
        return self.of_the_class if kernel is None else help_text(kernel.schema)


def show_help(kind: type[Called]) -> None:
    """Lets `help` of an object of this class show the call and the docstring of its kernel."""
    type.__setattr__(kind, "__doc__", _Help(kind.__doc__))
