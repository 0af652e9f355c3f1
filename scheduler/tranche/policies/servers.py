"""Parameter servers and chiefs as the planner knows them."""

from dataclasses import dataclass

from tranche.model import PlannedServer, Resources, WindowState


@dataclass(slots=True, eq=False)
class Server:
    """A parameter server, or the chief of a gang, that has a place."""

    planned: PlannedServer
    requests: Resources
    since: float = 0.0
    """When it got its place, or was taken over with it."""
    homeless: bool = False
    """Its pod found no node, so it has never held anything that could be lost."""

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.planned.state is WindowState.CLOSING
