"""The programs for several ranks run on threads and processes, and the stencil on blocks of a Dask array."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.as_shipped
PROGRAMS = Path(__file__).parents[2] / "examples" / "distributed"


def run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=400, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_layer_on_several_ranks(ranks: int) -> None:
    out = run("-m", "einkorn", "run", "-n", str(ranks), "--backend", "threads", str(PROGRAMS / "layer.py"))
    assert out.count(f"{ranks} ranks share 32768 weights") == ranks, out


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: make callers")
@pytest.mark.parametrize("program", ["layer.py", "book.py"])
def test_on_two_processes(program: str) -> None:
    out = run("-m", "einkorn", "run", "-n", "2", str(PROGRAMS / program))
    assert {"[rank 0]", "[rank 1]"} == set(re.findall(r"\[rank \d\]", out)), out


def test_ranks_embed_their_parts_of_a_book() -> None:
    """Two ranks find the sentences that one finds."""
    one, two = (
        run("-m", "einkorn", "run", "-n", str(ranks), "--backend", "threads", str(PROGRAMS / "book.py"))
        for ranks in (1, 2)
    )
    sentences = [re.findall(r"\] (0\.\d+ .+|1\.00 .+)", out) for out in (one, two)]
    assert len(sentences[0]) == 3 and sentences[0] == sentences[1]
    shares = [int(n) for n in re.findall(r"(\d+) of \d+ sentences", two)]
    assert sum(shares) == int(re.findall(r"of (\d+) sentences", one)[0]) and abs(shares[0] - shares[1]) <= 1


@pytest.mark.skipif(find_spec("dask") is None, reason="needs dask: make callers")
def test_a_stencil_on_blocks(tmp_path: Path) -> None:
    out = run(str(PROGRAMS / "stencil.py"), folder=tmp_path)
    assert "9 blocks, 24 steps: the bits of the whole image" in out
    picture = np.asarray(Image.open(tmp_path / "output" / "stencil.png"), np.float32)
    before, after = np.split(picture, 2, axis=1)
    assert np.abs(np.diff(after)).mean() < np.abs(np.diff(before)).mean() / 4
