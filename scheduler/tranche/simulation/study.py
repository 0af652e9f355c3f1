"""Study: policies x loads x seeds, each cell a scenario; the results are the same to the digit wherever it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, product
from typing import TYPE_CHECKING

from tranche.policies import get_policy
from tranche.simulation.analysis.lower_bound import bound_seconds
from tranche.simulation.analysis.summary import Summary, summarize
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.recipe import Recipe
from tranche.simulation.scenario import OnProgress, Scenario, run

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from tranche.simulation.executors import Pool

NAMED = 10
"""Maximum number of jobs that could not run to name; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Single simulation of a study."""

    recipe: Recipe
    policy: str
    seed: int
    load: float | None = None
    """Load; None: arrivals unchanged."""
    bounded: bool = False
    """Whether to compute the lower bound, which is the same for every policy."""
    kept: bool = False
    """Whether to return every job's result, for pictures."""

    @property
    def name(self) -> str:
        """Name of the cell in messages."""
        load = "" if self.load is None else f"load {self.load:g}, "
        return f"{self.policy} ({load}seed {self.seed})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one cell."""

    policy: str
    seed: int
    load: float | None
    summary: Summary
    bound_seconds: float | None
    unfinished: int
    """Number of jobs that never completed."""
    reasons: tuple[tuple[str, str], ...]
    """Name and planner's explanation of the first `NAMED` of them."""
    completed: str
    """Digest of the names of the completed jobs: averages over different jobs must not be compared."""
    result: SimulationResult | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Error of a cell without a result."""

    name: str
    reason: str


Answer = Outcome | Failure


@dataclass(frozen=True, slots=True)
class Study:
    """Definition of a comparison."""

    recipe: Recipe
    policies: tuple[str, ...]
    """Policies without repetition; ratios are to `baseline`."""
    baseline: str
    loads: tuple[float | None, ...] = (None,)
    seeds: tuple[int, ...] = (1,)
    kept: bool = False
    """Whether to keep every job's result of the first seed's cells."""

    def cells(self, seeds: Sequence[int]) -> Iterator[Cell]:
        """Yield the cells of these seeds, by load, policy and seed."""
        for load in self.loads:
            for policy in self.policies:
                for seed in seeds:
                    kept = self.kept and seed == self.seeds[0]
                    yield Cell(self.recipe, policy, seed, load, policy == self.baseline, kept)


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Results in the order load, policy, seed."""

    outcomes: tuple[Outcome, ...]
    failures: tuple[Failure, ...]
    seedless: tuple[str, ...]
    """Policies for which all seeds gave the same figures at every load. Where nothing is drawn, two seeds were run."""
    resampled: bool = False
    """Whether the seeds differ by the log that was resampled from a given one."""


def run_study(study: Study, pool: Pool, on_progress: OnProgress | None = None) -> StudyResult:
    """Run all cells.

    Where neither the recipe nor the policy draws anything, two seeds of each load are run first, and further ones only
    if these two differ.

    Args:
        study: Definition of the comparison.
        pool: Executors for the cells; the figures do not depend on it.
        on_progress: Callback with the numbers of answered and of all cells.
    """
    total = len(study.policies) * len(study.loads) * len(study.seeds)
    done = 0

    def report_answers(count: int = 1) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    fixed = {policy for policy in study.policies if not (study.recipe.draws or get_policy(policy).draws)}
    further = study.seeds[2:]
    cells = [cell for cell in study.cells(study.seeds) if cell.seed not in further or cell.policy not in fixed]
    answers = list(zip(cells, run_cells(cells, pool, report_answers), strict=True))
    seedless = _seedless(answers)
    if repeated := _repeated(answers, {setting for setting in seedless if setting[1] in fixed}, further):
        report_answers(len(repeated))
    further_cells = [
        cell for cell in study.cells(further) if cell.policy in fixed and (cell.load, cell.policy) not in seedless
    ]
    answers += zip(further_cells, run_cells(further_cells, pool, report_answers), strict=True)
    answers += repeated
    order = {(load, policy): i for i, (load, policy) in enumerate(product(study.loads, study.policies))}
    answers.sort(key=lambda pair: (order[pair[0].load, pair[0].policy], study.seeds.index(pair[0].seed)))
    return StudyResult(
        tuple(answer for _, answer in answers if isinstance(answer, Outcome)),
        tuple(answer for _, answer in answers if isinstance(answer, Failure)),
        tuple(policy for policy in study.policies if all((load, policy) in seedless for load in study.loads)),
        study.recipe.resampled,
    )


def _seedless(answers: Sequence[tuple[Cell, Answer]]) -> set[tuple[float | None, str]]:
    """Return loads and policies whose seeds all gave the same figures."""
    settings: dict[tuple[float | None, str], list[Answer]] = {}
    for cell, answer in answers:
        settings.setdefault((cell.load, cell.policy), []).append(answer)
    return {setting for setting, group in settings.items() if _equal(group)}


