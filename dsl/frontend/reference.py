"""References: NumPy functions that say what ops compute, for tests.

A reference is called with the op's inputs as NumPy arrays, in the order of the signature (a tensor that the kernel
changes in place among them: the reference changes it in place too; a list for a variadic argument, a NumPy scalar for a
scalar), and with parameters as keywords. It returns an array for one output, a tuple for several, nothing for none, and
a list for a variadic one. Tuning parameters, on which no result depends, it may leave out.

Input: a schema and a function. Output: arrays. Non-goals: no comparison (that is `testing`); no package holds a
reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..diagnostics.errors import EinkornError
from ..diagnostics.places import Place
from ..signature.schema import OpSchema


@dataclass(frozen=True, eq=False)
class Reference:
    """The reference of an op. `takes` are the parameters that it wants."""

    schema: OpSchema
    function: Callable[..., Any]
    takes: frozenset[str]

    def __call__(self, *inputs: Any, **parameters: Any) -> tuple[Any, ...]:
        """One array for each output of the op.

        Args:
            inputs: NumPy arrays in the order of `schema.inputs`; those that the op changes in place are changed.
            parameters: the op's parameters by name; those that the reference does not take are left out.

        Raises:
            EinkornError: EK0341 it does not return one array for each output. What it raises itself passes through.
        """
        given = {name: value for name, value in parameters.items() if name in self.takes}
        result = self.function(*inputs, **given)
        outputs = result if isinstance(result, tuple) else () if result is None else (result,)
        if len(outputs) != len(self.schema.outputs):
            raise EinkornError(
                f"the reference of op '{self.schema.name}' returns {_counted(len(outputs))}, "
                f"the op has {len(self.schema.outputs)}",
                code="EK0341",
                place=place_of(self.function),
                op=self.schema.name,
                expected=[a.name for a in self.schema.outputs],
                got=len(outputs),
                hint="return one array for each output, several as a tuple",
            )
        return outputs


def place_of(function: Callable[..., Any]) -> Place | None:
    """The line of a function's `def` (or of its first decorator)."""
    code = getattr(function, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno)


def _counted(count: int) -> str:
    return {0: "nothing", 1: "one array"}.get(count, f"{count} arrays")
