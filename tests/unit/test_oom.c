// Memory that runs out, at every single allocation: of every op with its gradient, of a training
// step of a network with AdamW, of a small program that uses a bit of everything. An error in
// words each time, no crash, no leak, variables whole, and the same again succeeds afterwards.
// Most of an op's allocations are those of any other, and most of a second step's those of the first:
// unless COTAN_TEST_ALL is set, every 18th of them is refused on each device, others with the next
// op; of the steps and of what is checked every ninth.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cotan/optim.h"
#include "support/graph_build.h"
#include "support/refusals.h"

// ------------------------------------------------------------------------------------------------
// every op

typedef struct {
    const gen_graph *graph;
    const char *device;
    int n;                     // roots
    int64_t size[GEN_RESULTS]; // bytes
    void *want[GEN_RESULTS];   // the same bits, however little memory there was before
} one_op;

static bool run_op(one_op *o) {
    CT_SCOPE;
    ct_tensor t[GEN_RESULTS];
    int n = gen_record(o->graph, 0, t);
    bool ok = !ct_failed() && ct_eval(t, (size_t)n);
    for (int i = 0; i < n && ok; i++) {
        const void *data = ct_data(t[i]);
        int64_t bytes = ct_size(t[i]) * (int64_t)ct_dtype_size(ct_dtype_of(t[i]));
        if (!data && bytes) return false;
        if (!o->want[i]) { // the first time
            o->n = n;
            o->size[i] = bytes;
            o->want[i] = malloc((size_t)bytes + 1);
            if (bytes) memcpy(o->want[i], data, (size_t)bytes);
        }
        expect(bytes == o->size[i] && (!bytes || !memcmp(data, o->want[i], (size_t)bytes)),
               "root %d has other values", i);
    }
    return ok && !ct_failed();
}

static void op_program(void *user) {
    one_op *o = user;
    bool ok = true;
    ct_ctx *ctx = refusals_enter(o->device, &ok);
    if (!ctx) return;
    ok = ok && run_op(o);
    bool hit = refuse_none();
    expect(ok || hit, "it fails with memory enough: %s", ct_error_text());
    expect_told(ok);
    expect(ct_set_device(o->device) && run_op(o), "afterwards: %s", ct_error_text());
    refusals_leave(ctx);
    refused_already(hit);
}

static bool small(const gen_graph *g) {
    int64_t n = 0;
    for (int i = 0; i < g->n_values; i++) n += gen_count(g->value[i].dims);
    return n <= 1000;
}

static void sweep_op(gen_graph *g, const ct_opdef *op, const char *device, int from) {
    one_op o = {.graph = g, .device = device};
    char name[80];
    int step = one_in(18);
    snprintf(name, sizeof name, "%s on %s", op->name, device);
    sweep_some(name, op_program, &o, from % step, step);
    for (int i = 0; i < o.n; i++) free(o.want[i]);
}

static void every_op(void **state) {
    (void)state;
    int ops = 0, gradients = 0;
    refusals = refusals_borne = 0;
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        const ct_opdef *op = ct__ops[i];
        gen_graph *g = malloc(sizeof *g);
        assert_non_null(g);
        if (gen_wants(op)) {
            bool made = false, ok = true;
            ct_ctx *ctx = refusals_enter("ref", &ok);
            for (uint64_t seed = 1; seed < 100 && !made; seed++) {
                made = gen_make_op(g, seed, op);
                if (!made) break;
                if (small(g)) continue;
                gen_free(g);
                made = false;
            }
            refusals_leave(ctx);
            if (!made) fail_msg("no graph is made of the op %s", op->name);
            sweep_op(g, op, "cpu", ops);
            sweep_op(g, op, "ref", ops + 1);
            ops++;
            gradients += g->loss >= 0;
            gen_free(g);
        }
        free(g);
    }
    print_message("%d ops, %d with gradients: %d runs refused, %d borne\n", ops, gradients,
                  refusals, refusals_borne);
    assert_true(refusals > 1700 && gradients > ops / 3);
}

