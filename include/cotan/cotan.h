// Cotan: deep learning in C. This header is the library's whole face, in the order of its manual.
#ifndef COTAN_COTAN_H
#define COTAN_COTAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_VERSION "0.1.0-dev" // of this header

#define CT_API __attribute__((visibility("default")))
#define CT_MUST_USE __attribute__((warn_unused_result))

// ------------------------------------------------------------------------------------ source lines

// A line of the user's program. Macros pass it to the exported function behind them.
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
#define CT_CODE(number, name, title, fix) CT_E_##name = number,
#include "cotan/errors.inc"
#undef CT_CODE
} ct_code;

CT_API const char *ct_code_title(ct_code code); // a few words, never NULL
CT_API const char *ct_code_fix(ct_code code);   // what mends it, never NULL
// The nearest of `names` (NULL-terminated) to a misspelt word, or NULL if none is near.
CT_API const char *ct_nearest(const char *word, const char *const *names);

// ------------------------------------------------------------------------------------------ dtypes

// Element types. 0 means "the default" wherever an option takes a dtype.
//
// Operands of two dtypes meet where JAX's do (jax.numpy.promote_types): integers in the smallest one
// that holds both, an integer and a float in the float, f16 and bf16 in f32, u64 and a signed
// integer, which no integer holds, in f64. A bare number (ct_f, ct_i) takes the other's dtype, but a
// ct_f that of integers: both become f32. A bare integer that an integer dtype cannot hold, such as
// 300 or -1 beside u8, is an error. Integers wrap; what becomes an integer from a float is
// cut towards zero and saturates. Floats of 8 and 16 bits are computed in f32, and every op rounds
// its result to nearest even; sums and products of matrices add up in f32 and round once, and so do
// functions that are made of others, such as softmax. A cast rounds once, but integers reach these
// floats by way of f32. 8-bit floats promote to no other float, nor do others to them: ct_cast one.
// Dtypes of 4 bits are storage: they are cast, moved about (shapes, slices, gathers), kept and
// assigned, and nothing is computed in them. Complex numbers have arithmetic, functions, sums and
// matrix products, but no order: to max, sort or less they are an error, as is a cast to what is not
// complex. What is differentiated is a float; with respect to z = x + iy its gradient is the slope
// along x less i times that along y, as in JAX. The numbers are kept from version to version, for other
// languages: a new dtype goes to the end.
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
    CT_F8E4M3, // 4 bits of exponent, 3 of mantissa, to 448; no infinity, one NaN (ml_dtypes' e4m3fn)
    CT_F8E5M2, // 5 and 2: the upper half of an f16
    CT_U4,     // two a byte
    CT_I4,     // two a byte
    CT_F4, // two a byte: 2 bits of exponent, 1 of mantissa, 0 to 6 and -0 to -6 (ml_dtypes' e2m1fn)
    CT_C64,  // complex: two f32, the real part first, as C's and NumPy's
    CT_C128, // two f64
    CT_DTYPE_COUNT
} ct_dtype;

// "f32", bits and bytes an element; "?" and 0 for a value that is no dtype. Of 4 bits an element has no
// number of bytes: 0. A tensor's elements lie in row-major order one behind the other, without gaps
// at the ends of rows; where their bits do not fill the last byte, the rest of it is 0.
CT_API const char *ct_dtype_name(ct_dtype dtype);
CT_API int ct_dtype_bits(ct_dtype dtype);
CT_API size_t ct_dtype_size(ct_dtype dtype);

// ----------------------------------------------------------------------------------------- tensors

// A tensor: one 64-bit word, passed by value. All bits zero means "no tensor".
typedef struct ct_tensor {
    uint64_t bits;
} ct_tensor;
#ifdef __cplusplus
#define CT_NONE (ct_tensor{0})
#else
#define CT_NONE ((ct_tensor){0})
#endif

typedef struct ct_named { // for functions that take several
    const char *name;
    ct_tensor tensor;
} ct_named;

enum { CT_MAX_RANK = 32 }; // most axes of a tensor

// A list of sizes or axes; counted, so that 0 can be a member.
typedef struct ct_ints {
    int64_t n;
    const int64_t *v; // n values; NULL when n is 0
} ct_ints;
// A shape, outermost axis first: CT_DIMS(2, 3); a scalar's is CT_SCALAR. Sizes are 0 or more, and
// their product, a 0 counted as 1, is below 2^60. In C the list lives as long as the block around
// it, in C++ to the end of the expression (cotan::ints can be kept).
#ifdef __cplusplus
#include "cotan/lists.hpp"
#define CT_DIMS(...) (ct__list_of(__VA_ARGS__))
#define CT_SCALAR (ct_ints{0, nullptr})
#else
#define CT_DIMS(...)                                                                               \
    ((ct_ints){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}})
