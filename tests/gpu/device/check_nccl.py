"""Ranks that exchange tensors of GPUs by NCCL or RCCL, for which one of the tests stands: threads with a GPU each.

Over `fake_rccl` no kernel runs: elements are compared over `fake_nccl` alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from einkorn.distributed import Mesh, rank, run_threads
from support.fake_nccl import FakeNccl

from einkorn.dsl.diagnostics.errors import DeviceError, EinkornError, KernelError, ReplayError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.distributed import nccl as module

HERE = "check_nccl.py"


@pytest.fixture
def nccl(request: pytest.FixtureRequest) -> Iterator[FakeNccl]:
    fake: FakeNccl = request.config.fake_nccl  # type: ignore[attr-defined]
    module._library.cache_clear()
    fake.log.clear()
    yield fake
    with fake.came:
        fake.gives_up = True
        fake.came.notify_all()
    for thread in threading.enumerate():
        if thread.name.startswith("start of"):
            thread.join(60)
    fake.gives_up = False
    fake.absent.clear()
    fake.version, fake.async_error = 23203, 0
    fake.refused.clear()
    fake.missing.clear()
    ended = [comm.ended for comm in fake.comms.values()]
    assert all(ended), "a communicator has no end"
    fake.comms.clear()
    module._library.cache_clear()


def results_of(forward: Callable[..., Any], x: Any, gpu: int | None = None, **options: Any) -> list[Any]:
    """What a rank's model gives, on the GPU of its number."""
    device = Accelerator(rank() if gpu is None else gpu)
    mesh = Mesh({"all": 3}, **options)
    type = TensorType(DType.from_numpy(x.dtype), ["a", "b"], DeviceRef.from_device(device))
    model = InferenceSession([device], num_threads=1).load(Graph("ranks", lambda x: forward(x, mesh), [type]))
    return [each.to_numpy() for each in model(Buffer.from_numpy(x).to(device))]


def agree(nccl: FakeNccl, *pairs: tuple[Any, Any]) -> bool:
    """Whether results are right to the bit; where no kernel runs, whether they have the right shapes."""
    runs = nccl.gpu.runner is not None
    return all(one.shape == right.shape and (not runs or one.tobytes() == right.tobytes()) for one, right in pairs)


def numbers(number: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.random.default_rng(number).standard_normal(shape) * 100).astype(dtype)


def every(x: Any, mesh: Mesh) -> list[Any]:
    pairs = [(k, (k + 1) % 3) for k in range(3)]
    return [
        ops.allreduce.sum(x, mesh),
        ops.allreduce.max(ops.permute(x, [1, 0]), mesh),
        ops.allgather(x, mesh, 0),
        ops.allgather(x, mesh, 1),
        ops.reducescatter.sum(x, mesh, 1),
        ops.alltoall(x, mesh, 0),
        ops.alltoall(x, mesh, 1),
        ops.distributed_broadcast(x, mesh, root=2),
        ops.collective_permute(x, mesh, pairs),
        ops.collective_permute(x, mesh, [(0, 1), (2, 2)]),
    ]


def wanted(own: int, xs: list[Any]) -> list[Any]:
    wide = [x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x for x in xs]
    total = (wide[0] + wide[1] + wide[2]).astype(xs[0].dtype)
    return [
        total,
        np.maximum(np.maximum(xs[0], xs[1]), xs[2]).T,
        np.concatenate(xs, 0),
        np.concatenate(xs, 1),
        np.split(total, 3, 1)[own],
        np.concatenate([np.split(x, 3, 0)[own] for x in xs], 0),
        np.concatenate([np.split(x, 3, 1)[own] for x in xs], 1),
        xs[2],
        xs[own - 1],
        [np.zeros_like(xs[0]), xs[0], xs[2]][own],
    ]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def check_all_collectives(dtype: Any, nccl: FakeNccl) -> None:
    """Small ones are gathered whole, large ones reduced in pieces with a rest: to the bit what NumPy has in the order
    of ranks. No tensor goes through the host."""
    for shape in ((3, 6), (33, 60)) if dtype is np.float32 else ((3, 6),):
        nccl.gpu.log.clear()
        xs = [numbers(k, shape, dtype) for k in range(3)]
        results = run_threads(lambda xs=xs: results_of(every, xs[rank()], nccl=True), 3)  # type: ignore[misc]
        copies = nccl.gpu.calls("copy")
        assert [each[1] for each in copies].count("to_device") == 3, copies  # the inputs
        assert [each[1] for each in copies].count("to_host") == 3 * 10, copies  # the results
        for own, mine in enumerate(results):
            for number, (one, right) in enumerate(zip(mine, wanted(own, xs), strict=True)):
                assert agree(nccl, (one, right)), (shape, number, own)
    assert {"gather", "broadcast", "group", "destroy"} <= {name for name, *_ in nccl.log}
    assert nccl.gpu.violations == []


def total(x: Any, mesh: Mesh) -> list[Any]:
    return [ops.allreduce.sum(x, mesh)]


def refused(**options: Any) -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        run_threads(lambda: results_of(total, np.ones((2, 3), np.float32), **options), 3)
    return caught.value


