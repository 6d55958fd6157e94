"""The types that scripts/make-stubs gives by name: of parameters, of results, and of what has a type of its own."""
import re

# Names that stubs write without a prefix's help: they stand in the stub of cotan._core.
ALIASES = {"Ints", "Number", "Operand", "Device", "Dtype", "Size", "Count", "Module", "Parameter", "Params", "Forward", "Device_", "F", "P", "R", "RT"}

# What the table's annotations accept.
ANNOTATIONS = {"Tensor": "Tensor", "int": "int", "ints": "Ints", "bool": "bool", "float": "Number", "str": "str", "dtype": "Dtype",
               "Tensors": "Sequence[Tensor]", "any": "Any", "None": "None"}


def _names(text):
    """Returns {name: type} of lines `type: names`."""
    return {name: line.partition(": ")[0] for line in text.strip().splitlines() for name in line.partition(": ")[2].split()}


_EVERYWHERE = _names("""
Tensor: inputs_ output_
Dtype: dtype
Device: device
bool: requires_grad keepdim keepdims
int: groups num_layers ignore_index blank last_epoch cache_size event_dim T_mult patience cooldown history_size max_iter num_workers
int: total_iters step_size_up decimals dim_feedforward num_encoder_layers num_decoder_layers num_features in_channels out_channels
int: in_features out_features in1_features in2_features hidden_size input_size num_embeddings embedding_dim num_groups num_channels
int: embed_dim num_heads d_model nhead upscale_factor downscale_factor n_classes num_classes num_parameters reinterpreted_batch_ndims
int: num_samples max_eval padding_idx kdim vdim proj_size start_dim end_dim max_epochs step_size T_max T_0 total_steps epochs
int: steps_per_epoch step_size_down divisor_override prefetch_factor num_replicas rank seed chunks _stacklevel axis0 axis1 dim0 dim1
int: diagonal offset
float: lr eps alpha beta margin lambd momentum weight_decay p gamma dampening rho lr_decay label_smoothing dropout layer_norm_eps
float: norm_type max_norm negative_slope clip_value error_if_nonfinite_ min_value max_value dropout_p attn_dropout
""")
_NETWORKS = _names("""
Tensor: input target input1 input2 query key x1 x2 anchor positive negative src tgt memory indices log_probs targets grid logits tensor
Tensor: input_ target_ var in_proj_weight out_proj_weight log_input_
Tensor | None: weight bias mask attn_mask key_padding_mask running_mean running_var pos_weight offsets per_sample_weights bias_k bias_v
Tensor | None: tgt_mask memory_mask src_mask src_key_padding_mask tgt_key_padding_mask memory_key_padding_mask in_proj_bias
Tensor | None: out_proj_bias q_proj_weight k_proj_weight v_proj_weight static_k static_v linear_bias _weight
Ints: kernel_size stride dilation output_padding normalized_shape pad
Ints | str: padding
Any: output_size size scale_factor hx input_lengths target_lengths output_ratio device_ids process_group
bool | None: tgt_is_causal src_is_causal is_causal align_corners recompute_scale_factor size_average reduce
int: k dim
float: threshold
float | None: momentum
Tensor | float: value
Module: module
""")
_ARRAYS = _names("""
Ints: axis dim dims axes
Ints | Tensor | None: repeats
int: k n offset diagonal num
""")
_OPTIMIZERS = _names("""
Params: params
float | Tensor: lr
tuple[float, float]: betas etas step_sizes
Any: optimizer lr_lambda schedulers max_lr base_lr beta2_decay min_lr base_momentum max_momentum gamma_
Sequence[int]: milestones
bool: foreach fused
dict[str, Any]: state_dict param_group defaults
""")
_DISTRIBUTIONS = _names("""
Tensor: value x y
Tensor | float: loc scale probs logits concentration rate temperature low high concentration0 concentration1 df df1 df2 alpha
Tensor: covariance_matrix precision_matrix scale_tril cov_factor cov_diag
bool | None: validate_args
Ints: sample_shape batch_shape
int: dim
Any: total_count p q
""")
_DATA = _names("""
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
""")
_MODULE = _names("""
str: target name prefix
Callable[..., Any]: hook
Module: module
Tensor: tensor
""")
_TABLE = _names("""
Device: device
Tensor | Sequence[Tensor] | None: out
""")


def context(module, path):
    """Returns which names of parameters a function's are."""
    place = module.split(".")[1:2]
    if path.startswith("Module.") or module == "cotan.utils.data":
        return "module" if path.startswith("Module.") else "data"
    if module == "cotan._core" and re.match(r"Tensor\.__(?!eq|ne|contains|setitem|array)", path):
        return "operand"
    return {"nn": "nn", "optim": "optim", "distributions": "distributions"}.get(place[0] if place else "", "arrays")


