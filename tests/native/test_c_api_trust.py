"""The C API's own cryptography, its trust policy and its reader of packages, compared with those of Python."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import c_packages
from support.c_packages import Runtime, build_inner, python_error, signed_package

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.keys import PrivateKey, PublicKey

pytest.importorskip("cryptography", reason="signatures need cryptography: the extra [sign]")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="exported files are for Linux"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc, which builds the C API"),
]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493

# RFC 8032, section 7.1: public key, message, signature.
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = build_inner(tmp_path_factory.mktemp("inner"), "-O2")
    size = ctypes.c_size_t
    built.verify_signature.restype = built.matches.restype = ctypes.c_bool
    built.verify_signature.argtypes = [ctypes.c_char_p] * 3 + [size, ctypes.c_char_p, size]
    built.digest_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, size]
    built.add_crc.argtypes = [ctypes.c_uint32, ctypes.c_char_p, size]
    built.add_crc.restype = ctypes.c_uint32
    return built


def verifies(library: ctypes.CDLL, key: bytes, signature: bytes, message: bytes) -> bool:
    return bool(library.verify_signature(key, signature, message[:3], len(message[:3]), message[3:], len(message[3:])))


def test_digests_and_checksums(library: ctypes.CDLL) -> None:
    draw = random.Random(0)
    for size in [*range(0, 270, 3), 63, 64, 111, 112, 119, 127, 128, 100_000]:
        data, cut = draw.randbytes(size), draw.randint(0, size)
        for is_long, known in ((False, hashlib.sha256), (True, hashlib.sha512)):
            state, result = ctypes.create_string_buffer(512), ctypes.create_string_buffer(64)
            library.digest_start(state, ctypes.c_bool(is_long))
            for part in (data[:cut], data[cut:]):
                library.digest_add(state, part, len(part))
            library.digest_end(state, result)
            assert result.raw[: 64 if is_long else 32] == known(data).digest()
        assert library.add_crc(library.add_crc(0, data[:cut], cut), data[cut:], size - cut) == zlib.crc32(data)


@pytest.mark.parametrize("key, message, signature", VECTORS)
def test_signatures_of_the_standard(library: ctypes.CDLL, key: str, message: str, signature: str) -> None:
    parts = bytes.fromhex(key), bytes.fromhex(signature), bytes.fromhex(message)
    assert verifies(library, *parts)
    for bit in range(0, 512, 7):
        wrong = bytearray(parts[1])
        wrong[bit // 8] ^= 1 << bit % 8
        assert not verifies(library, parts[0], bytes(wrong), parts[2])


def test_random_signatures_and_mutants(library: ctypes.CDLL) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    draw = random.Random(1)
    for _ in range(200):
        key, message = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32)), draw.randbytes(draw.randint(0, 300))
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert verifies(library, public, signature, message)
        all_bytes = bytearray(public + signature + message)
        all_bytes[draw.randrange(len(all_bytes))] ^= 1 << draw.randrange(8)
        parts = bytes(all_bytes[:32]), bytes(all_bytes[32:96]), bytes(all_bytes[96:])
        assert verifies(library, *parts) == PublicKey(parts[0]).verifies(parts[1], parts[2])


def test_points_and_scalars_at_the_edges(library: ctypes.CDLL) -> None:
    """Numbers that are not reduced, points of small order, signs of zero, scalars from the order on."""
    values = (0, 1, 2, 3, P - 1, P, P + 1, P + 3, P + 18, 2**255 - 1)
    points = [(y | sign << 255).to_bytes(32, "little") for y in values for sign in (0, 1)]
    points.append(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"))
    scalars = [s.to_bytes(32, "little") for s in (0, 1, L - 1, L, L + 1, 2**256 - 1)]
    accepted = 0
    for key in points:
        for point in points[::3]:
            for scalar in scalars:
                actual = verifies(library, key, point + scalar, b"message")
                assert actual == PublicKey(key).verifies(point + scalar, b"message")
                accepted += actual
    assert accepted


@pytest.mark.parametrize(
    "pattern", ["*", "n*t", "?et", "[mn]?t", "[!m]et", "[a-z]*", "[z-a]et", "[]]", "[!]]et", "net[", ""]
)
def test_patterns_are_those_of_fnmatch(library: ctypes.CDLL, pattern: str) -> None:
    import fnmatch

    more = [pattern, f"{pattern}*", f"*{pattern}?", f"{pattern}-[a-]", f"é{pattern}"]
    names = ["net", "mat", "nnet", "n", "", "]", "net[", "ét", "énet", "net-a", "net--", "[", "-"]
    for each in more:
        for name in names:
            assert library.matches(each.encode(), name.encode()) == fnmatch.fnmatchcase(name, each), (each, name)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[PrivateKey]]]:
    yield signed_package(tmp_path_factory.mktemp("signed"))


ROW = '[[package]]\nname = "*"\nkeys = ["ours"]\npolicy = "enforce"\n'
POLICIES = {
    "empty": "",
    "signed": "[keys]\nours = @ours\n" + ROW,
    "by another": "[keys]\nours = @other\n" + ROW,
    "by one of two": "[keys]\nours = @ours\nother = @other\n"
    + ROW.replace('["ours"]', '[\n "other", # this\n "ours",\n]'),
    "revoked": 'revoked = ["ours"]\n[keys]\nours = @ours\n' + ROW,
    "another package": "[keys]\nours = @other\n" + ROW.replace('"*"', '"other*"'),
    "off": "[keys]\nours = @other\n" + ROW.replace("enforce", "off"),
    "warn": "[keys]\nours = @other\n" + ROW.replace("enforce", "warn"),
    "a file": '[keys]\nours = "ours.pub.pem"\n' + ROW,
    "a private key": '[keys]\nours = "ours.pem"\n' + ROW,
    "no file": '[keys]\nours = "absent.pem"\n' + ROW,
    "dotted": "keys.ours = @ours\nkeys . 'b' = @other\n" + ROW,
    "dotted and a table": "keys.ours = @ours\n[keys]\nb = @other\n" + ROW,
    "inline": 'package = [{name = "*", keys = ["ours"], policy = "enforce"}]\nkeys = {ours = @ours}\n',
    "inline and rows": "package = []\nkeys = {ours = @ours}\n" + ROW,
    "inline with a comma": "keys = {ours = @ours,}\n" + ROW,
    "quotes": "['keys']\n\"o\\u0075rs\" = @ours\n" + ROW.replace('"*"', "'''*'''"),
    "lines": "[keys]\nours = @ours\n" + ROW.replace('"enforce"', '"""\nenf\\\n   orce"""'),
    "lines that end differently": ("[keys]\nours = @ours\n" + ROW).replace("\n", "\r\n"),
    "a lone return": "[keys]\rours = @ours\n" + ROW,
    "twice": "[keys]\nours = @ours\nours = @ours\n" + ROW,
    "two tables": "[keys]\nours = @ours\n[keys]\n" + ROW,
    "unknown": "[keys]\nours = @ours\n[trust]\n" + ROW,
    "an unknown entry": "strict = true\n[keys]\nours = @ours\n" + ROW,
    "a number": "[keys]\nours = 1\n" + ROW,
    "no such key": "[keys]\nours = @ours\n" + ROW.replace('["ours"]', '["mine"]'),
    "no keys": "[keys]\nours = @ours\n" + ROW.replace('["ours"]', "[]"),
    "no keys and off": ROW.replace('keys = ["ours"]\n', "").replace("enforce", "off"),
    "no name": "[keys]\nours = @ours\n" + ROW.replace('name = "*"\n', ""),
    "another level": "[keys]\nours = @ours\n" + ROW.replace("enforce", "Enforce"),
    "no base64": '[keys]\nours = "ed25519:AAAA"\n' + ROW,
    "base64 without its end": "[keys]\nours = @ours\n".replace('="\n', '"\n') + ROW,
    "a control character": "# \x01\n[keys]\nours = @ours\n" + ROW,
    "a comment": "[keys] # keys\nours = @ours # ours\n\n\t\n" + ROW,
    "no end": "[keys]\nours = @ours\n" + ROW.rstrip()[:-1],
    "two on a line": "[keys]\nours = @ours other = @other\n" + ROW,
    "two rows": "[keys]\nours = @ours\nother = @other\n" + ROW + ROW.replace("ours", "other"),
    "the first row": "[keys]\nours = @ours\nother = @other\n" + ROW.replace("ours", "other") + ROW,
}


@pytest.mark.parametrize("case", POLICIES)
def test_policies(
    case: str,
    library: ctypes.CDLL,
    signed: tuple[Path, list[PrivateKey]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, keys = signed
    policy = path.with_name("policy.toml")
    text = POLICIES[case]
    for name, key in zip(("ours", "other"), keys, strict=True):
        text = text.replace(f"@{name}", f'"{key.public.inline}"')
    policy.write_bytes(text.encode())
    monkeypatch.setenv("EINKORN_TRUST", str(policy))
    code, mine = python_error(path), Runtime(library).load(path)
    assert (f"error[{code}]" in mine) if code else not mine, mine
    assert mine == Runtime(library, policy).load(path)
    assert ("loaded, since the trust policy says warn" in capfd.readouterr().err) == (case == "warn")


def test_a_missing_policy_and_one_of_the_user(
    library: ctypes.CDLL, signed: tuple[Path, list[PrivateKey]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, keys = signed
    monkeypatch.setenv("EINKORN_TRUST", str(tmp_path / "absent.toml"))
    assert "error[EK0566]" in Runtime(library).load(path) and python_error(path) == "EK0566"
    monkeypatch.delenv("EINKORN_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert not Runtime(library).load(path) and not python_error(path)
    (tmp_path / "einkorn").mkdir()
    (tmp_path / "einkorn" / "trust.toml").write_text(f'[keys]\nours = "{keys[1].public.inline}"\n{ROW}')
    assert "error[EK0563]" in Runtime(library).load(path) and python_error(path) == "EK0563"
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not Runtime(library).load(path) and not python_error(path)


def test_texts_are_those_of_python(
    library: ctypes.CDLL, signed: tuple[Path, list[PrivateKey]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = signed[0].read_bytes()
    place = read_package(signed[0]).archive.members["graph/net.json"].start
    broken = bytes([data[place] ^ 1])
    cases = [b"", b"PK\3\4", data[:-1], data + b"x", b"text" * 10, data[:place] + broken + data[place + 1 :]]
    for each in cases[1:4] + cases[5:]:
        Path("net.pkg").write_bytes(each)
        with pytest.raises(PackageError) as caught:
            read_package("net.pkg").verify()
        text = Runtime(library).load(Path("net.pkg"))
        assert text.splitlines()[0] == f"error[{caught.value.code}]: {caught.value.message}"


def test_packages_of_ops(library: ctypes.CDLL) -> None:
    old = Path(__file__).parents[1] / "graph" / "packages" / "format-1.0.pkg"
    assert "the C API runs graphs" in Runtime(library).load(old)


def test_mutants_of_a_signed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_TRUST", os.environ["EINKORN_TRUST"])  # the campaign sets another
    counts = c_packages.campaign(400, 7, tmp_path)
    assert counts["refused"] > 100 and counts["executed"] > 2
