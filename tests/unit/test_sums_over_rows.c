// Sums over the rows of matrices, alone and in the kernels of what is computed along the rows: their
// bits are those of the rule in docs/design/bits.md, stated here once more, and they move little.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/cotan.h"

enum { WIDE = 1100, MOST_ROWS = 2500, BLOCK = 1024 };

static uint64_t seed = 7;
static float element(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (seed >> 58 < 4) return -0.0f;
    return (float)((double)(seed >> 11) * 0x1p-53 * 2 - 1);
}
static float *numbers(int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = element();
    return x;
}

static float block(const float *x, int64_t n, int64_t step) {
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += x[i * step];
    for (int h = 8; h; h /= 2)
        for (int j = 0; j < h; j++) lane[j] += lane[j + h];
    return lane[0];
}
static float by_rule(const float *x, int64_t n, int64_t step) {
    float results[BLOCK];
    int64_t blocks = 0;
    for (int64_t i = 0; i < n; i += BLOCK)
        results[blocks++] = block(x + i * step, n - i < BLOCK ? n - i : BLOCK, step);
    return blocks == 1 ? results[0] : block(results, blocks, 1);
}

// x (rows, WIDE): its sum and mean over the rows, and where `stores` its double, too.
static void check(int64_t rows, bool stores) {
    CT_SCOPE;
    float *x = numbers(rows * WIDE);
    ct_tensor t = ct_from(x, CT_F32, CT_DIMS(rows, WIDE)), twice = ct_mul(t, ct_f(2));
    ct_tensor out[3] = {ct_sum(stores ? twice : t, .axes = CT_AXES(0))};
    out[1] = stores ? twice : ct_mean(t, .axes = CT_AXES(0));
    assert_true(ct_eval(out, 2));
    const float *sum = ct_data(out[0]), *other = ct_data(out[1]);
    assert_non_null(sum);
    assert_non_null(other);
    for (int64_t i = 0; i < rows * WIDE && stores; i++) assert_true(other[i] == 2 * x[i]);
    for (int c = 0; c < WIDE; c++) {
        const float want = by_rule(x + c, rows, WIDE);
        if (memcmp(&(float){stores ? 2 * want : want}, &sum[c], sizeof want) != 0)
            fail_msg("%d rows, column %d: %.9g, the rule says %.9g", (int)rows, c, sum[c], want);
        if (!stores) assert_true(other[c] == want / (float)rows);
    }
    free(x);
}

static void sums_follow_the_rule(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        ct_set_threads(threads);
        const int64_t rows[] = {256, 1000, 1024, 1031, MOST_ROWS};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            check(rows[i], false);
            check(rows[i], true);
        }
    }
    ct_set_threads(0);
}

// More sums beside a norm's rows than a kernel's loop takes at a time, and other results before them.
static void many_sums_are_all_there(void **state) {
    enum { RESULTS = 70, DOWN = 1100, ACROSS = 96 };
    static float plain[RESULTS][ACROSS];
    float *x = numbers((size_t)DOWN * ACROSS);
    (void)state;
    for (int stored = 0; stored < 2; stored++)
        for (int fused = 0; fused < 2; fused++) {
            setenv("COTAN_FUSE", fused ? "1" : "0", 1);
            CT_SCOPE;
            ct_tensor p = ct_softmax(ct_from(x, CT_F32, CT_DIMS(DOWN, ACROSS))), out[RESULTS];
            for (int i = 0; i < RESULTS; i++) {
                out[i] = ct_mul(p, ct_f(i + 1));
                if (!stored || i == RESULTS - 1) out[i] = ct_sum(out[i], .axes = CT_AXES(0));
            }
            assert_true(ct_eval(out, RESULTS));
            for (int i = stored ? RESULTS - 1 : 0; i < RESULTS; i++) {
                const float *sum = ct_data(out[i]);
                if (fused) assert_memory_equal(sum, plain[i], sizeof plain[i]);
                memcpy(plain[i], sum, sizeof plain[i]);
            }
        }
    free(x);
}

// ------------------------------------------------------------------------- gradients along the rows

// Bytes that the first `launches` of the newest plan read and write, over those of (rows, columns).
static double matrices_moved(size_t launches, int64_t rows, int64_t columns) {
    const ct_plan_cost *plan = ct_latest_plan();
    double bytes = 0;
    assert_non_null(plan);
    assert_true(launches <= plan->n_launches);
    for (size_t i = 0; i < launches; i++) bytes += (double)plan->launches[i].bytes;
    return bytes / ((double)(rows * columns) * sizeof(float));
}

enum { ROWS = 1100, COLUMNS = 96 };

// Sums over the rows in double precision: of c, and of c times x normalised.
static void columns_of(const float *x, const float *c, bool centred, double *even, double *along) {
    memset(even, 0, COLUMNS * sizeof *even);
    memset(along, 0, COLUMNS * sizeof *along);
    for (int i = 0; i < ROWS; i++, x += COLUMNS, c += COLUMNS) {
        double mean = 0, square = 0;
        for (int k = 0; k < COLUMNS && centred; k++) mean += x[k] / (double)COLUMNS;
        for (int k = 0; k < COLUMNS; k++) square += (x[k] - mean) * (x[k] - mean) / COLUMNS;
        for (int k = 0; k < COLUMNS; k++) {
            even[k] += c[k];
            along[k] += c[k] * (x[k] - mean) / sqrt(square + 1e-5);
        }
    }
}

