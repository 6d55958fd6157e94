// The graph: nodes, storages, handles, scopes, contexts.
//
// A node is one application of an op. Its operands point only backwards, so there are no cycles.
// Nodes live in the arena of a frame (a scope, or a trace being recorded) and go with it; a handle
// names one output of a node by slot and generation, so that a stale one is always detected.
#ifndef COTAN_GRAPH_GRAPH_H
#define COTAN_GRAPH_GRAPH_H

#include <stdatomic.h>

#include "base/share.h"
#include "graph/op.h"

typedef struct ct_var ct_var;
typedef struct ct_frame ct_frame;

// The next n bytes of a value, which need not live longer than to the next call; n 0: there are no
// more. False: they cannot be had.
typedef bool (*ct_pieces_fn)(void *user, const void **bytes, size_t *n, ct_err *err);

// Memory on a device that holds one dense tensor; counted, shared by all nodes that have this
// value.
typedef struct ct_storage {
    atomic_int refs;
    void *buffer; // as the device names it; the host must not look inside
    size_t bytes;
    void *owner;                              // the device
    void (*destroy)(struct ct_storage *self); // frees buffer and self
    _Atomic(void *) mirror;                   // host copy made for ct_data, or NULL
    uint64_t begin, end; // the owner's events around the work that wrote it: (begin, end]
    // A variable's: its version; the context that assigned it, and in how many reads that one holds it.
    uint64_t version, home;
    uint32_t home_holds;
} ct_storage;
ct_storage *ct__storage_ref(ct_storage *storage); // NULL stays NULL
void ct__storage_unref(ct_storage *storage);

typedef struct ct_val { // one output of a node
    ct_node *node;
    uint32_t out;
} ct_val;

enum {
    CT_NODE_POISON = 1, // carries the context's error
    CT_NODE_KEPT = 2,   // a root; leaves its scope as a leaf
    CT_NODE_PINNED = 4,
    CT_NODE_EXTRA = 8, // has a value only because an earlier cut wanted it again
    CT_NODE_DROPPED = 16,
    CT_NODE_VARIABLE = 128, // of a variable: a handle of it is to be resolved to a value
    CT_NODE_RAN = 64,       // a plan has computed it, whether or not it kept the value
    CT_NODE_OPEN = 32,      // scratch of ct__order: lies between a gradient's loss and its wrt
    CT_NODE_COPY = 256,     // of a trace: stands for values of other nodes, `copy_of`
    CT_NODE_WIDENED = 512,  // a bare number that met an f64, where another node stands for it
    CT_NODE_STORED = 1024,  // a version whose assignment ran: the variable holds its value
    // What gradients may find behind a value, along paths that carry derivatives:
    CT_NODE_FROM_VARIABLE = 2048, // a variable
    CT_NODE_FROM_LEAF = 4096,     // a leaf that was computed from a variable in a scope that ended
    // In a rolling scope:
    CT_NODE_TRACKED = 8192, // its history is kept: a tracked variable or value is behind it
    CT_NODE_QUEUED = 16384, // among the context's `unused`
    CT_NODE_GONE = 32768,   // given back; its memory waits for a sweep, or for its frame's end
};

