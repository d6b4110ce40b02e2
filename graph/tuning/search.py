"""Tries candidates in a child process, and says which is best.

The default comes first, and all others are compared with it. Candidates are compiled and timed one after the other,
never two at once; the best of them are then timed again in turn with the default, since single medians err by a tenth.
A gain of less than `GAIN` keeps the default.
"""

from __future__ import annotations

import pickle
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.installation import PACKAGE
from ...dsl.diagnostics.places import user_place
from ...dsl.package.container import OpContents, PackageContents, write_package
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.tuning import TuningSpace
from ..driver.devices import Device
from .messages import Race, Raced, Subject, Tried, Try
from .table import Candidate, TuningTable

GAIN = 1.03  # a smaller one keeps the default
FINALISTS = 4
FINAL_ROUNDS = 7
MEASURED = 4  # candidates that are measured whatever the estimates are
FAR = 2.0  # times the best estimate, beyond which a candidate is not measured
STARTING = 60.0  # seconds that a child may take to start

Show = Callable[[int, int], None]  # how many candidates are done, of how many


def search(
    loaded: LoadedKernel,
    space: TuningSpace,
    kinds: Sequence[object],
    values: Sequence[object],
    parameters: Mapping[str, object],
    device: Device,
    *,
    show: Show | None = None,
    model: TuningTable | None = None,
) -> TuningTable:
    """Tries all candidates of a space for these arguments.

    Args:
        loaded: the kernel, with variadic arguments as its signature has them.
        space: what is tried.
        kinds: dtype and rank of each input; a list of them for a variadic argument.
        values: an array of the host or a number for each input; a list of them for a variadic argument.
        parameters: the parameters of the default, all of them.
        device: where it runs.
        show: is called with the progress.
        model: the same candidates with estimates, in whose order they are tried then; those far behind are not.

    Raises:
        KernelError: EK0737, the default itself cannot be run.
        KeyboardInterrupt: Ctrl-C ended it; the child is gone then.
    """
    default = {name: parameters[name] for name, _ in space.values}
    candidates = [default, *(c for c in space.candidates() if c != default)]
    if model is not None:
        candidates = [default, *(model.candidates[n].parameters for n in model.order if n)]
    with tempfile.TemporaryDirectory(prefix="einkorn-tune-") as folder:
        package = str(Path(folder) / "op.pkg")
        op = OpContents(loaded.schema, loaded.portable.to_json())
        write_package(package, PackageContents("tuning", "0", (op,)))
        subject = Subject(
            package,
            loaded.schema.name,
            list(kinds),
            list(values),
            device,
            dict(parameters),
            space.exact,
            space.rounds,
            space.tolerance,
        )
        with _Child(subject) as child:
            return _Search(child, space, candidates, show, model).table(subject)


