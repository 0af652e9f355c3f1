"""A worker or parameter server: ``python -m tensorflow_ps.server`` with its task in TF_CONFIG."""

import os
import signal
import threading

import tensorflow as tf

from tensorflow_ps.clusters import chief_address, follow, listens
from tranche_worker import EXIT_DONE, EXIT_TERMINATED, StopFlag

PAUSE_SECONDS = 0.3


def main() -> None:
    """Serve until the chief has ended."""
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    chief, ticks = chief_address(), threading.Event()
    follow(lambda: listens(chief), stop.is_set, lambda: ticks.wait(PAUSE_SECONDS))
    os._exit(EXIT_TERMINATED if stop.is_set() else EXIT_DONE)  # a server of TensorFlow cannot be shut down


if __name__ == "__main__":
    main()
