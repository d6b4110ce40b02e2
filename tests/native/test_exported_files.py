"""Exported files as programs see them: symbols, libraries, paths, headers, kernels, the command line."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.exported import Exported

import einkorn.graph
from einkorn.dsl.contract import exports
from einkorn.dsl.package import elf
from einkorn.errors import GraphError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

F32 = np.float32
HOST = DeviceRef.CPU()
CC = shutil.which("cc")
CXX = shutil.which("c++")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no cc")
needs_cxx = pytest.mark.skipif(CXX is None, reason="there is no c++")


def scaled(x: Any, w: Any) -> Any:
    return ops.softmax(ops.matmul(ops.exp(x), w))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    model = graphs.load(scaled, (F32, ("b", "k")), (F32, ("k", "n")))
    folder = tmp_path_factory.mktemp("files")
    return Exported(model, folder, "scaled", header=folder / "scaled.h", targets="x86-64-v3")


def symbols(path: Path) -> dict[str, bool]:
    """The names that a shared object has or needs, and whether it has them."""
    data = path.read_bytes()
    fields = elf.FILE_HEADER.unpack_from(data)
    headers = [elf.SECTION_HEADER.unpack_from(data, fields[6] + k * elf.SECTION_HEADER.size) for k in range(fields[12])]
    collected = {}
    for header in headers:
        if header[1] == elf.SHT_DYNSYM:
            strings = headers[header[6]][4]
            for at in range(header[4] + elf.SYMBOL.size, header[4] + header[5], elf.SYMBOL.size):
                name, _, _, section, _, _ = elf.SYMBOL.unpack_from(data, at)
                text = data[strings + name : data.index(b"\0", strings + name)].decode()
                collected[text] = section != elf.SHN_UNDEF
    return collected


def needed(path: Path) -> set[str]:
    """The libraries that a shared object needs."""
    data = path.read_bytes()
    fields = elf.FILE_HEADER.unpack_from(data)
    headers = [elf.SECTION_HEADER.unpack_from(data, fields[6] + k * elf.SECTION_HEADER.size) for k in range(fields[12])]
    (dynamic,) = (header for header in headers if header[1] == elf.SHT_DYNAMIC)
    strings, result = headers[dynamic[6]][4], set()
    for at in range(dynamic[4], dynamic[4] + dynamic[5], elf.DYNAMIC_ENTRY.size):
        tag, value = elf.DYNAMIC_ENTRY.unpack_from(data, at)
        if tag == elf.DT_NEEDED:
            result.add(data[strings + value : data.index(b"\0", strings + value)].decode())
    return result


def test_only_the_functions_of_the_header_are_exported(exported: Exported) -> None:
    actual = symbols(exported.path)
    assert all(name == "scaled" or name.startswith("scaled_") for name, has in actual.items() if has), actual
    assert {"scaled", "scaled_in", "scaled_workspace", "scaled_prepare", "scaled_run"} <= set(actual)
    assert needed(exported.path) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}


def test_no_folder_of_this_machine_is_in_it(exported: Exported, tmp_path: Path) -> None:
    model = exported.model
    plain, debug = tmp_path / "plain.so", tmp_path / "debug.so"
    model.export(plain, targets="x86-64-v3")
    model.export(debug, targets="x86-64-v3", debug=True)
    own = {str(Path(einkorn.graph.__file__).resolve().parents[1]), str(Path(__file__).resolve().parent), os.getcwd()}
    for path in (plain, debug):
        data = path.read_bytes()
        assert not [folder for folder in own if folder.encode() in data], path
    assert debug.stat().st_size > plain.stat().st_size


def test_the_same_model_gives_the_same_bytes(exported: Exported, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "same.so", tmp_path / "b" / "same.so"
    for path in (first, second):
        path.parent.mkdir()
        graphs.load(scaled, (F32, ("b", "k")), (F32, ("k", "n"))).export(path, targets="x86-64-v3")
    assert first.read_bytes() == second.read_bytes()


HALVED = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.graph import DeviceRef, DType, Graph, TensorType


@register("halved")
def halved(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    assert x[0] > 0.0, "the first one is positive"
    foreach(out, lambda i: x[i] * 0.5)


def graph():
    return Graph("halves", lambda x: halved(x), [TensorType(DType.float32, ("n",), DeviceRef.CPU())])
"""


