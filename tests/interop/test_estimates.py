"""Tuning for GPUs that are not here: what the model counts, the order of its candidates, packages with its choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from einkorn.cli.application import einkorn
from einkorn.dsl.contract.launches import LaunchCounters
from einkorn.dsl.diagnostics.errors import KernelError, TargetError
from einkorn.dsl.package import findings
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.findings import print_findings, read_findings
from einkorn.dsl.package.library import load_library, loaded_kernel
from einkorn.dsl.signature.tuning import tuning_space
from einkorn.dsl.types.dtype import DType
from einkorn.graph import DeviceRef
from einkorn.graph.drawing.inspected import op_graph
from einkorn.graph.interop.specialise import specialise
from einkorn.graph.interop.tuned import estimate_op
from einkorn.graph.ops.tuned import finding_for
from einkorn.graph.profiling.roofline import Roofline
from einkorn.graph.profiling.static_roofline import launch_counts
from einkorn.graph.tuning import search
from einkorn.graph.tuning.messages import Raced, Tried, Try
from einkorn.graph.tuning.table import Candidate, TuningTable

from . import tiled_kernels as kernels

FILE = Path(kernels.__file__)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    findings.forget()
    yield
    findings.forget()


def counts(kernel: Any, kinds: Any, sizes: dict[str, int], target: str, **parameters: int) -> LaunchCounters:
    made = specialise(loaded_kernel(kernel), kinds, parameters, DeviceRef.GPU())
    (launch,) = launch_counts(made.graph.ir, target, sizes)
    return launch


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942", "gfx1100"])
def test_a_product_has_the_operations_of_its_tiles_and_the_sectors_of_its_operands(target: str) -> None:
    sizes = {"m": 256, "n": 192, "k": 320}
    launch = counts(kernels.tiled_product, [(DType.bfloat16, 2)] * 2, sizes, target, M=64, N=64, K=32)
    assert launch.blocks == 4 * 3 and 0 <= launch.shared - 2 * 2 * 2 * 64 * 32 <= 1024  # barriers of bulk copies
    assert launch.operations["dot.bfloat16"] == 2 * 256 * 192 * 320
    read = 12 * 320 * (64 + 64) * 2 // 32
    assert read <= launch.sectors <= 1.3 * (read + 256 * 192 * 2 / 32)  # the steps past the end, and stores
    assert launch.distinct == (256 * 320 + 320 * 192 + 256 * 192) * 2 // 32
    assert 24 + 64 * 64 // launch.threads <= launch.registers <= 255


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_neighbours_share_sectors_and_columns_do_not(target: str) -> None:
    kinds = [(DType.float32, 1)]
    one = counts(kernels.doubled_by_threads, kinds, {"n": 1 << 20}, target, width=1)
    assert one.bytes == 2 << 22 and one.sectors == one.distinct == 2 * (1 << 22) // 32
    columns = counts(kernels.column_reader, [(DType.float32, 2)], {"m": 1024, "n": 1024}, target)
    read = (1 << 20) * 32 // columns.lanes  # of 64 lanes, two have neighbours
    assert columns.sectors == read + columns.distinct // 2


def test_sizes_of_nothing_launch_nothing() -> None:
    launch = counts(kernels.doubled_by_threads, [(DType.float32, 1)], {"n": 0}, "sm_90a")
    assert (launch.blocks, launch.bytes, launch.operations) == (0, 0, {})
    assert Roofline.of([launch], "sm_90a").kernels[0].seconds == 0


def best(target: str, m: int, k: int, n: int) -> tuple[dict[str, Any], TuningTable]:
    loaded = loaded_kernel(kernels.tiled_product)
    assert loaded.tuning is not None
    table, finding = estimate_op(loaded, loaded.tuning, {"a": (m, k), "b": (k, n)}, {}, {}, target)
    assert finding.estimated and finding.target == target and dict(finding.parameters) == table.parameters
    return table.parameters, table


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_large_products_take_large_tiles_and_a_row_takes_flat_ones(target: str) -> None:
    large, table = best(target, 4096, 4096, 4096)
    assert (large["M"], large["N"]) == (128, 128)
    last = table.candidates[table.order[-1]]
    possible = [each for each in table.candidates if each.estimate is not None]
    assert (
        max(possible, key=lambda each: each.estimate or 0.0).parameters["M"] == 16 and last is not table.candidates[0]
    )
    row, _ = best(target, 1, 4096, 4096)
    assert row["M"] == 16
    assert row["stages"] == 3  # what a block waits for is under way earlier
    tiny, _ = best(target, 16, 64, 64)
    assert (tiny["M"], tiny["N"]) == (16, 64)
    assert table.ratio > 1.1 and not table.is_measured


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_the_tiles_of_the_built_in_product_are_those_that_the_model_prefers(target: str) -> None:
    """The kernel chooses by a formula of its own: its tiles are near the best ones, or it cuts the inner axis."""
    kinds = [(DType.bfloat16, 2)] * 2
    large = ((4096, 4096, 4096), (512, 512, 512))
    for m, k, n in (*large, (128, 16384, 128)):
        graph = op_graph("matmul", [f"bfloat16[{m}, {k}]", f"bfloat16[{k}, {n}]"], {}, target)
        built_in = sum(each.score for each in Roofline.of(launch_counts(graph.ir, target, {}), target).kernels)
        sizes = {"m": m, "n": n, "k": k}
        scores = [
            Roofline.of([counts(kernels.tiled_product, kinds, sizes, target, M=M, N=N, K=32)], target).kernels[0].score
            for M, N in ((64, 64), (128, 128))
        ]
        assert built_in <= (1.1 if (m, k, n) in large else 0.6) * min(scores), (m, k, n)


def command(*arguments: str) -> str:
    result = CliRunner().invoke(einkorn, list(arguments))
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def test_a_package_has_the_choices_for_each_target(tmp_path: Path) -> None:
    package = tmp_path / "k.pkg"
    command("build", str(FILE), "-o", str(package), "--op", "tiled_product")
    shapes = ["--shape", "a=4096,4096", "--shape", "b=4096,4096"]
    targets = ["--target", "sm_90a", "--target", "gfx942"]
    page, lines = tmp_path / "t.html", tmp_path / "t.csv"
    shown = command(
        *("tune", str(FILE), "--op", "tiled_product", *shapes, *targets, "--into", str(package)),
        *("-o", str(page), "--csv", str(lines)),
    )
    assert "estimated for sm_90a; nothing was run" in shown and "k.pkg: 2 findings" in shown
    assert re.search(r"128 +128 +\d +[\d.]+ us +\w+.*occupied.*best", shown)
    assert page.read_text().count("<table") == 2 and "estimated_seconds,wall" in lines.read_text()
    found = {each.target: each for each in read_package(package).findings}
    assert set(found) == {"sm_90a", "gfx942"} and all(each.estimated for each in found.values())
    assert read_findings(print_findings(found.values())) == sorted(found.values(), key=lambda f: f.target)
    loaded = load_library(package).kernels["tiled_product"]
    bound = {"M": 64, "N": 64, "K": 64, "stages": 2, "warps": 4}
    for target in found:
        near = finding_for(loaded, target, ["bfloat16"] * 2, [(5000, 4100), (4100, 7000)], (), bound)
        assert near is not None and dict(near.parameters)["M"] == 128
    assert finding_for(loaded, "sm_80", ["bfloat16"] * 2, [(4096, 4096)] * 2, (), bound) is None
    assert finding_for(loaded, "sm_90a", ["bfloat16"] * 2, [(100, 4096), (4096, 4096)], (), bound) is None


def test_what_cannot_be_estimated_is_refused() -> None:
    loaded = loaded_kernel(kernels.tiled_product)
    assert loaded.tuning is not None
    shapes = {"a": (64, 64), "b": (64, 64)}
    for target, said in (("sm_75", "no peak figures of a device of sm_75"), ("sm_9", "sm_9")):
        with pytest.raises(TargetError, match=said) as caught:
            estimate_op(loaded, loaded.tuning, shapes, {}, {}, target)
        assert caught.value.code == "EK0601"
    space = tuning_space(kernels.tiled_product.schema, {"M": (4096,)}, (), 3, 10, False, None)
    table, _ = estimate_op(loaded, space, shapes, {}, {}, "sm_90a")
    assert [each.why[:2] for each in table.candidates] == ["", "EK"] and table.best == 0
    assert "EK" in str(table)
    with pytest.raises(KernelError, match="its default fails") as failed:
        estimate_op(loaded, space, shapes, {}, {"N": 4096}, "sm_90a")
    assert failed.value.code == "EK0737"
    host = loaded_kernel(kernels.host_doubled)
    space = tuning_space(kernels.host_doubled.schema, {"width": (2,)}, (), 3, 10, False, None)
    with pytest.raises(KernelError, match="its default fails: EK0820"):
        estimate_op(host, space, {"x": (64,)}, {}, {}, "sm_90a")


class _Recorded(search._Child):
    """A child that measures nothing, and keeps what it is to try."""

    def __init__(self) -> None:
        self.tried: list[int] = []

    def has_result(self, number: int) -> bool:
        return True

    def send(self, request: Any, limit: float) -> Tried | Raced | str:
        if isinstance(request, Try):
            self.tried.append(request.parameters["way"])
            return Tried(1.0 / (1 + request.number))
        return Raced([[1.0 / (1 + number) for number in request.numbers]] * request.rounds)


def test_candidates_are_measured_in_the_order_of_the_model_and_cut() -> None:
    estimates = {0: 5.0, 1: 9.0, 2: 1.0, 3: 1.9, 4: 2.1, 5: None, 6: 1.5, 7: 8.0}
    rows = [
        Candidate({"way": way}, None, why="" if seconds else "EK0604", estimate=seconds, wall="memory")
        for way, seconds in estimates.items()
    ]
    model = TuningTable("op", [], rows, 2)
    child = _Recorded()
    space = tuning_space(kernels.host_doubled.schema, {"width": (1, 2)}, (), 3, 10, True, None)
    candidates = [rows[0].parameters, *(rows[n].parameters for n in model.order if n)]
    subject = search.Subject("", "op", [], [], None, {}, True, 3)
    table = search._Search(child, space, candidates, None, model).table(subject)
    assert child.tried == [0, 2, 6, 3, 4]  # the default, then the best four by the model
    cut = {each.parameters["way"]: each.why for each in table.candidates if each.why}
    assert cut[7] == "it is estimated to take 8.0 times as long as the best" and set(cut) == {1, 5, 7}
    assert "estimate" in str(table) and "memory" in str(table) and table.is_measured
