// Renders kernel IR as C and OpenCL C: loops, memory, reductions. render_expr.c writes the values.
#include "compile/render/render_c.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compile/render/render_impl.h"

// A loop of at least C_LONG_LOOP elements and at most C_MAX_DUPLICATED instructions is written twice: once
// for full vectors, once for the tail.
enum { C_LONG_LOOP = 128, C_MAX_DUPLICATED = 64 };

static void c_indent(const ct_render *r) {
    for (int i = 0; i < r->depth; i++) ct__text_add(r->out, "    ");
}

static void c_write_type(const ct_render *r, ct_kval v) {
    int dtype = r->k->ins[v].dtype;
    if (ct__render_is_wide(r, v))
        ct__render_wide_type(r->out, dtype);
    else
        ct__text_add(r->out, ct__render_type(dtype));
}

// ---------------------------------------------------------------------------------------- memory

void ct__render_buffer(const ct_render *r, int64_t buf) {
    int flags = r->k->bufs[buf].flags;
    const char *prefix = flags & CT_KIR_LOCAL                          ? "local"
                         : (flags & (CT_KIR_READ | CT_KIR_WRITE)) == 3 ? "io"
                         : flags & CT_KIR_WRITE                        ? "out"
                                                                       : "in";
    ct__textf(r->out, "%s%" PRId64, prefix, buf);
}

ct_converter ct__render_converter(const char *way, ct_dtype dtype) {
    ct_converter c = {""};
    if (dtype == CT_BOOL || ct__kir_compute_dtype(dtype) != dtype)
        snprintf(c.s, sizeof c.s, "%s_%s", way, ct_dtype_name(dtype));
    return c;
}

// The loop whose tail masks the accesses of instruction `at`; -1: all lanes are active.
static int32_t c_masking_loop(const ct_render *r, ct_kval at) {
    for (int32_t l = r->k->ins[at].in; l >= 0; l = r->k->ins[l].in)
        if (r->k->ins[l].sub == CT_BIND_LANES)
            return l != r->full_loop && r->shape[r->k->ins[l].a].align % CT_LANES ? l : -1;
    return -1;
}

// Writes the 16-bit mask of the lanes that an access touches.
static void c_write_mask(const ct_render *r, int32_t loop, ct_kval cond) {
    char tail[24] = "ALL";
    if (loop >= 0) snprintf(tail, sizeof tail, "k%d", loop);
    if (cond < 0) {
        ct__text_add(r->out, tail);
    } else if (r->shape[cond].vary == CT_UNIFORM) {
        ct__render_format(r, "($s ? $t : 0)", cond, tail);
    } else {
        ct__render_format(r, "(bits_of($w) & $t)", cond, tail);
    }
}

// Writes "ldm_f32(". OpenCL has functions of its own for private memory.
static void c_open_access(const ct_render *r, int64_t buf, const char *form) {
    const ct_kbuf *b = &r->k->bufs[buf];
    const bool own = b->flags & CT_KIR_LOCAL && ct__kir_local_offset(r->k, (int)buf) < 0;
    ct__textf(r->out, "%s%s_%s(", r->opencl && own ? "p" : "", form, ct__render_storage(b->dtype));
}

// Writes "in0 + 5" or "in0".
static void c_write_address(const ct_render *r, int64_t buf, ct_kval index) {
    ct__render_buffer(r, buf);
    int64_t zero = 1;
    if (ct__kir_is_int(r->k, index, &zero) && zero == 0) return;
    ct__render_format(r, " + $s", index);
}

static void c_write_element(const ct_render *r, int64_t buf, ct_kval index) {
    ct__render_buffer(r, buf);
    ct__render_format(r, "[$s]", index);
}

static void c_write_scalar_load(const ct_render *r, const ct_kins *ins) {
    ct_converter c = ct__render_converter("up", r->k->bufs[ins->imm.i].dtype);
    const char *up = c.s;
    if (ins->b >= 0) ct__render_format(r, "$s ? ", ins->b);
    if (*up) ct__textf(r->out, "s_%s(", up);
    c_write_element(r, ins->imm.i, ins->a);
    if (*up) ct__text_add(r->out, ")");
    if (ins->b >= 0) ct__text_add(r->out, " : 0");
}

// Writes a load of one element for all lanes whose condition is true.
static void c_write_broadcast_load(const ct_render *r, ct_kval v, const ct_kins *ins) {
    ct_converter c = ct__render_converter("up", r->k->bufs[ins->imm.i].dtype);
    const char *t = ct__render_suffix(ins->dtype), *up = c.s;
    ct__text_add(r->out, "splat_");
    ct__textf(r->out, "%s(0);\n", t);
    c_indent(r);
    ct__textf(r->out, "const unsigned q%d = ", v);
    c_write_mask(r, c_masking_loop(r, v), ins->b);
    ct__text_add(r->out, ";\n");
    c_indent(r);
    ct__textf(r->out, "if (q%d) v%d = sel_%s(mask_of(q%d), splat_%s(%s%s(", v, v, t, v, t,
              *up ? "s_" : "", up);
    c_write_element(r, ins->imm.i, ins->a);
    ct__textf(r->out, ")), v%d)", v);
}

