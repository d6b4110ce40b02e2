"""The command line: `einkorn ...`, or `python -m einkorn ...`.

This module has commands, options and exit statuses; what a command does is in `commands`, which is imported when a
command runs. Exit statuses: 0, 1 for a mistake of the user (the message as everywhere, on standard error), 2 for
wrong usage, 70 for a fault of Einkorn, 130 after Ctrl-C.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from ..dsl.diagnostics.errors import EinkornError, InternalError
from ..dsl.diagnostics.shield import passes_signals
from ..dsl.environment.knobs import SHOWN_STAGES, knobs
from ..dsl.frontend.python.import_file import printing_to
from .console import COLORS, FORMATS, Printer

USER_MISTAKE, WRONG_USAGE, OUR_FAULT, INTERRUPTED = 1, 2, 70, 130


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Option values `name=text`, as a dict."""
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals and text):
            raise click.BadParameter(f"{value!r} should be written name=value")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice")
        pairs[name] = text
    return pairs


def _ranks(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    """Option values `name=number`, as a dict."""
    pairs = _pairs(context, option, values)
    if not all(text.isascii() and text.isdigit() for text in pairs.values()):
        raise click.BadParameter(f"{option.opts[0]} should be written name=number")
    return {name: int(text) for name, text in pairs.items()}


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .commands import version_text

        click.echo(version_text())
        ctx.exit()


class _Way:
    """How errors of this run are shown; the options set it before a command runs."""

    printer = Printer()


def _set_color(_: click.Context, __: click.Parameter, value: str) -> None:
    _Way.printer = replace(_Way.printer, color=value)


def _set_format(_: click.Context, __: click.Parameter, value: str) -> None:
    _Way.printer = replace(_Way.printer, format=value)


_format = click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="text",
    expose_value=False,
    callback=_set_format,
    help="How errors are shown: as text, or as lines of JSON.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--color",
    type=click.Choice(COLORS),
    default="auto",
    expose_value=False,
    callback=_set_color,
    help="Whether errors are coloured; auto does it on a terminal, unless NO_COLOR is set.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def einkorn() -> None:
    """Kernels written once in typed Python: build them, look at every stage, see what a package holds."""
    logging.basicConfig(level=knobs.log.upper(), format="%(name)s: %(message)s", stream=sys.stderr)


def _instance_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that choose an op and what its instances are made for."""
    pairs: dict[str, Any] = {"callback": _pairs, "multiple": True}
    numbers: dict[str, Any] = {"callback": _ranks, "multiple": True}
    for option in (
        click.option("--count", "counts", metavar="XS=NUMBER", help="Tensors of an argument.", **numbers),
        click.option("--param", "parameters", metavar="NAME=VALUE", help="A compile-time parameter.", **pairs),
        click.option("--rank", "ranks", metavar="S=NUMBER", help="The axes of a starred dim.", **numbers),
        click.option("--dtype", "dtypes", metavar="T=DTYPE", help="A type variable's dtype.", **pairs),
        click.option("--op", metavar="NAME", help="Which op; not needed when SOURCE has one."),
    ):
        command = option(command)
    return command


_size = click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_ranks,
    metavar="M=NUMBER",
    help="The size of an axis for a GPU's roofline; others are 1024.",
)


@einkorn.command(short_help="Compile kernels into a package.")
@click.argument("source")
@click.option("-o", "--output", required=True, metavar="FILE", help="The package to write, name.pkg.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="A target to compile for; may be repeated.")
@click.option("--name", metavar="NAME", help="The package's name; by default that of the file.")
@click.option("--package-version", "version", default="0", metavar="VERSION", help="The package's version.")
@click.option("--instances", metavar="FILE", help="Which dtypes, ranks and parameters to compile for.")
@click.option("--stubs", is_flag=True, help="Also write the kernels' types for editors, FILE.pyi next to FILE.py.")
@click.option("--no-source", is_flag=True, help="Leave the Python sources out.")
@click.option("--checks", metavar="LEVEL", help="What the code checks: off, safe (the default) or all, or all+nan.")
@_instance_options
@_format
def build(
    source: str,
    output: str,
    targets: Sequence[str],
    name: str | None,
    version: str,
    instances: str | None,
    stubs: bool,
    no_source: bool,
    checks: str | None,
    op: str | None,
    **wanted: Any,
) -> None:
    """Compile the kernels in SOURCE, a folder or a .py file, into a package.

    Without --target the package holds the portable programs alone: it works everywhere, and code that loads it compiles
    what is needed, which wants a compiler there. `einkorn targets` lists the names; `host` is this machine's.
    """
    from . import commands

    source_too = not no_source
    commands.build(
        source,
        output,
        targets,
        name,
        version,
        instances,
        include_source=source_too,
        checks=checks,
        op=op,
        stubs=stubs,
        wanted=wanted,
    )


@einkorn.command(short_help="Show what a kernel becomes, stage by stage.")
@click.argument("source")
@click.option("--target", default="host", show_default=True, metavar="NAME", help="What to compile for.")
@click.option(
    "--stage", type=click.Choice(SHOWN_STAGES), default=SHOWN_STAGES[0], show_default=True, help="What to show."
)
@click.option("--input", "inputs", multiple=True, metavar="TYPE", help="A tensor of ops.NAME, such as float32[m,64].")
@click.option("--why", is_flag=True, help="Show what was chosen and why, and the roofline for --size.")
@_size
@_instance_options
@_format
def inspect(source: str, target: str, stage: str, inputs: tuple[str, ...], **wanted: object) -> None:
    """Show what a kernel of SOURCE becomes: the typed program, MLIR, LLVM IR, the target's assembly, or
    the machine code of NVIDIA's GPUs (sass), where ptxas and nvdisasm are installed.

    With --why: what multiplies and copies tiles and why nothing better does, what became of loops on a CPU, and the
    bytes, operations and share of a GPU's limit that are estimated for sizes.

    SOURCE may be a graph as well, FILE.py:NAME or FILE.onnx, or a built-in op, ops.NAME. The device of the target need
    not be here.
    """
    from . import commands

    commands.inspect(source, target, stage, inputs, **wanted)


@einkorn.command(short_help="Write a page of all stages, with the lines linked.")
@click.argument("source")
@click.option("-o", "--output", required=True, metavar="FILE", help="The page to write, name.html.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="A target to show; may be repeated.  [host]")
@_size
@_instance_options
def explore(source: str, output: str, targets: Sequence[str], sizes: dict[str, int], **wanted: object) -> None:
    """Write a page that shows a kernel of SOURCE and all that it becomes, side by side, with the lines linked."""
    from . import commands

    commands.explore(source, output, targets or ("host",), sizes, **wanted)


@einkorn.command(short_help="Make a folder with a kernel, its test and an example.")
@click.argument("name")
@click.option("--into", default=".", metavar="FOLDER", help="Where to make it; by default here.")
def new(name: str, into: str) -> None:
    """Make a folder NAME with a kernel, its test, an example and a README, all of which work."""
    from . import commands

    commands.new(name, into)


@einkorn.command(short_help="Write the reference of ops.")
@click.argument("source")
@click.option("-o", "--output", metavar="FILE", help="Where to write, name.md or name.html; Markdown to the terminal.")
@click.option("--title", metavar="TEXT", help="The heading; by default the package's name.")
def doc(source: str, output: str | None, title: str | None) -> None:
    """Write the reference of the ops in SOURCE: a kernel file, a folder or a package."""
    from . import commands

    commands.doc(source, output, title)


@einkorn.command(short_help="Find the mistakes in kernels.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="A target to check for; may be repeated.  [host]"
)
@_format
def check(sources: Sequence[str], targets: Sequence[str]) -> int:
    """Find the mistakes in the kernels of each SOURCE, a folder or a .py file, without building anything."""
    from . import commands

    return commands.check(sources, targets, _Way.printer)


@einkorn.command(short_help="Explain an error code.")
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Say what an error CODE means, with an example and its repair; without a code, list all."""
    from . import commands

    commands.explain(code, _Way.printer)


@einkorn.command(short_help="Run a compilation again that failed in Einkorn.")
@click.argument("path", metavar="FILE")
@_format
def reproduce(path: str) -> None:
    """Run the compilation again that a fault of Einkorn left in FILE."""
    from . import commands

    commands.reproduce(path)


@einkorn.command(
    short_help="Show where the models of a program spend time.", context_settings={"ignore_unknown_options": True}
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="FILE", help="A page with bars and a timeline to write, name.html.")
@click.option("--trace", metavar="FILE", help="A trace to write, name.json, for chrome://tracing and Perfetto.")
@click.option("--json", "numbers", metavar="FILE", help="The numbers of both tables to write, name.json, for programs.")
def profile(script: str, arguments: Sequence[str], output: str | None, trace: str | None, numbers: str | None) -> None:
    """Run the Python program SCRIPT, and show where its models spend their time.

    Of kernels on simulated GPUs that check memory it shows what they do with it, line by line, too.
    """
    from . import commands

    commands.profile(script, arguments, output, trace, numbers)


@einkorn.command(
    "run", short_help="Run a program on several ranks.", context_settings={"allow_interspersed_args": False}
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--ranks", default=2, show_default=True, type=click.IntRange(1), help="How many ranks there are.")
@click.option(
    "--backend",
    type=click.Choice(("processes", "threads")),
    default="processes",
    show_default=True,
    help="Processes of MPI, or threads of one process.",
)
@click.option("--as-rank", is_flag=True, hidden=True)
def run_ranks(script: str, arguments: Sequence[str], ranks: int, backend: str, as_rank: bool) -> None:
    """Run the Python program SCRIPT on several ranks; each line that it prints begins with its rank.

    What follows SCRIPT are arguments of the program.
    """
    from ..graph.distributed.launching import run_as_rank, run_on_ranks

    if as_rank:
        run_as_rank(script, arguments)
    elif status := run_on_ranks(script, arguments, ranks, backend):
        raise SystemExit(status)


@einkorn.command(short_help="Time the benchmarks of a file, and compare runs.")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--only", default="", metavar="TEXT", help="Only benchmarks with this in their names.")
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1), help="How many samples of each.")
@click.option("-o", "--output", metavar="FILE", help="The results to write, name.json.")
@click.option("--compare", "against", metavar="FILE", help="Results of an earlier run to compare with, name.json.")
@click.option("--fail-above", "most", type=float, metavar="RATIO", help="Exit with 1 where one is slower than that.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@_format
def bench(
    path: str, only: str, rounds: int, output: str | None, against: str | None, most: float | None, as_json: bool
) -> None:
    """Time the benchmarks of the Python file FILE: functions whose names begin with bench_, or under
    @einkorn.bench.benchmark. A FILE of results, name.json, is shown or compared again."""
    from . import commands

    if commands.bench(path, only, rounds, output, against, most, as_json):
        raise SystemExit(USER_MISTAKE)


def _shapes(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Option values `name=4,5`, as a dict."""
    pairs = _pairs(context, option, values)
    sizes = {name: text.replace("x", ",").split(",") for name, text in pairs.items()}
    if not all(size.isascii() and size.isdigit() for each in sizes.values() for size in each):
        raise click.BadParameter(f"{option.opts[0]} should be written name=size,size")
    return {name: tuple(map(int, each)) for name, each in sizes.items()}


@einkorn.command(short_help="Choose parameters of a kernel by trying them.")
@click.argument("source")
@click.option("--op", metavar="NAME", help="Which op; not needed when SOURCE has one.")
@click.option("--shape", "shapes", multiple=True, callback=_shapes, metavar="X=4,5", help="The sizes of an input.")
@click.option("--dtype", "dtypes", multiple=True, callback=_pairs, metavar="T=DTYPE", help="A type variable's dtype.")
@click.option("--param", "parameters", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="One that stays.")
@click.option(
    "--try", "tries", multiple=True, callback=_pairs, metavar="NAME=4,8", help="Values instead of @autotune's."
)
@click.option("--key", multiple=True, metavar="DIM", help="With --try: a dim on whose size the choice depends.")
@click.option("--inexact", is_flag=True, help="With --try: let results differ from the default's by rounding.")
@click.option(
    "--tolerance", type=float, metavar="1e-5", help="How far results may be from exact ones, as a share of them."
)
@click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="A GPU that need not be here: estimates, nothing is run."
)
@click.option("--into", metavar="FILE", help="A package of the kernels, name.pkg, that takes what was found.")
@click.option("--csv", metavar="FILE", help="All that was tried, name.csv.")
@click.option("-o", "--output", metavar="FILE", help="The table with bars as a page to write, name.html.")
@_format
def tune(source: str, inexact: bool, **rest: Any) -> None:
    """Choose parameters of a kernel in SOURCE by trying them.

    What was best is kept for calls with such sizes: in the user's cache, or in a package.
    """
    from . import commands

    commands.tune(source, exact=not inexact, **rest)


@einkorn.group()
def pkg() -> None:
    """Look into packages."""


@pkg.command("info")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="The manifest as it is, for programs.")
def package_info(path: str, as_json: bool) -> None:
    """Show what the package PATH holds; nothing of it is run."""
    from . import commands

    commands.package_info(path, as_json)


@pkg.command("verify")
@click.argument("path")
@click.option("--key", "keys", multiple=True, metavar="FILE", help="A public key that signed it; may be repeated.")
@_format
def package_verify(path: str, keys: Sequence[str]) -> None:
    """Check every member of the package PATH against its manifest, and its signatures."""
    from . import commands

    commands.package_verify(path, keys)


@pkg.command("keygen")
@click.option("-o", "--output", required=True, metavar="FILE", help="The private key to write, name.pem.")
@_format
def package_keygen(output: str) -> None:
    """Make a key for signatures: the private one in FILE, the public one in name.pub.pem next to it."""
    from . import commands

    commands.package_keygen(output)


@pkg.command("sign")
@click.argument("path")
@click.option("--key", required=True, metavar="FILE", help="The private key, Ed25519 in PEM form.")
@click.option("-o", "--output", metavar="FILE", help="The package to write; by default PATH is replaced.")
@_format
def package_sign(path: str, key: str, output: str | None) -> None:
    """Sign the package PATH. Signatures by other keys stay."""
    from . import commands

    commands.package_sign(path, key, output)


@pkg.command("diff")
@click.argument("old")
@click.argument("new")
@click.option("--check", is_flag=True, help="Exit with 1 where the version of NEW says less than its changes.")
@_format
def package_diff(old: str, new: str, check: bool) -> None:
    """Show what changed between two versions of a package, and whether that is major, minor or patch."""
    from . import commands

    commands.package_diff(old, new, check)


@einkorn.command(short_help="Write a model as a file with C functions.")
@click.argument("source", metavar="FILE.py:NAME")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write, name.so or name.o.")
@click.option("--header", metavar="FILE", help="Where its header goes.")
@click.option("--name", metavar="NAME", help="Begins the names of its functions; by default that of the graph.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="A processor to compile for; may be repeated.")
@click.option(
    "--weights",
    type=click.Choice(["inside", "beside", "given"]),
    default="inside",
    help="Where weights go: into the file, into FILE.safetensors, or to the program, which passes them.",
)
@_format
def export(
    source: str, output: str, header: str | None, name: str | None, targets: Sequence[str], weights: str
) -> None:
    """Write the graph, model or compiled kernel NAME of FILE.py as a file that C programs call.

    NAME may also be a function without arguments that returns one.
    """
    from . import commands

    commands.export(source, output, header, name, targets, weights)


@einkorn.command(short_help="Build the C API with the system's C compiler.")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Where include/ and lib/ go.")
@click.option("--static", is_flag=True, help="Build libeinkorn.a in place of libeinkorn.so.")
@click.option("--target", metavar="TRIPLE", help="For another system, by the package ziglang: aarch64-linux-musl.")
@_format
def runtime(output: str, static: bool, target: str | None) -> None:
    """Build the library, the headers and the pkg-config file with which C programs run exported models.

    The compiler is cc, or the one that the environment variable CC names.
    """
    from . import commands

    commands.runtime(output, static, target)


@einkorn.command(short_help="List the tensors of files of weights.")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the table and the metadata as JSON.")
@_format
def weights(paths: Sequence[str], as_json: bool) -> None:
    """List names, dtypes and shapes of the tensors in FILEs, .safetensors or .gguf, and their metadata.

    An index of safetensors files, or one part of a split GGUF file, stands for all files of its model.
    """
    from . import commands

    commands.list_weights(paths, as_json)


@einkorn.group()
def cache() -> None:
    """The store of compiled code."""


@cache.command("info")
def cache_info() -> None:
    """Show where it is and how much it holds."""
    from . import commands

    commands.cache_info()


@cache.command("clear")
def cache_clear() -> None:
    """Remove all entries."""
    from . import commands

    commands.cache_clear()


@einkorn.command()
def targets() -> None:
    """List what can be compiled for."""
    from . import commands

    commands.list_targets()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends the process with its exit status."""
    try:
        status = run(arguments)
    except KeyboardInterrupt:
        status = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is the end of the process
    sys.exit(status)


@passes_signals
def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives the exit status."""
    _Way.printer = Printer()
    sys.stdout = sys.stdout or io.StringIO()  # there is none where the caller has closed it
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks is not a fault
    try:
        with printing_to(_Aside()):
            return _run(arguments)
    except BrokenPipeError:  # `einkorn inspect ... | head`; Python would complain once more while it closes stdout
        return _without_output()
    except OSError as error:
        if error.filename is not None:
            return _our_fault(InternalError(f"einkorn failed with {type(error).__name__}: {error}"))
        text = f"error[EK0515]: the output cannot be written: {error.strerror or error}"
        with suppress(OSError):
            print(text, file=sys.stderr)
        return _without_output()


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = einkorn.main(arguments, prog_name="einkorn", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        error.show()
        return WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except InternalError as error:
        return _our_fault(error)
    except EinkornError as error:
        _Way.printer.error(error, sys.stderr)
        return USER_MISTAKE
    except OSError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _our_fault(InternalError(f"einkorn failed with {what}"))


class _Aside(io.StringIO):
    """What kernel files print when they are imported: next to the results of a command, whatever they do with it."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)


def _without_output() -> int:
    """The status of a command whose output is not read; nothing more is written, not even at the end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return USER_MISTAKE


def _our_fault(error: InternalError) -> int:
    debugging = os.environ.get("EINKORN_LOG", "").lower() == "debug"
    if debugging:
        click.echo(traceback.format_exc(), err=True)
    _Way.printer.error(error, sys.stderr)
    if not debugging and _Way.printer.format == "text":
        click.echo("hint: set EINKORN_LOG=debug for the trace", err=True)
    return OUR_FAULT