_BY_CONTEXT = {"nn": _NETWORKS, "optim": _OPTIMIZERS, "distributions": _DISTRIBUTIONS, "arrays": _ARRAYS, "table": _TABLE, "data": _DATA,
               "module": _MODULE, "operand": {"value": "Operand"}}


def parameter(name, where):
    """Returns the type of a parameter by its name, None if the name says nothing."""
    return _BY_CONTEXT[where].get(name) or (None if where == "table" else _EVERYWHERE.get(name))


# ------------------------------------------------------------------------------------------------------- results

_RETURN_TYPES = "cotan._torch.return_types."
_ROWS = {name: result for result, names in {
    "bool": "equal allclose is_same_size is_nonzero is_conj is_neg is_inference is_floating_point is_complex is_signed is_tensor "
            "can_cast is_pinned is_shared is_set_to is_distributed is_coalesced",
    "tuple[Tensor, ...]": "split chunk unbind tensor_split hsplit vsplit dsplit meshgrid broadcast_tensors split_with_sizes "
                          "unsafe_split unsafe_chunk unsafe_split_with_sizes gradient",
    "tuple[Tensor, Tensor, Tensor]": "svd_lowrank pca_lowrank",
    "tuple[Tensor, Tensor]": "lobpcg batch_norm_stats std_mean var_mean",
    "Any": "unique unique_consecutive atleast_1d atleast_2d atleast_3d lu",
    "int": "numel storage_offset data_ptr sparse_dim dense_dim", "dtype": "promote_types result_type",
}.items() for name in names.split()}


def row_result(name, signature, in_place):
    """Returns what a row of the table returns by one of its signatures."""
    base = name.rpartition(".")[2]
    if in_place:
        return "Tensor"
    if base in _ROWS:
        return _ROWS[base]
    fields = name.replace("Tensor.", "").replace(".", "_")
    from cotan._torch import return_types
    if fields in dir(return_types):
        alone = fields in ("max", "min", "median", "nanmedian") and "dim" not in signature
        return "Tensor" if alone else _RETURN_TYPES + fields
    if base == "where" and "input" not in signature and "other" not in signature:
        return "tuple[Tensor, ...]"
    return "Tensor"


# Tensor's own attributes and methods.
_TENSOR = {name: result for result, names in {
    "Size": "shape", "Count": "size", "dtype": "dtype", "Device_": "device", "Tensor | None": "grad",
    "int": "ndim itemsize nbytes numel nelement dim ndimension element_size get_device __len__ __int__ __index__ __hash__ _version "
           "data_ptr storage_offset",
    "float": "__float__", "complex": "__complex__", "str": "__format__",
    "bool": "requires_grad is_leaf is_cuda is_sparse is_sparse_csr is_contiguous __bool__ __contains__ is_pinned is_shared",
    "None": "backward retain_grad __setitem__ __delitem__",
    "Iterator[Tensor]": "__iter__", "tuple[Tensor, ...]": "split chunk unbind hsplit vsplit dsplit tensor_split", "int | float": "item",
    "Any": "tolist numpy stride type register_hook grad_fn layout __array__ __array_namespace__ __dlpack__ __dlpack_device__ "
           "__divmod__ __rdivmod__ new _base _op __reduce_ex__ map_ is_quantized names retains_grad output_nr volatile storage "
           "untyped_storage storage_type __cuda_array_interface__ nonzero unique sort topk max min median mode kthvalue "
           "cummax cummin aminmax nanmedian",
}.items() for name in names.split()}
# Modules whose functions return a Tensor unless something else is said.
_TENSORS = ("_creation _elementwise _more _reductions _searching _shaping linalg fft random _random nn.functional nn.init nn.grad "
            "distributions _pytorch").split()
