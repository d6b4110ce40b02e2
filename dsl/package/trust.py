"""The trust policy: which packages must be signed by which keys.

It is a file, `trust.toml`, that `EINKORN_TRUST` names, or else one in the user's configuration folder. Without such a
file nothing is required. `enforce` is called when a package is opened, before any of its members but the manifest is
read.
"""

from __future__ import annotations

import fnmatch
import logging
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import PackageError, did_you_mean
from ..diagnostics.places import shown_path
from ..diagnostics.shield import raise_if_of_handler, shielded
from ..environment.knobs import knobs
from .keys import INLINE, PublicKey, read_inline_key, read_public_key

LEVELS = ("off", "warn", "enforce")
TRUST_FILE = "trust.toml"
MAX_POLICY = 1 << 20  # bytes
MAX_SHOWN = 4  # keys that a message lists
PREFIX = b"einkorn package 1\0"  # what a signed message begins with; the bytes of the manifest follow

_log = logging.getLogger("einkorn.trust")


@dataclass(frozen=True)
class TrustRow:
    """What holds for packages of a name: keys, one of which must have signed them, by their names in the policy."""

    pattern: str
    level: str
    keys: Mapping[str, PublicKey] = field(default_factory=dict)


@dataclass(frozen=True)
class TrustPolicy:
    """A policy file. `revoked` are the fingerprints of keys that no longer count, with their names."""

    path: Path
    rows: tuple[TrustRow, ...]
    revoked: Mapping[str, str]

    def row(self, name: str) -> TrustRow | None:
        """The first row whose pattern fits a name."""
        return next((row for row in self.rows if fnmatch.fnmatchcase(name, row.pattern)), None)

    def check(self, shown: str, row: TrustRow, manifest: bytes, signatures: Sequence[tuple[str, bytes]]) -> None:
        """Checks a package against a row.

        Args:
            shown: how messages name the package.
            signatures: pairs of the fingerprint of a key and a signature.

        Raises:
            PackageError: EK0563 not signed by a key of the row, EK0564 a signature is not valid, EK0565 a revoked key,
                EK0568 `cryptography` is not installed.
        """
        names = {key.fingerprint: name for name, key in row.keys.items()}
        keys = {key.fingerprint: key for key in row.keys.values()}
        counted = [pair for pair in signatures if pair[0] in keys and pair[0] not in self.revoked]
        wrong = [mark for mark, signature in counted if not keys[mark].verifies(signature, PREFIX + manifest)]
        accepted = [f"{name!r} ({key.fingerprint[:16]})" for name, key in row.keys.items()]
        expected = f"a signature by {_listed(accepted)}"
        if wrong:
            what = f"is not what was signed: the signature by key {names[wrong[0]]!r} does not fit its manifest"
            self._refuse(shown, "EK0564", what, row, expected, "a signature of something else", _FETCH)
        if counted:
            return
        revoked = [self.revoked[mark] for mark, _ in signatures if mark in self.revoked]
        if revoked:
            got, hint = (
                f"a signature by {_listed(map(repr, revoked))}, revoked",
                "fetch a version signed by another key",
            )
            self._refuse(shown, "EK0565", f"is signed by the revoked key {revoked[0]!r}", row, expected, got, hint)
        got = f"signatures by {_listed(mark[:16] for mark, _ in signatures)}" if signatures else "no signature"
        what = "is not signed by a key that the trust policy accepts" if signatures else "is not signed"
        self._refuse(shown, "EK0563", what, row, expected, got, _FETCH)

    def _refuse(self, shown: str, code: str, what: str, row: TrustRow, expected: str, got: str, hint: str) -> NoReturn:
        notes = [f"expected {expected}", f"got {got}", f"{shown_path(str(self.path))}: the row for {row.pattern!r}"]
        raise PackageError(
            f"{shown!r} {what}",
            code=code,
            expected=expected,
            got=got,
            notes=notes,
            hint=f"nothing of it was loaded; {hint}",
        )


def _listed(items: Any) -> str:
    words = list(items)
    return ", ".join(words[:MAX_SHOWN]) + (f" and {len(words) - MAX_SHOWN} more" if len(words) > MAX_SHOWN else "")


def enforce(path: Path, shown: str, name: str, manifest: bytes, signatures: Sequence[tuple[str, bytes]]) -> None:
    """Holds a package to the user's policy, by its name in the manifest and by that of its file.

    Both rows are checked, so that a package escapes no row by another name.

    Raises:
        PackageError: EK0563, EK0564, EK0565 and EK0568 as `TrustPolicy.check`, where the row says `enforce`; EK0566 and
            EK0567, the policy or one of its keys cannot be used.
    """
    policy = users_policy()
    if policy is None:
        return
    rows = {row.pattern: row for row in map(policy.row, (name, path.stem)) if row is not None and row.level != "off"}
    for row in rows.values():
        try:
            policy.check(shown, row, manifest, signatures)
        except PackageError as error:
            if row.level == "enforce":
                raise
            _log.warning("%s (%s); loaded, since the trust policy says warn", error.message, error.code)


