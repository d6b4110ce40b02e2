"""Measures Einkorn side by side with NumPy, and with PyTorch and Numba where they are installed.

    python benchmarks/run.py                          everything, in some ten minutes
    python benchmarks/run.py --only matmul chain      some sections
    python benchmarks/run.py --only math --functions log pow --threads 1
    python benchmarks/run.py --json result.json       also as data
    python benchmarks/run.py --tiny                   a few seconds: whether it works, not how fast

Rounds are interleaved, so that all contenders see the same machine; docs/performance.md says what the numbers mean. The
exit status is 1 when a workload of Einkorn could not be run or differs from NumPy.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import compiling
import loading
import report
from mathematics import BINARY, UNARY
from rich.console import Console
from workloads import FULL, SMALL

HERE = Path(__file__).resolve().parent
SECTIONS = ("load", "compile", "latency", "elementwise", "chain", "math", "reductions", "matmul", "twenty")
PACKAGES = ("einkorn", "numpy", "torch", "numba", "llvmlite", "torch-mlir")


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 170)
    peers = ["numpy", *(p for p in ("torch", "numba") if p in options.peers and importlib.util.find_spec(p))]
    sizes = SMALL if options.tiny else FULL
    rounds = options.rounds or (2 if options.tiny else 9)
    about = _about()
    report.show_machine(console, about)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="einkorn-bench-") as work:
        if "load" in options.only:
            starts = loading.measure_starts(1 if options.tiny else rounds, peers, Path(work), options.tiny)
            report.show_load(console, starts)
            rows += starts
        if "compile" in options.only:
            compilations = compiling.measure_compilations(1 if options.tiny else rounds, peers)
            report.show_compile(console, compilations)
            rows += compilations
        for section in options.only:
            if section in ("load", "compile"):
                continue
            request = {"rounds": rounds, "sections": [section], "functions": options.functions, "peers": peers}
            request |= {**asdict(sizes), "pause": 0.0 if sizes is SMALL else 0.03}
            measured = [row for count in options.threads for row in _rows(request, count, work)]
            measured.sort(key=lambda row: row["order"])
            report.show_section(console, section, measured)
            rows += measured
    if options.docs:
        for section in set(options.only) & set(report.MARKDOWN):
            measured = [row for row in rows if row.get("section") == section and row["threads"] == 1]
            _write_docs(section, report.MARKDOWN[section](about, measured))
    if options.json:
        Path(options.json).write_text(json.dumps({**about, "results": rows}, indent=1) + "\n")
    return int(any("einkorn" in row.get("failures", {}) for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--functions", nargs="+", choices=UNARY + BINARY, default=[], metavar="NAME", help="of `math`")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads; by default 1 and 2")
    parser.add_argument("--rounds", type=int, help="samples of each contender, by default 9, or more")
    parser.add_argument(
        "--peers", nargs="*", choices=["torch", "numba"], default=["torch", "numba"], help="in addition to NumPy"
    )
    parser.add_argument("--json", metavar="FILE", help="write the numbers there too")
    parser.add_argument("--docs", action="store_true", help="write the tables of `math` and `twenty` into the docs")
    parser.add_argument("--tiny", action="store_true", help="small sizes and few rounds, for a test of the program")
    options = parser.parse_args()
    if options.docs and (options.functions or options.tiny):
        parser.error("the tables of the docs are of all functions, and of full size")
    return options


def _rows(request: dict[str, Any], threads: int, work: str) -> Iterator[dict[str, Any]]:
    """The rows of a section, from a process with this many threads, in the order of the workloads."""
    limits = ("EINKORN", "OMP", "OPENBLAS", "MKL", "NUMBA")
    environment = {
        **os.environ,
        **{f"{name}_NUM_THREADS": str(threads) for name in limits},
        "EINKORN_CACHE_DIR": str(Path(work, "cache")),
    }
    command = [sys.executable, str(HERE / "child.py"), json.dumps({**request, "threads": threads})]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for order, line in enumerate(child.stdout):
            yield {**json.loads(line), "order": order}
    if child.returncode:
        section = request["sections"][0]
        raise SystemExit(f"the process for '{section}' on {threads} threads ended with status {child.returncode}")


def _write_docs(section: str, table: str) -> None:
    """Puts a table between its marks in `docs/performance.md`."""
    file = HERE.parent / "docs" / "performance.md"
    before, mark, rest = file.read_text().partition(f"<!-- {section} -->\n")
    _, end, after = rest.partition(f"<!-- /{section} -->\n")
    file.write_text(f"{before}{mark}{table}{end}{after}")


def _about() -> dict[str, Any]:
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        if importlib.util.find_spec(name.replace("-", "_")):
            versions[name] = importlib.metadata.version(name)
    machine = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"date": now, "commit": _commit(), "machine": machine, "versions": versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
