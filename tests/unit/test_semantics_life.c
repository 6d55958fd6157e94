// Scopes, handles, contexts, failure and memory: what lives how long, and what an error leaves
// behind.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_semantics_life.c"

// --------------------------------------------------------------------------------- leaving a scope

static int leave(int how, ct_tensor *t) {
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        t[i] = ct_keep(ct_add(line_of(2), ct_f(i)));
        if (how == 0) break;
        if (how == 1) continue;
        if (how == 2) return i;
    }
    return 7;
}

static void break_continue_and_return_end_a_scope(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        ct_tensor t[2] = {CT_NONE, CT_NONE};
        uint64_t run = plans_run();
        assert_int_equal(leave(how, t), how == 2 ? 0 : 7);
        assert_int_equal(plans_run(), run + (how == 1 ? 2 : 1));
        assert_true(at(t[0], 1) == 2);
        if (how == 1) assert_true(at(t[1], 1) == 3);
        CT_SCOPE; // the stack is as it was: this is a scope of its own
        assert_true(ct_ok(t[0]));
    }
}

static void ending_an_outer_scope_ends_the_inner_ones(void **state) {
    (void)state;
    ct_scope outer = ct_scope_begin(CT_HERE);
    ct_tensor a = ct_keep(ct_exp(line_of(2)));
    ct_scope inner = ct_scope_begin(CT_HERE);
    ct_tensor b = ct_keep(ct_exp(line_of(2)));
    ct_scope_end(outer, CT_HERE);
    assert_true(ct_ok(a));
    assert_false(ct_ok(b));
    ct_scope_end(inner, CT_HERE); // has ended already: nothing happens
    ct_scope_end(outer, CT_HERE);
    assert_true(ct_ok(a));
    assert_ok();
}

static void a_scope_ends_in_its_own_context(void **state) {
    (void)state;
    ct_tensor t;
    ct_ctx *other = ct_ctx_new(), *mine = NULL;
    {
        CT_SCOPE;
        t = ct_keep(ct_neg(line_of(2)));
        mine = ct_ctx_use(other);
    }
    ct_ctx_use(mine);
    ct_ctx_free(other);
    assert_ok();
    assert_true(at(t, 1) == -2);
}

// ----------------------------------------------------------------------------------- stale handles

// Whatever lies at the context's address by then, another context with scopes of the same depth
// included.
static void a_scope_may_end_after_its_context(void **state) {
    (void)state;
    ct_ctx *mine = ct_ctx_use(NULL);
    for (int i = 0; i < 20; i++) {
        ct_ctx *ctx = ct_ctx_new(), *next = NULL;
        ct_scope by_hand, inner = {0};
        ct_tensor t = CT_NONE;
        {
            ct_ctx_use(ctx);
            CT_SCOPE;
            by_hand = ct_scope_begin(CT_HERE);
            ct_ctx_free(ctx);
            next = ct_ctx_new(); // takes the memory
            ct_ctx_use(next);
            if (i % 2) (void)ct_scope_begin(CT_HERE);
            inner = ct_scope_begin(CT_HERE);
            t = ct_f(1);
            if (i % 3 == 0) ct_ctx_use(mine);
        }
        ct_scope_end(by_hand, CT_HERE);
        ct_ctx_use(next);
        assert_true(ct_ok(t)); // its scope stands
        ct_scope_end(inner, CT_HERE);
        assert_false(ct_ok(t));
        ct_ctx_free(next);
    }
    ct_ctx_use(mine);
}

static void assert_stale(ct_tensor t, int made_at, const char *why, const char *more) {
    char want[512];
    int used_at = __LINE__ + 1;
    assert_false(ct_ok(ct_neg(t)));
    snprintf(want, sizeof want,
             FILE_NAME ":%d: neg: operand 1 was used after %s: made at " FILE_NAME ":%d%s", used_at,
             why, made_at, more);
    assert_error(CT_E_STALE, want);
    ct_error_clear();
}

