"""The text of a kernel is found wherever it was written: a file, a cell, a prompt, a string; and only the right one."""

from __future__ import annotations

import builtins
import importlib
import inspect
import linecache
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from einkorn import dsl
from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.dsl.diagnostics.text import SOURCE
from einkorn.dsl.frontend import syntax
from einkorn.dsl.frontend.python.collect import portable
from einkorn.dsl.frontend.python.reader import kernels_of as kernels_in
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.dsl.package.library import load_library

HEAD = "from einkorn.dsl import *\n"
KERNEL = """@register("typed")
def typed(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] + {value})
"""


def numbers(kernel: Kernel) -> list[float]:
    """The float constants of a kernel's program, of its helpers too."""
    program = portable(kernel)
    assert not program.mistakes, program.mistakes[0]
    nodes = [node for function in program.functions for node in syntax.walk(function.syntax)]
    return sorted(node.value for node in nodes if isinstance(node, syntax.Constant) and type(node.value) is float)


# *** strings ***


def test_kernels_of_a_text() -> None:
    text = HEAD + "def helper(v):\n    return v * 2.5\n\n" + KERNEL.format(value="helper(x[i])")
    kernels = dsl.kernels_of(text, name="<whole>")
    assert list(kernels) == ["typed"] and numbers(kernels["typed"]) == [2.5]
    place = kernels["typed"].schema.place
    assert place is not None and str(place) == "<whole>:5:1"
    assert place.source_line() == '@register("typed")'


def test_texts_of_one_name_are_distinguished() -> None:
    first = dsl.kernels_of(HEAD + KERNEL.format(value=1.5), name="<made>")["typed"]
    second = dsl.kernels_of(HEAD + KERNEL.format(value=2.5), name="<made>")["typed"]
    assert [str(kernel.schema.place) for kernel in (first, second)] == ["<made>:2:1", "<made 2>:2:1"]
    assert [numbers(kernel) for kernel in (first, second)] == [[1.5], [2.5]]
    same = dsl.kernels_of(HEAD + KERNEL.format(value=2.5), name="<made>")["typed"]
    assert str(same.schema.place) == "<made 2>:2:1"


def test_a_text_with_names_of_the_program_gives_what_it_adds() -> None:
    names: dict[str, Any] = {"__name__": "program"}
    exec(HEAD + "factor = 3.5\n", names)
    dsl.kernels_of(KERNEL.format(value=1.5).replace("typed", "other"), names=names)
    kernels = dsl.kernels_of(KERNEL.format(value="factor"), names=names)
    assert list(kernels) == ["typed"] and names["typed"] is kernels["typed"]
    [entry] = [entry.value for entry in portable(kernels["typed"]).globals if entry.kind == "constant"]
    assert entry == 3.5


def test_all_mistakes_of_a_text_are_reported_with_its_lines() -> None:
    bad = 'import nothing_here\n\n@register("bad")\ndef bad(out: OutputTensor[flot32, "n"]):\n    pass\n'
    with pytest.raises(CompileError) as caught:
        dsl.kernels_of(HEAD + bad, name="<wrong>")
    text = str(caught.value)
    assert "<wrong>:2" in text and "<wrong>:5" in text and "import nothing_here" in text and "flot32" in text
    with pytest.raises(CompileError, match=r"<broken>:1:5: error\[EK0100\]"):
        dsl.kernels_of("def (", name="<broken>")
    names: dict[str, Any] = {"__name__": "program"}
    with pytest.raises(CompileError, match=r"EK0110.*ZeroDivisionError"):
        dsl.kernels_of("good = 1\nbad = 1 / 0\n", names=names)
    assert not [name for name in names if name.startswith("__einkorn_b")]  # nothing stands for what failed
    with pytest.raises(CompileError, match="not a value of type"):
        dsl.kernels_of(Path("kernel.py"))  # type: ignore[arg-type]


def test_exec_keeps_no_text_and_the_hint_says_what_does() -> None:
    names: dict[str, Any] = {"__name__": "executed"}
    exec(HEAD + KERNEL.format(value=1.5), names)
    [mistake] = portable(names["typed"]).mistakes
    assert mistake.code == "EK0104" and "einkorn.dsl.kernels_of(text)" in str(mistake.hint)


def test_the_text_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + KERNEL.format(value=5.5)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-X", "dev", "-c", text, "argument"])
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "<string>", "exec"), names)
    assert numbers(names["typed"]) == [5.5]


# *** prompts ***


