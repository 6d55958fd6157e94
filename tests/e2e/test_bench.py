"""build/bench/rows: benchmarks, their output and its errors; cotan bench. Nothing here is about time."""
import json
import math
import os
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
sys.path.insert(0, str(ROOT / "bench"))
import compare as harness  # noqa: E402
import ratios  # noqa: E402
from peers import rows  # noqa: E402
from peers.programs import programs  # noqa: E402

ROWS = ["train gpt2", "matmul", "small-m", "large-m", "norms", "softmax", "gelu", "cross-entropy", "linear-cross-entropy", "attention", "rotary", "transposed-add",
        "dropout", "ops", "programs", "conv", "pooling", "resnet18", "resnet50", "scan", "cold-start"]


def bench(*words, input=""):
    return subprocess.run([str(COTAN.parent / "bench/rows"), *map(str, words)], capture_output=True, text=True, timeout=300, input=input)


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
        text = bench(*row.split(), "--help").stdout
        assert text.startswith(f"usage: rows {row} [options]\n")
        examples = text.split("\nExamples:\n")[1].splitlines()
        assert len(examples) >= 3 and all(re.match(f'  build/bench/rows {row} |  make bench ROWS="{row}" ', e) for e in examples)
        assert all(option in text for line in examples for option in re.findall("--[a-z]+", line))
    assert rows.ROWS.keys() | {"train gpt2"} == {*ROWS, "python"}  # what the peers have; ours of "python" is no row of C


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
    assert 0 < got["limit_fraction"] < 1.5
    assert 10e6 < got["peak_rss_bytes"] < 2e9
    short = json.loads(bench(*TINY, "--steps", 4, "--summary").stdout)
    assert short.keys() == got.keys() - {"ms_steps", "losses"}
    assert all(abs(loss - math.log(V)) < 0.1 for loss in got["losses"])


def needs_all(what):
    return pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason=f"{what}; make test-all does")


@needs_all("compiles kernels of a dozen sizes")
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
            assert case["limit_fraction"] == pytest.approx(least * 1e3 / case["ms"], rel=0.01, abs=1e-4)
        else:
            assert case["limit_fraction"] is None
    short = json.loads(bench(*words, "--seconds", 0, "--summary").stdout)
    assert [case.keys() | {"ms_all"} for case in short["cases"]] == [case.keys() for case in got["cases"]]
    assert not any("ms_all" in case for case in short["cases"]) and short.keys() == got.keys()
    names = [case["case"] for case in got["cases"]]
    assert names == (["8x32x16 forward", "8x32x16 dx", "8x32x16 dw"] if words[0] == "matmul" else ["forward", "gradient"])


def answers(words, lines):
    done = bench(*words, "--stdin", "--seconds", 0, input="".join(line + "\n" for line in lines))
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
        assert len(answer["moments"]) == 1
        assert rows.same_moments(answer["moments"][0], rows.moments(wanted), 1e-4), case.name


@pytest.mark.parametrize("words", [["matmul", "--m", 8, "--k", 32, "--n", 16], ["rotary"]])
def test_larger_programs_are_the_peers(words):
    options = {name[2:]: value for name, value in zip(words[1::2], words[2::2])}
    cases = rows.ROWS[words[0]].cases(options)
    first, got = answers(words, [f"check {case.name}" for case in cases])
    assert [case["case"] for case in first["cases"]] == [case.name for case in cases]
    for case, answer in zip(cases, got):
        wanted = case.numpy(*case.inputs())
        wanted = wanted if isinstance(wanted, list) else [wanted]
        assert len(answer["moments"]) == len(wanted)
        assert all(rows.same_moments(got, rows.moments(w), 1e-4) for got, w in zip(answer["moments"], wanted))


def test_ordinary_programs_have_twins():
    """JAX checks what they compute whenever it is timed; here that ours are those, and some in NumPy."""
    cases = {case.name: case for case in rows.ROWS["programs"].cases({})}
    some = {"preprocess": lambda x, mean, deviation: ((x / np.float32(255) - mean) / deviation).transpose(0, 3, 1, 2),
            "frames": lambda x, w: x[:, np.arange(398)[:, None] * 160 + np.arange(400)] * w,
            "accuracy": lambda x, labels: np.float32((x.argmax(1) == labels).mean())}
    first, got = answers(["programs"], [f"check {name}" for name in some])
    assert [case["case"] for case in first["cases"]] == list(cases) == list(programs(SimpleNamespace(
        numpy=None, lax=None, nn=None)))
    for (name, numpy), answer in zip(some.items(), got, strict=True):
        moments, = answer["moments"]
        assert rows.same_moments(moments, rows.moments(numpy(*cases[name].inputs())), 1e-4), name


