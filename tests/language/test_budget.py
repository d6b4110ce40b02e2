"""What requests too much work or memory is refused soon, by counting; what is merely large compiles."""

from __future__ import annotations

import cProfile
import os
import pstats
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile

from einkorn.compiler.inference import evaluator
from einkorn.compiler.inference.budget import MAX_STEPS
from einkorn.compiler.inference.kernels import GroupEvaluator
from einkorn.compiler.instances import instance_entry, make_instance
from einkorn.compiler.ir.program import Program
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import host
from einkorn.dsl.contract.unit import NodeSpec
from einkorn.dsl.diagnostics.errors import EinkornError, each_of
from einkorn.dsl.package.library import load_library

HEAD = """\
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register, select, sin, struct, unroll

@register("op")
def op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
"""
END = "    foreach(out, lambda i: x[i])\n"
BODY = "    def body(i):\n        t = x[i]\n{}        return t\n    foreach(out, body)\n"
KNOWN = "    def f(n):\n{}    foreach(out, lambda i: x[i] + f({}))\n"


def known(expression: str) -> str:
    return f"    s = {expression}\n    foreach(out, lambda i: x[i] + len(s))\n"


def number(expression: str) -> str:
    return f"    s = {expression}\n    foreach(out, lambda i: x[i] + s)\n"


def doubled(form: str, first: str = "v + 1") -> str:
    """Functions that each call the one before them twice."""
    lines = [f"    f0 = lambda v: {first}\n"]
    lines += [f"    f{k} = lambda v: {form.replace('f', f'f{k - 1}')}\n" for k in range(1, 27)]
    return "".join(lines)


def repeated(line: str, times: int = 40) -> str:
    return f"    {line}\n" * times


EXCESSIVE = {
    # written out
    "nested_unroll": BODY.format(
        "        for a in unroll(1000):\n            for b in unroll(1000):\n                t = t + 1\n"
    ),
    "mathematics": BODY.format("        for a in unroll(4000):\n            t = sin(t)\n"),
    "doubling": doubled("f(v) + f(v)") + "    foreach(out, lambda i: f26(x[i]))\n",
    "doubling_known": doubled("f(v) + f(v)") + "    foreach(out, lambda i: x[i] + f26(1))\n",
    "composed": doubled("f(f(v))") + "    foreach(out, lambda i: f26(x[i]))\n",
    "tuples_of_calls": doubled("(f(v), f(v))", "v") + "    foreach(out, lambda i: x[i] + len(f26(x[i])))\n",
    "mistakes": BODY.format(
        "        for a in unroll(4000):\n            t = " + " + ".join(["t"] * 140) + " + x.nothing\n"
    ),
    # computed
    "fibonacci": KNOWN.format("        return n if n < 2 else f(n - 1) + f(n - 2)\n", 40),
    "endless": KNOWN.format("        k = 0\n        while k < n:\n            k += 1\n        return k\n", 10**9),
    "growing": KNOWN.format(
        "        s = ()\n        for k in range(n):\n            s = (*s, k)\n        return len(s)\n", 60_000
    ),
    "long_integers": KNOWN.format(
        "        s = 7 ** 20000\n        for k in range(n):\n            s = (s // 3) * 3 + k % 2\n"
        "        return s % 7\n",
        10**6,
    ),
    "generators": number("sum(sum(b for b in range(4000)) for a in range(4000))"),
    "tuples_of_tuples": known("tuple(tuple(tuple(c for c in range(99)) for b in range(99)) for a in range(99))"),
    "slices": "    s = (0,) * 60000\n" + known("tuple(s[1:] for k in range(4000))"),
    "passed_on": "    s = (0,) * 60000\n    f = lambda v: 1\n" + number("sum(f(s) for k in range(4000))"),
    # held
    "text": known('"a" * 10**9'),
    "tuple": known("10**9 * (0,)"),
    "power": number("2 ** 10**9"),
    "powers": number("(2 ** 1000) ** 100000"),
    "shift": number("1 << 10**9"),
    "range": known("tuple(range(10**12))"),
    "products": "    s = 3 ** 1000\n" + repeated("s = s * s") + number("s % 7"),
    "texts": "    s = 'ab'\n" + repeated("s = s + s") + known("s"),
    "shared_tuples": "    s = (1, 2)\n" + repeated("s = (s, s)", 60) + known("s"),
    "shared_values": BODY.format("        s = (t, t)\n" + "        s = (s, s)\n" * 40),
    "width": known('f"{1:1500000000}"'),
    "width_of_text": known("f\"{'a':>1500000000}\""),
    "digits": known('f"{1.5:.1500000000f}"'),
    "shown": '    print(f"{x.dim(0):1500000000}")\n' + END,
    "long_integer_shown": '    print(f"{1 << 60000}")\n' + END,
    "literal": known("(" + "1, " * 70_000 + ")"),
}
CODES = {"EK0112", "EK0113", "EK0124", "EK0206", "EK0210", "EK0216"}
CALLS = 12_000_000  # of Python's functions, in all of a refusal
OVER = 20_000  # steps that are counted at once: of long tuples, and of mistakes on the way out
PART = 4  # of the budget is enough to count what a step costs; with all of it, a child checks them below
MEMORY = 400 << 20  # bytes that a process ever had; half of it is there before the first program


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    def run(body: str) -> Program:
        file = tmp_path / "kernels.py"
        file.write_text(HEAD + body)
        kernel = load_library(file).kernels["op"]
        return typed_program(instance_entry(kernel.portable, make_instance(kernel.schema, {}, {}, {})), host())

    return run