// ------------------------------------------------------------------------------------------------
// a training step

enum { ROWS = 6, IN = 5, HIDDEN = 8, OUT = 3, VARIABLES = 32, FLOATS = 512 };

typedef struct {
    ct_ctx *ctx;
    ct_params *params;
    ct_optim *optim;
    float x[ROWS * IN];
    int32_t y[ROWS];
} training;

typedef struct {
    size_t n; // variables, state of the optimizer behind
    double v[FLOATS];
    size_t n_values;
} snapshot;

static ct_tensor layer(const training *t, const char *name, int64_t in, int64_t out) {
    float v[64];
    for (int i = 0; i < in * out; i++) v[i] = sinf((float)(i * 7 + in));
    ct_tensor w = ct_param(t->params, name, CT_F32, CT_DIMS(in, out));
    ct_assign(w, ct_from(v, CT_F32, CT_DIMS(in, out)));
    return w;
}

static void training_begin(training *t) {
    bool ok = false;
    *t = (training){.ctx = refusals_enter("cpu", &ok), .params = ct_params_new()};
    assert_true(ok && t->ctx && t->params);
    for (int i = 0; i < ROWS * IN; i++) t->x[i] = cosf((float)i);
    for (int i = 0; i < ROWS; i++) t->y[i] = i % OUT;
    CT_SCOPE;
    layer(t, "w1", IN, HIDDEN);
    layer(t, "b1", 1, HIDDEN);
    layer(t, "w2", HIDDEN, OUT);
    layer(t, "b2", 1, OUT);
    t->optim = ct_adamw(t->params, .lr = 0.01, .weight_decay = CT_F(0.1));
    assert_non_null(t->optim);
}
static void training_end(training *t) {
    ct_error_clear();
    ct_optim_free(t->optim);
    ct_params_free(t->params);
    refusals_leave(t->ctx);
}

static bool training_step(training *t) {
    {
        CT_SCOPE;
        ct_tensor w[4];
        for (size_t i = 0; i < 4; i++) w[i] = ct_params_get(t->params, i);
        ct_tensor h = ct_from(t->x, CT_F32, CT_DIMS(ROWS, IN));
        h = ct_gelu(ct_add(ct_matmul(h, w[0]), w[1]));
        h = ct_add(ct_matmul(h, w[2]), w[3]);
        ct_tensor loss = ct_cross_entropy(h, ct_from(t->y, CT_I32, CT_DIMS(ROWS)));
        ct_optim_step(t->optim, loss);
        ct_metric("loss", loss);
    }
    bool ok = isfinite(ct_metric_value("loss"));
    return ok && !ct_failed();
}

// All variables and the optimizer's; false: one of them is poisoned.
static bool look(training *t, snapshot *s) {
    ct_params *sets[] = {t->params, ct_optim_state(t->optim)};
    *s = (snapshot){0};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < ct_params_count(sets[k]); i++, s->n++) {
            CT_SCOPE;
            ct_tensor w = ct_params_get(sets[k], i);
            const void *data = ct_data(w);
            if (!data) {
                expect(strstr(ct_error_text(), "poisoned"), "%s: %s", ct_params_name(sets[k], i),
                       ct_error_text());
                ct_error_clear();
                return false;
            }
            for (int64_t e = 0; e < ct_size(w); e++)
                s->v[s->n_values++] = ct__load_f64(ct_dtype_of(w), data, e);
        }
    return true;
}
static bool same(const snapshot *a, const snapshot *b) {
    return a->n == b->n && a->n_values == b->n_values &&
           !memcmp(a->v, b->v, a->n_values * sizeof *a->v);
}

static snapshot undisturbed[4]; // after so many steps
static struct { int before, after, poisoned; } found;