// Writes a lookup in a table, which has an element for any four bits, so that inactive lanes need no mask.
static bool c_try_table_lookup(const ct_render *r, const ct_kins *ins) {
    const ct_kval x = ct__render_table_index(r->k, r->shape, ins);
    if (x < 0) return false;
    c_open_access(r, ins->imm.i, "lookup");
    ct__render_buffer(r, ins->imm.i);
    ct__render_format(r, ", $w)", x);
    return true;
}

// Writes a load from positions that are data, or computed from data.
static void c_write_gather(const ct_render *r, const ct_kins *ins) {
    const ct_kval x = ct__render_i32_index(r->k, r->shape, ins->a);
    const bool row = x >= 0 && ct__render_is_contiguous(r, ins, x);
    c_open_access(r, ins->imm.i, row ? "ldm" : x >= 0 ? "ldi" : "ldg");
    ct__render_buffer(r, ins->imm.i);
    if (x >= 0) ct__render_uniform_part(r, ins->a);
    ct__render_format(r, row ? " + $s" : ", $w", x >= 0 ? x : ins->a);
}

static void c_write_wide_load(const ct_render *r, ct_kval v, const ct_kins *ins) {
    ct_dtype dtype = r->k->bufs[ins->imm.i].dtype;
    ct_converter c = ct__render_converter("up", dtype);
    const char *up = c.s;
    ct_kshape index = r->shape[ins->a];
    int32_t loop = c_masking_loop(r, v);
    if (index.vary == CT_UNIFORM) {
        c_write_broadcast_load(r, v, ins);
        return;
    }
    if (c_try_table_lookup(r, ins)) return;
    if (*up) ct__textf(r->out, "%s(", up);
    if (index.vary == CT_VARYING) {
        c_write_gather(r, ins);
    } else {
        bool one = index.stride == 1, all = loop < 0 && ins->b < 0;
        c_open_access(r, ins->imm.i, one ? all ? "ld" : "ldm" : "lds");
        c_write_address(r, ins->imm.i, ins->a);
        if (!one) ct__textf(r->out, ", %" PRId64, index.stride);
        if (one && all) {
            ct__text_add(r->out, *up ? "))" : ")");
            return;
        }
    }
    ct__text_add(r->out, ", ");
    c_write_mask(r, loop, ins->b);
    ct__text_add(r->out, *up ? "))" : ")");
}

// The operand of the rounding cast before a store: the store rounds itself.
static ct_kval c_unrounded_operand(const ct_render *r, const ct_kins *store) {
    const ct_kins *v = &r->k->ins[store->b];
    ct_dtype dtype = r->k->bufs[store->imm.i].dtype;
    bool rounds = v->op == CT_K_CAST && v->sub == dtype && ct__is_narrow_float(dtype);
    return rounds ? v->a : store->b;
}

static void c_write_scalar_store(const ct_render *r, const ct_kins *ins) {
    ct_converter c = ct__render_converter("down", r->k->bufs[ins->imm.i].dtype);
    const char *down = c.s;
    if (ins->c >= 0) ct__render_format(r, "if ($s) ", ins->c);
    c_write_element(r, ins->imm.i, ins->a);
    ct__text_add(r->out, " = ");
    bool narrows = r->k->bufs[ins->imm.i].dtype != CT_BOOL && *down;
    if (narrows) ct__textf(r->out, "s_%s(", down);
    ct__render_scalar(r, c_unrounded_operand(r, ins));
    ct__text_add(r->out, narrows ? ");\n" : ";\n");
}

static void c_write_stored_vector(const ct_render *r, const ct_kins *ins) {
    ct_converter c = ct__render_converter("down", r->k->bufs[ins->imm.i].dtype);
    const char *down = c.s;
    if (*down) ct__textf(r->out, "%s(", down);
    ct__render_wide(r, c_unrounded_operand(r, ins));
    ct__text_add(r->out, *down ? "));\n" : ");\n");
}

static void c_write_store(const ct_render *r, ct_kval v, const ct_kins *ins) {
    ct_kshape index = r->shape[ins->a];
    int32_t loop = c_masking_loop(r, v);
    c_indent(r);
    if (index.vary == CT_UNIFORM) {
        c_write_scalar_store(r, ins);
        return;
    }
    bool one = index.vary == CT_AFFINE && index.stride == 1, all = loop < 0 && ins->c < 0;
    const char *form = index.vary == CT_VARYING ? "stg"
                       : !one                   ? "sts"
                       : ins->sub               ? "stp"
                       : all                    ? "st"
                                                : "stm";
    c_open_access(r, ins->imm.i, form);
    if (index.vary == CT_VARYING) {
        ct__render_buffer(r, ins->imm.i);
        ct__render_format(r, ", $w", ins->a);
    } else {
        c_write_address(r, ins->imm.i, ins->a);
        if (!one) ct__textf(r->out, ", %" PRId64, index.stride);
    }
    ct__text_add(r->out, ", ");
    if (!one || !all || ins->sub) {
        c_write_mask(r, loop, ins->c);
        ct__text_add(r->out, ", ");
    }
    c_write_stored_vector(r, ins);
}

static void c_write_count_mask(const ct_render *r, ct_kval count) {
    ct__render_format(r, ", lanes_below($s)", count);
}

