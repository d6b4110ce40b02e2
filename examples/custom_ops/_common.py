"""What the example programs share: running one check twice, from kernel sources and from a package without them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from einkorn.compiler.build import build_package

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
DATA = HERE / "data"


def run_both_ways(file: str, check: Callable[[str], str]) -> None:
    """Runs `check(extension)` with a kernel file, then with a package of it whose sources are gone.

    Args:
        file: the name of a file in kernels/.
        check: builds and runs a graph with `custom_extensions=[extension]`, and says what it found.
    """
    print(f"{Path(file).stem} from kernels/{file}: {check(str(KERNELS / file))}")
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "kernels")
        sources.mkdir()
        shutil.copy(KERNELS / file, sources)
        package = Path(folder, file).with_suffix(".pkg")
        build_package(source=str(sources), output=str(package), targets=["host"])
        shutil.rmtree(sources)
        print(f"{package.stem} from {package.name} without sources: {check(str(package))}")


def compare(result: np.ndarray, expected: np.ndarray, tolerance: float = 0.0) -> str:
    """`matches NumPy ...`.

    Raises:
        AssertionError: an element differs by more than `tolerance`, or shapes or dtypes differ.
    """
    assert result.dtype == expected.dtype and result.shape == expected.shape, (result.dtype, result.shape)
    if tolerance == 0.0:
        np.testing.assert_array_equal(result, expected)
        return "matches NumPy, bit for bit"
    difference = float(np.abs(result.astype(np.float64) - expected.astype(np.float64)).max())
    assert difference <= tolerance, f"differs from NumPy by {difference}"
    return f"matches NumPy (largest difference {difference:.1e})"


def output_folder() -> Path:
    """Where pictures go: output/ in the present folder."""
    folder = Path("output")
    folder.mkdir(exist_ok=True)
    return folder
