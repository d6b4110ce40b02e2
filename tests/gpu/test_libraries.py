"""The drivers of GPUs, without a GPU: the real `cuda.bindings` and `hip` find a library that the test has made.

Each runs the checks of `device/` in a process of its own, since a process keeps the libraries it has found.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import fake_hip, fake_libraries, fake_nccl

HERE = Path(__file__).parent
TESTS = HERE.parent


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def checks(folder: Path, plugin: str, *files: str) -> str:
    """Runs files of checks under a plugin of pytest; gives what it prints."""
    options = [
        "-p",
        plugin,
        "-p",
        "no:cacheprovider",
        "-o",
        "python_files=check_*.py",
        "-o",
        "python_functions=check_*",
    ]
    done = run(folder, "-m", "pytest", "-v", *options, *(str(HERE / "device" / name) for name in files))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `libcuda.so.1`."""
    folder = tmp_path_factory.mktemp("cuda")
    fake_libraries.write_cuda(folder)
    return folder


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the libraries are ELF files")


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `libamdhip64.so`."""
    folder = tmp_path_factory.mktemp("hip")
    fake_libraries.write_hip(folder, fake_hip.NAMES)
    return folder


@pytest.mark.skipif(platform.machine() != "x86_64", reason="hip-python is made for x86-64 alone")
def test_hip(hip: Path) -> None:
    assert "passed" in checks(hip, "support.fake_hip", "check_buffers.py", "check_calls.py")


def test_cuda(cuda: Path) -> None:
    assert "passed" in checks(
        cuda, "support.fake_cuda", "check_buffers.py", "check_graphs.py", "check_ops.py", "check_calls.py"
    )


def test_ranks_by_nccl(tmp_path: Path) -> None:
    fake_libraries.write_cuda(tmp_path)
    fake_libraries.write_table(tmp_path / "libnccl.so.2", fake_nccl.NAMES)
    assert "passed" in checks(tmp_path, "support.fake_nccl", "check_nccl.py")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="hip-python is made for x86-64 alone")
def test_ranks_by_rccl(tmp_path: Path) -> None:
    fake_libraries.write_hip(tmp_path, fake_hip.NAMES)
    fake_libraries.write_table(tmp_path / "librccl.so.1", fake_nccl.NAMES)
    assert "passed" in checks(tmp_path, "support.fake_rccl", "check_nccl.py")


def test_reports_of_kernels(cuda: Path) -> None:
    assert "passed" in checks(cuda, "support.fake_cuda", "check_reports.py")


def test_hardware_is_missed_in_words(tmp_path: Path) -> None:
    done = run(tmp_path, str(HERE / "hardware.py"))
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("not run: there is no gpu:0 to run on") and "cuda-bindings" in done.stdout
    done = run(tmp_path, str(TESTS.parent / "benchmarks" / "gpu.py"))
    assert done.returncode == 0 and done.stdout.startswith("not run: there is no gpu:0 to run on")


FIGURES = """
import sys
from support import fake_cuda
fake_cuda.install().runner = None  # kernels that do nothing
sys.argv[1:] = ["--small", "--json", "{path}"]
import runpy
runpy.run_path("{program}", run_name="__main__")
"""


def test_figures_are_complete(cuda: Path, tmp_path: Path) -> None:
    """Times are never judged here, and kernels compute nothing."""
    path, program = tmp_path / "gpu.json", TESTS.parent / "benchmarks" / "gpu.py"
    done = run(cuda, "-c", FIGURES.format(path=path, program=program))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(path.read_text())
    assert result["device"]["name"] == "Fake GPU" and "cuda-bindings" in result["versions"]
    sections = {row["section"] for row in result["rows"]}
    assert sections == {"copies", "launch", "products", "rows", "elementwise"}
    ours = [row for row in result["rows"] if row["name"] not in ("cuBLAS by PyTorch", "Triton")]
    assert [row for row in ours if row["failed"]] == []
    assert len(ours) > 110 and all(row["low"] <= row["median"] <= row["high"] for row in ours)


def script(folder: Path, text: str) -> str:
    done = run(folder, "-c", text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COUNT = """