// A step after `*user` others, and once more.
static void step_program(void *user) {
    const int warm = *(const int *)user, n = refuse_next(); // set-up has memory
    training t;
    snapshot now, next;
    refuse_none();
    training_begin(&t);
    for (int i = 0; i < warm; i++) assert_true(training_step(&t));
    if (n >= 0) refuse_at(n);
    bool ok = training_step(&t), hit = refuse_none();
    expect(ok || hit, "it fails with memory enough: %s", ct_error_text());
    expect_told(ok);
    if (!look(&t, &now)) {
        found.poisoned++;
    } else {
        bool done = same(&now, &undisturbed[warm + 1]);
        expect(done || same(&now, &undisturbed[warm]), "variables are half updated");
        expect(done || !ok, "the step is told to be done, and is not");
        found.after += done;
        found.before += !done;
        expect(ct_optim_step_count(t.optim) == warm + done, "%lld steps are counted",
               (long long)ct_optim_step_count(t.optim));
        expect(training_step(&t), "afterwards: %s", ct_error_text());
        expect(look(&t, &next) && same(&next, &undisturbed[warm + done + 1]),
               "the next step has other values");
    }
    training_end(&t);
    refused_already(hit);
}

static void every_training_step(void **state) {
    (void)state;
    training t;
    training_begin(&t);
    for (int i = 0; i < 4; i++) {
        assert_true(i == 0 || training_step(&t));
        assert_true(look(&t, &undisturbed[i]));
        assert_false(i && same(&undisturbed[i], &undisturbed[i - 1]));
    }
    training_end(&t);
    refusals = refusals_borne = 0;
    sweep_some("the first step", step_program, &(int){0}, 0, one_in(9));
    sweep_some("the second step", step_program, &(int){1}, 1 % one_in(9), one_in(9));
    print_message("%d runs refused, %d borne; afterwards %d steps undone, %d done, "
                  "%d poisoned\n",
                  refusals, refusals_borne, found.before, found.after, found.poisoned);
    assert_true(refusals > 40 && found.before > 40);
}

// ------------------------------------------------------------------------------------------------
// a bit of everything

static void gated(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], ct_sigmoid(in[1]));
}
static void gated_back(const ct_tensor *in, ct_tensor *out, void *user) { // in, out, cotangent
    (void)user;
    out[0] = ct_mul(in[3], ct_sigmoid(in[1]));
    out[1] = ct_mul(in[3], in[2]);
}

static bool record_all(ct_params *set) {
    float values[] = {1, 2};
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2));
    ct_assign(w, ct_from(values, CT_F32, CT_DIMS(2)));
    bool ok = true;
    for (int step = 0; step < 2; step++) {
        CT_SCOPE;
        ct_tensor x = ct_from(values, CT_F32, CT_DIMS(2)), g;
        ct_tensor h = ct_exp(ct_mul(w, x));
        ct_call(gated, NULL, ((ct_tensor[]){h, x}), 2, &h, 1);
        ct_custom_vjp(gated, gated_back, NULL, ((ct_tensor[]){h, w}), 2, &h, 1);
        ct_tensor loss = ct_sum(ct_mul(h, ct_softmax(h)));
        ct_grad(loss, &w, 1, &g);
        ct_assign(w, ct_sub(w, ct_mul(ct_f(0.1), g)));
        ct_metric("loss", loss);
        ct_tensor kept = ct_keep(ct_max(h));
        {
            CT_SCOPE;
            ct_topk_out top = ct_topk(h, 1);
            ok = ct_data(top.indices) && ok;
        }
        ct_drop(kept);
    }
    ok = ct_data(w) && ok;
    return ct_metric_value("loss") > 0 && ok && !ct_failed();
}

static void small_program(void *user) {
    bool ok = true;
    ct_ctx *ctx = refusals_enter(user, &ok);
    if (!ctx) return;
    ct_params *set = ct_params_new();
    ok = set && record_all(set) && ok;
    bool hit = refuse_none();
    expect(ok || hit, "it fails with memory enough: %s", ct_error_text());
    if (set) // a set that could not be made is NULL, and says no more
        expect_told(ok);
    else
        ct_error_clear();
    {
        CT_SCOPE;
        const float values[] = {1, 2};
        expect(ct_set_device(user) && ct_item(ct_sum(ct_from(values, CT_F32, CT_DIMS(2)))) == 3,
               "afterwards: %s", ct_error_text());
    }
    ct_params_free(set);
    refusals_leave(ctx);
    refused_already(hit);
}

