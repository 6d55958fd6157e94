"""Fourier transforms beside NumPy's: small sizes, powers, large primes, and what their products are."""
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import numpy as np
import pytest

SIZES = [1, 2, 3, 4, 5, 8, 12, 31, 60, 64, 65, 67, 96, 100, 127, 128, 131, 134, 243, 1000, 1009, 1024, 2018, 4099]
draw = np.random.default_rng(41)


def numbers(dtype, *shape):
    x = draw.standard_normal(shape)
    return (x + 1j * draw.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def near(ours, theirs, wide):
    ours = ours.numpy()
    assert ours.shape == theirs.shape
    scale = np.abs(theirs).max() if theirs.size else 0
    assert np.abs(ours - theirs).max(initial=0) <= (1e-14 if wide else 1e-6) * max(scale, 1e-30)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("n", SIZES)
def test_along_one_axis(n, dtype):
    x = numbers(dtype, 3, n)
    wide, ours = dtype in ("float64", "complex128"), cotan.asarray(x)
    for name in ("fft", "ifft"):
        got = getattr(cotan.fft, name)(ours)
        assert got.dtype == (cotan.complex128 if wide else cotan.complex64)
        near(got, getattr(np.fft, name)(x.astype("complex128")), wide)
    near(cotan.fft.ifft(cotan.fft.fft(ours)), x, wide)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 30, 131])
