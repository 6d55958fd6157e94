// The kernel IR: one kernel as a list of typed instructions with loop markers.
//
// A kernel is an array of instructions; the id of a value is the index of the instruction that makes it. LOOP
// and END bracket loop bodies. Everything is written as *scalar* code over loop variables; the renderer
// computes a loop bound to LANES 16 iterations at a time, and finds out which values differ between iterations
// and which loads are contiguous. A template that manages registers itself (matmul) opens a TILE loop, which
// ct__kir_lower_tiles turns into 16-lane values.
//
// Types. A value has a compute dtype and 1 or 16 lanes (CT_LANES).
//   compute dtypes: bool, u8, i32, u32, i64, u64, f32, f64. The others are computed in a wider one
//   (base/dtype.c): floats of 8 and 16 bits in f32, i8, i16 and u16 in i32. A load of such a dtype gives the
//   wider one, a store rounds to nearest even (integers wrap), and ct__kir_cast(k, v, CT_BF16) gives the f32
//   that a store to bf16 and a load would give, so that every op can round to its dtype when fused. A cast of
//   an f64 rounds once.
//   Index arithmetic is i64. Operands of a two-operand op have one dtype; a scalar operand together with a
//   16-lane one is splatted.
//
// Arithmetic. Floats: IEEE, round to nearest even, never contracted (FMA is a separate op).
//   MIN and MAX give NaN if either is NaN, and -0 < +0. MOD of floats is C's fmod.
//   Ints wrap. DIV truncates, MOD has the sign of the dividend; x / 0 = x mod 0 = 0, and lowest / -1 = lowest.
//   Shift counts are taken modulo the width; SHR of i32 and i64 copies the sign. ROUND rounds half to even.
//   CAST float -> int truncates and saturates, NaN gives 0 (to u8: 0..255, to i8: -128..127); int -> int wraps;
//   to bool: x != 0; bool -> number: 0 or 1. NOT of bool is logical. MATH functions are implemented here
//   (kir_math.h), with the same bits scalar and vector, on every target. DOT4 is the dot product of four bytes
//   and four bytes for which processors have an instruction, LOOKUP4 looks up four bytes in a table of 16.
//   DOT2(a, b, c) of pairs of bf16 as u32 and of f32: c = fma(high of a, high of b, c), then the same with the
//   low halves, where operands and sums smaller than 2^-126 in magnitude are flushed to zeros of their sign.
//   LOW_HALF and HIGH_HALF of a u32 are the f32 values of the f16 in its low and high half.
//   Functions have two more ops: SCALE(x, n) is x times 2 to the n, rounded once, for a normal x of magnitude
//   0.5 to 4 (or NaN) and an integer n of the same dtype, of magnitude up to 252 (f64: 2,044);
//   MATH_WHERE(f, c, x, y) is f(x) where c is true and y elsewhere, and computes f only if a lane needs it.
//
// Loops. LOOP(bind, n) runs its variable from 0 to n - 1 (n <= 0: not at all).
//   ROWS    the parallel grid: at most one, outermost; the kernel function is called with a range [begin, end)
//           of it. Its extent may use only args and consts (ct__kir_grid evaluates it). Only pure arithmetic on
//           args may precede it. Without one, the grid is 1.
//   LANES   16 iterations at a time, tails masked: nothing out of range is read or written. Not inside another
//           LANES loop; loops inside it need extents that are equal for all lanes. Iterations must be
//           independent except for REDUCE: a register made outside is not SET inside.
//   TILE    all iterations at once, each with registers of its own: a constant number, a multiple of 16 up to
//           128. It may contain scalar loads, stores, registers, arithmetic and SEQ loops of equal extents.
//           Templates write it; ct__kir_lower_tiles turns it into 16-lane values for a CPU, before a kernel is
//           verified, rendered or interpreted.
//   SEQ     in order.    UNROLL  in order, unrolled; n must be a const <= 64.
//   A loop that runs only if c is true: LOOP(SEQ, select(c, 1, 0)).
//   BREAK(c), directly in the body of a SEQ loop without reductions, leaves it if c is true.
//
// Registers. REG(init) makes a mutable value that is set to init each time control passes it; GET reads, SET
//   writes. It has 16 lanes if init has.
//
// Reductions. REDUCE(op, v) is placed directly in the body of a SEQ or LANES loop of extent n, and its value
//   may be used only *after* the END of that loop. Its bits depend on n alone:
//   ADD, MUL of floats: over index i of [0, n), aligned at 0, blocks of 1024. In a block, lane j of 16 takes
//     the elements with i mod 16 == j in increasing i, starting from +0 (1 for MUL); then lane j op= lane j+8,
//     then +4, +2, +1. If there is more than one block, the sequence of block results is reduced by this same
//     rule. An empty reduction gives the identity.
//   ADD, MUL of ints wrap. MAX, MIN: as the ops (empty: -inf/+inf, lowest/highest).
//   OR, AND: bool (any, all) or int.
//   ARGMAX, ARGMIN: i64, the first index of the extreme; the first NaN wins; empty: 0.
//   So a long sum can be split without changing a bit: kernel 1 has a ROWS loop over blocks b and reduces
//   min(CT_REDUCE_BLOCK, n - CT_REDUCE_BLOCK * b) elements from CT_REDUCE_BLOCK * b on into partial[b];
//   kernel 2 reduces partial[0 .. blocks).
//
// Memory. Buffers are kernel parameters (restrict unless CT_KIR_ALIAS); locals are scratch memory of one
//   thread, undefined until stored. An index counts elements. LOAD and STORE take an optional condition: if it
//   is false, nothing is read or written, and the load gives 0. A store may be non-temporal: its data will not
//   be read soon. PREFETCH fetches a cache line and has no other effect; its index may have any value. In a
//   LANES loop it fetches the line of the first of 16 lanes, which must be contiguous.
//
// Errors are sticky: an invalid call records one and returns -1, every call accepts -1 and passes it on;
// ct__kir_verify (or ct__render_c) reports it. The builder folds i64 constants and shares equal pure
// instructions, so that callers need not optimise index code.
#ifndef COTAN_KIR_KIR_H
#define COTAN_KIR_KIR_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"

