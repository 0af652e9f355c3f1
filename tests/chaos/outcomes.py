"""Outcome of a round."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a round; as text, a line of `make chaos`."""

    seed: int
    done: list[str]
    """Descriptions of the faults."""
    seconds: float
    work: str
    """Description of the work that was checked."""
    settled: float
    """Seconds from the end of the last fault until all jobs had ended."""
    problems: list[str]

    def __str__(self) -> str:
        verdict = "ok" if not self.problems else f"FAILED: {'; '.join(self.problems)[:600]}"
        times = f"{self.seconds:.0f} s, settled in {self.settled:.0f} s"
        return f"seed {self.seed}: {times}, {self.work}: {', '.join(self.done)}: {verdict}"
