// What the safetensors reader accepts and refuses, and the whole sentence of each refusal. The
// verdicts are those of the format's reference reader, but for the marked rows, where the format's
// text is stricter than that reader; tests/parity/test_safetensors_diff.py compares the two.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/safetensors.h"

typedef struct row {
    const char *header;
    size_t data;         // bytes behind it
    const char *refusal; // NULL: accepted
} row;

#define F32_1 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
#define ONE "\"a\":{" F32_1 "}"
#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define D25 "[[[[[[[[[[[[[[[[[[[[[[[[["
#define U25 "]]]]]]]]]]]]]]]]]]]]]]]]]"

static const row rows[] = {
    // Accepted.
    {"{}", 0, NULL},
    {"{" ONE "}", 4, NULL},
    {"{" ONE "}  \n\t\r ", 4, NULL},
    {"{ \n\"a\" : { " F32_1 " }\t}", 4, NULL},
    {"{\"__metadata__\":{\"k\":\"v\",\"\":\"\"}," ONE "}", 4, NULL},
    {"{" ONE ",\"__metadata__\":{}}", 4, NULL},
    {"{\"__metadata__\":null," ONE "}", 4, NULL},
    {"{\"__metadata__\":{\"k\":\"v\"}}", 0, NULL},
    {"{\"\":{" F32_1 "}}", 4, NULL},
    {"{\"a\\u0000b\":{" F32_1 "}}", 4, NULL},
    {"{\"\\ud83d\\ude00\\/\\b\":{" F32_1 "}}", 4, NULL},
    {"{\"\x7f\xc3\xa9\":{" F32_1 "}}", 4, NULL},
    {"{\"a\":{\"dt\\u0079pe\":\"F\\u00332\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, NULL},
    {"{\"a\":{" F32_1 ",\"x\":{\"y\":[1,2.5e-3,true,false,null,\"z\"]}}}", 4, NULL},
    {"{\"a\":{\"x\":1,\"x\":2," F32_1 "}}", 4, NULL},
    {"{\"a\":{" F32_1 ",\"x\":0e99999999999}}", 4, NULL},
    {"{\"a\":{" F32_1 ",\"x\":1e-99999999999}}", 4, NULL},
    {"{\"a\":{" F32_1 ",\"x\":1.7e308}}", 4, NULL},
    {"{\"a\":{" F32_1 ",\"x\":" D25 D25 D25 D25 D25 U25 U25 U25 U25 U25 "}}", 4, NULL},
    {"{" T("a", "F32", "[]", "[0,4]") "}", 4, NULL},
    {"{" T("a", "F32", "[0,18446744073709551615]", "[0,0]") "}", 0, NULL},
    {"{" T("a", "F32", "[0,9223372036854775808,4]", "[0,0]") "}", 0, NULL},
    {"{" T("a", "F4", "[4]", "[0,2]") "}", 2, NULL},
    {"{" T("a", "F6_E3M2", "[4]", "[0,3]") "}", 3, NULL},
    {"{" T("b", "U8", "[2]", "[1,3]") "," T("a", "BOOL", "[1]", "[0,1]") "}", 3, NULL},
    {"{" T("b", "U8", "[0]", "[1,1]") "," T("c", "U8", "[0]", "[1,1]") "," T("a", "U8", "[1]",
                                                                             "[0,1]") "," //
     T("d", "F64", "[0]", "[0,0]") "}",
     1, NULL},
    // JSON.
    {"{", 0, "the header is not JSON: a string in quotes was expected at byte 9 of the file"},
    {"{" ONE, 4, "the header is not JSON: ',' or '}' was expected at byte 61 of the file"},
    {"{" ONE ",}", 4,
     "the header is not JSON: a string in quotes was expected at byte 62 of the file"},
    {"{" ONE "}{}", 4, "the header is not JSON: text after the closing '}' at byte 62 of the file"},
    {"{" ONE "/**/}", 4, "the header is not JSON: ',' or '}' was expected at byte 61 of the file"},
    {"{\"a\" {" F32_1 "}}", 4, "the header is not JSON: ':' was expected at byte 13 of the file"},
    {"{\"a", 0, "the header is not JSON: a string has no end at byte 10 of the file"},
    {"{\"a\n\":{" F32_1 "}}", 4,
     "the header is not JSON: a control character inside a string at byte 11 of the file"},
    {"{\"\\x\":{" F32_1 "}}", 4,
     "the header is not JSON: an unknown escape at byte 11 of the file"},
    {"{\"\\u12g4\":{" F32_1 "}}", 4,
     "the header is not JSON: an escape \\u needs four hexadecimal digits at byte 14 of the file"},
    {"{\"\\ud800\":{" F32_1 "}}", 4,
     "the header is not JSON: half of a surrogate pair at byte 16 of the file"},
    {"{\"\\ud800\\u0041\":{" F32_1 "}}", 4,
     "the header is not JSON: half of a surrogate pair at byte 22 of the file"},
    {"{\"\\udc00\":{" F32_1 "}}", 4,
     "the header is not JSON: half of a surrogate pair at byte 16 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":NaN}}", 4,
     "the header is not JSON: a value was expected at byte 65 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":nul}}", 4,
     "the header is not JSON: a value was expected at byte 65 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":[1,]}}", 4,
     "the header is not JSON: a value was expected at byte 68 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":1.}}", 4,
     "the header is not JSON: a digit was expected after the point at byte 67 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":1e}}", 4,
     "the header is not JSON: a digit was expected in the exponent at byte 67 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":-}}", 4,
     "the header is not JSON: a digit was expected at byte 66 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":1e309}}", 4,
     "the header is not JSON: a number beyond the range of a double at byte 70 of the file"},
    {"{\"a\":{" F32_1 ",\"x\":" D25 D25 D25 D25 D25 "[" U25 U25 U25 U25 U25 "]}}", 4,
     "the header is not JSON: too many arrays and objects inside each other at byte 190 of the "
     "file"},
    {"{" T("a", "F32", "[01]", "[0,4]") "}", 4,
     "the header is not JSON: a number begins with a superfluous 0 at byte 37 of the file"},
    // The beginning (the reference reader skips white space here; the format's text does not).
    {" {" ONE "}", 4, "the header begins with \" \", not with '{'"},
    {"[]", 0, "the header begins with \"[\", not with '{'"},
    {"", 0, "the header is empty"},
    {"\x1b[31m", 0, "the header begins with \"\\u001b\", not with '{'"},
    // UTF-8.
    {"{\"a\xff\":{" F32_1 "}}", 4, "the header is not UTF-8 at byte 11 of the file"},
    {"{\"a\xed\xa0\x80\":{" F32_1 "}}", 4, "the header is not UTF-8 at byte 11 of the file"},
    {"{\"a\xc0\x80\":{" F32_1 "}}", 4, "the header is not UTF-8 at byte 11 of the file"},
    {"{\"a\":{" F32_1 "}}\xc3", 4, "the header is not UTF-8 at byte 62 of the file"},
    {"\xef\xbb\xbf{" ONE "}", 4, "the header begins with \"\\xef\", not with '{'"},
    // Duplicates (the reference reader lets the last of two equal names win).
    {"{" ONE "," ONE "}", 4, "tensor \"a\" appears twice"},
    {"{\"a\":{" F32_1 "},\"\\u0061\":{" F32_1 "}}", 4, "tensor \"a\" appears twice"},
    {"{\"a\":{\"dtype\":\"F32\"," F32_1 "}}", 4, "tensor \"a\": dtype appears twice"},
    {"{\"a\":{\"shape\":[1]," F32_1 "}}", 4, "tensor \"a\": shape appears twice"},
    {"{\"a\":{\"data_offsets\":[0,4]," F32_1 "}}", 4, "tensor \"a\": data_offsets appears twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ appears twice"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "__metadata__: key \"k\" appears twice"},
    // Metadata.
    {"{\"__metadata__\":[]}", 0, "__metadata__ is an array, not an object"},
    {"{\"__metadata__\":\"x\"}", 0, "__metadata__ is a string, not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0,
     "__metadata__: the value of \"k\" is a number, not a string"},
    {"{\"__metadata__\":{\"k\":null}}", 0,
     "__metadata__: the value of \"k\" is null, not a string"},
    {"{\"__metadata__\":{\"k\":{}}}", 0,
     "__metadata__: the value of \"k\" is an object, not a string"},
    // Descriptions (the reference reader also takes a list of the three values).
    {"{\"a\":null}", 0, "tensor \"a\": its description is null, not an object"},
    {"{\"a\":true}", 0, "tensor \"a\": its description is true or false, not an object"},
    {"{\"a\":[\"F32\",[1],[0,4]]}", 4, "tensor \"a\": its description is an array, not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor \"a\": dtype is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor \"a\": shape is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor \"a\": data_offsets is missing"},
    {"{\"a\":{\"dtype\":12}}", 4, "tensor \"a\": dtype is a number, not a string"},
    {"{\"a\":{\"dtype\":{\"F32\":null}}}", 4, "tensor \"a\": dtype is an object, not a string"},
    {"{" T("a", "F33", "[1]", "[0,4]") "}", 4, "tensor \"a\": unknown dtype \"F33\""},
    {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, "tensor \"a\": unknown dtype \"f32\""},
    {"{" T("a", "F32\\u0000", "[1]", "[0,4]") "}", 4, "tensor \"a\": unknown dtype \"F32\\u0000\""},
    {"{" T("a", "F32", "{}", "[0,4]") "}", 4, "tensor \"a\": shape is an object, not an array"},
    {"{" T("a", "F32", "[2,\"1\"]", "[0,4]") "}", 4,
     "tensor \"a\": shape[1] is a string, not a number"},
