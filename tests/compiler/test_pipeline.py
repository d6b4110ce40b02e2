"""The tuple of passes: what can be shown and stopped after by name, and what is refused."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from einkorn.compiler import passes, pipeline
from einkorn.compiler.ir.program import Program
from einkorn.compiler.pipeline import PASSES, Pass, Stopped, compile_entry, names, typed_program
from einkorn.compiler.targets import Target, lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.environment.knobs import STAGES, KnobError

HERE = Path(__file__).parent


@pytest.fixture
def spec(entry_of: Callable[..., Any]) -> EntrySpec:
    entry: EntrySpec = entry_of(HERE / "emit_kernels.py", "scaled", [(DType.float32, (4,))])[0]
    return entry


def test_names_are_unique() -> None:
    assert len(set(names())) == len(names()) and all(name == name.lower() for name in names())
    stages = list(dict.fromkeys(each.stage for each in PASSES))
    assert stages == [*STAGES, "link"], "passes of a stage follow each other"


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("target", ["x86-64-v4", "sm_90a"])
def test_every_pass_can_be_shown_and_stopped_after(
    name: str, target: str, spec: EntrySpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EINKORN_DUMP", name)
    monkeypatch.setenv("EINKORN_STOP", name)
    with pytest.raises(Stopped, match=f"stopped after the {'stage' if name in STAGES else 'pass'} '{name}'") as stopped:
        compile_entry(spec, lookup(target))
    assert capfd.readouterr().err == f"=== {name} ===\n{stopped.value.text}\n"
    assert stopped.value.text


def test_each_pass_over_the_program_is_one_file_with_one_function() -> None:
    """`passes/NAME.py` begins with what `NAME` does, and the tuple has a row for it."""
    folder = Path(passes.__file__).parent
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert files - {each.name for each in PASSES} == set(), "a pass without a row of `PASSES`"
    for name in files:
        module = importlib.import_module(f"einkorn.compiler.passes.{name}")
        assert callable(getattr(module, name)), name


def test_a_pass_that_breaks_the_program_is_named(spec: EntrySpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(program: Program, target: Target) -> None:
        program.functions[0].body.ops.pop()

    rows = [row for row in pipeline.TYPED if row.name != "verify"]
    broken = Pass("breaks", "typed", lambda c: breaks(c.program, c.target), rows[0].show)
    monkeypatch.setattr(pipeline, "TYPED", (*rows, broken))
    monkeypatch.setenv("EINKORN_VERIFY", "1")
    with pytest.raises(InternalError, match="typed program: "):
        typed_program(spec, lookup("host"))


@pytest.mark.parametrize(
    ("knob", "text", "message", "hint"),
    [
        ("EINKORN_STOP", "hoist_check", "'hoist_check', which is not a stage or a pass", "hoist_checks"),
        ("EINKORN_DUMP", "mlir,lvm", "'lvm', which is not a list, separated by commas, of stages and passes", "llvm"),
    ],
)
def test_unknown_names_are_refused(
    knob: str, text: str, message: str, hint: str, spec: EntrySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(knob, text)
    with pytest.raises(KnobError) as caught:
        compile_entry(spec, lookup("host"))
    assert caught.value.message == f"the environment variable {knob} is {message}"
    assert caught.value.hint == f"did you mean '{hint}'?"


def test_the_time_of_every_pass_and_stage_is_taken(spec: EntrySpec) -> None:
    timings = compile_entry(spec, lookup("host")).timings
    half = {each.name for each in PASSES if each.half in ("both", "host")}
    assert set(timings) == half | {each.stage for each in PASSES}  # those of libraries run as one
    for stage in STAGES:
        assert timings[stage] == pytest.approx(sum(timings.get(e.name, 0.0) for e in PASSES if e.stage == stage))


def test_the_documents_list_the_passes_in_their_order() -> None:
    text = (HERE.parents[1] / "docs" / "inspect.md").read_text()
    table = text.partition("| stage | its passes, in order |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[2])]
    assert listed == names()[len(STAGES) :]
