// Nodes that have a template (matmul, gather, scatters, scans, topk) on cpu against ref, with
// views, broadcasting, dynamic and empty axes; and the bits of a row alone and among others.
#include <math.h>
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
#include "ops/opcode.h"

static uint32_t seed;
static float uniform(void) { // in [-2, 2)
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 22) - 2.0f;
}
static int64_t count(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    return n;
}
static ct_tensor tensor(ct_ints dims) {
    int64_t n = count(dims);
    float *v = calloc((size_t)n + 1, sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = uniform();
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static ct_tensor ints(ct_ints dims, int below) { // in [-1, below]: some lie outside
    int64_t n = count(dims);
    int32_t *v = calloc((size_t)n + 1, sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (int32_t)((uniform() + 2) / 4 * (float)(below + 2)) - 1;
    ct_tensor t = ct_from(v, CT_I32, dims);
    free(v);
    return t;
}
static ct_tensor turned(ct_tensor t) { // the last two axes exchanged
    int rank = ct_rank(t);
    int64_t axes[CT_MAX_RANK];
    for (int i = 0; i < rank; i++) axes[i] = i;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    return ct_permute(t, ((ct_ints){rank, axes}));
}

// ------------------------------------------------------------------------------------------------
// one program on both devices

typedef ct_tensor (*program)(int variant);
typedef struct value {
    ct_dtype dtype;
    int64_t n;
    char *data;
} value;

static value on(const char *device, program f, int variant) {
    value v = {.data = NULL};
    assert_true(ct_set_device(device));
    seed = 42 + (uint32_t)variant; // fixed
    {
        CT_SCOPE;
        ct_tensor t = f(variant);
        if (!ct_eval(&t, 1)) fail_msg("%s, variant %d: %s", device, variant, ct_error_text());
        v.dtype = ct_dtype_of(t);
        v.n = ct_size(t);
        size_t bytes = (size_t)v.n * ct_dtype_size(v.dtype);
        v.data = malloc(bytes + 1);
        const void *data = ct_data(t);
        assert_true(data || !bytes);
        if (bytes) memcpy(v.data, data, bytes);
    }
    if (ct_failed()) fail_msg("%s, variant %d: %s", device, variant, ct_error_text());
    return v;
}

static void agree(program f, int variants, float tolerance) {
    for (int variant = 0; variant < variants; variant++) {
        value want = on("ref", f, variant), got = on("cpu", f, variant);
        assert_int_equal(want.n, got.n);
        assert_int_equal(want.dtype, got.dtype);
        for (int64_t i = 0; i < want.n; i++) {
            if (want.dtype != CT_F32) {
                assert_int_equal(((int32_t *)(void *)want.data)[i],
                                 ((int32_t *)(void *)got.data)[i]);
                continue;
            }
            float w = ((float *)(void *)want.data)[i], g = ((float *)(void *)got.data)[i];
            if (isnan(w) ? !isnan(g) : !(fabsf(g - w) <= tolerance * (1 + fabsf(w))))
                fail_msg("variant %d, element %lld: %.9g, should be %.9g", variant, (long long)i,
                         (double)g, (double)w);
        }
        free(want.data), free(got.data);
    }
}

// ------------------------------------------------------------------------------------------------

static ct_tensor matmuls(int variant) {
    switch (variant) {
    case 0: return ct_matmul(tensor(CT_DIMS(5, 300)), tensor(CT_DIMS(300, 33)));
    case 1: return ct_matmul(tensor(CT_DIMS(2, 3, 7, 40)), tensor(CT_DIMS(40, 19)));
    case 2: return ct_matmul(tensor(CT_DIMS(2, 3, 7, 40)), tensor(CT_DIMS(1, 1, 40, 19)));
    case 3: return ct_matmul(tensor(CT_DIMS(7, 40)), tensor(CT_DIMS(3, 40, 19)));
    case 4: return ct_matmul(tensor(CT_DIMS(2, 1, 7, 40)), tensor(CT_DIMS(3, 40, 19)));
    case 5: return ct_matmul(turned(tensor(CT_DIMS(270, 14))), tensor(CT_DIMS(270, 20)));
    case 6: return ct_matmul(tensor(CT_DIMS(14, 270)), turned(tensor(CT_DIMS(20, 270))));
    case 7: // heads: (B, T, H, D) seen as (B, H, T, D), and a row of heads joined again
        return ct_matmul(ct_permute(tensor(CT_DIMS(2, 9, 3, 32)), CT_AXES(0, 2, 1, 3)),
                         turned(ct_permute(tensor(CT_DIMS(2, 11, 3, 32)), CT_AXES(0, 2, 1, 3))));
    case 8:
        return ct_matmul(ct_reshape(ct_permute(tensor(CT_DIMS(2, 3, 9, 32)), CT_AXES(0, 2, 1, 3)),
                                    CT_DIMS(2, 9, 96)),
                         tensor(CT_DIMS(96, 50)));
    case 9: return ct_matmul(tensor(CT_DIMS(4, 0)), tensor(CT_DIMS(0, 5)));
    case 10: return ct_matmul(tensor(CT_DIMS(0, 4)), tensor(CT_DIMS(4, 5)));
    case 11: return ct_matmul(tensor(CT_DIMS(CT_DYN(6), 40)), tensor(CT_DIMS(40, 19)));
    case 12: return ct_matmul(tensor(CT_DIMS(3, 4, CT_DYN(9))), tensor(CT_DIMS(3, CT_DYN(9), 19)));
    case 13: return ct_matmul(tensor(CT_DIMS(2, CT_DYN(5), 40)), tensor(CT_DIMS(40, 19)));
    case 14: // what stands before and behind it may be fused
        return ct_tanh(ct_add(ct_matmul(ct_exp(tensor(CT_DIMS(9, 300))),
                                        ct_mul(tensor(CT_DIMS(300, 40)), ct_f(0.01))),
                              tensor(CT_DIMS(40))));
    case 15: // the second operand has no axis of 7, and the first is the same along it
        return ct_matmul(ct_expand(tensor(CT_DIMS(1, 3, 1, 1)), CT_DIMS(7, 3, 1, 1)),
                         tensor(CT_DIMS(3, 1, 2)));
    default: return ct_matmul(tensor(CT_DIMS(100, 64)), tensor(CT_DIMS(64, 1000)));
    }
}
static void matmul(void **state) {
    (void)state;
    agree(matmuls, 17, 2e-4f);
}

static ct_tensor gathers(int variant) {
    switch (variant) {
    case 0: return ct_gather(tensor(CT_DIMS(10, 40)), ints(CT_DIMS(3, 4), 10), .axis = 0);
    case 1: return ct_gather(tensor(CT_DIMS(5, 10, 7)), ints(CT_DIMS(6), 10), .axis = 1);
    case 2:
        return ct_gather(tensor(CT_DIMS(5, 3, 10, 2)), ints(CT_DIMS(5, 6), 10), .axis = 2,
                         .batch_dims = 1, .zero_outside = true);
    case 3: return ct_gather(turned(tensor(CT_DIMS(20, 30))), ints(CT_DIMS(9), 30), .axis = 0);
    case 4:
        return ct_gather(tensor(CT_DIMS(4, 50)), ints(CT_DIMS(4), 50), .axis = 1, .batch_dims = 1);
    case 5: return ct_gather(tensor(CT_DIMS(10, 4)), ints(CT_DIMS(CT_DYN(7)), 10), .axis = 0);
    default: return ct_gather(tensor(CT_DIMS(10, 4)), ints(CT_DIMS(0), 10), .axis = 0);
    }
}
static void gather(void **state) {
    (void)state;
    agree(gathers, 7, 0);
}

static ct_tensor scatters(int variant) {
    switch (variant) {
    case 0:
        return ct_scatter_add(tensor(CT_DIMS(10, 40)), ints(CT_DIMS(30), 10),
                              tensor(CT_DIMS(30, 40)), .axis = 0);
    case 1:
        return ct_scatter_add(ct_zeros(CT_F32, CT_DIMS(1000, 48)), ints(CT_DIMS(5, 6), 1000),
                              tensor(CT_DIMS(5, 6, 48)), .axis = 0);
    case 2:
        return ct_scatter_add(tensor(CT_DIMS(5, 3, 10, 2)), ints(CT_DIMS(5, 6), 10),
                              tensor(CT_DIMS(5, 3, 6, 2)), .axis = 2, .batch_dims = 1);
    case 3: // the updates are a view, what follows may be fused
        return ct_add(ct_scatter_add(tensor(CT_DIMS(10, 20)), ints(CT_DIMS(9), 10),
                                     turned(tensor(CT_DIMS(20, 9))), .axis = 0),
                      tensor(CT_DIMS(20)));
    case 4:
        return ct_scatter_add(tensor(CT_DIMS(10)), ints(CT_DIMS(200), 10), tensor(CT_DIMS(200)),
                              .axis = 0, .mode = CT_MODE_CLIP);
    case 5: // no index stands twice: in two launches
        return ct_scatter_add(tensor(CT_DIMS(10000, 2)), ct_iota(CT_I32, CT_DIMS(9000), 0),
                              tensor(CT_DIMS(9000, 2)), .unique = true);
    default: // indices of blocks are looked for
        return ct_scatter_add(tensor(CT_DIMS(CT_DYN(30000))),
                              ct_div(ct_iota(CT_I32, CT_DIMS(CT_DYN(20000)), 0), ct_i(3)),
                              tensor(CT_DIMS(CT_DYN(20000))), .sorted = true);
    }
}
static void scatter_add(void **state) {
    (void)state;
    agree(scatters, 7, 1e-5f);
}

static ct_tensor scans(int variant) {
    ct_tensor x = variant == 3 ? turned(tensor(CT_DIMS(30, 20))) : tensor(CT_DIMS(6, 30, 20));
    switch (variant) {
    case 0: return ct_cumsum(x, .axis = 0);
    case 1: return ct_cumsum(x, .axis = 1, .reverse = true);
    case 2: return ct_cumsum(x, .axis = -1);
    case 3: return ct_cumsum(ct_mul(x, x), .axis = 1);
    case 4: return ct_cumsum(tensor(CT_DIMS(20000)), .reverse = true); // in three launches
    case 5: return ct_cumsum(tensor(CT_DIMS(CT_DYN(3000), 3)));
    case 6: return ct_cumsum(tensor(CT_DIMS(70, 5, CT_DYN(40))), .axis = 1);
    case 7: return ct_cumsum(ct_cumsum(tensor(CT_DIMS(2, 9000)), .axis = 1), .axis = 0);
    default: return ct_cumsum(ints(CT_DIMS(40), 100), .axis = 0);
    }
}
static void cumsum(void **state) {
    (void)state;
    agree(scans, 9, 1e-4f);
}

static ct_tensor largest(int variant) {
    ct_tensor x = ct_round(ct_mul(tensor(CT_DIMS(7, 100)), ct_f(5))); // many equals
    if (variant & 4) x = turned(ct_reshape(x, CT_DIMS(100, 7)));
    ct_topk_out out = ct_topk(x, variant & 2 ? 100 : 9);
    return variant & 1 ? out.indices : out.values;
}
static void topk(void **state) {
    (void)state;
    agree(largest, 8, 0);
}

static ct_tensor orders(int variant) {
    ct_tensor x = ct_round(ct_mul(tensor(CT_DIMS(7, 100)), ct_f(5))); // many equals
    ct_tensor keys[2] = {x, ct_round(tensor(CT_DIMS(7, 100)))};
    switch (variant) {
    case 0: return ct_argsort(x, .axis = 1);
    case 1: return ct_argsort(x, .axis = 0, .descending = true);
    case 2: return ct_argsort(turned(x), .axis = -1);
    case 3: return ct_lexsort(keys, 2, 1, true);
    case 4: return ct_argsort(tensor(CT_DIMS(CT_DYN(5000))));
    case 5: return ct_sort(tensor(CT_DIMS(3, CT_DYN(1), 70)), .axis = 1);
    case 6: return ct_sort(ct_mul(tensor(CT_DIMS(3, 1025)), ct_f(2)), .axis = 1);
    case 7: return ct_searchsorted(ct_sort(tensor(CT_DIMS(3000))), tensor(CT_DIMS(4, 900)));
    case 8:
        return ct_searchsorted(ct_sort(tensor(CT_DIMS(2, CT_DYN(300))), .axis = 1),
                               tensor(CT_DIMS(2, CT_DYN(40))), .batch_dims = 1, .right = true);
    case 9: return ct_unique(x, .size = 40).values;
    case 10: return ct_unique(x, .size = 40).inverse;
    default: return ct_unique(x, .size = 9).counts;
    }
}
static void order(void **state) {
    (void)state;
    agree(orders, 12, 0);
}

// A row of a product has the same bits alone and among 64, whatever the order in memory.
static void a_row_alone(void **state) {
    (void)state;
    assert_true(ct_set_device("cpu"));
    for (int variant = 0; variant < 4; variant++) {
        CT_SCOPE;
        seed = 7;
        ct_tensor x = tensor(CT_DIMS(64, 600)), w = tensor(CT_DIMS(600, 70));
        if (variant & 1) x = turned(ct_reshape(x, CT_DIMS(600, 64)));
        if (variant & 2) w = turned(ct_reshape(w, CT_DIMS(70, 600)));
        ct_tensor all = ct_matmul(x, w);
        const float *many = ct_data(all);
        assert_non_null(many);
        for (int row = 0; row < 64; row += 21) {
            int32_t at[1] = {row};
            ct_tensor one = ct_gather(x, ct_from(at, CT_I32, CT_DIMS(1)), .axis = 0);
            const float *alone = ct_data(ct_matmul(one, w));
            assert_non_null(alone);
            assert_memory_equal(alone, many + row * 70, 70 * sizeof *alone);
        }
    }
    assert_false(ct_failed());
}

// Kinds look attributes up by what they mean: a field without its meaning would be read as 0.
static void kinds_find_their_attributes(void **state) {
    (void)state;
    static const struct {
        const ct_opdef *op;
        const char *name;
        ct_meaning means;
    } wanted[] = {
        {&ct__op_gather, "axis", CT_MEANS_axis},
        {&ct__op_gather, "batch_dims", CT_MEANS_leading},
        {&ct__op_scatter_add, "axis", CT_MEANS_axis},
        {&ct__op_scatter_add, "batch_dims", CT_MEANS_leading},
        {&ct__op_scatter_add, "mode", CT_MEANS_mode},
        {&ct__op_scatter_add, "unique", CT_MEANS_unique},
        {&ct__op_scatter_add, "sorted", CT_MEANS_sorted},
        {&ct__op_sum, "axes", CT_MEANS_axes},
        {&ct__op_argmax, "axis", CT_MEANS_axis},
        {&ct__op_cumsum, "axis", CT_MEANS_axis},
        {&ct__op_cumsum, "reverse", CT_MEANS_reverse},
        {&ct__op_argsort, "axis", CT_MEANS_axis},
        {&ct__op_argsort, "descending", CT_MEANS_reverse},
        {&ct__op_searchsorted, "right", CT_MEANS_reverse},
        {&ct__op_searchsorted, "batch_dims", CT_MEANS_leading},
        {&ct__op_topk, "k", CT_MEANS_count},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool found = false;
        for (size_t k = 0; k < wanted[i].op->n_fields; k++)
            found |= strcmp(wanted[i].op->fields[k].name, wanted[i].name) == 0 &&
                     wanted[i].op->fields[k].means == wanted[i].means;
        if (!found)
            fail_msg("%s has no attribute %s of the meaning that its kind reads",
                     wanted[i].op->name, wanted[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul),      cmocka_unit_test(gather),
        cmocka_unit_test(scatter_add), cmocka_unit_test(cumsum),
        cmocka_unit_test(topk),        cmocka_unit_test(order),
        cmocka_unit_test(a_row_alone), cmocka_unit_test(kinds_find_their_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
