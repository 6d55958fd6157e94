// The device behind a queue: same bits as the reference, memory the host cannot touch, no error
// lost.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "kinds/kind.h"
#include "compile/plan.h"
#include "support/record.h"

enum { STEPS = 20, BATCH = 8, IN = 5, HIDDEN = 7, N_PARAMS = 4 };

static ct_tensor mlp(ct_tensor x, const ct_tensor *p) {
    ct_tensor h = ct_tanh(ct_add(ct_matmul(x, p[0]), p[1])); // (B, 7)
    return ct_add(ct_matmul(h, p[2]), p[3]);                 // (B, 1)
}

static double uniform(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53 * 2 - 1;
}

static ct_tensor noise(uint64_t *seed, ct_ints dims) {
    float v[64];
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    for (int64_t i = 0; i < n; i++) v[i] = (float)uniform(seed);
    return ct_from(v, CT_F32, dims);
}

// Losses of all steps and the final parameters, as bits.
typedef struct {
    float loss[STEPS], param[N_PARAMS][64];
} trained;

static void train(const char *device, trained *out) {
    ct_ctx *ctx = ct_ctx_new(), *mine = ct_ctx_use(ctx);
    memset(out, 0, sizeof *out);
    assert_true(ct_set_device(device));
    uint64_t seed = 42; // fixed
    ct_params *set = ct_params_new();
    const int64_t dims[N_PARAMS][2] = {{IN, HIDDEN}, {1, HIDDEN}, {HIDDEN, 1}, {1, 1}};
    ct_tensor p[N_PARAMS], g[N_PARAMS];
    for (int i = 0; i < N_PARAMS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = ct_param(set, name, CT_F32, ((ct_ints){2, dims[i]}));
        ct_assign(p[i], noise(&seed, (ct_ints){2, dims[i]}));
    }
    for (int step = 0; step < STEPS; step++) {
        CT_SCOPE;
        ct_tensor x = noise(&seed, CT_DIMS(BATCH, IN)), y = noise(&seed, CT_DIMS(BATCH, 1));
        ct_tensor error = ct_sub(mlp(x, p), y);
        ct_tensor loss = ct_sum(ct_mul(error, error)); // ()
        ct_grad(loss, p, N_PARAMS, g);
        for (int i = 0; i < N_PARAMS; i++)
            ct_assign(p[i], ct_sub(p[i], ct_mul(ct_f(0.01 / (step + 1)), g[i])));
        out->loss[step] = (float)ct_item(loss);
    }
    for (int i = 0; i < N_PARAMS; i++) {
        const float *data = ct_data(p[i]);
        assert_non_null(data);
        memcpy(out->param[i], data, (size_t)(dims[i][0] * dims[i][1]) * sizeof *data);
    }
    assert_ok();
    ct_params_free(set);
    ct_ctx_free(ctx);
    ct_ctx_use(mine);
}

static void a_training_step_gives_the_bits_of_ref(void **state) {
    (void)state;
    static trained ref, async;
    train("ref", &ref);
    train("async:ref", &async);
    assert_true(ref.loss[STEPS - 1] < ref.loss[0]);
    assert_memory_equal(&ref, &async, sizeof ref);
}

// The address of a value on the asynchronous device, as the layers above see it.
static const volatile char *address(void) {
    assert_true(ct_set_device("async:ref"));
    ct_tensor t = line_of(4);
    uint32_t out;
    const ct_node *node = ct__peek(t, &out);
    assert_non_null(node);
    assert_true(at(t, 3) == 4);
    return node->value[0]->buffer;
}

