"""What the program is started with: closed descriptors, ignored signals, limits, a full disk, a clock, another run beside it."""
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve() / "cotan"
TINY = ["--tokenizer", "chars", "--layers", 1, "--heads", 2, "--width", 8, "--context", 8, "--batch", 2, "--eval-batches", 1,
        "--device", "ref", "--threads", 1]
LONG = ["--steps", 10**9, "--save-every", 10**9, "--eval-every", 10**9]


def words(*more):
    return [str(COTAN), *map(str, more)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text((ROOT / "README.md").read_text()[:3000])
    return path


def closing(*descriptors):
    def close():
        for fd in descriptors:
            os.close(fd)
    return close


@pytest.mark.parametrize("descriptors", [(2,), (0, 1, 2), (0,)])
def test_what_is_said_goes_into_no_file(corpus, tmp_path, descriptors):
    out = tmp_path / "out"
    done = subprocess.run(words("train", "--data", corpus, *TINY, "--steps", 3, "--out", out),
                          preexec_fn=closing(*descriptors), timeout=120)
    assert done.returncode == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert subprocess.run(words("info", out), capture_output=True, timeout=120).returncode == 0


@pytest.mark.parametrize("command", [["version"], ["help"], ["doctor"], ["train", "--help"]])
def test_output_that_is_lost_is_a_failure(command):
    for stdout, preexec, reason in ((open("/dev/full", "w"), None, "No space left on device"),
                                    (None, closing(1), "Bad file descriptor")):
        done = subprocess.run(words(*command), stdout=stdout, stderr=subprocess.PIPE, text=True, preexec_fn=preexec, timeout=300)
        assert (done.returncode, done.stderr) == (1, f"cotan: standard output: {reason}\n")


def started(out, *more, **options):
    """A run that goes on for ever, some steps after its begin."""
    process = subprocess.Popen(words("train", *TINY, *LONG, "--out", out, *more), stderr=subprocess.PIPE, text=True, **options)
    metrics = out / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.read_text().count("\n") > 3:
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("it does not begin")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_step_and_save(corpus, tmp_path, number):
    out = tmp_path / "out"
    process = started(out, "--data", corpus)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    steps = int(re.search(r"^train: stopped after (\d+) of 1000000000 steps, and saved$", said, re.M)[1])
    assert process.returncode == 130 and (out / f"checkpoints/step-{steps}").is_dir()


def test_ignored_signals_stay_ignored(corpus, tmp_path):
    """As nohup, and a shell's script for what it starts in the background, have them."""
    ignored = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    out = tmp_path / "out"
    process = started(out, "--data", corpus, preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN) for n in ignored])
    for number in ignored:
        process.send_signal(number)
    before = (out / "metrics.jsonl").read_text().count("\n")
    for _ in range(600):
        if (out / "metrics.jsonl").read_text().count("\n") > before + 20:
            break
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()
    process.kill()
    process.communicate()


def test_a_file_may_be_no_larger(corpus, tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(words("train", "--data", corpus, *TINY, "--steps", 2, "--out", out), capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12288, 12288)), timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == \
        f"cotan: {out}/checkpoints/step-1.tmp/state.safetensors: cannot write: File too large"
    assert not list(out.rglob("*.tmp"))


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *t) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(which, t);
    if (which == CLOCK_MONOTONIC) t->tv_sec = (t->tv_sec % 100000) * 10000000 + t->tv_nsec / 100, t->tv_nsec = 0;
    return rc;
}
"""


def test_a_run_of_centuries_is_told(corpus, tmp_path):
    """A clock that is ten million times as fast: what is left does not fit an int of seconds."""
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    env = os.environ | {"LD_PRELOAD": str(tmp_path / "clock.so"), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    process = subprocess.Popen(words("train", "--data", corpus, *TINY, *LONG, "--out", tmp_path / "out"), env=env,
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 5/"):
            break
    process.kill()
    process.communicate()
    hours, minutes = map(int, re.search(r" MB  (\d+) h (\d\d) min left$", line).groups())
    assert hours > 2**31 // 3600 and minutes < 60


def test_two_that_begin_together(corpus, tmp_path):
    """None names its folder: each gets its own, though all look before any makes one."""
    runs = [subprocess.Popen(words("train", "--data", corpus, *TINY, "--steps", 2), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            for _ in range(6)]
    folders = []
    for run in runs:
        _, said = run.communicate(timeout=120)
        assert run.returncode == 0 and "replaced" not in said, said
        folders.append(said.splitlines()[-1].split()[2])
    assert sorted(folders) == sorted(os.listdir(tmp_path)) == ["run", "run-2", "run-3", "run-4", "run-5", "run-6"]
    for name in folders:
        assert len((tmp_path / name / "metrics.jsonl").read_text().splitlines()) == 2
