"""`einkorn bench` and `einkorn.bench`: which functions are timed, how, and what two runs are to each other."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from einkorn.bench import Timing, benchmark, compare, load, measure, run_file, save

from einkorn.cli.application import einkorn
from einkorn.dsl.diagnostics.errors import EinkornError, GraphError

FILE = """
from einkorn.bench import benchmark

prepared = []

@benchmark(params={"n": [2, 3], "k": (5,)}, bytes=lambda n, k: 4 * n, flops=7)
def both(n, k):
    prepared.append(n)
    return lambda: n + k

@benchmark
def alone():
    return None

def bench_plain():
    return lambda: 1

def bench_with_an_argument(n):
    raise AssertionError

def helper():
    raise AssertionError
"""
FAST: dict[str, Any] = {"rounds": 3, "least": 0.0, "warm": 0.0}


class Clock:
    """A clock that only calls of benchmarks move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def takes(self, seconds: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds()

        return call


def test_the_benchmarks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "speeds.py"
    path.write_text(FILE)
    seen: list[str] = []
    timings = run_file(path, report=lambda timing: seen.append(timing.name), **FAST)
    assert seen == [timing.name for timing in timings] == ["both[n=2, k=5]", "both[n=3, k=5]", "alone", "plain"]
    assert timings[1].work == {"bytes": 12.0, "flops": 7.0}
    assert [timing.name for timing in run_file(path, only="n=3", **FAST)] == ["both[n=3, k=5]"]


def test_a_timing_is_warm_and_of_whole_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Clock(monkeypatch), iter(range(1 << 30))
    first = clock.takes(lambda: 5.0 if next(calls) < 3 else 0.002)  # the first calls compile
    timing = measure(first, name="f", rounds=6, least=0.01, warm=0.1, work={"bytes": 4000})
    assert timing.calls == 5 and len(timing.samples) == 6
    assert timing.median == pytest.approx(0.002) == timing.best and timing.spread == pytest.approx(0)
    assert timing.throughput["bytes"] == pytest.approx(2e6)
    assert str(timing) == "f: 2 ms (±0%, 2 MB/s)"


def test_the_median_is_that_of_the_samples() -> None:
    timing = Timing("f", (3.0, 1.0, 2.0, 9.0))
    assert (timing.median, timing.best) == (2.5, 1.0) and timing.spread == pytest.approx(6.25 / 2.5)
    assert Timing("g", (2.0,)).spread == 0


def drawn(name: str, mean: float, seed: int, count: int = 20) -> Timing:
    rng = random.Random(seed)
    return Timing(name, tuple(mean * (1 + abs(rng.gauss(0, 0.03))) for _ in range(count)))


def test_changes_are_distinguished_from_noise() -> None:
    verdicts = {"same": [], "faster": [], "slower": []}  # type: dict[str, list[float]]
    for seed in range(40):
        for factor in (1.0, 1.2, 0.8):
            (change,) = compare([drawn("f", 1.0, seed)], [drawn("f", factor, 100 + seed)])
            verdicts[change.verdict].append(factor)
            assert change.ratio == pytest.approx(factor, rel=0.1)
    assert verdicts["same"] == [1.0] * 40 and verdicts["slower"] == [1.2] * 40 and verdicts["faster"] == [0.8] * 40


def test_the_rank_test_is_that_of_the_tables() -> None:
    def chance(one: tuple[float, ...], other: tuple[float, ...]) -> float:
        return compare([Timing("f", one)], [Timing("f", other)])[0].chance

    assert chance((1.0, 1.0), (1.0, 1.0)) == 1.0
    ones, others = tuple(map(float, range(10))), tuple(k + 4.5 for k in range(10))
    # U = 15 of 100: z = (|15 - 50| - 0.5) / sqrt(175)
    assert chance(ones, others) == pytest.approx(math.erfc(34.5 / math.sqrt(175) / math.sqrt(2)), rel=0.2)
    assert chance(ones, others) == chance(others, ones)


def test_only_benchmarks_of_both_runs_are_compared() -> None:
    actual = compare([Timing("a", (1.0,)), Timing("b", (2.0,))], [Timing("b", (1.0,)), Timing("c", (1.0,))])
    assert [(change.name, change.ratio, change.verdict) for change in actual] == [("b", 0.5, "same")]


def test_results_are_kept(tmp_path: Path) -> None:
    timings = [Timing("a", (0.5, 0.25), 3, {"elements": 8.0}), Timing("b", (1.0,))]
    save(tmp_path / "run.json", timings)
    assert load(tmp_path / "run.json") == timings


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": 2, "benchmarks": []}', '{"format": 1, "benchmarks": [{"name": "a", "samples": []}]}']
)
def test_other_files_are_no_results(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(GraphError, match=r"run\.json has no results of benchmarks") as caught:
        load(tmp_path / "run.json")
    assert caught.value.code == "EK0910"


def test_a_file_without_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "speeds.py"
    path.write_text("x = 1\n")
    with pytest.raises(GraphError, match="has no benchmark") as caught:
        run_file(path)
    assert caught.value.code == "EK0909"
    path.write_text(FILE)
    with pytest.raises(GraphError, match="has no benchmark with 'plan'") as caught:
        run_file(path, only="plan")
    assert "plain" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: measure(3),  # type: ignore[arg-type]
        lambda: measure(len, rounds=0),
        lambda: measure(len, work={"byte": 1}),
        lambda: benchmark(lambda n: n),
        lambda: benchmark(params={"n": [1]})(lambda: None),
        lambda: benchmark(params={"n": 3})(lambda n: None),  # type: ignore[dict-item]
        lambda: benchmark(watts=3)(lambda: None),
    ],
)
def test_wrong_arguments_are_named(wrong: Callable[[], Any]) -> None:
    with pytest.raises(GraphError, match="argument '"):
        wrong()


