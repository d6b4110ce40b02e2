"""Makes functions of JAX of kernels: `einkorn.jax.op`.

The function is traced as any other: dtypes, ranks and parameters choose a `Specialisation`, sizes stay what JAX knows
of them, symbolic ones of `jax.export` too. What is left in the program of XLA is one call of a handler (see
`jax_handlers`). A call outside of `jit` is a small program of its own.

Input: a kernel or the name of one, JAX arrays. Output: JAX arrays. Non-goals: other devices than the host, and kernels
whose sizes are computed from elements.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, shown_value
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import without_internals
from ...dsl.signature.parameters import bind_parameters, identity
from ...dsl.signature.schema import Form
from ...dsl.types.dtype import DType
from ..engine.session import InferenceSession
from .elementwise import adds_axis
from .gradients import BackwardGraph, Context, gradients
from .jax_handlers import Handler, failed, handler_of
from .kernels import kernel_named
from .specialise import AnyKernel, Given, Specialisation, prepared, specialise

HOST = "cpu"  # what JAX calls it
Rule = Callable[..., Any]
Counts = tuple[int | None, ...]  # of arguments: how many arrays a variadic one has


def op(kernel: AnyKernel | str, *, extensions: str | Path | Iterable[str | Path] = ()) -> Op:
    """A kernel as a function of JAX arrays, for use in and outside of `jax.jit`, `jax.vmap`, `jax.grad` and
    `jax.export`.

    Args:
        kernel: what `@register` gives, or the name of an op of `extensions`.
        extensions: folders of kernel files, single files, or packages.

    Raises:
        PackageError: EK0440 there is no op of that name.
        GraphError: EK0891 the sizes of its outputs depend on elements.
    """
    found = kernel_named(kernel, extensions)
    if found.schema.late:
        raise GraphError(
            f"op '{found.schema.name}' computes sizes of its outputs from elements, and JAX has to know them before",
            code="EK0891",
            place=user_place(),
            op=found.schema.name,
            got=", ".join(found.schema.late),
            hint="call the kernel directly on arrays, outside of jit",
        )
    return Op(found)


class Op:
    """A kernel as a function of JAX arrays: outputs are returned, and after them the new values of arguments that the
    kernel changes in place; parameters are keywords.

    Attributes:
        vmap: how it is batched: None for the best that the kernel allows, "sequential" for one call after the other, or
            a function `rule(axis_size, in_batched, *args) -> outputs, out_batched` as `jax.custom_batching.custom_vmap`
            takes it.
    """

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = kernel
        self.vmap: str | Rule | None = None
        self.__name__ = kernel.schema.name
        self.__doc__ = kernel.schema.doc
        self._backward: Rule | None = None
        self._lock = fork_lock()
        self._state: Any = None
        self._functions: dict[Any, Callable[..., tuple[Any, ...]]] = {}
        self._fitting: set[Any] = set()  # calls whose shapes were looked at

    def backward(self, function: Rule) -> Rule:
        """`@f.backward`: records a function for gradients, in the place of what the kernel has.

        It takes a context with `inputs`, `outputs` and `parameters`, and the gradients of the outputs; it returns a
        gradient for each input, or None.
        """
        self._backward = function
        with self._lock:
            self._functions.clear()
        return function

    @without_internals
    def __call__(self, *args: Any, **parameters: Any) -> Any:
        """The op on arrays; see the class.

        Raises:
            GraphError, DTypeError: the arguments contradict the signature.
            jax.errors.JaxRuntimeError: the kernel stopped itself; its text says why.
        """
        flat, counts = self._flat(args)
        arrays = self._arrays(flat, counts, parameters)
        try:
            results = self._function(counts, parameters)(*arrays)
        except EinkornError as error:
            error.place = error.place or user_place()
            raise
        return results[0] if len(results) == 1 else results

    def register(self, *args: Any, **parameters: Any) -> str:
        """The name of the handler for arguments such as these, which is registered with XLA from then on.

        `jax.export` takes it in `DisabledSafetyCheck.custom_call(name)`; a process that calls what was exported
        registers it first. Arguments are arrays or `jax.ShapeDtypeStruct`s.
        """
        made = self._specialisation(*self._flat(args), parameters)
        return handler_of(made.model, made.checks).name

    def __reduce__(self) -> tuple[Any, ...]:
        return Op, (self.kernel,), {"vmap": self.vmap, "_backward": self._backward}

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: Any) -> Op:
        return self

    def __repr__(self) -> str:
        return f"<op {self.__name__} for JAX>"

    # *** arguments ***

    def _flat(self, args: Sequence[Any]) -> tuple[list[Any], Counts]:
        """The arguments one after the other, and how many each variadic one has; None for others."""
        variadic = [argument.form is Form.VARIADIC for argument in self.kernel.schema.inputs]
        flat: list[Any] = []
        counts: list[int | None] = []
        for number, value in enumerate(args):
            several = number < len(variadic) and variadic[number] and isinstance(value, list | tuple)
            counts.append(len(value) if several else None)
            flat += value if several else [value]
        return flat, tuple(counts)

    def _arrays(self, args: Sequence[Any], counts: Counts, parameters: Mapping[str, Any]) -> list[Any]:
        """The arguments as arrays that fit the signature; numbers take the dtype of what they meet."""
        numbers = [k for k, value in enumerate(args) if type(value) in (bool, int, float)]
        key = (
            counts,
            tuple((None, value) if type(value) in (bool, int, float) else _aval(value) for value in args),
            tuple((name, identity(value)) for name, value in parameters.items()),
        )
        with self._lock:
            self._refresh()
            known = not numbers and key in self._fitting
        if known:
            return list(args)
        made = self._specialisation(args, counts, parameters)
        arrays = [
            jax.numpy.asarray(value, dtype=made.inputs[k].dtype.to_numpy())
            if k in numbers
            else jax.numpy.asarray(value)
            for k, value in enumerate(args)
        ]
        made.output_shapes([array.shape for array in arrays])
        self._check_devices(arrays)
        if not numbers and all(isinstance(value, jax.Array) for value in args):
            with self._lock:
                self._fitting.add(key)
        return arrays

    def _specialisation(self, args: Sequence[Any], counts: Counts, parameters: Mapping[str, Any]) -> Specialisation:
        schema = self.kernel.schema

        def kind(number: int, value: Any) -> Given:
            name = schema.inputs[number].name if number < len(schema.inputs) else f"argument {number}"
            return value if type(value) in (bool, int, float) else _kind(schema.name, name, value)

        given = [
            kind(number, value) if count is None else [kind(number, each) for each in value]
            for number, (value, count) in enumerate(zip(_nested(args, counts), counts, strict=True))
        ]
        return specialise(self.kernel, given, parameters)

    # *** functions ***

    def _refresh(self) -> None:
        """Forgets what was made of the kernel when it, or what it reads, has changed."""
        state = prepared(self.kernel)
        if state is not self._state:
            self._state = state
            self._functions.clear()
            self._fitting.clear()

    def _function(self, counts: Counts, parameters: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]]:
        """The function for these parameters, jitted once."""
        key = counts, tuple((name, identity(value)) for name, value in sorted(parameters.items()))
        with self._lock:
            self._refresh()
            found = self._functions.get(key)
            if found is None:
                found = self._functions[key] = self._made(counts, dict(parameters))
        return found

    def _made(self, counts: Counts, parameters: dict[str, Any]) -> Callable[..., tuple[Any, ...]]:
        def primal(*args: Any) -> tuple[Any, ...]:
            return self._staged(counts, parameters, args)

        def forward(*args: Any) -> Any:
            if self._backward is None and self.kernel.gradient is None:
                self._no_backward()
            results = self._staged(counts, parameters, args)
            return results, (args, results)

        def backward(kept: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
            inputs, results = kept
            outputs = results[: len(self.kernel.schema.outputs)]
            context = Context(tuple(_nested(inputs, counts)), outputs, bind_parameters(self.kernel.schema, parameters))
            found, _ = self._flat(self._gradients(context, grads))
            floating = [jax.numpy.issubdtype(value.dtype, np.inexact) for value in inputs]
            return tuple(g if is_float else None for g, is_float in zip(found, floating, strict=True))

        primal.__name__ = primal.__qualname__ = self.__name__.replace("::", "_")
        function = jax.custom_vjp(primal)
        function.defvjp(forward, backward)
        jitted: Callable[..., tuple[Any, ...]] = jax.jit(function)
        return jitted

    def _gradients(self, context: Context, grads: Sequence[Any]) -> list[Any]:
        """A gradient for each input, or None."""
        if self._backward is None:
            return gradients(self.kernel, context, grads, _Runner())
        found = self._backward(context, *grads)
        results = list(found) if isinstance(found, list | tuple) else [found]
        name = self.kernel.schema.name
        if len(results) != len(context.inputs):
            raise GraphError(
                f"the backward of op {name!r} gives {len(results)} gradients for {len(context.inputs)} inputs",
                code="EK0882",
                place=user_place(),
                op=name,
                hint="return one gradient for each input, in their order, and None for what has none",
            )
        return results

    def _no_backward(self) -> None:
        name = self.kernel.schema.name
        raise GraphError(
            f"a gradient of op '{name}' is asked for, and it has no backward",
            code="EK0881",
            op=name,
            hint=f"record one with @{name.rpartition('::')[2]}.backward, or call it under jax.lax.stop_gradient",
        )

    def _check_devices(self, arrays: Sequence[Any]) -> None:
        for argument, array in zip(self.kernel.schema.inputs, arrays, strict=False):
            if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
                continue
            platforms = sorted({device.platform for device in array.devices()})
            if platforms != [HOST]:
                name = self.kernel.schema.name
                raise GraphError(
                    f"op '{name}': '{argument.name}' lies on {', '.join(platforms)}, and handlers run on the host",
                    code="EK0892",
                    place=user_place(),
                    op=name,
                    argument=argument.name,
                    expected="cpu",
                    got=", ".join(platforms),
                    hint='move it: jax.device_put(x, jax.devices("cpu")[0])',
                )

    # *** staging ***

    def _staged(self, counts: Counts, parameters: Mapping[str, Any], args: Sequence[Any]) -> tuple[Any, ...]:
        """The op among the operations of a trace, with its rule for batching."""
        made = self._specialisation(args, counts, parameters)
        if self.vmap == "sequential" or (self.vmap is None and not adds_axis(made)):
            return _called(made, args)

        def call(*args: Any) -> tuple[Any, ...]:
            return _called(made, args)

        def batched(size: int, in_batched: Sequence[bool], *args: Any) -> Any:
            if callable(self.vmap):
                return self.vmap(size, in_batched, *args)
            results = self._batched(made, counts, parameters, size, in_batched, args)
            return results, (True,) * len(results)

        function = jax.custom_batching.custom_vmap(call)
        function.def_vmap(batched)
        results: tuple[Any, ...] = function(*args)
        return results

    def _batched(
        self,
        made: Specialisation,
        counts: Counts,
        parameters: Mapping[str, Any],
        size: int,
        in_batched: Sequence[bool],
        args: Sequence[Any],
    ) -> tuple[Any, ...]:
        """All members of a batch in one call with an axis more; one by one where a number differs between them."""
        single = [a.form is Form.SCALAR for a in made.schema.inputs]
        if any(is_batched and one for is_batched, one in zip(in_batched, single, strict=True)):
            moving = [k for k, is_batched in enumerate(in_batched) if is_batched]

            def one(members: Sequence[Any]) -> tuple[Any, ...]:
                whole = list(args)
                for k, member in zip(moving, members, strict=True):
                    whole[k] = member
                return _called(made, whole)

            mapped: tuple[Any, ...] = jax.lax.map(one, tuple(args[k] for k in moving))
            return mapped
        spread = [
            value if is_batched or one else jax.numpy.broadcast_to(value, (size, *value.shape))
            for value, is_batched, one in zip(args, in_batched, single, strict=True)
        ]
        return self._staged(counts, parameters, spread)


def call(kernel: AnyKernel, args: Sequence[Any], parameters: Mapping[str, Any], out: Any = None) -> Any:
    """A direct call of a kernel with JAX arrays among its arguments; when it returns, the results are there.

    Args:
        args: the tensors in order, those of a variadic argument one after the other.

    Raises:
        KernelError: the kernel stopped itself.
        GraphError: EK0893 an output is given, and arrays of JAX's do not change.
    """
    found, schema = op_of(kernel), kernel.schema
    if out is not None:
        raise GraphError(
            f"op '{schema.name}': 'out' is given in a call with arrays of JAX's, which do not change",
            code="EK0893",
            place=user_place(),
            op=schema.name,
            argument="out",
            got=type(out).__name__,
            hint="take what the call returns",
        )
    several = len(args) - len(schema.inputs) + 1
    counts = [several if argument.form is Form.VARIADIC else None for argument in schema.inputs]
    try:
        results = found(*(_nested(args, tuple(counts)) if schema.variadic else args), **parameters)
        return results if any(isinstance(a, jax.core.Tracer) for a in args) else jax.block_until_ready(results)
    except jax.errors.JaxRuntimeError as error:
        known = failed(error)
        if known is None:
            raise
        raise known from None


def op_of(kernel: AnyKernel) -> Op:
    """The op of a kernel; one for each kernel object."""
    with _lock:
        found = _ops.get(kernel)
        if found is None:
            found = _ops[kernel] = op(kernel)
        return found


_lock = fork_lock()
_ops: weakref.WeakKeyDictionary[AnyKernel, Op] = weakref.WeakKeyDictionary()


def _called(made: Specialisation, args: Sequence[Any]) -> tuple[Any, ...]:
    """One call of the handler in a trace."""
    shapes = made.output_shapes([array.shape for array in args])
    results = handler_of(made.model, made.checks).call(args, shapes, made.mutable)
    return tuple(map(_canonical, results))


def _canonical(array: Any) -> Any:
    """A result with 64 bits as JAX has it, which is with 32 unless it is told otherwise."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if dtype == array.dtype else jax.lax.convert_element_type(array, dtype)


