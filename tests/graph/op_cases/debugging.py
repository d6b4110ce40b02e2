"""Cases of ops that show tensors and keep ops apart."""

from __future__ import annotations

from typing import Any

from support.op_cases import T, case

from einkorn.graph import ops

N = [{"n": 3, "m": 4}, {"n": 0, "m": 2}, {"n": 40, "m": 33}]


def printed(value: Any) -> Any:
    ops.print(value, label="value")
    ops.print("a text")
    return value


def of_one_device(x: Any, y: Any) -> Any:
    ops.assert_same_device(x, weight=y)
    return x


CASES = [
    case("print", lambda value: value, call=printed, value=T("n", "m"), sizes=N[:2]),
    case("fence", lambda x: x, x=T("n", "m"), sizes=N),
    case("assert_same_device", lambda x, y: x, call=of_one_device, x=T("n", "m"), y=T("m"), sizes=N),
]
