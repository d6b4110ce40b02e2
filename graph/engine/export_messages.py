"""Writes the table of messages of an exported model: what kernels report, and what its door says of wrong calls.

See also `engine.export`, `compiler.runtime.messages` (the code that shows them).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...dsl.contract.exports import (
    EXPECTED,
    GOT,
    NO_MEMORY,
    SMALL_STACK,
    WRONG_ARGUMENT,
    WRONG_MACHINE,
    WRONG_SIZE,
    WRONG_WEIGHTS,
    WRONG_WORKSPACE,
    ExportTensor,
    GivenWeight,
    Message,
    Shown,
)
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import Place, user_place
from ...dsl.frontend.anchors import place_at
from ...dsl.types.dtype import DType
from ..distributed.calls import exportable
from ..findings.data_races import ACCESS, BEGIN
from ..findings.reports import CODES, Report, read_reports
from ..findings.waiting import WAITING
from ..ir import GraphIR, Node
from ..loading.compile import ExportedCode, unformatted
from .c_names import CODE

_log = logging.getLogger("einkorn.export")
INT = DType.int64


def refused(ir: GraphIR, text: str, expected: str, hint: str | None = None, place: Place | None = None) -> GraphError:
    """The error of a graph that cannot be exported."""
    return GraphError(
        f"graph '{ir.name}' cannot be exported: {text}",
        code=CODE,
        place=place or user_place(),
        expected=expected,
        hint=hint,
    )


class MessageTable:
    """The messages of a model, and by kind the first row of those of its door.

    Args:
        name: begins the names of its functions.
    """

    def __init__(self, ir: GraphIR, code: ExportedCode, name: str) -> None:
        self.ir, self.code, self.name = ir, code, name
        self.messages: list[Message] = []
        self.rows: dict[str, int] = {}

    def row(self, *parts: str | Shown, status: int, argument: int = -1, axis: int = -1) -> int:
        """Adds a row; its number."""
        self.messages.append(Message(parts, status, argument, axis))
        return len(self.messages) - 1

    def add_sites(self) -> None:
        """The rows of what kernels report.

        Raises:
            GraphError: EK0483 a kernel is watched for data races.
        """
        kernels = [node.kernel.portable for node in self.ir.nodes if isinstance(node, Node)]
        kernels += [kernel.shape for kernel in kernels if kernel.shape is not None]
        for number, report in enumerate(exportable(self.ir, read_reports(json.dumps(self.code.records).encode()))):
            if report.kind in (BEGIN, ACCESS, WAITING):
                raise refused(self.ir, f"op '{report.op}' is watched for data races", 'checks="safe" or "off"')
            values = iter(range(len(report.parts)))
            parts = [
                part if isinstance(part, str) else Shown(next(values), DType[part[1]], part[0]) for part in report.parts
            ]
            count = sum(isinstance(part, Shown) for part in parts)
            for part in parts:
                if isinstance(part, Shown) and part.spec and unformatted(part):
                    _log.warning("op '%s': the format %r is left out in exported code", report.op, part.spec)
            if report.kind == "print":
                self.messages.append(Message(tuple(parts), 0, values=count))
                continue
            place = place_at(report.anchor, kernels)
            self.messages.append(Message(tuple(self._failure(report, parts, place)), 1 + number, values=count))

    def _failure(self, report: Report, parts: list[str | Shown], place: Place | None) -> Iterator[str | Shown]:
        """The message of a check of a kernel: as the error of a call, with names of files and without their folders."""
        if report.kind in CODES:
            yield f"error[{CODES[report.kind]}]: "
            yield from parts
            yield f", in op '{report.op}'"
        else:
            what = "assertion failed" if report.kind == "assert" else report.kind
            yield f"error[EK0701]: {what} in op '{report.op}'{': ' if parts else ''}"
            yield from parts
        staged = [
            node.place for node in self.ir.nodes if isinstance(node, Node) and node.name == report.op and node.place
        ]
        for what, at in (("at", place), *(("staged at", each) for each in dict.fromkeys(staged))):
            if at is not None:
                yield f"\n{what} {shown_place(at)}"

    def add_tensors(self, tensors: Sequence[ExportTensor], dims: Sequence[str]) -> None:
        """The rows of the door's own checks."""
        for kind in ("null", "aligned", "overlap"):
            self.rows[kind] = len(self.messages)
            for k, each in enumerate(tensors):
                about = f"'{each.name}' "
                parts: dict[str, tuple[str | Shown, ...]] = {
                    "null": (f"{about}is a null pointer, and has elements",),
                    "aligned": (
                        f"{about}lies at ",
                        Shown(GOT, DType.uint64),
                        ", and its elements need a multiple of ",
                        Shown(EXPECTED, INT),
                    ),
                    "overlap": (f"{about}is written, and shares memory with tensor ", Shown(EXPECTED, INT)),
                }
                code = {"null": "EK0452", "aligned": "EK0464", "overlap": "EK0462"}[kind]
                self.row(f"error[{code}]: ", *parts[kind], status=WRONG_ARGUMENT, argument=k)
        self.rows["dims"] = len(self.messages)
        for name in dims:
            self.row(f"error[EK0475]: size '{name}' is ", Shown(GOT, INT), ", below zero", status=WRONG_SIZE)
        others: dict[str, tuple[int, tuple[str | Shown, ...]]] = {
            "workspace_null": (WRONG_WORKSPACE, ("the workspace is a null pointer",)),
            "workspace_aligned": (
                WRONG_WORKSPACE,
                ("the workspace lies at ", Shown(GOT, DType.uint64), ", and has to lie at a multiple of 64"),
            ),
            "workspace_size": (WRONG_SIZE, ("the workspace would have more bytes than 63 bits count",)),
            "memory": (NO_MEMORY, ("there is no memory for ", Shown(GOT, INT), " bytes")),
            "machine": (WRONG_MACHINE, (f"this machine runs no code for {', '.join(self.code.target_names)}",)),
            "stack": (SMALL_STACK, ("a call needs ", Shown(EXPECTED, INT), " bytes of stack, more than are left")),
            "plan": (WRONG_SIZE, (f"the plan was not prepared by {self.name}_prepare",)),
        }
        for kind, (status, texts) in others.items():
            head = "error[EK0813]: " if status == NO_MEMORY else "error: "
            self.rows[kind] = self.row(head, *texts, status=status)

    def add_weights(self, given: Sequence[GivenWeight]) -> None:
        """The rows of what is wrong with weights that are not in the file."""
        for kind, text in (("weight", "was not given: "), ("weight_aligned", "lies at ")):
            self.rows[kind] = len(self.messages)
            for each in given:
                parts: list[str | Shown] = [f"error[EK0433]: weight '{each.name}' {text}"]
                if kind == "weight":
                    parts.append(f"call {self.name}_set_weight first")
                else:
                    parts += [Shown(GOT, DType.uint64), ", and needs a multiple of ", Shown(EXPECTED, INT)]
                self.row(*parts, status=WRONG_WEIGHTS)
        size: tuple[str | Shown, ...] = (
            "has ",
            Shown(GOT, INT),
            " bytes, and was exported with ",
            Shown(EXPECTED, INT),
        )
        texts: dict[str, tuple[str | Shown, ...]] = {
            "weight_name": ("the model has no weight of this name",),
            "weights_file": ("the file of weights, .safetensors next to the code, cannot be opened",),
            "weights_size": ("the file of weights ", *size),
            "weights_changed": ("the file of weights is not the one that was exported with the code",),
        }
        for kind, parts_ in texts.items():
            self.rows[kind] = self.row("error[EK0433]: ", *parts_, status=WRONG_WEIGHTS)


def shown_place(place: Place) -> str:
    """A place without the folders of the machine that exports."""
    return f"{Path(place.file).name}:{place.line}"
