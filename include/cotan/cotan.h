// Cotan: deep learning in C. This header declares the whole core API, in the order of the manual.
#ifndef COTAN_COTAN_H
#define COTAN_COTAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_VERSION "0.1.0-dev" // version of this header

#define CT_API __attribute__((visibility("default")))
#define CT_MUST_USE __attribute__((warn_unused_result))

// ------------------------------------------------------------------------------------ source lines

// A source line of the user's program. Macros pass it to the exported function that they call.
typedef struct ct_loc {
    const char *file; // NULL: unknown
    uint32_t line;
} ct_loc;
#ifdef __cplusplus
#define CT_HERE (ct_loc{__FILE__, __LINE__})
#define CT_NOWHERE (ct_loc{nullptr, 0})
#else
#define CT_HERE ((ct_loc){__FILE__, __LINE__})
#define CT_NOWHERE ((ct_loc){0, 0})
#endif

// ------------------------------------------------------------------------------------------ errors

typedef enum ct_code {
    CT_OK = 0,
#define CT_CODE(number, name, title, hint) CT_E_##name = number,
#include "cotan/errors.inc"
#undef CT_CODE
} ct_code;

CT_API const char *ct_code_title(ct_code code); // a short description; never NULL
CT_API const char *ct_code_hint(ct_code code);  // a hint how to fix it; never NULL
// Returns the entry of `names` (NULL-terminated) that is closest to a misspelt word, or NULL if
// none is close.
CT_API const char *ct_nearest(const char *word, const char *const *names);

// ------------------------------------------------------------------------------------------ dtypes

// Element types. 0 means "the default" wherever an option takes a dtype.
//
// Operands of two dtypes are promoted as in JAX (jax.numpy.promote_types): two integers to the
// smallest integer dtype that holds both, an integer and a float to the float, f16 and bf16 to f32.
// u64 and a signed integer, which no integer dtype holds, become f64. A bare number (ct_f, ct_i)
// takes the dtype of the other operand, except a ct_f beside an integer: both become f32. A bare
// integer that an integer dtype cannot hold, such as 300 or -1 beside u8, is an error. Integers
// wrap. A float that is cast to an integer is truncated towards zero and saturates. Floats of 8 and
// 16 bits are computed in f32, and every op rounds its result to nearest even. Sums and matrix
// products accumulate in f32 and round once, and so do composite functions such as softmax. A cast
// rounds once, but an integer is cast to these floats by way of f32. 8-bit floats are never
// promoted to another float dtype, nor other floats to them: use ct_cast. Dtypes of 4 bits are for
// storage: they can be cast, moved (reshaped, sliced, gathered), kept and assigned, but nothing is
// computed in them. Complex numbers have arithmetic, functions, sums and matrix products, but no
// order: max, sort, less and casts to a dtype that is not complex are errors. Only floats are
// differentiated. The gradient with respect to z = x + iy is the derivative with respect to x minus
// i times the derivative with respect to y, as in JAX. The values of the enum are stable between
// versions, for bindings of other languages: a new dtype is appended.
typedef enum ct_dtype {
    CT_DEFAULT = 0,
    CT_BOOL, // one byte, 0 or 1
    CT_U8,
    CT_U16,
    CT_U32,
    CT_U64,
    CT_I8,
    CT_I16,
    CT_I32,
    CT_I64,
    CT_F16,  // IEEE binary16
    CT_BF16, // the upper half of an f32
    CT_F32,
    CT_F64,
    // 4 bits of exponent, 3 of mantissa, up to 448; no infinity, one NaN (ml_dtypes' e4m3fn).
    CT_F8E4M3,
    CT_F8E5M2, // 5 bits of exponent, 2 of mantissa: the upper half of an f16
    CT_U4,     // two per byte
    CT_I4,     // two per byte
    // Two per byte: 2 bits of exponent, 1 of mantissa, 0 to 6 and -0 to -6 (ml_dtypes' e2m1fn).
    CT_F4,
    CT_C64,  // complex: two f32, the real part first, as in C and NumPy
    CT_C128, // two f64
    CT_DTYPE_COUNT
} ct_dtype;

// The name of a dtype ("f32"), and the bits and bytes of an element; "?" and 0 for a value that is
// not a dtype. The size of a dtype of 4 bits is 0, since an element is less than a byte. The
// elements of a tensor are stored in row-major order without gaps, also at the ends of rows. The
// unused bits of the last byte are 0.
CT_API const char *ct_dtype_name(ct_dtype dtype);
CT_API int ct_dtype_bits(ct_dtype dtype);
CT_API size_t ct_dtype_size(ct_dtype dtype);

// ----------------------------------------------------------------------------------------- tensors

// A tensor: a 64-bit handle, passed by value. A handle whose bits are all zero means "no tensor".
typedef struct ct_tensor {
    uint64_t bits;
} ct_tensor;
#ifdef __cplusplus
#define CT_NONE (ct_tensor{0})
#else
#define CT_NONE ((ct_tensor){0})
#endif

typedef struct ct_named_tensor { // for functions that take several tensors
    const char *name;
    ct_tensor tensor;
} ct_named_tensor;

enum { CT_MAX_RANK = 32 }; // maximum number of axes of a tensor

// A list of sizes or axes. It has a length, so that 0 can be a member.
typedef struct ct_ints {
    int64_t n;
    const int64_t *v; // (n) values; NULL if n is 0
} ct_ints;
// A shape, outermost axis first: CT_DIMS(2, 3). The shape of a scalar is CT_SCALAR. Sizes are 0 or
// more, and their product, with every 0 counted as 1, is below 2^60. In C the list lives as long as
// the enclosing block, in C++ until the end of the expression (cotan::ints can be stored).
#ifdef __cplusplus
#include "cotan/lists.hpp"
#define CT_DIMS(...) (ct__list_of(__VA_ARGS__))
#define CT_SCALAR (ct_ints{0, nullptr})
#else
#define CT_DIMS(...)                                                                               \
    ((ct_ints){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}})
