"""How many small faults in shards, ledger and verdicts the tests find: the mutation score.

    pip install mutmut
    python -m benchmarks.mutation [--jobs N] [--schedules N] [--stages N] [--only TEXT]
        [--sample N] [--work FOLDER]

mutmut makes mutants, each with one change, of the modules in `MUTATED`. Each mutant runs in a
process of its own, through the stages of `STAGES` until one fails: schedules of the simulated fleet
and the modules' own tests, on SQLite and on PostgreSQL. A mutant that takes longer than
`LIMIT` is killed, too: it waits for ever. Printed are the score, what killed how many, and the
change of each survivor. `--only` keeps mutants whose name has this text, `--sample` draws so many
of them, the same ones each time. Modules of `NUMBERS` hold no protocol: their mutants run their own
tests alone.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _store(names: str) -> list[str]:
    return [f"tests/store/test_store_{name}.py" for name in names.split()]


_OF_CLAIMS = _store("claims breadcrumbs clock runs shard_messages results")
_LEASES = ["tests/workers/test_workers_lease.py"]
_CLAIM_TO_COMMIT = ["tests/workers/test_claim_to_commit.py"]
#: module -> its own tests
MUTATED = {
    "transexplain/store/shards.py": _OF_CLAIMS,
    "transexplain/store/results.py": _store("results claims runs shard_digests"),
    "workers/heartbeat.py": [*_LEASES, *_CLAIM_TO_COMMIT, *_store("clock")],
    "workers/claim_to_commit.py": _CLAIM_TO_COMMIT,
}
_GROUPS = "tests/analysis/groups"
#: module of the numbers -> its own tests
NUMBERS = {
    "transexplain/analysis/groups/verdict_rules.py": [
        f"{_GROUPS}/test_group_verdicts.py",
        f"{_GROUPS}/test_group_table.py",
    ],
    "transexplain/analysis/groups/group_verdicts.py": [f"{_GROUPS}/test_group_verdicts.py"],
    "transexplain/analysis/groups/mention_matching.py": [
        f"{_GROUPS}/test_groups_{name}.py" for name in ("matching", "cues", "finding", "families")
    ],
    "transexplain/engine/ledger.py": [
        f"tests/engine/test_engine_{name}.py" for name in ("conservation", "linear_rules")
    ],
}
MUTATED |= NUMBERS
LIMIT = 200.0  #: seconds for one stage of one mutant
_PACKAGES = ("transexplain", "workers", "orchestrator", "migrations")
#: tests where the databases differ: locks
RACES = _store("races claims")
#: sixteen seconds of starting processes
_SLOW = "test_processes_that_die_before_they_take_a_shard_are_not_replaced_for_ever"
_PYTEST = "-x -q -p no:cacheprovider -p no:xdist -o addopts= -o filterwarnings= --assert=plain"
_OF_THE_MODULE = 2  #: stage of a module's own tests
STAGES = ("schedules", "tests", "more schedules", "schedules on PostgreSQL", "tests on PostgreSQL")


def main() -> None:
    """Make the mutants, try each, print the figures."""
    options = _options()
    if options.inside:
        _try_all(options)
        return
    with contextlib.ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mutants = work / "copy" / "mutants"
        if not mutants.exists():
            _generate(work / "copy")
        inside = [*sys.argv[1:], "--inside", "--work", str(work)]
        path = os.pathsep.join((str(mutants), str(mutants / "tests" / "support")))
        subprocess.run(
            [sys.executable, "-m", "benchmarks.mutation", *inside],
            cwd=mutants,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            check=True,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--schedules", type=int, default=3, help="of each weather, on SQLite")
    parser.add_argument("--stages", type=int, default=len(STAGES), help="try the first N only")
    parser.add_argument("--only", default="", help="mutants whose name has this text")
    parser.add_argument("--sample", type=int, default=0, help="try N of them, drawn by a seed")
    parser.add_argument("--work", type=Path, help="a folder that is kept, so that a run goes on")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _generate(copy: Path) -> None:
    """A copy of the checkout, and in its folder `mutants` the code with every mutant in it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    others = sorted(one.name for one in copy.iterdir() if one.name not in (*_PACKAGES, "tests"))
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(
            f"\n[tool.mutmut]\nsource_paths = {json.dumps(_PACKAGES)}\n"
            f"only_mutate = {json.dumps(list(MUTATED))}\nalso_copy = {json.dumps(others)}\n"
        )
    script = (
        "from mutmut import __main__ as m\nfrom pathlib import Path\nPath('mutants').mkdir()\n"
        "m.copy_src_dir(); m.copy_also_copy_files(); m.create_mutants(2)"
    )
    environment = {**os.environ, "MUTANT_UNDER_TEST": "mutant_generation"}
    subprocess.run([sys.executable, "-c", script], cwd=copy, env=environment, check=True)


# --- in the copy, where the packages are the mutated ones


