"""The demo: a real control plane, our processes, and a stretch of a real job log, watched live."""
