// The graph: nodes, storages, handles, scopes, contexts.
//
// A node is one application of an op. Its operands are older nodes, so there are no cycles. Nodes live in
// the arena of a frame (a scope, or a trace being recorded) and are freed with it. A handle names one
// output of a node by slot and generation, so that a stale one is always detected.
#ifndef COTAN_GRAPH_GRAPH_H
#define COTAN_GRAPH_GRAPH_H

#include <stdatomic.h>

#include "base/rwlock.h"
#include "graph/op.h"

typedef struct ct_var ct_var;
typedef struct ct_frame ct_frame;

// Returns the next n bytes of a value, which are valid until the next call; n = 0: the end. False: they
// cannot be read.
typedef bool (*ct_chunk_fn)(void *user, const void **bytes, size_t *n, ct_err *err);

// Device memory of one dense tensor, reference counted; all nodes that have this value share it.
typedef struct ct_storage {
    atomic_int refs;
    void *buffer; // the device's representation; not readable by the host
    size_t bytes;
    void *owner;                              // the device
    void (*destroy)(struct ct_storage *self); // frees buffer and self
    _Atomic(void *) mirror;                   // host copy made for ct_data, or NULL
    uint64_t begin, end; // the owner's events (begin, end] enclose the work that wrote it
    // Of a variable: its version; the id of the context that assigned it, and how many reads of that
    // context hold it.
    uint64_t version, assigner;
    uint32_t assigner_holds;
} ct_storage;
ct_storage *ct__storage_ref(ct_storage *storage); // NULL returns NULL
void ct__storage_unref(ct_storage *storage);

typedef struct ct_val { // one output of a node
    ct_node *node;
    uint32_t out;
} ct_val;

enum {
    CT_NODE_POISON = 1, // carries the context's error
    CT_NODE_KEPT = 2,   // a root; becomes a leaf when its scope ends
    CT_NODE_PINNED = 4,
    CT_NODE_EXTRA = 8, // has a value only because an earlier plan's boundary needed it
    CT_NODE_DROPPED = 16,
    CT_NODE_VARIABLE = 128, // the node of a variable: its handle is resolved to a value
    CT_NODE_RAN = 64,       // a plan has computed it, whether or not the value was kept
    CT_NODE_OPEN = 32,      // scratch of ct__order: is on a path between a gradient's loss and its
                            // wrt
    CT_NODE_COPY = 256,     // of a trace: represents values of other nodes, `copy_of`
    CT_NODE_WIDENED = 512,  // a bare number combined with an f64, where another node replaces it
    CT_NODE_STORED = 1024,  // a version whose assignment ran: the variable has its value
    // What a gradient may find among a value's ancestors, along paths that carry derivatives:
    CT_NODE_FROM_VARIABLE = 2048, // a variable
    CT_NODE_FROM_LEAF = 4096,     // a leaf computed from a variable in a scope that has ended
    // In a rolling scope:
    CT_NODE_TRACKED = 8192, // its history is kept: it depends on a tracked variable or value
    CT_NODE_QUEUED = 16384, // is in the context's `unused`
    CT_NODE_FREED = 32768,  // freed; its memory is reused after a sweep, or when its frame ends
};

