"""The suite stays quick: CONTRIBUTING.md has the minutes of each folder, and `make test` is within its limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from long_tests import LONG, is_long
from support import minutes

TESTS = Path(__file__).parents[1]
LIMIT = 14.0  # minutes of a processor: seven on two cores


def test_the_table_has_all_folders_and_make_test_is_quick() -> None:
    rows = minutes.rows(minutes.PAGE.read_text(encoding="utf-8"))
    assert sorted(rows) == sorted([*minutes.folders(), "all"]), "tests/support/minutes.py writes the table"
    for column in (0, 1):
        total = sum(row[column] for name, row in rows.items() if name != "all")
        assert abs(total - rows["all"][column]) < 0.05 * len(rows), "the sum of a column is another one"
    assert rows["all"][0] <= LIMIT, "tests/long_tests.py lists what make test leaves out"


@pytest.mark.parametrize("entry", LONG)
def test_an_entry_is_there(entry: str) -> None:
    file, _, test = entry.partition("::")
    assert (TESTS / file).exists(), f"tests/{file} is gone"
    if test:
        assert re.search(rf"^    def {test}\(|^def {test}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_entries_stand_once_and_match_their_tests_alone() -> None:
    assert len(set(LONG)) == len(LONG)
    assert not [entry for entry in LONG if is_long(f"tests/{entry.partition('::')[0]}_other.py::test_x")]
    assert all(is_long(f"tests/{entry}[x]") for entry in LONG if "::" in entry)


def test_times_are_read() -> None:
    log = "1.50s call     tests/gpu/test_ptx.py::test_x[a]\n0.25s setup    tests/gpu/test_ptx.py::test_y\n3 passed\n"
    assert minutes.seconds(log) == {"gpu": 1.75}
