"""cotan.torch.special: values of 30 digits' arithmetic, written down, edges, and gradients against other functions."""
import math

import numpy as np
import pytest

import cotan
import cotan.torch as torch
from cotan import float32, float64, tensor

inf, nan = math.inf, math.nan
# Of each function: the values at numbers in all ranges that are computed in different ways.
UNARY = {
        "airy_ai": {-30.5: -0.004333637288742865, -7.25: 0.32374057321118616, -2.125: 0.14692191656424264, 0.0:
        0.3550280538878172, 1.5: 0.07174949700810541, 2.5: 0.01572592338047049, 40.0: 6.365742658552915e-75},
        "bessel_j0": {-7.5: 0.2663396578803784, 0.0: 1.0, 2.0: 0.22389077914123567, 24.75: 0.06209579173200769, 25.25:
        0.1241420860363391, 300.0: -0.03329855487630567},
        "bessel_j1": {-7.5: -0.1352484275797055, 1e-09: 5e-10, 2.0: 0.5767248077568734, 24.75: -0.146630427281848, 25.25:
        -0.09653920971948139, 300.0: -0.03188743137749995},
        "bessel_y0": {1e-09: -13.266645074938387, 0.5: -0.44451873350670656, 7.5: 0.11731328614820863, 24.75:
        -0.14785428346288323, 25.25: -0.09897715155607249, 300.0: -0.0318318897300034,
        40.0: 0.12593641705826092},
        "bessel_y1": {1e-09: -636619772.3675814, 0.5: -1.471472392670243, 7.5: -0.25912851048611624, 24.75: -0.06509417357268682,
        25.25: -0.12612554501532683, 300.0: 0.03324554812131022,
        40.0: -0.005793505821549633},
    "entr": {0.25: 0.34657359027997264, 3.0: -3.295836866004329},
        "erfcx": {-3.0: 16205.988853999586, 0.0: 1.0, 0.125: 0.8732218450821508, 6.25: 0.08915663178727438, 6.5:
        0.08580567010489461, 1000000000.0: 5.641895835477563e-10},
    "i0": {-2.0: 2.2795853023360673, 0.0: 1.0, 30.0: 781672297823.9775, 712.0: 2.4684110577627523e+307},
    "i0e": {-2.0: 0.30850832255367105, 24.0: 0.08186828833403062, 26.0: 0.07862365204001373, 1000000.0: 0.00039894233026924577},
    "i1": {-2.0: -1.590636854637329, 1e-09: 5e-10, 30.0: 768532038938.957, 712.0: 2.4666770135246153e+307},
        "i1e": {-2.0: -0.21526928924893765, 1e-09: 4.999999995000001e-10, 24.0: 0.08014413927653474, 26.0: 0.07709652456966624,
        1000000.0: 0.0003989421307980308},
        "modified_bessel_k0": {1e-09: 20.839197352604824, 1.25: 0.29760308908410593, 1.75: 0.1553798123866036, 100.0:
        4.656628229175902e-45},
        "modified_bessel_k1": {1e-09: 999999999.9999999, 1.25: 0.4021240797841954, 1.75: 0.19547745347439302, 100.0:
        4.6798537356369095e-45},
        "scaled_modified_bessel_k0": {1e-09: 20.83919737344402, 1.25: 1.0387368461035982, 1.75: 0.8941490841572174, 1000000.0:
        0.0012533139806513213},
        "scaled_modified_bessel_k1": {1e-09: 1000000000.9999999, 1.25: 1.40355094990059, 1.75: 1.1248950768625277, 1000000.0:
        0.0012533146073081549},
        "log_ndtr": {-1000.0: -500007.82669481216, -2.0: -3.783184333682032, -0.5: -1.1759117615936185, 3.0:
        -0.0013508099647481938, 10.0: -7.619853024160525e-24},
    "ndtr": {-30.0: 4.906713927148187e-198, -2.0: 0.02275013194817921, 0.0: 0.5, 3.0: 0.9986501019683699},
        "ndtri": {1e-300: -37.0470962993612, 0.0625: -1.5341205443525463, 0.125: -1.150349380376008, 0.5: 0.0, 0.875:
        1.150349380376008},
}
BINARY = {
    "spherical_bessel_j0": {-4.0: -0.18920062382698205, 1e-09: 1.0, 7.0: 0.09385522838839844},
        "gammainc": {(0.5, 0.25): 0.5204998778130465, (3.0, 10.0): 0.9972306042844884, (250.0, 240.0): 0.2676500698540158,
        (20000.0, 20100.0): 0.7606167055614177},
        "gammaincc": {(0.5, 0.25): 0.4795001221869535, (3.0, 30.0): 4.501016648012124e-11, (250.0, 240.0): 0.7323499301459842,
        (20000.0, 20100.0): 0.23938329443858236},
        "zeta": {(1.125, 0.25): 12.980836927210346, (2.0, 1.0): 1.6449340668482264, (3.0, -1.25): -61.86068339183118, (4.0,
        -0.75): 259.6241844953586, (60.0, 20.0): 9.168597639368875e-79},
    "xlog1py": {(2.0, 1e-09): 1.999999999e-09, (-1.5, 3.0): -2.0794415416798357},
    "chebyshev_polynomial_t": {(-1.5, 5.0): -61.5, (-0.75, 9.0): -0.9755859375, (0.25, 12.0): -0.9940185546875, (2.0, 4.0): 97.0},
    "chebyshev_polynomial_u": {(-1.5, 5.0): -144.0, (-0.75, 9.0): -1.224609375, (0.25, 12.0): -1.022216796875, (2.0, 4.0): 209.0},
    "chebyshev_polynomial_v": {(-1.5, 5.0): -199.0, (-0.75, 9.0): -1.556640625, (0.25, 12.0): -0.909423828125, (2.0, 4.0): 153.0},
    "chebyshev_polynomial_w": {(-1.5, 5.0): -89.0, (-0.75, 9.0): -0.892578125, (0.25, 12.0): -1.135009765625, (2.0, 4.0): 265.0},
    "shifted_chebyshev_polynomial_t": {(-1.5, 5.0): -15124.0, (-0.75, 9.0): -665335.0, (0.25, 12.0): 1.0, (2.0, 4.0): 577.0},
    "hermite_polynomial_h": {(-1.5, 5.0): 117.0, (-0.75, 9.0): 1049.994140625, (0.25, 12.0): 216585.57446289062, (2.0, 4.0): 76.0},
        "hermite_polynomial_he": {(-1.5, 5.0): 3.65625, (-0.75, 9.0): -262.1583366394043, (0.25, 12.0): 6696.541151106358, (2.0,
        4.0): -5.0},
        "laguerre_polynomial_l": {(-1.5, 5.0): 26.49296875, (-0.75, 9.0): 25.713292904411045, (0.25, 12.0): -0.4359916653199676,
        (2.0, 4.0): 0.3333333333333333},
}
EDGES = {
    "entr": {0.0: 0.0, -1.0: -inf, inf: -inf, nan: nan}, "erfcx": {-30.0: inf, inf: 0.0, nan: nan},
    "bessel_y0": {0.0: -inf, -1.0: nan}, "bessel_y1": {0.0: -inf, -1.0: nan}, "bessel_j1": {nan: nan},
    "i0": {inf: inf, nan: nan}, "i1": {-inf: -inf}, "modified_bessel_k0": {0.0: inf, -1.0: nan, inf: 0.0},
    "scaled_modified_bessel_k1": {0.0: inf, inf: 0.0}, "log_ndtr": {-inf: -inf, inf: 0.0}, "ndtr": {-inf: 0.0, inf: 1.0},
    "ndtri": {0.0: -inf, 1.0: inf, 1.5: nan, -0.5: nan}, "spherical_bessel_j0": {0.0: 1.0, inf: 0.0}, "airy_ai": {inf: nan},
}
PAIR_EDGES = {
        "gammainc": {(0.0, 1.0): 1.0, (0.0, 0.0): nan, (1.0, 0.0): 0.0, (1.0, inf): 1.0, (inf, 1.0): 0.0, (-1.0, 1.0): nan, (1.0,
        -1.0): nan},
    "gammaincc": {(0.0, 1.0): 0.0, (1.0, 0.0): 1.0, (1.0, inf): 0.0, (inf, 1.0): 1.0, (nan, 1.0): nan},
    "zeta": {(1.0, 2.0): inf, (0.5, 2.0): nan, (2.0, -3.0): inf, (2.5, -1.5): nan, (inf, 1.0): 1.0, (2.0, inf): 0.0},
    "xlog1py": {(0.0, -2.0): 0.0, (0.0, nan): nan, (1.0, -1.0): -inf},
        "chebyshev_polynomial_u": {(1.0, 4.0): 5.0, (-1.0, 3.0): -4.0, (0.5, -1.0): 0.0, (nan, 0.0): 1.0, (nan, 2.0): nan, (inf,
        2.0): inf},
    "chebyshev_polynomial_v": {(-1.0, 3.0): -7.0, (1.0, 3.0): 1.0}, "hermite_polynomial_h": {(0.5, 600.0): nan, (0.5, 2.9): -1.0},
}


