"""Gives kernels that were tuned the parameters that were best for the sizes of a call.

Findings come from the package of a kernel and, for kernels under `@autotune`, from the user's cache. No candidate is
tried here: without findings, and where the choice depends on a symbolic size, defaults stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.signature.parameters import bind_parameters
from ...dsl.signature.tuning import plain, sizes_by_name
from ...dsl.types.dtype import DType
from ..driver.device import COMPILED_FOR
from ..driver.devices import DeviceRef
from ..staging.value import Value
from ..types.dims import StaticDim

if TYPE_CHECKING:
    from ...dsl.package.findings import TunedCalls
    from ...dsl.package.library import LoadedKernel
    from ...dsl.signature.schema import OpSchema


def tuned(
    kernel: LoadedKernel, operands: Sequence[Value], given: Mapping[str, object], device: DeviceRef
) -> Mapping[str, Any]:
    """The parameters of a call."""
    if not kernel.findings:
        return given
    try:
        target = COMPILED_FOR.get()(device.to_device().driver)
        bound = bind_parameters(kernel.schema, given)
    except EinkornError:  # a device that is not here; and what is wrong with parameters is said where they are bound
        return given
    shapes = [[dim.dim if isinstance(dim, StaticDim) else None for dim in value.shape] for value in operands]
    finding = finding_for(kernel, target, [value.dtype.name for value in operands], shapes, given, bound)
    return given if finding is None else {**given, **values_of(finding, kernel.schema)}


def finding_for(
    kernel: LoadedKernel,
    target: str,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[int | None]],
    said: Iterable[str],
    bound: Mapping[str, object],
) -> TunedCalls | None:
    """The finding for such a call, from the user's cache or from the kernel's package; None if there is none.

    Args:
        target: the compile target.
        dtypes, shapes: of the inputs; a size that is not known is None.
        said: the names of the parameters that the call says.
        bound: the values of all parameters.
    """
    for finding, sizes in findings_about(kernel, target, dtypes, shapes, said, bound):
        if finding.holds_for(sizes):
            return finding
    return None


def findings_about(
    kernel: LoadedKernel,
    target: str,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[Any]],
    said: Iterable[str],
    bound: Mapping[str, object],
) -> Iterator[tuple[TunedCalls, dict[str, Any]]]:
    """The findings about such calls of any sizes, and of each the sizes on which it depends. Arguments as above."""
    for finding in kernel.findings:
        names = {name for name, _ in finding.parameters}
        if finding.target == target and names.isdisjoint(said) and names <= set(bound):
            others = {name: plain(value) for name, value in bound.items() if name not in names}
            if finding.is_about(dtypes, others):
                key = [name for name, *_ in finding.ranges]
                yield finding, sizes_by_name(kernel.schema, shapes, bound, key)


def values_of(finding: TunedCalls, schema: OpSchema) -> dict[str, Any]:
    """The parameters of a finding as Python values."""
    dtypes = {p.name for p in schema.parameters if p.kind == "dtype"}
    return {name: DType[str(value)] if name in dtypes else value for name, value in finding.parameters}
