"""Broken ONNX files: each import ends with a graph or an error of Einkorn's, soon, and with little memory.

    python tests/fuzz/onnx_files.py --mutants 10000 [--seed 0] [FILE ...]

A mutant is a model with bytes changed, cut out or swapped, or one whose fields have other numbers and names: sizes that
are huge or negative, inputs of other nodes, names twice. The import runs in a child process with limits of memory and
time; a finding is another exception, too much of either, or a death. Without files, small models that have most of
what an import looks at are taken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MEMORY = 6 << 30  # bytes beyond which a child is refused memory
SECONDS = 20  # of the processor, for one import
ANSWER = 600  # seconds until a child counts as hung, whatever runs on the machine with it
START = 600  # seconds for a child to load the package, which other programs may hold up
NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 255, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1)


def models() -> list[bytes]:
    """Small models with weights, control flow, functions and arithmetic on shapes."""
    arm = [
        helper.make_graph([helper.make_node(kind, ["h"], [name])], name, [], [_value(name, None)])
        for kind, name in (("Relu", "then"), ("Neg", "other"))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["h"], name="sum"),
        helper.make_node("If", ["c"], ["r"], name="branch", then_branch=arm[0], else_branch=arm[1]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "two"], ["t"], axis=0),
        helper.make_node("Reshape", ["r", "t"], ["y"], name="reshape"),
        helper.make_node("Slice", ["y", "zero", "two", "zero"], ["z"]),
    ]
    weights = {
        "w": np.arange(4096, dtype=np.float32).reshape(4, 1024),
        "b": np.ones(1024, np.float32),
        "zero": np.array([0]),
        "two": np.array([2, 512]),
    }
    first = _model(nodes, [_value("x", ["batch", 4]), _value("c", [], TensorProto.BOOL)], ["y"], weights)
    first.graph.node[7].input[2] = "zero"
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], ceil_mode=1),
        helper.make_node("Resize", ["m", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Pad", ["r", "pads"], ["q"], mode="reflect"),
        helper.make_node("Transpose", ["q"], ["u"], perm=[0, 2, 3, 1]),
        helper.make_node("ReduceMean", ["u", "axes"], ["v"], keepdims=0),
        helper.make_node("Split", ["v"], ["a", "d"], axis=-1, num_outputs=2),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    weights = {
        "k": np.ones((4, 3, 3, 3), np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "axes": np.array([1]),
    }
    second = _model(nodes, [_value("x", ["n", 3, "h", "w"])], ["y", "d"], weights)
    return [first.SerializeToString(), second.SerializeToString()]


def _value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any]) -> Any:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "m", inputs, [_value(name, None) for name in outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


# *** mutants ***


def mutant(data: bytes, draw: random.Random) -> bytes:
    """A model with something changed."""
    return _changed_bytes(data, draw) if draw.random() < 0.5 else _changed_fields(data, draw)


def _changed_bytes(data: bytes, draw: random.Random) -> bytes:
    made = bytearray(data)
    kind = draw.randrange(4)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(made))
        length = draw.randint(1, min(64, len(made) - at))
        if kind == 0:
            made[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind == 1:
            del made[at : at + length]
        elif kind == 2:
            other = draw.randrange(len(made) - length + 1)
            made[at : at + length], made[other : other + length] = made[other : other + length], made[at : at + length]
        else:
            del made[at:]
        if len(made) < 2:
            break
    return bytes(made)


def _changed_fields(data: bytes, draw: random.Random) -> bytes:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return data[: draw.randrange(len(data))]
    for _ in range(draw.randint(1, 3)):
        messages = list(_messages(model, 0))
        message = draw.choice(messages)
        fields = [field for field in message.DESCRIPTOR.fields if field.name not in ("raw_data", "doc_string")]
        _change(message, draw.choice(fields), draw, messages)
    try:
        return model.SerializeToString()
    except Exception:
        return data[: draw.randrange(len(data))]


def _messages(message: Any, depth: int) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and depth < 12:
            for each in value if hasattr(value, "add") else [value]:
                yield from _messages(each, depth + 1)


def _change(message: Any, field: Any, draw: random.Random, messages: list[Any]) -> None:
    """Another value for a field."""
    value = getattr(message, field.name)
    several = hasattr(value, "append") or hasattr(value, "add")
    try:
        if field.message_type is not None:
            same = [each for each in messages if each.DESCRIPTOR is field.message_type]
            if several and value and draw.random() < 0.5:
                del value[draw.randrange(len(value))]
            elif same:
                copied = draw.choice(same).SerializeToString()  # it may be around the field
                (value.add() if several else value).ParseFromString(copied)
            else:
                message.ClearField(field.name)
        elif several:
            if value and draw.random() < 0.7:
                value[draw.randrange(len(value))] = _other(field, draw, messages)
            else:
                value.append(_other(field, draw, messages))
        else:
            setattr(message, field.name, _other(field, draw, messages))
    except (TypeError, ValueError, RecursionError):  # a number that the field does not hold
        message.ClearField(field.name)


def _other(field: Any, draw: random.Random, messages: list[Any]) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        names = [each.name for each in messages if hasattr(each, "name") and isinstance(each.name, str)]
        text = draw.choice(["", "x", "y", "?", "\0", "a" * 5000, *names])
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return draw.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    return draw.choice(NUMBERS)


# *** the campaign ***


def outcome(data: bytes) -> str:
    """What an import of a file ends with: "graph", the code of an error, or what is a finding."""
    from einkorn.dsl.diagnostics.errors import EinkornError
    from einkorn.graph import from_onnx

    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    begun = time.process_time()
    try:
        from_onnx(data)
        return "graph"
    except EinkornError as error:
        return str(error.code) if error.code and str(error) else f"finding: {type(error).__name__} without a code"
    except BaseException as error:
        return f"finding: {type(error).__name__}: {str(error)[:200]} after {time.process_time() - begun:.1f} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _child(connection: Any) -> None:
    """Says that it is ready, then answers each file with its outcome."""
    import einkorn.graph.onnx.importer  # noqa: F401  # what this takes is no part of an import's time

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, too_long)
    connection.send("ready")
    while (data := connection.recv()) is not None:
        connection.send(outcome(data))


def campaign(originals: list[bytes], count: int, seed: int, found: Path) -> Counter[str]:
    """How often each outcome came; files of findings are written to a folder."""
    draw, ends = random.Random(seed), Counter[str]()
    context = multiprocessing.get_context("spawn")
    process: Any = None
    for number in range(count):
        data = mutant(draw.choice(originals), draw)
        begun = process is None
        if begun:
            mine, theirs = context.Pipe()
            process = context.Process(target=_child, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
        try:
            ready = not begun or (mine.poll(START) and mine.recv())
            if ready:
                mine.send(data)
            end = mine.recv() if ready and mine.poll(ANSWER) else "finding: no answer"
        except (EOFError, OSError):
            process.join()
            end = f"finding: the process died with {process.exitcode}"
        if end.startswith("finding"):
            found.mkdir(parents=True, exist_ok=True)
            (found / f"{seed}-{number}.onnx").write_bytes(data)
            print(f"{found}/{seed}-{number}.onnx: {end}", flush=True)
        if "died" in end or "no answer" in end:
            process.kill()
            process = None
        ends[end if not end.startswith("finding") else "findings"] += 1
    if process is not None:
        mine.send(None)
        process.join(10)
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description="Imports broken ONNX files.")
    parser.add_argument("--mutants", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    originals = [file.read_bytes() for file in given.files] or models()
    ends = campaign(originals, given.mutants, given.seed, Path(tempfile.gettempdir()) / "einkorn-onnx-files")
    print(", ".join(f"{end} {n}" for end, n in ends.most_common()))
    sys.exit(bool(ends["findings"]))


if __name__ == "__main__":
    main()
