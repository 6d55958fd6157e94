"""JAX's counterparts of the calls of edge_calls.py, and how they are run: j is jax.numpy, nn jax.nn, lax jax.lax, sp jax.scipy.special."""
import functools
import warnings

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
NAMES = {"j": jnp, "nn": jax.nn, "lax": jax.lax, "sp": jax.scipy.special, "L": jnp.linalg, "inf": np.inf, "nan": np.nan}

# "ours | JAX's"
TEXT = """
ops.silu(x) | nn.silu(x)
ops.elu(x) | nn.elu(x)
ops.elu(x,alpha=0.7) | nn.elu(x,0.7)
ops.celu(x,alpha=0.7) | nn.celu(x,0.7)
ops.gelu(x) | nn.gelu(x)
ops.gelu(x,exact=True) | nn.gelu(x,approximate=False)
ops.hardsigmoid(x) | nn.hard_sigmoid(x)
ops.hardswish(x) | nn.hard_swish(x)
ops.hardtanh(x) | nn.hard_tanh(x)
ops.leaky_relu(x) | nn.leaky_relu(x)
ops.log_sigmoid(x) | nn.log_sigmoid(x)
ops.mish(x) | nn.mish(x)
ops.relu6(x) | nn.relu6(x)
ops.softplus(x) | nn.softplus(x)
ops.softsign(x) | nn.soft_sign(x)
ops.is_finite(x) | j.isfinite(x)
ops.is_inf(x) | j.isinf(x)
ops.is_nan(x) | j.isnan(x)
ops.pow(x,2.0) | j.power(x,2.0)
ops.pow(x,0.0) | j.power(x,0.0)
ops.pow(x,0.5) | j.power(x,0.5)
ops.pow(x,3.0) | j.power(x,3.0)
ops.pow(x,-1.0) | j.power(x,-1.0)
ops.pow(2.0,x) | j.power(2.0,x)
ops.pow(0.0,x) | j.power(0.0,x)
ops.clamp(x,-1.0,1.0) | j.clip(x,-1.0,1.0)
m.clamp(x,min=0.0) | j.clip(x,min=0.0)
m.clamp(x,max=0.0) | j.clip(x,max=0.0)
m.sqrt(x*x) | j.sqrt(x*x)
m.sqrt(m.abs(x)) | j.sqrt(j.abs(x))
F.relu(x) | nn.relu(x)
F.relu6(x) | nn.relu6(x)
F.sigmoid(x) | nn.sigmoid(x)
F.tanh(x) | j.tanh(x)
F.silu(x) | nn.silu(x)
F.gelu(x) | nn.gelu(x,approximate=False)
F.elu(x) | nn.elu(x)
F.selu(x) | nn.selu(x)
F.celu(x) | nn.celu(x)
F.leaky_relu(x) | nn.leaky_relu(x)
F.hardsigmoid(x) | nn.hard_sigmoid(x)
F.hardswish(x) | nn.hard_swish(x)
F.softplus(x) | nn.softplus(x)
F.softsign(x) | nn.soft_sign(x)
F.mish(x) | nn.mish(x)
F.logsigmoid(x) | nn.log_sigmoid(x)
ops.mod(x,y) | j.fmod(x,y)
ops.equal(x,y) | j.equal(x,y)
m.logaddexp2(x,y) | j.logaddexp2(x,y)
ops.clamp(x,y,z) | j.clip(x,y,z)
ops.select(x>0,y,z) | j.where(x>0,y,z)
ops.prod(x,axes=-1) | j.prod(x,-1)
ops.max(x,axes=-1) | j.max(x,-1)
ops.min(x,axes=-1) | j.min(x,-1)
ops.argmax(x,axis=-1) | j.argmax(x,-1)
ops.argmin(x,axis=-1) | j.argmin(x,-1)
ops.var(x,axes=-1) | j.var(x,-1)
ops.std(x,axes=-1) | j.std(x,-1)
ops.any(x!=0,axes=-1) | j.any(x!=0,-1)
ops.all(x!=0,axes=-1) | j.all(x!=0,-1)
ops.cumsum(x,axis=-1) | j.cumsum(x,-1)
ops.cumprod(x,axis=-1) | j.cumprod(x,-1)
ops.cummax(x,axis=-1) | lax.cummax(x,1)
ops.cummin(x,axis=-1) | lax.cummin(x,1)
ops.logcumsumexp(x,axis=-1) | lax.cumlogsumexp(x,1)
ops.sort(x,axis=-1) | j.sort(x,-1)
ops.argsort(x,axis=-1) | j.argsort(x,-1)
x.sort(-1,descending=True)[0] | j.sort(x,-1,descending=True)
ops.topk(x,2)[0] | lax.top_k(x,2)[0]
ops.quantile(x,q=0.3,axis=-1) | j.quantile(x,0.3,-1)
x.std(-1) | j.std(x,-1,ddof=1)
x.var(-1) | j.var(x,-1,ddof=1)
ops.vector_norm(x,axes=-1) | L.vector_norm(x,axis=-1)
ops.vector_norm(x,axes=-1,ord=3) | L.vector_norm(x,axis=-1,ord=3)
x.norm(p=1,dim=-1) | L.norm(x,1,-1)
x.norm(p=0,dim=-1) | L.norm(x,0,-1)
x.norm(p=inf,dim=-1) | L.norm(x,inf,-1)
x.norm(p=-inf,dim=-1) | L.norm(x,-inf,-1)
ops.diff(x,axis=-1) | j.diff(x,axis=-1)
ops.trapezoid(x,axis=-1) | j.trapezoid(x,axis=-1)
ops.nansum(x,axes=-1) | j.nansum(x,-1)
ops.nanmean(x,axes=-1) | j.nanmean(x,-1)
ops.count_nonzero(x,axes=-1) | j.count_nonzero(x,-1)
ops.glu(x,-1) | nn.glu(x,-1)
ops.softmax(x,axes=-1) | nn.softmax(x,-1)
ops.log_softmax(x,axes=-1) | nn.log_softmax(x,-1)
F.softmax(x,-1) | nn.softmax(x,-1)
F.log_softmax(x,-1) | nn.log_softmax(x,-1)
x.max() | j.max(x)
x.min() | j.min(x)
x.prod() | j.prod(x)
x.std() | j.std(x,ddof=1)
x.norm() | L.norm(x)
m.argmax(x) | j.argmax(x)
m.argmin(x) | j.argmin(x)
m.searchsorted(bins,x) | j.searchsorted(bins,x)
ops.logsumexp(x,axes=-1) | sp.logsumexp(x,-1)
ops.sum(x) | j.sum(x)
ops.mean(x) | j.mean(x)
ops.vecdot(x,y) | j.vecdot(x,y)
ops.matmul(x[:,None],y[:,:,None]) | j.matmul(x[:,None],y[:,:,None])
ops.det(x) | L.det(x)
ops.slogdet(x)[1] | L.slogdet(x)[1]
ops.matrix_norm(x) | L.matrix_norm(x)
ops.matrix_norm(x,ord=1) | L.matrix_norm(x,ord=1)
ops.matrix_norm(x,ord=2) | L.matrix_norm(x,ord=2)
ops.matrix_power(x,3) | L.matrix_power(x,3)
ops.matrix_power(x,0) | L.matrix_power(x,0)
ops.svdvals(x) | L.svdvals(x)
ops.matrix_trace(x) | j.trace(x)
ops.tril(x) | j.tril(x)
ops.triu(x) | j.triu(x)
"""
OTHER_NAMES = {
    "acos": "j.arccos", "acosh": "j.arccosh", "asin": "j.arcsin", "asinh": "j.arcsinh", "atan": "j.arctan", "atanh": "j.arctanh", "digamma": "sp.digamma",
    "erf": "sp.erf", "erfc": "sp.erfc", "erfinv": "sp.erfinv", "lgamma": "sp.gammaln", "logit": "sp.logit", "neg": "j.negative", "relu": "nn.relu",
    "rsqrt": "lax.rsqrt", "selu": "nn.selu", "sigmoid": "nn.sigmoid", "atan2": "j.arctan2", "div": "j.divide", "mul": "j.multiply", "pow": "j.power",
    "sub": "j.subtract", "xlogy": "sp.xlogy"}