@needs_all("compiles kernels of a dozen convolutions")
def test_convolutions_are_the_peers():
    """Few of each form, with and without a stride; and what pools."""
    for row, some in (("conv", ("small", "stem 7x7", "layer3 1x1")), ("pooling", ("max",))):
        cases = [case for case in rows.ROWS[row].cases({}) if case.name.startswith(some)]
        first, got = answers([row], [f"check {case.name}" for case in cases])
        assert {case.name for case in cases} < {case["case"] for case in first["cases"]} or row == "pooling"
        for case, answer in zip(cases, got, strict=True):
            moments, = answer["moments"]
            assert rows.same_moments(moments, rows.moments(case.numpy(*case.inputs())), 1e-4), case.name
    first, _ = answers(["conv"], [])
    assert [case["case"] for case in first["cases"]] == [case.name for case in rows.ROWS["conv"].cases({})]
    n, c, size, o, k, stride, padding = rows.CONVS["cifar stride 2"]
    case, = [case for case in first["cases"] if case["case"] == "cifar stride 2 dx"]
    assert case["flops"] == 2 * n * o * 16 * 16 * c * k * k
    assert case["bytes"] == 4 * (n * c * size * size + o * c * k * k + n * o * 16 * 16)


@needs_all("compiles a ResNet's step")
def test_resnets():
    """Their weights and multiply-adds are those that bench/peers counts; a step learns."""
    small = rows.resnet(rows.Sizes(10), (3, 32), 18, True)
    assert sum(math.prod(shape) for shape in small.shapes) == 11173962
    first, got = answers(["resnet18", "--batch", 2], ["check step", "check step"])
    case, = first["cases"]
    assert case["flops"] == 2 * 2 * (3 * small.multiply_adds - 64 * 3 * 9 * 32 * 32)
    (before, _), (after, _) = got[0]["moments"], got[1]["moments"]
    assert 1 < before[0] < 4 and after[0] != before[0]
    large = rows.resnet(rows.Sizes(1000), (3, 224), 50, False)
    assert sum(math.prod(shape) for shape in large.shapes) == 25557032
    first, _ = answers(["resnet50"], [])
    assert first["cases"][0]["flops"] == 2 * large.multiply_adds


def test_cases_from_stdin():
    first, got = answers(["matmul", "--m", 8, "--k", 4, "--n", 2], ["check 8x4x2 forward", "8x4x2 dx", "limits", "8x4x2 dx"])
    assert [case["case"] for case in first["cases"]] == ["8x4x2 forward", "8x4x2 dx", "8x4x2 dw"]
    assert got[1]["case"] == got[3]["case"] == "8x4x2 dx" and got[1]["ms"] > 0
    assert got[2]["limits"]["flops_per_s"] > 0
    first, got = answers(["cold-start"], ["forward", "gradient"])
    assert [answer["case"] for answer in got] == ["forward", "gradient"]


TINY = ["train", "gpt2", "--layers", 1, "--heads", 1, "--width", 8, "--context", 4]


def test_training_from_stdin():
    done = bench(*TINY, "--stdin", input="step\nlimits\nstep\n")
    assert done.returncode == 0, done.stderr
    first, *rest = map(json.loads, done.stdout.splitlines())
    assert [case["case"] for case in first["cases"]] == ["step"]
    assert rest[0]["ms"] > 0 and rest[2]["loss"] != rest[0]["loss"] and rest[1]["limits"]["flops_per_s"] > 0