@pytest.mark.parametrize("name", ["same.so", "same.o"])
def test_the_same_source_in_another_folder_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b" / "deeper"):
        folder.mkdir(parents=True)
        (folder / "kernel.py").write_text(HALVED)
        command = [sys.executable, "-m", "einkorn", "export", f"{folder}/kernel.py:graph", "-o", f"{folder}/{name}"]
        own_cache = {
            "EINKORN_CACHE_DIR": str(folder / "cache")
        }  # code compiled for one folder is not used for the other
        subprocess.run([*command, "--target", "x86-64-v3"], check=True, env=os.environ | own_cache)
        made.append((folder / name).read_bytes())
    assert made[0] == made[1] and str(tmp_path).encode() not in made[0]


PROGRAM = """
#include "scaled.h"
#include "scaled.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#define CHECK(test) static_assert(test, #test)
#else
#define CHECK(test) _Static_assert(test, #test)
#endif
CHECKS
int main(void) {
  float x[10 * 7], w[7 * 9], y[10 * 9], z[10 * 9];
  for (int k = 0; k < 10 * 7; k++) x[k] = 0.01f * (float)k;
  for (int k = 0; k < 7 * 9; k++) w[k] = 0.5f - 0.02f * (float)k;
  einkorn_failure why;
  if (scaled(x, w, 10, 7, 9, y, &why) != 0) return 1;
  int64_t bytes = scaled_workspace(10, 7, 9);
  scaled_plan plan;
  if (bytes < 0 || scaled_prepare(10, 7, 9, &plan, NULL) != 0) return 2;
  void *workspace = aligned_alloc(64, (size_t)bytes + 64);
  if (scaled_run(&plan, x, w, z, workspace, &why) != 0) return 3;
  free(workspace);
  if (memcmp(y, z, sizeof y) != 0) return 4;
  if (scaled(x, w, 10, -7, 9, y, &why) != EINKORN_WRONG_SIZE) return 5;
  char text[200];
  scaled_describe(&why, text, sizeof text);
  puts(text);
  printf("%.9g %s\\n", (double)y[89], scaled_model.tensors[2].name);
  return scaled_model.size == (int64_t)sizeof(einkorn_model) ? 0 : 6;
}
"""

RECORDS = {"failure": exports.ExportedFailure, "tensor": exports.ExportedTensor, "model": exports.ModelRecord}


def program() -> str:
    """The program, with the layout of the records as Python has it."""
    checks = []
    for name, record in RECORDS.items():
        checks.append(f"CHECK(sizeof(einkorn_{name}) == {ctypes.sizeof(record)});")
        for field, *_ in record._fields_:
            c_name = {"call_in": "call_in"}.get(field, field)
            checks.append(f"CHECK(offsetof(einkorn_{name}, {c_name}) == {getattr(record, field).offset});")
    return PROGRAM.replace("CHECKS", "\n".join(checks))


def built(
    exported: Exported, folder: Path, compiler: list[str], file: Path, source: str, program_text: str | None = None
) -> str:
    """What a program prints that is linked with an exported file."""
    text = folder / source
    text.write_text(program_text or program())
    command = [*compiler, "-Wall", "-Wextra", "-Werror", f"-I{exported.path.parent}", str(text), str(file)]
    subprocess.run([*command, f"-Wl,-rpath,{file.parent}", "-lm", "-o", str(folder / "program")], check=True)
    return subprocess.run([folder / "program"], check=True, capture_output=True, text=True).stdout


