"""Defines what a frontend is, and what it gives: the classes that a language for kernels fills in.

A reference is a NumPy function that says what an op computes, for tests. It is called with the op's inputs as NumPy
arrays, in the order of the signature (a tensor that the kernel changes in place among them: the reference changes it in
place too; a list for a variadic argument, a NumPy scalar for a scalar), and with parameters as keywords. It returns an
array for one output, a tuple for several, nothing for none, and a list for a variadic one. Tuning parameters, on which
no result depends, it may leave out.

See also `readers` (which frontends there are).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import CompileError, EinkornError
from ..diagnostics.places import Place, user_place
from ..signature.schema import OpSchema
from ..signature.tuning import TuningSpace
from .program import PortableKernel
from .reads import Reads


class Frontend:
    """Reads the files of one language."""

    def read(self, file: Path, mistakes: list[EinkornError]) -> Sequence[SourceKernel]:
        """The kernels of a file, in the order of its text; mistakes around their bodies are added to the list."""
        raise NotImplementedError

    def holds_kernels(self, file: Path) -> bool:
        """Whether a file of a folder belongs to the folder's library, found without running anything."""
        raise NotImplementedError

    def is_test(self, file: Path) -> bool:
        """Whether a file is left out of a folder's library because it holds tests."""
        raise NotImplementedError

    def is_broken(self, file: Path) -> bool:
        """Whether the text of a file is not of the language at all."""
        raise NotImplementedError


class SourceKernel:
    """A kernel of a file, with its contract.

    Attributes:
        make: makes the portable program, when it is requested; its mistakes say what is outside the language.
        reference: the NumPy function that says what it computes, if there is one.
        gradient: what computes its gradients, if there is something.
        reads: what the program was made of; nothing before it is made.
        tuning: which parameters are chosen by trying, if any are.
        usable: False where its signature has a mistake: it can be looked at, and nothing can be made of it.
    """

    def __init__(
        self,
        schema: OpSchema,
        make: Callable[[], PortableKernel],
        *,
        reference: Reference | None = None,
        gradient: Gradient | None = None,
        tuning: TuningSpace | None = None,
        usable: bool = True,
        reads: Reads | None = None,
    ) -> None:
        self.schema = schema
        self.make = make
        self.reference = reference
        self.gradient = gradient
        self.tuning = tuning
        self.usable = usable
        self.reads = reads or Reads()


@dataclass(frozen=True, eq=False)
class Gradient:
    """What computes the gradients of an op: one record for all callers, PyTorch and JAX among them, and for tests.

    Attributes:
        compute: a function of a context (`inputs`, `outputs`, `parameters`) and of the gradient of each output, which
            returns one for each input, or None; or a kernel, whose arguments say by their names what they are: inputs
            and outputs of the op, `grad_out` for the gradient of output `out`, outputs `grad_x` for that of `x`.
        is_graph: whether the function computes with values of a graph, and is staged; else with what the caller has.
    """

    compute: Any
    is_graph: bool = False


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


def gradient_of(schema: OpSchema, compute: object, is_graph: bool) -> Gradient:
    """The record of a backward.

    Raises:
        CompileError: EK0340 it is neither a function nor a kernel.
    """
    if not callable(compute):
        raise CompileError(
            f"the backward of op '{schema.name}' is a function or a kernel, not {compute!r}",
            code="EK0340",
            place=user_place(),
            op=schema.name,
        )
    return Gradient(compute, is_graph)


def place_of(function: Callable[..., Any]) -> Place | None:
    """The line of a function's `def` (or of its first decorator)."""
    code = getattr(function, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno)


def _counted(count: int) -> str:
    return {0: "nothing", 1: "one array"}.get(count, f"{count} arrays")
