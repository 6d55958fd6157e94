"""What test_edge_values.py compares: calls, their inputs, and why some results are not PyTorch's."""
import itertools

import numpy as np

inf, nan = np.inf, np.nan

# --------------------------------------------------------------------------------------------------- inputs

POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, 20.0, -20.0, 21.0, 100.0, -100.0, 1e30, -1e30, 1e-30, -1e-30, inf, -inf, nan]
PAIRS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e30, 1e-30, inf, -inf, nan]
TRIPLES = [0.0, 1.0, -1.0, 0.5, inf, -inf, nan]
ROWS = np.array([
    [0, 0, 0, 0], [-0.0, 0, -0.0, 0], [1, 1, 1, 0], [2, 3, 3, 1], [inf, 1, 2, 0], [-inf, 1, 2, 0], [inf, inf, 1, 0], [-inf, -inf, 1, 2],
    [-inf] * 4, [inf] * 4, [inf, -inf, 1, 0], [nan, 1, 2, 0], [1, nan, nan, 0], [nan] * 4, [0, 2, 3, 4], [0, 2, 0, 4],
    [1e30, -1e30, 1e30, 1], [1e-30, 0, 0, 0], [1e-30] * 4, [5, 5, 5, 5], [1, 2, 3, 4], [-1, -1, -3, 0], [100, -100, 200, 0]], float)
MATRICES = [
    [[0, 0], [0, 0]], [[1, 0], [0, 1]], [[1, 2], [2, 4]], [[0, 1], [0, 0]], [[1, 2, 3], [2, 4, 6], [3, 6, 9]], [[0] * 3] * 3, [[0]], [[nan, 1], [1, 2]],
    [[inf, 1], [1, 2]], [[0, 1], [1, 0]], [[2, 1], [1, 3]]]
N = len(ROWS)
BESIDE_ROWS = {
    "c": np.arange(N) % 4, "none": np.full(N, -100), "hot": np.eye(4)[np.arange(N) % 4], "labels": np.array([[1, 3, -1, 0]] * N),
    "w": np.array([[[1.0, -2.0]]]), "square": np.ones((2, 4))}
TWO = np.array(list(itertools.product([0, 2, 4, 5, 11, 16, 17, 20], repeat=2)))


def columns(*lists):
    return [np.array(column) for column in zip(*itertools.product(*lists))]


INPUTS = {
    "unary": [([np.array(POINTS)], {"quarter": np.array([0.25])})],
    "binary": [(columns(PAIRS, PAIRS), {})],
    "probabilities": [(columns([0.0, 1.0, 0.5, 1e-30, 1 - 2**-24], [0.0, 1.0, 0.5]), {})],
    "signs": [(columns(PAIRS, [1.0, -1.0]), {})],
    "ternary": [(columns(TRIPLES, TRIPLES, TRIPLES), {})],
    "ranked": [(columns(TRIPLES, TRIPLES, [1.0, -1.0]), {})],
    "variances": [(columns(TRIPLES, TRIPLES, [0.0, 1.0, 1e-30, inf]), {})],
    "rows": [([ROWS], BESIDE_ROWS)],
    "two": [([ROWS[TWO[:, 0]], ROWS[TWO[:, 1]]], {"s": np.where(np.arange(len(TWO)) % 2, 1, -1)})],
    "whole": [([row], {"bins": np.array([0.0, 1.0, 2.0])}) for row in ROWS],
    "matrix": [([np.array(matrix, float)], {}) for matrix in MATRICES],
}

# ---------------------------------------------------------------------------------------------------- calls

