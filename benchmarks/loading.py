"""How long a new process needs from its first line to its first result: cold, warm, with and without bytecode.

Einkorn's cache folder is empty for a cold start; for a warm one the folder of the cold start before it is used again.
Bytecode (.pyc) lies in a folder of the measurement's own, filled by a start that is not timed. "without .pyc" means
without that of Einkorn itself, as in a source tree that is imported for the first time; what it depends on keeps its.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import DISTURBED

HERE = Path(__file__).resolve().parent
KERNEL = """from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register


@register("add_one")
def add_one(out: OutputTensor[float32, "*dims"], x: InputTensor[float32, "*dims"]) -> None:
    foreach(out, lambda index: x[index] + 1.0)
"""
STAGES = ("import", "stage", "load", "run", "total")


@dataclass(frozen=True)
class Start:
    """One kind of start: which contender, from an empty cache or not, with bytecode or not."""

    contender: str
    what: str
    cold: bool
    bytecode: bool = True
    kernels: bool = False

    @property
    def title(self) -> str:
        cache = "" if self.contender in ("numpy", "torch") else ", cold" if self.cold else ", warm"
        return f"{self.what}{cache}{'' if self.bytecode else ', no .pyc'}"


def starts(peers: list[str], tiny: bool = False) -> Iterator[Start]:
    """What is measured; each cold start stands right before its warm one. Two of them are enough for a test."""
    if tiny:
        yield from (Start("einkorn", "custom add_one", cold, kernels=True) for cold in (True, False))
        return
    for kernels, what in ((True, "custom add_one"), (False, "x + 1.0")):
        for bytecode in (True, False):
            for cold in (True, False):
                yield Start("einkorn", what, cold, bytecode, kernels)
    for peer in peers:
        yield Start(peer, f"{peer} x + 1", True)
        if peer == "numba":
            yield Start(peer, f"{peer} x + 1", False)


def measure_starts(rounds: int, peers: list[str], work: Path, tiny: bool = False) -> list[dict[str, Any]]:
    """One row for each kind of start: the samples, and the median and best of each stage in seconds."""
    kernels = work / "add_one.py"
    kernels.write_text(KERNEL)
    kinds = list(starts(peers, tiny))
    samples: dict[Start, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(0 if tiny else -1, rounds):  # the round before the first fills the folders of bytecode
        for kind in kinds:
            sample = _start(kind, kernels, work)
            if number >= 0:
                samples[kind].append(sample)
    return [_row(kind, taken) for kind, taken in samples.items()]


def _row(kind: Start, samples: list[dict[str, Any]]) -> dict[str, Any]:
    clean = [s for s in samples if s["waited"] <= DISTURBED * s["total"]] or samples
    middle = sorted(clean, key=lambda s: float(s["total"]))[(len(clean) - 1) // 2]
    best = min(samples, key=lambda s: float(s["total"]))
    cpu = sorted(float(s["cpu"]) for s in samples)
    return {
        "section": "load",
        "contender": kind.contender,
        "title": kind.title,
        "median": {stage: middle[stage] for stage in STAGES},
        "best": {stage: best[stage] for stage in STAGES},
        "cpu_median": cpu[(len(cpu) - 1) // 2],
        "cpu_best": cpu[0],
        "clean": sum(s["waited"] <= DISTURBED * s["total"] for s in samples),
        "rounds": len(samples),
    }


def _start(kind: Start, kernels: Path, work: Path) -> dict[str, Any]:
    cache = work / f"cache-{kind.contender}-{kind.kernels}-{kind.bytecode}"
    if kind.cold:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(mode=0o700)
    bytecode = work / ("bytecode" if kind.bytecode else "bytecode-of-others")
    if not kind.bytecode:
        _forget_our_bytecode(bytecode)
    environment = {
        **os.environ,
        "EINKORN_CACHE_DIR": str(cache),
        "NUMBA_CACHE_DIR": str(cache),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if kind.contender == "einkorn":
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    command = [sys.executable, str(HERE / "probe.py"), kind.contender, str(kernels) if kind.kernels else ""]
    return _run(command, environment, kind.title)


def _run(command: list[str], environment: Mapping[str, str], title: str) -> dict[str, Any]:
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{title} failed:\n{done.stderr.strip()}")
    sample: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not sample["right"]:
        raise RuntimeError(f"{title} gave a wrong result")
    return sample


def _forget_our_bytecode(prefix: Path) -> None:
    """Removes the bytecode of the package's own modules, and of no environment that lies next to them."""
    spec = importlib.util.find_spec("einkorn")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    mirror = prefix / root.relative_to(root.anchor)
    for folder in ("dsl", "compiler", "graph", "stdlib"):
        shutil.rmtree(mirror / folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        for file in mirror.glob("*.pyc"):
            file.unlink()
