"""The operator does what a hand-written plan says, on a real control plane."""

import signal
import time
from typing import Any

import pytest

from .conftest import TEMPLATE, Lab, Process, eventually, server, window
