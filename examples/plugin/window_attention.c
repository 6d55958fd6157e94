// Ops of one's own in a shared library: an activation, and an attention of which each query sees the last
// `window` keys up to its place. cc -O2 -shared -fPIC window_attention.c -o window_attention.so
#include <cotan/custom_op.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void cotan_ops(void);
const char *window_attend(const ct_op_array *in, const ct_op_array *out, const int64_t *window,
                          void *user);
const char *window_attend_back(const ct_op_array *in, const ct_op_array *out, const int64_t *window,
                               void *user);

static double get(const ct_op_array *a, int64_t i) {
    return a->dtype == CT_F32 ? ((const float *)a->data)[i] : ((const double *)a->data)[i];
}
static void add(const ct_op_array *a, int64_t i, double x) {
    if (a->dtype == CT_F32) ((float *)a->data)[i] += (float)x;
    if (a->dtype == CT_F64) ((double *)a->data)[i] += x;
}
static void clear(const ct_op_array *a) {
    memset(a->data, 0, (size_t)(a->dim[0] * a->dim[1]) * (a->dtype == CT_F32 ? 4 : 8));
}

// Of query t the weights p (S,) of keys begin .. t: softmax of q k' / sqrt(D). Returns begin.
static int64_t weigh(const ct_op_array *q, const ct_op_array *k, int64_t t, int64_t window,
                     double *p) {
    const int64_t D = q->dim[1], begin = t - window + 1 > 0 ? t - window + 1 : 0;
    double most = -INFINITY, sum = 0;
    for (int64_t s = begin; s <= t; s++) {
        p[s] = 0;
        for (int64_t d = 0; d < D; d++)
            p[s] += get(q, t * D + d) * get(k, s * D + d) / sqrt((double)D);
        most = fmax(most, p[s]);
    }
    for (int64_t s = begin; s <= t; s++) sum += p[s] = exp(p[s] - most);
    for (int64_t s = begin; s <= t; s++) p[s] /= sum;
    return begin;
}

// q, k (T, D), v (T, V) -> (T, V)
const char *window_attend(const ct_op_array *in, const ct_op_array *out, const int64_t *window,
                          void *user) {
    const int64_t T = in[0].dim[0], V = in[2].dim[1];
    double *p = malloc((size_t)(T + 1) * sizeof *p);
    (void)user, clear(&out[0]);
    for (int64_t t = 0; p && t < T; t++)
        for (int64_t s = weigh(&in[0], &in[1], t, *window, p); s <= t; s++)
            for (int64_t j = 0; j < V; j++) add(&out[0], t * V + j, p[s] * get(&in[2], s * V + j));
    free(p);
    return p ? NULL : "out of memory";
}

// q, k (T, D), v, and the cotangent of what window_attend gives (T, V) -> the cotangents of q, k and v
const char *window_attend_back(const ct_op_array *in, const ct_op_array *out, const int64_t *window,
                               void *user) {
    const ct_op_array *q = &in[0], *k = &in[1], *v = &in[2], *c = &in[3];
    const int64_t T = q->dim[0], D = q->dim[1], V = v->dim[1];
    double *p = malloc((size_t)(2 * T + 1) * sizeof *p), *slope = p + T;
    (void)user, clear(&out[0]), clear(&out[1]), clear(&out[2]);
    for (int64_t t = 0; p && t < T; t++) {
        const int64_t begin = weigh(q, k, t, *window, p);
        double mean = 0;
        for (int64_t s = begin; s <= t; s++) {
            slope[s] = 0;
            for (int64_t j = 0; j < V; j++) slope[s] += get(c, t * V + j) * get(v, s * V + j);
            for (int64_t j = 0; j < V; j++) add(&out[2], s * V + j, p[s] * get(c, t * V + j));
            mean += p[s] * slope[s];
        }
        for (int64_t s = begin; s <= t; s++)
            for (int64_t d = 0; d < D; d++) {
                const double x = p[s] * (slope[s] - mean) / sqrt((double)D);
                add(&out[0], t * D + d, x * get(k, s * D + d));
                add(&out[1], s * D + d, x * get(q, t * D + d));
            }
    }
    free(p);
    return p ? NULL : "out of memory";
}

static void attend_vjp(const ct_op_rule *r) {
    const ct_tensor in[] = {r->in[0], r->in[1], r->in[2], r->tangents[0]};
    ct_op_call(ct_op_find("window_attention_back"), in, 4, CT_INTS(r->attributes[0]), r->outputs,
               3);
}

void cotan_ops(void) {
    ct_op_define(.name = "swish", .doc = "x times the sigmoid of beta x.", .operands = "x beta",
                 .expression = "x / (1 + exp(-beta * x))");
    ct_op_define(.name = "window_attention",
                 .doc = "Attention to the last `window` keys up to each query.",
                 .operands = "q k v", .signature = "(t, d), (t, d), (t, v) -> (t, v)",
                 .attributes = "window", .compute = window_attend, .symbol = "window_attend",
                 .vjp = attend_vjp);
    ct_op_define(.name = "window_attention_back", .doc = "The cotangents of q, k and v.",
                 .operands = "q k v cotangent",
                 .signature = "(t, d), (t, d), (t, v), (t, v) -> (t, d), (t, d), (t, v)",
                 .attributes = "window", .compute = window_attend_back,
                 .symbol = "window_attend_back");
}
