// The record of a plugin op, and the calls of its C function, one for each element of the batch.
#include <pthread.h>
#include <stdatomic.h>

#include "kinds/batch.h"
#include "ops/custom_op.h"

typedef struct plugin_job {
    const ct_ref *ref;
    const ct_op *op;
    const int64_t *numbers;
    ct_type batch;
    int64_t n, grain;
    pthread_mutex_t lock; // guards the two below
    const char *message;  // of the first element that failed
    int64_t first_failed; // its index in the batch; n: none
} plugin_job;

// Returns an operand or result of type `type`, whose last `core` axes follow the batch, at element i.
static ct_op_array plugin_array_at(const plugin_job *j, const ct_type *type, int core,
                                   const void *data, int64_t i) {
    ct_type batch = *type;
    batch.rank = (uint8_t)(type->rank - core);
    ct_op_array array = {
        .dtype = (ct_dtype)type->dtype, .rank = core, .dim = type->dim + batch.rank};
    int64_t n = 1;
    for (int a = 0; a < core; a++) n *= array.dim[a];
    const int64_t index = ct__broadcast_index(&j->batch, &batch, i);
    array.data = (char *)(uintptr_t)data + ct__dtype_bytes(array.dtype, n * index);
    return array;
}

static void plugin_note_failure(plugin_job *j, int64_t i, const char *message) {
    pthread_mutex_lock(&j->lock);
    if (i < j->first_failed) j->first_failed = i, j->message = message;
    pthread_mutex_unlock(&j->lock);
}

static const char calls_library[] = "its function calls the library, which is running the plan";

static void plugin_compute_range(void *arg, int64_t begin, int64_t end, int worker) {
    plugin_job *j = arg;
    const ct_ref *ref = j->ref;
    const ct_signature *s = &j->op->signature;
    ct_op_array in[CT_CUSTOM_OP_MAX_OPERANDS], out[CT_CUSTOM_OP_MAX_RESULTS];
    (void)worker;
    end = end * j->grain < j->n ? end * j->grain : j->n;
    for (int64_t i = begin * j->grain; i < end; i++) {
        if (ref->stop && atomic_load(ref->stop)) return;
        for (int k = 0; k < ref->n_in; k++)
            in[k] = plugin_array_at(j, &ref->in_type[k], s->in[k].rank, ref->in[k], i);
        for (int k = 0; k < ref->n_out; k++)
            out[k] = plugin_array_at(j, &ref->out_type[k], s->out[k].rank, ref->out[k], i);
        ct_callback_guard apart;
        ct__callback_begin(&apart);
        const char *message = j->op->compute(in, out, j->numbers, j->op->user);
        if (ct__callback_end(&apart)) message = calls_library;
        if (message) plugin_note_failure(j, i, message);
    }
}

static bool plugin_report(plugin_job *j) {
    const ct_ref *ref = j->ref;
    if (ref->stop && atomic_load(ref->stop))
        return ct__err(ref->err, CT_E_INTERRUPTED, CT_NOWHERE, "run",
                       "cancelled: no variable has changed");
    if (j->first_failed == j->n) return true;
    CT_TEXT where = {0};
    if (j->batch.rank) {
        ct__text_add(&where, "element ");
        ct__print_index(&where, &j->batch, j->first_failed);
        ct__text_add(&where, " of the batch: ");
    }
    ct__err(ref->err, CT_E_CUSTOM_OP, ref->node->here, j->op->name, "%s%s", where.s ? where.s : "",
            j->message);
    if (j->message == calls_library)
        ct__err_hint(ref->err,
                     "it has its operands as memory: what else it needs is an operand, and "
                     "what is made of other ops a body or a rule");
    return false;
}

static bool plugin_compute(const ct_ref *ref) {
    enum { MIN_ELEMENTS = 4096 }; // of a task
    const ct_op *op = ct__outside(ref->node);
    plugin_job j = {.ref = ref,
                    .op = op,
                    .numbers = ((const outside_attrs *)ref->attrs)->numbers.v,
                    .batch = ref->out_type[0],
                    .n = 1,
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    int64_t per_call = 1;
    j.batch.rank = (uint8_t)(ref->out_type[0].rank - op->signature.out[0].rank);
    for (int a = 0; a < j.batch.rank; a++) j.n *= j.batch.dim[a];
    for (int a = j.batch.rank; a < ref->out_type[0].rank; a++) per_call *= ref->out_type[0].dim[a];
    for (int i = 0; i < ref->n_in; i++) per_call += ct__count(&ref->in_type[i]) / (j.n ? j.n : 1);
    j.grain = 1 + MIN_ELEMENTS / (per_call + 1);
    j.first_failed = j.n;
    const int64_t tasks = (j.n + j.grain - 1) / j.grain;
    if (ref->spread && tasks > 1)
        ref->spread(plugin_compute_range, &j, tasks);
    else if (tasks)
        plugin_compute_range(&j, 0, tasks, 0);
    return plugin_report(&j);
}

void ct__outside_record(ct_op *op) {
    const ct_signature *s = &op->signature;
    op->def = (ct_opdef){.name = op->name,
                         .kind = op->compute ? &ct__kind_call : &ct__kind_composition,
                         .n_in = (int8_t)s->n_in,
                         .n_out = (int8_t)s->n_out,
                         .accepts = CT_ANY,
                         .infer = ct__signature_infer};
    op->def.doc = op->doc;
    for (int i = 0; i < s->n_in; i++) op->def.core[i] = (int8_t)s->in[i].rank;
    if (op->compute) op->def.eval = plugin_compute, op->def.symbol = op->symbol;
    if (!op->expression.n) return;
    const bool is_bool = op->expression.v[op->expression.n - 1].is_bool;
    op->def.accepts = CT_FLOATS;
    op->def.infer = is_bool ? ct__infer_elementwise_bool : ct__infer_elementwise;
    op->def.body = ct__expression_body;
    op->def.batch = ct__batch_pointwise;
    op->def.widens = true;
    if (is_bool) op->def.jvp = CT_NO_GRAD;
}