struct ct_node {
    // what recording and walks look at, in one cache line
    const ct_opdef *op;
    ct_ctx *ctx;
    ct_type *out; // (n_out)
    union {
        ct_val *in;      // (n_in)
        uint64_t number; // of a leaf: a scalar's bits, a read's version, a parameter's place
    };
    ct_storage **value; // (n_out) of leaves with data, and of nodes once evaluated; else NULL
    uint64_t epoch;     // scratch of walks: `index` is valid in this epoch
    uint32_t index;
    uint32_t users; // of leaves of data and reads: recorded nodes and pending roots that need it
    uint16_t n_in, n_out;
    uint16_t flags;
    uint16_t region; // in which it was recorded; 0: in none
    // the rest
    uint32_t slot; // 0: has no handle yet
    union {
        const void *attrs;
        ct_storage *held; // of a read or a version in a rolling scope, see ct__held
    };
    ct_frame *frame;
    ct_node *next; // in the frame, newest first
    ct_loc here;
    ct_var *var; // a variable, a read or a version of one
    union {
        struct {
            uint32_t ran_plan, ran_index; // RAN: the last plan that computed it, its place there
        };
        void *mirror;    // of a version: host copy made for ct_data
        double precise;  // of a bare number: as it was before it was rounded to f32
        ct_val *copy_of; // (n_out) COPY: the values, {NULL} for none
    };
};
_Static_assert(sizeof(ct_node) == 128, "a node is two cache lines");
// Of a node that has a handle: other threads may look at it meanwhile (ct__look).
static inline void ct__flag(ct_node *node, unsigned flags) {
    __atomic_store_n(&node->flags, (uint16_t)(node->flags | flags), __ATOMIC_RELAXED);
}
static inline void ct__unflag(ct_node *node, unsigned flags) {
    __atomic_store_n(&node->flags, (uint16_t)(node->flags & ~flags), __ATOMIC_RELAXED);
}
static inline void ct__give_values(ct_node *node, ct_storage **values) { // (n_out)
    __atomic_store_n(&node->value, values, __ATOMIC_RELEASE);
}
static inline void ct__give_value(ct_node *node, uint32_t out, ct_storage *value) {
    __atomic_store_n(&node->value[out], value, __ATOMIC_RELEASE);
}
static inline const ct_type *ct__type(ct_val v) { return &v.node->out[v.out]; }
// Is it used at a line on any device as it is: a scalar, a constant, a key of random numbers, or what that
// very line makes of numbers alone?
bool ct__goes_anywhere(ct_val v, const ct_loc *here);

// The version of a variable that a read binds in one context: while the frame (depth, serial) of its
// assignment stands, one node behind which is the value that was assigned; after that, while the
// frame of the first read stands, a leaf. In a rolling scope either stands as long as it is named, so that a
// step in which values are read has one node for a version.
typedef struct ct_current {
    const ct_var *of; // in a context's table
    uint64_t version;
    ct_val value;  // that was assigned; {NULL}: only the storage has it
    ct_node *node; // NULL: not read yet
    uint32_t depth, serial;
    bool carried;   // it stands, though its rolling frame had its turn
    uint64_t epoch; // of a gradient with respect to the variable, while it is recorded;
    ct_node *met;   // what its loss reads
} ct_current;

