"""A traceback shows the user's frames: it ends in the call that found the mistake."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import EinkornError, InternalError
from einkorn.dsl.environment.tracebacks import without_internals
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops

HERE = Path(__file__).name
KERNEL = """
from einkorn.dsl import InputTensor, OutputTensor, foreach, int32, register

@register("frames::wrong")
def wrong(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    foreach(out, lambda i: x[i] / 2)
"""
FOUR = TensorType(DType.int32, (4,), DeviceRef.CPU())


def load(path: Path) -> None:
    def forward(x: TensorValue) -> object:
        return ops.custom("frames::wrong", device=DeviceRef.CPU(), values=[x])[0]

    InferenceSession().load(Graph("wrong", forward=forward, input_types=[FOUR], custom_extensions=[path]))


def build(path: Path) -> None:
    build_package(str(path), str(path.with_suffix(".pkg")), ["host"])


def stage(path: Path) -> None:
    with Graph("staged", input_types=[FOUR]) as graph:
        ops.reshape(graph.inputs[0], (3,))


def open_folder(path: Path) -> None:
    (path.parent / "broken.py").write_text(KERNEL.replace("def wrong", "def wrong)"))
    Graph("opened", input_types=[FOUR], custom_extensions=[path.parent])


def open_nothing(path: Path) -> None:
    Graph("opened", input_types=[FOUR], custom_extensions=[path.with_name("missing")])


def within_forward(path: Path) -> None:
    def forward(x: TensorValue) -> object:
        return ops.reshape(x, (3,))

    Graph("staged", forward=forward, input_types=[FOUR])


def run(path: Path) -> None:
    model = InferenceSession().load(Graph("run", forward=ops.negate, input_types=[FOUR]))
    model(np.zeros(5, np.int32))


@pytest.mark.parametrize("mistake", [load, build, stage, open_folder, open_nothing, within_forward, run])
def test_frames_are_the_users_unless_requested(
    mistake: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(KERNEL)
    shown = {}
    for level in ("warning", "debug"):
        monkeypatch.setenv("EINKORN_LOG", level)
        with pytest.raises(EinkornError) as caught:
            mistake(path)
        frames = traceback.extract_tb(caught.value.__traceback__)
        users = [number for number, frame in enumerate(frames) if Path(frame.filename).name == HERE]
        shown[level] = len(frames) - 1 - users[-1]  # below the user's last frame
        named = [frame.name for frame in frames if Path(frame.filename).name == HERE]
        assert "forward" in named or mistake is not within_forward
    assert shown["warning"] <= 1 < shown["debug"]


def test_faults_keep_their_frames() -> None:
    def fault() -> None:
        raise InternalError("lost", code="EK0902")

    with pytest.raises(InternalError) as caught:
        without_internals(fault)()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fault"
