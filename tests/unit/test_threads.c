// Threads that read each other's tensors, while those who made them end scopes, keep, drop, free contexts and
// sets: a value is whole, or the error says that it has gone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cotan/binding.h"
#include "cotan/memory.h"
#include "cotan/profile.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define FILE_NAME "tests/unit/test_threads.c"

enum { THREADS = 4, N = 64 };
#define SECONDS 0.3

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct worker worker;
struct worker {
    int number; // its tensors hold it, plus 1
    void (*turn)(worker *w);
    double end;
    long whole, gone, wrong;
    char text[1024]; // of an error that is not expected
    float ones[N];
    ct_params *set;
    ct_tensor shared; // a variable
};

static _Atomic uint64_t published[THREADS];
static void publish(const worker *w, ct_tensor t) { atomic_store(&published[w->number], t.bits); }

static void note_error(worker *w) {
    const ct_code code = ct_error_code();
    if (code == CT_E_STALE || code == CT_E_CONTEXT || code == CT_E_OVERWRITTEN)
        w->gone++;
    else if (!w->text[0])
        snprintf(w->text, sizeof w->text, "%s", ct_error_text());
    ct_error_clear();
}
static void note_value(worker *w, const float *d, float want) {
    if (!d) {
        note_error(w);
        return;
    }
    bool same = true;
    for (int i = 0; i < N; i++) same = same && d[i] == d[0];
    *(same && (d[0] == want || want < 0) ? &w->whole : &w->wrong) += 1;
}

// What can be asked of a handle, whose tensor may go at any time.
static void ask(worker *w, ct_tensor t) {
    const int rank = ct_rank(t);
    const int64_t dim = ct_dim(t, 0), size = ct_size(t);
    const ct_dtype dtype = ct_dtype_of(t);
    const char *op = ct_op_name(t), *device = ct_device_of(t);
    const bool right = (rank == 0 || rank == 1) && (dim == 0 || dim == N) &&
                       (size == 0 || size == N) && (dtype == CT_DEFAULT || dtype == CT_F32) &&
                       (!op || *op) && (!device || *device);
    if (!right) w->wrong++;
    (void)ct_ok(t), (void)ct_is_evaluated(t), (void)ct_is_tracked(t), (void)ct_assigning_ctx(t);
}
static void read_others(worker *w) {
    for (int from = 0; from < THREADS; from++) {
        const ct_tensor t = {atomic_load(&published[from])};
        if (from == w->number || !t.bits) continue;
        CT_SCOPE;
        ask(w, t);
        note_value(w, ct_data(ct_mul(t, ct_f(1))), (float)from + 1);
        note_value(w, ct_data(t), (float)from + 1);
    }
}

static ct_tensor of_one(const worker *w) { // (N,) filled with the thread's number
    return ct_mul(ct_from(w->ones, CT_F32, CT_DIMS(N)), ct_f((float)w->number + 1));
}
static bool is_there(worker *w, ct_tensor t) {
    const bool there = ct_eval(&t, 1);
    if (!there) note_error(w);
    return there;
}

static void *work(void *arg) {
    worker *w = arg;
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    for (int i = 0; i < N; i++) w->ones[i] = 1;
    do w->turn(w);
    while (now() < w->end);
    ct_ctx_free(ctx);
    return NULL;
}

typedef enum { ALL_IS_READ, SOME_HAS_GONE } outcome;
static void run(void (*turn)(worker *w), ct_params *set, ct_tensor shared, outcome wanted) {
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    const double end = now() + SECONDS;
    long whole = 0, gone = 0;
    memset(published, 0, sizeof published);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i, .turn = turn, .end = end, .set = set, .shared = shared};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_string_equal(workers[i].text, "");
        assert_int_equal(workers[i].wrong, 0);
        whole += workers[i].whole;
        gone += workers[i].gone;
    }
    assert_true(whole > 0);
    if (wanted == ALL_IS_READ) assert_int_equal(gone, 0);
}

// ------------------------------------------------------------------------------------------- turns

static pthread_barrier_t barrier;
static void stands(worker *w) { // nobody's scope ends while others read
    enum { TURNS = 20 };
    w->end = 0; // all make the same turns
    for (int turn = 0; turn < TURNS; turn++) {
        CT_SCOPE;
        ct_tensor x = ct_from(w->ones, CT_F32, CT_DIMS(N)), y = of_one(w), g;
        if (is_there(w, y)) publish(w, y);
        pthread_barrier_wait(&barrier);
        for (int k = 0; k < 3; k++) {
            read_others(w);
            CT_SCOPE;
            ct_tensor loss = ct_sum(ct_square(ct_add(y, x)));
            ct_grad(loss, &x, 1, &g);
            note_value(w, ct_data(g), 2 * ((float)w->number + 2));
        }
        pthread_barrier_wait(&barrier);
    }
}
static void test_others_read_what_stands(void **state) {
    (void)state;
    pthread_barrier_init(&barrier, NULL, THREADS);
    run(stands, NULL, CT_NONE, ALL_IS_READ);
    pthread_barrier_destroy(&barrier);
}

