"""Stands for a kernel's ufunc where its loops cannot be compiled: the same calls by Python, with the same results.

Broadcasting, `out=`, `where=` and the choice of a loop are NumPy's rules. What folds (`reduce`, `accumulate`,
`reduceat`, `at`) calls the kernel for element after element, which is slow.

See also `ufunc` (which takes native loops).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.types.dtype import DType
from .direct import run
from .kinds import operand_of
from .specialise import AnyKernel, specialise

Array = np.ndarray[Any, Any]
_WEAK = (bool, int, float, complex)


class PythonUfunc:
    """A kernel with the calls of a `numpy.ufunc`.

    Args:
        kernel: an elementwise kernel.
        rows: dtypes of inputs and outputs, those to which NumPy converts most readily first.
        identity: as `numpy.frompyfunc` takes it: without the keyword the order of elements matters.
    """

    signature = None

    def __init__(self, kernel: AnyKernel, rows: Sequence[tuple[DType, ...]], identity: Mapping[str, object]) -> None:
        schema = kernel.schema
        self._kernel, self._rows = kernel, rows
        self._identity, self.identity = identity, identity.get("identity")
        self.__name__, self.__doc__ = schema.name.replace("::", "_"), schema.doc
        self.nin, self.nout, self.nargs = len(schema.inputs), len(schema.outputs), len(rows[0])
        self.ntypes, self.types = len(rows), [self._type(row) for row in rows if _known(row)]

    def _type(self, row: Sequence[DType]) -> str:
        chars = [dtype.to_numpy().char for dtype in row]
        return f"{''.join(chars[: self.nin])}->{''.join(chars[self.nin :])}"

    def __repr__(self) -> str:
        return f"<ufunc '{self.__name__}' by Python>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._kernel, "ufunc")

    def __copy__(self) -> PythonUfunc:
        return self

    def __deepcopy__(self, memo: object) -> PythonUfunc:
        return self

    def __call__(
        self, *inputs: Any, out: Any = None, where: Any = True, casting: Any = "same_kind", dtype: Any = None
    ) -> Any:
        """The kernel for all elements, or those where `where` holds; see `numpy.ufunc`.

        Raises:
            TypeError: a wrong number of inputs, or dtypes for which it has no loop.
            ValueError: shapes that do not go together.
            KernelError: the kernel stopped itself.
        """
        if len(inputs) not in (self.nin, self.nargs):
            raise TypeError(f"{self.__name__}() takes {self.nin} arguments, and {len(inputs)} are given")
        given = [*inputs[self.nin :]] or [*out] if isinstance(out, tuple) else [*inputs[self.nin :]] or [out]
        outs: list[Any] = [*given, *[None] * (self.nout - len(given))]
        values = inputs[: self.nin]
        row = self._row(values, dtype)
        arrays = [np.asarray(value).astype(d.to_numpy()) for value, d in zip(values, row, strict=False)]
        shapes = [array.shape for array in (*arrays, np.asarray(where), *outs) if array is not None]
        shape = np.broadcast_shapes(*shapes)
        if any(o is not None and o.shape != shape for o in outs):
            raise ValueError(f"non-broadcastable output operand: the result has shape {shape}")
        chosen = np.broadcast_to(np.asarray(where, bool), shape)
        results = self._run(row, [np.broadcast_to(array, shape)[chosen] for array in arrays])
        collected = []
        for target, dtype_, result in zip(outs, row[self.nin :], results, strict=True):
            target = np.empty(shape, dtype_.to_numpy()) if target is None else target
            if not np.can_cast(result.dtype, target.dtype, casting):
                raise TypeError(f"cannot cast ufunc '{self.__name__}' output to {target.dtype} with rule '{casting}'")
            target[chosen] = result.astype(target.dtype)
            collected.append(target)
        shown = [o if given is not None else o[()] for o, given in zip(collected, outs, strict=True)]
        return shown[0] if self.nout == 1 else tuple(shown)

    def _row(self, values: Sequence[Any], dtype: Any) -> tuple[DType, ...]:
        """The first loop to which the inputs can be converted; Python's numbers have the dtype of the other
        operands."""
        weak = [type(value) in _WEAK for value in values]
        plain = [value if numbers else np.asarray(value).dtype for value, numbers in zip(values, weak, strict=True)]
        try:
            common = np.result_type(*plain) if any(weak) else None
        except TypeError:
            common = np.dtype(object)
        dtypes: list[Any] = [common if numbers else each for each, numbers in zip(plain, weak, strict=True)]
        for row in self._rows:
            wanted = [each.to_numpy() for each in row]
            if dtype is not None and wanted[-1] != np.dtype(dtype):
                continue
            rule: Any = "safe" if dtype is None else "same_kind"
            if all(np.can_cast(each, d, rule) for each, d in zip(dtypes, wanted, strict=False)):
                return row
        listed = ", ".join(str(each) for each in dtypes)
        raise TypeError(f"ufunc '{self.__name__}' not supported for the input types ({listed}): it has {self.types}")

    def _run(self, row: Sequence[DType], arrays: Sequence[Array]) -> Sequence[Array]:
        made = specialise(self._kernel, [(dtype, 1) for dtype in row[: self.nin]], outputs=row[self.nin :])
        names = [argument.name for argument in made.schema.inputs]
        operands = [operand_of(a, made.schema.name, name) for a, name in zip(arrays, names, strict=True)]
        results = run(made, operands)
        return results if isinstance(results, tuple) else (results,)

    # what folds

    def outer(self, a: Any, b: Any, **options: Any) -> Any:
        """The kernel for each pair of elements."""
        first = np.asarray(a)
        return self(first.reshape(first.shape + (1,) * np.ndim(b)), b, **options)

    def reduce(
        self, array: object, axis: object = 0, dtype: object = None, out: object = None, **options: object
    ) -> Any:
        """The elements along axes, one after the other."""
        return self._folded("reduce", (array,), dtype, out, axis=axis, **options)

    def accumulate(self, array: object, axis: int = 0, dtype: object = None, out: object = None) -> Any:
        """As `reduce`, with all that comes on the way."""
        return self._folded("accumulate", (array,), dtype, out, axis=axis)

    def reduceat(self, array: object, indices: object, axis: int = 0, dtype: object = None, out: object = None) -> Any:
        """As `reduce`, of slices."""
        return self._folded("reduceat", (array, indices), dtype, out, axis=axis)

    def at(self, a: Any, indices: Any, *b: Any) -> None:
        """The kernel in place, for elements that may be named several times."""
        objects = a.astype(object)
        self._elements(self._row((a, *b), None)).at(objects, indices, *b)
        a[...] = objects.astype(a.dtype)

    def _folded(self, method: str, args: tuple[Any, ...], dtype: Any, out: Any, **options: Any) -> Any:
        array = np.asarray(args[0])
        row = self._row([array] * self.nin, dtype)
        value = getattr(self._elements(row), method)(array.astype(object), *args[1:], **options)
        result = np.asarray(value).astype(row[-1].to_numpy())
        target = out[0] if isinstance(out, tuple) else out
        if target is None:
            return result[()]
        np.copyto(target, result, casting="same_kind")
        return target

    def _elements(self, row: Sequence[DType]) -> np.ufunc:
        """A ufunc of objects that calls the kernel for each."""
        dtypes = [dtype.to_numpy() for dtype in row]

        def one(*values: object) -> Any:
            results = self._run(row, [np.array([value], d) for value, d in zip(values, dtypes, strict=False)])
            return results[0][0] if self.nout == 1 else tuple(result[0] for result in results)

        dtype = row[-1].to_numpy()
        known = {name: value if value is None else np.array(value).astype(dtype).item()
                 for name, value in self._identity.items()}  # fmt: skip
        made: np.ufunc = np.frompyfunc(one, self.nin, self.nout, **known)
        return made


def _known(row: Sequence[DType]) -> bool:
    """Whether all dtypes are NumPy's own, which have a letter."""
    return all(dtype.to_numpy().num < 32 for dtype in row)
