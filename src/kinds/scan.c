// Running sums and their like along an axis, one element after the other.
#include "kinds/scan.h"

#include "kinds/batch.h"
#include "kinds/joined.h"
#include "kinds/monoid.h"

enum { BLOCK = 64, GRAIN = 4096 };

// A line: x[o, k, j] put to what came before, and that stored.
static void scan_line(ct_kir *k, const ct_scan_spec *spec, ct_kval sum, ct_kval o, ct_kval j) {
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, spec->n, "along the axis");
    if (spec->reverse) step = ct__kir_sub(k, ct__kir_addi(k, spec->n, -1), step);
    const ct_kval at[3] = {o, step, j};
    ct_kval x = ct__source_load(k, &spec->x, 3, at);
    ct__kir_set(k, sum, ct__kred_combine(k, spec->op, ct__kir_get(k, sum), x));
    ct__sink_store(k, &spec->out, 3, at, ct__kir_get(k, sum));
    ct__kir_end(k);
}

void ct__template_scan(ct_kir *k, const ct_scan_spec *spec) {
    int64_t inner = 0, n = 0;
    bool known = ct__kir_is_int(k, spec->inner, &inner), single = known && inner == 1;
    if (!ct__kir_is_int(k, spec->n, &n) || n < 1) n = 1;
    ct_kval start = ct__kred_start_value(k, spec->op, ct__kir_held(spec->dtype));
    // A task: some lines of a matrix of lines, or a block of lines side by side.
    ct_kval lines = single ? spec->outer : spec->inner;
    int64_t block = single ? (n >= GRAIN ? 1 : GRAIN / n) : BLOCK;
    ct_kval blocks = ct__kir_ceil_div(k, lines, block);
    ct_kval task = ct__kir_loop(k, CT_BIND_CORE,
                                single ? blocks : ct__kir_mul(k, spec->outer, blocks), "block");
    ct_kval first = ct__kir_muli(k, single ? task : ct__kir_mod(k, task, blocks), block);
    ct_kval some = ct__kir_min(k, ct__kir_sub(k, lines, first), ct__kir_int(k, block));
    ct_kval line = ct__kir_loop(k, single ? CT_BIND_SEQ : CT_BIND_VECTOR, some, "line");
    line = ct__kir_add(k, first, line);
    ct_kval sum = ct__kir_reg(k, start);
    scan_line(k, spec, sum, single ? line : ct__kir_div(k, task, blocks),
              single ? ct__kir_int(k, 0) : line);
    ct__kir_end(k);
    ct__kir_end(k);
}

static bool scan_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_along along = ct__along(node);
    int axis = along.axis;
    ct_dtype as = (ct_dtype)node->out->dtype;
    ct_joined x = ct__join(e, node->in[0], as, 3, (int[]){0, axis, axis + 1});
    ct_joined out = ct__join(e, (ct_val){node, 0}, as, 3, (int[]){0, axis, axis + 1});
    ct_scan_spec spec = {.op = node->op->reduction,
                         .dtype = as,
                         .outer = ct__joined_size(&x, 0),
                         .n = ct__joined_size(&x, 1),
                         .inner = ct__joined_size(&x, 2),
                         .reverse = along.reverse,
                         .x = ct__joined_source(&x),
                         .out = ct__joined_sink(&out)};
    ct__template_scan(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(&node->out[0]));
}

static double scan_roundings(const ct_node *node, bool in_order) {
    (void)in_order; // it always is
    const ct_type *x = ct__type(node->in[0]);
    bool rounds = ct__kred_is_ordered(node->op->reduction, (ct_dtype)node->out->dtype);
    return rounds ? (double)x->dim[ct__along(node).axis] : 0;
}

static bool scan_eval(const ct_ref *ref) {
    const ct_opdef *op = ref->node->op;
    const ct_type *in = ref->in_type;
    ct_along along = ct__along(ref->node);
    int64_t n = in->dim[along.axis], inner = 1, count = ct__count(in);
    for (int a = along.axis + 1; a < in->rank; a++) inner *= in->dim[a];
    for (int64_t line = 0; n && line < count / n; line++) {
        int64_t base = line / inner * inner * n + line % inner;
        ct_acc acc = ct__acc_start(op, in->dtype);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = base + (along.reverse ? n - 1 - k : k) * inner;
            acc = ct__acc_join(op, acc, ct__acc_load(in->dtype, ref->in[0], at), in->dtype);
            ct__acc_store(in->dtype, ref->out[0], at, acc);
        }
    }
    return true;
}

const ct_kind ct__kind_scan = {
    .name = "scan",
    .doc = "Each element is put together, by a monoid, of all up to it along an axis.",
    .scheduled = CT_TEMPLATE,
    .kernels = scan_kernels,
    .roundings = scan_roundings,
    .eval = scan_eval,
    .batch = ct__batch_shifted,
};
