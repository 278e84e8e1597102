"""python -m tests.mutation: plant bugs one at a time and list those that no test notices, of those that touch their places."""

import argparse
import hashlib
import itertools
import json
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.mutation import lua_mutators, python_mutators, sql_mutators
from tests.mutation.choice import LONG_BUDGET_S, ChosenTest, choose_tests
from tests.mutation.known_bugs import KNOWN_BUGS, KnownBug
from tests.mutation.mapping import complete_map
from tests.mutation.mutants import Mutant, name_mutants
from tests.mutation.nearest import is_mutated
from tests.mutation.runner import TIME_LIMIT_S, KnownBugTrial, SourceCopy, Trial, Verdict
from tests.mutation.survivors import SURVIVORS, read_explanations
from tests.mutation.touch_map import TouchMap
from tests.planting import PACKAGE

P = TypeVar("P")
T = TypeVar("T")
LOGGED = ("verdict", "seconds", "tests", "noticed_by", "has_hung")
FIND_EDITS = {".py": python_mutators.find_edits, ".sql": sql_mutators.find_edits, ".lua": lua_mutators.find_edits}


def find_mutants() -> Iterator[Mutant]:
    for path in sorted(PACKAGE.rglob("*")):
        file = path.relative_to(PACKAGE).as_posix()
        if path.suffix in FIND_EDITS and is_mutated(file):
            source = path.read_text()
            yield from name_mutants(file, source, FIND_EDITS[path.suffix](source))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.known:
        return _plant_known_bugs([bug for bug in KNOWN_BUGS if options.files in bug.file], options.processes)
    mutants = list(find_mutants())
    explained = read_explanations(SURVIVORS.read_text())
    for id in sorted(explained.keys() - {mutant.id for mutant in mutants}):
        print(f"survivors.md: {id} is no longer in the source")
    mutants = [mutant for mutant in mutants if options.files in mutant.file]
    if options.list:
        for mutant in mutants:
            print(_describe(mutant))
        return 0
    if options.only:
        chosen = [mutant for mutant in mutants if mutant.id in options.only]
    elif options.repeat:
        chosen = [mutant for mutant in mutants if mutant.id in explained]
    else:
        chosen = sorted(mutants, key=lambda mutant: _draw(mutant, options.seed))[: options.sample]
    print(f"{len(chosen)} of {len(mutants)} mutants, {options.processes} at a time, seed {options.seed}", flush=True)
    ends_at = time.monotonic() + 60 * options.minutes
    touch_map = complete_map(options.processes, anew=options.remap)
    known = _read_log(options.log, chosen) if options.resume else []
    left = [mutant for mutant in chosen if mutant.id not in {trial.mutant.id for trial in known}]
    trials = known + _try_all(left, touch_map, explained, options, ends_at)
    return _report(trials, explained, touch_map, shows_output=bool(options.only))


def _draw(mutant: Mutant, seed: int) -> str:
    """A smaller sample is the beginning of a larger one, and a change of the source leaves the rest of it."""
    return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants are tried")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no other mutant after so many minutes")
    parser.add_argument(
        "--known", action="store_true", help="the known bugs instead: each must be noticed by its tests"
    )
    parser.add_argument("--only", action="append", metavar="ID", help="this mutant, with what pytest prints")
    parser.add_argument("--repeat", action="store_true", help="those that survivors.md explains")
    parser.add_argument("--files", default="", metavar="TEXT", help="only files whose path has this text")
    parser.add_argument("--list", action="store_true", help="print the mutants, try none")
    parser.add_argument("--log", type=Path, help="append each trial to this file, as a line of JSON")
    parser.add_argument("--resume", action="store_true", help="what the log has is not tried again")
    parser.add_argument("--remap", action="store_true", help="trace anew what each test touches")
    return parser.parse_args(arguments)


def _try_all(
    mutants: Sequence[Mutant],
    touch_map: TouchMap,
    explained: Container[str],
    options: argparse.Namespace,
    ends_at: float,
) -> list[Trial]:
    trials: list[Trial] = []

    def keep(trial: Trial) -> None:
        trials.append(trial)
        print(f"{len(trials)}/{len(mutants)} {trial.verdict} {trial.seconds:.0f}s {trial.mutant.id}", flush=True)
        if options.log is not None:
            _append(options.log, trial)

    def attempt(copy: SourceCopy, mutant: Mutant) -> Trial:
        tests = choose_tests(mutant, touch_map)
        trial = copy.try_mutant(mutant, tests)
        if trial.verdict is not Verdict.SURVIVED or mutant.id in explained:
            return trial
        more = [test for test in choose_tests(mutant, touch_map, budget=LONG_BUDGET_S) if test not in tests]
        return copy.try_mutant(mutant, more) if more else trial

    _run_side_by_side(mutants, attempt, keep, options.processes, ends_at)
    return trials