// A variable: a leaf whose storage a plan updates in place. Contexts read it at the same time: what
// its storage holds, and where it lies, only with the set's lock, which plans that read it share
// and the plan that assigns it has alone. What changes without is atomic, or the writer's.
struct ct_var {
    ct_node node; // op "variable"; its handle is the variable's
    char *name;
    ct_type type;
    ct_rwlock *lock;               // of its set
    _Atomic(ct_storage *) storage; // NULL until the first assignment ran; changes under `lock`
    _Atomic uint64_t version;      // of the storage; changes under `lock` too
    _Atomic(ct_ctx *) writer;      // the context with a pending assignment, or NULL
    ct_loc assigned;               // line of the pending assignment; the writer's
    ct_loc ran;                    // line of the newest assignment that ran; under `lock`
    // How often the pending assignment replaced another in one scope, which a context's id and the
    // frame's serial name; the writer's.
    uint32_t again;
    uint64_t again_scope;
    bool open;          // its axis 0 is dynamic in plans from the first one on
    atomic_bool freed;  // its set is gone; the record waits for the last read leaf; under `lock`
    atomic_bool broken; // what was updating it failed in the middle; under `lock`
    atomic_int refs;    // its set, or what the set leaves to `own_refs`; each read leaf elsewhere
    ct_var *next;       // in a list of records that wait
    uint64_t owner;     // id of the context that made it: the only one that may use what is below
    bool left;          // to `own_refs`: nothing else holds the record
    ct_current current;
    uint32_t own_refs; // read leaves of this context
    uint32_t index;
    uint64_t epoch; // of an order in which its storage is leaf `index`
    bool tracked;   // values made of it in a rolling scope keep their history
};
// A version's hold on the record, which it releases when its frame ends.
void ct__var_ref(ct_var *var, const ct_ctx *ctx);
void ct__var_unref(ct_var *var, const ct_ctx *ctx);
// A hold by handle, of a set that another thread may be freeing. NULL: t is no variable.
ct_var *ct__var_hold(ct_tensor t, const ct_ctx *ctx);
// Another version is current: the leaf that stood for this one goes with its users, unless somebody
// may hold its host copy.
void ct__current_replaced(const ct_ctx *ctx, const ct_current *now);
uint64_t ct__new_version(ct_ctx *ctx); // a number that no version has had
// Under the lock: the storage holds another version now, that of the pending assignment.
void ct__var_changed(ct_var *var, uint64_t version);
// Runs what is pending, and gives the variable the value whose bytes `next` hands out: as
// assigning them would, but in place, so that the value is in memory once.
bool ct__var_fill(ct_ctx *ctx, ct_tensor variable, ct_pieces_fn next, void *user, ct_loc here);
// The same of n bytes of the host's where they are, a mapped file's: they are never written, since an assignment
// gives the variable memory of its own. Whoever lends them holds the storage, and lets it go last. NULL: the
// device cannot read them there, and there is no error, or there is one.
ct_storage *ct__var_lend(ct_ctx *ctx, ct_tensor variable, const void *data, size_t n, ct_loc here);
// Runs what is pending, and brings the variable to another device.
bool ct__var_move(ct_ctx *ctx, ct_tensor variable, int place, ct_loc here);
// The pending assignment has ended.
void ct__var_released(ct_var *var, const ct_ctx *ctx);
// Variables whose sets other contexts freed become their owner's to let go.
void ct__vars_left(ct_ctx *ctx);
bool ct__leave_var(ct_var *var); // false: its context is gone
void ct__vars_end(void);         // frees records that stood ready for reuse
// A new leaf that reads the variable's current version, outside of traced functions. NULL: no
// memory.
ct_node *ct__read_leaf(ct_ctx *ctx, ct_var *var, ct_loc here);
// A version while its assignment's frame stands: a node with one operand.
typedef struct ct_version_node {
    ct_node node;
    ct_val value;
    uint64_t version;
} ct_version_node;
static inline uint64_t ct__version_of(const ct_node *node) {
    return node->n_in ? ((const ct_version_node *)node)->version : node->number;
}
// In rolling scopes reads hold the storage that they found, so that no other context's assignment takes their
// version from them: who assigns writes in place only what it alone holds. NULL: none, or it was
// assigned in place since. Where another context had assigned it, the read is a value like others, to which
// `value` points; else it stands for what the variable holds, until ct__read_apart.
static inline ct_storage *ct__held(const ct_node *node) {
    return node->held && node->held->version == ct__version_of(node) ? node->held : NULL;
}
void ct__hold_version(const ct_ctx *ctx, ct_node *node); // which was just read, or has just run
static inline void ct__read_apart(ct_node *read) {
    read->held->home_holds--;
    read->value = &read->held;
}
static inline bool ct__is_gone(const ct_node *node) { // what it reads of its variable
    return ct__version_of(node) != node->var->version && !ct__held(node);
}

typedef enum {
    CT_ROOT_KEEP,
    CT_ROOT_READ,
    CT_ROOT_ASSIGN,
    CT_ROOT_METRIC,
    CT_ROOT_STORE, // used in an inner scope
    CT_ROOT_EXTRA  // used in an earlier turn after the plan that computed it
} ct_root_kind;
typedef struct ct_root {
    ct_root_kind kind;
    ct_val val;
    ct_var *var;      // ASSIGN
    ct_val first;     // in a rolling scope, of a variable that has no value yet: what it was to be
                      // before this replaced it; else {NULL}
    const char *name; // METRIC; owned by the context's metric table
    uint32_t depth;   // of the frame in which it was recorded
    ct_loc here;
} ct_root;

typedef enum {
    CT_FRAME_SCOPE, // of the user; its end runs pending roots
    CT_FRAME_TRACE, // a plan being made: rules and bodies record here
    CT_FRAME_BODY,  // a user's function being traced
    CT_FRAME_INNER, // a user's scope inside a traced function: runs nothing
} ct_frame_kind;

enum { CT_SPARE_SIZES = 8 };
struct ct_frame {
    ct_frame_kind kind;
    uint32_t serial, depth;         // depth: its place among the context's
    ct_arena own, *arena;           // `arena` is where nodes go: &own, or a trace's
    ct_node *nodes;                 // newest first
    size_t n_nodes, n_gone;         // of them, and how many are GONE
    ct_node *spare[CT_SPARE_SIZES]; // dropped leaves whose memory can be used again, by size
    bool keeps;                     // one of its nodes is, or was, KEPT or PINNED
    bool computes;                  // one of its nodes has operands
    ct_loc here;
    ct_body *body;   // BODY: collects outer tensors as parameters
    uint32_t runs;   // that reads asked for while it was the innermost one
    bool rolling;    // of a rolling scope, whose frames follow each other: rolling.c
    bool unsettled;  // values of it may be leaves by now
    bool waits;      // a run inside of the scope left named nodes without a value
    uint32_t live;   // nodes that are still named, once a younger frame stands in its place
    ct_frame *older; // of the same scope
};

