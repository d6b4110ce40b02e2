"""Runs data-apis' array-api-tests with `einkorn.array_api`: a pytest plugin for the process that runs the suite.

`dtype_helpers` of the suite takes the widest complex dtype with `max`, which fails where there is none: it gets a `max`
that gives float64 then. Tests that array_api_skips.txt names are skipped with the reason that stands there. At the end
the counts are written as JSON into the file that the variable ARRAY_API_COUNTS names.

Input: the suite on `sys.path`. Output: counts by outcome, and how many tests each reason skips.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from einkorn import array_api as xp

SKIPS = Path(__file__).with_name("array_api_skips.txt")
LEFT_OUT = "EINKORN: "  # before the reasons of this file, which tells them from those of the suite


def _largest(values: Any, *others: Any, **options: Any) -> Any:
    if others:
        return builtins.max(values, *others, **options)
    return builtins.max(values, **({"default": (xp.float64, 64)} | options))


def _load(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["max"] = _largest
    sys.modules[name] = module
    spec.loader.exec_module(module)


def rules(text: str) -> list[tuple[re.Pattern[str], str]]:
    """The patterns of tests that are left out, each with its reason."""
    found: list[tuple[re.Pattern[str], str]] = []
    reason, closed = "", True
    for line in text.splitlines():
        if line.startswith("#:"):
            reason, closed = line[2:].strip() if closed else f"{reason} {line[2:].strip()}", False
        elif line.strip() and not line.startswith("#"):
            closed = True
            assert reason, f"no reason stands above {line}"
            found.append((re.compile(".*".join(map(re.escape, line.strip().split("*")))), reason))
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = rules(SKIPS.read_text(encoding="utf-8"))
    for item in items:
        name = item.nodeid.encode("ascii", "backslashreplace").decode()
        reason = next((reason for pattern, reason in known if pattern.fullmatch(name)), None)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=LEFT_OUT + reason))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    file = os.environ.get("ARRAY_API_COUNTS")
    if file is None or hasattr(config, "workerinput"):
        return
    stats = terminalreporter.stats
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in stats.get("skipped", ()))
    counts = {
        "passed": len(stats.get("passed", ())),
        "failed": sorted(report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())),
        "left out": {reason.removeprefix(LEFT_OUT): n for reason, n in reasons.items() if reason.startswith(LEFT_OUT)},
        "skipped by the suite": {reason: n for reason, n in reasons.items() if not reason.startswith(LEFT_OUT)},
    }
    Path(file).write_text(json.dumps(counts), encoding="utf-8")


if "ARRAY_API_COUNTS" in os.environ:
    os.environ["ARRAY_API_TESTS_SKIP_DTYPES"] = "complex64,complex128"
    _load("array_api_tests.dtype_helpers")
