// src/io: safetensors written and read back, what the reader tells, allocation failures, UTF-8.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/dtype.h"
#include "base/os.h"
#include "io/crc32c.h"
#include "io/safetensors.h"
#include "io/utf8.h"

static char folder[64], path[80];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cotan-st-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const uint8_t bytes3[3] = {7, 8, 9};
static const double scalar = 2.5;
static const int64_t s23[] = {2, 3}, s3[] = {3}, s0[] = {0, 4};
static const ct_st_out outs[] = {
    {"w.a", CT_F32, 2, s23, weights},      {"b", CT_U8, 1, s3, bytes3},
    {"s", CT_F64, 0, NULL, &scalar},       {"empty", CT_F32, 2, s0, NULL},
    {"h\"\\\n\x01", CT_BF16, 2, s0, NULL},
};
static const ct_st_pair pairs[] = {{"z", "last", 1, 4}, {"format", "pt", 6, 2}};

static void assert_bytes(const ct_st *st, const ct_st_entry *e, const void *bytes) {
    ct_err err = {0};
    uint64_t seen = 0;
    for (ct_st_chunk p = {0}; ct__st_next_chunk(st, e, &p, &err) && p.n; seen += p.n) {
        assert_int_equal(p.at, seen);
        assert_memory_equal(p.bytes, (const char *)bytes + seen, p.n);
    }
    assert_string_equal(err.text, "");
    assert_int_equal(seen, e->bytes);
}

// Each dtype by the name that the format gives it, with the bytes that were written.
static void every_dtype_reads_back(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ct_dtype dtype;
    } known[] = {{"BOOL", CT_BOOL}, {"U8", CT_U8},          {"U16", CT_U16},        {"U32", CT_U32},
                 {"U64", CT_U64},   {"I8", CT_I8},          {"I16", CT_I16},        {"I32", CT_I32},
                 {"I64", CT_I64},   {"F16", CT_F16},        {"BF16", CT_BF16},      {"F32", CT_F32},
                 {"F64", CT_F64},   {"F8_E4M3", CT_F8E4M3}, {"F8_E5M2", CT_F8E5M2}, {"F4", CT_F4},
                 {"C64", CT_C64}};
    enum { DTYPES = sizeof known / sizeof *known };
    char data[DTYPES][16], what[64];
    ct_st_out all[DTYPES];
    const int64_t two = 2;
    ct_err err = {0};
    ct_st st;
    int named = 0;
    for (ct_dtype d = CT_BOOL; d < CT_DTYPE_COUNT; d++) named += ct__dtype(d)->safetensors != NULL;
    assert_int_equal(DTYPES, named);
    for (int d = 0; d < DTYPES; d++) {
        for (int i = 0; i < 16; i++) data[d][i] = (char)(d ? 37 * i + d : i & 1);
        all[d] = (ct_st_out){known[d].name, known[d].dtype, 1, &two, data[d]};
    }
    assert_true(ct__st_write(path, all, DTYPES, NULL, 0, &err));
    assert_true(ct__st_open(path, &st, &err));
    for (int d = 0; d < DTYPES; d++) {
        const ct_st_entry *e = ct__st_find(&st, known[d].name);
        ct_dtype dtype = known[d].dtype;
        assert_true(e && e->dtype == dtype && e->bytes == ct__dtype_bytes(dtype, 2));
        assert_bytes(&st, e, data[d]);
        char said[64], dtype_said[64];
        snprintf(what, sizeof what, "(2,) %s", ct_dtype_name(dtype));
        assert_string_equal(ct__st_describe(e, said, sizeof said), what);
        snprintf(dtype_said, sizeof dtype_said, "\"dtype\":\"%s\"", known[d].name);
        assert_non_null(memmem(st.header, st.header_n, dtype_said, strlen(dtype_said)));
    }
    ct__st_close(&st);
}