static void c_write_vector_load(const ct_render *r, const ct_kins *ins) {
    ct_dtype dtype = r->k->bufs[ins->imm.i].dtype;
    ct_converter c = ct__render_converter("up", dtype);
    const char *up = c.s;
    if (*up) ct__textf(r->out, "%s(", up);
    c_open_access(r, ins->imm.i, ins->b >= 0 ? "ldm" : "ld");
    c_write_address(r, ins->imm.i, ins->a);
    if (ins->b >= 0) c_write_count_mask(r, ins->b);
    ct__text_add(r->out, *up ? "))" : ")");
}

static void c_write_vector_store(const ct_render *r, const ct_kins *ins) {
    c_indent(r);
    c_open_access(r, ins->imm.i, ins->sub ? "stp" : ins->c >= 0 ? "stm" : "st");
    c_write_address(r, ins->imm.i, ins->a);
    if (ins->sub)
        ct__text_add(r->out, ", ALL");
    else if (ins->c >= 0)
        c_write_count_mask(r, ins->c);
    ct__text_add(r->out, ", ");
    c_write_stored_vector(r, ins);
}

// ------------------------------------------------------------------------------------ reductions

const char *ct__render_red_name(const ct_kins *ins) {
    return ct__kred_name(ins->sub) + (ct__kred_is_arg(ins->sub) ? strlen("arg") : 0);
}

ct_reduction ct__render_reduction(const ct_kir *k, ct_kval id) {
    const ct_kins *ins = &k->ins[id];
    ct_reduction d = {.id = id, .ins = ins, .dtype = k->ins[ins->a].dtype};
    d.lanes = k->ins[ins->in].sub == CT_BIND_LANES;
    d.is_arg = ct__kred_is_arg(ins->sub);
    d.ordered = ct__kred_is_ordered(ins->sub, d.dtype);
    d.array = !d.lanes && d.ordered;
    d.t = ct__render_suffix(d.dtype);
    d.op = ct__render_red_name(ins);
    return d;
}

// True for maxima and minima, which cost five instructions each and do not depend on their order, in a loop
// that is not short.
static bool c_use_four_accumulators(const ct_render *r, const ct_reduction *d) {
    enum { MIN_INTERLEAVED = 16 * CT_LANES };
    int64_t n;
    return d->lanes && !d->is_arg && !d->ordered && ct__is_float(d->dtype) &&
           (!ct__kir_is_int(r->k, r->k->ins[d->ins->in].a, &n) || n >= MIN_INTERLEAVED);
}

static ct_reduction c_reduction_of(const ct_render *r, ct_kval id) {
    ct_reduction d = ct__render_reduction(r->k, id);
    d.wide = !d.lanes && ct__render_is_wide(r, id);
    d.s = d.lanes || d.wide ? "" : "s_";
    d.interleaved = c_use_four_accumulators(r, &d);
    return d;
}

static void c_write_identity(const ct_render *r, const ct_reduction *d) {
    bool vector = d->lanes || d->wide;
    if (vector) ct__textf(r->out, "splat_%s(", d->t);
    ct_kins value = ct__kred_identity(d->ins->sub, d->dtype);
    ct__render_literal(r->out, d->dtype, &value);
    if (vector) ct__text_add(r->out, ")");
}

static void c_declare_accumulator(const ct_render *r, const ct_reduction *d) {
    bool vector = d->lanes || d->wide;
    c_indent(r);
    ct__textf(r->out, "%s%s a%d%s", vector ? d->t : ct__render_type(d->dtype), vector ? "x16" : "",
              d->id, d->array ? "[16]; EACH(a" : " = ");
    if (d->array) ct__textf(r->out, "%d, ", d->id);
    c_write_identity(r, d);
    if (d->interleaved)
        ct__textf(r->out, ", a%d_1 = a%d, a%d_2 = a%d, a%d_3 = a%d", d->id, d->id, d->id, d->id,
                  d->id, d->id);
    ct__text_add(r->out, d->array ? ");\n" : ";\n");
    if (!d->is_arg) return;
    c_indent(r);
    ct__textf(r->out, vector ? "i64x16 m%d = splat_i64(0);\n" : "i64 m%d = 0;\n", d->id);
}

// Writes the value to accumulate; lanes beyond the end give the identity of the reduction.
static void c_write_reduced_value(const ct_render *r, const ct_reduction *d) {
    int32_t loop = d->lanes ? c_masking_loop(r, d->id) : -1;
    if (!d->lanes && !d->wide) {
        ct__render_scalar(r, d->ins->a);
    } else if (loop < 0) {
        ct__render_wide(r, d->ins->a);
    } else {
        ct__textf(r->out, "sel_%s(mask_of(k%d), ", d->t, loop);
        ct__render_wide(r, d->ins->a);
        ct__text_add(r->out, ", ");
        c_write_identity(r, d);
        ct__text_add(r->out, ")");
    }
}

static void c_accumulate_arg(const ct_render *r, const ct_reduction *d) {
    bool vector = d->lanes || d->wide;
    c_indent(r);
    ct__textf(r->out, "const %s%s q%d = ", vector ? d->t : ct__render_type(d->dtype),
              vector ? "x16" : "", d->id);
    c_write_reduced_value(r, d);
    ct__text_add(r->out, ";\n");
    c_indent(r);
    if (!vector) {
        ct__textf(r->out, "if (s_better_%s_%s(q%d, a%d)) a%d = q%d, m%d = j%d;\n", d->op, d->t,
                  d->id, d->id, d->id, d->id, d->id, d->ins->in);
        return;
    }
    ct__textf(r->out, "const bx16 w%d = better_%s_%s(q%d, a%d);\n", d->id, d->op, d->t, d->id,
              d->id);
    c_indent(r);
    ct__textf(r->out, "a%d = sel_%s(w%d, q%d, a%d); m%d = sel_i64(w%d, %s(j%d%s), m%d);\n", d->id,
              d->t, d->id, d->id, d->id, d->id, d->id, d->lanes ? "iota_i64" : "splat_i64",
              d->ins->in, d->lanes ? ", 1" : "", d->id);
}

