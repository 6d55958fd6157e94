"""What `cotan train` and `cotan sample` do where they are told nothing is what include/cotan/lm.h documents.

A run with the documented numbers given has the bits of one with none, and one with another number has not."""
import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
SMALL = {"--tokenizer": "chars", "--layers": 1, "--heads": 1, "--width": 4, "--context": 4, "--batch": 1}
STEPS = 45

# Of a run of so many steps. Another value of each, which must matter.
DOCUMENTED = {"--lr": (1e-3, 1.1e-3), "--min-lr": (1e-4, 1.1e-4), "--warmup": (4, 5), "--beta1": (0.9, 0.89), "--beta2": (0.99, 0.991),
              "--weight-decay": (0.1, 0.11), "--clip": (1, 0.9), "--dropout": (0, 0.1), "--accumulate": (1, 2),
              "--eval-every": (4, 5), "--eval-batches": (50, 49), "--seed": (0, 1), "--steps": (STEPS, STEPS - 1)}


def cotan(*words, **env):
    done = subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | {"COTAN_DEVICE": "ref"} | env)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text((ROOT / "README.md").read_text()[:4000])
    return path


def trained(corpus, out, options, **env):
    """The metrics, without what a clock or the compiler says, and the bytes of the weights."""
    cotan("train", "--data", corpus, *[w for pair in (SMALL | options).items() for w in pair], "--out", out, **env)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    told = [{k: v for k, v in m.items() if k not in ("ms", "tokens_per_s", "plans_compiled")} for m in lines]
    return told, (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    return trained(corpus, tmp_path_factory.mktemp("plain") / "run", {"--steps": STEPS})


def test_the_documented_numbers_are_the_defaults(corpus, plain, tmp_path):
    assert trained(corpus, tmp_path / "run", {option: number for option, (number, _) in DOCUMENTED.items()}) == plain


@pytest.mark.parametrize("option", DOCUMENTED)
def test_another_number_is_another_run(corpus, plain, option, tmp_path):
    told, weights = trained(corpus, tmp_path / "run", {"--steps": STEPS} | {option: DOCUMENTED[option][1]})
    if option in ("--eval-every", "--eval-batches"):
        assert weights == plain[1] and [m.get("val_loss") for m in told] != [m.get("val_loss") for m in plain[0]]
    else:
        assert weights != plain[1]


def test_saves_come_with_evaluations(corpus, tmp_path):
    trained(corpus, tmp_path / "run", {"--steps": 9, "--eval-every": 4})
    assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == ["step-8", "step-9"]


def test_a_run_that_is_told_nothing_of_its_steps(corpus, tmp_path):
    """2,000 of them; the rate rises over 100 and falls along a cosine to a tenth; every 200th step is evaluated."""
    told, _ = trained(corpus, tmp_path / "run", {})
    assert [m["step"] for m in told] == list(range(2000))
    rates = [1e-3 * (s + 1) / 101 if s < 100 else 1e-4 + 0.5 * (1 + math.cos(math.pi * (s - 100) / 1900)) * 9e-4
             for s in range(2000)]
    assert np.allclose([m["lr"] for m in told], rates, rtol=1e-6, atol=0)
    assert [m["step"] for m in told if "val_loss" in m] == [*range(0, 2000, 200), 1999]
    assert len(cotan("sample", tmp_path / "run").stdout) in (500, 501)  # a line's end closes what has none


@pytest.mark.parametrize("width, rate", [(508, 1e-3), (512, 6e-4)])
def test_the_rate_of_a_wide_model(corpus, tmp_path, width, rate):
    told, _ = trained(corpus, tmp_path / "run", {"--width": width, "--steps": 1, "--warmup": 0, "--eval-batches": 1},
                      COTAN_DEVICE="cpu", COTAN_CC="none")
    assert [m["lr"] for m in told] == [pytest.approx(rate, rel=1e-6)]
