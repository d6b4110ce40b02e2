"""The cache behind `load`: keyed by content, shared by processes, and harmless when it is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.environment.cache import CacheWarning
from einkorn.graph import DeviceRef, InferenceSession, ops
from einkorn.graph.driver.device import CodeFile
from einkorn.graph.engine.model import Model
from einkorn.graph.loading import load as loading

HOST = DeviceRef.CPU()
KERNEL = '''"""Kernels."""

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
{imports}

@register("edited")
def edited(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    {comment}
    foreach(out, lambda i: {body})
'''
X = np.arange(1, 6, dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, which code is kept in."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    # As for most users: bytecode is written, and must not be believed.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    return tmp_path / "kernels" / "edited.py"


def write(file: Path, body: str, imports: str = "", comment: str = "# as it is") -> None:
    file.write_text(KERNEL.format(body=body, imports=imports, comment=comment))


def load(library: Path) -> Model:
    return graphs.load(
        lambda x: ops.custom("edited", device=HOST, values=[x]), (np.float32, ["n"]), extensions=[library]
    )


def value(library: Path) -> float:
    """What the kernel gives for 1."""
    return float(load(library)(X)[0].to_numpy()[0])


def entries(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# *** edits ***


def test_an_edited_body_counts_at_once(file: Path) -> None:
    """Same length, same second, same process, and nothing but the last digit differs."""
    for number in (1, 2, 3, 2):
        write(file, f"x[i] + {number}.0")
        assert value(file) == 1 + number
        assert value(file.parent) == 1 + number


def test_an_edit_that_keeps_size_and_time_counts(file: Path) -> None:
    write(file, "x[i] + 1.0")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert value(file) == 2
    write(file, "x[i] + 7.0")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert value(file) == 8


def test_a_graph_keeps_the_kernels_it_was_built_with(file: Path) -> None:
    write(file, "x[i] + 1.0")
    model = load(file)
    write(file, "x[i] + 2.0")
    other = load(file)
    file.unlink()
    assert model(X)[0].to_numpy()[0] == 2 and other(X)[0].to_numpy()[0] == 3


def test_comments_places_and_names_do_not_count(file: Path, folder: Path, tmp_path: Path) -> None:
    write(file, "x[i] * 3.0")
    assert value(file) == 3
    before = entries(folder)
    assert before
    write(file, "x[i] * 3.0", comment="# something else\n    # on two lines")
    assert value(file) == 3
    write(file, "(x[i]  *  3.0)", imports="import math\n\nUNUSED = math.pi\n\n\n")
    assert load(file).code.tier == "cache"
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copy(file, moved / "renamed.py")
    assert load(moved).code.tier == "cache"
    assert entries(folder) == before


@pytest.mark.parametrize("kind", ("function", "constant", "moved", "deep", "default", "module"))
def test_an_edited_helper_counts(file: Path, kind: str) -> None:
    helper, deep = file.parent / "helper_module.py", file.parent / "deep_module.py"
    writers: dict[str, tuple[str, str, Callable[[int], str]]] = {
        "function": (
            "from helper_module import twist",
            "twist(x[i])",
            lambda n: f"def twist(v):\n    return v * {n}.0\n",
        ),
        "constant": ("from helper_module import SCALE", "x[i] * SCALE", lambda n: f"SCALE = {n}.0\n"),
        "module": ("import helper_module", "x[i] * helper_module.SCALE", lambda n: f"SCALE = {n}.0\n"),
        "moved": (
            "from helper_module import twist",
            "twist(x[i])",
            lambda n: "def other(v):\n    return v * 100.0\n\n\n" * (n % 2) + f"def twist(v):\n    return v * {n}.0\n",
        ),
        "default": (
            "from helper_module import twist",
            "twist(x[i])",
            lambda n: f"def twist(v, scale={n}.0):\n    return v * scale\n",
        ),
        "deep": ("from helper_module import twist", "twist(x[i])", lambda n: f"SCALE = {n}.0\n"),
    }
    imports, body, text = writers[kind]
    write(file, body, imports)
    target = helper
    if kind == "deep":
        helper.write_text("import deep_module\n\n\ndef twist(v):\n    return v * deep_module.SCALE\n")
        target = deep
    for number in (2, 3, 4, 3):
        target.write_text(text(number))
        assert value(file) == number
        assert value(file.parent) == number


def test_an_edited_package_folder_counts(file: Path) -> None:
    package = file.parent
    (package / "__init__.py").write_text("SCALE = 2.0\n")
    (package / "more").mkdir()
    (package / "more" / "__init__.py").write_text("")
    (package / "more" / "deep.py").write_text("def twist(v):\n    return v + 1.0\n")
    write(file, "twist(x[i]) * SCALE", "from . import SCALE\nfrom .more.deep import twist\n")
    assert value(package) == 4
    (package / "more" / "deep.py").write_text("def twist(v):\n    return v + 2.0\n")
    assert value(package) == 6
    (package / "__init__.py").write_text("SCALE = 3.0\n")
    assert value(package) == 9
    write(file, "twist(x[i]) - SCALE", "from . import SCALE\nfrom .more.deep import twist\n")
    assert value(package) == 0


def test_parameters_dtypes_and_shapes_are_part_of_the_key() -> None:
    def tier(factor: Any, dtype: Any, shape: Any) -> str:
        model = graphs.load(lambda x: ops.relu(x * factor), (dtype, shape))
        x = np.ones([3 if isinstance(d, str) else d for d in shape], dtype)
        assert (model(x)[0].to_numpy() == np.maximum(x * dtype(factor), 0)).all()
        return model.code.tier

    variants = [(f, d, s) for f in (2.0, -2.0, 0.5) for d in (np.float32, np.float64) for s in (["n"], ["m", "n"], [3])]
    assert [tier(*v) for v in variants] == ["compiled"] * len(variants)
    assert [tier(*v) for v in variants] == ["cache"] * len(variants)
    # Which names the dims have does not change the code, which of them are equal does.
    assert graphs.load(lambda x: x @ x, (np.float32, ["n", "n"])).code.tier == "compiled"
    assert graphs.load(lambda x: x @ x.T, (np.float32, ["m", "n"])).code.tier == "compiled"


def test_large_constants_are_data_and_not_code() -> None:
    for number in range(3):
        weights = np.full(100, float(number))
        model = graphs.load(lambda x, w=weights: x + ops.constant(w), (np.float64, [100]))
        assert model.code.tier == ("cache" if number else "compiled")
        assert (model(np.zeros(100))[0].to_numpy() == number).all()
    for number in (1.0, -0.0, 0.0, 1e-300):
        model = graphs.load(lambda x, n=number: ops.constant(n, x.dtype) / x, (np.float64, [1]))
        assert np.signbit(model(np.ones(1))[0].to_numpy()[0]) == np.signbit(number)


# *** broken and unusable folders ***


def test_damaged_entries_are_replaced(file: Path, folder: Path) -> None:
    write(file, "x[i] * 5.0")
    assert value(file) == 5
    good = entries(folder)
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: bytes(len(data)),
        lambda data: data[: len(data) // 3] + b"\xff\xee" + data[len(data) // 3 + 2 :],
        lambda data: b"[]",
    ]
    for damage in damages:
        for name, data in good.items():
            # Written anew, as a copying tool would: changing mapped code under a running process helps nothing.
            (folder / name).unlink()
            (folder / name).write_bytes(damage(data))
        assert value(file) == 5
        assert value(file) == 5
    for name in list(good)[: len(good) // 2 + 1]:
        (folder / name).unlink()
    assert value(file) == 5
    assert load(file).code.tier == "cache"


def test_entries_of_another_key_are_not_believed(file: Path, folder: Path) -> None:
    write(file, "x[i] * 5.0")
    load(file)
    first = {n for n in entries(folder) if n.endswith(".so")}
    write(file, "x[i] * 6.0")
    load(file)
    (second,) = {n for n in entries(folder) if n.endswith(".so")} - first
    donor = next(n for n in sorted(first))
    data = (folder / donor).read_bytes()
    (folder / second).unlink()
    (folder / second).write_bytes(data)
    assert value(file) == 6


def test_entries_of_another_kind_are_not_believed(file: Path, folder: Path) -> None:
    """Code under the name of metadata and the other way round, both with their seals."""
    write(file, "x[i] * 5.0")
    load(file)
    names = sorted(entries(folder))
    assert {Path(name).suffix for name in names} == {".so", ".json"}
    for name in names:
        donors = [n for n in names if Path(n).suffix != Path(name).suffix]
        for donor in [n for n in donors if Path(n).stem == Path(name).stem] or donors:
            kept, data = (folder / name).read_bytes(), (folder / donor).read_bytes()
            (folder / name).unlink()
            (folder / name).write_bytes(data)
            assert value(file) == 5
            assert (folder / name).read_bytes() == kept


def test_code_that_vanishes_before_it_is_loaded(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process clears the cache between the check and the loading; from then on this process has its own."""
    write(file, "x[i] * 5.0")
    true_open = loading.open_code
    gone: list[Path] = []

    def late(files: list[CodeFile], *rest: Any) -> Any:
        (path,) = [file.path for file in files]
        if folder in path.parents:
            path.unlink()
            gone.append(path)
        return true_open(files, *rest)

    monkeypatch.setattr(loading, "open_code", late)
    for _ in range(3):
        assert value(file) == 5
    assert len(gone) == 1

    def refused(*_: Any) -> Any:
        raise OSError("failed to map segment from shared object")

    write(file, "x[i] * 6.0")
    monkeypatch.setattr(loading, "open_code", refused)
    with pytest.raises(PackageError, match="failed to map segment") as caught:
        value(file)
    assert caught.value.code == "EK0518" and "EINKORN_CACHE_DIR" in str(caught.value)


