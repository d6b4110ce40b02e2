"""Every code is explained, and what the explanations show is true: each wrong example gives its code, each right one
gives no error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from support.hints import follow

from einkorn import dsl
from einkorn.cli.application import run
from einkorn.compiler.check import check_kernels
from einkorn.dsl.diagnostics.codes import MEANINGS
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.diagnostics.explain import KERNEL_PRELUDE, LIBRARY, PROGRAM_PRELUDE, Example, explain
from einkorn.dsl.environment.knobs import all_knobs

# What has no example, and why.
PROSE = {
    "EK0867": "a library of collectives that refuses",
    "EK0868": "ranks without a library of collectives",
    "EK0468": "a graph that gives other results each time",
    "EK0504": "an installation that is broken",
    "EK0510": "a package made by another tool",
    "EK0514": "a machine that is older than x86-64-v2",
    "EK0484": "a machine without a C compiler",
    "EK0517": "a machine where no file can be written",
    "EK0518": "a machine whose file systems run no code",
    "EK0520": "a fault of Einkorn, or a kernel that gives other results each time",
    "EK0525": "an installation without an extra",
    **dict.fromkeys(("EK0526", "EK0527", "EK0528", "EK0529", "EK0530", "EK0531"), "models, which need an extra"),
    **dict.fromkeys(
        ("EK0815", "EK0870", "EK0880", "EK0881", "EK0882", "EK0883", "EK0884", "EK0885"),
        "calls from PyTorch, which is an extra",
    ),
    "EK0536": "a package that is replaced while a program runs",
    "EK0562": "a package made by another tool",
    **dict.fromkeys((f"EK056{number}" for number in range(3, 10)), "keys and signatures, which need an extra"),
    "EK0602": "an installation without MLIR or LLVM",
    "EK0605": "a machine of another architecture",
    "EK0624": "a device that refuses a launch",
    "EK0625": "a package made by another tool",
    "EK0830": "a device, and sizes beyond its limits",
    "EK0707": "two threads",
    "EK0702": "code of another tool",
    "EK0720": "a fault that compiled code cannot have under checks",
    "EK0721": "a mistake that only the interpreter finds",
    "EK0722": "a promise of gpu.uniform that is broken",
    "EK0733": "a machine without memory",
    "EK0804": "an array at an odd address",
    **dict.fromkeys((f"EK083{number}" for number in range(1, 9)), "a GPU"),
    **dict.fromkeys((f"EK086{number}" for number in range(1, 5)), "several ranks, or an MPI launcher"),
    **dict.fromkeys(("EK0888", "EK0889", "EK0890", "EK0891", "EK0892", "EK0893"), "JAX, which needs an extra"),
    **dict.fromkeys(("EK0895", "EK0897"), "numba, which needs an extra"),
    "EK0898": "a kernel's own ufunc",
    "EK0899": "a process in which doors are switched off",
    "EK0901": "a fault of Einkorn",
    "EK0902": "a fault of Einkorn",
    "EK0903": "a fault of Einkorn",
    "EK0904": "a fault of Einkorn",
    "EK0905": "a fault of Einkorn",
    "EK0906": "a fault of Einkorn",
    "EK0907": "a file that only a fault of Einkorn makes",
    "EK0908": "a fault of Einkorn",
}


SETTINGS = "|".join(knob.name for knob in all_knobs())  # others are looked for once in a process


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the examples, with `einkorn` and `python` on the path, and one cache for all of them."""
    folder = tmp_path_factory.mktemp("explained")
    tools = tmp_path_factory.mktemp("bin")
    for name, arguments in (("einkorn", "-m einkorn "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (tools / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("EINKORN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield folder


def codes_of_kernels(text: str, folder: Path) -> list[str]:
    (folder / "example.py").write_text(KERNEL_PRELUDE + "\n\n" + text)
    errors = check_kernels("example.py").errors
    for error in errors:
        followed = follow(KERNEL_PRELUDE + "\n\n" + text, error)
        (folder / "followed.py").write_text(followed or "")
        left = check_kernels("followed.py").errors if followed else ()
        assert not [e for e in left if e.message == error.message], f"{error}\n\n{followed}"
    return [error.code for error in errors]


def codes_of_program(text: str, library: str, folder: Path) -> list[str]:
    (folder / "kernels.py").write_text(library)
    try:
        exec(compile(PROGRAM_PRELUDE + "\n\n" + text, "<program>", "exec"), {"__name__": "program"})
    except EinkornError as error:
        return [each.code for each in getattr(error, "errors", [error])]
    return []


def codes_of_console(text: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """A command of Einkorn runs in this process; what else needs a shell gets one."""
    (folder / "kernels.py").write_text(LIBRARY)
    for line in text.strip().splitlines():
        assert line.startswith("$ ")
        for part in line[2:].split(" && "):
            if match := re.fullmatch(rf"((?:(?:{SETTINGS})=\S+ )*)einkorn ([^|&;<>$'\"]*)", part):
                with pytest.MonkeyPatch.context() as patch:
                    for setting in match[1].split():
                        patch.setenv(*setting.split("="))
                    status = run(match[2].split())
                shown = "".join(capfd.readouterr())
            else:
                done = subprocess.run(part, shell=True, capture_output=True, text=True, cwd=folder)
                status, shown = done.returncode, done.stdout + done.stderr
            if status:
                return re.findall(r"error\[(EK\d{4})\]", shown) or [shown]
    return []


def test_every_code_is_explained() -> None:
    folder = resources.files(dsl).joinpath("diagnostics", "explanations")
    files = {item.name.removesuffix(".md") for item in folder.iterdir()}
    assert files == set(MEANINGS), sorted(files ^ set(MEANINGS))
    for code in MEANINGS:
        examples = explain(code).examples
        roles = {example.role for example in examples}
        assert roles == (set() if code in PROSE else {"wrong", "right"}), code
        fences = explain(code).text.count("\n```")
        assert fences == 2 * len(examples), f"{code} has a fence of an unknown kind"


@pytest.mark.parametrize("hundred", sorted({code[:4] for code in MEANINGS}))
def test_examples(hundred: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: set[Example] = set()
    false = []
    for code in [code for code in MEANINGS if code.startswith(hundred)]:
        examples = explain(code).examples
        kernels = {e.role: e.text for e in examples if e.kind == "kernel"}
        programs = any(e.kind == "python" for e in examples)
        for example in examples:
            if example in seen or (example.kind == "kernel" and programs):
                continue
            seen.add(example)
            if example.kind == "kernel":
                actual = codes_of_kernels(example.text, place)
            elif example.kind == "python":
                kernel = kernels.get(example.role, kernels.get("wrong"))
                library = f"{KERNEL_PRELUDE}\n\n{kernel}" if kernel else LIBRARY
                actual = codes_of_program(example.text, library, place)
            else:
                actual = codes_of_console(example.text, place, capfd)
            expected = {code} if example.role == "wrong" else set()
            if set(actual) != expected:
                false.append(f"{code}: the {example.role} example gives {actual or 'no error'}")
    assert not false, "\n".join(false)


def test_how_a_code_is_requested(capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("EK0213", "ek0213", "ek213", "213", " 0213 "):
        assert explain(text).code == "EK0213"
    assert run(["explain", "EK0213"]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("# EK0213\n\nA value is stored into a tensor of another dtype.\n")
    assert "Wrong:\n\n```python\n@register" in shown and "Right:\n\n```python\n@register" in shown
    assert "Kernel files here begin with" in shown and "\x1b" not in shown
    assert run(["explain"]) == 0
    assert capfd.readouterr().out.splitlines() == [f"{code}  {meaning}" for code, meaning in MEANINGS.items()]
    assert run(["explain", "EK2130"]) == 1
    assert "error[EK0711]: there is no error code 'EK2130'" in capfd.readouterr().err
    assert run(["--color", "always", "explain", "EK0213"]) == 0
    assert "\x1b[" in capfd.readouterr().out