#define BAD_DIM(text)                                                                              \
    {                                                                                              \
        "{" T("a", "F32", "[" text "]", "[0,4]") "}", 4,                                           \
            "tensor \"a\": shape[0] is " text ", not an integer from 0 to 18446744073709551615"    \
    }
    BAD_DIM("-1"),
    BAD_DIM("-0"),
    BAD_DIM("1.0"),
    BAD_DIM("1e0"),
    BAD_DIM("18446744073709551616"),
    {"{" T("a", "F32", "[1]", "[0,4,4]") "}", 4,
     "tensor \"a\": data_offsets has 3 numbers, not 2: begin and end"},
    {"{" T("a", "F32", "[1]", "[0]") "}", 4,
     "tensor \"a\": data_offsets has 1 numbers, not 2: begin and end"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4,
     "tensor \"a\": data_offsets[0] is -4, not an integer from 0 to 18446744073709551615"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4,
     "tensor \"a\": data_offsets begin at byte 4 and end before it, at byte 0"},
    // Sizes and places.
    {"{" T("a", "F32", "[2,2]", "[0,12]") "}", 12,
     "tensor \"a\": bytes 0 to 12 are 12 bytes, but (2, 2) f32 takes 16"},
    {"{" T("a", "BF16", "[]", "[0,4]") "}", 4,
     "tensor \"a\": bytes 0 to 4 are 4 bytes, but () bf16 takes 2"},
    {"{" T("a", "F4", "[3]", "[0,2]") "}", 2,
     "tensor \"a\": (3,) f4 takes 12 bits, not a whole number of bytes"},
    {"{" T("a", "F32", "[9223372036854775808,4,0]", "[0,0]") "}", 0,
     "tensor \"a\": the size of (9223372036854775808, 4, 0) f32 in bits overflows 64 bits"},
    {"{" T("a", "U8", "[2305843009213693952]", "[0,0]") "}", 0,
     "tensor \"a\": the size of (2305843009213693952,) u8 in bits overflows 64 bits"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8,
     "tensor \"a\": it begins at byte 4 of the data, but what is before it ends at 0: the bytes "
     "between belong to no tensor"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[6,10]") "}", 10,
     "tensor \"b\": it begins at byte 6 of the data, but what is before it ends at 4: the bytes "
     "between belong to no tensor"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[2,6]") "}", 6,
     "tensor \"b\": it begins at byte 2 of the data, inside tensor \"a\", which ends at 4"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[0,4]") "}", 4,
     "tensor \"b\": it begins at byte 0 of the data, inside tensor \"a\", which ends at 4"},
    {"{" T("a", "F32", "[4]", "[0,16]") "}", 12,
     "tensor \"a\": it ends at byte 16 of the data, but the file holds 12 bytes of data: it is cut "
     "short"},
    {"{" ONE "}", 8,
     "the tensors end at byte 4 of the data, but the file holds 8 bytes of data: 4 at the end "
     "belong to no tensor"},
    {"{}", 1,
     "the tensors end at byte 0 of the data, but the file holds 1 bytes of data: 1 at the end "
     "belong to no tensor"},
    // Names made to break out of a message, a comment or a path.
    {"{" T("\\u001b[31m\\n*/ ../x\\u202e", "F33", "[]", "[0,4]") "}", 4,
     "tensor \"\\u001b[31m\\n*\\/ ..\\/x\\u202e\": unknown dtype \"F33\""},
    {"{" T("/etc/passwd", "F33", "[]", "[0,4]") "}", 4,
     "tensor \"\\/etc/passwd\": unknown dtype \"F33\""},
    {"{" T("0123456789012345678901234567890123456789012345678901234567890123456789"
           "0123456789012345678901234567890123456789",
           "F33", "[]", "[0,4]") "}",
     4,
     "tensor \"012345678901234567890123456789012345678901234567890123456789012345678901234567890123"
     "45678901...\": unknown dtype \"F33\""},
};

