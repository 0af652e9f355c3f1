"""The page in headless Chromium, served by a running tranche: it shows the state of the cluster."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.installed_cluster import installed_cluster

pytest.importorskip("playwright", reason="the development dependencies are older than this test")

from support.browser import PHONE, Window, opened, require_chromium, started
from support.full_stack import System, declare_site
from support.stopped_process import stopped
from tranche.demo.local_stack import Stack
from tranche.demo.page_account import create_visitor, visitor_token
from tranche_testcluster import Cluster

CHECKS = Path(__file__).with_name("checks.js").read_text()
HOSTILE = "<img src=x onerror=alert(1)>"


class Stage:
    """Three jobs on the demo's cluster: one preempted and running, one that preempted it, one that waits."""

    def __init__(self, system: System, browser: Any) -> None:
        self.system = system
        self.browser = browser
        self.url = system.stack.page_url
        self.token = visitor_token(system.cluster)

    def open(self, **options: Any) -> Any:
        return opened(self.browser, self.url, token=self.token, **options)


def create_sites(cluster: Cluster) -> None:
    """Three edge sites of four GPUs and a cloud of eight."""
    for name, gpus in (("edge-a", 2), ("edge-b", 2), ("edge-c", 2), ("cloud", 4)):
        cluster.add_site(name, nodes=2, gpus=gpus)
        declare_site(cluster, name, tier="Cloud" if name == "cloud" else "Edge")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_chromium()
    with installed_cluster() as cluster:
        create_sites(cluster)
        create_visitor(cluster)
        options = ["--estimate-seconds", "1"]
        with Stack(cluster, scheduler_options=options) as stack, started() as browser:
            system = System(cluster, stack)
            system.submit("resnet", chunks=20, seconds=2000.0)
            system.until("resnet runs everywhere", lambda: len(running(system, "resnet")) == 20)
            system.submit("urgent", chunks=4, seconds=3000.0, priorityClassName="tranche-high")
            system.until_running("urgent", 4)
            system.until("four workers are preempted", lambda: preemptions(system, "resnet") == 4)
            system.until_phase("urgent", "Running")
            system.submit("waiting", chunks=2, seconds=4500.0, gpus=4)
            system.until("a plan", lambda: system.status("waiting").get("plan", {}).get("estimatedCompletion"))
            yield Stage(system, browser)


def running(system: System, name: str) -> list[dict[str, Any]]:
    return [pod for pod in system.pods(name) if pod["status"]["phase"] == "Running"]


def preemptions(system: System, name: str) -> int:
    return int(system.status(name).get("progress", {}).get("preemptions", 0))


def ready(window: Window) -> None:
    if window.page.viewport_size == PHONE:  # sites are closed there, because they take much of the screen
        window.page.locator(".site summary").first.click()
    window.page.wait_for_selector(".lanes .bar a")
    window.page.wait_for_selector(".waiting tbody tr")


def no_faults(window: Window, stage: Stage) -> None:
    assert window.faults() == []
    assert window.hosts == {stage.url.removeprefix("http://")}


def test_page_without_token_shows_login_and_rejects_bad_token(stage: Stage) -> None:
    with opened(stage.browser, stage.url) as window:
        window.page.wait_for_selector("#login")
        assert "resnet" not in window.page.content()
        window.page.fill("#token", "nonsense")
        window.page.keyboard.press("Enter")
        window.page.locator(".problem", has_text="rejected this token").wait_for()
        window.page.fill("#token", stage.token)
        window.page.keyboard.press("Enter")
        ready(window)
        window.page.click("#leave")
        window.page.wait_for_selector("#login")
        assert window.page.evaluate("sessionStorage.getItem('tranche-token')") is None
        window.expected = ("401",)
        no_faults(window, stage)


