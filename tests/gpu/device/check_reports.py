"""What kernels report is read where the host waits anyway; a failure in front of a named barrier ends the kernel."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DeviceStream, DType, Graph, InferenceSession, TensorType, ops

GPU = DeviceRef.GPU()
GOOD, BAD = np.arange(64, dtype=np.float32), np.array([0, 1, -2.5, -3], np.float32)

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

@register("risky")
def risky(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        i = gpu.global_idx.x
        if i < x.dim(0):
            if x[i] == 1:
                print("one at", i)
            assert x[i] >= 0, f"element {i} is {x[i]}"
            out[i] = x[i] + 1
    ctx.launch(one, grid=2, block=32)

@register("waits")
def waits(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    def one():
        i = gpu.thread_idx.x
        if i < x.dim(0):
            assert x[i] >= 0, f"element {i} is {x[i]}"
        if i < 64:
            gpu.barrier(id=1, threads=64)
        if i < x.dim(0):
            out[i] = x[i] + 1
    ctx.launch(one, grid=1, block=128)
"""


@pytest.fixture
def load(tmp_path: Path, gpu: Accelerator) -> Any:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)

    def load(op: str, **keywords: Any) -> Any:
        x = TensorType(DType.float32, ("n",), GPU)
        with Graph("reports", input_types=[x], custom_extensions=[path]) as graph:
            graph.output(ops.custom(op, GPU, [graph.inputs[0]], [x])[0])
        return InferenceSession(devices=[gpu], **keywords).load(graph)

    return load


def on_gpu(values: Any) -> Buffer:
    return Buffer.from_numpy(values).to(GPU)


def check_a_call_waits_for_no_reports(
    load: Any, gpu: Accelerator, fake: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    model, x = load("risky"), on_gpu(GOOD)
    (y,) = model(x)
    y.to_numpy()
    capfd.readouterr()
    fake.log.clear()
    (y,) = model(x)
    assert fake.log == fake.calls("launch") and len(fake.log) == 1
    assert capfd.readouterr().out == ""
    np.testing.assert_array_equal(y.to_numpy(), GOOD + 1)
    assert capfd.readouterr().out == "one at 1\n"


def check_a_failure_is_raised_where_the_host_waits(load: Any, gpu: Accelerator) -> None:
    model, x, good = load("risky"), on_gpu(BAD), on_gpu(GOOD)
    stream = DeviceStream(gpu)
    waits = (gpu.synchronize, good.to_numpy, gpu.default_stream.synchronize, lambda: on_gpu(GOOD).item)
    for wait in waits[:3]:
        model(x)
        stream.synchronize()  # nothing of it is there
        with pytest.raises(KernelError, match=r"EK0701.*in op 'risky': element 2 is -2\.5") as caught:
            wait()
        assert caught.value.place is not None and caught.value.place.file.endswith("kernels.py")
        assert "thread (2, 0, 0) of block (0, 0, 0)" in caught.value.notes
        assert (
            "graph 'reports' was called before; with checks=\"all\" the call itself raises this" in caught.value.notes
        )
        wait()  # it was raised once
    with stream:
        model(x)
    gpu.default_stream.synchronize()
    with pytest.raises(KernelError, match="element 2"):
        stream.synchronize()
    np.testing.assert_array_equal(model(good)[0].to_numpy(), GOOD + 1)


def check_the_next_call_raises_what_has_come(load: Any, gpu: Accelerator, fake: Any) -> None:
    model, other, x = load("risky"), load("risky"), on_gpu(BAD)
    model(x)
    other(on_gpu(GOOD))  # the kernel has not run yet: nothing is known
    fake.drain(fake.streams[gpu.default_stream.handle])
    with pytest.raises(KernelError, match="element 2 is"):
        other(on_gpu(GOOD))
    other(on_gpu(GOOD))[0].to_numpy()


def check_a_checked_call_raises_its_own_failure(load: Any, gpu: Accelerator) -> None:
    model = load("risky", checks="all")
    with pytest.raises(KernelError, match="element 2 is") as caught:
        model(on_gpu(BAD))
    assert any(note.startswith("graph 'reports' was called at ") for note in caught.value.notes)
    np.testing.assert_array_equal(model(on_gpu(GOOD))[0].to_numpy(), GOOD + 1)


def check_reports_of_replays(load: Any, gpu: Accelerator) -> None:
    model, x = load("risky"), on_gpu(GOOD[:4].copy())
    (y,) = model.capture(1, x)
    x.inplace_copy_from(Buffer.from_numpy(BAD))
    model.replay(1, x)
    with pytest.raises(KernelError, match="element 2 is"):
        y.to_numpy()
    x.inplace_copy_from(Buffer.from_numpy(GOOD[:4].copy()))
    model.replay(1, x)
    np.testing.assert_array_equal(y.to_numpy(), GOOD[:4] + 1)


def check_prints_that_fill_the_memory_are_shown_by_the_next_call(
    load: Any, gpu: Accelerator, fake: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    model, x = load("risky"), on_gpu(np.ones(64, np.float32))
    for _ in range(12):
        model(x)
        fake.drain(fake.streams[gpu.default_stream.handle])
    assert 300 < len(capfd.readouterr().out.splitlines()) < 12 * 64
    gpu.synchronize()
    assert "found no room" not in capfd.readouterr().out


def check_threads_receive_findings_of_their_own_calls(load: Any, gpu: Accelerator) -> None:
    """Callers go from thread to thread, each with its own stream: no failure is raised where it does not belong."""
    model, outcomes = load("risky"), list[tuple[bool, bool]]()  # whether it was a bad call, whether an error was raised

    def work(thread: int) -> None:
        with DeviceStream(gpu):
            for number in range(12):
                bad = (number + thread) % 3 == 0
                try:
                    result = model(on_gpu(BAD if bad else GOOD))[0].to_numpy()
                    assert np.array_equal(result, GOOD + 1)
                    outcomes.append((bad, False))
                except KernelError as error:
                    outcomes.append((bad, error.code == "EK0701"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gpu.synchronize()
    assert sorted(outcomes) == [(False, False)] * 32 + [(True, True)] * 16


def check_a_failure_in_front_of_a_named_barrier_ends_the_kernel(load: Any, gpu: Accelerator, fake: Any) -> None:
    """The last of this file: the context is lost."""
    model = load("waits")
    np.testing.assert_array_equal(model(on_gpu(GOOD))[0].to_numpy(), GOOD + 1)
    (y,) = model(on_gpu(BAD))
    with pytest.raises(KernelError, match=r"EK0701.*in op 'waits': element [23] is") as caught:
        y.to_numpy()
    assert caught.value.place is not None and caught.value.place.file.endswith("kernels.py")
    assert caught.value.notes[-1].startswith("the kernel has ended all its threads") and fake.fault == 719
    with pytest.raises(KernelError, match="EK0834"):
        y.to_numpy()
