"""Language models of every architecture: logits as Hugging Face's library has them (recorded by record_language_models.py),
the same bits whether a text is read whole, in pieces or token by token, and sentences for what does not fit."""
import json
import os
import subprocess

import numpy as np
import pytest
from support import language_models as lm
from support.program import command

PROGRAM = command("tests/unit/test_language_models")
RECORDED = np.load(lm.RECORDED)
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
    ({"partial_rotary_factor": 0, "rope_parameters": None}, "MODEL/config.json: 0 pairs of a head of 8 numbers cannot be rotated by a theta of 10000"),
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
        '"model.layers.0.self_attn.q_proj.weight" is (32, 31) F32, (32, 32) f32 is expected; '
        '"model.layers.1.block_sparse_moe.experts.2.w3.weight" is missing')


@pytest.mark.parametrize("letters, listed", [(1, 10), (200, 4)])
def test_of_many_weights_that_do_not_fit_ten_are_listed(tmp_path, letters, listed):
    """Of longer names as many as an error has room for, and always how many more there are."""
    config, shapes = config_of("llama2")
    names = [f"model.layers.0.{i:03d}{'z' * letters}" for i in range(291)]
    shown = "; ".join(f'"{name[:150]}" has no place in it' for name in names[:listed])
    assert fault(tmp_path, config, shapes | {name: [1] for name in names}) == (
        f"MODEL: 291 of the weights that llama has do not fit: {shown}; and {291 - listed} more")


def test_weights_that_nobody_asks_for(tmp_path):
    """What a layer has and the architecture does not know would be left out of the numbers; tables and masks may be there."""
    config, shapes = config_of("llama2")
    extra = {"model.layers.0.self_attn.q_proj.bias": [32], "model.layers.2.mlp.down_proj.weight_scale_inv": [1, 1],
             "model.layers.1.self_attn.rotary_emb.inv_freq": [4], "model.layers.3.mlp.down_proj.weight": [3], "elsewhere": [2]}
    assert fault(tmp_path, config, shapes | extra) == (
        'MODEL: 2 of the weights that llama has do not fit: "model.layers.0.self_attn.q_proj.bias" has no place in it; '
        '"model.layers.2.mlp.down_proj.weight_scale_inv" has no place in it')


def test_a_text_beyond_the_context(tmp_path):
    config, shapes = config_of("llama2")
    lm.save(tmp_path / "model", config, shapes)
    text = run("logits", tmp_path / "model", tmp_path, ids=np.zeros((1, 129), np.int32), fails=True)
    assert text.split(": ", 1)[1].strip() == ("lm_logits: the tokens have 2 axes, the last of size 129; "
                                              "they must be (batch, time) with a time of 1 to 128")