# "ours | PyTorch's", where they are not the same: m is cotan or torch, ops are cotan's, F nn.functional, L linalg.
TEXTS = {
    "unary": """
ops.silu(x) | F.silu(x)
ops.elu(x) | F.elu(x)
ops.elu(x,alpha=0.7) | F.elu(x,0.7)
ops.celu(x,alpha=0.7) | F.celu(x,0.7)
ops.gelu(x) | F.gelu(x,approximate='tanh')
ops.gelu(x,exact=True) | F.gelu(x)
ops.hardshrink(x) | F.hardshrink(x)
ops.hardsigmoid(x) | F.hardsigmoid(x)
ops.hardswish(x) | F.hardswish(x)
ops.hardtanh(x) | F.hardtanh(x)
ops.leaky_relu(x) | F.leaky_relu(x)
ops.log_sigmoid(x) | F.logsigmoid(x)
ops.mish(x) | F.mish(x)
ops.relu6(x) | F.relu6(x)
ops.softplus(x) | F.softplus(x)
ops.softshrink(x) | F.softshrink(x)
ops.softsign(x) | F.softsign(x)
ops.tanhshrink(x) | F.tanhshrink(x)
ops.threshold(x,0.5,2.0) | F.threshold(x,0.5,2.0)
ops.is_finite(x) | m.isfinite(x)
ops.is_inf(x) | m.isinf(x)
ops.is_nan(x) | m.isnan(x)
ops.pow(x,2.0) | m.pow(x,2.0)
ops.pow(x,0.0) | m.pow(x,0.0)
ops.pow(x,0.5) | m.pow(x,0.5)
ops.pow(x,3.0) | m.pow(x,3.0)
ops.pow(x,-1.0) | m.pow(x,-1.0)
ops.pow(2.0,x) | m.pow(2.0,x)
ops.pow(0.0,x) | m.pow(0.0,x)
ops.clamp(x,-1.0,1.0) | m.clamp(x,-1.0,1.0)
m.clamp(x,-1.0,1.0)
m.clamp(x,min=0.0)
m.clamp(x,max=0.0)
m.sqrt(x*x)
m.sqrt(m.abs(x))
F.relu(x)
F.relu_(x*1)
F.relu6(x)
F.hardtanh(x)
F.sigmoid(x)
F.tanh(x)
F.silu(x)
F.gelu(x)
F.gelu(x,approximate='tanh')
F.elu(x)
F.elu(x,0.7)
F.selu(x)
F.celu(x)
F.celu(x,0.7)
F.leaky_relu(x)
F.rrelu(x)
F.hardsigmoid(x)
F.hardswish(x)
F.hardshrink(x)
F.softshrink(x)
F.softshrink(x,1.0)
F.tanhshrink(x)
F.softplus(x)
F.softplus(x,2,3)
F.softsign(x)
F.mish(x)
F.logsigmoid(x)
F.threshold(x,0.5,2.0)
F.prelu(x,quarter)
F.dropout(x,0.0)
""",
    "binary": """
ops.mod(x,y) | m.fmod(x,y)
ops.equal(x,y) | m.eq(x,y)
ops.prelu(x,y) | m.where(x>0,x,x*y)
m.logaddexp2(x,y)
m.ldexp(x,y)
F.mse_loss(x,y,reduction='none')
F.l1_loss(x,y,reduction='none')
F.smooth_l1_loss(x,y,reduction='none')
F.smooth_l1_loss(x,y,reduction='none',beta=2.0)
F.huber_loss(x,y,reduction='none')
F.huber_loss(x,y,reduction='none',delta=2.0)
F.kl_div(x,y,reduction='none')
F.kl_div(x,y,reduction='none',log_target=True)
F.poisson_nll_loss(x,y,reduction='none')
F.poisson_nll_loss(x,y,reduction='none',log_input=False)
F.binary_cross_entropy_with_logits(x,y,reduction='none')
""",
    "probabilities": """
F.binary_cross_entropy(x,y,reduction='none')
F.binary_cross_entropy_with_logits(x,y,reduction='none')
""",
    "signs": """
F.hinge_embedding_loss(x,y.detach(),reduction='none')
F.soft_margin_loss(x,y.detach(),reduction='none')
""",
    "ternary": """
ops.clamp(x,y,z) | m.clamp(x,y,z)
ops.select(x>0,y,z) | m.where(x>0,y,z)
m.addcdiv(x,y,z)
m.addcmul(x,y,z)
""",
    "ranked": """
F.margin_ranking_loss(x,y,z.detach(),reduction='none')
""",
    "variances": """
F.gaussian_nll_loss(x,y,z,reduction='none')
""",
    "rows": """
ops.prod(x,axes=-1) | m.prod(x,-1)
ops.max(x,axes=-1) | m.amax(x,-1)
ops.min(x,axes=-1) | m.amin(x,-1)
ops.argmax(x,axis=-1) | m.argmax(x,-1)
ops.argmin(x,axis=-1) | m.argmin(x,-1)
ops.var(x,axes=-1) | m.var(x,-1,unbiased=False)
ops.std(x,axes=-1) | m.std(x,-1,unbiased=False)
ops.any(x!=0,axes=-1) | m.any(x!=0,-1)
ops.all(x!=0,axes=-1) | m.all(x!=0,-1)
ops.cumsum(x,axis=-1) | m.cumsum(x,-1)
ops.cumprod(x,axis=-1) | m.cumprod(x,-1)
ops.cummax(x,axis=-1) | m.cummax(x,-1)[0]
ops.cummin(x,axis=-1) | m.cummin(x,-1)[0]
m.cummax(x,-1)[1]
m.cummin(x,-1)[1]
ops.logcumsumexp(x,axis=-1) | m.logcumsumexp(x,-1)
ops.sort(x,axis=-1) | m.sort(x,stable=True,dim=-1)[0]
x.sort(-1)[1] | m.sort(x,stable=True,dim=-1)[1]
x.sort(-1,descending=True)[0] | m.sort(x,stable=True,dim=-1,descending=True)[0]
x.sort(-1,descending=True)[1] | m.sort(x,stable=True,dim=-1,descending=True)[1]
ops.argsort(x,axis=-1) | m.sort(x,stable=True,dim=-1)[1]
ops.topk(x,2)[0] | m.topk(x,2)[0]
x.topk(2)[1]
x.topk(2,largest=False)[0]
x.kthvalue(2)[0]
ops.quantile(x,q=0.3,axis=-1) | m.quantile(x,0.3,-1)
m.quantile(x,0.5,dim=-1)
m.quantile(x,1.0,dim=-1)
x.max(-1)[0]
x.max(-1)[1]
x.min(-1)[0]
x.min(-1)[1]
m.amax(x,dim=-1)
m.amin(x,dim=-1)
x.median(-1)[0]
x.median(-1)[1]
x.std(-1)
x.var(-1)
x.norm(dim=-1)
x.norm(p=1,dim=-1)
x.norm(p=3,dim=-1)
x.norm(p=1.5,dim=-1)
x.norm(p=0.5,dim=-1)
x.norm(p=0,dim=-1)
x.norm(p=inf,dim=-1)
x.norm(p=-inf,dim=-1)
ops.vector_norm(x,axes=-1) | L.vector_norm(x,dim=-1)
ops.vector_norm(x,axes=-1,ord=3) | L.vector_norm(x,3,dim=-1)
ops.diff(x,axis=-1) | m.diff(x,dim=-1)
ops.trapezoid(x,axis=-1) | m.trapezoid(x,dim=-1)
ops.nansum(x,axes=-1) | m.nansum(x,-1)
ops.nanmean(x,axes=-1) | m.nanmean(x,-1)
ops.count_nonzero(x,axes=-1) | m.count_nonzero(x,-1)
ops.glu(x,-1) | F.glu(x,-1)
ops.layer_norm(x) | F.layer_norm(x,(4,))
ops.max_pool(x[:,None,None],kernel=(1,2)) | F.max_pool2d(x[:,None,None],(1,2))
ops.avg_pool(x[:,None,None],kernel=(1,2)) | F.avg_pool2d(x[:,None,None],(1,2))
ops.lp_pool(x[:,None,None],kernel=(1,2)) | F.lp_pool2d(x[:,None,None],2.0,(1,2))
ops.cross_entropy(x,c,per_row=True) | F.cross_entropy(x,c,reduction='none')
F.softmax(x,-1)
F.softmin(x,-1)
F.log_softmax(x,-1)
F.normalize(x,dim=-1)
F.normalize(x,p=1.0,dim=-1)
F.normalize(x,p=3.0,dim=-1)
F.glu(x,-1)
F.layer_norm(x,(4,))
F.group_norm(x[:,:,None].expand(-1,-1,2),2)
F.instance_norm(x[:,None,:])
F.local_response_norm(x[:,:,None],3)
F.max_pool1d(x[:,None,:],2)
F.max_pool2d(x[:,None,None,:],(1,2))
F.max_pool3d(x[:,None,None,None,:],(1,1,2))
F.avg_pool1d(x[:,None,:],2)
F.avg_pool2d(x[:,None,None,:],(1,2))
F.avg_pool3d(x[:,None,None,None,:],(1,1,2))
F.lp_pool1d(x[:,None,:],2,2)
F.lp_pool2d(x[:,None,None,:],2.0,(1,2))
F.adaptive_max_pool1d(x[:,None,:],2)
F.adaptive_avg_pool1d(x[:,None,:],3)
F.adaptive_max_pool2d(x[:,None,None,:],(1,2))
F.adaptive_avg_pool2d(x[:,None,None,:],(1,3))
F.adaptive_max_pool3d(x[:,None,None,None,:],(1,1,2))
F.adaptive_avg_pool3d(x[:,None,None,None,:],(1,1,3))
F.interpolate(x[:,None,:],size=7,mode='nearest')
F.multi_margin_loss(x,c,reduction='none')
F.multilabel_margin_loss(x,labels,reduction='none')
F.multilabel_soft_margin_loss(x,hot,reduction='none')
F.cross_entropy(x,c,reduction='none')
F.cross_entropy(x,c,reduction='none',label_smoothing=0.1)
F.cross_entropy(x,none,reduction='none')
F.nll_loss(x,c,reduction='none')
F.nll_loss(x,none,reduction='none')
F.pad(x,(1,1),value=nan)
F.unfold(x[:,None,None,:],(1,2))
F.fold(x[:,:,None].expand(-1,-1,2),(1,5),(1,4))
F.conv1d(x[:,None,:],w)
F.conv2d(x[:,None,None,:],w[:,:,None])
F.conv_transpose1d(x[:,None,:],w)
F.linear(x,square)
F.channel_shuffle(x[:,:,None,None],2)
F.pixel_shuffle(x[:,:,None,None],2)
F.pixel_unshuffle(x.reshape(-1,1,2,2),2)
""",
    "whole": """
x.max()
x.min()
x.median()
x.norm()
x.norm(p=3)
x.std()
x.prod()
m.argmax(x)
m.argmin(x)
m.searchsorted(bins,x)
m.bucketize(x,bins)
ops.logsumexp(x,axes=-1) | m.logsumexp(x,-1)
ops.sum(x) | m.sum(x)
ops.mean(x) | m.mean(x)
L.norm(x)
F.cosine_similarity(x,x*2,0)
""",
    "two": """
F.cosine_similarity(x,y,-1)
F.pairwise_distance(x,y)
F.pairwise_distance(x,y,eps=0.0)
F.pairwise_distance(x,y,p=1.0)
F.pairwise_distance(x,y,p=3.0)
F.cosine_embedding_loss(x,y,s,reduction='none')
F.triplet_margin_loss(x,y,x*0,reduction='none')
F.triplet_margin_with_distance_loss(x,y,x*0,reduction='none')
m.cdist(x[:,None],y[:,None])
m.cdist(x[:,None],y[:,None],p=3.0)
m.cdist(x[:,None],y[:,None],p=inf)
ops.vecdot(x,y) | (x*y).sum(-1)
ops.matmul(x[:,None],y[:,:,None]) | m.matmul(x[:,None],y[:,:,None])
""",
    "matrix": """
ops.det(x) | L.det(x)
ops.slogdet(x)[1] | L.slogdet(x)[1]
ops.matrix_norm(x) | L.matrix_norm(x)
ops.matrix_norm(x,ord=1) | L.matrix_norm(x,1)
ops.matrix_norm(x,ord=2) | L.matrix_norm(x,2)
ops.matrix_power(x,3) | L.matrix_power(x,3)
ops.matrix_power(x,0) | L.matrix_power(x,0)
ops.svdvals(x) | L.svdvals(x)
ops.inv(x) | L.inv(x)
ops.matrix_trace(x) | m.trace(x)
ops.tril(x) | m.tril(x)
ops.triu(x) | m.triu(x)
""",
}
for kind, names in {
    "unary": """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor lgamma log log10
        log1p log2 logit nan_to_num neg rad2deg reciprocal relu round rsqrt selu sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc""",
    "binary": """add atan2 copysign div floor_divide fmax fmin greater greater_equal heaviside hypot isclose less less_equal logaddexp maximum
        minimum mul nextafter not_equal pow remainder sub xlogy""",
}.items():
    operands = "x" if kind == "unary" else "x,y"
    TEXTS[kind] += "\n".join(f"ops.{name}({operands}) | m.{name}({operands})" for name in names.split())