struct ct_node {
    // fields used by recording and traversal, in one cache line
    const ct_opdef *op;
    ct_ctx *ctx;
    ct_type *out; // (n_out)
    union {
        ct_val *in;      // (n_in)
        uint64_t number; // of a leaf: a scalar's bits, a read's version, a parameter's index
    };
    ct_storage **value; // (n_out) of leaves with data and of evaluated nodes; else NULL
    uint64_t epoch;     // scratch of traversals: `index` is valid in this epoch
    uint32_t index;
    uint32_t users; // number of recorded nodes and pending roots that use it
    uint16_t n_in, n_out;
    uint16_t flags;
    uint16_t region; // recomputation region that it is part of; 0: none
    // the remaining fields
    uint32_t slot; // 0: has no handle yet
    union {
        const void *attrs;
        ct_storage *held; // of a read or version in a rolling scope: see ct__held_storage
    };
    ct_frame *frame;
    ct_node *next; // next in the frame, newest first
    ct_loc here;
    ct_var *var; // of a variable, a read or a version
    union {
        struct {
            uint32_t ran_plan, ran_index; // RAN: the last plan that computed it, its index there
        };
        void *mirror;    // of a version: host copy made for ct_data
        double precise;  // of a bare number: before it was rounded to f32
        ct_val *copy_of; // (n_out) COPY: the values, {NULL} for none
    };
};
_Static_assert(sizeof(ct_node) == 128, "a node is two cache lines");
// Of a node that has a handle: other threads may read the flags meanwhile (ct__peek_lock).
static inline void ct__flag(ct_node *node, unsigned flags) {
    __atomic_store_n(&node->flags, (uint16_t)(node->flags | flags), __ATOMIC_RELAXED);
}
static inline void ct__unflag(ct_node *node, unsigned flags) {
    __atomic_store_n(&node->flags, (uint16_t)(node->flags & ~flags), __ATOMIC_RELAXED);
}
static inline void ct__node_set_values(ct_node *node, ct_storage **values) { // (n_out)
    __atomic_store_n(&node->value, values, __ATOMIC_RELEASE);
}
static inline void ct__node_set_value(ct_node *node, uint32_t out, ct_storage *value) {
    __atomic_store_n(&node->value[out], value, __ATOMIC_RELEASE);
}
static inline const ct_type *ct__type(ct_val v) { return &v.node->out[v.out]; }
// True if it may be used as it is on any device: a scalar, a constant, a random key, or a value computed
// from these on the same source line.
bool ct__fits_any_device(ct_val v, const ct_loc *here);

// What a read of one version of a variable resolves to in one context. As long as the frame (depth,
// serial) of the assignment exists, it is a node whose operand is the assigned value; after that, a leaf
// as long as the frame of the first read exists. In a rolling scope either exists as long as it is
// referenced, so that a step that reads values has one node for a version.
typedef struct ct_current {
    const ct_var *of; // key in a context's table
    uint64_t version;
    ct_val value;  // the assigned value; {NULL}: only the storage has it
    ct_node *node; // NULL: not read yet
    uint32_t depth, serial;
    bool carried;   // valid although its rolling frame has ended
    uint64_t epoch; // of a gradient with respect to the variable, while it is recorded;
    ct_node *met;   // the node by which its loss reads it
} ct_current;

// A variable: a leaf whose storage a plan updates in place. Contexts read it concurrently. Its contents
// and storage are accessed only under the set's lock, which reading plans share and the assigning plan
// holds exclusively. Fields that change without the lock are atomic, or belong to the writer.
struct ct_var {
    ct_node node; // op "variable"; its handle is the variable's handle
    char *name;
    ct_type type;
    ct_rwlock *lock;               // of its set
    _Atomic(ct_storage *) storage; // NULL until the first assignment ran; protected by `lock`
    _Atomic uint64_t version;      // of the storage; protected by `lock`
    _Atomic(ct_ctx *) writer;      // the context with a pending assignment, or NULL
    ct_loc assigned;               // line of the pending assignment; the writer's
    ct_loc ran;                    // line of the latest assignment that ran; protected by `lock`
    // How often the pending assignment replaced another one in the same scope (context id and frame
    // serial); the writer's.
    uint32_t reassigned;
    uint64_t reassigned_scope;
    bool open;          // its axis 0 is dynamic from the first plan on
    atomic_bool freed;  // its set was freed; the record is freed with the last read leaf;
                        // protected by `lock`
    atomic_bool broken; // an update failed halfway; protected by `lock`
    atomic_int refs;    // one for its set (or, after that, for `own_refs`), one for each read leaf
                        // of other contexts
    ct_var *next;       // in a list of free or deferred records
    uint64_t owner;     // id of the context that made it; only that one uses the fields below
    bool orphaned;      // the set was freed: only `own_refs` holds the record
    ct_current current;
    uint32_t own_refs; // number of read leaves of this context
    uint32_t index;
    uint64_t epoch; // of an order in which its storage is leaf `index`
    bool tracked;   // values computed from it in a rolling scope keep their history
};
// A version's reference to the record, released when its frame ends.
void ct__var_ref(ct_var *var, const ct_ctx *ctx);
void ct__var_unref(ct_var *var, const ct_ctx *ctx);
// Takes a reference by handle; another thread may be freeing the set. NULL: t is not a variable.
ct_var *ct__var_acquire(ct_tensor t, const ct_ctx *ctx);
// Another version became current: the leaf of this one is freed with its last user, unless the caller may
// hold its host copy.
void ct__current_replaced(const ct_ctx *ctx, const ct_current *now);
uint64_t ct__new_version(ct_ctx *ctx); // a unique version number
// Under the lock: the storage now has this version, that of the pending assignment.
void ct__var_set_version(ct_var *var, uint64_t version);
// Runs pending work, then writes the bytes that `next` returns to the variable, in place: unlike an
// assignment, it needs no second copy in memory.
bool ct__var_fill(ct_ctx *ctx, ct_tensor variable, ct_chunk_fn next, void *user, ct_loc here);
// Makes the variable refer to n bytes of the host without a copy (a mapped file). They are never written,
// since an assignment gives the variable its own memory. The caller holds the returned storage and
// releases it last. NULL: the device cannot read them in place (no error), or an error.
ct_storage *ct__var_borrow(ct_ctx *ctx, ct_tensor variable, const void *data, size_t n,
                           ct_loc here);
