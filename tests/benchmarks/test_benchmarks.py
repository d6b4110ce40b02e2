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


def test_the_sections_run_and_agree_with_numpy(tmp_path: Path) -> None:
    sections = ["latency", "elementwise", "chain", "reductions", "matmul"]
    done, rows = run(tmp_path, "--only", *sections, "--threads", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {str(row["section"]) for row in rows} == set(sections)
    for row in rows:
        assert row["threads"] == 2 and row["failures"] == {}
        timings = row["timings"]
        assert isinstance(timings, dict)
        assert set(timings) == {f"{name} {memory}" for name in ("einkorn", "numpy") for memory in ("new", "given")}
        assert all(0 < timing["best"] <= timing["median"] for timing in timings.values())


def test_mathematics_is_timed_where_there_is_a_function(tmp_path: Path) -> None:
    done, rows = run(tmp_path, "--only", "math", "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    titles = {str(row["title"]): row["timings"] for row in rows}
    assert len(titles) == 6
    for title, timings in titles.items():
        assert isinstance(timings, dict)
        assert ("numpy given" in timings) == ("erf" not in title) and "einkorn given" in timings


def test_starts_are_split_into_stages(tmp_path: Path) -> None:
    done, rows = run(tmp_path, "--only", "load")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["title"] for row in rows] == ["custom add_one, cold", "custom add_one, warm"]
    for row in rows:
        best = row["best"]
        assert isinstance(best, dict)
        assert best["total"] == pytest.approx(sum(best[stage] for stage in ("import", "stage", "load", "run")))


def test_compilations_are_split_into_stages(tmp_path: Path) -> None:
    done, rows = run(tmp_path, "--only", "compile")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows[0]["title"] == "50 lines: bilateral"
    for row in rows:
        median = row["median"]
        assert isinstance(median, dict)
        assert list(median) == ["parse", "typed", "mlir", "llvm", "asm", "link", "total"]


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "--only", "nothing")
    assert done.returncode == 2 and "nothing" in done.stderr


def test_the_twenty_kernels_agree_with_numpy(tmp_path: Path) -> None:
    done, rows = run(tmp_path, "--only", "twenty", "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows) == 20 and all(row["failures"] == {} for row in rows)
