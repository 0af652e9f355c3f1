"""Settings of the controller."""

from collections.abc import Mapping
from dataclasses import dataclass

from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.kube.convert.container_start import StartProblem


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of the controller."""

    gpu_resources: GpuResources = GPU_RESOURCES
    """Resource name of the planned GPUs; ``cpu`` plans whole cores."""
    estimate_seconds: float = 300.0
    """Least change of an estimate, in seconds, after which it is written again; `estimate_fraction` applies too."""
    estimate_fraction: float = 0.1
    """Least change of an estimate, as a fraction of the remaining time, after which it is written again."""
    progress_seconds: float = 10.0
    """Least time between two writes of a running job's progress if nothing else changes, in seconds."""
    progress_share: float = 0.01
    """Least change of that progress, as a fraction of the job, after which it is written again."""
    tenancy_seconds: float = 5.0
    """Time between two checks of the mounted limits of namespaces."""
    tick_seconds: float = 1.0
    """Maximum time between two checks of timers."""
    missing_pod_seconds: float = 0.5
    """Time after which a closing window without a pod is treated as ended: the operator has not created the pod. If it
    creates the pod later, it deletes it as unplanned."""
    unschedulable_seconds: float = 30.0
    """Time after which a pod that kube-scheduler finds unschedulable is planned again, in addition to the longest grace
    period of a pod that is terminating on the planned node."""
    scheduler_silence_seconds: float = 30.0
    """Time without a decision of kube-scheduler, while pods wait for one, after which preemption pauses."""
    provisioning_seconds: float = 630.0
    """The same for pods with claims, which wait for their volumes; kube-scheduler gives up after 10 minutes."""
    node_start_seconds: float = 900.0
    """The same for a pod at an unlimited site, where the autoscaler first creates a node. Cluster Autoscaler gives up
    after 15 minutes (``--max-node-provision-time``)."""
    start_error_seconds: float = 60.0
    """Time after which a bound pod fails that cannot start without a change: invalid image name, missing ConfigMap or
    Secret, or a container that the runtime does not create."""
    image_pull_seconds: float = 600.0
    """The same for an image that cannot be pulled."""
    pod_start_seconds: float = 1800.0
    """The same for a pod whose kubelet reports no reason, such as one that waits for a volume or pulls a large image.
    It counts from the binding of the pod."""
    forecast_share: float = 0.1
    """Maximum share of the time that forecasts may take."""
    forecast_piece_seconds: float = 0.003
    """Length of one forecast step; after each step, the event loop serves other tasks for the same time."""
    forecast_quiet_seconds: float = 0.3
    """Time without events before a forecast starts, because the extender calls for new pods use the same process."""
    forecast_patience_seconds: float = 5.0
    """Maximum delay of a forecast after an event. While events follow each other, each forecast is soon obsolete."""
    forecast_hold_seconds: float = 60.0
    """The same while many statuses with estimates wait for starts of pods."""
    verify_seconds: float = 0.1
    """Time limit for verifying explanations between two forecasts; it blocks the event loop."""

    @property
    def start_limits(self) -> Mapping[StartProblem, float]:
        """Time in seconds for which the containers of a bound pod may not start, by kind of reason."""
        return {
            StartProblem.CONFIGURATION: self.start_error_seconds,
            StartProblem.IMAGE_PULL: self.image_pull_seconds,
            StartProblem.CREATION: self.pod_start_seconds,
        }
