"""GGUF files of architectures with windows, experts, latent attention and stretched rotations, written as llama.cpp's converter has them: logits are
those of the same weights in Hugging Face's layout and, where it is built, llama.cpp's."""
import json

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from support import language_models as lm  # noqa: E402
from test_language_models import run  # noqa: E402
from test_llama_cpp import HEADER, LIBRARY, VOCAB, theirs  # noqa: E402, F401

RECORDED = np.load(lm.RECORDED)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0)
LINEAR = dict(full_attention=dict(rope_theta=1e6, rope_type="linear", factor=4.0), sliding_attention=dict(rope_theta=2e4, rope_type="default"))
# name: (the recorded model, GGUF's architecture, what of its config is other: what files cannot say)
ARCHITECTURES = {
    "gemma2": ("gemma2", "gemma2", dict(query_pre_attn_scalar=12)), "gemma3": ("gemma3", "gemma3", dict(query_pre_attn_scalar=12)),
    "gemma3 stretched": ("gemma3", "gemma3", dict(query_pre_attn_scalar=12, rope_parameters=LINEAR)), "phi3": ("phi3", "phi3", {}),
    "phi3 window": ("phi3", "phi3", dict(sliding_window=12)), "phi3_long": ("phi3_long", "phi3", {}),
    "qwen2_moe": ("qwen2_moe", "qwen2moe", dict(decoder_sparse_step=1)), "qwen3_moe": ("qwen3_moe", "qwen3moe", {}),
    "deepseek_v2": ("deepseek_v2", "deepseek2", {}), "deepseek_v2 joined": ("deepseek_v2", "deepseek2", {}),
    "deepseek_v3": ("deepseek_v3", "deepseek2", dict(rope_parameters=YARN)), "gpt_oss": ("gpt_oss", "gpt-oss", {}),
    "gpt_oss plain": ("gpt_oss", "gpt-oss", dict(rope_parameters=dict(rope_type="default", rope_theta=150000.0))),
}


def put_keys(out, c, architecture):
    """What base.py and the architectures' own parts of the converter write."""
    full = c["rope_parameters"].get("full_attention", c["rope_parameters"])
    latent = architecture == "deepseek2"
    out.add_tokenizer_model("none")
    out.add_vocab_size(VOCAB)
    out.add_block_count(c["num_hidden_layers"])
    out.add_context_length(c["max_position_embeddings"])
    out.add_embedding_length(c["hidden_size"])
    out.add_feed_forward_length(c["intermediate_size"])
    out.add_head_count(c["num_attention_heads"])
    out.add_head_count_kv(1 if latent else c["num_key_value_heads"])
    out.add_layer_norm_rms_eps(c["rms_norm_eps"])
    out.add_rope_freq_base(full["rope_theta"])
    for key, add in [("sliding_window", out.add_sliding_window), ("attn_logit_softcapping", out.add_attn_logit_softcapping),
                     ("final_logit_softcapping", out.add_final_logit_softcapping), ("num_experts_per_tok", out.add_expert_used_count),
                     ("moe_intermediate_size", out.add_expert_feed_forward_length),
                     ("shared_expert_intermediate_size", out.add_expert_shared_feed_forward_length), ("q_lora_rank", out.add_q_lora_rank),
                     ("kv_lora_rank", out.add_kv_lora_rank), ("first_k_dense_replace", out.add_leading_dense_block_count),
                     ("n_shared_experts", out.add_expert_shared_count), ("routed_scaling_factor", out.add_expert_weights_scale),
                     ("n_group", out.add_expert_group_count), ("topk_group", out.add_expert_group_used_count)]:
        if c.get(key):
            add(c[key])
    experts = next((c[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in c), None)
    if experts:
        out.add_expert_count(experts)
    if latent:
        out.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        out.add_value_length_mla(c["v_head_dim"])
        out.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
        out.add_value_length(c["kv_lora_rank"])
        out.add_rope_dimension_count(c["qk_rope_head_dim"])
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if c["model_type"] == "deepseek_v3" else gguf.ExpertGatingFuncType.SOFTMAX)
        if c["norm_topk_prob"]:
            out.add_expert_weights_norm(True)
    elif "head_dim" in c:
        out.add_key_length(c["head_dim"])
        out.add_value_length(c["head_dim"])
    if architecture == "gpt-oss":
        out.add_expert_feed_forward_length(c["intermediate_size"])
    if architecture == "gemma3":
        out.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
    if architecture == "phi3":
        out.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    put_rope(out, c, full)


