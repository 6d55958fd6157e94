// Memory that runs out while whole programs are planned and run: what they give is compared bit for bit with
// an undisturbed run whenever they report success, and the same again in the same context succeeds with the
// same bits. Unless COTAN_TEST_ALL is set, every 97th allocation is refused.
#include "support/refusals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/lm.h"
#include "cotan/optim.h"

enum { STEP = 97, MOST_VALUES = 400, LONG = 300, RANGES = 40 };

typedef struct {
    void *data[MOST_VALUES];
    int64_t bytes[MOST_VALUES];
    int n;
} values;

static void values_free(values *v) {
    for (int i = 0; i < v->n; i++) free(v->data[i]);
    *v = (values){0};
}
static bool values_equal(const values *a, const values *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->bytes[i] == b->bytes[i] && !memcmp(a->data[i], b->data[i], (size_t)a->bytes[i]);
    return same;
}

// False: it cannot be read.
static bool take(values *v, ct_tensor t) {
    const void *data = ct_data(t);
    const int64_t bytes = ct_size(t) * (int64_t)ct_dtype_size(ct_dtype_of(t));
    if (!data && (bytes || ct_failed())) return false;
    v->bytes[v->n] = bytes;
    v->data[v->n] = malloc((size_t)bytes + 1);
    assert_non_null(v->data[v->n]);
    if (bytes) memcpy(v->data[v->n], data, (size_t)bytes);
    v->n++;
    return true;
}
static bool take_all(values *v, const ct_tensor *t, size_t n) {
    bool ok = ct_eval(t, n);
    for (size_t i = 0; i < n && ok; i++) ok = take(v, t[i]);
    return ok;
}
static bool take_set(values *v, ct_params *set) {
    bool ok = true;
    for (size_t i = 0; i < ct_params_count(set) && ok; i++) {
        CT_SCOPE;
        ok = take(v, ct_params_get(set, i));
    }
    return ok;
}

static ct_tensor numbers(ct_ints dims, int64_t seed) {
    float v[2048];
    int64_t n = 1;
    for (int i = 0; i < dims.n; i++) n *= dims.v[i];
    assert_true(n <= 2048);
    for (int64_t i = 0; i < n; i++) v[i] = sinf((float)(i * 7 + seed * 3 + 1));
    return ct_from(v, CT_F32, dims);
}
static ct_tensor weight(ct_params *set, const char *name, ct_ints dims, int64_t seed) {
    ct_tensor w = ct_param(set, name, CT_F32, dims);
    ct_assign(w, numbers(dims, seed));
    return w;
}

// ------------------------------------------------------------------------------------------- programs

// Kernels of many results, and of many numbers in front of their loops.
static bool chain(values *v) {
    ct_tensor t[LONG];
    for (int i = 0; i < LONG; i++) {
        const float number = 1 + 0.001f * (float)i;
        ct_tensor before = i ? t[i - 1] : numbers(CT_DIMS(20, 40), 1);
        ct_tensor c = ct_const(&number, CT_F32, CT_SCALAR);
        t[i] = i % 3 ? ct_mul(before, c) : ct_sub(before, c);
    }
    return take_all(v, t, LONG);
}
// Kernels whose axes are cut into ranges, each with a loop of its own.
static bool ranges(values *v) {
    ct_tensor t[RANGES], piece[8], x = numbers(CT_DIMS(3, 5), 2), y;
    for (int i = 0; i < 8; i++) piece[i] = i % 2 ? ct_exp(x) : ct_mul(x, ct_f(i + 1));
    y = ct_concat(piece, 8, 0);
    for (int i = 0; i < RANGES; i++)
        t[i] = y = i % 2 ? ct_mul(y, ct_f(1.01)) : ct_add(y, ct_f(0.1 * i));
    return take_all(v, t, RANGES);
}

static bool training(values *v) {
    ct_params *set = ct_params_new();
    ct_optim *adamw = NULL;
    bool ok = set != NULL;
    if (ok) {
        CT_SCOPE;
        weight(set, "w1", CT_DIMS(5, 8), 1);
        weight(set, "b1", CT_DIMS(8), 2);
        weight(set, "w2", CT_DIMS(8, 3), 3);
        weight(set, "b2", CT_DIMS(3), 4);
        adamw = ct_adamw(set, .lr = 0.01, .weight_decay = CT_F(0.1));
    }
    ok = ok && adamw && !ct_failed();
    for (int i = 0; i < 2 && ok; i++) {
        {
            CT_SCOPE;
            const int32_t y[] = {0, 1, 2, 0, 1, 2};
            ct_tensor h = numbers(CT_DIMS(6, 5), i);
            h = ct_gelu(ct_add(ct_matmul(h, ct_params_get(set, 0)), ct_params_get(set, 1)));
            h = ct_add(ct_matmul(h, ct_params_get(set, 2)), ct_params_get(set, 3));
            ct_tensor loss = ct_cross_entropy(h, ct_from(y, CT_I32, CT_DIMS(6)));
            ct_optim_step(adamw, loss);
            ct_metric("loss", loss);
        }
        ok = !isnan(ct_metric_value("loss")) && !ct_failed();
    }
    ok = ok && take_set(v, set) && take_set(v, ct_optim_state(adamw));
    ct_optim_free(adamw);
    ct_params_free(set);
    return ok;
}

