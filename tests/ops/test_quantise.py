"""Quantised layouts against NumPy: codes and scales exactly, products with them, gradients through them, what is refused."""
import numpy as np
import pytest
from op_cases import Case, Failure, read_table, run
from op_transforms import DEVICES, SEED
from programs import run_programs

TABLE = read_table(leave_out=())
LAYOUTS = {"int8": (0, np.int8, np.float32, 127, None), "int4 by 32": (1, "i4", np.float16, 7, 32)}


def quantised(x, layout):
    """The codes (as i8), the scales, and the numbers that they stand for."""
    _, _, scale_type, most, block = LAYOUTS[layout]
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, block or x.shape[-1])
    with np.errstate(all="ignore"):
        scales = np.minimum(np.abs(blocks).max(-1, keepdims=True) / np.float32(most), np.finfo(scale_type).max).astype(scale_type)
        by = scales.astype(np.float32)
        codes = np.where(by == 0, 0, np.clip(np.rint(blocks / by), -most, most)).astype(np.int8)
    return codes.reshape(x.shape), scales[..., 0], (codes * by).reshape(x.shape)


def weights(rng, *shape):
    """Of sizes from row to row, among them a row of zeros, one too small for a scale of f16, one too large."""
    x = (rng.normal(size=shape) * np.exp(rng.uniform(-4, 4, (*shape[:-1], 1)))).astype(np.float32)
    rows = x.reshape(-1, shape[-1])
    rows[0], rows[1], rows[2] = 0, rows[1] * 1e-9, rows[2] * 1e9
    return x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_and_numbers(layout, device):
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    inputs = [weights(rng, 5, 64), weights(rng, 2, 3, 96), rng.normal(size=32).astype(np.float32),
              rng.normal(size=(4, 32)).astype(np.float16), rng.normal(size=(4, 32))]
    cases = [Case(TABLE["quantise"], [x], {"layout": number}) for x in inputs]
    for compiled in (False, True):
        again = []
        for x, got in zip(inputs, run(cases, device, compiled)):
            assert not isinstance(got, Failure), got
            codes, scales, _ = quantised(x, layout)
            assert (got[0].astype(np.int8) == codes).all() and got[1].dtype == scales.dtype and (got[1] == scales).all()
            again.append(Case(TABLE["dequantise"], got, {"layout": number}))
        for x, got in zip(inputs, run(again, device, compiled)):
            assert got[0].dtype == np.float32 and (got[0] == quantised(x, layout)[2]).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_products(layout, device, rows):
    """x (M, K) times the transpose of a weight (N, K), and the gradient with respect to x and to the scales."""
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    x, w = rng.normal(size=(rows, 160)).astype(np.float32), rng.normal(size=(48, 160)).astype(np.float32)
    c = rng.normal(size=(rows, 48)).astype(np.float32)
    got = run([Case(TABLE["quantise"], [w], {"layout": number})], device, False)[0]
    codes, scales, exact = quantised(w, layout)

    def f(o, x, codes, scales):
        return o.matmul(x, o.permute(o.dequantise(codes, scales, layout=number), axes=[1, 0]))

    def loss(o, x, codes, scales):
        return o.vjp(lambda x, s: f(o, x, codes, s), [x, scales], [c])
    y, gx, gs = run_programs([(loss, [x, *got])], device, compiled=True)[0]
    stored = run_programs([(loss, [x, *got])], device, compiled=True, COTAN_FUSE="0")[0]
    assert [a.tobytes() for a in stored] == [a.tobytes() for a in (y, gx, gs)]
    want = x.astype(np.float64) @ exact.T.astype(np.float64)
    assert np.abs(y - want).max() <= 1e-6 * np.abs(x.astype(np.float64)) .max() * np.abs(exact).sum(-1).max()
    assert np.allclose(gx, c @ exact, rtol=1e-5, atol=1e-4)
    slope = (c.T @ x) * codes
    slope = slope.reshape(48, scales.shape[1], -1).sum(-1)
    assert np.allclose(gs.astype(np.float32), slope, rtol=2e-3, atol=1e-2 * np.abs(slope).max())


WORK = {"cast": lambda o, w, by: o.cast(w, dtype="f32"), "scale": lambda o, w, by: o.mul(w, 0.3),
        "columns": lambda o, w, by: o.mul(w, by)}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("rows", [1, 4, 300])
def test_operand_work(work, rows):
    """What is cast or scaled on its way into a product, in both layouts: the bits of what was stored before."""
    rng = np.random.default_rng(SEED)
    x, w, by = rng.normal(size=(rows, 300)), rng.normal(size=(300, 80)), rng.normal(size=80)
    x, by, w = x.astype(np.float32), by.astype(np.float32), w.astype(np.float16 if work == "cast" else np.float32)

    def f(o, x, w, turned, by):
        return o.matmul(x, WORK[work](o, w, by)), o.matmul(x, WORK[work](o, o.permute(turned, axes=[1, 0]), by))
    operands = [x, w, np.ascontiguousarray(w.T), by]
    fused = run_programs([(f, operands)], DEVICES[-1], compiled=True)[0]
    stored = run_programs([(f, operands)], DEVICES[-1], compiled=True, COTAN_FUSE="0")[0]
    assert [y.tobytes() for y in fused] == [y.tobytes() for y in stored]
    factor = {"cast": 1, "scale": 0.3, "columns": by}[work]
    want = x.astype(np.float64) @ (w.astype(np.float64) * factor)
    assert all(np.abs(y - want).max() <= 2e-6 * (np.abs(x) @ np.abs(w * factor)).max() for y in fused)


def test_refused():
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(3, 40)).astype(np.float32)
    q, d = TABLE["quantise"], TABLE["dequantise"]
    codes, scales = np.zeros((3, 40), np.int8), np.ones((3, 1), np.float32)
    for case, text in [
            (Case(q, [x], {"layout": 7}), "quantise: there is no layout 7\n  hint: layouts are CT_LAYOUT_INT8 and CT_LAYOUT_INT4_32"),
            (Case(q, [x], {"layout": 1}), "quantise: the last axis of (3, 40) f32 is no multiple of 32\n"
                                          "  hint: int4 by 32 has a scale for 32 elements along it: ct_pad it"),
            (Case(q, [np.float32(1)], {}), "quantise: x is () f32, it needs an axis"),
            (Case(q, [codes], {}), "quantise: operand 1 is (3, 40) i8, accepted are floats\n  hint: cast it: ct_cast(x, CT_F32)"),
            (Case(d, [codes, scales], {"layout": 1}), "dequantise: the codes are (3, 40) i8, of int4 by 32 they are i4\n"
                                                      "  hint: codes and scales are those of ct_quantise with this layout"),
            (Case(d, [codes, scales[:2]], {}), "dequantise: the scales are (2, 1) f32, of codes (3, 40) i8 they are (3, 1) f32\n"
                                               "  hint: codes and scales are those of ct_quantise with this layout")]:
        got = run([case], DEVICES[0], False)[0]
        assert isinstance(got, Failure) and got.endswith(text), got
