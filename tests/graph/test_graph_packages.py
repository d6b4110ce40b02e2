"""Packages that hold whole graphs: exported, loaded without a compiler, checked, shown, and refused."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import GraphError, PackageError
from einkorn.dsl.package.archive import PAGE
from einkorn.dsl.package.container import read_package
from einkorn.dsl.types.dtype import DType
from einkorn.graph import DeviceRef, Graph, InferenceSession, TensorType, Weight, ops

HOST = DeviceRef.CPU()
TABLE = np.arange(640, dtype=np.float32).reshape(10, 64) / 7


def network(x: Any) -> Any:
    """A constant, a weight, and several groups of kernels."""
    weight = Weight("w", DType.float32, [64, 32], HOST)
    table = ops.constant(TABLE, DType.float32, HOST)
    rows = ops.gather(table, ops.constant(np.array([3, 1], np.int64), DType.int64, HOST), 0)
    y = ops.matmul(x + ops.sum(rows, 0), weight)
    return ops.softmax(y), ops.argmax(y, -1)


def model(session: InferenceSession | None = None) -> Any:
    graph = Graph("net", network, [TensorType(DType.float32, ("n", 64), HOST)])
    weights = {"w": np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)}
    return (session or InferenceSession()).load(graph, weights_registry=weights)


def inputs(n: int = 5) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 64), np.float32)


def exported(path: Path, **options: Any) -> Path:
    model().export(path, **options)
    return path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("packages") / "net.pkg")


def test_results_are_those_of_the_model(package: Path) -> None:
    loaded, own = InferenceSession().load(package), model()
    for n in (1, 5, 0, 33):
        for one, other in zip(loaded(inputs(n)), own(inputs(n)), strict=True):
            np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
    assert loaded.input_names == own.input_names and str(loaded.ir.inputs) == str(own.ir.inputs)
    np.testing.assert_array_equal(
        loaded(np.asfortranarray(inputs(5)))[0].to_numpy(), own(np.asfortranarray(inputs(5)))[0].to_numpy()
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("targets", [("x86-64-v3",), ("x86-64-v4", "x86-64-v2"), ("x86-64-v2", "aarch64")])
def test_weights_in_panels_for_other_machines(targets: tuple[str, ...], dtype: str, tmp_path: Path) -> None:
    check_panels(targets, dtype, tmp_path)


def test_weights_in_panels(tmp_path: Path) -> None:
    check_panels((), "float32", tmp_path)


def check_panels(targets: tuple[str, ...], dtype: str, tmp_path: Path) -> None:
    """Code of the package reads them, and code that is made here for inputs with steps; they are in the file once."""
    kind, path = DType[dtype], tmp_path / "panels.pkg"
    weight = np.random.default_rng(0).standard_normal((300, 1024)).astype(kind.to_numpy())

    def product(x: Any) -> Any:
        return ops.relu(ops.matmul(x, ops.transpose(Weight("w", kind, weight.shape, HOST), 0, 1)) + 1)

    graph = Graph("panels", product, [TensorType(kind, ("n", 1024), HOST)])
    own = InferenceSession().load(graph, weights_registry={"w": weight})
    own.export(path, targets=targets)
    assert path.stat().st_size < 1.1 * weight.nbytes + 200_000 * (len(targets) or 1)
    loaded = InferenceSession().load(path)
    few = np.ones((2, 1024), kind.to_numpy())
    interpreted = InferenceSession(interpret=True).load(path)(few)[0].to_numpy().astype(np.float64)
    tolerance = 1e-3 if dtype == "float32" else 0.5
    np.testing.assert_allclose(interpreted, loaded(few)[0].to_numpy().astype(np.float64), rtol=0, atol=tolerance)
    for rows in (1, 2, 3, 4, 9, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 2048)).astype(kind.to_numpy())
        for part in (x[:, ::2], np.ascontiguousarray(x[:, :1024])):
            wanted = np.maximum(part.astype(np.float64) @ weight.astype(np.float64).T + 1, 0)
            for each in (loaded, own):
                got = each(part)[0].to_numpy().astype(np.float64)
                np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


def test_interpreted_and_checked_sessions(package: Path) -> None:
    expected = model()(inputs(3))[0].to_numpy()
    for session in (InferenceSession(interpret=True), InferenceSession(checks="all")):
        np.testing.assert_allclose(session.load(str(package))(inputs(3))[0].to_numpy(), expected, rtol=1e-5)


def test_pickled_models_read_their_package_again(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "net.pkg"
    moved.write_bytes(package.read_bytes())
    monkeypatch.chdir(tmp_path)
    loaded = InferenceSession(num_threads=1).load("net.pkg")
    data = pickle.dumps(loaded)
    assert len(data) < 4096  # without the weights
    monkeypatch.chdir("/")
    for each in (pickle.loads(data), copy.copy(loaded), copy.deepcopy(loaded)):
        np.testing.assert_array_equal(each(inputs())[0].to_numpy(), loaded(inputs())[0].to_numpy())
    moved.unlink()
    with pytest.raises(PackageError, match="cannot be read"):
        pickle.loads(data)


def test_it_runs_where_no_compiler_is_installed(package: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", inputs())
    script = """
