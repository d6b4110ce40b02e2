"""Golden texts of error messages, and small programs that make them.

A test writes `kernels.py` (and `model.py`) into a folder of its own, runs them as a user would, and compares the text
of the error with `golden/<name>.txt`. `pytest tests/diagnostics --update-golden` writes the texts anew.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import hints

from einkorn.compiler.check import check_kernels
from einkorn.dsl.diagnostics.errors import EinkornError, InternalError

GOLDEN = Path(__file__).parent / "golden"

PRELUDE = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
"""

MODEL = """from einkorn.graph import *
from einkorn.graph import ops

graph = Graph(
    "model",
    forward=lambda x: ops.custom("op", device=DeviceRef.CPU(), values=[x])[0],
    input_types=[TensorType(DType.{dtype}, ["n"], DeviceRef.CPU())],
    custom_extensions=["kernels.py"],
)
model = InferenceSession().load(graph)
"""

GOOD = """

@register("op")
def op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + 1)
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", default=False, help="write the golden texts anew")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for these tests: the good graph that follows each mistake is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINKORN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def words_of(error: EinkornError) -> tuple[str, ...]:
    """What a mistake and its hint say but for numbers: of many that say the same, one hint is followed."""
    return tuple(re.sub(r"\d+", "0", text or "") for text in (error.code, error.message, error.hint))


@dataclass
class Workplace:
    """A folder with a user's files; the tests run in it, so that messages show bare file names."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, text: str, name: str = "model.py") -> dict[str, Any]:
        """Runs a program of the user's and gives its variables."""
        return runpy.run_path(str(self.write(name, text).name))

    def run_with(self, model: Any, inputs: list[Any]) -> Any:
        """Calls a model from a program of the user's."""
        path = self.write("call.py", "result = model(*inputs)\n")
        return runpy.run_path(path.name, {"model": model, "inputs": inputs})["result"]

    def mistake(self, work: Callable[[], Any]) -> EinkornError:
        """The error of `work`, which has to be the user's, with a code and (in a kernel) a place."""
        with pytest.raises(EinkornError) as caught:
            work()
        error = caught.value
        assert not isinstance(error, InternalError), error
        for each in getattr(error, "errors", [error]):
            assert each.code.startswith("EK0") and len(each.code) == 6
        text = str(error)
        assert "Traceback" not in text and "arith." not in text and "llvm." not in text
        assert str(self.folder) not in text, "a path below the working directory is shown relative to it"
        return error

    def load(self, kernels: str, dtype: str = "float32") -> EinkornError:
        """The error of a graph of one op from this kernel file; afterwards the process has to be as good as new."""
        self.write("kernels.py", PRELUDE + kernels)
        error = self.mistake(lambda: self.run(MODEL.format(dtype=dtype)))
        self.follow_hints(hints.with_own_imports(PRELUDE + kernels))
        self.still_works()
        return error

    def follow_hints(self, text: str) -> None:
        """Does what the hint of each mistake of a kernel file says, of several that say the same that of one."""
        self.write("kernels.py", text)
        errors = check_kernels("kernels.py").errors
        for error in {words_of(error): error for error in errors}.values():
            self.follow(text, error)

    def follow(self, text: str, error: EinkornError) -> None:
        """Does what the hint of a mistake says, if it names a replacement: the mistake has to be gone."""
        followed = hints.follow(text, error) if error.place and Path(error.place.file).name == "kernels.py" else None
        if followed is None:
            return
        self.write("followed.py", followed)
        left = check_kernels("followed.py").errors
        shift = followed.count("\n") - text.count("\n")
        same = [e for e in left if e.place and (e.message, e.place.line) == (error.message, error.place.line + shift)]
        assert not same, f"{error}\n\nwhat follows from it:\n{followed}\n\n{same[0]}"

    def still_works(self) -> None:
        import numpy as np

        self.write("good.py", PRELUDE + GOOD)
        model = self.run(MODEL.format(dtype="float32").replace("kernels.py", "good.py"), "good_model.py")["model"]
        assert model(np.float32([1, 2]))[0].to_numpy().tolist() == [2, 3]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Compares a text with the golden one of this name."""

    def compare(name: str, text: object) -> None:
        path = GOLDEN / f"{name}.txt"
        shown = str(text).rstrip("\n") + "\n"
        if request.config.getoption("--update-golden", default=False):
            path.write_text(shown, encoding="utf-8")
        assert path.exists(), f"there is no golden text {name}: run pytest tests/diagnostics --update-golden"
        assert shown == path.read_text(encoding="utf-8")

    return compare
