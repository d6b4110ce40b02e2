"""Describes what a package holds: its manifest, as values and as JSON.

Everything that is needed of a package without running or mapping any of it stands here: the ops with their schemas,
which code there is for which target, and the size and SHA-256 of every other member.

Compatibility is by integers. Another major format is refused, a newer minor is read and what is not known in it is
passed over; within our own minor the JSON is taken strictly: a field that is missing, unknown or of another type is an
error, so that a mistake of a writer is found on the first day and not when the field is needed first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..contract.abi import ABI_VERSION, SILENT_ABI
from ..contract.code_formats import FORMATS
from ..diagnostics.dataclass import dataclass
from ..diagnostics.json_reading import Misread, read_json, shown
from ..diagnostics.shield import raise_if_of_handler
from ..signature.read_schema import declared, read_schema
from ..signature.schema import PARAMETER_KINDS, OpSchema
from ..types.dtype import DType
from .archive import name_trouble

FORMAT = (1, 4)  # major, minor: of the container and the manifest
PLAIN = (1, 0)  # of a package without code for devices and without findings, which older readers read in full
LAUNCHING = (1, 1)  # of one with code for devices
TUNED = (1, 2)  # of one with findings
DERIVED = (1, 3)  # of one whose ops name their backwards
WITH_GRAPHS = (1, 4)  # of one with graphs, whose members are aligned
ABI = ABI_VERSION  # of compiled entries: what they are passed and what they return
READ_ABIS = (SILENT_ABI, ABI_VERSION)  # whose code is called

_SHA256 = re.compile(r"[0-9a-f]{64}")
JSONDict = dict[str, Any]


class ManifestError(ValueError):
    """What is wrong in a manifest, in words that go on 'the manifest ...'."""


@dataclass(frozen=True)
class MemberRecord:
    """A member of the file, its size in bytes and the SHA-256 of its data in hexadecimal."""

    member: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Instance:
    """What a kernel was compiled for. All parts are brought into the order of the names.

    Attributes:
        dtypes: type variable -> name of the dtype.
        ranks: name of a starred dim (`*s`) -> its number of axes.
        parameters: compile-time parameter -> its value; a DType by its name.
        counts: variadic argument -> its number of tensors.
    """

    dtypes: tuple[tuple[str, str], ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    parameters: tuple[tuple[str, bool | int | float | str | tuple[int, ...]], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for part in ("dtypes", "ranks", "parameters", "counts"):
            object.__setattr__(self, part, tuple(sorted(getattr(self, part))))

    def to_json(self) -> JSONDict:
        parts = {"dtypes": self.dtypes, "ranks": self.ranks, "parameters": self.parameters, "counts": self.counts}
        return {name: dict(pairs) for name, pairs in parts.items()}

    def __str__(self) -> str:
        parts = (self.dtypes, self.ranks, self.counts, self.parameters)
        return " ".join(f"{name}={value}" for part in parts for name, value in part)


@dataclass(frozen=True)
class OpRecord:
    """An op of the package: its schema, where its portable program is, and the op that computes its gradients."""

    schema: OpSchema
    program: MemberRecord
    backward: str = ""


@dataclass(frozen=True)
class Variant:
    """Code for one op, one instance and one target.

    Attributes:
        kind: the format of the code, a key of `dsl.contract.code_formats.FORMATS`.
        requirements: CPU or GPU features that the machine must have for the code to run.
        checks: what the code checks as it runs; see `checks`.
        host: of code for a device what launches its kernels, by the target of the host. Code of format 1.0 has none.
        kernels: the symbols of the kernels, in the order of their numbers.
    """

    op: str
    instance: Instance
    target: str
    kind: str
    requirements: tuple[str, ...]
    code: MemberRecord
    checks: str = "safe"
    host: tuple[tuple[str, MemberRecord], ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[MemberRecord, ...]:
        """The code, then what launches it."""
        return (self.code, *(record for _, record in self.host))

    @property
    def in_process(self) -> bool:
        """Whether the code is mapped into this process and called; a format that is not known here is not."""
        return self.kind in FORMATS and FORMATS[self.kind].in_process


@dataclass(frozen=True)
class ValueRecord:
    """An input or output of a graph: its name, the name of its dtype, its dims as text."""

    name: str
    dtype: str
    shape: tuple[str, ...]


@dataclass(frozen=True)
class GraphCode:
    """Code of a graph for a target, and the features that a machine must have for it to run."""

    target: str
    requirements: tuple[str, ...]
    code: MemberRecord


@dataclass(frozen=True)
class GraphRecord:
    """A graph of the package.

    Attributes:
        graph: what it is, for those that check, show and recompile it.
        doors: by architecture, such as "x86_64", the exported file that C programs call: code for all of its targets
            there, given the weights of the package.
        weights: the memory of its constants and weights, in the safetensors format; None where it has none.
        arena: how many bytes its intermediate results take; None where that depends on its inputs.
    """

    name: str
    graph: MemberRecord
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]
    code: tuple[GraphCode, ...]
    weights: MemberRecord | None = None
    arena: int | None = None
    doors: tuple[tuple[str, MemberRecord], ...] = ()

    @property
    def members(self) -> tuple[MemberRecord, ...]:
        """In the order of the file."""
        weights = () if self.weights is None else (self.weights,)
        return (self.graph, *(each.code for each in self.code), *(record for _, record in self.doors), *weights)


@dataclass(frozen=True)
class Manifest:
    """All of it. `producers` are the tools that made the package with their versions, `sources` its Python sources,
    `tuning` what was found to be best on which device."""

    name: str
    version: str
    licence: str
    ops: tuple[OpRecord, ...]
    variants: tuple[Variant, ...] = ()
    sources: tuple[MemberRecord, ...] = ()
    producers: tuple[tuple[str, str], ...] = ()
    format: tuple[int, int] = FORMAT
    abi: int = ABI
    tuning: MemberRecord | None = None
    graphs: tuple[GraphRecord, ...] = ()

    def members(self) -> tuple[MemberRecord, ...]:
        """Every member that the manifest speaks of, in the order of the file."""
        code = (member for variant in self.variants for member in variant.members)
        tuning = () if self.tuning is None else (self.tuning,)
        graphs = (member for graph in self.graphs for member in graph.members)
        return (*(o.program for o in self.ops), *self.sources, *code, *tuning, *graphs)


def format_of(
    ops: Iterable[OpRecord], variants: Iterable[Variant], tuned: bool, graphs: Sequence[GraphRecord] = ()
) -> tuple[int, int]:
    """The lowest format that says all this."""
    if graphs:
        return WITH_GRAPHS
    if any(op.backward for op in ops):
        return DERIVED
    return TUNED if tuned else LAUNCHING if any(variant.host for variant in variants) else PLAIN


def canonical_json(value: object) -> bytes:
    """JSON of which there is one form: keys sorted, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def print_manifest(manifest: Manifest) -> bytes:
    """The text of `manifest.json`: indented for people, keys sorted, the same for equal manifests."""
    data: JSONDict = {
        "format": list(manifest.format),
        "abi": manifest.abi,
        "name": manifest.name,
        "version": manifest.version,
        "licence": manifest.licence,
        "producers": dict(manifest.producers),
        "ops": [
            {"schema": op.schema.to_json(), "program": vars(op.program)}
            | ({"backward": op.backward} if op.backward else {})
            for op in manifest.ops
        ],
        "variants": [
            {
                "op": variant.op,
                "instance": variant.instance.to_json(),
                "target": variant.target,
                "kind": variant.kind,
                "requirements": list(variant.requirements),
                "code": vars(variant.code),
                "checks": variant.checks,
            }
            | _halves(variant)
            for variant in manifest.variants
        ],
        "sources": [vars(source) for source in manifest.sources],
    }
    if manifest.tuning is not None:
        data["tuning"] = vars(manifest.tuning)
    if manifest.graphs:
        data["graphs"] = [_graph(graph) for graph in manifest.graphs]
    return json.dumps(data, sort_keys=True, indent=1).encode() + b"\n"