def expected(exported: Exported) -> str:
    x = np.array([F32(0.01) * F32(k) for k in range(70)], F32).reshape(10, 7)
    w = np.array([F32(0.5) - F32(0.02) * F32(k) for k in range(63)], F32).reshape(7, 9)
    (y,) = graphs.results(exported.model, x, w)
    return f"error[EK0475]: size 'k' is -7, below zero\n{float(y.reshape(-1)[89]):.9g} y\n"


@needs_cc
def test_a_c_program_calls_a_shared_object(exported: Exported, tmp_path: Path) -> None:
    assert CC is not None
    assert built(exported, tmp_path, [CC, "-std=c11", "-pedantic"], exported.path, "program.c") == expected(exported)


@needs_cc
def test_a_c_program_calls_an_object_that_is_linked_into_it(exported: Exported, tmp_path: Path) -> None:
    assert CC is not None
    exported.model.export(tmp_path / "scaled.o", name="scaled", targets="x86-64-v3")
    assert built(exported, tmp_path, [CC, "-std=c11"], tmp_path / "scaled.o", "program.c") == expected(exported)


@needs_cxx
def test_a_cpp_program_includes_the_header(exported: Exported, tmp_path: Path) -> None:
    assert CXX is not None
    assert built(exported, tmp_path, [CXX, "-std=c++17"], exported.path, "program.cpp") == expected(exported)


SPANS = """
#include "scaled.h"
#include <cstdio>
#include <vector>
int main() {
  std::vector<float> x(10 * 7), w(7 * 9), y(10 * 9), z(10 * 9);
  for (int k = 0; k < 10 * 7; k++) x[k] = 0.01f * (float)k;
  for (int k = 0; k < 7 * 9; k++) w[k] = 0.5f - 0.02f * (float)k;
  einkorn_failure why;
  if (einkorn::scaled(x, w, 10, 7, 9, y, &why) != EINKORN_OK) return 1;
  scaled_plan plan;
  if (scaled_prepare(10, 7, 9, &plan, &why) != EINKORN_OK) return 2;
  std::vector<std::byte> memory(scaled_workspace(10, 7, 9) + 64);
  std::byte *begin = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  std::span<std::byte> room(begin, scaled_workspace(10, 7, 9));
  if (einkorn::scaled_run(plan, x, w, z, room) != EINKORN_OK || y != z) return 3;
  if (einkorn::scaled_run(plan, x, w, z, room.first(room.size() - 64), &why) != EINKORN_WRONG_WORKSPACE) return 4;
  if (why.got != (int64_t)room.size() - 64 || why.expected != (int64_t)room.size()) return 5;
  if (einkorn::scaled(x, std::span(w).first(62), 10, 7, 9, y, &why) != EINKORN_WRONG_SIZE) return 6;
  if (why.argument != 1 || why.got != 62 * 4 || why.expected != 63 * 4) return 7;
  if (einkorn::scaled(x, w, 10, 7, 9, std::span(y).first(0)) != EINKORN_WRONG_SIZE) return 8;
  if (einkorn::scaled(x, w, 10, -7, 9, y, &why) != EINKORN_WRONG_SIZE) return 9;
  char text[200];
  scaled_describe(&why, text, sizeof text);
  std::printf("%s\\n%.9g %s\\n", text, (double)y[89], scaled_model.tensors[2].name);
}
"""


@needs_cxx
def test_spans_know_their_sizes(exported: Exported, tmp_path: Path) -> None:
    assert CXX is not None
    (tmp_path / "empty.cpp").write_text("#include <span>\n")
    known = subprocess.run([CXX, "-std=c++20", "-fsyntax-only", "empty.cpp"], cwd=tmp_path, capture_output=True)
    if known.returncode:
        pytest.skip("the compiler has no C++20")
    assert built(exported, tmp_path, [CXX, "-std=c++20"], exported.path, "spans.cpp", SPANS) == expected(exported)