static void verdicts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t header = strlen(rows[i].header), n = 8 + header + rows[i].data;
        unsigned char *bytes = calloc(n, 1); // exactly n, so that a sanitizer sees reads beyond
        assert_non_null(bytes);
        for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)((uint64_t)header >> 8 * k);
        memcpy(bytes + 8, rows[i].header, header);
        ct_st st;
        ct_err err = {0};
        bool ok = ct__st_parse("m.safetensors", bytes, n, &st, &err);
        if (ok != !rows[i].refusal) print_error("row %zu: %s\n%s\n", i, rows[i].header, err.text);
        assert_int_equal(ok, !rows[i].refusal);
        if (rows[i].refusal) {
            char whole[CT_ERROR_TEXT];
            snprintf(whole, sizeof whole, "m.safetensors: safetensors: %s", rows[i].refusal);
            assert_string_equal(err.text, whole);
            assert_int_equal(err.code, CT_E_FORMAT);
        }
        ct__st_close(&st);
        free(bytes);
    }
}

static void refused(uint64_t length, const void *text, size_t n, const char *whole) {
    ct_st st;
    ct_err err = {0};
    unsigned char *bytes = calloc(8 + n, 1);
    assert_non_null(bytes);
    for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)(length >> 8 * k);
    memcpy(bytes + 8, text, n);
    assert_false(ct__st_parse("m", bytes, 8 + n, &st, &err));
    assert_string_equal(err.text, whole);
    free(bytes);
}

