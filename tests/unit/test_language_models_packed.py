"""Language models whose weights are published quantised (MLX, DeepSeek's FP8, gpt-oss's MXFP4): logits of the numbers that they stand for, by NumPy;
and sentences for what is not read."""
import json

import ml_dtypes
import numpy as np
import pytest
from support import language_models as lm
from test_language_models import config_of, run

BF16, F8, F4 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
WIDER = {32: 128, 48: 256, 16: 64, 8: 32}  # sizes of the recorded models, so that groups are whole


def made(name, change=(), wider=WIDER):
    """The config, and weights by name."""
    config, shapes = config_of(name)
    for key, value in config.items():
        if key in ("hidden_size", "intermediate_size", "head_dim") and value in wider:
            config[key] = wider[value]
    return config | dict(change), {k: lm.weight(k, tuple(wider.get(n, n) for n in shape)) * np.float32(0.4 if len(shape) > 1 else 1) for k, shape in shapes.items()}


def put(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    lm.safetensors.write(folder / "model.safetensors", tensors)
    return folder


def near(got, want, most):
    assert np.isfinite(got).all() and abs(got - want).max() < most * max(1, abs(want).max())


@pytest.mark.parametrize("bits, group, dtype", [(2, 32, np.float32), (3, 64, np.float16), (4, 64, BF16), (4, 128, np.float32), (5, 128, np.float32),
                                                (6, 64, BF16), (8, 32, np.float16)])
def test_mlx(bits, group, dtype, tmp_path):
    """Trained on they are numbers; else codes that meet rows of bytes or, where f32 is asked for, of f32: then they are exactly those numbers."""
    config, weights = made("llama3", {"quantization": {"group_size": group, "bits": bits}})
    files, numbers = {}, {}
    for name, x in weights.items():
        if x.ndim < 2:
            files[name] = numbers[name] = x
            continue
        base = name.removesuffix(".weight")
        files[name], files[base + ".scales"], files[base + ".biases"], numbers[name] = lm.mlx(x, bits, group, dtype)
    packed, plain = put(tmp_path / "packed", config, files), put(tmp_path / "plain", config, numbers)
    want = run("grads", plain, tmp_path)["logits"]
    near(run("grads", packed, tmp_path)["logits"], want, 1e-4)
    got = run("logits", packed, tmp_path)["logits"]
    assert 0 < np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean()) < 0.05
    assert run("f32_logits", packed, tmp_path)["logits"].tobytes() == run("logits", plain, tmp_path)["logits"].tobytes()


def fp8(x, rows, columns):
    """Codes, scales of blocks, and the numbers."""
    m, n = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((m * rows, n * columns), np.float32)
    padded[:x.shape[0], :x.shape[1]] = x
    scales = (abs(padded.reshape(m, rows, n, columns)).max((1, 3)) / 448).astype(np.float32)
    by = scales.repeat(rows, 0).repeat(columns, 1)[:x.shape[0], :x.shape[1]]
    codes = (x / by).astype(F8)
    return codes, scales, codes.astype(np.float32) * by


FP8 = {"blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, "_scale_inv", (128, 128)),
       "small": ({"quant_method": "fp8", "weight_block_size": [16, 64]}, "_scale_inv", (16, 64)),
       "rows": ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "_scale", (1, 4096)),
       "all": ({"quant_method": "fp8"}, "_scale", (4096, 4096))}