#define CT_SCALAR ((ct_ints){0, 0})
#endif
// A list of axes. A negative axis counts from the end: CT_AXES(-1). An empty list means the
// documented default.
#define CT_AXES(...) CT_DIMS(__VA_ARGS__)
// Any other list of integers: starts, steps.
#define CT_INTS(...) CT_DIMS(__VA_ARGS__)
// The end of the axis, as the stop of a slice.
#define CT_END INT64_MAX
// What a scatter does with an update whose index is out of bounds.
typedef enum ct_index_mode {
    CT_MODE_DROP, // the update is dropped
    CT_MODE_CLIP, // the index is clipped to the nearest element: the first or the last
    // The caller promises that no index is out of bounds: one is an error on device ref and is
    // dropped on others.
    CT_MODE_PROMISE_IN_BOUNDS,
} ct_index_mode;
// The storage layout of a quantised tensor: the quantised values (quants) that ct_quantise makes of
// x (..., K), their scales, and which elements along the last axis share a scale. An element is its
// quant times its scale. Blocks of ggml contain their scales, as in GGUF files, so that they have
// no separate ones.
typedef enum ct_layout {
    CT_LAYOUT_INT8, // quants i8, -127 to 127; scales f32 (..., 1): one per row, which is a channel
    CT_LAYOUT_INT4_32,  // quants i4, -7 to 7; scales f16 (..., K / 32): one per 32 elements
    CT_LAYOUT_INT4_64,  // the same with one scale per 64 elements
    CT_LAYOUT_INT4_128, // the same with one scale per 128 elements
    CT_LAYOUT_INT8_32,  // quants i8, -127 to 127; scales f16 (..., K / 32)
    CT_LAYOUT_FP8,      // quants f8e4m3; scales f32 (..., 1)
    CT_LAYOUT_MXFP4, // quants f4; scales (..., K / 32) as e8m0 in u8: s is 2^(s - 127), 255 is NaN
    CT_LAYOUT_MXFP8, // quants f8e4m3; scales as in MXFP4
    // ggml's blocks u8 (..., K / 32 * 34): an f16 scale and 32 i8 quants; scales u8 (..., 0).
    CT_LAYOUT_Q8_0,
    // ggml's blocks of 18 bytes: an f16 scale and 32 quants of 4 bits minus 8, the first 16 in the
    // low halves of bytes, the others in the high halves.
    CT_LAYOUT_Q4_0,
    CT_LAYOUT_INT4_16, // quants i4, -7 to 7; scales f16 (..., K / 16)
    CT_LAYOUT_INT8_16, // quants i8, -127 to 127; scales f16 (..., K / 16)
    CT_LAYOUT_Q4_K,    // ggml's blocks of 256, only for ct_dequantise: u8 (..., K / 256 * 144)
    CT_LAYOUT_Q5_K,    // the same with blocks of 176 bytes
    CT_LAYOUT_Q6_K,    // the same with blocks of 210 bytes
    // A flag that is combined with a layout of integers or with MXFP4 (CT_LAYOUT_INT4_32 |
    // CT_LAYOUT_INTERLEAVED). It groups 16 rows and interleaves their quants by words of 8 quants
    // of 4 bits or 4 of 8 bits, row by row. For x (..., N, K) the quants are (..., N / 16, K / 8,
    // 16 * 8) or (..., N / 16, K / 4, 16 * 4) and the scales are (..., N / 16, scales of a row,
    // 16). ct_quantised_matmul then reads one contiguous stream, at the bandwidth of memory.
    CT_LAYOUT_INTERLEAVED = 32,
} ct_layout;
// Marks a size (0 <= n < 2^48) as dynamic: it is an argument of the kernels, not a part of them, so
// that a new value never compiles anything. A size that is not marked must be below 2^60, since it
// could be mistaken for a marked one.
#define CT_DYN(n) ((int64_t)((uint64_t)(n) + ((uint64_t)0x5d1e << 48)))

// A number as an option. A value other than 0 can be written as it is, .slope = 0.5. A plain 0
// means "the default", and CT_F(0) is 0.
typedef struct ct_num {
    double value;
    bool given;
} ct_num;
#ifdef __cplusplus
#define CT_F(x) (ct_num{(x), true})
#else
#define CT_F(x) ((ct_num){(x), true})
#endif

// All of these are 0 for a poisoned tensor: it has no axes, no elements and dtype CT_DEFAULT.
CT_API int ct_rank(ct_tensor t);              // number of axes
CT_API int64_t ct_dim(ct_tensor t, int axis); // size of an axis; negative: from the end
CT_API int64_t ct_size(ct_tensor t);          // number of elements
CT_API ct_dtype ct_dtype_of(ct_tensor t);
CT_API bool ct_ok(ct_tensor t); // true unless t is "no tensor", poisoned or stale

// ---------------------------------------------------------------------------- contexts and failure

typedef struct ct_ctx ct_ctx;
typedef enum { CT_LOG_WARNING, CT_LOG_EXPLAIN, CT_LOG_DUMP, CT_LOG_PRINT } ct_log_kind;
typedef void (*ct_log_fn)(ct_log_kind kind, const char *text, void *user);

// Every thread has a current context, which its first call creates. Contexts are independent of
// each other.
// In a child that was forked after the first use of the library there is none: both functions return NULL, and
// ct_failed and ct_error_code report CT_E_FORK. They return NULL, too, if memory is out, and in the function of a
// custom op.
CT_API ct_ctx *ct_ctx_new(void);
// Returns the current context of the thread.
CT_API ct_ctx *ct_ctx_current(void);
// Makes ctx the current context of this thread. Returns the previous one, which may be NULL.
CT_API ct_ctx *ct_ctx_use(ct_ctx *ctx);
// Ends the scopes of the context without running them. An error that was not read is logged. A call
// from the context's own log function, or from a function that it is tracing, frees nothing and is
// an error in the context.
CT_API void ct_ctx_free(ct_ctx *ctx);
// Cancels what the context runs now or, if it runs nothing, what it runs next, with the error
// CT_E_INTERRUPTED. It may be called from any thread and from signal handlers. A run that has not
// assigned a variable yet stops between two launches, or between two slices of a long launch (some
// milliseconds), as if it had never begun; otherwise the run is completed first. The context is
// usable again after ct_error_clear.
CT_API void ct_cancel(ct_ctx *ctx);
// Sets the function that receives the log of the current context; NULL silences the log. The
// default writes to standard error. `fn` may use the library, including this context: messages that
// are logged while a plan is made or runs are delivered after it, in order and one at a time, and
// `text` is valid only during the call. `fn` must not end a scope that it did not begin, free the
// context or call ct_shutdown: each is an error. A context that is freed first delivers what was
// not reported yet, an error or a fault of a device; what goes wrong in it after that is written to
// standard error.
CT_API void ct_set_log(ct_log_fn fn, void *user);
// Sets the device of the current context, which must have no pending work: "cpu" (default), "ref",
// or "opencl" (the first device that OpenCL finds; "opencl:1" is the second; its results have the
// bits of cpu if its arithmetic is IEEE's, and ct_numerics reports it if not). "async:cpu" and
// "async:ref" are the same with memory that the host cannot access. "dry:cpu" and "dry:ref" are dry
// runs: plans are made, but nothing is run, compiled or allocated, and reading a value is an error.
// False: see ct_error_text.
CT_API CT_MUST_USE bool ct_set_device(const char *name);
// From now on plans of the current context wait for their compiled kernels, as with
// COTAN_COMPILE=wait, so that what has run once compiles nothing later.
CT_API void ct_set_synchronous_compilation(void);
// Returns what determines the bits of results on the current context's device besides the inputs: a
// short text that does not depend on sizes, host or threads. It is part of every plan's key and is
// stored in checkpoints. After a plan has called LAPACK it ends with the name and version of that
// library. "" if there is no device.
CT_API const char *ct_numerics(void);
// Sets the number of threads of the process, from the next launch on; it is at most 256, and a
// larger n means 256. 0 means COTAN_THREADS or, without it, the number of cores that the process
// may use. A negative n is an error in the current context and changes nothing. A plan allocates
// its kernels' workspaces for the number of threads that is set when it is made.
CT_API void ct_set_threads(int n);
CT_API int ct_threads(void); // that number

