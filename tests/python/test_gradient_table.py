"""Gradients of Cotan's functions beside JAX's, in f64: the same call on the same operands, forwards, backwards and again."""
import os
import subprocess
import sys
from pathlib import Path

import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

draw = np.random.default_rng(83)
X = draw.standard_normal((3, 4))
ARRAYS = {
    "x": X, "y": draw.standard_normal((3, 4)), "p": draw.uniform(0.1, 0.9, (3, 4)), "h": draw.standard_normal((2, 2, 4)),
    "v": draw.standard_normal(6), "w": draw.standard_normal(4), "q": draw.standard_normal((3, 3)) + 2 * np.eye(3),
    "a": X @ X.T + 4 * np.eye(3), "t": draw.standard_normal((2, 3, 3)), "d": np.array(0.7),
}
CONSTANTS = {"b": ARRAYS["y"] > 0, "k": np.array([2, 0, 1, 1]), "i": draw.integers(0, 4, (3, 4))}
# m is cotan or jax.numpy, nn is cotan.nn.functional or jax.nn; what is named by ARRAYS has gradients.
CALLS = """
abs(x) negative(x) sqrt(p) square(x) cbrt(p) reciprocal(p) exp(x) exp2(x) expm1(x) log(p) log2(p) log10(p) log1p(p)
sin(x) cos(x) tan(x) arcsin(p) arccos(p) arctan(x) sinh(x) cosh(x) tanh(x) arcsinh(x) arccosh(1+p) arctanh(p) sinc(x)
deg2rad(x) rad2deg(x) sign(x) floor(x) nan_to_num(x) heaviside(x,p) copysign(p,y)
add(x,w) subtract(x,w) multiply(x,y) divide(x,p) power(p,y) pow(x,3) remainder(x,p) fmod(x,p) maximum(x,y) minimum(x,y)
hypot(x,y) arctan2(x,y) logaddexp(x,y) logaddexp2(x,y) clip(x,-0.5,0.5) where(b,x,y)
sum(x) sum(x,axis=0) prod(x,axis=1) mean(x,axis=1,keepdims=True) std(x,axis=1) var(x) max(x,axis=1) min(x) ptp(x,axis=0)
median(x,axis=1) quantile(x,0.3,axis=1) cumsum(x,axis=1) cumprod(x,axis=0) diff(x,axis=1) trapezoid(x,axis=1) cov(x) corrcoef(x)
sort(x,axis=1) take(x,k,axis=1) take_along_axis(x,i,axis=1) interp(v,w[m.argsort(w)],y[0]) convolve(v,w) average(x,weights=p)
reshape(x,(2,6)) ravel(x) transpose(h,(2,0,1)) moveaxis(h,0,-1) squeeze(x[:,None],axis=1) expand_dims(x,1) broadcast_to(w,(2,4))
concatenate((x,y),axis=1) stack((x,y),axis=1) vstack((x,w)) split(x,2,axis=1) tile(x,(2,1)) repeat(x,2,axis=1) flip(x,1) rot90(x)
roll(x,(1,2),axis=(0,1)) pad(x,1) diag(w) diagonal(x) tril(x) triu(x,1) trace(x)
matmul(x,w) matmul(a,t) dot(x,w) inner(x,y) outer(v,w) vdot(x,y) kron(q,a) tensordot(h,w,axes=1) cross(q,a) einsum('ij,kj->ik',x,y)
polyval(w,x) vander(w)
linalg.cholesky((a+a.T)/2) linalg.det(q) linalg.inv(q) linalg.solve(q,x) linalg.slogdet(q)[1] linalg.matrix_power(q,3) linalg.norm(x)
linalg.norm(x,axis=1) linalg.pinv(x) linalg.eigvalsh((a+a.T)/2) linalg.svdvals(x) linalg.norm(q,'nuc') linalg.qr(q)
m.real(m.fft.ifft(m.fft.fft(x)*m.fft.fft(y))) m.abs(m.fft.rfft(x)) m.fft.irfft(m.fft.rfft(x)*2)
nn.relu(x) nn.sigmoid(x) nn.softplus(x) nn.silu(x) nn.elu(x) nn.selu(x) nn.celu(x) nn.relu6(4*x) nn.leaky_relu(x) nn.log_softmax(x,-1)
nn.softmax(x,0) nn.glu(x) m.tanh(x@y.T)@q m.exp(-m.sum((x[:,None]-y)**2,axis=-1))
x[1] x[:,::-2] x[k,i[0,0]] x[...,None]*w h[:,0]@h[:,1].mT
""".split()


