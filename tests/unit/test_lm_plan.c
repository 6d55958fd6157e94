// What a training run is planned to take, against what it takes; what does not fit is refused.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"
#include "cotan/lm.h"
#include "support/sanitized.h"

static char folder[] = "/tmp/cotan-lm-plan-XXXXXX", corpus[64], out[64];
static const char *const data[] = {corpus};

static int make_text(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(corpus, sizeof corpus, "%s/text", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    FILE *f = fopen(corpus, "w");
    if (!f) return 1;
    uint32_t x = 12345;
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        fputc((int)(32 + (x >> 24) % 65), f);
    }
    return fclose(f);
}
static int remove_text(void **state) {
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

#ifdef __SANITIZE_ADDRESS__ // whose shadow is memory of the process, too
enum { SANITIZED = 1 };
#else
enum { SANITIZED = CT_THREAD_SANITIZER };
#endif

static ct_lm_event_kind told[100];
static char memory_line[200];
static size_t n_told;
static void hear(const ct_lm_event *event, void *user) {
    (void)user;
    if (n_told < 100) told[n_told++] = event->kind;
    if (event->kind == CT_LM_MEMORY) snprintf(memory_line, sizeof memory_line, "%s", event->text);
}

static ct_lm_train_options small(void) { // the small GPT of the benchmarks
    return (ct_lm_train_options){.data = data,
                                 .n_data = 1,
                                 .out = out,
                                 .chars = true,
                                 .layers = 4,
                                 .heads = 4,
                                 .width = 128,
                                 .context = 64,
                                 .batch = 12,
                                 .steps = 3,
                                 .no_bias = true,
                                 .eval_batches = CT_F(1),
                                 .on_event = hear};
}

typedef struct parts {
    char names[200];
    uint64_t arenas;
    size_t launches;
} parts;
static void add_part(const char *name, const ct_plan_cost *cost, void *user) {
    parts *p = user;
    snprintf(p->names + strlen(p->names), sizeof p->names - strlen(p->names), "%s;", name);
    p->arenas += cost->arena_bytes;
    p->launches += cost->n_launches;
}

static void test_planned_is_measured(void **state) {
    (void)state;
    ct_lm_train_options o = small();
    ct_lm_cost planned;
    parts p = {0};
    struct stat st;
    ct_stats begin = ct_get_stats();
    size_t resident = ct__resident_bytes();
    assert_true(ct_lm_plan(&o, add_part, &p, &planned));
    ct_stats end = ct_get_stats();
    assert_int_equal(end.peak_memory, begin.peak_memory);
    assert_int_equal(end.launches, begin.launches);
    assert_int_equal(end.kernels_compiled + end.kernels_loaded, 0);
    assert_int_equal(stat(out, &st), -1);
    assert_string_equal(p.names, "initial weights;initial optimizer state;evaluation;sample;step;");
    assert_int_equal(planned.weights, 804096 * 4);
    assert_int_equal(n_told, 1);
    assert_int_equal(told[0], CT_LM_MODEL);
    assert_true(ct_lm_train(&o));
    uint64_t measured = ct_get_stats().peak_memory;
    size_t process = ct__resident_peak_bytes();
    print_message("planned %llu, measured %llu, process %zu of %llu\n",
                  (unsigned long long)planned.devices, (unsigned long long)measured, process,
                  (unsigned long long)planned.total);
    assert_true(planned.devices >= measured && measured >= planned.devices / 10 * 9);
    assert_true(SANITIZED ||
                (double)(process - resident) <= 1.1 * (double)(planned.total - resident));
    assert_true(told[n_told - 1] == CT_LM_DONE && told[n_told - 2] == CT_LM_MEMORY);
    assert_int_equal(strncmp(memory_line, "memory: tensors ", 16), 0);
}

static void test_refused(void **state) {
    (void)state;
    ct_lm_train_options o = small();
    char elsewhere[80];
    struct stat st;
    snprintf(elsewhere, sizeof elsewhere, "%s/none", folder);
    o.out = elsewhere;
    ct_set_memory_limit(1000);
    assert_false(ct_lm_train(&o));
    assert_int_equal(ct_error_code(), CT_E_LIMIT);
    assert_non_null(strstr(ct_error_text(),
                           " of memory are needed with 4 of 4 blocks computed again in gradients, "
                           "the limit is 1 kB; the largest tensors are "));
    ct_error_clear();
    assert_int_equal(stat(elsewhere, &st), -1);
    ct_set_memory_limit(0);
}

// Where sizes are open, the largest model is chosen that has room, be it with blocks that are
// computed again.
static void test_choice_fits(void **state) {
    (void)state;
    if (SANITIZED) return; // what the process has grows with each plan
    // Large batches: what blocks save outweighs how the heap differs from plan to plan.
    ct_lm_train_options o = {.data = data, .n_data = 1, .steps = 10, .batch = 64};
    ct_lm_cost roomy, tight, least;
    assert_true(ct_lm_plan(&o, NULL, NULL, &roomy));
    assert_true(roomy.blocks && !roomy.recomputed_blocks);
    const uint64_t run = roomy.total - roomy.process;
    ct_set_memory_limit(roomy.process + run / 8 * 7);
    assert_true(ct_lm_plan(&o, NULL, NULL, &tight));
    ct_set_memory_limit(roomy.process + run / 8 * 3);
    assert_true(ct_lm_plan(&o, NULL, NULL, &least));
    ct_set_memory_limit(0);
    assert_true(tight.total <= roomy.process + run / 8 * 7 + (1 << 20));
    assert_true(tight.weights == roomy.weights && tight.recomputed_blocks);
    assert_true(least.total <= roomy.process + run / 8 * 3 + (1 << 20));
    assert_true(least.weights < roomy.weights);
}

// Which is this program's, whatever the library opens and closes.
static void test_standard_input_stays_open(void **state) {
    (void)state;
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), none = open("/dev/null", O_RDONLY);
    ct_lm_train_options o = {.data = data,
                             .n_data = 1,
                             .out = out,
                             .overwrite = true,
                             .layers = 1,
                             .heads = 1,
                             .width = 16,
                             .context = 16,
                             .batch = 2,
                             .steps = 1,
                             .eval_batches = CT_F(1)};
    ct_lm_cost cost;
    assert_true(none >= 0 && dup2(none, STDIN_FILENO) == STDIN_FILENO);
    assert_true(ct_lm_plan(&o, NULL, NULL, &cost));
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0);
    assert_true(ct_lm_train(&o));
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    if (none != STDIN_FILENO) close(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_is_measured),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_choice_fits),
        cmocka_unit_test(test_standard_input_stays_open),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
