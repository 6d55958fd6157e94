"""cotan run: a small model with a tokenizer of its own goes on with a text, and answers by its chat template."""
import json
import os
import subprocess

import numpy as np
import pytest
from support import language_models as lm
from support.program import command

COTAN = command("cotan")
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def cotan(*args, stdin="", fails=0):
    done = subprocess.run([*COTAN, *map(str, args)], input=stdin, capture_output=True, text=True, env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == fails, done.stderr
    return done.stdout if not fails else done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 50)
    cotan("tokenize", folder / "text.txt", "--train", "bpe:300", "--out", folder / "model")
    recorded = np.load(lm.RECORDED)
    config, shapes = (json.loads(str(recorded[f"llama2.{what}"])) for what in ("config", "shapes"))
    config["vocab_size"] = 300
    shapes = {k: [300, *s[1:]] if k in ("model.embed_tokens.weight", "lm_head.weight") else s for k, s in shapes.items()}
    lm.save(folder / "model", config, shapes)
    return folder / "model"


def test_it_goes_on_with_a_text(model):
    said = cotan("run", model, "--prompt", "the quick", "--length", 12, "--temperature", 0)
    assert said.startswith("the quick") and said.endswith("\n")
    assert said == cotan("run", model, "--length", 12, "--temperature", 0, stdin="the quick")
    drawn = [cotan("run", model, "--prompt", "the", "--length", 12, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_it_answers_by_its_template(model):
    (model / "chat_template.jinja").write_text(TEMPLATE)
    try:
        said = cotan("run", model, "--prompt", "fox", "--system", "dog", "--length", 8, "--temperature", 0)
        raw = cotan("run", model, "--raw", "--length", 8, "--temperature", 0,
                    "--prompt", "<system>dog</system><user>fox</user><assistant>")
        assert raw == "<system>dog</system><user>fox</user><assistant>" + said
        (model / "chat_template.jinja").write_text("{% if %}")
        assert "chat_template.jinja" in cotan("run", model, "--prompt", "fox", fails=1)
    finally:
        (model / "chat_template.jinja").unlink()


def test_what_is_no_model(model, tmp_path):
    assert cotan("run", tmp_path / "nothing", fails=1).startswith("cotan: ")
    assert "temperature" in cotan("run", model, "--temperature", -1, fails=2)
    (model / "config.json").rename(model / "config.away")
    try:
        assert "config.json" in cotan("run", model, "--prompt", "fox", fails=1)
    finally:
        (model / "config.away").rename(model / "config.json")