def check(function, values, dtype, tolerance):
    pairs = isinstance(next(iter(values)), tuple)
    operands = [tensor(list(x), dtype=dtype) for x in (zip(*values) if pairs else [values])]
    y = function(*operands)
    assert y.dtype == dtype
    with np.errstate(over="ignore"):
        expected = np.array(list(values.values())).astype("float64" if dtype == float64 else "float32")
    np.testing.assert_allclose(y.numpy(), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("name", UNARY)
def test_values_of_one_operand(name):
    check(getattr(torch.special, name), UNARY[name], float64, 2e-13)


@pytest.mark.parametrize("name", BINARY)
def test_values_of_two_operands(name):
    check(getattr(torch.special, name), BINARY[name], float64, 1e-12)


def test_float32_is_rounded_once():
    for name, values in UNARY.items():
        representable = {x: y for x, y in values.items() if float(np.float32(x)) == x and 1e-37 < abs(y) < 1e38 or x == 0}
        check(getattr(torch.special, name), representable, float32, 1.3e-7)


def test_edges():
    for name, values in (EDGES | PAIR_EDGES).items():
        check(getattr(torch.special, name), values, float64, 1e-14)


def test_polygamma_and_the_multivariate_gamma_function():
    for (n, x), y in {(1, -1.75): 19.301637544529786, (1, 0.25): 17.19732915450711, (2, 3.5): -0.1082040516417274,
                      (5, -0.5): 15371.113548602436}.items():
        assert torch.polygamma(n, tensor(x, dtype=float64)).item() == pytest.approx(y, rel=1e-13)
        assert tensor(x, dtype=float64).polygamma(n).item() == pytest.approx(y, rel=1e-13)
    assert torch.special.polygamma(0, tensor(1.0)).item() == pytest.approx(-0.57721566)
    # Gamma of dimension 2 at a is sqrt(pi) gamma(a) gamma(a - 1/2).
    assert torch.mvlgamma(tensor(3.0, dtype=float64), 2).item() == pytest.approx(math.log(math.sqrt(math.pi) * 2 * math.gamma(2.5)))
    with pytest.raises(RuntimeError, match="does not support negative n"):
        torch.polygamma(-1, tensor(1.0))


def slopes(function, x, step=1e-5):
    x = tensor(x, dtype=float64).requires_grad_()
    grad, = cotan.autograd.grad(function(x).sum(), (x,))
    estimate = (function(x.detach() + step) - function(x.detach() - step)) / (2 * step)
    np.testing.assert_allclose(grad.numpy(), estimate.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", """entr erfcx i0 i0e i1 i1e log_ndtr ndtr bessel_j0 bessel_j1 bessel_y0 bessel_y1
    modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1""".split())
def test_gradients_are_slopes(name):
    slopes(getattr(torch.special, name), [0.25, 0.75, 2.5])


def test_gradients_of_families_and_second_gradients():
    slopes(torch.special.ndtri, [0.03, 0.4, 0.9])
    slopes(lambda x: torch.igamma(tensor(2.5, dtype=float64), x), [0.25, 7.0])
    slopes(lambda x: torch.igammac(tensor(2.5, dtype=float64), x), [0.25, 7.0])
    slopes(lambda x: torch.special.zeta(3.0, x), [0.25, 7.0])
    slopes(lambda x: torch.polygamma(1, x), [0.25, 7.0])
    slopes(lambda x: torch.special.xlog1py(x, x), [0.25, 7.0])
    x = tensor([0.5, 2.0], dtype=float64).requires_grad_()
    first, = cotan.autograd.grad(torch.special.i0(x).sum(), (x,), create_graph=True)
    second, = cotan.autograd.grad(first.sum(), (x,))
    np.testing.assert_allclose(second.numpy(), (torch.i0(x) - torch.special.i1(x) / x).detach().numpy(), rtol=1e-14)


def test_the_order_of_an_incomplete_gamma_function_has_no_gradient():
    a = tensor([1.5]).requires_grad_()
    with pytest.raises(RuntimeError, match="gammainc: the derivative with respect to the first operand is not implemented"):
        torch.igamma(a, tensor([2.0])).sum().backward()


def test_numbers_integers_broadcasting_and_out():
    assert torch.special.zeta(2, tensor([1])).dtype == float32
    assert torch.special.i0e(tensor([1, 2])).dtype == float32
    assert torch.special.xlog1py(tensor([[1.0], [2.0]]), tensor([0.5, 1.0, inf])).shape == (2, 3)
    assert torch.special.legendre_polynomial_p(tensor([0.5]), 2).tolist() == [-0.125]
    out = cotan.zeros(2)
    assert torch.special.ndtr(tensor([0.0, inf]), out=out) is out and out.tolist() == [0.5, 1.0]
    assert torch.special.psi is torch.digamma and torch.special.gammaln is torch.lgamma and torch.special.expit is torch.sigmoid
    assert torch.special.erfcx(cotan.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_allclose(tensor([1.0, 2.0]).i0_().numpy(), [1.2660658, 2.2795853], rtol=1e-6)
