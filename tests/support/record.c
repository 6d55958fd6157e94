#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support/record.h"

char record_log[1 << 16];
static ct_ctx *before;

static void note(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)user;
    size_t n = strlen(record_log), m = strlen(text);
    if (n + m + 2 > sizeof record_log) return;
    memcpy(record_log + n, text, m);
    memcpy(record_log + n + m, "\n", 2);
}

int record_begin(void **state) {
    ct_ctx *ctx = ct_ctx_new();
    if (!ctx) return 1;
    before = ct_ctx_use(ctx);
    *state = ctx;
    record_log[0] = '\0';
    ct_set_log(note, NULL);
    unsetenv("COTAN_EXPLAIN");
    return ct_set_device("ref") ? 0 : 1;
}
int record_end(void **state) {
    ct_ctx_free(*state);
    ct_ctx_use(before);
    unsetenv("COTAN_EXPLAIN");
    return 0;
}
void record_forget(void) { record_log[0] = '\0'; }

uint64_t plans_made(void) { return ct_get_stats().plans_made; }
uint64_t plans_run(void) { return ct_get_stats().plans_run; }

ct_tensor vec(int n, const double *values) {
    float f[64];
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) f[i] = (float)values[i];
    return ct_from(f, CT_F32, CT_DIMS(n));
}
ct_tensor line_of(int n) {
    double v[64];
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) v[i] = i + 1;
    return vec(n, v);
}
ct_tensor set_var(ct_params *set, const char *name, double value) {
    ct_tensor var = ct_param(set, name, CT_F32, CT_DIMS(2));
    ct_assign(var, vec(2, (double[]){value, value}));
    return var;
}
double at(ct_tensor t, int i) {
    const float *data = ct_data(t);
    if (!data) fail_msg("no data: %s", ct_error_text());
    return (double)data[i];
}
bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}
