"""Chooses which instances of a generic op are compiled ahead of time, and reads those that a user names.

An instance fixes the type variables, the number of axes of each pack, the number of tensors of each variadic argument,
and the parameters. Sizes stay open.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..dsl.contract.unit import EntrySpec, op_entry
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import CompileError, GraphError, PackageError, did_you_mean
from ..dsl.frontend.program import PortableKernel
from ..dsl.package.container import Instance
from ..dsl.signature.dims import Pack, names_in
from ..dsl.signature.parameters import bind_parameters
from ..dsl.signature.parse_dims import parse_dims
from ..dsl.signature.schema import Form, OpSchema, Parameter
from ..dsl.signature.variadic import expand, known_count, own_names
from ..dsl.types.dtype import DType
from .targets import Target, host

DEFAULT_RANKS = (1, 2, 3, 4)
DEFAULT_COUNTS = (2, 3)


def make_instance(
    schema: OpSchema,
    dtypes: Mapping[str, str],
    ranks: Mapping[str, int],
    parameters: Mapping[str, object],
    tensors: Mapping[str, int] | None = None,
) -> Instance:
    """One instance, with what is left out filled in: the preferred dtype, one axis for a pack, default parameters, two
    tensors for a variadic argument.

    Raises:
        CompileError: a name that the op does not have, a dtype that it does not allow.
        GraphError: a parameter that is missing, unknown or ill-typed.
    """
    allowed = dict(schema.typevars)
    check_names(schema, "type variable", dtypes, allowed)
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
    values = bind_parameters(schema, typed_parameters(schema, parameters))
    shown = {n: v.name if isinstance(v, DType) else v for n, v in values.items()}
    counts = _counts(schema, tensors or {}, values)
    packs = dict.fromkeys(pack_names(expand(schema, dict(counts))), 1)
    own = {f"{name[:-1]}{k}": name for name, owner in own_names(schema).items() for k in range(dict(counts)[owner])}
    check_names(schema, "pack", ranks, packs | {own[name]: 1 for name in packs if name in own})
    axes = {name: ranks.get(name, ranks.get(own.get(name, ""), 1)) for name in packs}
    return Instance(tuple(chosen.items()), tuple(axes.items()), tuple(shown.items()), counts)


def instance_entries(program: PortableKernel, instance: Instance, target: Target) -> list[tuple[EntrySpec, Target]]:
    """The compile units of an instance for a target, that of the op first.

    Where the op runs as grids, it stands alone: its shape function runs on the host, as a unit of its own.
    """
    if program.shape is None or not target.has_grid:
        return [(instance_entry(program, instance), target)]
    alone = replace(program, shape=None)
    return [(instance_entry(alone, instance), target), (instance_entry(program.shape, instance), host())]


def instance_entry(program: PortableKernel, instance: Instance) -> EntrySpec:
    """The compile unit of an instance: the op, after its shape function if it has one."""
    parameters = instance_parameters(program.schema, instance)
    dtypes = {name: DType[dtype] for name, dtype in instance.dtypes}
    return op_entry(program.expanded(dict(instance.counts)), dtypes, dict(instance.ranks), parameters)


def instance_parameters(schema: OpSchema, instance: Instance) -> dict[str, Any]:
    """The parameters of an instance as kernels take them, in the order of the signature."""
    kinds = {p.name: p.kind for p in schema.parameters}
    parameters = {
        name: DType[str(value)] if kinds[name] == "dtype" else tuple(value) if isinstance(value, list) else value
        for name, value in dict(instance.parameters).items()
    }
    return {p.name: parameters[p.name] for p in schema.parameters}


def _counts(
    schema: OpSchema, given: Mapping[str, int], parameters: Mapping[str, object]
) -> tuple[tuple[str, int], ...]:
    """How many tensors each variadic argument has: as declared, as given, as the input whose sizes it takes, or two."""
    check_names(schema, "variadic argument", given, [a.name for a in schema.variadic])
    chosen: dict[str, int] = {}
    for argument in (*schema.inputs, *schema.outputs):
        if argument.form is Form.VARIADIC:
            declared = known_count(schema, argument, chosen, parameters)
            wanted = given.get(argument.name, declared if declared is not None else DEFAULT_COUNTS[0])
            if declared not in (None, wanted):
                raise CompileError(
                    f"op '{schema.name}': '{argument.name}' stands for {declared} tensors, not {wanted}",
                    code="EK0607",
                    op=schema.name,
                    argument=argument.name,
                    expected=declared,
                    got=wanted,
                )
            chosen[argument.name] = wanted
    return tuple(chosen.items())


def check_names(schema: OpSchema, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises CompileError EK0607 for a name that an op does not have."""
    known = list(known)
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


