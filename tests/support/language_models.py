"""Small language models of every architecture: what Hugging Face's library is asked for to make them, and weights
that are a function of their names, so that none need be stored."""
import json
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np

from support import safetensors

RECORDED = Path(__file__).parents[1] / "unit/language_models.npz"

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128)
GROUPED = SIZES | dict(num_key_value_heads=2)
EXPERTS = dict(num_experts_per_tok=2)
LATENT = dict(n_routed_experts=8, n_shared_experts=1, moe_intermediate_size=16, first_k_dense_replace=1, kv_lora_rank=16,
              q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, n_group=4, topk_group=2, num_key_value_heads=4)
LONG = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=24,
            short_factor=[1.0 + 0.1 * i for i in range(4)], long_factor=[1.5 + 0.5 * i for i in range(4)])
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=1.0)

# name: (class, its config's class, what that is given)
MODELS = {
    "llama2": ("LlamaForCausalLM", "LlamaConfig", SIZES),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", GROUPED | dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama4": ("Llama4ForCausalLM", "Llama4TextConfig", GROUPED | dict(
        num_hidden_layers=4, intermediate_size_mlp=64, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2,
        head_dim=8, attention_chunk_size=20, floor_scale=8)),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED | dict(sliding_window=12)),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", GROUPED | EXPERTS | dict(num_local_experts=4)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED | dict(use_sliding_window=True, sliding_window=12, max_window_layers=1)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", GROUPED | EXPERTS | dict(
        num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=40, decoder_sparse_step=2)),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | dict(head_dim=12)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", GROUPED | EXPERTS | dict(
        head_dim=8, num_experts=4, moe_intermediate_size=24, norm_topk_prob=True)),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GROUPED | dict(head_dim=12)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | dict(head_dim=12, sliding_window=12, query_pre_attn_scalar=16)),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", GROUPED | dict(
        num_hidden_layers=7, head_dim=12, sliding_window=12, query_pre_attn_scalar=16)),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED | dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "phi3_long": ("Phi3ForCausalLM", "Phi3Config", GROUPED | dict(
        pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_parameters=LONG, original_max_position_embeddings=24)),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", GROUPED | EXPERTS | dict(num_local_experts=4, lm_head_bias=True, attention_bias=True)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", SIZES | EXPERTS | LATENT | dict(topk_method="group_limited_greedy")),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", SIZES | EXPERTS | LATENT | dict(rope_parameters=YARN)),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", GROUPED | EXPERTS | dict(head_dim=8, num_local_experts=4, sliding_window=12)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(vocab_size=96, n_embd=32, n_layer=3, n_head=4, n_positions=128)),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", dict(vocab_size=96, n_embd=32, n_layer=3, n_head=4, n_positions=128, rotary_dim=4)),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SIZES),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", GROUPED | dict(sliding_window=12)),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", GROUPED | dict(num_hidden_layers=4, pad_token_id=0)),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", GROUPED | dict(head_dim=8, pad_token_id=0)),
    "granite": ("GraniteForCausalLM", "GraniteConfig", GROUPED | dict(
        embedding_multiplier=6.0, logits_scaling=0.5, residual_multiplier=0.22, attention_multiplier=0.125)),
    "bert": ("BertForMaskedLM", "BertConfig", SIZES),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", SIZES | dict(max_position_embeddings=130, pad_token_id=1)),
    "xlm_roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", SIZES | dict(max_position_embeddings=130, pad_token_id=1, type_vocab_size=1)),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", dict(
        vocab_size=96, dim=32, hidden_dim=48, n_layers=3, n_heads=4, max_position_embeddings=128)),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", SIZES | dict(
        num_hidden_layers=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=3, sep_token_id=4, local_attention=12)),
    "t5": ("T5ForConditionalGeneration", "T5Config", dict(
        vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=20, decoder_start_token_id=0)),
    "t5_gated": ("T5ForConditionalGeneration", "T5Config", dict(
        vocab_size=96, d_model=32, d_kv=12, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=8, relative_attention_max_distance=20, decoder_start_token_id=0, scale_decoder_outputs=True)),
    "bart": ("BartForConditionalGeneration", "BartConfig", dict(
        vocab_size=96, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=64, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=2, max_position_embeddings=128, scale_embedding=True, forced_eos_token_id=None)),
    "mamba": ("MambaForCausalLM", "MambaConfig", dict(vocab_size=96, hidden_size=32, state_size=8, num_hidden_layers=3)),
    "rwkv": ("RwkvForCausalLM", "RwkvConfig", dict(vocab_size=96, hidden_size=32, num_hidden_layers=3, context_length=128)),
}
PAIRS = {"t5", "t5_gated", "bart"}  # read one text and write another
ENCODERS = {"bert", "roberta", "xlm_roberta", "distilbert", "modernbert"}
# That tell classes of texts apart, of a text alone and of two that are read together.
CLASSES = {
    "bert_rank": ("BertForSequenceClassification", "BertConfig", SIZES | dict(num_labels=1)),
    "roberta_classes": ("RobertaForSequenceClassification", "RobertaConfig", SIZES | dict(max_position_embeddings=130, pad_token_id=1, num_labels=3)),
    "distilbert_classes": ("DistilBertForSequenceClassification", "DistilBertConfig", dict(
        vocab_size=96, dim=32, hidden_dim=48, n_layers=3, n_heads=4, max_position_embeddings=128, num_labels=2)),
    "modernbert_classes": ("ModernBertForSequenceClassification", "ModernBertConfig", SIZES | dict(
        num_hidden_layers=4, pad_token_id=1, bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0, local_attention=12,
        classifier_pooling="mean", num_labels=3, id2label={0: "bad", 1: "so so", 2: "good"})),
    "llama_classes": ("LlamaForSequenceClassification", "LlamaConfig", GROUPED | dict(num_labels=2, pad_token_id=1)),
}
QUESTION, ANSWER = "What is sought?", "It is this one, of some letters."
IDS = np.random.default_rng(20261127).integers(5, 96, (2, 40)).astype(np.int32)
WRITTEN = np.random.default_rng(20261128).integers(5, 96, (2, 12)).astype(np.int32)


