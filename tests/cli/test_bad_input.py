"""Whatever a command is given, it ends in a message with a code and a place and in an exit status, not in a trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from einkorn.cli import application as cli

HEAD = 'from typing import TypeVar\nfrom einkorn.dsl import *\n\nT = TypeVar("T", bound=Floating)\n\n\n'
OP = '@register("op")\ndef op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):\n'
WRONG = HEAD + OP + "    out[0] = x[0].foo\n"
GOOD = HEAD + OP + "    out[0] = x[0]\n"


def kernel(body: str, before: str = "") -> str:
    return f"{HEAD}{before}{OP}    {body}\n"


WRAPPED = """import functools


def mine(f):
    @functools.wraps(f)
    def g(*a):
        return f(*a)
    return g


@mine
def helper(v):
    return v


"""
OBSTINATE = """class Obstinate:
    def __getattr__(self, name):
        raise ValueError("no")


thing = Obstinate()


"""

# A kernel file, and what `check` says: the place, the code, the beginning of the message.
FILES: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "EK0502: no kernels are registered"),
    "other_bytes": (GOOD.encode() + b"# caf\xe9\n", "10:6 EK0100: this is not valid Python: byte 0xe9 is not UTF-8"),
    "other_encoding": (GOOD.encode("utf-16"), "1:1 EK0100: this is not valid Python"),
    "unknown_encoding": ("# -*- coding: foo -*-\n" + GOOD, "1:1 EK0100: this is not valid Python: unknown encoding"),
    "mark_at_the_start": (b"\xef\xbb\xbf" + WRONG.encode(), "9:14 EK0113: Float32 has no attribute 'foo'"),
    "nul": (GOOD + "a = '\0'\n", "1:1 EK0100: this is not valid Python"),
    "windows_lines": (WRONG.replace("\n", "\r\n"), "9:14 EK0113: Float32 has no attribute 'foo'"),
    "tabs": (WRONG.replace("    out", "\tout"), "9:11 EK0113: Float32 has no attribute 'foo'"),
    "tabs_and_blanks": (WRONG.replace("    out", "\tout") + "        out[1] = 1\n", "10:1 EK0100: this is not"),
    "syntax": ("def f(:\n", "1:7 EK0100: this is not valid Python"),
    "parentheses": (kernel(f"out[0] = {'(' * 500}x[0]{')' * 500}"), "EK0100: this is not valid Python: too many"),
    "minus_signs": (kernel(f"out[0] = {'-' * 500}x[0]"), "9:"),
    "deep_module": (f"a = {'-' * 90000}1\n{GOOD}", "1:1 EK0112: this file is nested too deeply"),
    "recursion": (
        kernel("out[0] = f(x[0])", "def f(v):\n    return f(v)\n\n\n"),
        "8:12 EK0108: 'f' calls itself",
    ),
    "recursion_at_import": (HEAD + "def f():\n    return f()\n\n\nf()\n", "EK0112: this file is nested too deeply"),
    "endless_at_compile_time": (
        kernel("out[0] = x[0] + f(3)", "def f(n):\n    while n > 0:\n        n += 1\n    return n\n\n\n"),
        "EK0124: this takes more than 100000 steps",
    ),
    "huge_number": (kernel("out[0] = x[0] + 10 ** 10 ** 10"), "9:21 EK0206: this compile-time value grows too large"),
    "huge_shift": (kernel("out[0] = x[0] + (1 << (1 << 62))"), "9:22 EK0206: this compile-time value grows too large"),
    "huge_text": (kernel("a = 'x' * 10 ** 12"), "9:9 EK0206: this compile-time value grows too large"),
    "huge_dim": (
        GOOD.replace('"n"', '"99999999999999999999999"', 1),
        "8:30 EK0307: a number that is too large in the dims",
    ),
    "huge_dim_in_expression": (
        GOOD.replace('"n"', f'"(n * {"9" * 30})"', 1),
        "8:35 EK0307: a number that is too large",
    ),
    "shadowed": (
        kernel("for i in range(3):\n        out[i] = x[i]", "range = 3\n"),
        "10:14 EK0207: the compile-time int 3",
    ),
    "shadowed_register": (
        HEAD + "register = None\n" + OP + "    pass\n",
        "8:2 EK0110: importing this kernel file failed",
    ),
    "wrapped_helper": (
        kernel("out[0] = helper(x[0])", WRAPPED),
        "24:14 EK0104: a decorator has put another function in the place of 'helper'",
    ),
    "registered_lambda": (
        HEAD + 'op = register("op")(lambda out: None)\n',
        "7:6 EK0107: @register belongs on a function",
    ),
    "registered_class": (
        HEAD + '@register("op")\nclass A:\n    pass\n',
        "7:2 EK0107: class 'A' has no static method 'execute'",
    ),
    "numpys_names": (
        "from einkorn.dsl import *\nfrom numpy import float32\n\nT = float32\n" + OP + "    pass\n",
        "6:8 EK0301: argument 'out' of op 'op' needs a dtype, not numpy.float32",
    ),
    "future": ("from __future__ import annotations\n" + WRONG, "10:14 EK0113: Float32 has no attribute 'foo'"),
    "late_future": (HEAD + "from __future__ import annotations\n" + GOOD, "7:1 EK0100: this is not valid Python"),
    "relative_import": (
        HEAD + "from .other import h\n" + OP + "    pass\n",
        "7:1 EK0110: importing this kernel file failed",
    ),
    "raises": (
        HEAD + "raise BaseException('hm')\n",
        "7:1 EK0110: importing this kernel file failed: BaseException: hm",
    ),
    "ends": (HEAD + "raise GeneratorExit\n", "7:1 EK0110: importing this kernel file failed: GeneratorExit"),
    "cannot_say_why": (
        HEAD + "class E(Exception):\n    def __str__(self):\n        raise ValueError\n\n\nraise E()\n",
        "12:1 EK0110: importing this kernel file failed: E",
    ),
    "obstinate": (
        kernel("out[0] = x[0] + thing", OBSTINATE),
        "EK0105: 'thing' cannot be used in a kernel: looking at it raises ValueError",
    ),
    "own_output": (
        HEAD + "import sys\nsys.stdout.close()\nsys.stdout = None\n" + WRONG,
        "18:14 EK0113: Float32 has no",
    ),
    "goes_away": (HEAD + "import os\nos.unlink(__file__)\n" + WRONG, "17:14 EK0113: Float32 has no"),
}


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))

    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.run(arguments)
        return status, *capsys.readouterr()

    return call


@pytest.mark.parametrize("name", FILES)
def test_kernel_files(name: str, run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text, wanted = FILES[name]
    (tmp_path / "k.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    status, out, err = run("check", "k.py")
    head = re.sub(r"^(?:k\.py:)?(\d+:\d+)?:? ?error\[(EK\d+)\]", r"\1 \2", out.splitlines()[0]).strip()
    assert status == 1 and wanted in head and not err, out + err
    assert out.splitlines()[-1].startswith("1 file, ")
    assert "Traceback" not in out and "EK09" not in out
    for command in (("doc", "k.py"), ("explore", "k.py", "-o", "k.html"), ("build", "k.py", "-o", "k.pkg")):
        status, _, err = run(*command)
        assert status in (0, 1) and "Traceback" not in err and "EK09" not in err, err


COMMANDS = {
    ("check", "nope"): "EK0501",
    ("check", ""): "EK0501",
    ("check", "x" * 300): "EK0501",
    ("check", "circle"): "EK0501",
    ("check", "pipe.py"): "EK0501",
    ("check", "folder"): "EK0502",
    ("check", "text.txt"): "EK0552",
    ("check", "good.py", "--target", ""): "EK0601",
    ("doc", "nope"): "EK0501",
    ("doc", "good.py", "-o", "missing/x.md"): "EK0515",
    ("doc", "good.py", "-o", "folder"): "EK0515",
    ("doc", "good.py", "-o", ""): "EK0515",
    ("explore", "good.py", "-o", "x.html", "--op", "other"): "EK0505",
    ("explore", "good.py", "-o", "x.html", "--target", "nonsense"): "EK0601",
    ("explore", "good.py", "-o", "missing/x.html"): "EK0515",
    ("build", "good.py", "-o", ""): "EK0561",
    ("explain", "EK9999"): "EK0711",
    ("explain", ""): "EK0711",
    ("new", "a b"): "EK0516",
    ("new", "../x"): "EK0516",
    ("new", "einkorn"): "EK0516",
    ("new", "folder"): "EK0516",
    ("new", "x", "--into", "missing"): "EK0516",
    ("reproduce", "good.py"): "EK0907",
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:40])
def test_commands(command: tuple[str, ...], run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "text.txt").write_text(GOOD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe.py")
    status, out, err = run(*command)
    assert status == 1 and f"error[{COMMANDS[command]}]" in out + err and "Traceback" not in err


def test_a_package_with_relative_imports(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").touch()
    (tmp_path / "kernels" / "helpers.py").write_text("def h(v):\n    return v + missing\n")
    (tmp_path / "kernels" / "a.py").write_text(HEAD + "from .helpers import h\n" + OP + "    out[0] = h(x[0])\n")
    status, out, _ = run("check", "kernels")
    assert status == 1 and out.startswith("kernels/helpers.py:2:16: error[EK0101]: unknown name 'missing'")


def test_what_may_not_be_read(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.py").write_text(GOOD)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "error[EK0501]: the folder 'folder' cannot be read" in run("check", "folder")[1]

    def refuse(path: object, *_: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("importlib.machinery.SourceFileLoader.get_data", lambda self, path: refuse(path))
    status, out, _ = run("check", "good.py")
    assert status == 1 and out.startswith("good.py:1:1: error[EK0110]: this file cannot be read: Permission denied")


def test_the_text_that_was_read_is_shown(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Not the one that the file has by then."""
    (tmp_path / "k.py").write_text(WRONG + "\nopen(__file__, 'w').write('# another\\n' * 20)\n")
    assert "    9 |     out[0] = x[0].foo" in run("check", "k.py")[1]


