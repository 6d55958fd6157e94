// Contexts that share variables: one assigns, others read at the same time; whole values or an
// error.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rwlock.h"
#include "graph/graph.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_semantics_contexts.c"

enum { N = 4096, READERS = 3 };

typedef struct {
    const char *device;
    ct_tensor x;
    bool by_handle; // reads the variable itself
    atomic_bool *stop;
    long steps, whole, torn, spent, busy, other;
    char text[1024]; // of the last error
} worker;

static void moment(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

static ct_ctx *enter(const worker *w) {
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL);
    if (!ct_set_device(w->device)) return NULL;
    return ctx;
}

static void note_error(worker *w) {
    *(ct_error_code() == CT_E_OVERWRITTEN ? &w->spent
      : ct_error_code() == CT_E_CONTEXT   ? &w->busy
                                          : &w->other) += 1;
    snprintf(w->text, sizeof w->text, "%s", ct_error_text());
    ct_error_clear();
}

// Once more when the writers are done: who had no turn before, on a machine that is emulated, say,
// has one then.
static void *reads(void *arg) {
    worker *w = arg;
    ct_ctx *ctx = enter(w);
    for (bool done = false; ctx && !done;) {
        CT_SCOPE;
        done = atomic_load(w->stop);
        const float *d = ct_data(w->by_handle ? w->x : ct_mul(w->x, ct_f(1)));
        if (!d) {
            note_error(w);
            continue;
        }
        bool same = true;
        for (int i = 1; i < N; i++) same &= d[i] == d[0];
        *(same ? &w->whole : &w->torn) += 1;
    }
    ct_ctx_free(ctx);
    return NULL;
}

// Adds 1 until so many steps have run; a step that meets the other writer counts as none.
static void *writes(void *arg) {
    worker *w = arg;
    ct_ctx *ctx = enter(w);
    for (long want = w->steps, tries = 0; ctx && want && tries < 1000000; tries++) {
        CT_SCOPE;
        ct_assign(w->x, ct_add(w->x, ct_f(1)));
        if (ct_eval(NULL, 0))
            want--;
        else
            note_error(w);
        w->steps = want;
    }
    ct_ctx_free(ctx);
    return NULL;
}

static ct_tensor big_variable(ct_params *set) {
    CT_SCOPE;
    ct_tensor x = ct_param(set, "x", CT_F32, CT_DIMS(N));
    ct_assign(x, ct_zeros(CT_F32, CT_DIMS(N)));
    return x;
}

static void share_one(const char *const *devices, size_t n_writers, long steps) {
    static const char *const of_reader[] = {"ref", "async:ref", "ref"};
    ct_params *set = ct_params_new();
    ct_tensor x = big_variable(set);
    atomic_bool stop = false;
    worker readers[READERS], writers[2];
    pthread_t read_by[READERS], written_by[2];
    for (int i = 0; i < READERS; i++) {
        readers[i] = (worker){of_reader[i], x, .by_handle = i == 2, .stop = &stop};
        assert_int_equal(pthread_create(&read_by[i], NULL, reads, &readers[i]), 0);
    }
    for (size_t i = 0; i < n_writers; i++) {
        writers[i] = (worker){devices[i], x, .stop = &stop, .steps = steps};
        assert_int_equal(pthread_create(&written_by[i], NULL, writes, &writers[i]), 0);
    }
    for (size_t i = 0; i < n_writers; i++) pthread_join(written_by[i], NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++) pthread_join(read_by[i], NULL);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(readers[i].torn, 0);
        assert_int_equal(readers[i].busy + readers[i].other, 0);
        if (readers[i].spent) {
            assert_non_null(strstr(readers[i].text, "the value needs variable \"x\" as it was"));
            assert_non_null(strstr(readers[i].text, "but it was assigned at " FILE_NAME ":"));
        }
    }
    assert_int_equal(readers[2].spent, 0);
    assert_true(readers[2].whole > 0);
    for (size_t i = 0; i < n_writers; i++) assert_int_equal(writers[i].steps + writers[i].other, 0);
    for (int i = 0; i < N; i += N - 1)
        assert_true(((const float *)ct_data(x))[i] == (float)(n_writers * (size_t)steps));
    ct_params_free(set);
    assert_ok();
}

