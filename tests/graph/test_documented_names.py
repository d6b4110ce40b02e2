"""Names of graphs, quantisation, weights and modules that other documentation has: they are here, or left out by name.

The counts are those of docs/modules.md.
"""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

from einkorn.graph import DeviceRef, nn
from einkorn.graph.quantization import QuantizationEncoding

ROOT = Path(__file__).resolve().parents[2]
NAMES = (Path(__file__).parent / "data" / "documented_names.txt").read_text(encoding="utf-8").split()
LEFT_OUT = ("from_mlir", "to_mlir", "allgather", "distributed_broadcast", "shard_and_stack", "Callable")
# Modules whose names are in another one here.
MOVED = {
    "graph.type": "graph",
    "graph.shape": "graph",
    "graph.ops": "graph",
    "nn.norm.rms_norm.rms_norm": "functional.rms_norm",
    "nn.norm.rms_norm": "graph.nn",
    "nn.rope": "graph.nn",
    "nn": "graph.nn",
}
OBJECTS: dict[str, Any] = {  # attributes that objects have, and classes do not
    "graph.nn.Linear": nn.Linear(3, 4),
    "graph.nn.RMSNorm": nn.RMSNorm(4),
    "graph.nn.RotaryEmbedding": nn.RotaryEmbedding.of(4, 8),
    "graph.DeviceRef": DeviceRef.CPU(),
    "graph.quantization.QuantizationEncoding.name": QuantizationEncoding.Q4_0.name,
}


def has(name: str) -> bool:
    """Whether a dotted name of einkorn is there; a field of a class counts."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        owner = ".".join(parts[:end])
        if owner in OBJECTS:
            actual = OBJECTS[owner]
        else:
            try:
                actual = importlib.import_module(f"einkorn.{owner}")
            except ImportError:
                continue
        for part in parts[end:]:
            if part in getattr(actual, "__dataclass_fields__", {}) or part in getattr(actual, "__annotations__", {}):
                return True
            if part not in dir(actual) and not hasattr(actual, part):
                return False
            actual = getattr(actual, part, None)
        return True
    return False


def where(name: str) -> str:
    """Under which path a name is."""
    if name.rpartition(".")[2] in LEFT_OUT:
        return "left out"
    if has(name):
        return "same"
    for old, new in MOVED.items():
        if name.startswith(old) and has(new + name[len(old) :]):
            return "moved"
    return "missing"


def test_names_are_here_or_left_out_with_a_reason() -> None:
    actual = {name: where(name) for name in NAMES}
    assert [name for name, place in actual.items() if place == "missing"] == []
    counts = Counter(actual.values())
    page = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
    for text in (f"{len(NAMES)} names", f"{counts['same']} are under", f"{counts['moved']} are in"):
        assert text in page, text
    listed = Counter(name.rpartition(".")[2] for name, place in actual.items() if place == "left out")
    for name, count in listed.items():
        assert f"`{name}` ({count})" in page, (name, count)
