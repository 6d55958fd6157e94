"""Writes mlx.safetensors with mlx (PyPI's mlx[cpu] 0.32): record_mlx.py FOLDER

For each number of bits, groups and dtypes of scales: "BITS.GROUP.DTYPE" with .scales and .biases as MLX's models have
them, and .f32, what mlx makes of them.
"""
import sys

import mlx.core as mx

mx.random.seed(6)
out = {}
for i, bits in enumerate((2, 3, 4, 5, 6, 8)):
    for k, dtype in enumerate((mx.float32, mx.bfloat16, mx.float16)):
        group = (32, 64, 128)[(i + k) % 3]
        weight = mx.random.normal((2, 128)).astype(dtype)
        codes, scales, biases = mx.quantize(weight, group_size=group, bits=bits)
        name = f"{bits}.{group}.{('f32', 'bf16', 'f16')[k]}"
        numbers = mx.dequantize(codes, scales, biases, group_size=group, bits=bits)
        out |= {name: codes, f"{name}.scales": scales, f"{name}.biases": biases, f"{name}.f32": numbers.astype(mx.float32)}
mx.save_safetensors(sys.argv[1] + "/mlx.safetensors", out)
