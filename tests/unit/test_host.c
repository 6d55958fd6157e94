// The library as a guest: the host's floating-point mode and locale change nothing and are left as
// found.
#include <fenv.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "cotan/lm.h"
#include "cotan/optim.h"
#include "cotan/train.h"

// This thread's mode, and what in it makes subnormal numbers zero.
#if defined(__x86_64__)
#define FLUSH 0x8040U
static unsigned float_mode(void) { return _mm_getcsr(); }
static void set_float_mode(unsigned mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
#define FLUSH (1UL << 24)
static unsigned long float_mode(void) {
    unsigned long mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void set_float_mode(unsigned long mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#endif

enum { N = 1000 };

// Sums and products whose rounding shows the mode; some results are subnormal.
static float data[N]; // made before the mode changes
static void compute(float *out) {
    CT_SCOPE;
    ct_tensor x = ct_from(data, CT_F32, CT_DIMS(N));
    ct_tensor tiny = ct_mul(ct_mul(x, ct_f(0x1p-100)), ct_f(0x1p-30));
    ct_tensor y = ct_concat(
        ((ct_tensor[]){ct_exp(ct_div(x, ct_f(3))), tiny, ct_reshape(ct_sum(x), CT_DIMS(1))}), 3, 0);
    const float *values = ct_data(y);
    assert_non_null(values);
    memcpy(out, values, (2 * N + 1) * sizeof *out);
}

static void host_modes_change_nothing(void **state) {
    (void)state;
    static float plain[2 * N + 1], other[2 * N + 1];
    for (int i = 0; i < N; i++) data[i] = 1.0f / (float)(3 + i * 7);
    compute(plain);
    assert_true(plain[N] > 0 && plain[2 * N - 1] > 0); // subnormals survive
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        compute(other);
        assert_int_equal(fegetround(), modes[i]);
        fesetround(FE_TONEAREST);
        assert_memory_equal(plain, other, sizeof plain);
    }
#ifdef FLUSH
    set_float_mode(float_mode() | FLUSH);
    volatile float tiny = 0x1p-140f;
    assert_true(tiny * 0.5f == 0);
    compute(other);
    assert_int_equal(float_mode() & FLUSH, FLUSH);
    set_float_mode(float_mode() & ~FLUSH);
    assert_memory_equal(plain, other, sizeof plain);
#endif
}

// What is folded when a plan is made, and what the reference computes, in a context of its own.
static void products(const char *device, float out[2]) {
    ct_ctx *before = ct_ctx_use(ct_ctx_new());
    assert_true(ct_set_device(device));
    {
        CT_SCOPE;
        const float a = 0.1f, b = 0.3f;
        ct_tensor folded = ct_mul(ct_const(&a, CT_F32, CT_SCALAR), ct_const(&b, CT_F32, CT_SCALAR));
        ct_tensor run = ct_mul(ct_from(&a, CT_F32, CT_SCALAR), ct_from(&b, CT_F32, CT_SCALAR));
        const float *x = ct_data(folded), *y = ct_data(run);
        assert_true(x && y);
        out[0] = *x;
        out[1] = *y;
    }
    ct_ctx_free(ct_ctx_use(before));
}

static void plans_made_in_any_mode_are_equal(void **state) {
    (void)state;
    const char *devices[] = {"ref", "async:ref", "cpu"};
    for (int i = 0; i < 3; i++) {
        float plain[2], upward[2];
        products(devices[i], plain);
        fesetround(FE_UPWARD);
        products(devices[i], upward);
        int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, FE_UPWARD);
        assert_memory_equal(plain, upward, sizeof plain);
    }
}

// -------------------------------------------------------------------------------------------------
// training

typedef struct {
    ct_lm *model;
    char metrics[256], plot[256];
} training;

static ct_tensor training_loss(int64_t step, void *user) {
    const training *t = user;
    int32_t tokens[2][8];
    for (int i = 0; i < 16; i++) tokens[i / 8][i % 8] = (int32_t)(step * 5 + i * 3) % 11;
    ct_tensor x = ct_from(tokens, CT_I32, CT_DIMS(2, 8));
    ct_nn_mode mode = {.training = true, .dropout = 0.1f, .key = ct_random_key(step)};
    return ct_lm_loss(t->model, x, x, &mode);
}

// Trains a small GPT-2 with all that computes on the host: first values, dropout, a schedule,
// clipping, metrics. The parameters' bytes, freed by the caller.
static char *train(training *t, size_t *size) {
    ct_lm_config config = {
        .vocab = 11, .context = 8, .layers = 3, .heads = 2, .width = 12, .dropout = 0.1};
    t->model = ct_lm_new(&config, 7);
    ct_params *params = ct_lm_params(t->model);
    ct_schedule lr = {CT_LR_COSINE, .lr = 1e-2, .min_lr = 1e-3, .warmup = 3, .steps = 9};
    ct_optim *adamw = ct_adamw(params, .schedule = lr, .clip = 0.3);
    ct_fit_options fit = {.steps = 8,
                          .optim = adamw,
                          .loss = training_loss,
                          .user = t,
                          .metrics_path = *t->metrics ? t->metrics : NULL,
                          .plot_path = *t->plot ? t->plot : NULL};
    bool ok = ct_fit(&fit);
    if (!ok) fail_msg("%s", ct_error_text());
    char *bytes = malloc(1 << 20);
    *size = 0;
    CT_SCOPE;
    for (size_t i = 0; i < ct_params_count(params); i++) {
        size_t n = (size_t)ct_size(ct_params_get(params, i)) * 4;
        const void *values = ct_data(ct_params_get(params, i));
        assert_non_null(values);
        memcpy(bytes + *size, values, n);
        *size += n;
    }
    ct_optim_free(adamw);
    return bytes;
}
static char *train_and_free(training *t, size_t *size) {
    char *bytes = train(t, size);
    ct_lm_free(t->model);
    return bytes;
}

static void training_in_any_mode_gives_the_same_weights(void **state) {
    (void)state;
    training t = {0};
    size_t n, m;
    char *plain = train_and_free(&t, &n);
    assert_true(n > 4000);
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        char *other = train_and_free(&t, &m);
        assert_int_equal(fegetround(), modes[i]);
        fesetround(FE_TONEAREST);
        assert_true(n == m);
        assert_memory_equal(plain, other, n);
        free(other);
    }
#ifdef FLUSH
    set_float_mode(float_mode() | FLUSH);
    char *other = train_and_free(&t, &m);
    assert_int_equal(float_mode() & FLUSH, FLUSH);
    set_float_mode(float_mode() & ~FLUSH);
    assert_memory_equal(plain, other, n);
    free(other);
#endif
    free(plain);
}

