"""Which modules torch has that have no file: those that are another one, and those whose names are there to
be imported and checked against, and say why they do nothing when they are used."""
from collections import Counter, namedtuple

missing = Counter()  # of names of PyTorch that a program met and that are not there

# Modules of cotan that are torch's; others, such as cotan.random, mean something else there.
SHARED = frozenset("accelerator amp autograd backends cuda distributions fft func linalg nn optim profiler utils".split())


def _same(text):
    result = {}
    for line in text.strip().splitlines():
        target, _, names = line.partition(":")
        result.update(dict.fromkeys(names.split(), target.strip()))
    return result


# Modules that are another module here: PyTorch divides its code into more files.
SAME = _same("""
cotan._function: autograd.function
cotan._torch.return_types: return_types
cotan._torch.sparse: sparse
profiler: autograd.profiler
utils.tensorboard: utils.tensorboard.writer utils.tensorboard.summary
compiler: _dynamo _dynamo._trace_wrapped_higher_order_op _dynamo.eval_frame _dynamo.utils _compile
jit: jit.annotations jit._script jit._trace jit.frontend jit._state jit.mobile _jit_internal
fx: fx.graph fx.graph_module fx.node fx.proxy fx.interpreter fx._symbolic_trace fx._pytree fx.traceback fx.immutable_collections
fx: fx.experimental fx.experimental.symbolic_shapes fx.experimental.proxy_tensor fx.passes fx.passes.infra fx.passes.infra.pass_base
onnx: onnx.symbolic_helper onnx.symbolic_opset9 onnx.symbolic_opset11 onnx.symbolic_opset12 onnx.operators onnx.utils
onnx: onnx._internal onnx._internal.exporter
export: export.exported_program export.dynamic_shapes export._trace export.decomp_utils
distributed: distributed.distributed_c10d distributed.nn distributed.nn.functional distributed.utils distributed.constants
distributed: distributed._functional_collectives distributed.elastic distributed.elastic.multiprocessing
distributed: distributed.elastic.multiprocessing.errors distributed.device_mesh
distributed.tensor: distributed._tensor distributed._tensor.experimental distributed.tensor.experimental
distributed.tensor: distributed.tensor.experimental._attention distributed.tensor._utils distributed.tensor.placement_types
distributed.tensor: distributed.tensor.parallel distributed._tensor.placement_types
distributed.fsdp: distributed.fsdp.wrap distributed.fsdp.api distributed.fsdp.fully_sharded_data_parallel
distributed.fsdp: distributed.fsdp.sharded_grad_scaler distributed._composable distributed._composable.fsdp
distributed.checkpoint: distributed.checkpoint.state_dict distributed.checkpoint.format_utils distributed.checkpoint.hf_storage
distributed.checkpoint: distributed.checkpoint.default_planner distributed.checkpoint.optimizer
distributed.checkpoint: distributed.checkpoint.state_dict_loader distributed.checkpoint._consolidate_hf_safetensors
distributed.algorithms: distributed.algorithms.join distributed.algorithms._checkpoint distributed.algorithms.ddp_comm_hooks
distributed.algorithms: distributed.algorithms.ddp_comm_hooks.default_hooks distributed.algorithms.model_averaging
distributed.algorithms: distributed.algorithms.ddp_comm_hooks.post_localSGD_hook distributed.algorithms.model_averaging.averagers
distributed.algorithms: distributed.algorithms._checkpoint.checkpoint_wrapper
distributed.run: distributed.launcher distributed.launcher.api distributed.launch
cuda: cuda.random cuda.memory cuda.streams cuda.graphs cuda.nvtx
xpu: xpu.random xpu.memory xpu.streams
amp: cpu.amp
utils.data: utils.data._utils utils.data._utils.collate utils.data._utils.worker
utils._pytree: utils._cxx_pytree
ao: ao.quantization ao.quantization.fx ao.quantization.fx._decomposed ao.nn ao.nn.quantized quantization
_utils: _prims_common _custom_ops _namedtensor_internals
""")

_ALONE = "the program is one process on one machine"
_GRAPHS = "Cotan records ops as they run and has no graphs of Python code\n  hint: cotan.compile compiles a function or a module"
_INTS = "quantized modules are not there\n  hint: cotan.lm runs quantized language models"