def put_rope(out, c, full):
    if full["rope_type"] == "longrope":
        stretch = c["max_position_embeddings"] / c["original_max_position_embeddings"]
        out.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        out.add_rope_scaling_orig_ctx_len(c["original_max_position_embeddings"])
        out.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(stretch) / np.log(c["original_max_position_embeddings"]))))
        for which in ("long", "short"):
            out.add_tensor(f"rope_factors_{which}.weight", np.array(full[f"{which}_factor"], np.float32))
    elif full["rope_type"] != "default":
        out.add_rope_scaling_type(gguf.RopeScalingType(full["rope_type"]))
        out.add_rope_scaling_factor(full["factor"])
        if "original_max_position_embeddings" in full:
            out.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        if "mscale_all_dim" in full:
            out.add_rope_scaling_yarn_log_mul(0.1 * full["mscale_all_dim"])


def turned(architecture, c, weights, joined):
    """The weights as the converter leaves them, under Hugging Face's names."""
    stacks = {}
    for name, x in weights.items():
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            x = x + np.float32(1)
        if architecture == "gpt-oss" and "experts" in name:
            x = x if name.endswith("_bias") else x.swapaxes(1, 2)
            base, end = (name.removesuffix("_bias"), ".bias") if name.endswith("_bias") else (name, ".weight")
            if "gate_up" not in name:
                yield base + end, x
                continue
            for i, part in enumerate(("gate_proj", "up_proj")):
                yield base.replace("gate_up_proj", part) + end, x[:, i::2]
        elif ".experts." in name:
            before, after = name.split(".experts.")
            number, part = after.split(".", 1)
            stacks.setdefault(f"{before}.experts.{part}", {})[int(number)] = x
        elif name.endswith("kv_b_proj.weight") and not joined:
            both = x.reshape(c["num_attention_heads"], -1, x.shape[-1])
            yield name.replace("kv_b", "k_b"), both[:, :c["qk_nope_head_dim"]].swapaxes(1, 2)
            yield name.replace("kv_b", "v_b"), both[:, c["qk_nope_head_dim"]:]
        elif name.endswith("shared_expert_gate.weight"):
            yield name, x[0]
        elif name.endswith("e_score_correction_bias"):
            yield name.replace("_bias", ".bias"), x
        else:
            yield name + (".weight" if name.endswith("sinks") else ""), x
    for name, parts in stacks.items():
        yield name, np.stack([parts[i] for i in sorted(parts)])


@pytest.fixture(params=ARCHITECTURES)
def model(request, tmp_path):
    name, architecture, other = ARCHITECTURES[request.param]
    config, shapes = (json.loads(str(RECORDED[f"{name}.{what}"])) for what in ("config", "shapes"))
    config |= other
    if request.param == "qwen2_moe":  # all layers have experts
        shapes |= {k.replace(".layers.1.", f".layers.{i}."): v for k, v in shapes.items() if ".layers.1.mlp" in k for i in (0, 2)}
        shapes = {k: v for k, v in shapes.items() if ".mlp.up" not in k and ".mlp.gate_proj" not in k and ".mlp.down" not in k}
    if "sliding_window" in other:
        config["layer_types"] = ["sliding_attention"] * config["num_hidden_layers"]
    lm.save(tmp_path / "model", config, shapes)
    out = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture), config["num_hidden_layers"])
    put_keys(out, config, architecture)
    weights = {k: lm.weight(k, tuple(shape)) for k, shape in shapes.items()}
    for full, x in turned(architecture, config, weights, "joined" in request.param):
        own = names.get_name(full, try_suffixes=(".weight", ".bias"))
        assert own, full
        out.add_tensor(own, np.ascontiguousarray(x))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return request.param, tmp_path / "model.gguf", tmp_path / "model"


def test_logits(model, tmp_path):
    name, file, folder = model
    want, got = (run("logits", name, path, tmp_path)["logits"] for path in (folder, file))
    assert abs(got - want).max() < 1e-5 * max(1, abs(want).max())


# llama.cpp leaves phi3's window out, DeepSeek's groups of experts where there are few, and rounds the range of gpt-oss's yarn, which OpenAI does not;
# its GELU is a table of f16.
THERE = {"gemma2": 5e-3, "gemma3": 5e-3, "gemma3 stretched": 5e-3, "phi3": 1e-4, "qwen2_moe": 1e-4, "qwen3_moe": 1e-4, "gpt_oss plain": 1e-4}


@pytest.mark.skipif(not (LIBRARY and HEADER), reason="COTAN_LLAMA_CPP names no folder with include/llama.h and a libllama.so")
def test_logits_of_llama_cpp(model, theirs, tmp_path):  # noqa: F811
    name, file, _ = model
    if name not in THERE:
        pytest.skip("llama.cpp computes something else")
    want, got = theirs(file, tmp_path)[0], run("logits", name, file, tmp_path)["logits"]
    assert abs(got - want).max() < THERE[name] * max(1, abs(want).max())