static void schedules_are_the_same_in_any_mode(void **state) {
    (void)state;
    ct_schedule shapes[] = {{CT_LR_COSINE, .lr = 0.3, .min_lr = 0.07, .warmup = 7, .steps = 50},
                            {CT_LR_LINEAR, .lr = 0.3, .min_lr = 0.07, .warmup = 7, .steps = 50}};
    for (int i = 0; i < 2; i++)
        for (int64_t step = 0; step < 50; step++) {
            double plain = ct_schedule_lr(&shapes[i], step);
            fesetround(FE_UPWARD);
            double upward = ct_schedule_lr(&shapes[i], step);
            fesetround(FE_TONEAREST);
            assert_memory_equal(&plain, &upward, sizeof plain);
        }
}

// -------------------------------------------------------------------------------------------------
// a locale with a decimal comma

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static bool has_decimal_comma(const char *text) {
    for (const char *at = text; (at = strchr(at, ',')); at++)
        if (at > text && at[-1] >= '0' && at[-1] <= '9' && at[1] >= '0' && at[1] <= '9')
            return true;
    return false;
}

static char logged[1 << 20];
static void note_log(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)user;
    if (strlen(logged) + strlen(text) < sizeof logged) strcat(logged, text);
}

// What kernels with fractions look like, and what they compute.
static float kernel_with_fractions(void) {
    ct_ctx *before = ct_ctx_use(ct_ctx_new());
    ct_set_log(note_log, NULL);
    logged[0] = '\0';
    float value = 0;
    {
        CT_SCOPE;
        const float quarter = 0.25f, odd = 0.1f;
        ct_tensor x = ct_from(&odd, CT_F32, CT_SCALAR);
        ct_tensor y = ct_gelu(ct_mul(x, ct_const(&quarter, CT_F32, CT_SCALAR)));
        value = (float)ct_item(ct_leaky_relu(ct_neg(y), .slope = CT_F(0.015625)));
        assert_false(ct_failed());
    }
    ct_ctx_free(ct_ctx_use(before));
    return value;
}

