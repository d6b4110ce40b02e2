"""The GPU kernels of the examples on devices; `tests/gpu` interprets them, and compiles and runs them as PTX, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.gpu_cases import GpuCase
from support.gpu_cases_examples import CASES

from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

pytestmark = pytest.mark.as_shipped
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gpu"
SEEDS = 10
GPU = DeviceRef.GPU()


def test_the_program_runs_all_of_them(tmp_path: Path) -> None:
    """On the processor, and on a simulated GPU that looks for mistakes."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "run.py")], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    for case in CASES:
        assert done.stdout.count(case.name.removeprefix("example[").removesuffix("]").replace("-", " ")) >= 2


def test_the_readme_names_the_program() -> None:
    assert "examples/gpu/run.py" in (EXAMPLES.parents[1] / "README.md").read_text()


def test_every_kernel_file_is_an_example() -> None:
    assert {Path(case.file).name for case in CASES} == {file.name for file in (EXAMPLES / "kernels").glob("*.py")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_order_of_threads_gives_another_result(case: GpuCase) -> None:
    """Ten orders, with everything that a simulated GPU can look for: no report, and the same result."""
    types = [[TensorType(*type, GPU) for type in case.types(arrays)] for arrays in (case.inputs(), case.expected())]
    graph = Graph(
        "example",
        lambda *values: ops.custom(case.op, GPU, values, types[1], parameters=dict(case.params)),
        types[0],
        custom_extensions=[case.path],
    )
    for seed in range(SEEDS):
        device = Accelerator("sim", like="gfx942" if seed % 5 == 4 else "sm_90a", seed=seed, checks="all")
        model = InferenceSession(devices=[device]).load(graph)
        results = model(*(Buffer.from_numpy(array).to(device) for array in case.inputs()))
        case.check([result.to_numpy() for result in results])