class _Runner:
    """How backwards are run on arrays of JAX's; see `gradients.Runner`."""

    def kernel(self, kernel: AnyKernel, args: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        return op_of(kernel)(*args, **parameters)

    def graph(self, backward: BackwardGraph, args: Sequence[Any]) -> Sequence[Any]:
        with _lock:
            handler = _graphs.get(backward)
            if handler is None:
                handler = _graphs[backward] = handler_of(InferenceSession().load(backward.graph))
        return handler.call(args, handler.output_shapes([array.shape for array in args]), ())

    def specialisation(self, kernel: AnyKernel, context: Context) -> Specialisation:
        kinds = [_kind(kernel.schema.name, f"input {k}", value) for k, value in enumerate(context.inputs)]
        return specialise(kernel, kinds, context.parameters)


_graphs: weakref.WeakKeyDictionary[BackwardGraph, Handler] = weakref.WeakKeyDictionary()


def _nested(flat: Sequence[Any], counts: Counts) -> list[Any]:
    """The arguments as they were."""
    rest = iter(flat)
    return [next(rest) if count is None else [next(rest) for _ in range(count)] for count in counts]


def _aval(value: Any) -> Any:
    """What a call depends on of an argument."""
    return (value.dtype, value.shape) if hasattr(value, "dtype") and hasattr(value, "shape") else (None, id(value))


def _kind(op: str, name: str, value: Any) -> Given:
    """Dtype and rank of an array."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        hint = "make an array of it: jnp.array(x)" if isinstance(value, list | tuple) else None
        raise DTypeError(
            f"op '{op}': '{name}' is no array but {shown_value(value)}",
            code="EK0890",
            place=user_place(),
            op=op,
            argument=name,
            expected="a JAX or NumPy array, or a number",
            got=type(value).__name__,
            hint=hint,
        )
    dtype = value.dtype
    if not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # as JAX reads arrays of NumPy's
    known = DType.__members__.get(getattr(dtype, "name", str(dtype)))
    if known is None:
        raise DTypeError(
            f"op '{op}': '{name}' holds {dtype}, which kernels cannot read from JAX",
            code="EK0890",
            place=user_place(),
            op=op,
            argument=name,
            expected="bool, integers, or floats",
            got=str(dtype),
        )
    return known, len(value.shape)
