// Products with one of several matrices of codes, for all rows or for each: the bits of a product with that matrix alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/quantise.h"

enum { MATRICES = 5, MOST = 21 };

static uint64_t seed;
static ct_tensor numbers(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((double)(seed >> 33) * 0x1p-30 - 1);
    }
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}

static ct_tensor at(ct_tensor x, int64_t i) { return ct_gather(x, ct_i(i)); }

// Row by row, each with its matrix alone.
static void check(int64_t layout, int64_t k, int64_t n, int64_t rows, bool dynamic) {
    CT_SCOPE;
    int32_t which[MOST];
    for (int64_t i = 0; i < rows; i++) which[i] = (int32_t)((i * 3 + 4) % MATRICES);
    ct_tensor x = numbers(CT_DIMS(rows, k));
    ct_quantise_out w = ct_quantise(numbers(CT_DIMS(MATRICES, n, k)), layout);
    ct_tensor in[3] = {x, w.codes, w.scales}, got[2];
    assert_true(ct_eval(in, 3));
    const int64_t m = dynamic ? CT_DYN(rows) : rows;
    ct_tensor own = ct_from(which, CT_I32, CT_DIMS(m)), all = ct_reshape(x, CT_DIMS(m, k));
    got[0] = ct__chosen_matmul(all, w.codes, w.scales, (ct_layout)layout, own, CT_HERE);
    got[1] = ct__chosen_matmul(all, w.codes, w.scales, (ct_layout)layout, ct_i(3), CT_HERE);
    if (!ct_eval(got, 2)) fail_msg("%s", ct_error_text());
    for (int each = 0; each < 2; each++)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t i = each ? 3 : which[r];
            ct_tensor want =
                ct_quantised_matmul(ct_slice(x, .start = CT_INTS(r), .stop = CT_INTS(r + 1)),
                                    at(w.codes, i), at(w.scales, i), layout);
            if (!ct_eval(&want, 1)) fail_msg("%s", ct_error_text());
            const float *a = (const float *)ct_data(got[each]) + r * n, *b = ct_data(want);
            for (int64_t j = 0; j < n; j++)
                if (memcmp(&a[j], &b[j], sizeof *a) != 0)
                    fail_msg("layout %d, K %d, N %d, row %d of %d times matrix %d: column %d is "
                             "%a, not %a",
                             (int)layout, (int)k, (int)n, (int)r, (int)rows, (int)i, (int)j,
                             (double)a[j], (double)b[j]);
        }
}

static void rows_meet_their_matrices(void **state) {
    (void)state;
    static const int64_t layouts[] = {CT_LAYOUT_INT4_32 | CT_LAYOUT_INTERLEAVED,
                                      CT_LAYOUT_INT8_32 | CT_LAYOUT_INTERLEAVED, CT_LAYOUT_INT4_32,
                                      CT_LAYOUT_INT8_16, CT_LAYOUT_MXFP4},
                         rows[] = {1, 2, 7, MOST}, inner[] = {256, 160}; // 160: no kernel's steps
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int i = (int)l % 3; i < 16;
             i += getenv("COTAN_TEST_ALL") ? 1 : 3) { // each is a kernel
            seed = (uint64_t)i + 1;
            check(layouts[l], inner[i / 2 % 2], i % 2 ? 80 : 32, rows[i / 4], i % 3 != 0);
        }
}

static ct_ctx *context;
static int on(const char *device) {
    context = ct_ctx_new();
    ct_ctx_use(context);
    return ct_set_device(device) ? 0 : -1;
}
static int on_cpu(void **state) { return (void)state, on("cpu"); }
static int on_ref(void **state) { return (void)state, on("ref"); }
static int end(void **state) {
    (void)state;
    ct_ctx_use(NULL);
    ct_ctx_free(context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_meet_their_matrices, on_cpu, end),
        cmocka_unit_test_setup_teardown(rows_meet_their_matrices, on_ref, end),
    };
    return cmocka_run_group_tests_name("chosen product", tests, NULL, NULL);
}