typedef struct ct_metric_entry {
    char *name;
    ct_storage *value;
    ct_type type; // rank 0
} ct_metric_entry;

// How the graph reaches what stands above it.
typedef struct ct_hooks {
    bool (*run)(ct_ctx *ctx, ct_loc here); // all pending roots as one plan
    ct_storage *(*upload)(ct_ctx *ctx, const void *bytes, size_t n); // NULL and an error: no memory
    bool (*download)(ct_ctx *ctx, ct_storage *from, void *to, size_t n);
    const void *(*host)(const ct_storage *storage); // where the host may read it; NULL: nowhere
    // Memory of the host program's as a storage, which calls release at its end, on any thread; NULL:
    // no memory, or the device cannot read it there, and release will not be called.
    ct_storage *(*adopt)(ct_ctx *ctx, const void *data, size_t n, void (*release)(void *user),
                         void *user);
    bool (*fill)(ct_ctx *ctx, ct_var *var, ct_pieces_fn next, void *user);
    bool (*lend)(ct_ctx *ctx, ct_var *var, ct_storage *value); // a value that others hold too
    bool (*move)(ct_ctx *ctx, ct_var *var, int place);         // a variable, to another device
    bool (*lost)(const ct_storage *storage);
    // The number of a device by name, opened where it is new. -1: there is none, the error stands.
    int (*place)(ct_ctx *ctx, const char *name, ct_loc here);
    const char *(*place_name)(ct_ctx *ctx, int place);
    void (*settle)(ct_ctx *ctx); // waits for the device, and logs a fault that nobody has heard of
    void (*close)(ct_ctx *ctx);
} ct_hooks;
extern const ct_hooks ct__hooks; // defined by src/compile

// Faults of devices that work behind a queue, counted when somebody hears of them: by then
// variables and values are thought to be there that the device never made.
extern _Atomic unsigned ct__faults;
static inline bool ct__lost(const ct_storage *storage) {
    return atomic_load_explicit(&ct__faults, memory_order_relaxed) && storage &&
           ct__hooks.lost(storage);
}

enum { CT_PLACES = 16 };        // devices of a context at most
typedef struct ct_said ct_said; // a text that waits for the log function
struct ct_ctx {
    uint64_t id;       // of this process, never used again
    ct_ctx *next;      // of all there are
    ct_frame **frames; // (depth) the scope stack; frames[0] is the context's own
    size_t depth, frames_cap;
    uint32_t serial; // of the newest frame
    ct_frame *spare; // a freed frame with its arena, for the next scope
    ct_err err;
    bool err_noticed;
    ct_loc err_here;
    ct_root *roots; // pending
    size_t n_roots, roots_cap;
    ct_metric_entry *metrics;
    size_t n_metrics, metrics_cap;
    ct_log_fn log;
    void *log_user;
    bool logging;               // the user's log function is called
    int running;                // plans are made or run: its texts wait
    ct_said *said, **said_end;  // texts that wait
    bool piles_up;              // a loop without a scope was hinted at
    bool leaf_hinted;           // and a gradient that ends at a value of a scope that ended
    atomic_bool cancelled;      // by ct_cancel, until a run has said so
    void *device;               // the compiler's: where plans of this context run
    void *places[CT_PLACES];    // the same of the devices that tensors were sent to, by number
    int tracing;                // open TRACE and BODY frames
    ct_dtype autocast;          // of products that are recorded: f16 or bf16; CT_DEFAULT: their own
    uint16_t region;            // that is being recorded; 0: none
    uint16_t newest_region;     // numbers come round again
    struct ct_symbols *symbols; // dynamic sizes of the plan that is being made; else NULL
    struct ct_regions *regions; // what its gradients may compute again (transform.h); else NULL
    bool whole;                 // a plan is made whose kernels take some compositions as they are
    uint32_t *free_slots;       // of this context
    size_t n_free, free_cap;
    size_t n_extras;     // nodes flagged EXTRA
    ct_current *foreign; // (n_foreign) a power of two: of other contexts' variables, hashed
    size_t n_foreign, foreign_used;
    uint64_t versions;      // made so far
    _Atomic(ct_var *) left; // by other contexts, which freed their sets
    uint64_t nodes;         // recorded so far
    ct_node *poison;        // made at start, for when there is no memory
    bool rolling;           // its outermost scope is a rolling one
    bool several;           // a line is meant to make several plans: no hint says that one does
    bool turn_due;          // something ran, and the frame that was recorded in stands yet
    bool given_up;    // the run was interrupted: what it left is computed when it is asked for
    ct_node **unused; // (n_unused) nodes of it that had no user left at some time
    size_t n_unused, unused_cap;
    ct_loc used_history; // of the newest gradient that gave history back
    size_t n_marks;      // alive: ct_mark
    void **ended;        // (n_ended) owners of those that have gone
    size_t n_ended, ended_cap;
};

