"""The tuple of passes: what can be shown and stopped after by name, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from einkorn.compiler.pipeline import PASSES, Stopped, compile_entry, names
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import EntrySpec
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
    assert set(timings) == half | {each.stage for each in PASSES}
    for stage in STAGES:
        assert timings[stage] == pytest.approx(sum(timings[e.name] for e in PASSES if e.stage == stage))
