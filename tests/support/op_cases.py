"""Cases of irregular ops: a call, the tensors that it takes, a reference in NumPy. Tables: tests/graph/op_cases.

case("gather", lambda x, i: np.take(x, i, 1), x=T("m", "n"), indices=places("k", below="n"),
     call=lambda x, indices: ops.gather(x, indices, 1), sizes=[dict(m=2, n=5, k=3), dict(m=2, n=5, k=0)])
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from einkorn.distributed import Mesh
from support.graphs import HOST, Array, numbers, tensor_type

import einkorn.graph
from einkorn.dsl.types.dtype import DType
from einkorn.graph import BufferType, BufferValue, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import OPS, BuiltinOp
from einkorn.graph.staging.kernels import kernel_family

TABLES = Path(__file__).resolve().parents[1] / "graph" / "op_cases"

Sizes = Mapping[str, int]
Make = Callable[[tuple[int, ...], Any, Sizes, int], Array]  # from a shape, a dtype, the sizes of dims, and a seed

# Ops that only move elements request their width alone, so a few types stand for all.
MOVED = (np.float32, np.float64, np.float16, np.bool_, np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.int4)


@dataclass(frozen=True)
class T:
    """A tensor of a case.

    Attributes:
        dims: sizes and names.
        dtype: the dtype, if it is not that of the case.
        make: makes the elements; any numbers of the dtype when left out, NaN and infinities among the floats.
        of: the op's argument that it stands for, if it has another name.
        buffer: it is memory that the graph may change.
    """

    dims: tuple[int | str, ...]
    dtype: Any = None
    make: Make | None = None
    of: str = ""
    buffer: bool = False

    def __init__(self, *dims: int | str, dtype: Any = None, make: Any = None, of: str = "", buffer: bool = False):
        for name, value in {"dims": dims, "dtype": dtype, "make": make, "of": of, "buffer": buffer}.items():
            object.__setattr__(self, name, value)

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)

    def type(self, dtype: Any, dims: Sequence[int | str]) -> TensorType | BufferType:
        actual = tensor_type(dtype if self.dtype is None else self.dtype, dims)
        return BufferType(actual.dtype, actual.shape, HOST) if self.buffer else actual

    def array(self, dtype: Any, sizes: Sizes, seed: int) -> Array:
        chosen = np.dtype(dtype if self.dtype is None else self.dtype)
        make = self.make or any_numbers
        return np.asarray(make(self.shape(sizes), chosen, sizes, seed), chosen)


def places(*dims: int | str, below: int | str, dtype: Any = np.int64, make: Any = None) -> T:
    """Indices into an axis, negative ones among them."""

    def indices(shape: tuple[int, ...], dtype: Any, sizes: Sizes, seed: int) -> Array:
        n = sizes[below] if isinstance(below, str) else below
        low = 0 if np.dtype(dtype).kind == "u" else -n
        return np.random.default_rng(seed).integers(low, max(n, low + 1), shape)

    return T(*dims, dtype=dtype, make=make or indices)


def any_numbers(shape: tuple[int, ...], dtype: Any, sizes: Sizes, seed: int) -> Array:
    """Numbers of the dtype; of floats a few are NaN, infinite, or a zero with a sign."""
    if np.dtype(dtype).kind in "iub":
        return numbers(shape, dtype, seed)
    if DType.from_numpy(np.dtype(dtype)).is_storage():
        plain = np.random.default_rng(seed).integers(-2, 3, shape)
        return plain.astype(np.float32).astype(dtype)
    array = numbers(shape, dtype, seed)
    flat = array.reshape(-1)
    for k, value in enumerate((np.nan, np.inf, -np.inf, -0.0)):
        flat[k * 3 + 1 :: 17] = value
    return array


def plain_numbers(shape: tuple[int, ...], dtype: Any, sizes: Sizes, seed: int) -> Array:
    """Numbers near zero, exact in every type."""
    low = 0 if np.dtype(dtype).kind in "ub" else -8
    return np.random.default_rng(seed).integers(low, 2 if np.dtype(dtype).kind == "b" else 9, shape).astype(dtype)


def with_kernel(family: str, name: str, **parameters: Any) -> Callable[..., Array]:
    """The reference of a kernel, with these parameters."""

    def reference(*arrays: Array, **more: Any) -> Array:
        actual = kernel_family(family).kernels[name].reference
        assert actual is not None
        return np.asarray(actual(*arrays, **parameters, **more)[0])

    return reference


@dataclass(frozen=True)
class Case:
    """One call of an op.

    Attributes:
        op: its name.
        reference: arrays -> the result, or a list of results.
        tensors: by the names that the call has for them.
        call: values -> the result, or a list of results; the op's example when left out.
        sizes: what dims are, one run after the other; no elements at all among them.
        dtypes: of the tensors that have none of their own: the first is the one of the detailed tests.
        ulps: how far a result may be off, in units of the last place.
        alone: the call names dims, so that it stands in a graph of its own.
        extensions: kernels of the case's own.
        weights: those of the graph, by name.
        views: whether inputs may be views; not of buffers.
    """

    op: str
    reference: Callable[..., Any]
    tensors: Mapping[str, T]
    call: Callable[..., Any]
    sizes: Sequence[Sizes]
    dtypes: Sequence[Any]
    ulps: float = 0
    alone: bool = False
    extensions: str | None = None
    weights: Mapping[str, Array] | None = None
    views: bool = True

    def arrays(self, dtype: Any, run: int) -> list[Array]:
        sizes = self.sizes[min(run, len(self.sizes) - 1)]
        return [tensor.array(dtype, sizes, 10 * run + k) for k, tensor in enumerate(self.tensors.values())]

    def types(self, dtype: Any, prefix: str | None = "") -> list[TensorType | BufferType]:
        """The types of the tensors: dims have their names after a prefix, or without one the first sizes."""

        def named(dim: int | str) -> int | str:
            return dim if isinstance(dim, int) else self.sizes[0][dim] if prefix is None else prefix + dim

        return [t.type(dtype, [named(dim) for dim in t.dims]) for t in self.tensors.values()]


def case(
    op: str,
    reference: Callable[..., Any],
    *,
    call: Callable[..., Any] | None = None,
    sizes: Sequence[Sizes] = ({},),
    dtypes: Sequence[Any] | None = None,
    **more: Any,
) -> Case:
    """A case; what is not a field of it is a tensor by name."""
    tensors = {name: more.pop(name) for name in list(more) if isinstance(more[name], T)}
    chosen = dtypes_of(OPS[op]) if dtypes is None else dtypes
    staged = call or functools.partial(run_example, op, tuple(tensors))
    return Case(op, reference, tensors, staged, sizes, chosen, **more)


def dtypes_of(op: BuiltinOp) -> Sequence[Any]:
    """The dtypes on which an op is tried: those of its first tensor, or a few if any will do."""
    kind = next(iter(op.operands.values()), "storable")
    if kind == "storable":
        return MOVED
    return sorted((d.to_numpy() for d in KINDS[kind].dtypes), key=lambda d: d != np.float32)


def run_example(op: str, names: Sequence[str], *values: Any) -> Any:
    """Stages the example of an op."""
    return eval(
        OPS[op].example, dict(vars(einkorn.graph)) | {"ops": ops, "Mesh": Mesh, **dict(zip(names, values, strict=True))}
    )


def families() -> dict[str, list[Case]]:
    """The cases of each file of tests/graph/op_cases."""
    return {file.stem: list(_module(file).CASES) for file in sorted(TABLES.glob("*.py"))}


def exported_families() -> dict[str, list[Case]]:
    """The cases that files for C compute: exported code has no ranks, so collectives are refused (EK0866)."""
    return {name: cases for name, cases in families().items() if name != "collectives"}


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"op_cases_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# *** many cases at once ***


@dataclass(frozen=True)
class Batch:
    """Cases in one graph, with one dtype."""

    cases: Sequence[Case]
    dtype: Any

    def graph(self, static: bool = False, change: Callable[[Any], Any] = lambda type: type) -> Graph:
        """The graph; sizes are names, or with `static` those of the first run, where no case names them."""
        prefixes = ["" if c.alone else None if static else f"c{k}_" for k, c in enumerate(self.cases)]
        parts = [c.types(self.dtype, prefix) for c, prefix in zip(self.cases, prefixes, strict=True)]

        def forward(*values: Any) -> list[Any]:
            results, at = [], 0
            for case, types in zip(self.cases, parts, strict=True):
                results += listed(case.call(*values[at : at + len(types)]))
                at += len(types)
            return results

        extensions = list(dict.fromkeys(c.extensions for c in self.cases if c.extensions))
        types = [change(type) for part in parts for type in part]
        return Graph("cases", forward, types, custom_extensions=extensions)

    def arrays(self, run: int) -> list[Array]:
        return [array for case in self.cases for array in case.arrays(self.dtype, run)]

    def expected(self, arrays: Sequence[Array]) -> list[tuple[str, Array, float]]:
        """Of each result the op, the elements, and how far they may be off."""
        actual, at = [], 0
        for case in self.cases:
            taken = [array.copy() for array in arrays[at : at + len(case.tensors)]]
            with np.errstate(all="ignore"):
                results = listed(case.reference(*taken))
            actual += [(case.op, np.asarray(result), case.ulps) for result in results]
            at += len(taken)
        return actual

    def load(self, static: bool = False, interpret: bool = False) -> Model:
        """The model of the graph."""
        weights = {name: array for case in self.cases for name, array in (case.weights or {}).items()}
        return InferenceSession(interpret=interpret).load(self.graph(static), weights_registry=weights)

    @property
    def runs(self) -> int:
        return max(len(case.sizes) for case in self.cases)


def listed(results: Any) -> list[Any]:
    """The results of a call; what it does to buffers is none."""
    actual = list(results) if isinstance(results, list | tuple) else [results]
    return [result for result in actual if result is not None and not isinstance(result, BufferValue)]


def takes(case: Case, dtype: Any) -> bool:
    """Whether a case is run with a dtype."""
    return any(np.dtype(d) == np.dtype(dtype) for d in case.dtypes)


def batches(cases: Sequence[Case], dtype: Any) -> list[Batch]:
    """The cases that take a dtype; those that name dims each in a graph of its own."""
    taken = [c for c in cases if takes(c, dtype)]
    shared = [c for c in taken if not c.alone]
    actual = [Batch(shared, dtype)] if shared else []
    return [*actual, *(Batch([c], dtype) for c in taken if c.alone)]


def first_of_each(cases: Iterable[Case]) -> list[Case]:
    """The first case of each op."""
    return list({c.op: c for c in reversed(list(cases))}.values())[::-1]


def with_dtype(case: Case, argument: str, dtype: DType) -> Case:
    """A case in which one argument has another dtype, with all that have the same."""
    ours = [t for name, t in case.tensors.items() if (t.of or name) == argument]
    if any(t.dtype is None for t in ours):
        return replace(case, dtypes=[dtype.to_numpy()])
    changed = {
        name: T(*t.dims, dtype=dtype.to_numpy(), of=t.of, buffer=t.buffer) if t in ours else t
        for name, t in case.tensors.items()
    }
    return replace(case, tensors=changed)
