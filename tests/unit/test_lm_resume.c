// Runs that are stopped wherever they ask whether to, and resumed: the same end as one that nobody
// stopped, the best weights included.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "cotan/lm.h"
#include "io/metrics.h"

enum { STEPS = 6 };
static char folder[64], corpus[80], whole[80], out[80];
static const char *const data[] = {corpus};
static int64_t asked, stop_at; // 0: never

static bool stop(void *user) {
    (void)user;
    return ++asked >= stop_at && stop_at;
}

static ct_lm_train_options options(const char *path) {
    return (ct_lm_train_options){.data = data,
                                 .n_data = 1,
                                 .out = path,
                                 .chars = true,
                                 .layers = 1,
                                 .heads = 2,
                                 .width = 8,
                                 .context = 8,
                                 .batch = 2,
                                 .accumulate = 2,
                                 .steps = STEPS,
                                 .lr = 0.02,
                                 .warmup = CT_F(0),
                                 .dropout = 0.1,
                                 .eval_every = 1,
                                 .eval_batches = CT_F(2),
                                 .save_every = 2,
                                 .patience = CT_F(9),
                                 .seed = 11,
                                 .should_stop = stop};
}
static ct_lm_train_options again(const char *path) {
    return (ct_lm_train_options){.resume = path, .should_stop = stop};
}

// True: it came to its end. False: it was stopped at that question.
static bool train(ct_lm_train_options o, int64_t at) {
    asked = 0;
    stop_at = at;
    bool ok = ct_lm_train(&o);
    if (ok) return true;
    if (ct_error_code() != CT_E_INTERRUPTED)
        fail_msg("stopped at %d: %s", (int)at, ct_error_text());
    ct_error_clear();
    return false;
}

static void forget(const char *path) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static bool there(const char *dir, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static char *contents(const char *dir, const char *name, size_t *n) {
    char path[128], *bytes = NULL;
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!ct__file_read(path, &bytes, n, &err)) fail_msg("%s", err.text);
    return bytes;
}

static bool same(const char *dir, const char *name, const char *other, const char *there_name) {
    size_t n, m;
    char *a = contents(dir, name, &n), *b = contents(other, there_name, &m);
    bool equal = n == m && memcmp(a, b, n) == 0;
    ct__free(a);
    ct__free(b);
    return equal;
}

static void same_metrics(const char *dir, const char *other) {
    static const char *const names[] = {"loss", "val_loss", "lr", "grad_norm"};
    ct_series a[4] = {0}, b[4] = {0};
    ct_err err = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_true(ct__metrics_read(path, names, 4, a, &err));
    snprintf(path, sizeof path, "%s/metrics.jsonl", other);
    assert_true(ct__metrics_read(path, names, 4, b, &err));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i].n, b[i].n);
        assert_memory_equal(a[i].x, b[i].x, a[i].n * sizeof *a[i].x);
        assert_memory_equal(a[i].y, b[i].y, a[i].n * sizeof *a[i].y);
        ct__series_free(&a[i]);
        ct__series_free(&b[i]);
    }
}

