"""Tables of what was measured.

A ratio says how many times as fast Einkorn is: NumPy's time through ours. Above 1 is faster, below 1 slower.

Input: the rows of a run (see `run`). Output: tables on a console. Non-goals: nothing is measured or judged here.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

PEERS = ("numpy", "torch", "numba")
TITLES = {
    "latency": "execute of one element, µs",
    "elementwise": "Elementwise, float32: ms, GB/s of ours, and how many times as fast as the others",
    "chain": "Five elementwise ops in a row: ms; passes = time through that of one x + 1 of the same library",
    "reductions": "Reductions, float32: ms, GB/s of ours, and how many times as fast as the others",
    "matmul": "Matrix products, float32: ms, GFLOP/s of ours, and how many times as fast as the others",
}


def show_machine(console: Console, about: dict[str, Any]) -> None:
    machine, versions = about["machine"], about["versions"]
    console.print(f"{about['date']}, commit {about['commit']}")
    console.print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; load {machine['load']}")
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    console.print(
        "Times: median of undisturbed rounds, then (best). NumPy's elementwise ops and reductions have one thread.\n"
    )


def show_load(console: Console, rows: list[dict[str, Any]]) -> None:
    """Seconds from the first line of a new process to its first result."""
    table = Table(title="First result in a new process, s, without the interpreter's own start", title_justify="left")
    table.add_column("start")
    for name in ("import", "stage", "load", "first run", "total", "(best)", "clean"):
        table.add_column(name, justify="right")
    for row in rows:
        median = row["median"]
        stages = [f"{median[stage]:.3f}" for stage in ("import", "stage", "load", "run", "total")]
        table.add_row(row["title"], *stages, f"({row['best']['total']:.3f})", f"{row['clean']}/{row['rounds']}")
    console.print(table)


def show_section(console: Console, section: str, rows: list[dict[str, Any]]) -> None:
    """One row for each workload, number of threads and kind of output memory."""
    peers = [peer for peer in PEERS if any(f"{peer} new" in row["timings"] for row in rows)]
    unit = next((row["unit"] for row in rows), "")
    table = Table(title=TITLES[section], title_justify="left")
    for name, justify in (("op", "left"), ("threads", "right"), ("output", "left"), ("einkorn", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    if unit:
        table.add_column(unit, justify="right")
    if section == "chain":
        table.add_column("passes", justify="right")
    for peer in peers:
        table.add_column(peer, justify="right")
        table.add_column(f"{peer}/einkorn", justify="right")
    table.add_column("clean", justify="right")
    for row in rows:
        for memory in ("new", "given"):
            _add(table, row, memory, peers, section, rows)
        for name, reason in row["failures"].items():
            table.add_row(row["title"], str(row["threads"]), "", f"[red]{name}: {reason}")
    console.print(table)


def _add(
    table: Table, row: dict[str, Any], memory: str, peers: list[str], section: str, rows: list[dict[str, Any]]
) -> None:
    scale, digits = (1e6, 2) if section == "latency" else (1e3, 2)
    ours = row["timings"].get(f"einkorn {memory}")
    cells = [row["title"], str(row["threads"]), memory, _time(ours, scale, digits)]
    if row["unit"]:
        cells.append(f"{row['amount'] / ours['median'] * 1e-9:.1f}" if ours else "")
    if section == "chain":
        cells.append(" / ".join(_passes(rows, row, f"{name} {memory}") for name in ("einkorn", *peers)))
    for peer in peers:
        theirs = row["timings"].get(f"{peer} {memory}")
        cells.append(_time(theirs, scale, digits))
        cells.append(f"{theirs['median'] / ours['median']:.2f}" if ours and theirs else "")
    low = min((t["clean"] for name, t in row["timings"].items() if name.endswith(memory)), default=0)
    most = max((t["rounds"] for name, t in row["timings"].items() if name.endswith(memory)), default=0)
    table.add_row(*cells, f"{low}/{most}")


def _time(timing: dict[str, Any] | None, scale: float, digits: int) -> str:
    return f"{timing['median'] * scale:.{digits}f} ({timing['best'] * scale:.{digits}f})" if timing else ""


def _passes(rows: list[dict[str, Any]], row: dict[str, Any], contender: str) -> str:
    one = next((r for r in rows if r["key"] == "add_one" and r["threads"] == row["threads"]), None)
    if one is None or contender not in one["timings"] or contender not in row["timings"]:
        return "-"
    return f"{row['timings'][contender]['median'] / one['timings'][contender]['median']:.1f}"
