"""cotan bench: rows, their output and its errors. Nothing here is about time."""
import json
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
sys.path.insert(0, str(ROOT / "bench"))
import ratios  # noqa: E402
from peers import rows  # noqa: E402

ROWS = ["train gpt2", "matmul", "norms", "softmax", "gelu", "cross-entropy", "rotary", "transposed-add", "dropout", "ops",
        "scan", "start"]


def bench(*words, input=""):
    return subprocess.run([str(COTAN), "bench", *map(str, words)], capture_output=True, text=True, timeout=300, input=input)


def measured(*words):
    done = bench(*words, "--json")
    assert done.returncode == 0 and done.stderr, done.stderr
    return json.loads(done.stdout)


def test_list():
    done = bench("--list")
    assert done.returncode == 0 and not done.stderr
    lines = [re.fullmatch(r"(\S+(?: \S+)?) +(\S.*)", line).groups() for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == ROWS and all(len(summary) > 20 for _, summary in lines)
    for row in ROWS:
        assert bench(*row.split(), "--help").stdout.startswith(f"usage: cotan bench {row} [options]\n")
    assert rows.ROWS.keys() | {"train gpt2"} == set(ROWS)  # what the peers have


def test_training():
    B, T, L, W, V, C = 3, 16, 2, 32, 50257, 1024
    got = measured("train", "gpt2", "--batch", B, "--context", T, "--steps", 6, "--precision", "fp32", "--layers", L,
                   "--heads", 2, "--width", W, "--threads", 2)
    assert got["row"] == "train gpt2" and got["threads"] == 2
    assert len(got["ms_steps"]) == len(got["losses"]) == 6
    assert got["ms_per_step"] == pytest.approx(statistics.median(got["ms_steps"][3:]), rel=1e-5)
    assert got["tokens_per_s"] == pytest.approx(B * T * 1e3 / got["ms_per_step"], rel=1e-5)
    assert got["compile_ms"] == pytest.approx(max(0, got["ms_steps"][0] - got["ms_per_step"]), rel=1e-4, abs=1e-3)
    blocks = L * (12 * W * W + 13 * W)
    assert got["params"] == V * W + C * W + blocks + 2 * W
    assert got["flops_per_step"] == 6 * B * T * (12 * L * W * W + V * W) + 12 * L * B * T * T * W
    assert 0 < got["limit_share"] < 1.5
    assert 10e6 < got["peak_rss_bytes"] < 2e9
    assert all(abs(loss - math.log(V)) < 0.1 for loss in got["losses"])


@pytest.mark.parametrize("words", [["matmul", "--m", 8, "--k", 32, "--n", 16], ["scan", "--length", 10, "--width", 4]])
def test_cases(words):
    got = measured(*words, "--seconds", 0, "--threads", 1)
    assert got["row"] == words[0] and got["threads"] == 1
    assert all(limit > 0 for limit in got["limits"].values())
    for case in got["cases"]:
        assert len(case["ms_all"]) == 5
        assert case["ms"] == pytest.approx(statistics.median(case["ms_all"]), rel=1e-4)
        if words[0] == "matmul":
            assert case["flops"] == 2 * 8 * 32 * 16 and case["bytes"] == 4 * (8 * 32 + 32 * 16 + 8 * 16)
            least = max(case["flops"] / got["limits"]["flops_per_s"], case["bytes"] / got["limits"]["stream_bytes_per_s"])
            assert case["limit_share"] == pytest.approx(least * 1e3 / case["ms"], rel=0.01, abs=1e-4)
        else:
            assert case["limit_share"] is None
    names = [case["case"] for case in got["cases"]]
    assert names == (["8x32x16 forward", "8x32x16 dx", "8x32x16 dw"] if words[0] == "matmul" else ["forward", "gradient"])


def answers(words, lines):
    done = bench(*words, "--turns", "--seconds", 0, input="".join(line + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    first, *rest = map(json.loads, done.stdout.splitlines())
    return first, rest


# The peers' programs, in NumPy, on the same numbers: ours are those that bench/peers has.
def test_programs_are_the_peers():
    ops = rows.ROWS["ops"].cases({})
    first, got = answers(["ops"], [f"check {case.name}" for case in ops])
    assert [case["case"] for case in first["cases"]] == [case.name for case in ops] and len(ops) == 40
    for case, answer in zip(ops, got):
        wanted = case.numpy(*case.inputs())
        assert answer["case"] == case.name
        assert answer["means"] == [pytest.approx(float(np.mean(wanted.astype(np.float64))), rel=1e-4, abs=1e-6)], case.name


@pytest.mark.parametrize("words", [["matmul", "--m", 8, "--k", 32, "--n", 16], ["rotary"]])
def test_larger_programs_are_the_peers(words):
    options = {name[2:]: value for name, value in zip(words[1::2], words[2::2])}
    cases = rows.ROWS[words[0]].cases(options)
    first, got = answers(words, [f"check {case.name}" for case in cases])
    assert [case["case"] for case in first["cases"]] == [case.name for case in cases]
    for case, answer in zip(cases, got):
        wanted = case.numpy(*case.inputs())
        wanted = wanted if isinstance(wanted, list) else [wanted]
        assert answer["means"] == pytest.approx([float(np.mean(w)) for w in wanted], rel=1e-4)


def test_turns():
    first, got = answers(["matmul", "--m", 8, "--k", 4, "--n", 2], ["8x4x2 dx", "limits", "8x4x2 dx"])
    assert [case["case"] for case in first["cases"]] == ["8x4x2 forward", "8x4x2 dx", "8x4x2 dw"]
    assert got[0]["case"] == got[2]["case"] == "8x4x2 dx" and got[0]["ms"] > 0
    assert got[1]["limits"]["flops_per_s"] > 0
    first, got = answers(["start"], ["forward", "gradient"])
    assert [answer["case"] for answer in got] == ["forward", "gradient"]


TINY = ["train", "gpt2", "--layers", 1, "--heads", 1, "--width", 8, "--context", 4]


def test_training_in_turns():
    done = bench(*TINY, "--turns", input="step\nlimits\nstep\n")
    assert done.returncode == 0, done.stderr
    first, *rest = map(json.loads, done.stdout.splitlines())
    assert [case["case"] for case in first["cases"]] == ["step"]
    assert rest[0]["ms"] > 0 and rest[2]["loss"] != rest[0]["loss"] and rest[1]["limits"]["flops_per_s"] > 0


@pytest.mark.parametrize("words, text", [
    ([], "bench: it needs a row: cotan bench ROW; cotan bench --list lists them"),
    (["matmull"], 'bench: there is no row "matmull"; is matmul meant?'),
    (["train", "gpt3"], 'bench: there is no row "train gpt3"; is train gpt2 meant?'),
    (["resnet9000"], 'bench: there is no row "resnet9000"; cotan bench --list lists them'),
    (["--json"], "bench: there is no option --json; cotan bench --help lists them"),
    (["softmax", "--batch", "3"], "bench softmax: there is no option --batch; cotan bench softmax --help lists them"),
    (["matmul", "--m", "3"], "bench matmul: one shape is --m, --k and --n, all three; --k is missing"),
    (["matmul", "--m", "0"], "bench matmul: --m must be from 1 to 1048576, not 0"),
    (["matmul", "3"], 'bench matmul: "3" is not an option; options begin with --'),
    (["train", "gpt2", "--steps", "3"], "bench train gpt2: --steps must be from 4 to 1000000, not 3"),
    (["train", "gpt2", "--precision", "bf16"], 'bench train gpt2: --precision is fp32, not "bf16"'),
    (["train", "gpt2", "--width", "10", "--heads", "3", "--layers", "1"],
     "bench train gpt2: a width of 10 is no multiple of 3 heads"),
    (["scan", "--device", "gpu"], 'bench scan: --device is cpu or ref, not "gpu"; is cpu meant?'),
])
def test_refusals(words, text):
    done = bench(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"cotan: {text}\n"


def test_a_case_that_is_not_there():
    done = bench("scan", "--length", 2, "--turns", input="backward\n")
    assert done.returncode == 2 and done.stderr == 'cotan: bench scan: there is no case "backward"\n'
    done = bench(*TINY, "--turns", input="backward\n")
    assert done.returncode == 2 and done.stderr == 'cotan: bench train gpt2: there is no case "backward"\n'


# --------------------------------------------------------------------------------- what make bench computes


def test_interval_of_a_median():
    """Of the order statistics: the chance that k or fewer of n are below the median is a binomial's."""
    sample = [1.3, 0.9, 1.1, 1.0, 1.2, 1.5, 0.8, 1.4, 1.05, 1.15]
    assert ratios.median(sample) == statistics.median(sample)
    interval = ratios.interval(sample)
    # n = 10: from the second to the ninth 1 - 2 (1 + 10) / 1024 = 0.9785; from the third, 0.8906, is too little
    assert interval == (0.9, 1.4, pytest.approx(1 - 2 * 11 / 1024))
    assert ratios.interval(sample[:4]) is None  # all of 4: 0.875
    assert ratios.interval(sample[:5]) == (0.9, 1.3, pytest.approx(1 - 2 / 32))
    # How often it holds the median of what the samples are drawn from.
    draws = np.random.default_rng(7).lognormal(size=(4000, 15))
    held = np.mean([low <= 1 <= high for low, high, _ in map(ratios.interval, draws.tolist())])
    assert 0.9 <= held and abs(held - ratios.interval([float(i) for i in range(15)])[2]) < 0.015


def test_ratios_are_of_pairs():
    ours, theirs = [2.0, 4.0, 8.0, 2.0, 2.0], [2.2, 4.4, 8.8, 2.2, 4.4]
    result = ratios.compare(ours, theirs)
    assert result["ratio"] == pytest.approx(1.1) and result["low"] == pytest.approx(1.1)
    assert result["high"] == pytest.approx(2.2) and result["pairs"] == 5
    assert ratios.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="^5 times of ours and 4 of theirs are no pairs$"):
        ratios.compare(ours, theirs[:4])
