"""Compares the backward of an op with finite differences, for `testing.check_op(..., gradients=True)`.

Along random directions: the change of a weighted sum of the outputs, by central differences of the interpreter in
float64, next to what the backward says of it.

See also `cases` (which arrays).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dsl.diagnostics.errors import GraphError
from ..dsl.package.library import LibraryKernel, LoadedKernel
from ..dsl.signature.schema import OpSchema
from ..dsl.types.dtype import DType
from ..graph.engine.session import InferenceSession
from ..graph.interop.gradients import BackwardGraph, GradientContext, gradients
from ..graph.interop.specialise import AnyKernel, Specialisation, specialise
from .cases import Array
from .failures import CheckError

DIRECTIONS = 3  # that each input is moved along
STEPS = {np.dtype("d"): 1e-6, np.dtype("f"): 1e-2, np.dtype("D"): 1e-6, np.dtype("F"): 1e-2}  # how far
TOLERANCES = {np.dtype("d"): 1e-5, np.dtype("f"): 2e-2, np.dtype("D"): 1e-5, np.dtype("F"): 2e-2}

Run = Callable[[Sequence[Array]], list[Array]]
Group = Callable[[Sequence[Any]], list[Any]]


class NumpyRunner:
    """Runs what backwards consist of on arrays of NumPy."""

    def kernel(self, kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
        result = self._special(kernel, args, parameters).model.execute(*_flat(args))
        arrays = tuple(buffer.to_numpy() for buffer in result)
        return arrays[0] if len(arrays) == 1 else arrays

    def graph(self, backward: BackwardGraph, args: Sequence[object]) -> Sequence[Any]:
        return [buffer.to_numpy() for buffer in InferenceSession().load(backward.graph).execute(*args)]

    def specialisation(self, kernel: AnyKernel, context: GradientContext) -> Specialisation:
        return self._special(kernel, context.inputs, context.parameters)

    def _special(self, kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Specialisation:
        return specialise(kernel, [_kind(value) for value in args], parameters)


def _kind(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_kind(each) for each in value]
    return (DType.from_numpy(value.dtype), value.ndim) if isinstance(value, np.ndarray) else value


def check_has_backward(kernel: LoadedKernel) -> None:
    """
    Raises:
        GraphError: EK0732, nothing computes gradients of the op.
    """
    schema = kernel.schema
    if kernel.gradient is None or schema.mutable:
        what = f"changes {schema.mutable[0].name!r} in place" if schema.mutable else "has no backward"
        raise GraphError(
            f"op '{schema.name}' {what}, and gradients=True compares it with finite differences",
            code="EK0732",
            op=schema.name,
            argument="gradients",
            hint=None if schema.mutable else f"record one: @{schema.name.rpartition('::')[2]}.backward",
        )


def in_float64(schema: OpSchema, dtypes: Mapping[str, Sequence[DType]]) -> dict[str, list[DType]]:
    """The dtypes of type variables for gradients: the widest float that there is, else the preferred dtype."""
    results: dict[str, list[DType]] = {}
    for name, allowed in schema.typevars:
        wanted: list[DType] = [d for d in (DType.float64, DType.float32, DType.complex128) if d in allowed]
        results[name] = wanted[:1] or list(dtypes.get(name, allowed[:1]))
    return results


def check_gradients(
    kernel: LoadedKernel, run: Run, group: Group, arrays: Sequence[Array], parameters: Mapping[str, object], about: str
) -> None:
    """Compares the backward for one call with differences.

    Args:
        kernel: the op.
        run: the outputs of the interpreter for inputs.
        group: brings inputs, and what stands for them, in the order of the signature.
        arrays: the inputs.
        parameters: the value of every parameter.
        about: what the case is, for messages.

    Raises:
        CheckError: EK0730, they differ.
    """
    rng = np.random.default_rng(len(arrays))
    outputs = run(arrays)
    weights = [_drawn(rng, o) if o.dtype.kind in "fc" else np.zeros_like(o) for o in outputs]
    context = GradientContext(tuple(group(arrays)), _outputs(kernel.schema, outputs), dict(parameters))
    given = gradients(LibraryKernel(kernel), context, _outputs(kernel.schema, weights), NumpyRunner())
    flat = _flat(given)
    for number, (array, gradient) in enumerate(zip(arrays, flat, strict=True)):
        if array.dtype not in STEPS or not array.size:
            continue
        step, tolerance = STEPS[array.dtype], TOLERANCES[array.dtype]
        for _ in range(DIRECTIONS):
            way = _drawn(rng, array)
            sums = []
            for sign in (1, -1):
                moved = [*arrays[:number], array + sign * step * way, *arrays[number + 1 :]]
                pairs = zip(run(moved), weights, strict=True)
                sums.append(sum(_product(o, w) for o, w in pairs))
            wanted = (sums[0] - sums[1]) / (2 * step)
            got = 0.0 if gradient is None else _product(np.asarray(gradient), way)
            if abs(wanted - got) > tolerance * (abs(wanted) + sum(map(abs, sums)) * 1e-3 + 1):
                _differ(kernel, number, (wanted, got), arrays, about)


def _drawn(rng: np.random.Generator, like: Array) -> Array:
    parts = [rng.normal(size=like.shape) for _ in range(2 if like.dtype.kind == "c" else 1)]
    return np.asarray(parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1], like.dtype)


def _product(left: Array, right: Array) -> float:
    """The sum of the products of elements, and of those of real parts and of imaginary parts of complex numbers."""
    wide = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    return float(np.sum(left.astype(wide).conj() * right).real)


def _differ(
    kernel: LoadedKernel, number: int, numbers: tuple[float, float], arrays: Sequence[Array], about: str
) -> None:
    wanted, got = numbers
    argument = kernel.schema.inputs[min(number, len(kernel.schema.inputs) - 1)].name
    shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
    raise CheckError(
        f"the backward of op '{kernel.schema.name}' says {got:.6g} for a change of input '{argument}', "
        f"finite differences say {wanted:.6g}",
        code="EK0730",
        op=kernel.schema.name,
        argument=argument,
        expected=wanted,
        got=got,
        notes=[f"the inputs are {shown}" + (f" ({about})" if about else "")],
    )


def _outputs(schema: OpSchema, values: Sequence[object]) -> tuple[Any, ...]:
    """Outputs in the order of the signature; a list for a variadic one, of which there is then no other."""
    return tuple(values) if len(values) == len(schema.outputs) else (list(values),)


def _flat(values: Sequence[object]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]
