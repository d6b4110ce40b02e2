"""Classes made by Einkorn's `dataclass` behave as those that Python's makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from einkorn.dsl.diagnostics.dataclass import dataclass

MAKERS = [dataclass, dataclasses.dataclass]


@dataclass(frozen=True)
class Frozen:
    """Has a name by which it is pickled."""

    a: int
    b: tuple[int, ...] = (1, 2)
    c: list[int] = field(default_factory=list, compare=False)


def classes(make: Callable[..., Any]) -> dict[str, Any]:
    @make(frozen=True)
    class Frozen:
        """Everything that a field may say."""

        KIND: ClassVar[str] = "kind"
        a: int
        b: tuple[int, ...] = (1, 2)
        c: list[int] = field(default_factory=list)
        d: str = field(default="d", compare=False, repr=False)
        e: int = field(default=5, kw_only=True)
        f: int = field(default=7, init=False)
        g: list[int] = field(default_factory=lambda: [7], init=False, hash=False)

    @make
    class Mutable:
        """Its objects change."""

        a: int
        b: object = None

        def __post_init__(self) -> None:
            self.b = self.b or self

    @make(frozen=True, eq=False)
    class Identity:
        """Equal to itself alone."""

        a: int

    @make(frozen=True)
    class Empty:
        """Without fields."""

    @make(frozen=True)
    class One:
        """With one field."""

        a: object

    @make(frozen=True)
    class Own:
        """With methods of its own."""

        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    @make
    class Hashed:
        """With a hash of its own."""

        a: int

        def __hash__(self) -> int:
            return 3

    @make(frozen=True)
    class Derived(One):
        """Of another dataclass."""

        b: int = 2

    class Plain(One):
        """Of a dataclass, and none itself."""

    made = [Frozen, Mutable, Identity, Empty, One, Own, Hashed, Derived, Plain]
    return {cls.__name__: cls for cls in made}


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Frozen", (1,), {}),
    ("Frozen", (1, (3,), [4], "x"), {"e": 9}),
    ("Frozen", (), {}),
    ("Frozen", (1, 2, 3, 4, 5), {}),
    ("Frozen", (1,), {"f": 1}),
    ("Mutable", (1,), {}),
    ("Mutable", (1,), {"b": 3}),
    ("Identity", (1,), {}),
    ("Empty", (), {}),
    ("One", ([],), {}),
    ("One", ("text",), {}),
    ("Own", (1,), {}),
    ("Hashed", (1,), {}),
    ("Derived", (1,), {}),
    ("Plain", (1,), {}),
]


def outcome(function: Callable[[], object]) -> object:
    """What a function returns, or the error that it raises."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(("name", "values", "named"), CALLS)
def test_objects_behave_as_those_of_dataclasses(name: str, values: Any, named: Any) -> None:
    def observed(make: Callable[..., Any]) -> dict[str, object]:
        made = classes(make)
        try:
            x, y = (made[name](*copy.deepcopy(values), **named) for _ in range(2))
        except TypeError as error:
            return {"error": str(error)}
        mutable = made["Mutable"](1)
        results: dict[str, Callable[[], object]] = {
            "repr": lambda: repr(x).replace("test_objects_behave_as_those_of_dataclasses.", ""),
            "equal": lambda: (x == y, x != y, x == x, x == mutable, x == values),
            "hash": lambda: hash(x) == hash(y),
            "hashable": lambda: len({x, y}),
            "assigned": lambda: setattr(x, "a", 3),
            "new": lambda: setattr(x, "new", 3),
            "deleted": lambda: delattr(x, "a"),
            "values": lambda: [(f.name, f.type) for f in dataclasses.fields(x)],
            "as dict": lambda: repr(dataclasses.asdict(x)) if name != "Mutable" else None,
            "replaced": lambda: repr(dataclasses.replace(x)),
            "order": lambda: x < y,
        }
        return {what: outcome(function) for what, function in results.items()}

    assert observed(dataclass) == observed(dataclasses.dataclass)


@pytest.mark.parametrize("name", classes(dataclass))
def test_classes_look_as_those_of_dataclasses(name: str) -> None:
    def observed(make: Callable[..., Any]) -> dict[str, object]:
        cls = classes(make)[name]
        return {
            "signature": str(inspect.signature(cls)),
            "annotations": cls.__init__.__annotations__,
            "matched": cls.__match_args__,
            "doc": cls.__doc__,
            "names": [getattr(cls, method).__qualname__ for method in ("__init__", "__repr__", "__eq__")],
            "attributes": sorted(vars(cls)),
            "parameters": repr(cls.__dataclass_params__),
            "defaults": {f.name: getattr(cls, f.name, "none") for f in dataclasses.fields(cls)},
        }

    ours, theirs = observed(dataclass), observed(dataclasses.dataclass)
    assert ours == theirs


def test_objects_are_pickled_and_copied() -> None:
    x = Frozen(1, (2,), [3])
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert other == x and other.c == [3] and hash(other) == hash(x)


def test_a_default_that_changes_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass(frozen=True)
        class Wrong:
            """A list for all objects."""

            a: list[int] = []  # noqa: RUF012


def test_dataclasses_of_python_derive_from_ours() -> None:
    @dataclasses.dataclass(frozen=True)
    class Derived(Frozen):
        d: int = 4

    x = Derived(1)
    assert (x.a, x.b, x.d) == (1, (1, 2), 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.a = 2  # type: ignore[misc]