static void a_written_file_reads_back(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st st;
    char what[64];
    assert_true(ct__st_write(path, outs, 5, pairs, 2, &err));
    assert_true(ct__st_open(path, &st, &err));
    assert_int_equal(st.n, 5);
    const ct_st_entry *e = ct__st_find(&st, "w.a");
    assert_non_null(e);
    assert_int_equal(e->dtype, CT_F32);
    assert_int_equal(e->rank, 2);
    assert_int_equal(e->shape[0], 2);
    assert_int_equal(e->shape[1], 3);
    assert_int_equal(e->bytes, sizeof weights);
    assert_bytes(&st, e, weights);
    assert_string_equal(ct__st_describe(e, what, sizeof what), "(2, 3) f32");
    e = ct__st_find(&st, "s");
    assert_non_null(e);
    assert_int_equal(e->rank, 0);
    assert_bytes(&st, e, &scalar);
    assert_int_equal(ct__st_find(&st, "b")->bytes, 3);
    assert_bytes(&st, ct__st_find(&st, "b"), bytes3);
    assert_int_equal(ct__st_find(&st, "empty")->bytes, 0);
    assert_non_null(ct__st_find(&st, "h\"\\\n\x01"));
    assert_null(ct__st_find(&st, "w"));
    assert_null(ct__st_find(&st, "w.a2"));
    assert_string_equal(ct__st_metadata(&st, "format"), "pt");
    assert_string_equal(ct__st_metadata(&st, "z"), "last");
    assert_null(ct__st_metadata(&st, "time"));
    ct__st_close(&st);
}

// The exact bytes: order, padding, escapes.
static void the_header_is_as_the_reference_writes_it(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"z\":\"last\"},"
        "\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
        "\"w.a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"h\\\"\\\\\\n\\u0001\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[32,32]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35]}}";
    ct_err err = {0};
    char *file;
    size_t n, h = (strlen(header) + 7) / 8 * 8;
    assert_true(ct__st_write(path, outs, 5, pairs, 2, &err));
    assert_true(ct__file_read(path, &file, &n, &err));
    assert_int_equal(n, 8 + h + 35);
    assert_int_equal((unsigned char)file[0] | (unsigned char)file[1] << 8, h);
    assert_memory_equal(file + 8, header, strlen(header));
    for (size_t i = strlen(header); i < h; i++) assert_int_equal(file[8 + i], ' ');
    assert_memory_equal(file + 8 + h, &scalar, 8);
    assert_memory_equal(file + 8 + h + 8, weights, 24);
    assert_memory_equal(file + 8 + h + 32, bytes3, 3);
    free(file);
}

static void order_of_arguments_changes_no_byte(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st_out turned[5];
    ct_st_pair turned_pairs[2] = {pairs[1], pairs[0]};
    char *one, *two;
    size_t n1, n2;
    for (int i = 0; i < 5; i++) turned[i] = outs[4 - i];
    assert_true(ct__st_write(path, outs, 5, pairs, 2, &err));
    assert_true(ct__file_read(path, &one, &n1, &err));
    assert_true(ct__st_write(path, turned, 5, turned_pairs, 2, &err));
    assert_true(ct__file_read(path, &two, &n2, &err));
    assert_int_equal(n1, n2);
    assert_memory_equal(one, two, n1);
    free(one);
    free(two);
}

static void headers_are_padded_to_eight(void **state) {
    (void)state;
    for (size_t n = 1; n <= 8; n++) {
        ct_err err = {0};
        ct_st_out out = {&"aaaaaaaa"[8 - n], CT_F32, 2, s23, weights};
        char *file;
        size_t size;
        assert_true(ct__st_write(path, &out, 1, NULL, 0, &err));
        assert_true(ct__file_read(path, &file, &size, &err));
        assert_int_equal(file[0] % 8, 0);
        assert_int_equal(size, 8 + file[0] + 24);
        free(file);
    }
}

