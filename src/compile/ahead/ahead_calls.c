// Custom ops in a plan compiled ahead of time: their C functions are called by their symbols.
#include <inttypes.h>
#include <string.h>

#include "compile/ahead/ahead.h"
#include "ops/custom_op.h"

static const ct_node *ahead_called_node(const ct_launch *l) {
    return l->kind == CT_LAUNCH_NODE ? l->node : NULL;
}

// Calls of a library cannot be written as kernels.
bool ct__ahead_check_calls(const ct_ahead *a) {
    const ct_program *p = &a->plan->program;
    for (size_t i = 0; i < p->n_launches; i++) {
        const ct_node *node = ahead_called_node(&p->launches[i]);
        if (!node || node->op->symbol) continue;
        return ct__err(&a->ctx->err, CT_E_UNSUPPORTED, a->args->here, "compile",
                       "%s of %s:%u calls a library, which the C that is written cannot do",
                       node->op->name, node->here.file ? node->here.file : "?", node->here.line);
    }
    return true;
}

size_t ct__ahead_symbols(const ct_ahead *a, const char **symbols, size_t max) {
    const ct_program *p = &a->plan->program;
    size_t n = 0;
    for (size_t i = 0; i < p->n_launches; i++) {
        const ct_node *node = ahead_called_node(&p->launches[i]);
        const char *symbol = node ? node->op->symbol : NULL;
        size_t k = 0;
        while (k < n && symbol && strcmp(symbols[k], symbol) != 0) k++;
        if (k == n && n < max && symbol) symbols[n++] = symbol;
    }
    return n;
}

void ct__ahead_declare_calls(const ct_ahead *a, ct_text *out) {
    const char *symbols[CT_AHEAD_SYMBOLS];
    const size_t n = ct__ahead_symbols(a, symbols, CT_AHEAD_SYMBOLS);
    if (!n) return;
    ct__text_add(
        out, "// Functions of custom ops, in files of their own. dtype is Cotan's number of it.\n"
             "struct cotan_op_array {\n"
             "    void *data;\n"
             "    int dtype, rank;\n"
             "    const int64_t *dim;\n"
             "};\n");
    for (size_t i = 0; i < n; i++)
        ct__textf(out,
                  "const char *%s(const struct cotan_op_array *in, const struct cotan_op_array "
                  "*out,\n    const int64_t *numbers, void *user);\n",
                  symbols[i]);
    ct__text_add(out, "\n");
}

// Writes " + 48 * b0": the offset of the batch element at the loop counters.
static void ahead_put_element_offset(ct_text *out, const ct_type *type, int core,
                                     const ct_type *batch) {
    const int n_batch = type->rank - core, lead = batch->rank - n_batch;
    size_t bytes = ct_dtype_size((ct_dtype)type->dtype);
    for (int a = n_batch; a < type->rank; a++) bytes *= (size_t)type->dim[a];
    for (int a = n_batch; a-- > 0;) {
        if (type->dim[a] != 1) ct__textf(out, " + %zu * b%d", bytes, lead + a);
        bytes *= (size_t)type->dim[a];
    }
}

static void ahead_put_int_list(ct_text *out, const int64_t *v, int64_t n) {
    ct__text_add(out, n ? "(const int64_t[]){" : "NULL");
    for (int64_t i = 0; i < n; i++) ct__textf(out, "%s%" PRId64, i ? ", " : "", v[i]);
    ct__text_add(out, n ? "}" : "");
}

typedef struct ahead_call_env {
    const ct_ahead *a;
    const ct_launch *launch;
    ct_ahead_operand_fn operand;
    ct_type batch;
} ahead_call_env;

static void ahead_put_array(const ahead_call_env *p, ct_text *out, uint32_t arg,
                            const ct_type *type, int core) {
    ct__text_add(out, "{");
    p->operand(p->a, out, p->launch, arg);
    ahead_put_element_offset(out, type, core, &p->batch);
    ct__textf(out, ", %d, %d, ", (int)type->dtype, core);
    ahead_put_int_list(out, type->dim + type->rank - core, core);
    ct__text_add(out, "}");
}

void ct__ahead_call(const ct_ahead *a, ct_text *out, const ct_launch *l,
                    ct_ahead_operand_fn operand) {
    const ct_node *node = l->node;
    const ct_op *op = ct__outside(node);
    const ct_signature *s = &op->signature;
    const ct_ints numbers = ((const outside_attrs *)node->attrs)->numbers;
    ahead_call_env p = {a, l, operand, *node->out};
    p.batch.rank = (uint8_t)(node->out->rank - s->out[0].rank);
    for (int b = 0; b < p.batch.rank; b++)
        ct__textf(out, "for (int64_t b%d = 0; b%d < %" PRId64 "; b%d++) ", b, b, p.batch.dim[b], b);
    ct__text_add(out, "{\n        const struct cotan_op_array in[] = {");
    for (int i = 0; i < node->n_in; i++) {
        if (i) ct__text_add(out, ",\n            ");
        ahead_put_array(&p, out, (uint32_t)i, ct__type(node->in[i]), s->in[i].rank);
    }
    ct__text_add(out, "}, out[] = {");
    for (int i = 0; i < node->n_out; i++) {
        if (i) ct__text_add(out, ",\n            ");
        ahead_put_array(&p, out, (uint32_t)(node->n_in + i), &node->out[i], s->out[i].rank);
    }
    ct__textf(out, "};\n        if (%s(in, out, ", node->op->symbol);
    ahead_put_int_list(out, numbers.v, numbers.n);
    ct__text_add(
        out,
        ", NULL)) {\n            fesetenv(&callers);\n            return 3;\n        }\n    }\n");
}
