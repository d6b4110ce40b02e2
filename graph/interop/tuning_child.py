"""The child process of a tuning search: compiles candidates, compares them with the default, times them.

It is another process so that a candidate that crashes or hangs costs itself alone. Pipes carry pickled messages; what
kernels print goes to standard error.

See also `graph.tuning.search` (what is tried, and what is best).
"""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.package.library import LibraryKernel, load_library
from ...dsl.signature.schema import Role
from ...dsl.types.dtype import DType
from ..driver.arrays import ROUNDING, rounding
from ..driver.buffer import Buffer
from ..tuning.messages import Race, Raced, Subject, Tried, Try
from .specialise import Specialisation, specialise

MIN_BATCH_SECONDS = 2e-3  # seconds that a timed batch takes at least
SHARE = 0.75  # of the memory that is free, which the child may take


def main() -> None:
    """Answers until there is nothing more to read."""
    _limit_memory()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Reads requests and writes an answer to each, but for the first, which says what it is about."""
    try:
        bench = TuningBench(pickle.load(requests))
        while True:
            request = pickle.load(requests)
            answer = bench.trial(request) if isinstance(request, Try) else bench.race(request)
            pickle.dump(answer, answers)
            answers.flush()
    except EOFError:
        return


class TuningBench:
    """The op with its inputs, and the candidates that were compiled."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.kernel = LibraryKernel(load_library(subject.package).kernels[subject.op])
        self.mutable = [k for k, a in enumerate(self.kernel.schema.inputs) if a.role is Role.MUTABLE]
        self.values = [self._placed(value) for value in subject.values]
        self.runs: dict[int, Callable[[], float]] = {}
        self.wanted: list[Any] = []
        self.exact: list[Any] | None = None  # the results in float64
        self.allowed: list[float] = []  # how far results may be from them

    def _placed(self, value: object) -> Any:
        if isinstance(value, list):
            return [self._placed(each) for each in value]
        host = self.subject.device.is_host
        return value if host or not isinstance(value, np.ndarray) else Buffer.from_numpy(value).to(self.subject.device)

    def _inputs(self) -> list[Any]:
        """Those of a call, one after the other: what is changed in place is a copy."""
        values = [value.copy() if k in self.mutable else value for k, value in enumerate(self.values)]
        return [each for value in values for each in (value if isinstance(value, list) else [value])]

    def trial(self, request: Try) -> Tried:
        """Compiles, compares and times a candidate."""
        start = time.perf_counter()
        try:
            parameters = {**self.subject.parameters, **request.parameters}
            made = specialise(self.kernel, self.subject.kinds, parameters, self.subject.device)
            inputs = self._inputs()
            results = [each.to_numpy() for each in made.model.execute(*inputs)]
            results += [np.asarray(inputs[k]) for k in self.mutable]
            compiled = time.perf_counter() - start
        except EinkornError as error:
            return Tried(None, time.perf_counter() - start, f"{error.code}: {error.message}"[:200], str(error))
        except MemoryError:
            return Tried(None, time.perf_counter() - start, "there is not enough memory")
        if request.number == 0:
            self.wanted = results
            self.exact = None if self.subject.exact else self._in_float64()
            self.allowed = [max(ROUNDING, self._distance(k, each)) for k, each in enumerate(results)]
        elif why := self._differs(results):
            return Tried(None, compiled, why)
        self.runs[request.number] = run = self._timed(made)
        far = None
        if self.exact is not None:
            far = max((self._distance(k, each) for k, each in enumerate(results)), default=0.0)
        return Tried(statistics.median(run() for _ in range(self.subject.rounds)), compiled, error=far)

    def _in_float64(self) -> list[Any] | None:
        """The results of the default in float64, where the signature allows it; None where it does not."""
        inputs = [each for value in self.subject.kinds for each in (value if isinstance(value, list) else [value])]
        if not any(dtype.is_float() and dtype.bits < 64 for dtype, _ in inputs):
            return None
        try:
            kinds = [_widened(kind) for kind in self.subject.kinds]
            made = specialise(self.kernel, kinds, self.subject.parameters, self.subject.device)
            values = [np.asarray(value) for value in self._host_inputs()]
            wide = [value.astype(type.dtype.to_numpy()) for value, type in zip(values, made.inputs, strict=True)]
            given = [Buffer.from_numpy(value).to(self.subject.device) for value in wide]
            results = [each.to_numpy() for each in made.model.execute(*given)]
            return results + [given[k].to_numpy() for k in self.mutable]
        except (EinkornError, MemoryError):
            return None

    def _host_inputs(self) -> list[Any]:
        return [each for value in self.subject.values for each in (value if isinstance(value, list) else [value])]

    def _distance(self, number: int, got: object) -> float:
        """How far results are from exact ones, or else from those of the default, in units in the last place."""
        wanted = self.wanted[number]
        if not DType.from_numpy(wanted.dtype).is_float():
            return 0.0
        exact = wanted if self.exact is None else self.exact[number]
        of_each, of_all = rounding(wanted)
        with np.errstate(all="ignore"):
            got, exact, rounded = (np.asarray(v, np.float64) for v in (got, exact, exact.astype(wanted.dtype)))
            same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
            error = np.where(same, 0.0, np.abs(got - exact) / (of_each * np.abs(exact) + of_all))
        worst = float(np.max(error, initial=0.0)) * ROUNDING
        return worst if worst == worst else float("inf")

    def _differs(self, results: Sequence[Any]) -> str:
        """Why the results are not good enough; empty where they are."""
        subject = self.subject
        for number, (got, wanted) in enumerate(zip(results, self.wanted, strict=True)):
            if got.shape != wanted.shape:
                return f"output {number} has shape {got.shape}, and {wanted.shape} with the default"
            if got.tobytes() == wanted.tobytes():
                continue
            if subject.exact or not DType.from_numpy(wanted.dtype).is_float():
                return f"output {number} has other elements than with the default"
            exact = wanted if self.exact is None else self.exact[number]
            if subject.tolerance is not None:
                if not _near(got, exact, subject.tolerance):
                    return f"output {number} differs by more than the tolerance {subject.tolerance:g}"
            elif not (error := self._distance(number, got)) <= self.allowed[number]:
                than = "the default" if self.exact is None else "float64"
                return f"output {number} is {error:.3g} ulp from {than}, where {self.allowed[number]:.3g} are allowed"
        return ""

    def _timed(self, made: Specialisation) -> Callable[[], float]:
        """A function that makes a batch of calls and gives the seconds of one."""
        execute, mutable = made.model.execute, bool(self.mutable)
        count = 1

        def run() -> float:
            inputs = self._inputs()
            start = time.perf_counter()
            for _ in range(count):
                execute(*inputs)
            self.subject.device.synchronize()
            return (time.perf_counter() - start) / count

        once = min(run(), run())
        count = 1 if mutable else max(1, min(10_000, int(MIN_BATCH_SECONDS / max(once, 1e-7))))
        return run

    def race(self, request: Race) -> Raced:
        """Times candidates in turn."""
        return Raced([[self.runs[number]() for number in request.numbers] for _ in range(request.rounds)])


def _widened(kind: Any) -> Any:
    """A kind with float64 in the place of other floats."""
    if isinstance(kind, list):
        return [_widened(each) for each in kind]
    dtype, rank = kind
    return (DType.float64 if dtype.is_float() else dtype), rank


def _near(got: Any, exact: Any, tolerance: float) -> bool:
    """Whether floats differ by no more than a share of them, or of their usual size."""
    got, exact = got.astype(np.float64), exact.astype(np.float64)
    finite = np.abs(exact[np.isfinite(exact)])
    usual = float(np.quantile(finite, 0.75)) if finite.size else 0.0
    return np.allclose(got, exact, tolerance, tolerance * usual, equal_nan=True)


def _limit_memory() -> None:
    """Lets too large allocations fail, where the system supports that."""
    try:
        import resource

        with open("/proc/meminfo") as file:
            facts = dict(line.split(":", 1) for line in file)
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        free = int(facts["MemAvailable"].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (now + int(free * SHARE), resource.RLIM_INFINITY))
    except (ImportError, OSError, KeyError, ValueError):
        return