@pytest.mark.parametrize("words, text", [
    ([], "it needs a benchmark: rows BENCHMARK; rows --list lists them"),
    (["matmull"], 'there is no benchmark "matmull"; is matmul meant?'),
    (["train", "gpt3"], 'there is no benchmark "train gpt3"; is train gpt2 meant?'),
    (["train"], 'there is no benchmark "train"; is train gpt2 meant?'),
    (["train", "--json"], 'there is no benchmark "train"; is train gpt2 meant?'),
    (["t"], 'there is no benchmark "t"; rows --list lists them'),
    (["mobilenet"], 'there is no benchmark "mobilenet"; rows --list lists them'),
    (["--json"], "there is no option --json; rows --help lists them"),
    (["softmax", "--batch", "3"], "softmax: there is no option --batch; rows softmax --help lists them"),
    (["matmul", "--m", "3"], "matmul: one shape is --m, --k and --n, all three; --k is missing"),
    (["matmul", "--m", "0"], "matmul: --m must be from 1 to 1048576, not 0"),
    (["matmul", "3"], 'matmul: "3" is not an option; options begin with --'),
    (["train", "gpt2", "--steps", "3"], "train gpt2: --steps must be from 4 to 1000000, not 3"),
    (["train", "gpt2", "--precision", "fp8"], 'train gpt2: --precision is fp32 or bf16, not "fp8"'),
    (["train", "gpt2", "--width", "10", "--heads", "3", "--layers", "1"],
     "train gpt2: a width of 10 is no multiple of 3 heads"),
    (["scan", "--device", "gpu"], 'scan: --device is cpu, ref or opencl, not "gpu"; is cpu meant?'),
])
def test_refusals(words, text):
    done = bench(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"rows: {text}\n"


def test_a_case_that_is_not_there():
    done = bench("scan", "--length", 2, "--stdin", input="backward\n")
    assert done.returncode == 2 and done.stderr == 'rows: scan: there is no case "backward"\n'
    done = bench(*TINY, "--stdin", input="backward\n")
    assert done.returncode == 2 and done.stderr == 'rows: train gpt2: there is no case "backward"\n'


# ------------------------------------------------------------------------- cotan bench: the machine's limits


LIMITS = ["flops_per_s", "stream_bytes_per_s", "read_bytes_per_s", "threefry_words_per_s"]


def limits(*words):
    return subprocess.run([str(COTAN), "bench", *map(str, words)], capture_output=True, text=True, timeout=300)


def test_limits():
    done = limits("--json", "--threads", 1)
    assert done.returncode == 0 and not done.stderr
    got = json.loads(done.stdout)
    assert got["threads"] == 1 and got["limits"].keys() - {"int8_ops_per_s"} == set(LIMITS)
    assert all(limit > 0 for limit in got["limits"].values())
    done = limits("--threads", 1)
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"f32 +\d+\.\d\d GFLOP/s +\S.*", lines[0]) and re.fullmatch(r"threads +1", lines[-1])


def test_list_of_limits():
    done = limits("--list")
    assert done.returncode == 0 and not done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["f32", "int8", "stream", "read", "random"]
    assert last == "Benchmarks beside other frameworks are `make bench`: see bench/README.md."
    shown = limits("--threads", 1).stdout.splitlines()
    assert [line.split()[0] for line in shown] == [*(line.split()[0] for line in lines), "threads"]


