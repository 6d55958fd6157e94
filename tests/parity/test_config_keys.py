"""What config.json says, or leaves out, against Hugging Face's library: keys that take a part of an architecture back, and
configs without what is so of itself in their classes."""
import json

import numpy as np
import pytest

transformers = pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
torch = pytest.importorskip("torch")

from support import language_models as lm  # noqa: E402
from test_language_models import fill, logits_of, make, run  # noqa: E402


def compare(name, model, tmp_path, change, ids=None):
    """Logits of a folder whose config.json is changed."""
    kind, config, given = model
    folder = tmp_path / "model"
    fill(make(model), folder)
    read = json.loads((folder / "config.json").read_text())
    change(read)
    (folder / "config.json").write_text(json.dumps(read))
    with torch.no_grad():
        theirs = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval().float()
        if ids is None:
            want, got = logits_of(name, theirs).numpy(), run("logits", name, folder, tmp_path)["logits"]
        else:
            want, got = theirs(input_ids=torch.tensor(ids, dtype=torch.long)).logits.numpy(), run("logits", name, folder, tmp_path, ids=ids)["logits"]
    assert abs(got - want).max() < 1e-4 * max(1, abs(want).max())


def more(name, *drop, **given):
    kind, config, own = lm.MODELS[name]
    return kind, config, {k: v for k, v in (own | given).items() if k not in drop}


MSCALES = lm.LONG | dict(short_mscale=1.3, long_mscale=1.7)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)
# what the key is about: (the model, what config.json says, tokens of the texts)
KEYS = {
    "no norms of queries and keys": (more("llama4", use_qk_norm=False), {}, 40),
    "layers with experts by a list": (more("llama4", moe_layers=[0, 3]), {}, 40),
    "a scale of short texts": (more("phimoe", rope_parameters=MSCALES, original_max_position_embeddings=24), {}, 20),
    "every so many layers see all": (more("modernbert"), {"layer_types": None, "global_attn_every_n_layers": 2}, 40),
    "halves turn": (more("deepseek_v3", rope_interleave=False), {}, 40),
    "dynamic within the context": (more("llama2", max_position_embeddings=16, rope_parameters=DYNAMIC), {}, 16),
    "dynamic beyond the context": (more("llama2", max_position_embeddings=16, rope_parameters=DYNAMIC), {}, 40),
    "yarn beyond the context": (more("llama2", max_position_embeddings=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)), {}, 40),
    "linear beyond the context": (more("llama2", max_position_embeddings=16, rope_parameters=dict(
        rope_type="linear", rope_theta=10000.0, factor=4.0)), {}, 40),
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key(key, tmp_path):
    model, says, length = KEYS[key]

    def change(config):
        for k, v in says.items():
            config[k] = v
            if v is None:
                del config[k]
    compare(key, model, tmp_path, change, lm.IDS[:, :length])


# Keys that are sizes of these models or, of GPT-OSS, a way of stretching that all its files say.
KEPT = {"model_type", "architectures", "dtype", "vocab_size"}
STRETCHED = {"gpt_oss"}


@pytest.mark.parametrize("name", lm.MODELS)
def test_what_is_so_of_itself_may_be_left_out(name, tmp_path):
    kind, config, given = lm.MODELS[name]
    usual = getattr(transformers, config)().to_dict()
    kept = KEPT | ({"rope_parameters"} if name in STRETCHED else set())

    def change(read):
        for key, value in list(read.items()):
            if key not in kept and key in usual and usual[key] == value and not isinstance(value, list):
                del read[key]
    compare(name, lm.MODELS[name], tmp_path, change)


def test_gemma_3_as_it_is_published(tmp_path):
    """The text part of a model of texts and images, of which config.json says hidden sizes, layers and windows alone."""
    kind, config = "Gemma3ForCausalLM", "Gemma3TextConfig"
    given = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=7, sliding_window=12,
                 rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                      sliding_attention=dict(rope_type="default", rope_theta=1e4)))
    model, _ = fill(make((kind, config, given)), tmp_path / "model")
    (tmp_path / "model/config.json").write_text(json.dumps({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": dict(
        model_type="gemma3_text", hidden_size=16, intermediate_size=24, num_hidden_layers=7, sliding_window=12,
        rope_scaling=dict(rope_type="linear", factor=8.0))}))
    ids = np.random.default_rng(3).integers(0, 262208, (1, 40)).astype(np.int32)
    with torch.no_grad():
        want = model(input_ids=torch.tensor(ids, dtype=torch.long)).logits.numpy()
    got = run("logits", "gemma3", tmp_path / "model", tmp_path, ids=ids)["logits"]
    assert abs(got - want).max() < 1e-4 * max(1, abs(want).max())
