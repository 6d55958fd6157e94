"""The types that scripts/make-stubs gives by name: of parameters, of results, and of what has a type of its own.

Types are as in Python, with these names of the stub of cotan._core (_CORE at the end): Ints, Number, Dtype, ...
"""
import re

ALIASES = set("Ints Number Operand Device Dtype Size Count Module Parameter Params Forward F P R RT AnyDevice".split())
# What annotations of the table of cotan.torch accept.
ANNOTATIONS = {"Tensor": "Tensor", "int": "int", "ints": "Ints", "bool": "bool", "float": "Number", "str": "str", "dtype": "Dtype",
               "Tensors": "Sequence[Tensor]", "any": "Any", "None": "None"}


def _names(text):
    """Returns {name: type} of lines `type: names`."""
    return {name: line.partition(": ")[0] for line in text.strip().splitlines() for name in line.partition(": ")[2].split()}


# ---------------------------------------------------------------------------------------------------- parameters

_EVERYWHERE = _names("""
Dtype: dtype
Device: device
bool: requires_grad keepdim keepdims
int: groups num_layers ignore_index blank last_epoch cache_size event_dim T_mult patience cooldown history_size max_iter num_workers
int: total_iters step_size_up decimals dim_feedforward num_encoder_layers num_decoder_layers num_features in_channels out_channels
int: in_features out_features in1_features in2_features hidden_size input_size num_embeddings embedding_dim num_groups num_channels
int: embed_dim num_heads d_model nhead upscale_factor downscale_factor n_classes num_classes num_parameters num_samples max_eval
int: reinterpreted_batch_ndims padding_idx kdim vdim proj_size start_dim end_dim step_size T_max T_0 total_steps epochs chunks seed
int: steps_per_epoch step_size_down divisor_override prefetch_factor num_replicas rank _stacklevel axis0 axis1 dim0 dim1
float: eps alpha beta margin lambd momentum weight_decay p gamma dampening rho lr_decay label_smoothing dropout layer_norm_eps
float: norm_type max_norm negative_slope clip_value min_value max_value dropout_p
""")
_BY_CONTEXT = {"nn": _names("""
Tensor: input target input1 input2 query key x1 x2 anchor positive negative src tgt memory indices log_probs targets grid logits
Tensor: tensor input_ target_ var in_proj_weight out_proj_weight
Tensor | None: weight bias mask attn_mask key_padding_mask running_mean running_var pos_weight offsets per_sample_weights bias_k
Tensor | None: bias_v tgt_mask memory_mask src_mask src_key_padding_mask tgt_key_padding_mask memory_key_padding_mask _weight
Tensor | None: in_proj_bias out_proj_bias q_proj_weight k_proj_weight v_proj_weight static_k static_v linear_bias
Ints: kernel_size stride dilation output_padding normalized_shape pad
Ints | str: padding
Any: output_size size scale_factor hx input_lengths target_lengths output_ratio device_ids process_group
bool | None: tgt_is_causal src_is_causal is_causal align_corners recompute_scale_factor size_average reduce
int: k dim
float: threshold
float | None: momentum
Tensor | float: value
Module: module
"""), "optim": _names("""
Params: params
float | Tensor: lr
tuple[float, float]: betas etas step_sizes
Any: optimizer lr_lambda schedulers max_lr base_lr beta2_decay min_lr base_momentum max_momentum
Sequence[int]: milestones
bool: foreach fused
dict[str, Any]: state_dict param_group defaults
"""), "distributions": _names("""
Tensor: value x y covariance_matrix precision_matrix scale_tril cov_factor cov_diag
Tensor | float: loc scale probs logits concentration rate temperature low high concentration0 concentration1 df alpha
bool | None: validate_args
Ints: sample_shape batch_shape
int: dim
Any: total_count p q
"""), "arrays": _names("""
Ints: axis dim dims axes
Ints | Tensor | None: repeats
int: k n offset diagonal num
"""), "data": _names("""
Dataset[T] | Sequence[T]: dataset
Sized: data_source
int | None: batch_size
bool | None: shuffle
bool: drop_last
Sequence[int]: indices
Sequence[float]: weights
Iterable[int]: sampler
Iterable[Sequence[int]]: batch_sampler
Callable[..., Any]: collate_fn worker_init_fn
Iterable[Dataset[Any]]: datasets
"""), "module": _names("""
str: target name prefix
Callable[..., Any]: hook
Module: module
"""), "operand": {"value": "Operand"}, "table": {"device": "Device", "out": "Tensor | Sequence[Tensor] | None"}}


