// Where values lie and which kernels serve: dynamic sizes without new kernels, assignments in
// place, equal kernels shared, the same program twice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"
#include "graph/type.h"

enum { MOST = 4096, TEXT = 1 << 20 };
static char text[TEXT]; // the kernels of the last plans, without the lines that count launches
static size_t text_n;

static void take_kernels(ct_log_kind kind, const char *s, void *user) {
    (void)user;
    if (kind != CT_LOG_DUMP) return;
    while (*s) {
        size_t n = strcspn(s, "\n") + (strchr(s, '\n') != NULL);
        if (strncmp(s, "// kernel", 9) != 0 && text_n + n < TEXT) {
            memcpy(text + text_n, s, n);
            text_n += n;
        }
        s += n;
    }
    text[text_n] = 0;
}

static float value_at(int64_t i) { return (float)((i * 37 + 11) % 101) / 50.0f - 1.0f; }
static ct_tensor tensor(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    float *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; i < n; i++) v[i] = value_at(i);
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}

// ------------------------------------------------------------------------------------------------
// dynamic sizes

typedef ct_tensor (*program)(int64_t n);

static ct_tensor softmax_rows(int64_t n) { // (n, 33)
    ct_tensor x = tensor(CT_DIMS(CT_DYN(n), 33));
    ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = CT_AXES(1), .keepdims = true)));
    return ct_div(e, ct_sum(e, .axes = CT_AXES(1), .keepdims = true));
}
static ct_tensor softmax_inner(int64_t n) { // (3, 5, n)
    ct_tensor x = tensor(CT_DIMS(3, 5, CT_DYN(n)));
    ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = CT_AXES(2), .keepdims = true)));
    return ct_div(e, ct_sum(e, .axes = CT_AXES(2), .keepdims = true));
}
static ct_tensor heads(int64_t n) { // (2, n, 32) as (2, n, 4, 8), turned, and back
    ct_tensor x = tensor(CT_DIMS(2, CT_DYN(n), 32));
    ct_tensor h = ct_permute(ct_reshape(x, CT_DIMS(2, CT_DYN(n), 4, 8)), CT_DIMS(0, 2, 1, 3));
    ct_tensor s = ct_matmul(h, ct_permute(h, CT_DIMS(0, 1, 3, 2))); // (2, 4, n, n)
    ct_tensor o = ct_permute(ct_matmul(ct_tanh(s), h), CT_DIMS(0, 2, 1, 3));
    return ct_add(ct_reshape(o, CT_DIMS(2, CT_DYN(n), 32)), x);
}
static ct_tensor columns(int64_t n) {
    return ct_sum(ct_mul(tensor(CT_DIMS(CT_DYN(n), 40)), ct_f(0.5)), .axes = CT_AXES(0));
}
static ct_tensor flat(int64_t n) {
    ct_tensor x = tensor(CT_DIMS(3, CT_DYN(n), 16));
    return ct_add(ct_reshape(x, CT_DIMS(-1, 16)), tensor(CT_DIMS(16)));
}
static ct_tensor total(int64_t n) { return ct_sum(tensor(CT_DIMS(CT_DYN(n), 7))); }

static int64_t run(program f, int64_t n, const char *device, float *out) {
    if (!ct_set_device(device)) fail_msg("%s", ct_error_text());
    ct_set_log(take_kernels, NULL);
    text_n = 0;
    CT_SCOPE;
    ct_tensor t = f(n);
    const float *data = ct_data(t);
    if (!data) fail_msg("%s", ct_error_text());
    int64_t count = ct_size(t);
    assert_true(count <= MOST);
    memcpy(out, data, (size_t)count * sizeof *out);
    return count;
}

static void lengths(program f) {
    static const int64_t length[] = {9, 10, 1, 16, 17, 31};
    static float want[MOST], got[MOST];
    char *first = NULL;
    for (int i = 0; i < 6; i++) {
        int64_t n = run(f, length[i], "ref", want);
        setenv("COTAN_DUMP", "kernels", 1);
        assert_int_equal(run(f, length[i], "cpu", got), n);
        unsetenv("COTAN_DUMP");
        for (int64_t k = 0; k < n; k++)
            if (!(got[k] - want[k] < 1e-4f && want[k] - got[k] < 1e-4f))
                fail_msg("length %lld, element %lld: %.9g, ref has %.9g", (long long)length[i],
                         (long long)k, (double)got[k], (double)want[k]);
        assert_true(text_n > 0);
        if (!first)
            first = strdup(text);
        else
            assert_string_equal(text, first); // the same kernels
    }
    free(first);
}
#define LENGTHS(f)                                                                                 \
    static void lengths_##f(void **state) {                                                        \
        (void)state;                                                                               \
        lengths(f);                                                                                \
    }
