"""The test cases of the package `onnx` give through `from_onnx` what the table says: no pass is lost.

`make test` runs one case of each op type, interpreted; `make test-foreign` all of them, compiled.
"""

from __future__ import annotations

import json

import pytest
from support.onnx_cases import KNOWN, cases, op_types, run_case

from einkorn.graph import InferenceSession

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
PARTS = 8  # tests, so that several workers share the work


def known() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = json.loads(KNOWN.read_text())
    return listed


def one_of_each() -> list[str]:
    """The shortest name of a passing case of each set of op types."""
    listed = known()
    shortest: dict[str, str] = {}
    for name in sorted(cases(), key=len):
        types = op_types(cases()[name]) if "expanded" not in name else []
        if name not in listed and len(types) == 1:
            shortest.setdefault(types[0], name)
    return sorted(shortest.values())


def lost(names: list[str], session: InferenceSession) -> list[str]:
    """The cases that should pass and do not."""
    listed = known()
    outcomes = [run_case(cases()[name], session) for name in names]
    return [f"{o.name}: {o.state}: {o.reason}" for o in outcomes if o.state != "pass" and o.name not in listed]


def test_the_table_lists_cases_that_there_are() -> None:
    assert sorted(known().keys() - cases().keys()) == []


@pytest.mark.parametrize("part", range(2))
def test_one_case_of_each_op_type(part: int) -> None:
    names = one_of_each()
    assert len(names) >= 150
    assert lost(names[part::2], InferenceSession(interpret=True)) == []


@pytest.mark.foreign
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases(part: int) -> None:
    assert lost(sorted(cases())[part::PARTS], InferenceSession()) == []


@pytest.mark.foreign
def test_what_passes_by_now_is_in_the_table() -> None:
    """A case of the table that passes has to leave it: `make foreign-tables`."""
    session = InferenceSession()
    now = [name for name in known() if run_case(cases()[name], session).state == "pass"]
    assert now == []
