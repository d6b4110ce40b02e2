"""Compares two versions of a package: what changed, and whether that is major, minor or patch.

A change is major where a caller of the old version may fail or get another result by contract, minor where callers can
do more than before, and patch where nothing of the contract changed. Programs that differ are patches: their numbers
may differ, and the text says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError, plural
from ..frontend.program import PortableKernel
from ..frontend.read_program import read_program
from ..signature.parse_dims import parse_dims
from ..signature.schema import OpSchema, Parameter, TensorArgument
from .container import Package
from .manifest import GraphRecord, OpRecord, ValueRecord, Variant

NONE, PATCH, MINOR, MAJOR = 0, 1, 2, 3
LEVELS: Final = ("none", "patch", "minor", "major")
NUMBERS = "its numbers may differ"

_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:[-+].*)?", re.ASCII)
_WORD = re.compile(r"[^\W\d]\w*(?!\w*\()")
_NAME = re.compile(r"\*?[^\W\d]\w*")  # an axis, or a pack of axes


@dataclass(frozen=True)
class PackageChange:
    """One change: an index into `LEVELS`, what it is in (`op mine::scale`), and a text."""

    level: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"{LEVELS[self.level]:5}  {self.where}: {self.what}"


@dataclass(frozen=True)
class PackageDifference:
    """All changes between two packages, the greatest first. `names` are the packages with their versions."""

    names: tuple[str, str]
    changes: tuple[PackageChange, ...]

    @property
    def level(self) -> int:
        """The greatest level of its changes."""
        return max((change.level for change in self.changes), default=NONE)

    def __str__(self) -> str:
        counts = [sum(change.level == level for change in self.changes) for level in (MAJOR, MINOR, PATCH)]
        summary = ", ".join(
            f"{count} {LEVELS[level]}" for level, count in zip((MAJOR, MINOR, PATCH), counts, strict=True)
        )
        end = (
            f"{LEVELS[self.level]}: {plural(len(self.changes), 'change')} ({summary})" if self.changes else "no changes"
        )
        return "\n".join([" -> ".join(self.names), *map(str, self.changes), end])


def compare(old: Package, new: Package) -> PackageDifference:
    """What changed from one package to another.

    Raises:
        PackageError: EK0559 a program does not match the manifest, EK0510 or EK0556 it cannot be read.
    """
    changes = [*_package_changes(old, new), *_op_changes(old, new), *_variant_changes(old, new)]
    changes += _graph_changes(old, new)
    changes.sort(key=lambda change: (-change.level, change.where, change.what))
    names = [f"{package.archive.shown} {package.manifest.version}" for package in (old, new)]
    return PackageDifference((names[0], names[1]), tuple(changes))


def check_version(difference: PackageDifference, old: Package, new: Package) -> None:
    """Checks that the new version says as much as the changes.

    Before 1.0 the second number counts as the first one does later, and the third as the second.

    Raises:
        PackageError: EK0569, it says less, or one of the versions has not the form of a version.
    """
    before, after = (_numbers(package) for package in (old, new))
    said = _said(before, after)
    if said >= difference.level and after >= before:
        return
    least = _least(before, difference.level)
    got = f"{new.manifest.version} after {old.manifest.version}, which says {LEVELS[said]}"
    if after < before:
        got = f"{new.manifest.version} after {old.manifest.version}, which is lower"
    raise PackageError(
        f"the version of {new.archive.shown!r} does not reflect its changes, which are {LEVELS[difference.level]}",
        code="EK0569",
        expected=least,
        got=new.manifest.version,
        notes=[f"expected {least} or higher", f"got {got}"],
        hint=f"build it with --package-version {least}",
    )


def _numbers(package: Package) -> tuple[int, int, int]:
    version = package.manifest.version
    numbers = _VERSION.fullmatch(version)
    if numbers is None:
        raise PackageError(
            f"the version of {package.archive.shown!r} cannot be compared: it is {version!r}",
            code="EK0569",
            expected="numbers, such as 1.2.0",
            got=version,
            hint="build it with --package-version 1.2.0",
        )
    major, minor, patch = (int(number or 0) for number in numbers.groups())
    return major, minor, patch


def _said(before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """The level that a step of versions stands for."""
    first = next((place for place in range(3) if before[place] != after[place]), 3)
    early = before[0] == after[0] == 0 and first < 3
    return min(MAJOR, (MAJOR, MINOR, PATCH, NONE)[first] + early)


def _least(before: tuple[int, int, int], level: int) -> str:
    major, minor, patch = before
    if level == NONE:
        return f"{major}.{minor}.{patch}"
    place = 3 - level if major else max(1, 4 - level)
    numbers = [*before[: min(place, 2)], before[min(place, 2)] + 1, 0, 0]
    return ".".join(map(str, numbers[:3]))


# ---------------------------------------------------------------------------------------------- parts of a package


def _package_changes(old: Package, new: Package) -> Iterator[PackageChange]:
    before, after = old.manifest, new.manifest
    for name, level in (("name", MAJOR), ("abi", MAJOR), ("licence", PATCH), ("producers", PATCH)):
        first, second = getattr(before, name), getattr(after, name)
        if first != second:
            yield PackageChange(level, "package", f"{name}: {_shown(first)} becomes {_shown(second)}")
    sources = [{source.member: source.sha256 for source in each.sources} for each in (before, after)]
    if sources[0] != sources[1]:
        yield PackageChange(PATCH, "package", "its sources differ")
    tuning = [each.tuning and each.tuning.sha256 for each in (before, after)]
    if tuning[0] != tuning[1]:
        yield PackageChange(PATCH, "package", "its findings of tuning differ")


def _op_changes(old: Package, new: Package) -> Iterator[PackageChange]:
    before, after = ({op.schema.name: op for op in package.ops} for package in (old, new))
    yield from _added_and_removed("op", before, after)
    for name in sorted(before.keys() & after.keys()):
        where = f"op {name}"
        schemas = before[name].schema, after[name].schema
        yield from _argument_changes(where, *schemas)
        yield from _parameter_changes(where, *schemas)
        yield from _promise_changes(where, before[name], after[name])
        if before[name].program.sha256 != after[name].program.sha256:
            programs = [_portable(package, name) for package in (old, new)]
            if not _equal(*programs):
                yield PackageChange(PATCH, where, f"its program differs: {NUMBERS}")


def _portable(package: Package, name: str) -> PortableKernel:
    return read_program(package.program(name), package.program_name(name), package.op(name).schema)


def _equal(old: PortableKernel, new: PortableKernel) -> bool:
    """Whether two programs are equal, their schemas aside, which are compared by themselves."""
    if (old.shape is None) != (new.shape is None):
        return False
    shapes = old.shape is None or new.shape is None or _equal(old.shape, new.shape)
    return shapes and old.digest == replace(new, schema=old.schema).digest


def _variant_changes(old: Package, new: Package) -> Iterator[PackageChange]:
    def variants(package: Package) -> dict[tuple[str, str, str, str], Variant]:
        return {(each.target, each.op, str(each.instance), each.kind): each for each in package.variants}

    before, after = variants(old), variants(new)
    targets = {key[0] for key in before}, {key[0] for key in after}
    ops = {op.schema.name for op in old.ops} & {op.schema.name for op in new.ops}
    yield from _added_and_removed("target", *targets)
    for key in sorted(before.keys() | after.keys()):
        target, op, instance, _ = key
        if op not in ops or target not in targets[0] & targets[1]:
            continue  # said already
        where, what = f"target {target}", f"code for {op}" + (f" with {instance}" if instance else "")
        if key not in after:
            yield PackageChange(MAJOR, where, f"{what} removed")
        elif key not in before:
            yield PackageChange(MINOR, where, f"{what} added")
        else:
            yield from _needs_changes(where, what, before[key].requirements, after[key].requirements)
            if before[key].checks != after[key].checks:
                yield PackageChange(PATCH, where, f"{what} checks {after[key].checks}, {before[key].checks} before")
            digests = [[member.sha256 for member in each[key].members] for each in (before, after)]
            if digests[0] != digests[1]:
                yield PackageChange(PATCH, where, f"{what} differs")


def _needs_changes(where: str, what: str, before: Collection[str], after: Collection[str]) -> Iterator[PackageChange]:
    for feature in sorted(set(after) - set(before)):
        yield PackageChange(MAJOR, where, f"{what} requires {feature}")
    for feature in sorted(set(before) - set(after)):
        yield PackageChange(MINOR, where, f"{what} no longer requires {feature}")


def _graph_changes(old: Package, new: Package) -> Iterator[PackageChange]:
    before, after = ({graph.name: graph for graph in package.manifest.graphs} for package in (old, new))
    yield from _added_and_removed("graph", before, after)
    for name in sorted(before.keys() & after.keys()):
        yield from _changes_of_graph(f"graph {name}", before[name], after[name])


def _changes_of_graph(where: str, old: GraphRecord, new: GraphRecord) -> Iterator[PackageChange]:
    fits = True
    for kind, values in (("input", (old.inputs, new.inputs)), ("output", (old.outputs, new.outputs))):
        before, after = values
        if kind == "input" and [each.name for each in before] != [each.name for each in after]:
            fits = False
            yield PackageChange(MAJOR, where, f"inputs: {_named(before)} become {_named(after)}")
        elif len(before) != len(after):
            fits = False
            more = kind == "output" and after[: len(before)] == before
            yield PackageChange(MINOR if more else MAJOR, where, f"{kind}s: {_named(before)} become {_named(after)}")
        else:
            for number, (first, second) in enumerate(zip(before, after, strict=True)):
                if first.dtype != second.dtype:
                    named = f"{kind} {second.name or number}"
                    yield PackageChange(MAJOR, where, f"{named}: {first.dtype} becomes {second.dtype}")
    if fits:
        dims = [[list(value.shape) for value in (*each.inputs, *each.outputs)] for each in (old, new)]
        names = [value.name for value in (*new.inputs, *new.outputs)]
        yield from _dims_changes(where, names, dims[0], dims[1], ())
    targets = [{code.target: code for code in each.code} for each in (old, new)]
    for target in sorted(targets[0].keys() | targets[1].keys()):
        if target not in targets[1]:
            yield PackageChange(MAJOR, where, f"code for {target} removed")
        elif target not in targets[0]:
            yield PackageChange(MINOR, where, f"code for {target} added")
        else:
            code = targets[0][target], targets[1][target]
            yield from _needs_changes(where, f"code for {target}", code[0].requirements, code[1].requirements)
            if code[0].code.sha256 != code[1].code.sha256:
                yield PackageChange(PATCH, where, f"code for {target} differs")
    doors = [dict(each.doors) for each in (old, new)]
    for architecture in sorted(doors[0].keys() | doors[1].keys()):
        if architecture not in doors[1]:
            yield PackageChange(MAJOR, where, f"code for C programs on {architecture} removed")
        elif architecture not in doors[0]:
            yield PackageChange(MINOR, where, f"code for C programs on {architecture} added")
        elif doors[0][architecture].sha256 != doors[1][architecture].sha256:
            yield PackageChange(PATCH, where, f"code for C programs on {architecture} differs")
    if old.graph.sha256 != new.graph.sha256:
        yield PackageChange(PATCH, where, f"what it computes differs: {NUMBERS}")
    weights = [each.weights and each.weights.sha256 for each in (old, new)]
    if weights[0] != weights[1]:
        yield PackageChange(PATCH, where, f"its weights differ: {NUMBERS}")


# ---------------------------------------------------------------------------------------------- contracts of ops


def _argument_changes(where: str, old: OpSchema, new: OpSchema) -> Iterator[PackageChange]:
    before, after = (
        {argument.name: argument for argument in (*schema.inputs, *schema.outputs)} for schema in (old, new)
    )
    yield from (PackageChange(MAJOR, where, f"argument {name!r} removed") for name in before if name not in after)
    yield from (PackageChange(MAJOR, where, f"argument {name!r} added") for name in after if name not in before)
    if before.keys() != after.keys():
        return
    if list(before) != list(after):
        yield PackageChange(MAJOR, where, f"order of arguments: {', '.join(before)} becomes {', '.join(after)}")
        return
    for name, first in before.items():
        second = after[name]
        for field in ("role", "form", "count"):
            if getattr(first, field) != getattr(second, field):
                yield PackageChange(MAJOR, where, f"argument '{first}' becomes '{second}'")
                break
        dtypes = [
            {dtype.name for dtype in schema.allowed(argument.dtype)}
            for schema, argument in ((old, first), (new, second))
        ]
        if lost := sorted(dtypes[0] - dtypes[1]):
            yield PackageChange(MAJOR, where, f"argument {name!r} no longer takes {', '.join(lost)}")
        if gained := sorted(dtypes[1] - dtypes[0]):
            yield PackageChange(MINOR, where, f"argument {name!r} also takes {', '.join(gained)}")
    kinds = [[[str(argument.dtype)] for argument in each.values()] for each in (before, after)]
    fixed = {str(a.dtype) for each in (before, after) for a in each.values() if not isinstance(a.dtype, str)}
    if not _covers(kinds[1], kinds[0], fixed):
        yield PackageChange(MAJOR, where, "which arguments have one dtype differs")
    dims = [[_items(argument) for argument in each.values()] for each in (before, after)]
    parameters = {parameter.name for schema in (old, new) for parameter in schema.parameters}
    yield from _dims_changes(where, list(after), dims[0], dims[1], parameters)


def _items(argument: TensorArgument) -> list[str]:
    return [str(item) for item in parse_dims(argument.dims)]


def _dims_changes(
    where: str, names: Sequence[str], old: list[list[str]], new: list[list[str]], fixed: Collection[str]
) -> Iterator[PackageChange]:
    if _covers(new, old, fixed):
        if _covers(old, new, fixed):
            return  # the names of dims at most
        level = MINOR
    else:
        level = MAJOR
    for name, before, after in zip(names, old, new, strict=True):
        if before != after:
            summary = f"dims of {name!r}: [{', '.join(before)}] becomes [{', '.join(after)}]"
            yield PackageChange(level, where, summary + (", which takes more" if level == MINOR else ""))


def _covers(general: Sequence[Sequence[str]], special: Sequence[Sequence[str]], fixed: Collection[str]) -> bool:
    """Whether `general` describes all shapes that `special` describes.

    It does where its names can be replaced by parts of the other so that both are equal. Names in `fixed` stay.
    """
    meaning: dict[str, tuple[str, ...]] = {name: (name,) for name in fixed}
    computed: list[tuple[str, str]] = []
    for number, (wide, narrow) in enumerate(zip(general, special, strict=True)):
        taken = _aligned(_numbered(wide, number), _numbered(narrow, number))
        if taken is None:
            return False
        for item, part in taken:
            if not _NAME.fullmatch(item):
                if len(part) != 1:
                    return False
                computed.append((item, part[0]))
            elif not (item.startswith("*") or (len(part) == 1 and not part[0].startswith("*"))):
                return False  # one axis does not stand for several
            elif meaning.setdefault(item, part) != part:
                return False
    return all(_replaced(item, meaning) == part for item, part in computed)


def _aligned(wide: list[str], narrow: list[str]) -> list[tuple[str, tuple[str, ...]]] | None:
    """Which items of `narrow` each item of `wide` stands for."""
    packs = [place for place, item in enumerate(wide) if item.startswith("*") and _NAME.fullmatch(item)]
    if len(wide) == len(narrow):
        return [(item, (part,)) for item, part in zip(wide, narrow, strict=True)]
    span = len(narrow) - len(wide) + 1
    if len(packs) != 1 or span < 0:
        return None
    at = packs[0]
    parts = [*((part,) for part in narrow[:at]), tuple(narrow[at : at + span]), *((p,) for p in narrow[at + span :])]
    return list(zip(wide, parts, strict=True))


def _numbered(items: Sequence[str], number: int) -> list[str]:
    """The items, with a name of its own for each axis of any size."""
    return [f"_{number}_{place}" if item == "_" else item for place, item in enumerate(items)]


def _replaced(text: str, meaning: Mapping[str, tuple[str, ...]]) -> str:
    return _WORD.sub(lambda found: " ".join(meaning.get(found[0], (found[0],))), text)


def _parameter_changes(where: str, old: OpSchema, new: OpSchema) -> Iterator[PackageChange]:
    before, after = ({parameter.name: parameter for parameter in schema.parameters} for schema in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield PackageChange(MAJOR, where, f"parameter {name!r} removed")
        elif name not in before:
            level, kind = (MAJOR, "required") if after[name].required else (MINOR, "optional")
            yield PackageChange(level, where, f"{kind} parameter {name!r} added")
        else:
            yield from _changes_of_parameter(where, before[name], after[name])


def _changes_of_parameter(where: str, old: Parameter, new: Parameter) -> Iterator[PackageChange]:
    if old.kind != new.kind:
        yield PackageChange(MAJOR, where, f"parameter {old.name!r}: {old.kind} becomes {new.kind}")
    elif old.required != new.required:
        level, kind = (MAJOR, "required") if new.required else (MINOR, "optional")
        yield PackageChange(level, where, f"parameter {old.name!r} is {kind} now")
    elif repr(old.default) != repr(new.default):
        yield PackageChange(
            MAJOR, where, f"default of {old.name!r}: {_shown(old.default)} becomes {_shown(new.default)}"
        )


def _promise_changes(where: str, old: OpRecord, new: OpRecord) -> Iterator[PackageChange]:
    if old.backward != new.backward:
        level = MINOR if not old.backward else PATCH if new.backward else MAJOR
        what = f"backward: {old.backward or 'none'} becomes {new.backward or 'none'}"
        yield PackageChange(level, where, what + (f": {NUMBERS}" if level == PATCH else ""))
    before, after = old.schema, new.schema
    if before.batch != after.batch:
        yield PackageChange(MINOR if not before.batch else MAJOR, where, "what it promises about batches differs")
    if before.effects != after.effects:
        yield PackageChange(MAJOR, where, "it has effects now" if after.effects else "it has no effects now")
    if before.override != after.override:
        yield PackageChange(
            MAJOR, where, "it replaces another op now" if after.override else "it replaces no other op now"
        )
    if before.fastmath != after.fastmath:
        yield PackageChange(PATCH, where, f"its use of fastmath differs: {NUMBERS}")
    for name, what in (("fuse", "fusion"), ("writes_once", "fusion"), ("reads", "fusion"), ("move", "its moves")):
        if getattr(before, name) != getattr(after, name):
            yield PackageChange(PATCH, where, f"what it says about {what} differs ({name})")
    if (before.laws, before.neutral) != (after.laws, after.neutral):
        yield PackageChange(PATCH, where, f"its laws differ: {NUMBERS}")
    if before.doc != after.doc:
        yield PackageChange(PATCH, where, "its documentation differs")


def _added_and_removed(what: str, old: Collection[str], new: Collection[str]) -> Iterator[PackageChange]:
    yield from (PackageChange(MAJOR, f"{what} {name}", "removed") for name in sorted(set(old) - set(new)))
    yield from (PackageChange(MINOR, f"{what} {name}", "added") for name in sorted(set(new) - set(old)))


def _named(values: Sequence[ValueRecord]) -> str:
    return ", ".join(f"{value.name} {value.dtype}" for value in values) or "none"


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return ", ".join(" ".join(map(str, pair)) for pair in value)
    return str(value) if str(value) else "none"
