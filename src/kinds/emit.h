// A kernel being written: what kinds see of the scheduler (src/compile/schedule), which does all
// that is declared here.
//
// The scheduler decides which values get a buffer; every other value is computed where it is used,
// by substituting index expressions (graph/index.h) from the user down to buffers. A template is a
// C function for nodes of one kind that the general scheduler cannot loop over (matrix products,
// scatter, scan, sort): it writes one or several kernels.
//
// A template's life:
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
// Operands may be views: never look for their buffers, load elements with ct__emit_value. Results go
// through ct__emit_store once for every element, which also runs what was fused behind the node.
// Errors are sticky in the emit; ct__emit_done reports them.
#ifndef COTAN_KINDS_EMIT_H
#define COTAN_KINDS_EMIT_H

#include "kinds/kind.h"
#include "kir/target.h"

struct ct_emit {
    ct_kir *kir;
    ct_ix_pool *pool;
    ct_arena arena;      // goes with the kernel
    const ct_node *node; // whom it serves first
    ct_err *err;
    ct_target target;
    ct_ix guard;            // the condition under which values are wanted now; CT_IX_NONE: always
    bool unrolls;           // reductions are written out, an element at a time, and have no loops
    double flops;           // an iteration of the innermost loops, for reports
    struct ct_draft *draft; // the scheduler's side
};

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node); // NULL: no memory, recorded
// The size of an axis: a number, or the expression of a kernel argument.
ct_ix ct__emit_size(ct_emit *e, ct_val v, int axis);
// Opens a loop of the kernel IR and gives its variable for index expressions.
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name);
void ct__emit_end(ct_emit *e);
// An index variable in [0, extent) whose value the caller computed. (Use it for values that are
// not sums and products of others, such as a gathered position; else add and multiply variables.)
ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent);
ct_kval ct__emit_ix(ct_emit *e, ct_ix x);        // an index expression as an i64 KIR value
ct_kval ct__emit_condition(ct_emit *e, ct_ix x); // a condition as a bool
// Element v[at...] in dtype `as` (CT_DEFAULT: v's own; f16 and bf16 come as f32).
ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Element v[at...] of a value that lies in memory, its bits read as another dtype of its size.
ct_kval ct__emit_bits(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Part number `part` of element v[at...], of a value of a dtype that has parts and lies in memory.
ct_kval ct__emit_part(ct_emit *e, ct_val v, const ct_ix *at, int part);
// Elements of memory from v[at...] to that of the next `var`; 0: none, or not one number.
int64_t ct__emit_stride(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// Does neighbouring `var` mean neighbouring elements of v[at...]? To choose the LANES loop.
bool ct__emit_contiguous(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// Does v[at...] lie where no quotient hangs on `var` but by multiples of `group`, so that lanes along it
// need no division? And is it one element for all of `var`?
bool ct__emit_undivided(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var, int64_t group);
bool ct__emit_without(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// Is an element one load of dtype `as`, without a condition?
bool ct__emit_is_load(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Elements v[at...] and the next ones of memory as they lie in a u32: two of 16 bits, four of 8, eight of 4. Can
// they be loaded so: is it one load, without a condition, at a place of whole words? f32 that is a cast of bf16 or
// f16 and lies nowhere has the words of that. `of` is told whose elements lie there.
ct_kval ct__emit_word(ct_emit *e, ct_val v, const ct_ix *at);
bool ct__emit_has_word(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype *of);
// Asks a node's op where its element at an index comes from. The pieces live in e->arena.
bool ct__emit_map(ct_emit *e, const ct_node *node, const ct_ix *at, ct_map *map);
// The result of the template at an index, in its compute dtype (rounded to v's dtype here).
void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// The same two for callbacks of templates, whose loops the emitter does not know: what is
// remembered inside must not be seen by code of others.
ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// The buffer of a materialised value, as a KIR buffer id; for templates that pass over memory
// several times. flags as of ct__kir_buffer.
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags);
const ct_target *ct__sched_target(const ct_sched *s);
// Does the node make its result where its operand 0 lies: a variable that it is assigned to?
bool ct__sched_changes(const ct_sched *s, const ct_node *node);
// A new buffer of so many bytes, as attributes hold sizes, that launches of the template share
// (UINT32_MAX: no memory, recorded), and the same as a KIR buffer id.
uint32_t ct__sched_temp(ct_sched *s, int64_t size);
int ct__emit_temp(ct_emit *e, uint32_t temp, ct_dtype dtype, int flags);
// Makes kernel arguments of all dynamic sizes that reading the node's operands may need: they must
// stand before the first loop.
void ct__emit_declare_sizes(ct_emit *e, ct_node *node);
// Verifies the kernel, shares it with an equal one, appends the launch, frees e. False: recorded.
// flops 0: counted from what was computed.
bool ct__emit_done(ct_emit *e, double flops);

// The index in an operand that broadcasts to an elementwise node of this rank.
void ct__broadcast_ix(ct_emit *e, ct_val v, int rank, const ct_ix *at, ct_ix *own);
// Index of each axis of a flattened position.
void ct__unflatten_ix(ct_ix_pool *p, ct_ix flat, const ct_ix *size, int n, ct_ix *at);

static inline bool ct__in_vector(const ct_kir *k) { // is a LANES loop open?
    for (ct_kval l = k->open; l >= 0; l = k->ins[l].in)
        if (k->ins[l].sub == CT_BIND_LANES) return true;
    return false;
}
// Does an axis have one element for every length?
static inline bool ct__is_one(const ct_type *t, int axis) {
    return t->dim[axis] == 1 && !ct__is_dyn(t, axis);
}

#endif