TEXTS["rows"] += "\n".join(f"ops.{name}(x,axes=-1) | m.{name}(x,-1)" for name in "softmax log_softmax".split())

CALLS = {}
for kind, text in TEXTS.items():
    for line in filter(None, map(str.strip, text.splitlines())):
        ours, _, theirs = line.partition(" | ")
        CALLS[ours if ours not in CALLS else f"{ours} # {kind}"] = kind, ours, theirs or ours

# ------------------------------------------------------------------------------ what is compared elsewhere, or nowhere

EXEMPT = {}
for why, names in {
    "moves elements, or counts, compares or packs their bits: no value is an edge": """adaptive_avg_pool adaptive_max_pool and_ bincount bitcast
        cast concat dequantise diagonal dynamic_slice dynamic_update expand flip gather global_avg_pool global_max_pool iota lexsort max_pool_indices
        not_ one_hot or_ pad permute quantise repeat reshape roll scatter scatter_add scatter_max scatter_min scatter_mul searchsorted shift_left
        shift_right slice sort_pairs stop_gradient take_along tile unique windows xor F.one_hot F.embedding F.embedding_bag F.max_unpool1d F.max_unpool2d
        F.max_unpool3d""",
    "draws random numbers": """dropout random_bernoulli random_bits random_fold_in random_int random_normal random_split random_uniform
        F.alpha_dropout F.dropout1d F.dropout2d F.dropout3d F.feature_alpha_dropout F.gumbel_softmax""",
    "products and sums alone, as matmul": """contract conv conv_transpose conv_weight_grad cross kron linear_recurrence multi_dot outer quantised_matmul
        ragged_matmul ragged_outer fft F.bilinear F.conv3d F.conv_transpose2d F.conv_transpose3d""",
    "complex numbers (tests/ops/test_complex.py)": "angle complex conj imag real",
    "factors of matrices, whose errors are those of tests/error/test_linalg_errors.c": """cholesky eig eigh eigvals eigvalsh lstsq lu matrix_cond
        matrix_rank pinv qr solve svd triangular_solve""",
    "PyTorch has no such op": "cbrt nanmax nanmin",
    "made of norms by channels, of attention or of losses that are here": """attention batch_norm batch_norm_train group_norm instance_norm rms_norm
        linear_cross_entropy F.attention F.batch_norm F.linear_cross_entropy F.multi_head_attention_forward F.rms_norm F.scaled_dot_product_attention""",
    "interpolates: its points are places (tests/parity/test_nn.py)": "F.affine_grid F.grid_sample F.upsample",
    "tests/parity/test_ctc.py has its infinities": "F.ctc_loss",
    "as lp_pool2d": "F.lp_pool3d",
    "the same as the name without the underscore or the ending": """F.celu_ F.elu_ F.hardtanh_ F.leaky_relu_ F.rrelu_ F.selu_ F.threshold_
        F.max_pool1d_with_indices F.max_pool2d_with_indices F.max_pool3d_with_indices F.native_channel_shuffle F.upsample_bilinear
        F.upsample_nearest""",
    "as conv1d, and as cdist": "F.conv_tbc F.pdist",
}.items():
    EXEMPT |= dict.fromkeys(names.split(), why)