enum { CT_LANES = 16, CT_REDUCE_BLOCK = 1024, CT_KIR_MAX_BUFFERS = 1280 };
enum { CT_TILE_MAX = 128 }; // iterations of a TILE loop

// Ops in groups by their operands; code relies on their order (NEG .. NOT, ADD .. NE).
// clang-format off
#define CT_KOPS(X)                                                                                 \
    /* structure */                                                                                \
    X(CONST, 0) X(ARG, 0) X(PARAM, 0) X(LOOP, 1) X(END, 0) X(RET, 1) X(BREAK, 1)                   \
    /* memory */                                                                                   \
    X(LOAD, 2) X(STORE, 3) X(VLOAD, 2) X(VSTORE, 3) X(PREFETCH, 1)                                 \
    /* registers and reductions */                                                                 \
    X(REG, 1) X(GET, 1) X(SET, 2) X(REDUCE, 1)                                                     \
    /* lanes */                                                                                    \
    X(SPLAT, 1) X(IOTA, 0) X(FOLD, 1) X(ZIP, 2)                                                    \
    /* one operand */                                                                              \
    X(NEG, 1) X(ABS, 1) X(SQRT, 1) X(FLOOR, 1) X(CEIL, 1) X(ROUND, 1) X(TRUNC, 1) X(NOT, 1)        \
    X(CAST, 1) X(BITCAST, 1) X(MATH, 1) X(LOW_HALF, 1) X(HIGH_HALF, 1)                             \
    /* two operands */                                                                             \
    X(ADD, 2) X(SUB, 2) X(MUL, 2) X(DIV, 2) X(MOD, 2) X(MIN, 2) X(MAX, 2)                          \
    X(AND, 2) X(OR, 2) X(XOR, 2) X(SHL, 2) X(SHR, 2)                                               \
    X(LT, 2) X(LE, 2) X(EQ, 2) X(NE, 2)                                                            \
    /* three operands */                                                                           \
    X(FMA, 3) X(SELECT, 3) X(DOT4, 3) X(DOT2, 3) X(LOOKUP4, 3)                                     \
    /* in functions */                                                                             \
    X(SCALE, 2) X(MATH_WHERE, 3)
// clang-format on

typedef enum ct_kop {
#define X(name, arity) CT_K_##name,
    CT_KOPS(X)
#undef X
        CT_K_COUNT
} ct_kop;

typedef enum ct_kbind {
    CT_BIND_SEQ,
    CT_BIND_UNROLL,
    CT_BIND_LANES,
    CT_BIND_ROWS,
    CT_BIND_TILE
} ct_kbind;

