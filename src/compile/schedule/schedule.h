// From a graph to kernels: what the scheduler's files and the templates share.
//
// The scheduler decides which values get a buffer ("materialised"); every other value is computed
// where it is used, by substituting index expressions (graph/index.h) from the user down to
// buffers. A template is a C function for nodes of one kind that the general scheduler cannot loop
// over (matmul, gather and scatter, scan, sort): it writes one or several kernels.
//
// A template's life:
//     bool ct__template_contract(ct_sched *s, ct_node *node) {
//         ct_emit *e = ct__emit_new(s, node);
//         ct_ix rows = ct__emit_size(e, (ct_val){node, 0}, 0);      // a number or a kernel
//         argument ct_ix i = ct__emit_loop(e, CT_BIND_CORE, rows, "row");    // an index variable
//         ct_kval x = ct__emit_value(e, node->in[0], (ct_ix[]){i, k}, CT_F32);  // any operand
//         ... any ct__kir_ call on e->kir, with ct__emit_ix(e, i) where a KIR value is wanted ...
//         ct__emit_store(e, (ct_val){node, 0}, (ct_ix[]){i, j}, sum);
//         ct__emit_end(e);
//         return ct__emit_done(e, flops);                           // appends the launch
//     }
// Operands may be views or (once fused) elementwise chains: never look for their buffers, load
// elements with ct__emit_value. Results go through ct__emit_store once for every element, which
// also runs what was fused behind the node. Errors are sticky in the emit; ct__emit_done reports
// them.
#ifndef COTAN_COMPILE_SCHEDULE_H
#define COTAN_COMPILE_SCHEDULE_H

#include "kir/kir.h"
#include "compile/schedule/program.h"

typedef struct ct_sched ct_sched;
typedef struct ct_memo ct_memo;
typedef struct ct_bind ct_bind;
typedef struct ct_seen ct_seen;

// The two passes, in order (lower.c): groups of values (fuse.c), then the launches of each
// (schedule.c). False: recorded.
ct_sched *ct__sched_new(const ct_graph *graph, ct_program *program, ct_err *err);
bool ct__fuse(ct_sched *s);
bool ct__schedule(ct_sched *s);
void ct__sched_free(ct_sched *s);

// A kernel being written.
typedef struct ct_emit {
    ct_sched *sched;
    ct_kir *kir;
    ct_ix_pool *pool;
    const ct_node *node; // whom it serves first
    ct_arena arena;
    // of emit.c: what stands behind index variables and values
    ct_bind *binds; // (n_binds) index variable -> KIR value
    size_t n_binds, binds_cap;
    ct_memo *memo; // (n_memo) values made in loops that are still open
    size_t n_memo, memo_cap;
    size_t *marks; // (n_marks) length of the memo at each open loop
    size_t n_marks, marks_cap;
    ct_arg *args; // (n_args) a kernel parameter each
    int *arg_ids; // (n_args) KIR buffer
    ct_dtype *arg_types;
    size_t n_args, args_cap, arg_ids_cap, arg_types_cap;
    int *syms; // (n_syms) dynamic size behind each i64 argument
    ct_kval *sym_values;
    size_t n_syms, syms_cap, sym_values_cap;
    ct_seen *seen; // (n_seen) every access, for the choice of loops
    size_t n_seen, seen_cap;
    int32_t group; // whose values are computed here, not loaded; -1: none
    ct_ix guard;   // the condition under which values are wanted now; CT_IX_NONE: always
    int depth;     // of nested inlining
    double bytes, flops;
} ct_emit;

ct_emit *ct__emit_new(ct_sched *s, const ct_node *node); // NULL: no memory, recorded
// The size of an axis: a number, or the expression of a kernel argument.
ct_ix ct__emit_size(ct_emit *e, ct_val v, int axis);
// Opens a loop of the kernel IR and gives its variable for index expressions.
ct_ix ct__emit_loop(ct_emit *e, ct_kbind bind, ct_ix extent, const char *name);
void ct__emit_end(ct_emit *e);
// An index variable in [0, extent) whose value the caller computed. (Use it for values that are
// not sums and products of others, such as a gathered position; else add and multiply variables.)
ct_ix ct__emit_bind(ct_emit *e, ct_kval value, ct_ix extent);
ct_kval ct__emit_ix(ct_emit *e, ct_ix x); // an index expression as an i64 KIR value
// Element v[at...] in dtype `as` (CT_DEFAULT: v's own; f16 and bf16 come as f32).
ct_kval ct__emit_value(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
// Does neighbouring `var` mean neighbouring elements of v[at...]? To choose the VECTOR loop.
bool ct__emit_contiguous(ct_emit *e, ct_val v, const ct_ix *at, ct_ix var);
// The result of the template at an index, in its compute dtype (rounded to v's dtype here).
void ct__emit_store(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// The same two for callbacks of templates, whose loops the emitter does not know: what is
// remembered inside must not be seen by code of others.
ct_kval ct__emit_value_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_dtype as);
void ct__emit_store_apart(ct_emit *e, ct_val v, const ct_ix *at, ct_kval value);
// The buffer of a materialised value, as a KIR buffer id; for templates that pass over memory
// several times. flags as of ct__kir_buffer.
int ct__emit_result_buffer(ct_emit *e, ct_val v, int flags);
uint32_t ct__sched_temp(ct_sched *s, size_t bytes); // a new CT_BUF_TEMP; UINT32_MAX: no memory
// Verifies the kernel, shares it with an equal one, appends the launch, frees e. False: recorded.
bool ct__emit_done(ct_emit *e, double flops);

// Writes the kernels of one node. Registered in templates.c by kind; NULL: the kind has
// none.
typedef bool (*ct_template)(ct_sched *s, ct_node *node);
ct_template ct__template_of(const ct_node *node);

#endif
