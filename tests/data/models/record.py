"""Writes the files of this folder with the libraries that define their formats: record.py FOLDER

Needs gguf 0.19, torch, safetensors and transformers 5.24. What is random has fixed seeds.
"""
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers.integrations.finegrained_fp8 as fp8
import transformers.integrations.mxfp4 as mxfp4
from gguf import GGMLQuantizationType as Type, GGUFValueType as Value, quants
from safetensors.torch import save_file

FOLDER = Path(sys.argv[1])
# Where each type's f16 scales stand in its block; the rest may be any bytes.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
    "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
    "NVFP4": [], "BF16": []}


def ggml_blocks():
    """A row of 256 numbers of each type, and "NAME.f32", what gguf.quants makes of it."""
    rng = np.random.default_rng(4)
    writer = gguf.GGUFWriter(FOLDER / "ggml_blocks.gguf", "none")
    for name, places in SCALES.items():
        kind = Type[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (256 // elements, size), dtype=np.uint8)
        for at in places:
            scale = rng.normal(size=len(blocks)).astype(np.float16)
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
        if name == "IQ1_M":  # the scale is the highest 4 bits of four words, lowest first
            blocks[:, 55] = 0x3c | blocks[:, 55] & 3
        if name == "BF16":
            blocks = (rng.normal(size=256).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        row = blocks.reshape(1, -1)
        want = quants.dequantize(row, kind)
        assert np.isfinite(want).all(), name
        writer.add_tensor(name, row, raw_dtype=kind)
        writer.add_tensor(f"{name}.f32", want)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_value():
    """A value of each type, lists of each, tensors of each plain type."""
    writer = gguf.GGUFWriter(FOLDER / "values.gguf", "llama")
    for kind, add, value in [
            ("u8", writer.add_uint8, 200), ("i8", writer.add_int8, -100), ("u16", writer.add_uint16, 60000),
            ("i16", writer.add_int16, -30000), ("u32", writer.add_uint32, 4000000000), ("i32", writer.add_int32, -2000000000),
            ("u64", writer.add_uint64, 2**64 - 1), ("i64", writer.add_int64, -2**62), ("f32", writer.add_float32, 1.5),
            ("f64", writer.add_float64, 0.1), ("bool", writer.add_bool, True), ("string", writer.add_string, "naïve")]:
        add(f"one.{kind}", value)
        writer.add_key_value(f"list.{kind}", [value, value], Value.ARRAY, sub_type={
            "u8": Value.UINT8, "i8": Value.INT8, "u16": Value.UINT16, "i16": Value.INT16, "u32": Value.UINT32,
            "i32": Value.INT32, "u64": Value.UINT64, "i64": Value.INT64, "f32": Value.FLOAT32, "f64": Value.FLOAT64,
            "bool": Value.BOOL, "string": Value.STRING}[kind])
    writer.add_custom_alignment(64)
    for dtype in ("float32", "float16", "float64", "int8", "int16", "int32", "int64"):
        writer.add_tensor(dtype, np.arange(6).reshape(1, 2, 3).astype(dtype))
    finish(writer)


def parts():
    writer = gguf.GGUFWriter(FOLDER / "parts.gguf", "llama", split_max_tensors=1, small_first_shard=True)
    writer.add_context_length(8)
    for name in "ab":
        writer.add_tensor(name, np.full((2, 3), ord(name), np.float32))
    finish(writer)


def torch_files():
    """Views of one storage, a parameter, a scalar and a type without a storage of its own, in both forms."""
    x = torch.arange(24.).reshape(2, 3, 4)
    saved = {"whole": x, "inner": {"permuted": x.permute(2, 0, 1), 7: x[1, :, ::2]}, "bf16": x[0].bfloat16(),
             "parameter": torch.nn.Parameter(torch.ones(2)), "u16": torch.tensor(65535, dtype=torch.uint16), "steps": 3}
    torch.save(saved, FOLDER / "views.pt")
    torch.save(saved, FOLDER / "views_before_1_6.pt", _use_new_zipfile_serialization=False)


def quantised():
    """What DeepSeek and gpt-oss publish, and what transformers makes of it ("NAME.f32")."""
    torch.manual_seed(5)
    out, take = {}, fp8.Fp8Dequantize(None)._dequantize_one
    for name, dtype, shape, grid in [("e4m3", torch.float8_e4m3fn, (8, 12), (2, 3)), ("e5m2", torch.float8_e5m2, (2, 4, 6), (2, 2, 1)),
                                     ("whole", torch.float8_e4m3fn, (3, 5), (1, 1))]:
        codes = torch.randn(shape).mul(50).to(dtype)
        for kind, scales in [("f32", torch.rand(grid) / 100), ("bf16", torch.rand(grid).bfloat16()), ("u8", torch.randint(100, 140, grid, dtype=torch.uint8))]:
            key = f"{name}.{kind}"
            out |= {key: codes.clone(), f"{key}.scales": scales, f"{key}.f32": take(codes, scales, torch.float32)}
    blocks, scales = torch.randint(0, 256, (2, 3, 2, 16), dtype=torch.uint8), torch.randint(100, 150, (2, 3, 2), dtype=torch.uint8)
    rows = mxfp4.convert_moe_packed_tensors(blocks, scales).float().transpose(1, 2).contiguous()  # as they are published
    save_file(out | {"mxfp4": blocks, "mxfp4.scales": scales, "mxfp4.f32": rows}, FOLDER / "quantised.safetensors")


ggml_blocks()
every_value()
parts()
torch_files()
quantised()
