"""Builds the C API: a library, its headers and a file for pkg-config, with the system's C compiler.

The C API is a set of C11 sources next to this module, which need the C library and pthread. What exported files and the
C API share, `einkorn/export.h`, is written from the text that headers of models contain.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Final

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.files import replace_file
from ..loading.compile import header_code

CODE: Final = "EK0484"
HERE: Final = Path(__file__).parent
INCLUDE: Final = HERE / "include"
SOURCES: Final = HERE / "src"
FLAGS: Final = ("-std=c11", "-Os", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables")
LIBRARIES: Final = ("-lpthread", "-ldl")

_PKG_CONFIG: Final = """\
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: einkorn
Description: Runs models that Einkorn has exported
Version: @VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -leinkorn @LIBRARIES@
"""


def build_runtime(
    folder: str | PathLike[str], *, static: bool = False, target: str | None = None, flags: Sequence[str] = ()
) -> list[Path]:
    """Builds the C API and returns the files that were written.

    The compiler is `cc`, or what the environment variable `CC` names; for a target it is that of the package ziglang,
    which has the C libraries of all targets.

    Args:
        folder: where `include/`, `lib/` and `lib/pkgconfig/` go; it is made if it is missing.
        static: builds `libeinkorn.a` in place of `libeinkorn.so`.
        target: an architecture, a system and a C library, such as "aarch64-linux-musl" or "x86_64-linux-gnu.2.17".
        flags: further options for the compiler.

    Raises:
        GraphError: EK0484 a tool is missing or fails, or a file cannot be written.
    """
    compiler = [*_compiler(target), *FLAGS, *flags]
    root = Path(folder)
    try:
        written = list(_write_headers(root / "include"))
        library = root / "lib" / ("libeinkorn.a" if static else "libeinkorn.so")
        config = root / "lib" / "pkgconfig" / "einkorn.pc"
        config.parent.mkdir(parents=True, exist_ok=True)
        text = _PKG_CONFIG.replace("@VERSION@", _version()).replace("@LIBRARIES@", " ".join(LIBRARIES))
        replace_file(config, [text.encode()])
        with tempfile.TemporaryDirectory() as temporary:
            made = Path(temporary) / library.name
            compiler += [f"-I{root / 'include'}", f'-DEINKORN_VERSION="{_version()}"']
            if static:
                _build_static(compiler, _tool(os.environ.get("AR", "ar"), "AR") if target is None else _zig("ar"), made)
            else:
                name = f"-Wl,-soname,{library.name}"
                _run([*compiler, "-shared", name, "-o", str(made), *map(str, _sources()), *LIBRARIES])
            replace_file(library, [made.read_bytes()])
    except OSError as error:
        raise _failed(
            f"the C API cannot be written to '{error.filename or root}': {error.strerror or error}", got=str(root)
        ) from None
    return [*written, library, config]


def _compiler(target: str | None) -> list[str]:
    if target is None:
        return _tool(os.environ.get("CC", "cc"), "CC")
    return [*_zig("cc"), "-target", target]


def _zig(tool: str) -> list[str]:
    """A tool of the package ziglang, which is run by this interpreter."""
    if find_spec("ziglang") is None:
        raise _failed(
            "the C API is built for a target by the package ziglang, which is not installed",
            got="no ziglang",
            hint="pip install ziglang, or name a compiler for the target: CC=aarch64-linux-gnu-gcc",
        )
    return [sys.executable, "-m", "ziglang", tool]


def _build_static(compiler: Sequence[str], archiver: Sequence[str], library: Path) -> None:
    objects = []
    for source in _sources():
        objects.append(str(library.with_name(f"{source.stem}.o")))
        _run([*compiler, "-c", "-o", objects[-1], str(source)])
    _run([*archiver, "rcsD", str(library), *objects])


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _write_headers(target: Path) -> list[Path]:
    headers = {path.relative_to(INCLUDE): path.read_bytes() for path in sorted(INCLUDE.rglob("*.h"))}
    headers[Path("einkorn/export.h")] = header_code([], "export.h").encode()
    for name, text in headers.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(target / name, [text])
    return [target / name for name in headers]


def _version() -> str:
    try:
        return importlib.metadata.version("einkorn")
    except importlib.metadata.PackageNotFoundError:  # run from a folder that was never installed
        return "0"


def _tool(command: str, variable: str) -> list[str]:
    """The words of a command, whose program exists."""
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        raise _failed(
            f"the C API is built by '{command}', and there is no such program",
            got=command,
            hint=f"install a C compiler, or name it: {variable}=clang einkorn runtime -o FOLDER",
        )
    return words


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        tool = shlex.join(command[1:4] if command[0] == sys.executable else command[:1])
        raise _failed(
            f"'{tool}' ended with status {done.returncode}: {done.stderr.strip()[:2000]}", got=shlex.join(command)
        )


def _failed(text: str, *, got: str, hint: str | None = None) -> GraphError:
    return GraphError(text, code=CODE, place=user_place(), expected="a working C compiler", got=got, hint=hint)
