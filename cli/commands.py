"""What each command of the command line does: it calls one function of a lower floor and prints what that gives.

The options are already typed: `application` parses them. Mistakes are raised as `EinkornError` and printed by the
caller. Modules of other rooms are imported by the command that needs them, so that `einkorn pkg info` starts without a
compiler.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dsl.diagnostics.codes import MEANINGS
from ..dsl.diagnostics.errors import EinkornError, PackageError, joined, plural, without_repeats
from ..dsl.diagnostics.explain import explained_page
from ..dsl.environment.cache import Cache
from ..dsl.environment.files import replace_file
from ..dsl.environment.knobs import knobs
from ..dsl.frontend.read_program import read_program
from ..dsl.package.archive import Archive
from ..dsl.package.container import ABI, FORMAT, MANIFEST, Package, read_package
from ..dsl.package.manifest import GraphRecord
from ..dsl.signature.check import undetermined_sizes
from .console import Printer

if TYPE_CHECKING:
    from rich.table import Table

    from ..dsl.signature.schema import OpSchema
    from ..dsl.signature.tuning import TuningSpace


def version_text() -> str:
    """One line: the versions that a report should name."""
    try:
        version = importlib.metadata.version("einkorn")
    except importlib.metadata.PackageNotFoundError:  # run from a folder that was never installed
        version = "(not installed)"
    numbers = f"package format {FORMAT[0]}.{FORMAT[1]}, ABI {ABI}"
    return f"einkorn {version} ({numbers}, Python {platform.python_version()}, {platform.machine()})"


def build(
    source: str,
    output: str,
    targets: Sequence[str],
    name: str | None,
    version: str,
    instances: str | None,
    *,
    include_source: bool,
    checks: str | None,
    op: str | None,
    stubs: bool,
    wanted: Mapping[str, Mapping[str, Any]],
) -> None:
    """Compiles kernels into a package, shows what is in it, and says which ops have no code."""
    from ..compiler.build import build_package, not_compiled
    from ..compiler.instances import Wanted

    left_out: list[EinkornError] = []
    package = build_package(
        source=source,
        output=output,
        targets=targets,
        name=name,
        version=version,
        instances=instances,
        include_source=include_source,
        checks=checks or knobs.checks or "safe",
        left_out=left_out,
        wanted=Wanted(**wanted),
        op=op,
    )
    for record in package.manifest.ops:
        for remark in undetermined_sizes(record.schema):
            print(remark, file=sys.stderr)
    if left_out:
        print(f"No code for these ops:\n\n{joined(left_out)}\n", file=sys.stderr)
    if stubs:  # before anything is shown: the reader may close the pipe
        _write_stubs(source)
    _show_package(package)
    for line in not_compiled(package) if targets else ():
        print(f"note: {line}", file=sys.stderr)


def _write_stubs(source: str) -> None:
    """Writes the types of each kernel file next to it."""
    from ..dsl.frontend.python.type_stubs import write_stubs
    from ..dsl.package.library import kernel_files

    for file, text in write_stubs(kernel_files(source)).items():
        _write(str(file), text)


def inspect(source: str, target: str, stage: str, inputs: Sequence[str], **wanted: Any) -> None:
    """Prints one stage of one kernel, of a graph, or of a built-in op; or what was chosen for it, and why."""
    from .inspected import inspected

    print(inspected(source, target, stage, inputs, **wanted).rstrip("\n"))


def explore(source: str, output: str, targets: Sequence[str], sizes: Mapping[str, int], **wanted: object) -> None:
    """Writes the page of one kernel."""
    from ..compiler.explorer.page import explore
    from ..graph.profiling.static_roofline import roofline_html

    _write(output, explore(source, targets, sizes, roofline_html, **wanted))


def export(
    source: str, output: str, header: str | None, name: str | None, targets: Sequence[str], weights: str
) -> None:
    """Writes a model as a file with C functions, and says how large it is."""
    from ..graph.interop.export import export, exported_by_name

    model = exported_by_name(source)
    export([model], output, header=header, names=None if name is None else [name], targets=targets, weights=weights)
    print(f"{output}: {_size(Path(output).stat().st_size)}")


def runtime(output: str, static: bool, target: str | None) -> None:
    """Builds the C API and prints the files that were written."""
    from ..graph.c_api.building import build_runtime

    for file in build_runtime(output, static=static, target=target):
        print(file)


def new(name: str, into: str) -> None:
    """Makes a new kernel library and says what is in it."""
    from ..dsl.package.skeleton import make_skeleton

    files = make_skeleton(name, Path(into))
    for file in files:
        print(file)
    print(f"\nNext: cd {files[0].parents[1]}; python example.py; python -m pytest")


def doc(source: str, output: str | None, title: str | None) -> None:
    """Writes the reference of a library, in the form that the file's name requests."""
    from ..dsl.package.library import load_library
    from ..dsl.package.manual import manual, manual_page

    library = load_library(source)
    if output is None:
        print(manual(library, title or ""), end="")
    else:
        make = manual_page if output.lower().endswith((".html", ".htm")) else manual
        _write(output, make(library, title or ""))


