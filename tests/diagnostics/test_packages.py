"""Mistakes with packages, targets and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from einkorn.compiler.build import build_package
from einkorn.compiler.explorer.stage import inspect_stage
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.archive import write_archive
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.library import load_library

KERNELS = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)


@register("op")
def op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext, *, block: int = 64):
    if ctx.target.is_cpu:
        foreach(out, lambda i: x[i] + 1)
    else:
        %s
"""


@pytest.fixture
def package(workplace) -> Path:  # type: ignore[no-untyped-def]
    """A package without code: its container and its portable programs are what is looked at."""
    workplace.write("kernels.py", KERNELS % "foreach(out, lambda i: x[i] + 1)")
    build_package("kernels.py", "good.pkg", [])
    return Path("good.pkg")


def test_unreadable(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("notes.pkg", "these are notes, not a package\n" * 100)
    golden("package_no_package", workplace.mistake(lambda: load_library("notes.pkg")))
    workplace.write("empty.pkg", "")
    golden("package_empty", workplace.mistake(lambda: load_library("empty.pkg")))
    Path("folder.pkg").mkdir()
    golden("package_folder", workplace.mistake(lambda: load_library("folder.pkg")))
    golden("package_missing", workplace.mistake(lambda: load_library("missing.pkg")))


def test_truncated(workplace, package: Path, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    data = package.read_bytes()
    Path("short.pkg").write_bytes(data[: len(data) // 2])
    golden("package_truncated", workplace.mistake(lambda: load_library("short.pkg")))
    for length in range(0, len(data), 97):
        Path("short.pkg").write_bytes(data[:length])
        workplace.mistake(lambda: load_library("short.pkg").kernels["op"].portable)


def rewritten(package: Path, name: str, change: Callable[[str, bytes], bytes]) -> str:
    """The package with members changed and its container mended, as a careful forger would."""
    archive = read_package(package).archive
    write_archive(Path(name), [(member, change(member, archive.read(member))) for member in archive.members])
    return name


def test_tampered(workplace, package: Path, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    def forge(member: str, data: bytes) -> bytes:
        return data.replace(b'"Constant"', b'"Costnant"', 1) if member == "program/op.json" else data

    name = rewritten(package, "tampered.pkg", forge)
    error = workplace.mistake(lambda: load_library(name).kernels["op"].portable)
    golden("package_tampered", re.sub("[0-9a-f]{64}", "<hash>", str(error)))
    data = package.read_bytes()
    for at in range(0, len(data), 61):
        Path("flipped.pkg").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            load_library("flipped.pkg").kernels["op"].portable  # noqa: B018  (a flipped bit may be harmless padding)
        except PackageError:
            continue


def test_newer_format(workplace, package: Path, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    def newer(member: str, data: bytes) -> bytes:
        if member != "manifest.json":
            return data
        return json.dumps(json.loads(data) | {"format": [9, 0]}).encode()

    golden("package_newer", workplace.mistake(lambda: load_library(rewritten(package, "newer.pkg", newer))))


@pytest.mark.parametrize("target", ["sm_90b", "x86-64-v9", "", "gfx"])
def test_unknown_target(target: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS % "pass")
    error = workplace.mistake(lambda: build_package("kernels.py", "out.pkg", [target]))
    assert not Path("out.pkg").exists()
    golden(f"target_{target or 'empty'}", error)


GPU = {
    "host_load": "out[0] = 1.0",
    "host_store": "y = x[0]",
    "block": "ctx.launch(copy, out, x, grid=1, block=4096)\n\n\ndef copy(a, b):\n    a[0] = b[0]",
}


@pytest.mark.parametrize("name", GPU)
def test_gpu(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", KERNELS % GPU[name])
    golden(
        f"gpu_{name}",
        workplace.mistake(lambda: inspect_stage("kernels.py", "sm_90a", "typed", op="op")),
    )


def test_mistakes_of_all_ops_at_once(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    text = KERNELS % "pass"
    text = text.replace("x[i] + 1", "x[i] + Int32(1)")
    other = text[text.index("@register") :].replace('"op"', '"other"').replace("def op", "def other")
    text += other.replace("Int32", "what")
    workplace.write("kernels.py", text)
    golden("build_all_ops", workplace.mistake(lambda: build_package("kernels.py", "out.pkg", ["x86-64-v3"])))
    assert not Path("out.pkg").exists()


def test_command_line(workplace, golden: Callable[[str, object], None], capfd: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    from einkorn.cli.application import run

    workplace.write("kernels.py", KERNELS % "pass")
    commands = {
        "target": ["build", "kernels.py", "-o", "out.pkg", "--target", "sm_90b"],
        "op": ["inspect", "kernels.py", "--op", "po", "--stage", "typed"],
        "package": ["pkg", "info", "kernels.py"],
    }
    for name, arguments in commands.items():
        status = run(arguments)
        printed = capfd.readouterr()
        assert status == 1 and printed.out == ""
        golden(f"command_{name}", printed.err)