static void c_accumulate(const ct_render *r, ct_kval id) {
    ct_reduction d = c_reduction_of(r, id);
    if (d.is_arg) {
        c_accumulate_arg(r, &d);
        return;
    }
    char a[48];
    if (d.array)
        snprintf(a, sizeof a, "a%d[j%d & 15]", id, d.ins->in);
    else
        snprintf(a, sizeof a, "a%d", id);
    c_indent(r);
    if (d.interleaved)
        ct__textf(r->out, "TURN(%sx16, a%d, %s_%s(%s, ", d.t, id, d.op, d.t, a);
    else
        ct__textf(r->out, "%s = %s%s_%s(%s, ", a, d.s, d.op, d.t, a);
    c_write_reduced_value(r, &d);
    ct__text_add(r->out, d.interleaved ? "))\n" : ");\n");
}

// Writes the result of one block as an expression.
static void c_write_block_result(const ct_render *r, const ct_reduction *d) {
    if (d->lanes && d->is_arg)
        ct__textf(r->out, "argfold_%s_%s(a%d, m%d)", d->op, d->t, d->id, d->id);
    else if (d->interleaved)
        ct__textf(r->out, "fold_%s_%s(FOUR(%s_%s, a%d))", d->op, d->t, d->op, d->t, d->id);
    else if (d->lanes)
        ct__textf(r->out, "fold_%s_%s(a%d)", d->op, d->t, d->id);
    else if (d->is_arg)
        ct__textf(r->out, "m%d", d->id);
    else
        ct__textf(r->out, d->array ? "a%d[0]" : "a%d", d->id);
}

static void c_fold_array(const ct_render *r, const ct_reduction *d) {
    if (!d->array) return;
    c_indent(r);
    ct__textf(r->out, "FOLD_ARRAY(a%d, %s%s_%s);\n", d->id, d->s, d->op, d->t);
}

static void c_tree_name(char *name, size_t n, const ct_reduction *d) {
    snprintf(name, n, "%s%s_%s", d->op, d->wide ? "x" : "", d->t);
}

static void c_declare_tree(const ct_render *r, const ct_reduction *d) {
    char tree[24];
    c_tree_name(tree, sizeof tree, d);
    c_indent(r);
    ct__textf(r->out, "tree_%s t%d; CLEAR(t%d);\n", tree, d->id, d->id);
}

static void c_push_block(const ct_render *r, const ct_reduction *d) {
    char tree[24];
    c_tree_name(tree, sizeof tree, d);
    // the tree holds block results: scalars unless each lane is a separate reduction
    ct_reduction flat = *d;
    flat.lanes = false;
    c_indent(r);
    ct__textf(r->out, "push_%s(&t%d, 0, ", tree, d->id);
    c_write_block_result(r, d);
    ct__text_add(r->out, ", ");
    c_write_identity(r, &flat);
    ct__text_add(r->out, ");\n");
}

static void c_declare_result(const ct_render *r, const ct_reduction *d, bool blocks) {
    c_indent(r);
    ct__text_add(r->out, "const ");
    c_write_type(r, d->id);
    ct__textf(r->out, " v%d = ", d->id);
    if (blocks && d->ordered) {
        char tree[24];
        c_tree_name(tree, sizeof tree, d);
        ct_reduction flat = *d;
        flat.lanes = false;
        ct__textf(r->out, "total_%s(&t%d, ", tree, d->id);
        c_write_identity(r, &flat);
        ct__text_add(r->out, ")");
    } else {
        c_write_block_result(r, d);
    }
    ct__text_add(r->out, ";\n");
}

// ----------------------------------------------------------------------------------------- loops

// Iterates over the reductions of a loop, with how each is computed.
#define C_EACH_REDUCE(r, loop, d)                                                                  \
    CT_EACH_REDUCE((r)->k, loop, id_)                                                              \
    for (ct_reduction d = c_reduction_of(r, id_), *once_ = &d; once_; once_ = NULL)

// Write where a loop, or one block of it, begins and ends.
static void c_write_loop_begin(const ct_render *r, ct_kval v, bool blocks) {
    if (blocks)
        ct__textf(r->out, "h%d", v);
    else
        ct__text_add(r->out, "0");
}
static void c_write_loop_end(const ct_render *r, ct_kval v, bool blocks) {
    if (blocks)
        ct__textf(r->out, "e%d", v);
    else
        ct__render_scalar(r, r->k->ins[v].a);
}