// A step of which a half lies on another device, and a variable that moves.
static bool record_places(ct_params *set) {
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(3, 2)), g;
    const float values[] = {1, 2, -1, 0.5f, 3, -2};
    {
        CT_SCOPE;
        ct_assign(w, ct_to(ct_from(values, CT_F32, CT_DIMS(3, 2)), "async:cpu"));
    }
    {
        CT_SCOPE;
        ct_tensor h = ct_exp(ct_from(values, CT_F32, CT_DIMS(2, 3)));
        ct_tensor y = ct_matmul(ct_to(h, "async:cpu"), w), loss = ct_mean(ct_to(y, "cpu"));
        ct_grad(loss, &w, 1, &g);
        ct_assign(w, ct_sub(w, ct_mul(ct_f(0.1), g)));
        ct_metric("loss", loss);
    }
    ct_move(w, "ref");
    const bool ok = ct_data(w) != NULL;
    return !isnan(ct_metric_value("loss")) && ok && !ct_failed();
}

static void place_program(void *user) {
    bool ok = true;
    ct_ctx *ctx = refusals_enter(user, &ok);
    if (!ctx) return;
    ct_params *set = ct_params_new();
    ok = set && record_places(set) && ok;
    bool hit = refuse_none();
    expect(ok || hit, "it fails with memory enough: %s", ct_error_text());
    if (set)
        expect_told(ok);
    else
        ct_error_clear();
    ct_params_free(set);
    refusals_leave(ctx);
    refused_already(hit);
}

static void several_devices(void **state) {
    (void)state;
    refusals = refusals_borne = 0;
    sweep_some("a program on several devices", place_program, "cpu", 0, one_in(9));
    print_message("%d runs refused, %d borne\n", refusals, refusals_borne);
    assert_true(refusals > 40);
}

static void small_programs(void **state) {
    const bool is_checked = *state, others = !is_checked || getenv("COTAN_TEST_ALL");
    const int step = one_in(is_checked ? 9 : 5); // checked it takes ten times as many
    refusals = refusals_borne = 0;
    if (others) sweep_some("a program on ref", small_program, "ref", 0, step);
    sweep_some("a program on cpu", small_program, "cpu", 0, step);
    if (others) sweep_some("a program on async:cpu", small_program, "async:cpu", 1 % step, step);
    print_message("%d runs refused, %d borne\n", refusals, refusals_borne);
    assert_true(refusals > 150);
}

static int checked(void **state) {
    *state = "checked";
    return setenv("COTAN_CHECK", "ref,nan", 1);
}
static int unchecked(void **state) { return (void)state, unsetenv("COTAN_CHECK"); }

// The process keeps nothing: kernels are made and threads started with as little memory.
static void first_program(void *user) {
    int n = refuse_next();
    refuse_none();
    expect(ct_shutdown(), "it does not shut down: %s", ct_error_text());
    expect(!blocks_live(), "%lld blocks are left", blocks_live());
    if (n >= 0) refuse_at(n);
    small_program(user);
    bool hit = refuse_none();
    expect(ct_shutdown(), "it does not shut down: %s", ct_error_text());
    refused_already(hit);
}

static void from_nothing(void **state) {
    (void)state;
    refusals = refusals_borne = 0;
    sweep_some("the first program of a process", first_program, "cpu", 0, one_in(3));
    print_message("%d runs refused, %d borne\n", refusals, refusals_borne);
    assert_true(refusals > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_programs),
        cmocka_unit_test_setup_teardown(small_programs, checked, unchecked),
        cmocka_unit_test(several_devices),
        cmocka_unit_test(every_training_step),
        cmocka_unit_test(every_op),
        cmocka_unit_test(from_nothing),
    };
    return cmocka_run_group_tests_name("oom", tests, refusals_begin, refusals_end);
}