def test_parameters_are_distinguished_by_their_bits(tmp_path: Path) -> None:
    """0.0 is not -0.0, in memory and in the cache; neither are NaNs of two signs in constants."""
    file = tmp_path / "signs.py"
    file.write_text(
        "from einkorn.dsl import *\n@register('signs')\n"
        "def signs(out: OutputTensor[float64, 'n'], x: InputTensor[float64, 'n'], *, k: float = 0.0):\n"
        "    foreach(out, lambda i: x[i] / k)\n"
    )
    for tier in ("compiled", "cache"):
        for k in (0.0, -0.0):
            model = graphs.load(
                lambda x, k=k: ops.custom("signs", device=HOST, values=[x], parameters={"k": k}),
                (np.float64, ["n"]),
                extensions=[file],
            )
            assert model.code.tier == tier
            assert model(np.ones(2))[0].to_numpy()[1] == np.copysign(np.inf, k)
    for k in (np.nan, -np.nan):
        model = graphs.load(lambda x, k=k: ops.constant(k, x.dtype) + x * 0.0, (np.float64, [1]))
        assert model.code.tier == "compiled"


def test_a_folder_that_cannot_be_used_warns_and_works(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, "x[i] * 5.0")
    (tmp_path / "plain").write_text("a file, not a folder")
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "plain"))
    with pytest.warns(CacheWarning, match="plain"):
        assert value(file) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)  # once is enough
        assert value(file) == 5
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(shared))
    with pytest.warns(CacheWarning, match="shared"):
        assert value(file) == 5
    assert not entries(shared)