// The file system refuses in the middle of the bytes, or at the end: the old file stays (and
// nothing else: see no_temporary_file_is_left).
static void the_disk_refuses(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st st;
    char whole[200];
    struct rlimit before, small = {16, 16};
    assert_true(ct__st_write(path, outs, 5, NULL, 0, &err));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool ok = ct__st_write(path, outs, 2, NULL, 0, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_false(ok);
    snprintf(whole, sizeof whole, "%s: cannot write: File too large", path);
    assert_string_equal(err.text, whole);
    err = (ct_err){0};
    assert_true(ct__st_open(path, &st, &err));
    assert_int_equal(st.n, 5);
    ct__st_close(&st);
    char inner[100];
    snprintf(inner, sizeof inner, "%s/d", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_false(ct__st_write(inner, outs, 2, NULL, 0, &err));
    snprintf(whole, sizeof whole, "%s: cannot rename into place: Is a directory", inner);
    assert_string_equal(err.text, whole);
    assert_int_equal(rmdir(inner), 0);
}

static void a_failed_write_keeps_the_old_file(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st st;
    assert_true(ct__st_write(path, outs, 5, NULL, 0, &err));
    ct_st_out bad[2] = {outs[0], {"x", CT_F32, 1, s3, NULL}};
    assert_false(ct__st_write(path, bad, 2, NULL, 0, &err));
    err = (ct_err){0};
    assert_true(ct__st_open(path, &st, &err));
    assert_int_equal(st.n, 5);
    ct__st_close(&st);
}

static void empty_files_are_legal(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st st;
    assert_true(ct__st_write(path, NULL, 0, NULL, 0, &err));
    assert_true(ct__st_open(path, &st, &err));
    assert_int_equal(st.n, 0);
    assert_null(ct__st_find(&st, "a"));
    assert_null(ct__st_metadata(&st, "a"));
    ct__st_close(&st);
}

// Each allocation of a write and of a read fails once; nothing leaks (a sanitizer looks), nothing
// is left on disk, and the error says what it is.
static void allocations_may_fail(void **state) {
    (void)state;
    int failures = 0;
    for (bool done = false; !done; failures++) {
        ct_err err = {0};
        ct__fail_alloc_after(failures);
        done = ct__st_write(path, outs, 5, pairs, 2, &err);
        ct__fail_alloc_after(-1);
        assert_int_equal(err.code, done ? CT_OK : CT_E_MEMORY);
    }
    assert_true(failures > 2);
    failures = 0;
    for (bool done = false; !done; failures++) {
        ct_err err = {0};
        ct_st st;
        ct__fail_alloc_after(failures);
        done = ct__st_open(path, &st, &err);
        ct__fail_alloc_after(-1);
        assert_int_equal(err.code, done ? CT_OK : CT_E_MEMORY);
        ct__st_close(&st);
    }
    assert_true(failures > 3);
}

static void types_that_cotan_lacks_are_listed(void **state) {
    (void)state;
    static const char file[] =
        "\x75\0\0\0\0\0\0\0"
        "{\"a\":{\"dtype\":\"F8_E8M0\",\"shape\":[2],\"data_offsets\":[2,4]},"
        "\"n\\u0000m\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}\1\2\3\4";
    ct_err err = {0};
    ct_st st;
    bool ok = ct__st_parse("m", file, sizeof file - 1, &st, &err);
    if (!ok) print_error("%s\n", err.text);
    assert_true(ok);
    assert_int_equal(st.n, 2);
    assert_int_equal(st.entries[0].bits, 4);
    assert_int_equal(st.entries[0].name_n, 3);
    assert_memory_equal(st.entries[0].name, "n\0m", 4);
    assert_null(ct__st_find(&st, "n"));
    assert_string_equal(st.entries[1].kind, "F8_E8M0");
    assert_int_equal(st.entries[1].dtype, CT_DEFAULT);
    assert_memory_equal(st.entries[1].data, "\3\4", 2);
    ct__st_close(&st);
}

// 100,000 tensors open in well under a second: sorted, not searched in pairs.
static void many_tensors(void **state) {
    (void)state;
    enum { N = 100000 };
    ct_st_out *many = calloc(N, sizeof *many);
    char(*names)[24] = calloc(N, sizeof *names);
    assert_non_null(many);
    assert_non_null(names);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layer.%d", i);
        many[i] = (ct_st_out){names[i], CT_U8, 1, s3, bytes3};
    }
    ct_err err = {0};
    ct_st st;
    assert_true(ct__st_write(path, many, N, NULL, 0, &err));
    double start = ct__now();
    assert_true(ct__st_open(path, &st, &err));
    double took = ct__now() - start;
    assert_int_equal(st.n, N);
    assert_non_null(ct__st_find(&st, "layer.99999"));
    ct__st_close(&st);
    print_message("%d tensors: opened in %.3f s\n", N, took);
    assert_true(took < 5); // sanitizers and a busy machine included
    free(names);
    free(many);
}

// ------------------------------------------------------------------------------------------- UTF-8

static void utf8_takes_every_code_point(void **state) {
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char text[4];
        uint32_t back;
        size_t used, n = ct__utf8_put(cp, text);
        bool surrogate = cp >= 0xd800 && cp <= 0xdfff;
        ct_utf8 state_of = ct__utf8_next(text, n, &back, &used);
        if ((state_of == CT_UTF8_OK) == surrogate) fail_msg("U+%04X", cp);
        if (surrogate) continue;
        if (back != cp || used != n) fail_msg("U+%04X came back as U+%04X", cp, back);
        for (size_t cut = 1; cut < n; cut++)
            if (ct__utf8_next(text, cut, &back, &used) != CT_UTF8_CUT || used != cut)
                fail_msg("U+%04X cut at %zu", cp, cut);
    }
}