#define CT_SCALAR ((ct_ints){0, 0})
#endif
// A list of axes; negative ones count from the end: CT_AXES(-1). Empty: the documented default.
#define CT_AXES(...) CT_DIMS(__VA_ARGS__)
// Any other list of whole numbers: starts, steps.
#define CT_INTS(...) CT_DIMS(__VA_ARGS__)
// As the stop of a slice: the end of the axis.
#define CT_END INT64_MAX
// What becomes of an update of a scatter whose index lies outside of the axis.
typedef enum ct_index_mode {
    CT_MODE_DROP,              // it is left out
    CT_MODE_CLIP,              // it goes to the nearest element: the first or the last
    CT_MODE_PROMISE_IN_BOUNDS, // there is none: on device ref one is an error, else it is left out
} ct_index_mode;
// How a quantised tensor is laid out: the codes that ct_quantise makes of x (..., K), their scales, and
// which elements along the last axis share one. A number is its code times its scale. Blocks of ggml hold
// theirs, as GGUF files have them, so that there are none apart.
typedef enum ct_layout {
    CT_LAYOUT_INT8,     // codes i8, -127 to 127; scales f32 (..., 1): one a row, which is a channel
    CT_LAYOUT_INT4_32,  // codes i4, -7 to 7; scales f16 (..., K / 32): one for 32 elements
    CT_LAYOUT_INT4_64,  // the same with one for 64
    CT_LAYOUT_INT4_128, // the same with one for 128
    CT_LAYOUT_INT8_32,  // codes i8, -127 to 127; scales f16 (..., K / 32)
    CT_LAYOUT_FP8,      // codes f8e4m3; scales f32 (..., 1)
    CT_LAYOUT_MXFP4, // codes f4; scales (..., K / 32) as e8m0 in u8: s is 2^(s - 127), 255 is NaN
    CT_LAYOUT_MXFP8, // codes f8e4m3; scales as of MXFP4
    CT_LAYOUT_Q8_0,  // ggml's blocks: u8 (..., K / 32 * 34), f16 and 32 of i8; scales u8 (..., 0)
    CT_LAYOUT_Q4_0, // the same of 18 bytes, f16 and 32 codes of 4 bits less 8: 16 low, 16 high halves
    CT_LAYOUT_INT4_16, // codes i4, -7 to 7; scales f16 (..., K / 16)
    CT_LAYOUT_INT8_16, // codes i8, -127 to 127; scales f16 (..., K / 16)
    CT_LAYOUT_Q4_K,    // ggml's blocks of 256, for ct_dequantise alone: u8 (..., K / 256 * 144)
    CT_LAYOUT_Q5_K,    // the same of 176 bytes
    CT_LAYOUT_Q6_K,    // the same of 210 bytes
    // With one of whole numbers, or MXFP4 (CT_LAYOUT_INT4_32 | CT_LAYOUT_GROUPED): 16 rows are a group, of which the
    // codes of a word, 8 of 4 bits or 4 of 8, lie together, row by row. Of x (..., N, K) codes are (..., N / 16,
    // K / 8, 16 * 8) or (..., N / 16, K / 4, 16 * 4), scales (..., N / 16, scales of a row, 16). What
    // ct_quantised_matmul reads is one stream then, as quick as memory is.
    CT_LAYOUT_GROUPED = 32,
} ct_layout;
// A size (0 <= n < 2^48) that is an argument of the kernels, not a part of them: a new value never
// compiles. No size that is not marked so may be 2^60 or more: it could look as if it were.
#define CT_DYN(n) ((int64_t)((uint64_t)(n) + ((uint64_t)0x5d1e << 48)))

// A number as an option. One other than 0 may stand as it is, .slope = 0.5; without more 0 means
// "the default", and CT_F(0) is 0.
typedef struct ct_num {
    double value;
    bool given;
} ct_num;
#ifdef __cplusplus
#define CT_F(x) (ct_num{(x), true})
#else
#define CT_F(x) ((ct_num){(x), true})
#endif

// Of a poisoned tensor all are 0: it has no axes, no elements and dtype CT_DEFAULT.
CT_API int ct_rank(ct_tensor t);              // number of axes
CT_API int64_t ct_dim(ct_tensor t, int axis); // size of an axis; negative: from the end
CT_API int64_t ct_size(ct_tensor t);          // number of elements
CT_API ct_dtype ct_dtype_of(ct_tensor t);
CT_API bool ct_ok(ct_tensor t); // neither "no tensor" nor poisoned nor stale

// ---------------------------------------------------------------------------- contexts and failure

typedef struct ct_ctx ct_ctx;
typedef enum { CT_LOG_WARNING, CT_LOG_EXPLAIN, CT_LOG_DUMP, CT_LOG_PRINT } ct_log_kind;
typedef void (*ct_log_fn)(ct_log_kind kind, const char *text, void *user);

// A thread has a current context; the first call makes one. Contexts are independent of each other.
CT_API ct_ctx *ct_ctx_new(void); // NULL: no memory
// The thread's; NULL: no memory.
CT_API ct_ctx *ct_ctx_current(void);
// Makes it this thread's; returns the one before, maybe NULL.
CT_API ct_ctx *ct_ctx_use(ct_ctx *ctx);
// Ends its scopes without running them; an unread error is logged. While its log function, or a
// function that it traces, has not returned: nothing but an error in the context.
CT_API void ct_ctx_free(ct_ctx *ctx);
// From any thread, or a signal handler: what the context runs, or else would run next, ends with
// the error CT_E_INTERRUPTED. A run that has not changed a variable yet stops between two launches,
// or two pieces of a long one (some milliseconds), as if it had never begun; one that has goes to
// its end first. After ct_error_clear the context goes on.
CT_API void ct_cancel(ct_ctx *ctx);
// Who gets the current context's log; NULL silences it. Until then it goes to standard error. `fn`
// may use the library, this context too: texts that come up while a plan is made or runs are handed
// over behind it, in order, one at a time, with `text` valid during the call alone. It must end no
// scope that it has not begun, and cannot free the context or call ct_shutdown: each is an error.
// A context that ends tells it first what nobody has heard of, an error or a device's fault; what
// the context then still breaks goes to standard error.
CT_API void ct_set_log(ct_log_fn fn, void *user);
// "cpu" (default), "ref", "opencl" (the first device that OpenCL finds; "opencl:1" is the second; its
// bits are those of cpu where its arithmetic is IEEE's, else ct_numerics says so); "async:cpu", "async:ref": the same with memory that the host cannot
// touch; "dry:cpu", "dry:ref": plans are made as there, nothing is run, compiled or allocated, and
// reading a value is an error. Only while the context holds no pending work. False: see
// ct_error_text.
CT_API CT_MUST_USE bool ct_set_device(const char *name);
// Plans of the current context wait for their compiled kernels from now on, as with COTAN_COMPILE=wait: what has run
// once compiles nothing later.
CT_API void ct_wait_for_kernels(void);
// What decides the bits of the current context's device beside the inputs: a short text without
// sizes, host or threads, part of every plan's key and stored in checkpoints. Once a plan has called
// LAPACK, the library's name and version stand at its end. "" where there is no device.
CT_API const char *ct_numerics(void);
// Threads of the process from the next launch on, at most 256: of more, 256. 0: COTAN_THREADS, else
// the cores allowed. Fewer are an error in the current context, and the number stays. A plan counts its kernels' workspaces for the threads that
// are set when it is made.
CT_API void ct_set_threads(int n);