from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import CPU, Accelerator, accelerator_count, scan_available_devices
assert accelerator_count() == 0 and scan_available_devices() == [CPU()]
try:
    Accelerator(0)
except DeviceError as error:
    print(error.code, error.message, error.hint, sep="|")
"""


@pytest.mark.parametrize(
    "module, library, extra", [("cuda", "libcuda.so.1", "cuda"), ("rocm", "libamdhip64.so", "rocm")]
)
def test_a_library_without_its_package(module: str, library: str, extra: str, cuda: Path, hip: Path) -> None:
    folder = cuda if extra == "cuda" else hip
    code, message, hint = script(folder, f"import sys\nsys.modules['{module}'] = None\n{COUNT}").strip().split("|")
    assert code == "EK0831" and message.startswith(f"the library {library} is here")
    assert hint == f"pip install {'cuda-bindings' if extra == 'cuda' else 'hip-python'}"


RUNTIME = """
import ctypes
from support import fake_hip
gpu = fake_hip.install({path!r})
{more}
from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import Accelerator, Buffer, DType, accelerator_count
from einkorn.graph.driver.gpu_names import loaded_files
try:
    print(accelerator_count(), Accelerator(0).api, Buffer.zeros((3,), DType.float32, Accelerator(0)).to_numpy().sum())
except DeviceError as error:
    print(error.code, *error.notes, sep="|")
print(loaded_files("libamdhip64.so"))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="hip-python is made for x86-64 alone")
def test_the_runtime_that_the_process_has_is_used(hip: Path, tmp_path: Path) -> None:
    """Another package has loaded its own, by another name; that in the folder of the system is left alone."""
    own = shutil.copy(hip / "libamdhip64.so", tmp_path / "libamdhip64.so.7.1")
    used, files = script(hip, RUNTIME.format(path=str(own), more="")).splitlines()
    assert used == "2 hip 0.0" and files == str([str(own)])
    second = f"ctypes.CDLL({str(hip / 'libamdhip64.so')!r})"
    said, files = script(hip, RUNTIME.format(path=str(own), more=second)).splitlines()
    refused = "|".join(["EK0838", *sorted([str(own), str(hip / "libamdhip64.so")])])
    assert said == refused
    later = f"from einkorn.graph import accelerator_count\naccelerator_count()\n{second}"
    said, files = script(hip, RUNTIME.format(path=str(own), more=later)).splitlines()
    assert said == refused


def test_a_driver_that_does_not_start(cuda: Path) -> None:
    start = "from support import fake_cuda\nfake_cuda.STARTS = 999\nfake_cuda.install()\n"
    code, message, hint = script(cuda, start + COUNT).strip().split("|")
    assert (code, hint) == ("EK0831", "see `nvidia-smi`") and "CUDA_ERROR_UNKNOWN" in message


def test_a_driver_without_a_gpu(cuda: Path) -> None:
    start = "from support import fake_cuda\nfake_cuda.STARTS = 100\nfake_cuda.install()\n"
    code, message, _ = script(cuda, start + COUNT).strip().split("|")
    assert code == "EK0801" and message == "there is no gpu:0 to run on: this machine has none"


def test_a_machine_without_a_gpu_loads_nothing_for_them(tmp_path: Path) -> None:
    """Neither packages nor our own files that need them, though the packages are installed."""
    text = """
import sys
import numpy as np
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType
types = [TensorType(DType.float32, [3], DeviceRef.CPU())]
print(InferenceSession().load(Graph("g", lambda x: x + 1.0, types))(np.ones(3, np.float32))[0].to_numpy().sum())
"""
    names = "cuda|hip|rocm|einkorn.graph.driver.(cuda|hip|gpu|allocator)|einkorn.compiler.runtime.launchers"
    search = f"import re\nprint([m for m in sys.modules if re.fullmatch(r'({names})([.].*)?', m)])"
    assert script(tmp_path, text + COUNT + search).splitlines()[0] == "6.0"
    assert script(tmp_path, text + COUNT + search).splitlines()[-1] == "[]"
