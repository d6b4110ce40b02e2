"""Ed25519 keys: reads and writes them in OpenSSL's PEM form, signs and verifies.

Public keys are read without other packages. `cryptography` makes keys, signs and verifies; it is imported when one of
these is requested.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError
from ..diagnostics.places import shown_path
from ..diagnostics.shield import raise_if_of_handler, shielded

INLINE: Final = "ed25519:"  # what keys begin with that are written into a policy
SIGNATURE_BYTES: Final = 64
MAX_KEY_FILE = 1 << 16  # bytes
_RAW_BYTES = 32
_PUBLIC = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of an Ed25519 key, up to its 32 bytes
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END \1-----")


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 public key, as its 32 bytes."""

    raw: bytes

    @cached
    def fingerprint(self) -> str:
        """The SHA-256 of its DER form, in hexadecimal; `openssl pkey -pubin -outform DER | sha256sum` prints it."""
        return hashlib.sha256(_PUBLIC + self.raw).hexdigest()

    @property
    def pem(self) -> str:
        """Its PEM form."""
        text = base64.b64encode(_PUBLIC + self.raw).decode()
        return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"

    @property
    def inline(self) -> str:
        """One word, for policies: `ed25519:` and its bytes in base64."""
        return INLINE + base64.b64encode(self.raw).decode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature of the message was made with the private key of this one.

        Raises:
            PackageError: EK0568, `cryptography` is not installed.
        """
        ed25519, _ = _cryptography()
        with shielded():
            from cryptography.exceptions import InvalidSignature
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError) as error:
            raise_if_of_handler(error)
            return False
        return True


def read_public_key(path: str | Path) -> PublicKey:
    """The public key in a PEM file.

    Raises:
        PackageError: EK0567, the file cannot be read, or holds another kind of key.
    """
    kind, data = _read_pem(Path(path))
    if kind != "PUBLIC KEY":
        hint = "`einkorn pkg keygen` writes the public key next to the private one; OpenSSL: openssl pkey -pubout"
        _refuse_key(path, f"holds a {kind.lower()}", "a public key", kind.lower(), hint)
    if len(data) != len(_PUBLIC) + _RAW_BYTES or not data.startswith(_PUBLIC):
        _refuse_key(path, "holds another kind of public key", "an Ed25519 key", f"{len(data)} bytes of DER", _MAKE_ONE)
    return PublicKey(data[len(_PUBLIC) :])


def read_inline_key(text: str) -> PublicKey | None:
    """The public key in a word such as `PublicKey.inline` is; None where it is not one."""
    try:
        raw = base64.b64decode(text.removeprefix(INLINE), validate=True)
    except (binascii.Error, ValueError) as error:
        raise_if_of_handler(error)
        return None
    return PublicKey(raw) if text.startswith(INLINE) and len(raw) == _RAW_BYTES else None


class PrivateKey:
    """An Ed25519 private key, read from a PEM file (PKCS#8, without a password).

    Raises:
        PackageError: EK0567 the file cannot be read or holds another kind of key, EK0568 `cryptography` is missing.
    """

    def __init__(self, path: str | Path) -> None:
        ed25519, serialization = _cryptography()
        kind, _ = _read_pem(Path(path))
        if kind != "PRIVATE KEY":
            with_password = kind == "ENCRYPTED PRIVATE KEY"
            decrypt = "decrypt it first: openssl pkey -in KEY.pem -out PLAIN.pem"
            expected, hint = "a private key without a password", decrypt if with_password else _MAKE_ONE
            _refuse_key(path, f"holds a {kind.lower()}", expected, kind.lower(), hint)
        try:
            self._key: Any = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
        except (ValueError, TypeError, OSError, _unsupported()) as error:
            raise_if_of_handler(error)
            _refuse_key(path, "holds no private key that can be used", "an Ed25519 key", str(error), _MAKE_ONE)
        if not isinstance(self._key, ed25519.Ed25519PrivateKey):
            what = type(self._key).__name__.strip("_")
            _refuse_key(path, "holds another kind of private key", "an Ed25519 key", what, _MAKE_ONE)

    @property
    def public(self) -> PublicKey:
        """The public key that belongs to it."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes; the same each time."""
        signature: bytes = self._key.sign(message)
        return signature


def generate_key(path: str | Path) -> tuple[Path, PublicKey]:
    """Makes a key, and writes the private one to `path` (mode 0600) and the public one next to it, NAME.pub.pem.

    Gives the path of the public key, and the key.

    Raises:
        PackageError: EK0567 one of the files exists or cannot be written, EK0568 `cryptography` is missing.
    """
    ed25519, serialization = _cryptography()
    path = Path(path)
    public_path = path.with_name(f"{path.stem}.pub.pem") if path.name else path
    key = ed25519.Ed25519PrivateKey.generate()
    public = PublicKey(key.public_key().public_bytes_raw())
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    if os.path.lexists(public_path):
        _refuse_key(public_path, "exists already", "a new file", "a file", "give another name, or move it away")
    _create(path, key.private_bytes(*pem), 0o600)
    _create(public_path, public.pem.encode(), 0o644)
    return public_path, public


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
            stream.write(data)
    except (OSError, ValueError) as error:
        raise_if_of_handler(error)
        reason = getattr(error, "strerror", None) or str(error)
        exists = isinstance(error, FileExistsError)
        hint = "give another name, or move it away" if exists else "name a file in a folder that exists and is writable"
        _refuse_key(path, f"cannot be written: {reason}", "a new file", reason, hint)


def _read_pem(path: Path) -> tuple[str, bytes]:
    """What the first block of a PEM file says that it is, and its bytes."""
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        with open(path, "rb") as stream:
            text = stream.read(MAX_KEY_FILE).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        raise_if_of_handler(error)
        reason = getattr(error, "strerror", None) or str(error)
        _refuse_key(path, f"cannot be read: {reason}", "a key in PEM form", reason, _MAKE_ONE)
    armored = _PEM.search(text)
    try:
        if armored:
            return armored[1], base64.b64decode("".join(armored[2].split()), validate=True)
    except binascii.Error as error:
        raise_if_of_handler(error)
    _refuse_key(path, "is not a key in PEM form", "-----BEGIN ... KEY-----", text[:40], _MAKE_ONE)


def _refuse_key(path: str | Path, what: str, expected: str, got: str, hint: str) -> NoReturn:
    raise PackageError(f"{shown_path(str(path))!r} {what}", code="EK0567", expected=expected, got=got, hint=hint)


def _cryptography() -> tuple[Any, Any]:
    """The modules `ed25519` and `serialization`."""
    try:
        with shielded():
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise PackageError(
            "signatures require the package cryptography, which is not installed",
            code="EK0568",
            expected="cryptography",
            hint="pip install cryptography; it is the extra [sign]",
        ) from None
    return ed25519, serialization


def _unsupported() -> type[Exception]:
    with shielded():
        from cryptography.exceptions import UnsupportedAlgorithm
    error: type[Exception] = UnsupportedAlgorithm
    return error


_MAKE_ONE = "einkorn pkg keygen -o KEY.pem makes one; OpenSSL: openssl genpkey -algorithm ed25519 -out KEY.pem"
