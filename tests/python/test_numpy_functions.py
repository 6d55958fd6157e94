"""Functions by NumPy's names beside NumPy: the same call on the same operands of the same dtypes."""
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import ml_dtypes
import numpy
import pytest

draw = numpy.random.default_rng(77)
X = draw.standard_normal((3, 4))
NAN = X.copy()
NAN[0, 1] = NAN[2, 3] = numpy.nan
SYMMETRIC = X @ X.T + 4 * numpy.eye(3)
INT = draw.integers(-9, 9, (3, 4))
ARRAYS = {
    "x": X, "y": draw.standard_normal((3, 4)), "f": draw.standard_normal((3, 4)).astype("float32"),
    "p": draw.uniform(0.1, 0.9, (3, 4)), "h": draw.standard_normal((2, 2, 4)), "v": draw.standard_normal(6), "w": draw.standard_normal(4),
    "nan": NAN, "inf": numpy.where(X > 0.5, numpy.inf, numpy.where(X < -0.5, -numpy.inf, X)),
    "i": INT, "j": draw.integers(1, 9, (3, 4)), "s": draw.integers(0, 7, (3, 4)).astype("int32"), "u": draw.integers(0, 200, 7).astype("uint8"),
    "k": numpy.array([2, 0, 1, 1]), "b": X > 0, "e": numpy.array([True, False, True]), "c": X + 1j * draw.standard_normal((3, 4)),
    "z": numpy.array([1 + 2j, 3, -1j, 0.5]), "a": SYMMETRIC, "q": draw.standard_normal((3, 3)), "r": numpy.sort(draw.standard_normal(5)),
    "t": draw.standard_normal((2, 3, 3)), "d": numpy.array(0.7),
}
CALLS = """
abs(x) abs(i) abs(c) absolute(f) fabs(x) negative(i) positive(x) sign(x) sign(i) signbit(x) sqrt(p) square(i) cbrt(x) reciprocal(x)
exp(x) exp2(f) expm1(x) log(p) log2(p) log10(p) log1p(p) exp(c) sin(x) cos(f) tan(x) sin(c) arcsin(p) arccos(p) arctan(x) asin(p) acos(p) atan(x)
sinh(x) cosh(x) tanh(f) arcsinh(x) arccosh(1+p) arctanh(p) asinh(x) acosh(1+p) atanh(p) deg2rad(x) rad2deg(x) degrees(x) radians(x) sinc(x)
floor(x) ceil(x) trunc(x) rint(x) fix(x) round(x) round(x,2) around(f) conj(c) conjugate(c) real(c) imag(c) angle(c) invert(i)
bitwise_not(s) bitwise_invert(b) logical_not(b) isnan(nan) isinf(inf) isfinite(inf) isneginf(inf) isposinf(inf) isreal(c) iscomplex(c)
nan_to_num(inf) frexp(x) modf(x) ldexp(x,k) nextafter(x,y) heaviside(x,p) copysign(x,y)
add(x,y) add(s,i) add(u,u) subtract(x,w) multiply(c,x) multiply(u,u) divide(x,y) true_divide(x,j) floor_divide(i,j) floor_divide(x,p)
remainder(i,j) remainder(x,p) mod(i,-j) fmod(i,j) fmod(x,p) divmod(i,j) divmod(x,p) power(p,y) power(j,k) pow(x,2) float_power(p,2)
maximum(x,y) minimum(i,j) maximum(nan,x) fmax(nan,x) fmin(nan,x) hypot(x,y) arctan2(x,y) atan2(x,y) logaddexp(x,y) logaddexp2(x,y)
gcd(i,j) lcm(i,j) bitwise_and(i,j) bitwise_or(i,j) bitwise_xor(i,j) left_shift(j,k) right_shift(j,k) bitwise_left_shift(s,k) bitwise_right_shift(i,k)
equal(i,j) not_equal(x,y) less(x,y) less_equal(i,j) greater(x,w) greater_equal(i,4) logical_and(b,i) logical_or(b,x) logical_xor(b,i)
isclose(x,x+1e-9) allclose(x,y) array_equal(x,x) array_equiv(w,m.broadcast_to(w,(3,4))) clip(x,-0.5,0.5) clip(i,-2,3)
where(b,x,y) where(b,i,0) choose(s%3,[x,y,p]) nonzero(b) flatnonzero(i) argwhere(b) extract(b,x) compress(e,x,axis=0)
compress(e,w) count_nonzero(i,axis=0) isin(i,k)
sum(x) sum(i,axis=0) sum(s) sum(u) sum(b,axis=1) sum(x,axis=(0,1),keepdims=True) prod(x,axis=1) prod(s) mean(x,axis=0) mean(c) std(x) std(x,axis=1)
var(x,axis=0) var(f) max(x) max(i,axis=1) min(x,axis=0) amax(x) amin(i,axis=0) ptp(x,axis=1) all(b,axis=0) any(b) argmax(x) argmin(i,axis=1) median(x)
median(x,axis=1) average(x,axis=0) average(x,axis=1,weights=w) quantile(x,0.3,axis=1) percentile(x,40.0) nansum(nan) nanprod(nan,axis=0) nanmean(nan,axis=1)
nanmax(nan,axis=0) nanmin(nan) nanstd(nan) nanvar(nan,axis=1) nanmedian(nan) nanmedian(nan,axis=1) nanargmax(nan,axis=0) nanargmin(nan) nancumsum(nan) nancumprod(nan,axis=1)
cumsum(x,axis=0) cumsum(i) cumsum(s,axis=1) cumprod(x,axis=1) cumulative_sum(x,axis=0) cumulative_prod(i,axis=1) diff(x) diff(i,2,axis=0) ediff1d(v) ediff1d(i,to_end=7)
trapezoid(x) trapezoid(x,axis=0,dx=0.5) corrcoef(x) cov(x) cov(x,rowvar=False) bincount(k) bincount(k,minlength=6) histogram(v,bins=4) digitize(v,r) interp(v,r,w[m.asarray([0,1,2,3,1])])
interp(v,r,r*2,left=-9.0,right=9.0) convolve(v,w) convolve(v,w,'same') convolve(w,v,'valid') convolve(k,k) correlate(v,w) correlate(w,v,'full') correlate(v,w,'same') correlate(z,z,'full')
sort(x) sort(i,axis=0) argsort(x,axis=0) argsort(u,stable=True) lexsort((k,m.asarray([1,0,1,0]))) searchsorted(r,v) searchsorted(r,v,side='right')
unique(k) unique_values(k) unique_counts(k) unique_inverse(k) unique_all(k) union1d(k,i) intersect1d(k,j) setdiff1d(i,k) setxor1d(k,j)
reshape(x,(4,3)) ravel(x) transpose(x) transpose(h,(2,0,1)) permute_dims(h,(1,2,0)) swapaxes(h,0,2) moveaxis(h,0,-1) rollaxis(h,2) squeeze(x[:,None]) expand_dims(x,1)
atleast_1d(d) atleast_2d(w) atleast_3d(x) broadcast_to(w,(2,4)) broadcast_arrays(x,w) broadcast_shapes((3,1),(1,4)) concatenate((x,y),axis=1) concat((x,i)) stack((x,y),axis=1)
vstack((x,w)) hstack((w,v)) dstack((x,y)) column_stack((w,w)) split(x,2,axis=1) array_split(v,4) hsplit(x,2) vsplit(x,3) dsplit(h,2) unstack(x) append(x,y) append(x,y,axis=0)
delete(v,2) delete(x,[0,-1],axis=1) delete(v,slice(1,5,2)) tile(x,(2,1)) repeat(w,3) repeat(x,2,axis=1) flip(x) flip(x,1) fliplr(x) flipud(x) rot90(x) roll(x,3) roll(x,(1,2),axis=(0,1)) pad(x,1) pad(i,((1,2),(0,3)),constant_values=4)
take(v,k) take(x,k,axis=1) take_along_axis(x,m.argsort(x,axis=1),axis=1) diag(w) diag(x,1) diagonal(x) diagflat(w) tri(3,4,1,dtype=m.float64) tril(x) triu(x,1) trace(x)
eye(3,dtype=m.float64) identity(3,dtype=m.int64) ones((2,3),dtype=m.float64) zeros((2,),dtype=m.int32) full((2,2),7,dtype=m.int64) zeros_like(x) ones_like(i) full_like(x,2.5) arange(2,20,3) arange(0.0,1.0,0.25,dtype=m.float64)
linspace(0.0,1.0,7,dtype=m.float64) logspace(0.0,2.0,5,dtype=m.float64) geomspace(1.0,1000.0,4,dtype=m.float64) meshgrid(w,v) indices((2,3)) asarray(x) copy(x) astype(x,m.float32) ravel_multi_index((k,k),(3,4)) unravel_index(k,(2,3)) vander(w) vander(k,3,increasing=True)
matmul(x,w) matmul(a,t) dot(x,w) dot(w,w) dot(x,y.T) dot(d,x) inner(x,y) inner(w,w) outer(v,w) vdot(c,c) vdot(x,y) vecdot(x,y) matvec(x,w) vecmat(m.asarray([1.,2.,3.],dtype=m.float64),x) kron(q,a) kron(k,k) kron(x,w) tensordot(x,y,axes=([0,1],[0,1]))
tensordot(h,w,axes=1) cross(q,a) einsum('ij,kj->ik',x,y) einsum('ij->',x) matrix_transpose(h) polyval(w,x) polyval(k,i) hanning(7) hamming(7) blackman(8) bartlett(7) ndim(x) iscomplexobj(c) isrealobj(c) promote_types(m.float32,m.int16) result_type(m.int8,m.uint8) can_cast(m.int32,m.float64)
isdtype(m.float32,'numeric')
linalg.cholesky(a) linalg.det(q) linalg.det(t) linalg.inv(q) linalg.solve(q,x) linalg.slogdet(q) linalg.matrix_power(q,3) linalg.matrix_rank(q) linalg.norm(x) linalg.norm(w) linalg.norm(x,axis=1) linalg.norm(q,'nuc') linalg.norm(q,2) linalg.vector_norm(x,axis=0)
linalg.matrix_norm(q) linalg.cond(q) linalg.pinv(x) linalg.eigvalsh(a) linalg.svdvals(x) linalg.lstsq(x.T,w)[0] linalg.multi_dot((q,a,q)) linalg.trace(q) linalg.diagonal(q) linalg.outer(v,w) linalg.cross(q,a) linalg.matmul(q,a) linalg.tensordot(x,y,axes=2)
linalg.tensorinv(m.reshape(m.eye(6,dtype=m.float64)+0.1,(6,2,3)),ind=1) linalg.tensorsolve(m.reshape(m.eye(6,dtype=m.float64)+0.1,(2,3,6)),m.reshape(v,(2,3))) linalg.vecdot(x,y) linalg.matrix_transpose(h)
fft.fft(x) fft.ifft(c) fft.fft2(x) fft.ifft2(c) fft.fftn(h) fft.ifftn(h) fft.rfft(x) fft.irfft(c) fft.rfft2(x) fft.irfft2(c) fft.rfftn(h) fft.irfftn(h) fft.hfft(c) fft.ihfft(x) fft.fftshift(x) fft.ifftshift(x)
""".split()
SINGLE = ("hanning", "hamming", "blackman", "bartlett")  # f64 in NumPy; here, as all that names no dtype, f32