class Prompt:
    """A plain prompt up to Python 3.12: all it has of a text is the history of lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, older: list[str]) -> None:
        self.lines = older
        self.names: dict[str, Any] = {"__name__": "__main__"}
        history = SimpleNamespace(
            get_current_history_length=lambda: len(self.lines), get_history_item=lambda k: self.lines[k - 1]
        )
        monkeypatch.setitem(sys.modules, "readline", history)

    def type(self, text: str) -> None:
        """As readline keeps it: without empty lines, and a line that is typed twice in a row once."""
        for line in text.splitlines():
            if line and line != (self.lines or [""])[-1]:
                self.lines.append(line)
        exec(compile(text + "\n", "<stdin>", "single"), self.names)


def test_the_history_of_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    older = KERNEL.format(value=9.5).splitlines()  # of an earlier session
    prompt = Prompt(monkeypatch, older)
    prompt.type("from einkorn.dsl import *")
    prompt.type("def helper(v):\n    return v * 4.5\n")
    prompt.type(KERNEL.format(value="helper(1.5)"))
    first = prompt.names["typed"]
    prompt.type("x = 1")
    prompt.type(KERNEL.format(value=7.5))
    prompt.type("@struct\nclass Pair:\n    a: Float32\n    def twice(self):\n        return self.a * 2.25\n")
    prompt.type(KERNEL.format(value="Pair(x[i]).twice()").replace("typed", "paired"))
    assert numbers(first) == [1.5, 4.5]
    assert numbers(prompt.names["typed"]) == [7.5]
    assert numbers(prompt.names["paired"]) == [2.25]
    place = first.schema.place
    assert place is not None and place.source_line() == '@register("typed")' and "<prompt 7>:1:1" in str(place)


def test_a_text_in_the_history_that_is_not_the_code_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Prompt(monkeypatch, [])
    prompt.type("from einkorn.dsl import *")
    twice = KERNEL.format(value=1.5).rstrip() + "\n    foreach(out, lambda i: x[i])\n    foreach(out, lambda i: x[i])\n"
    prompt.type(twice)
    [mistake] = portable(prompt.names["typed"]).mistakes
    assert mistake.code == "EK0104"


def test_a_prompt_with_lines_in_the_cache_of_lines() -> None:
    """Since Python 3.13 each input has a name of its own."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate([HEAD, KERNEL.format(value=6.5)]):
        file = f"<python-input-{number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), names)
    assert numbers(names["typed"]) == [6.5]
    assert str(names["typed"].schema.place) == "<python-input-1>:1:1"


def test_a_real_prompt(tmp_path: Path) -> None:
    """A process with a terminal: what readline really keeps."""
    show = "from einkorn.dsl.frontend.python.collect import portable; print('mistakes:', portable(typed).mistakes)"
    script = f"from einkorn.dsl import *\n{KERNEL.format(value=8.5)}\n{show}\nexit()\n"
    process, terminal = pty.fork()
    if process == 0:
        settings = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path), "PYTHONSTARTUP": "", "PYTHON_BASIC_REPL": "1"}
        os.execve(sys.executable, [sys.executable, "-q"], settings)
    os.write(terminal, script.encode())
    out = b""
    try:
        while chunk := os.read(terminal, 4096):
            out += chunk
    except OSError:  # the process has ended
        pass
    os.waitpid(process, 0)
    assert b"mistakes: ()" in out, out.decode()


# *** the last of a name counts ***


def test_in_a_program_the_last_kernel_of_a_name_counts() -> None:
    module = ModuleType("again")
    dsl.kernels_of(HEAD + KERNEL.format(value=1.5) + "kept = typed\n", names=module.__dict__)
    dsl.kernels_of(KERNEL.format(value=2.5), names=module.__dict__)
    [kernel] = kernels_in(module)
    [kept, last] = [module.kept, module.typed]
    assert kernel.schema == last.schema and numbers(kept) == [1.5] and numbers(last) == [2.5]