typedef enum ct_kred {
    CT_RED_NONE,
    CT_RED_ADD,
    CT_RED_MUL,
    CT_RED_MAX,
    CT_RED_MIN,
    CT_RED_OR,
    CT_RED_AND,
    CT_RED_ARGMAX,
    CT_RED_ARGMIN
} ct_kred;

// Functions of MATH, each for f32 and f64. The last ones are used by others through MATH_WHERE: sin and cos
// of large numbers, log of any number.
#define CT_KMATHS(X)                                                                               \
    X(EXP, exp)                                                                                    \
    X(EXP2, exp2)                                                                                  \
    X(EXPM1, expm1)                                                                                \
    X(LOG, log)                                                                                    \
    X(LOG1P, log1p)                                                                                \
    X(SIN, sin)                                                                                    \
    X(COS, cos)                                                                                    \
    X(TANH, tanh) X(ERF, erf) X(SIN_FAR, sin_far) X(COS_FAR, cos_far) X(LOG_ANY, log_any)

typedef enum ct_kmath {
#define X(NAME, name) CT_MATH_##NAME,
    CT_KMATHS(X)
#undef X
        CT_MATH_COUNT
} ct_kmath;

typedef int ct_kval; // id of a value; -1: none

// One instruction. `imm` is the constant (CONST: i for ints and bool, f for floats), the buffer id
// (LOAD, STORE, VLOAD, VSTORE, PREFETCH), the number of the arg or param.
typedef struct ct_kins {
    uint8_t op;    // ct_kop
    uint8_t dtype; // ct_dtype of the result; CT_DEFAULT: no result
    uint8_t lanes; // of the result: 1 or CT_LANES; 0: no result
    // LOOP: ct_kbind; REDUCE, FOLD: ct_kred; ZIP: 1 if high; MATH, MATH_WHERE: ct_kmath; CAST: the target
    // ct_dtype; PREFETCH: 1 if for a write; STORE, VSTORE: 1 if non-temporal
    uint8_t sub;
    // Operands, -1 if absent. LOAD: index, cond. STORE: index, value, cond. VLOAD: index, count. VSTORE:
    // index, value, count. SET: register, value. END: a = its LOOP. LOOP: extent.
    ct_kval a, b, c, d;
    int32_t in;  // the innermost LOOP around it; -1: none
    int32_t end; // LOOP: its END
    union {
        int64_t i;
        double f;
    } imm;
    const char *name; // LOOP: its meaning, a literal of [a-z0-9_ ]; may be NULL
} ct_kins;

enum { CT_KIR_READ = 1, CT_KIR_WRITE = 2, CT_KIR_ALIAS = 4, CT_KIR_LOCAL = 8 };

typedef struct ct_kbuf {
    ct_dtype dtype;
    int flags;     // CT_KIR_READ ...
    int64_t count; // local: elements
} ct_kbuf;

typedef struct ct_kir {
    ct_kins *ins;
    size_t n, cap;
    ct_kbuf *bufs; // parameters and locals in order of creation
    size_t nbufs, bufs_cap;
    int nparams;        // buffers that are parameters: bufs[] of the kernel function, in order
    int nargs;          // i64 args of the kernel function
    ct_kval open;       // innermost open LOOP; -1: none
    bool prefetch_mode; // loads and stores become PREFETCHes
    int32_t *shared;    // hash table of pure instructions, to find equal ones
    size_t shared_cap, nshared;
    ct_err err; // the first error of the builder
} ct_kir;

// ------------------------------------------------------------------------------ life of a kernel

void ct__kir_init(ct_kir *k);
void ct__kir_free(ct_kir *k);

// ------------------------------------------------------------------------------------ parameters

// Adds a buffer parameter: flags are CT_KIR_READ, CT_KIR_WRITE or both, and CT_KIR_ALIAS if another
// parameter may be bound to overlapping memory. Returns a buffer id (not a value).
int ct__kir_buffer(ct_kir *k, ct_dtype dtype, int flags);
// Adds scratch memory of `count` elements for one thread, 64-byte aligned. Returns a buffer id, which loads
// and stores take like any buffer. Large ones are placed in the scratch memory passed to the kernel.
int ct__kir_local(ct_kir *k, ct_dtype dtype, int64_t count);
// Adds the next i64 argument: a dynamic size, a position, a stride.
ct_kval ct__kir_arg(ct_kir *k);