def _plant_known_bugs(bugs: Sequence[KnownBug], processes: int) -> int:
    """A bug that one of its tests does not notice fails the run."""
    unnoticed: list[KnownBugTrial] = []
    numbers = itertools.count(1)

    def keep(trial: KnownBugTrial) -> None:
        verdict = "NOT NOTICED" if trial.unnoticed_by else "noticed"
        print(f"{next(numbers)}/{len(bugs)} {verdict} {trial.seconds:.0f}s {trial.bug.name}", flush=True)
        if trial.unnoticed_by:
            unnoticed.append(trial)

    _run_side_by_side(bugs, SourceCopy.try_known_bug, keep, processes, math.inf)
    for trial in unnoticed:
        print(
            f"\n{trial.bug.name} ({trial.bug.file}) is not noticed by {', '.join(trial.unnoticed_by)}\n{trial.output}"
        )
    print(f"known bugs: {len(bugs) - len(unnoticed)} of {len(bugs)} noticed by all of their tests")
    return 1 if unnoticed else 0


def _run_side_by_side(
    plants: Sequence[P],
    attempt: Callable[[SourceCopy, P], T],
    keep: Callable[[T], None],
    processes: int,
    ends_at: float,
) -> None:
    """Try each, in as many copies of the source as there are processes; `keep` is called for one at a time."""
    waiting: queue.SimpleQueue[P] = queue.SimpleQueue()
    for each in plants:
        waiting.put(each)
    mutex = threading.Lock()

    def work() -> None:
        with SourceCopy() as copy:
            while time.monotonic() < ends_at:
                try:
                    each = waiting.get_nowait()
                except queue.Empty:
                    return
                tried = attempt(copy, each)
                with mutex:
                    keep(tried)

    threads = [threading.Thread(target=work) for _ in range(max(1, min(processes, len(plants))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _append(log: Path, trial: Trial) -> None:
    line = {name: getattr(trial, name) for name in LOGGED} | {"id": trial.mutant.id}
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _read_log(log: Path, mutants: Sequence[Mutant]) -> list[Trial]:
    """The last trial of each."""
    lines = (json.loads(line) for line in log.read_text().splitlines()) if log.exists() else ()
    last = {line["id"]: line for line in lines}
    return [
        msgspec.convert({"mutant": mutant, **{name: last[mutant.id][name] for name in LOGGED}}, Trial)
        for mutant in mutants
        if mutant.id in last
    ]


def _report(trials: Sequence[Trial], explained: dict[str, str], touch_map: TouchMap, *, shows_output: bool) -> int:
    """Survivors without an explanation fail the run; so do trials that took too long, or whose test fails without a mutant."""
    survivors = [trial for trial in trials if trial.verdict is Verdict.SURVIVED]
    open_ones = [trial for trial in survivors if trial.mutant.id not in explained]
    for trial in trials if shows_output else ():
        print(f"\n{trial.output}")
    for trial in survivors:
        reason = explained.get(trial.mutant.id)
        tried = f"{trial.tests} tests" if trial.tests else "no test touches it"
        print(f"\n{'explained' if reason else 'SURVIVED'} ({tried}): {_describe(trial.mutant)}")
        if reason:
            print(f"  {reason}")
    unfit = _find_unfit_tests(trials, touch_map)
    for test in unfit:
        print(f"fails without a mutant as well, its verdicts do not count: {test}")
    total = len(trials)
    undecided = [trial for trial in trials if trial.verdict is Verdict.TIMED_OUT or trial.noticed_by in unfit]
    for trial in undecided:
        print(f"undecided, repeat it on a quieter machine: {_describe(trial.mutant)}")
    hung = sum(trial.has_hung for trial in trials)
    noticed = total - len(survivors) - len(undecided)
    print(f"\nnoticed {noticed} of {total} ({hung} of them by a test that hung, or by pytest itself)", end="")
    print(
        f"; undecided: {len(undecided)}; survivors: {len(survivors) - len(open_ones)} explained, {len(open_ones)} not"
    )
    relevant = total - len(undecided) - (len(survivors) - len(open_ones))
    print(f"of those that are not explained as harmless: {100 * noticed / max(1, relevant):.1f} %")
    return 1 if open_ones or undecided else 0


def _find_unfit_tests(trials: Sequence[Trial], touch_map: TouchMap) -> list[str]:
    """The tests that noticed something must pass on the source as it is, else they notice nothing."""
    noticing = {trial.noticed_by for trial in trials}
    tests = [ChosenTest(id, touch_map.tests[id].seconds) for id in sorted(noticing & touch_map.tests.keys())]
    if not tests:
        return []
    started = time.monotonic()
    with SourceCopy() as copy:
        code, _, _ = copy.run_chosen(tests, limit=10 * TIME_LIMIT_S)
        print(f"{len(tests)} tests that noticed, without a mutant: {time.monotonic() - started:.0f} s")
        if code == 0:
            return []
        return [test.id for test in tests if copy.run_chosen([test], limit=TIME_LIMIT_S)[0] != 0]


def _describe(mutant: Mutant) -> str:
    before, after = (" | ".join(line.strip() for line in text.splitlines()) for text in (mutant.before, mutant.after))
    return f"{mutant.id} line {mutant.line}\n  - {before}\n  + {after}"


if __name__ == "__main__":
    sys.exit(main())