static void lengths_of_the_header(void **state) {
    (void)state;
    refused(
        3, "{}", 2,
        "m: safetensors: the header takes 3 bytes by its length, but only 2 follow: the file is "
        "cut short");
    refused(
        100000000, "{}", 2,
        "m: safetensors: the header takes 100000000 bytes by its length, but only 2 follow: the "
        "file is cut short");
    refused(
        100000001, "{}", 2,
        "m: this is no safetensors file: its header would take 100000001 bytes, at most 100000000 "
        "are allowed");
    refused(UINT64_MAX, "{}", 2,
            "m: this is no safetensors file: its header would take 18446744073709551615 bytes, at "
            "most 100000000 are allowed");
    refused(UINT64_MAX - 7, "{}", 2,
            "m: this is no safetensors file: its header would take 18446744073709551608 bytes, at "
            "most 100000000 are allowed");
    refused(3, "{}\0", 3,
            "m: safetensors: the header is not JSON: text after the closing '}' at byte 10 of the "
            "file");
    for (size_t n = 0; n < 8; n++) {
        char whole[200];
        ct_st st;
        ct_err err = {0};
        snprintf(
            whole, sizeof whole,
            "m: safetensors: the file has %zu bytes, but the length of the header alone takes 8",
            n);
        assert_false(ct__st_parse("m", "\2\0\0\0\0\0\0", n, &st, &err));
        assert_string_equal(err.text, whole);
    }
}

// Every shortening of a good file is refused.
static void truncation_at_every_byte(void **state) {
    (void)state;
    static const char header[] = "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "U8", "[3]", //
                                                                         "[8,11]") "}";
    size_t n = 8 + strlen(header) + 11;
    char *whole = calloc(n, 1);
    assert_non_null(whole);
    whole[0] = (char)strlen(header);
    memcpy(whole + 8, header, strlen(header));
    for (size_t cut = 0; cut <= n; cut++) {
        ct_st st;
        ct_err err = {0};
        char *part = malloc(cut ? cut : 1);
        assert_non_null(part);
        memcpy(part, whole, cut);
        assert_int_equal(ct__st_parse("m", part, cut, &st, &err), cut == n);
        assert_int_equal(err.code, cut == n ? CT_OK : CT_E_FORMAT);
        ct__st_close(&st);
        free(part);
    }
    free(whole);
}