def test_the_command(tmp_path: Path) -> None:
    path, old, new = tmp_path / "speeds.py", tmp_path / "old.json", tmp_path / "new.json"
    path.write_text(FILE)
    run = CliRunner()
    done = run.invoke(einkorn, ["bench", str(path), "--only", "plain", "--rounds", "2", "-o", str(old)])
    assert done.exit_code == 0 and done.output.startswith("plain ") and [t.name for t in load(old)] == ["plain"]
    save(old, [drawn("plain", 1.0, 1), drawn("other", 1.0, 2)])
    save(new, [drawn("plain", 1.3, 3), drawn("other", 1.0, 4)])
    done = run.invoke(einkorn, ["bench", str(new), "--compare", str(old)])
    plain, other, mean = done.output.strip().splitlines()
    assert plain.endswith("slower") and other.endswith("same") and mean.startswith("geometric mean"), done.output
    for most, status in ((1.1, 1), (1.6, 0)):
        options = ["--compare", str(old), "--fail-above", str(most), "--json"]
        done = run.invoke(einkorn, ["bench", str(new), *options])
        assert done.exit_code == status
        assert [change["verdict"] for change in json.loads(done.output)["changes"]] == ["slower", "same"]


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("def f(:\n", "EK0100", 1, "not valid Python"),
        ("import math\nmath.sqrt(-1)\n", "EK0915", 2, "running this file failed: ValueError: "),
        ("def bench_one():\n    return lambda: 1 // 0\n", "EK0915", 2, "ZeroDivisionError"),
        ("\xff\n", "EK0100", 1, "UTF-8|utf-8"),
        ("hello\n", "EK0915", 1, "name 'hello' is not defined"),
    ],
)
def test_an_exception_of_a_file_is_an_error_at_its_place(
    tmp_path: Path, text: str, code: str, line: int, message: str
) -> None:
    file = tmp_path / "speeds.py"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(EinkornError, match=message) as caught:
        run_file(file, **FAST)
    error = caught.value
    assert error.code == code and error.place is not None
    assert (error.place.file, error.place.line) == (str(file), line)
    for command in (["bench", str(file)], ["profile", str(file)], ["inspect", f"{file}:graph"]):
        if "bench_one" not in text or command[0] == "bench":
            result = CliRunner().invoke(einkorn, command)
            assert isinstance(result.exception, EinkornError) and result.exception.code == code, command
