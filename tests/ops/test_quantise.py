"""Quantised layouts against NumPy: codes and scales exactly, products with them, gradients through them, what is refused."""
import os

import ml_dtypes
import numpy as np
import pytest
from op_cases import Case, Failure, Operand, dyn, read_table, run
from op_transforms import DEVICES, SEED
from programs import run_programs
from support.program import EMULATOR

TABLE = read_table(leave_out=())
F4, F8, E8M0 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
# The number, the dtypes of codes and scales (e8m0 in u8), the largest code, how many share a scale.
LAYOUTS = {"int8": (0, np.int8, np.float32, 127, None), "int4 by 32": (1, ml_dtypes.int4, np.float16, 7, 32),
           "int4 by 64": (2, ml_dtypes.int4, np.float16, 7, 64), "int4 by 128": (3, ml_dtypes.int4, np.float16, 7, 128),
           "int8 by 32": (4, np.int8, np.float16, 127, 32), "fp8": (5, F8, np.float32, 448, None),
           "mxfp4": (6, F4, E8M0, 6, 32), "mxfp8": (7, F8, E8M0, 448, 32),
           "int4 by 16": (10, ml_dtypes.int4, np.float16, 7, 16), "int8 by 16": (11, np.int8, np.float16, 127, 16)}


def quantised(x, layout):
    """The codes, the scales, and the numbers that they stand for."""
    _, code_type, scale_type, most, block = LAYOUTS[layout]
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, block or x.shape[-1])
    with np.errstate(all="ignore"):
        largest = np.abs(blocks).max(-1, keepdims=True)
        if scale_type is E8M0:  # OCP MX 1.0, section 6.3: the exponent of the largest size less that of the largest code
            exponents = np.frexp(largest.astype(np.float64))[1] - 1 - int(np.log2(most))
            exponents = np.where(np.isinf(largest), 128 - int(np.log2(most)), exponents)
            exponents = np.where(largest == 0, -127, np.clip(exponents, -127, 127))
            scales = np.where(np.isnan(largest), np.nan, np.ldexp(1.0, exponents)).astype(np.float32).astype(E8M0)
        else:
            scales = np.minimum(largest / np.float32(most), np.finfo(scale_type).max).astype(scale_type)
        by = scales.astype(np.float32)
        codes = np.where(by == 0, 0, np.clip(blocks / by, -most, most))
        codes = (codes if code_type in (F4, F8) else np.rint(codes)).astype(code_type)
        numbers = (codes.astype(np.float32) * by).reshape(x.shape)
    return codes.reshape(x.shape), scales[..., 0].view(np.uint8) if scale_type is E8M0 else scales[..., 0], numbers


def weights(rng, *shape):
    """Of sizes from row to row, among them a row of zeros, one too small for a scale of f16, one too large."""
    x = (rng.normal(size=shape) * np.exp(rng.uniform(-4, 4, (*shape[:-1], 1)))).astype(np.float32)
    rows = x.reshape(-1, shape[-1])
    rows[0], rows[1], rows[2] = 0, rows[1] * 1e-9, rows[2] * 1e9
    return x


GROUPED = 32  # CT_LAYOUT_INTERLEAVED: words of 16 rows lie together


