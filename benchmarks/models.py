"""Measures ONNX files that others have trained next to ONNX Runtime, and writes the tables of docs/models.md.

    python benchmarks/models.py                      # all tables
    python benchmarks/models.py --update             # and docs/models.md
    python benchmarks/models.py --update magika      # some rows anew; the others of the page stay
    python benchmarks/models.py --update products    # a table anew
    python benchmarks/models.py --update --minutes 15    # as many rows as that allows

The page is written after each row. With `--minutes` the rows that the page does not have come first, and no row begins
when the time is over; a row that takes more than `ROW_SECONDS` ends without figures. Rows whose libraries are not
installed stay as they are.

Each file is measured in a process of its own, on one thread, with an empty cache: what its first load takes is the time
that the processor worked. Then both sides take turns, and what counts is the median of the ratios of their processor
times: 1 is as fast as ONNX Runtime, 2 twice as fast.

A table is a row of `TABLES`: its columns, the names of its rows, and a function that measures one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import models_decode
import models_products
import models_serving
from model_files import FILES, difference

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
ROUNDS, SECONDS = 21, 6.0
ROW_SECONDS = 300.0
LEAST_SECONDS = 5.0  # a row does not begin with less
NOT_MEASURED = "not measured"
Cells = list[str]


@dataclass(frozen=True)
class PageTable:
    """A table of the page.

    Attributes:
        columns: what stands above the cells, that of the names first.
        names: of the rows.
        measure: the cells of a row but its name, called in a process of its own.
        summary: a line below the table.
        needs: by the name of a row, the libraries that it is compared with.
    """

    columns: Sequence[str]
    names: Sequence[str]
    measure: Callable[[str], Cells]
    summary: Callable[[Mapping[str, Cells]], str]
    needs: Callable[[str], Sequence[str]]


# *** files ***


def measure_file(name: str) -> Cells:
    """Whether a file runs as it is shipped, how far it is from ONNX Runtime, and how fast."""
    import onnxruntime

    from einkorn.graph import InferenceSession, from_onnx

    (file,) = (each for each in FILES if each.name == name)
    if not file.file.exists():
        return ["not installed", "", "", "", "", ""]
    begun = time.process_time()
    try:
        graph = from_onnx(file.file)
        model = InferenceSession().load(graph)
    except Exception as error:
        code = getattr(error, "code", None) or type(error).__name__
        return [f"no: {code}", "", "", "", "", ""]
    load = time.process_time() - begun
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(file.file), options)
    worst = 0.0
    for size in file.sizes:
        inputs = file.inputs(size)
        results = model.execute(*(inputs[each] for each in graph.ir.names))
        worst = max(worst, difference([buffer.to_numpy() for buffer in results], theirs.run(None, inputs)))
    inputs = file.inputs(file.sizes[1])
    arguments = [inputs[each] for each in graph.ir.names]
    ours, other, ratio = _turns(lambda: model.execute(*arguments), lambda: theirs.run(None, inputs))
    return ["yes", f"{worst:.0e}", f"{ours * 1e3:.2f}", f"{other * 1e3:.2f}", f"{ratio:.2f}", f"{load:.1f}"]


def _turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float, float]:
    """Processor seconds of a call of each, and the median of the ratios."""
    first = time.process_time()
    ours()
    calls = max(1, int(2e-3 / max(time.process_time() - first, 1e-5)))
    pairs: list[tuple[float, float]] = []
    end = time.monotonic() + SECONDS
    while len(pairs) < 5 or (len(pairs) < ROUNDS and time.monotonic() < end):
        times = []
        for function in (ours, theirs):
            start = time.process_time()
            for _ in range(calls):
                function()
            times.append((time.process_time() - start) / calls)
        pairs.append((times[0], times[1]))
    own, other = (statistics.median(each) for each in zip(*pairs, strict=True))
    return own, other, statistics.median(theirs / ours for ours, theirs in pairs)


def _of_files(rows: Mapping[str, Cells]) -> str:
    run = [cells for cells in rows.values() if cells[0] == "yes"]
    if not run:
        return "No file was measured."
    ratios, loads = [float(cells[4]) for cells in run], [float(cells[5]) for cells in run if cells[5]]
    speed = f"median {statistics.median(ratios):.2f}, worst {min(ratios):.2f} of ONNX Runtime's"
    load = f"median {statistics.median(loads):.1f}, worst {max(loads):.1f} s"
    return f"{len(run)} of {len(rows)} files run as they are shipped. Speed: {speed}. First load: {load}."


def measure_decode(name: str) -> Cells:
    """Milliseconds of a step of a Llama, and how fast it is next to PyTorch, or next to a smaller cache."""
    ours, other = models_decode.measure(name)
    peer = "a smaller cache" if models_decode.ROWS[name].roomy else "PyTorch"
    return [f"{ours:.2f}", peer, f"{other:.2f}", f"{other / ours:.2f}"]


def measure_product(name: str) -> Cells:
    """What is multiplied or convolved, milliseconds of both sides, and how fast it is next to the bar."""
    row = models_products.named(name)
    times = [f"{seconds * 1e3:.3f}" for seconds in (row.ours, row.theirs)]
    return [row.what, times[0], row.peer, times[1], f"{row.ratio:.2f}", f"{row.bar}"]


def _of_products(rows: Mapping[str, Cells]) -> str:
    run = [cells for cells in rows.values() if cells[-1]]
    if not run:
        return "No row was measured."
    reached = sum(float(cells[4]) >= float(cells[5]) for cells in run)
    return f"{reached} of {len(run)} rows reach their bar."


def measure_serving(name: str) -> Cells:
    """Milliseconds of a step, a sampled row or a layer, and how fast it is next to a peer, where it is compared."""
    start = time.process_time()
    row = models_serving.ROWS[name]()
    spent, rate = f"{time.process_time() - start:.1f}", f"{row.tokens / row.ours * 1e3:.0f}" if row.tokens else ""
    if row.theirs is None:
        return [f"{row.ours:.3f}", rate, row.peer, "", "", spent]
    return [f"{row.ours:.3f}", rate, row.peer, f"{row.theirs:.3f}", f"{row.theirs / row.ours:.2f}", spent]


TABLES: Mapping[str, PageTable] = {
    "files": PageTable(
        ("file", "runs", "difference", "ours, ms", "ONNX Runtime, ms", "speed", "first load, s"),
        [each.name for each in FILES],
        measure_file,
        _of_files,
        lambda _: ("onnxruntime",),
    ),
    "decode": PageTable(
        ("step", "ours, ms", "next to", "that, ms", "speed"),
        list(models_decode.ROWS),
        measure_decode,
        lambda _: "A Llama of 25.4 M parameters in float32, its cache in buffers, 512 tokens back.",
        lambda _: ("torch",),
    ),
    "products": PageTable(
        ("row", "what", "ours, ms", "next to", "that, ms", "speed", "bar"),
        models_products.NAMES,
        measure_product,
        _of_products,
        models_products.needs,
    ),
    "serving": PageTable(
        ("row", "ours, ms", "tokens/s", "next to", "that, ms", "speed", "whole row, s"),
        list(models_serving.ROWS),
        measure_serving,
        lambda _: "A step gives a token to each sequence, 100 tokens back, sampling included.",
        models_serving.needs,
    ),
}


# *** the page ***


def rows_of(text: str, table: str) -> dict[str, Cells]:
    """The rows of a table that a page has."""
    match = re.search(_PART.format(table), text, re.DOTALL)
    lines = [line for line in (match[2] if match else "").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return {name: rest for name, *rest in cells}


_PART = r"(<!-- {0}: written by make models-speed -->\n)(.*?)(<!-- end -->)"


def with_rows(text: str, table: str, rows: Mapping[str, Cells]) -> str:
    """A page with other rows in a table."""
    spec = TABLES[table]
    lines = [f"| {' | '.join(spec.columns)} |", f"|{'---|' * len(spec.columns)}"]
    lines += [f"| {' | '.join([name, *cells])} |" for name, cells in rows.items()]
    made = "\n".join([*lines, "", spec.summary(rows), ""])
    return re.sub(_PART.format(table), lambda match: f"{match[1]}{made}{match[3]}", text, flags=re.DOTALL)


def measured(table: str, name: str, seconds: float = ROW_SECONDS) -> Cells:
    """The cells of a row, measured in a process of its own with an empty cache."""
    empty = [""] * (len(TABLES[table].columns) - 2)
    with tempfile.TemporaryDirectory() as cache:
        settings = {"EINKORN_CACHE_DIR": cache, "EINKORN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--row", table, name]
        try:
            done = subprocess.run(
                command, env=os.environ | settings, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return [f"no: more than {seconds:.0f} s", *empty]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [f"no: {last[:60]}", *empty]
    cells: Cells = json.loads(done.stdout.splitlines()[-1])
    return cells


def missing(table: str, name: str) -> list[str]:
    """The libraries that a row needs and that are not installed."""
    return [each for each in TABLES[table].needs(name) if importlib.util.find_spec(each) is None]


def chosen(names: Sequence[str], page: Mapping[str, Mapping[str, Cells]]) -> list[tuple[str, str]]:
    """Tables and rows to measure, those that the page does not have first; names are of rows or of tables.

    Raises:
        SystemExit: a name that there is not.
    """
    known = {name for spec in TABLES.values() for name in spec.names} | TABLES.keys()
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no row or table is named {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    pairs = [(table, name) for table, spec in TABLES.items() for name in spec.names]
    if names:
        pairs = [(table, name) for table, name in pairs if table in names or name in names]
    return sorted(pairs, key=lambda pair: _is_measured(page[pair[0]].get(pair[1])))


def _is_measured(cells: Cells | None) -> bool:
    return cells is not None and cells[0] != NOT_MEASURED and not cells[0].startswith("no: ")


def measure(names: Sequence[str], page: Path, update: bool, minutes: float | None) -> None:
    """Measures rows one by one, and writes the page after each of them if `update`."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    text = page.read_text(encoding="utf-8")
    rows = {table: rows_of(text, table) for table in TABLES}
    for table, spec in TABLES.items():
        empty = [NOT_MEASURED, *[""] * (len(spec.columns) - 2)]
        rows[table] = {name: rows[table].get(name, empty) for name in spec.names}
    left_out: dict[str, str] = {}
    for table, name in chosen(names, rows):
        left = end - time.monotonic()
        if without := missing(table, name):
            left_out[name] = f"needs {', '.join(without)}"
        elif left < LEAST_SECONDS:
            left_out[name] = f"{minutes:g} minutes are over"
        else:
            rows[table][name] = measured(table, name, min(ROW_SECONDS, left))
            print(f"{name:20}  {'  '.join(rows[table][name])}", flush=True)
            if update:
                page.write_text(with_rows(page.read_text(encoding="utf-8"), table, rows[table]), encoding="utf-8")
    for table, spec in TABLES.items():
        print(f"{table}: {spec.summary(rows[table])}")
    for name, why in left_out.items():
        print(f"left out: {name}: {why}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures models next to other libraries.")
    parser.add_argument("names", nargs="*", help="rows or tables; all when left out")
    parser.add_argument("--update", action="store_true", help="write docs/models.md after each row")
    parser.add_argument("--minutes", type=float, help="begin no row when so much time is over")
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        table, name = given.row
        print(json.dumps(TABLES[table].measure(name)))
        return
    measure(given.names, PAGE, given.update, given.minutes)


if __name__ == "__main__":
    main()