// The most bytes that devices of the process may hold: values, variables, plans' temporaries and
// constants, kernels' workspaces. A plan that cannot fit is refused when it is made, before it runs
// or takes memory. 0, as at the start: what the system and the process's control group have left.
CT_API void ct_set_memory_limit(uint64_t bytes);

// The most bytes of plans that a context keeps: their launches, constants, and kernels that no other plan
// has, compiled code apart. Plans that were used longest ago go first; one that is wanted again is made
// again. The newest always stays. 0, as at the start: COTAN_PLAN_CACHE, else 256 MB.
CT_API void ct_set_plan_cache(uint64_t bytes);

// The host program's memory functions: all of the library's memory comes through them, from any
// thread. align is a power of two; only blocks of at most malloc's alignment are given to realloc.
typedef struct ct_allocator {
    void *(*alloc)(size_t align, size_t bytes, void *user); // NULL: there is none
    void *(*realloc)(void *old, size_t bytes, void *user);  // NULL: there is none, old stays
    void (*free)(void *p, void *user);
    void *user;
} ct_allocator;
// Before the first use of the library, or after ct_shutdown. NULL: the C library's.
CT_API CT_MUST_USE bool ct_set_allocator(const ct_allocator *allocator);
// Frees all that the library holds, joins its threads and unloads its kernels, when contexts that
// ct_ctx_new made, parameter sets and other threads that used it are gone; false, and nothing
// happens, when they are not. The library can be used again; old handles are stale.
CT_API bool ct_shutdown(void);
CT_API const char *ct_version(void); // of the library that runs

// Did the current context fail? Asking counts as noticing: an error that was not noticed is logged
// when the context, or the process, ends. From an error on nothing runs until ct_error_clear: what
// is recorded is not computed, and of what has no value yet ct_item gives NaN, ct_data NULL.
CT_API bool ct_failed(void);
// The first error since the last clear; "" without one.
CT_API const char *ct_error_text(void);
CT_API ct_code ct_error_code(void);
CT_API void ct_error_clear(void);

// Counters of the process, for tests and logs.
typedef struct ct_stats {
    uint64_t plans_made, plans_run;            // plans built; plans executed
    uint64_t kernels_compiled, kernels_loaded; // by the C compiler; from the disk cache
    uint64_t kernels_packed;                   // from files of packed kernels
    uint64_t launches, launches_interpreted;   // kernels launched; of them, not compiled by then
    uint64_t arena_bytes, live_bytes;          // temporaries of plans; values and variables alive
    uint64_t memory, most_memory;              // all that devices hold; the most so far
    uint64_t nodes;                            // recorded in the thread's current context
    uint64_t plan_bytes;                       // of the plans that contexts keep
} ct_stats;
CT_API ct_stats ct_get_stats(void);

// What a plan costs, known before it runs. Bytes and operations of a launch are those of one time.
typedef struct ct_plan_launch {
    const char *kernel; // its name, "copy"; NULL where an op runs as it is (device ref)
    const char *device; // that it runs on
    const char *op;     // of the first node it serves, and that node's line
    ct_loc here;
    const char *variable; // name of the largest variable that it reads; NULL: it reads none
    int64_t times;        // more than one in a loop
    uint64_t bytes;       // that it must read and write
    double flops;         // 0 where they are not known
    uint64_t temporaries; // bytes of the arena in use meanwhile
} ct_plan_launch;
typedef struct ct_plan_tensor {
    const char *what; // the variable's name, else the op; NULL: an input
    bool variable;
    ct_loc here;
    ct_dtype dtype; // CT_DEFAULT: a workspace between kernels, of no shape
    int rank;
    const int64_t *dim;
    uint64_t bytes;
    size_t count; // tensors of this line that look the same
} ct_plan_tensor;
typedef struct ct_plan_cost {
    ct_loc here;              // line of its first root
    uint64_t arena_bytes;     // of temporaries, which share it; kept from step to step
    uint64_t input_bytes;     // variables and other tensors that it reads
    uint64_t result_bytes;    // that it makes, where they are no variable that has a value already
    uint64_t constant_bytes;  // scalars and constants
    uint64_t workspace_bytes; // of kernels, shared by all plans
    uint64_t most_temporaries;
    uint64_t bytes; // of all launches
    double flops;
    const ct_plan_launch *launches; // (n_launches)
    size_t n_launches, n_kernels;   // launches; distinct kernels
    size_t new_kernels;             // of them, those that no plan of the context had before
    size_t n_regions, n_again;     // that gradients might compute again (CT_REMAT_NEEDED, blocks of
                                   // a model); of them, that they do, since there is no room
    const ct_plan_tensor *tensors; // (n_tensors) the largest ones, largest first
    size_t n_tensors;
} ct_plan_cost;
// The most bytes that devices of the process have held so far; of a context with a device
// "dry:cpu", what its program would have held.
CT_API uint64_t ct_most_memory(void);
// Of the plan that the current context ran last, with a device "dry:cpu" too, where nothing runs.
// Valid until the context runs again. NULL: none, or no memory.
CT_API const ct_plan_cost *ct_newest_plan(void);