static void same_end(const char *dir, int64_t at) {
    static const char *const names[] = {
        "model.safetensors", "state.safetensors",      "config.json",
        "loss.svg",          "best/model.safetensors", "best/config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!same(dir, names[i], whole, names[i])) fail_msg("stopped at %d: %s", (int)at, names[i]);
    assert_true(same(dir, "checkpoints/step-6/config.json", whole, "config.json"));
    assert_true(same(dir, "checkpoints/step-6/best.safetensors", whole, "best/model.safetensors"));
    same_metrics(dir, whole);
}

static int make_whole(void **state) {
    (void)state;
    // Where forcing to disk costs nothing, if there is such a place.
    snprintf(folder, sizeof folder, "%s/cotan-lm-resume-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(corpus, sizeof corpus, "%s/text", folder);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    FILE *f = fopen(corpus, "w");
    if (!f) return 1;
    for (int i = 0; i < 1500; i++) fputc("abacabad, abc. "[i % 15], f);
    return fclose(f) || !ct_set_device("ref") || !train(options(whole), 0);
}
static int remove_all(void **state) {
    (void)state;
    forget(folder);
    return 0;
}

static void stopped_at_every_question(void **state) {
    (void)state;
    train(options(out), 0);
    int64_t questions = asked;
    assert_true(questions > 25); // steps, parts and evaluations
    for (int64_t k = 1; k <= questions; k++) {
        forget(out);
        if (train(options(out), k)) fail_msg("not stopped at %d", (int)k);
        if (!train(again(out), k % 4 + 1)) // and once more, right away
            while (!train(again(out), 0)) continue;
        same_end(out, k);
    }
    // A run that is done evaluates to tell of it, and may be stopped there.
    assert_false(train(again(out), 1));
    same_end(out, 0);
    forget(out);
}

static void an_older_checkpoint_has_its_best_weights(void **state) {
    (void)state;
    assert_true(train(options(out), 0));
    // Else nothing is shown: it improved after step 4.
    assert_false(same(out, "best/model.safetensors", out, "checkpoints/step-4/best.safetensors"));
    ct_lm_train_options o = again(out);
    o.resume_step = CT_F(4);
    assert_false(train(o, 1));
    assert_true(same(out, "best/model.safetensors", out, "checkpoints/step-4/best.safetensors"));
    assert_true(same(out, "best/config.json", out, "checkpoints/step-4/best.json"));
    assert_true(train(again(out), 0));
    same_end(out, 4);
    forget(out);
}

// Without patience for a while, it keeps what is best all the same.
static void patience_may_be_lost_and_found(void **state) {
    (void)state;
    assert_false(train(options(out), 14));
    ct_lm_train_options o = again(out);
    o.patience = CT_F(0);
    assert_false(train(o, 10));
    assert_false(there(out, "checkpoints/step-6"));
    o.patience = CT_F(9);
    assert_true(train(o, 0));
    same_end(out, 14);
    // At its end, too: nothing is evaluated then.
    o.patience = CT_F(0);
    assert_true(train(o, 0));
    assert_true(same(out, "best/model.safetensors", whole, "best/model.safetensors"));
    forget(out);
}

// A loss whose weights were not kept is none that patience waits for.
static void patience_may_come_late(void **state) {
    (void)state;
    ct_lm_train_options o = options(out);
    o.patience = CT_F(0);
    assert_false(train(o, 14));
    assert_false(there(out, "best"));
    o = again(out);
    o.patience = CT_F(9);
    assert_true(train(o, 0));
    assert_true(same(out, "model.safetensors", whole, "model.safetensors"));
    assert_true(same(out, "best/model.safetensors", whole, "best/model.safetensors"));
    assert_true(same(out, "best/model.safetensors", out, "checkpoints/step-6/best.safetensors"));
    forget(out);
}

static int steps_told, steps_alone; // of these, with the folder locked

static void look_at_lock(const ct_lm_event *event, void *user) {
    (void)user;
    if (event->kind != CT_LM_STEP) return;
    int fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    steps_told++;
    steps_alone += flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
}

// Where the process has no standard input, the lock is the descriptor in its place.
static void a_run_is_alone_in_its_folder(void **state) {
    (void)state;
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(train(options(out), 0));
    ct_lm_train_options o = again(out);
    o.steps = STEPS + 3;
    o.on_event = look_at_lock;
    close(STDIN_FILENO);
    assert_true(train(o, 0));
    assert_int_equal(steps_told, 3);
    assert_int_equal(steps_alone, 3);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    forget(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_at_every_question),
        cmocka_unit_test(an_older_checkpoint_has_its_best_weights),
        cmocka_unit_test(patience_may_be_lost_and_found),
        cmocka_unit_test(patience_may_come_late),
        cmocka_unit_test(a_run_is_alone_in_its_folder),
    };
    return cmocka_run_group_tests_name("lm_resume", tests, make_whole, remove_all);
}
