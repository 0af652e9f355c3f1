"""Annotations of pods for the simulated kubelet; the values are text, all times in seconds, fractions allowed.

* ``START_SECONDS``: from bound to Running (default 0).
* ``RUN_SECONDS``: from Running to the end.
* ``BATCH_SECONDS``, instead: per mini-batch. The pod trains, in this order, the chunks of its variable
  ``TRANCHE_CHUNKS`` ("0,5,9"), each up to ``TRANCHE_EPOCHS`` × ``TRANCHE_BATCHES`` batches, and begins where
  ``TRANCHE_RESUME`` ("5:1160,7:3", may be absent) says. The variables are those of its first container.
* ``CHECKPOINT_BATCHES``, with it: a checkpoint holds a whole multiple of this number of mini-batches (default 1). The
  whole run of a member of a gang counts as one batch and a checkpoint holds a fraction of it: so the member resumes
  like one with a volume.
* Neither: it runs until it is deleted, like a parameter server.
* ``EXIT_CODE``: at the natural end; 0 (the default) is Succeeded, anything else Failed.
* ``CHECKPOINT_SECONDS``: how long it saves when it is deleted or evicted while it runs (default 0). Then it is
  Failed with exit code 143, or, if the grace period ends before that, with 137.

A pod with ``BATCH_SECONDS`` leaves what is durable as the termination message of its first container, as JSON
``{"<chunk>": <batches, resumed ones included>}`` for all chunks of its list that have any: everything after exit code
0, what it had trained when it was asked to stop after 143. After any other code there is no message.

A pod whose request is not understood (no number, a missing variable) hangs where it is.
"""

START_SECONDS = "kwok.tranche.dev/start-seconds"
RUN_SECONDS = "kwok.tranche.dev/run-seconds"
BATCH_SECONDS = "kwok.tranche.dev/batch-seconds"
CHECKPOINT_BATCHES = "kwok.tranche.dev/checkpoint-batches"
EXIT_CODE = "kwok.tranche.dev/exit-code"
CHECKPOINT_SECONDS = "kwok.tranche.dev/checkpoint-seconds"