_RESULTS = {name: result for result, names in {
    "Any": "manual_seed with_iteration exact_integer_range largest_below unique nonzero topk kthvalue sort max min median nanmedian cummax cummin aminmax histogram unravel_index average atleast_1d "
           "atleast_2d atleast_3d eigh eig svd qr slogdet lu lstsq where_ get_rng_state set_rng_state register_kl enumerate_support_ "
           "multi_head_attention_forward lu_factor lu_factor_ex inv_ex cholesky_ex solve_ex ldl_factor ldl_factor_ex unique_all unique_counts "
           "unique_inverse histogram2d histogramdd gradient split broadcast_shapes from_numpy_ einsum_path mode frexp modf divmod "
           "std_mean var_mean nanmode biject_to transform_to base_dist transforms parts tril_indices_ "
           "register arg_constraints support domain codomain "
           "mixture_distribution component_distribution base_transform register_constraint finfo iinfo layout memory_format",
    "tuple[Tensor, Tensor]": "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
                             "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
                             "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
    "list[Tensor]": "meshgrid broadcast_arrays array_split hsplit vsplit dsplit broadcast_tensors broadcast_all",
    "tuple[Tensor, ...]": "chunk unbind unstack tensor_split",
    "Size": "batch_shape event_shape forward_shape inverse_shape",
    "bool": "has_rsample has_enumerate_support is_discrete bijective allclose equal array_equal is_tensor isdtype is_complex "
            "is_floating_point can_cast is_nonzero is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_warn_always_enabled "
            "are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled",
    "int": "initial_seed seed event_dim __len__ ndim numel",
    "float": "calculate_gain get_lr_",
    "dtype": "get_default_dtype promote_types result_type",
    "Self": "__new__ __enter__ __iadd__ expand to_ with_cache",
    "None": "__init__ __exit__ __setitem__ __delitem__ __set__ __delattr__ __setattr__",
    "list[float]": "get_last_lr get_lr",
    "Iterator[Parameter]": "parameters", "Iterator[tuple[str, Parameter]]": "named_parameters",
    "Iterator[Tensor]": "buffers", "Iterator[tuple[str, Tensor]]": "named_buffers",
    "Iterator[Module]": "children modules", "Iterator[tuple[str, Module]]": "named_children named_modules",
    "dict[str, Any]": "state_dict", "Parameter": "get_parameter", "Module": "get_submodule",
    "bool ": "__contains__ __eq__ __ne__ is_alive", "str": "__format__ extra_repr",
    "Tensor": "log_prob cdf icdf entropy sample rsample mean variance stddev mode log_abs_det_jacobian perplexity",
}.items() for name in names.split()}
_BY_PATH = {
    "autograd.grad": "tuple[Tensor, ...]", "Transform.inv": "Any", "inv": "Tensor",
    **dict.fromkeys("RNNBase.forward RNN.forward GRU.forward".split(), "tuple[Tensor, Tensor]"),
    "LSTM.forward": "tuple[Tensor, tuple[Tensor, Tensor]]", "LSTMCell.forward": "tuple[Tensor, Tensor]",
    "MultiheadAttention.forward": "tuple[Tensor, Tensor | None]", "AdaptiveLogSoftmaxWithLoss.forward": "Any",
}


def result(module, path, inferred, cls, is_public):
    """Returns what a function or property returns, by its name, or by what its source returns."""
    name = path.rpartition(".")[2]
    place = module.removeprefix("cotan.").removeprefix("cotan")
    for key in (path, f"{place}.{path}"):
        if key in _BY_PATH:
            return _BY_PATH[key]
    if module == "cotan._core" and path.startswith("Tensor."):
        return _TENSOR.get(name, "Tensor")
    if place.startswith("nn") and name == "forward":
        return "Tensor"
    known = _RESULTS.get(name)
    if known and not (cls is None and known in ("Tensor", "Self", "dict[str, Any]") or place.startswith("nn") and name in ("mode", "mean")):
        return known.strip()
    if inferred and (inferred != "Self" or cls):
        return inferred
    if cls is not None:
        return "Tensor" if place.startswith("distributions") and name in _DISTRIBUTION_TENSORS else "Any"
    return "Tensor" if is_public and any(place == p or place.startswith(p + ".") for p in _TENSORS) and name[:4] != "get_" else "Any"


_DISTRIBUTION_TENSORS = "probs logits loc scale rate concentration concentration0 concentration1 covariance_matrix scale_tril precision_matrix".split()

# -------------------------------------------------------------------- what has a signature, a base or a text of its own

ATTRIBUTES = {"training": "bool", "in_features": "int", "out_features": "int", "param_groups": "list[dict[str, Any]]", "state": "Any",
              "optimizer": "Any", "last_epoch": "int", "shape": "Size", "Count.shape": "Size", "Dataset_": "", "dataset": "Any"}
BASES = {"cotan._types.Size": ["tuple[int, ...]"], "cotan.utils.data.TensorDataset": ["Dataset[tuple[Tensor, ...]]"],
         "cotan.utils.data.SequentialSampler": ["Sampler[int]"], "cotan.utils.data.RandomSampler": ["Sampler[int]"],
         "cotan.utils.data.SubsetRandomSampler": ["Sampler[int]"], "cotan.utils.data.WeightedRandomSampler": ["Sampler[int]"],
         "cotan.utils.data.BatchSampler": ["Sampler[list[int]]"], "cotan.utils.data.ChainDataset": ["IterableDataset[Any]"]}
