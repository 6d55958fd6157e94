// cotan/io.h: tensors of any names in safetensors files, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cotan/io.h"

static char path[] = "/tmp/cotan-named-XXXXXX";

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void write_file(const char *header, const void *data, size_t n) {
    const uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, 8, 1, file), 1);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

// The error, from behind the line and the path that it begins with.
static void assert_error(const char *want) {
    const char *text = ct_error_text(), *at = strstr(text, "safetensors");
    assert_true(ct_failed());
    assert_non_null(at);
    char whole[512] = "", *to = whole;
    for (const char *from = at; *from && to < whole + sizeof whole - 1;) {
        const bool own = strncmp(from, path, strlen(path)) == 0;
        if (own) *to++ = 'P';
        if (!own) *to++ = *from;
        from += own ? strlen(path) : 1;
    }
    assert_string_equal(whole, want);
    ct_error_clear();
}

static void tensors_of_any_names_read_back(void **state) {
    (void)state;
    CT_SCOPE;
    const float values[] = {1, 2, 3, 4, 5, 6};
    const uint8_t bits[] = {1, 0, 1};
    ct_tensor x = ct_from(values, CT_F32, CT_DIMS(2, 3));
    const ct_named_tensor tensors[] = {
        {"a.b/c d", ct_add(x, ct_f(1))},
        {"", ct_scalar(2.5, CT_F64)},
        {"\xc3\x9c\xe2\x98\x83\"\n", ct_cast(x, CT_BF16)},
        {"empty", ct_zeros(CT_I64, CT_DIMS(0, 3))},
        {"bits", ct_from(bits, CT_BOOL, CT_DIMS(3))},
        {"c", ct_complex(x, x)},
    };
    enum { N = sizeof tensors / sizeof tensors[0] };
    const ct_metadata metadata[] = {{"z", ""}, {"format", "pt"}};
    assert_true(ct_save_safetensors(path, tensors, N, .metadata = metadata, .n_metadata = 2));
    ct_safetensors *file = ct_safetensors_open(path);
    assert_non_null(file);
    assert_int_equal(ct_safetensors_count(file), N);
    assert_null(ct_safetensors_name(file, N));
    for (size_t i = 0; i < N; i++) {
        ct_tensor got = ct_safetensors_get(file, tensors[i].name);
        assert_int_equal(ct_dtype_of(got), ct_dtype_of(tensors[i].tensor));
        assert_int_equal(ct_rank(got), ct_rank(tensors[i].tensor));
        const void *a = ct_data(got), *b = ct_data(tensors[i].tensor);
        assert_true(a && b);
        assert_memory_equal(a, b, (size_t)ct_size(got) * ct_dtype_size(ct_dtype_of(got)));
    }
    assert_string_equal(ct_safetensors_metadata_key(file, 0), "format");
    assert_string_equal(ct_safetensors_metadata_key(file, 1), "z");
    assert_null(ct_safetensors_metadata_key(file, 2));
    assert_string_equal(ct_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(ct_safetensors_metadata(file, "z"), "");
    assert_null(ct_safetensors_metadata(file, "y"));
    assert_false(ct_ok(ct_safetensors_get(file, "a")));
    assert_error("safetensors_get: P has no tensor \"a\"; it has 6");
    ct_tensor kept = ct_safetensors_get(file, "");
    ct_safetensors_close(file);
    assert_true(ct_item(kept) == 2.5);
}

static void bytes_of_bools(void **state) {
    (void)state;
    CT_SCOPE;
    write_file("{\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", "\2\0\377", 3);
    ct_safetensors *file = ct_safetensors_open(path);
    assert_non_null(file);
    assert_memory_equal(ct_data(ct_safetensors_get(file, "b")), "\1\0\1", 3);
    ct_safetensors_close(file);
}

static void what_is_refused(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_named_tensor reserved = {"__metadata__", ct_f(1)}, wide = {"x", ct_c(1, 2)};
    assert_false(ct_save_safetensors(path, &reserved, 1));
    assert_error(
        "safetensors: P: safetensors: tensor \"__metadata__\": this name is reserved by the "
        "format");
    ct_named_tensor c128 = {"x", ct_cast(wide.tensor, CT_C128)};
    assert_false(ct_save_safetensors(path, &c128, 1));
    assert_error("safetensors: P: safetensors: tensor \"x\": the format has no name for its dtype");
    const ct_named_tensor none = {NULL, ct_f(1)}, twice[] = {{"a", ct_f(1)}, {"a", ct_f(2)}};
    assert_false(ct_save_safetensors(path, &none, 1));
    assert_error("safetensors: tensor 0 has no name");
    assert_false(ct_save_safetensors(path, twice, 2));
    assert_error("safetensors: P: safetensors: tensor \"a\": it is given twice");
    const ct_metadata empty = {"k", NULL};
    assert_false(ct_save_safetensors(path, twice, 1, .metadata = &empty, .n_metadata = 1));
    assert_error("safetensors: pair 0 of the metadata has no key or no value");

    write_file("{\"f\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", "abc", 3);
    ct_safetensors *file = ct_safetensors_open(path);
    assert_non_null(file);
    assert_false(ct_ok(ct_safetensors_get(file, "f")));
    assert_error("safetensors_get: P: safetensors: tensor \"f\" is (4,) f6_e2m3: Cotan does not "
                 "compute with that dtype");
    ct_safetensors_close(file);
    char ones[33 * 2 + 1] = "", header[200], shown[33 * 3 + 1] = "";
    for (int i = 0; i < 33; i++) {
        strcat(ones, i ? ",1" : "1");
        strcat(shown, i ? ", 1" : "1");
    }
    snprintf(header, sizeof header,
             "{\"r\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,1]}}", ones);
    write_file(header, "a", 1);
    file = ct_safetensors_open(path);
    assert_false(ct_ok(ct_safetensors_get(file, "r")));
    char want[300];
    snprintf(
        want, sizeof want,
        "safetensors_get: P: safetensors: tensor \"r\" is (%s) u8: a tensor has 32 axes at most",
        shown);
    assert_error(want);
    ct_safetensors_close(file);
    write_file("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "a", 1);
    assert_null(ct_safetensors_open(path));
    assert_error(
        "safetensors_open: P: safetensors: tensor \"a\\u0000b\": its name holds a zero byte");
    write_file("{\"__metadata__\":{\"k\":\"a\\u0000\"}}", "", 0);
    assert_null(ct_safetensors_open(path));
    assert_error(
        "safetensors_open: P: safetensors: __metadata__: key \"k\" or its value holds a zero "
        "byte");
    write_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "a", 1);
    assert_null(ct_safetensors_open(path));
    assert_error(
        "safetensors_open: P: safetensors: tensor \"a\": it ends at byte 2 of the data, but the "
        "file holds 1 bytes of data: it is cut short");
    assert_false(ct_ok(ct_safetensors_get(NULL, "a")));
    assert_error("safetensors_get: the file is not open");
    ct_safetensors_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_any_names_read_back),
        cmocka_unit_test(bytes_of_bools),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