def test_a_token_in_the_link_leaves_the_address_at_once(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        assert stage.token not in window.page.url
        assert stage.token not in window.page.content()
        assert window.page.evaluate("document.cookie") == ""


def test_the_timeline_shows_every_window_of_the_running_jobs(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        for name in ("resnet", "urgent"):
            planned = stage.system.status(name)["plan"]["workers"]
            due = {f"worker {w['index']}, attempt {w['attempt']}," for w in planned if w["state"] == "Open"}
            window.page.wait_for_function(
                "([name, count]) => document.querySelectorAll(`.bar.running a[href='#/jobs/default/${name}']`).length"
                " === count",
                arg=[name, len(due)],
            )
            labels = window.page.locator(f".bar.running a[href='#/jobs/default/{name}']").evaluate_all(
                "bars => bars.map(bar => bar.getAttribute('aria-label'))"
            )
            assert all(any(part in label for label in labels) for part in due)
        no_faults(window, stage)


def test_job_bars_differ_in_colour_and_now_line_avoids_labels(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        window.page.wait_for_selector(".bar.later a[href='#/jobs/default/waiting']")
        painted, struck = window.page.evaluate(
            """() => {
            const painted = {}, struck = [];
            for (const bar of document.querySelectorAll(".track .bar")) {
                const link = bar.firstChild, track = bar.parentNode.getBoundingClientRect();
                painted[link.textContent] = [...bar.classList].find((name) => /^c[0-5]$/.test(name));
                const text = document.createRange();
                text.selectNodeContents(link);
                const [at, line] = [text.getBoundingClientRect(), getComputedStyle(bar.parentNode, "::after").left];
                const now = track.left + parseFloat(line);
                if (at.left <= now && now <= at.right) struck.push(link.textContent);
            }
            return [painted, struck]; }"""
        )
        assert set(painted) == {"resnet", "urgent", "waiting"}
        assert len(set(painted.values())) == 3
        assert struck == []


def test_waiting_job_shows_status_explanation_and_planned_start(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)

        def agree() -> bool:
            plan = stage.system.status("waiting")["plan"]
            row = window.page.locator(".waiting tbody tr").first
            shown = row.locator("td[data-label='Why it waits']").inner_text()
            start = row.locator("td[data-label='Planned start'] time").get_attribute("datetime")
            return bool(start) and (shown, start) == (plan["explanation"], plan.get("estimatedStart"))

        stage.system.until("page and status agree", agree)
        bars = window.page.locator(".bar.later a[href='#/jobs/default/waiting']")
        labels = bars.evaluate_all("bars => bars.map(bar => bar.getAttribute('aria-label'))")
        assert [", 4 GPUs, " in label for label in labels] == [True, True]
        rows = bars.evaluate_all("bars => bars.map(bar => bar.offsetHeight / bar.closest('.track').offsetHeight)")
        assert min(rows) > 0.8, "a worker of four GPUs takes all four rows of its node"


def test_timeline_reaches_to_the_end_of_the_plan(stage: Stage) -> None:
    """The four chunks that urgent displaced follow in later windows, up to the planned completion."""
    with stage.open() as window:
        ready(window)

        def agree() -> bool:
            later = stage.system.read("timeline/cloud")["lanes"] + [
                lane for site in "abc" for lane in stage.system.read(f"timeline/edge-{site}")["lanes"]
            ]
            ends = [bar["end"] for lane in later for bar in lane["bars"] if bar["job"] == "resnet"]
            planned = stage.system.status("resnet")["plan"].get("estimatedCompletion", "")
            return bool(planned) and max(ends, default="")[:16] == planned[:16]

        stage.system.until("the last window ends with the plan", agree)
        window.page.wait_for_selector(".bar.later a[href='#/jobs/default/resnet']")
        assert window.page.locator(".legend li").all_inner_texts() == [
            "trains",
            "starts",
            "stops",
            "planned later",
            "waiting job, expected start",
            "assumed duration",
            "now",
            "one color for each job; the height of a bar is its number of GPUs",
        ]


def test_overview_starts_with_totals_and_the_waiting_jobs(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        titles = [text.split()[0] for text in window.page.locator("main h2").all_inner_texts()]
        assert titles == ["Waiting", "Sites", "Running", "Finished"]
        names = window.page.locator(".totals dt").all_inner_texts()
        values = window.page.locator(".totals .value").all_inner_texts()
        totals = dict(zip(names, values, strict=True))
        assert totals == {"Waiting": "1", "Running": "2", "GPUs in use": "20 of 20", "Average JCT today": "–"}
        progress = window.page.locator(".running td[data-label='Trained']").all_inner_texts()
        assert all(re.fullmatch(r"[\d.]+ %, \d+/\d+ chunks", text) for text in progress), progress


def test_jobs_are_sorted_filtered_and_found(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        page = window.page

        def shows(*names: str) -> None:
            page.wait_for_function(
                "names => JSON.stringify([...document.querySelectorAll('.running tbody a')]"
                ".map(a => a.textContent)) === JSON.stringify(names)",
                arg=[f"default/{name}" for name in names],
            )

        header = page.locator(".running thead button", has_text="Job")
        header.click()
        shows("resnet", "urgent")
        assert page.locator(".running th[aria-sort]").get_attribute("aria-sort") == "ascending"
        header.click()
        shows("urgent", "resnet")
        page.fill("#find", "URG")
        shows("urgent")
        page.fill("#find", "")
        page.select_option("#phase", "Waiting")
        page.wait_for_selector(".jobs.running", state="hidden")
        assert page.locator(".waiting tbody tr").count() == 1
        page.select_option("#phase", "")
        shows("urgent", "resnet")
        no_faults(window, stage)


def test_each_site_shows_what_the_jobs_have_used_there(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        due: dict[str, int] = {}

        def agree() -> bool:
            due.clear()
            for name in ("resnet", "urgent", "waiting"):
                for one in stage.system.status(name).get("progress", {}).get("sites", []):
                    due[one["site"]] = due.get(one["site"], 0) + one.get("gpuSeconds", 0)
            names = window.page.locator(".site summary .name").all_inner_texts()
            said = dict(zip(names, window.page.locator(".site summary .used").all_inner_texts(), strict=True))
            shown = {name: text.partition(",")[0] for name, text in said.items() if text}
            return shown == {name: f"used so far: {seconds} GPU-seconds" for name, seconds in due.items() if seconds}

        stage.system.until("page and statuses agree", agree)
        assert sum(due.values()) > 0, "four workers were preempted"


def test_a_jobs_page_shows_preemptions_chunks_windows_and_events(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        window.page.locator(".running tbody a", has_text="default/resnet").click()
        window.page.wait_for_selector(".job .sentence")
        window.page.wait_for_selector("table:has(caption:text-is('Events')) tbody tr")
        status = stage.system.status("resnet")
        assert status["progress"]["preemptions"] == 4
        facts = dict(
            zip(window.page.locator("dt").all_inner_texts(), window.page.locator("dd").all_inner_texts(), strict=True)
        )
        assert facts["Preemptions"].startswith("4")
        ended = window.page.locator("table:has(caption:text-is('Ended pods')) tbody tr").all_inner_texts()
        assert len(ended) == 4
        assert all("Preempted" in row for row in ended)
        attempts = reversed(status["progress"]["attempts"])
        assert all(one["preemptedBy"] in row for one, row in zip(attempts, ended, strict=True))
        assert all("preempted by" in row and "work lost" in row for row in ended)
        assert window.page.locator(".cells li").count() == 20
        assert window.page.locator(".cells li.open").count() == len(status["plan"]["workers"])
        noted = window.page.locator("table:has(caption:text-is('Events')) tbody tr").all_inner_texts()
        assert any("Preempted" in row or "WindowOpened" in row for row in noted)
        used = window.page.locator("table:has(caption:text-is('Use of sites')) tbody tr").all_inner_texts()
        assert len(used) == len(status["progress"]["sites"])
        assert all("GPU-seconds" in row for row in used)
        assert re.match(r"[\d.]+ %: \d+ of 1000 mini-batches trained", window.page.locator(".progress").inner_text())
        preemptor = status["progress"]["attempts"][0]["preemptedBy"]
        window.page.evaluate(f"location.hash = '#/jobs/{preemptor}'")
        window.page.wait_for_selector("table:has(caption:text-is('Preempted jobs')) tbody tr")
        stopped = window.page.locator("table:has(caption:text-is('Preempted jobs')) tbody tr").all_inner_texts()
        assert any("default/resnet" in row for row in stopped)
        no_faults(window, stage)


def test_job_page_uses_sentences_in_place_of_internal_terms(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        window.page.locator(".running tbody a", has_text="default/resnet").click()
        window.page.wait_for_selector("table:has(caption:text-is('Events')) tbody tr")
        assert {"Plan", "Q at dispatch"} & set(window.page.locator("dt, th:visible").all_inner_texts()) == set()
        rows = window.page.locator("table:has(caption:text-is('Conditions')) tbody tr")
        told = {
            row.locator("th").inner_text(): row.locator("td[data-label='Meaning']").inner_text() for row in rows.all()
        }
        assert told["Planned"] == "the job has a plan"
        assert told["Running"] == "workers run"
        reasons = {c["reason"] for c in stage.system.status("resnet")["conditions"]}
        assert reasons & set(told.values()) == set()


def test_commands_of_the_job_page_run_and_can_be_copied(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        window.page.locator(".running tbody a", has_text="default/resnet").click()
        window.page.get_by_text("Commands", exact=True).click()
        window.page.locator(".commands dt").first.wait_for()
        names = window.page.locator(".commands dt").all_inner_texts()
        commands = dict(zip(names, window.page.locator(".commands code").all_inner_texts(), strict=True))
        assert {"Logs and ended attempts", "YAML", "Suspend", "Delete"} <= set(commands)
        for name in ("YAML", "Suspend", "Delete"):
            words = shlex.split(commands[name])[1:]
            assert "resnet" in stage.system.cluster.kubectl(*words, *([] if name == "YAML" else ["--dry-run=server"]))
        window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        window.page.get_by_role("button", name="Copy: YAML").click()
        window.page.get_by_text("copied", exact=True).wait_for()
        assert window.page.evaluate("navigator.clipboard.readText()") == commands["YAML"]
        no_faults(window, stage)


def test_page_updates_without_reload_and_keeps_focus(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        window.page.evaluate("window.notReloaded = true")
        window.page.locator(".waiting tbody a").first.focus()
        stage.system.submit("newcomer", chunks=2, seconds=4500.0, gpus=4)
        window.page.wait_for_selector(".waiting a[href='#/jobs/default/newcomer']", timeout=120_000)
        assert window.page.evaluate("window.notReloaded")
        assert window.page.evaluate("document.activeElement.textContent") == "default/waiting"
        stage.system.delete("newcomer")
        window.page.wait_for_selector(".waiting a[href='#/jobs/default/newcomer']", state="detached", timeout=120_000)
        no_faults(window, stage)


def test_page_shows_scheduler_outage_and_reconnects(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        stage.system.stack.kill("scheduler")
        window.page.wait_for_selector("#live.off", timeout=120_000)
        assert window.page.locator(".lanes .bar").count() > 0
        stage.system.stack.start_scheduler()
        window.page.wait_for_selector("#live.on", timeout=120_000)
        window.expected = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "503")
        no_faults(window, stage)


def test_page_says_that_the_planner_does_not_respond(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        with stopped(stage.system.children()["planner"]):
            window.page.wait_for_selector("#live.off", timeout=120_000)
            assert "the planner does not respond" in window.page.inner_text("#live")
        window.page.wait_for_selector("#live.on", timeout=120_000)
        no_faults(window, stage)


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_needs_sideways_scrolling(stage: Stage, dark: bool) -> None:
    with stage.open(size=PHONE, dark=dark) as window:
        ready(window)
        assert overflow(window) == []
        window.page.click("text=As a table")
        window.page.wait_for_selector(".site table:not([hidden])")
        assert overflow(window) == []
        window.page.locator(".running tbody a").first.click()
        window.page.wait_for_selector(".job .sentence")
        assert overflow(window) == []
        no_faults(window, stage)


def test_chunk_plan_on_a_phone_names_nodes_created_on_demand(stage: Stage) -> None:
    with stage.open(size=PHONE) as window:

        def move(route: Any) -> None:
            told = route.fetch().json()
            told["chunks"] = [{**one, "site": "cloud", "node": "", "onDemand": True} for one in told["chunks"]]
            route.fulfill(json=told)

        window.page.route("**/chunks*", move)
        window.page.locator(".running tbody a", has_text="resnet").first.click()
        table = window.page.locator("table:has(caption:text-is('Plan of each chunk'))")
        table.locator("tbody tr").first.wait_for()
        assert set(table.locator("td[data-label=Site]").all_inner_texts()) == {"cloud"}
        assert set(table.locator("td[data-label=Node]").all_inner_texts()) == {"created on demand"}
        assert overflow(window) == []
        no_faults(window, stage)


def test_overview_on_a_phone_fits_three_screens(stage: Stage) -> None:
    """Many jobs: the answer of the API is multiplied on its way."""
    with stage.open(size=PHONE) as window:

        def multiply(route: Any) -> None:
            told = route.fetch().json()
            for group in ("waiting", "running"):
                jobs = told[group]["jobs"]
                many = [{**job, "name": f"{job['name']}-{number}"} for number in range(20) for job in jobs]
                told[group] = {"total": len(many), "jobs": many}
            over = {"phase": "Succeeded", "completed": told["running"]["jobs"][0]["created"]}
            told["finished"] = {"total": 40, "jobs": [{**job, **over} for job in told["running"]["jobs"]]}
            route.fulfill(json=told)

        window.page.route("**/v1/overview*", multiply)
        window.page.reload()
        window.page.wait_for_selector(".finished tbody tr")
        assert window.page.locator(".waiting tbody tr").count() >= 3
        assert window.page.evaluate("document.documentElement.scrollHeight") <= 3 * PHONE["height"]
        assert overflow(window) == []
        window.page.unroute_all(behavior="ignoreErrors")


def overflow(window: Window) -> list[str]:
    found: list[str] = window.page.evaluate(
        """() => [...document.querySelectorAll("body *:not(.skip)")].filter(
            (e) => !e.closest(".track, .axis, caption, label span") && e.getBoundingClientRect().right > innerWidth + 1
        ).map((e) => e.outerHTML.slice(0, 120))"""
    )
    wide = window.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*found, *(["the page"] if wide else [])]


def test_keyboard_reaches_every_control_with_visible_focus(stage: Stage) -> None:
    with stage.open() as window:
        ready(window)
        due = window.page.locator("a:visible, button:visible, input:visible, select:visible, summary:visible").count()
        window.page.evaluate("document.activeElement.blur()")
        seen: set[str] = set()
        for _ in range(due + 30):
            window.page.keyboard.press("Tab")
            at, outline = window.page.evaluate(
                """() => { const e = document.activeElement;
                if (e === document.body) return ["", "body"];
                e.dataset.seen ??= String(document.querySelectorAll("[data-seen]").length);
                return [e.dataset.seen, getComputedStyle(e).outlineStyle]; }"""
            )
            assert outline != "none", at
            seen.add(at)
        assert len(seen - {""}) >= due
        window.page.locator(".lanes .bar a").first.focus()
        window.page.keyboard.press("Enter")
        window.page.wait_for_selector(".job .sentence")
        no_faults(window, stage)


def test_everything_has_a_name_a_role_and_enough_contrast(stage: Stage) -> None:
    for dark in (False, True):
        with stage.open(dark=dark) as window:
            ready(window)
            assert window.page.evaluate(CHECKS) == []
            window.page.locator(".running tbody a").first.click()
            window.page.wait_for_selector(".job .sentence")
            assert window.page.evaluate(CHECKS) == []


def test_what_users_write_stays_text(stage: Stage) -> None:
    """No name can hold markup, but messages can; here the answers of the API are changed on their way."""
    with stage.open() as window:
        ready(window)

        def poison(route: Any) -> None:
            answer = route.fetch()
            text = answer.text().replace("resnet", HOSTILE).replace("waits for", f"{HOSTILE} waits for")
            route.fulfill(response=answer, body=text)

        window.page.route("**/v1/overview*", poison)
        window.page.route("**/v1/timeline/*", poison)
        window.page.reload()
        window.page.wait_for_selector(f".running a:has-text('{HOSTILE}')")
        assert window.page.locator("img[src=x]").count() == 0
        assert HOSTILE in window.page.locator(".waiting td[data-label='Why it waits']").first.inner_text()
        blocked = window.page.evaluate(
            "() => { try { document.body.innerHTML = '<p>markup</p>'; return 'made'; } catch (e) { return e.name; } }"
        )
        assert blocked == "TypeError"
        window.page.unroute_all(behavior="ignoreErrors")


def test_no_other_page_may_frame_it(stage: Stage) -> None:
    page = stage.browser.new_page()
    try:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.set_content(f"<iframe src='{stage.url}/'></iframe>")
        stage.system.until("the browser refuses", lambda: page.wait_for_timeout(100) or any("frame" in s for s in said))
        assert all(frame.locator("#login").count() == 0 for frame in page.frames)
    finally:
        page.close()