// ------------------------------------------------------------------------------------------ scopes

typedef struct ct_scope {
    ct_ctx *ctx;
    uint64_t of; // the context's number: scopes of a context that is gone have ended
    uint32_t depth, serial;
} ct_scope;
// What is recorded in a scope goes with it; at its end pending roots run as one plan. A statement:
// break, continue and return behave. Each turn of a loop wants one of its own: without it, what the
// turns record stays. After 256 reads that ran something in one scope, or 256 assignments of a
// variable without a run, the log gets a hint, once a context.
#define CT_SCOPE CT__SCOPE_NAMED(CT__PASTE(ct__scope_, __LINE__)) // a name of its own: scopes nest
#define CT__PASTE(a, b) CT__PASTE_NOW(a, b)
#define CT__PASTE_NOW(a, b) a##b
#define CT__SCOPE_NAMED(name)                                                                      \
    ct_scope name __attribute__((cleanup(ct__scope_cleanup), unused)) = ct_scope_begin(CT_HERE)
CT_API ct_scope ct_scope_begin(ct_loc here);
CT_API void ct_scope_end(ct_scope scope, ct_loc here); // ends inner scopes too
CT_API void ct__scope_cleanup(ct_scope *scope);

// Mixed precision. To the end of the block, products (matmul, conv, attention ...) that the current context records
// take their f16, bf16 and f32 operands in the dtype, bf16 or f16, and what is large or a sum of many (exp, softmax, norms,
// losses ...) in f32: PyTorch's lists, docs/mixed-precision.md has the table. All other ops take what they get. Gradients go
// back through the casts, so those of f32 variables are f32. Blocks nest; CT_F32 in an inner one casts nothing.
#define CT_AUTOCAST(dtype) CT__AUTOCAST_NAMED(CT__PASTE(ct__autocast_, __LINE__), dtype)
#define CT__AUTOCAST_NAMED(name, dtype)                                                            \
    ct_dtype name __attribute__((cleanup(ct__autocast_cleanup), unused)) = ct_autocast_set(dtype)
// The same until the next call, for bindings: what there was before. Another dtype is an error, and changes nothing.
CT_API ct_dtype ct_autocast_set_at(ct_dtype dtype, ct_loc here);
#define ct_autocast_set(dtype) ct_autocast_set_at((dtype), CT_HERE)
CT_API ct_dtype ct_autocast_dtype(void); // CT_F32: none
CT_API void ct__autocast_cleanup(ct_dtype *before);

// Makes t a root of the plan, and when its scope ends a leaf of the enclosing one: to gradients that
// are recorded there it is a constant.
CT_API ct_tensor ct_keep_at(ct_tensor t, ct_loc here);
#define ct_keep(t) ct_keep_at((t), CT_HERE)
// x on another device of the context ("cpu", "ref", ...: as for ct_set_device), which is opened when
// it is first named: a copy, or x itself where it lies there already. Its gradient goes back to where
// x lies. What is computed of tensors lies where they lie; those of two devices do not mix. Scalars,
// constants and keys of random numbers go anywhere, and so does what is made of numbers alone (zeros, a range) in the
// line that uses it. At most 15 devices beside those that contexts have for their own.
CT_API ct_tensor ct_to_at(ct_tensor x, const char *device, ct_loc here);
#define ct_to(x, device) ct_to_at((x), (device), CT_HERE)
// The name of the device that x lies on, or will; NULL: x is no tensor.
CT_API const char *ct_device_of(ct_tensor x);
// Ends a kept tensor, or any handle, early. CT_NONE, a stale handle: nothing happens. A variable
// (its set owns it) and a tensor of another context are errors.
CT_API void ct_drop_at(ct_tensor t, ct_loc here);
#define ct_drop(t) ct_drop_at((t), CT_HERE)
// For bindings alone: hold a tensor beyond its scope until ct_unpin, which is ct_drop.
CT_API ct_tensor ct_pin_at(ct_tensor t, ct_loc here);
#define ct_pin(t) ct_pin_at((t), CT_HERE)
CT_API void ct_unpin_at(ct_tensor t, ct_loc here);
#define ct_unpin(t) ct_unpin_at((t), CT_HERE)

// ----------------------------------------------------------------------------------------- sources