LENGTHS(softmax_rows)
LENGTHS(softmax_inner)
LENGTHS(heads)
LENGTHS(columns)
LENGTHS(flat)
LENGTHS(total)

// ------------------------------------------------------------------------------------------------
// assignments

enum { N = 50 };
static void step_swap(ct_tensor a, ct_tensor b) { // each wants the other's old value
    ct_tensor next = ct_add(b, ct_f(1));
    ct_assign(b, ct_mul(a, ct_f(0.5)));
    ct_assign(a, next);
}
static void step_flip(ct_tensor a, ct_tensor b) { // reads elsewhere than it writes
    ct_assign(a, ct_add(ct_flip(a, CT_AXES(0)), b));
}
static void step_sum(ct_tensor a, ct_tensor b) { // each element wants all
    ct_assign(a, ct_sub(a, ct_mul(ct_sum(a), ct_f(0.01))));
    ct_assign(b, ct_add(b, a));
}
static void step_plain_swap(ct_tensor a, ct_tensor b) {
    ct_tensor old_a = ct_reshape(a, CT_DIMS(N)), old_b = ct_reshape(b, CT_DIMS(N));
    ct_assign(a, old_b);
    ct_assign(b, old_a);
}
static void step_twice(ct_tensor a, ct_tensor b) { // one value for two variables
    ct_tensor v = ct_add(ct_mul(a, ct_f(0.9)), ct_mul(b, b));
    ct_assign(a, v);
    ct_assign(b, v);
}
static void step_shift(ct_tensor a, ct_tensor b) {
    ct_tensor low = ct_slice(a, .start = CT_AXES(0), .stop = CT_AXES(N - 1));
    ct_assign(a,
              ct_concat(((ct_tensor[]){ct_slice(b, .start = CT_AXES(0), .stop = CT_AXES(1)), low}),
                        2, 0));
}

static void steps(void (*step)(ct_tensor, ct_tensor), const char *device, float *out) {
    if (!ct_set_device(device)) fail_msg("%s", ct_error_text());
    ct_params *set = ct_params_new();
    ct_tensor a = ct_param(set, "a", CT_F32, CT_DIMS(N)),
              b = ct_param(set, "b", CT_F32, CT_DIMS(N));
    {
        CT_SCOPE;
        ct_assign(a, tensor(CT_DIMS(N)));
        ct_assign(b, ct_mul(tensor(CT_DIMS(N)), ct_f(0.25)));
    }
    for (int i = 0; i < 3; i++) {
        CT_SCOPE;
        step(a, b);
    }
    {
        CT_SCOPE;
        const float *x = ct_data(a), *y = ct_data(b);
        if (!x || !y) fail_msg("%s", ct_error_text());
        memcpy(out, x, N * sizeof *x);
        memcpy(out + N, y, N * sizeof *y);
    }
    ct_params_free(set);
    if (ct_failed()) fail_msg("%s", ct_error_text());
}
static void assigned(void (*step)(ct_tensor, ct_tensor)) {
    float want[2 * N], got[2 * N];
    steps(step, "ref", want);
    for (int fuse = 0; fuse < 2; fuse++) {
        setenv("COTAN_FUSE", fuse ? "1" : "0", 1);
        steps(step, "cpu", got);
        for (int i = 0; i < 2 * N; i++)
            if (!(got[i] - want[i] < 1e-5f && want[i] - got[i] < 1e-5f))
                fail_msg("element %d: %.9g, ref has %.9g", i, (double)got[i], (double)want[i]);
    }
}
#define ASSIGNED(f)                                                                                \
    static void assigned_##f(void **state) {                                                       \
        (void)state;                                                                               \
        assigned(step_##f);                                                                        \
    }
ASSIGNED(swap)
ASSIGNED(flip)
ASSIGNED(sum)
ASSIGNED(plain_swap)
ASSIGNED(twice)
ASSIGNED(shift)

// An update of each element from itself needs neither a buffer nor a copy.
static void updates_lie_in_place(void **state) {
    (void)state;
    setenv("COTAN_FUSE", "1", 1);
    assert_true(ct_set_device("cpu"));
    ct_params *set = ct_params_new();
    ct_tensor a = ct_param(set, "a", CT_F32, CT_DIMS(N));
    {
        CT_SCOPE;
        ct_assign(a, tensor(CT_DIMS(N)));
    }
    ct_stats before = ct_get_stats();
    {
        CT_SCOPE;
        ct_assign(a, ct_sub(a, ct_mul(a, ct_f(0.1))));
    }
    ct_stats after = ct_get_stats();
    assert_false(ct_failed());
    assert_int_equal(after.launches - before.launches, 1);
    assert_int_equal(after.arena_bytes, before.arena_bytes);
    ct_params_free(set);
}

