"""Figures of each policy of a study, and their ratios to a baseline within each seed and load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tranche.simulation.analysis.confidence_interval import Estimate, estimate
from tranche.simulation.study import Outcome, StudyResult

RATIOS = ("average_jct_seconds", "p99_jct_seconds")
"""Figures whose ratios are computed."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of one policy at one load."""

    policy: str
    load: float | None
    seeds: tuple[int, ...]
    """Seeds that completed."""
    figures: Mapping[str, float]
    """Means over the seeds, by the names of `Summary.as_dict`."""
    bound_seconds: float | None
    """Mean over the seeds of the lower bound of the average JCT. None if there is none, or if for some seed the policy
    completed other jobs than the baseline: the bound of other jobs is none for its average."""
    ratios: Mapping[str, Estimate]
    """Ratios to the baseline, by the names of `RATIOS`: mean over seeds of the ratio within one. Empty if no seed has
    both policies completing the same jobs."""
    incomparable: tuple[int, ...]
    """Seeds left out of the ratios, because the two policies did not complete the same jobs."""


def compare(study: StudyResult, baseline: str) -> list[Comparison]:
    """Return a comparison for each load and policy, in the order of the study."""
    groups: dict[tuple[float | None, str], list[Outcome]] = {}
    for outcome in study.outcomes:
        groups.setdefault((outcome.load, outcome.policy), []).append(outcome)
    return [
        _compared(
            group,
            {outcome.seed: outcome for outcome in groups.get((load, baseline), [])},
            seedless={policy, baseline} <= {*study.seedless},
            resampled=study.resampled,
        )
        for (load, policy), group in groups.items()
    ]


def _compared(
    group: Sequence[Outcome], baseline: Mapping[int, Outcome], *, seedless: bool, resampled: bool
) -> Comparison:
    figures = [outcome.summary.as_dict() for outcome in group]
    pairs = [(outcome, baseline[outcome.seed]) for outcome in group if outcome.seed in baseline]
    alike = [(ours, theirs) for ours, theirs in pairs if ours.completed == theirs.completed]
    bounds = [theirs.bound_seconds for _, theirs in alike if theirs.bound_seconds is not None]
    return Comparison(
        group[0].policy,
        group[0].load,
        tuple(outcome.seed for outcome in group),
        {name: fmean(figure[name] for figure in figures) for name in figures[0]},
        fmean(bounds) if len(bounds) == len(group) else None,
        _ratios(alike, seedless=seedless, resampled=resampled),
        tuple(ours.seed for ours, theirs in pairs if ours.completed != theirs.completed),
    )


def _ratios(pairs: Sequence[tuple[Outcome, Outcome]], *, seedless: bool, resampled: bool) -> dict[str, Estimate]:
    """Return the ratios; seeds that change nothing count as one, because a repeated figure is no evidence."""
    ratios: dict[str, Estimate] = {}
    for name in RATIOS:
        figures = [(ours.summary.as_dict()[name], theirs.summary.as_dict()[name]) for ours, theirs in pairs]
        values = [ours / theirs for ours, theirs in figures if theirs > 0]
        if values:
            ratios[name] = estimate(values[:1] if seedless else values, resampled=resampled)
    return ratios