// Runs pending work, then moves the variable to another device.
bool ct__var_move(ct_ctx *ctx, ct_tensor variable, int device, ct_loc here);
// The pending assignment has ended.
void ct__var_assignment_done(ct_var *var, const ct_ctx *ctx);
// Frees variables whose sets were freed by other contexts.
void ct__vars_free_deferred(ct_ctx *ctx);
bool ct__var_defer_free(ct_var *var); // hands it to its context; false: that is gone
void ct__vars_end(void);              // frees the free list of records
// A new leaf that reads the variable's current version, outside of traced functions. NULL: out of memory.
ct_node *ct__read_leaf(ct_ctx *ctx, ct_var *var, ct_loc here);
// A version as long as its assignment's frame exists: a node with one operand.
typedef struct ct_version_node {
    ct_node node;
    ct_val value;
    uint64_t version;
} ct_version_node;
static inline uint64_t ct__version_of(const ct_node *node) {
    return node->n_in ? ((const ct_version_node *)node)->version : node->number;
}
// In rolling scopes a read holds the storage that it found, so that another context's assignment does not
// overwrite its version: an assignment writes in place only to a storage without other references. NULL:
// there is none, or it was assigned in place since. If another context assigned it, the read is an
// ordinary value, and `value` points to `held`; otherwise it represents the variable's contents, until
// ct__read_detach.
static inline ct_storage *ct__held_storage(const ct_node *node) {
    return node->held && node->held->version == ct__version_of(node) ? node->held : NULL;
}
void ct__hold_version(const ct_ctx *ctx, ct_node *node); // after it was read, or has run
static inline void ct__read_detach(ct_node *read) {
    read->held->assigner_holds--;
    read->value = &read->held;
}
static inline bool ct__is_version_lost(const ct_node *node) { // the version that it reads was
                                                              // overwritten
    return ct__version_of(node) != node->var->version && !ct__held_storage(node);
}

typedef enum {
    CT_ROOT_KEEP,
    CT_ROOT_READ,
    CT_ROOT_ASSIGN,
    CT_ROOT_METRIC,
    CT_ROOT_STORE, // used in an inner scope
    CT_ROOT_EXTRA  // used in a later turn than that of the plan that computed it
} ct_root_kind;
typedef struct ct_root {
    ct_root_kind kind;
    ct_val val;
    ct_var *var;      // ASSIGN
    ct_val first;     // in a rolling scope, of a variable without a value: what was assigned
                      // before this replaced it; else {NULL}
    const char *name; // METRIC; owned by the context's metric table
    uint32_t depth;   // of the frame in which it was recorded
    ct_loc here;
} ct_root;

typedef enum {
    CT_FRAME_SCOPE, // a user's scope; its end runs pending roots
    CT_FRAME_TRACE, // a plan being built: rules and bodies record here
    CT_FRAME_BODY,  // a user's function being traced
    CT_FRAME_INNER, // a user's scope inside a traced function: runs nothing
} ct_frame_kind;

enum { CT_SPARE_SIZES = 8 };
struct ct_frame {
    ct_frame_kind kind;
    uint32_t serial, depth;         // depth: its index in the context's stack
    ct_arena own, *arena;           // `arena`: where nodes are allocated, &own or a trace's
    ct_node *nodes;                 // newest first
    size_t n_nodes, n_gone;         // number of nodes, and of those FREED
    ct_node *spare[CT_SPARE_SIZES]; // memory of freed leaves for reuse, by size
    bool has_kept;                  // some node is or was KEPT or PINNED
    bool has_ops;                   // some node has operands
    ct_loc here;
    ct_body *body;         // BODY: collects captured tensors as parameters
    uint32_t n_read_runs;  // runs caused by reads while it was the innermost frame
    bool rolling;          // belongs to a rolling scope, a list of frames: rolling.c
    bool unsettled;        // nodes may have got values since the last sweep
    bool has_pending;      // a run inside the scope left referenced nodes without a value
    uint32_t n_referenced; // referenced nodes, once a younger frame has replaced it
    ct_frame *older;       // previous frame of the same scope
};