static void ends_scopes(worker *w) {
    CT_SCOPE;
    ct_tensor y = of_one(w);
    if (is_there(w, y)) publish(w, y);
    read_others(w);
}
static void test_scopes_end_while_others_read(void **state) {
    (void)state;
    run(ends_scopes, NULL, CT_NONE, SOME_HAS_GONE);
}

static void is_pending(worker *w) { // it gets its value while others look at it
    CT_SCOPE;
    ct_tensor y = of_one(w);
    publish(w, y);
    read_others(w);
    if (is_there(w, y)) read_others(w);
}
static void test_values_come_while_others_read(void **state) {
    (void)state;
    run(is_pending, NULL, CT_NONE, SOME_HAS_GONE);
}

static void keeps_and_drops(worker *w) {
    CT_SCOPE;
    ct_tensor y, z = ct_from(w->ones, CT_F32, CT_DIMS(N));
    {
        CT_SCOPE;
        y = ct_keep(of_one(w));
        if (is_there(w, y)) publish(w, y);
    } // the handle names another node from here on
    read_others(w);
    ct_drop(y);
    ct_tensor pinned = ct_pin(of_one(w));
    if (is_there(w, pinned)) publish(w, pinned);
    read_others(w);
    ct_unpin(pinned);
    ct_drop(z);
}
static void test_kept_values_are_dropped_while_others_read(void **state) {
    (void)state;
    run(keeps_and_drops, NULL, CT_NONE, SOME_HAS_GONE);
}

static void ends_context(worker *w) {
    ct_ctx *mine = ct_ctx_new(), *before = ct_ctx_use(mine);
    ct_set_log(NULL, NULL);
    ct_tensor y = of_one(w);
    if (is_there(w, y)) publish(w, y);
    for (int k = 0; k < 10; k++) read_others(w);
    ct_ctx_use(before);
    ct_ctx_free(mine);
}
static void test_contexts_are_freed_while_others_read(void **state) {
    (void)state;
    run(ends_context, NULL, CT_NONE, SOME_HAS_GONE);
}

static void rolls(worker *w) {
    ct_ctx *mine = ct_ctx_new(), *before = ct_ctx_use(mine);
    ct_set_log(NULL, NULL);
    if (!ct_rolling_begin()) note_error(w);
    for (int turn = 0; turn < 20; turn++) {
        ct_tensor y = ct_pin(of_one(w));
        if (is_there(w, y)) publish(w, y);
        ct_rolling_free_deferred();
        for (int from = 0; from < THREADS; from++) {
            const ct_tensor t = {atomic_load(&published[from])};
            if (from == w->number || !t.bits) continue;
            ask(w, t);
            const ct_tensor own = ct_pin(t);
            ct_borrowed *loan;
            note_value(w, ct_borrow(own, &loan), (float)from + 1);
            ct_borrow_end(loan);
            ct_unpin(own);
        }
        ct_unpin(y);
    }
    ct_ctx_use(before);
    ct_ctx_free(mine);
}
static void test_rolling_scopes_give_back_while_others_read(void **state) {
    (void)state;
    run(rolls, NULL, CT_NONE, SOME_HAS_GONE);
}

static void reads_variable(worker *w) { // one assigns it
    CT_SCOPE;
    if (w->number == 0) ct_assign(w->shared, ct_add(w->shared, ct_f(1)));
    ask(w, w->shared);
    note_value(w, ct_data(w->number == 1 ? ct_mul(w->shared, ct_f(1)) : w->shared), -1);
}
static void test_a_variable_is_read_and_assigned(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor x = ct_param(set, "x", CT_F32, CT_DIMS(N));
    ct_assign(x, ct_zeros(CT_F32, CT_DIMS(N)));
    assert_true(ct_eval(NULL, 0));
    run(reads_variable, set, x, SOME_HAS_GONE);
    ct_params_free(set);
}