static const int leaked_at = __LINE__ + 2;
static void leaks(const ct_tensor *in, ct_tensor *out, void *user) {
    *(ct_tensor *)user = out[0] = ct_neg(in[0]);
}

static void a_stale_handle_says_why(void **state) {
    (void)state;
    CT_SCOPE;
    const float two[2] = {1, 2};
    int at = __LINE__ + 1;
    ct_tensor x = ct_from(two, CT_F32, CT_DIMS(2));
    ct_drop(x);
    char dropped[100];
    snprintf(dropped, sizeof dropped, ", dropped at " FILE_NAME ":%d", __LINE__ - 2);
    assert_stale(x, at, "it was dropped", dropped);
    ct_drop(x);       // as free(NULL)
    ct_drop(CT_NONE); // this too
    assert_ok();
    ct_params *set = ct_params_new();
    at = __LINE__ + 1;
    x = ct_param(set, "w", CT_F32, CT_DIMS(2));
    ct_params_free(set);
    assert_stale(x, at, "its parameter set was freed", "");
    ct_ctx *other = ct_ctx_new(), *mine = ct_ctx_use(other);
    at = __LINE__ + 1;
    x = ct_from(two, CT_F32, CT_DIMS(2));
    ct_ctx_use(mine);
    ct_ctx_free(other);
    assert_stale(x, at, "its context was freed", "");
    ct_tensor y, in = ct_from(two, CT_F32, CT_DIMS(2));
    ct_call(leaks, &x, &in, 1, &y, 1);
    assert_true(ct_ok(y));
    assert_stale(x, leaked_at, "the traced function that recorded it had returned",
                 "\n  hint: return it as a result of the function");
}

static void what_cannot_be_dropped_says_so_at_its_line(void **state) {
    (void)state;
    const float two[2] = {1, 2};
    char want[300];
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    ct_drop(w);
    snprintf(want, sizeof want, FILE_NAME ":%d: drop: variable \"w\" ends with its parameter set",
             __LINE__ - 2);
    assert_error(CT_E_ARGUMENT, want);
    ct_error_clear();
    ct_ctx *other = ct_ctx_new(), *mine = ct_ctx_use(other);
    int line = __LINE__ + 1;
    ct_tensor x = ct_pin(ct_from(two, CT_F32, CT_DIMS(2)));
    ct_ctx_use(mine);
    ct_unpin(x);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: unpin: the tensor of " FILE_NAME
                       ":%d belongs to another context, and can only be dropped there",
             __LINE__ - 4, line);
    assert_error(CT_E_CONTEXT, want);
    ct_error_clear();
    ct_ctx_use(other);
    ct_unpin(x);
    assert_ok();
    assert_false(ct_ok(x));
    ct_ctx_use(mine);
    ct_ctx_free(other);
    ct_params_free(set);
}

static void a_stale_handle_is_an_error_with_both_lines(void **state) {
    (void)state;
    ct_tensor t;
    int scope_at, made_at, used_at;
    {
        scope_at = __LINE__ + 1;
        CT_SCOPE;
        made_at = __LINE__ + 1;
        t = ct_add(line_of(2), ct_f(1));
    }
    used_at = __LINE__ + 1;
    ct_tensor u = ct_neg(t);
    assert_false(ct_ok(u));
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: neg: operand 1 was used after its scope ended: made at " FILE_NAME
                       ":%d, the scope of " FILE_NAME ":%d\n"
                       "  hint: carry it out of its scope with ct_keep",
             used_at, made_at, scope_at);
    assert_error(CT_E_STALE, want);
    assert_int_equal(ct_rank(t), 0);
    assert_int_equal(ct_size(t), 0);
    assert_null(ct_data(t));
    assert_int_equal(ct_error_code(), CT_E_STALE);
    ct_error_clear();
    used_at = __LINE__ + 1;
    ct_neg(CT_NONE);
    snprintf(want, sizeof want, FILE_NAME ":%d: neg: operand 1 is no tensor", used_at);
    assert_error(CT_E_ARGUMENT, want);
}

