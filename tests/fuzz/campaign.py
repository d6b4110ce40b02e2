"""A fuzzing campaign: random kernels, networks and indices for a number of minutes, each run in a child process.

    python tests/fuzz/campaign.py --minutes 60 --folder build/fuzz
    python tests/fuzz/campaign.py --only networks

All are tried side by side. What fails is made small and stored in the folder as a file that a test can run (see
`test_regressions`). The exit status is 1 when something was found.

See also `subjects` (what is tried), `check` and `check_network` (how it is run).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import select
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from subjects import SUBJECTS, Subject  # noqa: E402

ROUND = 60  # of one seed
FINE = ("same", "fails")
RENEW = 400  # requests after which the child is replaced: it never unloads code
SMALL_ENOUGH = 240.0  # seconds after which a find is no longer made smaller
PATIENCE = 180.0  # seconds that one may take; the machine may be busy


class Child:
    """A process that checks one thing after the other; replaced when it dies or does not answer."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.process: subprocess.Popen[str] | None = None
        self.served = 0

    def check(self, made: Any) -> tuple[str, str]:
        """What became of it; see the child's own `check`, and "crash" and "timeout"."""
        if self.process is None or self.served >= RENEW:
            self.stop()
            command = [sys.executable, str(HERE / self.subject.script)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.served = 0
        self.served += 1
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(self.subject.request(made) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            answer = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, answer = [process.stdout], ""
        if answer:
            status, detail = json.loads(answer)
            return status, detail
        self.stop()
        if not ready:
            return "timeout", f"no answer in {PATIENCE:.0f} s"
        return "crash", f"the process ended with status {process.returncode}"

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Campaign:
    """Rounds of what is tried, what was in it, what became of it, and the finds."""

    def __init__(self, folder: Path, show: Any, subject: Subject = SUBJECTS[0]) -> None:
        self.folder = folder
        self.subject = subject
        self.child = Child(subject)
        self.outcomes: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.finds: dict[str, Path] = {}
        self.show = show
        self.deadline = 0.0

    def round(self, number: int) -> None:
        """What one seed gives."""
        rng = random.Random(number)
        for _ in range(ROUND):
            if time.monotonic() >= self.deadline:
                return
            self.one(self.subject.random(rng))

    def one(self, made: Any) -> None:
        """What became of one thing; a find is made small and stored."""
        status, detail = self.child.check(made)
        self.outcomes[status] += 1
        self.features.update(self.subject.features_of(made))
        self.show(self)
        if status not in FINE and kind_of(status, detail) not in self.finds:
            self.make_small(made, kind_of(status, detail))

    def make_small(self, made: Any, kind: str) -> None:
        """Stores something smaller with the same kind of trouble."""
        collected: dict[str, tuple[str, str]] = {}
        end = time.monotonic() + SMALL_ENOUGH

        def fails(smaller: Any) -> bool:
            if time.monotonic() > end:
                return False
            result = self.child.check(smaller)
            collected[self.subject.request(smaller)] = result
            return kind_of(*result) == kind

        small = self.subject.smaller(made, fails)
        status, detail = collected.get(self.subject.request(small)) or self.child.check(small)
        self.finds[kind] = self.store(small, status, detail)

    def store(self, made: Any, status: str, detail: str) -> Path:
        """Keeps a find as a Python file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = self.subject.text(made)
        name = hashlib.sha256(text.encode()).hexdigest()[:10]
        file = self.folder / f"{status}_{name}.py"
        note = "\n".join(f"# {line}".rstrip() for line in detail.strip().splitlines()[-40:])
        file.write_text(f'"""Found by fuzzing: {status}."""\n\n{note}\n{text}')
        return file


def kind_of(status: str, detail: str) -> str:
    """What trouble has in common: its last line, or that of an error, without numbers and paths."""
    lines = detail.strip().splitlines() or [""]
    chosen = next((line for line in lines if "error[" in line), lines[-1])
    if status == "differs":
        return f"{status} {' '.join(re.findall(r'EK[0-9]+|-O[0-9]|two threads', detail))}"
    return f"{status}: {re.sub(r'[0-9]+', 'N', chosen.rpartition('error[')[2])}"


def summary(campaign: Campaign) -> str:
    """Outcomes and finds in one line."""
    actual = ", ".join(f"{n} {status}" for status, n in sorted(campaign.outcomes.items()))
    total = sum(campaign.outcomes.values())
    return f"{total} {campaign.subject.name} ({actual}), {len(campaign.finds)} finds"


def counts(campaign: Campaign) -> str:
    """How many had what in them."""
    actual = (f"{feature} {campaign.features[feature]}" for feature in campaign.subject.features)
    return textwrap.fill(", ".join(actual), 120, break_on_hyphens=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=[subject.name for subject in SUBJECTS])
    options = parser.parse_args()
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=options.minutes * 60)

        def progress_text() -> str:
            return "; ".join(summary(campaign) for campaign in campaigns)

        def show(_: Campaign) -> None:
            progress.update(task, description=progress_text(), completed=time.monotonic() - start)

        def go_on(campaign: Campaign) -> None:
            number = options.seed
            while time.monotonic() < campaign.deadline:
                campaign.round(number)
                number += 1
                if not console.is_terminal:
                    print(f"{(time.monotonic() - start) / 60:.1f} min, seed {number}: {summary(campaign)}", flush=True)

        campaigns = [Campaign(options.folder, show, s) for s in SUBJECTS if options.only in (None, s.name)]
        for campaign in campaigns:
            campaign.deadline = start + options.minutes * 60
        threads = [threading.Thread(target=go_on, args=(campaign,)) for campaign in campaigns]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    console.print(f"{(time.monotonic() - start) / 60:.1f} minutes: {progress_text()}")
    for campaign in campaigns:
        campaign.child.stop()
        print(counts(campaign))
        for kind, file in campaign.finds.items():
            console.print(f"  {file}: {kind}", markup=False)
    return 1 if any(campaign.finds for campaign in campaigns) else 0


if __name__ == "__main__":
    sys.exit(main())