static void frees_sets(worker *w) {
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor x = ct_param(set, "x", CT_F32, CT_DIMS(N));
    ct_assign(x, of_one(w));
    if (is_there(w, x)) publish(w, x);
    read_others(w);
    ct_params_free(set);
}
static void test_sets_are_freed_while_others_read(void **state) {
    (void)state;
    run(frees_sets, NULL, CT_NONE, SOME_HAS_GONE);
}

static void looks_and_sets(worker *w) { // what is the process's
    CT_SCOPE;
    ct_tensor y = of_one(w);
    ct_memory_snapshot *snapshot = w->number == 2 ? ct_memory_snapshot_take() : NULL;
    if (w->number == 0 && !ct_profile_begin()) note_error(w);
    if (w->number == 1) ct_set_threads(1 + (int)w->whole % 3);
    if (w->number == 3) {
        y = ct_to(y, w->whole % 2 ? "cpu:1" : "async:cpu");
        ct_profile_pause();
        ct_profile_resume();
    }
    {
        CT_ANNOTATE("a turn");
        note_value(w, ct_data(y), (float)w->number + 1);
    }
    (void)ct_get_stats(), (void)ct_peak_memory();
    ct_memory_snapshot_free(snapshot);
    if (w->number == 0 && !ct_profile_end(NULL, false)) note_error(w);
}
static void test_settings_change_while_others_run(void **state) {
    (void)state;
    run(looks_and_sets, NULL, CT_NONE, ALL_IS_READ);
    ct_set_threads(0);
}

// ------------------------------------------------------------------------------------- one at a time

static ct_ctx *mine;
static int begin(void **state) {
    mine = ct_ctx_new();
    return record_begin(state);
}
static int end(void **state) {
    ct_ctx_free(mine);
    return record_end(state);
}

static void test_a_stale_handle_of_another_context_is_an_error(void **state) {
    (void)state;
    ct_ctx *before = ct_ctx_use(mine);
    ct_tensor kept, y;
    uint32_t made, line;
    {
        CT_SCOPE;
        made = __LINE__ + 1;
        y = ct_full(ct_f(3), CT_DIMS(N));
        kept = ct_keep(y);
        y = ct_mul(y, ct_f(2));
        assert_true(ct_eval(&y, 1));
    }
    ct_ctx_use(before);
    assert_false(ct_ok(y));
    assert_int_equal(ct_rank(y), 0);
    assert_int_equal(ct_dim(y, 0), 0);
    assert_null(ct_op_name(y));
    line = __LINE__ + 1;
    assert_null(ct_data(y));
    char want[400];
    snprintf(want, sizeof want,
             FILE_NAME ":%u: data: operand 1 was used after its scope ended: made at " FILE_NAME
                       ":%u, the scope of " FILE_NAME ":%u\n"
                       "  hint: carry it out of its scope with ct_keep",
             line, made + 2, made - 2);
    assert_error(CT_E_STALE, want);
    assert_true(ct_item(ct_sum(kept)) == 3 * N);
    ct_drop(kept);
    snprintf(want, sizeof want,
             FILE_NAME ":%d: drop: the tensor of " FILE_NAME
                       ":%u belongs to another context, and can only be dropped there",
             __LINE__ - 4, made);
    assert_error(CT_E_CONTEXT, want);
    ct_ctx_use(mine);
    ct_drop(kept);
    ct_ctx_use(before);
    line = __LINE__ + 1;
    assert_true(ct_item(ct_sum(kept)) != 3 * N);
    snprintf(want, sizeof want,
             FILE_NAME ":%u: sum: operand 1 was used after it was dropped: made at " FILE_NAME
                       ":%u, dropped at " FILE_NAME ":%u",
             line, made, line - 3);
    assert_error(CT_E_STALE, want);
}

static void test_a_number_of_another_context_is_as_it_was_written(void **state) {
    (void)state;
    ct_ctx *before = ct_ctx_use(mine);
    ct_tensor tenth = ct_f(0.1);
    ct_ctx_use(before);
    ct_tensor x = ct_scalar(1, CT_F64);
    assert_true(ct_item(ct_mul(x, tenth)) == 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_others_read_what_stands),
        TEST(test_scopes_end_while_others_read),
        TEST(test_values_come_while_others_read),
        TEST(test_kept_values_are_dropped_while_others_read),
        TEST(test_contexts_are_freed_while_others_read),
        TEST(test_rolling_scopes_give_back_while_others_read),
        TEST(test_a_variable_is_read_and_assigned),
        TEST(test_sets_are_freed_while_others_read),
        TEST(test_settings_change_while_others_run),
        TEST(test_a_stale_handle_of_another_context_is_an_error),
        TEST(test_a_number_of_another_context_is_as_it_was_written),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