def users_policy() -> TrustPolicy | None:
    """The policy that `EINKORN_TRUST` names, or that of the user's configuration folder; None where there is none.

    Raises:
        PackageError: EK0566 and EK0567, it or one of its keys cannot be used.
    """
    named = knobs.trust
    if named is not None:
        return read_policy(named)
    path = users_policy_path()
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise_if_of_handler(error)
        return None
    except OSError as error:
        raise_if_of_handler(error)
        _refuse_policy(path, f"cannot be read: {error.strerror or error}")
    return read_policy(path)


def users_policy_path() -> Path:
    """Where a policy is looked for unless `EINKORN_TRUST` names one."""
    with shielded():
        import platformdirs  # most processes open no package

    return Path(platformdirs.user_config_dir("einkorn", appauthor=False)) / TRUST_FILE


def read_policy(path: Path) -> TrustPolicy:
    """Reads a policy file.

    Raises:
        PackageError: EK0566 it cannot be read or says something unknown, EK0567 a key of it cannot be read.
    """
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        with open(path, "rb") as stream:
            text = stream.read(MAX_POLICY + 1)
        if len(text) > MAX_POLICY:
            raise ValueError(f"it has more than {MAX_POLICY} bytes")
        data = tomllib.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise_if_of_handler(error)
        _refuse_policy(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    _known(path, data, "it", ("keys", "package", "revoked"))
    keys: dict[str, PublicKey] = {}
    for name, value in _typed(path, data.get("keys", {}), dict, "'keys'", "a table").items():
        word = _typed(path, value, str, f"key {name!r}", "a text")
        keys[name] = _key(path, name, word)
    rows = tuple(
        _row(path, row, f"package {number}", keys)
        for number, row in enumerate(_typed(path, data.get("package", []), list, "'package'", "tables"), 1)
    )
    revoked = _names(path, data.get("revoked", []), "'revoked'", keys)
    return TrustPolicy(path, rows, {keys[name].fingerprint: name for name in revoked})


def _key(path: Path, name: str, word: str) -> PublicKey:
    if not word.startswith(INLINE):
        return read_public_key(path.parent / word)
    key = read_inline_key(word)
    if key is None:
        _refuse_policy(path, f"has a key {name!r} that is not '{INLINE}' and 32 bytes in base64", word)
    return key


def _row(path: Path, data: object, at: str, keys: Mapping[str, PublicKey]) -> TrustRow:
    fields = _typed(path, data, dict, at, "a table")
    _known(path, fields, at, ("name", "keys", "policy"))
    for name in ("name", "policy"):
        if name not in fields:
            _refuse_policy(path, f"lacks {name!r} in {at}")
    pattern = _typed(path, fields["name"], str, f"'name' of {at}", "a text")
    level = _typed(path, fields["policy"], str, f"'policy' of {at}", "a text")
    if level not in LEVELS:
        what = f"says {level!r} for 'policy' of {at}, which is not one of {', '.join(LEVELS)}"
        _refuse_policy(path, what, level, LEVELS)
    named = _names(path, fields.get("keys", []), f"'keys' of {at}", keys)
    if level != "off" and not named:
        _refuse_policy(path, f"names no keys in {at}, whose policy is {level!r}")
    return TrustRow(pattern, level, {name: keys[name] for name in named})


def _names(path: Path, data: object, at: str, keys: Mapping[str, PublicKey]) -> list[str]:
    names = [_typed(path, each, str, at, "names of keys") for each in _typed(path, data, list, at, "names of keys")]
    for name in names:
        if name not in keys:
            _refuse_policy(path, f"names a key {name!r} in {at} that [keys] does not have", name, tuple(keys))
    return names


def _typed(path: Path, data: object, kind: type[Any], at: str, expected: str) -> Any:
    if type(data) is not kind:
        _refuse_policy(path, f"holds {data!r:.60} for {at}, which should be {expected}", data)
    return data


def _known(path: Path, data: Mapping[str, object], at: str, known: Collection[str]) -> None:
    for name in data:
        if name not in known:
            _refuse_policy(path, f"has an unknown {name!r} in {at}", name, known)


def _refuse_policy(path: Path, what: str, got: object = None, known: Collection[str] = ()) -> NoReturn:
    hint = (did_you_mean(got, known) if isinstance(got, str) and known else None) or "docs/trust.md shows a policy"
    raise PackageError(
        f"the trust policy {shown_path(str(path))!r} {what}",
        code="EK0566",
        expected=list(known) or None,
        got=got,
        notes=["no package is loaded while it cannot be used"],
        hint=hint,
    )


_FETCH = "fetch it again from where you trust"
