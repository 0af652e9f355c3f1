"""Annotations by which a pod controls the simulated kubelet; values are text, times in seconds, fractions allowed.

* ``START_SECONDS``: from bound to Running (default 0).
* ``RUN_SECONDS``: from Running to the end.
* ``BATCH_SECONDS``, instead: per mini-batch. The pod trains, in this order, the chunks of its variable
  ``TRANCHE_CHUNKS`` ("0,5,9"), each up to ``TRANCHE_EPOCHS`` × ``TRANCHE_BATCHES`` batches, and begins where
  ``TRANCHE_RESUME`` ("5:1160,7:3", may be absent) specifies. The variables are those of the training container: the
  first one, or the one that ``TRAINER`` names.
* ``CHECKPOINT_BATCHES``, with it: a checkpoint holds a whole multiple of this number of mini-batches (default 1). For a
  member of a gang, whose whole run counts as one batch, it is a fraction: so it resumes like one with a volume.
* ``STEP_SECONDS``, if both are missing: per mini-batch, as the job declares. tranche's operator sets it on workers and
  chiefs; a chief, which has no chunks, trains all batches once. So the pods of every TrainingJob end when declared.
* None of these: a staging pod, which only copies data, ends at once. Other pods run until they are deleted, like
  parameter servers.
* ``EXIT_CODE``: at the natural end; 0 (the default) is Succeeded, any other code Failed.
* ``CHECKPOINT_SECONDS``: time to save when it is deleted or evicted while it runs (default 0). Then it is
  Failed with exit code 143, or, if the grace period ends before that, with 137.
* ``RELEASE_SECONDS``: from the end of containers that end by themselves to the phase Succeeded or Failed (default:
  both at once). A kubelet reports these containers first, and the pod, with its GPUs, up to a second later.
* ``TRAINER``: name of the container that all this is about, if the pod has sidecars. Only this container ends by
  itself; the others, and the pod, run until the pod is deleted. Without it, it is the first container, and all
  containers end with it.

A pod with ``BATCH_SECONDS`` or ``STEP_SECONDS`` leaves what is durable as the termination message of that container, as
JSON ``{"<chunk>": <batches, resumed ones included>}`` for all chunks of its list that have any: everything after exit
code 0, what it had trained when it received the signal to stop after 143. After any other code there is no message.

A pod with an invalid annotation (not a number, a missing variable) stays in its phase.
"""

START_SECONDS = "kwok.tranche.dev/start-seconds"
RUN_SECONDS = "kwok.tranche.dev/run-seconds"
BATCH_SECONDS = "kwok.tranche.dev/batch-seconds"
STEP_SECONDS = "tranche.dev/step-seconds"
CHECKPOINT_BATCHES = "kwok.tranche.dev/checkpoint-batches"
EXIT_CODE = "kwok.tranche.dev/exit-code"
CHECKPOINT_SECONDS = "kwok.tranche.dev/checkpoint-seconds"
RELEASE_SECONDS = "kwok.tranche.dev/release-seconds"
TRAINER = "kwok.tranche.dev/trainer"