static void c_write_loop_header(const ct_render *r, ct_kval v, const ct_kins *ins, bool blocks) {
    c_indent(r);
    if (r->full_loop && r->full_loop == v) {
        ct__textf(r->out, "i64 j%d = ", v);
        c_write_loop_begin(r, v, blocks);
        ct__text_add(r->out, ";\n");
        c_indent(r);
        ct__textf(r->out, "for (; j%d + 16 <= ", v);
        c_write_loop_end(r, v, blocks);
        ct__textf(r->out, r->align_store ? ";) {" : "; j%d += 16) {", v);
    } else if (ins->sub == CT_BIND_ROWS) {
        ct__textf(r->out, "for (i64 j%d = begin; j%d < end; j%d++) {", v, v, v);
    } else {
        ct__textf(r->out, "for (i64 j%d = ", v);
        c_write_loop_begin(r, v, blocks);
        ct__textf(r->out, "; j%d < ", v);
        c_write_loop_end(r, v, blocks);
        ct__textf(r->out, ins->sub == CT_BIND_LANES ? "; j%d += 16) {" : "; j%d++) {", v);
    }
    if (ins->name) ct__textf(r->out, " // %s", ins->name);
    ct__text_add(r->out, "\n");
}

static void c_declare_tail_mask(const ct_render *r, ct_kval v) {
    c_indent(r);
    ct__render_format(r, "const unsigned k$d = lanes_below($s - j$d);\n", (int64_t)v,
                      r->k->ins[v].a, (int64_t)v);
}

static void c_open_loop(ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    bool blocks = ct__kir_reduces_by_blocks(r->k, v);
    C_EACH_REDUCE(r, v, d) {
        if (blocks && d.ordered)
            c_declare_tree(r, &d);
        else
            c_declare_accumulator(r, &d);
    }
    if (blocks) {
        c_indent(r);
        ct__textf(r->out, "for (i64 h%d = 0; h%d < ", v, v);
        ct__render_scalar(r, ins->a);
        ct__textf(r->out, "; h%d += 1024) {\n", v);
        r->depth++;
        c_indent(r);
        ct__textf(r->out, "const i64 e%d = s_min_i64(h%d + 1024, ", v, v);
        ct__render_scalar(r, ins->a);
        ct__text_add(r->out, ");\n");
        C_EACH_REDUCE(r, v, d) if (d.ordered) c_declare_accumulator(r, &d);
    }
    if (ins->sub == CT_BIND_UNROLL) {
        c_indent(r);
        ct__text_add(r->out, "#pragma GCC unroll 64\n");
    }
    c_write_loop_header(r, v, ins, blocks);
    r->depth++;
    if (ins->sub == CT_BIND_LANES && r->shape[ins->a].align % CT_LANES && v != r->full_loop)
        c_declare_tail_mask(r, v);
}

// Opens the tail of a loop whose full vectors have been written.
static void c_open_tail(ct_render *r, ct_kval v) {
    r->depth--;
    c_indent(r);
    ct__text_add(r->out, "}\n");
    c_indent(r);
    ct__textf(r->out, "if (j%d < ", v);
    c_write_loop_end(r, v, ct__kir_reduces_by_blocks(r->k, v));
    ct__text_add(r->out, ") {\n");
    r->depth++;
    c_declare_tail_mask(r, v);
}

static void c_close_loop(ct_render *r, ct_kval v) {
    bool blocks = ct__kir_reduces_by_blocks(r->k, v);
    r->depth--;
    c_indent(r);
    ct__text_add(r->out, "}\n");
    C_EACH_REDUCE(r, v, d) c_fold_array(r, &d);
    if (blocks) {
        C_EACH_REDUCE(r, v, d) if (d.ordered) c_push_block(r, &d);
        r->depth--;
        c_indent(r);
        ct__text_add(r->out, "}\n");
    }
    C_EACH_REDUCE(r, v, d) c_declare_result(r, &d, blocks);
}

// ---------------------------------------------------------------------------------- instructions

static void c_write_assigned(const ct_render *r, ct_kval reg, ct_kval value) {
    if (ct__render_is_wide(r, reg))
        ct__render_wide(r, value);
    else
        ct__render_scalar(r, value);
    ct__text_add(r->out, ";\n");
}

static void c_define(const ct_render *r, ct_kval v, const ct_kins *ins) {
    bool wide = ct__render_is_wide(r, v);
    c_indent(r);
    bool declared_first = ins->op == CT_K_LOAD && wide && r->shape[ins->a].vary == CT_UNIFORM;
    if (!declared_first) ct__text_add(r->out, "const ");
    c_write_type(r, v);
    ct__textf(r->out, " v%d = ", v);
    switch (ins->op) {
    case CT_K_LOAD:
        if (wide)
            c_write_wide_load(r, v, ins);
        else
            c_write_scalar_load(r, ins);
        break;
    case CT_K_VLOAD: c_write_vector_load(r, ins); break;
    case CT_K_GET: ct__textf(r->out, "r%d", ins->a); break;
    case CT_K_FOLD:
        ct__render_format(r, "fold_$t_$t($w)", ct__render_red_name(ins),
                          ct__render_suffix(ins->dtype), ins->a);
        break;
    default: ct__render_value(r, v); break;
    }
    ct__text_add(r->out, ";\n");
}

static void c_write_prefetch(const ct_render *r, const ct_kins *ins) {
    c_indent(r);
    ct__text_add(r->out, "__builtin_prefetch(");
    c_write_address(r, ins->imm.i, ins->a);
    // Data to read is fetched into the second cache: the first is full of the data in use.
    ct__text_add(r->out, ins->sub ? ", 1, 3);\n" : ", 0, 2);\n");
}