def _write(output: str, text: str) -> None:
    try:
        replace_file(Path(output), [text.encode()])
    except OSError as error:
        reason = error.strerror or error
        raise PackageError(f"'{output}' cannot be written: {reason}", code="EK0515", got=output) from None
    print(f"{output}: {_size(len(text.encode()))}")


def package_info(path: str, as_json: bool) -> None:
    """Prints what a package holds, from its manifest alone."""
    package = read_package(path, check_trust=False)
    if as_json:
        print(json.dumps(json.loads(Archive(package.path).read(MANIFEST)), indent=2))
    else:
        _show_package(package)


def package_verify(path: str, keys: Sequence[str]) -> None:
    """Checks every member of a package, and its signatures by these keys.

    Its programs and its code for CPUs are read as loading does."""
    from ..dsl.package.keys import read_public_key

    wanted = [read_public_key(key) for key in keys]
    package = read_package(path)
    for key in wanted:
        package.check_signature(key)
    count = package.verify()
    for op in package.ops:
        read_program(package.program(op.schema.name), package.program_name(op.schema.name), op.schema)
    ready = [variant for variant in package.variants if variant.in_process]
    if ready:
        from ..compiler.targets import architecture
        from ..graph.loading.packaged_code import ready_pieces

        for variant in ready:
            ready_pieces(package, variant, architecture(variant.target))
    print(f"{package.archive.shown}: all {count} members match the manifest (SHA-256 {package.digest})")
    for name, key in zip(keys, wanted, strict=True):
        print(f"{package.archive.shown}: signed by {name} ({key.fingerprint})")


def package_keygen(output: str) -> None:
    """Makes a key for signatures."""
    from ..dsl.package.keys import generate_key

    public, key = generate_key(output)
    print(f"{output}: the private key; keep it secret")
    print(f"{public}: the public key, {key.fingerprint}")
    print(f"in a trust policy: {key.inline}")


def package_sign(path: str, key: str, output: str | None) -> None:
    """Signs a package."""
    from ..dsl.package.keys import PrivateKey

    private = PrivateKey(key)
    signed = read_package(path, check_trust=False).signed(private, output)
    count = plural(len(signed.signatures), "signature")
    print(f"{signed.archive.shown}: signed by {private.public.fingerprint}; {count}")


def package_diff(old: str, new: str, check: bool) -> None:
    """Prints what changed between two packages; with `check`, a version that says less than that is an error."""
    from ..dsl.package.difference import check_version, compare

    packages = [read_package(path, check_trust=False) for path in (old, new)]
    difference = compare(*packages)
    print(difference)
    if check:
        check_version(difference, *packages)


LONGEST_VALUE = 60  # characters of a value of metadata that are shown


def list_weights(paths: Sequence[str], as_json: bool) -> None:
    """Prints the tensors of files of weights, and their metadata."""
    from ..graph.weights import load_weights

    weights = load_weights([Path(path) for path in paths])
    rows = weights.rows()
    if as_json:
        tensors = [{"name": r.name, "format": r.format, "shape": list(r.shape), "bytes": r.bytes} for r in rows]
        metadata = {name: _plain(value) for name, value in weights.metadata.items()}
        print(json.dumps({"metadata": metadata, "tensors": tensors}, indent=2))
        return
    for name, value in weights.metadata.items():
        print(f"{name}: {_brief_value(value)}")
    table = _table("tensor", "format", "shape", "size")
    for row in rows:
        table.add_row(row.name, row.format, " x ".join(map(str, row.shape)) or "scalar", _size(row.bytes))
    _print_table(table)
    elements = sum(math.prod(row.shape) for row in rows)
    print(f"{plural(len(rows), 'tensor')}, {elements:,} elements, {_size(sum(row.bytes for row in rows))}")


