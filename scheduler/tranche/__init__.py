"""tranche: an online preemptive scheduler for distributed training on edge-cloud Kubernetes clusters."""

__version__ = "0.1.0"