// Sets the maximum number of bytes that the devices of the process may hold: values, variables,
// temporaries and constants of plans, workspaces of kernels. A plan that cannot fit is refused when
// it is made, before it runs or allocates. 0, the initial value, means what the system and the
// process's control group have available.
CT_API void ct_set_memory_limit(uint64_t bytes);
CT_API uint64_t ct_memory_limit(void); // that limit; 0: none was set

// Sets the maximum number of bytes of the plans that a context caches: their launches, constants,
// and kernels that no other plan shares, without compiled code. The least recently used plans are
// evicted first, and an evicted plan is made again when it is needed. The latest plan is never
// evicted. 0, the initial value, means COTAN_PLAN_CACHE or, without it, 256 MB.
CT_API void ct_set_plan_cache(uint64_t bytes);

// The host program's memory functions. The library allocates all of its memory with them, from any
// thread. align is a power of two. realloc is only called for blocks whose alignment is at most
// that of malloc.
typedef struct ct_allocator {
    void *(*alloc)(size_t align, size_t bytes, void *user); // NULL: out of memory
    // NULL: out of memory, and old stays valid.
    void *(*realloc)(void *old, size_t bytes, void *user);
    void (*free)(void *p, void *user);
    void *user;
} ct_allocator;
// Sets the memory functions, before the first use of the library or after ct_shutdown. NULL: those
// of the C library. False: the library has allocated memory already, or one of the three functions is missing.
CT_API CT_MUST_USE bool ct_set_allocator(const ct_allocator *allocator);
// Frees all that the library holds, joins its threads and unloads its kernels. Returns false, with an error
// (CT_E_ARGUMENT) in the current context, and does nothing while there are contexts that ct_ctx_new made, parameter sets, or other threads that
// used the library. The library can be used again afterwards; old handles are stale.
CT_API bool ct_shutdown(void);
CT_API const char *ct_version(void); // version of the library that is linked at run time

// True if the current context has an error. The call marks the error as noticed: an error that was
// never noticed is logged when the context or the process ends. After an error nothing runs until
// ct_error_clear, and for a tensor without a value ct_item returns NaN and ct_data NULL.
CT_API bool ct_failed(void);
// Returns the first error since the last ct_error_clear; "" if there is none.
CT_API const char *ct_error_text(void);
CT_API ct_code ct_error_code(void);
// Clears the error. Work that was pending at the error is dropped: its assignments are not made.
CT_API void ct_error_clear(void);

// Counters of the process, for tests and logs.
typedef struct ct_stats {
    uint64_t plans_made, plans_run;            // plans created; plans executed
    uint64_t kernels_compiled, kernels_loaded; // by the C compiler; from the disk cache
    uint64_t kernels_packed;                   // loaded from files of packed kernels
    uint64_t kernels_pending;                  // queued for the compiler, or being compiled now
    // Kernels launched; those of them that were interpreted, since they were not compiled yet.
    uint64_t launches, launches_interpreted;
    uint64_t arena_bytes, live_bytes; // temporaries of plans; live values and variables
    uint64_t memory, peak_memory;     // bytes that all devices hold now; the peak so far
    uint64_t nodes;                   // nodes recorded in the thread's current context
    uint64_t plan_bytes;              // bytes of the plans that contexts cache
} ct_stats;
CT_API ct_stats ct_get_stats(void);

// The cost of a plan, known before it runs. Bytes and flops of a launch are those of one execution
// of it.
typedef struct ct_plan_launch {
    const char *kernel; // name of the kernel, or "copy"; NULL if an op runs by itself (device ref)
    const char *device; // the device that it runs on
    const char *op;     // the op of the first node that it computes; `here` is its line
    ct_loc here;
    const char *variable;     // name of the largest variable that it reads; NULL: none
    int64_t executions;       // number of executions; more than one in a loop
    uint64_t bytes;           // that it must read and write
    double flops;             // 0 if not known
    uint64_t temporary_bytes; // bytes of the arena that are in use during the launch
} ct_plan_launch;
typedef struct ct_plan_tensor {
    const char *name; // name of the variable, or else the op; NULL: an input
    bool is_variable;
    ct_loc here;
    ct_dtype dtype; // CT_DEFAULT: a workspace between kernels, which has no shape
    int rank;
    const int64_t *dim;
    uint64_t bytes;
    size_t count; // number of tensors of this line with the same shape and dtype
} ct_plan_tensor;
typedef struct ct_plan_cost {
    ct_loc here;              // line of its first root
    uint64_t arena_bytes;     // temporaries, which share the arena; it is kept from step to step
    uint64_t input_bytes;     // variables and other tensors that it reads
    uint64_t result_bytes;    // results, except those that overwrite the value of a variable
    uint64_t constant_bytes;  // scalars and constants
    uint64_t workspace_bytes; // workspaces of kernels, shared by all plans
    uint64_t peak_temporary_bytes;
    uint64_t bytes; // read and written by all launches
    double flops;
    const ct_plan_launch *launches; // (n_launches)
    size_t n_launches, n_kernels;   // launches; distinct kernels
    size_t new_kernels;             // kernels that no earlier plan of the context had
    // Regions that gradients may rematerialise (CT_REMAT_AUTO, blocks of a model); those that they
    // do rematerialise, because memory is short.
    size_t n_remat_regions, n_recomputed;
    const ct_plan_tensor *tensors; // (n_tensors) the largest tensors, largest first
    size_t n_tensors;
} ct_plan_cost;
// Returns the peak number of bytes that the devices of the process have held. For a context with a
// device "dry:cpu" it is what its program would have held.
CT_API uint64_t ct_peak_memory(void);
// Returns the cost of the plan that the current context ran last, also with a device "dry:cpu", on
// which nothing runs. It is valid until the context runs again. NULL: there is none, or out of
// memory.
CT_API const ct_plan_cost *ct_latest_plan(void);

