"""Reference of the phases of windows and jobs: what each means, and diagrams of the transitions that are checked."""

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from tranche.state.phases import ACTIVE_PHASES, JOB_TRANSITIONS, WINDOW_TRANSITIONS, JobPhase, WindowPhase
from tranche_codegen.reference.markdown_table import table

Phase = TypeVar("Phase", bound=Enum)

_HEAD = """\
# Phases of windows and jobs

Generated from the code by `make generate`; do not edit. These are the phases inside the planner. `status.phase` of a
job has [other values](trainingjob.md), since the operator derives it from the pods. The planner stores the phase of
each window, and derives the phase of a job from its state. The tables are in `WINDOW_TRANSITIONS` and `JOB_TRANSITIONS`
([architecture.md](../explanation/architecture.md#the-planner)). With `PlannerSettings.validate` the planner checks each
transition of a window when it takes place, and the phase of each job after every decision. A decision can cover several
events.
"""

_WINDOWS = """\
## Windows

A window is the time for which a worker pod trains chunks on a node. Its first phase is Pending; the last one is Ended.
A window that a job's plan carries over from an earlier planner begins as Pending, or as Closing if it was to stop.
"""

_JOBS = """\
## Jobs

Active jobs may get windows. A job whose first phase is not active was restored in it, or cannot be planned.
"""


def phases_page() -> str:
    """Return the text of docs/reference/phases.md."""
    halted = [phase for phase in JobPhase if phase not in ACTIVE_PHASES and phase is not JobPhase.FINISHED]
    groups = {"Active": ACTIVE_PHASES, "Halted": halted}
    return "\n".join(
        [
            _HEAD,
            _WINDOWS,
            table(("phase", "meaning"), _meanings(WindowPhase)),
            _diagram(WINDOW_TRANSITIONS, {}, WindowPhase.PENDING, WindowPhase.ENDED),
            _JOBS,
            table(("phase", "meaning"), _meanings(JobPhase)),
            _diagram(JOB_TRANSITIONS, groups, JobPhase.WAITING, JobPhase.FINISHED),
        ]
    )


def _meanings(kind: type[Enum]) -> Iterator[tuple[str, str]]:
    """Yield the value and the docstring of each member."""
    (body,) = [node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    for member, below in zip(body.body, body.body[1:], strict=False):
        match member, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                yield kind[name].value, " ".join(text.split())


def _diagram(
    transitions: Mapping[Phase, Mapping[Phase, str]], groups: Mapping[str, Collection[Phase]], first: Phase, last: Phase
) -> str:
    """Return a state diagram; an arrow from all phases of a group is drawn once, from the group.

    Args:
        transitions: Causes of the transitions from each phase to others.
        groups: Phases that are drawn in one box, by name of the box.
        first: Phase in which the diagram begins.
        last: Phase in which it ends.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
    for name, members in groups.items():
        lines += [f"    state {name} {{", *(f"        {phase.value}" for phase in members), "    }"]
    drawn: dict[str, None] = {}
    for phase, following in transitions.items():
        for target, text in following.items():
            source = _source(transitions, groups, phase, target)
            drawn[f"    {source} --> {target.value} : {text}"] = None
    return "\n".join(["```mermaid", *lines, *drawn, f"    {last.value} --> [*]", "```", ""])


def _source(
    transitions: Mapping[Phase, Mapping[Phase, str]],
    groups: Mapping[str, Collection[Phase]],
    phase: Phase,
    target: Phase,
) -> str:
    """Return the group of a phase if all its members have the same transition to the other phase, else the phase."""
    for name, members in groups.items():
        alike = all(transitions[member].get(target) == transitions[phase][target] for member in members)
        if phase in members and target not in members and alike:
            return name
    return str(phase.value)