def in_groups(a, word):
    """(..., N, K) as (..., N / 16, K / word, 16 * word)."""
    *front, n, k = a.shape
    a = a.reshape(*front, n // 16, 16, k // word, word).swapaxes(-2, -3)
    return np.ascontiguousarray(a.reshape(*front, n // 16, k // word, 16 * word))


def grouped(codes, scales):
    return in_groups(codes, 4 if codes.dtype == np.int8 else 8), in_groups(scales, 1)


WHOLE = ("int8", "int4 by 32", "int4 by 64", "int4 by 128", "int8 by 32", "mxfp4", "int4 by 16", "int8 by 16")
# Products of all of them take two minutes of compiling: `make test-all` has them.
ALL = os.environ.get("COTAN_TEST_ALL") == "1"
SOME = WHOLE if ALL else ("int4 by 32", "int8 by 32", "mxfp4")


def pairs(layouts, rows):
    """Each with each; without COTAN_TEST_ALL as many as meet all of both."""
    count = max(len(layouts), len(rows))
    return [(a, b) for a in layouts for b in rows] if ALL else [(layouts[i % len(layouts)], rows[i % len(rows)]) for i in range(count)]


def product(x, codes, scales):
    """x as bytes with a scale for 32, times codes: integers in each block, then scaled; and the sum of all sizes."""
    x = x.astype(np.float32).reshape(-1, x.shape[-1] // 32, 32)
    by = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(all="ignore"):
        rows = np.where(by == 0, 0, np.rint(x / by)).astype(np.int64)
    if codes.dtype == F4:  # twice the numbers are whole
        codes, scales = 2 * codes.astype(np.float32), scales.view(E8M0).astype(np.float32) / 2
    each = 16 if scales.shape[-1] == codes.shape[-1] // 16 else 32
    columns, rows, by = codes.astype(np.int64).reshape(codes.shape[0], -1, each), rows.reshape(len(rows), codes.shape[-1] // each, each), by.repeat(32 // each, 1)
    sums = np.einsum("mbk,nbk->mnb", rows, columns)
    scales = np.repeat(scales.astype(np.float32), columns.shape[1] // scales.shape[1], axis=1)
    terms = sums.astype(np.float64) * (by[:, None, :, 0] * scales[None]).astype(np.float64)
    return terms.sum(-1), np.abs(terms).sum(-1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SOME)
def test_quantised_activations(layout, device):
    """Rows alone and many, columns that fill no vector, steps of k that are whole and not, another place in memory."""
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    inputs = [((1, 256), 48), ((2, 3, 128), 37), ((9, 384), 16), ((70, 128), 130), ((140, 1152), 45), ((11, 640), 32), ((3, 384), 15), ((256,), 20), ((0, 128), 20)]
    inputs += [((5, 96), 33)] if layout not in ("int4 by 64", "int4 by 128") else []
    cases, wants = [], []
    for shape, n in inputs:
        x = (rng.normal(size=shape) * np.exp(rng.uniform(-3, 3, shape[:-1] + (1,)))).astype(np.float32)
        if x.size:
            x.reshape(-1, shape[-1])[0, 32:64] = 0
        codes, scales, _ = quantised(rng.normal(size=(n, shape[-1])).astype(np.float32), layout)
        cases.append(Case(TABLE["quantised_matmul"], [x, codes, scales], {"layout": number}))
        wants.append([y.reshape(*shape[:-1], n) for y in product(x, codes, scales)])
    half = rng.normal(size=(4, 128)).astype(np.float16)
    codes, scales, _ = quantised(rng.normal(size=(20, 128)).astype(np.float32), layout)
    for compiled in (False, True):
        step = 3 if compiled and not ALL else 1
        for case, got, (want, sizes) in zip(cases[::step], run(cases[::step], device, compiled), wants[::step], strict=True):
            assert not isinstance(got, Failure), got
            assert got[0].shape == want.shape and (np.abs(got[0] - want) <= 4e-6 * sizes + 1e-30).all(), case
        got = run([Case(TABLE["quantised_matmul"], [half, codes, scales], {"layout": number})], device, compiled)[0]
        assert got[0].dtype == np.float16
        np.testing.assert_allclose(got[0], product(half, codes, scales)[0], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SOME)
def test_groups(layout, device):
    """Codes in groups are the same codes in another order, and their products have the same bits."""
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    inputs = [(rng.normal(size=(m, k)).astype(np.float32), weights(rng, n, k)) for m, n, k in
              ((1, 48, 256), (1, 16, 128), (3, 64, 384), (9, 16, 128), (70, 48, 640), (140, 160, 1152), (5, 80, 64 if layout not in ("int4 by 64", "int4 by 128") else 256))]
    batch = weights(rng, 2, 32, 128)
    for compiled in (False, True):
        tried = [*(inputs[::3] if compiled and not ALL else inputs), (None, batch)]
        made = run([Case(TABLE["quantise"], [w], {"layout": number | GROUPED}) for _, w in tried], device, compiled)
        again, cases = [], []
        for (x, w), got in zip(tried, made):
            assert not isinstance(got, Failure), got
            codes, scales, numbers = quantised(w, layout)
            for a, want in zip(got, grouped(codes, scales)):
                assert a.dtype == want.dtype and a.shape == want.shape and (a.astype(np.float32) == want.astype(np.float32)).all()
            again.append((Case(TABLE["dequantise"], got, {"layout": number | GROUPED}), numbers))
            if x is not None:
                cases.append((Case(TABLE["quantised_matmul"], [x, *got], {"layout": number | GROUPED}),
                              Case(TABLE["quantised_matmul"], [x, codes, scales], {"layout": number})))
        for (_, numbers), got in zip(again, run([c for c, _ in again], device, compiled)):
            assert (got[0] == numbers).all()
        for a, b in zip(run([a for a, _ in cases], device, compiled), run([b for _, b in cases], device, compiled)):
            assert not isinstance(a, Failure), a
            assert a[0].tobytes() == b[0].tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["int8", "int8 by 32", "int4 by 32", "int4 by 16", "int8 by 16"])
def test_sums_of_integers_are_exact(layout, device):
    """Where all scales are 1 the result is the product of integers, the largest among them."""
    rng = np.random.default_rng(SEED)
    number, code_type, scale_type, most, block = LAYOUTS[layout]
    x = rng.integers(-127, 128, (17, 256)).astype(np.float32)
    codes = rng.integers(-most, most + 1, (40, 256)).astype(np.int64)
    x[:, ::32] = 127  # the largest size of each block
    x[0], x[1], codes[0], codes[1] = 127, -127, most, -most
    scales = np.ones((40, 256 // block if block else 1), scale_type)
    for compiled in (False, True):
        got = run([Case(TABLE["quantised_matmul"], [x, codes.astype(code_type), scales], {"layout": number})], device, compiled)[0]
        assert not isinstance(got, Failure), got
        assert (got[0].astype(np.int64) == x.astype(np.int64) @ codes.T).all()


@pytest.mark.skipif(os.uname().machine != "x86_64" or bool(EMULATOR), reason="instructions of x86-64")
@pytest.mark.parametrize("machine", ["native", "x86-64", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("layout", ["int8 by 32", "int4 by 32"])
def test_bytes_of_other_machines(layout, machine):
    """Compiled products of bytes are exact with each machine's instructions, some of which saturate: the largest codes of all
    signs meet the largest rows, for few rows and for many."""
    rng = np.random.default_rng(SEED)
    number, code_type, scale_type, most, block = LAYOUTS[layout]
    codes = rng.choice([-most, most], (40, 256)).astype(np.int64)
    codes[0], codes[1] = most, -most
    scales = np.ones((40, 256 // block), scale_type)
    rows = [rng.choice([-127, 127], (n, 256)).astype(np.float32) for n in (1, 5, 70)]
    for x in rows:
        x[0] = 127
    cases = [Case(TABLE["quantised_matmul"], [x, codes.astype(code_type), scales], {"layout": number}) for x in rows]
    for x, got in zip(rows, run(cases, "cpu", COTAN_CC="cc", COTAN_MARCH=machine, COTAN_COMPILE="wait")):
        assert not isinstance(got, Failure), got
        assert (got[0].astype(np.int64) == x.astype(np.int64) @ codes.T).all()


@pytest.mark.parametrize("device", DEVICES)
def test_products_of_all_mx_codes(device):
    """Every code of f4 beside every other under every scale: as whole numbers, exactly, and as floats with the bits of what is stored."""
    codes = np.stack([np.roll(np.arange(16, dtype=np.uint8), i) for i in range(16)] * 16).reshape(256, 16)
    codes = np.ascontiguousarray(np.tile(codes, (1, 8))).view(F4)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 4, 1)
    x = np.zeros((5, 128), np.float32)
    x[0, :16], x[1, 32:48], x[2, 3], x[3, 64:] = np.arange(-8, 8) * 127 / 8 // 1, 127, -127, 127
    x[0, 31] = 127  # scales of rows are 1
    exact = codes.astype(np.float64)
    with np.errstate(all="ignore"):
        want = ((x.astype(np.float64) @ exact.T) * scales[:, 0].view(E8M0).astype(np.float64)).astype(np.float32)

    def once(o, x, codes, scales):
        return o.matmul(x, o.permute(o.dequantise(codes, scales, layout=6), axes=[1, 0]))

    def twice(o, x, codes, scales):
        w = o.dequantise(codes, scales, layout=6)
        return o.matmul(x, o.permute(w, axes=[1, 0])), o.sum(w)
    for compiled in (False, True):
        got = run([Case(TABLE["quantised_matmul"], [x, codes, scales], {"layout": 6})], device, compiled)[0]
        assert not isinstance(got, Failure), got
        np.testing.assert_array_equal(got[0], want)
        got = run_programs([(once, [x, codes, scales]), (twice, [x, codes, scales])], device, compiled=compiled)
        np.testing.assert_array_equal(got[0][0], got[1][0])  # NaN are equal


def test_rows_have_the_same_bits():
    """A row alone has the bits that it has among others."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(70, 256)).astype(np.float32)
    codes, scales, _ = quantised(rng.normal(size=(50, 256)).astype(np.float32), "int4 by 32")
    cases = [Case(TABLE["quantised_matmul"], [x[at], codes, scales], {"layout": 1}) for at in (slice(None), slice(3, 4), slice(60, 65))]
    for compiled in (False, True):
        whole, one, some = (got[0] for got in run(cases, "cpu", compiled))
        assert (whole[3:4] == one).all() and (whole[60:65] == some).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_and_numbers(layout, device):
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    inputs = [weights(rng, 5, 128), weights(rng, 2, 3, 384), rng.normal(size=128).astype(np.float32),
              rng.normal(size=(4, 128)).astype(np.float16), rng.normal(size=(4, 128))]
    cases = [Case(TABLE["quantise"], [x], {"layout": number}) for x in inputs]
    for compiled in (False, True):
        again = []
        for x, got in zip(inputs, run(cases, device, compiled)):
            assert not isinstance(got, Failure), got
            codes, scales, _ = quantised(x, layout)
            assert got[0].dtype == codes.dtype and (got[0].astype(np.float32) == codes.astype(np.float32)).all()
            assert got[1].dtype == scales.dtype and (got[1] == scales).all()
            again.append(Case(TABLE["dequantise"], got, {"layout": number}))
        for x, got in zip(inputs, run(again, device, compiled)):
            assert got[0].dtype == np.float32 and (got[0] == quantised(x, layout)[2]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_mx_codes(device):
    """Every code under every scale, and blocks whose sizes lie at, beside and between all numbers of a code."""
    rng = np.random.default_rng(SEED)
    for layout, code_type, count in (("mxfp4", F4, 16), ("mxfp8", F8, 256)):
        number, _, _, most, block = LAYOUTS[layout]
        codes = np.tile(np.arange(count, dtype=np.uint8).view(code_type), 2 * 32 // min(count, 32))[: max(64, count)]
        codes, scales = np.tile(codes, (256, 1)), np.arange(256, dtype=np.uint8)
        scales = np.repeat(scales[:, None], codes.shape[1] // block, 1)
        with np.errstate(all="ignore"):
            want = codes.astype(np.float32).reshape(256, -1, block) * scales.view(E8M0).astype(np.float32)[..., None]
        got = run([Case(TABLE["dequantise"], [codes, scales], {"layout": number})], device, False)[0]
        assert not isinstance(got, Failure) and np.array_equal(got[0], want.reshape(codes.shape), equal_nan=True)
        sizes = np.unique(np.arange(count, dtype=np.uint8).view(code_type).astype(np.float32))
        sizes = sizes[np.isfinite(sizes)]
        sizes = np.concatenate([sizes, (sizes[1:] + sizes[:-1]) / 2, [most * 1.1, -most * 1.3, most * 1.24]]).astype(np.float32)
        sizes = np.concatenate([sizes, np.nextafter(sizes, np.float32(1e9)), np.nextafter(sizes, np.float32(-1e9))])
        x = rng.choice(sizes, (64, 64)) * np.exp2(rng.integers(-140, 110, (64, 1))).astype(np.float32)
        x[:2, 5] = np.nan, np.inf
        codes, scales, _ = quantised(x, layout)
        got = run([Case(TABLE["quantise"], [x], {"layout": number})], device, False)[0]
        assert (got[1] == scales).all() and got[1][0, 0] == 255 and got[1][1, 0] == 255 - int(np.log2(most))
        assert (got[0].view(np.uint8)[1:] == codes.view(np.uint8)[1:]).all()  # what a code of NaN is, is open


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout, rows", pairs(["int8", "int4 by 32", "mxfp4"], [1, 7, 300]))
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
        if layout == "mxfp4":  # its scales are whole numbers
            return o.vjp(lambda x: f(o, x, codes, scales), [x], [c])
        return o.vjp(lambda x, s: f(o, x, codes, s), [x, scales], [c])
    y, gx, *gs = run_programs([(loss, [x, *got])], device, compiled=True)[0]
    stored = run_programs([(loss, [x, *got])], device, compiled=True, COTAN_FUSE="0")[0]
    assert [a.tobytes() for a in stored] == [a.tobytes() for a in (y, gx, *gs)]
    want = x.astype(np.float64) @ exact.T.astype(np.float64)
    assert np.abs(y - want).max() <= 1e-6 * np.abs(x.astype(np.float64)) .max() * np.abs(exact).sum(-1).max()
    assert np.allclose(gx, c @ exact, rtol=1e-5, atol=1e-4)
    slope = ((c.T @ x) * codes.astype(np.float32)).reshape(48, scales.shape[1], -1).sum(-1)
    assert all(np.allclose(g.astype(np.float32), slope, rtol=2e-3, atol=1e-2 * np.abs(slope).max()) for g in gs)


@pytest.mark.parametrize("layout, rows", pairs(["int8", "int4 by 32", "int4 by 128", "mxfp4", "int8 by 16"], [1, 4, 16]))
def test_few_rows(layout, rows):
    """A product that reads codes where they lie has the bits of one with a weight that is stored, since it is read twice."""
    rng, number = np.random.default_rng(SEED), LAYOUTS[layout][0]
    for n, k in ((64, 128), (130, 640)):
        x, w = rng.normal(size=(rows, k)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
        codes, scales, exact = quantised(w, layout)

        def once(o, x, codes, scales):
            return o.matmul(x, o.permute(o.dequantise(codes, scales, layout=number), axes=[1, 0]))

        def twice(o, x, codes, scales):
            w = o.dequantise(codes, scales, layout=number)
            return o.matmul(x, o.permute(w, axes=[1, 0])), o.sum(w)
        for compiled in (False, True):
            got = run_programs([(once, [x, codes, scales]), (twice, [x, codes, scales])], "cpu", compiled=compiled)
            assert got[0][0].tobytes() == got[1][0].tobytes()
            np.testing.assert_allclose(got[0][0], x @ exact.T, rtol=1e-4, atol=1e-4 * np.abs(exact).max() * k)


UNSIGNED = [(ml_dtypes.uint4, 32, np.float32), (np.uint8, 64, ml_dtypes.bfloat16), (ml_dtypes.uint4, 16, np.float16), (np.int8, 32, np.float32)]


@pytest.mark.parametrize("code, block, dtype", UNSIGNED, ids=["u4 f32", "u8 bf16", "u4 by 16 f16", "i8 f32"])
def test_offsets(code, block, dtype):
    """Numbers are code times scale plus offset, each rounded to the scales' dtype: as NumPy rounds them, read alone, and in products of few rows
    and of many, which have the bits of a product with the numbers."""
    rng = np.random.default_rng(SEED)
    n, k = 70, 256
    least, most = (-128, 128) if code is np.int8 else (0, 16 if code is ml_dtypes.uint4 else 256)
    codes = rng.integers(least, most, (n, k)).astype(code)
    scales, offsets = (rng.normal(size=(n, k // block)).astype(dtype) for _ in range(2))
    wide = [x.astype(np.float32).repeat(block, 1) for x in (scales, offsets)]
    numbers = ((codes.astype(np.float32) * wide[0]).astype(dtype).astype(np.float32) + wide[1]).astype(dtype).astype(np.float32)

    def product(o, x, codes, scales, offsets):
        return o.matmul(x, o.permute(o.dequantise_offset(codes, scales, offsets), axes=[1, 0]))

    def stored(o, x, numbers):
        return o.matmul(x, o.permute(numbers, axes=[1, 0]))

    def alone(o, codes, scales, offsets):
        return o.dequantise_offset(codes, scales, offsets)
    rows = [rng.normal(size=(m, k)).astype(np.float32) for m in (1, 5, 150)]
    programs = [(alone, [codes, scales, offsets])] + [(product, [x, codes, scales, offsets]) for x in rows] + [(stored, [x, numbers]) for x in rows]
    got = run_programs(programs, "cpu", compiled=True)
    assert got[0][0].tobytes() == numbers.tobytes()
    for a, b in zip(got[1:4], got[4:]):
        assert a[0].tobytes() == b[0].tobytes()
    assert run_programs(programs[2:3], "cpu", compiled=False)[0][0].tobytes() == got[2][0].tobytes()
    for x, want in zip(rows, got[1:4]):  # numbers of rows that are an argument of the kernel
        case = Case(TABLE["offset_product"], [Operand(x, dims=[dyn(len(x)), k]), codes, scales, offsets], {})
        assert run([case], "cpu", True)[0][0].tobytes() == want[0].tobytes()


def test_wider_scales():
    """Layouts with scales of f16 take them as f32, too: a product has every digit of those."""
    rng = np.random.default_rng(SEED)
    for layout in ("int4 by 32", "int8 by 16"):
        number, code_type, _, most, block = LAYOUTS[layout]
        codes, scales = rng.integers(-most, most + 1, (80, 128)).astype(code_type), rng.normal(size=(80, 128 // block)).astype(np.float32)
        numbers = codes.astype(np.float32) * scales.repeat(block, 1)
        x = rng.normal(size=(3, 128)).astype(np.float32)

        def product(o, x, codes, scales):
            return o.matmul(x, o.permute(o.dequantise(codes, scales, layout=number), axes=[1, 0]))

        def stored(o, x, numbers):
            return o.matmul(x, o.permute(numbers, axes=[1, 0]))
        got = run_programs([(product, [x, codes, scales]), (stored, [x, numbers])], "cpu", compiled=True)
        assert got[0][0].tobytes() == got[1][0].tobytes()


WORK = {"cast": lambda o, w, by: o.cast(w, dtype="f32"), "scale": lambda o, w, by: o.mul(w, 0.3),
        "columns": lambda o, w, by: o.mul(w, by)}


@pytest.mark.parametrize("work, rows", pairs(list(WORK), [1, 4, 300]))
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


def ggml_blocks(x, layout):
    """The bytes that ggml's reference quantiser writes, as its sources have it, and the numbers that they stand for."""
    b = x.reshape(*x.shape[:-1], -1, 32)
    if layout == "q8_0":
        d = np.abs(b).max(-1, keepdims=True) / np.float32(127)
    else:
        at = np.abs(b).argmax(-1)[..., None]
        d = np.take_along_axis(b, at, -1) / np.float32(-8)
    with np.errstate(all="ignore"):
        inverse = np.where(d == 0, 0, 1 / d).astype(np.float32)
        half = d.astype(np.float16)
    if layout == "q8_0":  # halves away from 0
        v = b * inverse
        codes = (np.sign(v) * np.floor(np.abs(v.astype(np.float64)) + 0.5)).astype(np.int8)
        low, numbers = codes.view(np.uint8), codes.astype(np.float32)
    else:
        v = b.astype(np.float64) * inverse + 8.5
        codes = np.minimum(v.astype(np.float32).astype(np.uint8), 15)
        low, numbers = codes[..., :16] | codes[..., 16:] << 4, codes.astype(np.float32) - 8
    out = np.concatenate([half.view(np.uint8), low], -1)
    return out.reshape(*x.shape[:-1], -1), (numbers * half.astype(np.float32)).reshape(x.shape)


GGML = {"q8_0": (8, 34), "q4_0": (9, 18)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", GGML)
def test_blocks_of_ggml(layout, device):
    """Bytes and numbers; blocks of zeros, of equals with both signs, of halves; any bytes; products with their bits."""
    rng, (number, size) = np.random.default_rng(SEED), GGML[layout]
    x = weights(rng, 6, 128)
    x[3, :32], x[3, 32:64], x[4, :32] = np.tile([-2, 2], 16), np.tile([2, -2], 16), np.linspace(-127, 127, 32).round() / 2
    x[2] /= 1e4  # its scales fit f16
    any_bytes = rng.integers(0, 256, (3, 4 * size)).astype(np.uint8)
    any_bytes[:, 1::size] &= 0x7b  # no scale is infinite
    none = np.zeros((3, 0), np.uint8)
    q, d = TABLE["quantise"], TABLE["dequantise"]
    inputs = [x, x[2, 32:], x.reshape(2, 3, 128)]
    for compiled in (False, True):
        got = run([Case(q, [x], {"layout": number}) for x in inputs], device, compiled)
        for x, y in zip(inputs, got):
            assert not isinstance(y, Failure), y
            codes, numbers = ggml_blocks(x, layout)
            assert y[0].dtype == y[1].dtype == np.uint8 and (y[0] == codes).all() and y[1].shape == (*x.shape[:-1], 0)
            back = run([Case(d, y, {"layout": number})], device, compiled)[0]
            assert back[0].dtype == np.float32 and (back[0] == numbers).all()
        got = run([Case(d, [any_bytes, none], {"layout": number})], device, compiled)[0][0]
        blocks = any_bytes.reshape(3, 4, size)
        codes = blocks[..., 2:].view(np.int8) if size == 34 else np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1) - 8.0
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
        assert (got == (codes.astype(np.float32) * scales).reshape(3, 128)).all()
    rows, w = rng.normal(size=(2, 128)).astype(np.float32), ggml_blocks(rng.normal(size=(37, 128)).astype(np.float32), layout)

    def f(o, x, codes, scales):
        return o.matmul(x, o.permute(o.dequantise(codes, scales, layout=number), axes=[1, 0]))
    operands = [rows, w[0], np.zeros((37, 0), np.uint8)]
    y, stored = (run_programs([(f, operands)], device, compiled=True, COTAN_FUSE=fuse)[0][0] for fuse in "10")
    assert y.tobytes() == stored.tobytes()
    np.testing.assert_allclose(y, rows @ w[1].T, rtol=1e-5, atol=1e-5 * np.abs(w[1]).max())


def large_blocks(layout, b):
    """The numbers of blocks of 256 (n, bytes), as ggml's reference has them."""
    half = lambda at: np.ascontiguousarray(b[:, at:at + 2]).view(np.float16).astype(np.float32)
    if layout == "q6_k":
        low, high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 1, 32)
        codes = np.stack([low[:, :, q % 2] >> (q // 2 * 4) & 15 | (high[:, :, 0] >> 2 * q & 3) << 4 for q in range(4)], 2)
        scales = half(208) * b[:, 192:208].view(np.int8).astype(np.float32)
        return scales[..., None] * (codes.reshape(-1, 16, 16).astype(np.float32) - 32)
    s = b[:, 4:16]
    scales = np.concatenate([s[:, :4] & 63, s[:, 8:] & 15 | s[:, :4] >> 6 << 4], 1).astype(np.float32)
    minimums = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], 1).astype(np.float32)
    at = b[:, 48:176] if layout == "q5_k" else b[:, 16:144]
    codes = np.stack([at.reshape(-1, 4, 32) & 15, at.reshape(-1, 4, 32) >> 4], 2).reshape(-1, 8, 32)
    if layout == "q5_k":
        codes = codes | np.stack([b[:, 16:48] >> g & 1 for g in range(8)], 1) << 4
    return (half(0) * scales)[..., None] * codes.astype(np.float32) - (half(2) * minimums)[..., None]


LARGE = {"q4_k": (12, 144, (0, 2)), "q5_k": (13, 176, (0, 2)), "q6_k": (14, 210, (208,))}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LARGE)
def test_large_blocks(layout, device):
    """Any bytes as numbers; products that read them have the bits of products with what is stored."""
    rng, (number, size, scales) = np.random.default_rng(SEED), LARGE[layout]
    blocks = rng.integers(0, 256, (37, 2, size)).astype(np.uint8)
    for at in scales:
        blocks[..., at + 1] &= 0x3b  # finite, and not large
    blocks, none = blocks.reshape(37, -1), np.zeros((37, 0), np.uint8)
    want = large_blocks(layout, blocks.reshape(-1, size)).reshape(37, 512)
    x = rng.normal(size=(2, 512)).astype(np.float32)

    def f(o, x, blocks, none):
        return o.matmul(x, o.permute(o.dequantise(blocks, none, layout=number), axes=[1, 0]))
    for compiled in (False, True):
        got = run([Case(TABLE["dequantise"], [blocks, none], {"layout": number})], device, compiled)[0]
        assert not isinstance(got, Failure), got
        assert got[0].dtype == np.float32 and (got[0] == want).all()
        y, stored = (run_programs([(f, [x, blocks, none])], device, compiled=compiled, COTAN_FUSE=fuse)[0][0] for fuse in "10")
        assert y.tobytes() == stored.tobytes()
        np.testing.assert_allclose(y, x @ want.T, rtol=1e-4, atol=1e-5 * np.abs(want).max() * 512)


def test_refused():
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(3, 40)).astype(np.float32)
    q, d, m = TABLE["quantise"], TABLE["dequantise"], TABLE["quantised_matmul"]
    codes, scales = np.zeros((3, 40), np.int8), np.ones((3, 1), np.float32)
    for case, text in [
            (Case(q, [x], {"layout": 15}), "quantise: there is no layout 15\n  hint: layouts are 0 (CT_LAYOUT_INT8) to 14 (CT_LAYOUT_Q6_K)"),
            (Case(q, [x], {"layout": 8}), "quantise: the last axis of (3, 40) f32 is no multiple of 32\n"
                                          "  hint: q8_0 has a scale for 32 elements along it: ct_pad it"),
            (Case(d, [np.zeros((3, 35), np.uint8), np.zeros((3, 0), np.uint8)], {"layout": 8}),
             "dequantise: the last axis of (3, 35) u8 is no multiple of 34\n  hint: a block of q8_0 is 34 bytes, 32 elements"),
            (Case(d, [np.zeros((3, 36), np.uint8), np.zeros((3, 2), np.uint8)], {"layout": 9}),
             "dequantise: the scales are (3, 2) u8, of codes (3, 36) u8 they are (3, 0) u8\n"
             "  hint: codes and scales are those of ct_quantise with this layout"),
            (Case(m, [np.ones((2, 64), np.float32), np.zeros((3, 68), np.uint8), np.zeros((3, 0), np.uint8)], {"layout": 8}),
             "quantised_matmul: blocks of q8_0 are no codes with scales\n  hint: ct_matmul takes ct_dequantise of them"),
            (Case(q, [x], {"layout": 1}), "quantise: the last axis of (3, 40) f32 is no multiple of 32\n"
                                          "  hint: int4 by 32 has a scale for 32 elements along it: ct_pad it"),
            (Case(q, [np.float32(1)], {}), "quantise: x is () f32, it needs an axis"),
            (Case(q, [codes], {}), "quantise: operand 1 is (3, 40) i8, accepted are floats\n  hint: cast it: ct_cast(x, CT_F32)"),
            (Case(d, [codes, scales], {"layout": 1}), "dequantise: the codes are (3, 40) i8, of int4 by 32 they are i4\n"
                                                      "  hint: codes and scales are those of ct_quantise with this layout"),
            (Case(d, [codes, scales[:2]], {}), "dequantise: the scales are (2, 1) f32, of codes (3, 40) i8 they are (3, 1) f32\n"
                                               "  hint: codes and scales are those of ct_quantise with this layout"),
            (Case(m, [x, codes, scales], {"layout": 5}), "quantised_matmul: codes of fp8 are no whole numbers\n"
                                                         "  hint: ct_matmul takes ct_dequantise of them"),
            (Case(m, [x, codes, scales], {"layout": 1}), "quantised_matmul: the codes are (3, 40) i8, of int4 by 32 they are i4"),
            (Case(m, [x, codes, scales], {}), "quantised_matmul: shapes do not fit (..., K) and (N, K): x is (3, 40) f32, the codes are (3, 40) i8\n"
                                              "  hint: K is a multiple of 32, and a row of codes an output's weights"),
            (Case(m, [np.ones((2, 64), np.float32), np.ones((3, 64), np.int8), scales[:2]], {}),
             "quantised_matmul: the scales are (2, 1) f32, of codes (3, 64) i8 they are (3, 1) f32\n"
             "  hint: codes and scales are those of ct_quantise with this layout"),
            (Case(m, [np.ones((2, 64), np.float32), Operand(np.ones((3, 64), np.int8), dims=[dyn(3), 64]), Operand(scales, dims=[dyn(3), 1])], {}),
             "quantised_matmul: the codes are (n=3, 64) i8, whose sizes are dynamic: they have to be known"),
            (Case(TABLE["dequantise_offset"], [codes, np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)], {}),
             "dequantise_offset: codes (3, 40) i8, scales (3, 3) f32 and offsets (3, 3) f32 do not fit"),
            (Case(TABLE["dequantise_offset"], [codes, np.ones((3, 2), np.float32), np.ones((3, 2), np.float16)], {}),
             "dequantise_offset: codes (3, 40) i8, scales (3, 2) f32 and offsets (3, 2) f16 do not fit"),
            (Case(q, [np.zeros((3, 256), np.float32)], {"layout": 12}), "quantise: blocks of q4_k are read, not made"),
            (Case(d, [np.zeros((3, 35), np.uint8), np.zeros((3, 0), np.uint8)], {"layout": 14}),
             "dequantise: the last axis of (3, 35) u8 is no multiple of 210\n  hint: a block of q6_k is 210 bytes, 256 elements"),
            (Case(q, [x], {"layout": 5 | GROUPED}), "quantise: fp8 has no groups\n"
                                                    "  hint: CT_LAYOUT_INTERLEAVED goes with layouts of whole numbers and MXFP4"),
            (Case(q, [x], {"layout": GROUPED}), "quantise: (3, 40) i8 has no groups of 16 rows\n"
                                                "  hint: rows in groups of int8 are a multiple of 16, each a multiple of 4 elements"),
            (Case(d, [codes, scales], {"layout": GROUPED}), "dequantise: the codes are (3, 40) i8, no groups of int8\n"
                                                            "  hint: groups of 16 rows are (..., rows / 16, words, 64)"),
            (Case(m, [np.ones((2, 32), np.float32), np.ones((1, 8, 64), np.int8), scales], {"layout": GROUPED}),
             "quantised_matmul: the scales are (3, 1) f32, of codes (1, 8, 64) i8 they are (1, 1, 16) f32\n"
             "  hint: codes and scales are those of ct_quantise with this layout")]:
        got = run([case], DEVICES[0], False)[0]
        assert isinstance(got, Failure) and got.endswith(text), got