// ------------------------------------------------------------------------------------------ scopes

typedef struct ct_scope {
    ct_ctx *ctx;
    uint64_t ctx_id; // id of the context: the scopes of a context that was freed have ended
    uint32_t depth, serial;
} ct_scope;
// A scope until the end of the enclosing block; scopes can be nested. What is recorded in a scope
// is freed with it, and at its end the pending roots run as one plan. It is a statement, which
// works with break, continue and return. Each iteration of a loop should have a scope of its own;
// without it, what the iterations record accumulates. The log has a hint, once per context, after
// 256 reads that ran something in one scope, or 256 assignments of a variable without a run.
#define CT_SCOPE CT__SCOPE_NAMED(CT__PASTE(ct__scope_, __LINE__))
#define CT__PASTE(a, b) CT__PASTE_NOW(a, b)
#define CT__PASTE_NOW(a, b) a##b
#define CT__SCOPE_NAMED(name)                                                                      \
    ct_scope name __attribute__((cleanup(ct__scope_cleanup), unused)) = ct_scope_begin(CT_HERE)
CT_API ct_scope ct_scope_begin(ct_loc here);
CT_API void ct_scope_end(ct_scope scope, ct_loc here); // ends inner scopes too
CT_API void ct__scope_cleanup(ct_scope *scope);

// Mixed precision until the end of the enclosing block. Products (matmul, conv, attention ...) that
// the current context records compute their f16, bf16 and f32 operands in the dtype, bf16 or f16;
// ops with large values or long sums (exp, softmax, norms, losses ...) compute in f32. The lists
// are PyTorch's; docs/mixed-precision.md has the table. All other ops keep the dtypes of their
// operands. Gradients pass back through the casts, so that those of f32 variables are f32. Blocks
// can be nested; CT_F32 in an inner block turns it off.
#define CT_AUTOCAST(dtype) CT__AUTOCAST_NAMED(CT__PASTE(ct__autocast_, __LINE__), dtype)
#define CT__AUTOCAST_NAMED(name, dtype)                                                            \
    ct_dtype name __attribute__((cleanup(ct__autocast_cleanup), unused)) = ct_autocast_set(dtype)
// The same until the next call, for bindings. Returns the previous dtype. Any other dtype is an
// error and changes nothing.
CT_API ct_dtype ct_autocast_set_at(ct_dtype dtype, ct_loc here);
#define ct_autocast_set(dtype) ct_autocast_set_at((dtype), CT_HERE)
CT_API ct_dtype ct_autocast_dtype(void); // CT_F32: off
CT_API void ct__autocast_cleanup(ct_dtype *before);

// Makes t a root of the plan, and at the end of its scope a leaf of the enclosing scope. Gradients
// that are recorded there treat it as a constant.
CT_API ct_tensor ct_keep_at(ct_tensor t, ct_loc here);
#define ct_keep(t) ct_keep_at((t), CT_HERE)
// Returns x on another device of the context ("cpu", "ref" ... as for ct_set_device), which is
// opened when it is first named: a copy, or x itself if it is on that device already. The gradient
// is copied back to the device of x. An op runs on the device of its operands, and operands on two
// devices are an error. Scalars, constants and random keys can be used on any device, and so can
// what is made of numbers alone (zeros, a range) in the line that uses it. There are at most 15
// devices besides the contexts' own.
CT_API ct_tensor ct_to_at(ct_tensor x, const char *device, ct_loc here);
#define ct_to(x, device) ct_to_at((x), (device), CT_HERE)
// Returns the name of the device of x; NULL: x is not a tensor.
CT_API const char *ct_device_of(ct_tensor x);
// Frees a kept tensor, or any handle, before its scope ends. CT_NONE and stale handles are ignored.
// A variable, which its set owns, and a tensor of another context are errors.
CT_API void ct_drop_at(ct_tensor t, ct_loc here);
#define ct_drop(t) ct_drop_at((t), CT_HERE)
// For bindings alone: keeps a tensor beyond its scope until ct_unpin, which is the same as ct_drop.
CT_API ct_tensor ct_pin_at(ct_tensor t, ct_loc here);
#define ct_pin(t) ct_pin_at((t), CT_HERE)
CT_API void ct_unpin_at(ct_tensor t, ct_loc here);
#define ct_unpin(t) ct_unpin_at((t), CT_HERE)

// ----------------------------------------------------------------------------------------- sources

