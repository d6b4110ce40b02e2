"""The benchmark program runs with tiny sizes, and what it writes is complete. Times are never judged here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mathematics import BINARY, UNARY
from report import math_markdown
from workloads import TWENTY

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "run.py"
DOCS = Path(__file__).parents[2] / "docs" / "performance.md"


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


def test_functions_can_be_chosen_and_agree_with_numpy(tmp_path: Path) -> None:
    functions = ["frexp", "fmod", "mod", "remainder", "ldexp", "hypot"]
    done, rows = run(tmp_path, "--only", "math", "--functions", *functions, "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = [f"{name}, {dtype}" for name in functions for dtype in ("float32", "float64")]
    assert [row["title"] for row in rows] == wanted and all(row["failures"] == {} for row in rows)


def test_the_tables_of_the_docs_are_of_all_kernels_and_functions() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for section, names in (("math", UNARY + BINARY), ("twenty", tuple(title for title, *_ in TWENTY.values()))):
        table = text.partition(f"<!-- {section} -->\n")[2].partition(f"<!-- /{section} -->\n")[0]
        rows = re.findall(r"^\| `?(.*?)`? \|", table, re.MULTILINE)
        assert rows[0] in ("function", "kernel") and tuple(rows[1:]) == names


def test_a_table_of_mathematics_has_a_row_for_each_function() -> None:
    timing = {"cpu_median": 1e-6, "median": 1e-6}
    row = {"key": "exp", "threads": 1, "amount": 1000.0, "timings": {"einkorn given": timing}}
    faster = {"numpy given": {"cpu_median": 3e-6}, "numpy new": {"cpu_median": 4e-6}}
    rows = [{**row, "timings": {"einkorn given": timing, **faster}}, row]
    about = {"date": "today", "commit": "c", "machine": {"processor": "p", "load": "0"}, "versions": {"numpy": "2"}}
    lines = math_markdown(about, rows).splitlines()
    assert lines[0] == "today, commit c, p, load 0; NumPy 2."
    assert lines[2:] == [
        "| function | float32, ns | ÷ NumPy | float64, ns | ÷ NumPy |",
        "|---|---|---|---|---|",
        "| `exp` | 1.00 | 3.0 | 1.00 |  |",
    ]
