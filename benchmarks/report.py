"""Tables of what was measured.

A ratio says how many times as fast Einkorn is: NumPy's time through ours. Above 1 is faster, below 1 slower.
"""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

PEERS = ("numpy", "torch", "numba")
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "numba": "Numba"}
TITLES = {
    "latency": "execute of one element, µs",
    "elementwise": "Elementwise, float32: ms; GB/s of Einkorn",
    "chain": "Five elementwise ops in a row: ms; passes = time through that of one x + 1 of the same library",
    "math": "Mathematics, 64 Ki numbers: ms; thousand millions in a second of Einkorn",
    "reductions": "Reductions, float32: ms; GB/s of Einkorn",
    "twenty": "Twenty kernels, float32: ms; GB/s of Einkorn",
    "matmul": "Matrix products, float32: ms; GFLOP/s of Einkorn",
}


def show_machine(console: Console, about: dict[str, Any]) -> None:
    machine, versions = about["machine"], about["versions"]
    console.print(f"{about['date']}, commit {about['commit']}")
    console.print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; load {machine['load']}")
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    console.print(
        "Median (best); processor time on 1 thread, wall time of undisturbed rounds on more. Ratio: theirs / ours,\n"
        "with ~ where all samples were disturbed. 'new' makes the output's memory in each call, 'given' does not.\n"
        "NumPy has threads for products alone.\n"
    )


def show_load(console: Console, rows: list[dict[str, Any]]) -> None:
    """Seconds from the first line of a new process to its first result."""
    table = Table(
        title="First result in a new process, s, without the interpreter's own start",
        title_justify="left",
        box=box.SIMPLE,
    )
    table.add_column("start", no_wrap=True)
    for name in ("import", "stage", "load", "first run", "total", "(best)", "clean", "processor", "(best)"):
        table.add_column(name, justify="right")
    for row in rows:
        median = row["median"]
        stages = [f"{median[stage]:.3f}" for stage in ("import", "stage", "load", "run", "total")]
        total = [f"({row['best']['total']:.3f})", f"{row['clean']}/{row['rounds']}"]
        table.add_row(row["title"], *stages, *total, f"{row['cpu_median']:.3f}", f"({row['cpu_best']:.3f})")
    console.print(table)


def show_compile(console: Console, rows: list[dict[str, Any]]) -> None:
    """Milliseconds of processor time from a kernel's text to its code, by stage."""
    table = Table(title="A compilation, ms of processor time", title_justify="left", box=box.SIMPLE)
    table.add_column("kernel", no_wrap=True)
    for name in (*rows[0]["median"], "numba"):
        table.add_column(name, justify="right")
    for row in rows:
        stages = [f"{1e3 * value:.1f}" for value in row["median"].values()]
        table.add_row(row["title"], *stages, f"{1e3 * row['numba']:.0f}" if "numba" in row else "")
    console.print(table)


def show_section(console: Console, section: str, rows: list[dict[str, Any]]) -> None:
    """One line for each workload, number of threads and kind of output memory; under them what failed, and why."""
    peers = [peer for peer in PEERS if any(f"{peer} new" in row["timings"] for row in rows)]
    unit = next((row["unit"] for row in rows), "")
    table = Table(title=TITLES[section], title_justify="left", box=box.SIMPLE)
    table.add_column("op", no_wrap=True)
    table.add_column("threads", justify="right")
    table.add_column("output")
    table.add_column("einkorn", justify="right")
    if unit:
        table.add_column(unit, justify="right")
    if section == "chain":
        table.add_column("passes", justify="right")
    for peer in peers:
        table.add_column(peer, justify="right")
        table.add_column("ratio", justify="right")
        if section == "chain":
            table.add_column("passes", justify="right")
    table.add_column("clean", justify="right")
    for row in rows:
        for memory in ("new", "given"):
            table.add_row(*_cells(row, memory, peers, rows))
    console.print(table)
    for row in rows:
        for name, reason in row["failures"].items():
            console.print(
                f"{name} failed: {row['title']}, {row['threads']} threads: {reason}", style="red", markup=False
            )