static void a_reader_gets_whole_values_or_an_error(void **state) {
    (void)state;
    share_one((const char *const[]){"ref"}, 1, 1500);
    share_one((const char *const[]){"async:ref"}, 1, 300);
}

static void two_devices_may_take_turns_at_a_variable(void **state) {
    (void)state;
    share_one((const char *const[]){"ref", "async:ref"}, 2, 300);
}

static void what_another_context_assigned_since_is_spent(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor x = set_var(set, "x", 1);
    assert_true(at(x, 0) == 1);
    ct_ctx *mine = ct_ctx_current(), *other = ct_ctx_new();
    ct_ctx_use(other);
    int read_at = __LINE__ + 1;
    ct_tensor y = ct_mul(x, ct_f(2));
    ct_ctx_use(mine);
    int assigned_at = __LINE__ + 1;
    ct_assign(x, ct_add(ct_zeros(CT_F32, CT_DIMS(2)), ct_f(5)));
    assert_true(ct_eval(NULL, 0));
    ct_assign(x, ct_add(x, ct_f(1))); // pending: not what it was that y needs
    ct_ctx_use(other);
    int asked_at = __LINE__ + 1;
    assert_null(ct_data(y));
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: read: the value needs variable \"x\" as it was read at " FILE_NAME
                       ":%d, but it was assigned at " FILE_NAME ":%d and is gone\n"
                       "  hint: read the value, or ct_keep it, before the variable is assigned",
             asked_at, read_at, assigned_at);
    assert_error(CT_E_OVERWRITTEN, want);
    assert_true(at(ct_mul(x, ct_f(2)), 1) == 10); // recorded anew
    ct_ctx_free(other);
    ct_ctx_use(mine);
    assert_true(at(x, 0) == 6);
    ct_params_free(set);
    assert_ok();
}

static void one_context_at_a_time_assigns(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor x = set_var(set, "x", 1);
    assert_true(at(x, 0) == 1);
    ct_assign(x, ct_add(x, ct_f(1)));
    ct_ctx *mine = ct_ctx_current(), *other = ct_ctx_new();
    ct_ctx_use(other);
    int here = __LINE__ + 1;
    ct_assign(x, ct_add(ct_zeros(CT_F32, CT_DIMS(2)), ct_f(7)));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: assign: variable \"x\" has a pending assignment in another context",
             here);
    assert_error(CT_E_CONTEXT, want);
    ct_ctx_use(mine);
    ct_neg(CT_NONE);
    ct_error_clear(); // gives the assignment up
    ct_ctx_use(other);
    ct_assign(x, ct_add(ct_zeros(CT_F32, CT_DIMS(2)), ct_f(7)));
    ct_assign(x, ct_add(x, ct_f(1)));
    assert_true(at(x, 1) == 8);
    ct_assign(x, ct_add(ct_zeros(CT_F32, CT_DIMS(2)), ct_f(9)));
    ct_ctx_free(other); // and so does its end
    ct_ctx_use(mine);
    ct_assign(x, ct_add(x, ct_f(1)));
    assert_true(at(x, 1) == 9);
    ct_params_free(set);
    assert_ok();
}

static void an_assignment_goes_with_a_set_that_another_context_frees(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor x = set_var(set, "x", 1);
    assert_true(at(x, 0) == 1);
    ct_tensor y = ct_keep(ct_add(x, ct_f(1)));
    ct_assign(x, y);
    ct_ctx *mine = ct_ctx_current(), *other = ct_ctx_new();
    ct_ctx_use(other);
    ct_params_free(set);
    assert_ok();
    ct_ctx_free(other);
    ct_ctx_use(mine);
    assert_null(ct_data(y)); // the value that it would have been made from is gone
    assert_int_equal(ct_error_code(), CT_E_OVERWRITTEN);
    ct_error_clear();
    assert_true(at(ct_add(line_of(2), ct_f(1)), 0) == 2);
}

