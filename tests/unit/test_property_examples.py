"""Examples of property tests are the same in each run, whatever modules the other tests of the process have loaded."""

import os

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.providers import HypothesisProvider

from tranche.estimate import speed_model


@pytest.mark.skipif("SEED" in os.environ, reason="make fuzz draws other examples")
def test_constants_of_loaded_modules_are_no_examples() -> None:
    assert speed_model.OVERHEAD_SECONDS, "a constant of a module that is loaded"
    constants = HypothesisProvider(ConjectureData(random=None))._local_constants
    assert not len(constants)
    assert settings().derandomize
