"""The program that measures models writes each row as it comes, and leaves what it cannot measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import models
import pytest
from models import NOT_MEASURED, TABLES, Cells, chosen, measure, missing, rows_of

TABLE = "decode"
NAMES = list(TABLES[TABLE].names)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    parts = [f"<!-- {table}: written by make models-speed -->\n<!-- end -->\n" for table in TABLES]
    made = tmp_path / "page.md"
    made.write_text("Before.\n" + "Between.\n".join(parts) + "After.\n", encoding="utf-8")
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rows that were measured; each takes as many milliseconds as rows were before it."""
    collected: list[str] = []

    def measured(table: str, name: str, seconds: float) -> Cells:
        collected.append(name)
        return [f"{len(collected)}", "PyTorch", "1", "1.0"]

    monkeypatch.setattr(models, "measured", measured)
    monkeypatch.setattr(models, "missing", lambda table, name: [])
    return collected


def test_a_row_is_written_and_the_others_stay(page: Path, calls: Sequence[str]) -> None:
    measure([TABLE], page, True, None)
    measure([NAMES[1]], page, True, None)
    rows = rows_of(page.read_text(encoding="utf-8"), TABLE)
    assert [rows[name][0] for name in NAMES] == ["1", f"{len(NAMES) + 1}", *map(str, range(3, len(NAMES) + 1))]
    text = page.read_text(encoding="utf-8")
    assert text.startswith("Before.") and text.endswith("After.\n") and text.count("Between.") == len(TABLES) - 1


def test_rows_before_a_stop_are_kept(page: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(table: str, name: str, seconds: float) -> Cells:
        if calls:
            raise KeyboardInterrupt
        calls.append(name)
        return ["7", "PyTorch", "1", "1.0"]

    monkeypatch.setattr(models, "measured", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure([TABLE], page, True, None)
    rows = rows_of(page.read_text(encoding="utf-8"), TABLE)
    assert rows[NAMES[0]][0] == "7" and rows[NAMES[1]][0] == NOT_MEASURED


def test_missing_rows_come_first() -> None:
    some = {table: {name: ["1"] for name in spec.names} for table, spec in TABLES.items()}
    some[TABLE][NAMES[2]], some["files"]["magika"] = [NOT_MEASURED], ["no: killed"]
    assert chosen([], some)[:2] == [("files", "magika"), (TABLE, NAMES[2])]


def test_no_row_begins_when_time_is_over(page: Path, calls: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    measure([TABLE], page, True, 0)
    assert not calls
    assert f"left out: {NAMES[0]}: 0 minutes are over" in capsys.readouterr().err


def test_rows_without_their_libraries_stay(
    page: Path, calls: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure([TABLE], page, True, None)
    before = page.read_text(encoding="utf-8")
    monkeypatch.setattr(models, "missing", missing)
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    measure([TABLE], page, True, None)
    assert page.read_text(encoding="utf-8") == before
    assert f"left out: {NAMES[0]}: needs torch" in capsys.readouterr().err


def test_unknown_names_are_refused(page: Path) -> None:
    with pytest.raises(SystemExit, match="no row or table is named 'decoder'"):
        measure(["decoder"], page, True, None)