def _repeated(
    answers: Sequence[tuple[Cell, Answer]], seedless: Collection[tuple[float | None, str]], seeds: Sequence[int]
) -> list[tuple[Cell, Answer]]:
    """Return the answers of the seeds that need not be run."""
    by_setting = {(cell.load, cell.policy): (cell, answer) for cell, answer in reversed(answers)}
    return [
        (replace(cell, seed=seed), replace(answer, seed=seed, result=None))
        for setting in seedless
        for cell, answer in [by_setting[setting]]
        if isinstance(answer, Outcome)
        for seed in seeds
    ]


def _equal(group: Sequence[Answer]) -> bool:
    """Return whether more than one seed was answered, and all alike."""
    outcomes = [answer for answer in group if isinstance(answer, Outcome)]
    figures = {repr((outcome.summary.as_dict(), outcome.completed)) for outcome in outcomes}
    return len(outcomes) == len(group) > 1 and len(figures) == 1


def run_cell(cell: Cell, on_progress: OnProgress | None = None) -> Outcome:
    """Simulate one cell in the current process.

    Raises:
        ValueError: The scenario cannot be built; the text says why.
    """
    scenario = cell.recipe.build(cell.policy, cell.seed, cell.load)
    return assess(cell, scenario, run(scenario, on_progress))


def assess(cell: Cell, scenario: Scenario, result: SimulationResult) -> Outcome:
    """Compute the figures of a run."""
    bound = lower_bound_seconds(scenario, result) if cell.bounded else None
    digest = blake2b("\n".join(sorted(job.key for job in result.jobs)).encode(), digest_size=16)
    reasons = tuple((job_name(key), reason) for key, reason in islice(result.unfinished.items(), NAMED))
    return Outcome(
        cell.policy,
        cell.seed,
        cell.load,
        summarize(result),
        bound,
        len(result.unfinished),
        reasons,
        digest.hexdigest(),
        result if cell.kept else None,
    )


def job_name(key: str) -> str:
    """Return the job's name as users know it: as in the log; without the default namespace."""
    return key.removeprefix("default/")


def lower_bound_seconds(scenario: Scenario, result: SimulationResult) -> float | None:
    """Return a lower bound of the average JCT over the completed jobs for every policy; None where no bound is valid.

    Where speeds are drawn, a worker may be faster than the scenario's value for its node, and the bound fails. A
    reference with free data movement (`PolicyTraits.free_data_movement`) may be below it.
    """
    jobs = [job for job in scenario.jobs if job.key not in result.unfinished]
    if not jobs or scenario.speed_sigma > 0:
        return None
    return bound_seconds(
        jobs, scenario.nodes, scenario.sites, uploads=not scenario.link_sigma, network=scenario.level_network
    )


def run_cells(cells: Sequence[Cell], pool: Pool, on_done: Callable[[], None]) -> list[Answer]:
    """Return answers in the order of the cells; a cell that fails, or kills its process, does not affect the others."""
    answers: dict[int, Answer] = {}

    def answer(index: int, result: Answer) -> None:
        answers[index] = result
        on_done()

    waiting = deque(range(len(cells)))
    while waiting:
        # Among cells that ran together, the cell whose process died is unknown: each of them runs again, alone.
        for suspect in _drain(cells, waiting, pool, pool.size, answer):
            if _drain(cells, deque([suspect]), pool, 1, answer):
                answer(suspect, Failure(cells[suspect].name, "its process died twice (out of memory?)"))
    return [answers[index] for index in range(len(cells))]


def _drain(
    cells: Sequence[Cell], waiting: deque[int], pool: Pool, at_once: int, answer: Callable[[int, Answer], None]
) -> list[int]:
    """Run until no cell waits, or until a process died; then return the places of the cells without an answer."""
    from concurrent.futures import FIRST_COMPLETED, wait  # a single run needs no executor

    running: dict[Future[Outcome], int] = {}
    executor = pool.open(min(at_once, len(waiting)))
    try:
        while waiting or running:
            if not _submit(cells, waiting, executor, at_once, running):
                return list(running.values())
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            broken = [running[future] for future in finished if _died(future)]
            for future in sorted(finished, key=running.__getitem__):
                place = running.pop(future)
                if place not in broken:
                    answer(place, _answer(cells[place], future))
            if broken:
                return sorted([*broken, *running.values()])
    except BaseException:
        pool.stop()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
    return []


def _submit(
    cells: Sequence[Cell],
    waiting: deque[int],
    executor: Executor,
    at_once: int,
    running: dict[Future[Outcome], int],
) -> bool:
    """Keep `at_once` cells running; return False if the pool is broken."""
    from concurrent.futures.process import BrokenProcessPool

    while waiting and len(running) < at_once:
        with suppress(BrokenProcessPool):
            running[executor.submit(run_cell, cells[waiting[0]])] = waiting[0]
            waiting.popleft()
            continue
        return False
    return True


def _died(future: Future[Outcome]) -> bool:
    from concurrent.futures.process import BrokenProcessPool

    return not future.cancelled() and isinstance(future.exception(), BrokenProcessPool)


def _answer(cell: Cell, future: Future[Outcome]) -> Answer:
    if future.cancelled():
        return Failure(cell.name, "it was cancelled by the cluster that ran it")
    error = future.exception()
    if error is None:
        return future.result()
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return Failure(cell.name, " ".join(f"{kind}{error}".split()))