for operands, names in {
    "x": """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor lgamma log log10
        log1p log2 logit nan_to_num neg rad2deg reciprocal relu round rsqrt selu sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc""",
    "x,y": """add atan2 copysign div floor_divide fmax fmin greater greater_equal heaviside hypot isclose less less_equal logaddexp maximum
        minimum mul nextafter not_equal pow remainder sub xlogy""",
}.items():
    TEXT += "".join(f"ops.{name}({operands}) | {OTHER_NAMES.get(name, 'j.' + name)}({operands})\n" for name in names.split())
CALLS = dict(line.split(" | ") for line in filter(None, TEXT.splitlines()))
NO_SLOPE = {"ops.nextafter(x,y)", "ops.heaviside(x,y)"}  # JAX defines none


@functools.cache
def compiled(call):
    """Of constants, weights and operands: the value and the slopes by each operand of its weighted sum."""
    def function(constants, weights, *operands):
        def value(*given):
            return eval(CALLS[call], NAMES, constants | dict(zip("xyz", given)))
        made = jax.eval_shape(value, *operands)
        if made.dtype.kind != "f" or call in NO_SLOPE:
            return value(*operands), ()
        y, back = jax.vjp(value, *operands)
        return y, back(jnp.resize(weights, y.shape).astype(y.dtype))
    return jax.jit(function)


def run(call, arrays, constants, dtype, weights):
    """As run of test_edge_values.py."""
    constants = {name: jnp.asarray(x.astype(dtype) if x.dtype.kind == "f" else x) for name, x in constants.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, slopes = compiled(call)(constants, jnp.asarray(weights), *(jnp.asarray(x.astype(dtype)) for x in arrays))
    return {"value": np.asarray(value)} | {f"slope by {name}": np.asarray(slope) for name, slope in zip("xyz", slopes)}
