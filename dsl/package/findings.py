"""Describes what tuning found: the parameters that were best, and for which calls.

A finding holds for a program (by its digest), a target, dtypes, the parameters that were not tried, and a range of
sizes for each dim of the key: from a power of two up to the next one. Code that calls without saying the parameters
itself gets those of the finding that fits.

Findings are kept in the user's cache, by the digest of the program, and in packages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..diagnostics.dataclass import dataclass
from ..diagnostics.forks import fork_lock
from ..diagnostics.json_reading import read_json
from ..diagnostics.shield import raise_if_of_handler
from ..environment.cache import Cache, content_key
from ..signature.tuning import Value


@dataclass(frozen=True)
class TunedCalls:
    """The best parameters for some calls.

    Attributes:
        op: the name of the op.
        digest: that of its program.
        target: the compile target.
        dtypes: those of the inputs, in order.
        given: the parameters that were not chosen, by name; a dtype by its name.
        ranges: for each dim of the key the smallest and the largest size that it holds for.
        parameters: what was best.
        ratio: the time of the default by that of the best.
        version: of Einkorn.
        rejected: candidates that were not considered, and why.
        estimated: whether it is from the static model of a GPU; nothing was run then, and no results were compared.
    """

    op: str
    digest: str
    target: str
    dtypes: tuple[str, ...]
    given: tuple[tuple[str, Value], ...]
    ranges: tuple[tuple[str, int, int], ...]
    parameters: tuple[tuple[str, Value], ...]
    ratio: float
    version: str
    rejected: tuple[tuple[str, str], ...] = ()
    estimated: bool = False

    @property
    def about(self) -> tuple[Any, ...]:
        """What it is about: a newer finding about the same takes its place."""
        return self.op, self.digest, self.target, self.dtypes, self.given, self.ranges

    def is_about(self, dtypes: Sequence[str], given: Mapping[str, Value]) -> bool:
        """Whether it holds for these dtypes and parameters, at some sizes."""
        return self.dtypes == tuple(dtypes) and dict(self.given) == dict(given)

    def holds_for(self, sizes: Mapping[str, Any]) -> bool:
        """Whether it holds for these sizes; for none that is missing or None."""
        known = {name: size for name, size in sizes.items() if size is not None}
        return all(low <= known.get(name, -1) <= high for name, low, high in self.ranges)

    def to_json(self) -> dict[str, Any]:
        pairs = {"given": dict(self.given), "parameters": dict(self.parameters)}
        ranges = {name: [low, high] for name, low, high in self.ranges}
        lists = {"dtypes": list(self.dtypes), "ranges": ranges}
        texts = {"op": self.op, "digest": self.digest, "target": self.target, "version": self.version}
        rejected = {"rejected": dict(self.rejected)} if self.rejected else {}
        estimated = {"estimated": True} if self.estimated else {}
        return {**texts, **lists, **pairs, **rejected, **estimated, "ratio": self.ratio}


def range_of(size: int) -> tuple[int, int]:
    """The sizes that are alike: from a power of two up to the next one."""
    if size < 1:
        return 0, 0
    low: int = 1 << (size.bit_length() - 1)
    return low, 2 * low - 1


def print_findings(findings: Iterable[TunedCalls]) -> bytes:
    """The text of `tuning.json`: one form for equal findings."""
    listed = sorted((finding.to_json() for finding in findings), key=lambda f: json.dumps(f, sort_keys=True))
    return json.dumps({"findings": listed}, sort_keys=True, indent=1).encode() + b"\n"


def read_findings(text: bytes) -> list[TunedCalls]:
    """The findings in a text; what is not one in it is passed over.

    Raises:
        ValueError: it is not JSON of this form.
    """
    data = read_json(text)
    if not isinstance(data, dict) or not isinstance(data.get("findings"), list):
        raise ValueError("it has no list of findings")
    return [result for result in map(_finding, data["findings"]) if result is not None]


def _finding(data: Any) -> TunedCalls | None:
    try:
        return TunedCalls(
            _text(data["op"]),
            _text(data["digest"]),
            _text(data["target"]),
            tuple(_text(name) for name in data["dtypes"]),
            tuple(sorted((name, _value(value)) for name, value in data["given"].items())),
            tuple((name, int(low), int(high)) for name, (low, high) in data["ranges"].items()),
            tuple((name, _value(value)) for name, value in data["parameters"].items()),
            float(data["ratio"]),
            _text(data["version"]),
            tuple((_text(name), _text(why)) for name, why in data.get("rejected", {}).items()),
            data.get("estimated") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise_if_of_handler(error)
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _value(value: object) -> Value:
    if not isinstance(value, bool | int | float | str):
        raise TypeError(value)
    return value


# *** in the user's cache ***

_known: dict[str, list[TunedCalls]] = {}  # by digest, as this process has read or made them
_lock = fork_lock()


def kept(digest: str) -> list[TunedCalls]:
    """The findings about a program in the user's cache."""
    entry = _known.get(digest)
    if entry is None:
        entry = _known[digest] = _read(digest)
    return entry


def keep(finding: TunedCalls) -> None:
    """Puts a finding into the user's cache, in place of an older one about the same."""
    with _lock:
        others = [each for each in _read(finding.digest) if each.about != finding.about]
        _known[finding.digest] = [*others, finding]
        Cache().put(_key(finding.digest), print_findings(_known[finding.digest]), ".json")


def forget() -> None:
    """Lets this process read the cache anew."""
    _known.clear()


def _key(digest: str) -> str:
    return content_key("tuning", digest)


def _read(digest: str) -> list[TunedCalls]:
    text = Cache().get(_key(digest), ".json")
    try:
        return [] if text is None else read_findings(text)
    except ValueError as error:  # of another version
        raise_if_of_handler(error)
        return []
