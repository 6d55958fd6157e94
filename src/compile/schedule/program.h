// The program that a plan executes: buffers, and a tree of launches, loops and branches, written down in
// order.
//
// It is made from an expanded graph by one of two lowerings: `ops`, one launch a node (for devices that
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
    // the value of root `index`: new storage in each run; of an ASSIGN: the variable's storage
    CT_BUF_ROOT,
    CT_BUF_TEMP, // in the plan's arena at `offset`
} ct_buf_kind;

typedef struct ct_buf {
    ct_buf_kind kind;
    uint32_t index;
    size_t bytes;
    int64_t size;        // `bytes` as attributes hold it: a symbol where it is dynamic
    const void *data;    // CONST
    size_t offset;       // TEMP: set by the memory plan, a multiple of 64
    const ct_node *node; // the node whose value it holds, for messages; may be NULL
} ct_buf;

typedef struct ct_arg {
    uint32_t buf;
    size_t offset; // bytes from the buffer's start
    bool write;
} ct_arg;

typedef enum ct_launch_kind {
    CT_LAUNCH_NODE,   // evaluates `node`: args are its operands, then its outputs
    CT_LAUNCH_KERNEL, // runs kernel `kernel` over a grid: args are its buffers
    CT_LAUNCH_COPY,   // copies `bytes` from args[0] to args[1]
    // The inner nodes of the tree. Each reaches to its END; the children of a SWITCH are BRANCHes, each of
    // which reaches to the next one.
    CT_LAUNCH_LOOP,   // `count` times; with args[0], a bool: while that is true before an iteration
    CT_LAUNCH_SWITCH, // runs one of `count` branches: that with number args[0], an integer
    CT_LAUNCH_BRANCH,
    CT_LAUNCH_BATCH, // `count` kernels and copies that do not depend on each other, as one launch
    CT_LAUNCH_END,
} ct_launch_kind;

typedef struct ct_launch {
    ct_launch_kind kind;
    // NODE: what to evaluate; else the first node that the launch computes, for messages and profiles
    const ct_node *node;
    const char *label; // KERNEL: what it computes; NULL: the op of `node`
    uint32_t kernel;
    ct_arg *args;
    uint32_t n_args;
    // (n_steps) arguments that advance in the surrounding loops, and by how many bytes
    ct_step *steps;
    int64_t *step_sizes; // (n_steps) those bytes as attributes hold them
    uint32_t n_steps;
    int64_t *numbers; // KERNEL: its i64 arguments (dynamic sizes)
    // (n_numbers) the atom of the plan's symbols that each number is; -1: the number is `size`
    int32_t *atoms;
    uint32_t n_numbers;
    // KERNEL: the last of at most 8 numbers is the iteration of the loop at depth turn - 1; 0: of none
    uint32_t turn;
    bool batched;   // KERNEL, COPY: it is a member of a BATCH
    int64_t size;   // COPY, LOOP: `bytes`, `count` as attributes hold them; KERNEL: a number
    int64_t grid;   // KERNEL: extent of its loop over tasks
    int64_t count;  // LOOP (INT64_MAX: the predicate alone ends it), SWITCH, BATCH
    ct_dtype dtype; // SWITCH: of args[0]
    size_t bytes;   // COPY; KERNEL: bytes it must move, for reports
    double flops;   // KERNEL: for reports, and to decide whether threads are worth their start
} ct_launch;

struct ct_kir; // a kernel in kernel IR
struct ct_program_kernel {
    struct ct_kir *ir;
    uint64_t hash;   // of `ir`
    ct_kernel *made; // the engine's kernel; NULL until rendered
};

// Temporary buffers by ascending offset, and for each the buffers directly below it.
typedef struct ct_stacking {
    size_t n;
    uint32_t *buf;   // (n) numbers of buffers
    uint32_t *first; // (n + 1) where the part of `below` of each begins
    uint32_t *below; // indices into `buf`
} ct_stacking;

