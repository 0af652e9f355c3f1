"""Programs that containers of the worker image run in tests: ``python -c`` with one of these texts."""

TRAINS = """
import sys, time
from tranche_worker import Session, assignment
with Session(assignment()) as session:
    for chunk, batch in session.batches():
        time.sleep({pause})
        session.trained({{chunk: batch + 1}})
        print(chunk, batch, flush=True)
    session.saved()
sys.exit(session.exit_code)
"""
EXHAUSTS_MEMORY = """
held = bytearray(512 << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
"""


def trains(seconds: float, batches: int) -> str:
    """Return a program that trains with the worker library; a chunk of this number of batches takes `seconds`."""
    return TRAINS.format(pause=seconds / batches)
