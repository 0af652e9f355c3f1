"""State of parameter servers and chiefs."""

from dataclasses import dataclass

from tranche.model import PlannedServer, Resources, WindowState


@dataclass(slots=True, eq=False)
class Server:
    """A parameter server, or the chief of a gang, that has been placed."""

    planned: PlannedServer
    requests: Resources
    since: float = 0.0
    """When it was placed, or restored with its place, in seconds on the planner's clock."""
    homeless: bool = False
    """Whether its pod was never scheduled, so that it holds no state that could be lost."""

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.planned.state is WindowState.CLOSING