// ---------------------------------------------------------------------------------------- values

ct_kval ct__kir_int(ct_kir *k, int64_t value); // an i64 constant
// The compute dtype of a dtype: itself, or a wider one.
static inline ct_dtype ct__kir_compute_dtype(ct_dtype dtype) {
    return (ct_dtype)ct__dtype(dtype)->compute;
}
// Constants of any dtype, in its compute dtype.
ct_kval ct__kir_const(ct_kir *k, ct_dtype dtype, double value); // of a float dtype (or small int)
ct_kval ct__kir_const_int(ct_kir *k, ct_dtype dtype, int64_t value); // of an int dtype or bool

ct_kval ct__kir_un(ct_kir *k, ct_kop op, ct_kval a);             // NEG .. NOT
ct_kval ct__kir_bin(ct_kir *k, ct_kop op, ct_kval a, ct_kval b); // ADD .. NE; compares give bool
ct_kval ct__kir_fma(ct_kir *k, ct_kval a, ct_kval b, ct_kval c); // a * b + c, one rounding
ct_kval ct__kir_select(ct_kir *k, ct_kval cond, ct_kval a, ct_kval b);
// c + the sum of four products, of unsigned bytes of a and signed bytes of b; all are i32. The sum wraps.
// `low`: no byte of a is above 127, so that sums of two products fit in 16 bits.
ct_kval ct__kir_dot4(ct_kir *k, ct_kval a, ct_kval b, ct_kval c, bool low);
ct_kval ct__kir_dot2(ct_kir *k, ct_kval a, ct_kval b, ct_kval c);
// For each byte of a, an i32: the byte of a table selected by its low four bits. low and high are the two
// halves of the table, i64 constants whose lowest byte is the first.
ct_kval ct__kir_lookup4(ct_kir *k, ct_kval a, ct_kval low, ct_kval high);
// To a dtype with a wider compute dtype: gives a value of the compute dtype that the dtype can represent.
ct_kval ct__kir_cast(ct_kir *k, ct_kval a, ct_dtype to);
ct_kval ct__kir_unpack_half(ct_kir *k, ct_kval word, bool high); // of u32: f32
ct_kval ct__kir_bitcast(ct_kir *k, ct_kval a, ct_dtype to); // f32 <-> i32 <-> u32, f64 <-> i64, u64
ct_kval ct__kir_math(ct_kir *k, ct_kmath f, ct_kval a);     // f32 or f64
// f(x) where `cond` is true, else y
ct_kval ct__kir_math_where(ct_kir *k, ct_kmath f, ct_kval cond, ct_kval x, ct_kval y);
ct_kval ct__kir_scale(ct_kir *k, ct_kval x, ct_kval n); // x * 2^n

static inline ct_kval ct__kir_add(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_ADD, a, b);
}
static inline ct_kval ct__kir_sub(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_SUB, a, b);
}
static inline ct_kval ct__kir_mul(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_MUL, a, b);
}
static inline ct_kval ct__kir_div(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_DIV, a, b);
}
static inline ct_kval ct__kir_mod(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_MOD, a, b);
}
static inline ct_kval ct__kir_min(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_MIN, a, b);
}
static inline ct_kval ct__kir_max(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_MAX, a, b);
}
static inline ct_kval ct__kir_lt(ct_kir *k, ct_kval a, ct_kval b) {
    return ct__kir_bin(k, CT_K_LT, a, b);
}
ct_kval ct__kir_addi(ct_kir *k, ct_kval a, int64_t b);           // i64: a + b
ct_kval ct__kir_muli(ct_kir *k, ct_kval a, int64_t b);           // i64: a * b
ct_kval ct__kir_ceil_div(ct_kir *k, ct_kval a, int64_t b);       // i64, a >= 0: (a + b - 1) / b
ct_kval ct__kir_is_in_range(ct_kir *k, ct_kval x, ct_kval n);    // i64, n >= 0: 0 <= x and x < n
bool ct__kir_is_int(const ct_kir *k, ct_kval v, int64_t *value); // true for an i64 constant

// ---------------------------------------------------------------------------------------- memory

