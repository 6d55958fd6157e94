"""Memory of training GPT-2: the small model of the benchmarks, and in make test-all the one of 124 million parameters."""
import os
import re
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("COTAN_BUILD", Path(__file__).resolve().parents[2] / "build"))
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()  # a larger process
# Batch, tokens and steps; the second step finds the plans of the first, and the optimizer's state.
LARGE = os.environ.get("COTAN_TEST_ALL") and not SANITIZED
SIZES = [("small", 12, 64, 4)] + ([("124m", 4, 64, 2)] if LARGE else [])
PARAMETERS = {"small": 804_096, "124m": 124_439_808}


@pytest.mark.parametrize("words", SIZES, ids=lambda words: words[0])
def test_planned_is_measured(words):
    done = subprocess.run([str(BUILD / "bench/memory"), *map(str, words)], capture_output=True, text=True, timeout=500)
    found = re.fullmatch(
        rf"{words[0]}: planned ([\d.]+) MB, measured ([\d.]+) MB \([\d.]+ of it\), the process grew by [\d.]+ MB "
        r"\(([\d.]+) of what was planned for it\)(: OUT OF BOUNDS)?\n", done.stdout)
    assert found and not done.stderr, done.stdout + done.stderr
    planned, measured, grown = map(float, found.groups()[:3])
    assert planned >= measured >= 0.9 * planned, done.stdout
    assert SANITIZED or (grown <= 1.1 and done.returncode == 0), done.stdout
    assert measured > 16e-6 * PARAMETERS[words[0]]  # a weight, its gradient and two moments
