"""The C API: built by the system's compiler, and called by a C program whose results are those of Python."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.c_api_page import declared
from support.exported import attention

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.c_api.building import build_runtime
from einkorn.graph.engine.model import Model
from einkorn.graph.interop.export import export

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no cc, which builds the C API")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="exported files are for Linux")

PROGRAM = Path(__file__).parent / "c_api" / "every_function.c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
HOST = DeviceRef.CPU()
F32 = np.float32


def graph(name: str, forward: Any, *types: TensorType) -> Model:
    return InferenceSession().load(Graph(name, forward, types))


def floats(*shape: int | str) -> TensorType:
    return TensorType(DType.float32, shape, HOST)


X = np.array([F32(0.01) * F32(k) for k in range(70)], F32).reshape(10, 7)
W = np.array([F32(0.5) - F32(0.02) * F32(k) for k in range(63)], F32).reshape(7, 9)
MATRIX = np.array([F32(0.25) * F32(k % 5) for k in range(49)], F32).reshape(7, 7)
KEEP = np.array([1, 0, 1, 1, 0, 0, 1], np.bool_)


POLICY = """
[keys]
ours = "ed25519:kewrRtYkC6CsYKF7JUQ4dyblJJ6OJXtUxUQ0FNtsc5Q="

[[package]]
name = "n*"
keys = ["ours"]
policy = "{}"
"""


class Models:
    """The files that the program is given, and what it prints about them."""

    def __init__(self, folder: Path) -> None:
        attn = graph("attn", attention, floats("b", "k"), floats("k", "n"))
        twice = graph("twice", lambda x: x + x, floats("b", "k"))
        squared = graph("squared", lambda y: y * y, floats("b", "k"))
        given = InferenceSession().load(
            Graph(
                "layer",
                lambda x: ops.matmul(x, Weight("matrix", DType.float32, (7, 7), HOST)),
                [floats("b", 7)],
            ),
            weights_registry={"matrix": MATRIX},
        )
        late = graph("late", lambda keep: ops.nonzero(keep, "count"), TensorType(DType.bool, ("n",), HOST))
        self.linked = folder / "linked.o"
        attn.export(self.linked, name="linked", targets="host")
        files = [folder / f"{name}.so" for name in ("attn", "both", "given", "late")]
        attn.export(files[0], targets="host")
        export([twice, squared], files[1], targets="host")
        given.export(files[2], weights="given", targets="host")
        late.export(files[3], targets="host")
        layer = InferenceSession().load(
            Graph("net", lambda x: ops.matmul(x, ops.constant(MATRIX, DType.float32, HOST)), [floats("b", 7)])
        )
        package, alone = folder / "net.pkg", folder / "net.so"
        layer.export(package, targets="host")
        layer.export(alone, targets="host")
        policies = []
        for level in ("enforce", "warn"):
            policies.append(folder / f"{level}.toml")
            policies[-1].write_text(POLICY.format(level))
        self.paths = [*files, package, alone, *policies, *self._broken(folder, files[0].read_bytes())]
        results = [graphs.results(attn, X[:b], W)[0] for b in (0, 5, 10, 10)]
        results += [graphs.results(squared, graphs.results(twice, X[:5])[0])[0]] * 2
        results += [results[1], graphs.results(given, X[:5])[0]]
        late_results = [graphs.results(late, KEEP[:count])[0] for count in (0, 7)]
        results += [*late_results, *[graphs.results(layer, X[:5])[0]] * 6]
        names = ["y"] * 4 + ["y_2"] * 2 + ["y"] * 10  # an input of the squares is called y
        self.expected = [
            f"tensor {name} {a.dtype.name} {' '.join(map(str, a.shape))} {np.ascontiguousarray(a).tobytes().hex()}"
            for name, a in zip(names, results, strict=True)
        ]

    def _broken(self, folder: Path, whole: bytes) -> Sequence[Path]:
        head = bytearray(whole)
        head[18] = 0xF3  # of another processor
        contents = {
            "cut.so": whole[: len(whole) // 2],
            "head.so": whole[:50],
            "empty.so": b"",
            "text.so": b"text" * 100,
            "other.so": bytes(head),
        }
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        return [folder, folder / "missing.so", *(folder / name for name in contents)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


def compiled(runtime: Path, folder: Path, source: Path, *extra: str) -> Path:
    """A program that is linked with the C API."""
    assert CC is not None
    program = folder / "program"
    command = [CC, *STRICT, f"-I{runtime / 'include'}", str(source), *extra, f"-L{runtime / 'lib'}"]
    command += [f"-Wl,-rpath,{runtime / 'lib'}", "-leinkorn", "-lpthread", "-ldl", "-lm", "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def check(program: Path, models: Models, **environment: str) -> None:
    done = subprocess.run([program, *models.paths], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("tensor ")] == [
        re.sub(r" +", " ", line) for line in models.expected
    ]
    refused = [line for line in lines if line.startswith("refused")]
    words = ["not a file", "No such file", "cut off", "shared object", "shared object", "shared object"]
    words += ["another processor"]
    assert len(refused) == len(words)
    for line, word in zip(refused, words, strict=True):
        assert word in line


@needs_cc
@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_a_program_calls_every_function(static: bool, models: Models, tmp_path: Path) -> None:
    if static and shutil.which("ar") is None:
        pytest.skip("there is no ar, which makes static libraries")
    build_runtime(tmp_path / "runtime", static=static, flags=STRICT)
    check(compiled(tmp_path / "runtime", tmp_path, PROGRAM, str(models.linked)), models)


@needs_cc
@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_sanitizers_are_silent(kind: str, models: Models, tmp_path: Path) -> None:
    assert CC is not None
    flags = (f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-g")
    (tmp_path / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [CC, *flags, "probe.c", "-o", "probe"]
    if (
        subprocess.run(probe, cwd=tmp_path, capture_output=True).returncode
        or subprocess.run(tmp_path / "probe").returncode
    ):
        pytest.skip(f"cc has no {kind} sanitizer that runs here")
    build_runtime(tmp_path / "runtime", flags=(*STRICT, *flags))
    program = compiled(tmp_path / "runtime", tmp_path, PROGRAM, str(models.linked), *flags)
    check(program, models, ASAN_OPTIONS="detect_leaks=1")


@needs_cc
def test_missing_weights_other_processors_and_forks(tmp_path: Path) -> None:
    attn = graph("attn", attention, floats("b", "k"), floats("k", "n"))
    attn.export(tmp_path / "attn.so", targets="host")
    matrices = [Weight(name, DType.float32, (7, 7), HOST) for name in ("first", "second")]
    pair = InferenceSession().load(
        Graph("pair", lambda x: ops.matmul(ops.matmul(x, matrices[0]), matrices[1]), [floats("b", 7)]),
        weights_registry={"first": MATRIX, "second": MATRIX},
    )
    pair.export(tmp_path / "pair.so", weights="given", targets="host")
    other = "aarch64" if platform.machine() == "x86_64" else "x86-64-v3"
    pair.export(tmp_path / "foreign.pkg", targets=other)
    build_runtime(tmp_path / "runtime", flags=STRICT)
    program = compiled(tmp_path / "runtime", tmp_path, PROGRAM.with_name("limits.c"))
    files = [tmp_path / name for name in ("attn.so", "pair.so", "foreign.pkg")]
    done = subprocess.run([program, *files], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@needs_cc
def test_the_library_exports_the_declared_functions_alone(tmp_path: Path) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    build_runtime(tmp_path)
    library = tmp_path / "lib" / "libeinkorn.so"
    text = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in text.splitlines()} == set(declared())
    assert library.stat().st_size <= 100_000


def test_every_function_is_called() -> None:
    program = PROGRAM.read_text()
    assert not [name for name in declared() if f"{name}(" not in program]


@needs_cc
def test_headers_are_valid_in_c_and_cpp(tmp_path: Path) -> None:
    headers = [path for path in build_runtime(tmp_path) if path.suffix == ".h"]
    compilers = [[CC, *STRICT]] + ([["c++", "-std=c++17", "-Wall", "-Werror"]] if shutil.which("c++") else [])
    for compiler in compilers:
        for header in headers:
            language = "c" if compiler[0] == CC else "c++"
            command = [*map(str, compiler), f"-I{tmp_path / 'include'}", "-x", language, "-fsyntax-only", "-include"]
            subprocess.run([*command, str(header), "/dev/null"], check=True)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(EinkornError, match="no-such-compiler") as caught:
        build_runtime(tmp_path)
    assert caught.value.code == "EK0484"


@pytest.mark.skipif(find_spec("ziglang") is None, reason="the package ziglang is not installed")
@pytest.mark.parametrize("target", ["aarch64-linux-musl", "x86_64-linux-gnu.2.17"])
def test_it_is_built_for_other_systems(target: str, tmp_path: Path) -> None:
    library = next(path for path in build_runtime(tmp_path, target=target) if path.suffix == ".so").read_bytes()
    assert int.from_bytes(library[18:20], "little") == (183 if target.startswith("aarch64") else 62)
    with pytest.raises(EinkornError, match="ziglang cc' ended with status"):
        build_runtime(tmp_path / "wrong", target="no-such-target")


def test_the_package_for_other_systems_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einkorn.graph.c_api.building.find_spec", lambda name: None)
    with pytest.raises(EinkornError, match="ziglang, which is not installed") as caught:
        build_runtime(tmp_path, target="aarch64-linux-musl")
    assert caught.value.hint is not None and "pip install ziglang" in caught.value.hint


@needs_cc
def test_a_failing_compiler_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(EinkornError, match="ended with status") as caught:
        build_runtime(tmp_path, flags=["-fno-such-flag-anywhere"])
    assert caught.value.code == "EK0484"
    (tmp_path / "file").write_text("")
    with pytest.raises(EinkornError, match="cannot be written") as caught:
        build_runtime(tmp_path / "file")
    assert caught.value.code == "EK0484"