static bool convolution(values *v) {
    ct_tensor x = numbers(CT_DIMS(2, 3, 9, 8), 1), w = numbers(CT_DIMS(4, 3, 3, 3), 2);
    ct_tensor b = numbers(CT_DIMS(4), 3), in[] = {x, w, b}, out[4];
    out[3] = ct_relu(ct_conv(x, w, .bias = b, .padding = CT_DIMS(1, 1), .stride = CT_DIMS(2, 1)));
    ct_grad(ct_sum(ct_square(out[3])), in, 3, out);
    return take_all(v, out, 4);
}

static bool attention(values *v) {
    ct_tensor in[3], out[4];
    for (int i = 0; i < 3; i++) in[i] = numbers(CT_DIMS(2, 2, 17, 8), i);
    out[3] = ct_attention(in[0], in[1], in[2], .causal = true);
    ct_grad(ct_sum(ct_square(out[3])), in, 3, out);
    return take_all(v, out, 4);
}

static bool ordered(values *v) {
    ct_tensor x = numbers(CT_DIMS(5, 33), 1), slope;
    ct_topk_out top = ct_topk(x, 4);
    ct_tensor sum = ct_cumsum(x, .axis = 1);
    ct_grad(ct_sum(ct_mul(ct_sort(x), sum)), &x, 1, &slope);
    ct_tensor out[] = {ct_sort(x, .axis = 0),
                       sum,
                       top.values,
                       top.indices,
                       slope,
                       ct_argsort(x),
                       ct_cumsum(numbers(CT_DIMS(2048), 2))};
    return take_all(v, out, sizeof out / sizeof *out);
}

static void turn(const ct_tensor *in, ct_tensor *out, void *user) { // carry, x -> carry, y
    (void)user;
    out[0] = ct_tanh(ct_add(ct_mul(in[0], ct_f(0.9)), in[1]));
    out[1] = ct_sum(out[0]);
}
static void goes_on(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_less(ct_sum(in[0]), ct_f(20));
}
static void grow(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(in[0], ct_f(1.5)), ct_f(0.5));
}
static void shrink(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_sin(in[0]);
}
static bool loops(values *v) {
    ct_tensor x = numbers(CT_DIMS(6, 4), 1), carry = numbers(CT_DIMS(4), 2), out[5];
    ct_scan(&out[0], &out[1], .body = turn, .carry = &carry, .n_carry = 1, .xs = &x, .n_xs = 1,
            .n_ys = 1);
    ct_while(&out[2], .cond = goes_on, .body = grow, .carry = &carry, .n_carry = 1);
    ct_cond(&out[3], .pred = ct_greater(ct_sum(x), ct_f(0)), .then = grow, .otherwise = shrink,
            .in = &x, .n_in = 1, .n_out = 1);
    ct_grad(ct_add(ct_sum(out[1]), ct_sum(out[3])), &x, 1, &out[4]);
    return take_all(v, out, 5);
}

static bool dynamic(values *v) {
    bool ok = true;
    for (int64_t n = 5; n < 8 && ok; n++) {
        CT_SCOPE;
        ct_tensor x = numbers(CT_DIMS(n, 6), n), w = numbers(CT_DIMS(6, 3), 1), slope;
        ct_tensor y = ct_softmax(ct_matmul(ct_concat(((ct_tensor[]){x, ct_exp(x)}), 2, 0), w));
        ct_grad(ct_sum(ct_square(y)), &w, 1, &slope);
        ok = take_all(v, (ct_tensor[]){y, slope, ct_sum(y, .axes = CT_AXES(0))}, 3);
    }
    return ok;
}

static bool quantised(values *v) {
    ct_quantise_out q = ct_quantise(numbers(CT_DIMS(16, 64), 1), CT_LAYOUT_INT4_32);
    ct_tensor out[] = {
        q.codes, q.scales,
        ct_quantised_matmul(numbers(CT_DIMS(3, 64), 2), q.codes, q.scales, CT_LAYOUT_INT4_32),
        ct_dequantise(q.codes, q.scales, CT_LAYOUT_INT4_32)};
    return take_all(v, out, 4);
}

static bool random_numbers(values *v) {
    ct_tensor key = ct_random_key(7), keys = ct_random_split(key, 2);
    ct_tensor x = ct_random_normal(key, CT_DIMS(9, 30));
    ct_tensor out[] = {keys, x, ct_random_uniform(ct_random_fold_in(key, ct_i(3)), CT_DIMS(40)),
                       ct_dropout(x, key, ct_f(0.3))};
    return take_all(v, out, 4);
}