def context(module, path):
    """Returns which of the tables above a function's parameters are found in."""
    if path.startswith("Module."):
        return "module"
    if module == "cotan._core" and re.match(r"Tensor\.__(?!eq|ne|contains|setitem|array)", path):
        return "operand"
    place = module.split(".")[1] if "." in module else ""
    return "data" if module == "cotan.utils.data" else place if place in ("nn", "optim", "distributions") else "arrays"


def parameter(name, where):
    """Returns the type of a parameter by its name, None if the name says nothing."""
    return _BY_CONTEXT[where].get(name) or (None if where == "table" else _EVERYWHERE.get(name))


# ------------------------------------------------------------------------------------------------------- results

# Of the table of cotan.torch; where nothing is said, it is a Tensor.
_ROWS = _names("""
bool: equal allclose is_same_size is_nonzero is_conj is_neg is_inference is_floating_point is_complex is_signed is_tensor can_cast
tuple[Tensor, ...]: split chunk unbind tensor_split hsplit vsplit dsplit meshgrid broadcast_tensors split_with_sizes gradient
tuple[Tensor, ...]: unsafe_split unsafe_chunk unsafe_split_with_sizes
tuple[Tensor, Tensor, Tensor]: svd_lowrank pca_lowrank
tuple[Tensor, Tensor]: lobpcg std_mean var_mean
Any: unique unique_consecutive atleast_1d atleast_2d atleast_3d lu
int: numel
dtype: result_type
""")
# Of Tensor's other attributes and methods, the same.
_TENSOR = _names("""
Count: size
dtype: dtype
AnyDevice: device
Tensor | None: grad
int: ndim itemsize nbytes numel nelement dim ndimension element_size get_device __len__ __int__ __index__ __hash__
float: __float__
complex: __complex__
int | float: item
str: __format__
bool: requires_grad is_leaf is_cuda is_sparse is_sparse_csr is_contiguous __bool__ __contains__
None: backward retain_grad __setitem__ __delitem__
Iterator[Tensor]: __iter__
tuple[Tensor, ...]: split chunk unbind
Any: tolist numpy stride type register_hook grad_fn layout new __array__ __array_namespace__ __dlpack__ __dlpack_device__
Any: __divmod__ __rdivmod__
""")
# Of anything else, by its name; functions of _TENSORS return a Tensor where nothing is said, all others what their source shows.
_RESULTS = _names("""
Any: manual_seed with_iteration exact_integer_range largest_below unique nonzero topk kthvalue sort max min median nanmedian
Any: cummax cummin aminmax histogram unravel_index average atleast_1d atleast_2d atleast_3d eigh eig svd qr slogdet lu lstsq
Any: batch_norm_train quantise sort_pairs
Any: get_rng_state set_rng_state register_kl multi_head_attention_forward lu_factor lu_factor_ex inv_ex cholesky_ex solve_ex
Any: unique_all unique_counts unique_inverse histogramdd gradient split broadcast_shapes mode frexp modf divmod std_mean var_mean
Any: register arg_constraints support domain codomain mixture_distribution component_distribution
tuple[Tensor, Tensor]: adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
tuple[Tensor, Tensor]: max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
tuple[Tensor, Tensor]: fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
list[Tensor]: meshgrid broadcast_arrays array_split hsplit vsplit dsplit broadcast_tensors broadcast_all
tuple[Tensor, ...]: chunk unbind unstack tensor_split
Size: batch_shape event_shape forward_shape inverse_shape
bool: has_rsample has_enumerate_support is_discrete bijective allclose equal array_equal is_tensor isdtype is_complex
bool: is_floating_point can_cast is_nonzero is_grad_enabled is_autocast_enabled is_warn_always_enabled __contains__ __eq__ __ne__
bool: are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
int: initial_seed seed event_dim __len__ ndim numel
float: calculate_gain
str: __format__ extra_repr
dtype: get_default_dtype promote_types result_type
Self: __new__ __enter__ __iadd__ expand with_cache
None: __init__ __exit__ __setitem__ __delitem__ __set__ __delattr__ __setattr__
list[float]: get_last_lr get_lr
Iterator[Parameter]: parameters
Iterator[tuple[str, Parameter]]: named_parameters
Iterator[Tensor]: buffers
Iterator[tuple[str, Tensor]]: named_buffers
Iterator[Module]: children modules
Iterator[tuple[str, Module]]: named_children named_modules
dict[str, Any]: state_dict
Parameter: get_parameter
Module: get_submodule
Tensor: log_prob cdf icdf entropy sample rsample mean variance stddev mode log_abs_det_jacobian perplexity get_buffer
""")
_TENSORS = ("_creation _elementwise _more _reductions _searching _shaping linalg fft random _random nn.functional nn.init nn.grad "
            "distributions _pytorch _core.ops").split()
