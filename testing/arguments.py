"""The requests to `check_op`, checked against the op: a name that it lacks would try nothing, and say nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..dsl.diagnostics.errors import GraphError, did_you_mean
from ..dsl.signature.schema import OpSchema
from ..dsl.types.dtype import DType
from .cases import pack_names


def check_arguments(
    schema: OpSchema,
    dtypes: Mapping[str, Sequence[DType]],
    ranks: Mapping[str, Sequence[int]],
    data: Mapping[str, object],
    sizes: Sequence[int],
    inputs: Sequence[Any] | None,
    expected: Sequence[Any] | None,
) -> None:
    """Checks that the op has what is spoken of, and that numbers and dtypes are some.

    Raises:
        GraphError: EK0732.
    """
    _names(schema, "dtypes", "type variable", dtypes, [name for name, _ in schema.typevars])
    _names(schema, "ranks", "pack", ranks, pack_names(schema))
    _names(schema, "data", "input", data, [name for a in schema.inputs for name in (a.name, a.group) if name])
    for name, allowed in schema.typevars:
        chosen = dtypes.get(name, ())
        wrong = [chosen] if isinstance(chosen, DType | str) else [dtype for dtype in chosen if dtype not in allowed]
        if wrong:
            listed = ", ".join(str(dtype) for dtype in allowed)
            raise _refused(schema, f"dtypes= lists {wrong[0]!r} for '{name}'", f"a sequence of some of {listed}")
    for what, numbers in (("sizes", sizes), *((f"ranks of '{name}'", listed) for name, listed in ranks.items())):
        bad = [numbers] if isinstance(numbers, int) else [n for n in numbers if type(n) is not int or n < 0]
        if bad:
            raise _refused(schema, f"the {what} hold {bad[0]!r}", "whole numbers from 0 on, in a sequence")
    if expected is not None and inputs is None:
        raise _refused(schema, "expected= is used without inputs=", "inputs=, too: the case that it is expected of")
    for what, given, arguments in (("inputs", inputs, schema.inputs), ("expected", expected, schema.outputs)):
        if given is not None and len(given) != len(arguments):
            listed = ", ".join(argument.name for argument in arguments)
            raise _refused(schema, f"{what}= has {len(given)} arrays", f"one for each of {listed}")


def _names(schema: OpSchema, option: str, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    listed = list(dict.fromkeys(known))
    for name in given:
        if name not in listed:
            hint = did_you_mean(name, listed)
            wanted = f"it has {', '.join(listed)}" if listed else "it has none"
            raise GraphError(
                f"op '{schema.name}' has no {what} '{name}', which {option}= names",
                code="EK0732",
                op=schema.name,
                argument=name,
                expected=listed,
                got=name,
                hint=hint or wanted,
            )


def _refused(schema: OpSchema, message: str, wanted: str) -> GraphError:
    text = f"op '{schema.name}': {message}"
    return GraphError(text, code="EK0732", op=schema.name, expected=wanted, hint=f"give {wanted}")