static void norms(bool centred, const char *fuse, float *grads) {
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    seed = 11;
    float *x = numbers(ROWS * COLUMNS), *c = numbers(ROWS * COLUMNS), *w = numbers(COLUMNS);
    double even[COLUMNS], along[COLUMNS];
    columns_of(x, c, centred, even, along);
    ct_tensor in[3] = {ct_from(x, CT_F32, CT_DIMS(ROWS, COLUMNS)),
                       ct_from(w, CT_F32, CT_DIMS(COLUMNS)), ct_from(w, CT_F32, CT_DIMS(COLUMNS))};
    ct_tensor y = centred ? ct_layer_norm(in[0], in[1], in[2]) : ct_rms_norm(in[0], in[1]), g[3];
    const size_t n = centred ? 3 : 2;
    ct_grad(ct_sum(ct_mul(y, ct_from(c, CT_F32, CT_DIMS(ROWS, COLUMNS)))), in, n, g);
    assert_true(ct_eval(g, n));
    if (*fuse == '1') {
        assert_int_equal(ct_latest_plan()->n_launches, 2); // the rows, and a fold of accumulators
        assert_true(matrices_moved(2, ROWS, COLUMNS) < 1.2 * 3);
    }
    const float *dw = ct_data(g[1]), *db = centred ? ct_data(g[2]) : NULL;
    for (int k = 0; k < COLUMNS; k++) {
        assert_true(fabs(dw[k] - along[k]) < 1e-4 * ROWS / 10);
        if (db) assert_true(fabs(db[k] - even[k]) < 1e-4 * ROWS / 10);
    }
    memcpy(grads, ct_data(g[0]), ROWS * COLUMNS * sizeof *grads);
    memcpy(grads + ROWS * COLUMNS, dw, COLUMNS * sizeof *grads);
    if (db) memcpy(grads + (ROWS + 1) * COLUMNS, db, COLUMNS * sizeof *grads);
    free(x);
    free(c);
    free(w);
}

static void gradients_of_norms_read_once(void **state) {
    static float plain[(ROWS + 2) * COLUMNS], fused[(ROWS + 2) * COLUMNS];
    (void)state;
    ct_set_threads(2); // accumulators are tasks: what shares a kernel depends on the cores
    for (int centred = 0; centred < 2; centred++) {
        norms(centred, "0", plain);
        norms(centred, "1", fused);
        assert_memory_equal(plain, fused, sizeof plain);
    }
    ct_set_threads(0);
}

// Gradients of weights come behind the chain of those of activations, through 24 norms, and find the
// kernels of their norms.
static void sums_find_the_rows_of_their_norm(void **state) {
    (void)state;
    CT_SCOPE;
    enum { NORMS = 24 };
    assert_true(ct_set_device("cpu"));
    ct_set_threads(2);
    float *x = numbers(ROWS * COLUMNS), *w = numbers(COLUMNS);
    ct_tensor in[1 + NORMS], g[1 + NORMS];
    in[0] = ct_from(x, CT_F32, CT_DIMS(ROWS, COLUMNS));
    ct_tensor y = in[0], turn = ct_from(x, CT_F32, CT_DIMS(COLUMNS, COLUMNS));
    for (int i = 1; i <= NORMS; i++) {
        in[i] = ct_from(w, CT_F32, CT_DIMS(COLUMNS));
        y = ct_matmul(ct_rms_norm(y, in[i]), turn); // a launch of its own between them
    }
    ct_grad(ct_sum(ct_mul(y, y)), in, 1 + NORMS, g);
    assert_true(ct_eval(g, 1 + NORMS));
    // Norm and product read and write a matrix each; then a product, and the norm reads two for one.
    assert_true(matrices_moved(ct_latest_plan()->n_launches, ROWS, COLUMNS) < NORMS * 9.5);
    ct_set_threads(0);
    free(x);
    free(w);
}

// The second launch adds up what each row has at its target.
static void cross_entropies_read_once(void **state) {
    (void)state;
    CT_SCOPE;
    enum { CLASSES = 1000 };
    int32_t targets[ROWS];
    float *x = numbers(ROWS * CLASSES);
    for (int i = 0; i < ROWS; i++) targets[i] = i * 37 % CLASSES;
    ct_tensor logits = ct_from(x, CT_F32, CT_DIMS(ROWS, CLASSES));
    ct_tensor at = ct_from(targets, CT_I32, CT_DIMS(ROWS)), out[2];
    out[0] = ct_cross_entropy(logits, at);
    assert_true(ct_eval(out, 1));
    assert_true(matrices_moved(1, ROWS, CLASSES) < 1.2);
    out[0] = ct_cross_entropy(logits, at);
    ct_grad(out[0], &logits, 1, &out[1]);
    assert_true(ct_eval(out, 2));
    assert_true(matrices_moved(1, ROWS, CLASSES) < 1.2 * 2);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_the_rule),
        cmocka_unit_test(many_sums_are_all_there),
        cmocka_unit_test(gradients_of_norms_read_once),
        cmocka_unit_test(sums_find_the_rows_of_their_norm),
        cmocka_unit_test(cross_entropies_read_once),
    };
    return cmocka_run_group_tests_name("sums over rows", tests, NULL, NULL);
}