static void the_host_cannot_touch_a_buffer(void **state) {
    (void)state;
    const volatile char *p = address();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // a sanitizer's would report
        signal(SIGBUS, SIG_DFL);
        _exit(p[0] == 77 ? 1 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_true(WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

static ct_device *open_async(void) {
    ct_err err = {0};
    ct_device *device = ct__device_open("async:ref", &err);
    if (!device) fail_msg("%s", err.text);
    return device;
}

static void work_runs_in_order(void **state) {
    (void)state;
    ct_device *d = open_async();
    const ct_backend *b = d->backend;
    ct_err err = {0};
    void *x = b->alloc(d, 4, &err), *y = b->alloc(d, 4, &err);
    assert_true(x && y);
    for (int32_t i = 0; i < 500; i++) {
        int32_t got = -1;
        assert_true(b->copy_in(d, (ct_operand){x, 0}, &i, 4, &err));
        ct_operand args[] = {{x, 0}, {y, 0}};
        ct_command copy = {.kind = CT_COMMAND_COPY, .args = args, .n_args = 2, .bytes = 4};
        assert_true(b->submit(d, &copy, 1, &err));
        if (i % 7) continue;
        assert_true(b->copy_out(d, (ct_operand){y, 0}, &got, 4, &err));
        assert_int_equal(got, i);
    }
    b->free(d, x); // waits for what is enqueued
    b->free(d, y);
    ct__device_release(d);
}

static bool always_fails(const ct_ref *ref) {
    return ct__err(ref->err, CT_E_INTERNAL, CT_NOWHERE, "broken", "as the test wants it");
}

// A fault is heard of once, by the first who asks with a record to put it in; nothing runs before.
static void a_fault_is_reported_once_and_never_lost(void **state) {
    (void)state;
    ct_device *d = open_async();
    const ct_backend *b = d->backend;
    ct_err err = {0};
    void *x = b->alloc(d, 4, &err), *other = b->alloc(d, 4, &err);
    assert_true(x && other);
    static const ct_opdef broken = {
        .name = "broken", .kind = &ct__kind_source, .eval = always_fails};
    ct_type type = {.dtype = CT_F32};
    ct_node node = {.op = &broken, .out = &type, .n_out = 1};
    ct_operand args[] = {{x, 0}};
    ct_command bad = {.kind = CT_COMMAND_NODE, .node = &node, .args = args, .n_args = 1};
    assert_true(b->submit(d, &bad, 1, &err)); // nothing is known yet
    int32_t five = 5, got = 0;
    b->copy_in(d, (ct_operand){x, 0}, &five, 4, &err);
    b->free(d, other); // waits, and has nowhere to report to
    assert_false(b->wait(d, &err));
    assert_string_equal(err.text, "broken: as the test wants it");
    err.code = CT_OK;
    assert_true(b->copy_in(d, (ct_operand){x, 0}, &five, 4, &err)); // afterwards all is well
    assert_true(b->copy_out(d, (ct_operand){x, 0}, &got, 4, &err));
    assert_int_equal(got, 5);
    b->free(d, x);
    ct__device_release(d);
}

// The device of this test's context with one command of its queue failing: the n-th from now.
static ct_backend failing;
static const ct_backend *sound;
static int countdown;

static bool submit_or_fail(ct_device *inner, const ct_command *commands, size_t n, ct_err *err) {
    if (countdown && --countdown == 0)
        return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "gpu", "as the test wants it");
    return sound->submit(inner, commands, n, err);
}

static void fail_at(int n) {
    ct_ctx *ctx = ct__ctx();
    ct_device *inner = ((ct_executor *)ctx->device)->device->inner;
    if (inner->backend != &failing) {
        sound = inner->backend;
        failing = *sound;
        failing.submit = submit_or_fail;
        inner->backend = &failing;
    }
    countdown = n;
}

#define TOLD "gpu: as the test wants it"

// What a failed plan updated and made stays poisoned when the error is cleared, until it is made
// anew; what was there before stays good.
static void what_a_fault_befell_is_poisoned(const char *device) {
    assert_true(ct_set_device(device));
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), other = set_var(set, "other", 5);
    ct_tensor before = ct_keep(ct_add(w, ct_f(10)));
    assert_true(at(before, 0) == 11);
    fail_at(1);
    ct_tensor made, later;
    int assigned, built, line;
    {
        CT_SCOPE;
        made = ct_keep(ct_mul(w, ct_f(3)));
        ct_metric("loss", ct_sum(made));
        assigned = __LINE__ + 1;
        ct_assign(w, ct_add(w, ct_f(1)));
    }
    assert_ok(); // nobody has heard of it
    {
        CT_SCOPE; // and what builds on it is as lost
        built = __LINE__ + 1;
        later = ct_keep(ct_add(made, ct_f(1)));
    }
    assert_false(ct_eval(&later, 1) && ct_data(later));
    assert_error(CT_E_DEVICE, TOLD);
    char want[300];
    line = __LINE__ + 1;
    assert_null(ct_data(w));
    snprintf(want, sizeof want,
             "tests/unit/test_async.c:%d: data: variable \"w\" is poisoned: the plan that was "
             "updating it for tests/unit/test_async.c:%d failed\n  hint: assign it again",
             line, assigned);
    assert_error(CT_E_DEVICE, want);
    line = __LINE__ + 1;
    assert_null(ct_data(made));
    snprintf(want, sizeof want,
             "tests/unit/test_async.c:%d: data: operand 1 is poisoned: the device failed while it "
             "was computed",
             line);
    assert_error(CT_E_DEVICE, want);
    assert_true(isnan(ct_item(ct_sum(later))));
    snprintf(want, sizeof want,
             "tests/unit/test_async.c:%d: run: the value made here is poisoned: the device failed "
             "while it was computed",
             built);
    assert_error(CT_E_DEVICE, want);
    assert_true(isnan(ct_metric_value("loss")));
    assert_error(CT_E_DEVICE,
                 "metric: \"loss\" is poisoned: the device failed while it was computed");
    assert_true(at(before, 1) == 11 && at(other, 0) == 5);
    const double fresh[] = {7, 8};
    ct_assign(w, vec(2, fresh));
    assert_true(at(w, 0) == 7 && at(ct_mul(w, other), 1) == 40);
    {
        CT_SCOPE;
        ct_metric("loss", ct_sum(w));
    }
    assert_true(ct_metric_value("loss") == 15);
    assert_ok();
    ct_drop(before);
    ct_drop(made);
    ct_drop(later);
    ct_params_free(set);
}

static void poisoned_behind_a_queue(void **state) {
    (void)state;
    what_a_fault_befell_is_poisoned("async:ref");
}
static void poisoned_behind_a_queue_of_kernels(void **state) {
    (void)state;
    what_a_fault_befell_is_poisoned("async:cpu");
}

// Recorded before the fault was heard of, run after it was cleared.
static void what_was_recorded_with_it_does_not_run(void **state) {
    (void)state;
    assert_true(ct_set_device("async:ref"));
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(at(w, 0) == 1);
    fail_at(1);
    ct_tensor made;
    int line;
    {
        CT_SCOPE;
        line = __LINE__ + 1;
        made = ct_keep(ct_mul(w, ct_f(3)));
    }
    ct_tensor sum = ct_sum(made), well = ct_sum(w);
    assert_null(ct_data(made));
    assert_error(CT_E_DEVICE, TOLD);
    char want[300];
    assert_true(isnan(ct_item(sum)));
    snprintf(want, sizeof want,
             "tests/unit/test_async.c:%d: run: the value made here is poisoned: the device failed "
             "while it was computed",
             line);
    assert_error(CT_E_DEVICE, want);
    assert_true(ct_item(well) == 2);
    // The same of a variable that a failed plan was updating.
    ct_tensor other = set_var(set, "other", 1);
    assert_true(at(other, 0) == 1);
    fail_at(1);
    int assigned;
    {
        CT_SCOPE;
        assigned = __LINE__ + 1;
        ct_assign(other, ct_add(other, ct_f(1)));
    }
    line = __LINE__ + 1;
    sum = ct_sum(other);
    assert_null(ct_data(other));
    assert_error(CT_E_DEVICE, TOLD);
    assert_true(isnan(ct_item(sum)));
    snprintf(
        want, sizeof want,
        "tests/unit/test_async.c:%d: run: variable \"other\", read here, is poisoned: the plan "
        "that was updating it for tests/unit/test_async.c:%d failed",
        line, assigned);
    assert_error(CT_E_DEVICE, want);
    ct_drop(made);
    ct_params_free(set);
}

// More faults than are remembered one by one, each told, and what follows each is well.
static void many_faults(void **state) {
    (void)state;
    assert_true(ct_set_device("async:ref"));
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 0), lost[40];
    assert_true(at(w, 0) == 0);
    for (int i = 0; i < 40; i++) {
        fail_at(1);
        lost[i] = ct_keep(ct_add(w, ct_f(i)));
        assert_null(ct_data(lost[i]));
        assert_error(CT_E_DEVICE, TOLD);
        ct_tensor value = ct_add(w, ct_f(i));
        assert_true(at(value, 0) == i);
    }
    for (int i = 0; i < 40; i++) {
        assert_null(ct_data(lost[i]));
        assert_int_equal(ct_error_code(), CT_E_DEVICE);
        ct_error_clear();
        ct_drop(lost[i]);
    }
    ct_params_free(set);
}

