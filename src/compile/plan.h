// A plan: a program bound to a device, found again by the canonical record of what was pending.
#ifndef COTAN_COMPILE_PLAN_H
#define COTAN_COMPILE_PLAN_H

#include "backend/backend.h"
#include "compile/passes/split.h"
#include "compile/schedule/program.h"

typedef struct ct_plan_leaf { // for explanations
    ct_type type;
    ct_loc here;
    const char *name; // of the variable, or NULL
} ct_plan_leaf;

typedef struct ct_plan_root {
    const char *name; // of the variable that gets its first value, or NULL
    ct_loc here;
    bool fresh; // takes memory of its own
    // for explanations: what is wanted, of which node's line
    ct_root_kind kind;
    const ct_opdef *op;
    uint32_t out;
    ct_loc made;
    const char *called; // a metric's or a variable's name, else NULL
} ct_plan_root;

typedef struct ct_binding { // an operand that is the buffer of a leaf or a root
    uint32_t operand, index;
    bool is_root;
} ct_binding;

typedef struct ct_check_graph ct_check_graph; // compile/check/check.h

// A piece of a plan of several devices: a plan of one device, which runs when those before it have.
// Its leaves and roots are the whole plan's or, numbered behind those, values between pieces.
typedef struct ct_piece {
    struct ct_plan *plan;
    struct ct_executor *engine;
    ct_part *part;
} ct_piece;

typedef struct ct_plan {
    struct ct_plan *next; // in its bucket
    ct_hash hash;
    uint64_t *words; // (n_words) the canonical record, compared on a hit
    size_t n_words;
    size_t bytes;           // that it takes, kernels apart
    uint64_t stamp, number; // last use; which plan of its engine this is
    // What a run tells it anew.
    ct_hash shape;            // of the record without its sizes
    struct ct_plan *of_shape; // the next in the bucket of its shape
    uint32_t *dynamic;        // (n_dynamic) words of the record
    uint64_t *bound;          // (n_dynamic) what they are in the program now
    int64_t *values;          // (ct__symbols_count) of the atoms, for that
    size_t n_dynamic;
    bool by_itself; // some of them were not marked
    ct_arena arena;
    ct_program program;
    uint64_t placed; // number of the arena that its TEMP buffers lie in; 0: of none yet
    void *scalars;   // SCALARS buffer
    void **homes;    // (program.n_bufs) where SCALARS and CONST buffers lie; else NULL
    size_t n_scalars;
    ct_command *commands; // (n_commands) with operands to fill
    ct_operand *operands; // (n_operands)
    ct_binding *binding;  // (n_binding) the operands that a run brings
    uint32_t *behind; // (n_operands) the buffer of each, where the device keeps guards; else NULL
    size_t n_commands, n_operands, n_binding;
    size_t n_undoable;         // commands before the first that changes a variable
    bool unfinished;           // kernels of it are not compiled yet
    size_t n_regions, n_again; // that gradients might compute again; of them, that they do
    uint32_t *extra; // (n_extra) places in the order of values that a later plan wanted again
    size_t n_extra, extra_cap;
    ct_plan_leaf *leaves; // (n_leaves)
    size_t n_leaves;
    ct_plan_root *roots; // (n_roots) as they were when the plan was made
    size_t n_roots;
    ct_plan_cost *cost;    // once it was asked for
    ct_check_graph *check; // where COTAN_CHECK is set
    // Of several devices: it has pieces in place of launches.
    ct_piece *pieces; // (n_pieces)
    size_t n_pieces, n_between;
    ct_loc here;
} ct_plan;

typedef struct ct_built_kernel {
    ct_kernel made; // the first member: programs point to it
    struct ct_built_kernel *next;
    ct_hash key;
    size_t users; // programs
    size_t bytes; // with its text
} ct_built_kernel;
typedef struct ct_built {      // kernels by what they were rendered from
    ct_built_kernel **buckets; // (n_buckets) a power of two
    size_t n, n_buckets;
    size_t bytes; // of all
} ct_built;

// Memory for the temporary buffers of whatever plan runs, as large as the largest run so far needs.
// Plans share it: nothing in it outlives a run, and a device does what is enqueued in order, so that
// behind a queue, too, the first command of a run comes after the last of the one before.
typedef struct ct_temporaries {
    void *memory; // NULL when `bytes` is 0
    size_t bytes;
    uint64_t number; // grows when `memory` changes
} ct_temporaries;

typedef struct ct_executor { // one a context
    ct_device *device;
    ct_temporaries temporaries;
    ct_plan **buckets;     // (n_buckets) a power of two
    ct_plan **of_shape;    // (n_buckets) by the record without its sizes
    ct_size_words sizes;   // of the order
    uint64_t *shape_words; // scratch: the order's record without its sizes
    bool *also;            // scratch: which of its words are dynamic by themselves
    size_t shape_cap, also_cap;
    size_t n_buckets, n_plans;
    size_t plan_bytes;    // of all plans
    size_t counted_bytes; // of plans and kernels, in what ct_get_stats says
    uint64_t most_bytes;  // of them, by the environment
    uint64_t clock, made;
    uint64_t within; // bytes that devices are to hold at most, if plans can do so; 0: any
    ct_built built;
    ct_plan *newest; // the one that ran last; NULL: none, or it has gone
    ct_order order;
    ct_storage **fresh; // (n roots) storages made for a run
    size_t fresh_cap;
    ct_storage **copies; // (n_copies) of leaves that lie on other devices, for this run
    size_t n_copies, copies_cap;
    struct ct_held {
        ct_rwlock *lock;
        bool alone;
    } * held; // (n_held) of the sets whose variables a run reads or assigns, by address
    size_t n_held, held_cap;
    unsigned check; // what COTAN_CHECK asked for when the device was opened
    struct ct_check_run *checking;
    bool started;   // the device has work of this run
    ct_root *roots; // of this run: the context's, with companions
    size_t roots_cap;
    unsigned char *scalar_bytes;
    size_t scalar_cap;
} ct_executor;