@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize("name", ["llama2", "deepseek_v3"])
def test_fp8(name, kind, tmp_path):
    """Numbers that are rounded to bf16 or, trained on, are not."""
    said, end, block = FP8[kind]
    config, weights = made(name, {"quantization_config": said}, WIDER if name == "llama2" else {})
    files, numbers = {}, {}
    for full, x in weights.items():
        files[full] = numbers[full] = x
        if x.ndim < 2 or "embed" in full or "lm_head" in full or full.endswith("gate.weight"):
            continue
        files[full], scales, numbers[full] = fp8(x, *block)
        files[full + end] = scales[:1, 0] if kind == "all" else scales
        if kind == "all":
            files[full.removesuffix("weight") + "input_scale"] = np.ones(1, np.float32)
    packed, plain = put(tmp_path / "packed", config, files), put(tmp_path / "plain", config, numbers)
    near(run("grads", packed, tmp_path)["logits"], run("grads", plain, tmp_path)["logits"], 1e-4)
    rounded = {k: v if files[k] is v else v.astype(BF16) for k, v in numbers.items()}
    near(run("logits", packed, tmp_path)["logits"], run("logits", put(tmp_path / "rounded", config, rounded), tmp_path)["logits"], 1e-4)


def test_mxfp4(tmp_path):
    """Experts, as (out, in) where they stand as (in, out) in f32."""
    config, weights = made("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}, "intermediate_size": 64}, {})
    rng = np.random.default_rng(3)
    files, numbers = {}, {}
    for name, x in weights.items():
        x = np.concatenate([x, x[..., :2 * 64 - x.shape[-1]]], -1) if name.endswith(("gate_up_proj", "gate_up_proj_bias")) else x
        x = np.concatenate([x, x[:, :64 - x.shape[1]]], 1) if name.endswith("down_proj") else x
        files[name] = numbers[name] = x
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        turned = x.swapaxes(1, 2)
        codes = rng.integers(0, 256, (*turned.shape[:2], turned.shape[2] // 32, 16), dtype=np.uint8)
        scales = rng.integers(122, 126, codes.shape[:3], dtype=np.uint8)
        pairs = np.stack([codes & 15, codes >> 4], -1).astype(np.uint8).view(F4).astype(np.float32)
        held = pairs.reshape(*codes.shape[:3], 32) * 2.0 ** (scales[..., None].astype(np.float32) - 127)
        del files[name]
        files[name + "_blocks"], files[name + "_scales"] = codes, scales
        numbers[name] = np.ascontiguousarray(held.reshape(turned.shape).swapaxes(1, 2), np.float32)
    packed, plain = put(tmp_path / "packed", config, files), put(tmp_path / "plain", config, numbers)
    want = run("grads", plain, tmp_path)["logits"]
    near(run("grads", packed, tmp_path)["logits"], want, 1e-5)
    got = run("logits", packed, tmp_path)["logits"]  # codes, which meet rows of bytes
    assert 0 < np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean()) < 0.06
    assert run("f32_logits", packed, tmp_path)["logits"].tobytes() == run("logits", plain, tmp_path)["logits"].tobytes()


def fault(tmp_path, config, tensors):
    put(tmp_path / "model", config, tensors)
    text = run("logits", tmp_path / "model", tmp_path, fails=True)
    return text.replace(str(tmp_path / "model"), "MODEL").split(": ", 2)[2].strip()


@pytest.mark.parametrize("said, text", [
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, '"gptq"'), ({"quantization_config": {"quant_method": "awq"}}, '"awq"'),
    ({"quantization_config": {"quant_method": "bitsandbytes"}}, '"bitsandbytes"'),
    ({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}}, '"compressed-tensors" as "pack-quantized"'),
    ({"quantization": {"mode": "mxfp4", "bits": 4}}, '"mlx" as "mxfp4"')])
def test_what_is_not_read(said, text, tmp_path):
    assert fault(tmp_path, *made("llama2", said)) == (f"MODEL/config.json: the weights are quantised by {text}, which is not "
                                                      "supported\n"
                                                      "  hint: GGUF files, MLX's quants, FP8 and MXFP4 are")


def test_tensors_that_do_not_go_together(tmp_path):
    config, weights = made("llama2")
    name = "model.layers.1.self_attn.q_proj.weight"
    codes, scales, _ = fp8(weights[name], 128, 128)
    assert fault(tmp_path, config, weights | {name: codes, name + "_scale_inv": np.ones((2, 1), np.float32)}) == (
        f'MODEL/model.safetensors: tensor "{name}": (128, 128) f8e4m3 does not go with the scales (2, 1) f32')