_PARAMETERS = ("probs logits loc scale rate concentration concentration0 concentration1 covariance_matrix scale_tril "
               "precision_matrix").split()
_BY_PATH = {"autograd.grad": "tuple[Tensor, ...]", "distributions.transforms.Transform.inv": "Any",
            "nn.recurrent.RNNBase.forward": "tuple[Tensor, Tensor]", "nn.adaptive.AdaptiveLogSoftmaxWithLoss.forward": "Any",
            "nn.transformer.MultiheadAttention.forward": "tuple[Tensor, Tensor | None]",
            **{f"_core.{name}": "Tensor" for name in "asarray einsum from_dlpack from_numpy full random_key".split()}}


def row_result(name, signature, in_place):
    """Returns what a row of the table returns by one of its signatures."""
    from cotan._torch import return_types
    name = name.removeprefix("Tensor.")
    base, fields = name.rpartition(".")[2], name.replace(".", "_")
    if in_place or base in ("max", "min", "median", "nanmedian") and "dim" not in signature:
        return "Tensor"
    if base == "where" and "other" not in signature:
        return "tuple[Tensor, ...]"
    return _ROWS.get(name) or (f"cotan._torch.return_types.{fields}" if fields in dir(return_types) else "Tensor")


def result(module, path, inferred, is_method, is_public):
    """Returns what a function or property returns, by its name, or by what its source returns."""
    name, place = path.rpartition(".")[2], module.removeprefix("cotan").removeprefix(".")
    if f"{place}.{path}" in _BY_PATH:
        return _BY_PATH[f"{place}.{path}"]
    if module == "cotan._core" and path.startswith("Tensor."):
        return _TENSOR.get(name, "Tensor")
    if place.startswith("nn") and name == "forward":
        return "Tensor"
    known = _RESULTS.get(name)
    if known and (is_method and not (place.startswith("nn") and name in ("mode", "mean")) or
                  not is_method and known not in ("Tensor", "Self", "dict[str, Any]")):
        return known
    if inferred and (inferred != "Self" or is_method):
        return inferred
    if is_method:
        return "Tensor" if place.startswith("distributions") and name in _PARAMETERS else "Any"
    return "Tensor" if is_public and name[:4] != "get_" and any(f"{place}.".startswith(f"{p}.") for p in _TENSORS) else "Any"


# ---------------------------------------------------- what has a type, a base, a signature or a text of its own

ATTRIBUTES = _names("""
int: in_features out_features last_epoch
list[dict[str, Any]]: param_groups
Any: state optimizer histogramdd.bin_edges
Size: shape
""")
BASES = {"cotan._types.Size": ["tuple[int, ...]"], "cotan.utils.data.TensorDataset": ["Dataset[tuple[Tensor, ...]]"],
         "cotan.utils.data.BatchSampler": ["Sampler[list[int]]"], "cotan.utils.data.ChainDataset": ["IterableDataset[Any]"],
         **{f"cotan.utils.data.{name}Sampler": ["Sampler[int]"] for name in ("Sequential", "Random", "SubsetRandom",
                                                                             "WeightedRandom")}}
