"""What fuzzing found stays found, and the campaign itself works: a few fresh programs, a crash, a difference."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import campaign as campaigns  # noqa: E402
import check  # noqa: E402
import programs  # noqa: E402

REGRESSIONS = sorted((HERE / "regressions").glob("*.py"))


def module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_regressions(file: Path) -> None:
    """Each was a difference, a crash or a refusal once."""
    found = module(file)
    status, detail = check.check(file.read_text(), found.INPUTS, found.SEED)
    assert status == "same", detail


def test_a_short_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "ROUND", 8)
    one = campaigns.Campaign(tmp_path, lambda campaign: None)
    one.deadline = float("inf")
    one.round(2026)
    one.child.stop()
    assert not one.finds, [file.read_text() for file in one.finds.values()]
    assert one.outcomes == {"same": 8}


def test_a_campaign_finds_makes_small_and_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a child that takes every shift for a crash."""

    class Fussy(campaigns.Child):
        def check(self, program: programs.Program) -> tuple[str, str]:
            return ("crash", "it shifts") if ">>" in program.text or "<<" in program.text else ("same", "")

    one = campaigns.Campaign(tmp_path, lambda campaign: None)
    one.deadline = float("inf")
    one.child = Fussy()
    for seed in range(3):
        one.round(seed)
    (file,) = one.finds.values()
    kept = module(file)
    assert len(file.read_text().splitlines()) < 25
    assert check.check(file.read_text(), kept.INPUTS, kept.SEED) == ("same", "")


def test_a_child_that_dies_is_replaced() -> None:
    child = campaigns.Child()
    dies = programs.Program("import os\nos._exit(9)\n", (), 0)
    assert child.check(dies) == ("crash", "the process ended with status 9")
    fine = "from einkorn.dsl import *\n@register('k')\ndef k(out: OutputTensor[int8, '1']):\n    out[0] = 1\n"
    assert child.check(programs.Program(fine, (), 0)) == ("same", "")
    wrong = fine.replace("= 1", "= missing")
    assert child.check(programs.Program(wrong, (), 0))[0] == "refused"
    child.stop()
