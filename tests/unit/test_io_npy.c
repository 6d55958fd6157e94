// npy and npz files: what is refused, with the whole sentence; that written files read back. For
// test_io_npy.py, which compares with NumPy: with --copy, a line "FROM TO HOW" of standard input
// each is copied through tensors; with --get FILE NAME, an array's bytes are written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/queue.h"
#include "cotan/io.h"
#include "io/npz.h"

// ------------------------------------------------------------------------------------ refused: npy

#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
#define F4(shape) DICT("'<f4'", "False", shape)

typedef struct row {
    const char *header;
    uint64_t data;       // bytes behind it
    const char *refusal; // NULL: accepted
} row;

static const row rows[] = {
    // Accepted.
    {F4("(3,)"), 12, NULL},
    {F4("()") "   \n", 4, NULL},
    {F4("(2, 3)"), 24, NULL},
    {F4("(2,3,)"), 24, NULL},
    {F4("( 2 , 3 )"), 24, NULL},
    {F4("(0, 3)"), 0, NULL},
    {F4("(2L, 3L)"), 24, NULL},
    {"{\"descr\": \"<f4\", 'shape': (1,), 'fortran_order': True}", 4, NULL},
    {DICT("'>i8'", "True", "(2, 1)"), 16, NULL},
    {DICT("'|b1'", "False", "(2,)"), 2, NULL},
    {DICT("'=f8'", "False", "(2,)"), 16, NULL},
    {DICT("'<c8'", "False", "(2,)"), 16, NULL}, // of a dtype that only cannot be used
    {DICT("'<U3'", "False", "(2,)"), 24, NULL},
    {DICT("'|S0'", "False", "(2,)"), 0, NULL},
    {DICT("'<M8[ns]'", "False", "(2,)"), 16, NULL},
    // The dictionary.
    {"", 0, "the header ends where '{' was expected"},
    {"[]", 0, "the header has \"[\" where '{' was expected, at byte 10"},
    {"{", 0, "the header ends where a key was expected"},
    {"{}", 0, "the header lacks descr"},
    {"{'descr': '<f4'}", 0, "the header lacks fortran_order"},
    {"{'descr': '<f4', 'fortran_order': False}", 0, "the header lacks shape"},
    {"{'descr': '<f4', 'descr': '<f4'}", 0, "the header has descr twice"},
    {"{'descr': '<f4', 'more': 1}", 0, "the header has an unknown key \"more\""},
    {"{'descr' '<f4'}", 0, "the header has \"'\" where ':' was expected, at byte 19"},
    {"{'descr': '<f4' 'shape': ()}", 0,
     "the header has \"'\" where ',' or '}' was expected, at byte 26"},
    {"{'descr': '<f4", 0, "the header ends where the end of a string was expected"},
    {"{'de\\scr': '<f4'}", 0,
     "the header has \"\\\\\" where the end of a string was expected, at byte 14"},
    {F4("()") "x", 4, "the header has \"x\" where its end was expected, at byte 65"},
    {F4("()") "\x01", 4, "the header has \"\\u0001\" where its end was expected, at byte 65"},
    {DICT("__import__('os')", "False", "()"), 4,
     "the header has \"_\" where a string for descr was expected, at byte 20"},
    // The order.
    {DICT("'<f4'", "0", "()"), 4,
     "the header has \"0\" where True or False for fortran_order was expected, at byte 44"},
    // The dtype.
    {DICT("'f4'", "False", "()"), 4,
     "descr \"f4\" is not a byte order, a kind and a size, as in \"<f4\""},
    {DICT("'<f'", "False", "()"), 4,
     "descr \"<f\" is not a byte order, a kind and a size, as in \"<f4\""},
    {DICT("'<f04'", "False", "()"), 4, "descr \"<f04\" is no dtype of NumPy's"},
    {DICT("'<f4x'", "False", "()"), 4, "descr \"<f4x\" is no dtype of NumPy's"},
    {DICT("'<q4'", "False", "()"), 4, "descr \"<q4\" is no dtype of NumPy's"},
    {DICT("'<U9999999999'", "False", "()"), 4, "descr \"<U9999999999\" is no dtype of NumPy's"},
    {DICT("'|f4'", "False", "()"), 4, "descr \"|f4\" does not specify a byte order"},
    {DICT("'|O'", "False", "()"), 4,
     "descr \"|O\" means Python objects, pickled; they are never read"},
    {DICT("'|O8'", "False", "()"), 8,
     "descr \"|O8\" means Python objects, pickled; they are never read"},
    {DICT("[('x', '<f4')]", "False", "()"), 4,
     "descr is a list: arrays of records are not supported"},
    // The shape.
    {F4("3"), 12, "the header has \"3\" where '(' of shape was expected, at byte 60"},
    {F4("(3)"), 12,
     "the header has \")\" where ',' after the only size of shape was expected, at byte 62"},
    {F4("(2 3)"), 24,
     "the header has \"3\" where ',' after the only size of shape was expected, at byte 63"},
    {F4("(2, 3 4)"), 24, "the header has \"4\" where ',' or ')' in shape was expected, at byte 66"},
    {F4("(-1,)"), 4, "shape[0] is negative"},
    {F4("(2, -3)"), 24, "shape[1] is negative"},
    {F4("(+3,)"), 12, "the header has \"+\" where a size was expected, at byte 61"},
    {F4("(03,)"), 12,
     "the header has \"0\" where a size without superfluous zeros was expected, at byte 61"},
    {F4("(1_0,)"), 40,
     "the header has \"_\" where ',' after the only size of shape was expected, at byte 62"},
    {F4("(1e3,)"), 40,
     "the header has \"e\" where ',' after the only size of shape was expected, at byte 62"},
    {F4("(2305843009213693952,)"), 0,
     "shape[0] is 2305843009213693952, at most 2305843009213693951 is allowed"},
    {F4("(99999999999999999999999,)"), 0,
     "shape[0] is 99999999999999999999999, at most 2305843009213693951 is allowed"},
    {F4("(2305843009213693951, 2)"), 0,
     "the bytes of (2305843009213693951, 2) f32 are more than 63 bits can count"},
    {F4("(4294967296, 4294967296)"), 0,
     "the bytes of (4294967296, 4294967296) f32 are more than 63 bits can count"},
    {F4("(4294967296, 0, 4294967296)"), 0,
     "the bytes of (4294967296, 0, 4294967296) f32 are more than 63 bits can count"},
    {F4("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 4,
     "shape has more than 32 sizes"},
    // The data.
    {F4("(3,)"), 11, "(3,) f32 takes 12 bytes, but 11 follow the header: it is cut short"},
    {F4("(3,)"), 0, "(3,) f32 takes 12 bytes, but 0 follow the header: it is cut short"},
    {F4("(1000000000000,)"), 4,
     "(1000000000000,) f32 takes 4000000000000 bytes, but 4 follow the header: it is cut short"},
    {F4("(3,)"), 13,
     "(3,) f32 takes 12 bytes, but 13 follow the header: files of several arrays are not "
     "supported"},
};

static const ct_npy_name file = {"x.npy", "npy"};

static bool parse(const void *bytes, size_t n, ct_npy *npy, ct_err *err) {
    size_t prefix;
    return ct__npy_prefix(file, bytes, n < CT_NPY_FIXED ? n : CT_NPY_FIXED, &prefix, err) &&
           ct__npy_parse(file, bytes, prefix < n ? prefix : n, n, npy, err);
}

static void expect(const char *what, const void *bytes, size_t n, const char *refusal) {
    ct_err err = {0};
    ct_npy npy;
    char text[CT_ERROR_TEXT] = "", *exact = malloc(n ? n : 1); // a sanitizer sees reads beyond
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    bool ok = parse(exact, n, &npy, &err);
    free(exact);
    if (refusal) snprintf(text, sizeof text, "x.npy: npy: %s", refusal);
    if (ok == !refusal && (ok || err.code == CT_E_FORMAT) && strcmp(err.text, text) == 0) return;
    fail_msg("%s\n  gives   %s\n  wanted  %s", what, ok ? "an array" : err.text,
             refusal ? text : "an array");
}

static void headers(void **state) {
    (void)state;
    char bytes[2048];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        size_t n = strlen(r->header);
        memcpy(bytes,
               (const char[]){'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)n, (char)(n >> 8)}, 10);
        memcpy(bytes + 10, r->header, n);
        memset(bytes + 10 + n, 0, r->data);
        expect(r->header, bytes, 10 + n + r->data, r->refusal);
    }
}

static void beginnings(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *refusal;
    } all[] = {
        {"", 0, "there are 0 bytes, but the shortest beginning takes 10"},
        {"\x93NUMPY\1\0\0", 9, "there are 9 bytes, but the shortest beginning takes 10"},
        {"\x93NUMPY\2\0\0\0\0", 11, "there are 11 bytes, but the shortest beginning takes 12"},
        {"PK\3\4......", 10, "it begins with \"PK\\x03\\x04..\", not with \"\\x93NUMPY\""},
        {"\x93NUMPY\4\0\0\0", 10, "version 4.0 of the format is unknown; 1.0, 2.0 and 3.0 are"},
        {"\x93NUMPY\0\0\0\0", 10, "version 0.0 of the format is unknown; 1.0, 2.0 and 3.0 are"},
        {"\x93NUMPY\1\1\0\0", 10, "version 1.1 of the format is unknown; 1.0, 2.0 and 3.0 are"},
        {"\x93NUMPY\1\0\xff\xff{", 11,
         "the header takes 65535 bytes by its length, but only 1 follow: it is cut short"},
        {"\x93NUMPY\2\0\xff\xff\0\0{}", 14,
         "the header takes 65535 bytes by its length, but only 2 follow: it is cut short"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff{}", 14,
         "the header takes 4294967295 bytes by its length, at most 1048576 are allowed"},
        {"\x93NUMPY\3\0\3\0\0\0{\xff}", 15, "the header is not UTF-8 at byte 13"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(all[i].refusal, all[i].bytes, all[i].n, all[i].refusal);
}

// ----------------------------------------------------------------------------- written and read
// back

static const ct_loc line = {"a.c", 7};
static char folder[64];

static const char *place(const char *name) {
    static char path[2][128];
    static unsigned turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cotan-npy-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void expect_error(ct_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void expect_error(ct_code code, const char *format, ...) {
    char text[CT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_string_equal(ct_error_text(), text);
    assert_int_equal(ct_error_code(), code);
    ct_error_clear();
}

static void round_trip(void **state) {
    (void)state;
    CT_SCOPE;
    const float values[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
    const uint8_t bits[3] = {1, 0, 1};
    ct_tensor x = ct_from(values, CT_F32, CT_DIMS(2, 3)); // (2, 3)
    ct_tensor y = ct_neg(x);                              // (2, 3), pending
    ct_tensor b = ct_from(bits, CT_BOOL, CT_DIMS(3));     // (3,)
    assert_true(ct_save_npy(place("y.npy"), y));
    ct_tensor back = ct_load_npy(place("y.npy")); // (2, 3)
    assert_int_equal(ct_rank(back), 2);
    const float *got = ct_data(back);
    assert_non_null(got);
    for (int i = 0; i < 6; i++) assert_true(got[i] == -values[i]);
    for (int deflate = 0; deflate < 2; deflate++) {
        const ct_named_tensor all[] = {{"x", x},
                                       {"dir/b\xc3\xa4", b},
                                       {"", ct_f(2)},
                                       {"none", ct_zeros(CT_I64, CT_DIMS(0, 4))}};
        assert_true(ct_save_npz(place("a.npz"), all, 4, .deflate = deflate));
        ct_npz *npz = ct_npz_open(place("a.npz"));
        assert_non_null(npz);
        assert_int_equal(ct_npz_count(npz), 4);
        for (size_t i = 0; i < 4; i++) assert_string_equal(ct_npz_name(npz, i), all[i].name);
        assert_null(ct_npz_name(npz, 4));
        const float *xs = ct_data(ct_npz_get(npz, "x"));
        assert_non_null(xs);
        assert_memory_equal(xs, values, sizeof values);
        const void *bs = ct_data(ct_npz_get(npz, "dir/b\xc3\xa4"));
        assert_non_null(bs);
        assert_memory_equal(bs, bits, sizeof bits);
        assert_true(ct_item(ct_npz_get(npz, "")) == 2);
        assert_int_equal(ct_dim(ct_npz_get(npz, "none"), 1), 4);
        assert_false(ct_ok(ct_npz_get_at(npz, "z", line)));
        expect_error(CT_E_ARGUMENT,
                     "a.c:7: npz_get: %s has no array \"z\"; it has 4: \"x\", \"dir/b\xc3\xa4\", "
                     "\"\", \"none\"",
                     place("a.npz"));
        assert_false(ct_ok(ct_npz_get_at(npz, "another name", line)));
        expect_error(CT_E_ARGUMENT,
                     "a.c:7: npz_get: %s has no array \"another name\"; it has 4: \"x\", "
                     "\"dir/b\xc3\xa4\", \"\", \"none\"",
                     place("a.npz"));
        ct_npz_close(npz);
    }
    ct_npz_close(NULL);
    assert_false(ct_failed());
}

static void the_wrong_one_of_two_formats(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_zeros(CT_F32, CT_DIMS(2));
    const ct_named_tensor all[] = {{"a.weight", x}, {"a.bias", x}, {"b.weight", x},
                                   {"b.bias", x},   {"c\"", x},    {"d.weight", x}};
    assert_true(ct_save_npz(place("a.npz"), all, 6));
    assert_true(ct_save_npy(place("y.npy"), x));
    assert_false(ct_ok(ct_load_npy_at(place("a.npz"), line)));
    expect_error(CT_E_FORMAT,
                 "a.c:7: load_npy: %s: npy: it begins with \"PK\\x03\\x04\\x14\\x00\", not with "
                 "\"\\x93NUMPY\"\n  hint: it may be an npz file: ct_npz_open",
                 place("a.npz"));
    assert_null(ct_npz_open_at(place("y.npy"), line));
    expect_error(CT_E_FORMAT,
                 "a.c:7: npz_open: %s: npz: it is no zip archive: it begins with \"\\x93NUM\", not "
                 "with \"PK\"\n  hint: it is an npy file: ct_load_npy",
                 place("y.npy"));
    assert_null(ct_npz_open_at(place("none.npz"), line));
    expect_error(CT_E_FILE, "a.c:7: npz_open: %s: cannot open: No such file or directory",
                 place("none.npz"));
    ct_npz *npz = ct_npz_open(place("a.npz"));
    assert_non_null(npz);
    assert_false(ct_ok(ct_npz_get_at(npz, "d.wieght", line)));
    expect_error(CT_E_ARGUMENT,
                 "a.c:7: npz_get: %s has no array \"d.wieght\"; it has 6: \"a.weight\", "
                 "\"a.bias\", \"b.weight\", \"b.bias\", ...\n  hint: did you mean \"d.weight\"?",
                 place("a.npz"));
    ct_npz_close(npz);
}

// Variables are read and written like any tensor, and their value may be pending.
static void variables(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_F64, CT_DIMS(2)); // (2,)
    ct_assign(w, ct_full(ct_scalar(3, CT_F64), CT_DIMS(2)));
    assert_true(ct_save_npy(place("w.npy"), w));
    {
        CT_SCOPE;
        const double *got = ct_data(ct_load_npy(place("w.npy")));
        assert_non_null(got);
        assert_true(got[0] == 3 && got[1] == 3);
    }
    ct_params_free(params);
}

static void not_written(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_zeros(CT_F32, CT_DIMS(2)), h = ct_cast(x, CT_BF16); // (2,), (2,)
    const char *path = place("n.npz");
    const ct_npz_options here = {.here = line};
    assert_false(ct_save_npy_at(path, h, line));
    expect_error(CT_E_DTYPE,
                 "a.c:7: save_npy: %s: npy: NumPy has no dtype for bf16\n  hint: cast to f32 "
                 "first, or write a "
                 "safetensors file",
                 path);
    const ct_named_tensor half = {"h", h}, twice[] = {{"a", x}, {"b", x}, {"a", x}},
                          out = {"a/../../b", x}, root = {"/a", x}, bad = {"a\xff", x},
                          none = {NULL, x};
    assert_false(ct_save_npz_with(path, &half, 1, here));
    expect_error(CT_E_DTYPE,
                 "a.c:7: save_npz: %s: npz: array \"h\": NumPy has no dtype for bf16\n  hint: cast "
                 "to f32 first, or "
                 "write a safetensors file",
                 path);
    assert_false(ct_save_npz_with(path, twice, 3, here));
    expect_error(CT_E_ARGUMENT, "a.c:7: save_npz: %s: npz: array \"a\": the name is given twice",
                 path);
    assert_false(ct_save_npz_with(path, &out, 1, here));
    expect_error(
        CT_E_ARGUMENT,
        "a.c:7: save_npz: %s: npz: array \"a/..\\/..\\/b\": the name leads out of its folder",
        path);
    assert_false(ct_save_npz_with(path, &root, 1, here));
    expect_error(CT_E_ARGUMENT,
                 "a.c:7: save_npz: %s: npz: array \"\\/a\": the name leads out of its folder",
                 path);
    assert_false(ct_save_npz_with(path, &bad, 1, here));
    expect_error(CT_E_ARGUMENT, "a.c:7: save_npz: %s: npz: array \"a\\xff\": the name is not UTF-8",
                 path);
    assert_false(ct_save_npz_with(path, &none, 1, here));
    expect_error(CT_E_ARGUMENT, "a.c:7: save_npz: tensor 0 has no name");
    assert_int_equal(access(path, F_OK), -1); // nor anything beside it
    assert_false(ct_save_npy_at("/nowhere/x.npy", x, line));
    expect_error(CT_E_FILE,
                 "a.c:7: save_npy: /nowhere/x.npy: cannot create: No such file or directory");
    assert_false(ct_ok(ct_load_npy_at("/nowhere/x.npy", line)));
    expect_error(CT_E_FILE,
                 "a.c:7: load_npy: /nowhere/x.npy: cannot open: No such file or directory");
    assert_null(ct_npz_open_at("/nowhere/x.npz", line));
    expect_error(CT_E_FILE,
                 "a.c:7: npz_open: /nowhere/x.npz: cannot open: No such file or directory");
    assert_null(ct_data(ct_npz_get_at(NULL, "a", line)));
    expect_error(CT_E_ARGUMENT, "a.c:7: npz_get: the file is not open");
}

// The n-th allocation fails, for every n: a sentence, nothing lost, nothing left behind. Gives how
// many there are.
static int64_t refuse_each(bool deflate) {
    const float values[4] = {1, 2, 3, 4};
    const int64_t shape[2] = {2, 2};
    const ct_npz_out out[] = {{"a", CT_F32, 2, shape, values}, {"b", CT_F32, 2, shape, values}};
    const char *path = place("m.npz");
    for (int64_t n = 0;; n++) {
        struct ct_npz npz = {0};
        ct_err err = {0};
        ct_npy npy;
        void *data = NULL;
        ct__fail_alloc_after(n);
        bool ok = ct__npz_write(path, out, 2, deflate, &err) && ct__npz_open(path, &npz, &err) &&
                  ct__npz_read(&npz, ct__npz_find(&npz, "b"), &npy, &data, &err);
        ct__fail_alloc_after(-1);
        if (ok) assert_memory_equal(data, values, sizeof values);
        if (!ok) assert_int_equal(err.code, CT_E_MEMORY);
        ct__free(data);
        ct__npz_close(&npz);
        if (ok) return n;
        assert_true(n < 100);
    }
}

// zlib's memory is the library's: five requests to deflate and two to inflate, beside our room for
// packed bytes.
static void no_memory(void **state) {
    (void)state;
    ct__queue_wait_idle(); // compilers of earlier tests' kernels allocate, too, and took refusals
    int64_t stored = refuse_each(false);
    assert_int_equal(refuse_each(true), stored + 2 * (1 + 5) + 1 + 2);
}

// Somebody shortens the file in place while it is open; or another one takes its name.
static void changed_while_open(void **state) {
    (void)state;
    CT_SCOPE;
    const char *path = place("c.npz");
    const ct_named_tensor all[] = {{"a", ct_f(1)}, {"b", ct_ones(CT_F32, CT_DIMS(1 << 16))}},
                          one = all[0];
    for (int deflate = 0; deflate < 2; deflate++) {
        assert_true(ct_save_npz(path, all, 2, .deflate = deflate));
        struct stat whole;
        assert_int_equal(stat(path, &whole), 0);
        ct_npz *npz = ct_npz_open(path);
        assert_non_null(npz);
        assert_true(ct_item(ct_npz_get(npz, "a")) == 1);
        assert_int_equal(truncate(path, 200), 0);
        assert_false(ct_ok(ct_npz_get_at(npz, "b", line)));
        // Headers of 35 bytes each, and between them an array of 132, or what is packed of it.
        expect_error(CT_E_FILE,
                     "a.c:7: npz_get: %s: it ends at byte %d or before, but had %lld bytes when it "
                     "was opened",
                     path, deflate ? 200 : 202, (long long)whole.st_size);
        ct_npz_close(npz);
    }
    assert_true(ct_save_npz(path, all, 2));
    ct_npz *npz = ct_npz_open(path);
    assert_true(ct_save_npz(path, &one, 1)); // beside it, and renamed
    assert_true(ct_item(ct_sum(ct_npz_get(npz, "b"))) == 1 << 16);
    ct_npz_close(npz);
    assert_false(ct_failed());
}

// What 32 bits cannot count, written: a size, and the place of what stands behind it.
static void beyond_4_gib(void **state) {
    (void)state;
    if (!getenv("COTAN_TEST_ALL")) skip();
    const int64_t n = (1LL << 32) + 1000, three = 3;
    const uint8_t few[3] = {1, 2, 3};
    void *zeros =
        mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(zeros, MAP_FAILED);
    const ct_npz_out out[] = {{"big", CT_U8, 1, &n, zeros}, {"few", CT_U8, 1, &three, few}};
    const char *path = place("big.npz");
    struct ct_npz npz;
    ct_err err = {0};
    ct_npy npy;
    void *data;
    assert_true(ct__npz_write(path, out, 2, false, &err));
    assert_true(ct__npz_open(path, &npz, &err));
    assert_true(npz.entries[0].zip.bytes == (uint64_t)n + 128);
    assert_true(npz.entries[1].zip.local > (uint64_t)n);
    assert_true(ct__npz_read_header(&npz, ct__npz_find(&npz, "big"), &npy, &err) &&
                npy.shape[0] == n);
    assert_true(ct__npz_read(&npz, ct__npz_find(&npz, "few"), &npy, &data, &err));
    assert_memory_equal(data, few, sizeof few);
    ct__free(data);
    ct__npz_close(&npz);
    char command[256]; // and by somebody else's eyes
    snprintf(command, sizeof command,
             "python3 -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(\"%s\").testzip())'", path);
    assert_int_equal(system(command), 0);
    munmap(zeros, (size_t)n);
}

// ------------------------------------------------------------------------------------------
// copying

static bool copy_npz(const char *from, const char *to, bool deflate) {
    ct_npz *npz = ct_npz_open_at(from, CT_NOWHERE);
    size_t n = ct_npz_count(npz);
    ct_named_tensor *all = calloc(n + 1, sizeof *all);
    for (size_t i = 0; i < n && all; i++)
        all[i] = (ct_named_tensor){ct_npz_name(npz, i),
                                   ct_npz_get_at(npz, ct_npz_name(npz, i), CT_NOWHERE)};
    bool ok = npz && all && ct_save_npz_with(to, all, n, (ct_npz_options){.deflate = deflate});
    free(all);
    ct_npz_close(npz);
    return ok;
}

static int copy(void) {
    char from[512], to[512], how[16];
    while (scanf("%511s %511s %15s", from, to, how) == 3) {
        CT_SCOPE;
        bool ok = strcmp(how, "npy") == 0
                      ? ct_save_npy_at(to, ct_load_npy_at(from, CT_NOWHERE), CT_NOWHERE)
                      : copy_npz(from, to, strcmp(how, "deflate") == 0);
        printf("%s%c", ok ? "ok" : ct_error_text(), '\0');
        ct_error_clear();
    }
    return 0;
}

static int get(const char *path, const char *name) {
    CT_SCOPE;
    ct_npz *npz = ct_npz_open(path);
    ct_tensor t = npz ? ct_npz_get(npz, name) : CT_NONE;
    const void *data = npz ? ct_data(t) : NULL;
    if (data) fwrite(data, ct_dtype_size(ct_dtype_of(t)), (size_t)ct_size(t), stdout);
    if (!data) fprintf(stderr, "%s\n", ct_error_text());
    ct_npz_close(npz);
    return !data;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--get") == 0) return get(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "--copy") == 0) return copy();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        cmocka_unit_test(beginnings),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(the_wrong_one_of_two_formats),
        cmocka_unit_test(variables),
        cmocka_unit_test(not_written),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(beyond_4_gib),
        cmocka_unit_test(changed_while_open),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
