"""One process that feeds one way in: by atheris where it is installed, else by hypothesis.

`python -m fuzz` starts it. A finding is written into a file of its own, once for each signature,
and the search goes on.
"""

import hashlib
import importlib.util
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz import corpus
from fuzz.guard import Guard, sandbox
from fuzz.mutate import mutate
from fuzz.ways import WAYS

_INSTRUMENTED = ["transexplain", "orchestrator", "workers"]
_DATA_BYTES = 6 << 30  #: of this process; what asks for more gets a MemoryError, not the machine


@dataclass(slots=True)
class Search:
    """One search: its budget, and what it met."""

    way: str
    folder: Path  #: for findings and what was met
    guard: Guard
    executions: int = 0
    known: set[str] = field(default_factory=set)  #: signatures
    _reported: float = 0.0

    def feed(self, data: bytes) -> None:
        """Give one input to the way in and keep it where it is a finding."""
        self.executions += 1
        finding = self.guard.attempt(data)
        if finding is not None and finding.signature not in self.known:
            self.known.add(finding.signature)
            name = hashlib.sha256(finding.signature.encode()).hexdigest()[:12]
            (self.folder / f"found-{name}").write_bytes(data)
            (self.folder / f"found-{name}.txt").write_text(
                f"{finding.signature}\n\n{finding.text}", encoding="utf-8", errors="replace"
            )
        if time.monotonic() - self._reported > 1:
            self.tell()

    def tell(self) -> None:
        """Write what was met so far: the fuzzer ends the process without a word to us."""
        self._reported = time.monotonic()
        path = self.folder / "met.json"
        path.write_text(json.dumps({"executions": self.executions, "findings": len(self.known)}))


def main() -> None:
    """`python -m fuzz.drive WAY FOLDER PARENT SECONDS SEED`; the sandbox is made in PARENT."""
    way, folder, parent, seconds, seed = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    warnings.simplefilter("error")
    with_atheris = importlib.util.find_spec("atheris") is not None
    target = _instrumented(way) if with_atheris else WAYS[way].target
    with sandbox(Path(parent)) as inside:
        search = Search(way, Path(folder), Guard(target, WAYS[way].limits, inside))
        for path in corpus.seeds(way):
            search.feed(path.read_bytes())
        engine = _by_atheris if with_atheris else _by_hypothesis
        engine(search, float(seconds), int(seed))
    search.tell()


def _instrumented(way: str) -> Callable[[bytes], None]:
    import atheris

    with atheris.instrument_imports(include=_INSTRUMENTED):
        return WAYS[way].target


def _by_atheris(search: Search, seconds: float, seed: int) -> None:
    import atheris

    words, largest = corpus.words(search.way), WAYS[search.way].largest

    def mutator(data: bytes, max_size: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutate(bytes(data), random, words, most=max_size)

    own = search.folder / "corpus"
    own.mkdir(exist_ok=True)
    options: dict[str, Any] = {
        "artifact_prefix": f"{search.folder}/",
        "max_len": largest,
        "max_total_time": int(seconds),
        "rss_limit_mb": _DATA_BYTES >> 20,
        "seed": seed,
        "timeout": int(WAYS[search.way].limits.seconds * 10 + 20),
        "verbosity": 0,
    }
    if dictionary := corpus.dictionary(search.way):
        options["dict"] = dictionary
    flags = [f"-{name}={value}" for name, value in options.items()]
    folders = [str(path) for path in (own, *corpus.seed_folders(search.way))]
    atheris.Setup([sys.argv[0], *flags, *folders], search.feed, custom_mutator=mutator)
    atheris.Fuzz()


def _by_hypothesis(search: Search, seconds: float, seed: int) -> None:
    """Mutations of seeds and plain bytes, in rounds until the time is up; no coverage guides it."""
    import hypothesis
    from hypothesis import strategies

    seeds = [path.read_bytes() for path in corpus.seeds(search.way)] or [b""]
    words, largest = corpus.words(search.way), WAYS[search.way].largest
    until, seed = time.monotonic() + seconds, seed or time.time_ns()

    def near(data: bytes, number: int, times: int) -> bytes:
        random = Random(number)
        for _ in range(times):
            data = mutate(data, random, words, most=largest)
        return data

    numbers = strategies.integers(0, 2**64 - 1)
    inputs = strategies.builds(
        near, strategies.sampled_from(seeds), numbers, strategies.integers(1, 12)
    ) | strategies.binary(max_size=largest)

    def feed(data: bytes) -> None:
        if time.monotonic() < until:
            search.feed(data)

    while time.monotonic() < until:
        once = hypothesis.settings(
            max_examples=500,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        hypothesis.seed(seed)(once(hypothesis.given(inputs)(feed)))()
        seed += 1


if __name__ == "__main__":
    main()
