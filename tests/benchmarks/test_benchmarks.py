"""The benchmark program runs with tiny sizes, and what it writes is complete. Times are never judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "run.py"


def run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]]]:
    result = folder / "result.json"
    command = [sys.executable, str(PROGRAM), "--tiny", "--peers", "--json", str(result), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, json.loads(result.read_text())["results"] if result.exists() else []


@pytest.mark.parametrize("section", ["latency", "elementwise", "chain", "reductions", "matmul"])
def test_a_section_runs_and_agrees_with_numpy(tmp_path: Path, section: str) -> None:
    done, rows = run(tmp_path, "--only", section, "--threads", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows
    for row in rows:
        assert row["section"] == section and row["threads"] == 2 and row["failures"] == {}
        timings = row["timings"]
        assert isinstance(timings, dict)
        assert set(timings) == {f"{name} {memory}" for name in ("einkorn", "numpy") for memory in ("new", "given")}
        assert all(0 < timing["best"] <= timing["median"] for timing in timings.values())


def test_starts_are_split_into_stages(tmp_path: Path) -> None:
    done, rows = run(tmp_path, "--only", "load")
    assert done.returncode == 0, done.stdout + done.stderr
    titles = [str(row["title"]) for row in rows]
    for what in ("custom add_one", "x + 1.0"):
        assert {t for t in titles if t.startswith(what)} == {
            f"{what}, {cache}{bytecode}" for cache in ("cold", "warm") for bytecode in ("", ", no .pyc")
        }
    for row in rows:
        best = row["best"]
        assert isinstance(best, dict)
        assert best["total"] == pytest.approx(sum(best[stage] for stage in ("import", "stage", "load", "run")))


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "--only", "nothing")
    assert done.returncode == 2 and "nothing" in done.stderr