# path: (why its names do nothing, the names)
MODULES = {
    "fx": (_GRAPHS, """CodeGen Graph GraphModule Interpreter Node Proxy Tracer Transformer TracerBase ProxyableClassMeta
        GuardOnDataDependentSymNode PassBase PassResult symbolic_trace replace_pattern make_fx map_arg map_aggregate _copy_attr
        _CodeOnlyModule ShapeEnv free_symbols free_unbacked_symbols Target Argument tree_flatten_spec
        register_pytree_flatten_spec"""),
    "onnx": ("models are not exported to ONNX\n  hint: cotan.export_c writes C code, cotan.save_file safetensors", """ExportOptions
        ONNXProgram ONNXRuntimeOptions OnnxExporterError SymbolicContext dynamo_export export select_model_mode_for_export
        unregister_custom_op_symbolic shape_as_tensor"""),
    "export": (_GRAPHS, """Constraint CustomDecompTable ExportedProgram ExportBackwardSignature ExportGraphSignature
        ModuleCallEntry ModuleCallSignature ShapesCollection UnflattenedModule default_decompositions export
        export_for_training load register_dataclass save unflatten"""),
    "distributed.fsdp": (_ALONE, """BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FlatParameter FullOptimStateDictConfig
        FullStateDictConfig FullyShardedDataParallel LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision
        MixedPrecisionPolicy ModuleWrapPolicy OffloadPolicy OptimStateKeyType ShardedGradScaler ShardedOptimStateDictConfig
        ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings StateDictType UnshardHandle
        always_wrap_policy enable_wrap fully_shard register_fsdp_forward_method size_based_auto_wrap_policy
        transformer_auto_wrap_policy"""),
    "distributed.tensor": (_ALONE, """compute_local_shape_and_global_offset set_rotate_method
        ColwiseParallel DTensor DeviceMesh PrepareModuleInput
        PrepareModuleOutput RowwiseParallel SequenceParallel context_parallel distribute_module
        distribute_tensor init_device_mesh loss_parallel parallelize_module implicit_replication"""),
    "distributed.checkpoint": (_ALONE, """HuggingFaceStorageWriter _EmptyStateDictLoadPlanner _load_state_dict
        consolidate_safetensors_files
        DefaultLoadPlanner DefaultSavePlanner FileSystemReader FileSystemWriter HuggingFaceStorageReader
        Metadata StateDictOptions async_save consolidate_safetensors_files_on_every_rank dcp_to_torch_save get_model_state_dict
        get_optimizer_state_dict get_state_dict load load_state_dict load_sharded_optimizer_state_dict save save_state_dict
        set_model_state_dict set_optimizer_state_dict set_state_dict"""),
    "distributed.algorithms": (_ALONE, """ModelAverager bf16_compress_wrapper fp16_compress_wrapper powerSGD_hook PowerSGDState
        CheckpointImpl CheckpointWrapper Join Joinable JoinHook PeriodicModelAverager apply_activation_checkpointing
        bf16_compress_hook checkpoint_wrapper fp16_compress_hook offload_wrapper PostLocalSGDState post_localSGD_hook
        default_hooks"""),
    "distributed.optim": (_ALONE, "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer"),
    "distributed.pipelining": (_ALONE, "Pipe PipelineStage ScheduleGPipe SplitPoint pipe_split pipeline"),
    "futures": (_ALONE, "Future collect_all"),
    "distributed.rpc": (_ALONE, "init_rpc remote rpc_async rpc_sync shutdown RRef"),
    "distributed.run": (_ALONE, "LaunchConfig elastic_launch get_args_parser launch_agent main run"),
    "numa.binding": (_ALONE, "AffinityMode NumaOptions"), "numa": (_ALONE, ""),
    "nn.attention.flex_attention": (
        "attention of a function of scores is not there\n  hint: scaled_dot_product_attention with a mask",
        "AuxOutput AuxRequest BlockMask and_masks create_block_mask create_mask flex_attention or_masks"),
    "optim.swa_utils": ("averages of weights are not there", """AveragedModel SWALR get_ema_avg_fn get_ema_multi_avg_fn
        get_swa_avg_fn
        get_swa_multi_avg_fn update_bn"""),
    "quasirandom": ("quasi-random sequences are not there\n  hint: torch.rand", "SobolEngine"),
    "package": ("packages of code and weights are not there\n  hint: cotan.save writes the weights", """PackageExporter
        PackageImporter
        PackagingError"""),
    "ao": (_INTS, """DeQuantStub QConfig QuantStub QuantWrapper convert default_observer default_per_channel_weight_observer
        default_weight_observer disable_observer enable_observer fuse_modules fuse_modules_qat get_default_qat_qconfig
        get_default_qconfig prepare prepare_qat quantize_dynamic"""),
    "nested": ("tensors of rows of different lengths are not there\n  hint: torch.nn.utils.rnn.pad_sequence", """as_nested_tensor
        masked_select
        narrow nested_tensor nested_tensor_from_jagged to_padded_tensor"""),
    "masked": ("masked tensors are not there\n  hint: torch.where", "MaskedTensor as_masked_tensor is_masked_tensor masked_tensor"),
    "utils.cpp_extension": ("extensions of PyTorch in C++ are not compiled\n  hint: cotan.library.load compiles an op in C",
                            """BuildExtension
        CUDAExtension CppExtension include_paths library_paths load load_inline"""),
    "utils.flop_counter": ("operations are not counted one by one\n  hint: cotan.profiler.profile() has the FLOPs of each kernel",
                           "FlopCounterMode register_flop_formula"),
    "utils.data.datapipes": ("data pipes are not there\n  hint: IterableDataset", ""),
    "utils.data.datapipes.iter.combinatorics": ("data pipes are not there\n  hint: IterableDataset", "ShufflerIterDataPipe"),
    "utils.data.datapipes.iter": ("data pipes are not there\n  hint: IterableDataset", "IterDataPipe ShufflerIterDataPipe"),
    "utils.data.graph_settings": ("data pipes are not there\n  hint: IterableDataset", "apply_shuffle_settings apply_random_seed"),
    "utils.mobile_optimizer": ("there is no format for mobile devices\n  hint: cotan.export_c writes C code",
                               "optimize_for_mobile"),
    "utils._sympy": (_GRAPHS, ""), "utils._sympy.value_ranges": (_GRAPHS, "ValueRanges"),
    "utils._sympy.numbers": (_GRAPHS, "IntInfinity"),
    "_inductor": (_GRAPHS, "compile list_mode_options list_options"), "_inductor.config": (_GRAPHS, ""),
    "_higher_order_ops.associative_scan": (_GRAPHS, "associative_scan"),
    "_higher_order_ops": (_GRAPHS, "cond while_loop scan flex_attention"),
}