PRINTS = """
#include "prints.h"
#include <stdio.h>
#include <string.h>
static void hook(const char *text, size_t bytes, void *data) { memcpy((char *)data + strlen(data), text, bytes); }
int main(void) {
  float x[2] = {1.5f, -2}, y[2];
  char seen[4096] = "";
  prints_set_print(hook, seen);
  if (prints(x, 2, y, NULL) != 0) return 1;
  printf("hooked: %s", seen);
  fflush(stdout);
  prints_set_print(NULL, NULL);
  return prints(x, 2, y, NULL);
}
"""


@needs_cc
def test_prints_go_to_standard_output_or_to_the_program(exported: Exported, tmp_path: Path) -> None:
    assert CC is not None and "set_print" not in (exported.path.parent / "scaled.h").read_text()
    (tmp_path / "said.py").write_text(PRINTING)
    command = [sys.executable, "-m", "einkorn", "export", "said.py:graph", "-o", "prints.so", "--header", "prints.h"]
    subprocess.run([*command, "--target", "host"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "a.c").write_text(PRINTS)
    command = [CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "a.c", "./prints.so", "-o", "a", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "a"], check=True, capture_output=True, text=True).stdout
    assert shown == "hooked: x 1.5\nx -2.0\nx 1.5\nx -2.0\n"


PRINTING = """
from einkorn.dsl import *
from einkorn.graph import DeviceRef, DType, Graph, TensorType


@register("said")
def said(out: OutputTensor[Float32, "n"], x: InputTensor[Float32, "n"]):
    for i in range(x.shape[0]):
        print(f"x {x[i]}")
        out[i] = x[i]


def graph():
    return Graph("prints", lambda x: said(x), [TensorType(DType.float32, ("n",), DeviceRef.CPU())])
"""


@needs_cc
def test_every_dtype_has_a_type_in_c(tmp_path: Path) -> None:
    """The header of a graph with an input and an output of each dtype."""
    assert CC is not None
    types = [TensorType(dtype, ("n",), HOST) for dtype in DType]
    model = InferenceSession().load(Graph("every", lambda *x: list(x), types))
    model.export(tmp_path / "every.so", header=tmp_path / "every.h", targets="host")
    (tmp_path / "a.c").write_text('#include "every.h"\nint main(void) { return every_model.inputs != 1; }\n')
    command = [CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "a.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_several_models_in_a_file_share_weights(tmp_path: Path) -> None:
    matrix = graphs.numbers((64, 64), F32, 1)

    def model(name: str, change: Any) -> Any:
        return InferenceSession().load(
            Graph(name, lambda x: change(ops.matmul(x, ops.constant(matrix, DType.float32, HOST))), [_rows()])
        )

    models = [model("first", ops.exp), model("second", ops.negate)]
    einkorn.graph.export(models, tmp_path / "both.so", targets="host")
    library = ctypes.CDLL(str(tmp_path / "both.so"))
    x = graphs.numbers((3, 64), F32, 2)
    for each, name in zip(models, ("first", "second"), strict=True):
        y = np.zeros((3, 64), F32)
        address = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
        assert library[name](address[0], ctypes.c_int64(3), address[1], None) == 0
        assert y.tobytes() == graphs.results(each, x)[0].tobytes()
    models[0].export(tmp_path / "one.so", targets="host")
    sizes = [(tmp_path / name).stat().st_size for name in ("one.so", "both.so")]
    assert sizes[1] - sizes[0] < matrix.nbytes + 32768


def _rows() -> TensorType:
    return TensorType(DType.float32, ("n", 64), HOST)


KERNEL = """
from einkorn.dsl import *
from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops


@register("axpy")
def axpy(out: OutputTensor[Float32, "n m"], x: InputTensor[Float32, "n m"], y: InputTensor[Float32, "n m"], a: Float32):
    foreach(out, lambda i: a * x[i] + y[i])


def compiled():
    rows = TensorType(DType.float32, ("n", "m"), DeviceRef.CPU())
    return axpy.compile(rows, rows, 2.0)


def graph():
    return Graph("doubled", lambda x: x + x, [TensorType(DType.float32, ("n",), DeviceRef.CPU())])
"""


def test_the_command_exports_graphs_and_kernels(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNEL)
    for name, function in (("compiled", "axpy"), ("graph", "doubled")):
        command = [sys.executable, "-m", "einkorn", "export", f"kernels.py:{name}", "-o", f"{name}.so"]
        command += ["--header", f"{name}.h", "--target", "host"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert done.stdout.startswith(f"{name}.so: ")
        assert f"int32_t {function}(" in (tmp_path / f"{name}.h").read_text()
    library = ctypes.CDLL(str(tmp_path / "compiled.so"))
    x, y, out = np.arange(6, dtype=F32), np.ones(6, F32), np.zeros(6, F32)
    a = np.array(2.0, F32)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, y, a, out)]
    assert library.axpy(*pointers[:3], ctypes.c_int64(2), ctypes.c_int64(3), pointers[3], None) == 0
    assert out.tolist() == [1, 3, 5, 7, 9, 11]