def _try_all(options: argparse.Namespace) -> None:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    outcomes_file = options.work / "outcomes.json"
    outcomes = json.loads(outcomes_file.read_text()) if outcomes_file.exists() else {}
    names = [name for name in _names() if options.only in name]
    if options.sample:
        names = sorted(random.Random(0).sample(names, min(options.sample, len(names))))
    template = options.work / "template.db"
    _make_template(template)
    running: dict[int, tuple[str, float]] = {}
    waiting = [name for name in names if name not in outcomes]
    _check_that_all_pass(options, template)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            running[_start(name, options, template)] = (name, time.monotonic())
        for child, (name, begun) in list(running.items()):
            if (outcome := _ended(child, begun)) is not None:
                del running[child]
                outcomes[name] = outcome
                outcomes_file.write_text(json.dumps(outcomes, indent=1))
                print(f"{len(outcomes)}/{len(names)} {name}: {outcome}", flush=True)
        time.sleep(0.02)
    os.chdir(options.work / "copy")
    survivors = [name for name in names if outcomes[name] == "survived"]
    for name in survivors:
        print(f"\n{name}\n{get_diff_for_mutant(name)}")
    for outcome, count in Counter(outcomes[name] for name in names).most_common():
        print(f"{outcome:40} {count:6}")
    print(f"{'score':40} {1 - len(survivors) / len(names):6.1%} of {len(names)} mutants")


def _names() -> Iterator[str]:
    for module in MUTATED:
        yield from json.loads(Path(f"{module}.meta").read_text())["exit_code_by_key"]


def _make_template(path: Path) -> None:
    from simulated_fleet import WEATHERS, Fleet

    from transexplain.store.revisions import open_database

    path.unlink(missing_ok=True)
    os.environ["MUTANT_UNDER_TEST"] = ""
    with open_database(f"sqlite:///{path}", upgrade=True) as db:
        Fleet(db, 0, WEATHERS["calm"]).play()  # imports what is imported late


def _check_that_all_pass(options: argparse.Namespace, template: Path) -> None:
    child = _start("", options, template)
    while (outcome := _ended(child, time.monotonic())) is None:
        time.sleep(0.1)
    if outcome != "survived":
        raise SystemExit(f"the code as it is does not pass: {outcome}; see {options.work}/log")


def _start(name: str, options: argparse.Namespace, template: Path) -> int:
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.environ["MUTANT_UNDER_TEST"] = name
    log = os.open(options.work / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 99
    try:
        code = _try_one(name, options, template)
    finally:
        os._exit(code)  # threads of a mutant may wait for ever


def _ended(child: int, begun: float) -> str | None:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended == 0 and time.monotonic() - begun < LIMIT * len(STAGES):
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if ended == 0:
        os.waitpid(child, 0)
        return "killed: it took too long"
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return "survived"
    if code == -signal.SIGALRM:
        return "killed: it took too long"
    if 0 < code <= len(STAGES):
        return f"killed by {STAGES[code - 1]}"
    return "killed: the process ended"


def _try_one(mutant: str, options: argparse.Namespace, template: Path) -> int:
    """The number of the stage that finds the change; 0: none does."""
    of = next((one for one in MUTATED if mutant.startswith(_dotted(one))), None)
    tests = sorted({test for found in MUTATED.values() for test in found})
    with tempfile.TemporaryDirectory() as folder:
        sqlite = Path(folder) / "store.db"
        shutil.copy(template, sqlite)
        stages = (
            partial(_schedules_hold, f"sqlite:///{sqlite}", range(1)),
            partial(_tests_pass, MUTATED[of] if of else tests, f"not postgresql and not {_SLOW}"),
            partial(_schedules_hold, f"sqlite:///{sqlite}", range(1, options.schedules)),
            _on_postgresql,
            partial(_tests_pass, RACES, "postgresql"),
        )
        for number, stage in enumerate(stages[: options.stages], start=1):
            if of in NUMBERS and number != _OF_THE_MODULE:
                continue
            signal.alarm(round(LIMIT))
            if not stage():
                return number
    return 0


def _dotted(module: str) -> str:
    return f"{module.removesuffix('.py').replace('/', '.')}."


def _schedules_hold(url: str, seeds: range) -> bool:
    from simulated_fleet import WEATHERS, Fleet

    from transexplain.store.revisions import open_database

    try:
        with open_database(url, upgrade=True) as db:
            db.engine.pool._max_overflow = 100  # type: ignore[attr-defined]
            for seed in seeds:
                for weather in WEATHERS.values():
                    Fleet(db, seed, weather).play()
    except BaseException:  # noqa: BLE001 - whatever a mutant raises, it is found
        return False
    return True


def _on_postgresql() -> bool:
    from benchmarks.services import own_database

    with own_database() as url:
        return _schedules_hold(url, range(1))


def _tests_pass(files: list[str], chosen: str) -> bool:
    import pytest

    return pytest.main([*files, *_PYTEST.split(), "-k", chosen]) == pytest.ExitCode.OK


if __name__ == "__main__":
    main()
