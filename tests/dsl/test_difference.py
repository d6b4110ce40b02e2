"""What changed between two packages, and what their versions have to say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.trusting import SCALE, built

from einkorn.cli.application import run
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.difference import LEVELS, PackageDifference, _covers, _least, _said, check_version, compare

ANOTHER = SCALE + SCALE[SCALE.index("@register") :].replace("scale", "other")
VARIABLE = SCALE.replace(
    "@register", 'from typing import TypeVar\n\nT = TypeVar("T", float32, float64)\n\n\n@register'
).replace("[float32", "[T")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compared(old: str, new: str, before: Sequence[str] = (), after: Sequence[str] = ()) -> PackageDifference:
    built("mine", old, targets=before)
    Path("mine.pkg").rename("old.pkg")
    built("mine", new, targets=after)
    return compare(read_package("old.pkg"), read_package("mine.pkg"))


@pytest.mark.parametrize(
    ("old", "new", "level", "text"),
    [
        (SCALE, SCALE, "none", "no changes"),
        (SCALE, SCALE.replace("* by", "/ by"), "patch", "its numbers may differ"),
        (SCALE, SCALE + "# words\n", "patch", "its sources differ"),
        (SCALE, SCALE.replace('"n"', '"k"'), "patch", "its sources differ"),
        (SCALE, ANOTHER, "minor", "op mine::other: added"),
        (ANOTHER, SCALE, "major", "op mine::other: removed"),
        (SCALE, SCALE.replace("2.0", "3.0"), "major", "default of 'by': 2.0 becomes 3.0"),
        (SCALE, SCALE.replace(", *, by: float = 2.0", "").replace("* by", ""), "major", "parameter 'by' removed"),
        (SCALE, SCALE.replace("2.0", "2.0, a: int = 1"), "minor", "optional parameter 'a' added"),
        (SCALE, SCALE.replace("by: float", "a: int, by: float"), "major", "required parameter 'a' added"),
        (SCALE, SCALE.replace('"n"', '"*s"'), "minor", "[n] becomes [*s], which takes more"),
        (SCALE.replace('"n"', '"*s"'), SCALE, "major", "[*s] becomes [n]"),
        (SCALE, SCALE.replace('"n"', '"4"'), "major", "[n] becomes [4]"),
        (SCALE.replace('"n"', '"4"'), SCALE, "minor", "[4] becomes [n]"),
        (SCALE, VARIABLE, "minor", "argument 'x' also takes float64"),
        (VARIABLE, SCALE, "major", "argument 'x' no longer takes float64"),
        (SCALE, SCALE.replace("x", "y"), "major", "argument 'x' removed"),
    ],
)
def test_changes(old: str, new: str, level: str, text: str) -> None:
    difference = compared(old, new)
    assert LEVELS[difference.level] == level, str(difference)
    assert text in str(difference)


def test_lines_that_move_are_no_change_of_a_program() -> None:
    difference = compared(SCALE, SCALE.replace("\n\n@register", "\n\n\n\n@register"))
    assert [change.what for change in difference.changes] == ["its sources differ"]


def test_targets() -> None:
    assert compared(SCALE, SCALE, after=["x86-64-v2"]).level == LEVELS.index("minor")
    assert "target x86-64-v2: removed" in str(compared(SCALE, SCALE, before=["x86-64-v2"]))


@pytest.mark.parametrize(
    ("before", "after", "level"),
    [
        ((1, 0, 0), (1, 0, 0), "none"),
        ((1, 0, 0), (1, 0, 1), "patch"),
        ((1, 0, 0), (1, 1, 0), "minor"),
        ((1, 9, 0), (2, 0, 0), "major"),
        ((0, 1, 0), (0, 2, 0), "major"),
        ((0, 1, 0), (0, 1, 1), "minor"),
        ((0, 1, 0), (1, 0, 0), "major"),
    ],
)
def test_versions(before: tuple[int, int, int], after: tuple[int, int, int], level: str) -> None:
    assert LEVELS[_said(before, after)] == level
    for wanted in range(4):
        least = tuple(map(int, _least(before, wanted).split(".")))
        assert _said(before, (least[0], least[1], least[2])) >= wanted


@pytest.mark.parametrize(
    ("wide", "narrow", "fits"),
    [
        ([["n"], ["n"]], [["4"], ["4"]], True),
        ([["n"], ["n"]], [["4"], ["5"]], False),
        ([["m"], ["n"]], [["n"], ["n"]], True),
        ([["n"], ["n"]], [["m"], ["n"]], False),
        ([["*s"], ["*s"]], [["m", "n"], ["m", "n"]], True),
        ([["m", "n"]], [["*s"]], False),
        ([["n"]], [["*s"]], False),
        ([["n"], ["(2*n)"]], [["k"], ["(2*k)"]], True),
        ([["n"], ["(2*n)"]], [["k"], ["(3*k)"]], False),
        ([["n"], ["n"]], [["_"], ["_"]], False),
        ([["*s", "n"]], [["n"]], True),
    ],
)
def test_dims(wide: list[list[str]], narrow: list[list[str]], fits: bool) -> None:
    assert _covers(wide, narrow, ()) is fits


def test_graphs() -> None:
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

    def exported(path: str, size: str | int, factor: int) -> None:
        kind = TensorType(DType.float32, [size], DeviceRef.CPU())
        graph = Graph("net", forward=lambda x: x * factor, input_types=[kind])
        InferenceSession().load(graph).export(path)

    exported("old.pkg", "n", 2)
    exported("numbers.pkg", "n", 3)
    exported("narrow.pkg", 4, 2)
    old, numbers, narrow = map(read_package, ("old.pkg", "numbers.pkg", "narrow.pkg"))
    assert "its numbers may differ" in str(compare(old, numbers))
    assert "[n] becomes [4]" in str(compare(old, narrow))
    assert "[4] becomes [n], which takes more" in str(compare(narrow, old))


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    built("mine", ANOTHER, "1.0.0")
    Path("mine.pkg").rename("old.pkg")
    for version, status in (("1.0.1", 1), ("1.1.0", 1), ("2.0.0", 0), ("0.9", 1), ("next", 1)):
        built("mine", SCALE, version)
        assert run(["pkg", "diff", "old.pkg", "mine.pkg", "--check"]) == status, version
        assert run(["pkg", "diff", "old.pkg", "mine.pkg"]) == 0
        said = capsys.readouterr()
        assert "op mine::other: removed" in said.out
        assert ("EK0569" in said.err) is bool(status)
    old, new = read_package("old.pkg"), read_package("mine.pkg")
    with pytest.raises(PackageError, match="cannot be compared"):
        check_version(compare(old, new), old, new)
