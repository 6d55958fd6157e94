// A plan: a program bound to a device, looked up by the canonical record of the pending nodes.
#ifndef COTAN_COMPILE_PLAN_H
#define COTAN_COMPILE_PLAN_H

#include "backend/backend.h"
#include "compile/passes/split.h"
#include "compile/schedule/program.h"
#include "graph/plans.h"

typedef struct ct_plan_leaf { // for explanations
    ct_type type;
    ct_loc here;
    const char *name; // of the variable, or NULL
} ct_plan_leaf;

typedef struct ct_plan_root {
    const char *name; // of the variable whose first value it is, or NULL
    ct_loc here;
    bool fresh; // takes newly allocated memory
    // for messages: what is requested, and the line of the node
    ct_root_kind kind;
    const ct_opdef *op;
    uint32_t out;
    ct_loc node_here;
    const char *label; // name of the metric or variable, else NULL
} ct_plan_root;

typedef struct ct_binding { // an operand that is the buffer of a leaf or a root
    uint32_t operand, index;
    bool is_root;
} ct_binding;

typedef struct ct_check_graph ct_check_graph; // compile/check/check.h

// A subplan of a plan of several devices: a plan of one device, which runs after the subplans before it.
// Its leaves and roots are those of the whole plan or, numbered after these, values between subplans.
typedef struct ct_subplan {
    struct ct_plan *plan;
    struct ct_executor *engine;
    ct_part *part;
} ct_subplan;

typedef struct ct_plan {
    struct ct_plan *next; // in its bucket
    ct_hash hash;
    uint64_t *words; // (n_words) the canonical record, compared on a hit
    size_t n_words;
    size_t bytes;           // memory of the plan without its kernels
    uint64_t stamp, number; // time of the last use; number among the executor's plans
    // Sizes that are bound at each run.
    ct_hash shape;                 // of the record without its sizes
    struct ct_plan *next_of_shape; // the next in its bucket of shape_buckets
    uint32_t *dynamic;             // (n_dynamic) words of the record
    uint64_t *bound_sizes;         // (n_dynamic) the values to which the program is bound
    int64_t *values;               // (ct__symbols_count) scratch: values of the atoms
    size_t n_dynamic;
    bool auto_dynamic; // some of them are not marked by the user
    ct_arena arena;
    ct_program program;
    uint64_t arena_number; // number of the arena that its TEMP buffers are in; 0: none yet
    void *scalars;         // SCALARS buffer
    void **const_buffers;  // (program.n_bufs) memory of SCALARS and CONST buffers; else NULL
    size_t n_scalars;
    ct_command *commands; // (n_commands) with operands to fill in
    ct_operand *operands; // (n_operands)
    ct_binding *bindings; // (n_bindings) the operands that each run sets
    // (n_operands) the buffer of each, if the device keeps guard bytes; else NULL
    uint32_t *operand_buf;
    size_t n_commands, n_operands, n_bindings;
    size_t n_cancellable;           // commands before the first that changes a variable
    bool unfinished;                // some of its kernels are not compiled yet
    size_t n_regions, n_recomputed; // that gradients may recompute; number of these that they do
    uint32_t *extra; // (n_extra) positions in the order of values that a later plan used again
    size_t n_extra, extra_cap;
    ct_plan_leaf *leaves; // (n_leaves)
    size_t n_leaves;
    ct_plan_root *roots; // (n_roots) as they were when the plan was made
    size_t n_roots;
    ct_plan_cost *cost;    // the report, once it was requested
    ct_check_graph *check; // if COTAN_CHECK is set
    // A plan of several devices has subplans instead of launches.
    ct_subplan *subplans; // (n_pieces)
    size_t n_subplans, n_between;
    ct_loc here;
} ct_plan;

typedef struct ct_cached_kernel {
    ct_kernel made; // first member: programs point to it
    struct ct_cached_kernel *next;
    ct_hash key;
    size_t users; // number of programs
    size_t bytes; // with its source
} ct_cached_kernel;
typedef struct ct_kernel_cache { // kernels by the hash of their IR
    ct_cached_kernel **buckets;  // (n_buckets) a power of two
    size_t n, n_buckets;
    size_t bytes; // of all
} ct_kernel_cache;

// Memory for the temporary buffers of whichever plan runs, as large as the largest run so far needs. Plans
// share it: no temporary outlives a run, and a device executes commands in order, so that on a queue, too,
// the first command of a run comes after the last one of the run before.
typedef struct ct_temporaries {
    void *memory; // NULL when `bytes` is 0
    size_t bytes;
    uint64_t number; // grows when `memory` changes
} ct_temporaries;

