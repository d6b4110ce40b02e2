"""A fault of the compiler leaves a file behind that shows it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from einkorn.cli.application import run
from einkorn.compiler import crashes, pipeline
from einkorn.compiler.explorer.stage import inspect_stage
from einkorn.compiler.reproducer import read_reproducer
from einkorn.dsl.diagnostics.errors import InternalError, PackageError
from einkorn.dsl.diagnostics.explain import LIBRARY
from einkorn.dsl.environment.files import OwnFolder


def test_a_fault_leaves_a_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernels.py").write_text(LIBRARY)
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "emit_module", lambda *_: 1 / 0)
        with pytest.raises(InternalError) as caught:
            inspect_stage("kernels.py", "x86-64-v3", "asm", op="double")
        (file,) = (tmp_path / "cache").rglob("einkorn-fault-*.json")
        text = str(caught.value)
        assert "error[EK0901]: the compiler failed with ZeroDivisionError: division by zero" in text
        assert f"einkorn reproduce {file}" in text and "this is a fault of Einkorn" in text
        assert run(["reproduce", str(file)]) == 70
        assert "ZeroDivisionError" in capfd.readouterr().err
    spec, target = read_reproducer(str(file))
    assert target == "x86-64-v3" and spec.groups[0].nodes[0].kernel.schema.name == "double"
    assert run(["reproduce", str(file)]) == 0
    assert "compiles without a fault" in capfd.readouterr().out
    assert run(["reproduce", "kernels.py"]) == 1
    assert "error[EK0907]" in capfd.readouterr().err


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
def test_what_is_no_fault_comes_out_unchanged(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernels.py").write_text(LIBRARY)
    error = kind("no room")

    def raises(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "emit_module", raises)
        with pytest.raises(kind) as caught:
            inspect_stage(str(tmp_path / "kernels.py"), "x86-64-v3", "asm", op="double")
    assert caught.value is error and not list(tmp_path.rglob("einkorn-fault-*"))
    assert ".text" in inspect_stage(str(tmp_path / "kernels.py"), "x86-64-v3", "asm", op="double")


DYING = """
import os, signal, sys, threading
from einkorn.compiler import crashes, pipeline
from einkorn.compiler.explorer.stage import inspect_stage
how = sys.argv[1]
make = pipeline.llvm.compile_module
def ends(*args, **keywords):
    assert os.listdir(os.path.join(os.environ["EINKORN_CACHE_DIR"], "faults"))
    if how == "abort":
        os.abort()
    if how == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    thread = threading.Thread(target=os.abort)  # a crash of something else
    thread.start()
    thread.join()
if how != "live":
    pipeline.llvm.compile_module = ends
inspect_stage("kernels.py", "x86-64-v3", "asm", op="double")
"""
MESSAGE = "an earlier process crashed while LLVM or MLIR compiled double: this is a fault of Einkorn"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(LIBRARY)
    return tmp_path / "cache"


def compiles(cache: Path, how: str = "live") -> subprocess.CompletedProcess[str]:
    """A process that compiles, and ends in one of several ways."""
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(cache), "TMPDIR": str(cache.parent)}
    environment.pop("PYTHONFAULTHANDLER", None)
    command = [sys.executable, "-c", DYING, how]
    return subprocess.run(command, cwd=cache.parent, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("how", ["abort", "fault"])
def test_a_process_that_crashes_in_llvm_leaves_a_reproducer(cache: Path, how: str) -> None:
    assert compiles(cache, how).returncode == -(signal.SIGABRT if how == "abort" else signal.SIGSEGV)
    done = compiles(cache)
    assert done.returncode == 0
    (file,) = cache.rglob("einkorn-fault-*.json")
    assert MESSAGE in done.stderr and f"`einkorn reproduce {file}` runs it again" in done.stderr
    spec, target = read_reproducer(str(file))
    assert target == "x86-64-v3" and spec.groups[0].nodes[0].kernel.schema.name == "double"
    assert compiles(cache).stderr == "" and list((cache / "faults").iterdir()) == [file]


@pytest.mark.parametrize("how", ["exit", "kill", "elsewhere"])
def test_other_ends_of_a_process_are_no_faults(cache: Path, how: str) -> None:
    """`os._exit`, a signal from outside, a crash of another thread."""
    assert compiles(cache, how).returncode != 0 and list((cache / "faults").iterdir())
    assert compiles(cache).stderr == "" and not list((cache / "faults").iterdir())


def test_a_crash_with_another_cache_is_not_reported(cache: Path) -> None:
    assert compiles(cache, "abort").returncode == -signal.SIGABRT
    assert compiles(cache.with_name("other")).stderr == ""


def note(cache: Path, name: str) -> Path:
    """The path of a note of a process that has ended."""
    (cache / "faults").mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache / "faults" / f"{crashes._ours()}{name}"


TRACE = """Fatal Python error: Aborted