// A leaf holding a copy of ct_size elements of `dtype` at `data`. A list in braces stands in
// parentheses of its own: ct_from(((float[]){1, 2}), CT_F32, CT_DIMS(2)).
CT_API ct_tensor ct_from_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_from(data, dtype, dims) ct_from_at((data), (dtype), (dims), CT_HERE)
// The same, but part of the plan: foldable, hashed by content. For tables that never change.
CT_API ct_tensor ct_const_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_const(data, dtype, dims) ct_const_at((data), (dtype), (dims), CT_HERE)
// Scalar operands: a new value never recompiles. ct_f and ct_i take the dtype of what they meet;
// alone, and where a function returns them, they are f32 and i32 (i64, where it needs that). A ct_f
// that meets an f64 keeps all its digits, but has no gradient.
// A ct_i that the integer dtype of an op's other operand, or of the variable to which it is
// assigned, cannot hold is an error; sums and the like of bare numbers alone wrap. A u64 of 2^63 and
// more is ct_cast(ct_i((int64_t)value), CT_U64), exactly, or a ct_const where it never changes.
// ct_scalar converts as ct_cast does: 300 becomes 255 in u8.
CT_API ct_tensor ct_f(double value);
CT_API ct_tensor ct_i(int64_t value);
CT_API ct_tensor ct_scalar(double value, ct_dtype dtype);
// The complex number re + i im, without a dtype of its own as ct_f is: alone, and beside what is
// narrower than f64, it is c64; beside f64 and c128 it is c128, with all its digits.
CT_API ct_tensor ct_c(double re, double im);
// Elements that are all `value`, a scalar, in its dtype; all 0; all 1. Ops that read them need no
// copy in memory. An error: a value that is no scalar, sizes that CT_DIMS does not allow.
CT_API ct_tensor ct_full_at(ct_tensor value, ct_ints dims, ct_loc here);
#define ct_full(value, dims) ct_full_at((value), (dims), CT_HERE)
CT_API ct_tensor ct_zeros_at(ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_zeros(dtype, dims) ct_zeros_at((dtype), (dims), CT_HERE)
CT_API ct_tensor ct_ones_at(ct_dtype dtype, ct_ints dims, ct_loc here);
#define ct_ones(dtype, dims) ct_ones_at((dtype), (dims), CT_HERE)

// A key for ct_random_...: a leaf (2,) u32. The same seed gives JAX's key and, with it, JAX's bits.
CT_API ct_tensor ct_random_key_at(int64_t seed, ct_loc here);
#define ct_random_key(seed) ct_random_key_at((seed), CT_HERE)

// ----------------------------------------------------------------------------- products in letters

// Sums of products of n operands, said in letters as in NumPy: ct_einsum("ij,jk->ik", ab, 2) is a
// matrix product. Each axis of an operand has a letter; what letters share is multiplied element by
// element, and letters that are not in the result are summed over. A letter twice in one operand is
// its diagonal; `...` stands for the axes in front, behind or between that have no letter, which
// broadcast; spaces mean nothing. Without "->" the result has the ellipsis and the letters that stand
// once, in the order of the alphabet, capitals first. All sizes of a letter are equal.
// Two operands are one ct_contract where something is summed over, else a product of elements;
// diagonals and orders of axes are views. Of more than two, the pair that takes the fewest products
// becomes one first (of equals: that with the smaller result, then the first; a dynamic size counts
// as 1024), and so on. Operands are cast to their common dtype before; integers wrap in it.
CT_API ct_tensor ct_einsum_at(const char *expression, const ct_tensor *operands, size_t n,
                              ct_loc here);
#define ct_einsum(expression, operands, n) ct_einsum_at((expression), (operands), (n), CT_HERE)

// ---------------------------------------------------------------------------------- reading values

// Runs all pending roots and t as one plan. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_eval_at(const ct_tensor *t, size_t n, ct_loc here);
#define ct_eval(t, n) ct_eval_at((t), (n), CT_HERE)
// The value of a one-element tensor; NaN when it failed.
CT_API CT_MUST_USE double ct_item_at(ct_tensor t, ct_loc here);
#define ct_item(t) ct_item_at((t), CT_HERE)
// Row-major elements on the host, valid until t's scope ends; NULL when it failed.
CT_API CT_MUST_USE const void *ct_data_at(ct_tensor t, ct_loc here);
#define ct_data(t) ct_data_at((t), CT_HERE)

// Dtype, shape and values as text, laid out as NumPy does: five digits of floats; of more than 1000
// elements three at both ends of each axis. At most size - 1 bytes of it are written to `text`, and
// a '\0'; the result is its whole length, 0 when the value cannot be read.
CT_API size_t ct_format_at(ct_tensor t, char *text, size_t size, ct_loc here);
#define ct_format(t, text, size) ct_format_at((t), (text), (size), CT_HERE)
// The same text behind the line and `name`, to the log (ct_set_log): to standard error, if nobody
// took it. ct_print(x) prints the expression x as the name. A value is read: inside a traced
// function, where there is none, it is an error. False: see ct_error_text.
CT_API bool ct_print_at(ct_tensor t, const char *name, ct_loc here);
#define ct_print(t) ct_print_at((t), #t, CT_HERE)

// --------------------------------------------------------------------------------------- variables

// Variables are owned by a parameter set, independent of scopes, until it is freed.
typedef struct ct_params ct_params;
CT_API ct_params *ct_params_new(void); // NULL: no memory
// Waits until plans of other contexts that use its variables have ended; what is recorded with them
// is spent. The set itself must not be in use by another thread (ct_params_get, ct_param).
CT_API void ct_params_free(ct_params *params);
// A variable without a value; its first assignment gives it one. Names are unique in a set:
// "h.0.attn.c_attn.weight".
CT_API ct_tensor ct_param_at(ct_params *params, const char *name, ct_dtype dtype, ct_ints dims,
                             ct_loc here);
#define ct_param(params, name, dtype, dims) ct_param_at((params), (name), (dtype), (dims), CT_HERE)
CT_API size_t ct_params_count(const ct_params *params);
CT_API ct_tensor ct_params_get(const ct_params *params, size_t i);
CT_API const char *ct_params_name(const ct_params *params, size_t i);
// CT_NONE: no such name.
CT_API ct_tensor ct_params_find(const ct_params *params, const char *name);
// Later reads see `value`; reads recorded before keep the older version. The value is cast to the
// variable's dtype. One context at a time has an assignment of a variable pending. Another context
// may read it at any time: its plan waits while one that assigns runs, and the other way round, and
// gets the whole value of the version that was there when it was recorded, or CT_E_SPENT when that
// is gone by then. Asked for the variable itself, ct_data and ct_item take the newest.
CT_API void ct_assign_at(ct_tensor variable, ct_tensor value, ct_loc here);
#define ct_assign(variable, value) ct_assign_at((variable), (value), CT_HERE)
// A variable lies where its first value lies. These bring one, or all of a set, to another device, for good: what is
// pending runs first, and what is read from then on lies there. No other context may be using it.
CT_API void ct_move_at(ct_tensor variable, const char *device, ct_loc here);
#define ct_move(variable, device) ct_move_at((variable), (device), CT_HERE)
CT_API void ct_params_move_at(ct_params *params, const char *device, ct_loc here);
#define ct_params_move(params, device) ct_params_move_at((params), (device), CT_HERE)

// --------------------------------------------------------------------------------------- gradients

// Gradients of a scalar with respect to n tensors or variables behind it (a variable: the version
// that the loss reads; two are an error), recorded like any op: grads[i] has the shape and dtype of
// wrt[i]. Each of the n stands still for the others: with respect to x and z, where z is made of x,
// x gets what it does to the loss by ways around z (0 where there are none), and alone, all. A
// tensor that the loss does not depend on is an error when the plan is made. A value has its history
// while its scope stands, whether or not it was read; where that needs a version of a variable that
// is gone, the error is CT_E_SPENT. What left its scope (ct_keep), or was computed by another
// context, is a constant; the first gradient that meets one that was computed from a variable,
// without ct_stop_gradient, logs a hint. A version of a variable has what it was assigned behind it
// while the scope of the assignment stands; if that was another variable, it is a copy, which does
// not depend on that one.
CT_API void ct_grad_at(ct_tensor loss, const ct_tensor *wrt, size_t n, ct_tensor *grads,
                       ct_loc here);
#define ct_grad(loss, wrt, n, grads) ct_grad_at((loss), (wrt), (n), (grads), CT_HERE)

// --------------------------------------------------------------------------------------- functions

// A function that is traced: it records out[...] from in[...] and returns; called with parameters,
// not with values, so reading one is an error. Tensors from outside may be used; they become
// operands.
typedef void (*ct_fn)(const ct_tensor *in, ct_tensor *out, void *user);

// f as one node; its body counts by what it records. So it does for gradients: where f makes a
// result of another one, the gradient with respect to that other holds what comes by way of it.
CT_API void ct_call_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                       size_t n_out, ct_loc here);
#define ct_call(f, user, in, n_in, out, n_out)                                                     \
    ct_call_at((f), (user), (in), (n_in), (out), (n_out), CT_HERE)

