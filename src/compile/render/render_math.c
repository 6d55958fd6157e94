// Writes the functions that kernels call for exp, log and the like: finds which are needed, in which order.
#include "compile/render/render_impl.h"
#include "kir/kir_math.h"

typedef struct {
    ct_math_writer write;
    ct_text *out;
    bool done[CT_MATH_COUNT][2]; // f32, f64
} math_state;

static bool math_write_needed(const ct_kir *k, math_state *m, ct_err *err);

static bool math_write_function(ct_kmath f, ct_dtype dtype, math_state *m, ct_err *err) {
    ct_kir body;
    ct__kir_init(&body);
    ct__kir_math_body(&body, f, dtype);
    bool ok = ct__kir_verify(&body, err) && math_write_needed(&body, m, err);
    ct_kshape *shape = ok ? ct__calloc(body.n, sizeof *shape) : NULL;
    uint8_t *nested = ok ? ct__calloc(body.n, 1) : NULL;
    if (ok && (!shape || !nested)) ok = ct__err_memory(err, CT_NOWHERE, "kernel", body.n);
    if (ok) {
        const char *name = ct__kir_math_name(f), *t = ct__render_type(dtype);
        ct__textf(m->out, "#ifndef HAVE_%s_%s\n#define HAVE_%s_%s\n", name, t, name, t);
        m->write(&body, f, dtype, shape, nested, m->out);
        ct__text_add(m->out, "#endif\n");
    }
    ct__free(shape);
    ct__free(nested);
    ct__kir_free(&body);
    return ok;
}

static bool math_write_needed(const ct_kir *k, math_state *m, ct_err *err) {
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        if (ins->op != CT_K_MATH && ins->op != CT_K_MATH_WHERE) continue;
        bool *known = &m->done[ins->sub][ins->dtype == CT_F64];
        if (*known) continue;
        *known = true;
        if (!math_write_function(ins->sub, ins->dtype, m, err)) return false;
    }
    return true;
}

bool ct__render_math(const ct_kir *k, ct_math_writer write, ct_text *out, ct_err *err) {
    math_state m = {.write = write, .out = out};
    return math_write_needed(k, &m, err);
}