static bool linear_algebra(values *v) {
    ct_tensor x = numbers(CT_DIMS(2, 5, 5), 1), slope;
    ct_tensor spd =
        ct_add(ct_matmul(x, ct_permute(x, CT_AXES(0, 2, 1))),
               ct_expand(ct_mul(ct_f(3), ct_tril(ct_triu(ct_full(ct_f(1), CT_DIMS(5, 5))))),
                         CT_DIMS(2, 5, 5)));
    ct_tensor l = ct_cholesky(spd), s = ct_solve(spd, numbers(CT_DIMS(2, 5, 2), 2));
    ct_eigh_out e = ct_eigh(spd);
    ct_grad(ct_add(ct_sum(l), ct_sum(ct_square(s))), &x, 1, &slope);
    return take_all(v, (ct_tensor[]){l, s, e.values, e.vectors, ct_qr(x).r, ct_svdvals(x), slope},
                    7);
}

static bool language_model(values *v) {
    const ct_lm_config config = {.vocab = 11, .context = 8, .layers = 2, .heads = 2, .width = 8};
    ct_lm *model = ct_lm_new(&config, 1);
    ct_optim *adamw = model ? ct_adamw(ct_lm_params(model), .lr = 0.01) : NULL;
    bool ok = adamw != NULL;
    if (ok) {
        CT_SCOPE;
        int32_t text[17];
        for (int i = 0; i < 17; i++) text[i] = i * 5 % 11;
        ct_tensor loss = ct_lm_loss(model, ct_from(text, CT_I32, CT_DIMS(2, 8)),
                                    ct_from(text + 1, CT_I32, CT_DIMS(2, 8)), NULL);
        ct_optim_step(adamw, loss);
        ok = take(v, loss);
    }
    ok = ok && !ct_failed() && take_set(v, ct_lm_params(model)) &&
         take_set(v, ct_optim_state(adamw));
    ct_optim_free(adamw);
    ct_lm_free(model);
    return ok;
}

// --------------------------------------------------------------------------------------------- sweeps

static const struct program {
    const char *name;
    bool (*run)(values *);
} programs[] = {
    {"a chain of 300 results", chain},
    {"a chain in ranges", ranges},
    {"a training step", training},
    {"a convolution", convolution},
    {"attention", attention},
    {"sort, scan, sum", ordered},
    {"loops", loops},
    {"dynamic axes", dynamic},
    {"a quantised product", quantised},
    {"random numbers", random_numbers},
    {"linear algebra", linear_algebra},
    {"a language model", language_model},
};

typedef struct {
    const struct program *program;
    values want; // undisturbed
    bool anew;   // the process has no kernels yet
} subject;

static bool run(const struct program *program, values *v) {
    CT_SCOPE;
    return program->run(v) && !ct_failed();
}

static void subject_run(void *user) {
    subject *s = user;
    values v = {0};
    bool ok = true;
    if (s->anew) {
        const int n = refuse_next();
        refuse_none();
        expect(ct_shutdown(), "it does not shut down: %s", ct_error_text());
        refuse_at(n);
    }
    ct_ctx *ctx = refusals_enter("cpu", &ok);
    if (!ctx) return;
    ok = ok && run(s->program, &v);
    const bool hit = refuse_none();
    expect(ok || hit, "it fails with memory enough: %s", ct_error_text());
    if (!s->want.n) {
        s->want = v;
        v = (values){0};
    } else {
        expect(!ok || values_equal(&v, &s->want), "it reports success with other values");
    }
    expect_told(ok);
    values_free(&v);
    expect(ct_set_device("cpu") && run(s->program, &v), "afterwards: %s", ct_error_text());
    expect(values_equal(&v, &s->want), "afterwards it has other values");
    values_free(&v);
    refusals_leave(ctx);
    if (s->anew) expect(ct_shutdown(), "it does not shut down: %s", ct_error_text());
    refused_already(hit);
}

static void every_program(void **state) {
    const bool anew = *state != NULL;
    const char *only = getenv("COTAN_FUZZ_ONLY");
    int all = 0;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        subject s = {.program = &programs[i], .anew = anew};
        if (only && !strstr(programs[i].name, only)) continue;
        refusals = refusals_borne = 0;
        sweep_some(programs[i].name, subject_run, &s, (int)i, one_in(STEP));
        values_free(&s.want);
        all += refusals;
        print_message("%s: %d runs failed, %d got through\n", programs[i].name, refusals,
                      refusals_borne);
    }
    assert_true(only || all > 100);
}

static int anew(void **state) {
    *state = "anew";
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_program),
        cmocka_unit_test_setup_teardown(every_program, anew, NULL),
    };
    return cmocka_run_group_tests_name("oom_plans", tests, refusals_begin, refusals_end);
}
