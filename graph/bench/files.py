"""Finds the benchmarks of a Python file, and runs them.

A benchmark is a function under `@benchmark`, or one whose name begins with `bench_`. It prepares what it needs and
returns the function that is timed; one that returns anything else is timed itself. With `params` it is a benchmark for
each combination of their values.

See also `measure` (how a function is timed).
"""

from __future__ import annotations

import inspect
import itertools
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.frontend.python.user_programs import running
from ..arguments import list_of, wrong
from .measure import MIN_SECONDS, ROUNDS, UNITS, WARM_SECONDS, Timing, measure, work_of

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "bench_"
CODE = "EK0909"
_KEPT = "__einkorn_benchmark__"


@dataclass(frozen=True)
class BenchmarkFunction:
    """A function, the values of its parameters, and how much work a call is."""

    function: Callable[..., Any]
    params: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)

    def cases(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name and the arguments of each combination."""
        plain = self.function.__name__.removeprefix(PREFIX)
        for values in itertools.product(*self.params.values()):
            given = dict(zip(self.params, values, strict=True))
            shown = ", ".join(f"{name}={value}" for name, value in given.items())
            yield f"{plain}[{shown}]" if shown else plain, given

    def run(self, name: str, given: Mapping[str, object], rounds: int, least: float, warm: float) -> Timing:
        """The timing of one combination."""
        made = self.function(**given)
        timed = made if callable(made) else lambda: self.function(**given)
        amounts = {kind: amount(**given) if callable(amount) else amount for kind, amount in self.work.items()}
        return measure(timed, name=name, rounds=rounds, least=least, warm=warm, work=amounts)


def benchmark(
    function: F | None = None, *, params: Mapping[str, Iterable[object]] | None = None, **work: object
) -> F | Callable[[F], F]:
    """Makes a function a benchmark, with or without arguments of the decorator.

    Args:
        function: prepares, and returns the function to time; or is timed itself.
        params: the values of each of its parameters; every combination is timed.
        work: how much a call does: `bytes=`, `elements=` or `flops=`, as a number, or a function of the parameters.

    Raises:
        GraphError: EK0478 an argument is wrong.
    """
    values = {name: tuple(list_of(f"params[{name!r}]", each, "values")) for name, each in (params or {}).items()}
    for kind, amount in work.items():
        if kind not in UNITS:
            wrong("work", kind, f"one of {', '.join(UNITS)}")
        if not callable(amount):
            work_of({kind: amount})

    def made(one: F) -> F:
        names = list(inspect.signature(one).parameters)
        if sorted(names) != sorted(values):
            wrong("params", list(values), f"the values of {', '.join(names) or 'no parameters'}")
        setattr(one, _KEPT, BenchmarkFunction(one, values, work))
        return one

    return made if function is None else made(function)


def benchmarks_of(path: Path) -> list[BenchmarkFunction]:
    """The benchmarks of a file, in their order.

    Raises:
        GraphError: EK0909 it has none.
        CompileError: EK0100 it is not valid Python; EK0915 it raised an exception.
    """
    before = sys.path[:]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with running(str(path)):
            names = runpy.run_path(str(path), run_name=path.stem)
    finally:
        sys.path[:] = before
    benchmarks: dict[int, BenchmarkFunction] = {}
    for name, value in names.items():
        kept = getattr(value, _KEPT, None)
        if isinstance(kept, BenchmarkFunction):
            benchmarks[id(value)] = kept
        elif name.startswith(PREFIX) and inspect.isfunction(value) and not inspect.signature(value).parameters:
            benchmarks[id(value)] = BenchmarkFunction(value)
    if not benchmarks:
        raise GraphError(
            f"{path} has no benchmark",
            code=CODE,
            got=str(path),
            hint="a benchmark is a function whose name begins with bench_, or one under @einkorn.bench.benchmark",
        )
    return list(benchmarks.values())


def run_file(
    path: str | Path,
    *,
    only: str = "",
    rounds: int = ROUNDS,
    least: float = MIN_SECONDS,
    warm: float = WARM_SECONDS,
    report: Callable[[Timing], object] | None = None,
) -> list[Timing]:
    """Times the benchmarks of a file.

    Args:
        path: a Python file.
        only: a part of the names of those that run; all of them when left out.
        rounds, least, warm: as of `measure`.
        report: is called with each timing as soon as it is known.

    Raises:
        GraphError: EK0909 there is no such benchmark.
        CompileError: EK0100 the file is not valid Python; EK0915 its code raised an exception.
    """
    cases = [(each, name, given) for each in benchmarks_of(Path(path)) for name, given in each.cases()]
    wanted = [case for case in cases if only in case[1]]
    if not wanted:
        names = [name for _, name, _ in cases]
        text = f"{path} has no benchmark with {only!r} in its name"
        hint = did_you_mean(only, names) or f"it has {', '.join(names)}"
        raise GraphError(text, code=CODE, got=only, expected=names, hint=hint)
    timings = []
    for each, name, given in wanted:
        with running(str(path)):
            timings.append(each.run(name, given, rounds, least, warm))
        if report is not None:
            report(timings[-1])
    return timings