// A slot that is used again never makes an old handle good.
static void generations_tell_old_handles_from_new(void **state) {
    (void)state;
    enum { N = 5000 };
    static ct_tensor old[N];
    for (int round = 0; round < 3; round++) {
        {
            CT_SCOPE;
            for (int i = 0; i < N; i++) old[i] = ct_f(i);
            for (int i = 0; i < N; i++) assert_true(ct_ok(old[i]));
        }
        CT_SCOPE;
        for (int i = 0; i < N; i++) assert_true(ct_ok(ct_f(-i)));
        for (int i = 0; i < N; i++) assert_false(ct_ok(old[i]));
    }
    assert_false(ct_ok((ct_tensor){UINT64_MAX}));
    assert_false(ct_ok((ct_tensor){1}));
    assert_false(ct_ok((ct_tensor){1ull << 38 | 1ull << 30}));
}

// ------------------------------------------------------------------------------- several contexts

typedef struct {
    ct_tensor t, pending;
    double got;
    char error[512];
} shared;

static void *reads_elsewhere(void *arg) {
    shared *s = arg;
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    if (!ct_set_device("ref")) return NULL;
    s->got = ct_item(ct_sum(ct_mul(s->t, ct_f(2))));
    ct_neg(s->pending);
    snprintf(s->error, sizeof s->error, "%s", ct_error_text());
    ct_ctx_free(ctx);
    return NULL;
}

static void evaluated_values_may_be_read_from_any_context_and_pending_ones_not(void **state) {
    (void)state;
    shared s = {.t = ct_keep(ct_exp(line_of(2)))};
    assert_true(ct_eval(&s.t, 1));
    int made_at = __LINE__ + 1;
    s.pending = ct_exp(line_of(2));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reads_elsewhere, &s), 0);
    pthread_join(thread, NULL);
    assert_true(fabs(s.got - 2 * (at(s.t, 0) + at(s.t, 1))) < 1e-4);
    char want[512];
    snprintf(want, sizeof want,
             ": neg: operand 1 was recorded at " FILE_NAME
             ":%d in another context and is not evaluated there yet",
             made_at);
    assert_true(ends_with(s.error, want));
}

typedef struct {
    ct_tensor w, t;
    int id;
    bool ok;
} reader;

static void *reads_much(void *arg) {
    reader *r = arg;
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    r->ok = ct_set_device("ref");
    for (int i = 0; i < 300 && r->ok; i++) {
        CT_SCOPE;
        ct_tensor y = ct_add(ct_mul(r->w, ct_f(r->id + i)), ct_mul(r->t, r->w));
        const float *data = ct_data(y);
        r->ok =
            data && data[0] == 3 * (float)(r->id + i) + 3 && data[1] == 3 * (float)(r->id + i) + 6;
        const float *copy = ct_data(r->t); // all threads make its host copy at once
        r->ok = r->ok && copy && copy[1] == 2;
    }
    ct_ctx_free(ctx);
    return NULL;
}

static void many_threads_read_one_variable_and_one_tensor(void **state) {
    (void)state;
    enum { N = 4 };
    ct_params *set = ct_params_new();
    reader r[N];
    ct_tensor w = set_var(set, "w", 3), t = line_of(2);
    assert_true(ct_eval(NULL, 0));
    pthread_t thread[N];
    for (int i = 0; i < N; i++) {
        r[i] = (reader){w, t, i, false};
        assert_int_equal(pthread_create(&thread[i], NULL, reads_much, &r[i]), 0);
    }
    for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++) assert_true(r[i].ok);
    ct_params_free(set);
}

