"""A kernel is the text that runs, whatever its file says by then."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
from pathlib import Path
from einkorn.dsl import Float32, InputTensor, OutputTensor, float32, foreach, register, struct
from einkorn.dsl.frontend.python.collect import portable

@struct
class Pair:
    a: Float32
    b: Float32 = 2.0

    def total(self):
        return self.a + self.b * 10.0


def helper(v):
    return v + 5.0


@register("edited")
def edited(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: helper(Pair(x[i]).total()) * 3.0)


def make(k):
    @register("made")
    def made(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
        foreach(out, lambda i: x[i] + 7.0)

    return made


me = Path(__file__)
text = me.read_text()
"""

SHOW = """
def numbers(kernel):
    from einkorn.dsl.frontend import syntax

    program = portable(kernel)
    if program.mistakes:
        return [f"{m.code}: {m.message}; {m.hint}" for m in program.mistakes]
    nodes = [node for function in program.functions for node in syntax.walk(function.syntax)]
    return sorted(n.value for n in nodes if isinstance(n, syntax.Constant) and type(n.value) is float)
"""


def run(tmp_path: Path, body: str) -> str:
    file = tmp_path / "script.py"
    file.write_text(PROGRAM + SHOW + textwrap.dedent(body))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("old, new", [("* 3.0", "* 33.0"), ("v + 5.0", "v + 55.0"), ("b * 10.0", "b * 99.0")])
def test_a_script_that_is_edited_runs_what_it_was(tmp_path: Path, old: str, new: str) -> None:
    """Of the same length in lines, so that every function still stands at its line."""
    out = run(tmp_path, f"me.write_text(text.replace({old!r}, {new!r}))\nprint(numbers(edited))")
    assert out == "[3.0, 5.0, 10.0]"


def test_lines_that_are_put_before_a_kernel_move_nothing(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        "me.write_text('#\\n' * 9 + text)\nprint(numbers(edited), portable(edited).functions[0].syntax.span[0])",
    )
    line = PROGRAM.splitlines().index('def edited(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):') + 1
    assert out == f"[3.0, 5.0, 10.0] {line}"


def test_a_kernel_made_by_a_function_after_the_edit(tmp_path: Path) -> None:
    out = run(tmp_path, "me.write_text(text.replace('7.0', '77.0'))\nprint(numbers(make(1)))")
    assert out == "[7.0]"


def test_a_helper_of_another_module_that_was_edited_before_it_was_read(tmp_path: Path) -> None:
    """Its text was not kept: a mistake that says so, not the other function."""
    (tmp_path / "other.py").write_text("def factor(v):\n    return v * 3.0\n")
    body = """
    import other
    Path(other.__file__).write_text("def factor(v):\\n    return v * 33.0\\n")

    @register("uses")
    def uses(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
        foreach(out, lambda i: other.factor(x[i]))

    print(numbers(uses))
    """
    out = run(tmp_path, body)
    assert "EK0104: the text of 'factor' has changed since it was run; run the program again" in out


def test_a_module_that_is_loaded_again_has_its_new_text(tmp_path: Path) -> None:
    head = 'from einkorn.dsl import *\n@register("again")\ndef again(out: OutputTensor[float32, "n"]):\n'
    (tmp_path / "other.py").write_text(head + "    foreach(out, lambda i: 3.0)\n")
    body = f"""
    import importlib, other, sys
    sys.dont_write_bytecode = True
    before = numbers(other.again)
    first = other.again
    Path(other.__file__).write_text({head!r} + "    foreach(out, lambda i: 33.0)  # longer\\n")
    importlib.invalidate_caches()
    importlib.reload(other)
    print(before, numbers(other.again))
    """
    assert run(tmp_path, body) == "[3.0] [33.0]"