static void utf8_finds_the_first_bad_byte(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n, bad;
    } cases[] = {
        {"", 0, 0},
        {"plain ascii text", 16, 16},
        {"0123456\xff", 8, 7},
        {"01234567\x80", 9, 8},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, 9},
        {"a\xc0\x80", 3, 1},
        {"a\xe0\x80\x80", 4, 1},
        {"a\xed\xa0\x80", 4, 1},
        {"a\xf4\x90\x80\x80", 5, 1},
        {"a\xf0\x80\x80\x80", 5, 1},
        {"a\xf8", 2, 1},
        {"ab\xe2\x82", 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(ct__utf8_bad(cases[i].text, cases[i].n), cases[i].bad);
}

static void printable_escapes_and_cuts(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"model.layers.0/w", "model.layers.0/w"},
        {"\xc3\xa9\xe6\x97\xa5", "\xc3\xa9\xe6\x97\xa5"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\r\n\t\x1b\x7f", "\\r\\n\\t\\u001b\\u007f"},
        {"\xc2\x9b\xe2\x80\xae\xef\xbb\xbf", "\\u009b\\u202e\\ufeff"},
        {"\xf3\xa0\x81\x81", "\\udb40\\udc41"},
        {"\xff\xe2\x82", "\\xff\\xe2\\x82"},
        {"*/ x /* ../../y", "*\\/ x /* ..\\/..\\/y"},
        {"/abs", "\\/abs"},
        {"0123456789012345678901234567890", "0123456789012345678901234567890"},
        {"01234567890123456789012345678901", "0123456789012345678901234567..."},
        {"012345678901234567890123456\xe6\x97\xa5zz", "012345678901234567890123456..."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[32];
        assert_string_equal(ct__printable(cases[i].text, strlen(cases[i].text), out, sizeof out),
                            cases[i].shown);
    }
}

// ----------------------------------------------------------------------------------------
// checksums