def test_in_a_kernel_file_a_name_stands_once(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(HEAD + KERNEL.format(value=1.5) + KERNEL.format(value=2.5))
    with pytest.raises(Exception, match="EK0503"):
        load_library(file)


def test_kernels_of_a_module_that_was_loaded_again_keep_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_kernels.py"
    file.write_text(HEAD + KERNEL.format(value=1.5))
    module = importlib.import_module("reloaded_kernels")
    first = module.typed
    file.write_text(HEAD + KERNEL.format(value=22.5))
    importlib.reload(module)
    assert numbers(first) == [1.5] and numbers(module.typed) == [22.5]
    assert len(kernels_in(module)) == 1 and len(vars(module)[SOURCE][str(file)]) == 2
    del sys.modules["reloaded_kernels"]


# *** IPython ***


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
    config = importlib.import_module("traitlets.config").Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    main, hooks = sys.modules["__main__"], (sys.displayhook, sys.excepthook)
    shell = interactiveshell.InteractiveShell.instance(config=config)
    yield shell
    interactiveshell.InteractiveShell.clear_instance()
    sys.modules["__main__"] = main
    sys.displayhook, sys.excepthook = hooks
    for name in ("get_ipython", "display"):
        vars(builtins).pop(name, None)


def cell(shell: Any, text: str) -> Any:
    return shell.run_cell(text, store_history=True)


def test_a_cell_has_its_text_and_its_number(shell: Any) -> None:
    cell(shell, HEAD)
    cell(shell, KERNEL.format(value=3.5))
    number, kernel = shell.execution_count - 1, shell.user_ns["typed"]
    assert numbers(kernel) == [3.5]
    assert str(kernel.schema.place) == f"In[{number}]:1:1"
    assert kernel.schema.place.source_line() == '@register("typed")'
    cell(shell, KERNEL.format(value=4.5))
    assert [numbers(kernel), numbers(shell.user_ns["typed"])] == [[3.5], [4.5]]
    cell(shell, "%%time\n" + KERNEL.format(value=5.5))
    assert numbers(shell.user_ns["typed"]) == [5.5]
    assert str(shell.user_ns["typed"].schema.place) == f"In[{number + 2}] %%time:1:1"


def test_a_mistake_in_a_cell_shows_the_cell_and_nothing_of_einkorn(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cell(shell, HEAD)
    capsys.readouterr()
    text = 'def outer():\n    @register("bad")\n    def bad(out: OutputTensor[flot32, "n"]):\n        pass\n\nouter()'
    cell(shell, text.replace("flot32", "int"))
    number = shell.execution_count - 1
    out = capsys.readouterr().out
    assert out.splitlines()[:6] == [
        "CompileError",
        f"  In[{number}]:6",
        "    outer()",
        f"  In[{number}]:2 in outer()",
        '    @register("bad")',
        f"In[{number}]:3:13: error[EK0301]: argument 'out' of op 'bad' needs a dtype, not int",
    ]
    assert "register.py" not in out and "^^^" in out


def test_an_error_behind_one_of_the_users_hides_frames_of_einkorn(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cell(shell, HEAD + KERNEL.format(value=3.5))
    capsys.readouterr()
    cell(shell, "try:\n    typed('x')\nexcept Exception as error:\n    raise ValueError('mine') from error")
    out = capsys.readouterr().out
    assert "EK0850" in out and "ValueError: mine" in out and "caller.py" not in out


def test_the_text_of_a_kernel_is_that_of_its_function(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNEL.format(value=3.5)
    cell(shell, HEAD)
    cell(shell, text)
    assert inspect.getsource(shell.user_ns["typed"]) == text
    assert list(inspect.signature(shell.user_ns["typed"]).parameters) == ["x", "out"]
    capsys.readouterr()
    cell(shell, "typed??")
    assert "foreach(out, lambda i: x[i] + 3.5)" in capsys.readouterr().out


def test_a_fault_of_einkorn_shows_its_frames_in_a_cell(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cell(shell, "from einkorn.dsl.diagnostics.errors import InternalError\nraise InternalError('broken')")
    out = capsys.readouterr().out
    assert out.startswith("Traceback (most recent call last)") and "EK0901" in out


def test_errors_in_cells_have_colours_where_the_shell_has(shell: Any) -> None:
    error = CompileError("wrong", code="EK0100", hint="right", notes=["near"])
    error.__cause__ = ValueError("deeper")
    plain = error._render_traceback_()
    assert plain == [
        "CompileError",
        "error[EK0100]: wrong",
        "note: near",
        "hint: right",
        "caused by ValueError: deeper",
    ]
    shell.colors = "linux"
    try:
        colored = error._render_traceback_()
    finally:
        shell.colors = "nocolor"
    assert colored[1] == "\x1b[31merror[EK0100]\x1b[0m\x1b[1m: wrong\x1b[0m"


def test_autoreload_takes_names_that_were_imported_along(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "auto_kernels.py"
    text = HEAD + "def helper(v):\n    return v * {factor}\n\n" + KERNEL.replace("{value}", "helper({value})")
    file.write_text(text.format(factor=1.5, value=2.5))
    cell(shell, "%load_ext autoreload\n%autoreload 2\nimport auto_kernels\nfrom auto_kernels import typed as taken")
    taken = shell.user_ns["taken"]
    assert numbers(taken) == [1.5, 2.5]
    file.write_text(text.format(factor=11.5, value=12.5))
    later = file.stat().st_mtime + 10
    os.utime(file, (later, later))
    cell(shell, "%autoreload now")
    cell(shell, "%autoreload 0")
    assert shell.user_ns["taken"] is taken
    assert [numbers(taken), numbers(sys.modules["auto_kernels"].typed)] == [[11.5, 12.5]] * 2
    del sys.modules["auto_kernels"]


PROGRAM = """
import numpy as np
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register, struct


@struct
class Pair:
    low: float32
    high: float32


@register("halve")
def halve(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: Pair(x[i], x[i]).low / 2)


print(halve(np.ones(2, np.float32)))
"""


def test_programs_on_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_text(PROGRAM)
    with file.open() as stream:
        done = subprocess.run([sys.executable, "-"], stdin=stream, capture_output=True, text=True)
    assert done.stdout == "[0.5 0.5]\n", done.stderr
    piped = subprocess.run([sys.executable, "-"], input=PROGRAM, capture_output=True, text=True)
    hint = "Python keeps no text of a program from a pipe: write it to a file, or python -c \"$(cat)\" <<'EOF'"
    assert "error[EK0104]" in piped.stderr and f"hint: {hint}" in piped.stderr