// Returns a leaf with a copy of the elements of `dtype` at `data`; dims gives their number. A list
// in braces needs parentheses of its own: ct_from(((float[]){1, 2}), CT_F32, CT_DIMS(2)).
CT_API ct_tensor ct_from_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_from(data, dtype, dims) ct_from_at((data), (dtype), (dims), CT_HERE)
// The same, but the values are part of the plan: they can be folded and are hashed. For tables that
// never change.
CT_API ct_tensor ct_const_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_const(data, dtype, dims) ct_const_at((data), (dtype), (dims), CT_HERE)
// Scalar operands: a new value never recompiles anything. ct_f and ct_i take the dtype of the other
// operand. Alone, and as the result of a function, they are f32 and i32 (i64 if the value needs
// it). A ct_f beside an f64 keeps all its digits, but has no gradient. A ct_i that does not fit
// into the integer dtype of the other operand, or of the variable to which it is assigned, is an
// error; sums and other arithmetic of bare numbers alone wrap. A u64 of 2^63 or more is written
// exactly as ct_cast(ct_i((int64_t)value), CT_U64), or as a ct_const if it never changes. ct_scalar
// converts as ct_cast does: 300 becomes 255 in u8.
CT_API ct_tensor ct_f(double value);
CT_API ct_tensor ct_i(int64_t value);
CT_API ct_tensor ct_scalar(double value, ct_dtype dtype);
// The complex number re + i im, which like ct_f has no dtype of its own: alone, and beside dtypes
// that are narrower than f64, it is c64; beside f64 and c128 it is c128, with all its digits.
CT_API ct_tensor ct_c(double re, double im);
// Tensors whose elements are all `value`, a scalar, in its dtype; all 0; all 1. Ops that read them
// need no copy in memory. A value that is not a scalar and sizes that CT_DIMS does not allow are
// errors.
CT_API ct_tensor ct_full_at(ct_tensor value, ct_ints dims, ct_loc here);
#define ct_full(value, dims) ct_full_at((value), (dims), CT_HERE)
CT_API ct_tensor ct_zeros_at(ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_zeros(dtype, dims) ct_zeros_at((dtype), (dims), CT_HERE)
CT_API ct_tensor ct_ones_at(ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_ones(dtype, dims) ct_ones_at((dtype), (dims), CT_HERE)

// A key for ct_random_...: a leaf (2,) u32. The same seed gives the same key, and the same random
// bits, as in JAX.
CT_API ct_tensor ct_random_key_at(int64_t seed, ct_loc here);
#define ct_random_key(seed) ct_random_key_at((seed), CT_HERE)

// ------------------------------------------------------------------------------------------ einsum

// Sum of products of n operands in NumPy's einsum notation: ct_einsum("ij,jk->ik", ab, 2) is a
// matrix product. Each axis of an operand has a letter. Axes with the same letter are multiplied
// element by element, and letters that are not in the result are summed over. A letter that is
// twice in one operand selects its diagonal. `...` means the axes before, after or between the
// letters, which broadcast. Spaces are ignored. Without "->" the result has the ellipsis and then
// the letters that occur once, in alphabetical order, capitals first. All axes with the same letter
// must have the same size.
// Two operands are computed by one ct_contract if a letter is summed over, else by an elementwise
// product; diagonals and permutations of axes are views. With more than two operands, the pair that
// takes the fewest multiplications is contracted first (of equal ones the pair with the smaller
// result, then the first pair; a dynamic size counts as 1024), and so on. Operands are cast to
// their common dtype before; integers wrap in it.
CT_API ct_tensor ct_einsum_at(const char *expression, const ct_tensor *operands, size_t n,
                              ct_loc here);
#define ct_einsum(expression, operands, n) ct_einsum_at((expression), (operands), (n), CT_HERE)

// ---------------------------------------------------------------------------------- reading values

// Runs all pending roots and t (n tensors) as one plan. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_eval_at(const ct_tensor *t, size_t n, ct_loc here);
#define ct_eval(t, n) ct_eval_at((t), (n), CT_HERE)
// Returns the value of a tensor with one element; NaN if it failed.
CT_API CT_MUST_USE double ct_item_at(ct_tensor t, ct_loc here);
#define ct_item(t) ct_item_at((t), CT_HERE)
// Returns the elements on the host in row-major order, valid until the scope of t ends; NULL if it
// failed.
CT_API CT_MUST_USE const void *ct_data_at(ct_tensor t, ct_loc here);
#define ct_data(t) ct_data_at((t), CT_HERE)

// Writes dtype, shape and values as text in NumPy's layout: floats have five digits, and of tensors
// with more than 1000 elements the first and last three along each axis are shown. Writes at most
// size - 1 bytes and a '\0' to `text`. Returns the whole length, or 0 if the value cannot be read.
CT_API size_t ct_format_at(ct_tensor t, char *text, size_t size, ct_loc here);
#define ct_format(t, text, size) ct_format_at((t), (text), (size), CT_HERE)
// Writes the source line, `name` and the same text to the log (ct_set_log), by default standard
// error. ct_print(x) uses the expression x as the name. It reads a value: inside a traced function,
// where there is none, it is an error. False: see ct_error_text.
CT_API bool ct_print_at(ct_tensor t, const char *name, ct_loc here);
#define ct_print(t) ct_print_at((t), #t, CT_HERE)

// --------------------------------------------------------------------------------------- variables

// Variables are owned by a parameter set, independently of scopes, until the set is freed.
typedef struct ct_params ct_params;
CT_API ct_params *ct_params_new(void); // NULL: out of memory
// Waits until plans of other contexts that use the variables have ended. What was recorded with the
// variables is CT_E_OVERWRITTEN from then on. No other thread may be using the set itself
// (ct_params_get, ct_param).
CT_API void ct_params_free(ct_params *params);
// Adds a variable without a value; its first assignment gives it one. Names are unique in a set:
// "h.0.attn.c_attn.weight".
CT_API ct_tensor ct_param_at(ct_params *params, const char *name, ct_dtype dtype, ct_ints dims,
                             ct_loc here);
#define ct_param(params, name, dtype, dims) ct_param_at((params), (name), (dtype), (dims), CT_HERE)
CT_API size_t ct_params_count(const ct_params *params);
CT_API ct_tensor ct_params_get(const ct_params *params, size_t i);
CT_API const char *ct_params_name(const ct_params *params, size_t i);
// CT_NONE: there is no variable of that name.
CT_API ct_tensor ct_params_find(const ct_params *params, const char *name);
// Assigns a value, which is cast to the variable's dtype. Later reads see `value`; reads that were
// recorded before see the older version. Only one context at a time may have a pending assignment
// of a variable. Another context may read it at any time: its plan and one that assigns exclude
// each other. It gets the whole value of the version that was current when the read was recorded,
// or CT_E_OVERWRITTEN if that version is gone. ct_data and ct_item of the variable itself return
// the latest value.
CT_API void ct_assign_at(ct_tensor variable, ct_tensor value, ct_loc here);
#define ct_assign(variable, value) ct_assign_at((variable), (value), CT_HERE)
// A variable is on the device of its first value. These move one variable, or all of a set, to
// another device permanently: pending work runs first, and later reads use the new device. No other
// context may be using them.
CT_API void ct_move_at(ct_tensor variable, const char *device, ct_loc here);
#define ct_move(variable, device) ct_move_at((variable), (device), CT_HERE)
CT_API void ct_params_move_at(ct_params *params, const char *device, ct_loc here);
#define ct_params_move(params, device) ct_params_move_at((params), (device), CT_HERE)

// --------------------------------------------------------------------------------------- gradients

// Gradients of a scalar, of one element and a float, with respect to n tensors or variables that it depends on,
// recorded like any op. Another loss (CT_E_SHAPE, CT_E_DTYPE), a tensor of wrt that is no float (CT_E_DTYPE) and n = 0
// (CT_E_ARGUMENT) are errors at the call. A variable means the version that the loss reads; if it reads two, that is an error.
// grads[i] has the shape and dtype of wrt[i]. Each of the n is held constant for the others: with
// respect to x and z, where z is computed from x, the gradient of x counts only the paths that do
// not pass through z (0 if there are none); with respect to x alone it counts all. A tensor that
// the loss does not depend on is an error when the plan is made. A value has its history until its
// scope ends, whether or not it was read. If the history needs a version of a variable that is
// gone, the error is CT_E_OVERWRITTEN. What has left its scope (ct_keep), or was computed by
// another context, is a constant; the first gradient that reaches one that was computed from a
// variable, without ct_stop_gradient, logs a hint. Until the scope of an assignment ends, the
// version that it made has the history of the value that was assigned. If that value was another variable, the version
// is a copy, which does not depend on that variable.
CT_API void ct_grad_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads,
                       ct_loc here);
#define ct_grad(loss, wrt, n, grads) ct_grad_at((loss), (wrt), (n), (grads), CT_HERE)

// --------------------------------------------------------------------------------------- functions

// A function that is traced: it records out[...] from in[...] and returns. It is called with
// parameters, not with values, so that reading one is an error. It may use tensors from outside,
// which become operands.
typedef void (*ct_fn)(const ct_tensor *in, ct_tensor *out, void *user);

// Records f as one node, which is identified by what its body records. Gradients treat it as one
// node, too: if f computes one of its results from another one, the gradient with respect to the
// latter includes what passes through the former.
CT_API void ct_call_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                       size_t n_out, ct_loc here);
#define ct_call(f, user, in, n_in, out, n_out)                                                     \
    ct_call_at((f), (user), (in), (n_in), (out), (n_out), CT_HERE)