def _graph(graph: GraphRecord) -> JSONDict:
    """The fields of a graph."""
    code = [vars(each) | {"requirements": list(each.requirements), "code": vars(each.code)} for each in graph.code]
    inputs, outputs = (
        [vars(each) | {"shape": list(each.shape)} for each in values] for values in (graph.inputs, graph.outputs)
    )
    data: JSONDict = {"name": graph.name, "graph": vars(graph.graph), "code": code}
    data |= {"inputs": inputs, "outputs": outputs}
    data |= {"doors": {architecture: vars(record) for architecture, record in graph.doors}} if graph.doors else {}
    data |= {} if graph.weights is None else {"weights": vars(graph.weights)}
    return data | ({} if graph.arena is None else {"arena": graph.arena})


def _halves(variant: Variant) -> JSONDict:
    """The fields of code for a device."""
    if not variant.host:
        return {}
    return {"host": {target: vars(record) for target, record in variant.host}, "kernels": list(variant.kernels)}


def parse_numbers(text: bytes) -> tuple[tuple[int, int], int, JSONDict]:
    """Format, ABI and the whole JSON value, of any version of the format: these two never change their place.

    Raises:
        ManifestError
    """
    try:
        data = read_json(text)
    except ValueError as error:
        raise_if_of_handler(error)
        raise ManifestError(f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ManifestError("is not a JSON object")
    form = data.get("format")
    if not (isinstance(form, list) and len(form) == 2 and all(type(n) is int and n >= 0 for n in form)):
        raise ManifestError("has no format number: 'format' must be [major, minor]")
    if type(data.get("abi")) is not int:
        raise ManifestError("has no ABI number: 'abi' must be an integer")
    return (form[0], form[1]), data["abi"], data


def parse_manifest(data: JSONDict, form: tuple[int, int]) -> Manifest:
    """The manifest in a JSON value of our major format.

    Raises:
        ManifestError: names the field, what it should hold and what it holds.
    """
    return _ManifestReader(strict=form[1] <= FORMAT[1]).manifest(data, form)


@dataclass(frozen=True)
class _ManifestReader:
    """Takes JSON apart. `at` is the path of the value (`ops[2].schema`), for messages."""

    strict: bool

    def manifest(self, data: JSONDict, form: tuple[int, int]) -> Manifest:
        known = "format abi name version licence producers ops variants sources"
        fields = self.fields(data, "the manifest", known, optional="tuning graphs")
        ops = tuple(self.op(v, f"ops[{i}]") for i, v in enumerate(self.items(fields["ops"], "ops")))
        schemas = {op.schema.name: op.schema for op in ops}
        if len(schemas) != len(ops):
            names = [op.schema.name for op in ops]
            raise ManifestError(f"has an op twice: {next(n for n in names if names.count(n) > 1)!r}")
        for number, op in enumerate(ops):
            if op.backward and op.backward not in schemas:
                self.wrong(f"ops[{number}].backward", "an op of the package", op.backward)
        variants = self.items(fields["variants"], "variants")
        sources = self.items(fields["sources"], "sources")
        graphs = self.items(fields.get("graphs", []), "graphs")
        manifest = Manifest(
            name=self.text(fields["name"], "name"),
            version=self.text(fields["version"], "version"),
            licence=self.text(fields["licence"], "licence"),
            ops=ops,
            variants=tuple(self.variant(v, f"variants[{i}]", schemas) for i, v in enumerate(variants)),
            sources=tuple(self.member(v, f"sources[{i}]") for i, v in enumerate(sources)),
            producers=self.pairs(fields["producers"], "producers", self.text),
            format=form,
            abi=data["abi"],
            tuning=self.member(fields["tuning"], "tuning") if "tuning" in fields else None,
            graphs=tuple(self.graph(v, f"graphs[{i}]") for i, v in enumerate(graphs)),
        )
        named = [graph.name for graph in manifest.graphs]
        if len(set(named)) != len(named):
            raise ManifestError(f"has a graph twice: {next(n for n in named if named.count(n) > 1)!r}")
        members = [record.member for record in manifest.members()]
        if len(set(members)) != len(members):
            raise ManifestError(f"speaks of a member twice: {next(m for m in members if members.count(m) > 1)!r}")
        return manifest

    def graph(self, data: object, at: str) -> GraphRecord:
        fields = self.fields(data, at, "name graph inputs outputs code", optional="weights arena doors")

        def values(name: str) -> tuple[ValueRecord, ...]:
            listed = self.items(fields[name], f"{at}.{name}")
            return tuple(self.value(each, f"{at}.{name}[{i}]") for i, each in enumerate(listed))

        codes = self.items(fields["code"], f"{at}.code")
        return GraphRecord(
            name=self.text(fields["name"], f"{at}.name"),
            graph=self.member(fields["graph"], f"{at}.graph"),
            inputs=values("inputs"),
            outputs=values("outputs"),
            code=tuple(self.graph_code(each, f"{at}.code[{i}]") for i, each in enumerate(codes)),
            weights=self.member(fields["weights"], f"{at}.weights") if "weights" in fields else None,
            arena=self.count(fields["arena"], f"{at}.arena") if "arena" in fields else None,
            doors=self.pairs(fields.get("doors", {}), f"{at}.doors", self.member),
        )

    def value(self, data: object, at: str) -> ValueRecord:
        fields = self.fields(data, at, "name dtype shape")
        dtype = self.text(fields["dtype"], f"{at}.dtype")
        if self.strict and dtype not in DType.__members__:
            self.wrong(f"{at}.dtype", "a dtype", dtype)
        shape = self.items(fields["shape"], f"{at}.shape")
        dims = tuple(self.text(each, f"{at}.shape[{i}]") for i, each in enumerate(shape))
        return ValueRecord(self.text(fields["name"], f"{at}.name"), dtype, dims)

    def graph_code(self, data: object, at: str) -> GraphCode:
        fields = self.fields(data, at, "target requirements code")
        needs = self.items(fields["requirements"], f"{at}.requirements")
        return GraphCode(
            target=self.text(fields["target"], f"{at}.target"),
            requirements=tuple(self.text(each, f"{at}.requirements[{i}]") for i, each in enumerate(needs)),
            code=self.member(fields["code"], f"{at}.code"),
        )

    def op(self, data: object, at: str) -> OpRecord:
        fields = self.fields(data, at, "schema program", optional="backward")
        schema = self.schema(fields["schema"], f"{at}.schema")
        backward = self.text(fields.get("backward", ""), f"{at}.backward")
        return OpRecord(schema, self.member(fields["program"], f"{at}.program"), backward)

    def variant(self, data: object, at: str, ops: Mapping[str, OpSchema]) -> Variant:
        fields = self.fields(data, at, "op instance target kind requirements code", optional="checks host kernels")
        instance = self.fields(fields["instance"], f"{at}.instance", "dtypes ranks parameters counts")
        requirements = self.items(fields["requirements"], f"{at}.requirements")
        variant = Variant(
            op=self.text(fields["op"], f"{at}.op"),
            instance=Instance(
                dtypes=self.pairs(instance["dtypes"], f"{at}.instance.dtypes", self.text),
                ranks=self.pairs(instance["ranks"], f"{at}.instance.ranks", self.count),
                parameters=self.pairs(instance["parameters"], f"{at}.instance.parameters", self.scalar),
                counts=self.pairs(instance["counts"], f"{at}.instance.counts", self.count),
            ),
            target=self.text(fields["target"], f"{at}.target"),
            kind=self.text(fields["kind"], f"{at}.kind"),
            requirements=tuple(self.text(v, f"{at}.requirements[{i}]") for i, v in enumerate(requirements)),
            code=self.member(fields["code"], f"{at}.code"),
            checks=self.text(fields.get("checks", "safe"), f"{at}.checks"),
            host=self.pairs(fields.get("host", {}), f"{at}.host", self.member),
            kernels=tuple(
                self.text(v, f"{at}.kernels") for v in self.items(fields.get("kernels", []), f"{at}.kernels")
            ),
        )
        if variant.op not in ops:
            raise ManifestError(f"has code for {variant.op!r}, an op that it does not list")
        if self.strict and variant.kind not in FORMATS:
            self.wrong(f"{at}.kind", f"one of {', '.join(FORMATS)}", variant.kind)
        if self.strict:
            self.instance(variant.instance, ops[variant.op], f"{at}.instance")
        return variant

    def instance(self, instance: Instance, schema: OpSchema, at: str) -> None:
        """An instance speaks of what its op has, with values that the op takes."""
        typevars, kinds = dict(schema.typevars), {p.name: p.kind for p in schema.parameters}
        for name, dtype in instance.dtypes:
            if name not in typevars or dtype not in [known.name for known in typevars[name]]:
                raise ManifestError(
                    f"is not valid: {at}.dtypes says {name}={dtype}, which op {schema.name!r} does not have"
                )
        for name, value in instance.parameters:
            kind = PARAMETER_KINDS.get(kinds.get(name, ""), object)
            if not (type(value) is kind or (kind is DType and value in DType.__members__)):
                what = f"{name}={shown(value)}, which op {schema.name!r} does not have"
                raise ManifestError(f"is not valid: {at}.parameters says {what}")
        several = {argument.name for argument in schema.variadic}
        for name, _ in instance.counts:
            if name not in several:
                raise ManifestError(f"is not valid: {at}.counts says {name}, which op {schema.name!r} does not have")

    def member(self, data: object, at: str) -> MemberRecord:
        fields = self.fields(data, at, "member sha256 size")
        name = self.text(fields["member"], f"{at}.member")
        trouble = name_trouble(name) or ("is that of the manifest itself" if name == "manifest.json" else None)
        if trouble:
            raise ManifestError(f"speaks of a member whose name {trouble}: {name!r}")
        sha256 = self.text(fields["sha256"], f"{at}.sha256")
        if not _SHA256.fullmatch(sha256):
            self.wrong(f"{at}.sha256", "64 hexadecimal digits", sha256)
        return MemberRecord(name, sha256, self.count(fields["size"], f"{at}.size"))

    def schema(self, data: object, at: str) -> OpSchema:
        try:
            schema = read_schema(data, self.strict)
            declared(schema)
        except Misread as wrong:
            raise ManifestError(f"is not valid: {wrong.at(at)} {wrong.what}") from None
        return schema

    def fields(self, data: Any, at: str, required: str, unknown: bool = False, optional: str = "") -> JSONDict:
        if not isinstance(data, dict):
            self.wrong(at, "an object", data)
        missing = [name for name in required.split() if name not in data]
        novel = [name for name in data if name not in (*required.split(), *optional.split())]
        if missing:
            raise ManifestError(f"is not valid: {at} lacks {missing[0]!r}")
        if novel and self.strict and not unknown:
            raise ManifestError(f"is not valid: {at} holds an unknown field, {novel[0]!r}")
        return dict(data)

    def items(self, data: object, at: str) -> list[Any]:
        return data if isinstance(data, list) else self.wrong(at, "a list", data)

    def pairs(self, data: Any, at: str, read: Callable[[Any, str], Any]) -> tuple[tuple[str, Any], ...]:
        if not isinstance(data, dict):
            self.wrong(at, "an object", data)
        return tuple((name, read(data[name], f"{at}.{name}")) for name in sorted(data))

    def text(self, data: object, at: str) -> str:
        return data if isinstance(data, str) else self.wrong(at, "a string", data)

    def switch(self, data: object, at: str) -> bool:
        return data if isinstance(data, bool) else self.wrong(at, "true or false", data)

    def count(self, data: object, at: str) -> int:
        return data if type(data) is int and data >= 0 else self.wrong(at, "an integer from 0", data)

    def scalar(self, data: object, at: str) -> bool | int | float | str | tuple[int, ...]:
        if isinstance(data, list) and all(type(each) is int for each in data):
            return tuple(data)
        return data if isinstance(data, bool | int | float | str) else self.wrong(at, "a number, string or bool", data)

    def wrong(self, at: str, expected: str, got: object) -> Any:
        raise ManifestError(f"is not valid: {at} should be {expected} and is {shown(got)}")