def test_without_a_cache_nothing_is_kept(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CACHE", "0")
    write(file, "x[i] * 5.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        assert value(file) == 5
        write(file, "x[i] * 6.0")
        assert value(file) == 6
    assert not folder.exists()


def test_the_folder_may_change_and_vanish(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, "x[i] * 5.0")
    model = load(file)
    shutil.rmtree(folder)
    assert model(X)[0].to_numpy()[0] == 5
    assert value(file) == 5
    assert entries(folder)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "second"))
    assert value(file) == 5
    assert entries(tmp_path / "second")


# *** processes ***

SCRIPT = """
import sys, time
import numpy as np
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

kind = TensorType(DType.float32, ["n"], DeviceRef.CPU())
def forward(x):
    y = ops.custom("edited", device=DeviceRef.CPU(), values=[x])[0]
    return [y, ops.sum(y, axis=None)]
graph = Graph("g", forward=forward, input_types=[kind], custom_extensions=[sys.argv[1]])
model = InferenceSession().load(graph)
y, total = model(np.arange(1, 6, dtype=np.float32))
print(y.to_numpy()[0], total.item(), model.code.tier, "llvmlite" in sys.modules or "torch_mlir" in sys.modules)
"""


def in_process(file: Path, **environment: str) -> list[str]:
    done = graphs.python(SCRIPT, str(file), **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_new_process_finds_what_another_compiled_and_sees_edits(file: Path) -> None:
    """And a warm start loads no compiler."""
    write(file, "x[i] * 5.0")
    assert in_process(file) == ["5.0", "75.0", "compiled", "True"]
    assert in_process(file) == ["5.0", "75.0", "cache", "False"]
    write(file, "x[i] * 6.0")
    assert in_process(file) == ["6.0", "90.0", "compiled", "True"]
    assert in_process(file, EINKORN_NO_JIT="1")[2] == "cache"


def test_eight_processes_start_with_one_empty_cache(file: Path, folder: Path) -> None:
    write(file, "x[i] * 5.0")
    environment = {**os.environ, "EINKORN_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(file)]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.split()[:2] == ["5.0", "75.0"]
    left = entries(folder)
    assert not [name for name in left if "tmp" in Path(name).name]
    assert load(file).code.tier in ("cache", "compiled")
    assert value(file) == 5


def test_threads_that_load_at_the_same_time(tmp_path: Path) -> None:
    """Several libraries at once, with helpers of one name."""
    for number in range(4):
        library = tmp_path / f"library{number}"
        library.mkdir()
        write(library / "edited.py", "twist(x[i])", "from helper_module import twist")
        (library / "helper_module.py").write_text(f"def twist(v):\n    return v * {number + 2}.0\n")

    def work(turn: int) -> bool:
        number = turn % 4
        return value(tmp_path / f"library{number}") == number + 2

    with ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(16)))


def test_the_command_line_shows_and_clears(file: Path, folder: Path) -> None:
    write(file, "x[i] * 5.0")
    model = load(file)

    def cache(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "einkorn", "cache", command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    count = len(entries(folder))
    assert count
    assert re.match(rf"{re.escape(str(folder))}: {count} entr", cache("info"))
    assert f"removed {count} entr" in cache("clear")
    assert not entries(folder)
    assert ": 0 entries" in cache("info")
    assert model(X)[0].to_numpy()[0] == 5
    assert load(file).code.tier == "compiled"


def test_a_warm_load_is_fast(file: Path) -> None:
    """Nothing is compiled, nothing imported."""
    write(file, "x[i] * 5.0")
    graph = graphs.build(
        lambda x: ops.softmax(ops.custom("edited", device=HOST, values=[x])[0]), (np.float32, ["n"]), extensions=[file]
    )
    times = []
    for _ in range(4):
        start = time.perf_counter()
        InferenceSession().load(graph)
        times.append(time.perf_counter() - start)
    assert min(times[1:]) < times[0] / 4
