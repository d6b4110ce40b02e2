"""Runs data-apis' array-api-tests with `einkorn.array_api`: a pytest plugin for the process that runs the suite.

Tests that array_api_skips.txt names are skipped with the reason that stands there. At the end
the counts are written as JSON into the file that the variable ARRAY_API_COUNTS names.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SKIPS = Path(__file__).with_name("array_api_skips.txt")
LEFT_OUT = "EINKORN: "  # before the reasons of this file, which distinguishes them from those of the suite


def rules(text: str) -> list[tuple[re.Pattern[str], str]]:
    """The patterns of tests that are left out, each with its reason."""
    collected: list[tuple[re.Pattern[str], str]] = []
    reason, closed = "", True
    for line in text.splitlines():
        if line.startswith("#:"):
            reason, closed = line[2:].strip() if closed else f"{reason} {line[2:].strip()}", False
        elif line.strip() and not line.startswith("#"):
            closed = True
            assert reason, f"no reason stands above {line}"
            collected.append((re.compile(".*".join(map(re.escape, line.strip().split("*")))), reason))
    return collected


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