class Call:
    """One call of the table as a function of its operands, in one of the libraries."""

    def __init__(self, call):
        tree = compile(call, call, "eval").co_names
        self.names = [name for name in ARRAYS if name in tree]
        self.text = call if call[:2] in ("m.", "nn", "x[", "h[") else "m." + call
        self.operands = [ARRAYS[name] for name in self.names]

    def of(self, m):
        nn, make = (cotan.nn.functional, cotan.asarray) if m is cotan else (jax.nn, jnp.asarray)
        constants = {name: make(value) for name, value in CONSTANTS.items()}

        def function(*operands):
            found = eval(self.text, {"m": m, "nn": nn, **constants, **dict(zip(self.names, operands))})
            return list(found) if isinstance(found, (tuple, list)) else [found]

        return function

    def loss(self, m):
        """One number, of which every element of every result has another share."""
        return lambda *operands: sum((y * weights(m, y.shape)).sum() for y in self.of(m)(*operands))


def weights(m, shape):
    values = np.cos(np.arange(1.0, np.prod(shape, dtype=int) + 1)).reshape(shape)
    return cotan.asarray(values) if m is cotan else jnp.asarray(values)


def near(ours, theirs, what):
    ours, theirs = cotan.tree_util.tree_leaves(ours), jax.tree_util.tree_leaves(theirs)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs):
        b = np.asarray(b)
        assert a.dtype == cotan.float64 and tuple(a.shape) == b.shape, what
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-6, atol=1e-6, err_msg=what)


def test_size_of_the_table():
    assert len({Call(call).text.split("(")[0] for call in CALLS}) > 100


@pytest.mark.parametrize("call", CALLS if os.environ.get("COTAN_TEST_ALL") else CALLS[::3])
def test_forwards_and_backwards(call):
    call = Call(call)
    ours, theirs = [cotan.asarray(x) for x in call.operands], [jnp.asarray(x) for x in call.operands]
    tangents = [np.sin(3 + np.arange(x.size, dtype=float)).reshape(x.shape) for x in call.operands]
    value, moved = cotan.jvp(call.of(cotan), tuple(ours), tuple(map(cotan.asarray, tangents)))
    wanted, their_moved = jax.jvp(call.of(jnp), tuple(theirs), tuple(map(jnp.asarray, tangents)))
    near(value, wanted, "value")
    near(moved, their_moved, "jvp")
    value, back = cotan.vjp(call.of(cotan), *ours)
    wanted, their_back = jax.vjp(call.of(jnp), *theirs)
    near(value, wanted, "value")
    near(back([weights(cotan, y.shape) for y in value]), their_back([weights(jnp, y.shape) for y in wanted]), "vjp")


@pytest.mark.parametrize("call", CALLS if os.environ.get("COTAN_TEST_ALL") else CALLS[::12])
def test_the_grad_transforms(call):
    call = Call(call)
    ours, theirs = [cotan.asarray(x) for x in call.operands], [jnp.asarray(x) for x in call.operands]
    near(cotan.grad(call.loss(cotan))(*ours), jax.grad(call.loss(jnp))(*theirs), "grad")
    every = tuple(range(len(ours)))
    near(cotan.value_and_grad(call.loss(cotan), every)(*ours), jax.value_and_grad(call.loss(jnp), every)(*theirs), "value_and_grad")

    def with_more(m):
        return lambda *operands: (call.loss(m)(*operands), {"operand": operands[0] * 2})

    last = len(ours) - 1
    near(cotan.grad(with_more(cotan), last, has_aux=True)(*ours), jax.grad(with_more(jnp), last, has_aux=True)(*theirs), "has_aux")


