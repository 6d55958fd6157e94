"""cotan.torch: Fourier transforms and windows, against NumPy and numbers that are written down."""
import math

import numpy as np
import pytest

import cotan.torch as torch
from cotan import complex64, complex128, float16, float32, float64, int64, tensor

RANDOM = np.random.default_rng(0)
REAL = RANDOM.standard_normal((3, 4, 5))
COMPLEX = REAL + 1j * RANDOM.standard_normal((3, 4, 5))
NORMS = (None, "backward", "ortho", "forward")


def near(x, expected, tolerance=1e-10):
    assert x.shape == expected.shape
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", "fft ifft rfft irfft hfft ihfft".split())
def test_one_axis_is_numpys(name, norm):
    x = REAL if name in ("rfft", "ihfft") else COMPLEX
    for n, dim in ((None, -1), (3, 0), (7, 1)):
        near(getattr(torch.fft, name)(tensor(x), n, dim, norm), getattr(np.fft, name)(x, n, dim, norm))
        near(getattr(torch.fft, name)(tensor(x), n=n, dim=dim, norm=norm), getattr(np.fft, name)(x, n, dim, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", "fft ifft rfft irfft".split())
def test_more_axes_are_numpys(name, norm):
    x = REAL if name == "rfft" else COMPLEX
    for s, dim in ((None, None), ((6, 2), (0, 2)), ((3, 4), None), (None, (1,))):
        axes = (1, 2) if s and dim is None else dim
        near(getattr(torch.fft, name + "n")(tensor(x), s, dim, norm), getattr(np.fft, name + "n")(x, s, axes, norm))
    near(getattr(torch.fft, name + "2")(tensor(x), norm=norm), getattr(np.fft, name + "2")(x, norm=norm))


def test_hermitian_axes_are_a_transform_along_the_last_one_after_the_others():
    expected = np.fft.hfft(np.fft.fft(COMPLEX, axis=0), axis=2)
    near(torch.fft.hfftn(tensor(COMPLEX), dim=(0, 2)), expected)
    near(torch.fft.hfft2(tensor(COMPLEX), dim=(0, 2)), expected)
    expected = np.fft.ifft(np.fft.ihfft(REAL, axis=2), axis=1)
    near(torch.fft.ihfft2(tensor(REAL)), expected)
    near(torch.fft.ihfftn(tensor(REAL), s=(-1, 5), norm="forward"), expected * 20)


def test_dtypes():
    assert torch.fft.fft(tensor([1, 2, 3])).dtype == complex64
    assert torch.fft.rfft(tensor([True, False])).dtype == complex64
    assert torch.fft.irfft(tensor([1.0, 2.0], dtype=float64)).dtype == float64
    with pytest.raises(RuntimeError, match="not of float16"):
        torch.fft.fft(tensor([1.0], dtype=float16))
    with pytest.raises(RuntimeError, match="expects real numbers"):
        torch.fft.rfft(tensor([1j]))


def test_errors_are_pytorchs():
    x = tensor(REAL)
    for call in (lambda: torch.fft.fft(x, 0), lambda: torch.fft.fft(x, norm="all"), lambda: torch.fft.fftn(x, (1, 2, 3, 4)),
                 lambda: torch.fft.fftn(x, (2,), (0, 1)), lambda: torch.fft.fftn(x, dim=(0, 0)),
                 lambda: torch.fft.irfftn(x, dim=())):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        torch.fft.fft(x, dim=3)


def test_out_is_written():
    out = tensor(np.zeros((3, 4, 5), np.complex128))
    assert torch.fft.fft(tensor(REAL), out=out) is out
    near(out, np.fft.fft(REAL))


def test_frequencies_and_shifts():
    for n in range(1, 6):
        near(torch.fft.fftfreq(n, 0.5, dtype=float64), np.fft.fftfreq(n, 0.5))
        near(torch.fft.rfftfreq(n, dtype=float64), np.fft.rfftfreq(n))
    assert torch.fft.fftfreq(0).shape == (0,) and torch.fft.fftfreq(3).dtype == float32
    with pytest.raises(RuntimeError, match="int64"):
        torch.fft.fftfreq(3, dtype=int64)
    near(torch.fft.fftshift(tensor(REAL)), np.fft.fftshift(REAL))
    near(torch.fft.ifftshift(tensor(REAL), dim=(0, 2)), np.fft.ifftshift(REAL, axes=(0, 2)))


def frames_of(x, n_fft, hop, window):
    return np.stack([x[..., at:at + n_fft] * window for at in range(0, x.shape[-1] - n_fft + 1, hop)], axis=-1)


def test_stft_is_the_transform_of_frames():
    x, window = RANDOM.standard_normal((2, 40)), np.hanning(6)
    padded = np.pad(window, (1, 2))
    expected = np.fft.rfft(frames_of(x, 9, 3, padded), axis=1)
    near(torch.stft(tensor(x), 9, 3, 6, tensor(window), False, return_complex=True), expected)
    near(tensor(x[0]).stft(9, 3, 6, tensor(window), center=False, normalized=True, return_complex=True), expected[0] / 3)
    parts = torch.stft(tensor(x), 9, 3, 6, tensor(window), center=False, return_complex=False)
    near(parts, np.stack([expected.real, expected.imag], -1))
    two_sided = torch.stft(tensor(x), 9, 3, 6, tensor(window), center=False, onesided=False, return_complex=True)
    near(two_sided, np.fft.fft(frames_of(x, 9, 3, padded), axis=1))
    near(torch.stft(tensor(x + 0j), 9, 3, 6, tensor(window), center=False), two_sided.numpy())


@pytest.mark.parametrize("pad_mode,numpys", (("reflect", "reflect"), ("constant", "constant"), ("replicate", "edge"),
                                             ("circular", "wrap")))
def test_stft_pads_a_centred_signal(pad_mode, numpys):
    x = RANDOM.standard_normal(20)
    expected = np.fft.rfft(frames_of(np.pad(x, 4, numpys), 8, 2, np.ones(8)), axis=0)
    near(torch.stft(tensor(x), 8, pad_mode=pad_mode, return_complex=True), expected)


def test_stft_aligned_to_the_window():
    x, window = RANDOM.standard_normal(20), np.hanning(4)
    expected = np.fft.rfft(frames_of(np.pad(x, (2, 2)), 8, 2, np.pad(window, 2)), axis=0)
    near(torch.stft(tensor(x), 8, 2, 4, tensor(window), False, return_complex=True, align_to_window=True), expected)


def test_istft_is_the_inverse():
    x, window = RANDOM.standard_normal((2, 40)), tensor(np.hanning(10)[:-1] + 0.1)
    for options in (dict(), dict(normalized=True), dict(onesided=False)):
        s = torch.stft(tensor(x), 9, 3, window=window, return_complex=True, **options)
        near(torch.istft(s, 9, 3, window=window, length=40, **options), x)
        near(s[0].istft(9, 3, window=window, **options), x[0])
    s = torch.stft(tensor(x + 1j * x), 9, 3, window=window)
    near(torch.istft(s, 9, 3, window=window, return_complex=True), x + 1j * x)


def test_gradients_of_short_time_transforms():
    x = tensor(RANDOM.standard_normal(16), requires_grad=True)
    s = torch.stft(x, 4, 2, return_complex=True)
    torch.istft(s, 4, 2).square().sum().backward()  # stft and istft cancel
    near(x.grad, 2 * x.detach().numpy())


def test_istft_errors():
    s = torch.stft(tensor(np.ones(20)), 8, return_complex=True)
    with pytest.raises(RuntimeError, match="do not overlap"):
        torch.istft(s, 8, 8, window=tensor(np.hanning(8)), center=False)
    for call in (lambda: torch.istft(s.real, 8), lambda: torch.istft(s, 8, onesided=False), lambda: torch.istft(s, 8, win_length=9),
                 lambda: torch.istft(s, 8, return_complex=True), lambda: torch.stft(tensor(np.ones(20)), 8),
                 lambda: torch.stft(tensor(np.ones(20)), 8, 0, return_complex=True), lambda: torch.stft(s[0], 2, onesided=True)):
        with pytest.raises(RuntimeError):
            call()


def test_windows_that_numpy_has():
    windows = torch.signal.windows
    for name, numpys in (("bartlett", np.bartlett), ("blackman", np.blackman), ("hamming", np.hamming), ("hann", np.hanning)):
        for n in (1, 2, 7, 8):
            near(getattr(windows, name)(n, dtype=float64), numpys(n))
            periodic = np.ones(1) if n == 1 else numpys(n + 1)[:-1]
            near(getattr(windows, name)(n, sym=False, dtype=float64), periodic)
            near(getattr(torch, name + "_window")(n, dtype=float64), periodic)
            near(getattr(torch, name + "_window")(n, False, dtype=float64), numpys(n))
    near(windows.kaiser(8, beta=5.0, dtype=float64), np.kaiser(8, 5.0))
    near(torch.kaiser_window(7, dtype=float64), np.kaiser(8, 12.0)[:-1])
    near(torch.hamming_window(5, False, 0.6, 0.3, dtype=float64), 0.6 - 0.3 * np.cos(np.arange(5) * np.pi / 2))


def test_windows_of_closed_form():
    windows, k = torch.signal.windows, np.arange(6)
    near(windows.cosine(6, dtype=float64), np.sin((k + 0.5) * np.pi / 6))
    near(windows.exponential(6, tau=2.0, dtype=float64), np.exp(-abs(k - 2.5) / 2))
    near(windows.exponential(6, center=1.0, sym=False, dtype=float64), np.exp(-abs(k - 1)))
    near(windows.gaussian(6, std=3.0, sym=False, dtype=float64), np.exp(-(((k - 3) / 3) ** 2) / 2))
    near(windows.general_cosine(6, a=[0.5, 0.3, 0.2], dtype=float64),
         0.5 - 0.3 * np.cos(2 * math.pi * k / 5) + 0.2 * np.cos(4 * math.pi * k / 5))
    near(windows.general_hamming(6, alpha=0.7, dtype=float64), 0.7 - 0.3 * np.cos(2 * math.pi * k / 5))
    near(windows.nuttall(3, dtype=float64), np.array([0.0003628, 1, 0.0003628]), 1e-9)
    assert windows.hann(4, requires_grad=True).requires_grad and windows.hann(0).shape == (0,)


def test_window_errors():
    windows = torch.signal.windows
    for call in (lambda: windows.hann(-1), lambda: windows.hann(3, dtype=float16), lambda: windows.gaussian(3, std=0.0),
                 lambda: windows.exponential(3, center=1.0), lambda: windows.kaiser(3, beta=-1.0),
                 lambda: windows.general_cosine(3, a=[])):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(RuntimeError):
        torch.hann_window(3, dtype=complex128)
