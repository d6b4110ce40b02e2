"""Runs all cases of the package `onnx`, and writes what passes: docs/onnx.md and onnx_cases.json.

    python tests/support/onnx_page.py

A test compares every later run with the tables.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.onnx_cases import KNOWN, Outcome, cases, op_types, run_case

from einkorn.graph import InferenceSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
BEGIN, END = "<!-- written by tests/support/onnx_page.py -->", "<!-- end of what is written -->"


def tested(name: str, case: Any) -> str:
    """The op type that a case is about."""
    types = op_types(case)
    if len(types) == 1:
        return types[0]
    stem = name.removeprefix("test_").split("_expanded")[0].replace("_", "").lower()
    fitting = [each for each in all_types() if stem.startswith(each.lower())]
    return max(fitting, key=len, default="several")


def all_types() -> list[str]:
    """The op types of ONNX's main domain."""
    import onnx

    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})


def by_row_or_function() -> dict[str, str]:
    """How each op type is converted: by a row, by ONNX's own function, or not at all."""
    import onnx

    from einkorn.graph.onnx.rows import find_row

    collected = {}
    for name in all_types():
        schema = onnx.defs.get_schema(name, onnx.defs.onnx_opset_version(), "")
        if find_row("", name, schema.since_version) is not None:
            collected[name] = "row"
        elif schema.has_function or schema.has_context_dependent_function:
            collected[name] = "function"
    return collected


def page(outcomes: dict[str, Outcome]) -> str:
    """What is written between the marks."""
    how = by_row_or_function()
    table: dict[str, Counter[str]] = {}
    for name, outcome in outcomes.items():
        table.setdefault(tested(name, cases()[name]), Counter())[outcome.state] += 1
    single = {name: o for name, o in outcomes.items() if len(op_types(cases()[name])) == 1}
    # Tensors of dtypes without a counterpart count, too; texts, sequences and optional values are not numbers.
    narrow = re.compile(r"type (U?INT2|2\d),")
    covered = {name: o for name, o in single.items() if o.state != "unsupported" or narrow.search(o.reason)}
    states = Counter(o.state for o in outcomes.values())
    passed = sum(o.state == "pass" for o in covered.values())
    rows = sum(each == "row" for each in how.values())
    share = f"{passed / max(len(covered), 1):.1%}"
    lines = [
        f"Of {len(all_types())} op types {len(how)} have a counterpart: {rows} by a row of the table, the others by",
        f"the function by which ONNX defines them. Of the {len(outcomes)} cases of `onnx` {states['pass']} pass,",
        f"{states['fail']} fail and {states['unsupported']} have values or op types without a counterpart. Of the",
        f"{len(covered)} cases of single nodes with a counterpart {share} pass.",
        "",
        "| op type | converted by | pass | fail | unsupported |",
        "|---|---|---|---|---|",
    ]
    for name in sorted({*table, *how}):
        counts = table.get(name, Counter())
        numbers = " | ".join(str(counts[state] or "") for state in ("pass", "fail", "unsupported"))
        lines.append(f"| {name} | {how.get(name, '')} | {numbers} |")
    lines += ["", "What does not pass:", "", "| case | why |", "|---|---|"]
    rest = [o for o in outcomes.values() if o.state != "pass"]
    for reason in sorted({shortened(o) for o in rest}):
        names = sorted(o.name.removeprefix("test_") for o in rest if shortened(o) == reason)
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        lines.append(f"| {shown} | {reason} |")
    return "\n".join(lines)


def shortened(outcome: Outcome) -> str:
    """A reason for a cell of a table."""
    return f"{outcome.state}: {outcome.reason[:110]}".replace("|", "\\|")


def main() -> None:
    """Runs all cases."""
    session = InferenceSession()
    write({name: run_case(case, session) for name, case in cases().items()})


def write(outcomes: dict[str, Outcome]) -> None:
    """Writes both tables."""
    listed = {o.name: [o.state, o.reason] for o in outcomes.values() if o.state != "pass"}
    KNOWN.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{page(outcomes)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
