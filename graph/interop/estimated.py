"""Estimates the candidates of a tuning space for a GPU that need not be here: the static cost model.

Each candidate is compiled as far as its typed program. What its kernels do for the sizes of the call is counted there
(`compiler.explorer.static_counts`), and each launch is given the walls of `profiling.roofline`. The sum over the
launches is the estimate, which orders candidates.

See also `tuned` (what calls this), `tuning.search` (which measures candidates in this order).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...dsl.contract.gpus import peaks_of
from ...dsl.diagnostics.errors import EinkornError, KernelError
from ...dsl.diagnostics.places import user_place
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.tuning import TuningSpace
from ..driver.devices import DeviceRef
from ..profiling.roofline import KernelRoofline, Roofline
from ..profiling.static_roofline import launch_counts
from ..tuning.table import Candidate, TuningTable
from .specialise import ArgumentKind, Specialisation, specialise


def estimated(
    loaded: LoadedKernel,
    space: TuningSpace,
    kinds: Sequence[ArgumentKind | Sequence[ArgumentKind]],
    shapes: Sequence[Sequence[int]],
    parameters: Mapping[str, object],
    target: str,
) -> TuningTable:
    """All candidates with their estimates: the default first, and the best one chosen.

    Args:
        loaded: a kernel.
        space: what is tried.
        kinds: dtype and rank of each input; a list of them for a variadic argument.
        shapes: of the inputs one by one.
        parameters: those of the default, all of them.
        target: of a GPU.

    Raises:
        TargetError: an unknown target; EK0601, no figures of its devices are known.
        KernelError: EK0737, the default itself cannot be compiled for it.
    """
    peaks_of(target)
    default = {name: parameters[name] for name, _ in space.values}
    chosen = [default, *(each for each in space.candidates() if each != default)]
    rows = [
        _candidate(loaded, kinds, shapes, dict(parameters) | each, Candidate(each, None), target) for each in chosen
    ]
    if rows[0].estimate is None:
        raise KernelError(
            f"op '{loaded.schema.name}' cannot be tuned: its default fails: {rows[0].why}",
            code="EK0737",
            place=user_place(),
            op=loaded.schema.name,
            got=rows[0].why,
        )
    known = {number: row.estimate for number, row in enumerate(rows) if row.estimate is not None}
    best = min(known, key=lambda number: (known[number], number))
    return TuningTable(loaded.schema.name, [tuple(shape) for shape in shapes], rows, best)


def _candidate(
    loaded: LoadedKernel,
    kinds: Sequence[ArgumentKind | Sequence[ArgumentKind]],
    shapes: Sequence[Sequence[int]],
    parameters: Mapping[str, object],
    empty: Candidate,
    target: str,
) -> Candidate:
    try:
        made = specialise(loaded, kinds, parameters, DeviceRef.GPU())
        launches = Roofline.of(launch_counts(made.graph.ir, target, _sizes(made, shapes)), target).kernels
    except EinkornError as error:
        return replace(empty, why=f"{error.code}: {error.message}"[:200])
    if not launches:
        return replace(empty, why="it launches nothing on a GPU")
    return replace(empty, estimate=sum(each.score for each in launches), wall=_wall(launches))


def _wall(launches: Sequence[KernelRoofline]) -> str:
    """The wall of the launch that takes longest, and how much of a multiprocessor it fills."""
    longest = max(launches, key=lambda each: each.score)
    return f"{longest.wall}, {longest.occupancy:.0%} occupied, {longest.waves:.2g} waves"


def _sizes(made: Specialisation, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    return {name: shapes[number][axis] for name, (number, axis) in made.symbols.items()}
