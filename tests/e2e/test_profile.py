"""cotan profile: the table of a run, its trace, programs of others, and what is refused."""
import json
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
TRAIN = ["train", "--data", ROOT / "README.md", "--tokenizer", "chars", "--layers", 2, "--heads", 2, "--width", 32, "--context", 32,
         "--batch", 4, "--threads", 2, "--steps", 12, "--out"]


def cotan(*words, **env):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | env)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    done = cotan("profile", "--trace", folder / "trace.json", *TRAIN, folder / "run", COTAN_COMPILE="wait")
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((folder / "trace.json").read_text())


def test_the_table(run):
    table = run[0][run[0].index("kernel   "):]
    rows = re.findall(r"^(matmul\S*) +lm_train\.c:(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$",
                      table, re.M)
    assert rows and all(int(calls) >= 12 and float(ms) > 0 and float(gflops) > 0 for _, _, calls, ms, _, _, _, gflops, _ in rows)
    source = (ROOT / "src/models/lm_train.c").read_text().splitlines()
    assert all(0 < int(line) <= len(source) for _, line, *_ in rows)
    assert re.search(r"^plan run +lm_train\.c:\d+ ", table, re.M) and "plan made" in table
    share = re.search(r"s watched; launches took [\d.]+ s of it \([\d.]+ %\); peak memory of devices: [\d.]+ [kM]B", table)
    assert share and "GFLOP/s and " in table


def test_launches_are_the_plans(run):
    """What plans take beside their launches: of kernels of microseconds, a tenth at most."""
    spent = defaultdict(float)
    for event in run[1]["traceEvents"]:
        spent[event.get("cat")] += event.get("dur", 0)
    launches = spent["kernel"] + spent["copy"] + spent["op"]
    assert 0.5 * spent["run"] < launches <= spent["run"]


def test_the_trace_is_in_the_trace_event_format(run):
    trace = run[1]
    assert trace["displayTimeUnit"] == "ms"
    tracks = defaultdict(list)
    named = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"] and event["ph"] in "XMC"
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            named.add(event["tid"])
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
        elif event["ph"] == "C":
            assert event["ts"] >= 0 and event["args"]["bytes"] >= 0
        else:
            assert event["ts"] >= 0 and event["dur"] >= 0 and event["cat"]
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= named and len(tracks) >= 2
    for spans in tracks.values():  # slices of a track lie one behind the other, or one in the other
        open_ones = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ones and open_ones[-1] <= begin + 0.002:
                open_ones.pop()
            assert not open_ones or end <= open_ones[-1] + 0.002
            open_ones.append(end)


def test_any_program(tmp_path):
    trace = tmp_path / "t.json"
    done = cotan("profile", f"--trace={trace}", "--", COTAN, "doctor")
    assert done.returncode in (0, 1) and "launches took" in done.stderr
    assert f"cotan: the trace is {trace}; ui.perfetto.dev shows it" in done.stderr
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize("words, text", [
    ([], "profile: a command is wanted: cotan profile train --data FILE --out run"),
    (["--trase", "x"], 'profile: there is no option "--trase" before the command; cotan profile --help lists them'),
    (["--trace"], "profile: --trace wants a file"),
    (["--trace", "/no/such/folder/t.json", "doctor"], "profile: /no/such/folder/t.json: No such file or directory"),
    (["--", "/no/such/program"], "profile: /no/such/program: No such file or directory"),
])
def test_what_is_refused(words, text, tmp_path):
    done = subprocess.run([str(COTAN), "profile", *words], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2 and done.stderr == f"cotan: {text}\n" and not done.stdout


def test_help():
    done = cotan("profile", "--help")
    assert done.returncode == 0 and "cotan profile train" in done.stdout and not done.stderr