// f with its own reverse-mode rule: vjp gets the operands of f, its results and their cotangents,
// and records the cotangents of the operands. f may not use tensors from outside. Second
// derivatives are those of f. The results are independent of each other, however f computes them:
// only vjp counts.
CT_API void ct_custom_vjp_at(ct_fn f, ct_fn vjp, void *user, const ct_tensor *in, size_t n_in,
                             ct_tensor *out, size_t n_out, ct_loc here);
#define ct_custom_vjp(f, vjp, user, in, n_in, out, n_out)                                          \
    ct_custom_vjp_at((f), (vjp), (user), (in), (n_in), (out), (n_out), CT_HERE)

// f with its own forward-mode rule: jvp gets the operands of f, its results and the tangents of the
// operands (with their shapes and dtypes; zeros for operands that are constant), and records the
// tangents of the results, which must be linear in those of the operands. Reverse mode transposes
// the rule. f and jvp may not use tensors from outside.
CT_API void ct_custom_jvp_at(ct_fn f, ct_fn jvp, void *user, const ct_tensor *in, size_t n_in,
                             ct_tensor *out, size_t n_out, ct_loc here);
#define ct_custom_jvp(f, jvp, user, in, n_in, out, n_out)                                          \
    ct_custom_jvp_at((f), (jvp), (user), (in), (n_in), (out), (n_out), CT_HERE)

// Compares gradients of f with central differences in f64. The float operands in `in` are cast to
// f64, the results are summed with random weights to one number, and for some elements of each
// operand (first those whose gradient is not finite) the slope of that number must equal the
// gradient. order 2 checks the gradient of the gradient as well. If they differ and f has a kink,
// is not finite or is steep there (the differences with a step and with half of it disagree), up to
// two smaller steps are tried. After the last the element is skipped, unless f is only steep and
// the gradient is off by more than 1 % and by more than 16 times that disagreement. A NaN is wrong
// wherever the differences are finite, and so is an infinite gradient, unless the slope grows as
// the step shrinks.
// f is called, not traced: it may read values. Returns false, with an error that names the operand
// (from 1), the element and both numbers, if a gradient is wrong, and also if all elements of an
// operand that were tried were skipped.
typedef struct ct_check_grad_args {
    ct_fn f;
    void *user;
    const ct_tensor *in;
    size_t n_in, n_out; // n_out 0: one result
    int order;          // 0: 1
    int64_t samples;    // elements that are checked of each operand; 0: 16
    double tolerance;   // relative; 0: 1e-6
    int64_t seed;       // of the weights and the choice of elements
    ct_loc here;
} ct_check_grad_args;
CT_API CT_MUST_USE bool ct_check_grad_with(ct_check_grad_args args);
#define ct_check_grad(...) ct_check_grad_with((ct_check_grad_args){__VA_ARGS__, .here = CT_HERE})

// ------------------------------------------------------------------------------ loops and branches

// Loops and branches are nodes: their functions are traced once, as by ct_call, and the device runs
// them as often as needed without returning to the host program. The plan does not depend on the
// number of iterations. Their functions may use tensors from outside; assigning, keeping and
// reading are errors in them. All have derivatives of any order, except ct_while in reverse mode.
// Under ct_vmap a while loop runs until every element of the batch is done, and elements that are
// done do not change; a branch whose predicate or index is batched computes all branches and
// selects.

// Loops over axis 0 of xs: body gets the carried tensors and element i of every x, and returns the
// next carried tensors (same types) and element i of every y. length is needed if n_xs is 0 (an
// iteration count that may be 0 needs ct_fori). It is dynamic if it is marked by CT_DYN or if axis
// 0 of an x is. (jax.lax.scan)
typedef struct ct_scan_args {
    ct_fn body;
    void *user;
    const ct_tensor *carry;
    size_t n_carry;
    const ct_tensor *xs;
    size_t n_xs, n_ys;
    int64_t length;
    bool reverse; // from the last element to the first; ys keep the order of xs
    ct_loc here;
} ct_scan_args;
// carry_out: n_carry tensors; ys: n_ys tensors.
CT_API void ct_scan_with(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys);
#define ct_scan(carry_out, ys, ...)                                                                \
    ct_scan_with((ct_scan_args){__VA_ARGS__, .here = CT_HERE}, (carry_out), (ys))

// Prefix scan of the elements of xs along an axis (default 0) with f: element i of the results is
// x0 . x1 . ... . xi, and with reverse the product from xi to the last element. f is traced once:
// it gets an element of each x (without the axis), then as many neighbouring elements, and returns
// as many tensors of the same types. f must be associative, since elements are combined in another
// order than that of the axis: in a number of rounds that is the logarithm of the size of the axis,
// each of which combines all elements at once. A dynamic axis has one plan for each size.
// (jax.lax.associative_scan)
typedef struct ct_associative_scan_args {
    ct_fn f;
    void *user;
    const ct_tensor *xs;
    size_t n_xs;
    int64_t axis; // a negative axis counts from the end
    bool reverse;
    ct_loc here;
} ct_associative_scan_args;
// out: n_xs tensors, with the types of xs.
CT_API void ct_associative_scan_with(ct_associative_scan_args args, ct_tensor *out);
#define ct_associative_scan(out, ...)                                                              \
    ct_associative_scan_with((ct_associative_scan_args){__VA_ARGS__, .here = CT_HERE}, (out))

