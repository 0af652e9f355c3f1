"""Changes of several pods for one reason are one event, counted by site."""

from tranche_operator.reconcile.actions import EmitEvent, EvictPod
from tranche_operator.reconcile.event_merge import merge, merged
from tranche_operator.reconcile.event_rules import eviction_events


def opened(number: int, site: str) -> EmitEvent:
    return EmitEvent("Normal", "WindowOpened", f"worker {number}, attempt 38, at site {site}", starts=((site, 1),))


def test_workers_that_start_together_are_counted_by_site() -> None:
    sites = ["edge-a"] * 4 + ["cloud"] * 8 + ["edge-b"]
    (event,) = merged([opened(number, site) for number, site in enumerate(sites)])
    assert event.message == "13 workers start: 8 at cloud, 4 at edge-a, 1 at edge-b"


def test_later_starts_are_added_to_the_counts() -> None:
    both = merge((merge([opened(0, "cloud"), opened(1, "edge-a")]), opened(2, "cloud")))
    assert both.message == "3 workers start: 2 at cloud, 1 at edge-a"


def test_single_start_names_worker_and_chunks() -> None:
    assert merged([opened(3, "cloud")]) == [opened(3, "cloud")]


def test_message_names_a_limited_number_of_sites() -> None:
    event = merge([opened(number, f"s{number:02}") for number in range(12)])
    assert event.message.endswith("1 at s07, 4 at 4 other sites")


def test_parameter_servers_and_workers_are_two_events() -> None:
    server = EmitEvent("Normal", "ParameterServerOpened", "parameter server 0", starts=(("cloud", 1),))
    first, second = merged([opened(0, "cloud"), server, opened(1, "cloud"), server])
    assert (first.message, second.message) == ("2 workers start: 2 at cloud", "2 parameter servers start: 2 at cloud")


def test_different_messages_are_joined_and_equal_ones_are_not() -> None:
    texts = ["Preempted by ns/b: pod 0 stops.", "Preempted by ns/c: pod 1 stops.", "Preempted by ns/b: pod 0 stops."]
    (event,) = merged([EmitEvent("Normal", "Preempting", text) for text in texts])
    assert event.message == "Preempted by ns/b: pod 0 stops; Preempted by ns/c: pod 1 stops."


def test_many_messages_are_cut_with_their_number() -> None:
    event = EmitEvent("Warning", "EvictionRefused", "pod 0")
    for number in range(1, 30):
        event = merge((event, EmitEvent("Warning", "EvictionRefused", f"pod {number}")))
    assert event.message == "pod 0; pod 1; pod 2; pod 3; and 26 more"


def test_warnings_are_not_mixed_with_what_is_normal() -> None:
    assert len(merged([EmitEvent("Normal", "R", "a", "1"), EmitEvent("Warning", "R", "b", "2")])) == 2


def test_pods_that_stop_for_one_cause_are_counted_by_site() -> None:
    why = "which has less work left"
    sites = ["cloud", "edge-a", "cloud"]
    evicted = [EvictPod(f"cats-worker-{i}-1", "u", 5, why, "ns/b", site) for i, site in enumerate(sites)]
    (event,) = eviction_events(evicted)
    assert event.message == (
        "Preempted by ns/b, which has less work left: 3 pods (2 at cloud, 1 at edge-a) stop within 5 s (grace period)."
    )
