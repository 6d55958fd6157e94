"""Language models in GGUF files, without the package gguf: numbers and k-quants by NumPy, and what does not fit, in words."""
import re

import numpy as np
import pytest
from support import language_models as lm
from support.gguf import gguf
from test_language_models import PIECE, config_of, run

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
F32, Q5_0, Q8_0, Q4_K, Q6_K = 0, 6, 8, 12, 14


def q4_k(rng, rows, columns):
    """Blocks of 256: d, m, eight scales and minimums of 6 bits, codes; and the numbers."""
    n = rows * columns // 256
    d, m = (np.full(n, x, np.float16) for x in (0.0001, 0.0007))
    scales, minimums, codes = rng.integers(0, 64, (n, 8)), rng.integers(0, 64, (n, 8)), rng.integers(0, 16, (n, 4, 2, 32))
    low = np.concatenate([scales[:, :4] | scales[:, 4:] >> 4 << 6, minimums[:, :4] | minimums[:, 4:] >> 4 << 6,
                          scales[:, 4:] & 15 | (minimums[:, 4:] & 15) << 4], 1)
    packed = np.concatenate([d[:, None].view(np.uint8), m[:, None].view(np.uint8), low.astype(np.uint8),
                             (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(n, 128).astype(np.uint8)], 1)
    numbers = (d[:, None].astype(np.float32) * scales)[..., None] * codes.reshape(n, 8, 32) - (m[:, None].astype(np.float32) * minimums)[..., None]
    return packed.tobytes(), numbers.reshape(rows, columns).astype(np.float32)


def q6_k(rng, rows, columns):
    """Blocks of 256: low 4 bits, high 2 bits, sixteen scales, d; and the numbers."""
    n = rows * columns // 256
    d, scales, codes = np.full(n, 0.0001, np.float16), rng.integers(-100, 100, (n, 16)), rng.integers(0, 64, (n, 2, 4, 32))
    low = np.concatenate([codes[:, :, :2] & 15 | (codes[:, :, 2:] & 15) << 4], 2).reshape(n, 128)
    high = sum((codes[:, :, i] >> 4) << 2 * i for i in range(4)).reshape(n, 64)
    packed = np.concatenate([low.astype(np.uint8), high.astype(np.uint8), scales.astype(np.int8).view(np.uint8), d[:, None].view(np.uint8)], 1)
    numbers = (d[:, None].astype(np.float32) * scales)[..., None] * (codes.reshape(n, 16, 16) - 32)
    return packed.tobytes(), numbers.reshape(rows, columns).astype(np.float32)


def made(name, architecture, wide=1, kind=None, **more):
    """Metadata, tensors, and the weights in Hugging Face's layout, as numbers."""
    config, shapes = config_of(name)
    config |= {"hidden_size": 32 * wide, "intermediate_size": 48 * wide if wide == 1 else 256}
    size = (lambda x: x) if wide == 1 else {32: 256, 48: 256, 16: 128, 96: 96}.get
    pairs = {"general.architecture": architecture, **{f"{architecture}.{k}": v for k, v in {
        "block_count": 3, "context_length": 128, "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": 4, "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": 10000.0, **more}.items()}}
    rng, tensors, numbers = np.random.default_rng(1), {}, {}
    for full, shape in shapes.items():
        base, end = full.rsplit(".", 1)
        part = base.split(".", 3)
        own = f"blk.{part[2]}.{NAMES[part[3]]}" if base.startswith("model.layers.") else NAMES[base]
        shape = tuple(map(size, shape))
        if kind and len(shape) == 2:
            data, numbers[full] = (q4_k if kind == Q4_K else q6_k)(rng, *shape)
        else:
            numbers[full] = lm.weight(full, shape)
            data = numbers[full].tobytes()
        tensors[f"{own}.{end}"] = kind if kind and len(shape) == 2 else F32, shape[::-1], data
    return config, pairs, tensors, numbers


def put(tmp_path, pairs, tensors):
    (tmp_path / "m.gguf").write_bytes(gguf(pairs, tensors))
    return tmp_path / "m.gguf"


@pytest.mark.parametrize("tied", [False, True], ids=["", "tied"])
@pytest.mark.parametrize("kind, most", [(None, 1e-6), (Q4_K, 0.06), (Q6_K, 0.06)], ids=["f32", "q4_k", "q6_k"])
def test_logits(kind, most, tied, tmp_path):
    """Codes of Q4_K with their offsets, of Q6_K with scales of 16, are the numbers that they stand for, but for rows of bytes."""
    config, pairs, tensors, numbers = made("qwen2", "qwen2", 8 if kind else 1, kind)
    if tied:  # looked up in, and multiplied with
        config["tie_word_embeddings"] = True
        del tensors["output.weight"], numbers["lm_head.weight"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text(lm.json.dumps(config | {"use_sliding_window": False, "sliding_window": None}))
    lm.safetensors.write(tmp_path / "folder/model.safetensors", numbers)
    want, path = run("logits", tmp_path / "folder", tmp_path)["logits"], put(tmp_path, pairs, tensors)
    got = run("logits", path, tmp_path)["logits"]
    off = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
    assert off < most and (off > 0) == bool(kind), off
    if kind:  # where they lie, as f32
        placed, steps = run("in_place_logits", path, tmp_path)["logits"], run("in_place_steps", path, tmp_path)
        assert abs(placed - want).max() < 1e-5 * abs(want).max()
        assert_same_bits(placed, steps)
    exact, steps = run("f32_logits", path, tmp_path)["logits"], run("f32_steps", path, tmp_path)
    assert exact.tobytes() == want.tobytes()
    assert_same_bits(exact, steps)
    if kind:  # as f32
        got, want = (run("grads", x, tmp_path)["logits"] for x in (path, tmp_path / "folder"))
        assert abs(got - want).max() < 1e-5 * abs(want).max()


# By number: elements and bytes of a block, where in it f16 numbers stand; MXFP4 has an exponent in front.
BLOCKS = {2: (32, 18, [0]), 3: (32, 20, [0, 2]), 6: (32, 22, [0]), 7: (32, 24, [0, 2]), 8: (32, 34, [0]), 10: (256, 84, [80, 82]),
          11: (256, 110, [108]), 12: (256, 144, [0, 2]), 13: (256, 176, [0, 2]), 14: (256, 210, [208]), 20: (32, 18, [0]), 23: (256, 136, [0]),
          39: (32, 17, [])}
# Sizes that make numbers of all types about as large.
SIZE = {2: 0.01, 3: 0.01, 6: 0.005, 7: 0.005, 8: 0.001, 10: 0.003, 11: 0.001, 12: 2e-4, 13: 1e-4, 14: 2e-5, 20: 0.001, 23: 4e-5}


def blocks_of(rng, kind, count):
    """Blocks of any codes, in which no scale is a number of few digits."""
    elements, size, halves = BLOCKS[kind]
    blocks = rng.integers(0, 256, (count // elements, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = (SIZE[kind] * rng.uniform(0.5, 1, (len(blocks), 1))).astype(np.float16).view(np.uint8)
    if not halves:
        blocks[:, 0] = rng.integers(120, 123, len(blocks))
    return blocks.tobytes()


def test_f32_activations_of_all_types(tmp_path):
    """Where they are asked for, products and lookups have the bits of a model whose weights are f32, whatever their blocks."""
    _, pairs, tensors, _ = made("qwen2", "qwen2", 8)
    rng, kinds, used = np.random.default_rng(5), list(BLOCKS), []
    for name, (_, dims, _) in tensors.items():
        if len(dims) == 2:
            used.append(kinds[len(used) % len(kinds)])
            tensors[name] = used[-1], dims, blocks_of(rng, used[-1], dims[0] * dims[1])
    assert set(used) == set(BLOCKS)
    path = put(tmp_path, pairs, tensors)
    want = run("grads", path, tmp_path)["logits"]  # trainable: f32
    got, steps = run("f32_logits", path, tmp_path)["logits"], run("f32_steps", path, tmp_path)
    assert np.isfinite(want).all() and got.tobytes() == want.tobytes()
    assert_same_bits(got, steps)
    assert (run("logits", path, tmp_path)["logits"] != want).any()


def assert_same_bits(got, steps):
    """Of texts read whole, in pieces, and token by token."""
    batch, time, vocab = got.shape
    assert (steps["tokens"].reshape(time, batch, vocab).transpose(1, 0, 2).view(np.uint32) == got.view(np.uint32)).all()
    ends = np.minimum(np.arange(PIECE, time + PIECE, PIECE), time) - 1
    assert (steps["pieces"].view(np.uint32) == np.ascontiguousarray(got[:, ends]).reshape(-1, vocab).view(np.uint32)).all()


def q8_0(x):
    """Blocks of 32: d, codes; and the numbers."""
    blocks = x.reshape(-1, 32)
    d = (abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / d.astype(np.float32)).astype(np.int8)
    return np.concatenate([d.view(np.uint8), codes.view(np.uint8)], 1).tobytes(), (codes * d.astype(np.float32)).reshape(x.shape)


def test_experts(tmp_path):
    """Stay codes, and a token has the same bits whether a text is read whole, in pieces or token by token."""
    config, shapes = config_of("qwen3_moe")
    size = {32: 128, 24: 64, 16: 64, 8: 32}
    config |= {"hidden_size": 128, "moe_intermediate_size": 64, "head_dim": 32}
    numbers = {k: lm.weight(k, tuple(size.get(n, n) for n in shape)) for k, shape in shapes.items()}
    names = NAMES | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp"}
    pairs = {"general.architecture": "qwen3moe", **{f"qwen3moe.{k}": v for k, v in {
        "block_count": 3, "context_length": 128, "embedding_length": 128, "feed_forward_length": 48, "attention.head_count": 4,
        "attention.head_count_kv": 2, "attention.key_length": 32, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0,
        "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64}.items()}}
    tensors, stacks = {}, {}
    for full, x in numbers.items():
        base, end = full.rsplit(".", 1)
        part = base.split(".", 3)
        if ".experts." in full:
            number, which = part[3].removeprefix("mlp.experts.").split(".")
            data, numbers[full] = q8_0(x)
            stacks.setdefault(f"blk.{part[2]}.ffn_{which.removesuffix('_proj')}_exps.weight", {})[int(number)] = data, x.shape
            continue
        own = f"blk.{part[2]}.{names[part[3]]}" if base.startswith("model.layers.") else names[base]
        tensors[f"{own}.{end}"] = F32, x.shape[::-1], x.tobytes()
    for name, parts in stacks.items():
        tensors[name] = Q8_0, (*parts[0][1][::-1], 4), b"".join(parts[i][0] for i in range(4))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text(lm.json.dumps(config))
    lm.safetensors.write(tmp_path / "folder/model.safetensors", numbers)
    want, path = run("logits", tmp_path / "folder", tmp_path)["logits"], put(tmp_path, pairs, tensors)
    got, steps = run("logits", path, tmp_path)["logits"], run("steps", path, tmp_path)
    off = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
    assert 0 < off < 0.03, off
    assert_same_bits(got, steps)
    placed, steps = run("in_place_logits", path, tmp_path)["logits"], run("in_place_steps", path, tmp_path)
    assert abs(placed - want).max() < 1e-5 * abs(want).max()
    assert_same_bits(placed, steps)
    exact, steps = run("f32_logits", path, tmp_path)["logits"], run("f32_steps", path, tmp_path)
    assert exact.tobytes() == want.tobytes()
    assert_same_bits(exact, steps)


NEOX = {"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm", "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}


@pytest.mark.parametrize("turned", [2, 8], ids=["a quarter turns", "all turns"])
@pytest.mark.parametrize("parallel", [True, False], ids=["at once", "one after the other"])
def test_gpt_neox(parallel, turned, tmp_path):
    """Attention and MLP at once or one after the other, as the file has it; queries, keys and values of all heads stand together."""
    config, shapes = config_of("gpt_neox")
    config["use_parallel_residual"], config["rope_parameters"]["partial_rotary_factor"] = parallel, turned / 8
    lm.save(tmp_path / "folder", config, shapes)
    pairs = {"general.architecture": "gptneox", **{f"gptneox.{k}": v for k, v in {
        "block_count": 3, "context_length": 128, "embedding_length": 32, "feed_forward_length": 48, "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-5, "use_parallel_residual": parallel, **({"rope.dimension_count": turned} if turned < 8 else {})}.items()}}
    tensors = {}
    for full, shape in shapes.items():
        base, end = full.rsplit(".", 1)
        part, x = base.split(".", 3), lm.weight(full, tuple(shape))
        if "query_key_value" in full:
            x = np.ascontiguousarray(x.reshape(4, 3, 8, -1).swapaxes(0, 1).reshape(x.shape))
        own = f"blk.{part[2]}.{NEOX[part[3]]}" if ".layers." in base else NEOX[base]
        tensors[f"{own}.{end}"] = F32, x.shape[::-1], x.tobytes()
    want, got = (run("logits", path, tmp_path)["logits"] for path in (tmp_path / "folder", put(tmp_path, pairs, tensors)))
    assert abs(got - want).max() < 1e-5 * abs(want).max()


def test_a_linear_factor_of_old_files(tmp_path):
    config, pairs, tensors, numbers = made("llama2", "llama", **{"rope.scale_linear": 4.0})
    _, newer, _, _ = made("llama2", "llama", **{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    _, plain, _, _ = made("llama2", "llama")
    old, new, none = (run("logits", put(tmp_path, p, tensors), tmp_path)["logits"] for p in (pairs, newer, plain))
    assert (old == new).all() and abs(old - none).max() > 0.1


def fault(tmp_path, pairs, tensors):
    text = run("logits", put(tmp_path, pairs, tensors), tmp_path, fails=True)
    return text.replace(str(tmp_path / "m.gguf"), "FILE").split(": ", 2)[2].strip()


def test_faults(tmp_path):
    _, pairs, tensors, _ = made("phi3", "phi3")
    three = {"rope_factors_long.weight": (F32, (3,), bytes(12)), "rope_factors_short.weight": (F32, (4,), bytes(16))}
    assert fault(tmp_path, pairs, tensors | three) == 'FILE: "long_factor" has 3 numbers, heads rotate 4 pairs'
    assert fault(tmp_path, pairs, tensors | {"rope_freqs.weight": (F32, (3,), bytes(12))}) == 'FILE: "rope_freqs.weight" has 3 numbers (F32), 4 pairs turn'
    assert fault(tmp_path, pairs, tensors | {"blk.0.own": (F32, (1,), bytes(4))}) == (
        'FILE: 1 of the weights that phi3 has do not fit: "blk.0.own" has no place in it')
    assert fault(tmp_path, pairs | {"general.architecture": "own"}, tensors) == (
        'FILE: "general.architecture" is "own", an architecture that is not known')
    assert fault(tmp_path, {k: v for k, v in pairs.items() if "embedding" not in k}, tensors) == 'FILE: key "hidden_size" is missing'
    _, qwen, own, _ = made("qwen2", "qwen2", **{"attention.causal": False})
    assert fault(tmp_path, qwen, own) == 'FILE: "is_causal" is false, which is not computed: it must be true'
    assert fault(tmp_path, pairs | {"phi3.attention.head_count": 0}, tensors) == "FILE: heads is 0, it must be 1 to 1048576"


def test_not_in_place(tmp_path):
    _, pairs, tensors, _ = made("qwen2", "qwen2", 8, Q4_K)
    name = "blk.0.ffn_down.weight"
    text = run("in_place_logits", put(tmp_path, pairs, tensors | {name: (Q5_0, tensors[name][1], bytes(256 * 256 // 32 * 22))}), tmp_path, fails=True)
    assert re.fullmatch(r'.*: .*m\.gguf: "blk\.0\.ffn_down\.weight" is Q5_0, which cannot be read from the mapped file, as is needed for a '
                        r"model of 0\.0 GB with \d+\.\d GB of memory\n", text), text
