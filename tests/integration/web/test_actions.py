"""Actions on jobs from the page, on a real API server: permissions, refusals, and the messages that the page shows."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the development dependencies are older than this test")

from support.browser import Window, opened, require_chromium, started
from support.full_stack import System, full_stack
from tranche.auth.user_access import AUDIENCE

ROLES = {"editor": "edit", "viewer": "view"}


class Stage:
    """Running tranche, a browser, and an account for each role."""

    def __init__(self, system: System, browser: Any) -> None:
        self.system = system
        self.browser = browser

    def token(self, who: str) -> str:
        return self.system.cluster.kubectl("create", "token", who, f"--audience={AUDIENCE}").strip()

    def act(self, who: str, name: str, action: str, uid: str = "", **more: Any) -> tuple[int, str]:
        """Send an action as the page does; returns the status and the error."""
        body = {"action": action, "uid": uid or self.system.job(name)["metadata"]["uid"], **more}
        headers = {"Tranche-Token": self.token(who), "Tranche-Request": "page", "Content-Type": "application/json"}
        url = f"{self.system.stack.page_url}/v1/jobs/default/{name}/actions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["error"]

    def open(self, who: str, name: str) -> Any:
        return opened(self.browser, f"{self.system.stack.page_url}", token=self.token(who))

    def show(self, window: Window, name: str) -> None:
        window.page.locator(f"tbody a[href='#/jobs/default/{name}']").click()
        window.page.wait_for_selector("table:has(caption:text-is('Events')) tbody tr")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_chromium()
    with full_stack({"edge-a": {"gpus": 4}}) as system, started() as browser:
        kubectl = system.cluster.kubectl
        for who, role in ROLES.items():
            kubectl("create", "serviceaccount", who)
            kubectl("create", "rolebinding", who, f"--clusterrole={role}", f"--serviceaccount=default:{who}")
        for name in ("first", "second", "third"):
            system.submit(name, seconds=9000.0)
            system.until_phase(name, "Running")
        yield Stage(system, browser)


def test_actions_of_an_editor_change_the_job(stage: Stage) -> None:
    assert stage.act("editor", "first", "suspend") == (200, "")
    assert stage.system.job("first")["spec"]["suspend"] is True
    stage.system.until_phase("first", "Suspended")
    assert stage.act("editor", "first", "resume") == (200, "")
    stage.system.until_phase("first", "Running")
    assert stage.act("editor", "first", "weight", weight=3) == (200, "")
    job = stage.system.job("first")
    assert (job["spec"]["weight"], job["spec"]["suspend"]) == (3, False)
    assert "tranche-page" in {entry["manager"] for entry in job["metadata"]["managedFields"]}


def test_actions_are_refused_with_reason_and_without_effect(stage: Stage) -> None:
    before = stage.system.job("second")["spec"]
    status, reason = stage.act("viewer", "second", "suspend")
    assert (status, "is not allowed to patch trainingjobs" in reason) == (403, True)
    assert stage.act("viewer", "second", "delete")[0] == 403
    status, reason = stage.act("editor", "second", "weight", weight=-1)
    assert (status, "spec.weight" in reason) == (422, True)
    for action in ("suspend", "delete"):
        status, reason = stage.act("editor", "second", action, uid="00000000-0000-0000-0000-000000000000")
        assert (status, "was deleted and created again" in reason) == (409, True)
    assert stage.system.job("second")["spec"] == before


def test_an_action_is_confirmed_in_a_dialog(stage: Stage) -> None:
    with stage.open("editor", "second") as window:
        stage.show(window, "second")
        page = window.page
        assert page.locator(".job > div > div > .actions button").all_inner_texts() == [
            "Suspend",
            "Set weight",
            "Delete",
        ]
        page.get_by_role("button", name="Suspend", exact=True).click()
        page.get_by_role("heading", name="Suspend: default/second").wait_for()
        page.get_by_role("button", name="Cancel").click()
        assert stage.system.job("second")["spec"].get("suspend", False) is False
        page.get_by_role("button", name="Suspend", exact=True).click()
        page.locator("dialog button.suspend").click()
        page.get_by_role("button", name="Resume", exact=True).wait_for()
        assert stage.system.job("second")["spec"]["suspend"] is True
        page.get_by_role("button", name="Resume", exact=True).click()
        page.locator("dialog button.resume").click()
        page.get_by_role("button", name="Suspend", exact=True).wait_for()
        assert window.faults() == []


def test_a_rejection_is_shown_in_the_words_of_the_api_server(stage: Stage) -> None:
    with stage.open("editor", "second") as window:
        stage.show(window, "second")
        page = window.page
        page.get_by_role("button", name="Set weight").first.click()
        page.fill("#weight", "2000000")
        page.locator("dialog button.weight").click()
        page.locator("dialog .problem", has_text="should be less than or equal to 1e+06").wait_for()
        page.fill("#weight", "7")
        page.locator("dialog button.weight").click()
        page.wait_for_selector("dialog", state="hidden")
        assert stage.system.job("second")["spec"]["weight"] == 7
        window.expected = ("422",)
        assert window.faults() == []


def test_who_may_only_view_sees_no_buttons(stage: Stage) -> None:
    with stage.open("viewer", "second") as window:
        stage.show(window, "second")
        assert window.page.locator(".actions button:visible").count() == 0


def test_a_deleted_job_leaves_the_page(stage: Stage) -> None:
    with stage.open("editor", "third") as window:
        stage.show(window, "third")
        window.page.get_by_role("button", name="Delete", exact=True).click()
        window.page.locator("dialog button.delete").click()
        window.page.wait_for_url("**#/", timeout=120_000)
        stage.system.until("the job is gone", lambda: not stage.system.job("third"))
        window.page.wait_for_selector("a[href='#/jobs/default/third']", state="detached", timeout=120_000)


MANIFEST = """apiVersion: tranche.dev/v1alpha1
kind: TrainingJob
metadata:
  name: asked
