"""The container: deterministic bytes, everything back as it was put, and every way to be wrong refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package import container as module
from einkorn.dsl.package.archive import Archive, write_archive
from einkorn.dsl.package.container import (
    CodeContents,
    OpContents,
    Package,
    PackageContents,
    read_package,
    write_package,
)
from einkorn.dsl.package.manifest import Instance, canonical_json
from einkorn.dsl.signature.schema import ContextArgument, OpSchema, Parameter, Role, TensorArgument
from einkorn.dsl.types.dtype import DType


def schema(name: str) -> OpSchema:
    return OpSchema(
        name=name,
        arguments=(
            TensorArgument("out", Role.OUTPUT, "T", "*s"),
            TensorArgument("x", Role.INPUT, "T", "*s"),
            TensorArgument("mask", Role.MUTABLE, DType.bool, "*s"),
            ContextArgument("ctx"),
        ),
        parameters=(
            Parameter("block", "int", False, 256),
            Parameter("mode", "str", True),
            Parameter("acc", "dtype", False, DType.float32),
            Parameter("top", "float", False, float("inf")),
        ),
        typevars=(("T", (DType.float32, DType.float16)),),
        doc="Adds one, or tries to (ä, 漢).",
        fuse=False,
        fastmath=frozenset({"contract"}),
    )


def instance(dtype: str = "float32", block: int = 256) -> Instance:
    return Instance((("T", dtype),), (("s", 2),), (("block", block), ("mode", "fast"), ("acc", "float32")))


CONTENTS = PackageContents(
    name="demo",
    version="1.2.0",
    licence="Apache-2.0",
    ops=(OpContents(schema("mylib::rms_norm"), {"functions": [1, 2.5, "ä"]}), OpContents(schema("add_one"), [1])),
    code=(
        CodeContents("add_one", instance(), "x86-64-v3", "so", b"\x7fELF" + bytes(300), ("avx2", "fma", "avx2")),
        CodeContents("add_one", instance("float16"), "x86-64-v3", "so", b"\x7fELF another"),
        CodeContents("add_one", instance(), "sm_90a", "ptx", b".version 8.0"),
        CodeContents("mylib::rms_norm", instance(), "gfx942", "hsaco", b"\x7fELF amd"),
    ),
    sources=(("kernels/norm.py", b"import einkorn\n"), ("kernels/add.py", b"# add\n")),
    producers=(("llvm", "22.1"), ("einkorn", "0.1.0")),
)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    monkeypatch.chdir(tmp_path)
    return write_package("demo.pkg", CONTENTS)


def test_all_comes_back(demo: Package) -> None:
    package = read_package(demo.path)
    assert package == demo
    manifest = package.manifest
    assert (manifest.name, manifest.version, manifest.licence) == ("demo", "1.2.0", "Apache-2.0")
    assert manifest.producers == (("einkorn", "0.1.0"), ("llvm", "22.1"))
    assert [op.schema for op in package.ops] == [schema("add_one"), schema("mylib::rms_norm")]
    assert package.program("mylib::rms_norm") == {"functions": [1, 2.5, "ä"]}
    assert package.program("add_one") == [1]
    code = {(v.op, v.target, v.instance): (v.kind, v.requirements, package.code(v)) for v in package.variants}
    assert code == {
        (c.op, c.target, c.instance): (c.kind, tuple(sorted(set(c.requirements))), c.data) for c in CONTENTS.code
    }
    assert [package.source(s.member) for s in manifest.sources] == [b"# add\n", b"import einkorn\n"]
    assert package.verify() == 1 + 2 + 2 + 4


def test_any_zip_tool_can_read_it(demo: Package) -> None:
    with zipfile.ZipFile(demo.path) as file:
        assert file.testzip() is None
        infos = file.infolist()
        assert [info.filename for info in infos] == [
            "manifest.json",
            "program/add_one.json",
            "program/mylib.rms_norm.json",
            "source/kernels/add.py",
            "source/kernels/norm.py",
            "code/sm_90a/add_one-0.ptx",
            "code/x86-64-v3/add_one-0.so",
            "code/x86-64-v3/add_one-1.so",
            "code/gfx942/mylib.rms_norm-0.hsaco",
        ]
        assert {(info.date_time, info.compress_type, info.external_attr >> 16) for info in infos} == {
            ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 0o100644)
        }
        assert json.loads(file.read("manifest.json"))["format"] == [1, 0]


def test_the_same_contents_give_the_same_bytes(demo: Package, tmp_path: Path) -> None:
    shuffled = replace(
        CONTENTS,
        ops=CONTENTS.ops[::-1],
        code=CONTENTS.code[::-1],
        sources=CONTENTS.sources[::-1],
        producers=CONTENTS.producers[::-1],
    )
    again = write_package(tmp_path / "again.pkg", shuffled)
    assert again.path.read_bytes() == demo.path.read_bytes() and again.digest == demo.digest
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_package\n"
        "test_package.write_package('third.pkg', test_package.CONTENTS)"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert (tmp_path / "third.pkg").read_bytes() == demo.path.read_bytes()


def test_op_names_become_different_file_names(tmp_path: Path) -> None:
    names = ["a::b", "a.b", "a_b", "Add", "add", "ADD", "a/b", "..", "ä", "x" * 300, "x" * 301, "::", "a:b", "%2E", "."]
    contents = PackageContents("names", "1", tuple(OpContents(schema(name), name) for name in names))
    package = write_package(tmp_path / "names.pkg", contents)
    assert {name: package.program(name) for name in names} == {name: name for name in names}


def test_writing_is_all_or_nothing(demo: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = demo.path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(PackageError) as caught:
        write_package("demo.pkg", replace(CONTENTS, version="2"))
    assert str(caught.value) == "error[EK0561]: 'demo.pkg' cannot be written: No space left on device"
    assert demo.path.read_bytes() == before and [f.name for f in tmp_path.iterdir()] == ["demo.pkg"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (replace(CONTENTS, ops=CONTENTS.ops * 2), "EK0556]: 'new.pkg' cannot hold two ops of one name: 'add_one'"),
        (
            replace(CONTENTS, code=(CodeContents("sub", instance(), "sm_80", "ptx", b""),)),
            "EK0556]: 'new.pkg' cannot hold 'ptx' code for 'sub': no such op, or no such kind",
        ),
        (
            replace(CONTENTS, sources=(("../evil.py", b""),)),
            "EK0554]: 'new.pkg' cannot hold a member whose name climbs out of the package: 'source/../evil.py'",
        ),
        (
            replace(CONTENTS, sources=(("a.py", b""), ("A.py", b""))),
            "EK0554]: 'new.pkg' cannot hold a member whose name appears twice: 'source/a.py'",
        ),
    ],
)
def test_contents_that_cannot_be_written(demo: Package, contents: PackageContents, message: str) -> None:
    with pytest.raises(PackageError) as caught:
        write_package("new.pkg", contents)
    assert str(caught.value) == f"error[{message}"
    assert not Path("new.pkg").exists()


def refused(path: str | Path) -> str:
    with pytest.raises(PackageError) as caught:
        read_package(path)
    return str(caught.value)


FETCH = "\nhint: fetch it again, or build it again with `einkorn build`"


def test_not_a_package(demo: Package) -> None:
    hint = "\nhint: `einkorn build` writes packages; kernel sources are given as a folder or a .py file"
    for data in (b"", b"\x7fELF" + bytes(100), b"print('hello')"):
        Path("other.pkg").write_bytes(data)
        assert refused("other.pkg") == f"error[EK0552]: 'other.pkg' is not a package: it is not a zip file{hint}"
    write_archive(Path("other.pkg"), [("a.txt", b"")])
    assert (
        refused("other.pkg") == "error[EK0552]: 'other.pkg' is not a package: its first member is not 'manifest.json'"
    )


def test_truncated_at_every_length(demo: Package) -> None:
    data = demo.path.read_bytes()
    for length in range(4, len(data), 7):
        Path("cut.pkg").write_bytes(data[:length])
        assert refused("cut.pkg") == "error[EK0553]: 'cut.pkg' is cut short, or something was added to its end" + FETCH
    Path("cut.pkg").write_bytes(data + b"\n")
    assert refused("cut.pkg") == "error[EK0553]: 'cut.pkg' is cut short, or something was added to its end" + FETCH


def test_tampered_code_is_found_when_it_is_requested(demo: Package) -> None:
    """A careful forger mends the CRC-32 too; the SHA-256 in the manifest still differs."""
    (variant,) = [v for v in demo.variants if v.kind == "ptx"]
    forged = b".version 6.6"
    members = [(n, demo.archive.read(n) if n != variant.code.member else forged) for n in demo.archive.members]
    write_archive(Path("demo.pkg"), members)
    package = read_package("demo.pkg")
    for call in (package.verify, lambda: package.code(variant)):
        with pytest.raises(PackageError) as caught:
            call()
        assert str(caught.value) == (
            "error[EK0559]: 'demo.pkg' was tampered with: 'code/sm_90a/add_one-0.ptx' does not match the manifest\n"
            f"note: the manifest declares SHA-256 {hashlib.sha256(b'.version 8.0').hexdigest()}\n"
            f"note: the member has SHA-256 {hashlib.sha256(forged).hexdigest()}\n"
            "hint: nothing of it was loaded; fetch it again from where you trust"
        )
    assert package.program("add_one") == [1]  # the rest is still good


def test_every_flipped_bit_is_found(demo: Package) -> None:
    data = bytearray(demo.path.read_bytes())
    for at in range(0, len(data), 5):
        data[at] ^= 1 << (at % 8)
        Path("flipped.pkg").write_bytes(data)
        with pytest.raises(PackageError):
            read_package("flipped.pkg").verify()
        data[at] ^= 1 << (at % 8)


def test_a_file_replaced_after_opening_is_found(demo: Package) -> None:
    code = replace(CONTENTS.code[2], data=b".version 8.1")
    write_package("demo.pkg", replace(CONTENTS, code=(*CONTENTS.code[:2], code, CONTENTS.code[3])))
    with pytest.raises(PackageError, match="EK05"):
        demo.verify()


def test_a_huge_manifest_is_not_read(demo: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MANIFEST", 100)
    size = demo.archive.members["manifest.json"].size
    assert refused("demo.pkg") == (
        f"error[EK0555]: 'demo.pkg' declares {size} bytes for 'manifest.json'; at most 100 are allowed"
    )


def remade(edit: Callable[[dict[str, Any]], Any], path: str = "edited.pkg") -> str:
    """The demo with its manifest edited in place."""
    archive = Archive(Path("demo.pkg"))
    data = json.loads(archive.read("manifest.json"))
    edit(data)
    rest = [(name, archive.read(name)) for name in archive.members if name != "manifest.json"]
    write_archive(Path(path), [("manifest.json", canonical_json(data)), *rest])
    return path


def change_fields(fields: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update(fields)


def test_newer_formats_and_other_abis(demo: Package) -> None:
    rebuild = "build the package again from its sources with this Einkorn (`einkorn build`)"
    both = f"\nhint: install a newer Einkorn, or {rebuild}"
    major, abi = module.FORMAT[0], module.ABI
    cases: list[tuple[dict[str, Any], str]] = [
        ({"format": [major + 1, 3]}, f"EK0557]: 'edited.pkg' has package format {major + 1}.3, and this Einkorn reads "
         f"format {major}{both}"),
        ({"format": [0, 9]}, f"EK0557]: 'edited.pkg' has package format 0.9, and this Einkorn reads format {major}"
         f"\nhint: {rebuild}"),
        ({"abi": abi + 1}, f"EK0558]: 'edited.pkg' holds code with ABI {abi + 1}, and this Einkorn calls ABI {abi}"
         f"{both}"),
        ({"abi": 0}, f"EK0558]: 'edited.pkg' holds code with ABI 0, and this Einkorn calls ABI {abi}"
         f"\nhint: {rebuild}"),
    ]  # fmt: skip
    for change, message in cases:
        assert refused(remade(change_fields(change))) == f"error[{message}"
    # Another format may have changed all the rest: only the numbers are looked at.
    write_archive(Path("other.pkg"), [("manifest.json", canonical_json({"format": [major + 1, 0], "abi": 9}))])
    assert "EK0557" in refused("other.pkg")


def test_a_newer_minor_is_read_and_what_is_new_is_passed_over(demo: Package) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["format"][1] = module.FORMAT[1] + 1
        data["later"] = {"novel": True}
        data["ops"][0]["novel"] = 1
        data["variants"][0]["kind"] = "spirv"

    package = read_package(remade(edit))
    assert [op.schema for op in package.ops] == [schema("add_one"), schema("mylib::rms_norm")]
    assert package.variants[0].kind == "spirv"


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """`put("ops.0.schema.name", 1)` edits that field; `...` removes it."""

    def edit(data: Any) -> None:
        *before, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in before:
            data = data[part]
        if value is ...:
            del data[last]
        else:
            data[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("name", 1), "name should be a string and is 1"),
        (put("name", ...), "the manifest lacks 'name'"),
        (put("novel", 1), "the manifest holds an unknown field, 'novel'"),
        (put("ops", {}), "ops should be a list and is an object"),
        (put("ops.0", None), "ops[0] should be an object and is null"),
        (put("ops.0.schema.fuse", "yes"), 'ops[0].schema.fuse should be true or false and is "yes"'),
        (put("ops.0.schema.arguments.1.dims", []), "ops[0].schema.arguments[1].dims should be a string and is a list"),
        (put("ops.0.schema.arguments.1.dims", ...),
         "ops[0].schema of op 'add_one' has a missing or an unsupported member: 'dims'"),
        (put("ops.0.schema.novel", 1), "ops[0].schema.novel is not a member of a schema"),
        (put("ops.0.schema.fastmath", ["a", "a"]), "ops[0].schema.fastmath is not a member of a schema"),
        (put("ops.0.schema.doc", None), "ops[0].schema.doc should be a string and is null"),
        (put("ops.1.schema.parameters.0.default", "x"),
         'ops[1].schema.parameters[0].default should be a value of kind int and is "x"'),
        (put("ops.0.backward", "gone"), 'ops[0].backward should be an op of the package and is "gone"'),
        (put("ops.0.program.sha256", "12"), 'ops[0].program.sha256 should be 64 hexadecimal digits and is "12"'),
        (put("ops.0.program.size", -1), "ops[0].program.size should be an integer from 0 and is -1"),
        (put("ops.0.program.size", True), "ops[0].program.size should be an integer from 0 and is true"),
        (put("variants.0.kind", "exe"), 'variants[0].kind should be one of so, ptx, hsaco and is "exe"'),
        (put("variants.0.instance.ranks.s", 1.5),
         "variants[0].instance.ranks.s should be an integer from 0 and is 1.5"),
        (put("variants.0.instance.parameters.acc", {}),
         "variants[0].instance.parameters.acc should be a number, string or bool and is an object"),
        (put("variants.0.instance.parameters.acc", []),
         "variants[0].instance.parameters says acc=[], which op 'add_one' does not have"),
        (put("variants.2.requirements.0", 3), "variants[2].requirements[0] should be a string and is 3"),
        (put("producers", [1]), "producers should be an object and is a list"),
    ],
)  # fmt: skip
def test_manifests_that_are_not_valid(demo: Package, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    hint = "\nhint: build it again with `einkorn build`"
    expected = f"error[EK0556]: 'edited.pkg' cannot be used: its manifest is not valid: {message}{hint}"
    assert refused(remade(edit)) == expected


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("format", "1.0"), "has no format number: 'format' must be [major, minor]"),
        (put("abi", ...), "has no ABI number: 'abi' must be an integer"),
        (put("variants.0.op", "sub"), "has code for 'sub', an op that it does not list"),
        (put("ops.1.schema.name", "add_one"), "has an op twice: 'add_one'"),
        (put("ops.0.program.member", "../x"), "speaks of a member whose name climbs out of the package: '../x'"),
        (put("ops.0.program.member", "manifest.json"),
         "speaks of a member whose name is that of the manifest itself: 'manifest.json'"),
        (put("ops.0.program.member", "source/kernels/add.py"), "speaks of a member twice: 'source/kernels/add.py'"),
        (put("ops.0.schema.arguments.1.dtype", "int7"),
         "is not valid: ops[0].schema of op 'add_one' has a missing or an unsupported member: 'int7'"),
    ],
)  # fmt: skip
def test_manifests_that_contradict_themselves(
    demo: Package, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    hint = "\nhint: build it again with `einkorn build`"
    assert refused(remade(edit)) == f"error[EK0556]: 'edited.pkg' cannot be used: its manifest {message}{hint}"


def test_manifest_and_members_must_speak_of_the_same(demo: Package) -> None:
    def drop(data: dict[str, Any]) -> None:
        data["sources"].pop(0)

    assert refused(remade(drop)) == (
        "error[EK0556]: 'edited.pkg' holds a member that its manifest does not list: 'source/kernels/add.py'"
    )
    assert refused(remade(put("ops.0.program.size", 7))) == (
        "error[EK0559]: 'edited.pkg' was tampered with: 'program/add_one.json' has 3 bytes, the manifest declares 7\n"
        "hint: nothing of it was loaded; fetch it again from where you trust"
    )
    assert refused(remade(put("ops.0.program.member", "program/none.json"))) == (
        "error[EK0553]: 'edited.pkg' is not whole: 'program/none.json' is missing"
    )


@pytest.mark.parametrize("text", [b"{", b"\xff", b"[" * 100_000, b"[]", b"1"])
def test_a_manifest_that_is_no_object(demo: Package, text: bytes) -> None:
    write_archive(Path("edited.pkg"), [("manifest.json", text)])
    message = refused("edited.pkg")
    assert message.startswith("error[EK0556]: 'edited.pkg' cannot be used: its manifest is not")
    assert len(message) < 400


def test_names_that_are_not_there(demo: Package) -> None:
    with pytest.raises(PackageError) as caught:
        demo.op("add_on")
    assert str(caught.value) == "error[EK0560]: package 'demo' has no op 'add_on'\nhint: did you mean 'add_one'?"
    with pytest.raises(PackageError) as caught:
        demo.program("zzz")
    assert str(caught.value) == ("error[EK0560]: package 'demo' has no op 'zzz'\nhint: it has add_one, mylib::rms_norm")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_garbage_does_anything_but_raise_a_package_error(demo: Package, data: st.DataObject) -> None:
    raw = bytearray(demo.path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(st.binary(max_size=8))
        raw[at : at + data.draw(st.integers(0, 12))] = piece
    Path("garbage.pkg").write_bytes(raw)
    try:
        package = read_package("garbage.pkg")
        package.verify()
    except PackageError:
        return
    assert bytes(raw) == demo.path.read_bytes()


def test_members_stand_in_one_order(demo: Package) -> None:
    """As the docs say: any other order is another writer's."""
    archive = Archive(Path("demo.pkg"))
    members = [(name, archive.read(name)) for name in archive.members]
    for a in range(1, len(members)):
        for b in range(a + 1, len(members)):
            other = members[:]
            other[a], other[b] = other[b], other[a]
            write_archive(Path("other.pkg"), other)
            assert "EK0556]: 'other.pkg' holds its members in another order" in refused("other.pkg")
    data = json.loads(members[0][1])
    for part in ("ops", "variants", "sources"):
        write_archive(Path("other.pkg"), members)
        manifest = {**data, part: data[part][::-1]}
        write_archive(Path("other.pkg"), [("manifest.json", canonical_json(manifest)), *members[1:]])
        assert "in another order" in refused("other.pkg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"format": [1, 0], "abi": 1, "abi": 2}', "an object has the name 'abi' twice"),
        (b'{"format": [1, 0], "abi": 1, "name": "\\ud800"}', "it holds half of a surrogate pair"),
        (b'{"format": [1, 0], "abi": NaN}', "has no ABI number"),
        (b'{"format": [1, 0], "abi": ' + b"[" * 100_000 + b"1" + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b'{"format": [1, 0], "abi": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
def test_json_is_read_strictly(tmp_path: Path, text: bytes, message: str) -> None:
    write_archive(tmp_path / "odd.pkg", [("manifest.json", text)])
    assert message in refused(tmp_path / "odd.pkg")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("ops.0.schema.arguments.1.dims", "((n)"), "ops[0].schema is wrong: "),
        (put("ops.0.schema.arguments.1.dims", "(" * 9000 + "n" + ")" * 9000), "ops[0].schema has a dims text that is"),
        (put("ops.0.schema.arguments.1.dims", "(" + "-" * 4000 + "n)"), "ops[0].schema has dims that are nested"),
        (put("ops.0.schema.arguments.1.dims", "*s{100000000}"), "ops[0].schema has an argument of more than 64 axes"),
        (put("ops.0.schema.arguments.1.name", "x; y"), 'ops[0].schema.arguments should be a name and is "x; y"'),
        (lambda data: [a.update(role="input") for a in data["ops"][0]["schema"]["arguments"][:3]], "has no output"),
        (put("ops.0.schema.typevars.T", []), "ops[0].schema.typevars.T should be dtypes, each of them once"),
        (put("ops.0.schema.fastmath", ["quick"]), "ops[0].schema.fastmath has an unknown flag, 'quick'"),
        (put("ops.0.schema.late", ["s"]), "ops[0].schema.late are not the dims that only a shape function can compute"),
        (put("ops.0.schema.reads", {"y": 1}), "ops[0].schema.reads names 'y', which is not an argument"),
        (put("ops.0.schema.reads", {"x": -1}), "ops[0].schema.reads.x should be an integer from 0 and is -1"),
        (put("ops.0.schema.parameters.0.kind", "bytes"), "ops[0].schema.parameters[0].kind should be one of"),
        (put("ops.0.schema.parameters.0.default", None), "parameters[0].default should be a value of kind int and is"),
        (put("variants.0.instance.dtypes", {"T": "int8"}), "variants[0].instance.dtypes says T=int8, which op"),
        (put("variants.0.instance.parameters", {"block": True}), "instance.parameters says block=true, which op"),
        (put("variants.0.instance.parameters", {"block": 1.0}), "instance.parameters says block=1.0, which op"),
        (put("variants.0.instance.counts", {"x": 1}), "variants[0].instance.counts says x, which op"),
    ],
)  # fmt: skip
def test_schemas_are_held_to_what_signatures_are(
    demo: Package, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    assert message in refused(remade(edit))