static void files_that_cannot_be_opened(void **state) {
    (void)state;
    ct_st st;
    ct_err err = {0};
    assert_false(ct__st_open("/nonexistent/m.safetensors", &st, &err));
    assert_string_equal(err.text,
                        "/nonexistent/m.safetensors: cannot open: No such file or directory");
    ct__st_close(&st);
    err = (ct_err){0};
    assert_false(ct__st_open("/", &st, &err));
    assert_string_equal(err.text, "/: not a regular file");
    char path[] = "/tmp/cotan-io-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    err = (ct_err){0};
    assert_false(ct__st_open(path, &st, &err));
    char whole[200];
    snprintf(whole, sizeof whole,
             "%s: safetensors: the file has 0 bytes, but the length of the header alone takes 8",
             path);
    assert_string_equal(err.text, whole);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); // must be refused, not waited for
    err = (ct_err){0};
    assert_false(ct__st_open(path, &st, &err));
    snprintf(whole, sizeof whole, "%s: not a regular file", path);
    assert_string_equal(err.text, whole);
    unlink(path);
}

static void writing_refuses(void **state) {
    (void)state;
    char folder[] = "/tmp/cotan-refused-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m", folder);
    static const float data[4];
    static const int64_t two[] = {2}, three[] = {3}, negative[] = {-1}, huge[] = {INT64_MAX, 3};
    const struct {
        ct_st_out out;
        const char *refusal;
    } cases[] = {
        {{"a", CT_DEFAULT, 1, two, data}, "tensor \"a\": the format has no name for its dtype"},
        {{"a\xff", CT_F32, 1, two, data}, "tensor \"a\\xff\": its name is not UTF-8"},
        {{"__metadata__", CT_F32, 1, two, data},
         "tensor \"__metadata__\": this name is reserved by the format"},
        {{"a", CT_F32, 1, negative, data}, "tensor \"a\": a dimension is negative"},
        {{"a", CT_F32, 2, huge, data}, "tensor \"a\": its size overflows 64 bits"},
        {{"a", CT_F32, 1, huge, data}, "tensor \"a\": its size overflows 64 bits"},
        {{"a", CT_F32, 1, two, NULL}, "tensor \"a\": it has no data"},
        {{"a", CT_F4, 1, three, data}, "tensor \"a\": its elements fill no whole number of bytes"},
        {{"a", CT_I4, 1, two, data},
         "tensor \"a\": the format has no name for its dtype\n"
         "  hint: save it wider: ct_cast(x, CT_I8)"},
        {{"a", CT_U4, 1, two, data},
         "tensor \"a\": the format has no name for its dtype\n"
         "  hint: save it wider: ct_cast(x, CT_U8)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ct_err err = {0};
        char whole[300];
        snprintf(whole, sizeof whole, "%s: safetensors: %s", path, cases[i].refusal);
        assert_false(ct__st_write(path, &cases[i].out, 1, NULL, 0, &err));
        assert_string_equal(err.text, whole);
        assert_int_equal(err.code, CT_E_ARGUMENT);
    }
    ct_err err = {0};
    ct_st_out twice[2] = {{"a", CT_F32, 1, two, data}, {"a", CT_U8, 1, two, data}};
    assert_false(ct__st_write(path, twice, 2, NULL, 0, &err));
    char whole[300];
    snprintf(whole, sizeof whole, "%s: safetensors: tensor \"a\": it is given twice", path);
    assert_string_equal(err.text, whole);
    ct_st_pair pairs[2] = {{"k", "1", 1, 1}, {"k", "2", 1, 1}};
    err = (ct_err){0};
    assert_false(ct__st_write(path, twice, 1, pairs, 2, &err));
    snprintf(whole, sizeof whole, "%s: safetensors: __metadata__: key \"k\" is given twice", path);
    assert_string_equal(err.text, whole);
    pairs[0].value = "\xff";
    err = (ct_err){0};
    assert_false(ct__st_write(path, twice, 1, pairs, 1, &err));
    snprintf(whole, sizeof whole,
             "%s: safetensors: __metadata__: key \"k\" or its value is not UTF-8", path);
    assert_string_equal(err.text, whole);
    err = (ct_err){0};
    assert_false(ct__st_write("/nonexistent/m", twice, 1, NULL, 0, &err));
    assert_string_equal(err.text, "/nonexistent/m: cannot create: No such file or directory");
    assert_int_equal(rmdir(folder), 0); // it is empty
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test(lengths_of_the_header),
        cmocka_unit_test(truncation_at_every_byte),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(writing_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
