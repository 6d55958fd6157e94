// The kernel builder as kinds see it: the functions of the scheduler (src/compile/schedule) that write a
// kernel.
//
// The scheduler decides which values get a buffer; every other value is computed where it is used, by
// substituting index expressions (graph/index.h) from the user down to buffers. A template is a C function
// for nodes of one kind that the general scheduler cannot loop over (matrix products, scatter, scan, sort):
// it writes one or several kernels.
//
// The skeleton of a template:
//     static bool kernels(ct_sched *s, ct_node *node) {
//         ct_emit *e = ct__emit_new(s, node);
//         ct_ix rows = ct__emit_size(e, (ct_val){node, 0}, 0);   // a number or a kernel argument
//         ct_ix i = ct__emit_loop(e, CT_BIND_ROWS, rows, "row"); // an index variable
//         ct_kval x = ct__emit_value(e, node->in[0], (ct_ix[]){i, k}, CT_F32); // any operand
//         ... any ct__kir_ call on e->kir, with ct__emit_ix(e, i) where a KIR value is wanted ...
//         ct__emit_store(e, (ct_val){node, 0}, (ct_ix[]){i, j}, sum);
//         ct__emit_end(e);
//         return ct__emit_done(e, flops);                        // appends the launch
//     }
// Operands may be views: a template must not look for their buffers, but load elements with ct__emit_value.
// Results go through ct__emit_store once per element, which also runs the epilogue that was fused into the
// node. Errors are sticky in the emitter; ct__emit_done reports them.
#ifndef COTAN_KINDS_EMIT_H
#define COTAN_KINDS_EMIT_H

#include "kinds/kind.h"
#include "kir/target.h"

struct ct_emit {
    ct_kir *kir;
    ct_ix_pool *pool;
    ct_arena arena;      // freed with the kernel
    const ct_node *node; // the node that the kernel is written for
    ct_err *err;
    ct_target target;
    ct_ix guard;  // the condition under which values are needed now; CT_IX_NONE: always
    bool unrolls; // reductions are fully unrolled and have no loops
    double flops; // per iteration of the innermost loops, for reports
    struct ct_kernel_builder *draft; // private state of the scheduler
};

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node); // NULL: out of memory, recorded
// Returns the size of an axis: a number, or the expression of a kernel argument.
ct_ix ct__emit_size(ct_emit *e, ct_val v, int axis);
// Opens a loop of the kernel IR and returns its variable for index expressions.
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name);
void ct__emit_end(ct_emit *e);
// Returns an index variable in [0, extent) whose value the caller computed. It is meant for values that are
// not sums and products of other variables, such as a gathered position.
ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent);
ct_kval ct__emit_ix(ct_emit *e, ct_ix x);        // an index expression as an i64 KIR value
ct_kval ct__emit_condition(ct_emit *e, ct_ix x); // a condition as a bool
// Returns element v[at...] in dtype `as` (CT_DEFAULT: v's own; f16 and bf16 as f32).
ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Returns the bits of element v[at...] of a value in memory as another dtype of its size.
ct_kval ct__emit_bits(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Returns part number `part` of element v[at...] of a value in memory whose dtype has parts.
ct_kval ct__emit_part(ct_emit *e, ct_val v, const ct_ix *at, int part);
// Returns the distance in memory, in elements, between v[at...] at `var` and at `var` + 1; 0 if it is unknown
// or not constant.
int64_t ct__emit_stride(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// True if neighbours along `var` are neighbours of v[at...] in memory. Used to choose the LANES loop.
bool ct__emit_contiguous(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// undivided: true if v[at...] is in memory and its index has no quotient of `var` except by multiples of
// `group`, so that lanes along `var` need no division. without: true if v[at...] is one element for all
// values of `var`.
bool ct__emit_undivided(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var, int64_t group);
bool ct__emit_without(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// True if an element is one load of dtype `as`, without a condition.
bool ct__emit_is_load(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// word: loads v[at...] and the elements after it in memory as one u32: two of 16 bits, four of 8, eight of 4.
// has_word: true if that is possible, i.e. one load without a condition, aligned to whole words. An f32 value
// that is a cast of bf16 or f16 and has no buffer has the words of its operand; `of` is set to the dtype of
// the elements in memory.
ct_kval ct__emit_word(ct_emit *e, ct_val v, const ct_ix *at);
bool ct__emit_has_word(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype *of);
// Asks a node's op for the source of its element at an index. The pieces are allocated in e->arena.
bool ct__emit_map(ct_emit *e, const ct_node *node, const ct_ix *at, ct_map *map);
// Stores the template's result at an index, in its compute dtype (it is rounded to v's dtype here).
void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// The same two functions for callbacks of templates, whose loops the emitter does not know: values that are
// cached inside are not visible to code outside of the callback.
ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// Returns the buffer of a materialised value as a KIR buffer id, for templates that make several passes over
// memory. flags are those of ct__kir_buffer.
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags);
const ct_target *ct__sched_target(const ct_sched *s);
// True if the node writes its result in place of operand 0, a variable that it is assigned to.
bool ct__sched_changes(const ct_sched *s, const ct_node *node);
// temp of the scheduler: returns a new buffer of `size` bytes (in the encoding of sizes in attributes) that
// the launches of the template share, or UINT32_MAX if out of memory (recorded). temp of the emitter: the
// same as a KIR buffer id.
uint32_t ct__sched_temp(ct_sched *s, int64_t size);
int ct__emit_temp(ct_emit *e, uint32_t temp, ct_dtype dtype, int flags);
// Makes kernel arguments of all dynamic sizes that reading the node's operands may need. They must precede
// the first loop.
void ct__emit_declare_sizes(ct_emit *e, ct_node *node);
// Verifies the kernel, deduplicates it, appends the launch, and frees e. Returns false if an error was
// recorded. flops 0: counted from the instructions.
bool ct__emit_done(ct_emit *e, double flops);

// Computes the index into an operand that broadcasts to an elementwise node of this rank.
void ct__broadcast_ix(ct_emit *e, ct_val v, int rank, const ct_ix *at, ct_ix *own);
// Computes the index along each axis from a flattened position.
void ct__unflatten_ix(ct_ix_pool *p, ct_ix flat, const ct_ix *size, int n, ct_ix *at);

static inline bool ct__in_vector(const ct_kir *k) { // True if a LANES loop is open.
    for (ct_kval l = k->open; l >= 0; l = k->ins[l].in)
        if (k->ins[l].sub == CT_BIND_LANES) return true;
    return false;
}
// True if an axis has size 1 for every value of the dynamic sizes.
static inline bool ct__is_one(const ct_type *t, int axis) {
    return t->dim[axis] == 1 && !ct__is_dyn(t, axis);
}

#endif