ct_kval ct__kir_load(ct_kir *k, int buf, ct_kval index);
ct_kval ct__kir_load_if(ct_kir *k, int buf, ct_kval index, ct_kval cond); // false: 0, nothing read
// Loads element `index & 15` of a local of 16 elements, a table; index: i32. Processors that permute lanes
// look up 16 at once.
ct_kval ct__kir_lookup(ct_kir *k, int table, ct_kval index);
void ct__kir_store(ct_kir *k, int buf, ct_kval index, ct_kval value);
void ct__kir_store_if(ct_kir *k, int buf, ct_kval index, ct_kval value, ct_kval cond);
// Makes all stores to a buffer without a condition non-temporal.
void ct__kir_set_nontemporal(ct_kir *k, int buf);
// Fetches a cache line that is needed soon. Not inside a LANES loop.
void ct__kir_prefetch(ct_kir *k, int buf, ct_kval index, bool write);
// Until it is called with false, loads and stores of scalars become prefetches, so that code that reads or
// writes an element can also be used to prefetch it; a load gives 0.
void ct__kir_set_prefetch_mode(ct_kir *k, bool on);

// --------------------------------------------------------------------------- loops and registers

// Opens a loop and returns its variable. `name` is the meaning of the loop ("row"), a literal; or NULL.
ct_kval ct__kir_loop(ct_kir *k, ct_kbind bind, ct_kval extent, const char *name);
ct_kval ct__kir_loop_n(ct_kir *k, ct_kbind bind, int64_t extent, const char *name);
void ct__kir_end(ct_kir *k);                         // closes the innermost open loop
static inline void ct__kir_end_n(ct_kir *k, int n) { // the n innermost ones
    while (n-- > 0) ct__kir_end(k);
}

void ct__kir_break(ct_kir *k, ct_kval cond);

ct_kval ct__kir_reduce(ct_kir *k, ct_kred op, ct_kval value); // usable after the loop's END

ct_kval ct__kir_reg(ct_kir *k, ct_kval init);
ct_kval ct__kir_get(ct_kir *k, ct_kval reg);
void ct__kir_set(ct_kir *k, ct_kval reg, ct_kval value);

// ------------------------------------------------------------------------- 16-lane values by hand
// For templates, outside of LANES loops. All arithmetic above works lane by lane; ct__kir_reg of a 16-lane
// value is a vector register. A LOAD or STORE whose index has 16 lanes is a gather or scatter.

ct_kval ct__kir_splat(ct_kir *k, ct_kval a);
ct_kval ct__kir_iota(ct_kir *k); // i64: 0 1 ... 15
// 16 elements from index on; count (or -1: all 16): only the first `count` are accessed, the others load as
// 0. 0 <= count; more than 16 counts as 16.
ct_kval ct__kir_vload(ct_kir *k, int buf, ct_kval index, ct_kval count);
void ct__kir_vstore(ct_kir *k, int buf, ct_kval index, ct_kval value, ct_kval count);
ct_kval ct__kir_fold(ct_kir *k, ct_kred op, ct_kval a); // lanes j op= j+8, j+4, j+2, j+1: a scalar
// Interleaves lanes: a0 b0 a1 b1 ... a7 b7, or a8 b8 ... a15 b15 (`high`). Four rounds of it over 16
// vectors, v[i] with v[i + 8], transpose them.
ct_kval ct__kir_zip(ct_kir *k, ct_kval a, ct_kval b, bool high);

// -------------------------------------------------------------------------------------- functions
// A math function is a kernel of PARAM, straight-line arithmetic and one RET.

ct_kval ct__kir_param(ct_kir *k, ct_dtype dtype);
void ct__kir_ret(ct_kir *k, ct_kval value);

// ------------------------------------------------------------------------------ kernels in kernels

// Replacements for the parameters of a kernel that is inlined into another one.
typedef struct ct_kir_inlined {
    const int *buf;        // (bufs of the kernel) buffers; ignored for locals, which are added
    const ct_kval *offset; // (bufs) offset in elements; -1: none
    const ct_kval *arg;    // (nargs)
} ct_kir_inlined;
// Appends the whole body of a kernel; its grid becomes a SEQ loop.
void ct__kir_inline(ct_kir *k, const ct_kir *kernel, const ct_kir_inlined *with);
// Appends an instruction that makes a value, except ARG, LOAD and VLOAD, with other operands.
ct_kval ct__kir_clone(ct_kir *k, const ct_kins *ins, ct_kval a, ct_kval b, ct_kval c);
// True if it computes a value from others and has no other effect.
bool ct__kir_is_pure(const ct_kins *ins);

// ------------------------------------------------------------------------------------- targets