// Makes the plan for an order: expand, simplify, lower, place, compile. NULL and an error in the
// context.
ct_plan *ct__plan_make(ct_ctx *ctx, ct_executor *engine, const ct_order *order,
                       const ct_root *roots, size_t n_roots);
// Of what is pending, made where it is not known, and not run; the engine's order and roots are
// its. NULL: the error stands in the context.
ct_plan *ct__pending_plan(ct_ctx *ctx, ct_loc here, ct_executor **engine);
void ct__plan_free(ct_executor *engine, ct_plan *plan);
// Its TEMP buffers lie in the engine's memory for them, which grows where that is too small.
bool ct__plan_place(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);
void ct__temporaries_free(ct_executor *engine); // when the device is idle
// Runs it with the leaves and scalars of `order`; root i's value goes to `fresh[i]`.
bool ct__plan_run(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                  ct_storage *const *fresh);

// The plan of the engine's order, found (an equal record, or one that differs in dynamic sizes alone) or
// NULL. ct__plans_make makes it: what differs from an earlier plan of its shape becomes dynamic.
ct_plan *ct__plans_find(ct_executor *engine);
ct_plan *ct__plans_make(ct_ctx *ctx, ct_executor *engine, const ct_root *roots, size_t n_roots);
void ct__plans_free(ct_executor *engine); // and their kernels
// Gives the plan's program the sizes of the engine's order. False: there is no room for them.
bool ct__plan_bind(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);

// Steps of ct__plan_make: kernels known to the engine or measured; as source; found or compiled by
// the device; commands and memory made ready.
bool ct__measure(ct_ctx *ctx, ct_executor *engine, ct_program *program);
bool ct__render(ct_ctx *ctx, ct_executor *engine, ct_program *program);
bool ct__cache(ct_ctx *ctx, ct_executor *engine, ct_program *program);
// The program is done with its kernels; those that no other uses go.
void ct__release_kernels(ct_executor *engine, ct_program *program);
// roots: the engine's that its roots are; NULL: none of them is a variable's.
bool ct__plan_prepare(ct_ctx *ctx, ct_executor *engine, ct_plan *plan, const ct_order *order,
                      const ct_root *roots);
ct_executor *ct__engine_at(ct_ctx *ctx, int place); // NULL, and an error: it cannot be opened
// Does the value lie where the engine's device does not reach?
bool ct__is_foreign(const ct_executor *engine, const ct_storage *storage);
// A copy, on the engine's device, of a value that `here` made. NULL, and an error.
ct_storage *ct__fetch(ct_ctx *ctx, ct_executor *engine, ct_storage *from, ct_loc here);
// One piece of the whole's plan, which has n roots. made: those, and the values between pieces, of which the piece
// makes its own.
bool ct__piece_run(ct_ctx *ctx, const ct_executor *whole, const ct_piece *piece, size_t n,
                   ct_storage **made);
// Before a run of an unfinished plan, and before anything is locked for it: waits for what is worth
// it.
bool ct__plan_start(ct_ctx *ctx, ct_executor *engine, ct_plan *plan);

// Where the memory of the context's device is counted, and the name of the device that computes
// (or, of a dry one, would).
const ct_account *ct__ctx_account(ct_ctx *ctx);
// The system gets back what was freed, and what waits on its device to serve again.
void ct__ctx_release_unused(ct_ctx *ctx);
const char *ct__ctx_device(ct_ctx *ctx);
double ct__ctx_gflops(ct_ctx *ctx); // of its device in a matrix product, roughly
// Plans made from here on keep what devices hold within so many bytes, by what gradients compute
// again; those that cannot do not fail for it. 0: whatever they take.
void ct__ctx_within(ct_ctx *ctx, uint64_t bytes);
void ct__ctx_record(ct_ctx *ctx,
                    ct_recorder *recorder); // its device, cpu, makes plans for it alone
void ct__ctx_waits(ct_ctx *ctx);            // its device waits for the compiler from now on

ct_storage *ct__storage_new(ct_device *device, size_t bytes, ct_err *err);
// The device that computes or, of a dry one, would.
static inline ct_device *ct__computing(ct_device *d) { return d->inner ? d->inner : d; }
static inline const char *ct__numerics(ct_device *d) { return ct__computing(d)->numerics; }
static inline ct_target ct__target(ct_device *d) {
    if (ct__computing(d)->recorder) return ct__computing(d)->recorder->target;
    const ct_backend *backend = ct__computing(d)->backend;
    return backend->target ? backend->target()
                           : (ct_target){.cores = 1, CT_TARGET_CPU_TASKS, .gflops = 0.02};
}
static inline bool ct__evaluates_ops(ct_device *d) {
    return ct__computing(d)->backend->evaluates_ops;
}

#endif