// A context at the address of one that is gone must not find its leaves.
static void what_a_variable_remembers_of_a_context_goes_with_it(void **state) {
    (void)state;
    ct_params *set = NULL;
    ct_tensor w = CT_NONE;
    for (int i = 0; i < 20; i++) {
        ct_ctx *ctx = ct_ctx_new(), *mine = ct_ctx_use(ctx);
        assert_true(ct_set_device("ref"));
        if (!set) {
            set = ct_params_new();
            w = set_var(set, "w", 2);
        }
        assert_true(ct_item(ct_sum(ct_mul(w, w))) == 8);
        ct_ctx_free(ctx);
        ct_ctx_use(mine);
    }
    ct_params_free(set);
}

static void values_move_between_devices(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 2), x = line_of(2);
    assert_true(ct_eval(NULL, 0));
    const char *devices[] = {"async:ref", "ref", "async:ref", "async:ref"};
    for (int i = 0; i < 4; i++) {
        assert_true(ct_set_device(devices[i]));
        CT_SCOPE;
        ct_assign(w, ct_add(w, x));
        assert_true(at(ct_mul(w, x), 1) == (2 + 2 * (i + 1)) * 2);
    }
    assert_true(at(w, 0) == 6);
    ct_params_free(set);
}

// ---------------------------------------------------------------------------------------- failure

static void poison_passes_on(void **state) {
    (void)state;
    CT_SCOPE;
    int line = __LINE__ + 1;
    ct_tensor bad = ct_add(line_of(2), line_of(3));
    ct_tensor y = ct_sum(ct_mul(ct_exp(bad), ct_f(2)));
    assert_false(ct_ok(bad) || ct_ok(y));
    assert_int_equal(ct_dim(y, 0), 0);
    assert_int_equal(ct_rank(bad), 0);
    assert_int_equal(ct_size(bad), 0);
    assert_int_equal(ct_dtype_of(bad), CT_DEFAULT);
    assert_null(ct_data(y));
    assert_true(isnan(ct_item(y)));
    assert_false(ct_eval(&y, 1));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: add: shapes do not broadcast: (2,) f32 and (3,) f32\n  hint: counted "
                       "from the last axis, sizes must be equal or 1: here they are 2 and 3",
             line);
    assert_error(CT_E_SHAPE, want); // the first error, from where it was made
    assert_null(ct_data(y));        // still poisoned
    assert_non_null(
        strstr(ct_error_text(), "data: operand 1 is poisoned by an error that was cleared"));
    ct_error_clear();
}

static void until_the_error_is_cleared_no_plan_runs_and_what_was_pending_is_poisoned(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), kept, later;
    assert_true(ct_eval(NULL, 0));
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        kept = ct_keep(ct_exp(w));
        ct_assign(w, ct_add(w, ct_f(1)));
        ct_add(w, line_of(3));
    }
    assert_int_equal(plans_run(), run);
    assert_false(ct_ok(kept));
    {
        CT_SCOPE; // other work of the context does not run either
        later = ct_keep(ct_exp(line_of(2)));
    }
    assert_int_equal(plans_run(), run);
    assert_false(ct_ok(later));
    assert_true(ct_failed());
    ct_error_clear();
    assert_true(at(w, 0) == 1);
    {
        CT_SCOPE;
        later = ct_keep(ct_exp(w));
    }
    assert_true(at(later, 0) > 2.7);
    ct_params_free(set);
}

static void count_lines(ct_log_kind kind, const char *text, void *user) {
    *(int *)user += kind == CT_LOG_WARNING && strstr(text, "neg: operand 1 is no tensor") != NULL;
}

static void a_context_that_ends_with_an_unread_error_says_so(void **state) {
    (void)state;
    for (int noticed = 0; noticed < 2; noticed++) {
        int said = 0;
        ct_ctx *ctx = ct_ctx_new(), *mine = ct_ctx_use(ctx);
        ct_set_log(count_lines, &said);
        ct_neg(CT_NONE);
        if (noticed) assert_true(ct_failed());
        ct_ctx_free(ctx);
        ct_ctx_use(mine);
        assert_int_equal(said, !noticed);
    }
}

// ----------------------------------------------------------------------------------------- memory