def operands(module):
    return {name: module.asarray(array) for name, array in ARRAYS.items()} | {"m": module}


OURS, THEIRS = operands(cotan), operands(numpy)


def same(ours, theirs, single):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b, single)
    elif isinstance(theirs, (bool, int)) or theirs is None:
        assert ours == theirs
    elif isinstance(theirs, numpy.dtype):
        assert ours.name == theirs.name
    else:
        a, b = ours.numpy() if isinstance(ours, cotan.Tensor) else numpy.asarray(ours), numpy.asarray(theirs)
        assert a.shape == b.shape
        assert a.dtype == (b.dtype if not single else "float32")
        if b.dtype.kind in "biu":
            assert (a == b).all()
        else:
            near = 1e-6 if a.dtype.itemsize == (8 if a.dtype.kind == "c" else 4) else 1e-10
            numpy.testing.assert_allclose(a, b, rtol=near, atol=near)


@pytest.mark.parametrize("call", CALLS)
def test_gives_what_numpy_gives(call):
    with numpy.errstate(all="ignore"):
        same(eval("m." + call, OURS), eval("m." + call, THEIRS), call.startswith(SINGLE))


def test_there_are_300_functions():
    names = {call.partition("(")[0] for call in CALLS}
    assert all(callable(eval("m." + name, THEIRS)) for name in names)
    assert len(names) >= 300, len(names)