@pytest.mark.parametrize("words, text", [
    (["matmul"], "bench: it measures the limits of the machine and takes no benchmark; make bench runs benchmarks (bench/README.md)"),
    (["--summary"], "bench: there is no option --summary; cotan bench --help lists them"),
    (["--threads", 0], "bench: --threads must be from 1 to 256, not 0"),
])
def test_limits_refusals(words, text):
    done = limits(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr == f"cotan: {text}\n"


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


def test_different_results_are_seen():
    case, ours = {"case": "add", "options": {}}, {"moments": [[1.0, 1.1]]}
    assert harness.differs("ops", case, ours, {"moments": [[1.00005, 1.10005]]}) is None
    assert harness.differs("ops", case, ours, {"moments": [[1.001, 1.1]]}) == \
        "a result's mean is 1.001 and its mean square 1.1, ours 1 and 1.1"
    assert harness.differs("ops", case, ours, {"moments": [[-1.0, 1.1]]})
    assert harness.differs("ops", case, ours, {"moments": [[1.0, 1.2]]})


def compare(*words):
    return subprocess.run([sys.executable, str(ROOT / "bench/compare.py"), *map(str, words)], capture_output=True, text=True,
                          timeout=300)


@needs_all("measures for half a minute")
def test_compare_with_another_build(tmp_path):
    """The harness whole, without the other libraries: this build beside itself."""
    done = compare("matmul", "--m", 8, "--k", 4, "--n", 2, "--against", COTAN.parent, "--build", COTAN.parent, "--peers", "",
                   "--pairs", 5, "--seconds", 0, "--threads", 1, "--cases", " d", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    path, = tmp_path.glob("*.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}", path.stem)  # to the second, so that a later run does not write over it
    report = json.loads(path.read_text())
    assert report["pairs"] == 5 and report["threads"] == 1 and report["machine"]["cpu"]
    assert set(report["versions"]) == {"Cotan", "Cotan before"}
    row, = report["rows"]
    assert row["row"] == "matmul" and row["options"] == {"m": "8", "k": "4", "n": "2"} and not row["missing"]
    assert [case["case"] for case in row["cases"]] == ["8x4x2 dx", "8x4x2 dw"]
    for case in row["cases"]:
        before = case["peers"]["Cotan before"]
        assert len(case["turns_ms"]) == len(before["turns_ms"]) == before["pairs"] == 5
        pairs = [theirs / ours for ours, theirs in zip(case["turns_ms"], before["turns_ms"])]
        assert before["ratio"] == pytest.approx(statistics.median(pairs))
        assert [before["low"], before["high"]] == pytest.approx([min(pairs), max(pairs)])
        assert case["best"] == "Cotan before" and case["limit_fraction"] > 0
        assert re.search(rf"^{case['case']} .* Cotan before .* {before['ratio']:.3f} ", done.stdout, re.M)
    best = [case["peers"]["Cotan before"]["ratio"] for case in row["cases"]]
    assert row["geometric_mean"] == pytest.approx(statistics.geometric_mean(best)) and row["lowest"] == min(best)
    drawn = xml.parse(path.with_suffix(".svg")).getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_compare_leaves_out_rows_without_the_case(tmp_path):
    done = compare("pooling", "scan", "--cases", "forw", "--build", COTAN.parent, "--against", COTAN.parent, "--peers", "",
                   "--pairs", 1, "--seconds", 0, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    path, = tmp_path.glob("*.json")
    assert [(row["row"], [case["case"] for case in row["cases"]]) for row in json.loads(path.read_text())["rows"]] == \
        [("scan", ["forward"])]


def test_compare_trains(tmp_path):
    done = compare("train", "gpt2", "--layers", 1, "--heads", 1, "--width", 8, "--against", COTAN.parent, "--build",
                   COTAN.parent, "--peers", "", "--pairs", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    path, = tmp_path.glob("*.json")
    case, = json.loads(path.read_text())["rows"][0]["cases"]
    assert case["peers"]["Cotan before"]["low"] is None and "too few pairs" in done.stdout


@pytest.mark.parametrize("words, text", [
    (["resnet"], f"bench: there is no row \"resnet\"; the rows are {', '.join(['train gpt2', *rows.ROWS])}"),
    (["ops", "--pairs", 0], "bench: --pairs must be 1 or more, not 0"),
    (["ops", "--peers", "JAX,Torch"],
     'bench: there is no peer "Torch"; the peers are Cotan in Python, JAX, ONNX Runtime, OpenBLAS, PyTorch, '
     'PyTorch channels last, PyTorch compiled, oneDNN'),
    (["ops", "scan", "--length", 3], "bench: --length is an option of one row, and there are 2"),
    (["scan", "--length"], "bench: options are pairs, --m 256: --length"),
    (["matmul", "--pairs", 1, "--cases", "nope", "--build", COTAN.parent],
     'bench: no case of matmul has "nope" in its name, as 256x768x2304 forward, 256x768x2304 dx, 256x768x2304 dw, '
     '256x768x768 forward, 256x768x768 dx, 256x768x768 dw, ...'),
    (["train", "gpt2", "scan", "--cases", "nope", "--build", COTAN.parent],
     'bench: no case of train gpt2, scan has "nope" in its name, as step, forward, gradient'),
    (["scan", "--cases", "forward", "--length", 0, "--build", COTAN.parent],
     "bench: Cotan ended with 2: rows: scan: --length must be from 1 to 16777216, not 0"),
    (["scan", "--build", "/nowhere"], "bench: /nowhere/bench/rows is not there; make build makes it"),
    (["scan", "--pairs", 1, "--length", 0, "--build", COTAN.parent],
     "bench: Cotan ended with 2: rows: scan: --length must be from 1 to 16777216, not 0"),
])
def test_compare_refuses(words, text, tmp_path):
    done = compare(*words, "--out", tmp_path)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.splitlines()[-1] == text
    assert list(tmp_path.iterdir()) == []
