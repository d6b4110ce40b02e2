"""The command line: what it prints where, and its exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from einkorn.cli import application as cli
from einkorn.cli import commands
from einkorn.dsl.diagnostics.errors import InternalError, PackageError
from einkorn.dsl.diagnostics.places import Place
from einkorn.dsl.environment.cache import Cache
from einkorn.dsl.package.container import (
    CodeContents,
    Instance,
    OpContents,
    PackageContents,
    read_package,
    write_package,
)
from einkorn.dsl.signature.schema import OpSchema, Parameter, Role, TensorArgument
from einkorn.dsl.types.dtype import DType

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in an empty folder: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("EINKORN_LOG", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.run(arguments)
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def demo(run: Run) -> Path:
    schema = OpSchema(
        "my::add_one",
        (TensorArgument("out", Role.OUTPUT, "T", "*s"), TensorArgument("x", Role.INPUT, "T", "*s")),
        (Parameter("step", "int", False, 1),),
        (("T", (DType.float32,)),),
    )
    code = CodeContents("my::add_one", Instance((("T", "float32"),)), "sm_90a", "ptx", bytes(5000), ("sm_90",))
    kernel = ["Function", [1, 1, 1, 1], "add_one", {"t": []}, {"t": []}]
    program = {"schema": schema.to_json(), "functions": [{"file": "k.py", "syntax": kernel}], "globals": []}
    contents = PackageContents("demo", "1.2", (OpContents(schema, program),), (code,), licence="MIT")
    return write_package("demo.pkg", contents).path


def test_no_command_and_wrong_usage(run: Run) -> None:
    for arguments in ((), ("frobnicate",), ("build",), ("build", "kernels/"), ("inspect", "a.py", "--stage", "ptx")):
        status, out, err = run(*arguments)
        assert (status, out) == (2, "") and "Usage: einkorn" in err
    for pair in ("s", "s=", "=2", "s=two", "s=-1"):
        status, out, err = run("inspect", "a.py", "--rank", pair)
        assert status == 2 and "should be written name=" in err
    status, out, err = run("inspect", "a.py", "--dtype", "T=float32", "--dtype", "T=int8")
    assert status == 2 and "'T' is given twice" in err


def test_help_and_version(run: Run) -> None:
    status, out, err = run("--help")
    assert (status, err) == (0, "") and all(f"  {c}  " in out for c in ("build", "inspect", "pkg", "cache", "targets"))
    status, out, err = run("--version")
    assert (status, err) == (0, "") and out.startswith("einkorn ") and "package format 1.4, ABI 2" in out


def test_package_info(run: Run, demo: Path) -> None:
    size = f"{demo.stat().st_size / 1024:.1f} KiB"
    assert run("pkg", "info", "demo.pkg") == (
        0,
        "demo.pkg: demo 1.2, MIT\n"
        f"format 1.0, ABI 2, {size}\n"
        "op           arguments                                            parameters\n"
        'my::add_one  out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]  step=1\n'
        "target  op           compiled for  kind  checks     size  needs\n"
        "sm_90a  my::add_one  T=float32     ptx   safe    4.9 KiB  sm_90\n",
        "",
    )
    status, out, _ = run("pkg", "info", "demo.pkg", "--json")
    assert status == 0 and json.loads(out)["ops"][0]["schema"]["name"] == "my::add_one"


def test_package_verify(run: Run, demo: Path) -> None:
    status, out, err = run("pkg", "verify", "demo.pkg")
    assert (status, err) == (0, "") and out.startswith("demo.pkg: all 3 members match the manifest")
    data = demo.read_bytes()
    at = data.index(bytes(4000)) + 100
    demo.write_bytes(data[:at] + b"!" + data[at + 1 :])
    assert run("pkg", "verify", "demo.pkg") == (
        1,
        "",
        "error[EK0553]: 'demo.pkg' is damaged: the checksum of 'code/sm_90a/my.add_one-0.ptx' is wrong\n"
        "hint: fetch it again, or build it again with `einkorn build`\n",
    )
    assert run("pkg", "info", "nope.pkg") == (
        1,
        "",
        "error[EK0551]: 'nope.pkg' cannot be read: No such file or directory\n",
    )


def test_cache(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    assert run("cache", "info") == (0, f"{place}: 0 entries, 0 B of at most 1.0 GiB\n", "")
    for key in ("aa", "bb"):
        Cache().put(key, bytes(976))
    assert run("cache", "info") == (0, f"{place}: 2 entries, 2.0 KiB of at most 1.0 GiB\n", "")
    assert run("cache", "clear") == (0, f"{place}: removed 2 entries\n", "")
    assert Cache().info().entries == 0


def test_targets(run: Run) -> None:
    status, out, err = run("targets")
    assert (status, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert {"x86-64-v3", "sm_80", "sm_90a", "gfx942", "gfx1100", "sim"} <= set(names)
    assert re.search(r"^sim +sim +\S+ +yes +.*clusters", out, re.MULTILINE)
    assert "like sm_90a, sim:NAME one like any other GPU above" in out


def test_a_users_mistake_is_shown_as_it_is_everywhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PackageError("no", code="EK0599", place=Place("k.py", 3, 5), hint="do")

    monkeypatch.setattr(commands, "cache_info", fail)
    assert run("cache", "info") == (1, "", "k.py:3:5: error[EK0599]: no\nhint: do\n")


def test_a_misspelt_variable_stops_every_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_LOG", "loud")
    status, out, err = run("cache", "info")
    assert (status, out) == (1, "") and err.startswith("error[EK0692]: the environment variable EINKORN_LOG is 'loud'")


@pytest.mark.parametrize("error", [KeyError("x"), InternalError("the emitter has no row for 'frob'")])
def test_an_internal_fault(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(commands, "cache_info", fail)
    what = "einkorn failed with KeyError: 'x'" if isinstance(error, KeyError) else "the emitter has no row for 'frob'"
    status, out, err = run("cache", "info")
    assert (status, out) == (70, "") and err.startswith(f"error[EK0901]: {what}\n")
    assert "report it" in err and "set EINKORN_LOG=debug for the trace" in err and "Traceback" not in err
    monkeypatch.setenv("EINKORN_LOG", "debug")
    status, out, err = run("cache", "info")
    assert status == 70 and "Traceback" in err and f"error[EK0901]: {what}\n" in err


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "cache_info", fail)
    assert run("cache", "info") == (130, "", "\n")


def test_what_the_options_become(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: Any, **named: Any) -> None:
        seen.append((args, named))

    monkeypatch.setattr(commands, "build", record)
    monkeypatch.setattr(commands, "inspect", record)
    assert run("build", "kernels/", "-o", "k.pkg", "--target", "sm_80", "--target", "gfx942", "--no-source")[0] == 0
    assert seen.pop() == (
        ("kernels/", "k.pkg", ("sm_80", "gfx942"), None, "0", None),
        {
            "include_source": False,
            "checks": None,
            "op": None,
            "stubs": False,
            "wanted": {"dtypes": {}, "ranks": {}, "parameters": {}, "counts": {}},
        },
    )
    options = "--op f --target sm_80 --stage asm --dtype T=int8 --rank s=2 --param n=1=2 --count xs=3"
    assert run("inspect", "k.py", *options.split())[0] == 0
    wanted = {"op": "f", "dtypes": {"T": "int8"}, "ranks": {"s": 2}, "parameters": {"n": "1=2"}, "counts": {"xs": 3}}
    assert seen.pop() == (("k.py", "sm_80", "asm", ()), wanted | {"why": False, "sizes": {}})
    monkeypatch.setattr(commands, "explore", record)
    assert run("explore", "k.py", "-o", "k.html", *options.replace("--stage asm", "--size m=8").split())[0] == 0
    assert seen.pop() == (("k.py", "k.html", ("sm_80",), {"m": 8}), wanted)


def test_pages_are_written(run: Run, demo: Path) -> None:
    status, out, err = run("doc", str(demo))
    assert (status, err) == (0, "") and out.startswith("# demo\n\nVersion 1.2, MIT.\n") and "my::add_one" in out
    assert run("doc", str(demo), "-o", "demo.html", "--title", "Mine")[0] == 0
    assert "<title>Mine</title>" in Path("demo.html").read_text()
    status, out, err = run("doc", str(demo), "-o", "missing/demo.md")
    assert (status, out) == (1, "") and err == (
        "error[EK0515]: 'missing/demo.md' cannot be written: No such file or directory\n"
    )


@pytest.mark.parametrize("start", [["-m", "einkorn"], ["-c", "from einkorn.cli.application import main; main()"]])
def test_as_a_process(start: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, *start, "pkg", "info", "nope.pkg"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("error[EK0551]: 'nope.pkg'")


def test_a_closed_pipe_is_no_fault(demo: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m einkorn targets | true; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1) and done.stderr == ""


def test_looking_into_a_package_needs_no_compiler(demo: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from einkorn.cli.application import run\n"
        "assert run(['pkg', 'info', 'demo.pkg']) == 0 and run(['pkg', 'verify', 'demo.pkg']) == 0\n"
        "print([m for m in sys.modules if m.startswith(('einkorn.compiler', 'einkorn.graph', 'llvmlite', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


KERNELS = """from einkorn.dsl import *


