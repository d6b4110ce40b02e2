"""The test cases of the package `onnx` give through `from_onnx` what the table says: no pass is lost.

`make test` runs one case of each op type, interpreted where it is small; `make test-foreign` all of them, compiled.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.onnx_cases import KNOWN, cases, data_of, op_types, run_case

from einkorn.graph import InferenceSession

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
PARTS = 8  # tests, so that several workers share the work
LARGE = 1000  # elements: for so many the interpreter takes longer than the compiler


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


def lost(names: list[str], interpret: bool = False) -> list[str]:
    """The cases that should pass and do not. Only small ones are interpreted."""
    listed = known()
    sessions = {True: InferenceSession(interpret=True), False: InferenceSession()}
    outcomes = [run_case(case, sessions[interpret and not is_large(case)]) for case in map(cases().get, names)]
    return [f"{o.name}: {o.state}: {o.reason}" for o in outcomes if o.state != "pass" and o.name not in listed]


def is_large(case: Any) -> bool:
    return any(np.size(array) >= LARGE for pair in data_of(case) for arrays in pair for array in arrays)


def test_the_table_lists_cases_that_there_are() -> None:
    assert sorted(known().keys() - cases().keys()) == []


def test_one_case_of_each_op_type() -> None:
    names = one_of_each()
    assert len(names) >= 150
    assert lost(names, interpret=True) == []


@pytest.mark.foreign
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases(part: int) -> None:
    assert lost(sorted(cases())[part::PARTS]) == []


@pytest.mark.foreign
def test_what_passes_by_now_is_in_the_table() -> None:
    """A case of the table that passes has to leave it: `make foreign-tables`."""
    session = InferenceSession()
    now = [name for name in known() if run_case(cases()[name], session).state == "pass"]
    assert now == []