// Hoists loads and computations that are equal for all iterations out of the loops of a finished kernel, so
// that they run once per task (kir_hoist.c). least: for each buffer, the number of elements that it has in
// every run.
void ct__kir_hoist(ct_kir *k, const int64_t *least);
// Lowers the TILE loops of a finished kernel for a CPU: they become registers of 16 lanes (kir_bind.c).
// Errors are recorded in k.
void ct__kir_lower_tiles(ct_kir *k);

// ------------------------------------------------------------------------------------ inspection

bool ct__kir_verify(const ct_kir *k, ct_err *err);
// hash: of everything that the source of a kernel depends on. same: equal but for the names of loops.
ct_hash ct__kir_hash(const ct_kir *k);
bool ct__kir_same(const ct_kir *a, const ct_kir *b);
void ct__kir_print(const ct_kir *k, ct_text *out); // one instruction per line, indented by loops
const char *ct__kop_name(ct_kop op);               // "add"
const char *ct__kred_name(ct_kred op);             // "argmax"
const char *ct__kir_math_name(ct_kmath f);         // "exp"
// Returns the extent of the ROWS loop for these args; 1 without one.
int64_t ct__kir_grid(const ct_kir *k, const int64_t *args);
// Estimates how often the body of each LOOP i runs for these args, into times[i] of (k->n); one run of a
// LANES loop's body covers `lanes` iterations. An extent that depends on an outer loop is evaluated at that
// loop's first iteration. False: out of memory.
bool ct__kir_trip_counts(const ct_kir *k, const int64_t *args, int64_t lanes, double *times);
// Estimates how often the innermost loops' bodies run for these args: the largest product of extents of
// nested loops. An extent that depends on an outer loop is evaluated at that loop's first iteration.
double ct__kir_iterations(const ct_kir *k, const int64_t *args);
// Bytes of scratch memory that each thread must pass to the kernel (64-byte aligned).
size_t ct__kir_scratch(const ct_kir *k);
// Offset of a local in that scratch memory; -1: it is small and on the stack.
int64_t ct__kir_local_offset(const ct_kir *k, int buf);

// True for ARGMAX and ARGMIN, whose value is an index.
bool ct__kred_is_arg(ct_kred op);
// True if the bits depend on the order of operations, so that the order of blocks and 16 lanes is kept.
bool ct__kred_is_ordered(ct_kred op, ct_dtype dtype);
// The initial value of accumulators, a CONST of the reduced dtype: the result of an empty reduction; for
// ARGMAX and ARGMIN a value that no other is worse than.
ct_kins ct__kred_identity(ct_kred op, ct_dtype dtype);
ct_kval ct__kred_identity_value(ct_kir *k, ct_kred op, ct_dtype dtype); // the same, as a value in k
// Combines two values as the reduction does (not for ARGMAX and ARGMIN).
ct_kval ct__kred_combine(ct_kir *k, ct_kred op, ct_kval a, ct_kval b);
// True if the loop is known to run at most CT_REDUCE_BLOCK times, so that its reductions have one block.
bool ct__kir_one_block(const ct_kir *k, ct_kval loop);
// True if the loop may have more than one block of CT_REDUCE_BLOCK, and a reduction that depends on the
// order.
bool ct__kir_reduces_by_blocks(const ct_kir *k, ct_kval loop);
// Iterates over the reductions directly in a loop.
#define CT_EACH_REDUCE(k, loop, id)                                                                \
    for (ct_kval id = (loop) + 1; id < (k)->ins[loop].end; id++)                                   \
        if ((k)->ins[id].op == CT_K_REDUCE && (k)->ins[id].in == (loop))

// How a value differs between the 16 lanes (or iterations of the surrounding LANES loop).
typedef enum ct_kvary { CT_UNIFORM, CT_AFFINE, CT_VARYING } ct_kvary;
typedef struct ct_kshape {
    ct_kvary vary;
    bool nonneg;    // i64: known to be >= 0
    int64_t stride; // affine: lane l is the value of lane 0 plus l * stride
    int64_t align;  // i64: lane 0 is a multiple of this; 0: it is 0
} ct_kshape;
// Fills shape[0 .. k->n) of a kernel whose operands are all earlier instructions. `lanes`: number of
// iterations that a LANES loop runs at a time, a multiple of CT_LANES.
void ct__kir_shapes(const ct_kir *k, int64_t lanes, ct_kshape *shape);

#endif
