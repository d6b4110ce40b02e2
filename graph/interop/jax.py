"""Makes functions of JAX of kernels: `einkorn.jax.op`.

The function is traced as any other: dtypes, ranks and parameters choose a `Specialisation`, sizes stay what JAX has
of them, symbolic ones of `jax.export` too. What is left in the program of XLA is one call of a handler (see
`jax_handlers`). A call outside of `jit` is a small program of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, shown_value
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import without_internals
from ...dsl.signature.parameters import bind_parameters, identity
from ...dsl.signature.schema import Form, OpSchema
from ...dsl.types.dtype import DType
from ..engine.session import InferenceSession
from ..staging.kernels import Extensions
from ..types.promotion import weak_array
from .broadcasting import broadcast_shape
from .elementwise import adds_axis, batch_axes, same_member
from .gradients import BackwardGraph, GradientContext, gradients
from .jax_callee import Levels, members
from .jax_handlers import Handler, failed, handler_of
from .jax_primitives import call as staged_call
from .kernels import kernel_named
from .specialise import AnyKernel, ArgumentKind, Specialisation, prepared, specialise
from .tuned import choice

HOST = "cpu"  # what JAX calls it
Rule = Callable[..., Any]
_NUMBERS = (bool, int, float, complex)
Counts = tuple[int | None, ...]  # of arguments: how many arrays a variadic one has


def op(kernel: AnyKernel | str, *, extensions: Extensions = ()) -> JaxOp:
    """A kernel as a function of JAX arrays, for use in and outside of `jax.jit`, `jax.vmap`, `jax.grad` and
    `jax.export`.

    Args:
        kernel: what `@register` gives, or the name of an op of `extensions`.
        extensions: folders of kernel files, single files, packages, or what `einkorn.load` gives.

    Raises:
        PackageError: EK0440 there is no op of that name.
        GraphError: EK0891 the sizes of its outputs depend on elements.
    """
    result = kernel_named(kernel, extensions)
    if result.schema.late:
        raise GraphError(
            f"op '{result.schema.name}' computes sizes of its outputs from elements, and JAX requires static sizes",
            code="EK0891",
            place=user_place(),
            op=result.schema.name,
            got=", ".join(result.schema.late),
            hint="call the kernel directly on arrays, outside of jit",
        )
    return JaxOp(result)


class JaxOp:
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
        self._state: object = None
        self._functions: dict[object, Callable[..., tuple[object, ...]]] = {}
        self._fitting: set[object] = set()  # calls whose shapes were looked at

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

    def register(self, *args: object, **parameters: object) -> str:
        """The name of the handler for arguments such as these, which is registered with XLA from then on.

        `jax.export` takes it in `DisabledSafetyCheck.custom_call(name)`; a process that calls what was exported
        registers it first. Arguments are arrays or `jax.ShapeDtypeStruct`s.
        """
        made = self._specialisation(*self._flat(args), parameters)
        return handler_of(made.model, made.checks, merges=adds_axis(made)).name

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxOp, (self.kernel,), {"vmap": self.vmap, "_backward": self._backward}

    def __copy__(self) -> JaxOp:
        return self

    def __deepcopy__(self, memo: object) -> JaxOp:
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

    def _arrays(self, args: Sequence[object], counts: Counts, parameters: Mapping[str, object]) -> list[Any]:
        """The arguments as arrays that fit the signature; numbers take the dtype of the other operands."""
        numbers = [k for k, value in enumerate(args) if type(value) in _NUMBERS]
        key = (
            counts,
            tuple((None, value) if type(value) in _NUMBERS else _aval(value) for value in args),
            tuple((name, identity(value)) for name, value in parameters.items()),
        )
        with self._lock:
            self._refresh()
            known = not numbers and key in self._fitting
        if known:
            return list(args)
        given, args = args, self._repeated(args, parameters)
        numbers = [k for k in numbers if type(args[k]) in _NUMBERS]
        made = self._specialisation(args, counts, parameters)
        arrays = [
            jax.numpy.asarray(_real(made, k, value), dtype=made.inputs[k].dtype.to_numpy())
            if k in numbers
            else jax.numpy.asarray(value)
            for k, value in enumerate(args)
        ]
        made.output_shapes([array.shape for array in arrays])
        self._check_devices(arrays)
        if args is given and not numbers and all(isinstance(value, jax.Array) for value in args):
            with self._lock:
                self._fitting.add(key)
        return arrays

    def _repeated(self, args: Sequence[object], parameters: Mapping[str, object]) -> Sequence[Any]:
        """The arguments, those that broadcast with the shape that they have in common."""
        joint = prepared(self.kernel).joint
        schema = self.kernel.schema
        if not joint or len(args) != len(schema.inputs):
            return args
        shapes = [tuple(getattr(value, "shape", ())) for value in args]
        if all(shapes[k] == shapes[joint[0]] for k in joint):
            return args
        plain = [type(value) in _NUMBERS for value in args]
        names = [argument.name for argument in schema.inputs]
        dtypes = [None if p else _kind(schema.name, n, v)[0] for p, n, v in zip(plain, names, args, strict=True)]  # type: ignore[index]
        shape = broadcast_shape(self.kernel, shapes, dtypes, parameters)
        if shape is None:
            return args
        known = next(dtype for k, dtype in enumerate(dtypes) if k in joint and dtype is not None)
        arrays = [_number(schema, k, v, known) if plain[k] and k in joint else v for k, v in enumerate(args)]
        return [jax.numpy.broadcast_to(v, shape) if k in joint else v for k, v in enumerate(arrays)]

    def _specialisation(
        self, args: Sequence[object], counts: Counts, parameters: Mapping[str, object]
    ) -> Specialisation:
        schema = self.kernel.schema

        def kind(number: int, value: Any) -> ArgumentKind:
            name = schema.inputs[number].name if number < len(schema.inputs) else f"argument {number}"
            return value if type(value) in _NUMBERS else _kind(schema.name, name, value)

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

    def _function(self, counts: Counts, parameters: Mapping[str, object]) -> Callable[..., tuple[Any, ...]]:
        """The function for these parameters, jitted once."""
        key = counts, tuple((name, identity(value)) for name, value in sorted(parameters.items()))
        with self._lock:
            self._refresh()
            entry = self._functions.get(key)
            if entry is None:
                entry = self._functions[key] = self._made(counts, dict(parameters))
        return entry

    def _made(self, counts: Counts, parameters: dict[str, object]) -> Callable[..., tuple[Any, ...]]:
        callee = _KernelCall(self, counts, parameters)

        def primal(*args: object) -> tuple[Any, ...]:
            return staged_call(callee, args)

        primal.__name__ = primal.__qualname__ = self.__name__.replace("::", "_")
        jitted: Callable[..., tuple[object, ...]] = jax.jit(primal)
        return jitted

    def _check_devices(self, arrays: Sequence[object]) -> None:
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


class _KernelCall:
    """What calls of an op with the same parameters run; see `jax_callee.Callee`."""

    def __init__(self, op: JaxOp, counts: Counts, parameters: dict[str, object]) -> None:
        self.op = op
        self.name = op.kernel.schema.name
        self.counts = counts
        self.parameters = parameters

    @property
    def batching(self) -> Rule | None:
        """The user's rule for `jax.vmap`."""
        return self.op.vmap if callable(self.op.vmap) else None

    def results(self, avals: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """Outputs, then the new values of arguments that are changed in place."""
        made = self._specialisation(avals)
        shapes = made.output_shapes([aval.shape for aval in avals])
        collected = [
            (shape, jax.dtypes.canonicalize_dtype(type.dtype.to_numpy()))
            for shape, type in zip(shapes, made.outputs, strict=True)
        ]
        return collected + [(avals[k].shape, avals[k].dtype) for k in made.mutable]

    def run(self, args: Sequence[object], levels: Levels, split: int) -> tuple[Any, ...]:
        """One call of the handler."""
        inner = members(args, levels)
        made = self._specialisation(inner)
        shapes = made.output_shapes([array.shape for array in inner])
        batch = self.batch(inner) if split and not levels else None
        if batch is not None and not adds_axis(made):
            return self._split_batch(args, batch)
        handler = handler_of(made.model, made.checks, merges=adds_axis(made))
        return tuple(map(_canonical, handler.call(args, shapes, made.mutable, levels, split)))

    def _split_batch(self, args: Sequence[object], batch: Sequence[int]) -> tuple[Any, ...]:
        """One call that XLA may split along the axes of a batch."""
        made, shapes, added, split = self._wide(args, batch)
        wide = [jax.numpy.expand_dims(value, added) if axes else value for value, axes in zip(args, batch, strict=True)]
        results = handler_of(made.model, made.checks).call(wide, made.output_shapes(shapes), split=split, ends=True)
        return tuple(_canonical(jax.numpy.squeeze(result, added)) for result in results)

    def _wide(
        self, args: Sequence[Any], batch: Sequence[int]
    ) -> tuple[Specialisation, list[Any], tuple[int, ...], int]:
        """A call with axes of size 1 at both ends of the batch: XLA splits along axes that others follow, and
        replicates operands with fewer axes than it splits along.

        Returns:
            the specialisation, the shapes of its operands, the axes that are added, and how many axes XLA may split.
        """
        count = max(batch)
        alone = max((value.ndim for value, axes in zip(args, batch, strict=True) if not axes), default=0)
        ones = max(0, alone + 1 - count)
        shapes = [
            (*(1,) * ones, *value.shape[:count], 1, *value.shape[count:]) if axes else value.shape
            for value, axes in zip(args, batch, strict=True)
        ]
        wide = [jax.ShapeDtypeStruct(shape, value.dtype) for shape, value in zip(shapes, args, strict=True)]
        return self._specialisation(wide), shapes, (*range(ones), ones + count), ones + count

    def adds_axis(self, avals: Sequence[object]) -> bool:
        """Whether the kernel is elementwise, and is not to be called for one member after the other."""
        return self.op.vmap != "sequential" and adds_axis(self._specialisation(avals))

    def batch(self, avals: Sequence[Any]) -> tuple[int, ...] | None:
        """As the author promises or the compiler finds, with a batch of one axis at least."""
        if self.op.vmap == "sequential" or any(count is not None for count in self.counts):
            return None
        made = self._specialisation(avals)
        result = batch_axes(made, [len(aval.shape) for aval in avals])
        if not result or not any(result):
            return None
        wide, _, added, _ = self._wide(avals, result)
        return result if same_member(made, wide, result, len(added)) else None

    def changed(self, avals: Sequence[object]) -> Sequence[int]:
        """Which operands are changed in place."""
        return self._specialisation(avals).mutable

    def numbers(self) -> Sequence[bool]:
        """Which operands are single numbers."""
        results: list[bool] = []
        for argument, count in zip(self.op.kernel.schema.inputs, self.counts, strict=True):
            results += [argument.form is Form.SCALAR] * (1 if count is None else count)
        return results

    def check_differentiable(self) -> None:
        """Refuses to differentiate an op without a backward."""
        if self.op._backward is not None or self.op.kernel.gradient is not None:
            return
        raise GraphError(
            f"a gradient of op '{self.name}' is requested, and it has no backward",
            code="EK0881",
            place=user_place(),
            op=self.name,
            hint=f"record one with @{self.name.rpartition('::')[2]}.backward, or call it under jax.lax.stop_gradient",
        )

    def gradients(self, inputs: Sequence[object], results: Sequence[object], grads: Sequence[object]) -> list[Any]:
        """By `@f.backward`, or else by what is recorded with the kernel."""
        schema = self.op.kernel.schema
        outputs = tuple(results[: len(results) - len(schema.mutable)])
        nested, parameters = tuple(_nested(inputs, self.counts)), bind_parameters(schema, self.parameters)
        context = GradientContext(nested, outputs, parameters)
        if self.op._backward is None:
            result = gradients(self.op.kernel, context, grads, _JaxRunner(self.name))
        else:
            given = self.op._backward(context, *grads)
            result = list(given) if isinstance(given, list | tuple) else [given]
        return self._flat(result)

    def _flat(self, results: Sequence[Any]) -> list[Any]:
        """The gradients one after the other; None for a variadic argument stands for all of its arrays."""
        if len(results) != len(self.counts):
            raise GraphError(
                f"the backward of op {self.name!r} gives {len(results)} gradients for {len(self.counts)} inputs",
                code="EK0882",
                place=user_place(),
                op=self.name,
                hint="return one gradient for each input, in their order, and None for what has none",
            )
        flat: list[Any] = []
        for each, count in zip(results, self.counts, strict=True):
            flat += [each] if count is None else [None] * count if each is None else list(each)
        return flat

    def _specialisation(self, values: Sequence[Any]) -> Specialisation:
        made = self.op._specialisation(values, self.counts, self.parameters)
        return choice(made, [value.shape for value in values], self.parameters)[0]


class _GraphCall:
    """What a backward that is a graph runs; see `jax_callee.Callee`. It has no backward of its own."""

    batching: Rule | None = None

    def __init__(self, name: str, handler: Handler) -> None:
        self.name = name
        self.handler = handler

    def results(self, avals: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """The gradients."""
        shapes = self.handler.output_shapes([aval.shape for aval in avals])
        types = self.handler.model.ir.output_types
        return [(shape, type.dtype.to_numpy()) for shape, type in zip(shapes, types, strict=True)]

    def run(self, args: Sequence[object], levels: Levels, split: int) -> tuple[Any, ...]:
        """One call of the handler."""
        shapes = self.handler.output_shapes([array.shape for array in members(args, levels)])
        return self.handler.call(args, shapes, (), levels, split)

    def adds_axis(self, avals: Sequence[object]) -> bool:
        """A graph has fixed ranks."""
        return False

    def batch(self, avals: Sequence[object]) -> tuple[int, ...] | None:
        """None: nothing is promised of a graph."""
        return None

    def changed(self, avals: Sequence[object]) -> Sequence[int]:
        """None."""
        return ()

    def numbers(self) -> Sequence[bool]:
        """None: a number is a tensor of rank 0 here."""
        return [False] * len(self.handler.model.ir.inputs)

    def check_differentiable(self) -> None:
        """Refuses."""
        name = self.name
        raise GraphError(
            f"a second or forward derivative of op '{name}' is requested, and its backward is a graph, which has none",
            code="EK0888",
            place=user_place(),
            op=name,
            expected="a backward of JAX operations, or a kernel with a backward of its own",
            got="@op.backward(graph=True)",
            hint=f"record a backward for JAX in jax.numpy: f = einkorn.jax.op({name!r}); @f.backward",
        )

    def gradients(self, inputs: Sequence[object], results: Sequence[object], grads: Sequence[object]) -> list[Any]:
        """Never called: see `check_differentiable`."""
        raise NotImplementedError


def call(kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object], out: object = None) -> Any:
    """A direct call of a kernel with JAX arrays among its arguments; when it returns, the results are there.

    Args:
        args: the tensors in order, those of a variadic argument one after the other.

    Raises:
        KernelError: the kernel stopped itself.
        GraphError: EK0893 an output is given, and arrays of JAX's do not change.
    """
    result, schema = op_of(kernel), kernel.schema
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
        results = result(*(_nested(args, tuple(counts)) if schema.variadic else args), **parameters)
        return results if any(isinstance(a, jax.core.Tracer) for a in args) else jax.block_until_ready(results)
    except jax.errors.JaxRuntimeError as error:
        known = failed(error)
        if known is None:
            raise
        raise known from None


def op_of(kernel: AnyKernel) -> JaxOp:
    """The op of a kernel; one for each kernel object."""
    with _lock:
        entry = _ops.get(kernel)
        if entry is None:
            entry = _ops[kernel] = op(kernel)
        return entry


_lock = fork_lock()
_ops: weakref.WeakKeyDictionary[AnyKernel, JaxOp] = weakref.WeakKeyDictionary()


def _canonical(array: Any) -> Any:
    """A result with 64 bits as JAX has it, which has 32 bits unless x64 is enabled."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if dtype == array.dtype else jax.lax.convert_element_type(array, dtype)


class _JaxRunner:
    """How backwards of an op are run on arrays of JAX's; see `gradients.Runner`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def kernel(self, kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
        return op_of(kernel)(*args, **parameters)

    def graph(self, backward: BackwardGraph, args: Sequence[object]) -> Sequence[Any]:
        with _lock:
            callee = _graphs.get(backward)
            if callee is None:
                handler = handler_of(InferenceSession().load(backward.graph))
                callee = _graphs[backward] = _GraphCall(self._name, handler)
        return staged_call(callee, args)

    def specialisation(self, kernel: AnyKernel, context: GradientContext) -> Specialisation:
        kinds = [_kind(kernel.schema.name, f"input {k}", value) for k, value in enumerate(context.inputs)]
        return specialise(kernel, kinds, context.parameters)


_graphs: weakref.WeakKeyDictionary[BackwardGraph, _GraphCall] = weakref.WeakKeyDictionary()


def _nested(flat: Sequence[object], counts: Counts) -> list[Any]:
    """The arguments as they were."""
    rest = iter(flat)
    return [next(rest) if count is None else [next(rest) for _ in range(count)] for count in counts]


def _aval(value: object) -> Any:
    """What a call depends on of an argument."""
    return (value.dtype, value.shape) if hasattr(value, "dtype") and hasattr(value, "shape") else (None, id(value))


def _number(schema: OpSchema, k: int, value: object, known: DType) -> Any:
    """A number as an array without axes, of the dtype of the other operands."""
    argument = schema.inputs[k]
    dtype = argument.dtype if isinstance(argument.dtype, DType) else known
    return jax.numpy.asarray(weak_array(value, dtype, f"op '{schema.name}'", argument.name, user_place()))


def _real(made: Specialisation, k: int, value: object) -> Any:
    """A number; a complex one only with complex operands.

    Raises:
        GraphError: EK0412 it would lose its imaginary part.
    """
    if type(value) is complex:
        weak_array(value, made.inputs[k].dtype, f"op '{made.schema.name}'", made.schema.inputs[k].name, user_place())
    return value


def _kind(op: str, name: str, value: object) -> ArgumentKind:
    """Dtype and rank of an array."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct | jax.core.ShapedArray):
        hint = "make an array of it: jnp.array(x)" if isinstance(value, list | tuple) else None
        raise DTypeError(
            f"op '{op}': '{name}' is not an array but {shown_value(value)}",
            code="EK0890",
            place=user_place(),
            op=op,
            argument=name,
            expected="a JAX or NumPy array, or a number",
            got=type(value).__name__,
            hint=hint,
        )
    dtype = value.dtype
    if not isinstance(value, jax.Array | jax.ShapeDtypeStruct | jax.core.ShapedArray):
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # as JAX reads arrays of NumPy's
    known = DType.__members__.get(getattr(dtype, "name", str(dtype)))
    if known is None:
        raise DTypeError(
            f"op '{op}': '{name}' holds {dtype}, which kernels cannot read from JAX",
            code="EK0890",
            place=user_place(),
            op=op,
            argument=name,
            expected="bool, integers, floats, or complex numbers",
            got=str(dtype),
        )
    return known, len(value.shape)