// Loops while cond, which gets the carried tensors, returns true (one bool); body returns the next
// carried tensors (same types). There is no gradient in reverse mode, since the number of
// iterations is not known before it runs. ct_cancel ends an endless loop. (jax.lax.while_loop)
typedef struct ct_while_args {
    ct_fn cond, body;
    void *user;
    const ct_tensor *carry;
    size_t n_carry;
    ct_loc here;
} ct_while_args;
// carry_out: n_carry tensors.
CT_API void ct_while_with(ct_while_args args, ct_tensor *carry_out);
#define ct_while(carry_out, ...)                                                                   \
    ct_while_with((ct_while_args){__VA_ARGS__, .here = CT_HERE}, (carry_out))

// Loops for i from lower to upper - 1: body gets i, one i32 (i64 if a bound is wider), then the
// carried tensors, and returns the next carried tensors. If both bounds are numbers it is a scan,
// which has gradients in both modes. A bound that is only known at run time is a tensor, one
// integer, in lower_value or upper_value; then it is a while loop. (jax.lax.fori_loop)
typedef struct ct_fori_args {
    ct_fn body;
    void *user;
    int64_t lower, upper; // CT_DYN(upper): one plan for every number
    ct_tensor lower_value, upper_value;
    const ct_tensor *carry;
    size_t n_carry;
    ct_loc here;
} ct_fori_args;
// carry_out: n_carry tensors.
CT_API void ct_fori_with(ct_fori_args args, ct_tensor *carry_out);
#define ct_fori(carry_out, ...)                                                                    \
    ct_fori_with((ct_fori_args){__VA_ARGS__, .here = CT_HERE}, (carry_out))

// The results of `then` if pred, one bool, is true, else those of `otherwise`, with the same
// operands. Both return results of the same types. Only one of them runs. (jax.lax.cond)
typedef struct ct_cond_args {
    ct_tensor pred;
    ct_fn then, otherwise;
    void *user;
    const ct_tensor *in;
    size_t n_in, n_out;
    ct_loc here;
} ct_cond_args;
// out: n_out tensors.
CT_API void ct_cond_with(ct_cond_args args, ct_tensor *out);
#define ct_cond(out, ...) ct_cond_with((ct_cond_args){__VA_ARGS__, .here = CT_HERE}, (out))

// Runs branch `index`, one integer, of functions whose results have the same types. An index that
// is out of range is clamped. (jax.lax.switch)
typedef struct ct_switch_args {
    ct_tensor index;
    const ct_fn *branches;
    size_t n_branches;
    void *user;
    const ct_tensor *in;
    size_t n_in, n_out;
    ct_loc here;
} ct_switch_args;
// out: n_out tensors.
CT_API void ct_switch_with(ct_switch_args args, ct_tensor *out);
#define ct_switch(out, ...) ct_switch_with((ct_switch_args){__VA_ARGS__, .here = CT_HERE}, (out))
// -------------------------------------------------------------------------------------- transforms

// Transforms of functions. Each traces f as ct_call does and records one node, which is expanded
// when the plan is made. They can be nested in any order and to any depth. Tensors from outside
// that f uses are constants: only the n_in operands are differentiated or batched.
//
// A tangent or cotangent has the shape and dtype of the tensor to which it belongs. CT_NONE means
// 0; it is also the tangent of integers and bools, which have none.

// f, and the tangents of its results for tangents of its operands (forward mode).
CT_API void ct_jvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                      size_t n_out, const ct_tensor *tangents, ct_tensor *out_tangents,
                      ct_loc here);
#define ct_jvp(f, user, in, n_in, out, n_out, tangents, out_tangents)                              \
    ct_jvp_at((f), (user), (in), (n_in), (out), (n_out), (tangents), (out_tangents), CT_HERE)

// f, and the gradients of the sum of its results times the cotangents, one per operand (reverse
// mode); zeros if no result depends on the operand.
CT_API void ct_vjp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                      size_t n_out, const ct_tensor *cotangents, ct_tensor *grads, ct_loc here);
#define ct_vjp(f, user, in, n_in, out, n_out, cotangents, grads)                                   \
    ct_vjp_at((f), (user), (in), (n_in), (out), (n_out), (cotangents), (grads), CT_HERE)

// f, and the gradients of its first result, one float, with respect to every operand. The other
// results are auxiliary: statistics, a state. A gradient that is not used costs nothing.
CT_API void ct_value_and_grad_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                                 ct_tensor *out, size_t n_out, ct_tensor *grads, ct_loc here);
#define ct_value_and_grad(f, user, in, n_in, out, n_out, grads)                                    \
    ct_value_and_grad_at((f), (user), (in), (n_in), (out), (n_out), (grads), CT_HERE)

// f, and its derivative at `in` as a linear map, for many tangents: the intermediate values of f
// that the map needs are computed once per plan, however often it is used. The map is valid until
// the scope in which it was made ends. (jax.linearize)
typedef struct ct_linear_map {
    ct_tensor out; // first result of f
    size_t n_in, n_out;
} ct_linear_map;
CT_API ct_linear_map ct_linearize_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                                     ct_tensor *out, size_t n_out, ct_loc here);
#define ct_linearize(f, user, in, n_in, out, n_out)                                                \
    ct_linearize_at((f), (user), (in), (n_in), (out), (n_out), CT_HERE)
// Applies the map to tangents (n_in), as ct_jvp does, and its transpose to cotangents (n_out), as
// ct_vjp does.
CT_API void ct_linear_apply_at(ct_linear_map map, const ct_tensor *tangents,
                               ct_tensor *out_tangents, ct_loc here);
#define ct_linear_apply(map, tangents, out_tangents)                                               \
    ct_linear_apply_at((map), (tangents), (out_tangents), CT_HERE)
CT_API void ct_linear_transpose_at(ct_linear_map map, const ct_tensor *cotangents, ct_tensor *grads,
                                   ct_loc here);
#define ct_linear_transpose(map, cotangents, grads)                                                \
    ct_linear_transpose_at((map), (cotangents), (grads), CT_HERE)