def test_the_command_says_what_it_cannot_find(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNEL)
    for source in ("kernels.py:grap", "kernels.txt:graph", "kernels.py:DType", "missing.py:graph"):
        command = [sys.executable, "-m", "einkorn", "export", source, "-o", "a.so"]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 1 and "error[EK0483]" in done.stderr, done


@pytest.mark.parametrize(
    ("path", "header"),
    [("missing/a.so", None), ("missing/a.o", None), ("a.so", "missing/a.h"), ("missing/a.so", "a.h")],
)
def test_a_folder_that_is_missing_is_named(
    path: str, header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = graphs.load(lambda x: x + x, (F32, ("n",)))
    with pytest.raises(GraphError, match=r"the model cannot be written to 'missing/a\..*': No such file") as caught:
        model.export(path, header=header)
    assert caught.value.code == "EK0483"


def adding(name: str) -> Model:
    kind = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    return InferenceSession().load(Graph(name, forward=lambda x: x + 1, input_types=[kind]))


@pytest.mark.parametrize("name", ["free", "memcpy", "float"])
def test_names_that_are_taken_get_an_underscore(name: str, tmp_path: Path) -> None:
    model = adding(name)
    model.export(tmp_path / "model.so", header=tmp_path / "model.h")
    assert f"int32_t {name}_(const float *" in (tmp_path / "model.h").read_text()
    with pytest.raises(GraphError, match=f"'{name}' is (a function of the C library|not a name in C)"):
        model.export(tmp_path / "again.so", name=name)


@pytest.mark.parametrize("name", ["call", "run", "rows", "fail", "plan_1"])
def test_a_model_may_have_the_name_of_a_function_within_the_file(name: str, tmp_path: Path) -> None:
    model, x = adding(name), np.arange(4, dtype=F32)
    assert Exported(model, tmp_path, name)(x)[0].tobytes() == graphs.results(model, x)[0].tobytes()


def test_names_that_begin_as_those_of_functions_within_the_file(tmp_path: Path) -> None:
    model = adding("ek_entry")
    model.export(tmp_path / "model.so", header=tmp_path / "model.h")
    assert "int32_t model_ek_entry(const float *" in (tmp_path / "model.h").read_text()
    with pytest.raises(GraphError, match="'ek_threads' begins with ek_"):
        model.export(tmp_path / "again.so", name="ek_threads")


def test_the_endings_of_files_are_named(tmp_path: Path) -> None:
    model = graphs.load(lambda x: x + x, (np.float32, ("n",)))
    with pytest.raises(GraphError, match=r"ends in \.so, \.o or \.pkg, not to 'model\.dll'"):
        model.export(tmp_path / "model.dll")
    with pytest.raises(GraphError, match=r"several models are .* \.so or \.o, not to 'both\.pkg'"):
        einkorn.graph.export([model, model], tmp_path / "both.pkg", names=["one", "two"])