typedef struct ct_program {
    ct_arena *arena;            // of the plan, which owns all memory of the program
    ct_target target;           // target of the kernels
    struct ct_symbols *symbols; // dynamic sizes (graph/symbols.h)
    ct_buf *bufs;
    size_t n_bufs, bufs_cap;
    ct_launch *launches;
    size_t n_launches, launches_cap;
    size_t n_again;                    // of these, the launches of groups that equal earlier groups
    struct ct_program_kernel *kernels; // (n_kernels) distinct kernels
    size_t n_kernels, kernels_cap;
    size_t new_kernels;   // number of kernels that the engine did not have before
    size_t guard;         // bytes to keep free after each temporary buffer
    size_t arena_bytes;   // set by the memory plan
    ct_stacking stacking; // set by the memory plan where sizes are dynamic; else empty
} ct_program;

typedef struct ct_location {
    uint32_t buf;
    size_t offset;
} ct_location;
static inline ct_arg ct__arg_at(ct_location location) {
    return (ct_arg){.buf = location.buf, .offset = location.offset};
}
// Functions that append to a program. They return NULL, false or UINT32_MAX if there is no memory. The
// caller sets `size` of a buffer and the values of a launch's numbers.
uint32_t ct__program_buf(ct_program *p, ct_buf buf);
// Return the number of elements and of bytes of a tensor, as attributes hold sizes.
int64_t ct__elements_of(const ct_type *type);
int64_t ct__bytes_of(const ct_type *type);
ct_launch *ct__program_launch(ct_program *p, ct_launch launch, uint32_t n_args, uint32_t n_numbers);
// Appends a launch whose arguments are already in the program's arena.
ct_launch *ct__program_append(ct_program *p, ct_launch launch);
// size: in bytes, as attributes hold it.
bool ct__program_copy(ct_program *p, ct_arg from, ct_arg to, const ct_node *node, int64_t size);
// Gives the number of a kernel, which is that of an equal kernel where there is one; else the program takes
// *ir, which then is NULL.
bool ct__program_kernel(ct_program *p, struct ct_kir **ir, uint32_t *number);
// True if a launch runs something, rather than control what runs.
static inline bool ct__launch_runs(const ct_launch *l) { return l->kind <= CT_LAUNCH_COPY; }
// True if it counts as a launch. A batch is one.
static inline bool ct__launch_counts(const ct_launch *l) {
    return l->kind == CT_LAUNCH_BATCH || (ct__launch_runs(l) && !l->batched);
}
// Returns a launch as a command without its operands and without `skip`.
ct_command ct__program_command(const ct_program *p, const ct_launch *launch);
// Returns how many launches a kernel has, and the node of the first of them.
size_t ct__program_uses(const ct_program *p, size_t kernel, const ct_node **first);
void ct__program_free(ct_program *p); // frees what is not in its arena
// Finds the location of a leaf, whose buffer is made at the first call. leaf_buf (n_leaves) and scalars:
// the buffers made so far, UINT32_MAX where there is none.
bool ct__program_leaf(ct_program *p, const ct_node *node, uint32_t *leaf_buf, uint32_t *scalars,
                      ct_location *to);

// The two lowerings. They return false, with the error recorded, if they fail.
bool ct__lower_ops(const ct_graph *graph, ct_program *program, ct_err *err);
// The passes fuse and schedule.
bool ct__lower_kernels(const ct_graph *graph, ct_program *program, ct_err *err);
// Lowers a node that owns bodies to a loop or a switch of launches, with its operands and wanted outputs at
// the given locations; `lower` lowers the bodies. A carried tensor's output may have the location of its
// first value.
typedef bool (*ct_lowering)(const ct_graph *graph, ct_program *program, ct_err *err);
// Replaces the launches from a LOOP on by one kernel where they are small (merge_loop.c). They are the
// program's last launches, and their kernels are those from number `n_kernels` on.
bool ct__merge_loop(ct_program *p, size_t from, size_t n_kernels, ct_err *err);
bool ct__lower_loop(ct_program *p, const ct_node *node, const ct_location *in,
                    const ct_location *out, const bool *wanted, ct_lowering lower, ct_err *err);

#endif
