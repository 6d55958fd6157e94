"""Blocks of ggml against gguf.quants, which writes what ggml's reference quantiser does: bytes, and numbers."""
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ops"))
gguf = pytest.importorskip("gguf")
quants = pytest.importorskip("gguf.quants")
from op_cases import Case, Failure, read_table, run  # noqa: E402

TABLE = read_table(leave_out=())


@pytest.mark.parametrize("layout, kind", [(8, "Q8_0"), (9, "Q4_0")])
def test_bytes(layout, kind):
    """Sizes from row to row, blocks of zeros, of equals with both signs, of what lies at and beside halves."""
    rng = np.random.default_rng(2026)
    x = (rng.normal(size=(512, 256)) * np.exp(rng.uniform(-9, 9, (512, 1)))).astype(np.float32)
    x[0], x[1, ::2], x[2] = 0, -x[1, 1::2], rng.integers(-254, 255, 256) / 2
    x[3] = np.nextafter(x[2], np.float32(1e9))
    kind = gguf.GGMLQuantizationType[kind]
    want = quants.quantize(x, kind)
    got = run([Case(TABLE["quantise"], [x], {"layout": layout})], "cpu", True)[0]
    assert not isinstance(got, Failure), got
    assert got[0].shape == want.shape and (got[0] == want).all()
    numbers = run([Case(TABLE["dequantise"], got, {"layout": layout})], "cpu", True)[0][0]
    assert (numbers == quants.dequantize(want, kind)).all()
