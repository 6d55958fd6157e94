"""The engine: what a request is told does not depend on its neighbours, on pages that are short or shared, or on what
was cancelled, in any bit; and after its warming nothing is planned or compiled."""
import json
import os
import subprocess

import numpy as np
import pytest
from support import language_models as lm
from support.program import command

PROGRAM = command("tests/unit/test_engine")
RECORDED = np.load(lm.RECORDED)
# Grouped heads, windows and soft caps, latent attention, sinks, chunks, states of both kinds.
MODELS = ["llama3", "gemma2", "deepseek_v2", "gpt_oss", "llama4", "mamba", "rwkv"]


def run(folder, seed, dtype, **env):
    done = subprocess.run([*PROGRAM, folder, str(seed), dtype], capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_schedules(name, tmp_path):
    config, shapes = (json.loads(str(RECORDED[f"{name}.{what}"])) for what in ("config", "shapes"))
    lm.save(tmp_path / "model", config, shapes)
    shared = preempted = guessed = 0
    seeds = range(1, 3 if name in ("mamba", "rwkv") else 6)
    if len(seeds) > 3 and not os.environ.get("COTAN_TEST_ALL"):  # of each model some, so that all meet each dtype of keys
        seeds = seeds[MODELS.index(name) % 3:][:3]
    for seed in seeds:
        told = run(tmp_path / "model", seed, ("f32", "f16", "bf16", "i8")[seed % 4], COTAN_CC="none")
        assert told["made"] == 0
        assert told["finished"] + told["cancelled"] == 24
        shared += told["cached"]
        preempted += told["preempted"]
        guessed += told["guessed_well"]
    if told["pages"]:
        assert shared > 100 * len(seeds) and preempted > 0 and guessed > 0


@pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason="compiles two hundred kernels; CI and make test-all do")
def test_compiled(tmp_path):
    config, shapes = (json.loads(str(RECORDED[f"qwen3.{what}"])) for what in ("config", "shapes"))
    lm.save(tmp_path / "model", config, shapes)
    assert run(tmp_path / "model", 3, "f32")["made"] == 0
