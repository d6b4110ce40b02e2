"""Tuning: candidates in a child process, what is kept and for which devices, packages with findings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from einkorn.cli.application import einkorn
from einkorn.dsl import autotune
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError, KernelError
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.dsl.package import findings
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.findings import TunedCalls, print_findings, range_of, read_findings
from einkorn.dsl.package.library import load_library, loaded_kernel
from einkorn.dsl.signature.tuning import sizes_by_name, tuning_space
from einkorn.dsl.types.dtype import DType
from einkorn.graph import CPU, DeviceRef, Graph, TensorType, ops
from einkorn.graph.interop import tuned
from einkorn.graph.interop.tuned import tune_op
from einkorn.graph.loading.background import BACKGROUND
from einkorn.graph.loading.compile import compiled_for
from einkorn.graph.tuning import search
from einkorn.graph.tuning.messages import Raced, Tried, Try
from einkorn.graph.tuning.table import Candidate, TuningTable

from . import tuned_kernels as kernels

FILE = Path(kernels.__file__)
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    findings.forget()
    yield
    findings.forget()


def test_a_candidate_that_hangs_fails_or_errs_costs_itself_alone() -> None:
    loaded = loaded_kernel(kernels.risky)
    assert loaded.tuning is not None
    table, finding = tune_op(loaded, loaded.tuning, {"x": (64,)}, {}, {})
    why = [candidate.why for candidate in table.candidates]
    assert [candidate.parameters["way"] for candidate in table.candidates] == list(range(7))
    assert why[0] == why[6] == "" and table.candidates[0].seconds and table.candidates[6].seconds
    assert why[1].startswith("EK0703") and "out of bounds" in why[1]
    assert why[2] == "it takes more than 4 seconds"
    assert why[3] == "output 0 has other elements than with the default"
    assert why[4].startswith("EK07") and "too far" in why[4]
    assert "five is refused" in why[5]
    assert finding.parameters == (("way", table.parameters["way"]),) and table.parameters["way"] in (0, 6)
    text = str(table)
    assert "default" in text and "five is refused" in text and "risky (64)" in text
    assert len(table.csv().splitlines()) == 8
    assert table._repr_html_().count("<tr") == 8


def test_a_candidate_that_crashes_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CHECKS", "off")  # so that nothing stops it before
    loaded = loaded_kernel(kernels.risky)
    space = tuning_space(kernels.risky.schema, {"way": (1, 6)}, (), 3, 10, True, None)
    table, _ = tune_op(loaded, space, {"x": (64,)}, {}, {})
    why = {candidate.parameters["way"]: candidate.why for candidate in table.candidates}
    assert why[0] == why[6] == "" and ("SIGSEGV" in why[1] or "SIGBUS" in why[1])


def test_failed_allocations_are_rows() -> None:
    loaded = loaded_kernel(kernels.repeated)
    assert loaded.tuning is not None
    table, _ = tune_op(loaded, loaded.tuning, {"x": (64,)}, {}, {})
    assert table.candidates[1].seconds is None and table.candidates[1].why
    assert table.best == 0


def test_the_default_has_to_run() -> None:
    loaded = loaded_kernel(kernels.risky)
    assert loaded.tuning is not None
    with pytest.raises(KernelError) as caught:
        tuned.search(loaded, loaded.tuning, [(DType.float32, 1)], [np.ones(3, np.float32)], {"way": 4}, CPU())
    assert caught.value.code == "EK0737" and "too far" in str(caught.value)


class _Recorded(search._Child):
    """A child that says what a test wants it to say."""

    def __init__(self, seconds: dict[int, float], raced: list[float]) -> None:
        self.seconds, self.raced, self.requests = seconds, raced, list[Any]()

    def has_result(self, number: int) -> bool:
        return True

    def send(self, request: Any, limit: float) -> Tried | Raced | str:
        self.requests.append(request)
        if isinstance(request, Try):
            return Tried(self.seconds[request.number])
        return Raced([[self.raced[number] for number in request.numbers]] * request.rounds)


@pytest.mark.parametrize(("last", "best"), [(0.5, 3), (0.98, 0), (1.2, 0)])
def test_the_best_are_timed_again_next_to_the_default(last: float, best: int) -> None:
    times = {0: 1.0, 1: 1.5, 2: 0.4, 3: 0.3, 4: 0.6, 5: 0.7, 6: 0.8, 7: 2.0}
    child = _Recorded(times, [1.0, 9.0, 1.1, last, 1.3, 1.4, 9.0, 9.0])
    subject = search.Subject("", "op", [], [np.ones((2, 3))], None, {}, True, 3)
    space = kernels.risky.tuning
    assert space is not None
    table = search._Search(child, space, [{"way": k} for k in range(8)], None).table(subject)
    assert child.requests[-1].numbers == [0, 3, 2, 4, 5]  # the best four, and the default
    assert table.best == best
    assert table.ratio == (1.0 if best == 0 else pytest.approx(1 / last))


def test_a_first_call_tunes_and_later_ones_of_such_sizes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []

    def instead(loaded: Any, space: Any, kinds: Any, values: Any, parameters: Any, device: Any, **_: Any) -> Any:
        reported.append((parameters, [getattr(value, "shape", ()) for value in values]))
        rows = [Candidate({"width": 2}, 2.0), Candidate({"width": 8}, 1.0, ratio=2.0)]
        return TuningTable("row_sums", [], rows, 1)

    monkeypatch.setattr(tuned, "search", instead)
    f32, shift = np.float32, np.zeros((2, 2), np.float32)
    for m, n in ((3, 40), (5, 33), (3, 63), (0, 40)):
        x = rng.integers(0, 9, (m, n)).astype(f32)
        width = 8
        assert np.array_equal(kernels.row_sums(x, shift), x[:, : n - n % width].sum(1))
    assert reported == [({"width": 2}, [(3, 40), (2, 2)])]
    x = rng.integers(0, 9, (3, 9)).astype(f32)
    assert np.array_equal(kernels.row_sums(x, shift, width=4), x[:, :8].sum(1)) and len(reported) == 1
    kernels.row_sums(x, shift)  # another power of two
    kernels.row_sums(x.astype(np.float64), shift.astype(np.float64))  # another dtype
    kernels.row_sums(x, np.zeros((5, 2), f32))  # another power of two of the starred dim
    assert len(reported) == 4
    findings.forget()  # as another process reads it
    kernels.row_sums(x, shift)
    assert len(reported) == 4


def test_candidates_are_judged_against_float64() -> None:
    x = np.full(1 << 18, 0.1, np.float32)  # whose sum one by one is far from the exact one
    loaded = loaded_kernel(kernels.summed)
    assert loaded.tuning is not None

    def tried(**options: Any) -> TuningTable:
        space = tuning_space(loaded.schema, {"way": (1, 2)}, (), 1, 30, **{"exact": False, "place": None} | options)
        kinds: Any = [(DType.float32, 1)]
        return tuned.search(loaded, space, kinds, [x], {"way": 0}, CPU())

    default, better, worse = tried().candidates
    assert default.error is not None and better.error is not None
    assert default.error > 16 and default.error - better.error > 8 and better.seconds  # further from the default than 8
    assert worse.seconds is None and "ulp from float64, where" in worse.why
    table = tried(tolerance=0.5)
    assert [candidate.why for candidate in table.candidates] == ["", "", ""] and not table.rejected
    table = tried(tolerance=1e-9)
    assert [name for name, _ in table.rejected] == ["way=1", "way=2"]
    assert "more than the tolerance 1e-09" in table.rejected[0][1] and "1e-09" in str(table)
    assert [name for name, _ in tried(exact=True).rejected] == ["way=1", "way=2"]


def test_what_was_rejected_is_kept_with_its_reason_and_shown_by_the_kernel() -> None:
    x = (rng.random(1 << 12) + 0.5).astype(np.float32)
    kernels.summed.__class__, kernels.summed.calls = Kernel, None
    kernels.summed(x)  # which tunes it
    findings.forget()
    (finding,) = loaded_kernel(kernels.summed).findings
    assert [name for name, _ in finding.rejected] == ["way=2"] and "ulp from float64" in finding.rejected[0][1]
    shown = kernels.summed.as_text()
    assert "not chosen" in shown and "way=2" in shown and "ulp from float64" in shown


def kept_for(kernel: Kernel, target: str, ranges: dict[tuple[int, int], int]) -> None:
    """Puts findings into the cache: the width that is best for sizes from the first to the second."""
    digest, name = loaded_kernel(kernel).portable.digest, kernel.schema.name
    for (low, high), width in ranges.items():
        bounds = (("n", low, high),)
        findings.keep(TunedCalls(name, digest, target, ("float32",), (), bounds, (("width", width),), 2.0, "0"))


def first_parts(n: int, width: int) -> float:
    """What `parts` gives for ones: as many elements as `width` divides."""
    return float(n - n % width)


def test_one_table_for_all_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "search", None)  # nothing is searched
    kernel = kernels.parts
    kernel.__class__, kernel.calls = Kernel, None
    kept_for(kernel, compiled_for(CPU().driver), {(32, 63): 8, (64, 127): 4})
    sizes = dict.fromkeys((39, 63), 8) | dict.fromkeys((65, 79), 4)
    for _ in range(4):
        for n, width in sizes.items():
            assert kernel(np.ones(n, np.float32)).tolist() == [first_parts(n, width)]
            assert kernel(np.ones(n, np.float32), width=3).tolist() == [first_parts(n, 3)]
    BACKGROUND.wait()
    entered: list[str] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        entered.append(event) if frame.f_globals.get("__name__", "").startswith("einkorn.") else None

    for n, width in sizes.items():  # in the native path, which looks at sizes
        x = np.ones(n, np.float32)
        kernel(x)
        sys.setprofile(count)
        try:
            result = kernel(x)
        finally:
            sys.setprofile(None)
        assert result.tolist() == [first_parts(n, width)] and not entered
    assert kernel.calls.now.fast_path.counter.doors == 3  # two ranges, and width=3


def test_pytorch_sees_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(tuned, "search", None)
    op = pytest.importorskip("einkorn.torch").op(kernels.parts)
    kept_for(kernels.parts, compiled_for(CPU().driver), {(32, 63): 8, (64, 127): 4})
    for _ in range(3):
        for n, width in {39: 8, 79: 4, 63: 8, 20: 1}.items():
            assert op(torch.ones(n)).tolist() == [first_parts(n, width)]
        assert op(torch.ones(40), width=3).tolist() == [39]
        BACKGROUND.wait()
    assert len(op._registered.doors._entered) == 4  # two ranges, one without a finding, and width=3


def test_jax_and_numba_see_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    jax, numba = pytest.importorskip("jax"), pytest.importorskip("numba")
    monkeypatch.setattr(tuned, "search", None)
    target, digest = compiled_for(CPU().driver), loaded_kernel(kernels.halved).portable.digest
    kept_for(kernels.parts, target, {(32, 63): 8, (64, 127): 4})
    op = pytest.importorskip("einkorn.jax").op(kernels.parts)
    call = jax.jit(op)
    for n, width in {39: 8, 79: 4, 20: 1}.items():
        assert np.asarray(call(jax.numpy.ones(n, np.float32))).tolist() == [first_parts(n, width)]
    assert np.asarray(op(jax.numpy.ones(40, np.float32), width=3)).tolist() == [39]
    parts = pytest.importorskip("einkorn.numba").function(kernels.parts)
    called = numba.njit(lambda x: parts(x))
    for n, width in {39: 8, 79: 4, 63: 8, 20: 1, 0: 1}.items():
        assert called(np.ones(n, np.float32)).tolist() == [first_parts(n, width)]
    assert numba.njit(lambda x: parts(x, width=3))(np.ones(40, np.float32)).tolist() == [39]
    findings.keep(TunedCalls("halved", digest, target, ("float32",), (), (), (("width", 8),), 2.0, "0"))
    function = pytest.importorskip("einkorn.numba").function(kernels.halved)
    assert numba.njit(lambda x: function(x))(np.ones(15, np.float32)).tolist() == [8.0]


def test_numba_looks_at_all_dims_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(tuned, "search", None)
    target, digest = compiled_for(CPU().driver), loaded_kernel(kernels.row_sums).portable.digest
    for n, s, width in ((8, 1, 8), (8, 4, 4), (16, 4, 8)):
        ranges = (("n", n, 2 * n - 1), ("s", s, 2 * s - 1))
        dtypes, chosen = ("float32", "float32"), (("width", width),)
        findings.keep(TunedCalls("row_sums", digest, target, dtypes, (), ranges, chosen, 2.0, "0"))
    function = pytest.importorskip("einkorn.numba").function(kernels.row_sums)
    called = numba.njit(lambda x, shift: function(x, shift))
    for n, shape, width in ((15, (), 8), (15, (2, 3), 4), (17, (5, 1), 8), (15, (1, 9), 2), (17, (1, 1), 2)):
        x = rng.integers(0, 9, (3, n)).astype(np.float32)
        result = called(x, np.zeros(shape, np.float32))
        assert np.array_equal(result, x[:, : n - n % width].sum(1)), (n, shape)


def test_in_place_arguments_are_copied_and_a_required_parameter_is_chosen() -> None:
    x = np.zeros(100, np.float32)
    assert kernels.bumped(x, step=1) is None
    loaded = loaded_kernel(kernels.bumped)
    assert loaded.tuning is not None
    table, _ = tune_op(loaded, loaded.tuning, {"x": (100,)}, {"T": DType.float64}, {})
    assert [candidate.why for candidate in table.candidates] == ["", ""]
    assert (x == 1).all()


def command(*arguments: str) -> str:
    result = CliRunner().invoke(einkorn, list(arguments))
    assert result.exit_code == 0, result.exception
    return result.output


def test_a_package_takes_findings_and_graphs_use_them(tmp_path: Path) -> None:
    package = tmp_path / "k.pkg"
    command("build", str(FILE), "-o", str(package), "--op", "row_sums")
    before = read_package(package)
    assert before.manifest.format == (1, 0) and before.findings == ()
    shapes = ["--shape", "x=16,100", "--shape", "shift=4"]
    shown = command(
        "tune", str(FILE), "--op", "row_sums", *shapes, "--into", str(package), "-o", str(tmp_path / "t.html")
    )
    assert "k.pkg: 1 finding" in shown and "<table" in (tmp_path / "t.html").read_text()
    after = read_package(package)
    assert after.manifest.format == (1, 2) and after.verify() == len(before.archive.members) + 1
    (finding,) = after.findings
    assert dict(finding.given) == {} and finding.ranges == (("n", 64, 127), ("s", 4, 7))
    wide = after.with_findings([_with(finding, width=8)], tmp_path / "wide.pkg")
    assert [dict(each.parameters) for each in wide.findings] == [{"width": 8}]  # it takes the place of the other
    x = TensorType(DType.float32, [3, 100], DeviceRef.CPU())
    cases = {  # what a call says -> what its parameters are
        (100, 5): 8,
        (128, 5): 2,  # out of the range
        (100, 16): 2,
        ("n", 5): 2,  # nothing has_result
    }
    for (n, s), width in cases.items():
        types = [TensorType(x.dtype, [3, n], x.device), TensorType(x.dtype, [s], x.device)]
        graph = Graph("g", _call, input_types=types, custom_extensions=[tmp_path / "wide.pkg"])
        assert dict(graph.ir.nodes[-1].parameters)["width"] == width, (n, s)  # type: ignore[union-attr]
    types = [x, TensorType(x.dtype, [5], x.device)]
    graph = Graph("g", lambda a, b: _call(a, b, width=4), input_types=types, custom_extensions=[tmp_path / "wide.pkg"])
    assert dict(graph.ir.nodes[-1].parameters)["width"] == 4  # type: ignore[union-attr]


def test_rejected_candidates_are_shown_with_their_reasons(tmp_path: Path) -> None:
    package, page = tmp_path / "k.pkg", tmp_path / "page.html"
    command("build", str(FILE), "-o", str(package), "--op", "summed")
    arguments = ["tune", str(FILE), "--op", "summed", "--shape", "x=1000", "--into", str(package)]
    shown = command(*arguments, "--tolerance", "1e-3")
    assert "more than the tolerance 0.001" in shown
    command("explore", str(package), "-o", str(page))
    text = page.read_text()
    assert "tuning: 1 finding, 1 rejected candidate" in text
    assert "more than the tolerance 0.001" in text and "way=2" in text
    assert "more than" not in command(*arguments, "--tolerance", "0.02")
    assert "more than" not in command(*arguments, "--try", "way=0,2", "--tolerance", "0.02")
    wrong = CliRunner().invoke(einkorn, [*arguments, "--tolerance", "2"])
    assert wrong.exit_code and "EK0349" in str(wrong.exception or wrong.output) + wrong.output


def _call(x: Any, shift: Any, **parameters: Any) -> Any:
    return ops.custom("row_sums", DeviceRef.CPU(), [x, shift], parameters=parameters)[0]


def _with(finding: TunedCalls, **parameters: Any) -> TunedCalls:
    values = {**vars(finding), "parameters": tuple(parameters.items())}
    return TunedCalls(**values)


def test_findings_in_text() -> None:
    one = TunedCalls("op", "0" * 64, "x86-64-v3", ("float32",), (("b", True),), (("n", 4, 7),), (("w", 8),), 1.5, "0.1")
    text = print_findings([one, _with(one, w=9)])
    assert sorted(map(str, read_findings(text))) == sorted(map(str, [one, _with(one, w=9)]))
    assert read_findings(b'{"findings": [{}, 3, {"op": 1}]}') == []
    for bad in (b"", b"[]", b'{"findings": 3}', b"\xff"):
        with pytest.raises(ValueError):
            read_findings(bad)
    assert [range_of(n) for n in (0, 1, 2, 3, 4, 255, 256)] == [
        (0, 0),
        (1, 1),
        (2, 3),
        (2, 3),
        (4, 7),
        (128, 255),
        (256, 511),
    ]
    schema = kernels.row_sums.schema
    assert sizes_by_name(schema, [(3, 40), (2, 5)], {"width": 2}, ("n", "s", "m")) == {"n": 40, "s": 10, "m": 3}
    assert sizes_by_name(schema, [(3, None), ()], {"width": 2}, ("n", "s")) == {"n": None, "s": 1}
    assert one.is_about(["float32"], {"b": True}) and not one.is_about(["float32"], {})
    assert one.holds_for({"n": 5}) and not one.holds_for({}) and not one.holds_for({"n": None})


def test_a_package_with_strange_findings_is_refused_and_unknown_programs_are_passed_over(tmp_path: Path) -> None:
    package = tmp_path / "k.pkg"
    command("build", str(FILE), "-o", str(package), "--op", "row_sums")
    other = TunedCalls("row_sums", "1" * 64, "x86-64-v3", ("float32",), (), (), (("width", 8),), 2.0, "0.1")
    read_package(package).with_findings([other])
    assert load_library(package).kernels["row_sums"].findings == []
    data = package.read_bytes()
    at = data.index(b'"width": 8')
    package.write_bytes(data[:at] + b'"width": 9' + data[at + 10 :])
    with pytest.raises(EinkornError):
        read_package(package).verify()


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no such parameter": ({"space": {"wide": (1,)}}, "there is no parameter 'wide'"),
    "a value of another kind": ({"space": {"width": (1, 2.5)}}, "parameter 'width' is int, but got 2.5"),
    "nothing to try": ({"space": {}}, "the first argument lists"),
    "no values": ({"space": {"width": ()}}, "has no values to try"),
    "a number for values": ({"space": {"width": 3}}, "has no values to try"),
    "no such dim": ({"space": {"width": (1,)}, "key": ("k",)}, "no dim 'k'"),
    "no rounds": ({"space": {"width": (1,)}, "rounds": 0}, "is not a number of rounds"),
    "no time": ({"space": {"width": (1,)}, "limit": -1}, "not a time in seconds"),
    "no tolerance": ({"space": {"width": (1,)}, "tolerance": 2}, "not a share of a result"),
    "too many": ({"space": {"width": range(1, 2000)}}, "1,999 combinations"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_autotune_says_has_to_fit(name: str) -> None:
    arguments, text = MISTAKES[name]
    with pytest.raises(CompileError) as caught:
        autotune(**arguments)(kernels.row_sums)
    assert caught.value.code == "EK0349" and text in str(caught.value)
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_autotune_stands_over_register() -> None:
    with pytest.raises(CompileError, match="above @register"):
        autotune({"width": (1,)})(lambda x: x)  # type: ignore[arg-type]
    assert isinstance(kernels.row_sums, Kernel) and kernels.row_sums.tuning is not None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--shape", "y=3"], "EK0732"),
        ([], "EK0732"),
        (["--shape", "x=4,4", "--shape", "shift=2", "--try", "wide=3"], "EK0349"),
        (["--shape", "x=4,4", "--shape", "shift=2", "--dtype", "U=float32"], "EK0607"),
        (["--shape", "x=4", "--shape", "shift=2"], "EK0311"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], code: str) -> None:
    result = CliRunner().invoke(einkorn, ["tune", str(FILE), "--op", "row_sums", *arguments])
    assert isinstance(result.exception, EinkornError) and result.exception.code == code


def test_an_op_that_says_nothing_to_try(tmp_path: Path) -> None:
    shutil.copy(FILE.with_name("direct_kernels.py"), tmp_path)
    name = next(iter(load_library(tmp_path / "direct_kernels.py").kernels))
    result = CliRunner().invoke(einkorn, ["tune", str(tmp_path / "direct_kernels.py"), "--op", name])
    assert isinstance(result.exception, EinkornError) and "does not declare what to try" in str(result.exception)