@pytest.mark.parametrize("norm", [None, "backward", "forward", "ortho"])
def test_of_real_numbers(n, norm):
    x, z = numbers("float64", 2, n), numbers("complex128", 2, n // 2 + 1)
    near(cotan.fft.rfft(cotan.asarray(x), norm=norm), np.fft.rfft(x, norm=norm), True)
    near(cotan.fft.ihfft(cotan.asarray(x), norm=norm), np.fft.ihfft(x, norm=norm), True)
    near(cotan.fft.irfft(cotan.asarray(z), n, norm=norm), np.fft.irfft(z, n, norm=norm), True)
    near(cotan.fft.hfft(cotan.asarray(z), n, norm=norm), np.fft.hfft(z, n, norm=norm), True)
    near(cotan.fft.irfft(cotan.fft.rfft(cotan.asarray(x), norm=norm), n, norm=norm), x, True)


@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
@pytest.mark.parametrize("name, dtype", [("fftn", "complex128"), ("ifftn", "complex128"), ("fft2", "float64"), ("ifft2", "complex128"),
                                         ("rfftn", "float64"), ("irfftn", "complex128"), ("rfft2", "float64"), ("irfft2", "complex128")])
@pytest.mark.parametrize("s, axes", [(None, None), ((4, 9), (0, 2)), ((7, 3), (2, 1)), ((2, 5), (-1, 0))])
def test_along_several_axes(name, dtype, s, axes, norm):
    x = numbers(dtype, 5, 6, 7)
    given = {} if axes is None else {"s": s, "axes": axes}
    near(getattr(cotan.fft, name)(cotan.asarray(x), norm=norm, **given), getattr(np.fft, name)(x, norm=norm, **given), True)


@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
@pytest.mark.parametrize("n", [1, 4, 9, 12])
def test_cut_and_filled_up(name, n):
    x = numbers("complex128", 3, 8, 2)
    near(getattr(cotan.fft, name)(cotan.asarray(x), n, axis=1), getattr(np.fft, name)(x, n, axis=1), True)
    near(getattr(cotan.fft, name)(cotan.asarray(x), n=n, dim=0), getattr(np.fft, name)(x, n, axis=0), True)


def test_frequencies_and_shifts():
    for n in (1, 2, 7, 8):
        assert np.allclose(cotan.fft.fftfreq(n, d=0.25).numpy(), np.fft.fftfreq(n, 0.25))
        assert np.allclose(cotan.fft.rfftfreq(n, d=0.25, dtype=cotan.float64).numpy(), np.fft.rfftfreq(n, 0.25), atol=1e-15)
    x = draw.integers(0, 99, (4, 5))
    for axes in (None, 0, (1,), (0, 1)):
        assert (cotan.fft.fftshift(cotan.asarray(x), axes=axes).numpy() == np.fft.fftshift(x, axes)).all()
        assert (cotan.fft.ifftshift(cotan.asarray(x), axes=axes).numpy() == np.fft.ifftshift(x, axes)).all()


@pytest.mark.parametrize("n", [6, 131, 192])
def test_gradients(n):
    """The power of a spectrum: by Parseval's theorem its gradient is 2 n x."""
    x = numbers("float64", 2, n)
    given = cotan.asarray(x).requires_grad_()
    (cotan.fft.fft(given).abs() ** 2).sum().backward()
    assert np.allclose(given.grad.numpy(), 2 * n * x, rtol=1e-12)
    # A loss that is linear in the spectrum: Re sum(w fft(x)) = sum(Re(fft(w)) x).
    w = numbers("complex128", n)
    slope = cotan.grad(lambda x: cotan.real(cotan.asarray(w) * cotan.fft.fft(x)).sum())(cotan.asarray(x[0]))
    assert np.allclose(slope.numpy(), np.fft.fft(w).real, rtol=1e-11)
    slope = cotan.grad(lambda x: (cotan.fft.rfft(x).abs() ** 2).sum())(cotan.asarray(x[0]))
    step = 1e-6 * np.eye(n)[n // 2]
    power = [(np.abs(np.fft.rfft(x[0] + sign * step)) ** 2).sum() for sign in (1, -1)]
    assert np.isclose(slope.numpy()[n // 2], (power[0] - power[1]) / 2e-6, rtol=1e-5)


def test_tangents_and_batches():
    x, t = numbers("float64", 3, 20), numbers("float64", 3, 20)
    _, moved = cotan.jvp(cotan.fft.fft, (cotan.asarray(x),), (cotan.asarray(t),))
    near(moved, np.fft.fft(t), True)
    near(cotan.vmap(cotan.fft.fft)(cotan.asarray(x)), np.fft.fft(x), True)
    near(cotan.vmap(lambda x: cotan.fft.rfftn(x), in_axes=1)(cotan.asarray(x)), np.fft.rfft(x, axis=0).T, True)


def test_convolution_theorem():
    """A convolution of 1,000 and 200 numbers, as people write it."""
    a, b = numbers("float64", 1000), numbers("float64", 200)
    n = 1199
    got = cotan.fft.irfft(cotan.fft.rfft(cotan.asarray(a), n) * cotan.fft.rfft(cotan.asarray(b), n), n)
    assert np.allclose(got.numpy(), np.convolve(a, b), atol=1e-11)


@pytest.mark.parametrize("call, kind, message", [
    (lambda f: f.fft(cotan.ones(3, 0)), ValueError, "fft: axis 1 has no elements"),
    (lambda f: f.fft(cotan.ones(3), 0), ValueError, "fft: 0 elements are asked for, there must be 1 or more"),
    (lambda f: f.fft(cotan.ones(3), axis=1), IndexError, "fft: axis 1 is out of range for a tensor of 1 axes"),
    (lambda f: f.rfft(cotan.ones(3, dtype=cotan.complex64)), TypeError, "rfft: x is cotan.complex64, and must be real"),
    (lambda f: f.ifft(cotan.ones(3), norm="no"), ValueError, 'ifft: norm is \'no\', it must be "backward", "forward" or "ortho"'),
    (lambda f: f.fftn(cotan.ones(3, 4), axes=(0, -2)), ValueError, "fftn: an axis appears twice in (0, 0)"),
    (lambda f: f.fftn(cotan.ones(3, 4), s=(2,), axes=(0, 1)), ValueError, "fftn: there are 1 sizes for 2 axes"),
    (lambda f: f.fftfreq(0), ValueError, "fftfreq: n is 0, it must be 1 or more"),
    (lambda f: f.irfft(cotan.ones(1)), ValueError, "irfft: 0 elements are asked for, there must be 1 or more"),
])
def test_bad_input(call, kind, message):
    with pytest.raises(kind) as said:
        call(cotan.fft)
    assert str(said.value) == message
