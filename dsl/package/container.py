"""Writes and reads the `.pkg` container: schemas, portable programs and compiled code of kernels in one file.

    manifest.json          what is in the file (see `manifest`); first, so that one read suffices
    program/<op>.json      the portable program of each op
    source/<path>          Python sources, for reading (optional)
    code/<target>/<op>-<n>.<format, such as so or ptx>
    code/<target>/<op>-<n>.<target of a host>.so      what launches the kernels of code for a device
    tuning.json            which parameters were found to be best on which device (optional)
    graph/<name>.json      a graph: what it computes, and the groups of its kernels for each target
    graph/<name>/<target>.so      its code
    graph/<name>/c.<architecture>.so      the same as an exported file, which C programs call
    graph/<name>.safetensors      its constants and weights
    signatures/<fingerprint of a key>     an Ed25519 signature of the manifest (optional); last, and not in the manifest

The same contents give the same bytes, in any process and on any machine. `read_package` reads the manifest only;
every other member is read when requested and handed out only when size and SHA-256 are those of the manifest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..contract.code_formats import FORMATS
from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError, did_you_mean
from ..diagnostics.json_reading import read_json
from ..diagnostics.shield import raise_if_of_handler
from ..signature.schema import OpSchema
from .archive import Archive, Content, refuse, write_archive
from .findings import TunedCalls, print_findings, read_findings
from .keys import SIGNATURE_BYTES, PrivateKey, PublicKey
from .manifest import (
    ABI,
    FORMAT,
    READ_ABIS,
    GraphCode,
    GraphRecord,
    Instance,
    Manifest,
    ManifestError,
    MemberRecord,
    OpRecord,
    ValueRecord,
    Variant,
    canonical_json,
    format_of,
    parse_manifest,
    parse_numbers,
    print_manifest,
)
from .trust import PREFIX, enforce

__all__ = [
    "ABI",
    "FORMAT",
    "CodeContents",
    "GraphContents",
    "Instance",
    "OpContents",
    "OpRecord",
    "Package",
    "PackageContents",
    "Variant",
    "read_package",
    "write_package",
]

MANIFEST = "manifest.json"
TUNING = "tuning.json"
SIGNATURES = "signatures/"  # what the members begin with that hold them; the fingerprint of the key follows
MAX_MANIFEST = MAX_PROGRAM = 16 << 20  # bytes; a hundred times what large libraries have


@dataclass(frozen=True)
class OpContents:
    """An op to be written: its schema, its portable program as a JSON value, and the op that computes its gradients."""

    schema: OpSchema
    program: Any
    backward: str = ""


@dataclass(frozen=True)
class CodeContents:
    """Code to be written: what `Variant` says, and the bytes; of code for a device also those of its `hosts`."""

    op: str
    instance: Instance
    target: str
    kind: str
    data: bytes = field(repr=False)
    requirements: tuple[str, ...] = ()
    checks: str = "safe"
    hosts: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphContents:
    """A graph to be written: what `GraphRecord` says, the graph as a JSON value, code as (target, what a machine must
    have, bytes), doors as (architecture, bytes), and the pieces of its file of weights, which are not copied."""

    name: str
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]
    graph: Any = field(repr=False)
    code: tuple[tuple[str, tuple[str, ...], bytes], ...] = field(repr=False)
    weights: tuple[object, ...] = field(default=(), repr=False)
    arena: int | None = None
    doors: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PackageContents:
    """All that goes into a package. The order of the tuples does not matter: the file has one order of its own.

    `sources` are (relative path with `/`, text) pairs; `producers` are (tool, version) pairs.
    """

    name: str
    version: str
    ops: tuple[OpContents, ...]
    code: tuple[CodeContents, ...] = ()
    sources: tuple[tuple[str, bytes], ...] = ()
    producers: tuple[tuple[str, str], ...] = ()
    licence: str = ""
    findings: tuple[TunedCalls, ...] = ()
    graphs: tuple[GraphContents, ...] = ()


@dataclass(frozen=True)
class Package:
    """A package on disk. `digest`, the SHA-256 of the manifest, stands for all that it holds.

    `signatures` are pairs of the fingerprint of a key and a signature; they are not checked by being here.
    """

    path: Path
    manifest: Manifest
    digest: str
    archive: Archive = field(repr=False, compare=False)
    signatures: tuple[tuple[str, bytes], ...] = field(default=(), repr=False, compare=False)

    @property
    def ops(self) -> tuple[OpRecord, ...]:
        return self.manifest.ops

    @property
    def variants(self) -> tuple[Variant, ...]:
        return self.manifest.variants

    def op(self, name: str) -> OpRecord:
        """The record of an op. Raises PackageError (EK0560) when it is not in the package."""
        for record in self.ops:
            if record.schema.name == name:
                return record
        names = [record.schema.name for record in self.ops]
        hint = did_you_mean(name, names) or (f"it has {', '.join(names)}" if names else "it has no ops")
        raise PackageError(f"package {self.manifest.name!r} has no op {name!r}", code="EK0560", op=name, hint=hint)

    def program(self, name: str) -> Any:
        """The portable program of an op, as the JSON value that was written.

        Raises:
            PackageError: EK0559 when the member does not match the manifest; EK0560 for an unknown op.
        """
        record = self.op(name).program
        if record.size > MAX_PROGRAM:
            what = f"declares {record.size} bytes for {record.member!r}; at most {MAX_PROGRAM} are allowed"
            refuse(self.path, "EK0555", what)
        try:
            return read_json(self._checked(record))
        except ValueError as error:
            raise_if_of_handler(error)
            refuse(self.path, "EK0556", f"cannot be used: {record.member!r} is not JSON: {error}")

    def program_name(self, name: str) -> str:
        """How messages name the portable program of an op."""
        return f"{self.op(name).program.member!r} in {self.archive.shown!r}"

    def code(self, variant: Variant) -> bytes:
        """The code of a variant. Raises PackageError (EK0559) when it does not match the manifest."""
        return self._checked(variant.code)

    def host_code(self, variant: Variant, target: str) -> bytes:
        """What launches the kernels of a variant. Raises PackageError (EK0559) as `code` does."""
        return self._checked(dict(variant.host)[target])

    def graph(self, name: str | None = None) -> GraphRecord:
        """The record of a graph; of the only one, where no name is given.

        Raises:
            PackageError: EK0560, it is not in the package, or there are several.
        """
        names = [record.name for record in self.manifest.graphs]
        if name in names or (name is None and len(names) == 1):
            return self.manifest.graphs[0 if name is None else names.index(name)]
        what = "has no graphs" if not names else "has several graphs" if name is None else f"has no graph {name!r}"
        hint = f"it has {', '.join(names)}" if names else "`model.export(path)` writes packages with graphs"
        hint = did_you_mean(name, names) or hint if name is not None else hint
        raise PackageError(f"package {self.manifest.name!r} {what}", code="EK0560", expected=names, got=name, hint=hint)

    def graph_json(self, record: GraphRecord) -> Any:
        """A graph as the JSON value that was written. Raises PackageError: EK0559 when it was changed, EK0556."""
        try:
            return read_json(self._checked(record.graph))
        except ValueError as error:
            raise_if_of_handler(error)
            refuse(self.path, "EK0556", f"cannot be used: {record.graph.member!r} is not JSON: {error}")

    def graph_code(self, code: GraphCode) -> bytes:
        """Code of a graph. Raises PackageError (EK0559) when it does not match the manifest."""
        return self._checked(code.code)

    def mapped(self, record: MemberRecord) -> memoryview:
        """A large member where it is mapped, after its digest was compared.

        Raises:
            PackageError: EK0559 when it does not match the manifest.
        """
        data = self.archive.map(record.member)
        self._compare(record, len(data), hashlib.sha256(data).hexdigest())
        return data

    def source(self, member: str) -> bytes:
        """A source by its member name. Raises PackageError: EK0559 when it was changed, EK0560 when there is none."""
        for record in self.manifest.sources:
            if record.member == member:
                return self._checked(record)
        raise PackageError(f"package {self.manifest.name!r} has no source {member!r}", code="EK0560")

    @cached
    def findings(self) -> tuple[TunedCalls, ...]:
        """What tuning found for its ops. Raises PackageError: EK0559 when it was changed, EK0556 when it is no text of
        that form."""
        record = self.manifest.tuning
        if record is None:
            return ()
        if record.size > MAX_PROGRAM:
            refuse(self.path, "EK0555", f"declares {record.size} bytes for {record.member!r}")
        try:
            return tuple(read_findings(self._checked(record)))
        except ValueError as error:
            raise_if_of_handler(error)
            refuse(self.path, "EK0556", f"cannot be used: {record.member!r}: {error}")

    def with_findings(self, findings: Iterable[TunedCalls], path: str | Path | None = None) -> Package:
        """Writes this package with these findings next to those about other things; to another file if one is given.

        Raises:
            PackageError: EK0559 a member was changed, EK0561 the file cannot be written.
        """
        new = {finding.about: finding for finding in (*self.findings, *findings)}
        text = print_findings(new.values())
        others = replace(self.manifest, tuning=None, graphs=()).members()
        members: list[tuple[str, bytes | Content]] = [(record.member, self._checked(record)) for record in others]
        graphs = [
            (each.member, Content((self.archive.map(each.member),), aligned=each is not graph.graph))
            for graph in self.manifest.graphs
            for each in graph.members
        ]
        record = MemberRecord(TUNING, hashlib.sha256(text).hexdigest(), len(text))
        form = max(self.manifest.format, format_of(self.ops, self.variants, True, self.manifest.graphs))
        manifest = replace(self.manifest, tuning=record, format=form)
        file = self.path if path is None else Path(path)
        write_archive(file, [(MANIFEST, print_manifest(manifest)), *members, (TUNING, text), *graphs])
        return read_package(file, check_trust=False)

    def signed(self, key: PrivateKey, path: str | Path | None = None) -> Package:
        """Writes this package with a signature by `key` next to those it has; to another file if one is given.

        The other bytes stay as they are, and the same key gives the same signature.

        Raises:
            PackageError: EK0559 a member was changed, EK0561 the file cannot be written.
        """
        self.verify()
        signatures = dict(self.signatures) | {key.public.fingerprint: key.sign(self._message())}
        contents = [
            (name, self.archive.content(name)) for name in self.archive.members if not name.startswith(SIGNATURES)
        ]
        file = self.path if path is None else Path(path)
        write_archive(file, [*contents, *((SIGNATURES + mark, data) for mark, data in sorted(signatures.items()))])
        return read_package(file, check_trust=False)

    def check_signature(self, key: PublicKey) -> None:
        """Checks that this package is signed by a key.

        Raises:
            PackageError: EK0563 it is not, EK0564 the signature is not valid, EK0568 `cryptography` is missing.
        """
        signature = dict(self.signatures).get(key.fingerprint)
        expected = f"a signature by {key.fingerprint}"
        if signature is None:
            got = ", ".join(mark for mark, _ in self.signatures) or "no signature"
            what, code = "is not signed by this key", "EK0563"
        elif not key.verifies(signature, self._message()):
            got = "a signature of something else"
            what, code = "is not what was signed: the signature by this key does not fit its manifest", "EK0564"
        else:
            return
        raise PackageError(
            f"{self.archive.shown!r} {what}",
            code=code,
            expected=expected,
            got=got,
            notes=[f"expected {expected}", f"got {got}"],
            hint="fetch it again from where you trust",
        )

    def _message(self) -> bytes:
        """What signatures of this package sign."""
        text = self.archive.read(MANIFEST, limit=MAX_MANIFEST)
        if hashlib.sha256(text).hexdigest() != self.digest:
            refuse(self.path, "EK0536", "was replaced after it was loaded", "load the package again")
        return PREFIX + text

    def verify(self) -> int:
        """Checks every member against the manifest and says how many there are. Raises PackageError."""
        for record in self.manifest.members():
            self.archive.check(record.member)
            self.mapped(record)
        for op in self.ops:
            self.program(op.schema.name)
        len(self.findings)
        return len(self.archive.members)

    def _checked(self, record: MemberRecord) -> bytes:
        data = self.archive.read(record.member, limit=record.size)
        self._compare(record, len(data), hashlib.sha256(data).hexdigest())
        return data

    def _compare(self, record: MemberRecord, size: int, digest: str) -> None:
        if size != record.size or digest != record.sha256:
            raise PackageError(
                f"{self.archive.shown!r} was tampered with: {record.member!r} does not match the manifest",
                code="EK0559",
                expected=record.sha256,
                got=digest,
                notes=[f"the manifest declares SHA-256 {record.sha256}", f"the member has SHA-256 {digest}"],
                hint="nothing of it was loaded; fetch it again from where you trust",
            )


def write_package(path: str | Path, contents: PackageContents) -> Package:
    """Writes a package, whole or not at all, and gives it as it would be read.

    Raises:
        PackageError: EK0554 and EK0561 as `write_archive` says; EK0556 for contents that contradict themselves.
    """
    path = Path(path)
    ops = sorted(contents.ops, key=lambda op: op.schema.name)
    names = [op.schema.name for op in ops]
    for name in names:
        if names.count(name) > 1:
            refuse(path, "EK0556", f"cannot hold two ops of one name: {name!r}")
    members: list[tuple[str, bytes | Content]] = []

    def store(member: str, data: bytes | Content) -> MemberRecord:
        members.append((member, data))
        content = Content((data,)) if isinstance(data, bytes) else data
        digest = hashlib.sha256()
        for chunk in content.chunks():
            digest.update(chunk)
        return MemberRecord(member, digest.hexdigest(), content.size)

    records = tuple(
        OpRecord(
            op.schema, store(f"program/{_file_name(op.schema.name)}.json", canonical_json(op.program)), op.backward
        )
        for op in ops
    )
    sources = tuple(store(f"source/{name}", data) for name, data in sorted(contents.sources))
    variants: list[Variant] = []
    counts: dict[tuple[str, str], int] = {}
    for code in sorted(contents.code, key=_code_order):
        if code.op not in names or code.kind not in FORMATS:
            refuse(path, "EK0556", f"cannot hold {code.kind!r} code for {code.op!r}: no such op, or no such kind")
        number = counts[code.op, code.target] = counts.get((code.op, code.target), -1) + 1
        member = f"code/{_file_name(code.target)}/{_file_name(code.op)}-{number}.{code.kind}"
        record = store(member, code.data)
        stem = member.removesuffix(code.kind)
        hosts = tuple((host, store(f"{stem}{_file_name(host)}.so", data)) for host, data in sorted(code.hosts))
        requirements = tuple(sorted(set(code.requirements)))
        known = (code.op, code.instance, code.target, code.kind, requirements, record, code.checks)
        variants.append(Variant(*known, hosts, code.kernels))
    tuning = store(TUNING, print_findings(contents.findings)) if contents.findings else None
    graphs = tuple(_store_graph(graph, store) for graph in sorted(contents.graphs, key=lambda graph: graph.name))
    manifest = Manifest(
        name=contents.name,
        version=contents.version,
        licence=contents.licence,
        ops=records,
        variants=tuple(variants),
        sources=sources,
        producers=tuple(sorted(contents.producers)),
        format=format_of(records, variants, tuning is not None, graphs),
        tuning=tuning,
        graphs=graphs,
    )
    write_archive(path, [(MANIFEST, print_manifest(manifest)), *members])
    return read_package(path, check_trust=False)


def _store_graph(graph: GraphContents, store: Callable[[str, bytes | Content], MemberRecord]) -> GraphRecord:
    name = _file_name(graph.name)
    text = store(f"graph/{name}.json", canonical_json(graph.graph))
    code = tuple(
        GraphCode(
            target,
            tuple(sorted(set(needs))),
            store(f"graph/{name}/{_file_name(target)}.so", Content((data,), aligned=True)),
        )
        for target, needs, data in sorted(graph.code)
    )
    doors = tuple(
        (architecture, store(f"graph/{name}/c.{_file_name(architecture)}.so", Content((data,), aligned=True)))
        for architecture, data in sorted(graph.doors)
    )
    weights = None
    if graph.weights:
        weights = store(f"graph/{name}.safetensors", Content(graph.weights, aligned=True))
    return GraphRecord(graph.name, text, graph.inputs, graph.outputs, code, weights, graph.arena, doors)


def _code_order(code: CodeContents) -> tuple[str, str, str, bytes, tuple[str, ...], bytes]:
    instance = canonical_json(code.instance.to_json())
    return code.op, code.target, code.kind, instance, tuple(sorted(code.requirements)), code.data


def _file_name(name: str) -> str:
    """A file name for an op or a target, different for different names on any file system: `my::add` -> `my.add`."""
    encoded = re.sub(r"[^A-Za-z0-9_:+-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)
    encoded = encoded.replace("::", ".").replace(":", "%3A")
    if len(encoded) > 100 or name != name.lower():  # where case does not count, `Add` and `add` must still differ
        encoded = f"{encoded[:80]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return encoded


def read_package(path: str | Path, *, check_trust: bool = True) -> Package:
    """Opens a package, holds it to the user's trust policy, and reads its manifest.

    Args:
        check_trust: without it the policy is not applied: for packages that were just written, or are only read.

    Raises:
        PackageError: EK0551 to EK0555 when it is not a package or its file is not whole (see `Archive`), EK0556 when
            the manifest is not valid, EK0557 for another format, EK0558 for another ABI, EK0563 to EK0568 when the
            policy refuses it or cannot be used (see `trust.enforce`).
    """
    path = Path(path)
    archive = Archive(path)
    if next(iter(archive.members), None) != MANIFEST:
        refuse(path, "EK0552", f"is not a package: its first member is not {MANIFEST!r}")
    text = archive.read(MANIFEST, limit=MAX_MANIFEST)
    try:
        form, abi, data = parse_numbers(text)
        _check_numbers(archive, form, abi)
        manifest = parse_manifest(data, form)
    except ManifestError as error:
        refuse(path, "EK0556", f"cannot be used: its manifest {error}", _BUILD_AGAIN)
    _check_members(archive, manifest)
    marks = [name for name in archive.members if name.startswith(SIGNATURES)]
    signatures = tuple((name.removeprefix(SIGNATURES), archive.read(name, limit=SIGNATURE_BYTES)) for name in marks)
    if check_trust:
        enforce(path, archive.shown, manifest.name, text, signatures)
    return Package(path, manifest, hashlib.sha256(text).hexdigest(), archive, signatures)


def _check_numbers(archive: Archive, form: tuple[int, int], abi: int) -> None:
    if form[0] == FORMAT[0] and abi in READ_ABIS:
        return
    newer = form[0] > FORMAT[0] or (form[0] == FORMAT[0] and abi > ABI)
    upgrade = "install a newer Einkorn"
    rebuild = "build the package again from its sources with this Einkorn (`einkorn build`)"
    hint = f"{upgrade}, or {rebuild}" if newer else rebuild
    if form[0] != FORMAT[0]:
        what = f"has package format {form[0]}.{form[1]}, and this Einkorn reads format {FORMAT[0]}"
        raise PackageError(f"{archive.shown!r} {what}", code="EK0557", expected=FORMAT, got=form, hint=hint)
    what = f"holds code with ABI {abi}, and this Einkorn calls ABI {ABI}"
    raise PackageError(f"{archive.shown!r} {what}", code="EK0558", expected=ABI, got=abi, hint=hint)


def _check_members(archive: Archive, manifest: Manifest) -> None:
    """Members and manifest must speak of the same things: nothing missing, no size that lies, nothing unspoken of."""
    listed = {MANIFEST}
    for record in manifest.members():
        member = archive.members.get(record.member)
        if member is None:
            refuse(archive.path, "EK0553", f"is not whole: {record.member!r} is missing")
        if member.size != record.size:
            what = f"was tampered with: {record.member!r} has {member.size} bytes, the manifest declares {record.size}"
            refuse(archive.path, "EK0559", what, "nothing of it was loaded; fetch it again from where you trust")
        listed.add(record.member)
    signatures = [name for name in archive.members if name.startswith(SIGNATURES)]
    for name in signatures:
        if not _SIGNATURE.fullmatch(name) or archive.members[name].size != SIGNATURE_BYTES or name in listed:
            what = f"holds {name!r}, which is not a signature: {SIGNATURE_BYTES} bytes, named after their key"
            refuse(archive.path, "EK0556", what)
    if list(archive.members)[len(archive.members) - len(signatures) :] != sorted(signatures):
        refuse(archive.path, "EK0556", "holds its signatures in another order or place than packages do", _BUILD_AGAIN)
    listed.update(signatures)
    unspoken = [name for name in archive.members if name not in listed]
    if manifest.format[1] > FORMAT[1]:
        return
    if unspoken:
        refuse(archive.path, "EK0556", f"holds a member that its manifest does not list: {unspoken[0]!r}")
    ordered: tuple[list[Any], ...] = (
        [op.schema.name for op in manifest.ops],
        [source.member for source in manifest.sources],
        [(variant.op, variant.target, variant.kind) for variant in manifest.variants],
        [graph.name for graph in manifest.graphs],
    )
    in_order = [MANIFEST, *(record.member for record in manifest.members()), *signatures]
    if list(archive.members) != in_order or any(part != sorted(part) for part in ordered):
        refuse(archive.path, "EK0556", "holds its members in another order than packages do", _BUILD_AGAIN)


_SIGNATURE = re.compile(rf"{SIGNATURES}[0-9a-f]{{64}}")
_BUILD_AGAIN = "build it again with `einkorn build`"