# Where a power of two is beyond the dtype's, and results lie below its normal numbers.
EXPONENTS = numpy.array([0, 1, -1, 15, 24, -24, 126, -126, 127, 128, -133, 149, -150, 255, -256, 277, -278, 330, -330, 1023, -1022, 1074, -1075,
                         1991, -1992, 2098, -2099, -2961, 5000, -5000, 2**31 - 1, -2**31], "int32")


def ends(dtype):
    info = ml_dtypes.finfo(dtype)
    least, normal = float(info.smallest_subnormal), float(info.tiny)
    x = numpy.array([0, numpy.inf, numpy.nan, 1, 1.5, 0.75, numpy.pi, 1.999, least, 3 * least, 7 * least, normal - least, normal, 1.5 * normal, float(info.max)])
    return numpy.concatenate([x, -x]).astype(dtype)


def rounded(x, dtype):
    """Doubles that are exact, rounded once."""
    near = x.astype("float32")  # ml_dtypes goes by float32: an odd one rounds as the double does
    if dtype == ml_dtypes.bfloat16:
        off = numpy.isfinite(near) & (near != x)
        near = numpy.where(off & (abs(near) > abs(x)), numpy.nextafter(near, numpy.float32(0)), near)
        near = numpy.where(off, near.view("uint32") | 1, near.view("uint32")).astype("uint32").view("float32")
        return near.astype(dtype)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_powers_of_two_at_the_ends_of_the_range(dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else numpy.dtype(dtype)
    x = ends(dtype)
    with numpy.errstate(all="ignore"):
        fraction, exponent = numpy.frexp(x.astype("float64"))
        each, by = (a.ravel() for a in numpy.meshgrid(x, EXPONENTS))
        wide = numpy.ldexp(each.astype("float64"), by if dtype == "float64" else numpy.clip(by, -600, 600))
        want = rounded(wide, dtype)
    m, e = (y.numpy() for y in cotan.frexp(cotan.asarray(x)))
    assert m.dtype == dtype and e.dtype == "int32" and (e == numpy.where(numpy.isfinite(fraction), exponent, 0)).all()
    for by in (by, by.astype("int64")):
        got = cotan.ldexp(cotan.asarray(each), cotan.asarray(by)).numpy()
        assert got.dtype == dtype
        numpy.testing.assert_array_equal(got.astype("float64"), want.astype("float64"))
        assert (numpy.signbit(got) == numpy.signbit(want))[~numpy.isnan(want.astype("float64"))].all()
    numpy.testing.assert_array_equal(m.astype("float64"), fraction)
    assert (numpy.signbit(m) == numpy.signbit(fraction))[~numpy.isnan(fraction)].all()


def test_powers_of_two_of_other_dtypes_and_their_slopes():
    x = cotan.asarray([1.5, 2.0**-149, -0.0]).requires_grad_()
    y, (fraction, exponent) = cotan.ldexp(x, cotan.asarray([3, 140, 1])), cotan.frexp(x)
    assert y.tolist() == [12.0, 2.0**-9, 0.0] and exponent.tolist() == [1, -148, 0]
    assert cotan.autograd.grad(y.sum(), x)[0].tolist() == [8.0, numpy.inf, 2.0]
    assert cotan.autograd.grad(fraction[0], x)[0].tolist() == [0.5, 0.0, 0.0]
    big = cotan.asarray([1, 2**63], dtype=cotan.uint64)
    assert cotan.ldexp(cotan.asarray([1.0, 1.0]), big).tolist() == [2.0, numpy.inf]
    assert cotan.ldexp(cotan.asarray([1, 3]), cotan.asarray([-1, 2], dtype=cotan.int8)).tolist() == [0.5, 12.0]
    assert cotan.ldexp(cotan.asarray([4.0]), 0.5).tolist() == [pytest.approx(4 * 2**0.5)]


@pytest.mark.parametrize("data, dtype", [
    (numpy.float64(1.5), "float64"), (numpy.complex128(1j), "complex128"), (numpy.int8(1), "int8"), (numpy.bool_(True), "bool"),
    ([numpy.float64(1.5), 2.0], "float64"), ([[numpy.float64(1)], [2]], "float64"), ([numpy.float32(1)], "float32"), ([numpy.int8(1)], "int8"),
    ([numpy.int8(1), 2], "int64"), ([True, numpy.float16(1)], "float16"), ([numpy.float16(1), 1.5], "float32"),
    ([numpy.complex64(1), 1.5], "complex64"), ((numpy.float32(1), numpy.float64(2)), "float64"), ([numpy.zeros(2), numpy.ones(2)], "float64"),
    ([numpy.zeros(0)], "float64"), ([1.5, cotan.asarray(2.0, dtype="float64")], "float64"), ([1.5, 2], "float32"), ([], "float32"),
    ([numpy.uint64(2**63), numpy.uint64(1)], "uint64"), (1.5, "float32")])
def test_numbers_of_numpy_keep_their_dtype(data, dtype):
    dtype = cotan.dtype(dtype)
    for make in (cotan.asarray, cotan.tensor, cotan.as_tensor):
        assert make(data).dtype == dtype
        assert make(data, dtype=cotan.float16).dtype == cotan.float16 if dtype not in (cotan.complex64, cotan.complex128) else True
    if not isinstance(data, (list, tuple)):
        assert cotan.full((2,), data).dtype == dtype
    assert cotan.asarray([numpy.float64(0.1)]).item() == 0.1


def test_numbers_of_numpy_are_those_of_python_beside_tensors():
    x, h, u = cotan.ones(2), cotan.ones(2, dtype=cotan.float16), cotan.ones(2, dtype=cotan.uint8)
    for result, dtype in ((x * numpy.float64(2), x), (numpy.float64(2) * x, x), (h * numpy.float32(2), h), (numpy.float32(2) * h, h),
                          (cotan.add(h, numpy.float32(2)), h), (h.add(numpy.float32(2)), h), (h + numpy.int64(2), h), (u + numpy.int64(2), u),
                          (numpy.int64(2) + u, u), (u * numpy.float64(2), x), (cotan.where(u > 0, numpy.float32(2), h), h)):
        assert result.dtype == dtype.dtype
    assert cotan.result_type(u, numpy.float64(2)) == cotan.float32 and cotan.result_type(h, numpy.float32(2)) == cotan.float16
    assert cotan.arange(numpy.float64(0), numpy.float64(3)).dtype == cotan.float32 and cotan.arange(numpy.int8(3)).tolist() == [0, 1, 2]


def test_kinds_of_dtypes():
    """As torch.dtype's properties."""
    for names, kinds in (("float16 bfloat16 float32 float64", (True, False, True)), ("complex64 complex128", (False, True, True)),
                         ("int8 int16 int32 int64", (False, False, True)), ("uint8 uint16 uint32 uint64 bool", (False, False, False))):
        for dtype in map(cotan.dtype, names.split()):
            assert (dtype.is_floating_point, dtype.is_complex, dtype.is_signed) == kinds, dtype
            assert cotan.zeros(1, dtype=dtype).is_complex() == kinds[1] and cotan.zeros(1, dtype=dtype).is_floating_point() == kinds[0]