def typed_parameters(schema: OpSchema, given: Mapping[str, object]) -> dict[str, Any]:
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
            elif isinstance(value, str) and kind == "ints":
                out[name] = tuple(int(number) for number in value.strip("()").split(",") if number.strip())
            elif isinstance(value, str) and kind == "bool":
                out[name] = {"true": True, "false": False}[value.lower()]
            else:
                out[name] = value
        except (KeyError, ValueError):
            raise GraphError(
                f"op '{schema.name}': parameter '{name}' is not of type {kind}: {value!r}",
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
    names: dict[str, None] = {}
    for argument in schema.tensors:
        for item in parse_dims(argument.dims):
            if isinstance(item, Pack) and not (
                item.count is not None and {n.name for n in names_in(item.count)} <= parameters
            ):
                names.setdefault(item.name)
    return list(names)


@dataclass(frozen=True)
class Wanted:
    """What a user fixes of the instances of all ops of a library, each for the ops that have such a name."""

    dtypes: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def check(self, schemas: Iterable[OpSchema]) -> None:
        """Each name has to be one of some op.

        Raises:
            CompileError: EK0607, it is not.
        """
        listed = list(schemas)
        known = (
            ("type variable", self.dtypes, {n for s in listed for n, _ in s.typevars}),
            ("parameter", self.parameters, {p.name for s in listed for p in s.parameters}),
            ("pack", self.ranks, {n for s in listed for n in pack_names(s)}),
            ("variadic argument", self.counts, {a.name for s in listed for a in s.variadic}),
        )
        for what, given, names in known:
            for name in given:
                if name not in names:
                    raise CompileError(
                        f"no op here has a {what} '{name}'",
                        code="EK0607",
                        argument=name,
                        expected=sorted(names),
                        got=name,
                        hint=did_you_mean(name, names) or (f"there are {', '.join(sorted(names))}" if names else None),
                    )


def missing_parameters(schema: OpSchema, wanted: Wanted) -> list[Parameter]:
    """The parameters of which nothing says a value."""
    return [p for p in schema.parameters if p.required and p.name not in wanted.parameters]


def default_instances(schema: OpSchema, wanted: Wanted) -> Iterator[Instance]:
    """What is wanted, and for the rest: float32 (or the preferred dtype) for every type variable, packs of one to four
    axes, default parameters.

    An op with a required parameter has none: nothing says what its value should be.
    """
    if missing_parameters(schema, wanted):
        return
    dtypes = {name: wanted.dtypes[name] for name, _ in schema.typevars if name in wanted.dtypes}
    parameters = {p.name: wanted.parameters[p.name] for p in schema.parameters if p.name in wanted.parameters}
    packs = pack_names(schema)
    several = [a.name for a in schema.inputs if a.form is Form.VARIADIC and not a.count]
    axes = [[wanted.ranks[name]] if name in wanted.ranks else DEFAULT_RANKS for name in packs]
    numbers = [[wanted.counts[name]] if name in wanted.counts else DEFAULT_COUNTS for name in several]
    for ranks in itertools.product(*axes):
        for tensors in itertools.product(*numbers):
            counts = dict(zip(several, tensors, strict=True))
            yield make_instance(schema, dtypes, dict(zip(packs, ranks, strict=True)), parameters, counts)


def read_instances(path: str, schemas: Mapping[str, OpSchema]) -> dict[str, list[Instance]]:
    """The instances that a file lists, by op.

    The file is JSON: `{"add_one": [{"dtypes": {"T": "float16"}, "ranks": {"s": 2}, "parameters": {}}]}`; `counts` says
    how many tensors variadic arguments have.

    Raises:
        PackageError: the file cannot be read or is not of that form.
        CompileError, GraphError: an instance does not fit its op.
    """
    try:
        data = json.loads(Path(path).read_text())
        listed = {}
        for op, records in data.items():
            if op not in schemas:
                raise PackageError(
                    f"'{path}' lists the op '{op}', which is not among the kernels",
                    code="EK0513",
                    got=op,
                    hint=did_you_mean(op, schemas),
                )
            names = ("dtypes", "ranks", "parameters", "counts")
            parts = [tuple(record.get(name, {}) for name in names) for record in records]
            listed[op] = [make_instance(schemas[op], *part) for part in parts]
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, GraphError):
            raise
        raise PackageError(f"the list of instances '{path}' cannot be read: {error}", code="EK0513") from None
    return listed