static void c_write_instruction(ct_render *r, ct_kval v) {
    const ct_kins *ins = &r->k->ins[v];
    switch (ins->op) {
    case CT_K_CONST:
    case CT_K_ARG:
    case CT_K_PARAM:
    case CT_K_SPLAT:
    case CT_K_IOTA: break;
    case CT_K_LOOP: c_open_loop(r, v); break;
    case CT_K_END: c_close_loop(r, ins->a); break;
    case CT_K_STORE: c_write_store(r, v, ins); break;
    case CT_K_VSTORE: c_write_vector_store(r, ins); break;
    case CT_K_REDUCE: c_accumulate(r, v); break;
    case CT_K_REG:
        c_indent(r);
        c_write_type(r, v);
        ct__textf(r->out, " r%d = ", v);
        c_write_assigned(r, v, ins->a);
        break;
    case CT_K_SET:
        c_indent(r);
        ct__textf(r->out, "r%d = ", ins->a);
        c_write_assigned(r, ins->a, ins->b);
        break;
    case CT_K_PREFETCH: c_write_prefetch(r, ins); break;
    case CT_K_BREAK:
        c_indent(r);
        ct__render_format(r, "if ($s) break;\n", ins->a);
        break;
    case CT_K_RET:
        c_indent(r);
        ct__text_add(r->out, "return ");
        c_write_assigned(r, ins->a, ins->a);
        break;
    default:
        if (!r->nested[v]) c_define(r, v, ins);
        break;
    }
}

// Returns the END of a long innermost LANES loop whose number of elements leaves a tail; else 0. Masks cost
// every iteration, a seventh of a softmax's time.
static ct_kval c_find_tailed_end(const ct_render *r, ct_kval v) {
    const ct_kins *ins = r->k->ins + v, *extent = r->k->ins + ins->a;
    if (ins->op != CT_K_LOOP || ins->sub != CT_BIND_LANES || extent->op != CT_K_CONST ||
        extent->imm.i < C_LONG_LOOP || extent->imm.i % CT_LANES == 0)
        return 0;
    for (ct_kval i = v + 1; i <= v + C_MAX_DUPLICATED && i < (ct_kval)r->k->n; i++) {
        if (r->k->ins[i].op == CT_K_END) return i;
        if (r->k->ins[i].op == CT_K_LOOP || r->k->ins[i].op == CT_K_BREAK) return 0;
    }
    return 0;
}

// Returns the first store of a loop if all of its stores are non-temporal and its iterations may be any 16
// elements, computed twice; else 0. The first iteration of such a loop ends where a cache line of the store
// begins, so that all later ones store whole lines wherever the row begins.
static ct_kval c_find_aligned_store(const ct_render *r, ct_kval loop, ct_kval end) {
    ct_kval first = 0;
    for (ct_kval i = loop + 1; i < end; i++) {
        const ct_kins *ins = &r->k->ins[i];
        const bool quotient = ins->op == CT_K_DIV || ins->op == CT_K_MOD;
        if (ins->op == CT_K_REDUCE || ins->op == CT_K_SET || (ins->op == CT_K_STORE && !ins->sub) ||
            (quotient && ins->dtype == CT_I64 && r->shape[ins->a].vary != CT_UNIFORM))
            return 0;
        const ct_kshape index = ins->op == CT_K_STORE ? r->shape[ins->a] : r->shape[i];
        if (ins->op == CT_K_STORE && (index.vary != CT_AFFINE || index.stride != 1)) return 0;
        if (ins->op == CT_K_STORE && !first) first = i;
    }
    return first;
}

static void c_advance_to_line(const ct_render *r, ct_kval loop) {
    const ct_kins *ins = &r->k->ins[r->align_store];
    const size_t size = ct_dtype_size(r->k->bufs[ins->imm.i].dtype);
    c_indent(r);
    ct__textf(r->out, "j%d += 16 - (i64)((uintptr_t)(", loop);
    c_write_address(r, ins->imm.i, ins->a);
    ct__textf(r->out, ") %% %zu / %zu);\n", CT_LANES * size, size);
}

static void c_write_body(ct_render *r) {
    for (ct_kval i = 0; i < (ct_kval)r->k->n; i++) {
        const ct_kval end = c_find_tailed_end(r, i);
        if (end) r->full_loop = i;
        r->align_store = c_find_aligned_store(r, i, end);
        c_write_instruction(r, i);
        for (ct_kval k = i + 1; k < end; k++) c_write_instruction(r, k);
        if (r->align_store) c_advance_to_line(r, i);
        r->full_loop = r->align_store = 0;
        if (end) c_open_tail(r, i);
    }
}

void ct__render_find_nested(const ct_kir *k, const ct_kshape *shape, uint8_t *nested,
                            uint8_t *uses) {
    enum { DEEPEST = 5 };
    memset(nested, 0, k->n);
    memset(uses, 0, k->n);
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        const ct_kval ops[3] = {ins->a, ins->b, ins->c};
        for (int j = 0; j < 3; j++) {
            if (ops[j] < 0) continue;
            uses[ops[j]] = (uint8_t)(uses[ops[j]] + (uses[ops[j]] < 2));
            if (ins->op == CT_K_LOOP) uses[ops[j]] = 2; // written several times
        }
    }
    for (size_t i = 0; i < k->n; i++) {
        if (uses[i] != 1 || !ct__render_can_nest(k, (ct_kval)i, shape[i])) continue;
        int deepest = 0;
        const ct_kval ops[2] = {k->ins[i].a, k->ins[i].b};
        for (int j = 0; j < 2; j++)
            if (ops[j] >= 0 && nested[ops[j]] > deepest) deepest = nested[ops[j]];
        if (deepest < DEEPEST) nested[i] = (uint8_t)(deepest + 1);
    }
}