// Freed by the context that made it and by another one, while others read.
static void a_set_may_be_freed_while_others_read(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        ct_params *set = ct_params_new();
        ct_tensor x = big_variable(set);
        atomic_bool stop = false;
        worker readers[READERS];
        pthread_t read_by[READERS];
        for (int i = 0; i < READERS; i++) {
            readers[i] =
                (worker){i == 1 ? "async:ref" : "ref", x, .by_handle = i == 2, .stop = &stop};
            assert_int_equal(pthread_create(&read_by[i], NULL, reads, &readers[i]), 0);
        }
        moment();
        ct_ctx *mine = ct_ctx_current(), *other = round % 2 ? ct_ctx_new() : NULL;
        if (other) ct_ctx_use(other);
        ct_params_free(set);
        assert_ok();
        ct_ctx_free(other);
        ct_ctx_use(mine);
        moment();
        atomic_store(&stop, true);
        for (int i = 0; i < READERS; i++) {
            pthread_join(read_by[i], NULL);
            assert_int_equal(readers[i].torn, 0);
        }
    }
    assert_ok();
}

typedef struct {
    ct_params *set;
    ct_tensor x;
    ct_ctx *ctx;
    atomic_bool done;
    ct_code code;
} waiter;

static void *frees(void *arg) {
    waiter *w = arg;
    ct_params_free(w->set);
    atomic_store(&w->done, true);
    return NULL;
}
static void *reads_once(void *arg) {
    waiter *w = arg;
    ct_ctx_use(w->ctx);
    CT_SCOPE;
    const float *d = ct_data(ct_mul(w->x, ct_f(1)));
    w->code = d && d[0] == 0 ? CT_OK : ct_error_code();
    ct_error_clear();
    atomic_store(&w->done, true);
    return NULL;
}

static void *adds_once(void *arg) {
    waiter *w = arg;
    ct_ctx_use(w->ctx);
    {
        CT_SCOPE;
        ct_assign(w->x, ct_add(w->x, ct_f(1)));
    }
    w->code = ct_error_code();
    ct_error_clear();
    return NULL;
}

// Cancelled while it waits for a plan that reads what it assigns, it assigns nothing.
static void a_plan_that_was_cancelled_while_it_waited_has_not_run(void **state) {
    (void)state;
    waiter w = {.set = ct_params_new(), .ctx = ct_ctx_new()};
    w.x = big_variable(w.set);
    ct_rwlock *held = ct__var_of(w.x)->lock;
    pthread_t by;
    assert_true(ct__rwlock_lock(held, false, NULL));
    assert_int_equal(pthread_create(&by, NULL, adds_once, &w), 0);
    for (int i = 0; i < 10; i++) moment();
    ct_cancel(w.ctx);
    pthread_join(by, NULL);
    ct__rwlock_unlock(held, false);
    assert_int_equal(w.code, CT_E_INTERRUPTED);
    {
        CT_SCOPE;
        const float *d = ct_data(w.x);
        assert_true(d && d[0] == 0);
    }
    ct_ctx_free(w.ctx);
    ct_params_free(w.set);
}

static void a_plan_that_waits_for_another_can_be_cancelled_and_a_set_waits_to_go(void **state) {
    (void)state;
    waiter w = {.set = ct_params_new(), .ctx = ct_ctx_new()};
    w.x = big_variable(w.set);
    ct_rwlock *held = ct__var_of(w.x)->lock;
    pthread_t by;
    assert_true(ct__rwlock_lock(held, true, NULL)); // as by a plan that assigns
    assert_int_equal(pthread_create(&by, NULL, reads_once, &w), 0);
    for (int i = 0; i < 10; i++) moment();
    assert_false(atomic_load(&w.done));
    ct_cancel(w.ctx);
    pthread_join(by, NULL);
    assert_int_equal(w.code, CT_E_INTERRUPTED);
    ct__rwlock_unlock(held, true);
    assert_int_equal(pthread_create(&by, NULL, reads_once, &w), 0);
    pthread_join(by, NULL);
    assert_int_equal(w.code, CT_OK);
    atomic_store(&w.done, false);
    assert_true(ct__rwlock_lock(held, false, NULL)); // as by one that reads
    assert_int_equal(pthread_create(&by, NULL, frees, &w), 0);
    for (int i = 0; i < 10; i++) moment();
    assert_false(atomic_load(&w.done));
    ct__rwlock_unlock(held, false);
    pthread_join(by, NULL);
    assert_false(ct_ok(w.x));
    ct_ctx_free(w.ctx);
    assert_ok();
}

