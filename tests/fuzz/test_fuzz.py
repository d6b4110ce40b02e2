"""What fuzzing found stays found, and the campaign itself works: a few fresh programs, a crash, a difference."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import campaign as campaigns  # noqa: E402
import check  # noqa: E402
import programs  # noqa: E402
import shrinking  # noqa: E402
import subjects  # noqa: E402
from writing.base import FEATURES  # noqa: E402

REGRESSIONS = sorted((HERE / "regressions").glob("*.py"))


def module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_regressions(file: Path) -> None:
    """Each was a difference, a crash or a refusal once; some fail, in the same way each time."""
    actual = module(file)
    status, detail = check.check(programs.program_of(actual, file.read_text()))
    assert status == getattr(actual, "STATUS", "same"), detail


def test_every_kind_of_text_is_reached() -> None:
    rng = random.Random(2026)
    actual = Counter(feature for _ in range(1000) for feature in shrinking.random_choices(rng)[0].features)
    assert [feature for feature in FEATURES if not actual[feature]] == []


def test_a_short_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "ROUND", 12)
    one = campaigns.Campaign(tmp_path, lambda campaign: None)
    one.deadline = float("inf")
    one.round(2026)
    one.child.stop()
    assert not one.finds, [file.read_text() for file in one.finds.values()]
    assert sum(one.outcomes.values()) == 12 and set(one.outcomes) <= {"same", "fails"}


def fussy(program: programs.Program) -> bool:
    return ">>" in program.text or "<<" in program.text


def test_programs_are_made_small() -> None:
    """Most of them; some stay where a shift is needed by what is needed for a shift."""
    sizes = []
    for seed in range(9):
        rng = random.Random(seed)
        program, choices = shrinking.random_choices(rng)
        while not fussy(program):
            program, choices = shrinking.random_choices(rng)
        small = shrinking.program_of_choices(shrinking.shrunk(choices, fussy))[0]
        assert fussy(small) and len(small.text) < len(program.text)
        sizes.append(len(small.text.splitlines()))
    assert sorted(sizes)[4] < 15, sizes


def test_a_campaign_finds_makes_small_and_stores(tmp_path: Path) -> None:
    """With a child that takes every shift for a crash."""

    class Fussy(campaigns.Child):
        def check(self, made: Any) -> tuple[str, str]:
            return ("crash", "it shifts") if fussy(made[0]) else ("same", "")

    one = campaigns.Campaign(tmp_path, lambda campaign: None)
    one.deadline = float("inf")
    one.child = Fussy(subjects.SUBJECTS[0])
    for seed in range(3):
        one.round(seed)
    (file,) = one.finds.values()
    text = file.read_text()
    assert "it shifts" in text and fussy(programs.program_of(module(file), text))
    assert check.check(programs.program_of(module(file), text))[0] == "same"


@pytest.mark.parametrize("trouble", ["text", "error", "input", "guard"])
def test_what_differs_is_seen(trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, failures, and memory that is unused, of one way alone."""
    file = tmp_path / "k.py"
    text = (
        "from einkorn.dsl import *\n@register('k')\ndef k(out: OutputTensor[int8, '3'], x: InputTensor[int8, '3']):\n"
        "    for i in range(3):\n        assert x[i] < 5\n        out[i] = x[i]\n"
    )
    file.write_text(text)
    program = programs.Program(text, (("int8", (3,)),), 0)
    monkeypatch.setattr(check, "arrays_of", lambda inputs, seed: [np.array([1, 2, 3], np.int8)])
    fine = check.run

    def wrong(ir: Any, load: Any, arrays: Any, threads: int = 1) -> Any:
        if threads == 1:
            return fine(ir, load, arrays, threads)
        if trouble == "text":
            return [fine(ir, load, arrays)[0] + 1]
        if trouble == "error":
            return check.Failure("EK0701", 5, "assertion failed", "None")
        real = check.Model

        def careless(ir: Any, load: Any) -> Any:
            def call(*given: Any) -> Any:
                results = real(ir, load)(*given)
                array = given[0] if trouble == "input" else np.asarray(results[0].to_numpy()).base
                array.view(np.uint8)[-1] += 1
                return results

            return call

        monkeypatch.setattr(check, "Model", careless)
        return fine(ir, load, arrays, threads)

    monkeypatch.setattr(check, "run", wrong)
    status, detail = check.check(program)
    expected = {"text": "output 0 at (0,)", "error": "interpreted: results", "input": "an input", "guard": "outside"}
    assert status in ("differs", "fault") and expected[trouble] in detail


def test_a_child_that_dies_is_replaced() -> None:
    child = campaigns.Child(subjects.SUBJECTS[0])
    dies = programs.Program("import os\nos._exit(9)\n", (), 0)
    assert child.check((dies, ())) == ("crash", "the process ended with status 9")
    fine = "from einkorn.dsl import *\n@register('k')\ndef k(out: OutputTensor[int8, '1']):\n    out[0] = 1\n"
    assert child.check((programs.Program(fine, (), 0), ())) == ("same", "")
    wrong = fine.replace("= 1", "= missing")
    assert child.check((programs.Program(wrong, (), 0), ()))[0] == "refused"
    child.stop()
