"""A program of Ray, for `test_ray`: prints what holds, a line each."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

ray: Any = import_module("ray")  # its types want classes that its decorators have made

T = TypeVar("T", bound=Floating)


@register("ray_swish")
def swish(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


class Norms:
    """An actor that holds a model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def of(self, x: Any) -> Any:
        return self.model(np.array(x))[0].to_numpy()


def cached() -> list[str]:
    """The files in the cache of compiled code."""
    folder = Path(os.environ["EINKORN_CACHE_DIR"])
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix and path.is_file())


def say(what: str, holds: bool) -> None:
    print("holds" if holds else "FAILS", what, flush=True)


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
    array = np.linspace(-2, 2, 12).reshape(3, 4)
    wanted = swish(array)
    type = TensorType(DType.float64, ["n", "m"], DeviceRef.CPU())
    model = InferenceSession(num_threads=1).load(Graph("norms", lambda x: ops.sum(x * x, -1), [type]))
    model(array)
    before = cached()
    say("a task", ray.get(ray.remote(lambda x: swish(x)).remote(array)).tobytes() == wanted.tobytes())
    sent = ray.put(model)
    actors = [ray.remote(Norms).remote(sent) for _ in range(2)]
    results = ray.get([actor.of.remote(array) for actor in actors])
    say("two actors", all(np.allclose(each[:, 0], (array * array).sum(-1)) for each in results))
    say("nothing is compiled again", cached() == before and len(before) > 0)
    for actor in actors:
        ray.kill(actor)
    if find_spec("pyarrow") is not None:
        from ray import data

        rows = data.from_numpy(array).map_batches(lambda batch: {"data": swish(batch["data"])}, batch_size=2)
        made = np.stack([row["data"] for row in rows.take_all()])
        say("blocks of a data set", np.array_equal(np.sort(made, 0), np.sort(wanted, 0)))
    ray.shutdown()


if __name__ == "__main__":
    main()