def test_what_is_written(tmp_path):
    """By steps and by ct_lm_generate the same tokens, the likeliest of logits that a whole reading has, with their probabilities."""
    config, shapes = config_of("qwen3")
    lm.save(tmp_path / "model", config, shapes)
    ids = lm.IDS[:1]
    steps, got = run("write", tmp_path / "model", tmp_path, ids=ids), run("generate", tmp_path / "model", tmp_path, ids=ids)
    assert steps["tokens"].tolist() == got["tokens"].tolist()
    text = np.concatenate([ids[0], got["tokens"]])[None]
    logits = run("logits", tmp_path / "model", tmp_path, ids=text)["logits"][0, ids.shape[1] - 1:-1].astype(np.float64)
    assert logits.argmax(1).tolist() == got["tokens"].tolist()
    own = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert abs(own[np.arange(64), got["tokens"]] - got["log_probabilities"]).max() < 1e-9
    drawn = [run(f"generate{seed}", tmp_path / "model", tmp_path, ids=ids)["tokens"].tolist() for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_beams(tmp_path):
    """No less likely than the likeliest token each time, with the probabilities that a whole reading gives; a model that reads
    another text writes what follows there."""
    config, shapes = config_of("qwen3")
    lm.save(tmp_path / "model", config, shapes)
    ids = lm.IDS[:1]
    greedy, best = (run(mode, tmp_path / "model", tmp_path, ids=ids) for mode in ("generate", "generateb495"))
    tokens = best["tokens"]
    assert tokens.size == 12 and best["log_probabilities"].sum() >= greedy["log_probabilities"][:12].sum()
    logits = run("logits", tmp_path / "model", tmp_path, ids=np.concatenate([ids[0], tokens])[None])["logits"]
    logits = logits[0, ids.shape[1] - 1:-1].astype(np.float64)
    own = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert abs(own[np.arange(12), tokens] - best["log_probabilities"]).max() < 1e-9
    lm.save(tmp_path / "t5", *config_of("t5"))
    np.savez(tmp_path / "pair.npz", ids=ids, written=np.zeros((1, 1), np.int32))
    subprocess.run([*PROGRAM, "write", tmp_path / "t5", tmp_path / "pair.npz", tmp_path / "steps.npz"], check=True,
                   env=os.environ | {"COTAN_CC": "none"})
    steps = np.load(tmp_path / "steps.npz")["tokens"].tolist()
    assert run("generate", tmp_path / "t5", tmp_path, ids=ids)["tokens"].tolist() == steps
    assert steps[0] not in run(f"generateb2{steps[0]}", tmp_path / "t5", tmp_path, ids=ids)["tokens"]


def search(scores, prompt, beams, end, most):
    """The likeliest continuation that `beams` texts side by side find, by its log-probability a token, the end among them; scores gives
    the log-probabilities of what follows each of several texts."""
    running, ended = [(0.0, tuple(prompt))], []
    for time in range(1, most + 1):
        found = [(score + row[token], (*text, int(token))) for (score, text), row in zip(running, scores([text for _, text in running]))
                 for token in np.argsort(-row)[:2 * beams]]
        found = sorted(found, reverse=True)[:2 * beams]
        ended += [(score / time, text) for score, text in found[:beams] if text[-1] == end or time == most]
        ended = sorted(ended, reverse=True)[:beams]
        running = [beam for beam in found if beam[1][-1] != end][:beams]
        if len(ended) == beams and running[0][0] / time <= ended[-1][0]:
            break
    written = list(ended[0][1][len(prompt):])
    return written[:-1] if written[-1] == end else written


@pytest.mark.parametrize("beams, end", [(2, 86), (2, 2), (3, 2), (4, 18)])
def test_beams_that_end(beams, end, tmp_path):
    """The search stops when nothing that runs can be better than what has ended: for two beams and 86 the best runs on, the second could not."""
    lm.save(tmp_path / "model", *config_of("qwen3"))

    def scores(texts):
        logits = run("logits", tmp_path / "model", tmp_path, ids=np.array(texts, np.int32))["logits"][:, -1]
        return [np.log(probabilities(row)) for row in logits]
    got = run(f"generateb{beams}{end}", tmp_path / "model", tmp_path, ids=lm.IDS[:1])["tokens"]
    assert got.tolist() == search(scores, lm.IDS[0].tolist(), beams, end, 12)


def probabilities(scores):
    p = np.exp(scores.astype(np.float64) - scores.max())
    return p / p.sum()


def test_penalties_bias_and_bans(tmp_path):
    seen, written = np.unique(lm.TEXT), np.bincount(lm.TEXT[25:], minlength=300)
    want = lm.SCORES.copy()
    want[seen] = np.where(want[seen] < 0, want[seen] * np.float32(1.3), want[seen] / np.float32(1.3))
    want = want - (0.4 * written + 0.7 * (written > 0)).astype(np.float32)
    want[[7, 9]] += np.float32([2.5, -100])
    want[11] = -np.inf
    got = lm.process(PROGRAM, tmp_path, repetition=1.3, frequency=0.4, presence=0.7, bias=[(7, 2.5), (9, -100)], banned=[*lm.TEXT[-2:], 11])
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (lm.process(PROGRAM, tmp_path, banned=[lm.TEXT[-2], 11]) == lm.SCORES).all()


@pytest.mark.parametrize("size, banned", [(1, {1, 2, 3, 4}), (2, {3, 4}), (3, {3}), (4, set()), (20, set())])
def test_what_would_repeat(size, banned, tmp_path):
    got = lm.process(PROGRAM, tmp_path, prompt=4, text=np.array([1, 2, 3, 2, 4, 1, 2], np.int32), no_repeat=size)
    assert set(np.flatnonzero(got == -np.inf)) == banned


def test_options_that_are_wrong(tmp_path):
    config, shapes = config_of("llama2")
    lm.save(tmp_path / "model", config, shapes)

    def said(mode, ids):
        return run(mode, tmp_path / "model", tmp_path, ids=ids, fails=True).split(": ", 1)[1].strip()
    assert said("generate-", lm.IDS[:1]) == "lm_generate: temperature is -1, it must be 0 to 1e+06"
    assert said("generate", np.zeros((1, 128), np.int32)) == ("lm_generate: the prompt has 128 tokens; it must have 1 to 127, "
                                                              "one less than the context")
    assert said("generate", np.full((1, 3), 96, np.int32)) == "lm_generate: token 0 of the prompt is 96, it must be 0 to 95"
    config, shapes = config_of("bert")
    lm.save(tmp_path / "model", config, shapes)
    assert said("generate", lm.IDS[:1]) == "lm_generate: bert does not generate text"


@pytest.mark.parametrize("options, kept", [
    (dict(top_k=7), lambda p: np.argsort(-p)[:7]),
    (dict(min_p=0.05), lambda p: np.flatnonzero(p >= 0.05 * p.max())),
    (dict(top_p=0.8), lambda p: np.argsort(-p)[:np.searchsorted(np.cumsum(np.sort(p)[::-1]), 0.8) + 1]),
    (dict(top_p=0.01), lambda p: [p.argmax()]),
    (dict(typical=0.5), lambda p: (o := np.argsort(abs(-np.log(p) - (-p * np.log(p)).sum())))[:np.searchsorted(np.cumsum(p[o]), 0.5) + 1]),
    (dict(temperature=0.5), lambda p: np.arange(300)),
])
def test_what_remains(options, kept, tmp_path):
    scores = (lm.SCORES / options.get("temperature", 1)).astype(np.float32)
    got, keep = lm.process(PROGRAM, tmp_path, **options), kept(probabilities(scores))
    assert sorted(np.flatnonzero(got > -np.inf)) == sorted(keep)
    np.testing.assert_allclose(got[keep], scores[keep], rtol=1e-6)


@pytest.mark.parametrize("name, change, text", [
    ("gemma3", {"use_bidirectional_attention": True}, '"use_bidirectional_attention" is true, which is not computed: it must be false'),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, '"scale_attn_by_inverse_layer_idx" is true, which is not computed: it must be false'),
    ("gpt2", {"scale_attn_weights": False}, '"scale_attn_weights" is false, which is not computed: it must be true'),
    ("bert", {"is_decoder": True}, '"is_decoder" is true, which is not computed: it must be false'),
    ("roberta", {"position_embedding_type": "relative_key"}, '"position_embedding_type" is relative_key, which is not computed: it must be absolute'),
    ("llama2", {"clip_qkv": 8.5}, '"clip_qkv" is 8.5, which is not computed: it must be 0'),
    ("qwen2", {"is_causal": False}, '"is_causal" is false, which is not computed: it must be true'),
    ("deepseek_v2", {"scoring_func": "sigmoid"}, '"scoring_func" is sigmoid, which is not computed: it must be softmax'),
    ("deepseek_v3", {"topk_method": ["greedy"]}, '"topk_method" is a list, which is not computed: it must be noaux_tc'),
    ("deepseek_v2", {"topk_method": "own"}, '"topk_method" is own, which is not computed: it must be one of: greedy group_limited_greedy'),
])
def test_a_key_that_is_not_computed(name, change, text, tmp_path):
    config, shapes = config_of(name)
    assert fault(tmp_path, config | change, shapes) == "MODEL/config.json: " + text


def test_keys_that_change_nothing(tmp_path):
    config, shapes = config_of("gpt2")
    lm.save(tmp_path / "model", config | {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": None, "is_decoder": True}, shapes)
    run("logits", tmp_path / "model", tmp_path)


# What the config says where its key is left out or null: ("$?key" tells the two apart).
@pytest.mark.parametrize("key, left_out", [("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0), ("sliding_window", 4096)])
def test_null_is_not_left_out(key, left_out, tmp_path):
    config, shapes = config_of("gemma2")
    given = {"left out": {k: v for k, v in config.items() if k != key}, "null": config | {key: None}, "said": config | {key: left_out},
             "none": config | {key: 0}}
    got = {}
    for name, one in given.items():
        lm.save(tmp_path / name, one, shapes)
        got[name] = run("logits", tmp_path / name, tmp_path)["logits"]
    assert (got["left out"] == got["said"]).all() and (got["null"] == got["none"]).all()
    assert key == "sliding_window" or abs(got["null"] - got["said"]).max() > 1e-3  # no text is so long