def test_long_lines_and_control_characters(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    long = " + ".join(["1"] * 60)
    text = kernel(f"out[0] = {long} + x[0].foo + {long}\n    print('\x1b[31m', x[0].bar)")
    (tmp_path / "k.py").write_text(text)
    _, out, _ = run("check", "k.py")
    line, marks = out.splitlines()[1:3]
    assert len(line) < 180 and line[len("    9 | ")] == line[-1] == "…"
    assert line[marks.index("^") : marks.index("^") + 8] == "x[0].foo" and marks.endswith(" ^^^^^^^^")
    assert "print('␛[31m', x[0].bar)" in out and "\x1b" not in out


def test_what_kernel_files_print_is_no_result(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "k.py").write_text("print('hello')\n" + GOOD)
    _, out, err = run("check", "k.py", "--format", "json")
    assert json.loads(out)["errors"] == 0 and err == "hello\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize(
    ("way", "encoding"),
    [*((way, "ascii") for way in ("> /dev/full", "| true", ">&-", "| cat")), ("| cat", "utf-8"), ("| cat", "cp1252")],
)
def test_outputs(way: str, encoding: str, tmp_path: Path) -> None:
    """A pipe that is closed, a device that is full, no output at all, one that lacks some characters.

    Encodings differ where something is written, the one that lacks most stands for all where nothing arrives.
    """
    (tmp_path / "k.py").write_text(HEAD + OP + "    變 = x[0].foo\n")
    command = f'"{sys.executable}" -m einkorn check k.py {way}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "EINKORN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"EK09" not in done.stderr
    if "full" in way:
        assert b"error[EK0515]: the output cannot be written" in done.stderr
    if "cat" in way:
        assert b"EK0113" in done.stdout
