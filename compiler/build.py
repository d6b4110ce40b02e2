"""Builds packages: compiles every op for every target and instance, and writes the `.pkg`.

See also `dsl.package.container` (the container's format), `pipeline` (what is compiled for a graph).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..dsl.contract.checks import parse_checks
from ..dsl.diagnostics.errors import CompileError, EinkornError, PackageError, each_of, joined
from ..dsl.diagnostics.shield import passes_signals
from ..dsl.environment.tracebacks import without_internals
from ..dsl.frontend.read_program import read_program
from ..dsl.package.container import CodeContents, Instance, OpContents, Package, PackageContents, write_package
from ..dsl.package.library import LoadedKernel, LoadedLibrary, kernel_files, load_library
from ..dsl.signature.schema import OpSchema, Parameter
from .check import failures, representative_instances
from .inference import target_refusals
from .instances import Wanted, default_instances, instance_entries, missing_parameters, read_instances
from .pipeline import compile_entry, typed_program
from .targets import Target, lookup, named

HOSTS = ("aarch64", "x86-64-v2")  # what packages have to launch kernels of GPUs, on any machine


@without_internals
@passes_signals
def build_package(
    source: str,
    output: str,
    targets: Sequence[str],
    name: str | None = None,
    version: str = "0.1.0",
    instances: str | None = None,
    include_source: bool = False,
    checks: str = "safe",
    wanted: Wanted | None = None,
    op: str | None = None,
    left_out: list[EinkornError] | None = None,
) -> Package:
    """Builds the kernels in `source` into the package `output`.

    Args:
        source: a kernel file or a folder of them.
        output: where to write; replaced at once when everything is compiled, never left half written.
        targets: names for `lookup`; "host" is the best level of this machine; none for programs alone.
        name, version: of the package; the name is the file's by default.
        instances: a JSON file that lists the instances, instead of the default ones.
        include_source: whether the Python files go in, too.
        checks: what the code checks as it runs; see `dsl.contract.checks`.
        wanted: what the default instances are made for.
        op: the one op that is built; all of them by default.
        left_out: takes the reasons why ops lack code for some GPUs; without it, these are mistakes like any other.

    Raises:
        PackageError: the source holds no kernels, the list of instances cannot be read, or there is nothing to compile.
        TargetError: an unknown target.
        CompileError: mistakes in kernels; those of all ops are reported together.
    """
    unreadable: list[EinkornError] = []
    library = load_library(source, unreadable)
    if op is not None:
        library = replace(library, kernels={(one := library.choose(op)).schema.name: one}, unusable=())
    resolved = [named(lookup(target)) for target in dict.fromkeys(targets)]
    instances_of = _instances(library, instances, wanted or Wanted())
    mistakes: list[EinkornError] = []
    ops: dict[str, OpContents] = {}
    codes: list[CodeContents] = []
    for op_name, kernel in library.kernels.items():
        capable = resolved if left_out is None else _capable(kernel, instances_of[op_name], resolved, left_out)
        try:
            ops[op_name] = OpContents(kernel.schema, kernel.portable.to_json(), _backward(kernel, library))
            codes += _compile_op(kernel, instances_of[op_name], capable, str(parse_checks(checks)))
        except CompileError as error:
            mistakes += list(filter(None, failures(kernel, instances_of[op_name], capable))) or [error]
    for kernel in library.unusable:
        mistakes += filter(None, failures(kernel, representative_instances(kernel.schema), resolved))
    if left_out and {target.name for target in resolved} - {code.target for code in codes}:
        mistakes += left_out
    if mistakes := [*unreadable, *mistakes]:
        raise joined(mistakes, files=kernel_files(source))
    if resolved and not codes:
        raise _nothing_compiled(kernel.schema for kernel in library.kernels.values())
    sources = _sources(library) if include_source else ()
    contents = (name or Path(output).stem, version, tuple(ops.values()), tuple(codes), sources, _producers())
    return write_package(output, PackageContents(*contents))


def _backward(kernel: LoadedKernel, library: LoadedLibrary) -> str:
    """The op that computes a kernel's gradients, if it is one of the library: functions and graphs are not carried."""
    result = getattr(getattr(kernel.gradient, "compute", None), "schema", None)
    return result.name if result is not None and result.name in library.kernels else ""