import sys
sys.modules.update({"llvmlite": None, "mlir": None})  # their imports fail
import numpy as np
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession
model = InferenceSession().load(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2]))[0].to_numpy())
for size in (63, 64):
    try:
        model(np.zeros((size, 5), np.float32).T)
    except EinkornError as error:
        print(error.code, error.hint, file=sys.stderr)
"""
    environment = os.environ | {"EINKORN_NO_JIT": "1", "EINKORN_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", script, str(package), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "regions run on one thread" in done.stderr
    assert "EK0454 None\nEK0512 make the inputs contiguous: np.ascontiguousarray(x)" in done.stderr  # sizes come first
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model()(inputs())[0].to_numpy())


def test_what_is_in_the_file(package: Path) -> None:
    opened = read_package(package)
    assert opened.manifest.format == (1, 4) and opened.verify() == 5
    record = opened.graph("net")
    assert [(each.name, each.dtype, each.shape) for each in record.inputs] == [("x", "float32", ("n", "64"))]
    assert [(each.dtype, each.shape) for each in record.outputs] == [("float32", ("n", "32")), ("int64", ("n", "1"))]
    assert record.weights is not None and record.arena is None
    for each in (record.code[0].code, record.weights):
        assert opened.archive.members[each.member].start % PAGE == 0


def test_inputs_of_a_function_of_any_number(tmp_path: Path) -> None:
    types = [TensorType(DType.float32, ["n"], HOST)] * 3
    model = InferenceSession().load(Graph("total", lambda x, *rest: sum(rest, x), types))
    model.export(tmp_path / "total.pkg")
    model.export(tmp_path / "total.o", header=tmp_path / "total.h")
    assert "const float *x, const float *input1, const float *input2" in (tmp_path / "total.h").read_text()
    assert [each.name for each in read_package(tmp_path / "total.pkg").graph().inputs] == ["x", "input1", "input2"]
    three, two = np.ones(3, np.float32), np.ones(2, np.float32)
    for each in (model, InferenceSession().load(str(tmp_path / "total.pkg"))):
        np.testing.assert_array_equal(each(three, three, three)[0].to_numpy(), 3)
        with pytest.raises(GraphError, match="'x' and 2 on axis 0 of 'input2'"):
            each(three, three, two)


def test_the_same_model_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert exported(tmp_path / "net.pkg").read_bytes() == package.read_bytes()
    assert str(Path(__file__).parent).encode() not in package.read_bytes()


def test_several_targets(tmp_path: Path) -> None:
    opened = read_package(exported(tmp_path / "both.pkg", targets=["aarch64", "x86-64-v2", "x86-64-v3"], name="other"))
    assert [each.target for each in opened.graph().code] == ["aarch64", "x86-64-v2", "x86-64-v3"]
    loaded = InferenceSession().load(opened.path, name="other")
    np.testing.assert_allclose(loaded(inputs())[0].to_numpy(), model()(inputs())[0].to_numpy(), rtol=1e-5)


def test_pkg_info_shows_graphs(package: Path, tmp_path: Path) -> None:
    def shown(path: Path) -> str:
        command = [sys.executable, "-m", "einkorn", "pkg", "info", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    text = shown(package)
    for expected in ("format 1.4", "net", "[n, 64]", "int64", "[n, 32]", "depends on its inputs", "KiB"):
        assert expected in text, text
    static = Graph("static", lambda x: ops.softmax(ops.matmul(x, x)), [TensorType(DType.float32, (8, 8), HOST)])
    InferenceSession().load(static).export(tmp_path / "static.pkg", output_names=["probabilities"])
    text = shown(tmp_path / "static.pkg")
    assert "probabilities" in text and "[8, 8]" in text and "depends" not in text
    done = subprocess.run(
        [sys.executable, "-m", "einkorn", "pkg", "verify", str(package)], capture_output=True, text=True
    )
    assert "all 5 members match the manifest" in done.stdout


def test_a_graph_that_is_not_there(package: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="has no graph 'nett'") as caught:
        InferenceSession().load(package, name="nett")
    assert caught.value.code == "EK0560" and "net" in str(caught.value.hint)
    with pytest.raises(PackageError, match="cannot be read"):
        InferenceSession().load(tmp_path / "absent.pkg")


@pytest.mark.parametrize("kind", ["graph", "code", "weights"])
def test_members_that_were_changed_are_refused(package: Path, tmp_path: Path, kind: str) -> None:
    opened = read_package(package)
    record = opened.graph()
    member = {"graph": record.graph, "code": record.code[0].code, "weights": record.weights}[kind]
    assert member is not None
    place = opened.archive.members[member.member]
    data = bytearray(package.read_bytes())
    data[place.start + place.size // 2] ^= 1
    (tmp_path / "net.pkg").write_bytes(data)
    with pytest.raises(PackageError) as caught:
        InferenceSession().load(tmp_path / "net.pkg")
    assert caught.value.code in ("EK0553", "EK0559")


def test_json_of_another_form_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[Any] = [{}, [], {"kernels": [], "graph": {}, "fuse": True, "checks": "safe", "interpret": False}]
    for data in wrong:
        monkeypatch.setattr("einkorn.dsl.package.container.Package.graph_json", lambda *_, data=data: data)
        with pytest.raises(PackageError, match="is not a graph as Einkorn writes it"):
            InferenceSession().load(package)
