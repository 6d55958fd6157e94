// What a plan executes: buffers, and a tree of launches, loops and branches written down in order.
// Made from an expanded graph by one of two lowerings: `ops`, one launch a node (for devices that
// evaluate ops, such as ref), or `kernels`, fused loops in kernel IR (for the others).
#ifndef COTAN_COMPILE_PROGRAM_H
#define COTAN_COMPILE_PROGRAM_H

#include "backend/backend.h"
#include "compile/passes/passes.h"
#include "graph/symbols.h"

typedef enum ct_buf_kind {
    CT_BUF_LEAF,    // storage of leaf `index`; written only by an assignment in place
    CT_BUF_SCALARS, // all scalar operands, 8 bytes apart
    CT_BUF_CONST,   // `data`, uploaded once with the plan
    CT_BUF_ROOT, // the value of root `index`: a fresh storage a run; of an ASSIGN: the variable's
                 // storage
    CT_BUF_TEMP, // in the plan's arena at `offset`
} ct_buf_kind;

typedef struct ct_buf {
    ct_buf_kind kind;
    uint32_t index;
    size_t bytes;
    int64_t size;        // the same as attributes hold it: a symbol where it is dynamic
    const void *data;    // CONST
    size_t offset;       // TEMP: set by the memory plan, a multiple of 64
    const ct_node *node; // whose value it holds, for messages; may be NULL
} ct_buf;

typedef struct ct_arg {
    uint32_t buf;
    size_t offset; // bytes from the buffer's start
    bool write;
} ct_arg;

typedef enum ct_launch_kind {
    CT_LAUNCH_NODE,   // evaluate `node`: args are its operands, then its outputs
    CT_LAUNCH_KERNEL, // run kernel `kernel` over a grid: args are its buffers
    CT_LAUNCH_COPY,   // args[0] to args[1], `bytes`
    // The inner nodes of the tree. Each reaches to its END; the children of a SWITCH are BRANCHes,
    // each of which reaches to the next one.
    CT_LAUNCH_LOOP,   // `count` times; with args[0], a bool, while it holds before an iteration
    CT_LAUNCH_SWITCH, // args[0], a whole number, says which of `count` branches
    CT_LAUNCH_BRANCH,
    CT_LAUNCH_BATCH, // `count` kernels and copies that do not need each other, as one launch
    CT_LAUNCH_END,
} ct_launch_kind;

typedef struct ct_launch {
    ct_launch_kind kind;
    const ct_node
        *node; // NODE: what to evaluate; else the node it serves first, for messages and profiles
    const char *label; // KERNEL: what it computes; NULL: that node's op
    uint32_t kernel;
    ct_arg *args;
    uint32_t n_args;
    ct_step *steps;      // (n_steps) which arguments move on in the loops around, and how far
    int64_t *step_sizes; // (n_steps) their bytes as attributes hold them
    uint32_t n_steps;
    int64_t *numbers; // KERNEL: its i64 arguments (dynamic sizes)
    int32_t *atoms;   // (n_numbers) of the plan's symbols, that each of them is; -1: `size`
    uint32_t n_numbers;
    uint32_t turn;  // KERNEL: as of a command
    bool batched;   // KERNEL, COPY: stands in a BATCH
    int64_t size;   // COPY, LOOP: `bytes`, `count` as attributes hold them; KERNEL: a number
    int64_t grid;   // KERNEL: extent of its core loop
    int64_t count;  // LOOP (INT64_MAX: the predicate alone ends it), SWITCH, BATCH
    ct_dtype dtype; // SWITCH: of args[0]
    size_t bytes;   // COPY; KERNEL: bytes it must move, for reports
    double flops;   // KERNEL: for reports, and to decide whether threads pay
} ct_launch;

struct ct_kir; // a kernel in kernel IR
struct ct_program_kernel {
    struct ct_kir *ir;
    uint64_t hash;   // of it
    ct_kernel *made; // the engine's; NULL until rendered
};