def check_nothing_is_sent_between_ranks_without_elements(nccl: FakeNccl) -> None:
    results = run_threads(lambda: results_of(total, np.ones((0, 3), np.float32)), 3)
    assert [each[0].shape for each in results] == [(0, 3)] * 3
    assert not any(name in ("gather", "group") for name, *_ in nccl.log)


@pytest.mark.parametrize("name", ["ncclGetUniqueId", "ncclCommInitRank", "ncclAllGather"])
def check_refusals_are_errors_with_their_text_op_and_line(name: str, nccl: FakeNccl) -> None:
    nccl.refused[name] = 1
    error = refused()
    assert isinstance(error, KernelError) and error.code == "EK0867" and error.op == "allreduce.sum"
    assert f"{nccl.about.name} refuses allreduce.sum (float32, 6 elements along '*') on rank" in error.message
    assert f"{name}: unhandled cuda error" in error.message and HERE in str(error.place)
    assert not any(each == "destroy" for each, *_ in nccl.log)


def check_what_a_communicator_finds_later_is_an_error(nccl: FakeNccl) -> None:
    nccl.async_error = 6
    error = refused()
    assert error.code == "EK0867" and "ncclCommGetAsyncError: remote process" in error.message
    assert ("abort", 0) in nccl.log


def check_a_rank_that_does_not_come_is_waited_for_no_longer(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_COLLECTIVE_TIMEOUT", "0.3")
    nccl.missing.add(1)
    error = refused()
    assert error.code == "EK0862" and "in allreduce.sum (float32, 6 elements" in error.message
    assert HERE in str(error.place) and "abort" in {name for name, *_ in nccl.log}


def check_a_start_to_which_a_rank_does_not_come_ends(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_COLLECTIVE_TIMEOUT", "0.3")
    nccl.absent.add(2)
    error = refused()
    assert error.code == "EK0862" and HERE in str(error.place)
    assert f"waited 0.3 s in the start of {nccl.about.name} (allreduce.sum (float32, 6 elements" in error.message


def check_the_host_is_used_where_the_library_cannot_be(nccl: FakeNccl) -> None:
    """By default; and one GPU for all ranks is such a case, too."""
    right = np.full((2, 3), 3, np.float32)
    ways: list[dict[str, Any]] = [{"gpu": 0}, {"nccl": False}]
    for options in ways:
        results = run_threads(lambda o=options: results_of(total, np.ones((2, 3), np.float32), **o), 3)  # type: ignore[misc]
        assert agree(nccl, *((each[0], right) for each in results)) and nccl.log == []
    error = refused(gpu=0, nccl=True)
    assert isinstance(error, DeviceError) and error.code == "EK0868" and error.op == "allreduce.sum"
    assert error.message.endswith("ranks 0, 1 and 2 have one GPU") and HERE in str(error.place)


def check_versions(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl.version = 2804
    error = refused(nccl=True)
    assert error.code == "EK0868" and error.message.endswith(f"on rank 0 {nccl.about.name} 2.8.4 is older than 2.10.0")
    nccl.version = 23203
    module._library.cache_clear()
    known = module._library
    other = module.NcclLibrary(nccl.about)
    other.version = 22005
    monkeypatch.setattr(module, "_library", lambda api: other if rank() == 2 else known(api))
    error = refused(nccl=True)
    assert error.code == "EK0868" and error.message.endswith(
        f"rank 0 has {nccl.about.name} 2.32.3, and rank 2 has 2.20.5"
    )


def check_a_library_that_is_not_there(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_file_of", lambda api: "libnccl-that-is-not-there.so.2")
    monkeypatch.setenv("EINKORN_NCCL", "on")
    error = refused()
    assert error.code == "EK0868" and error.hint == nccl.about.advice
    assert f"on rank 0 {nccl.about.file} cannot be loaded: libnccl-that-is-not-there.so.2" in error.message


def check_collectives_are_not_recorded(nccl: FakeNccl) -> None:
    def record() -> None:
        mesh, device = Mesh({"all": 3}), Accelerator(rank())
        type = TensorType(DType.float32, [4], DeviceRef.from_device(device))
        model = InferenceSession([device]).load(Graph("ranks", lambda x: total(x, mesh), [type]))
        x = Buffer.from_numpy(np.ones(4, np.float32)).to(device)
        with pytest.raises(ReplayError, match="cannot be recorded: its ranks wait") as caught:
            model.capture(1, x)
        assert caught.value.code == "EK0836" and HERE in str(caught.value.place)
        assert agree(nccl, (model(x)[0].to_numpy(), np.full(4, 3, np.float32)))

    run_threads(record, 3)


def check_a_second_gpu_of_a_rank_is_named(nccl: FakeNccl) -> None:
    def forward() -> None:
        mesh, one, other = Mesh({"all": 3}), Accelerator(rank()), Accelerator((rank() + 1) % 3)
        for device in (one, other):
            type = TensorType(DType.float32, [4], DeviceRef.from_device(device))
            model = InferenceSession([device]).load(Graph("ranks", lambda x: total(x, mesh), [type]))
            model(Buffer.from_numpy(np.ones(4, np.float32)).to(device))

    with pytest.raises(DeviceError, match=f"{nccl.about.name} with gpu:") as caught:
        run_threads(forward, 3)
    assert caught.value.code == "EK0868"
