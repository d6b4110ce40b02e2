"""Signatures of packages, the trust policy, and what is refused."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support.trusting import SCALE, built

import einkorn
from einkorn.cli.application import run
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.archive import Archive, write_archive
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.keys import PrivateKey, PublicKey, generate_key, read_inline_key, read_public_key
from einkorn.dsl.package.trust import PREFIX, read_policy

pytest.importorskip("cryptography", reason="signatures need cryptography: the extra [sign]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with mine.pkg, which is not signed, two keys, and a policy that the tests write."""
    monkeypatch.chdir(tmp_path)
    built("mine", SCALE)
    for name in ("release", "other"):
        generate_key(f"{name}.pem")
    monkeypatch.setenv("EINKORN_TRUST", str(tmp_path / "trust.toml"))
    policy()
    return tmp_path


def policy(level: str = "enforce", name: str = "mine", revoked: str = "") -> None:
    keys = '[keys]\nrelease = "release.pub.pem"\nother = "other.pub.pem"\n'
    row = f'[[package]]\nname = "{name}"\nkeys = ["release"]\npolicy = "{level}"\n'
    Path("trust.toml").write_text(f"revoked = [{revoked}]\n{keys}{row}")


def sign(key: str = "release", output: str | None = None) -> None:
    read_package("mine.pkg", check_trust=False).signed(PrivateKey(f"{key}.pem"), output)


def code_of(path: str = "mine.pkg") -> str:
    with pytest.raises(PackageError) as caught:
        einkorn.load(path)
    return caught.value.code


def members(path: str = "mine.pkg") -> list[tuple[str, bytes]]:
    archive = Archive(Path(path))
    return [(name, archive.read(name)) for name in archive.members]


def test_a_signed_package_is_loaded_and_others_are_refused(folder: Path) -> None:
    assert code_of() == "EK0563"
    sign("other")
    assert code_of() == "EK0563"
    sign()
    assert einkorn.load("mine.pkg").scale(np.ones(2, np.float32)).tolist() == [2, 2]
    package = read_package("mine.pkg")
    assert len(package.signatures) == 2 and package.verify() == len(package.archive.members)


def test_graphs_hold_to_the_policy(folder: Path) -> None:
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    kind = TensorType(DType.float32, ["n"], DeviceRef.CPU())

    def forward(x):  # type: ignore[no-untyped-def]
        return ops.custom("mine::scale", device=DeviceRef.CPU(), values=[x])[0]

    with pytest.raises(PackageError) as caught:
        Graph("g", forward=forward, input_types=[kind], custom_extensions=["mine.pkg"])
    assert caught.value.code == "EK0563"
    model = InferenceSession().load(Graph("net", forward=lambda x: x + x, input_types=[kind]))
    model.export("net.pkg")
    policy(name="net")
    with pytest.raises(PackageError) as caught:
        InferenceSession().load("net.pkg")
    assert caught.value.code == "EK0563"
    read_package("net.pkg", check_trust=False).signed(PrivateKey("release.pem"))
    assert InferenceSession().load("net.pkg")(np.ones(3, np.float32))[0].to_numpy().tolist() == [2, 2, 2]


def test_signatures_are_reproducible_and_change_no_other_byte(folder: Path) -> None:
    before = members()
    sign(output="first.pkg")
    sign(output="second.pkg")
    first = Path("first.pkg").read_bytes()
    assert first == Path("second.pkg").read_bytes()
    assert members("first.pkg")[:-1] == before
    read_package("first.pkg", check_trust=False).signed(PrivateKey("release.pem"))
    assert Path("first.pkg").read_bytes() == first