// f with a reverse rule of its own: vjp sees f's operands, its outputs and their cotangents, and
// records cotangents of the operands. f may not use tensors from outside. Second derivatives are
// those of f. No result depends on another one, whatever f makes it of: vjp counts alone.
CT_API void ct_custom_vjp_at(ct_fn f, ct_fn vjp, void *user, const ct_tensor *in, size_t n_in,
                             ct_tensor *out, size_t n_out, ct_loc here);
#define ct_custom_vjp(f, vjp, user, in, n_in, out, n_out)                                          \
    ct_custom_vjp_at((f), (vjp), (user), (in), (n_in), (out), (n_out), CT_HERE)

// f with a forward rule of its own: jvp sees f's operands, its results and tangents of the operands
// (of their shapes and dtypes; zeros of one that stands still), and records tangents of the results,
// linear in those of the operands. Gradients go backwards through the rule. f and jvp may not use
// tensors from outside.
CT_API void ct_custom_jvp_at(ct_fn f, ct_fn jvp, void *user, const ct_tensor *in, size_t n_in,
                             ct_tensor *out, size_t n_out, ct_loc here);
#define ct_custom_jvp(f, jvp, user, in, n_in, out, n_out)                                          \
    ct_custom_jvp_at((f), (jvp), (user), (in), (n_in), (out), (n_out), CT_HERE)

// Compares gradients of f with central differences in f64: its float operands `in` are cast to f64,
// its outputs, weighted at random, make a number, and for some elements of each operand (first those
// of which the gradient is not finite) that number's slope must be the gradient. order 2: the
// gradient's own gradient as well. Where it is not, and f has a kink, is not finite or is steep (the
// differences of a step and of half of it disagree), up to two smaller steps are tried; behind the
// last the element is left out, unless f is steep alone and the gradient off by more than 1 % and by
// more than 16 times that disagreement. A NaN is wrong wherever differences are finite, an infinite
// gradient too, unless f is the steeper the smaller the step.
// f is called, not traced: it may read values. False, with an error that names operand (from 1),
// element and both numbers, where one is wrong, and where all elements of an operand that were
// tried are left out.
typedef struct ct_check_grad_args {
    ct_fn f;
    void *user;
    const ct_tensor *in;
    size_t n_in, n_out; // n_out 0: one output
    int order;          // 0: 1
    int64_t samples;    // elements of each operand; 0: 16
    double tolerance;   // relative; 0: 1e-6
    int64_t seed;       // of weights and elements
    ct_loc here;
} ct_check_grad_args;
CT_API CT_MUST_USE bool ct_check_grad_with(ct_check_grad_args args);
#define ct_check_grad(...) ct_check_grad_with((ct_check_grad_args){__VA_ARGS__, .here = CT_HERE})

// ------------------------------------------------------------------------------ loops and branches

// Loops and branches are nodes: functions are traced once, as by ct_call, and the device runs them
// as often as it takes, without coming back to the host program. Their plan is the same however
// often they turn. Tensors from outside may be used in them; assigning, keeping and reading are
// errors there. All have derivatives of any order, but ct_while in reverse mode. Under ct_vmap a
// while turns until no element of the batch goes on, and those that are done stay as they are; of a
// branch that each element chooses for itself all are computed.

