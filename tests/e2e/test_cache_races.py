"""Many processes at once on one cache of compiled kernels: all are right, none does the others' work again, and
what a killed one left or somebody spoilt is never run."""
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "examples/02_linear"
MANY = 64


class Place:
    """A cache, and a compiler that keeps what it compiles, slowly enough for all to come while it does."""

    def __init__(self, folder):
        self.cache, self.sources = folder / "cache", folder / "sources"
        self.sources.mkdir()
        self.compiler = folder / "cc"
        self.compiler.write_text(f"""#!/bin/sh
for word; do
    case $word in *.c) cp "$word" "$(mktemp {self.sources}/XXXXXX.c)" ;; esac
done
sleep 0.5
exec cc "$@"
""")
        self.compiler.chmod(0o755)

    def start(self, waits="wait"):
        env = os.environ | {"COTAN_CACHE_DIR": str(self.cache), "COTAN_CC": str(self.compiler), "COTAN_THREADS": "2",
                            "COTAN_COMPILE": waits}
        return subprocess.Popen([PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=env)

    def compiled(self):
        """How often each kernel was compiled since it was asked last."""
        names = Counter()
        for source in self.sources.iterdir():
            names.update(re.findall(r"^void (k_\w+)\(", source.read_text(), re.M))
            source.unlink()
        return names

    def entries(self):
        return sorted(self.cache.glob("*.so"))

    def run_many(self, waits="wait"):
        """What they all print."""
        outputs = set()
        for process in [self.start(waits) for _ in range(MANY)]:
            out, err = process.communicate(timeout=300)
            assert (process.returncode, err) == (0, ""), err
            outputs.add(out)
        assert len(outputs) == 1
        return outputs.pop()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("races"))


@pytest.fixture(scope="module")
def printed(place):
    """What one process prints that has the cache for itself."""
    alone = place.start().communicate(timeout=300)
    assert alone[0].startswith("loss") and not alone[1], alone
    return alone[0]


def empty(place):
    for entry in place.entries():
        entry.unlink()
    place.compiled()


def test_an_empty_cache(place, printed):
    kernels = len(place.entries())
    assert kernels > 2
    empty(place)
    assert place.run_many() == printed
    counts = place.compiled()
    assert len(counts) == kernels and set(counts.values()) == {1}, counts
    assert place.run_many() == printed and not place.compiled()


def test_an_empty_cache_and_nobody_waits(place, printed):
    """They interpret, end with the compiler that runs, and leave nothing of it: a few turns fill the cache."""
    kernels = len(place.entries())
    empty(place)
    for _ in range(20):
        assert place.run_many("") == printed
        if len(place.entries()) == kernels:
            break
    assert set(place.compiled().values()) == {1}
    assert len(place.entries()) == kernels
    assert not [path for path in place.cache.iterdir() if path.name.startswith("build-")]
    assert place.run_many("") == printed and not place.compiled()


SPOILT = {
    "half": lambda raw, other: raw[:len(raw) // 2],
    "a bit turned": lambda raw, other: bytes([*raw[:5000], raw[5000] ^ 4, *raw[5001:]]),
    "its last byte gone": lambda raw, other: raw[:-1],
    "another kernel's file": lambda raw, other: other,
    "something else altogether": lambda raw, other: b"#!/bin/sh\n",
    "nothing": lambda raw, other: b"",
}


def plant(entry, spoil, other):
    raw = entry.read_bytes()
    entry.unlink()  # a file that somebody has loaded is not to change
    entry.write_bytes(SPOILT[spoil](raw, other))
    entry.chmod(0o700)


@pytest.fixture(scope="module")
def each_alone(place, printed):
    """Kernels that are compiled while others wait for the compiler can share a file; here each has its own."""
    empty(place)
    assert place.start().communicate(timeout=300) == (printed, "")


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_spoilt_entry(place, printed, each_alone, spoil):
    """It is refused, and made again."""
    before = {entry: entry.stat().st_size for entry in place.entries()}
    first, *_, last = before
    plant(first, spoil, last.read_bytes())
    place.compiled()
    assert place.start().communicate(timeout=300) == (printed, "")
    counts = place.compiled()
    assert counts and set(counts.values()) == {1}
    assert {entry: entry.stat().st_size for entry in place.entries()} == before
    assert place.start().communicate(timeout=300) == (printed, "") and not place.compiled()


def test_many_meet_spoilt_entries(place, printed):
    before = place.entries()
    for i, (entry, spoil) in enumerate(zip(before, SPOILT)):
        plant(entry, spoil, before[i - 1].read_bytes())
    assert place.run_many() == printed
    # One that looks at a damaged entry while another replaces it may remove the new one.
    counts = place.compiled()
    assert set(counts.values()) <= {1, 2, 3, 4}, counts
    assert place.entries() == before
    assert place.run_many() == printed and not place.compiled()


def test_killed_while_they_compile(place, printed):
    empty(place)
    for delay in (0.05, 0.3, 0.6):
        running = [place.start() for _ in range(8)]
        time.sleep(delay)
        for process in running:
            process.send_signal(signal.SIGKILL)
        for process in running:
            process.communicate()
    assert place.run_many() == printed
