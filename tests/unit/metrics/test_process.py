import asyncio

from tranche.metrics.process import MAX_SAMPLES, ProcessMetrics


def crowded() -> ProcessMetrics:
    """With a metric of more series than are written at once."""
    metrics = ProcessMetrics("x")
    histogram = metrics.histogram("tranche_try_seconds", "A try.", ("namespace",), (1.0, 2.0))
    for number in range(MAX_SAMPLES):
        histogram.labels(f"ns-{number}").observe(1.5)
    return metrics


def test_scrape_yields_to_event_loop_and_keeps_metrics_together() -> None:
    metrics = crowded()

    async def scraped() -> tuple[bytes, int]:
        answer, turns = asyncio.ensure_future(metrics.read()), 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        return await answer, turns

    text, turns = asyncio.run(scraped())
    lines = text.decode().splitlines()
    ours = [number for number, line in enumerate(lines) if "tranche_try_seconds" in line]
    series = 5  # three buckets, sum, count
    assert ours == list(range(ours[0], ours[0] + 2 + series * MAX_SAMPLES))
    assert [line.split()[:2] for line in lines[ours[0] : ours[0] + 2]] == [["#", "HELP"], ["#", "TYPE"]]
    assert turns > series


def test_scrape_has_no_created_series() -> None:
    assert "_created" not in crowded().render().decode()