void ct__render_find_indices(const ct_kir *k, bool *index) {
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        bool leaf = ins->op == CT_K_CONST || ins->op == CT_K_ARG || ins->op == CT_K_LOOP;
        bool all = ins->op == CT_K_SPLAT || ins->op == CT_K_IOTA ||
                   (ins->op >= CT_K_ADD && ins->op <= CT_K_MAX);
        const ct_kval ops[3] = {ins->a, ins->b, ins->c};
        for (int j = 0; j < 3; j++) all = all && (ops[j] < 0 || index[ops[j]]);
        index[i] = ins->dtype == CT_I64 && (leaf || all);
    }
}

// -------------------------------------------------------------------------------- math functions

// Computes shapes of a function whose parameter has 16 lanes or is a scalar.
static void c_function_shapes(const ct_kir *k, ct_kshape *shape, bool wide) {
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        bool vary = ins->op == CT_K_PARAM && wide;
        const ct_kval ops[3] = {ins->a, ins->b, ins->c};
        for (int j = 0; j < 3; j++) vary |= ops[j] >= 0 && shape[ops[j]].vary == CT_VARYING;
        shape[i] = (ct_kshape){.vary = vary ? CT_VARYING : CT_UNIFORM, .align = 1};
    }
}

static void c_write_math_function(const ct_kir *k, ct_kmath f, ct_dtype dtype, ct_kshape *shape,
                                  const uint8_t *nested, ct_text *out) {
    const char *name = ct__kir_math_name(f), *t = ct__render_type(dtype);
    ct_render r = {.k = k, .shape = shape, .nested = nested, .out = out, .depth = 1};
    for (int wide = 0; wide < 2; wide++) {
        c_function_shapes(k, shape, wide);
        ct__textf(out, "%s %s%s %s%s_%s(%s%s x0) {\n", f > CT_MATH_ERF ? "SLOW" : "static", t,
                  wide ? "x16" : "", wide ? "" : "s_", name, t, t, wide ? "x16" : "");
        c_write_body(&r);
        ct__text_add(out, "}\n");
    }
}

// Writes the tree types for sums of several blocks, each once.
static void c_write_trees(const ct_render *r, ct_text *out) {
    bool done[2][2][2] = {{{false}}};
    for (ct_kval i = 0; (size_t)i < r->k->n; i++) {
        if (r->k->ins[i].op != CT_K_REDUCE) continue;
        ct_reduction d = c_reduction_of(r, i);
        if (!d.ordered || !ct__kir_reduces_by_blocks(r->k, d.ins->in)) continue;
        bool *known = &done[d.ins->sub == CT_RED_MUL][d.dtype == CT_F64][d.wide];
        if (*known) continue;
        *known = true;
        char tree[24];
        c_tree_name(tree, sizeof tree, &d);
        ct__textf(out, "#ifndef TREE_%s\n#define TREE_%s\nTREE(%s, %s%s, %s%s_%s)\n#endif\n", tree,
                  tree, tree, d.t, d.wide ? "x16" : "", d.wide ? "" : "s_", d.op, d.t);
    }
}

// --------------------------------------------------------------------------------------- kernels

// Declare a local in scratch memory and a parameter, with the address spaces of the language.
static void c_declare_local(const ct_render *r, size_t i, const char *t, int64_t offset) {
    const char *of = r->opencl ? "global " : "";
    ct__textf(r->out, "%s%s *restrict ", of, t);
    ct__render_buffer(r, (int64_t)i);
    ct__textf(r->out, " = (%svoid *)((%schar *)scratch + %" PRId64 "); // [%" PRId64 "]\n", of, of,
              offset, r->k->bufs[i].count);
}
static void c_declare_parameter(const ct_render *r, size_t i, const char *t, int at) {
    const ct_kbuf *b = &r->k->bufs[i];
    const char *fixed = b->flags & CT_KIR_WRITE ? "" : "const ", *of = r->opencl ? "global " : "";
    ct__textf(r->out, "%s%s%s *%s", of, fixed, t, b->flags & CT_KIR_ALIAS ? "" : "restrict ");
    ct__render_buffer(r, (int64_t)i);
    if (r->opencl)
        ct__textf(r->out, " = (%s%s%s *)(b%d + o%d); // %s\n", of, fixed, t, at, at,
                  ct_dtype_name(b->dtype));
    else
        ct__textf(r->out, " = bufs[%d]; // %s\n", at, ct_dtype_name(b->dtype));
}

