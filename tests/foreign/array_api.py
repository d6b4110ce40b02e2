"""Runs data-apis' array-api-tests with `einkorn.array_api`, and counts what passes.

    python tests/foreign/array_api.py CHECKOUT [EXAMPLES]      prints counts, reasons, and what fails

CHECKOUT is a clone of github.com/data-apis/array-api-tests with its submodule. The extra `[foreign]` has what the suite
needs. What is left out stands in array_api_skips.txt, with reasons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = 10  # that hypothesis makes for a test
OPTIONS = ["-W", "ignore", "-p", "array_api_plugin", "-p", "no:cacheprovider", "-q", "--tb=short", "-n", "2"]
FIXED = ["--disable-deadline", "--derandomize"]


def run(checkout: Path, examples: int = EXAMPLES) -> dict[str, Any]:
    """The counts of a run, and under "output" what pytest printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ARRAY_API_"))}
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.json")
        environment = kept | {
            "PYTHONPATH": os.pathsep.join([str(HERE), str(checkout), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "ARRAY_API_TESTS_MODULE": "einkorn.array_api",
            "ARRAY_API_COUNTS": str(counts),
            "EINKORN_OPTIMIZE": "0",
        }
        command = [sys.executable, "-m", "pytest", *OPTIONS, *FIXED, f"--max-examples={examples}", "array_api_tests"]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        if not counts.exists():
            raise RuntimeError(done.stdout[-4000:] + done.stderr[-4000:])
        result: dict[str, Any] = json.loads(counts.read_text(encoding="utf-8"))
    return result | {"output": done.stdout}


def main(arguments: list[str]) -> int:
    result = run(Path(arguments[0]).resolve(), *map(int, arguments[1:2]))
    if result["failed"]:
        print(result["output"])
    for kind in ("left out", "skipped by the suite"):
        print(f"{kind}: {sum(result[kind].values())}")
        for reason, count in sorted(result[kind].items(), key=lambda row: -row[1]):
            print(f"  {count:4}  {reason}")
    print(f"{result['passed']} pass, {len(result['failed'])} fail")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