typedef struct ct_metric_entry {
    char *name;
    ct_storage *value;
    ct_type type; // rank 0
} ct_metric_entry;

// Calls from the graph into the layers above it.
typedef struct ct_hooks {
    bool (*run)(ct_ctx *ctx, ct_loc here); // runs all pending roots as one plan
    ct_storage *(*upload)(ct_ctx *ctx, const void *bytes, size_t n); // NULL and an error: out of
                                                                     // memory
    bool (*download)(ct_ctx *ctx, ct_storage *from, void *to, size_t n);
    const void *(*host)(const ct_storage *storage); // address readable by the host; NULL: none
    // Host memory as a storage. release is called when the storage is freed, on any thread. NULL: out of
    // memory, or the device cannot read it in place, and release is not called.
    ct_storage *(*adopt)(ct_ctx *ctx, const void *data, size_t n, void (*release)(void *user),
                         void *user);
    bool (*fill)(ct_ctx *ctx, ct_var *var, ct_chunk_fn next, void *user);
    bool (*lend)(ct_ctx *ctx, ct_var *var, ct_storage *value); // a storage that others hold too
    bool (*move)(ct_ctx *ctx, ct_var *var, int device);        // a variable, to another device
    bool (*lost)(const ct_storage *storage);
    // The index of a device by name, which is opened if it is new. -1: there is none; the error is set.
    int (*find_device)(ct_ctx *ctx, const char *name, ct_loc here);
    const char *(*device_name)(ct_ctx *ctx, int device);
    void (*settle)(ct_ctx *ctx); // synchronises the device and logs faults that were not reported
    void (*close)(ct_ctx *ctx);
} ct_hooks;
extern const ct_hooks ct__hooks; // defined by src/compile

// Number of faults that asynchronous devices reported: variables and values may be marked as computed
// that the device never computed.
extern _Atomic unsigned ct__faults;
static inline bool ct__lost(const ct_storage *storage) {
    return atomic_load_explicit(&ct__faults, memory_order_relaxed) && storage &&
           ct__hooks.lost(storage);
}

enum { CT_MAX_DEVICES = 16 };                 // maximum number of devices of a context
typedef struct ct_log_message ct_log_message; // a message queued for the log function
struct ct_ctx {
    uint64_t id;       // unique in the process
    ct_ctx *next;      // list of all contexts
    ct_frame **frames; // (depth) the scope stack; frames[0] is the context's own
    size_t depth, frames_cap;
    uint32_t serial; // of the latest frame
    ct_frame *spare; // a free frame with its arena, for the next scope
    ct_err err;
    bool err_noticed;
    ct_loc err_here;
    ct_root *roots; // pending
    size_t n_roots, roots_cap;
    ct_metric_entry *metrics;
    size_t n_metrics, metrics_cap;
    ct_log_fn log;
    void *log_user;
    bool logging;                          // the user's log function is running
    int running;                           // plans are being built or run: log messages are queued
    ct_log_message *log_queue, **log_tail; // queue of log messages
    bool scope_hinted;                     // the hint about a loop without a scope was given
    bool leaf_hinted;      // the hint about a gradient that ends at a value of an ended
                           // scope was given
    atomic_bool cancelled; // set by ct_cancel, until a run has reported it
    void *device;          // the compiler's: device that runs this context's plans
    void *other_devices[CT_MAX_DEVICES]; // other devices that tensors were sent to, by index
    int tracing;                         // open TRACE and BODY frames
    ct_dtype autocast;                   // of recorded products: f16 or bf16; CT_DEFAULT: off
    uint16_t region;                     // region being recorded; 0: none
    uint16_t newest_region;              // wraps around
    struct ct_symbols *symbols;          // dynamic sizes of the plan being built; else NULL
    struct ct_regions *regions; // regions that its gradients may recompute (transform.h); else
                                // NULL
    bool whole;                 // the plan being built has kernels for some whole compositions
    uint32_t *free_slots;       // slots reserved by this context
    size_t n_free, free_cap;
    size_t n_extras;     // number of nodes flagged EXTRA
    ct_current *foreign; // (n_foreign) a power of two: hash table of other contexts' variables
    size_t n_foreign, foreign_used;
    uint64_t versions;               // versions created so far
    _Atomic(ct_var *) deferred_vars; // variables freed by other contexts
    uint64_t nodes;                  // nodes recorded so far
    ct_node *poison;                 // allocated at start, for use when out of memory
    bool rolling;                    // its outermost scope is a rolling one
    bool several;                    // several plans for one line are intended: no hint about it
    bool turn_due;                   // a plan ran, and the frame that recorded it has not ended yet
    bool given_up;                   // a run was interrupted: its values are computed on demand
    ct_node **unused;                // (n_unused) nodes that have had no user at some time
    size_t n_unused, unused_cap;
    ct_loc used_history; // of the latest gradient that freed its history
    size_t n_marks;      // number of ct_record_hook alive
    void **ended;        // (n_ended) owners of marks that were freed
    size_t n_ended, ended_cap;
};

