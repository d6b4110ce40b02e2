"""`breakpoint()` in a kernel: scripted sessions of pdb, in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "debugged.py"
LINES = SCRIPT.read_text().split("\n")
# From Python 3.13 on `breakpoint()` stops at the call itself, before at the line that follows.
TO_NEXT_LINE = ["n"] if sys.version_info >= (3, 13) else []


def session(*commands: str, arguments: tuple[str, ...] = (), **environment: str) -> list[str]:
    """What pdb answers to each command, the first being what it says when it stops."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        input="\n".join(commands) + "\n",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    session.errors = done.stderr  # type: ignore[attr-defined]
    return [answer.strip() for answer in done.stdout.split("(Pdb) ")]


def at(answer: str) -> tuple[str, str]:
    """Function and text of the line where pdb stands; what stands there is what the file says."""
    function, line, text = "", 0, ""
    for head in re.finditer(r"> .*debugged\.py\((\d+)\)(\S+?)\(\).*\n-> (.*)", answer):
        line, function, text = int(head[1]), head[2], head[3].strip()
    assert LINES[line - 1].strip() == text
    return function, text


def test_stepping_and_looking() -> None:
    commands = ["n", "n", "p total, k, i, n, scale", "p y", "p pair", "p x[1]", "n", "p total", "c"]
    answers = session(*TO_NEXT_LINE, *commands)[len(TO_NEXT_LINE) :]
    assert at(answers[0])[0] == "norm"
    assert at(answers[2]) == ("norm", "total += squared(y) * scale")
    assert answers[3] == "(0.0, np.int64(0), np.int64(1), np.int64(4), 2.0)"
    assert answers[4] == "np.float32(4.0)"
    assert answers[5] == "(np.float32(5.0), 7)"
    assert answers[6] == "array([4., 5., 6., 7.], dtype=float32)"
    assert at(answers[7]) == ("norm", "for k in range(n):")
    assert answers[8] == "np.float32(32.0)"
    assert answers[9].startswith("norms [")


def test_stepping_into_a_helper() -> None:
    commands = ["n", "n", "s", "s", "p value", "n", "p double", "w", "r", "u", "c"]
    answers = session(*TO_NEXT_LINE, *commands)[len(TO_NEXT_LINE) :]
    assert "--Call--" in answers[3] and at(answers[3])[0] == "squared"
    assert at(answers[4]) == ("squared", "double = value * value")
    assert at(answers[6]) == ("squared", "return double")
    assert answers[7] == "np.float32(16.0)"
    frames = re.findall(r"debugged\.py\(\d+\)(\S+?)\(\)", answers[8])
    assert frames[-3:] == ["row_norm", "norm", "squared"] and "main" in frames
    assert "--Return--" in answers[9]


def test_breakpoints_by_line() -> None:
    line = next(n for n, text in enumerate(LINES, 1) if text.strip() == "return sqrt(half)")
    answers = session(f"b {SCRIPT}:{line}", "c", "p total, half", "p sum", "c", "p total", "cl 1", "c")
    assert f"Breakpoint 1 at {SCRIPT}:{line}" in answers[1]
    assert at(answers[2]) == ("norm", "return sqrt(half)")
    assert answers[3] == "(np.float32(252.0), np.float32(36.0))"
    assert answers[4] == "Sum(total=np.float32(72.0), count=np.int64(1))"
    assert answers[6] == "np.float32(732.0)"


def test_stepping_out_leads_to_the_program() -> None:
    steps = ["r", *["n"] * 6]
    answers = session(*steps, "c")
    functions = [re.findall(r"debugged\.py\(\d+\)(\S+?)\(\)", answer) for answer in answers]
    assert ["main"] in functions, answers
    files = {match for answer in answers for match in re.findall(r"^> (.*?)\(\d+\)", answer, re.MULTILINE)}
    assert files == {str(SCRIPT)}


def test_compiled_code_passes_and_says_so() -> None:
    (answer,) = session(arguments=("compile",), EINKORN_CACHE="0")
    assert answer.startswith("norms [")
    errors = session.errors  # type: ignore[attr-defined]
    assert errors.count("compiled code passes breakpoint()") == 1 and "debugged.py" in errors


def test_the_environment_chooses_the_debugger() -> None:
    (answer,) = session(PYTHONBREAKPOINT="0")
    assert answer.startswith("norms [")