@pytest.mark.parametrize("name", EXCESSIVE)
def test_what_requests_too_much_is_refused_soon(
    name: str, compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []  # of each kernel, whose count begins anew
    about = GroupEvaluator.about

    @contextmanager
    def counted(self: GroupEvaluator, spec: NodeSpec) -> Iterator[None]:
        with about(self, spec):
            try:
                yield
            finally:
                steps.append(self.evaluator.builder.steps)

    monkeypatch.setattr(GroupEvaluator, "about", counted)
    monkeypatch.setattr(evaluator, "MAX_STEPS", MAX_STEPS // PART)
    profile = cProfile.Profile()
    with pytest.raises(EinkornError) as caught:
        profile.runcall(compiled, EXCESSIVE[name])
    for error in each_of(caught.value):
        assert error.code in CODES, error
        assert error.place is not None and error.place.file == str(tmp_path / "kernels.py")
    assert max(steps, default=0) <= MAX_STEPS / PART + OVER
    calls: Any = pstats.Stats(profile)
    assert calls.total_calls < (CALLS if name == "literal" else CALLS / PART)  # a text is read whatever the budget is


# The command, and behind what it says the most kilobytes of memory that it had.
CHECK = r"""
import re, sys
from einkorn.cli.application import main
try:
    main()
finally:
    most = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())  # of this program, not of its parent
    print(most[1], file=sys.stderr)
"""


def test_a_child_with_little_memory_checks_them_all(tmp_path: Path) -> None:
    """`einkorn check`, as a user has it: a gigabyte of addresses and two minutes of processor time for all together."""
    for name, body in EXCESSIVE.items():
        (tmp_path / f"{name}.py").write_text(HEAD.replace('"op"', f'"{name}"') + body)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))

    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHECK, "check", str(tmp_path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=environment, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    for name in EXCESSIVE:
        assert f"{name}.py" in done.stdout, name
    assert "EK09" not in done.stdout
    peak = int(done.stderr.split()[-1]) << 10
    assert peak < MEMORY, peak


LARGE = {
    "unrolled": BODY.format("        for a in unroll(4096):\n            t = t * 0.5 + 1\n"),
    "unrolled_twice": BODY.format(
        "        for a in unroll(64):\n            for b in unroll(64):\n                t = t * 0.5 + (a + b)\n"
    ),
    "table": KNOWN.format(
        "        s = ()\n        for k in range(n):\n            s = (*s, k * k)\n        return s[n - 1]\n", 1024
    ),
    "primes": KNOWN.format(
        "        count = 0\n        for k in range(2, n):\n            prime = True\n"
        "            for d in range(2, k):\n                if d * d > k:\n                    break\n"
        "                if k % d == 0:\n                    prime = False\n                    break\n"
        "            if prime:\n                count += 1\n        return count\n",
        300,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_merely_large_compiles(name: str, compiled: Any) -> None:
    assert compiled(LARGE[name]).functions


def test_what_is_large_gives_pythons_numbers(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        HEAD + LARGE["table"] + "\n\n" + HEAD.partition("\n\n")[2].replace('"op"', '"primes"') + LARGE["primes"]
    )
    x = np.zeros(3, np.float32)
    kernels = KernelFile(file)
    assert (kernels("op", x)[0] == 1023**2).all()
    assert (kernels("primes", x)[0] == 62).all()


def test_each_kernel_of_a_graph_has_a_budget_of_its_own(tmp_path: Path) -> None:
    """What fuses into one loop may take more than one kernel may."""
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    file = tmp_path / "kernels.py"
    file.write_text(HEAD + BODY.format("        for a in unroll(2000):\n            t = t + a % 2\n"))

    def forward(x: Any) -> Any:
        for _ in range(12):
            x = ops.custom("op", device=DeviceRef.CPU(), values=[x])[0]
        return x

    types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())]
    graph = Graph("long", forward=forward, input_types=types, custom_extensions=[file])
    model = InferenceSession(interpret=True).load(graph)
    assert (model(np.ones(2, np.float32))[0].to_numpy() == 12001).all()
