"""Every example program runs, says that it matches NumPy both ways, and writes its pictures."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import graphs, simulated

from einkorn.dsl import DType
from einkorn.dsl.package.library import load_library
from einkorn.testing import check_op

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "custom_ops"
PROGRAMS = sorted(p.name for p in EXAMPLES.glob("*.py") if not p.name.startswith("_") and p.name != "demo.py")
PICTURES = {
    "image_pipeline.py": ["coffee-before.png", "coffee-after.png"],
    "mandelbrot.py": ["mandelbrot.png"],
}


def run(program: str, folder: Path, **environment: str) -> str:
    """The output of a program, run in `folder`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EINKORN_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program)],
        cwd=folder,
        env=clean | {"EINKORN_CACHE_DIR": str(folder / "cache")} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


class Runs:
    """What programs print, each run once, and the folders that they write to.

    Without the cache, so that a package has to bring what it needs: the sources' code would serve it otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: dict[str, str] = {}

    def of(self, program: str) -> tuple[str, Path]:
        folder = self.folder / program
        if program not in self.printed:
            folder.mkdir()
            self.printed[program] = run(program, folder, EINKORN_CACHE="0")
        return self.printed[program], folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def test_the_examples_are_the_ones_that_the_readme_lists() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    assert len(PROGRAMS) >= 7
    for program in PROGRAMS:
        assert f"examples/custom_ops/{program}" in readme


@pytest.mark.as_shipped
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_on_a_simulated_gpu(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with graphs.cache_in(tmp_path / "cache"), simulated.sessions():
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    before, marker, after = capsys.readouterr().out.partition("without sources")
    assert marker and "from kernels/" in before and after


def test_every_kernel_file_has_a_program() -> None:
    texts = [(EXAMPLES / program).read_text() for program in PROGRAMS]
    for file in (EXAMPLES / "kernels").glob("*.py"):
        assert any(f'run_both_ways("{file.name}"' in text for text in texts), file


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_matches_numpy_from_sources_and_from_a_package(program: str, runs: Runs) -> None:
    output, folder = runs.of(program)
    before, marker, after = output.partition("without sources")
    assert marker and "from kernels/" in before
    assert "matches NumPy" in before and "matches NumPy" in after
    for picture in PICTURES.get(program, ()):
        with Image.open(folder / "output" / picture) as image:
            assert min(image.size) >= 400
            assert np.asarray(image).std() > 20  # it shows something


def test_the_gpu_path_of_vector_addition_is_compiled_for_all_four(runs: Runs) -> None:
    output, _ = runs.of("vector_addition.py")
    for target, kind in (("sm_80", "ptx"), ("sm_90a", "ptx"), ("gfx942", "hsaco"), ("gfx1100", "hsaco")):
        line = next(line for line in output.splitlines() if line.startswith(f"  {target}: "))
        assert line.endswith(f"bytes of {kind}")
        assert int(line.split()[1].replace(",", "")) > 500


def test_the_pictures_are_what_the_kernels_say(runs: Runs) -> None:
    _, folder = runs.of("image_pipeline.py")
    before = np.asarray(Image.open(folder / "output" / "coffee-before.png"))
    after = np.asarray(Image.open(folder / "output" / "coffee-after.png"))
    assert before.shape == (*after.shape, 3)
    # Brighter on the whole, and softer: neighbours differ less.
    assert after.mean() > before.mean()
    assert np.abs(np.diff(after.astype(int), axis=1)).mean() < np.abs(np.diff(before.astype(int), axis=1)).mean() / 2


def test_the_demo_prints_its_steps_where_there_is_no_terminal(tmp_path: Path) -> None:
    output = run("demo.py", tmp_path, PYTHONIOENCODING="ascii")
    assert output.count("matches NumPy, bit for bit") == 5
    assert "\x1b" not in output
    for picture in ("coffee-before.png", "coffee-after.png", "mandelbrot.png"):
        assert f"output/{picture}" in output
        assert (tmp_path / "output" / picture).exists()
    table = output[output.index("Bytes of code") :].splitlines()
    assert table[1].split() == ["CPU", "PTX", "PTX", "AMDGCN", "AMDGCN"]
    assert table[2].split()[2:] == ["sm_80", "sm_90a", "gfx942", "gfx1100"]
    rows = {words[0]: words[1:] for words in map(str.split, table[3:8])}
    assert set(rows) == {"blur", "brightness", "grayscale", "mandelbrot", "palette"}
    assert all(int(cell.replace(",", "")) > 500 for row in rows.values() for cell in row)
    counted = [line.split() for line in output.splitlines() if "conflicts of banks" in line]
    sectors = [(int(words[0].replace(",", "")), int(words[6].replace(",", ""))) for words in counted]
    (naive, least), (tiled, same) = sectors
    assert (
        naive == 2.5 * least and tiled == same == least and all(" 0 conflicts" in " ".join(words) for words in counted)
    )
    for algorithm in ("naive", "tiled"):
        page = (tmp_path / "output" / f"transpose-{algorithm}.html").read_text()
        assert f"output/transpose-{algorithm}.html" in output and f"<h3>{algorithm}_thread" in page


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on empty rows and infinities
def test_kernels_agree_with_their_references(tmp_path: Path) -> None:
    collected = []
    for file in sorted((EXAMPLES / "kernels").glob("*.py")):
        for name, kernel in load_library(file).kernels.items():
            if kernel.reference is not None:
                dtypes = {"T": [DType.float32, DType.float16]}
                assert check_op(name, file, dtypes=dtypes, sizes=(0, 1, 3, 17), folder=tmp_path).cases > 20
                collected.append(name)
    assert "layer_norm" in collected