// Attributes of op "mark" (transform/mark.c). A copy of the node has them, too, and is none.
typedef struct mark_attrs {
    int64_t n_values;
    void *owner; // the binding's
    const ct_node *self;
} mark_attrs;
extern const ct_opdef ct__op_mark;
static inline bool ct__is_mark(const ct_node *node) {
    return node->op == &ct__op_mark && ((const mark_attrs *)node->attrs)->self == node;
}
void ct__mark_ended(ct_ctx *ctx, const ct_node *node); // a mark is given back

ct_current *ct__foreign_current(ct_ctx *ctx, const ct_var *var);
// What a read of the variable binds in this context. A variable's record is its own context's; others
// read it at the same time and have tables. NULL: no memory.
static inline ct_current *ct__current(ct_ctx *ctx, ct_var *var) {
    return var->owner == ctx->id ? &var->current : ct__foreign_current(ctx, var);
}

// The value of a metric after a run; false when the context has no metric of this name.
bool ct__metric_store(ct_ctx *ctx, const char *name, ct_storage *value, const ct_type *type);
// A pending root is a user of its value: a leaf that is dropped meanwhile stays until the root is
// done.
bool ct__root_add(ct_ctx *ctx, ct_root root);
void ct__roots_done(ct_ctx *ctx);
static inline void ct__use(ct_node *node) { // cheap enough to count users of all nodes
    node->users++;
}
void ct__unuse(ct_node *node); // one user less; a dropped leaf goes with its last one
void ct__release_values(ct_ctx *ctx, ct_node *node);
void ct__forget_values(const ct_ctx *ctx, ct_node *node); // of a node whose handle stands
// Rolling scopes (rolling.c).
void ct__rolling_unused(ct_node *node); // it has no user left
bool ct__rolling_roots(ct_ctx *ctx);    // what is named and has no value becomes a root
void ct__rolling_turn(ct_ctx *ctx);     // behind a run: the next frame
ct_tensor ct__rolling_pin(ct_ctx *ctx, ct_tensor t, ct_loc here);
void ct__rolling_unpin(ct_ctx *ctx, ct_node *node);
// A leaf in frame `to`, with these flags besides, that stands for the node from now on: the handle is the
// leaf's. NULL: no memory.
ct_node *ct__rehome(ct_ctx *ctx, ct_frame *to, ct_node *node, unsigned flags);
void ct__frame_spare(ct_ctx *ctx, ct_frame *frame); // it has ended: for the next one
// Forgets pending roots: variables keep their value, and kept ones are poisoned, unless in a rolling scope.
void ct__roots_abandon(ct_ctx *ctx);
// Forgets all but assignments. Are there both such and others?
bool ct__roots_keep_assignments(ct_ctx *ctx);
// Forgets all but first assignments of variables, as they were before others replaced them. Are there such, and is that
// another set than before?
bool ct__roots_keep_first(ct_ctx *ctx);
void ct__root_release(const ct_root *root); // it needs its values no more
// May an operand have a share in a derivative of the node?
bool ct__slopes(const ct_node *node, int operand);
// The number of frames outside of functions being traced: where leaves belong that these take as
// parameters.
size_t ct__outside_depth(const ct_ctx *ctx);
uint64_t ct__nodes_recorded(void); // by the thread's context
// What is recorded between the two is a region: where a plan must take less memory, gradients may
// compute it again instead of keeping what they need of it. Nothing else is another one by that, the
// plan's key neither. Inside a region it is part of the one around it.
uint16_t ct__region_begin(ct_ctx *ctx);
void ct__region_end(ct_ctx *ctx, uint16_t begun);
extern _Thread_local ct_ctx *ct__ctx_now;
ct_ctx *ct__ctx_begin(void);
// The thread's, made on first use. NULL: there is no memory for one, or the thread is in a function of the user's
// that computes a part of a plan.
static inline ct_ctx *ct__ctx(void) {
    return __builtin_expect(ct__ctx_now != NULL, 1) ? ct__ctx_now : ct__ctx_begin();
}
// Around such a function, on whichever thread: the plan's context is in the middle of its run, and holds what a read
// would wait for. Meanwhile the thread has no context, and whatever asks for one is noted.
typedef struct ct_apart {
    ct_ctx *before;
    struct ct_apart *around;
    bool asked;
} ct_apart;
void ct__apart_begin(ct_apart *apart);
bool ct__apart_end(ct_apart *apart); // true: one was asked for
bool ct__is_apart(void);             // notes that one was asked for, where it is
// Is this a forked child of a process that was using the library? Nothing may be touched then.
bool ct__forked(void);
extern atomic_size_t ct__sets; // parameter sets alive
// For ct_shutdown: ends the thread's own context. False: there are others, or parameter sets.
bool ct__contexts_end(void);
void ct__slots_end(void); // and frees all slots, when no context is left
void ct__log(ct_ctx *ctx, ct_log_kind kind, const char *text);
// Around what makes plans or runs them. A log function of the user's may call the library, so what
// it is told comes behind the outermost end, when nothing of the context is half done.
void ct__run_begin(ct_ctx *ctx);
void ct__run_end(ct_ctx *ctx);
// After so many runs that reads asked for in one scope, and as many assignments of a variable that
// the next one found pending there, it is a loop without a scope of its own: what it records stays,
// whether or not it reads something now and then. Said once a context.
enum { CT_TURNS_BEFORE_HINT = 256 };
void ct__hint_scope(ct_ctx *ctx, ct_loc here, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool ct__env_flag(const char *name); // set, and not "0" or ""

// ----------------------------------------------------------------------------- errors in a context

// False, and the error that `what` of `op` is NULL, where it is.
bool ct__given(ct_ctx *ctx, const void *argument, ct_loc here, const char *op, const char *what);
// A value may be read: no function is being traced, which has none.
bool ct__readable(ct_ctx *ctx, ct_loc here, const char *op);
// Could a list be as long as it says? False: no node can hold it, and nothing of it may be touched.
bool ct__possible(ct_ctx *ctx, size_t n, ct_loc here, const char *op, const char *what);
// Records the context's first error and returns a poisoned tensor.
ct_tensor ct__fail(ct_ctx *ctx, ct_code code, ct_loc here, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
ct_tensor ct__poison(ct_ctx *ctx, ct_loc here); // of an error that is recorded already

// ----------------------------------------------------------------------------------------- handles

enum { CT_MOST_OUTPUTS = 4095 }; // of a node: a handle has 12 bits for them
ct_tensor ct__handle(ct_node *node, uint32_t out);
// The caller asks for its value, which is there from now on, if it is there at all.
static inline void ct__wanted(ct_ctx *ctx, ct_node *node) {
    if (!(node->flags & CT_NODE_EXTRA)) return;
    ct__unflag(node, CT_NODE_EXTRA);
    ctx->n_extras--;
}
static inline ct_tensor ct__handle_of(ct_val v) { return ct__handle(v.node, v.out); }
// Looks a handle up. False: none, stale, poisoned or foreign; the error stands in the context. A
// variable is resolved to its newest version: the pending value, or a read leaf. `argument` counts
// from 0 and only serves the message; of what a function gave, it is CT_OUTPUT of the number.
#define CT_OUTPUT(i) (-1 - (i))
bool ct__resolve(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op, int argument, ct_loc here);
// Is t, operand `argument` of `op`, anything but a bare integer that integer dtype `dtype` cannot
// hold? That is an error, with a hint. `compared`: to wrap the number would not help.
bool ct__bare_fits(ct_tensor t, ct_dtype dtype, int argument, bool compared, ct_err *err,
                   ct_loc here, const char *op);
// A number (ct_f, ct_scalar), through however many functions that are being traced it came in.
bool ct__is_number(const ct_node *node);
// The node behind a handle of the thread's context without resolving variables; NULL when stale, none, or
// another context's. Records nothing.
ct_node *ct__peek(ct_tensor t, uint32_t *out);
ct_var *ct__var_of(ct_tensor t); // NULL when t is no variable
// The type behind a handle; f32[] where it is not good. Another context's is copied into the innermost frame.
const ct_type *ct__type_of(ct_tensor t);

// --------------------------------------------------------------------------------------- recording

// Checks and records a node in the innermost frame; a handle of output 0. `attrs` is copied.
ct_tensor ct__record(const ct_opdef *op, const void *attrs, const ct_tensor *in, int n_in,
                     ct_loc here);
ct_tensor ct__output(ct_tensor t,
                     uint32_t out); // another output of the same node; poison stays poison
void ct__outputs(ct_tensor first, ct_tensor *out, size_t n); // all of them, from the first
// A node of a leaf op in the innermost frame, with one output. NULL: no memory (the error stands in
// the context).
ct_node *ct__leaf(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type, ct_loc here);
// A scalar leaf of a bare number, outside of traced functions. NULL: as of ct__leaf.
ct_node *ct__number_leaf(ct_ctx *ctx, ct_type type);

ct_tensor ct__transfer(ct_tensor x, int place, ct_loc here); // x on another device of the context
extern const ct_opdef ct__op_transfer, ct__op_data, ct__op_scalar, ct__op_complex, ct__op_const,
    ct__op_read, ct__op_variable, ct__op_param, ct__op_same, ct__op_copy;

// ------------------------------------------------------------------------------- frames and bodies

ct_frame *ct__frame_push(ct_ctx *ctx, ct_frame_kind kind, ct_arena *arena,
                         ct_loc here); // arena NULL: own
void ct__frame_pop(ct_ctx *ctx,
                   ct_loc here); // releases slots and storages of its nodes; runs nothing
static inline ct_frame *ct__top(ct_ctx *ctx) { return ctx->frames[ctx->depth - 1]; }

// Is a plan being made? What rules and bodies of ops record then is part of the plan.
static inline bool ct__in_plan(const ct_ctx *ctx) {
    for (size_t d = 0; d < ctx->depth; d++)
        if (ctx->frames[d]->kind == CT_FRAME_TRACE) return true;
    return false;
}

// A traced function: parameters, then what it captured from outside, and outputs. Owned by its
// arena.
struct ct_body {
    ct_arena arena;
    ct_node **params; // (n_params) the declared ones
    size_t n_params;
    const ct_val *operands; // (n_operands) what the first parameters stand for while f is traced
    size_t n_operands;
    ct_val *captured_from; // (n_captured) outer values
    ct_node **captured;    // (n_captured) their parameters inside
    size_t n_captured, captured_cap, captured_from_cap;
    ct_val *outs; // (n_outs)
    size_t n_outs;
    ct_node **nodes; // (n_nodes) all that the outputs need, operands first
    size_t n_nodes;
    uint64_t *words; // canonical record
    size_t n_words;
    ct_hash hash;
    bool transforms;      // some of the nodes are transforms, which mean the body by itself
    const ct_node *moves; // a node that brings a tensor to another device; NULL: none does
    size_t word; // while a plan is made of the node that owns it: where its words begin in the
                 // plan's record; 0: it was traced for this plan
    ct_loc here;
};

// ------------------------------------------------------------------------------- canonical records

// What is pending behind roots, in an order that depends on structure alone, with its record in
// words: op, attributes, operands by number, leaves by type and by which of them share a storage.
typedef struct ct_order {
    ct_node **nodes; // (n) leaves included, operands before users
    size_t n, cap;
    ct_storage **leaves; // (n_leaves) distinct storages by number; NULL for scalars
    ct_node **leaf_nodes;
    size_t n_leaves, leaves_cap, leaf_nodes_cap;
    struct ct_leaf_place { // (n_places) a power of two: hashed by address
        const void *key;   // a storage, or a variable of another context
        uint64_t epoch;    // an entry of another epoch is empty
        uint32_t index;
    } * places;
    size_t n_places;
    ct_node **scalars; // (n_scalars) scalar leaves in order
    size_t n_scalars, scalars_cap;
    uint64_t *words;
    size_t n_words, words_cap;
    const char *numerics; // stands first in the record of a plan; NULL: of a body
    ct_hash hash;
    struct {
        ct_node *node;
        uint32_t next;
    } * stack;
    size_t stack_cap;
    uint64_t epoch;
    uint64_t owner;      // id of the context
    size_t n_transforms; // among the nodes
    uint32_t inner;      // the innermost frame, where those around it have computed nodes; else 0
    bool known;          // nodes have a value, or are computed by an earlier plan or in a frame
    uint32_t deepest;    // around the innermost one; the deepest frame of these
    struct ct_open {
        ct_node *node; // flagged OPEN
        const ct_node *gradient;
    } * open; // (n_open)
    size_t n_open, open_cap;
} ct_order;
// Is its value what the variable's storage holds, as long as it has this version?
static inline bool ct__reads_var(const ct_node *node) {
    return node->value != &node->held &&
           (node->op == &ct__op_read ||
            (node->flags & (CT_NODE_STORED | CT_NODE_OPEN)) == CT_NODE_STORED);
}
// Does an order stop at this node: has it a value (and no gradient that looks behind it)?
static inline bool ct__stops(const ct_node *node) {
    return (node->value || node->flags & CT_NODE_STORED) && !(node->flags & CT_NODE_OPEN);
}
// Fills `order` for the roots (its buffers are reused). False: the error stands in the context
// (memory, spent). Nodes stay OPEN until it is closed.
bool ct__order(ct_ctx *ctx, ct_order *order, const ct_root *roots, size_t n_roots);
void ct__order_close(ct_order *order);
void ct__order_free(ct_order *order);
// The words of a node's part in a record, and of these how many stand before its attributes.
size_t ct__node_words(const ct_node *node, size_t *before);
size_t ct__attr_words(const ct_field *field, const void *attrs);
size_t ct__words_begin(const ct_order *order); // where the first node's part begins

// The words of a record that are sizes or positions, in order.
typedef enum ct_varies {
    CT_VARIES_NOT,      // only where it is marked
    CT_VARIES_SIZE,     // from 2 on: kernels may be told it
    CT_VARIES_POSITION, // from 0 on
} ct_varies;
typedef struct ct_size_word {
    uint32_t word;
    ct_varies varies;
    bool marked; // dynamic by what the user wrote
    bool open;   // dynamic from the first plan on, if its value may vary
} ct_size_word;
typedef struct ct_size_words {
    ct_size_word *v; // (n)
    size_t n, cap;
} ct_size_words;
bool ct__order_size_words(const ct_order *order, ct_size_words *list); // false: no memory
// The error of a read whose version is gone; takes the variable's lock. Always false.
bool ct__spent(ct_ctx *ctx, const ct_node *read, ct_loc here);
// The number of a value's storage among the leaves; UINT32_MAX: it is none. (Contexts share
// storages, so the number cannot stand in the storage.)
uint32_t ct__order_leaf(const ct_order *order, const ct_storage *storage);
uint32_t ct__order_var(const ct_order *order, const ct_var *var); // the same of a variable's
uint64_t ct__new_epoch(void);
// Where an order's record first differs from an earlier one.
typedef struct ct_difference {
    const ct_node *node;   // NULL: behind all nodes
    const ct_field *field; // of its attributes; NULL: its op, its operands, or a leaf
    const uint64_t *was;   // the attribute's words in the earlier record
} ct_difference;
ct_difference ct__order_difference(const ct_order *order, const uint64_t *words, size_t n_words);
// "[0, 64], it was [0, 0]"; "another function" and the like where a value says nothing.
void ct__say_difference(ct_text *text, const ct_difference *difference);
bool ct__difference_declared(const ct_difference *difference); // of what CT_DYN marks alone

// --------------------------------------------------------------------------- printing and checking

void ct__print_type(ct_text *text, const ct_type *type);
void ct__print_nodes(ct_text *text, ct_node *const *nodes,
                     size_t n); // a line a node, numbered in this order
// Every sentence that makes a graph legal: operands before users, types as the shape rules say.
bool ct__verify(ct_node *const *nodes, size_t n, ct_err *err);

#endif