_MOVES = ["(self, *args: Any, **kwargs: Any) -> Self"]
SIGNATURES = {
    "Tensor.__new__": ["(cls, data: Any, dtype: Dtype | None = None) -> Self"], "dtype.__new__": ["(cls, x: Any) -> Self"],
    "Count.__call__": ["(self, dim: None = None) -> Size", "(self, dim: int) -> int"],
    "Module.__call__": ["(self: Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R"],
    "Module.__getattr__": ["(self, name: str) -> Any"],
    "Module.__setattr__": ["(self, name: str, value: Any) -> None"],
    "Module.register_buffer": ["(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None"],
    "Module.register_parameter": ["(self, name: str, param: Parameter | None) -> None"],
    "Module.apply": ["(self, fn: Callable[[Module], Any]) -> Self"],
    "Module.to": _MOVES, "Module.train": ["(self, mode: bool = True) -> Self"], "Module.eval": ["(self) -> Self"],
    **{f"Module.{name}": ["(self) -> Self"] for name in "float double half bfloat16 cpu share_memory".split()},
    "Module.load_state_dict": ["(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys"],
    "Sequential.__init__": ["(self, *args: Any) -> None"],
    "Sequential.forward": ["(self, input: Any) -> Tensor"],
    "Sequential.__iter__": ["(self) -> Iterator[Module]"], "ModuleList.__iter__": ["(self) -> Iterator[Module]"],
    "Sequential.__getitem__": ["(self, index: int) -> Module", "(self, index: slice) -> Sequential"],
    "ModuleList.__getitem__": ["(self, index: int) -> Any", "(self, index: slice) -> ModuleList"],
    "ModuleDict.__getitem__": ["(self, key: str) -> Any"],
    "Parameter.__new__": ["(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self"],
    "Parameter.__init__": ["(self, data: Tensor | None = None, requires_grad: bool = True) -> None"],
    "Optimizer.step": ["(self, closure: None = None) -> None", "(self, closure: Callable[[], RT]) -> RT"],
    "LBFGS.step": ["(self, closure: Callable[[], Any]) -> Any"],
    "Dataset.__getitem__": ["(self, index: Any) -> T"],
    "IterableDataset.__iter__": ["(self) -> Iterator[T]"],
    "Dataset.__add__": ["(self, other: Dataset[T]) -> ConcatDataset[T]"],
    "ConcatDataset.__init__": ["(self, datasets: Iterable[Dataset[T]]) -> None"],
    "TensorDataset.__init__": ["(self, *tensors: Tensor) -> None"],
    "TensorDataset.__getitem__": ["(self, index: Any) -> tuple[Tensor, ...]"],
    "ConcatDataset.__getitem__": ["(self, index: Any) -> T"], "Subset.__getitem__": ["(self, index: Any) -> T"],
    "Subset.__init__": ["(self, dataset: Dataset[T], indices: Sequence[int]) -> None"],
    "cotan.utils.data.random_split": ["(dataset: Dataset[T], lengths: Sequence[float], generator: Any = None) -> list[Subset[T]]"],
    "Sampler.__iter__": ["(self) -> Iterator[T]"],
    "DataLoader.__iter__": ["(self) -> Iterator[Any]"],
    "cotan.nn.utils.clip.clip_grad_norm_": ["(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, "
                        "error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor"],
}
for _name in "no_grad enable_grad inference_mode set_grad_enabled _GradModeDecorator autocast".split():
    SIGNATURES[f"{_name}.__call__"] = ["(self, function: F) -> F"]
MEMBERS = {"cotan.nn.module.Module": "    forward: _t.Callable[..., _t.Any]",
           "cotan.nn.recurrent.LSTM": "    def forward(self, input: _c.Tensor, hx: _t.Any = None) -> "
                                      "_b.tuple[_c.Tensor, _b.tuple[_c.Tensor, _c.Tensor]]: ..."}
PREAMBLES = {
    "cotan": "from cotan import distributions as distributions, lm as lm, profiler as profiler, torch as torch",
    "cotan._core": """
import cotan._pytorch, cotan._types, cotan.nn.module, cotan.nn.parameter
_Device_: _t.TypeAlias = cotan._pytorch.device
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
_Device: _t.TypeAlias = _b.str | _b.int | _Device_
_Dtype: _t.TypeAlias = dtype | _b.type[_t.Any] | _b.str
_Params: _t.TypeAlias = _t.Iterable[Tensor] | _t.Iterable[_b.dict[_b.str, _t.Any]] | _t.Iterable[_b.tuple[_b.str, Tensor]]
""",
}