Current thread 0x00000000000000ab (most recent call first):
  File "compiler/pipeline.py", line 1 in run
"""
DEAD = 2**22 + 1  # above the numbers of processes


def crashed(cache: Path) -> Path:
    """A process that has crashed; the path of its note, which is to be written."""
    note(cache, f"{DEAD}.trace").write_text(TRACE)
    return note(cache, f"{DEAD}-ab-0.json")


@pytest.mark.parametrize("what", ["pipe", "link", "deep", "huge", "no unit", "folder", "foreign trace", "many"])
def test_what_lies_among_the_notes_is_not_believed(cache: Path, tmp_path: Path, what: str) -> None:
    """Nothing is read without end, and nothing is offered as a reproducer but a whole one of the user's own."""
    path = crashed(cache)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        elsewhere = tmp_path / "elsewhere.json"
        elsewhere.write_text("{}")
        path.symlink_to(elsewhere)
    elif what == "deep":
        path.write_text('{"einkorn": 1, "unit": ' + "[" * 200_000 + "]" * 200_000 + "}")
    elif what == "huge":
        with open(path, "wb") as file:
            file.truncate(600 << 20)
    elif what == "no unit":
        path.write_text('{"einkorn": 1, "unit": {"@": "EntrySpec", "value": 3}, "target": "host"}')
    elif what == "folder":
        path.mkdir()
    elif what == "foreign trace":
        note(cache, f"{DEAD}.trace").unlink()
        os.mkfifo(note(cache, f"{DEAD}.trace"))
    else:
        for number in range(400):
            note(cache, f"{DEAD}-ab-{number}.json").write_text("{}")
    done = compiles(cache)
    assert (done.returncode, done.stderr) == (0, "") and not list(cache.rglob("einkorn-fault-*"))


@pytest.mark.parametrize("what", ["open to others", "link", "file"])
def test_notes_lie_in_a_folder_of_the_users_own(cache: Path, what: str) -> None:
    folder = cache / "faults"
    cache.mkdir(mode=0o700)
    if what == "file":
        folder.write_text("")
    elif what == "link":
        (cache / "other").mkdir(mode=0o700)
        folder.symlink_to(cache / "other")
    else:
        folder.mkdir()
        folder.chmod(0o777)
        (folder / f"{crashes._ours()}{DEAD}.trace").write_text(TRACE)
    done = compiles(cache)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_and_folders_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OwnFolder(tmp_path / "own") as folder:
        with folder.create("file") as stream:
            stream.write(b"12345")
        assert folder.read("file", 5) == b"12345"
        with pytest.raises(OSError, match="too large"):
            folder.read("file", 4)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(PermissionError):
            folder.read("file", 5)
        with pytest.raises(PermissionError):
            OwnFolder(tmp_path / "own")


def test_a_file_that_stands_where_a_reproducer_would_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cache, reproducers lie in a new folder for temporary files."""
    monkeypatch.setenv("EINKORN_CACHE", "0")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "emit_module", lambda *_: 1 / 0)
    (tmp_path / "kernels.py").write_text(LIBRARY)
    with pytest.raises(InternalError) as caught:
        inspect_stage(str(tmp_path / "kernels.py"), "x86-64-v3", "asm", op="double")
    file = Path(caught.value.reproducer or "")
    assert file.parent.parent == tmp_path and file.parent.stat().st_mode & 0o777 == 0o700
    assert read_reproducer(str(file))[1] == "x86-64-v3"


@pytest.mark.parametrize("what", ["pipe", "deep", "huge"])
def test_what_is_given_as_a_reproducer_is_bounded(tmp_path: Path, what: str) -> None:
    path = tmp_path / "given.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "deep":
        path.write_text('{"einkorn": 1, "unit": ' + "[" * 900 + "]" * 900 + "}")
    else:
        with open(path, "wb") as file:
            file.truncate(600 << 20)
    with pytest.raises(PackageError, match="is not a reproducer") as caught:
        read_reproducer(str(path))
    assert caught.value.code == "EK0907"