// Attributes of op "mark" (transform/hook.c). A copy of the node has the same attributes but is not a
// mark: self differs.
typedef struct record_hook_attrs {
    int64_t n_values;
    void *owner; // the language binding's object
    const ct_node *self;
} record_hook_attrs;
extern const ct_opdef ct__op_record_hook;
static inline bool ct__is_mark(const ct_node *node) {
    return node->op == &ct__op_record_hook &&
           ((const record_hook_attrs *)node->attrs)->self == node;
}
void ct__mark_ended(ct_ctx *ctx, const ct_node *node); // a mark is freed

ct_current *ct__foreign_current(ct_ctx *ctx, const ct_var *var);
// What a read of the variable resolves to in this context. The variable's own context uses its record;
// others read it concurrently and use their tables. NULL: out of memory.
static inline ct_current *ct__current(ct_ctx *ctx, ct_var *var) {
    return var->owner == ctx->id ? &var->current : ct__foreign_current(ctx, var);
}

// Sets a metric after a run; false if the context has no metric of this name.
bool ct__metric_store(ct_ctx *ctx, const char *name, ct_storage *value, const ct_type *type);
// A pending root is a user of its value: a leaf dropped meanwhile exists until the root has run.
bool ct__root_add(ct_ctx *ctx, ct_root root);
void ct__roots_done(ct_ctx *ctx);
static inline void ct__use(ct_node *node) { // cheap enough to count the users of all nodes
    node->users++;
}
void ct__unuse(ct_node *node); // one user less; a dropped leaf is freed with its last user
void ct__release_values(ct_ctx *ctx, ct_node *node);
void ct__forget_values(const ct_ctx *ctx, ct_node *node); // of a node that keeps its handle
// Rolling scopes (rolling.c).
void ct__rolling_unused(ct_node *node); // it has no users left
bool ct__rolling_roots(ct_ctx *ctx);    // adds referenced nodes without a value as roots
void ct__rolling_turn(ct_ctx *ctx);     // after a run: begins the next frame
ct_tensor ct__rolling_pin(ct_ctx *ctx, ct_tensor t, ct_loc here);
void ct__rolling_unpin(ct_ctx *ctx, ct_node *node);
// A new leaf in frame `to`, with these additional flags, that replaces the node: the handle now names the
// leaf. NULL: out of memory.
ct_node *ct__replace_by_leaf(ct_ctx *ctx, ct_frame *to, ct_node *node, unsigned flags);
void ct__frame_spare(ct_ctx *ctx, ct_frame *frame); // after its end: reused by the next frame
// Removes pending roots: variables keep their value, and kept nodes are poisoned, except in a rolling
// scope.
void ct__roots_abandon(ct_ctx *ctx);
// Removes all roots but assignments. True if there were both kinds.
bool ct__roots_keep_assignments(ct_ctx *ctx);
// Removes all roots but first assignments of variables, which get back the value from before they were
// replaced. True if some are left and the set has changed.
bool ct__roots_keep_first(ct_ctx *ctx);
void ct__root_release(const ct_root *root); // drops its references
// True if the operand may contribute to a derivative of the node.
bool ct__may_have_derivative(const ct_node *node, int operand);
// The number of frames outside of functions being traced: leaves that these take as parameters belong
// there.
size_t ct__outside_depth(const ct_ctx *ctx);
uint64_t ct__nodes_recorded(void); // by the thread's context
// Nodes recorded between the two calls are a recomputation region: if a plan must use less memory,
// gradients may recompute it instead of storing its values. It affects nothing else, not even the plan's
// key. A region inside another is part of the outer one.
uint16_t ct__region_begin(ct_ctx *ctx);
void ct__region_end(ct_ctx *ctx, uint16_t begun);
extern _Thread_local ct_ctx *ct__ctx_now;
ct_ctx *ct__ctx_begin(void);
// The thread's context, made on first use. NULL: out of memory for it, or the thread is in a user's
// function that computes a part of a plan.
static inline ct_ctx *ct__ctx(void) {
    return __builtin_expect(ct__ctx_now != NULL, 1) ? ct__ctx_now : ct__ctx_begin();
}
// Around such a function, on any thread: the plan's context is in the middle of its run, and holds locks
// that a read would wait for. Meanwhile the thread has no context; attempts to get one are recorded in
// `asked`.
typedef struct ct_callback_guard {
    ct_ctx *before;
    struct ct_callback_guard *around;
    bool asked;
} ct_callback_guard;
void ct__callback_begin(ct_callback_guard *apart);
bool ct__callback_end(ct_callback_guard *apart); // true: a context was asked for
bool ct__in_callback(void);                      // if true, records that a context was asked for
// True in a forked child of a process that was using the library: it must not touch any state.
bool ct__forked(void);
extern atomic_size_t ct__sets; // parameter sets alive
// For ct_shutdown: frees the thread's own context. False: there are other contexts, or parameter sets.
bool ct__contexts_end(void);
void ct__slots_end(void); // frees all slots, when there is no context left
void ct__log(ct_ctx *ctx, ct_log_kind kind, const char *text);
__attribute__((format(printf, 2, 3))) void ct__warn(ct_ctx *ctx, const char *format, ...);
// Enclose building and running plans. A user's log function may call the library, so messages are
// delivered after the outermost end, when the context is consistent.
void ct__run_begin(ct_ctx *ctx);
void ct__run_end(ct_ctx *ctx);
// After this many runs caused by reads in one scope, with as many assignments of a variable that was
// still pending, it is a loop without a scope: recorded nodes accumulate, whether or not something is
// read. The hint is given once in a context.
enum { CT_TURNS_BEFORE_HINT = 256 };
void ct__hint_scope(ct_ctx *ctx, ct_loc here, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool ct__env_flag(const char *name); // set, and not "0" or ""

// ----------------------------------------------------------------------------- errors in a context

// If the argument is NULL: false, and an error that `what` of `op` is NULL.
bool ct__given(ct_ctx *ctx, const void *argument, ct_loc here, const char *op, const char *what);
// True if a value may be read: no function is being traced, where there are no values.
bool ct__readable(ct_ctx *ctx, ct_loc here, const char *op);
// True if a list of length n is possible. False: a node cannot hold it, and none of it may be read.
bool ct__possible(ct_ctx *ctx, size_t n, ct_loc here, const char *op, const char *what);
// Records the context's first error and returns a poisoned tensor.
ct_tensor ct__fail(ct_ctx *ctx, ct_code code, ct_loc here, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
// Does the same, but returns false.
__attribute__((format(printf, 5, 6))) bool ct__refuse(ct_ctx *ctx, ct_code code, ct_loc here,
                                                      const char *op, const char *format, ...);
ct_tensor ct__poison(ct_ctx *ctx, ct_loc here); // for an error that is recorded already

// ----------------------------------------------------------------------------------------- handles

enum { CT_MAX_OUTPUTS = 4095 }; // of a node: a handle has 12 bits for the output
ct_tensor ct__handle(ct_node *node, uint32_t out);
// The caller uses its value: it is no longer an EXTRA.
static inline void ct__request_value(ct_ctx *ctx, ct_node *node) {
    if (!(node->flags & CT_NODE_EXTRA)) return;
    ct__unflag(node, CT_NODE_EXTRA);
    ctx->n_extras--;
}
static inline ct_tensor ct__handle_of(ct_val v) { return ct__handle(v.node, v.out); }
// Resolves a handle. False: none, stale, poisoned or foreign; the error is in the context. A variable is
// resolved to its latest version: the pending value, or a read leaf. `argument` counts from 0 and is only
// used in the message; for the results of a function it is CT_OUTPUT(number).
#define CT_OUTPUT(i) (-1 - (i))
bool ct__resolve(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op, int argument, ct_loc here);
// False, and an error with a hint, if t, operand `argument` of `op`, is a bare integer that the integer
// dtype cannot hold. `compared`: wrapping the number would not help.
bool ct__bare_fits(ct_tensor t, ct_dtype dtype, int argument, bool compared, ct_err *err,
                   ct_loc here, const char *op);
// True for a number (ct_f, ct_scalar), also if captured by functions that are being traced.
bool ct__is_number(const ct_node *node);
// The node of a handle of the thread's context, without resolving variables; NULL if stale, none, or
// another context's. Records nothing.
ct_node *ct__peek(ct_tensor t, uint32_t *out);
ct_var *ct__var_of(ct_tensor t); // NULL if t is not a variable
// The type of a handle; f32[] if it is invalid. Another context's is copied to the innermost frame.
const ct_type *ct__type_of(ct_tensor t);

// --------------------------------------------------------------------------------------- recording

// Checks and records a node in the innermost frame; returns the handle of output 0. `attrs` is copied.
ct_tensor ct__record(const ct_opdef *op, const void *attrs, const ct_tensor *in, int n_in,
                     ct_loc here);
ct_tensor ct__output(ct_tensor t,
                     uint32_t out); // another output of the same node; poison stays poison
void ct__outputs(ct_tensor first, ct_tensor *out, size_t n); // all n outputs, from the first
// A node of a leaf op with one output, in the innermost frame. NULL: out of memory (the error is in the
// context).
ct_node *ct__leaf(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type, ct_loc here);
// A scalar leaf of a bare number, outside of traced functions. NULL: as ct__leaf.
ct_node *ct__number_leaf(ct_ctx *ctx, ct_type type);

ct_tensor ct__transfer(ct_tensor x, int device, ct_loc here); // x on another device of the context
extern const ct_opdef ct__op_transfer, ct__op_data, ct__op_scalar, ct__op_complex, ct__op_const,
    ct__op_read, ct__op_variable, ct__op_param, ct__op_same, ct__op_copy;

// ------------------------------------------------------------------------------- frames and bodies

ct_frame *ct__frame_push(ct_ctx *ctx, ct_frame_kind kind, ct_arena *arena,
                         ct_loc here); // arena NULL: its own
void ct__frame_pop(ct_ctx *ctx,
                   ct_loc here); // releases slots and storages of its nodes; runs nothing
static inline ct_frame *ct__top(ct_ctx *ctx) { return ctx->frames[ctx->depth - 1]; }

// True if a plan is being built: what rules and bodies of ops record is then part of the plan.
static inline bool ct__in_plan(const ct_ctx *ctx) {
    for (size_t d = 0; d < ctx->depth; d++)
        if (ctx->frames[d]->kind == CT_FRAME_TRACE) return true;
    return false;
}

// A traced function: parameters (declared, then captured) and outputs. Owned by its arena.
struct ct_body {
    ct_arena arena;
    ct_node **params; // (n_params) the declared ones
    size_t n_params;
    const ct_val *operands; // (n_operands) the values of the first parameters while f is traced
    size_t n_operands;
    ct_val *captured_from; // (n_captured) outer values
    ct_node **captured;    // (n_captured) their parameters inside
    size_t n_captured, captured_cap, captured_from_cap;
    ct_val *outs; // (n_outs)
    size_t n_outs;
    ct_node **nodes; // (n_nodes) all that the outputs depend on, operands first
    size_t n_nodes;
    uint64_t *words; // canonical record
    size_t n_words;
    ct_hash hash;
    bool transforms;      // contains transforms, whose meaning depends on the body itself
    const ct_node *moves; // a node that moves a tensor to another device; NULL: none
    size_t word; // while a plan is built from the node that owns it: offset of its words in the
                 // plan's record; 0: it was traced for this plan
    ct_loc here;
};

// ------------------------------------------------------------------------------- canonical records

// The pending nodes that the roots depend on, in an order that depends on structure only, with their
// record in words: op, attributes, operands by number, leaves by type and by which of them share a
// storage.
typedef struct ct_order {
    ct_node **nodes; // (n) leaves included, operands before users
    size_t n, cap;
    ct_storage **leaves; // (n_leaves) distinct storages by number; NULL for scalars
    ct_node **leaf_nodes;
    size_t n_leaves, leaves_cap, leaf_nodes_cap;
    struct ct_leaf_slot { // (n_slots) a power of two: hash table by address
        const void *key;  // a storage, or a variable of another context
        uint64_t epoch;   // an entry of another epoch is empty
        uint32_t index;
    } * slots;
    size_t n_slots;
    ct_node **scalars; // (n_scalars) scalar leaves in order
    size_t n_scalars, scalars_cap;
    uint64_t *words;
    size_t n_words, words_cap;
    const char *numerics; // first in a plan's record; NULL: of a body
    ct_hash hash;
    struct {
        ct_node *node;
        uint32_t next;
    } * stack;
    size_t stack_cap;
    uint64_t epoch;
    uint64_t owner;      // id of the context
    size_t n_transforms; // among the nodes
    uint32_t inner;      // the innermost frame, if frames around it have computed nodes; else 0
    bool known;          // some nodes have a value, or are computed by an earlier plan or in
                         // another frame
    uint32_t deepest;    // the deepest of the frames around the innermost one
    struct ct_open {
        ct_node *node; // flagged OPEN
        const ct_node *gradient;
    } * open; // (n_open)
    size_t n_open, open_cap;
} ct_order;
// True if its value is the variable's storage, as long as that has this version.
static inline bool ct__reads_var(const ct_node *node) {
    return node->value != &node->held &&
           (node->op == &ct__op_read ||
            (node->flags & (CT_NODE_STORED | CT_NODE_OPEN)) == CT_NODE_STORED);
}
// True if an order treats the node as a leaf: it has a value, and no gradient differentiates through it.
static inline bool ct__is_order_leaf(const ct_node *node) {
    return (node->value || node->flags & CT_NODE_STORED) && !(node->flags & CT_NODE_OPEN);
}
// Fills `order` for the roots (its buffers are reused). False: the error is in the context (out of
// memory, stale read). Nodes stay OPEN until it is closed.
bool ct__order(ct_ctx *ctx, ct_order *order, const ct_root *roots, size_t n_roots);
void ct__order_close(ct_order *order);
void ct__order_free(ct_order *order);
// The number of words of a node's part of a record; `before`: how many precede its attributes.
size_t ct__node_words(const ct_node *node, size_t *before);
size_t ct__attr_words(const ct_field *field, const void *attrs);
size_t ct__words_begin(const ct_order *order); // offset of the first node's part

// The words of a record that are sizes or positions, in order.
typedef enum ct_varies {
    CT_VARIES_NOT,      // only if it is marked
    CT_VARIES_SIZE,     // from 2 on: kernels may be specialised for it
    CT_VARIES_POSITION, // from 0 on
} ct_varies;
typedef struct ct_size_word {
    uint32_t word;
    ct_varies varies;
    bool marked; // dynamic because the user marked it
    bool open;   // dynamic from the first plan on, if its value may vary
} ct_size_word;
typedef struct ct_size_words {
    ct_size_word *v; // (n)
    size_t n, cap;
} ct_size_words;
bool ct__order_size_words(const ct_order *order, ct_size_words *list); // false: no memory
// Sets the error of a read whose version was overwritten; takes the variable's lock. Returns false.
bool ct__fail_stale_read(ct_ctx *ctx, const ct_node *read, ct_loc here);
// The index of a value's storage among the leaves; UINT32_MAX: none. (Contexts share storages, so the
// index cannot be stored in the storage.)
uint32_t ct__order_leaf(const ct_order *order, const ct_storage *storage);
uint32_t ct__order_var(const ct_order *order, const ct_var *var); // the same for a variable's
uint64_t ct__new_epoch(void);
// The first difference between an order's record and an earlier one.
typedef struct ct_difference {
    const ct_node *node;   // NULL: after all nodes
    const ct_field *field; // of its attributes; NULL: the op, the operands, or a leaf
    const uint64_t *was;   // the attribute's words in the earlier record
} ct_difference;
ct_difference ct__order_difference(const ct_order *order, const uint64_t *words, size_t n_words);
// "[0, 64], it was [0, 0]"; "another function" and the like if there is no value to show.
void ct__difference_text(ct_text *text, const ct_difference *difference);
bool ct__difference_declared(const ct_difference *difference); // only in values marked by CT_DYN

// --------------------------------------------------------------------------- printing and checking

void ct__print_type(ct_text *text, const ct_type *type);
void ct__print_nodes(ct_text *text, ct_node *const *nodes,
                     size_t n); // one line per node, numbered in this order
// Checks all invariants of a graph: operands before users, types as the shape rules infer them.
bool ct__verify(ct_node *const *nodes, size_t n, ct_err *err);

#endif
