"""data-apis' array-api-tests pass, where the variable ARRAY_API_TESTS names a checkout of them (see `array_api`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import array_api
import array_api_plugin

LEAST = 1355  # tests that pass


@pytest.mark.foreign
def test_the_suite_of_the_standard_passes() -> None:
    checkout = os.environ.get("ARRAY_API_TESTS")
    if checkout is None:
        pytest.skip("ARRAY_API_TESTS names no checkout of data-apis' array-api-tests")
    for name in ("ndindex", "pytest_jsonreport"):
        pytest.importorskip(name, reason=f"the suite needs {name}, which the extra [foreign] installs")
    violations = array_api.run(Path(checkout).resolve())
    assert not violations["failed"], violations["output"][-8000:]
    assert violations["passed"] >= LEAST, violations


def test_what_is_left_out_has_a_reason() -> None:
    rules = array_api_plugin.rules(array_api_plugin.SKIPS.read_text(encoding="utf-8"))
    assert rules and all(reason.endswith(".") and len(reason) > 30 for _, reason in rules)
    wrong = "array_api_tests/test_linalg.py::test_eig"
    assert any(pattern.fullmatch(wrong) for pattern, _ in rules)
    assert not any(pattern.fullmatch("array_api_tests/test_searching_functions.py::test_where") for pattern, _ in rules)
