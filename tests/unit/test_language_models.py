"""Language models of every architecture: logits as Hugging Face's library has them (recorded by record_language_models.py),
the same bits whether a text is read whole, in pieces or token by token, and sentences for what does not fit."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import language_models as lm
from support.program import command

PROGRAM = command("tests/unit/test_language_models")
RECORDED = np.load(Path(__file__).parent / "language_models.npz")
PIECE = 7  # of the program


def run(mode, folder, tmp_path, *more, ids=lm.IDS, pair=False, fails=False):
    np.savez(tmp_path / "in.npz", ids=ids, **({"written": lm.WRITTEN} if pair else {}))
    done = subprocess.run([*PROGRAM, mode, folder, tmp_path / "in.npz", tmp_path / "out.npz", *more],
                          capture_output=True, text=True, env=os.environ | {"COTAN_CC": "none"})
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else dict(np.load(tmp_path / "out.npz"))


def config_of(name):
    return json.loads(str(RECORDED[f"{name}.config"])), json.loads(str(RECORDED[f"{name}.shapes"]))


@pytest.fixture(params=lm.MODELS)
def model(request, tmp_path):
    lm.save(tmp_path / "model", *config_of(request.param))
    return request.param, tmp_path / "model"


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32)


def test_logits(model, tmp_path):
    name, folder = model
    want, got = RECORDED[f"{name}.logits"], run("logits", folder, tmp_path, pair=name in lm.PAIRS)["logits"]
    assert abs(got[:1, RECORDED["at"] % got.shape[1]] - want).max() < 1e-4 * max(1, abs(want).max())
    if name in lm.ENCODERS | lm.PAIRS:
        return
    found = run("steps", folder, tmp_path)
    batch, time, vocab = got.shape
    tokens = found["tokens"].reshape(time, batch, vocab).transpose(1, 0, 2)
    assert (bits(tokens) == bits(got)).all()
    ends = np.minimum(np.arange(PIECE, time + PIECE, PIECE), time) - 1
    assert (bits(found["pieces"]) == bits(got[:, ends]).reshape(-1, vocab)).all()


def test_what_is_saved_is_what_was_loaded(tmp_path):
    for name in ("llama2", "mixtral", "gpt_oss"):
        config, shapes = config_of(name)
        lm.save(tmp_path / name, config, shapes)
        run("logits", tmp_path / name, tmp_path, tmp_path / f"{name}.saved")
        was, now = (lm.safetensors.read(tmp_path / f"{folder}/model.safetensors") for folder in (name, f"{name}.saved"))
        assert was.keys() == now.keys() and all((was[k] == now[k]).all() for k in was)
        assert json.loads((tmp_path / f"{name}.saved/config.json").read_text()) == config


def fault(tmp_path, config, shapes):
    lm.save(tmp_path / "model", config, shapes)
    text = run("logits", tmp_path / "model", tmp_path, fails=True)
    return text.replace(str(tmp_path / "model"), "MODEL").split(": ", 2)[2].strip()


@pytest.mark.parametrize("change, text", [
    ({"model_type": "lama"}, 'MODEL/config.json: key "model_type" is "lama", an architecture that is not known\n'
                             '  hint: the nearest that is known is "llama"'),
    ({"model_type": None}, 'MODEL/config.json: key "model_type" is missing'),
    ({"hidden_size": None}, 'MODEL/config.json: key "hidden_size" is missing'),
    ({"hidden_size": "wide"}, 'MODEL/config.json: "width" ($hidden_size|$n_embd|$d_model|$dim) is no number'),
    ({"num_hidden_layers": 2.5}, 'MODEL/config.json: "layers" ($num_hidden_layers|$n_layer|$num_layers|$n_layers) is 2.5, '
                                 'it must be a whole number'),
    ({"num_hidden_layers": 0}, "MODEL/config.json: layers is 0, it must be 1 to 10000"),
    ({"num_key_value_heads": 3}, "MODEL/config.json: 4 heads are no multiple of 3 of keys and values"),
    ({"hidden_act": "sine"}, 'MODEL/config.json: "act" is "sine", it must be one of: silu gelu gelu_new gelu_pytorch_tanh '
                             "gelu_fast relu swish relu2 quick_gelu tanh"),
    ({"rope_parameters": {"rope_type": "spiral"}}, 'MODEL/config.json: "rope_type" is "spiral", it must be one of: default linear '
                                                   "dynamic yarn longrope llama3"),
    ({"layer_types": ["half_attention"] * 3}, 'MODEL/config.json: "layer_types" has "half_attention", layers are one of: '
                                              "full_attention sliding_attention chunked_attention"),
    ({"rms_norm_eps": 0}, "MODEL/config.json: eps is 0, it must be above 0"),
])
def test_a_config_that_is_wrong(tmp_path, change, text):
    config, shapes = config_of("llama2")
    config = {k: v for k, v in (config | change).items() if v is not None}
    assert fault(tmp_path, config, shapes) == text


def test_weights_that_do_not_fit_are_all_listed(tmp_path):
    config, shapes = config_of("mixtral")
    del shapes["model.norm.weight"], shapes["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    shapes["model.layers.0.self_attn.q_proj.weight"] = [32, 31]
    assert fault(tmp_path, config, shapes) == (
        'MODEL: 3 of the weights that mixtral has do not fit: "model.norm.weight" is missing; '
        '"model.layers.0.self_attn.q_proj.weight" is (32, 31) F32, (32, 32) f32 is wanted; '
        '"model.layers.1.block_sparse_moe.experts.2.w3.weight" is missing')


def test_a_text_beyond_the_context(tmp_path):
    config, shapes = config_of("llama2")
    lm.save(tmp_path / "model", config, shapes)
    text = run("logits", tmp_path / "model", tmp_path, ids=np.zeros((1, 129), np.int32), fails=True)
    assert text.split(": ", 1)[1].strip() == ("lm_logits: the tokens have 2 axes, the last of size 129; "
                                              "they must be (batch, time) with a time of 1 to 128")