def _cells(row: dict[str, Any], memory: str, peers: list[str], rows: list[dict[str, Any]]) -> list[str]:
    scale = 1e6 if row["section"] == "latency" else 1e3
    chain = row["section"] == "chain"
    timings = {name: row["timings"].get(f"{name} {memory}") for name in ("einkorn", *peers)}
    ours = timings["einkorn"]
    own = _median(ours, row) if ours else 0.0
    cells = [row["title"], str(row["threads"]), memory, _time(ours, row, scale)]
    if row["unit"]:
        cells.append(f"{row['amount'] / own * 1e-9:.1f}" if ours else "")
    if chain:
        cells.append(_passes(rows, row, f"einkorn {memory}"))
    for peer in peers:
        theirs = timings[peer]
        cells.append(_time(theirs, row, scale))
        disturbed = row["threads"] > 1 and not (ours and theirs and ours["clean"] and theirs["clean"])
        cells.append(f"{'~' * disturbed}{_median(theirs, row) / own:.2f}" if ours and theirs else "")
        if chain:
            cells.append(_passes(rows, row, f"{peer} {memory}"))
    fewest = min((t for t in timings.values() if t), key=lambda t: int(t["clean"]), default={"clean": 0, "rounds": 0})
    return [*cells, f"{fewest['clean']}/{fewest['rounds']}"]


def _source(about: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[list[str], str]:
    """The peers that were measured, and where and when: the words above a table of the docs."""
    machine, versions = about["machine"], about["versions"]
    peers = [peer for peer in PEERS if any(f"{peer} new" in row["timings"] for row in rows)]
    text = f"{about['date']}, commit {about['commit']}, {machine['processor']}, load {machine['load']}; "
    return peers, text + ", ".join(f"{NAMES[peer]} {versions[peer]}" for peer in peers)


def twenty_markdown(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The twenty kernels on one thread as a table for `docs/performance.md`: ms of Einkorn, and theirs / ours."""
    peers, source = _source(about, rows)
    lines = [
        source + ". One thread, processor time, medians; *given* is our code alone, and Numba's.",
        "",
        "| kernel | ms | GB/s | " + " | ".join(f"÷ {NAMES[peer]}" for peer in peers) + " | *given*, ms | ÷ Numba |",
        "|---|" + "---|" * (len(peers) + 4),
    ]
    for row in rows:
        times = {name: _median(timing, row) for name, timing in row["timings"].items()}
        ours = times["einkorn new"]
        ratios = [f"{times[f'{peer} new'] / ours:.2f}" if f"{peer} new" in times else "" for peer in peers]
        given, numba = times["einkorn given"], times.get("numba given")
        cells = [row["title"].replace("|", "\\|"), f"{ours * 1e3:.2f}", f"{row['amount'] / ours * 1e-9:.1f}", *ratios]
        lines.append(f"| {' | '.join(cells)} | {given * 1e3:.2f} | {numba / given if numba else 0:.2f} |")
    return "\n".join(lines) + "\n"


def math_markdown(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The functions of mathematics on one thread: ns for a number with given memory, and theirs / ours."""
    peers, source = _source(about, rows)
    columns = [f"{dtype}, ns | " + " | ".join(f"÷ {NAMES[p]}" for p in peers) for dtype in ("float32", "float64")]
    lines = [source + ".", "", f"| function | {' | '.join(columns)} |", "|---|" + "---|" * (2 * len(peers) + 2)]
    cells: dict[str, list[str]] = {}
    for row in rows:
        times = {name: _median(timing, row) for name, timing in row["timings"].items()}
        ours = times["einkorn given"]
        ratios = [f"{times[f'{peer} given'] / ours:.1f}" if f"{peer} given" in times else "" for peer in peers]
        cells.setdefault(row["key"], []).extend([f"{ours / row['amount'] * 1e9:.2f}", *ratios])
    lines += [f"| `{name}` | {' | '.join(texts)} |" for name, texts in cells.items()]
    return "\n".join(lines) + "\n"


# The sections whose tables stand in the docs.
MARKDOWN = {"math": math_markdown, "twenty": twenty_markdown}


def _median(timing: dict[str, Any], row: dict[str, Any]) -> float:
    """Seconds: processor time on one thread, where only the own work counts, and wall time on several."""
    return float(timing["cpu_median" if row["threads"] == 1 else "median"])


def _time(timing: dict[str, Any] | None, row: dict[str, Any], scale: float) -> str:
    if timing is None:
        return ""
    best = float(timing["cpu_best" if row["threads"] == 1 else "best"]) * scale
    digits = 1 if best >= 10 else 2 if best >= 0.1 else 4
    return f"{_median(timing, row) * scale:.{digits}f} ({best:.{digits}f})"


def _passes(rows: list[dict[str, Any]], row: dict[str, Any], contender: str) -> str:
    """The time as a multiple of that of x + 1 in the same process."""
    one = next(r for r in rows if r["key"] == "add_one" and r["threads"] == row["threads"])
    if contender not in one["timings"] or contender not in row["timings"]:
        return ""
    return f"{_median(row['timings'][contender], row) / _median(one['timings'][contender], one):.1f}"
