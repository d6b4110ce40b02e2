"""Decides how `ops.print` shows tensors, and where: the options of a session.

A style is part of the kernels that print, as values of their parameters: `with_style` gives a graph with these.
Digits and files are the matter of `TensorPrints`, to which the reports of those kernels go.

See also `findings.reports` (what a report says).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..ir import GraphIR, Item, Node
from .reports import Report, numbers_of, render

STYLES = ("compact", "full", "binary", "none")
OP = "print_tensor"
ALL = 1 << 62  # more elements than any tensor has


@dataclass(frozen=True)
class PrintOptions:
    """How tensors are shown; see `InferenceSession.set_print_options`."""

    style: str = "compact"
    precision: int | None = None
    directory: Path | None = None

    @property
    def spec(self) -> str:
        """The format of a float."""
        return "" if self.precision is None or self.style == "binary" else f".{self.precision}f"


def with_style(ir: GraphIR, options: PrintOptions) -> GraphIR:
    """The graph with kernels that print so."""
    return replace(ir, nodes=tuple(_styled(node, options) for node in ir.nodes))


def _styled(node: Item, options: PrintOptions) -> Item:
    if not isinstance(node, Node) or node.name != OP or not node.kernel.shipped:
        return node
    values: dict[str, Any] = dict(node.parameters)
    values["style"] = options.style
    if options.style != "compact":
        values["whole"] = ALL
    return replace(node, parameters=tuple(values.items()))


@dataclass
class TensorPrints:
    """Shows what the kernels of one caller print of tensors; with a directory in a file for each.

    `LABEL-0.txt` has the text that standard output would have had, `LABEL-0.npy` the elements; those of dtypes that
    NumPy has not are written as float32 or int8. The next print of a label has the next number that is free.
    """

    options: PrintOptions
    said: list[str] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def take(self, report: Report, arguments: object) -> None:
        """A part of a print: the head, a size, an element, or the end of the line."""
        text = render(report, arguments, self.options.spec)
        if self.options.directory is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        if self.options.style != "binary" or not self.said:
            self.said.append(text)
        elif any(not isinstance(part, str) for part in report.parts):
            sized = any(isinstance(part, str) and part.strip() for part in report.parts)
            if sized:
                self.sizes += map(int, numbers_of(report, arguments))
            else:
                self.numbers += numbers_of(report, arguments)
        if text.endswith("\n") and all(isinstance(part, str) for part in report.parts) and not text.startswith(","):
            self._write(self.options.directory)

    def _write(self, folder: Path) -> None:
        label, dtype = _label_and_dtype(self.said[0])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.options.style == "binary":
                elements = np.array(self.numbers, _numpy_of(DType[dtype])).reshape(self.sizes)
                with open(_free(folder, label, ".npy"), "xb") as file:
                    np.save(file, elements)
            else:
                _free(folder, label, ".txt").write_text("".join(self.said), encoding="utf-8")
        finally:
            self.said, self.numbers, self.sizes = [], [], []


def _free(folder: Path, label: str, suffix: str) -> Path:
    """The name of a file that does not exist yet."""
    name, number = re.sub(r"[^\w.-]", "_", label) or "_", 0
    while (path := folder / f"{name}-{number}{suffix}").exists():
        number += 1
    return path


def _label_and_dtype(head: str) -> Sequence[str]:
    """Of `label: float32`, with a bracket behind it or not."""
    label, _, dtype = head.rpartition(": ")
    return label, dtype.split()[0]


def _numpy_of(dtype: DType) -> Any:
    """The NumPy dtype for elements in a file."""
    known = dtype.to_numpy()
    if known.kind in "biufc" and known.isbuiltin == 1:
        return known
    return np.dtype(np.float32) if dtype.is_float() else np.dtype(np.int8)