def _no(*args, **options):
    return False


def _nothing(*args, **options):
    return None


def _given(thing, *args, **options):
    return thing


def _decorator(*args, **options):
    return _given


def _enumeration(names):
    """Returns a class whose attributes are these names, numbered."""
    return type("Names", (), {name: number for number, name in enumerate(names.split())})


# Names that do something, of modules above and of further ones.
VALUES = {
    "fx": {"wrap": _given, "is_fx_tracing": _no, "get_proxy_mode": _nothing, "has_side_effect": _given,
           "_USER_PRESERVED_ATTRIBUTES_KEY": "_user_preserved_attributes",
           "statically_known_true": bool, "guard_or_true": bool, "guard_or_false": bool, "immutable_dict": dict,
           "immutable_list": list},
    "onnx": {"is_in_onnx_export": _no, "is_onnxrt_backend_supported": _no, "register_custom_op_symbolic": _nothing,
             "parse_args": _decorator, "OperatorExportTypes": _enumeration("ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH"),
             "TrainingMode": _enumeration("EVAL PRESERVE TRAINING"), "TensorProtoDataType": _enumeration(
                 "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE"), "is_exporting": _no},
    "export": {"Dim": type("Dim", (), {"AUTO": "auto", "DYNAMIC": "dynamic", "STATIC": "static", "__init__": _nothing})},
    "distributed.tensor": {"Shard": namedtuple("Shard", "dim"), "Replicate": namedtuple("Replicate", ""), "Placement": tuple,
                           "Partial": namedtuple("Partial", "reduce_op", defaults=["sum"]),
                           "ParallelStyle": type("ParallelStyle", (), {}),
                           "_StridedShard": namedtuple("_StridedShard", "dim split_factor")},
    "nn.attention.flex_attention": {"_DEFAULT_SPARSE_BLOCK_SIZE": 128, "_score_mod_signature": object,
                                    "_mask_mod_signature": object},
    "backends.cpu": {"get_cpu_capability": lambda: "DEFAULT"},
    "backends.mkl": {"is_available": _no}, "backends.mkldnn": {"is_available": _no, "enabled": False, "deterministic": True},
    "backends.openmp": {"is_available": _no}, "backends.xnnpack": {"enabled": False}, "backends.nnpack": {"is_available": _no},
    "backends.mha": {"get_fastpath_enabled": _no, "set_fastpath_enabled": _nothing}, "backends.cusparselt": {"is_available": _no},
    "backends.opt_einsum": {"is_available": _no, "enabled": False, "strategy": None, "get_opt_einsum": _nothing},
    "backends.quantized": {"engine": "none", "supported_engines": ["none"]},
    "backends.kleidiai": {"is_available": _no}, "backends.xeon": {},
    "version": {"__version__": "2.7.0", "cuda": None, "hip": None, "xpu": None, "debug": False, "git_version": "cotan"},
    "contrib": {}, "distributed._symmetric_memory": {}, "_numpy": {}, "utils.backend_registration": {},
    "utils._triton": {"has_triton": _no, "has_triton_package": _no}, "utils.backcompat": {},
    "_subclasses": {}, "_subclasses.fake_tensor": {"is_fake": _no},
    "classes": {"load_library": _nothing, "loaded_libraries": ()},
}
MODULES.update({path: ("", "") for path in VALUES if path not in MODULES})


def absent(path, name, why):
    """Returns a class that can be named, inherited from and checked against, and that says why it does
    nothing when it is called."""
    def refuse(self, *args, **options):
        missing[f"torch.{path}.{name}"] += 1
        raise NotImplementedError(f"torch.{path}.{name}: {why}")

    return type(name, (), {"__init__": refuse, "__module__": f"torch.{path}", "__class_getitem__": classmethod(_given)})


def contents(path):
    """Returns {name: value} of a module."""
    why, names = MODULES[path]
    return {name: absent(path, name, why) for name in names.split()} | VALUES.get(path, {})