// --------------------------------------------------------------------------------------- the lock

static ct_rwlock *lock;
static atomic_int order;
typedef struct {
    bool alone, taken;
    int turn;
    const atomic_bool *stop;
} taker;

static void *takes(void *arg) {
    taker *t = arg;
    t->taken = ct__rwlock_lock(lock, t->alone, t->stop);
    t->turn = atomic_fetch_add(&order, 1);
    if (t->taken) ct__rwlock_unlock(lock, t->alone);
    return NULL;
}

static void until_waiting(size_t n) {
    while (ct__rwlock_waiters(lock) < n) moment();
}

static void who_waited_to_share_goes_before_the_next_alone(void **state) {
    (void)state;
    lock = ct__rwlock_new();
    atomic_bool never = false;
    taker t[3] = {{.alone = true}, {.stop = &never}, {.alone = true, .stop = &never}};
    pthread_t by[3];
    assert_true(ct__rwlock_lock(lock, false, NULL));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&by[i], NULL, takes, &t[i]), 0);
        until_waiting((size_t)i + 1);
    }
    assert_int_equal(atomic_load(&order), 0); // the one that shares came after one that is alone
    ct__rwlock_unlock(lock, false);
    for (int i = 0; i < 3; i++) pthread_join(by[i], NULL);
    assert_true(t[0].taken && t[1].taken && t[2].taken);
    // One that is alone, then who waited to share, then the other, whichever of the two was first.
    assert_int_equal(t[1].turn, 1);
    ct__rwlock_unref(lock);
}

static void waiting_ends_when_it_is_told_to_stop(void **state) {
    (void)state;
    lock = ct__rwlock_new();
    atomic_bool stop = false;
    taker alone = {.alone = true, .stop = &stop}, shares = {.stop = &stop};
    pthread_t by[2];
    assert_true(ct__rwlock_lock(lock, false, NULL));
    assert_int_equal(pthread_create(&by[0], NULL, takes, &alone), 0);
    until_waiting(1);
    assert_int_equal(pthread_create(&by[1], NULL, takes, &shares), 0);
    until_waiting(2);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(by[i], NULL);
    assert_false(alone.taken);
    assert_true(ct__rwlock_lock(lock, false, NULL)); // nobody waits alone any more
    ct__rwlock_unlock(lock, false);
    ct__rwlock_unlock(lock, false);
    assert_true(ct__rwlock_lock(lock, true, NULL));
    ct__rwlock_unlock(lock, true);
    ct__rwlock_unref(lock);
}

// ------------------------------------------------------------------------------------------------
// log functions that use the library

typedef struct {
    int said, inside; // texts; calls that another was in the middle of
    double sum;       // what they computed
} listener;

static void computes(ct_log_kind kind, const char *text, void *user) {
    listener *l = user;
    static bool busy;
    (void)kind;
    l->inside += busy;
    l->said += *text != '\0';
    busy = true;
    CT_SCOPE;
    ct_tensor x = ct_from(((float[]){1, 2, 3}), CT_F32, CT_DIMS(3));
    l->sum += ct_item(ct_sum(ct_mul(x, x)));
    busy = false;
}

