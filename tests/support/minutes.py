"""Writes how many processor minutes the tests of each folder take into the table of CONTRIBUTING.md.

make test PYTEST_ARGS="--durations=0 --durations-min=0 -vv" | tee quick.txt
make test-long PYTEST_ARGS="--durations=0 --durations-min=0 -vv" | tee long.txt
.venv/bin/python tests/support/minutes.py quick.txt long.txt
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
LINE = re.compile(r"\s*([\d.]+)s (?:call|setup|teardown) +tests/(\w+)/")
HEAD = "| folder | `make test` | `make test-long` |\n|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")


def seconds(log: str) -> dict[str, float]:
    """Folder -> seconds, from what pytest prints with `--durations=0`."""
    result: dict[str, float] = defaultdict(float)
    for line in log.splitlines():
        if match := LINE.match(line):
            result[match[2]] += float(match[1])
    return result


def folders() -> list[str]:
    """The folders of `tests` with tests in them."""
    return sorted({file.relative_to(ROOT / "tests").parts[0] for file in (ROOT / "tests").glob("*/**/test_*.py")})


def table(quick: dict[str, float], long: dict[str, float]) -> str:
    """The table, in minutes of a processor."""
    named = [(name, quick.get(name, 0.0), long.get(name, 0.0)) for name in folders()]
    named.append(("all", sum(quick.values()), sum(long.values())))
    return HEAD + "".join(f"| {name} | {short / 60:.1f} | {rest / 60:.1f} |\n" for name, short, rest in named)


def rows(text: str) -> dict[str, tuple[float, float]]:
    """Folder -> minutes, as the table of a page has them."""
    actual = TABLE.search(text)
    assert actual is not None, f"{PAGE.name} has no table of minutes"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in actual[0].splitlines()[2:]]
    return {name: (float(quick), float(long)) for name, quick, long in cells}


if __name__ == "__main__":
    logs = [seconds(Path(name).read_text(encoding="utf-8", errors="replace")) for name in sys.argv[1:]]
    PAGE.write_text(TABLE.sub(lambda _: table(*logs), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