// Temporary buffers from the lowest place up, and of each those that it lies directly above.
typedef struct ct_stacking {
    size_t n;
    uint32_t *buf;   // (n) numbers of buffers
    uint32_t *first; // (n + 1) where each one's part of `below` begins
    uint32_t *below; // places in `buf`
} ct_stacking;

typedef struct ct_program {
    ct_arena *arena;            // of the plan: everything here lives in it
    ct_target target;           // kernels
    struct ct_symbols *symbols; // dynamic sizes (graph/symbols.h)
    ct_buf *bufs;
    size_t n_bufs, bufs_cap;
    ct_launch *launches;
    size_t n_launches, launches_cap;
    size_t n_again;                    // of them, those of groups that are as earlier ones
    struct ct_program_kernel *kernels; // (n_kernels) distinct ones
    size_t n_kernels, kernels_cap;
    size_t new_kernels;   // that the engine had not met before
    size_t guard;         // bytes to keep free behind each temporary buffer
    size_t arena_bytes;   // set by the memory plan
    ct_stacking stacking; // by the memory plan, where sizes are dynamic; else empty
} ct_program;

typedef struct ct_place {
    uint32_t buf;
    size_t offset;
} ct_place;
static inline ct_arg ct__arg_at(ct_place place) {
    return (ct_arg){.buf = place.buf, .offset = place.offset};
}
// Parts of a program, NULL, false or UINT32_MAX: no memory.
// Of a buffer `size` is given, of a launch's numbers the values.
uint32_t ct__program_buf(ct_program *p, ct_buf buf);
// How many a tensor has, as attributes hold sizes.
int64_t ct__elements_of(const ct_type *type);
int64_t ct__bytes_of(const ct_type *type);
ct_launch *ct__program_launch(ct_program *p, ct_launch launch, uint32_t n_args, uint32_t n_numbers);
// A launch whose arguments are there, in the program's arena.
ct_launch *ct__program_append(ct_program *p, ct_launch launch);
// size: in bytes, as attributes hold it.
bool ct__program_copy(ct_program *p, ct_arg from, ct_arg to, const ct_node *node, int64_t size);
// The number of a kernel, of an equal one where there is one already; else it takes *ir, which then
// is NULL.
bool ct__program_kernel(ct_program *p, struct ct_kir **ir, uint32_t *number);
// Does a launch run something, rather than say what runs?
static inline bool ct__launch_runs(const ct_launch *l) { return l->kind <= CT_LAUNCH_COPY; }
// Does it count as a launch? A batch is one.
static inline bool ct__launch_counts(const ct_launch *l) {
    return l->kind == CT_LAUNCH_BATCH || (ct__launch_runs(l) && !l->batched);
}
// A launch as a command without its operands, and without `skip`.
ct_command ct__program_command(const ct_program *p, const ct_launch *launch);
// How many launches a kernel has, and the node that the first of them serves.
size_t ct__program_uses(const ct_program *p, size_t kernel, const ct_node **first);
void ct__program_free(ct_program *p); // what does not lie in its arena
// Where a leaf lies; its buffer is made at the first call. leaf_buf (n_leaves) and scalars: the
// buffers made so far, UINT32_MAX where none is.
bool ct__program_leaf(ct_program *p, const ct_node *node, uint32_t *leaf_buf, uint32_t *scalars,
                      ct_place *to);

// The two lowerings. On failure false with the error recorded.
bool ct__lower_ops(const ct_graph *graph, ct_program *program, ct_err *err);
bool ct__lower_kernels(const ct_graph *graph, ct_program *program, ct_err *err); // fuse, schedule
// A node that owns bodies, its operands and wanted outputs at the given places, as a loop or a choice of launches,
// the bodies lowered by `lower`. A carried tensor may lie where it begins.
typedef bool (*ct_lowering)(const ct_graph *graph, ct_program *program, ct_err *err);
// The launches from a LOOP on, which are the program's last ones as their kernels are from number
// `n_kernels` on: where they are small, one kernel in their place (merge_loop.c).
bool ct__merge_loop(ct_program *p, size_t from, size_t n_kernels, ct_err *err);
bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_place *in, const ct_place *out,
                    const bool *wanted, ct_lowering lower, ct_err *err);

#endif
