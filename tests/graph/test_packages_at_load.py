"""Where a graph's kernels come from: packages without their sources, files, folders, several of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.compiler.targets import host
from einkorn.dsl.diagnostics.errors import CompileError, PackageError
from einkorn.dsl.package.archive import Archive, write_archive
from einkorn.graph import DeviceRef, DType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading import load as loading

HOST = DeviceRef.CPU()
SOURCE = '''
from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register
{imports}
T = TypeVar("T", bound=Floating)


@register("{name}")
def kernel(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, factor: float = 2.0) -> None:
    """{factor} times x, and something."""
    foreach(out, lambda i: {body})
'''
pytestmark = pytest.mark.skipif(not host().name.startswith("x86-64") and host().name != "host", reason="x86-64 only")


def kernel_text(name: str, body: str = "x[i] * T(factor)", imports: str = "") -> str:
    return SOURCE.format(name=name, body=body, imports=imports, factor="{factor}")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    with graphs.cache_in(tmp_path / "cache"):
        yield


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `demo.pkg` for this machine, `gpu.pkg` without CPU code, and `bare.pkg` without any code."""
    folder = tmp_path_factory.mktemp("packages")
    sources = folder / "kernels"
    sources.mkdir()
    (sources / "scale.py").write_text(kernel_text("mylib::scale", "scaled(x[i], factor)", "from helpers import scaled"))
    (sources / "shift.py").write_text(kernel_text("shift", "x[i] + T(factor)"))
    (sources / "helpers.py").write_text("def scaled(value, factor):\n    return value * factor\n")
    wanted = [
        {"dtypes": {"T": "float32"}, "ranks": {"s": rank}, "parameters": {"factor": factor}}
        for rank, factor in ((1, 2.0), (2, 2.0), (1, 3.0))
    ]
    listed = folder / "instances.json"
    listed.write_text(json.dumps({"mylib::scale": wanted, "shift": wanted}))
    build_package(str(sources), str(folder / "demo.pkg"), ["host", "sm_80"], instances=str(listed))
    build_package(str(sources), str(folder / "gpu.pkg"), ["sm_80"], instances=str(listed))
    build_package(str(sources), str(folder / "bare.pkg"), [])
    shutil.rmtree(sources)
    return folder


def scale(package: Any, dtype: Any = np.float32, rank: int = 1, op: str = "mylib::scale", **parameters: Any) -> Model:
    shape = ["m", "n"][:rank]
    return graphs.load(
        lambda x: ops.custom(op, device=HOST, values=[x], parameters=parameters), (dtype, shape), extensions=package
    )


def doubled(model: Model, dtype: Any = np.float32, rank: int = 1, factor: float = 2) -> bool:
    x = graphs.numbers((5, 7)[:rank], dtype, 1)
    return bool((model(x)[0].to_numpy() == x * dtype(factor)).all())


# *** packages ***