def _plain(value: Any) -> Any:
    """A value of metadata as JSON has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def _brief_value(value: Any) -> str:
    """A value of metadata on a line; long lists by their first items and their number."""
    items = _plain(value[:8]) if isinstance(value, list) or hasattr(value, "tolist") else None
    text = repr(value if items is None else items)
    if len(text) > LONGEST_VALUE:
        text = text[:LONGEST_VALUE] + "…"
    return text if items is None or len(value) <= 8 else f"{text} ({len(value):,} items)"


def cache_info() -> None:
    """Prints where the cache is and how much it holds."""
    info = Cache().info()
    print(f"{info.path}: {plural(info.entries, 'entry')}, {_size(info.bytes)} of at most {_size(info.limit)}")


def cache_clear() -> None:
    """Empties the cache."""
    cache = Cache()
    print(f"{cache.root}: removed {plural(cache.clear(), 'entry')}")


def list_targets() -> None:
    """Prints the targets, and of code that runs in a process whether this machine can run it."""
    from ..compiler.targets import fits, host, known, lookup

    table = _table("target", "kind", "triple", "runs here", "features")
    for name in known():
        target = lookup(name)
        runs = ("yes" if fits(name) else "no") if target.format.in_process else ""
        table.add_row(name, target.kind, target.triple, runs, " ".join(sorted(target.capabilities)))
    sim = lookup("sim")
    runs = "yes" if host().system is not None else "no"
    table.add_row("sim", sim.kind, sim.triple, runs, " ".join(sorted(sim.capabilities)))
    _print_table(table)
    print(f"sim is a simulated GPU like {sim.name.partition(':')[2]}, sim:NAME one like any other GPU above")


def _show_package(package: Package) -> None:
    manifest = package.manifest
    licence = f", {manifest.licence}" if manifest.licence else ""
    print(f"{package.archive.shown}: {manifest.name} {manifest.version}{licence}")
    made = ", ".join(f"{tool} {version}" for tool, version in manifest.producers)
    by = f", made by {made}" if made else ""
    print(f"format {manifest.format[0]}.{manifest.format[1]}, ABI {manifest.abi}, {_size(package.archive.size)}{by}")
    for mark, _ in package.signatures:
        print(f"signed by {mark} (not checked: einkorn pkg verify --key FILE does)")
    ops = _table("op", "arguments", "parameters")
    for record in manifest.ops:
        schema = record.schema
        defaults = [p.name if p.required else f"{p.name}={p.default}" for p in schema.parameters]
        ops.add_row(schema.name, ", ".join(map(str, schema.tensors)), ", ".join(defaults))
    if manifest.ops or not manifest.graphs:
        _print_table(ops)
    code = _table("target", "op", "compiled for", "kind", "checks", "size", "needs")
    for variant in sorted(manifest.variants, key=lambda v: (v.target, v.op)):
        needs = " ".join(variant.requirements)
        size = _size(variant.code.size)
        code.add_row(variant.target, variant.op, str(variant.instance), variant.kind, variant.checks, size, needs)
    if manifest.variants:
        _print_table(code)
    _show_graphs(manifest.graphs)
    for target in sorted({variant.target for variant in manifest.variants}):
        here = {variant.op for variant in manifest.variants if variant.target == target}
        missing = [record.schema.name for record in manifest.ops if record.schema.name not in here]
        if missing:
            print(f"{target}: no code for {', '.join(missing)}")


def _show_graphs(graphs: Sequence[GraphRecord]) -> None:
    values = _table("graph", "value", "name", "dtype", "shape")
    code = _table("graph", "target", "code", "weights", "arena", "needs")
    for graph in graphs:
        for kind, records in (("input", graph.inputs), ("output", graph.outputs)):
            for each in records:
                values.add_row(graph.name, kind, each.name, each.dtype, f"[{', '.join(each.shape)}]")
        weights = "" if graph.weights is None else _size(graph.weights.size)
        arena = "depends on its inputs" if graph.arena is None else _size(graph.arena)
        for made in graph.code:
            size = _size(made.code.size)
            code.add_row(graph.name, made.target, size, weights, arena, " ".join(made.requirements))
    if graphs:
        _print_table(values)
        _print_table(code)


def _print_table(table: Table) -> None:
    from rich.console import Console
    from rich.padding import Padding

    if sys.stdout.isatty():
        console = Console(highlight=False, markup=False)
        cells = [[str(column.header), *map(str, column.cells)] for column in table.columns]
        words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
        if sum(words) + 2 * len(words) <= console.width:
            for column, word in zip(table.columns, words, strict=True):
                column.min_width = word
            console.print(table)
            return
        # Too narrow for columns: a cell a line, and what is longer than a line goes on below it.
        for row in zip(*(column.cells for column in table.columns), strict=True):
            for number, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
                if cell:
                    console.print(Padding(f"{column.header}: {cell}", (0, 0, 0, 2 if number else 0)))
        return
    # In a pipe there is no width to fit, and a name broken in two cannot be searched for.
    console = Console(highlight=False, markup=False, width=1000, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column == "size" else "left")
    return table


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def check(sources: Sequence[str], targets: Sequence[str], printer: Printer) -> int:
    """Checks kernel files; prints every mistake and one line that sums up. Gives the exit status."""
    from ..compiler.check import check_kernels

    looked = [check_kernels(source, targets or ("host",)) for source in sources]
    errors = without_repeats(error for checked in looked for error in checked.errors)
    for error in (*errors, *(remark for checked in looked for remark in checked.remarks)):
        printer.error(error)
    files, kernels, instances = (sum(getattr(c, count) for c in looked) for count in ("files", "kernels", "instances"))
    what = f"{plural(files, 'file')}, {plural(kernels, 'kernel')}, {plural(instances, 'instance')}"
    printer.summary(what, len(errors), any(checked.more for checked in looked))
    return 1 if errors else 0


def explain(code: str | None, printer: Printer) -> None:
    """Prints what a code means; without a code, the list of all."""
    if code is None:
        for name, meaning in MEANINGS.items():
            print(f"{name}  {meaning}")
        return
    printer.page(explained_page(code))


def profile(script: str, arguments: Sequence[str], output: str | None, trace: str | None, numbers: str | None) -> None:
    """Runs a program whose models are measured, and prints tables of their groups and of simulated memory."""
    from ..dsl.frontend.python.user_programs import program_arguments, run_program
    from ..graph.profiling.profile import AMBIENT, Profile
    from ..graph.profiling.profile_page import profile_page, profile_table

    measured = Profile()
    AMBIENT.append(measured)
    try:
        with program_arguments(script, arguments):
            run_program(script)
    finally:
        AMBIENT.remove(measured)
    print(profile_table(measured))
    if output is not None:
        replace_file(Path(output), [profile_page(measured, f"Profile of {Path(script).name}").encode()])
    if trace is not None:
        measured.save(trace)
    if numbers is not None:
        replace_file(Path(numbers), [json.dumps(measured.to_dict(), indent=2).encode()])


def bench(
    path: str, only: str, rounds: int, output: str | None, against: str | None, most: float | None, as_json: bool
) -> int:
    """Times the benchmarks of a file, or reads those of a run, and compares them with an earlier run. Returns how many
    are slower than allowed."""
    from ..graph.bench.compare import change_lines, compare, load, save, timing_line
    from ..graph.bench.files import run_file

    before = None if against is None else load(against)
    if path.endswith(".json"):
        timings = [timing for timing in load(path) if only in timing.name]
    else:
        timings = run_file(path, only=only, rounds=rounds, report=None if as_json else lambda t: print(timing_line(t)))
    if output is not None:
        save(output, timings)
    changes = [] if before is None else compare(before, timings)
    if as_json:
        compared = [{"name": c.name, "ratio": c.ratio, "chance": c.chance, "verdict": c.verdict} for c in changes]
        print(json.dumps({"benchmarks": [timing.to_dict() for timing in timings], "changes": compared}, indent=2))
    elif before is not None:
        print("\n".join(["", *change_lines(changes)]) if changes else "the two runs have no benchmark in common")
    return sum(most is not None and change.verdict == "slower" and change.ratio > most for change in changes)


def tune(
    source: str,
    op: str | None,
    shapes: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, str],
    parameters: Mapping[str, str],
    tries: Mapping[str, str],
    key: Sequence[str],
    *,
    exact: bool,
    tolerance: float | None,
    into: str | None,
    csv: str | None,
    output: str | None,
    targets: Sequence[str] = (),
) -> None:
    """Tries parameters of a kernel, prints what was tried, and keeps what was best; for `targets` by estimates."""
    from ..compiler.instances import make_instance, typed_parameters
    from ..dsl.package.findings import keep
    from ..dsl.package.library import load_library
    from ..dsl.types.dtype import DType
    from ..graph.interop.tuned import estimate_op, tune_op
    from ..graph.profiling.page_style import whole_page

    kernel = load_library(source).choose(op)
    schema, space = kernel.schema, kernel.tuning
    package = None if into is None else read_package(into)
    space = _tuning_space(schema, space, tries, key, exact, tolerance)
    given = typed_parameters(schema, parameters)
    first = {name: values[0] for name, values in space.values}
    try:
        instance = make_instance(schema, dtypes, {}, first | given)
        known = {n: DType[d] for n, d in instance.dtypes}
        results = [estimate_op(kernel, space, shapes, known, given, target) for target in targets]
        results = results or [tune_op(kernel, space, shapes, known, given)]
    except EinkornError as error:
        if (
            error.place is not None and Path(error.place.file).parent == Path(__file__).parent
        ):  # the command, and not a kernel
            error.place = None
        raise
    for table, finding in results:
        print(*([f"estimated for {finding.target}; nothing was run"] if finding.estimated else []), table, sep="\n")
    tables = [table for table, _ in results]
    if csv is not None:
        _write(csv, "".join(table.csv() for table in tables))
    if output is not None:
        _write(output, whole_page(f"Tuning of {schema.name}", "", [table._repr_html_() for table in tables]))
    if package is None:
        for _, finding in results:
            keep(finding)
    else:
        count = len(package.with_findings([finding for _, finding in results]).findings)
        print(f"{into}: {plural(count, 'finding')}")


def _tuning_space(
    schema: OpSchema,
    own: TuningSpace | None,
    tries: Mapping[str, str],
    key: Sequence[str],
    exact: bool,
    tolerance: float | None,
) -> TuningSpace:
    """What is tried: the values of the command line, or those of the kernel's `@autotune`."""
    from ..compiler.instances import typed_parameters
    from ..dsl.signature.tuning import tuning_space

    rounds, limit = (3, 10.0) if own is None else (own.rounds, own.limit)
    if tries:
        values: dict[str, Any] = {
            name: [typed_parameters(schema, {name: v})[name] for v in text.split(",")] for name, text in tries.items()
        }
        return tuning_space(schema, values, key, rounds, limit, exact, None, tolerance)
    if own is None:
        text = f"op '{schema.name}' does not declare what to try"
        hint = "write @autotune above its @register, or pass it here: --try rows=4,8"
        raise PackageError(text, code="EK0349", op=schema.name, hint=hint)
    if tolerance is None:
        return own
    return tuning_space(schema, dict(own.values), own.key, rounds, limit, False, None, tolerance)


def reproduce(path: str) -> None:
    """Compiles what a reproducer holds; the fault shows itself again, or is gone."""
    from ..compiler.pipeline import compile_entry
    from ..compiler.reproducer import read_graph, read_reproducer
    from ..compiler.targets import lookup
    from ..graph.loading.load import load_anew
    from ..graph.loading.reproducer import graph_from_json

    graph = read_graph(path)
    if graph is not None:
        load_anew(*graph_from_json(graph))
    else:
        spec, target = read_reproducer(path)
        compile_entry(spec, lookup(target))
    print(f"{path}: compiles without a fault")