static void crc32c_is_the_standard_one(void **state) {
    (void)state;
    unsigned char zeros[32] = {0}, rising[32];
    for (int i = 0; i < 32; i++) rising[i] = (unsigned char)i;
    assert_int_equal(ct__crc32c("123456789", 9), 0xe3069283); // RFC 3720, and its appendix B.4
    assert_int_equal(ct__crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(ct__crc32c(rising, 32), 0x46dd794e);
    assert_int_equal(ct__crc32c(NULL, 0), 0);
}

static bool verify(bool required, ct_err *err) {
    ct_st st;
    *err = (ct_err){0};
    bool ok = ct__st_open(path, &st, err) && ct__st_verify(&st, "f", required, err);
    ct__st_close(&st);
    return ok;
}

// The file with each bit flipped in turn is refused, and where it is a tensor's, the tensor named.
static void every_flipped_bit_is_found(void **state) {
    (void)state;
    ct_err err = {0};
    char *bytes;
    size_t n, header;
    assert_true(ct__st_write_checked(path, outs, 5, pairs, 2, &err));
    assert_true(verify(true, &err));
    assert_true(ct__file_read(path, &bytes, &n, &err));
    header = 8 + (unsigned char)bytes[0] + 256 * (size_t)(unsigned char)bytes[1];
    for (size_t bit = 0; bit < n * 8; bit++) {
        ct_st st;
        err = (ct_err){0};
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        bool ok = ct__st_parse("f", bytes, n, &st, &err) && ct__st_verify(&st, "f", true, &err);
        ct__st_close(&st);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        if (ok) fail_msg("bit %zu", bit);
        if (bit / 8 >= header) assert_non_null(strstr(err.text, "f: safetensors: tensor \""));
    }
    bytes[n - 1] ^= 1; // the last byte is b's
    assert_true(ct__file_write(path, bytes, n, &err));
    free(bytes);
    assert_false(verify(false, &err));
    assert_string_equal(err.text, "f: safetensors: tensor \"b\" is damaged: the CRC-32C of its "
                                  "bytes is 03595c64, not f132df67");
}

static void files_without_checksums(void **state) {
    (void)state;
    ct_err err = {0};
    assert_true(ct__st_write(path, outs, 5, pairs, 2, &err));
    assert_true(verify(false, &err));
    assert_false(verify(true, &err));
    assert_string_equal(err.text, "f: safetensors: the header is damaged: it has no checksum");
    // One tensor's is missing: somebody else has changed the file.
    char digits[9];
    const ct_st_pair own = {"cotan.crc32c.b", digits, 14, 8};
    snprintf(digits, sizeof digits, "%08x", (unsigned)ct__crc32c(bytes3, 3));
    assert_true(ct__st_write(path, outs, 5, &own, 1, &err));
    assert_false(verify(false, &err));
    assert_string_equal(err.text, "f: safetensors: the header is damaged: it has no checksum");
}

// What others call so means something else, and is metadata like any.
static void checksums_of_others(void **state) {
    (void)state;
    ct_err err = {0};
    ct_st st;
    const ct_st_pair others[] = {{"cotan.crc32c_of_source", "abc", 22, 3},
                                 {"crc32c", "deadbeef", 6, 8},
                                 {"crc32c.b", "deadbeef", 8, 8},
                                 {"crc32c_of_source", "abc", 16, 3}};
    assert_true(ct__st_write(path, outs, 5, others, 4, &err));
    assert_true(verify(false, &err));
    assert_true(ct__st_open(path, &st, &err));
    for (size_t i = 0; i < st.n_metadata; i++) assert_false(ct__st_is_checksum(&st.metadata[i]));
    ct__st_close(&st);
    assert_true(ct__st_write_checked(path, outs, 5, others, 4, &err));
    assert_true(verify(true, &err));
    assert_true(ct__st_open(path, &st, &err));
    assert_int_equal(st.n_metadata, 4 + 5 + 1);
    size_t ours = 0;
    for (size_t i = 0; i < st.n_metadata; i++) ours += ct__st_is_checksum(&st.metadata[i]);
    assert_int_equal(ours, 5 + 1);
    ct__st_close(&st);
}

// Somebody shortens the file while it is open, within the tensor's second piece.
static void a_shortened_file_is_an_error(void **state) {
    (void)state;
    enum { N = 100000, LEFT = 40000 };
    const int64_t n = N;
    uint8_t *bytes = calloc(N, 1);
    assert_non_null(bytes);
    ct_err err = {0};
    ct_st st;
    assert_true(
        ct__st_write_checked(path, &(ct_st_out){"w", CT_U8, 1, &n, bytes}, 1, NULL, 0, &err));
    assert_true(ct__st_open(path, &st, &err));
    const ct_st_entry *e = ct__st_find(&st, "w");
    assert_bytes(&st, e, bytes);
    size_t whole = 8 + st.header_n + N;
    assert_int_equal(truncate(path, LEFT), 0);
    char want[256];
    snprintf(want, sizeof want,
             "%s: it ends at byte %d or before, but had %zu bytes when it was opened", path, LEFT,
             whole);
    assert_false(ct__st_verify(&st, "f", true, &err));
    assert_string_equal(err.text, want);
    assert_int_equal(err.code, CT_E_FILE);
    err = (ct_err){0};
    ct_st_chunk p = {0};
    assert_true(ct__st_next_chunk(&st, e, &p, &err));
    assert_int_equal(p.n, sizeof p.buffer);
    assert_false(ct__st_next_chunk(&st, e, &p, &err));
    assert_string_equal(err.text, want);
    ct__st_close(&st);
    free(bytes);
}

// Runs last.
static void no_temporary_file_is_left(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') assert_string_equal(entry->d_name, "m.safetensors");
    closedir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_reads_back),
        cmocka_unit_test(a_written_file_reads_back),
        cmocka_unit_test(the_header_is_as_the_reference_writes_it),
        cmocka_unit_test(order_of_arguments_changes_no_byte),
        cmocka_unit_test(headers_are_padded_to_eight),
        cmocka_unit_test(the_disk_refuses),
        cmocka_unit_test(a_failed_write_keeps_the_old_file),
        cmocka_unit_test(empty_files_are_legal),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(types_that_cotan_lacks_are_listed),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(utf8_takes_every_code_point),
        cmocka_unit_test(utf8_finds_the_first_bad_byte),
        cmocka_unit_test(printable_escapes_and_cuts),
        cmocka_unit_test(crc32c_is_the_standard_one),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(files_without_checksums),
        cmocka_unit_test(checksums_of_others),
        cmocka_unit_test(a_shortened_file_is_an_error),
        cmocka_unit_test(no_temporary_file_is_left),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
