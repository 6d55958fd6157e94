// cotan/data.h: files as tensors, and the sentence of each refusal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cotan/data.h"

static char path[] = "/tmp/cotan-load-XXXXXX";

static int setup(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}
static int teardown(void **state) {
    (void)state;
    return unlink(path);
}
static void write_file(const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}
#define WRITE(text) write_file("" text, sizeof(text) - 1)

static void bytes_as_they_are(void **state) {
    (void)state;
    CT_SCOPE;
    WRITE("a\0\377\n");
    ct_tensor t = ct_load_bytes(path);
    const unsigned char *data = ct_data(t);
    assert_int_equal(ct_dtype_of(t), CT_U8);
    assert_int_equal(ct_size(t), 4);
    assert_memory_equal(data, "a\0\377\n", 4);
    WRITE("");
    t = ct_load_bytes(path);
    assert_true(ct_ok(t) && ct_rank(t) == 1 && ct_size(t) == 0);
    assert_false(ct_failed());
}

static void idx_of_each_type(void **state) {
    (void)state;
    CT_SCOPE;
    WRITE("\0\0\x08\x02\0\0\0\2\0\0\0\3\1\2\3\4\5\377");
    ct_tensor t = ct_load_idx(path);
    const unsigned char *bytes = ct_data(t);
    assert_true(ct_dtype_of(t) == CT_U8 && ct_rank(t) == 2 && ct_dim(t, 0) == 2 &&
                ct_dim(t, 1) == 3);
    assert_memory_equal(bytes, "\1\2\3\4\5\377", 6);
    WRITE("\0\0\x0c\x01\0\0\0\2\x01\x02\x03\x04\xff\xff\xff\xfe");
    const int32_t *whole = ct_data(t = ct_load_idx(path));
    assert_true(ct_dtype_of(t) == CT_I32 && whole[0] == 0x01020304 && whole[1] == -2);
    WRITE("\0\0\x0d\x01\0\0\0\1\x3f\xc0\0\0");
    const float *f = ct_data(t = ct_load_idx(path));
    assert_true(ct_dtype_of(t) == CT_F32 && f[0] == 1.5f);
    WRITE("\0\0\x0b\x01\0\0\0\2\1\2\377\376");
    const int16_t *narrow = ct_data(t = ct_load_idx(path));
    assert_true(ct_dtype_of(t) == CT_I16 && narrow[0] == 0x102 && narrow[1] == -2);
    WRITE("\0\0\x09\x01\0\0\0\1\377");
    const int8_t *byte = ct_data(t = ct_load_idx(path));
    assert_true(ct_dtype_of(t) == CT_I8 && byte[0] == -1);
    WRITE("\0\0\x0e\0\xc0\x04\0\0\0\0\0\0");
    const double *d = ct_data(t = ct_load_idx(path));
    assert_true(ct_dtype_of(t) == CT_F64 && ct_rank(t) == 0 && d[0] == -2.5);
    WRITE("\0\0\x08\x01\0\0\0\0"); // nothing is a size too
    assert_true(ct_ok(t = ct_load_idx(path)) && ct_size(t) == 0);
    assert_false(ct_failed());
}

static void refused(ct_code code, uint32_t line, const char *op, const char *what) {
    char text[512];
    snprintf(text, sizeof text, "%s:%u: %s: %s%s", __FILE__, line, op,
             strstr(what, "path") ? "" : path, what);
    assert_true(ct_failed());
    assert_string_equal(ct_error_text(), text);
    assert_int_equal(ct_error_code(), code);
    ct_error_clear();
}
#define REFUSED(bytes, code, what)                                                                 \
    do {                                                                                           \
        CT_SCOPE;                                                                                  \
        WRITE(bytes);                                                                              \
        assert_false(ct_ok(ct_load_idx(path)));                                                    \
        refused(code, __LINE__, "load_idx", what);                                                 \
    } while (0)

static void what_is_no_idx_is_refused(void **state) {
    (void)state;
    REFUSED("", CT_E_FORMAT, ": this is no IDX file");
    REFUSED("\0\0\x08", CT_E_FORMAT, ": this is no IDX file");
    REFUSED("\0\0\x07\x01\0\0\0\1a", CT_E_FORMAT, ": this is no IDX file");
    REFUSED("\0\0\x0f\x01\0\0\0\1a", CT_E_FORMAT, ": this is no IDX file");
    REFUSED("\0\1\x08\x01\0\0\0\1a", CT_E_FORMAT, ": this is no IDX file");
    char hint[128];
    snprintf(hint, sizeof hint, ": this is no IDX file\n  hint: unpack it: gunzip %s", path);
    REFUSED("\x1f\x8b\x08\0more", CT_E_FORMAT, hint);
    REFUSED("\0\0\x0a\x01\0\0\0\1ab", CT_E_UNSUPPORTED,
            ": elements of type 10; types 8, 9 and 11 to 14 are read (u8, i8, i16, i32, f32, f64)");
    REFUSED("\0\0\x08\x02\0\0\0\1", CT_E_FORMAT, ": 2 axes do not fit 8 bytes");
    REFUSED("\0\0\x08\x21\0\0\0\1", CT_E_FORMAT, ": 33 axes do not fit 8 bytes");
    REFUSED("\0\0\x08\x01\0\0\0\3ab", CT_E_FORMAT,
            ": the sizes ask for 3 elements of 1 bytes, the file holds 2 bytes");
    REFUSED("\0\0\x0c\x01\0\0\0\1abcde", CT_E_FORMAT,
            ": the sizes ask for 1 elements of 4 bytes, the file holds 5 bytes");
    REFUSED(
        "\0\0\x08\x03\377\377\377\377\377\377\377\377\377\377\377\377", CT_E_FORMAT,
        ": the sizes ask for more than 18446744073709551615 elements of 1 bytes, the file holds "
        "0 bytes");
}

static void what_cannot_be_read_is_said(void **state) {
    (void)state;
    CT_SCOPE;
    int line = __LINE__ + 1;
    assert_false(ct_ok(ct_load_bytes("/nowhere/x")));
    char text[256];
    snprintf(text, sizeof text,
             "%s:%d: load_bytes: /nowhere/x: cannot open: No such file or directory", __FILE__,
             line);
    assert_string_equal(ct_error_text(), text);
    assert_int_equal(ct_error_code(), CT_E_FILE);
    ct_error_clear();
    assert_false(ct_ok(ct_load_idx(NULL)));
    refused(CT_E_ARGUMENT, __LINE__ - 1, "load_idx", "the path must not be NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_as_they_are),
        cmocka_unit_test(idx_of_each_type),
        cmocka_unit_test(what_is_no_idx_is_refused),
        cmocka_unit_test(what_cannot_be_read_is_said),
    };
    return cmocka_run_group_tests_name("data_load", tests, setup, teardown);
}