static void a_log_function_may_run_plans(void **state) {
    (void)state;
    listener l = {0};
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_SCALAR);
    ct_ctx *ctx = ct_ctx_new(), *mine = ct_ctx_use(ctx);
    setenv("COTAN_EXPLAIN", "1", 1);
    ct_set_log(computes, &l);
    {
        CT_SCOPE;
        ct_assign(w, ct_zeros(CT_F32, CT_SCALAR));
    }
    for (int step = 0; step < 4; step++) { // each has a plan of its own, and so a text
        CT_SCOPE;
        for (int k = 0; k <= step; k++) ct_keep(ct_mul(w, ct_f(k + 1)));
        ct_assign(w, ct_add(w, ct_f(1)));
    }
    double value = ct_item(w);
    unsetenv("COTAN_EXPLAIN");
    assert_string_equal(ct_error_text(), "");
    assert_true(value == 4);
    assert_true(l.said >= 5);
    assert_int_equal(l.inside, 0);
    assert_true(l.sum == 14.0 * l.said);
    ct_ctx_free(ctx);
    ct_ctx_use(mine);
    ct_params_free(set);
}

static void ends_it(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)text;
    if (*(int *)user)
        assert_false(ct_shutdown());
    else
        ct_ctx_free(ct_ctx_current());
}

static void ends_it_traced(const ct_tensor *in, ct_tensor *out, void *user) {
    ends_it(CT_LOG_PRINT, "", user);
    out[0] = in[0];
}

// ct_shutdown sees contexts that ct_ctx_new made first: in a thread whose context is its own.
static void *ends_its_context(void *user) {
    char(*text)[2][256] = user;
    for (int by = 0; by < 2; by++) {
        ct_ctx_use(NULL);
        int shutdown = 0;
        CT_SCOPE;
        ct_tensor x = ct_from(((float[]){1, 2, 3}), CT_F32, CT_DIMS(3)), y;
        if (by == 0) {
            ct_set_log(ends_it, &shutdown);
            ct_print(x);
            ct_set_log(NULL, NULL);
        } else {
            ct_call(ends_it_traced, &shutdown, &x, 1, &y, 1);
        }
        snprintf((*text)[by], sizeof(*text)[by], "%s", ct_error_text());
        ct_error_clear();
    }
    return NULL;
}

static void no_context_ends_under_a_function_that_it_calls(void **state) {
    (void)state;
    char text[2][256];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ends_its_context, text), 0);
    pthread_join(thread, NULL);
    assert_string_equal(text[0], "ctx_free: the context's log function has not returned");
    assert_string_equal(text[1], "ctx_free: a function that the context traces has not returned");
}

static void the_library_does_not_end_under_a_function_that_it_calls(void **state) {
    (void)state;
    int shutdown = 1;
    ct_tensor x, y;
    {
        CT_SCOPE;
        x = ct_from(((float[]){1, 2, 3}), CT_F32, CT_DIMS(3));
        ct_set_log(ends_it, &shutdown);
        ct_print(x);
        ct_set_log(NULL, NULL);
        assert_string_equal(ct_error_text(),
                            "shutdown: the context's log function has not returned");
        ct_error_clear();
        ct_call(ends_it_traced, &shutdown, &x, 1, &y, 1);
        assert_string_equal(ct_error_text(),
                            "shutdown: a function that the context traces has not returned");
        ct_error_clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_reader_gets_whole_values_or_an_error),
        TEST(two_devices_may_take_turns_at_a_variable),
        TEST(what_another_context_assigned_since_is_spent),
        TEST(one_context_at_a_time_assigns),
        TEST(an_assignment_goes_with_a_set_that_another_context_frees),
        TEST(a_set_may_be_freed_while_others_read),
        TEST(a_plan_that_was_cancelled_while_it_waited_has_not_run),
        TEST(a_plan_that_waits_for_another_can_be_cancelled_and_a_set_waits_to_go),
        TEST(a_log_function_may_run_plans),
        TEST(no_context_ends_under_a_function_that_it_calls),
        cmocka_unit_test(the_library_does_not_end_under_a_function_that_it_calls),
        cmocka_unit_test(who_waited_to_share_goes_before_the_next_alone),
        cmocka_unit_test(waiting_ends_when_it_is_told_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
