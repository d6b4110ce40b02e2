"""Which instances of a generic op are compiled ahead of time, and how a user names one.

An instance fixes the type variables, the number of axes of each pack, and the parameters. Sizes stay open.

Input: a schema, and what the user asked for. Output: `Instance`s. Non-goals: no compilation.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..dsl.dims import Pack, names_in
from ..dsl.dims_parse import parse_dims
from ..dsl.errors import CompileError, GraphError, PackageError, did_you_mean
from ..dsl.package import Instance
from ..dsl.parameters import bind_parameters
from ..dsl.schema import OpSchema
from ..dsl.types import DType

DEFAULT_RANKS = (1, 2, 3, 4)


def make_instance(
    schema: OpSchema, dtypes: Mapping[str, str], ranks: Mapping[str, int], parameters: Mapping[str, Any]
) -> Instance:
    """One instance, with what is left out filled in: the preferred dtype, one axis for a pack, default parameters.

    Raises:
        CompileError: a name that the op does not have, a dtype that it does not allow.
        GraphError: a parameter that is missing, unknown or ill-typed.
    """
    allowed = dict(schema.typevars)
    _check_names(schema, "type variable", dtypes, allowed)
    packs = pack_names(schema)
    _check_names(schema, "pack", ranks, packs)
    chosen: dict[str, str] = {}
    for name, options in allowed.items():
        wanted = dtypes.get(name, options[0].name)
        if wanted not in {d.name for d in options}:
            listed = ", ".join(d.name for d in options)
            raise CompileError(
                f"op '{schema.name}' takes no {name}={wanted}",
                code="EK0607",
                op=schema.name,
                argument=name,
                expected=listed,
                got=wanted,
                notes=[f"'{name}' can be {listed}"],
            )
        chosen[name] = wanted
    values = bind_parameters(schema, _typed_parameters(schema, parameters))
    shown = {n: v.name if isinstance(v, DType) else v for n, v in values.items()}
    counts = {name: ranks.get(name, 1) for name in packs}
    return Instance(tuple(chosen.items()), tuple(counts.items()), tuple(shown.items()))


def _check_names(schema: OpSchema, what: str, given: Mapping[str, Any], known: Any) -> None:
    for name in given:
        if name not in known:
            raise CompileError(
                f"op '{schema.name}' has no {what} '{name}'",
                code="EK0607",
                op=schema.name,
                argument=name,
                expected=sorted(known),
                got=name,
                hint=did_you_mean(name, known) or (f"it has {', '.join(known)}" if known else "it has none"),
            )


def _typed_parameters(schema: OpSchema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Texts from the command line as the kinds that the parameters have."""
    kinds = {p.name: p.kind for p in schema.parameters}
    out: dict[str, Any] = {}
    for name, value in given.items():
        kind = kinds.get(name)
        try:
            if kind == "dtype" and isinstance(value, str):
                out[name] = DType[value]
            elif isinstance(value, str) and kind in ("int", "float"):
                out[name] = {"int": int, "float": float}[kind](value)
            elif isinstance(value, str) and kind == "bool":
                out[name] = {"true": True, "false": False}[value.lower()]
            else:
                out[name] = value
        except (KeyError, ValueError):
            raise GraphError(
                f"op '{schema.name}': parameter '{name}' is no {kind}: {value!r}",
                code="EK0607",
                op=schema.name,
                argument=name,
                expected=kind,
                got=value,
            ) from None
    return out


def pack_names(schema: OpSchema) -> list[str]:
    """The packs whose number of axes the signature leaves open, in order of appearance."""
    parameters = {p.name for p in schema.parameters}
    found: dict[str, None] = {}
    for argument in schema.tensors:
        for item in parse_dims(argument.dims):
            if isinstance(item, Pack) and not (item.count is not None and set(names_in(item.count)) <= parameters):
                found.setdefault(item.name)
    return list(found)


def default_instances(schema: OpSchema) -> Iterator[Instance]:
    """Float32 (or the preferred dtype) for every type variable; packs of one to four axes; default parameters.

    An op with a required parameter has none: nothing says what its value should be.
    """
    if any(p.required for p in schema.parameters):
        return
    packs = pack_names(schema)
    for counts in itertools.product(DEFAULT_RANKS, repeat=len(packs)):
        yield make_instance(schema, {}, dict(zip(packs, counts, strict=True)), {})


def read_instances(path: str, schemas: Mapping[str, OpSchema]) -> dict[str, list[Instance]]:
    """The instances that a file lists, by op.

    The file is JSON: `{"add_one": [{"dtypes": {"T": "float16"}, "ranks": {"s": 2}, "parameters": {}}]}`.

    Raises:
        PackageError: the file cannot be read or is not of that form.
        CompileError, GraphError: an instance does not fit its op.
    """
    try:
        data = json.loads(Path(path).read_text())
        found = {}
        for op, records in data.items():
            if op not in schemas:
                raise PackageError(
                    f"'{path}' lists the op '{op}', which is not among the kernels",
                    code="EK0513",
                    got=op,
                    hint=did_you_mean(op, schemas),
                )
            parts = [(r.get("dtypes", {}), r.get("ranks", {}), r.get("parameters", {})) for r in records]
            found[op] = [make_instance(schemas[op], *part) for part in parts]
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, GraphError):
            raise
        raise PackageError(f"the list of instances '{path}' cannot be read: {error}", code="EK0513") from None
    return found
