"""A GPU test kernel with its inputs: what it gives, and which targets refuse it; `support.gpu_cases` has them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from support import harness

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.pipeline import Artifact, typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import EntrySpec

Array = np.ndarray[Any, Any]

KERNELS = Path(__file__).parents[1] / "gpu" / "kernels"
GPUS = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@dataclass(frozen=True)
class GpuCase:
    """A kernel with inputs.

    Attributes:
        name: unique, for the ids of tests.
        file: the kernel file in `tests/gpu/kernels`.
        op: the op in it.
        inputs: makes the input arrays; the same ones each time.
        reference: gives the output or outputs for the inputs; with `by_lanes` for `lanes=` threads a warp, too.
        params: compile-time parameters of the op.
        needs: the features that a target must have, each with the code of the error if the target lacks it.
        bound: the largest difference to the reference, relative to the largest number; 0 compares bit for bit.
        small: makes inputs for the interpreter, where these would take it seconds.
        heavy: whether to interpret it takes seconds all the same, so that it is done once.
        by_lanes: whether the result depends on the number of threads in a warp.
        gpus: the GPUs that `tests/gpu/test_cases.py` compiles it for.
    """

    name: str
    file: str
    op: str
    inputs: Callable[[], tuple[Array, ...]]
    reference: Callable[..., Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    bound: float = 0.0
    by_lanes: bool = False
    heavy: bool = False
    small: Callable[[], tuple[Array, ...]] | None = None
    gpus: tuple[str, ...] = GPUS

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return KERNELS / self.file

    def smaller(self) -> GpuCase:
        """The case for the interpreter."""
        return self if self.small is None else replace(self, inputs=self.small, small=None)

    def expected(self, lanes: int = 32) -> tuple[Array, ...]:
        """The outputs for the inputs, where a warp has so many threads."""
        result = self.reference(*self.inputs(), **({"lanes": lanes} if self.by_lanes else {}))
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    def refusal(self, target: str) -> str | None:
        """The code of the error with which a target refuses the kernel; None where it takes it."""
        result = lookup(target)
        return next((code for feature, code in self.needs.items() if not result.supports(feature)), None)

    def types(self, arrays: tuple[Array, ...]) -> list[tuple[DType, tuple[int, ...]]]:
        return [(DType.from_numpy(array.dtype), array.shape) for array in arrays]

    def spec(self) -> EntrySpec:
        """The compile unit."""
        return harness.entry_of(
            self.path, self.op, self.types(self.inputs()), dict(self.params), self.types(self.expected())
        )[0]

    def compile(self, target: str, level: int = 3) -> Artifact:
        """The code for a target; the same question is compiled once."""
        inputs, outputs = self.types(self.inputs()), self.types(self.expected())
        return harness.compile_kernel(self.path, self.op, inputs, dict(self.params), outputs, target, level)[0]

    def run(self, target: str = "host") -> list[Array]:
        """The outputs of compiled code on this machine."""
        outputs = self.types(self.expected())
        return harness.run_kernel(self.path, self.op, self.inputs(), dict(self.params), outputs, target)

    def interpret(self, target: str = "host", seed: int | None = None) -> list[Array]:
        """The outputs that the interpreter gives for the program of a target."""
        spec, inputs, outputs = self.spec(), self.inputs(), self.expected()
        arrays = [array.copy() for array in inputs]
        arrays += [np.empty(array.shape, array.dtype) for array in outputs]
        Interpreted(typed_program(spec, lookup(target)), spec).run(arrays, [], lambda site, values: None, seed=seed)
        return arrays[len(inputs) :]

    def check(self, outputs: Any, lanes: int = 32) -> None:
        """Compares outputs with the reference."""
        for number, (given, wanted) in enumerate(zip(outputs, self.expected(lanes), strict=True)):
            assert given.shape == wanted.shape and given.dtype == wanted.dtype, (self.name, number)
            if self.bound == 0.0:
                same = given.tobytes() == wanted.tobytes()
            else:
                scale = float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0))
                same = bool(np.all(np.abs(given.astype(np.float64) - wanted) <= self.bound * scale))
            assert same, f"{self.name}, output {number}:\n{given}\nis not\n{wanted}"


def numbers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    """Small whole numbers of a dtype, whose sums are exact in all but the narrowest types."""
    drawn = np.random.default_rng(seed).integers(0 if np.dtype(dtype).kind in "bu" else -8, 8, shape)
    return drawn.astype(dtype)