_SIGNATURES = """
Tensor.__new__(cls, data: Any, dtype: Dtype | None = None) -> Self
dtype.__new__(cls, x: Any) -> Self
Count.__call__(self, dim: None = None) -> Size
Count.__call__(self, dim: int) -> int
Module.__call__(self: Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R
Module.__getattr__(self, name: str) -> Any
Module.register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None
Module.register_parameter(self, name: str, param: Parameter | None) -> None
Module.apply(self, fn: Callable[[Module], Any]) -> Self
Module.to(self, *args: Any, **kwargs: Any) -> Self
Module.train(self, mode: bool = True) -> Self
Module.eval(self) -> Self
Module.float(self) -> Self
Module.double(self) -> Self
Module.half(self) -> Self
Module.bfloat16(self) -> Self
Module.cpu(self) -> Self
Module.cuda(self, device: Device | None = None) -> Self
Module.share_memory(self) -> Self
Module.load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys
Sequential.__init__(self, *args: Any) -> None
Sequential.forward(self, input: Any) -> Tensor
Sequential.__iter__(self) -> Iterator[Module]
Sequential.__getitem__(self, index: int) -> Module
Sequential.__getitem__(self, index: slice) -> Sequential
ModuleList.__iter__(self) -> Iterator[Module]
ModuleList.__getitem__(self, index: int) -> Any
ModuleList.__getitem__(self, index: slice) -> ModuleList
ModuleDict.__getitem__(self, key: str) -> Any
Parameter.__new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self
Parameter.__init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None
Optimizer.step(self, closure: None = None) -> None
Optimizer.step(self, closure: Callable[[], RT]) -> RT
LBFGS.step(self, closure: Callable[[], Any]) -> Any
Dataset.__getitem__(self, index: Any) -> T
Dataset.__add__(self, other: Dataset[T]) -> ConcatDataset[T]
IterableDataset.__iter__(self) -> Iterator[T]
ConcatDataset.__init__(self, datasets: Iterable[Dataset[T]]) -> None
ConcatDataset.__getitem__(self, index: Any) -> T
TensorDataset.__init__(self, *tensors: Tensor) -> None
TensorDataset.__getitem__(self, index: Any) -> tuple[Tensor, ...]
Subset.__init__(self, dataset: Dataset[T], indices: Sequence[int]) -> None
Subset.__getitem__(self, index: Any) -> T
Sampler.__iter__(self) -> Iterator[T]
set_grad_enabled.__call__(self, function: F) -> F
_GradModeDecorator.__call__(self, function: F) -> F
autocast.__call__(self, function: F) -> F
cotan.utils.data.random_split(dataset: Dataset[T], lengths: Sequence[float], generator: Any = None) -> list[Subset[T]]
cotan.nn.utils.clip.clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, \
error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor
"""
SIGNATURES = {}  # name: its signatures
for _line in _SIGNATURES.strip().splitlines():
    _name, _rest = _line.split("(", 1)
    SIGNATURES.setdefault(_name, []).append("(" + _rest)
MEMBERS = {  # class: what its stub has besides
    "cotan.nn.module.Module": "    forward: _t.Callable[..., _t.Any]",
    "cotan.nn.recurrent.LSTM": "    def forward(self, input: _c.Tensor, hx: _t.Any = None) -> "
                               "_b.tuple[_c.Tensor, _b.tuple[_c.Tensor, _c.Tensor]]: ...",
    "cotan.nn.recurrent.LSTMCell": "    def forward(self, input: _c.Tensor, hx: _t.Any = None) -> "
                                   "_b.tuple[_c.Tensor, _c.Tensor]: ..."}
_CORE = """
import cotan._pytorch, cotan._types, cotan.nn.module, cotan.nn.parameter
_AnyDevice: _t.TypeAlias = cotan._pytorch.device
_Count: _t.TypeAlias = cotan._types.Count
_Size: _t.TypeAlias = cotan._types.Size
_Module: _t.TypeAlias = cotan.nn.module.Module
_Parameter: _t.TypeAlias = cotan.nn.parameter.Parameter
_F = _t.TypeVar("_F", bound=_t.Callable[..., _t.Any])
_RT = _t.TypeVar("_RT")
_P = _t.ParamSpec("_P")
_R = _t.TypeVar("_R", covariant=True)
class _Array(_t.Protocol):
    def __array__(self) -> _t.Any: ...
class _Forward(_t.Protocol[_P, _R]):
    def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
_Ints: _t.TypeAlias = _b.int | _t.Sequence[_b.int]
_Number: _t.TypeAlias = _b.float | _b.complex
_Operand: _t.TypeAlias = Tensor | _b.complex | _Array
_Device: _t.TypeAlias = _b.str | _b.int | _AnyDevice
_Dtype: _t.TypeAlias = dtype | _b.type[_t.Any] | _b.str
_Params: _t.TypeAlias = _t.Iterable[Tensor] | _t.Iterable[_b.dict[_b.str, _t.Any]] | _t.Iterable[_b.tuple[_b.str, Tensor]]
"""
PREAMBLES = {"cotan._core": _CORE,  # module: what its stub begins with
             "cotan": "from cotan import distributions as distributions, lm as lm, profiler as profiler, torch as torch"}