static void c_declare_buffers(const ct_render *r) {
    const ct_kir *k = r->k;
    int at = 0;
    for (size_t i = 0; i < k->nbufs; i++) {
        const ct_kbuf *b = &k->bufs[i];
        const char *t = ct__render_storage(b->dtype);
        int64_t offset = b->flags & CT_KIR_LOCAL ? ct__kir_local_offset(k, (int)i) : 0;
        c_indent(r);
        if (!(b->flags & CT_KIR_LOCAL)) {
            c_declare_parameter(r, i, t, at++);
        } else if (offset < 0) {
            ct__textf(r->out, "%s ", t);
            ct__render_buffer(r, (int64_t)i);
            ct__textf(r->out, "[%" PRId64 "] __attribute__((aligned(64)));\n", b->count);
        } else {
            c_declare_local(r, i, t, offset);
        }
    }
    for (size_t i = 0; i < k->n; i++) {
        if (k->ins[i].op != CT_K_ARG || r->opencl) continue;
        c_indent(r);
        ct__textf(r->out, "const i64 n%" PRId64 " = args[%" PRId64 "];\n", k->ins[i].imm.i,
                  k->ins[i].imm.i);
    }
}

// Selects the row of a work-item by its id.
static void c_select_row(const ct_render *r) {
    c_indent(r);
    ct__text_add(r->out, "begin += (i64)(get_global_id(0) - get_global_offset(0));\n");
    c_indent(r);
    ct__text_add(r->out, "end = min(end, begin + 1);\n");
    c_indent(r);
    ct__text_add(r->out, "scratch += (begin - first) * scratch_bytes;\n");
}

static void c_write_kernel_body(ct_render *r) {
    if (r->opencl) c_select_row(r);
    c_declare_buffers(r);
    bool has_rows = false, has_nontemporal = false;
    for (size_t i = 0; i < r->k->n; i++) {
        const ct_kins *ins = &r->k->ins[i];
        has_rows |= ins->op == CT_K_LOOP && ins->sub == CT_BIND_ROWS;
        has_nontemporal |= (ins->op == CT_K_STORE || ins->op == CT_K_VSTORE) && ins->sub;
    }
    if (!has_rows) {
        c_indent(r);
        ct__text_add(r->out, "if (begin >= end) return;\n");
    }
    c_write_body(r);
    if (!has_nontemporal) return;
    c_indent(r);
    ct__text_add(r->out, "FENCE;\n"); // the stores are visible before the task counts as done
}

static void c_write_opencl_signature(const ct_kir *k, const char *name, ct_text *out) {
    ct__textf(out, "kernel void %s(", name);
    for (int i = 0; i < k->nparams; i++) ct__textf(out, "global u8 *b%d, ", i);
    for (int i = 0; i < k->nparams; i++) ct__textf(out, "i64 o%d, ", i);
    for (int i = 0; i < k->nargs; i++) ct__textf(out, "i64 n%d, ", i);
    ct__text_add(out, "i64 begin, i64 end, i64 scratch_bytes, global u8 *scratch) {\n");
    ct__text_add(out, "    const i64 first = begin;\n");
}

static bool c_render(ct_render *r, ct_text *out, char name[40], ct_err *err) {
    ct_text inner = {0};
    if (!ct__render_math(r->k, c_write_math_function, out, err)) return false;
    c_write_trees(r, out);
    r->out = &inner;
    c_write_kernel_body(r);
    ct_hash hash = ct__hash_bytes(inner.s ? inner.s : "", inner.n, (ct_hash){0, 0});
    char hex[33];
    ct__hash_hex(hash, hex);
    snprintf(name, 40, "k_%s", hex);
    if (r->opencl)
        c_write_opencl_signature(r->k, name, out);
    else
        ct__textf(
            out,
            "void %s(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n",
            name);
    ct__text_bytes(out, inner.s ? inner.s : "", inner.n);
    ct__text_add(out, "}\n");
    bool ok = !inner.failed && !out->failed;
    ct__text_free(&inner);
    return ok || ct__err_memory(err, CT_NOWHERE, "kernel", out->n);
}

static bool c_render_kernel(const ct_kir *k, bool opencl, ct_text *out, char name[40],
                            ct_err *err) {
    if (!ct__kir_verify(k, err)) return false;
    if (k->ins[0].op == CT_K_PARAM)
        return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "a function is not a kernel");
    ct_kshape *shape = ct__malloc(k->n * sizeof *shape);
    uint8_t *nested = ct__malloc(k->n * 2);
    bool *index = ct__malloc(k->n * sizeof *index), ok = shape && nested && index;
    if (!ok) ct__err_memory(err, CT_NOWHERE, "kernel", k->n * sizeof *shape);
    if (ok) {
        ct__kir_shapes(k, CT_LANES, shape);
        ct__render_find_affine(k, shape);
        ct__render_find_nested(k, shape, nested, nested + k->n);
        ct__render_nest_i32_indices(k, shape, nested + k->n, nested);
        ct__render_find_indices(k, index);
        ct_render r = {.k = k,
                       .shape = shape,
                       .nested = nested,
                       .no_overflow = index,
                       .depth = 1,
                       .opencl = opencl};
        ok = c_render(&r, out, name, err);
    }
    ct__free(shape);
    ct__free(nested);
    ct__free(index);
    return ok;
}

bool ct__render_c(const ct_kir *k, ct_text *out, char name[40], ct_err *err) {
    return c_render_kernel(k, false, out, name, err);
}
bool ct__render_opencl(const ct_kir *k, ct_text *out, char name[40], ct_err *err) {
    return c_render_kernel(k, true, out, name, err);
}