# ---------------------------------------------------------------------------------------- reasons of differences

# A reason, the calls that it holds for (a regular expression), and where. The first one that holds counts.
WHY = [
    ("PyTorch's is NaN, ours a subgradient or a limit", ".*", lambda d: d.slope and d.theirs_nan() and d.ours_finite()),
    ("beside NaN a slope means nothing", ".*", lambda d: d.slope and d.nan_in and not d.error),
    ("infinite or undefined in both", ".*", lambda d: d.slope and d.none_finite()),
    ("PyTorch 1.13 has no gradient of it", r"ops\.(floor_divide|heaviside|nextafter).*|F\.channel_shuffle.*", lambda d: d.slope and d.error == "theirs"),
    ("NaN stays NaN", r"ops\.(sign|heaviside)\(.*|(ops|F)\.softshrink.*", lambda d: d.nan_in and not d.slope),
    ("the slope from the left, as in PyTorch 2", r"(ops|F)\.hardswish.*", lambda d: d.slope),
    ("C's pow: (-inf)^0.5 is inf", r"ops\.pow\(x,0\.5\)", lambda d: d.inf_in),
    ("NaN as the value is, outside of the domain", r"ops\.acosh.*", lambda d: d.slope),
    ("right for sizes up to 2^52", r"ops\.(sin|cos|tan)\(x\)", lambda d: d.large_in),
    ("the slope at a pole, and far below 0, is not followed", r"ops\.digamma.*", lambda d: d.slope),
    ("exact, though the quotient is beyond f32", r"ops\.(mod|remainder|floor_divide)\(x,y\)", lambda d: d.large_in),
    ("no infinity is taken from another", r"F\.binary_cross_entropy_with_logits.*", lambda d: d.inf_in),
    ("ours are scaled, PyTorch's squares of 1e30 and 1e-30 are beyond f32",
     r"(x|L)\.norm.*|ops\.(vector|matrix)_norm.*|F\.(normalize|pairwise_distance|triplet_margin\w*)\(.*|m\.(cdist|dist)\((?!.*p=inf).*",
     lambda d: d.dtype == "float32" and (d.large_in or d.small_in)),
    ("1e30 and 1e-30 squared are beyond f32, in which ours are computed", r"(ops|x)\.std.*|(ops|F)\.layer_norm.*|F\.(group_norm|cosine_similarity).*",
     lambda d: d.dtype == "float32" and (d.large_in or d.small_in)),
    ("rounding of what cancels", r"F\.(group|instance)_norm.*", lambda d: d.dtype == "float32" and d.near(1e-4)),
    ("log 2 is below the rounding of 1e30: the shares of two equal largest are 1/2 or 1", r".*(logcumsumexp|logsumexp|cross_entropy).*",
     lambda d: d.slope and d.large_in),
    ("NaN up to an infinite element", r"ops\.logcumsumexp.*", lambda d: d.slope and d.inf_in),
    ("of equals ours is the first, PyTorch's any", r".*(topk|kthvalue).*", lambda d: True),
    ("between an infinity and a number from the lower one on, PyTorch from the nearer", r".*quantile.*", lambda d: d.inf_in),
    ("neighbours are added, PyTorch subtracts sums", r"ops\.trapezoid.*", lambda d: d.inf_in),
    ("the margin between two infinities, or to NaN, is NaN; PyTorch leaves it out", r"F\.multi.*margin_loss.*", lambda d: d.nan_in or d.inf_in),
    ("a product with zeros and ones, which an infinity or NaN reaches whole", r"F\.fold.*", lambda d: d.nan_in or d.inf_in),
    ("rounding of 1e30, which is more than the margin", r"F\.triplet_margin_loss.*", lambda d: d.large_in),
    ("NaN where a difference is NaN", r"m\.cdist\(.*p=inf\)", lambda d: not d.slope and (d.nan_in or d.inf_in)),
    ("equals share the gradient, as in norm(p=inf)", r"m\.cdist\(.*p=inf\)", lambda d: d.slope),
    ("the cofactors, where PyTorch 1.13 has zeros", r"ops\.det.*", lambda d: d.slope),
    ("a matrix that holds NaN or infinity gives NaN, and no error", r"ops\.(det|slogdet|inv|svdvals|matrix_norm).*", lambda d: d.nan_in or d.inf_in),
]