def weight(name, shape):
    """Around 1 where a norm multiplies by it, else around 0: large enough that every part of a model can be seen in its logits."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    own = rng.standard_normal(shape, np.float32) * np.float32(0.2)
    return own + np.float32(1) if len(shape) == 1 and "norm" in name.lower() and name.endswith("weight") else own


def save(folder, config, shapes):
    """A model's folder as Hugging Face's library writes it, from its config and the shapes of its weights by name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.write(folder / "model.safetensors", {name: weight(name, tuple(shape)) for name, shape in shapes.items()})


# A token a character: what begins and ends a text, line ends and the printable ASCII but "~".
CHARACTERS = ["<s>", "\n", *map(chr, range(32, 126))]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def save_tokenizer(folder, bos=False, chat=None, around=False):
    """Beside a model of 96 tokens a tokenizer of as many characters; bos: it puts <s> in front of each text, around: and behind."""
    special = {"id": 0, "content": "<s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    front = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    if around:
        first, second = ([{"Sequence": {"id": name, "type_id": i}}, {"SpecialToken": {"id": "<s>", "type_id": i}}] for i, name in enumerate("AB"))
        front |= {"single": front["single"][:1] + first, "pair": front["single"][:1] + first + second}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": {c: i for i, c in enumerate(CHARACTERS)}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None, "pre_tokenizer": None,
        "post_processor": front if bos or around else None, "decoder": {"type": "Fuse"}, "model": model}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "<s>", "model_max_length": 10**30, "tokenizer_class": "PreTrainedTokenizerFast", **({"chat_template": chat} if chat else {})}))


def ours(name, tensors):
    """A weight of one of their names among ours, where all experts' are one tensor and # stands for the expert."""
    if name in tensors:
        return tensors[name]
    parts = name.split(".")
    for i, part in enumerate(parts):
        stacked = ".".join(parts[:i] + ["#"] + parts[i + 1:])
        if part.isdigit() and stacked in tensors:
            return tensors[stacked][int(part)]
    raise KeyError(name)


# Scores of what follows a text, which options bend.
OPTIONS = dict(repetition=1.0, frequency=0.0, presence=0.0, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical=1.0,
               no_repeat=0)
SCORES = (np.random.default_rng(5).standard_normal(300) * 3).astype(np.float32)
TEXT = np.random.default_rng(6).integers(0, 300, 40).astype(np.int32)


def process(program, tmp_path, prompt=25, bias=(), banned=(), text=TEXT, **options):
    np.savez(tmp_path / "in.npz", scores=SCORES, text=text, options=np.array([*(OPTIONS | options).values(), prompt], np.float64),
             bias_tokens=np.array([t for t, _ in bias], np.int32), bias=np.array([b for _, b in bias], np.float32),
             banned=np.array(banned, np.int32))
    done = subprocess.run([*program, "process", "-", tmp_path / "in.npz", tmp_path / "out.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")["scores"]


def mlx(x, bits, group, dtype):
    """Codes, scales, biases, and the numbers."""
    groups = x.reshape(len(x), -1, group)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    scales, biases = ((high - low) / (2 ** bits - 1)).astype(dtype), low.astype(dtype)
    codes = np.clip(np.rint((groups - biases.astype(np.float32)) / scales.astype(np.float32)), 0, 2 ** bits - 1).astype(np.uint8)
    numbers = ((codes * scales.astype(np.float32)).astype(dtype).astype(np.float32) + biases.astype(np.float32)).astype(dtype).astype(np.float32)
    stream = np.unpackbits(codes.reshape(len(x), -1, 1), axis=-1, count=bits, bitorder="little").reshape(len(x), -1)
    return np.packbits(stream, axis=-1, bitorder="little").view(np.uint32), scales[..., 0], biases[..., 0], numbers.reshape(x.shape)


def save_quantised(folder, packed, plain):
    """Of a model's folder two copies: with matrices of rows of whole groups as MLX's codes, and with the numbers that these stand for."""
    for to in (packed, plain):
        shutil.copytree(folder, to)
    weights, files, numbers = safetensors.read(folder / "model.safetensors"), {}, {}
    for name, x in weights.items():
        files[name] = numbers[name] = x
        if x.ndim == 2 and x.shape[1] % 32 == 0:
            base = name.removesuffix(".weight")
            files[name], files[base + ".scales"], files[base + ".biases"], numbers[name] = mlx(x, 4, 32, np.float16)
    config = json.loads((folder / "config.json").read_text()) | {"quantization": {"group_size": 32, "bits": 4}}
    (packed / "config.json").write_text(json.dumps(config))
    safetensors.write(packed / "model.safetensors", files)
    safetensors.write(plain / "model.safetensors", numbers)
