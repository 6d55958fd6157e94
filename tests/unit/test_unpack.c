// src/io/unpack: quantised weights of MLX, DeepSeek and gpt-oss against what mlx and transformers make of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/unpack.h"

#define MODELS "tests/data/models/"

static const ct_weight *part(const ct_weights *w, const char *name, const char *end) {
    char whole[80];
    snprintf(whole, sizeof whole, "%s%s", name, end);
    const ct_weight *found = ct__weights_find(w, whole);
    if (!found) fail_msg("%s", whole);
    return found;
}

static void mlx(void **state) {
    (void)state;
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    ct_err err = {0};
    ct_weights w;
    float numbers[256];
    char name[40];
    size_t seen = 0;
    assert_true(ct__weights_open(MODELS "mlx.safetensors", &w, &err));
    for (int bits = 2; bits <= 8; bits++)
        for (int group = 32; group <= 128; group *= 2)
            for (int d = 0; d < 3; d++) {
                snprintf(name, sizeof name, "%d.%d.%s", bits, group, dtypes[d]);
                if (!ct__weights_find(&w, name)) continue;
                const ct_weight *want = part(&w, name, ".f32");
                assert_true(ct__unpack_mlx(part(&w, name, ""), part(&w, name, ".scales"),
                                           part(&w, name, ".biases"), bits, group, numbers, 256,
                                           &err));
                assert_memory_equal(numbers, want->data, sizeof numbers);
                seen++;
            }
    assert_int_equal(seen, 18);
    assert_int_equal(w.n, 4 * seen);
    ct__weights_close(&w);
}

static void published(void **state) {
    (void)state;
    static const char *const scales[] = {"f32", "bf16", "u8"};
    static const struct {
        const char *name;
        int64_t rows, columns;
        size_t count;
    } known[] = {{"e4m3", 4, 4, 96}, {"e5m2", 2, 6, 48}, {"whole", 128, 128, 15}};
    ct_err err = {0};
    ct_weights w;
    float numbers[384];
    char name[40];
    assert_true(ct__weights_open(MODELS "quantised.safetensors", &w, &err));
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < 3; s++) {
            snprintf(name, sizeof name, "%s.%s", known[k].name, scales[s]);
            const ct_weight *want = part(&w, name, ".f32");
            assert_true(ct__unpack_fp8(part(&w, name, ""), part(&w, name, ".scales"), known[k].rows,
                                       known[k].columns, numbers, known[k].count, &err));
            assert_int_equal(want->bytes, known[k].count * sizeof *numbers);
            assert_memory_equal(numbers, want->data, want->bytes);
        }
    const ct_weight *want = part(&w, "mxfp4", ".f32");
    assert_int_equal(want->bytes, sizeof numbers);
    assert_true(
        ct__unpack_mxfp4(part(&w, "mxfp4", ""), part(&w, "mxfp4", ".scales"), numbers, 384, &err));
    assert_memory_equal(numbers, want->data, want->bytes);
    ct__weights_close(&w);
}

// Blocks that the matrix does not fill, and exponents as floats of 8 bits.
static void blocks_at_the_edge(void **state) {
    (void)state;
    ct_err err = {0};
    float numbers[15];
    uint8_t ones[15];
    memset(ones, 0x38, sizeof ones); // 1
    const ct_weight codes = {
        .name = "w", .dtype = CT_F8E4M3, .rank = 2, .dim = {3, 5}, .data = ones, .path = "m"};
    const ct_weight scales = {.name = "s",
                              .rank = 2,
                              .dim = {2, 3},
                              .data = "\x7f\x80\x81\x82\x83\xff",
                              .kind = "F8_E8M0",
                              .path = "m"};
    assert_true(ct__unpack_fp8(&codes, &scales, 2, 2, numbers, 15, &err));
    for (int i = 0; i < 15; i++) {
        int scale = i / 10 * 3 + i % 5 / 2;
        if (scale == 5)
            assert_true(isnan(numbers[i]));
        else
            assert_true(numbers[i] == ldexpf(1, scale));
    }
}

static void what_does_not_go_together(void **state) {
    (void)state;
    ct_err err;
    float to[64];
    const ct_weight codes = {
        .name = "w", .dtype = CT_U32, .rank = 2, .dim = {1, 8}, .path = "m", .kind = "U32"};
    const ct_weight scales = {
        .name = "s", .dtype = CT_F16, .rank = 2, .dim = {1, 1}, .path = "m", .kind = "F16"};
    const ct_weight other = {
        .name = "b", .dtype = CT_F16, .rank = 2, .dim = {1, 2}, .path = "m", .kind = "F16"};
    const ct_weight huge = {
        .name = "h", .dtype = CT_F8E4M3, .rank = 2, .dim = {INT64_MAX, 0}, .path = "m"};
    const ct_weight none = {
        .name = "s", .dtype = CT_F32, .rank = 2, .dim = {1, 0}, .path = "m", .kind = "F32"};
    const ct_weight bytes = {
        .name = "x", .dtype = CT_U8, .rank = 2, .dim = {1, 8}, .path = "m", .kind = "U8"};
#define FAILS(call, said)                                                                          \
    do {                                                                                           \
        err = (ct_err){0};                                                                         \
        assert_false(call);                                                                        \
        assert_string_equal(err.text, "m: tensor " said);                                          \
    } while (0)
    FAILS(ct__unpack_mlx(&codes, &scales, &scales, 7, 64, to, 64, &err),
          "\"w\": 7 bits in groups of 64 are none of mlx's");
    FAILS(ct__unpack_mlx(&codes, &scales, &scales, 4, 16, to, 64, &err),
          "\"w\": 4 bits in groups of 16 are none of mlx's");
    FAILS(ct__unpack_mlx(&codes, &other, &other, 4, 64, to, 64, &err),
          "\"w\": (1, 8) u32 does not go with the scales (1, 2) f16");
    FAILS(ct__unpack_mlx(&bytes, &scales, &scales, 4, 64, to, 64, &err),
          "\"x\": (1, 8) u8 does not go with the scales (1, 1) f16");
    FAILS(ct__unpack_mlx(&codes, &scales, &other, 4, 64, to, 64, &err),
          "\"s\": (1, 1) f16 does not go with the biases (1, 2) f16");
    FAILS(ct__unpack_mlx(&codes, &scales, &scales, 4, 64, to, 63, &err),
          "\"w\": (1, 8) u32 represents 64 numbers, not 63");
    FAILS(ct__unpack_fp8(&codes, &scales, 128, 128, to, 8, &err),
          "\"w\": (1, 8) u32 does not go with the scales (1, 1) f16");
    FAILS(ct__unpack_fp8(&huge, &other, 128, 128, to, 0, &err),
          "\"h\": (9223372036854775807, 0) f8e4m3 does not go with the scales (1, 2) f16");
    FAILS(ct__unpack_fp8(&huge, &other, 0, 0, to, 0, &err),
          "\"h\": (9223372036854775807, 0) f8e4m3 does not go with the scales (1, 2) f16");
    FAILS(ct__unpack_mxfp4(&bytes, &bytes, to, 16, &err),
          "\"x\": (1, 8) u8 does not go with the scales (1, 8) u8");
    err = (ct_err){0};
    assert_true(ct__unpack_fp8(&huge, &none, INT64_MAX, INT64_MAX, to, 0, &err)); // of nothing
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlx),
        cmocka_unit_test(published),
        cmocka_unit_test(blocks_at_the_edge),
        cmocka_unit_test(what_does_not_go_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