static void remove_folder(const char *path) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static void a_decimal_comma_changes_nothing(void **state) {
    (void)state;
    char folder[] = "/tmp/cotan-locale-XXXXXX", command[400], path[300];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' 2>/dev/null",
             folder);
    (void)!system(command); // some versions warn and say so by their status
    setenv("COTAN_DUMP", "kernels,plan", 1);
    float plain = kernel_with_fractions();
    char *plain_log = strdup(logged);
    unsetenv("COTAN_DUMP");
    training t = {0};
    size_t n, m;
    char *plain_weights = train_and_free(&t, &n);

    setenv("LOCPATH", folder, 1);
    assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
    char number[20];
    snprintf(number, sizeof number, "%.1f", 1.5);
    assert_string_equal(number, "1,5"); // it is in force
    snprintf(path, sizeof path, "%s/cache", folder);
    setenv("COTAN_CACHE_DIR", path, 1); // all is compiled anew
    setenv("COTAN_DUMP", "kernels,plan", 1);
    assert_true(ct_shutdown());
    float other = kernel_with_fractions();
    assert_memory_equal(&plain, &other, sizeof plain);
    assert_string_equal(plain_log, logged);
    unsetenv("COTAN_DUMP");
    assert_true(strlen(logged) > 1000 && !has_decimal_comma(logged));

    snprintf(t.metrics, sizeof t.metrics, "%s/metrics.jsonl", folder);
    snprintf(t.plot, sizeof t.plot, "%s/loss.svg", folder);
    char *weights = train(&t, &m);
    assert_true(n == m);
    assert_memory_equal(plain_weights, weights, n);
    assert_true(ct_lm_save(t.model, folder));
    ct_lm_free(t.model);
    const char *files[] = {"metrics.jsonl", "config.json"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        char *text = read_text(path);
        assert_true(strstr(text, "0.") && !has_decimal_comma(text));
        free(text);
    }
    char *svg = read_text(t.plot); // where commas part coordinates: none has a fraction behind one
    assert_true(strstr(svg, "<svg") && strchr(svg, '.'));
    for (const char *at = strstr(svg, "=\""); at; at = strstr(at + 1, "=\"")) {
        char *end;
        setlocale(LC_NUMERIC, "C");
        strtod(at + 2, &end);
        setlocale(LC_NUMERIC, "de_DE.UTF-8");
        assert_false(end > at + 2 && *end == ',' && end[1] >= '0' && end[1] <= '9');
    }
    free(svg);
    t.model = ct_lm_load(folder, .trainable = true); // config.json is read with a comma in force
    assert_non_null(t.model);
    ct_lm_free(t.model);

    ct_lm_config wrong = {.vocab = 1, .context = 1, .layers = 1, .heads = 1, .width = 1};
    wrong.dropout = 1.5;
    assert_null(ct_lm_new(&wrong, 1));
    assert_non_null(strstr(ct_error_text(), "dropout is 1.5, "));
    ct_error_clear();
    assert_string_equal(setlocale(LC_ALL, NULL), "de_DE.UTF-8"); // untouched
    snprintf(number, sizeof number, "%.1f", 1.5);
    assert_string_equal(number, "1,5");
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    unsetenv("COTAN_CACHE_DIR");
    remove_folder(folder);
    free(plain_log);
    free(plain_weights);
    free(weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_modes_change_nothing),
        cmocka_unit_test(plans_made_in_any_mode_are_equal),
        cmocka_unit_test(training_in_any_mode_gives_the_same_weights),
        cmocka_unit_test(schedules_are_the_same_in_any_mode),
        cmocka_unit_test(a_decimal_comma_changes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