def test_ready_made_code_serves_its_instances_without_a_compiler(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    for rank, factor in ((1, 2.0), (2, 2.0), (1, 3.0)):
        model = scale([packages / "demo.pkg"], rank=rank, factor=factor)
        assert str(packages / "demo.pkg") in model.code.tier
        assert doubled(model, rank=rank, factor=factor)
    assert doubled(scale([packages / "demo.pkg"]))  # the default of the parameter


def test_what_is_not_ready_is_refused_without_a_compiler(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    for keywords in ({"dtype": np.float64}, {"factor": 4.0}, {"rank": 0}):
        with pytest.raises(PackageError) as caught:
            scale([packages / "demo.pkg"], **keywords)
        assert caught.value.code == "EK0512"
        assert "mylib::scale" in str(caught.value) and "EINKORN_NO_JIT" in str(caught.value)
        assert "einkorn build" in str(caught.value)
    with pytest.raises(PackageError, match="EINKORN_NO_JIT"):
        scale([packages / "gpu.pkg"])


@pytest.mark.parametrize("package", ("demo.pkg", "gpu.pkg", "bare.pkg"))
def test_other_instances_are_compiled_from_the_program(packages: Path, package: str) -> None:
    assert not (packages / "kernels").exists()
    for keywords in ({"dtype": np.float64}, {"factor": 4.0}, {"rank": 2, "dtype": np.float16}):
        model = scale([packages / package], **keywords)
        assert model.code.tier == "compiled"
        assert doubled(model, keywords.get("dtype", np.float32), keywords.get("rank", 1), keywords.get("factor", 2))
    if package != "demo.pkg":
        assert scale([packages / package]).code.tier == "compiled"


def test_ops_of_a_package_fuse_with_others(packages: Path) -> None:
    def forward(x: Any) -> Any:
        scaled = ops.custom("mylib::scale", device=HOST, values=[x + 1.0])[0]
        return ops.relu(ops.custom("shift", device=HOST, values=[scaled], parameters={"factor": -4.0})[0])

    model = graphs.load(forward, (np.float32, ["n"]), extensions=packages / "demo.pkg")
    x = graphs.numbers((1000,), np.float32, 2)
    expected = np.maximum((x + np.float32(1)) * np.float32(2) - np.float32(4), 0)
    np.testing.assert_array_equal(model(x)[0].to_numpy(), expected)
    assert model.code.plan.entry is not None and len(model.code.plan.entry.groups) == 1


def test_the_log_says_where_code_comes_from(packages: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "einkorn.load")
    scale([packages / "demo.pkg"])
    assert "ready-made code" in caplog.text and "demo.pkg" in caplog.text
    scale([packages / "demo.pkg"], np.float64)
    assert "compiling" in caplog.text
    caplog.clear()
    scale([packages / "demo.pkg"], np.float64)
    assert "from the cache" in caplog.text


def _changed(package: Path, target: Path, member_end: str) -> Path:
    """The package with one byte changed in a member; the container itself is in order."""
    archive = Archive(package)
    with zipfile.ZipFile(package) as file:
        members = [(name, bytearray(archive.read(name))) for name in file.namelist()]
    for name, data in members:
        if name.endswith(member_end):
            data[len(data) // 2] ^= 0x40
    write_archive(target, [(name, bytes(data)) for name, data in members])
    return target


def test_changed_code_is_never_mapped(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = _changed(packages / "demo.pkg", tmp_path / "changed.pkg", ".so")
    opened: list[str] = []
    true_open = loading.open_code
    monkeypatch.setattr(
        loading, "open_code", lambda files, *rest: opened.append(str(files[0].path)) or true_open(files, *rest)
    )
    with pytest.raises(PackageError) as caught:
        scale([changed])
    assert caught.value.code == "EK0559" and not opened


def test_a_changed_program_is_refused(packages: Path, tmp_path: Path) -> None:
    changed = _changed(packages / "bare.pkg", tmp_path / "changed.pkg", "scale.json")
    with pytest.raises(PackageError) as caught:
        scale([changed])
    assert caught.value.code == "EK0559"


def test_a_damaged_package_is_refused_when_the_graph_is_made(packages: Path, tmp_path: Path) -> None:
    data = (packages / "demo.pkg").read_bytes()
    for name, content in (("short", data[: len(data) // 2]), ("empty", b""), ("text", b"hello"), ("late", data[100:])):
        broken = tmp_path / f"{name}.pkg"
        broken.write_bytes(content)
        with pytest.raises(PackageError) as caught:
            graphs.build(lambda x: x, (np.float32, ["n"]), extensions=[broken])
        assert caught.value.code.startswith("EK05")


def test_ready_made_code_in_a_new_process_needs_no_mlir(packages: Path, tmp_path: Path) -> None:
    script = f"""
import sys
import numpy as np
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
kind = TensorType(DType.float32, ["n"], DeviceRef.CPU())
graph = Graph("g", forward=lambda x: ops.custom("mylib::scale", device=DeviceRef.CPU(), values=[x]), input_types=[kind],
              custom_extensions=[{str(packages / "demo.pkg")!r}])
print(InferenceSession().load(graph)(np.ones(3, np.float32))[0].to_numpy().tolist(), "torch_mlir" in sys.modules)
"""
    done = graphs.python(script, EINKORN_NO_JIT="1", EINKORN_CACHE_DIR=str(tmp_path / "other"))
    assert done.stdout.strip() == "[2.0, 2.0, 2.0] False", done.stderr


# *** names ***


def test_a_bare_name_is_enough_when_it_is_unique(packages: Path) -> None:
    assert doubled(scale([packages / "demo.pkg"], op="scale"))
    assert doubled(scale([packages / "demo.pkg"], op="mylib::scale"))


def test_an_unknown_op_names_near_ones_and_paths(packages: Path) -> None:
    for wrong in ("mylib::scal", "otherlib::scale", "Shift"):
        with pytest.raises(PackageError) as caught:
            scale([packages / "demo.pkg"], op=wrong)
        assert caught.value.code == "EK0440"
        assert "mylib::scale" in str(caught.value) and "demo.pkg" in str(caught.value)


def test_an_op_in_two_libraries_is_refused(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "again.py").write_text(kernel_text("mylib::scale"))
    with pytest.raises(PackageError) as caught:
        scale([packages / "demo.pkg", tmp_path / "more"])
    assert "mylib::scale" in str(caught.value) and "again.py" in str(caught.value) and "demo.pkg" in str(caught.value)
    # The same library twice is no conflict.
    assert doubled(scale([packages / "demo.pkg", str(packages / "demo.pkg")]))


# *** files and folders ***


@pytest.mark.parametrize("how", ("file", "folder", "text", "list", "relative", "tuple"))
def test_ways_to_name_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "scale.py").write_text(kernel_text("mylib::scale"))
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {
        "file": folder / "scale.py",
        "folder": folder,
        "text": str(folder),
        "list": [str(folder / "scale.py")],
        "relative": "kernels",
        "tuple": (Path("kernels"),),
    }
    model = scale(given[how])
    monkeypatch.chdir("/")
    assert doubled(model)


def test_helper_modules_that_import_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "scale.py").write_text(kernel_text("scale", "outer(x[i], factor)", "from outer_helpers import outer"))
    (folder / "outer_helpers.py").write_text(
        "import inner_helpers as inner\n\n\n"
        "def outer(value, factor):\n    return inner.inner(value, factor) - inner.ZERO\n"
    )
    (folder / "inner_helpers.py").write_text("ZERO = 0\n\n\ndef inner(value, factor):\n    return value * factor\n")
    assert doubled(scale(folder, op="scale"))
    assert doubled(scale(folder / "scale.py", op="scale"))


def _twins(tmp_path: Path, layout: str) -> list[Path]:
    """Two libraries with modules of the same names and other contents: ops `times2` and `times3`."""
    collected = []
    for factor in (2, 3):
        folder = tmp_path / f"root{factor}" / "kernels"
        helper, imports = folder / "helpers.py", "from helpers import twist"
        if layout == "package":
            imports = "from .helpers import twist"
        elif layout == "nested":
            helper, imports = folder / "parts" / "helpers.py", "from parts.helpers import twist"
        elif layout == "constant":
            imports = "from helpers import FACTOR"
        helper.parent.mkdir(parents=True)
        if layout == "package":
            (folder / "__init__.py").write_text("")
        if layout == "nested":
            (helper.parent / "__init__.py").write_text("")
        helper.write_text(f"FACTOR = {factor}\n\n\ndef twist(value):\n    return value * FACTOR\n")
        body = "x[i] * FACTOR" if layout == "constant" else "twist(x[i])"
        (folder / "kernel.py").write_text(kernel_text(f"times{factor}", body, imports))
        collected.append(folder)
    return collected


@pytest.mark.parametrize("layout", ("plain", "constant", "package", "nested"))
def test_libraries_with_modules_of_the_same_names(tmp_path: Path, layout: str) -> None:
    second, third = _twins(tmp_path, layout)
    assert doubled(scale(second, op="times2"))
    assert doubled(scale(third, op="times3"), factor=3)
    model = graphs.load(
        lambda x: [ops.custom(f"times{k}", device=HOST, values=[x])[0] for k in (3, 2)],
        (np.float32, ["n"]),
        extensions=[third, second],
    )
    triple, double = model(np.float32([1, 5]))
    assert (triple.to_numpy().tolist(), double.to_numpy().tolist()) == ([3, 15], [2, 10])


def test_a_helper_that_has_the_name_of_a_module_of_the_program(tmp_path: Path) -> None:
    import sys
    import types

    folder, _ = _twins(tmp_path, "plain")
    theirs = types.ModuleType("helpers")
    sys.modules["helpers"] = theirs
    try:
        assert doubled(scale(folder, op="times2"))
        assert sys.modules["helpers"] is theirs
    finally:
        del sys.modules["helpers"]


@pytest.mark.parametrize("layout", ("file", "package"))
def test_kernels_installed_next_to_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """As in site-packages: what lies next to them is the program's, not theirs, and numpy cannot be imported twice."""
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "numpy").symlink_to(Path(np.__file__).parent)
    monkeypatch.syspath_prepend(str(site))
    text = kernel_text("halves", "x[i] * T(HALF)", "import numpy as np\n\nHALF = float(np.float32(0.5))\n")
    library = site / "my_kernels.py"
    if layout == "package":
        library = site / "my_kernels"
        library.mkdir()
        (library / "__init__.py").write_text("")
        (library / "halves.py").write_text(text)
    else:
        library.write_text(text)
    assert doubled(scale(library, op="halves"), factor=0.5)


def test_loading_leaves_the_interpreter_as_it_was(tmp_path: Path) -> None:
    import sys

    folder, _ = _twins(tmp_path, "plain")
    path, cwd = list(sys.path), os.getcwd()
    assert doubled(scale(folder, op="times2"))
    assert (sys.path, os.getcwd()) == (path, cwd)
    assert "helpers" not in sys.modules and "kernel" not in sys.modules


def test_a_broken_library_says_where_and_can_be_mended(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    file = folder / "scale.py"
    for text, kind in (
        ("def broken(:\n", CompileError),
        (kernel_text("scale", imports="import nothing_of_this_name"), CompileError),
        (kernel_text("scale", imports="1 / 0"), CompileError),
        ("x = 1\n", PackageError),
    ):
        file.write_text(text)
        with pytest.raises(kind) as caught:
            scale(folder, op="scale")
        if kind is CompileError:
            assert caught.value.place is not None and caught.value.place.file == str(file)
    file.write_text(kernel_text("scale"))
    assert doubled(scale(folder, op="scale"))
    with pytest.raises(PackageError):
        scale(tmp_path / "missing", op="scale")


def test_dtypes_as_parameters_and_several_outputs(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    file.write_text("""
from einkorn.dsl import DType, InputTensor, OutputTensor, float64, foreach, register


@register("parts")
def parts(whole: OutputTensor[float64, "n"], rest: OutputTensor[float64, "n"], x: InputTensor[float64, "n"], *,
          kind: DType, negate: bool = False) -> None:
    def element(i):
        near = x[i].cast(kind).cast(float64)
        return (-near if negate else near), x[i] - near

    foreach((whole, rest), element)
""")
    x = np.array([1.5, 2.75, -3.25])

    def run(**parameters: Any) -> list[Any]:
        model = graphs.load(
            lambda x: ops.custom("parts", device=HOST, values=[x], parameters=parameters),
            (np.float64, ["n"]),
            extensions=file,
        )
        return [b.to_numpy().tolist() for b in model(x)]

    assert run(kind=DType.int32) == [[1, 2, -3], [0.5, 0.75, -0.25]]
    assert run(kind=DType.int32, negate=True) == [[-1, -2, 3], [0.5, 0.75, -0.25]]
    assert run(kind=DType.float32) == [x.tolist(), [0, 0, 0]]