# A function of a vector of 4, and of its matrix of 3 x 4.
SEVERAL = {
    "elements": lambda m, x, w: m.tanh(x) * m.exp(-x * x),
    "matrix": lambda m, x, w: w @ x,
    "layers": lambda m, x, w: m.tanh(w @ m.tanh(w.T @ m.sin(w @ x))),
    "logsumexp": lambda m, x, w: m.log(m.sum(m.exp(w + x), axis=1)),
    "softmax": lambda m, x, w: m.exp(x) / m.sum(m.exp(x)),
    "products": lambda m, x, w: m.cumprod(1 + x * x, axis=0),
    "quotient": lambda m, x, w: x[::-1] / (2 + m.cos(x)),
    "outer": lambda m, x, w: m.outer(x, x)[:2],
    "norm": lambda m, x, w: m.sqrt(m.sum((w - x) ** 2, axis=1)),
    "solve": lambda m, x, w: m.linalg.solve(w @ w.T + m.sum(x * x) * m.asarray(np.eye(3)), w @ x),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_jacobians_and_hessians(name):
    x, w, direction = ARRAYS["w"], ARRAYS["x"], np.array([0.3, -1.0, 2.0, 0.5])

    def of(m):
        weight = m.asarray(w)
        return lambda x: SEVERAL[name](m, x, weight)

    def one(m):
        return lambda x: (lambda y: (y * weights(m, y.shape)).sum())(of(m)(x))

    ours, theirs, way, their_way = cotan.asarray(x), jnp.asarray(x), cotan.asarray(direction), jnp.asarray(direction)
    wanted = jax.jacrev(of(jnp))(theirs)
    near(cotan.jacrev(of(cotan))(ours), wanted, "jacrev")
    near(cotan.jacfwd(of(cotan))(ours), wanted, "jacfwd")
    hessian = jax.hessian(one(jnp))(theirs)
    near(cotan.hessian(one(cotan))(ours), hessian, "hessian")
    near(cotan.jvp(cotan.grad(one(cotan)), (ours,), (way,))[1], hessian @ their_way, "forwards over backwards")
    near(cotan.grad(lambda x: (cotan.grad(one(cotan))(x) * way).sum())(ours), hessian @ their_way, "backwards over backwards")


def test_the_fourth_derivative_of_a_network():
    """Four times grad along a line through the inputs of three layers, and in every coordinate of one of them."""
    first, second, third = (draw.standard_normal(shape) for shape in ((2, 8), (8, 8), (8, 1)))

    def network(m):
        layers = [m.asarray(layer) for layer in (first, second, third)]
        return lambda x: m.sum(m.tanh(m.tanh(x @ layers[0]) @ layers[1]) @ layers[2])

    def fourth(m, grad):
        line = lambda s: network(m)(m.asarray(np.array([0.3, -0.2])) + s * m.asarray(np.array([1.0, 0.5])))  # noqa: E731
        for _ in range(4):
            line = grad(line)
        return line

    near(fourth(cotan, cotan.grad)(cotan.asarray(0.1, dtype=cotan.float64)), fourth(jnp, jax.grad)(0.1), "along a line")

    def every(m, grad, jacrev):
        return jacrev(jacrev(jacrev(grad(network(m)))))

    x = np.array([0.3, -0.2])
    near(every(cotan, cotan.grad, cotan.jacrev)(cotan.asarray(x)), every(jnp, jax.grad, jax.jacrev)(x), "all fourth derivatives")


EVERY_VALUE = """
import sys
import numpy as np
import cotan
import test_gradient_table as table
found = {}
for call in map(table.Call, table.CALLS[::2]):
    operands = [cotan.asarray(x) for x in call.operands]
    value, grads = cotan.value_and_grad(call.loss(cotan), tuple(range(len(operands))))(*operands)
    for i, x in enumerate((*call.of(cotan)(*operands), value, *grads)):
        found[f"{call.text} {i}"] = x.numpy()
np.savez(sys.argv[1], **found)
"""


def test_one_flag_runs_it_op_by_op(tmp_path):
    """Values and gradients of 70 functions: with every op run by itself the same bits, on the reference device within 1e-6."""
    found = []
    for name, flag in (("compiled", {}), ("op by op", {"COTAN_FUSE": "0"}), ("reference", {"COTAN_DEVICE": "ref"})):
        path = tmp_path / f"{name}.npz"
        done = subprocess.run([sys.executable, "-c", EVERY_VALUE, path], capture_output=True, text=True,
                              env={**os.environ, **flag, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])})
        assert done.returncode == 0, done.stderr
        found.append(np.load(path))
    compiled, alone, reference = found
    assert len(compiled.files) > 200 and compiled.files == alone.files == reference.files
    for name in compiled.files:
        assert compiled[name].tobytes() == alone[name].tobytes(), name
        np.testing.assert_allclose(compiled[name], reference[name], rtol=1e-6, atol=1e-6, err_msg=name)
