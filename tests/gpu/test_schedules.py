"""The shortest schedule that shows a failure which a seed has shown: found, said, and replayed."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.gpu_case import KERNELS

from einkorn.dsl import DType
from einkorn.dsl.contract.schedules import BLOCKS, ScheduleRow, Switch, parse_schedule
from einkorn.dsl.diagnostics.errors import DeviceError, KernelError
from einkorn.graph import Accelerator, Buffer, BufferType, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.calling import schedules
from einkorn.graph.calling.schedules import said, shortest, switches_of

FILE = KERNELS / "wrong_memory.py"
GPU = DeviceRef.GPU()
X = np.arange(256, dtype=np.int32)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is found depends on no clock."""
    monkeypatch.setattr(schedules, "SECONDS", 60.0)
    if "long" not in request.node.name:
        monkeypatch.setattr(schedules, "PATIENCE", 60.0)


def call(op: str, device: Accelerator, **parameters: Any) -> KernelError | None:
    """How one call of an op of the file fails, if it does."""
    type = TensorType(DType.int32, ["n"], GPU)

    def forward(value: Any) -> Any:
        out = ops.custom(f"wrong::{op}", device=GPU, values=[value], out_types=[type], parameters=parameters)
        return out[0]

    model = InferenceSession(devices=[device]).load(Graph("drawn", forward, [type], custom_extensions=[FILE]))
    try:
        model(Buffer.from_numpy(X).to(device))
    except KernelError as error:
        return error
    return None


def relay(device: Accelerator) -> tuple[KernelError | None, list[int]]:
    """How a call fails that changes its input, and what it leaves there."""

    def forward(state: Any) -> Any:
        ops.inplace_custom("wrong::relayed", device=GPU, values=[state])
        return ops.constant(0, DType.int32, device=GPU)

    graph = Graph("drawn", forward, [BufferType(DType.int32, ["n"], GPU)], custom_extensions=[FILE])
    state = Buffer.from_numpy(np.zeros(4, np.int32)).to(device)
    try:
        InferenceSession(devices=[device]).load(graph)(state)
    except KernelError as error:
        return error, state.to_numpy().tolist()
    return None, state.to_numpy().tolist()


def replay(error: KernelError) -> str:
    """The schedule that an error says."""
    (text,) = re.findall(r'schedule="([^"]*)"', "\n".join(error.notes))
    return str(text)


@pytest.mark.parametrize(("by", "switches"), [(1, 2), (3, 1), (0, 1)], ids=str)
def test_what_some_orders_show(by: int, switches: int, capfd: pytest.CaptureFixture[str]) -> None:
    """A race when the flag was seen once raised, and thrice; an assertion."""
    assert call("flagged", Accelerator("sim", checks="all"), by=by) is None
    failures = {seed: call("flagged", Accelerator("sim", seed=seed, checks="all"), by=by) for seed in range(1, 12)}
    actual = {seed: error for seed, error in failures.items() if error is not None}
    assert actual
    printed = capfd.readouterr().out
    assert printed.count("done") <= 2 * len(failures)  # reruns print nothing
    for seed, error in actual.items():
        text = replay(error)
        assert len(text.split()) == switches and f"{switches} switch" in "\n".join(error.notes)
        assert all(not re.search(r"\*", word) and int(word.partition("=")[2]) % 32 == 0 for word in text.split())
        again = call("flagged", Accelerator("sim", schedule=text, checks="all"), by=by)
        assert again is not None and (again.code, again.message) == (error.code, error.message)
        assert "threads ran by a schedule" in again.notes and f"seed {seed}" in "\n".join(error.notes)


def test_blocks_that_change_places() -> None:
    assert relay(Accelerator("sim", checks="all")) == (None, [0, 1, 0, 1])
    actual = [(seed, *relay(Accelerator("sim", seed=seed, checks="all"))) for seed in range(1, 17)]
    failed = [(seed, error, left) for seed, error, left in actual if error is not None]
    assert failed, actual
    for _, error, left in failed:
        assert len(replay(error).split()) == 1 and "~" in replay(error)
        assert left == [0, 0, 0, 1]  # by the failing call, and by no later one
        again, left = relay(Accelerator("sim", schedule=replay(error), checks="all"))
        assert again is not None and again.message == error.message and left == [0, 0, 0, 1]


def test_calls_that_take_long_are_ended() -> None:
    """In the plain order a thread of the first warp does not find what comes behind it, and works for long."""
    error = next(e for seed in range(2, 20) if (e := call("awaited", Accelerator("sim", seed=seed, checks="all"))))
    again = call("awaited", Accelerator("sim", schedule=replay(error), checks="all"))
    assert again is not None and again.message == error.message


def test_what_every_order_shows() -> None:
    error = call("ring", Accelerator("sim", seed=3, checks="all"), second=0)
    assert error is not None and "threads in their plain order show it, too, without a seed" in error.notes
    error = call("ring", Accelerator("sim", checks="all"), second=0)
    assert error is not None and not any("order" in note for note in error.notes)


def test_schedules_as_text() -> None:
    switches = (Switch(0, 5, 14, 103, 5), Switch(1, 5, 2, 7), Switch(0, 2, BLOCKS, 5))
    text = " ".join(map(str, switches))
    assert text == "0:5.14=103*5 1:5.2=7 0:2~5" and parse_schedule(text) == switches and parse_schedule("") == ()
    device = Accelerator("sim", schedule=text, seed=3)
    assert str(device) == "gpu:0 (sim:sm_90a, by a schedule)" and pickle.loads(pickle.dumps(device)) == device
    for wrong in ("0:5", "0:5.1=2*4", "x", 3, "0:5.14=103,0:2~5"):
        with pytest.raises(DeviceError, match="is not a schedule") as raised:
            Accelerator("sim", schedule=wrong)  # type: ignore[arg-type]
        assert raised.value.code == "EK0801"


def test_the_fewest_switches() -> None:
    drawn = [Switch(0, 0, step, 32 * (step % 3) + 5, 7) for step in range(40)]
    requested: list[int] = []

    def shows(switches: Any) -> bool:
        requested.append(len(switches))
        return {3, 17, 31} <= {switch.step for switch in switches}

    least = shortest(drawn, shows, 32)
    assert least is not None and [(s.step, s.thread % 32, s.factor) for s in least] == [
        (3, 0, 1),
        (17, 0, 1),
        (31, 0, 1),
    ]
    assert len([count for count in requested if count > 2]) < 90
    assert shortest(drawn, lambda switches: False, 32) is None
    assert shortest(drawn, lambda switches: True, 32) == []
    kept = shortest(drawn, lambda switches: drawn[9] in switches, 32)
    assert kept == [drawn[9]] and "7 lanes further each" in said(kept, 40)[0]


def test_the_order_of_blocks_as_switches() -> None:
    order = [3, 1, 4, 0, 2]
    rows = [ScheduleRow(0, block, 0, 0, 1, 1) for block in order]
    switches = switches_of(rows)
    places = []
    for position in range(5):
        for switch in switches:
            if position in (switch.block, switch.thread):
                position = switch.block + switch.thread - position
        places.append(position)
    assert places == order and all(switch.step == BLOCKS for switch in switches)