def _instances(library: LoadedLibrary, instances: str | None, wanted: Wanted) -> dict[str, list[Instance]]:
    """The instances of each op: those of the list, or else the default ones."""
    schemas = {name: kernel.schema for name, kernel in library.kernels.items()}
    wanted.check(schemas.values())
    if instances is None:
        return {name: list(default_instances(schema, wanted)) for name, schema in schemas.items()}
    listed = read_instances(instances, schemas)
    return {name: listed.get(name, []) for name in schemas}


def not_compiled(package: Package) -> list[str]:
    """For each op of a package that has no code: why, and which options of `einkorn build` would change that."""
    compiled = {variant.op for variant in package.variants}
    return [_reason(op.schema) for op in package.ops if op.schema.name not in compiled]


def _reason(schema: OpSchema) -> str:
    missing = missing_parameters(schema, Wanted())
    if not missing:
        return f"op '{schema.name}' was not compiled: the list of instances has none of it"
    names = ", ".join(f"{p.name}: {p.kind}" for p in missing)
    return f"op '{schema.name}' was not compiled: nothing says {names}; add {_options(missing)}"


def _options(parameters: Iterable[Parameter]) -> str:
    return " ".join(f"--param {p.name}={_EXAMPLES[p.kind]}" for p in parameters)


_EXAMPLES = {"int": "8", "float": "1.0", "bool": "true", "str": "text", "dtype": "float32", "ints": "1,2"}


def _nothing_compiled(schemas: Iterable[OpSchema]) -> PackageError:
    listed = list(schemas)
    missing = {p.name: p for schema in listed for p in missing_parameters(schema, Wanted())}
    wanted = f"add {_options(missing.values())}, or" if missing else "see that"
    rest = "list instances with --instances FILE" if missing else "the file of --instances lists some"
    return PackageError(
        "nothing was compiled: there is no instance to compile for, and no package was written",
        code="EK0519",
        expected=sorted(missing),
        notes=[_reason(schema) for schema in listed],
        hint=f"{wanted} {rest}; without --target, a package holds portable programs alone",
    )


def _capable(
    kernel: LoadedKernel, wanted: Sequence[Instance], targets: Sequence[Target], left_out: list[EinkornError]
) -> list[Target]:
    """The targets that do not lack what a kernel does; the reasons against the others go to `left_out`."""
    capable = []
    for target in targets:
        errors = [error for error in failures(kernel, wanted, [target]) if error is not None] if target.has_grid else []
        if errors and all(error.code in target_refusals.CODES for mistake in errors for error in each_of(mistake)):
            left_out += errors
        else:
            capable.append(target)
    return capable


def _compile_op(
    kernel: LoadedKernel, instances: Iterable[Instance], targets: Sequence[Target], checks: str
) -> list[CodeContents]:
    codes = []
    # Read back from its portable form, the program names files without their folders: code is the same on any machine.
    program = read_program(kernel.portable.to_json())
    for instance in instances:
        for target in targets:
            (spec, _), *others = instance_entries(program, instance, target)
            hosts = [lookup(name) for name in HOSTS] if target.has_grid else []
            artifact = compile_entry(replace(spec, checks=checks), target, hosts=hosts)
            for other, machine in others:  # is compiled where it runs, and looked at here
                typed_program(other, machine)
            codes.append(
                CodeContents(
                    kernel.schema.name,
                    instance,
                    target.name,
                    target.format.suffix,
                    artifact.code,
                    checks=checks,
                    hosts=tuple(zip(HOSTS, (piece.code for piece in artifact.pieces[:-1]), strict=False)),
                    kernels=tuple(kernel.symbol for kernel in artifact.kernels) if hosts else (),
                )
            )
    return codes


def _sources(library: LoadedLibrary) -> tuple[tuple[str, bytes], ...]:
    files = {Path(kernel.origin) for kernel in library.kernels.values() if kernel.package is None}
    return tuple((file.name, file.read_bytes()) for file in sorted(files))


def _producers() -> tuple[tuple[str, str], ...]:
    versions = []
    for name in ("einkorn", "llvmlite", "torch-mlir"):
        try:
            versions.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(versions)
