"""Language models in GGUF files, written with gguf: logits are those of the same weights in Hugging Face's layout, and of
quantised weights near those of the numbers that the blocks stand for."""
import json

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from support import language_models as lm  # noqa: E402
from test_language_models import fill, make, run  # noqa: E402

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
ARCHITECTURE = {"llama2": "llama", "llama3": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma"}
SIZE = 2  # of the models that are quantised, whose rows must be whole blocks
# Such files say nothing of windows.
MODELS = lm.MODELS | {"qwen2": (*lm.MODELS["qwen2"][:2], lm.MODELS["qwen2"][2] | {"use_sliding_window": False, "sliding_window": None})}


def neighbours(x, heads):
    """Rows of each head in the order of files whose rotation is of neighbours."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def quantised(x, kind):
    """Bytes of blocks; of types that gguf does not make, of random ones whose numbers are as large as x's."""
    try:
        return gguf.quants.quantize(x, kind)
    except NotImplementedError:
        pass
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    made = np.random.default_rng(x.shape[0] + x.size).integers(0, 256, (*x.shape[:-1], x.shape[-1] // elements, size), dtype=np.uint8)
    name = kind.name  # where d is, and by how much the numbers would be too large
    at, most = {"Q2_K": (80, 45), "Q3_K": (108, 128), "Q4_K": (0, 945), "Q5_K": (0, 1953), "Q6_K": (208, 4096), "IQ4_NL": (0, 127),
                "IQ4_XS": (0, 4000)}[name]
    scale = np.full(made.shape[:-1], 2 * x.std() / most, np.float16)
    made[..., at:at + 2] = scale[..., None].view(np.uint8)
    if name in ("Q2_K", "Q4_K", "Q5_K"):  # the minimums are half of the range
        half = np.full(made.shape[:-1], 2 * x.std() / most * {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}[name], np.float16)
        made[..., at + 2:at + 4] = half[..., None].view(np.uint8)
    return made.reshape(*x.shape[:-1], -1)


def write(path, name, config, weights, kind, factors=None):
    """The file; returns the weights that it holds, as numbers."""
    architecture, heads, kv_heads = ARCHITECTURE[name], config["num_attention_heads"], config["num_key_value_heads"]
    head, out, held = config.get("head_dim") or config["hidden_size"] // heads, gguf.GGUFWriter(path, architecture), {}
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head)
    out.add_value_length(head)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if factors is not None:
        out.add_tensor("rope_freqs.weight", factors)
    for full, x in weights.items():
        base, end = full.rsplit(".", 1)
        layer = base.split(".", 3) if base.startswith("model.layers.") else None
        own = f"blk.{layer[2]}.{LAYER[layer[3]]}" if layer else TOP[base]
        order = heads if own.endswith("attn_q") else kv_heads if own.endswith("attn_k") else 0
        stored = x + np.float32(1) if architecture == "gemma" and "norm" in own else x
        if architecture == "llama" and order:
            stored = neighbours(stored, order)
        if x.ndim == 2 and kind != "F32":
            block = gguf.GGMLQuantizationType[kind]
            data = quantised(np.ascontiguousarray(stored), block)
            out.add_tensor(f"{own}.{end}", data, raw_dtype=block)
            back = gguf.quants.dequantize(data, block).astype(np.float32)
            if architecture == "llama" and order:
                back = back.reshape(order, back.shape[0] // order // 2, 2, -1).swapaxes(1, 2).reshape(back.shape)
            held[full] = back
        else:
            out.add_tensor(f"{own}.{end}", np.ascontiguousarray(stored))
            held[full] = x
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return held


@pytest.mark.parametrize("name", ARCHITECTURE.keys() - {"llama3"})
def test_f32_has_the_same_logits(name, tmp_path):
    fill(make(MODELS[name]), tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    write(tmp_path / "model.gguf", name, config, lm.safetensors.read(tmp_path / "model/model.safetensors"), "F32")
    want = run("logits", name, tmp_path / "model", tmp_path)["logits"]
    got = run("logits", name, tmp_path / "model.gguf", tmp_path)["logits"]
    assert abs(got - want).max() < 1e-5 * max(1, abs(want).max())


# 0.06: rows of bytes
KINDS = {"F16": 1e-6} | dict.fromkeys(["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"], 0.06)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama2", "qwen2"])
def test_blocks_are_the_numbers_that_they_stand_for(name, kind, tmp_path):
    """Codes meet rows of bytes: what that rounds, and nothing more, is between."""
    folder = tmp_path / "model"
    model, config, given = MODELS[name]
    whole = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0] == 256
    sizes = {"hidden_size": 256, "intermediate_size": 512} if whole else {k: v * SIZE for k, v in given.items() if k in ("hidden_size", "intermediate_size")}
    fill(make((model, config, given | sizes)), folder)
    config = json.loads((folder / "config.json").read_text())
    held = write(tmp_path / "model.gguf", name, config, lm.safetensors.read(folder / "model.safetensors"), kind)
    lm.safetensors.write(folder / "model.safetensors", {k: np.ascontiguousarray(v) for k, v in held.items()})
    want = run("logits", name, folder, tmp_path)["logits"]
    got = run("logits", name, tmp_path / "model.gguf", tmp_path)["logits"]
    off = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
    print(f"{name} {kind}: {off:.2e}")
    assert off < KINDS[kind]


def test_factors_of_the_rotation(tmp_path):
    """Llama 3.1's stretching, which such files have as a weight."""
    fill(make(lm.MODELS["llama3"]), tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    r = config["rope_parameters"]
    wave = 2 * np.pi * r["rope_theta"] ** (np.arange(4) / 4)
    smooth = np.clip((r["original_max_position_embeddings"] / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"]), 0, 1)
    factors = (1 / ((1 - smooth) / r["factor"] + smooth)).astype(np.float32)
    assert (factors > 1).any()
    weights = lm.safetensors.read(tmp_path / "model/model.safetensors")
    write(tmp_path / "model.gguf", "llama3", config, weights, "F32", factors)
    want = run("logits", "llama3", tmp_path / "model", tmp_path)["logits"]
    got = run("logits", "llama3", tmp_path / "model.gguf", tmp_path)["logits"]
    assert abs(got - want).max() < 1e-5 * max(1, abs(want).max())


def test_there_is_no_training_on_from_one(tmp_path):
    import os
    import subprocess
    folder = tmp_path / "llama2"
    theirs, shapes = fill(make(MODELS["llama2"]), folder)
    weights = {k: lm.weight(k, s) for k, s in shapes.items()}
    write(tmp_path / "model.gguf", "llama2", json.loads((folder / "config.json").read_text()), weights, "F32")
    (tmp_path / "text.txt").write_text("a text " * 100)
    done = subprocess.run([os.environ["COTAN_BUILD"] + "/cotan", "train", "--data", tmp_path / "text.txt", "--from", tmp_path / "model.gguf"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"cotan: train: --from {tmp_path}/model.gguf: a run cannot save GGUF: give "
                                                 "the folder from which the file was made\n")