spec:
  data: {chunks: 2, batchesPerChunk: 50}
  model: {stepTime: 1s}
  priorityClassName: tranche-high
  workers:
    maxReplicas: 2
    template:
      spec:
        containers: [{name: t, image: x, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""


def test_what_if_shows_start_end_and_delayed_jobs(stage: Stage) -> None:
    with stage.open("editor", "first") as window:
        page = window.page
        page.get_by_role("link", name="What if I submit a job?").click()
        page.fill("#manifest", MANIFEST.replace("stepTime", "stepSeconds"))
        page.get_by_role("button", name="Plan", exact=True).click()
        page.locator(".problem", has_text='unknown field "spec.model.stepSeconds"').wait_for()
        page.fill("#manifest", MANIFEST.replace("stepTime: 1s", "stepTimes: {A100: 1s}"))
        page.get_by_role("button", name="Plan", exact=True).click()
        page.locator(".problem", has_text="declare stepTime, the time on all others, too").wait_for()
        page.fill("#manifest", MANIFEST)
        page.get_by_role("button", name="Plan", exact=True).click()
        page.wait_for_selector("#h-answer")
        facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
        assert {"Planned start", "Planned completion", "Workers that would start at once"} <= set(facts)
        delayed = page.locator("table:has(caption:text-is('Delayed jobs')) tbody th").all_inner_texts()
        assert set(delayed) == {"default/first", "default/second"}, facts
        assert stage.system.job("asked") == {}
        assert "Note" not in facts
        window.expected = ("422",)
        assert window.faults() == []


def test_what_if_needs_the_right_to_create_jobs(stage: Stage) -> None:
    with stage.open("viewer", "first") as window:
        page = window.page
        page.get_by_role("link", name="What if I submit a job?").click()
        page.fill("#manifest", MANIFEST)
        page.get_by_role("button", name="Plan", exact=True).click()
        page.locator(".problem", has_text="is not allowed to create trainingjobs").wait_for()
        window.expected = ("403",)
        assert window.faults() == []