class _Search:
    """One search."""

    def __init__(
        self,
        child: _Child,
        space: TuningSpace,
        candidates: Sequence[dict[str, object]],
        show: Show | None,
        model: TuningTable | None = None,
    ) -> None:
        self.child = child
        self.space = space
        self.candidates = candidates
        self.show = show
        rows = [] if model is None else model.candidates
        self.models = [next((row for row in rows if row.parameters == each), None) for each in candidates]

    def table(self, subject: Subject) -> TuningTable:
        """Tries all, and times the best again."""
        results: list[Tried] = []
        for number, candidate in enumerate(self.candidates):
            if self.show is not None:
                self.show(number, len(self.candidates))
            far = self._far_behind(number)
            results.append(Tried(None, why=far) if far else self._try(number, candidate))
            if number == 0 and results[0].seconds is None:
                raise KernelError(
                    f"op '{subject.op}' cannot be tuned: its default fails: {results[0].why}",
                    code="EK0737",
                    place=user_place(),
                    op=subject.op,
                    got=results[0].why,
                    notes=results[0].reported.splitlines(),
                )
        ratios = self._final(results)
        best = max(ratios, key=lambda n: ratios[n])
        rows = [
            Candidate(
                candidate,
                result.seconds,
                result.compiled,
                ratios.get(number),
                result.why,
                result.error,
                None if model is None else model.estimate,
                "" if model is None else model.wall,
            )
            for number, (candidate, result, model) in enumerate(zip(self.candidates, results, self.models, strict=True))
        ]
        flat = [each for value in subject.values for each in (value if isinstance(value, list) else [value])]
        shapes = [getattr(value, "shape", ()) for value in flat]
        return TuningTable(subject.op, shapes, rows, best if ratios[best] >= GAIN else 0)

    def _far_behind(self, number: int) -> str:
        """Why a candidate is not tried: its estimate is far above the best one, or it does not compile."""
        known = [model.estimate for model in self.models if model is not None and model.estimate is not None]
        model = self.models[number]
        if number <= MEASURED or model is None or not known:
            return ""
        if model.estimate is None:
            return model.why
        times = model.estimate / min(known)
        return f"it is estimated to take {times:.1f} times as long as the best" if times > FAR else ""

    def _try(self, number: int, candidate: dict[str, object]) -> Tried:
        answer = self.child.send(Try(number, candidate), self.space.limit)
        if isinstance(answer, str):
            if number:
                self.child.ready(self.space.limit, self.candidates[0])
            return Tried(None, why=answer)
        assert isinstance(answer, Tried)
        return answer

    def _final(self, results: Sequence[Tried]) -> dict[int, float]:
        """How many times faster than the default the best candidates are, by their numbers."""
        timed = [(result.seconds, number) for number, result in enumerate(results) if result.seconds is not None]
        finalists = [0, *(number for _, number in sorted(timed) if number)][: FINALISTS + 1]
        for number in finalists:  # after a crash another child has not compiled them
            if not self.child.has_result(number):
                self._try(number, self.candidates[number])
        rounds = max(FINAL_ROUNDS, self.space.rounds)
        raced = self.child.send(Race(finalists, rounds), self.space.limit * len(finalists))
        if not isinstance(raced, Raced):  # what ran before does not any more: nothing is known of it
            return {0: 1.0}
        ratios = {n: [row[0] / row[k] for row in raced.seconds] for k, n in enumerate(finalists)}
        return {number: statistics.median(each) for number, each in ratios.items()}


class _Child:
    """The child process; another one after it has died."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.process: subprocess.Popen[bytes] | None = None
        self.known: set[int] = set()
        self.said = Path()  # what it writes to standard error

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def has_result(self, number: int) -> bool:
        return number in self.known

    def start(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {PACKAGE}.graph.interop.tuning_child import main; main()"
        pipe = subprocess.PIPE
        self.said = Path(self.subject.package).with_name("stderr")
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=said, start_new_session=True
            )
        self.known = set()
        assert self.process.stdin is not None
        pickle.dump(self.subject, self.process.stdin)
        return self.process

    def ready(self, limit: float, default: dict[str, Any]) -> None:
        """A child that has_result the results of the default again."""
        if self.process is None:
            self.send(Try(0, default), limit)

    def send(self, request: Try | Race, limit: float) -> Tried | Raced | str:
        """The answer, or why there is none: the child is gone then."""
        fresh = self.process is None
        process = self.process or self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            waits = limit + (STARTING if fresh else 0.0)
            if not select.select([process.stdout], [], [], waits)[0]:
                self.stop()
                return f"it takes more than {limit:g} seconds"
            answer: Tried | Raced = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            return self._died(process)
        except BaseException:
            self.stop()
            raise
        if isinstance(request, Try) and isinstance(answer, Tried) and answer.seconds is not None:
            self.known.add(request.number)
        return answer

    def _died(self, process: subprocess.Popen[bytes]) -> str:
        self.process = None
        try:
            code = process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        _close(process)
        if code >= 0:
            last = self.said.read_text(errors="replace").strip().rpartition("\n")[2]
            return f"the process ends with {code}: {last[:200]}"
        try:
            return f"it ends the process: {signal.Signals(-code).name}"
        except ValueError:
            return f"it ends the process: signal {-code}"

    def stop(self) -> None:
        """Ends the child."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was still to be written to a process that is gone
                continue