static void a_loop_that_carries_state_does_not_grow(void **state) {
    (void)state;
    ct_tensor s = ct_keep(line_of(16));
    uint64_t live = 0;
    size_t heap = 0;
    for (int step = 0; step < 3000; step++) {
        ct_tensor next;
        {
            CT_SCOPE;
            next = ct_keep(ct_mul(ct_add(s, ct_f(1)), ct_f(0.5)));
        }
        ct_drop(s);
        s = next;
        if (step == 500) live = ct_get_stats().live_bytes, heap = mallinfo2().uordblks;
    }
    assert_int_equal(ct_get_stats().live_bytes, live);
#ifndef __SANITIZE_ADDRESS__
    assert_true(mallinfo2().uordblks <= heap + 4096); // what the allocator keeps at hand varies
#else
    (void)heap;
#endif
    assert_true(fabs(at(s, 3) - 1) < 1e-6);
}

static void a_loop_that_reads_variables_between_scopes_does_not_grow(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_SCALAR);
    ct_assign(w, ct_f(1));
    size_t heap = 0;
    for (int step = 0; step < 5000; step++) {
        {
            CT_SCOPE;
            ct_assign(w, ct_add(w, ct_f(1)));
        }
        assert_true(ct_item(w) == step + 2); // outside of any scope
        if (step == 1000) heap = mallinfo2().uordblks;
    }
#ifndef __SANITIZE_ADDRESS__
    assert_true(mallinfo2().uordblks <= heap + 4096); // what the allocator keeps at hand varies
#else
    (void)heap;
#endif
    ct_params_free(set);
}

static void *records_a_long_chain(void *arg) {
    enum { N = 1000000 };
    double *got = arg;
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    if (ct_set_device("ref")) {
        CT_SCOPE;
        ct_tensor t = ct_full(ct_f(0), CT_SCALAR);
        for (int i = 0; i < N; i++) t = i % 2 ? ct_add(t, ct_f(1)) : ct_abs(t);
        *got = ct_item(t);
    }
    if (ct_failed()) fprintf(stderr, "%s\n", ct_error_text());
    ct_ctx_free(ctx);
    return NULL;
}

// Recording, walking and freeing a million nodes on a stack of 64 KiB: nothing recurses.
static void nothing_recurses_over_the_graph(void **state) {
    (void)state;
    pthread_attr_t attr;
    pthread_t thread;
    double got = 0;
    size_t stack = 64 << 10;
#ifdef __SANITIZE_ADDRESS__
    stack = 256 << 10; // its frames are larger
#endif
    if (stack < (size_t)PTHREAD_STACK_MIN) stack = (size_t)PTHREAD_STACK_MIN;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, stack), 0);
    assert_int_equal(pthread_create(&thread, &attr, records_a_long_chain, &got), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    assert_true(got == 500000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(break_continue_and_return_end_a_scope),
        TEST(ending_an_outer_scope_ends_the_inner_ones),
        TEST(a_scope_ends_in_its_own_context),
        TEST(a_scope_may_end_after_its_context),
        TEST(a_stale_handle_says_why),
        TEST(what_cannot_be_dropped_says_so_at_its_line),
        TEST(a_stale_handle_is_an_error_with_both_lines),
        TEST(generations_tell_old_handles_from_new),
        TEST(evaluated_values_may_be_read_from_any_context_and_pending_ones_not),
        TEST(many_threads_read_one_variable_and_one_tensor),
        TEST(what_a_variable_remembers_of_a_context_goes_with_it),
        TEST(values_move_between_devices),
        TEST(poison_passes_on),
        TEST(until_the_error_is_cleared_no_plan_runs_and_what_was_pending_is_poisoned),
        TEST(a_context_that_ends_with_an_unread_error_says_so),
        TEST(a_loop_that_carries_state_does_not_grow),
        TEST(a_loop_that_reads_variables_between_scopes_does_not_grow),
        TEST(nothing_recurses_over_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