// Along axis 0 of xs: body sees the carried tensors and element i of every x, and gives the next
// carried tensors (same types) and element i of every y. length: needed where n_xs is 0 (a
// number of turns that may be 0 is ct_fori's); dynamic where CT_DYN marks it or an axis 0 of xs is.
// (jax.lax.scan)
typedef struct ct_scan_args {
    ct_fn body;
    void *user;
    const ct_tensor *carry;
    size_t n_carry;
    const ct_tensor *xs;
    size_t n_xs, n_ys;
    int64_t length;
    bool reverse; // from the last element to the first; ys stay in the order of xs
    ct_loc here;
} ct_scan_args;
// carry_out: n_carry tensors; ys: n_ys.
CT_API void ct_scan_with(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys);
#define ct_scan(carry_out, ys, ...)                                                                \
    ct_scan_with((ct_scan_args){__VA_ARGS__, .here = CT_HERE}, (carry_out), (ys))

// All prefixes of the elements of xs along an axis (default 0), put together by f: element i of the
// results is x0 . x1 . ... . xi, by reverse xi . ... from the last element on. f is traced once, on an
// element of each x (without the axis), then as many of their neighbours, and gives as many, of the
// same types; it must be associative, since the order in which elements come together is another one
// than theirs: in rounds, of which there are as many as the logarithm of the axis' size, and each of
// them treats all elements at once. A dynamic axis has a plan for each size. (jax.lax.associative_scan)
typedef struct ct_associative_scan_args {
    ct_fn f;
    void *user;
    const ct_tensor *xs;
    size_t n_xs;
    int64_t axis; // negative ones count from the end
    bool reverse;
    ct_loc here;
} ct_associative_scan_args;
// out: n_xs tensors, with the types of xs.
CT_API void ct_associative_scan_with(ct_associative_scan_args args, ct_tensor *out);
#define ct_associative_scan(out, ...)                                                              \
    ct_associative_scan_with((ct_associative_scan_args){__VA_ARGS__, .here = CT_HERE}, (out))

// As long as cond, of the carried tensors, gives a bool that is true; body gives the next carried
// tensors (same types). No gradient in reverse mode: how often it turns is not known before it
// runs. ct_cancel ends one that does not end. (jax.lax.while_loop)
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

// For i from lower to upper - 1: body sees i, one i32 (i64 where a bound is wider), then the carried
// tensors, and gives the next carried tensors. Where both bounds are numbers it is a scan, which has
// gradients in both modes. A bound that is known only when it runs is a tensor, one integer, in the
// place of the number: then it is a while. (jax.lax.fori_loop)
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

// What then gives where pred, one bool, holds, else what otherwise gives, of the same operands; both
// give results of the same types. Only one of them runs. (jax.lax.cond)
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

// Branch `index`, one integer, of functions whose results have the same types; an index outside of
// them is the nearest. (jax.lax.switch)
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

// Functions of functions. Each traces f as ct_call does and records one node; what that stands for is
// worked out when the plan is made. They go into each other in any order and to any depth. Tensors
// from outside that f uses stand still: only the n_in operands are moved, differentiated or batched.
//
// A tangent or cotangent has the shape and dtype of what it belongs to; CT_NONE is 0, and is what
// belongs to integers and bools, which have none.

// f, and how its results move as its operands move along tangents (forward mode).
CT_API void ct_jvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                      size_t n_out, const ct_tensor *tangents, ct_tensor *out_tangents,
                      ct_loc here);
#define ct_jvp(f, user, in, n_in, out, n_out, tangents, out_tangents)                              \
    ct_jvp_at((f), (user), (in), (n_in), (out), (n_out), (tangents), (out_tangents), CT_HERE)

// f, and the gradients of the sum of its results times cotangents, an element each (reverse mode);
// zeros where no result depends on an operand.
CT_API void ct_vjp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                      size_t n_out, const ct_tensor *cotangents, ct_tensor *grads, ct_loc here);
#define ct_vjp(f, user, in, n_in, out, n_out, cotangents, grads)                                   \
    ct_vjp_at((f), (user), (in), (n_in), (out), (n_out), (cotangents), (grads), CT_HERE)

// f, and the gradients of its first result, one float, with respect to every operand. The other
// results are what else f gives: statistics, a state. A gradient that nobody uses costs nothing.
CT_API void ct_value_and_grad_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                                 ct_tensor *out, size_t n_out, ct_tensor *grads, ct_loc here);
#define ct_value_and_grad(f, user, in, n_in, out, n_out, grads)                                    \
    ct_value_and_grad_at((f), (user), (in), (n_in), (out), (n_out), (grads), CT_HERE)

// f, and its derivative there as a linear map, for many tangents: what the map needs of f is computed
// once a plan, however often it is used. It lives as long as the scope in which it was made.
// (jax.linearize)
typedef struct ct_linear_map {
    ct_tensor at; // f's first result
    size_t n_in, n_out;
} ct_linear_map;
CT_API ct_linear_map ct_linearize_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                                     ct_tensor *out, size_t n_out, ct_loc here);
#define ct_linearize(f, user, in, n_in, out, n_out)                                                \
    ct_linearize_at((f), (user), (in), (n_in), (out), (n_out), CT_HERE)
// How f's results move along tangents (n_in), as ct_jvp says; and the map's transpose, of cotangents
// (n_out), as ct_vjp says.
CT_API void ct_linear_apply_at(ct_linear_map map, const ct_tensor *tangents,
                               ct_tensor *out_tangents, ct_loc here);
#define ct_linear_apply(map, tangents, out_tangents)                                               \
    ct_linear_apply_at((map), (tangents), (out_tangents), CT_HERE)
CT_API void ct_linear_transpose_at(ct_linear_map map, const ct_tensor *cotangents, ct_tensor *grads,
                                   ct_loc here);
#define ct_linear_transpose(map, cotangents, grads)                                                \
    ct_linear_transpose_at((map), (cotangents), (grads), CT_HERE)