// Equal updates of several tensors are one kernel, launched for each.
static ct_tensor three_alike(int64_t n) {
    ct_tensor x = tensor(CT_DIMS(n)), y = ct_tanh(x);
    ct_tensor a = ct_sum(ct_mul(ct_exp(x), ct_f(2))), b = ct_sum(ct_mul(ct_exp(y), ct_f(2)));
    return ct_add(a, b);
}
static size_t functions_of(program f, int64_t n, float *out, int64_t *count) {
    size_t functions = 0;
    setenv("COTAN_DUMP", "kernels", 1);
    *count = run(f, n, "cpu", out);
    unsetenv("COTAN_DUMP");
    for (const char *p = text; (p = strstr(p, "void k_")); p++) functions++;
    return functions;
}
static void equal_kernels_are_one(void **state) {
    (void)state;
    static float out[MOST];
    int64_t count;
    setenv("COTAN_FUSE", "0", 1);
    size_t functions = functions_of(three_alike, 300, out, &count);
    assert_int_equal(functions, 5); // tanh, exp, times 2, sum, add
    setenv("COTAN_DUMP", "kernels", 1);
    char *once = strdup(text);
    run(three_alike, 300, "cpu", out);
    assert_string_equal(text, once); // the same program, whatever the addresses
    free(once);
    setenv("COTAN_FUSE", "1", 1);
    unsetenv("COTAN_DUMP");
}

// Layers whose weights are slices of one tensor, which lie at other places of it.
static ct_tensor layer_of(ct_tensor x, int64_t i) {
    return ct_slice(x, .axes = CT_AXES(0), .start = CT_AXES(i), .stop = CT_AXES(i + 1));
}
static ct_tensor stacked_layers(int64_t layers) {
    enum { W = 24 };
    ct_tensor w = tensor(CT_DIMS(layers, W, W)), b = tensor(CT_DIMS(layers, W));
    ct_tensor x = tensor(CT_DIMS(7, W)); // (7, W)
    for (int64_t i = 0; i < layers; i++) {
        ct_tensor wi = ct_reshape(layer_of(w, i), CT_DIMS(W, W));
        x = ct_softmax(ct_add(ct_matmul(x, wi), layer_of(b, i)), CT_AXES(0)); // (7, W)
    }
    return x;
}
// Several places of one tensor in one kernel, some before the first, reversed, and with a margin.
static ct_tensor places(int64_t first) {
    ct_tensor x = tensor(CT_DIMS(64)), y = ct_f(0);
    const int64_t ahead[] = {first, first + 3, first - 5, first + 1};
    for (int i = 0; i < 4; i++) {
        ct_tensor part = ct_slice(x, .start = CT_AXES(ahead[i]), .stop = CT_AXES(ahead[i] + 20));
        y = ct_sub(ct_mul(y, ct_f(0.5)), i == 3 ? ct_flip(part, CT_AXES(0)) : part); // (20)
    }
    ct_tensor margin = ct_slice(ct_pad(x, ct_f(2), .low = CT_AXES(9), .high = CT_AXES(9)),
                                .start = CT_AXES(first), .stop = CT_AXES(first + 20));
    return ct_add(y, margin); // (20)
}
static size_t compared(program f, int64_t n) {
    static float want[MOST], got[MOST];
    int64_t count;
    const size_t functions = functions_of(f, n, got, &count);
    assert_int_equal(run(f, n, "ref", want), count);
    for (int64_t i = 0; i < count; i++)
        if (!(got[i] - want[i] < 1e-5f && want[i] - got[i] < 1e-5f))
            fail_msg("%lld, element %lld: %.9g, ref has %.9g", (long long)n, (long long)i,
                     (double)got[i], (double)want[i]);
    return functions;
}
static void layers_of_one_tensor_share_kernels(void **state) {
    (void)state;
    size_t few = compared(stacked_layers, 3);
    assert_int_equal(few, 2); // product and softmax
    assert_int_equal(compared(stacked_layers, 12), few);
}
static void a_kernel_reads_several_places(void **state) {
    (void)state;
    for (int64_t first = 5; first < 40; first += 7) compared(places, first);
}

#define T(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(lengths_softmax_rows),
        T(lengths_softmax_inner),
        T(lengths_heads),
        T(lengths_columns),
        T(lengths_flat),
        T(lengths_total),
        T(assigned_swap),
        T(assigned_flip),
        T(assigned_sum),
        T(assigned_plain_swap),
        T(assigned_twice),
        T(assigned_shift),
        T(updates_lie_in_place),
        T(equal_kernels_are_one),
        T(layers_of_one_tensor_share_kernels),
        T(a_kernel_reads_several_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