@register("mine::rope")
def rope(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * 2)


@register("mine::other")
def other(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i])
"""


def test_an_op_is_found_without_its_namespace_if_it_is_the_only_one(run: Run) -> None:
    Path("kernels.py").write_text(KERNELS)
    assert run("inspect", "kernels.py", "--op", "rope") == run("inspect", "kernels.py", "--op", "mine::rope")
    assert run("inspect", "kernels.py", "--op", "rope")[0] == 0
    assert "hint: write --op mine::other" in run("inspect", "kernels.py")[2]
    Path("kernels.py").write_text(KERNELS + KERNELS.replace("mine::", "yours::").partition("\n\n\n")[2])
    status, _, err = run("inspect", "kernels.py", "--op", "rope")
    assert status == 1 and "mine::rope" in err and "yours::rope" in err


def test_the_reference_of_this_folder_has_its_name(run: Run, tmp_path: Path) -> None:
    Path("kernels.py").write_text(KERNELS)
    assert run("doc", ".")[1].startswith(f"# {tmp_path.name}\n")
    assert run("doc", "kernels.py")[1].startswith("# kernels\n")


def test_building_without_a_target_is_explained(run: Run) -> None:
    text = " ".join(run("build", "--help")[1].split())
    assert "Without --target the package holds the portable programs alone" in text


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_table_keeps_to_the_width_of_the_terminal(
    width: int, run: Run, demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    package = read_package(str(demo))
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    commands._show_package(package)
    shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    tables = shown.splitlines()[2:]
    assert tables and max(map(len, tables)) <= width
    assert "…" not in shown and "my::add_one" in shown and "sm_90" in shown


def test_arguments_behind_a_program_are_its_own(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nfrom einkorn.distributed import rank\nprint(rank(), sys.argv[1:], __name__)\n")
    given = ["-n", "5", "--backend", "x", "--", "-h"]
    status, written, _ = run("run", "-n", "2", "--backend", "threads", str(program), *given)
    assert status == 0
    assert sorted(written.splitlines()) == [f"[rank {rank}] {rank} {given} __main__" for rank in range(2)]