typedef struct ct_executor { // one per context
    ct_device *device;
    ct_temporaries temporaries;
    ct_plan **buckets;       // (n_buckets) a power of two
    ct_plan **shape_buckets; // (n_buckets) by the record without its sizes
    ct_size_words sizes;     // of the order
    uint64_t *shape_words;   // scratch: the order's record without its sizes
    bool *auto_dynamic;      // scratch: which of its words became dynamic automatically
    size_t shape_cap, auto_dynamic_cap;
    size_t n_buckets, n_plans;
    size_t plan_bytes;    // of all plans
    size_t counted_bytes; // of plans and kernels, as counted by ct_get_stats
    uint64_t max_bytes;   // limit of these, from the environment
    uint64_t clock, n_made;
    // the bytes of device memory that plans should stay within, if they can; 0: no limit
    uint64_t memory_limit;
    ct_kernel_cache kernel_cache;
    ct_plan *latest_plan; // the plan that ran last; NULL: none, or it was freed
    ct_order order;
    ct_storage **fresh; // (n roots) storages allocated for a run
    size_t fresh_cap;
    ct_storage **copies; // (n_copies) copies for this run of leaves on other devices
    size_t n_copies, copies_cap;
    struct ct_held_lock {
        ct_rwlock *lock;
        bool exclusive;
    } * locks; // (n_locks) locks of the sets whose variables a run reads or assigns, by address
    size_t n_locks, locks_cap;
    unsigned check; // the checks that COTAN_CHECK named when the device was opened
    struct ct_check_run *checking;
    bool started;   // the device has commands of this run
    ct_root *roots; // of this run: the context's, and added ones
    size_t roots_cap;
    unsigned char *scalar_bytes;
    size_t scalar_cap;
} ct_executor;

// Makes the plan of an order by running all passes (lower.c). NULL: the error is in the context.
ct_plan *ct__plan_make(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                       const ct_root *roots, size_t n_roots);
// Finds or makes the plan of the pending roots, without running it. The executor's order and roots are
// those of the plan. NULL: the error is in the context.
ct_plan *ct__pending_plan(ct_ctx *ctx, ct_loc here, ct_executor **engine);
void ct__plan_free(ct_executor *engine, ct_plan *plan);
// Points its TEMP buffers to the executor's arena, which grows if it is too small.
bool ct__plan_place_temporaries(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);
void ct__temporaries_free(ct_executor *engine); // call it when the device is idle
// Runs the plan with the leaves and scalars of `order`; the value of root i is written to `fresh[i]`.
bool ct__plan_run(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                  ct_storage *const *fresh);

// find: returns the plan of the executor's order (with an equal record, or one that differs only in dynamic
// sizes), or NULL. make: makes it; sizes that differ from an earlier plan of its shape become dynamic.
ct_plan *ct__plans_find(ct_executor *engine);
ct_plan *ct__plans_make(ct_ctx *ctx, ct_executor *engine, const ct_root *roots, size_t n_roots);
void ct__plans_free(ct_executor *engine); // and their kernels
// Binds the plan's program to the sizes of the executor's order. False: there is not enough memory for
// them.
bool ct__plan_bind(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);

// Steps of ct__plan_make. Measure: finds kernels in the executor's cache, or measures their resources.
// Render: writes their source. Compile: finds or compiles them on the device. Prepare: makes commands and
// constant memory.
bool ct__measure_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program);
bool ct__render_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program);
bool ct__compile_kernels(ct_ctx *ctx, ct_executor *engine, ct_program *program);
// Releases the program's kernels; those that no other program uses are freed.
void ct__release_kernels(ct_executor *engine, ct_program *program);
// roots: the executor's roots, which are the plan's; NULL: none of them is a variable.
bool ct__plan_prepare(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                      const ct_root *roots);
// NULL: it cannot be opened, the error is recorded
ct_executor *ct__executor_at(ct_ctx *ctx, int device);
// True if the value is in memory that the executor's device cannot access.
bool ct__is_foreign(const ct_executor *engine, const ct_storage *storage);
// Copies a value, which `here` made, to the executor's device. NULL: the error is recorded.
ct_storage *ct__copy_to_device(ct_ctx *ctx, ct_executor *engine, ct_storage *from, ct_loc here);
// Runs one subplan of a plan of n roots. made: storages of these and of the values between subplans; the
// subplan adds its own.
bool ct__subplan_run(ct_ctx *ctx, const ct_executor *whole, const ct_subplan *piece, size_t n,
                     ct_storage **made);
// Call it before a run of a plan with unfinished kernels, before any lock is taken: waits for the compiler
// if that is worthwhile.
bool ct__plan_await_kernels(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);

// Its device, cpu, makes plans only for the recorder.
void ct__ctx_set_recorder(ct_ctx *ctx, ct_recorder *recorder);

ct_storage *ct__storage_new(ct_device *device, size_t bytes, ct_err *err);
// The device that computes or, in a dry run, would compute.
static inline ct_device *ct__computing_device(ct_device *d) { return d->inner ? d->inner : d; }
static inline const char *ct__numerics(ct_device *d) { return ct__computing_device(d)->numerics; }
static inline ct_target ct__target(ct_device *d) {
    if (ct__computing_device(d)->recorder) return ct__computing_device(d)->recorder->target;
    const ct_backend *backend = ct__computing_device(d)->backend;
    return backend->target ? backend->target()
                           : (ct_target){.cores = 1, CT_TARGET_CPU_TASKS, .gflops = 0.02};
}
static inline bool ct__evaluates_ops(ct_device *d) {
    return ct__computing_device(d)->backend->evaluates_ops;
}

#endif