static void a_fault_that_nobody_heard_of_is_logged(void **state) {
    (void)state;
    assert_true(ct_set_device("async:ref"));
    ct_tensor t = line_of(3);
    assert_true(at(t, 0) == 1);
    fail_at(1);
    {
        CT_SCOPE;
        ct_metric("m", ct_sum(t));
    }
    assert_ok();
    assert_false(ct_set_device("ref"));
    assert_error(CT_E_DEVICE, TOLD);
    fail_at(1);
    {
        CT_SCOPE;
        ct_metric("m", ct_sum(t));
    }
    record_forget();
    record_end(state);
    assert_string_equal(record_log, TOLD "\n");
    record_begin(state);
}

// Runs something that fails, of which nobody hears.
static void fail_unheard(void) {
    CT_SCOPE;
    ct_tensor t = line_of(3);
    assert_true(at(t, 0) == 1);
    fail_at(1);
    ct_metric("m", ct_sum(t));
}
typedef struct told {
    int times;
    char text[256];
    double value; // which the context computed then
} told;
static void computes(ct_log_kind kind, const char *text, void *user) {
    (void)kind;
    told *t = user;
    t->times++;
    snprintf(t->text, sizeof t->text, "%s", text);
    {
        CT_SCOPE;
        t->value = at(ct_mul(line_of(3), ct_f(7)), 2);
    }
    fail_unheard();
}
// The user's log function has the context that ends as it was, but does not hear of what it breaks
// itself: then there is no context to use.
static void a_log_function_may_use_the_context_that_ends(void **state) {
    (void)state;
    told heard = {0};
    ct_ctx *mine = ct_ctx_use(ct_ctx_new());
    assert_true(ct_set_device("async:ref"));
    ct_set_log(computes, &heard);
    fail_unheard();
    assert_ok();
    char text[256] = "";
    int ends[2], was = dup(2);
    assert_int_equal(pipe(ends), 0);
    fflush(stderr);
    dup2(ends[1], 2);
    ct_ctx_free(ct_ctx_current());
    fflush(stderr);
    dup2(was, 2);
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    close(was);
    ct_ctx_use(mine);
    assert_int_equal(heard.times, 1);
    assert_string_equal(heard.text, TOLD);
    assert_true(heard.value == 21);
    assert_true(n > 0);
    assert_string_equal(text, "cotan: " TOLD "\n");
}

static void unknown_devices_are_named(void **state) {
    (void)state;
    ct_err err = {0};
    assert_null(ct__device_open("async:gpu", &err));
    assert_string_equal(err.text, "device: there is no device \"async:gpu\": known are cpu, ref, "
                                  "opencl (or opencl:1), and async: or dry: before them");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_training_step_gives_the_bits_of_ref),
        TEST(the_host_cannot_touch_a_buffer),
        TEST(work_runs_in_order),
        TEST(a_fault_is_reported_once_and_never_lost),
        TEST(poisoned_behind_a_queue),
        TEST(poisoned_behind_a_queue_of_kernels),
        TEST(what_was_recorded_with_it_does_not_run),
        TEST(many_faults),
        TEST(a_fault_that_nobody_heard_of_is_logged),
        TEST(a_log_function_may_use_the_context_that_ends),
        TEST(unknown_devices_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