// f, and the derivative of each result with respect to each operand: jacobians[i * n_in + k], of
// result i and operand k, has the sizes of the result and then those of the operand. jacfwd goes
// through the elements of the operands, jacrev through those of the results, as one batch; so one is
// for few operands, the other for few results. Results are floats; CT_NONE of an operand that is
// none.
CT_API void ct_jacfwd_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                         size_t n_out, ct_tensor *jacobians, ct_loc here);
#define ct_jacfwd(f, user, in, n_in, out, n_out, jacobians)                                        \
    ct_jacfwd_at((f), (user), (in), (n_in), (out), (n_out), (jacobians), CT_HERE)
CT_API void ct_jacrev_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                         size_t n_out, ct_tensor *jacobians, ct_loc here);
#define ct_jacrev(f, user, in, n_in, out, n_out, jacobians)                                        \
    ct_jacrev_at((f), (user), (in), (n_in), (out), (n_out), (jacobians), CT_HERE)
// f, and second derivatives: hessians[(i * n_in + j) * n_in + k], of result i by operands j and k, has
// the sizes of all three. (jacfwd of jacrev.)
CT_API void ct_hessian_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                          size_t n_out, ct_tensor *hessians, ct_loc here);
#define ct_hessian(f, user, in, n_in, out, n_out, hessians)                                        \
    ct_hessian_at((f), (user), (in), (n_in), (out), (n_out), (hessians), CT_HERE)
// Of f's only result, one float, the Hessian times vectors, an operand each: products[k] has the
// type of operand k. It costs a few times what f costs, whatever the sizes. (Forward over reverse.)
CT_API void ct_hvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                      const ct_tensor *vectors, ct_tensor *products, ct_loc here);
#define ct_hvp(f, user, in, n_in, vectors, products)                                               \
    ct_hvp_at((f), (user), (in), (n_in), (vectors), (products), CT_HERE)

// f of elements, applied to batches of them: operand i loses its axis in_axes[i], and result i gets
// one at out_axes[i] (negative: from the end). An operand with CT_NO_AXIS is the same for all; a
// result with it must be. No list: axis 0 of all. A key is an operand like any other: batched, each
// element draws its own numbers. In f an assignment, and ct_keep, are errors.
#define CT_NO_AXIS INT64_MIN
typedef struct ct_vmap_args {
    ct_fn f;
    void *user;
    const ct_tensor *in;
    size_t n_in;
    ct_tensor *out;
    size_t n_out;
    ct_ints in_axes, out_axes;
    int64_t size; // of the batch; needed where no operand has it
    ct_loc here;
} ct_vmap_args;
CT_API void ct_vmap_with(ct_vmap_args args);
#define ct_vmap(...) ct_vmap_with((ct_vmap_args){__VA_ARGS__, .here = CT_HERE})

// f as ct_call, but a gradient keeps of it only what the policy says, and the operands; the rest is
// computed again when the gradient comes there: less memory for more work. What is computed is the
// same. Forward mode and f alone compute nothing twice. (jax.checkpoint)
typedef enum ct_remat_policy {
    CT_REMAT_NOTHING,    // the operands alone
    CT_REMAT_EVERYTHING, // all that the gradient needs: as ct_call
    CT_REMAT_PRODUCTS,   // results of products of matrices
    CT_REMAT_NAMED,      // values that ct_name gave one of .names
    CT_REMAT_NEEDED,     // everything; where the plan does not fit into what memory is left
                         // (ct_set_memory_limit), nothing of as few such functions as it takes
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
// t, by a name that a ct_remat around it may list.
CT_API ct_tensor ct_name_at(ct_tensor t, const char *name, ct_loc here);
#define ct_name(t, name) ct_name_at((t), (name), CT_HERE)

// ----------------------------------------------------------------------------------------- metrics

// A root of every plan, whether or not anybody looks; the newest value by name. Asking for one that is
// pending is a read, as ct_item: what is pending runs.
CT_API void ct_metric_at(const char *name, ct_tensor t, ct_loc here);
#define ct_metric(name, t) ct_metric_at((name), (t), CT_HERE)
CT_API CT_MUST_USE double ct_metric_value(const char *name); // NaN: there is none, or it failed

// ----------------------------------------------------------------------------------- ahead of time

// Writes what is pending as one C file and its header, PATH.c and PATH.h, where the last part of
// the path is the name of the function that runs it: it needs libm alone, no library, no memory but
// what it is given and no threads, and has the same bits. Its struct has a pointer a variable,
// input and result (a kept tensor, a metric), and the scalars. Called behind what a step records
// and before its scope ends, which runs it as ever; with device "dry:cpu" nothing runs and nothing
// is compiled. Each file is there whole or not at all; a PATH.c that found its PATH.h of another
// plan does not compile. False: see ct_error_text.
typedef struct ct_names { // in the struct: CT_NAMES({"images", x}, {"loss", loss})
    const ct_named *v;
    size_t n;
} ct_names;
#define CT_NAMES(...)                                                                              \
    ((ct_names){(const ct_named[]){__VA_ARGS__},                                                   \
                sizeof((const ct_named[]){__VA_ARGS__}) / sizeof(ct_named)})
typedef struct ct_compile_args {
    const char *path; // "out/mnist_step"
    // Of what is pending; the others are named after their variable or metric, an optimizer's
    // numbers after its options (beta1, eps), or get a number.
    ct_names names;
    ct_names others;        // the same, of what may not be part of it
    const ct_params *embed; // values of its variables that the plan only reads stand in the file
    bool embed_all;         // those of all variables
    ct_loc here;
} ct_compile_args;
CT_API CT_MUST_USE bool ct_compile_with(ct_compile_args args);
#define ct_compile(...) ct_compile_with((ct_compile_args){__VA_ARGS__, .here = CT_HERE})

#ifdef __cplusplus
}
#endif

#include "cotan/ops.h"

#endif
