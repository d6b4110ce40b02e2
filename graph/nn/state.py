"""Loads the parameters of modules: what is given becomes tensors, and all that does not fit is one error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ...dsl.diagnostics.errors import EinkornError, GraphError, did_you_mean
from ...dsl.diagnostics.places import user_place
from ..driver.buffer import Buffer
from ..eager.tensor import Tensor
from ..quantization.encodings import QuantizationEncoding
from ..staging.value import TensorValue
from ..types.tensor_type import shown

CODE = "EK0471"
MOST_LISTED = 20  # weights that an error names


class StateError(GraphError, KeyError):
    """Weights do not fit the parameters of a module."""


def tensor_of(value: Any) -> tuple[Tensor, QuantizationEncoding | None]:
    """A tensor over the memory of a weight, and its encoding."""
    encoding = getattr(value, "quantization_encoding", None)
    value = getattr(value, "data", value) if encoding is not None or _is_weight_data(value) else value
    if isinstance(value, Tensor):
        return value, encoding
    if isinstance(value, Buffer):
        return Tensor(storage=value), encoding
    if getattr(value, "requires_grad", False):
        value = value.detach()  # PyTorch exports no tensor that requires a gradient
    return Tensor.from_dlpack(value), encoding


def _is_weight_data(value: object) -> bool:
    return type(value).__name__ == "WeightData"


def mismatch(name: str, parameter: Tensor | TensorValue, value: Tensor) -> str | None:
    """What is wrong with a value for a parameter."""
    wanted, got = (f"{each.dtype} {shown(each.shape)}" for each in (parameter, value))
    return None if wanted == got else f"'{name}' is {got}, and the module has {wanted}"


def refuse(module: str, problems: Iterable[str], names: Iterable[str], left_over: Iterable[str]) -> NoReturn:
    """Raises one error of all weights that do not fit."""
    listed = list(problems)
    more = [f"{len(listed) - MOST_LISTED} more"] if len(listed) > MOST_LISTED else []
    spare = next(iter(left_over), None)
    raise StateError(
        f"{len(listed)} weight{'s do' if len(listed) > 1 else ' does'} not fit module {module}: {listed[0]}",
        code=CODE,
        place=user_place(),
        argument="state",
        notes=[*listed[1:MOST_LISTED], *more],
        hint=None if spare is None else did_you_mean(spare, list(names)),
    )


def misused(
    message: str, argument: str, expected: str, got: object, hint: str | None = None, code: str = "EK0472"
) -> EinkornError:
    """The error of a module that is used incorrectly."""
    return GraphError(
        message, code=code, place=user_place(), argument=argument, expected=expected, got=str(got), hint=hint
    )