// f, and the derivative of each result with respect to each operand: jacobians[i * n_in + k], of
// result i and operand k, has the sizes of the result followed by those of the operand. jacfwd runs
// over the elements of the operands, jacrev over those of the results, as one batch; the former
// suits few inputs, the latter few outputs. Results must be floats. The Jacobian of an operand that
// is not a float is CT_NONE.
CT_API void ct_jacfwd_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                         size_t n_out, ct_tensor *jacobians, ct_loc here);
#define ct_jacfwd(f, user, in, n_in, out, n_out, jacobians)                                        \
    ct_jacfwd_at((f), (user), (in), (n_in), (out), (n_out), (jacobians), CT_HERE)
CT_API void ct_jacrev_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                         size_t n_out, ct_tensor *jacobians, ct_loc here);
#define ct_jacrev(f, user, in, n_in, out, n_out, jacobians)                                        \
    ct_jacrev_at((f), (user), (in), (n_in), (out), (n_out), (jacobians), CT_HERE)
// f, and its second derivatives: hessians[(i * n_in + j) * n_in + k], of result i by operands j and
// k, has the sizes of all three. (jacfwd of jacrev.)
CT_API void ct_hessian_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                          size_t n_out, ct_tensor *hessians, ct_loc here);
#define ct_hessian(f, user, in, n_in, out, n_out, hessians)                                        \
    ct_hessian_at((f), (user), (in), (n_in), (out), (n_out), (hessians), CT_HERE)
// The Hessian of the only result of f, one float, times vectors, one per operand: products[k] has
// the type of operand k. It costs a few times what f costs, whatever the sizes. (Forward over
// reverse.)
CT_API void ct_hvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                      const ct_tensor *vectors, ct_tensor *products, ct_loc here);
#define ct_hvp(f, user, in, n_in, vectors, products)                                               \
    ct_hvp_at((f), (user), (in), (n_in), (vectors), (products), CT_HERE)

// Maps f over batches: operand i loses its axis in_axes[i], and result i gets a batch axis at
// out_axes[i] (negative: from the end). An operand with CT_NO_AXIS is the same for all elements,
// and a result with it must be. An empty list means axis 0 of all. A random key is an operand like
// any other: if it is batched, each element draws its own numbers. Assignments and ct_keep are
// errors in f.
#define CT_NO_AXIS INT64_MIN
typedef struct ct_vmap_args {
    ct_fn f;
    void *user;
    const ct_tensor *in;
    size_t n_in;
    ct_tensor *out;
    size_t n_out;
    ct_ints in_axes, out_axes;
    int64_t size; // size of the batch; needed if no operand has it
    ct_loc here;
} ct_vmap_args;
CT_API void ct_vmap_with(ct_vmap_args args);
#define ct_vmap(...) ct_vmap_with((ct_vmap_args){__VA_ARGS__, .here = CT_HERE})

// f as ct_call, but a gradient saves only the values of it that the policy names, and the operands;
// it recomputes the others where it needs them: less memory for more work. The results are the
// same. Forward mode and f alone compute nothing twice. (jax.checkpoint)
typedef enum ct_remat_policy {
    CT_REMAT_SAVE_NOTHING,    // save only the operands
    CT_REMAT_SAVE_EVERYTHING, // save all that the gradient needs, as ct_call does
    CT_REMAT_SAVE_MATMULS,    // save the results of matrix products
    CT_REMAT_SAVE_NAMED,      // save the values that ct_remat_name gave one of .names
    // Save everything; if the plan does not fit into the available memory (ct_set_memory_limit),
    // save nothing of as few such functions as it takes.
    CT_REMAT_AUTO,
} ct_remat_policy;
typedef struct ct_remat_args {
    ct_fn f;
    void *user;
    const ct_tensor *in;
    size_t n_in;
    ct_tensor *out;
    size_t n_out;
    ct_remat_policy policy;
    const char *const *names; // (n_names)
    size_t n_names;
    ct_loc here;
} ct_remat_args;
CT_API void ct_remat_with(ct_remat_args args);
#define ct_remat(...) ct_remat_with((ct_remat_args){__VA_ARGS__, .here = CT_HERE})
// Returns t with a name that an enclosing ct_remat may list.
CT_API ct_tensor ct_remat_name_at(ct_tensor t, const char *name, ct_loc here);
#define ct_remat_name(t, name) ct_remat_name_at((t), (name), CT_HERE)

// ----------------------------------------------------------------------------------------- metrics

// Records a named metric. It is a root of every plan, whether or not it is read; the latest value
// is stored by name. Reading one that is pending runs what is pending, as ct_item does.
CT_API void ct_metric_at(const char *name, ct_tensor t, ct_loc here);
#define ct_metric(name, t) ct_metric_at((name), (t), CT_HERE)
CT_API CT_MUST_USE double ct_metric_value(const char *name); // NaN: there is none, or it failed

// ----------------------------------------------------------------------------------- ahead of time

// Writes the pending work as one C file and its header, PATH.c and PATH.h; the last part of the
// path is the name of the function that runs it. The code needs libm alone, no library, no memory
// besides its arguments and no threads, and gives the same bits. Its struct has one pointer per
// variable, input and result (a kept tensor, a metric), and the scalars. It is called after a step
// is recorded and before its scope ends, which runs the step as usual; with device "dry:cpu"
// nothing runs and nothing is compiled. Each file is written completely or not at all; a PATH.c
// with the PATH.h of another plan does not compile. False: see ct_error_text.
typedef struct ct_named_list { // CT_NAMED_LIST({"images", x}, {"loss", loss})
    const ct_named_tensor *v;
    size_t n;
} ct_named_list;
#define CT_NAMED_LIST(...)                                                                         \
    ((ct_named_list){(const ct_named_tensor[]){__VA_ARGS__},                                       \
                     sizeof((const ct_named_tensor[]){__VA_ARGS__}) / sizeof(ct_named_tensor)})
typedef struct ct_compile_args {
    const char *path; // "out/mnist_step"
    // Names of pending tensors. The others are named after their variable or metric, numbers of an
    // optimizer after its options (beta1, eps), and the rest are numbered.
    ct_named_list names;
    ct_named_list optional_names; // names of tensors that need not be part of it
    // Values of its variables that the plan only reads are embedded in the file.
    const ct_params *embed_params;
    bool embed_all_params; // the same for all variables
    ct_loc here;
} ct_compile_args;
CT_API CT_MUST_USE bool ct_compile_with(ct_compile_args args);
#define ct_compile(...) ct_compile_with((ct_compile_args){__VA_ARGS__, .here = CT_HERE})

#ifdef __cplusplus
}
#endif

#include "cotan/ops.h"

#endif
