"""What a simulated GPU says of kernels that do with memory what they must not: class, kernel, both places, threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.gpu_case import KERNELS

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import DeviceError, KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

FILE = KERNELS / "wrong_memory.py"
GPU = DeviceRef.GPU()
X = np.arange(256, dtype=np.int32)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def model_of(device: Accelerator, *calls: tuple[str, dict[str, Any]]) -> Any:
    """A model of ops of the file, one after the other."""
    type = TensorType(DType.int32, ["n"], GPU)

    def forward(value: Any) -> Any:
        for op, parameters in calls:
            (value,) = ops.custom(f"wrong::{op}", device=GPU, values=[value], out_types=[type], parameters=parameters)
        return value

    return InferenceSession(devices=[device]).load(Graph("checked", forward, [type], custom_extensions=[FILE]))


def run(op: str, checks: str = "all", *, size: int = 256, **parameters: Any) -> np.ndarray[Any, Any]:
    device = Accelerator("sim", checks=checks)
    x = Buffer.from_numpy(X[:size]).to(device)
    result: np.ndarray[Any, Any] = model_of(device, (op, parameters))(x)[0].to_numpy()
    return result


def failure(op: str, checks: str = "all", *, size: int = 256, **parameters: Any) -> KernelError:
    with pytest.raises(KernelError) as raised:
        run(op, checks, size=size, **parameters)
    return raised.value


def shown(error: KernelError) -> list[str]:
    lines = [line.partition("|")[2].strip() for line in str(error).splitlines() if re.match(r" +\d* \|", line)]
    return [line.lstrip("^ ") for line in lines]


def test_a_race_in_a_block() -> None:
    assert run("ring", size=64)[:3].tolist() == [1, 2, 3]
    error = failure("ring", second=0)
    assert error.code == "EK0740" and error.message.startswith("data race: ")
    assert error.message.endswith("in kernel 'ring' of op 'wrong::ring'") and error.op == "wrong::ring"
    assert shown(error) == [
        "v = out[(t + 1) % n]",
        "thread (0, 0, 0) of block (0, 0, 0) reads",
        "out[t] = v",
        "thread (1, 0, 0) of block (0, 0, 0) writes",
    ]
    assert error.hint and any(note.startswith("graph 'checked' was called at") for note in error.notes)


def test_a_race_of_blocks() -> None:
    error = failure("one_place", by_block=0)
    said = shown(error)[1]
    assert said == "thread (0, 0, 0) of block (0, 0, 0) writes; thread (0, 0, 0) of block (1, 0, 0) writes"


def test_an_access_outside_of_a_buffer() -> None:
    error = failure("beyond", by=193)
    assert error.code == "EK0741" and error.message.startswith("out of bounds: a thread writes global memory")
    assert shown(error)[1] == "thread (63, 0, 0) of block (0, 0, 0) writes"


def test_a_read_of_what_nothing_wrote() -> None:
    error = failure("early", how=1)
    assert error.code == "EK0742" and error.message.startswith("uninitialised read: ")
    assert shown(error)[1:] == [
        "this is read",
        "out[t] = v + x[t]  # stored",
        "thread (0, 0, 0) of block (0, 0, 0) depends on it here",
    ]


def test_a_use_of_what_is_being_copied() -> None:
    error = failure("copied", waits="last")
    assert error.code == "EK0743" and error.message.startswith("pending copy: ")
    assert any(said.endswith("copies") for said in shown(error))
    run("copied", "races,bounds", waits="own")


def test_elements_that_nothing_stores() -> None:
    """Of a result, also where an earlier one lay in the same memory."""
    device = Accelerator("sim", checks="all")
    ring = model_of(device, ("ring", {}))
    out = [Buffer.from_numpy(X).to(device)]
    for size, given in ((64, None), (256, None), (65, None), (256, out)):
        x = Buffer.from_numpy(X[:size]).to(device)
        if size == 64:
            ring(x)
            continue
        with pytest.raises(KernelError, match=r"element \[64\] of output 0 of graph 'checked'") as raised:
            ring.execute(x, out=given)
        error = raised.value
        assert (error.code, error.op, error.argument) == ("EK0706", "wrong::ring", "out") and error.place is not None
        assert error.got == f"{size - 64} of {size} elements without one"
    assert run("ring", "races,bounds,copies")[:3].tolist() == [1, 2, 3]


def test_what_is_not_requested_is_not_found() -> None:
    assert failure("ring", "races,bounds", first=0).code == "EK0740"
    run("ring", "bounds", first=0)
    run("early", "races, bounds", how=1)
    run("ring", "off", first=0)
    with pytest.raises(DeviceError, match="does not look for 'everything'") as raised:
        Accelerator("sim", checks="everything")
    assert raised.value.code == "EK0801" and "uninitialised" in str(raised.value.expected)


def test_a_device_goes_on_after_a_finding() -> None:
    device = Accelerator("sim", checks="all")
    wrong, right = model_of(device, ("ring", {"first": 0})), model_of(device, ("ring", {}), ("ring", {}))
    for _ in range(2):
        with pytest.raises(KernelError, match="EK0740"):
            wrong(Buffer.from_numpy(X).to(device))
        assert right(Buffer.from_numpy(X[:64]).to(device))[0].to_numpy()[:3].tolist() == [2, 3, 4]


def test_threads_of_the_host_take_turns_on_a_device() -> None:
    """Each receives of what its own calls did: races in the one, nothing in the others."""
    device = Accelerator("sim", checks="all")
    models = [model_of(device, ("rounds", {"count": 100})) for _ in range(2)]
    wrong = model_of(device, ("ring", {"first": 0}))

    def calls(model: Any) -> list[str]:
        said = []
        for _ in range(8):
            try:
                said.append(str(model(Buffer.from_numpy(X).to(device))[0].to_numpy()[:2].tolist()))
            except KernelError as error:
                said.append(error.code)
        return said

    alone = calls(models[0])
    assert set(alone) == {str((X[1:3] + 99).tolist())}
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(calls, [models[0], wrong, models[1]])) == [alone, ["EK0740"] * 8, alone]


def test_a_promise_that_is_broken() -> None:
    error = failure("promised", scope="block")
    assert error.code == "EK0708" and error.message.startswith("broken promise: gpu.uniform declares a value equal in")
    assert shown(error)[1:] == [
        "0.0 in thread (0, 0, 0) of block (0, 0, 0), 0.5 in thread (32, 0, 0) of block (0, 0, 0)"
    ]


def test_an_access_beyond_the_stack() -> None:
    error = failure("stacked", last=8)
    assert error.code == "EK0741" and error.message.startswith(
        "out of bounds: a thread reads element 8 of 8 on its stack"
    )
    error = failure("stacked", first=1, size=128)
    assert error.code == "EK0742" and "depends on uninitialised stack memory" in error.message
