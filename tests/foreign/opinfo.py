"""Runs PyTorch's OpInfo samples through Einkorn's graphs, and counts what agrees.

    python tests/foreign/opinfo.py [op ...]      prints what differs
    python tests/foreign/opinfo.py --update      writes docs/opinfo.md and opinfo.json

It needs PyTorch and its test library (`expecttest`). Each sample of float32 becomes a graph.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from opinfo_table import TABLE, Unsupported

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

HERE = Path(__file__).parent
PAGE, COUNTS = HERE.parents[1] / "docs" / "opinfo.md", HERE / "opinfo.json"
MAX_SAMPLES = 60  # samples of one op


@dataclass
class Result:
    """Of one op: how many samples agree, differ, are refused by us as not supported; and reasons."""

    passed: int = 0
    failed: int = 0
    unsupported: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    errors: int = 0  # error inputs that raise here, too
    accepted: int = 0  # error inputs that do not


def op_infos() -> Iterator[Any]:
    """The OpInfos that have a row, of float32."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if info.name in TABLE and torch.float32 in info.dtypes:
            yield info


class Inputs:
    """The tensors of a sample: graph inputs while it is staged."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.values: list[Any] = []

    def collect(self, value: Any) -> None:
        """Takes all tensors in a structure, in order."""
        import torch

        if isinstance(value, torch.Tensor):
            self.arrays.append(value.detach().resolve_neg().resolve_conj().contiguous().numpy())
        elif isinstance(value, list | tuple):
            for item in value:
                self.collect(item)
        elif isinstance(value, dict):
            self.collect(list(value.values()))

    def staged(self, value: Any) -> Any:
        """The same structure with graph values for tensors."""
        import torch

        if isinstance(value, torch.Tensor):
            return self.values.pop(0)
        if isinstance(value, dict):
            return {name: self.staged(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.staged(item) for item in value]
        return value


def run_sample(function: Any, sample: Any) -> list[np.ndarray[Any, Any]]:
    """The results of a sample in a graph."""
    inputs = Inputs()
    structure = [sample.input, list(sample.args), dict(sample.kwargs)]
    inputs.collect(structure)
    types = [TensorType(DType.from_numpy(a.dtype), a.shape, DeviceRef.CPU()) for a in inputs.arrays]

    def forward(*values: Any) -> Any:
        inputs.values = list(values)
        first, args, kwargs = inputs.staged(structure)
        return function(first, *args, **kwargs)

    model = InferenceSession().load(Graph("sample", forward=forward, input_types=types))
    return [np.array(buffer.to_numpy()) for buffer in model(*inputs.arrays)]


def expected_of(info: Any, sample: Any) -> list[np.ndarray[Any, Any]]:
    """What PyTorch gives, as arrays."""
    import torch

    with torch.no_grad():
        result = info.op(sample.input, *sample.args, **sample.kwargs)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    return [r.resolve_neg().resolve_conj().contiguous().numpy() for r in results]


def difference(actual: list[Any], expected: list[Any]) -> str | None:
    """What is wrong, or None. Integers for floats and the other way are not looked at."""
    if len(actual) < len(expected):
        expected = expected[: len(actual)]  # sort gives values alone
    for k, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != e.shape:
            return f"output {k} has the shape {a.shape} instead of {e.shape}"
        if e.dtype == np.bool_ or e.dtype.kind in "iu":
            if not np.array_equal(a, e):
                return f"output {k} differs"
        elif not np.allclose(a.astype(np.float64), e.astype(np.float64), rtol=2e-5, atol=2e-5, equal_nan=True):
            return f"output {k} differs by {np.nanmax(np.abs(a.astype(np.float64) - e.astype(np.float64))):.3g}"
    return None


def run_op(info: Any) -> Result:
    """All samples of float32, and the error inputs."""
    import torch

    result = Result()
    for number, sample in enumerate(info.sample_inputs("cpu", torch.float32)):
        if number == MAX_SAMPLES:
            break
        try:
            wanted = expected_of(info, sample)
            trouble = difference(run_sample(TABLE[info.name], sample), wanted)
        except Unsupported as reason:
            result.unsupported[str(reason)] += 1
            continue
        except (EinkornError, TypeError, ValueError, IndexError) as error:
            trouble = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
        if trouble is None:
            result.passed += 1
        else:
            result.failed += 1
            result.failures.append(f"sample {number} {sample.summary()[:200]}: {trouble}")
    if info.error_inputs_func is not None:
        for wrong in info.error_inputs("cpu"):
            try:
                run_sample(TABLE[info.name], wrong.sample_input)
                result.accepted += 1
            except EinkornError:
                result.errors += 1
            except Exception:  # what the row cannot even request says nothing of the op
                continue
    return result


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def page(results: dict[str, Result]) -> str:
    """docs/opinfo.md."""
    passed = sum(r.passed for r in results.values())
    ran = passed + sum(r.failed for r in results.values())
    left = sum(sum(r.unsupported.values()) for r in results.values())
    lines = [
        "# PyTorch's OpInfo",
        "",
        "The samples by which PyTorch tests its own operators, in float32, run through Einkorn's graphs and",
        "compared with what PyTorch computes; written by `make foreign-tables`, with the extra `[foreign]`. *Error",
        "inputs* are calls that PyTorch refuses: how many are refused here. The last column lists unsupported",
        "features, with the number of samples that need them.",
        "",
        f"{passed:,} of {ran:,} samples agree ({passed / max(1, ran):.1%}); {left:,} more need unsupported features.",
        "",
        "| op of PyTorch | agree | differ | error inputs refused | unsupported |",
        "|---|---|---|---|---|",
    ]
    for name, r in sorted(results.items()):
        reasons = "; ".join(f"{reason} ({count})" for reason, count in r.unsupported.items())
        wrong = f"{r.errors} of {r.errors + r.accepted}" if r.errors + r.accepted else ""
        lines.append(f"| `{name}` | {r.passed} | {r.failed or ''} | {wrong} | {reasons} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    update = "--update" in arguments
    wanted = [a for a in arguments if not a.startswith("--")]
    results = {}
    for info in op_infos():
        if wanted and info.name not in wanted:
            continue
        results[name_of(info)] = r = run_op(info)
        print(
            f"{name_of(info)}: {r.passed} agree, {r.failed} differ, {sum(r.unsupported.values())} unsupported",
            flush=True,
        )
        for line in r.failures[:3]:
            print("   ", line)
    passed, failed = (sum(getattr(r, kind) for r in results.values()) for kind in ("passed", "failed"))
    print(f"{passed} of {passed + failed} samples agree")
    if update:
        PAGE.write_text(page(results), encoding="utf-8")
        COUNTS.write_text(json.dumps({name: r.passed for name, r in sorted(results.items())}, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