def test_openssl_verifies_and_makes_keys(folder: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the command openssl is not installed")
    made = subprocess.run([openssl, "genpkey", "-algorithm", "ed25519", "-out", "openssl.pem"], capture_output=True)
    if made.returncode:
        pytest.skip("this openssl has no Ed25519")
    sign("openssl")
    key = PrivateKey("openssl.pem").public
    (mark, signature) = read_package("mine.pkg", check_trust=False).signatures[0]
    Path("public.pem").write_text(key.pem)
    Path("signature").write_bytes(signature)
    Path("message").write_bytes(b"einkorn package 1\0" + members()[0][1])
    command = "pkeyutl -verify -pubin -inkey public.pem -rawin -in message -sigfile signature"
    assert subprocess.run([openssl, *command.split()], capture_output=True).returncode == 0
    command = "pkey -pubin -in public.pem -outform DER"
    der = subprocess.run([openssl, *command.split()], capture_output=True).stdout
    assert mark == key.fingerprint == hashlib.sha256(der).hexdigest()


def test_the_shell_verifies_as_the_page_says(folder: Path) -> None:
    missing = [tool for tool in ("sh", "openssl", "unzip") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {missing}")
    page = (Path(__file__).resolve().parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"OpenSSL verifies a signature without Einkorn:\n\n((?: {4}.*\n)+)", page)
    sign(output="name.pkg")
    assert subprocess.run(["sh", "-ec", textwrap.dedent(commands)], capture_output=True).returncode == 0
    sign("other", output="name.pkg")
    assert subprocess.run(["sh", "-ec", textwrap.dedent(commands)], capture_output=True).returncode != 0


def test_a_key_is_not_written_to_a_folder_that_is_missing(folder: Path) -> None:
    with pytest.raises(PackageError, match="cannot be written: No such file or directory") as caught:
        generate_key("missing/release.pem")
    assert caught.value.code == "EK0567" and caught.value.hint == "name a file in a folder that exists and is writable"


def test_wrong_and_revoked_signatures_are_refused(folder: Path) -> None:
    sign()
    good = members()
    name, data = good[-1]
    write_archive(Path("mine.pkg"), [*good[:-1], (name, bytes([data[0] ^ 1]) + data[1:])])
    assert code_of() == "EK0564"
    with pytest.raises(PackageError, match="does not fit"):
        read_package("mine.pkg", check_trust=False).check_signature(read_public_key("release.pub.pem"))
    manifest = good[0][1].replace(b'"version": "1.0.0"', b'"version": "1.0.1"')
    assert manifest != good[0][1]
    write_archive(Path("mine.pkg"), [(good[0][0], manifest), *good[1:]])
    assert code_of() == "EK0564"
    write_archive(Path("mine.pkg"), good)
    policy(revoked='"release"')
    assert code_of() == "EK0565"


def test_each_changed_member_is_refused(folder: Path) -> None:
    sign()
    good = members()
    for number, (name, data) in enumerate(good[:-1]):
        changed = bytes([data[0] ^ 1]) + data[1:]
        write_archive(Path("mine.pkg"), [(n, changed if k == number else d) for k, (n, d) in enumerate(good)])
        with pytest.raises(PackageError):
            read_package("mine.pkg").verify()
        assert name


@pytest.mark.parametrize("how", ["first", "short", "name", "twice"])
def test_signatures_in_another_form_are_refused(folder: Path, how: str) -> None:
    sign()
    *rest, (name, data) = members()
    wrong = {
        "first": [(name, data), *rest],
        "short": [*rest, (name, data[1:])],
        "name": [*rest, ("signatures/release", data)],
        "twice": [*rest, (name, data), ("signatures/" + "0" * 64, data)],
    }
    write_archive(Path("mine.pkg"), wrong[how])
    with pytest.raises(PackageError) as caught:
        read_package("mine.pkg", check_trust=False)
    assert caught.value.code == ("EK0552" if how == "first" else "EK0556")


def test_no_row_is_escaped_by_a_name(folder: Path) -> None:
    shutil.copy("mine.pkg", "free.pkg")
    assert code_of("free.pkg") == "EK0563"  # the manifest says mine
    built("free", SCALE)
    einkorn.load("free.pkg")
    shutil.copy("free.pkg", "mine.pkg")
    assert code_of() == "EK0563"  # the file says mine


def test_warn_logs_and_off_says_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "einkorn.trust"):
        policy("off")
        einkorn.load("mine.pkg")
        assert not caplog.records
        policy("warn")
        einkorn.load("mine.pkg")
    assert "EK0563" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "keys = 3",
        "other = 1",
        "[keys",
        '[keys]\na = "ed25519:AAAA"',
        '[[package]]\nname = "a"',
        '[[package]]\nname = "a"\npolicy = "enforced"\nkeys = []',
        '[[package]]\nname = "a"\npolicy = "enforce"\nkeys = []',
        '[[package]]\nname = "a"\npolicy = "enforce"\nkeys = ["a"]',
        '[[package]]\nname = "a"\npolicy = "off"\nlevel = 1',
        'revoked = ["a"]',
        "\xff",
    ],
)
def test_a_policy_that_cannot_be_used_refuses_all(folder: Path, text: str) -> None:
    Path("trust.toml").write_bytes(text.encode("latin-1"))
    assert code_of() == "EK0566"


def test_a_missing_policy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("trust.toml").unlink()
    assert code_of() == "EK0566"
    monkeypatch.delenv("EINKORN_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "configuration"))
    einkorn.load("mine.pkg")


def test_keys(folder: Path) -> None:
    key = read_public_key("release.pub.pem")
    assert read_inline_key(key.inline) == key == PrivateKey("release.pem").public
    assert Path("release.pem").stat().st_mode & 0o077 == 0
    signature = PrivateKey("release.pem").sign(PREFIX)
    assert key.verifies(signature, PREFIX) and not key.verifies(signature, b"") and not key.verifies(b"", PREFIX)
    assert not PublicKey(bytes(32)).verifies(signature, PREFIX)
    for path in ("release.pem", "mine.pkg", "missing.pem", "."):
        with pytest.raises(PackageError) as caught:
            read_public_key(path)
        assert caught.value.code == "EK0567"
    for path in ("release.pub.pem", "mine.pkg"):
        with pytest.raises(PackageError) as caught:
            PrivateKey(path)
        assert caught.value.code == "EK0567"
    with pytest.raises(PackageError, match="exists"):
        generate_key("release.pem")
    assert read_policy(Path("trust.toml")).rows[0].keys == {"release": key}


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pkg", "verify", "mine.pkg"]) == 1
    assert run(["pkg", "keygen", "-o", "new.pem"]) == 0
    assert run(["pkg", "sign", "mine.pkg", "--key", "release.pem"]) == 0
    assert run(["pkg", "verify", "mine.pkg", "--key", "release.pub.pem"]) == 0
    assert "signed by release.pub.pem" in capsys.readouterr().out
    assert run(["pkg", "verify", "mine.pkg", "--key", "new.pub.pem"]) == 1
    assert "expected a signature by" in capsys.readouterr().err
    assert run(["pkg", "info", "mine.pkg"]) == 0
    assert "signed by" in capsys.readouterr().out
