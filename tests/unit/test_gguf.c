// src/io/gguf and ggml_blocks: files of the gguf package, made files of every fault, blocks as floats.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "base/text.h"
#include "io/ggml_blocks.h"
#include "io/gguf.h"
#include "io/weights.h"

#define MODELS "tests/data/models/"

// ---------------------------------------------------------------------------------- recorded files

static void every_type_of_value(void **state) {
    (void)state;
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    static const double want[] = {200, -100, 60000, -30000, 4e9,     -2e9, 1.5,
                                  1,   0,    0,     0,      -0x1p62, 0.1};
    ct_err err = {0};
    ct_weights w;
    char key[40];
    assert_true(ct__weights_open(MODELS "values.gguf", &w, &err));
    const ct_gguf *g = &w.gguf;
    assert_int_equal(g->version, 3);
    assert_int_equal(g->alignment, 64);
    for (int t = 0; t < CT_GGUF_TYPES; t++) {
        assert_string_equal(ct__gguf_type_name((ct_gguf_type)t), names[t]);
        ct_gguf_list list;
        snprintf(key, sizeof key, "list.%s", names[t]);
        if (t == CT_GGUF_ARRAY) continue;
        assert_true(ct__gguf_list(g, key, (ct_gguf_type)t, &list, &err));
        assert_int_equal(list.n, 2);
        ct_gguf_text text;
        for (int i = 0; t == CT_GGUF_STRING && i < 2; i++) {
            assert_true(ct__gguf_next(&list, &text));
            assert_int_equal(text.n, 6);
            assert_memory_equal(text.s, "na\xc3\xafve", 6);
        }
        if (t == CT_GGUF_STRING) assert_false(ct__gguf_next(&list, &text));
        if (t == CT_GGUF_STRING) continue;
        assert_true(ct__gguf_list_real(&list, 1) == (t == CT_GGUF_U64 ? 0x1p63 : want[t]));
        double real = 0;
        snprintf(key, sizeof key, "one.%s", names[t]);
        if (t != CT_GGUF_BOOL) assert_true(ct__gguf_real(g, key, &real, &err));
        if (t != CT_GGUF_BOOL) assert_true(real == ct__gguf_list_real(&list, 0));
    }
    ct_gguf_text text;
    bool yes = false;
    int64_t whole = 0;
    assert_true(ct__gguf_text(g, "one.string", &text, &err) && text.n == 6);
    assert_true(ct__gguf_text(g, "general.architecture", &text, &err));
    assert_memory_equal(text.s, "llama", 5);
    assert_true(ct__gguf_bool(g, "one.bool", &yes, &err) && yes);
    assert_true(ct__gguf_int(g, "one.i64", INT64_MIN, 0, &whole, &err) && whole == -(1LL << 62));
    assert_null(ct__gguf_find(g, "one"));
    assert_string_equal(err.text, "");
#define FAILS(call, said)                                                                          \
    do {                                                                                           \
        err = (ct_err){0};                                                                         \
        assert_false(call);                                                                        \
        assert_string_equal(err.text, MODELS "values.gguf: gguf: key " said);                      \
    } while (0)
    ct_gguf_list list;
    FAILS(ct__gguf_int(g, "one", 0, 1, &whole, &err), "\"one\" is missing");
    FAILS(ct__gguf_int(g, "one.u8", 0, 100, &whole, &err), "\"one.u8\" is 200, not from 0 to 100");
    FAILS(ct__gguf_int(g, "one.f32", 0, 1, &whole, &err),
          "\"one.f32\" is of type f32, not an integer");
    FAILS(ct__gguf_bool(g, "one.u8", &yes, &err), "\"one.u8\" is of type u8, not a bool");
    FAILS(ct__gguf_text(g, "list.string", &text, &err),
          "\"list.string\" is an array of string, not a string");
    FAILS(ct__gguf_list(g, "list.u8", CT_GGUF_I8, &list, &err),
          "\"list.u8\" is an array of u8, not an array of i8");
    FAILS(ct__gguf_real(g, "one.string", &(double){0}, &err),
          "\"one.string\" is of type string, not a number");
    ct__weights_close(&w);
}

static void plain_tensors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ct_dtype dtype;
    } known[] = {{"float32", CT_F32}, {"float16", CT_F16}, {"float64", CT_F64}, {"int8", CT_I8},
                 {"int16", CT_I16},   {"int32", CT_I32},   {"int64", CT_I64}};
    ct_err err = {0};
    ct_weights w;
    float numbers[6];
    assert_true(ct__weights_open(MODELS "values.gguf", &w, &err));
    assert_int_equal(w.n, 7);
    for (int i = 0; i < 7; i++) {
        const ct_weight *t = ct__weights_find(&w, known[i].name);
        assert_true(t && t->dtype == known[i].dtype && t->block == -1 && t->rank == 3);
        assert_true(t->dim[0] == 1 && t->dim[1] == 2 && t->dim[2] == 3 && t->at % 64 == 0);
        assert_int_equal(t->bytes, 6 * ct_dtype_size(t->dtype));
        for (uint32_t number = 0; number < 64; number++) {
            const ct_ggml_type *type = ct__ggml_type(number);
            if (!type || type->dtype != t->dtype) continue;
            assert_int_equal(ct__ggml_type_id(type), number);
            ct__ggml_dequantize(type, t->data, 6, numbers);
        }
        for (int k = 0; k < 6; k++) assert_true(numbers[k] == (float)k);
    }
    ct__weights_close(&w);
}

// Each type's blocks are what gguf.quants makes of them, bit for bit.
static void blocks(void **state) {
    (void)state;
    ct_err err = {0};
    ct_weights w;
    float numbers[256];
    char name[40];
    size_t seen = 0;
    assert_true(ct__weights_open(MODELS "ggml_blocks.gguf", &w, &err));
    for (uint32_t number = 0; number < 64; number++) {
        const ct_ggml_type *type = ct__ggml_type(number);
        if (!type) continue;
        const ct_weight *from = ct__weights_find(&w, type->name);
        snprintf(name, sizeof name, "%s.f32", type->name);
        const ct_weight *want = ct__weights_find(&w, name);
        if (!from) continue;
        assert_int_equal(from->block, type->dtype ? -1 : (int)number);
        assert_string_equal(from->kind, type->name);
        assert_true(from->rank == 2 && from->dim[1] == 256);
        ct__ggml_dequantize(type, from->data, (size_t)(256 / type->elements), numbers);
        if (memcmp(numbers, want->data, sizeof numbers) != 0) fail_msg("%s", type->name);
        seen++;
    }
    assert_int_equal(2 * seen, w.n);
    ct__weights_close(&w);
}

// Those that gguf.quants lacks, by their definitions.
static void blocks_without_a_reference(void **state) {
    (void)state;
    uint8_t b[292] = {0};
    float y[256];
    for (int i = 0; i < 256; i++) b[4 + i] = (uint8_t)(i - 128);
    memcpy(b, &(float){0.5f}, 4);
    ct__ggml_dequantize(ct__ggml_type(15), b, 1, y); // Q8_K
    for (int i = 0; i < 256; i++) assert_true(y[i] == 0.5f * (float)(i - 128));
    memcpy(b, "\x00\x38\x00\x00", 4);               // 0.5 as f16
    ct__ggml_dequantize(ct__ggml_type(9), b, 1, y); // Q8_1
    for (int i = 0; i < 32; i++) assert_true(y[i] == 0.5f * (float)(i - 128));
    memcpy(b, "\x00\x38\x05\x80", 4);
    memset(b + 4, 0, 14);
    ct__ggml_dequantize(ct__ggml_type(41), b, 1, y); // Q1_0
    for (int i = 0; i < 128; i++) assert_true(y[i] == (i == 0 || i == 2 || i == 15 ? 0.5f : -0.5f));
}

static void a_model_in_parts(void **state) {
    (void)state;
    ct_err err = {0};
    ct_weights w;
    assert_true(ct__weights_open(MODELS "parts-00001-of-00003.gguf", &w, &err));
    assert_int_equal(w.n_files, 3);
    assert_int_equal(w.n, 2);
    assert_true(*(const float *)ct__weights_find(&w, "b")->data == 'b');
    assert_string_equal(ct__weights_find(&w, "b")->path, MODELS "parts-00003-of-00003.gguf");
    ct__weights_close(&w);
    assert_false(ct__weights_open(MODELS "parts-00002-of-00003.gguf", &w, &err));
    assert_string_equal(err.text, MODELS
                        "parts-00002-of-00003.gguf: gguf: it is part 2 of 3, not part 1 of 3");
    err = (ct_err){0};
    assert_false(ct__weights_open(MODELS, &w, &err));
    assert_string_equal(err.text, MODELS ": the folder has 3 models in GGUF: name the file of one");
}

// ------------------------------------------------------------------------------------- made files

static ct_text file;

static void u32(uint32_t v) { ct__text_bytes(&file, &v, sizeof v); }
static void u64(uint64_t v) { ct__text_bytes(&file, &v, sizeof v); }
static void text(const char *s) {
    u64(strlen(s));
    ct__text_bytes(&file, s, strlen(s));
}
static void begin(uint64_t tensors, uint64_t keys) {
    ct__text_free(&file);
    ct__text_bytes(&file, "GGUF", 4);
    u32(3);
    u64(tensors);
    u64(keys);
}
// A tensor of one axis.
static void tensor(const char *name, uint64_t n, uint32_t type, uint64_t at) {
    text(name);
    u32(1);
    u64(n);
    u32(type);
    u64(at);
}
static void data(size_t n) { // after the padding
    static const char zeros[64];
    ct__text_bytes(&file, zeros, (32 - file.n % 32) % 32);
    for (; n; n--) ct__text_bytes(&file, "\x01", 1);
}

static void refused(const char *wanted) {
    ct_err err = {0};
    ct_gguf g;
    uint8_t *exact = malloc(file.n + 1); // a sanitizer sees reads beyond
    assert_non_null(exact);
    if (file.n) memcpy(exact, file.s, file.n);
    assert_false(ct__gguf_parse("m", exact, file.n, &g, &err));
    free(exact);
    assert_string_equal(err.text, wanted);
    assert_null(g.arena.head);
}

static void faults_of_the_header(void **state) {
    (void)state;
    ct__text_free(&file);
    refused("m: this is no GGUF file: it begins with \"\"");
    ct__text_add(&file, "ggjt\3");
    refused("m: this is no GGUF file: it begins with \"ggjt\"");
    ct__text_free(&file);
    ct__text_add(&file, "GGUF\3");
    refused("m: gguf: the file ends at byte 5, in its version");
    begin(0, 0);
    file.s[4] = 1;
    refused("m: gguf: version 1 is not supported, 2 and 3 are");
    file.s[4] = 4;
    refused("m: gguf: version 4 is not supported, 2 and 3 are");
    file.s[4] = 0;
    file.s[7] = 3;
    refused("m: gguf: its numbers have the other byte order (big-endian), which is not supported");
    begin(0, 0);
    file.n--;
    refused("m: gguf: the file ends at byte 23, in its header");
    begin(0, 1 << 16 | 1);
    refused("m: gguf: 65537 keys by its header, at most 65536 are read");
    begin((uint64_t)1 << 63, 0);
    refused("m: gguf: 9223372036854775808 tensors by its header, at most 262144 are read");
}

static void key(const char *name, uint32_t type) {
    begin(0, 1);
    text(name);
    u32(type);
}

static void faults_of_keys(void **state) {
    (void)state;
    begin(0, 2);
    refused("m: gguf: key 1 of 2: the file ends at byte 24, in the key");
    u64(UINT64_MAX);
    refused("m: gguf: key 1 of 2: the key has 18446744073709551615 bytes by its length, from byte "
            "32 on, but "
            "the file ends at byte 32");
    key("k\x1b[", 13);
    refused("m: gguf: key \"k\\u001b[\": the type of its value is 13, which the format has not");
    key("k", CT_GGUF_STRING);
    u64(4);
    ct__text_add(&file, "abc");
    refused("m: gguf: key \"k\": a string has 4 bytes by its length, from byte 45 on, but the file "
            "ends at "
            "byte 48");
    key("k", CT_GGUF_U64);
    refused(
        "m: gguf: key \"k\": 1 values of type u64 from byte 37 on, but the file ends at byte 37");
    key("k", CT_GGUF_ARRAY);
    u32(CT_GGUF_ARRAY);
    u64(1);
    refused("m: gguf: key \"k\": an array of arrays, which is not supported");
    key("k", CT_GGUF_ARRAY);
    u32(77);
    refused("m: gguf: key \"k\": the type of the array's elements is 77, which the format has not");
    for (int string = 0; string < 2; string++) { // 2^61 + 1 times 8 bytes are 8
        key("k", CT_GGUF_ARRAY);
        u32(string ? CT_GGUF_STRING : CT_GGUF_U64);
        u64(((uint64_t)1 << 61) + 1);
        u64(0);
        refused(string ? "m: gguf: key \"k\": 2305843009213693953 values of type string from byte "
                         "49 on, but "
                         "the file ends at byte 57"
                       : "m: gguf: key \"k\": 2305843009213693953 values of type u64 from byte 49 "
                         "on, but the "
                         "file ends at byte 57");
    }
    begin(0, 2);
    for (int i = 0; i < 2; i++) {
        text("k");
        u32(CT_GGUF_U8);
        ct__text_add(&file, "1");
    }
    refused("m: gguf: key \"k\": it comes twice");
    for (uint32_t value = 0; value < 4; value += 3) {
        key("general.alignment", CT_GGUF_U32);
        u32(value);
        refused(value ? "m: gguf: key \"general.alignment\": 3 is no power of 2"
                      : "m: gguf: key \"general.alignment\" is 0, not from 1 to 4294967295");
    }
    key("general.alignment", CT_GGUF_STRING);
    text("32");
    refused("m: gguf: key \"general.alignment\" is of type string, not an integer");
}

static void faults_of_tensors(void **state) {
    (void)state;
    begin(1, 0);
    text("t");
    u32(5);
    refused("m: gguf: tensor \"t\": 5 axes, at most 4 are allowed");
    begin(1, 0);
    text("t");
    u32(1);
    u64((uint64_t)1 << 63);
    refused("m: gguf: tensor \"t\": an axis of 9223372036854775808, at most 9223372036854775807 is "
            "allowed");
    begin(1, 0);
    tensor("t", 32, 4, 0);
    refused("m: gguf: tensor \"t\": its type is 4, which is none of ggml's types");
    begin(1, 0);
    tensor("t", 33, 2, 0);
    refused("m: gguf: tensor \"t\": (33,) Q4_0: a row is no multiple of blocks of 32");
    begin(1, 0);
    text("t");
    u32(2);
    u64((uint64_t)1 << 32);
    u64((uint64_t)1 << 31);
    u32(24);
    refused("m: gguf: tensor \"t\": the number of elements of (2147483648, 4294967296) I8 "
            "overflows 63 bits");
    begin(1, 0);
    tensor("t", (uint64_t)1 << 62, 27, 0);
    refused(
        "m: gguf: tensor \"t\": the size of (4611686018427387904,) I64 in bytes overflows 64 bits");
    begin(1, 0);
    u64(3);
    ct__text_bytes(&file, "a\0b", 3);
    refused("m: gguf: tensor \"a\\u0000b\": a zero byte in its name");
    begin(1, 0);
    tensor("t", 4, 0, 8);
    data(32);
    refused("m: gguf: tensor \"t\": it begins at byte 8 of the data, no multiple of 32");
    begin(1, 0);
    tensor("t", 9, 0, 0);
    data(32);
    refused("m: gguf: tensor \"t\": (9,) F32 takes 36 bytes from byte 0 of the data on, which "
            "begin at byte 64 "
            "of the file, but the file ends at byte 96");
    begin(1, 0);
    tensor("t", 1, 0, UINT64_MAX - 31);
    data(32);
    refused("m: gguf: tensor \"t\": (1,) F32 takes 4 bytes from byte 18446744073709551584 of the "
            "data on, which "
            "begin at byte 64 of the file, but the file ends at byte 96");
    begin(2, 0);
    tensor("t", 8, 0, 0);
    tensor("t", 8, 0, 32);
    data(64);
    refused("m: gguf: tensor \"t\": it comes twice");
    begin(2, 0);
    tensor("t", 16, 0, 0);
    tensor("u", 8, 0, 32);
    data(64);
    refused("m: gguf: tensor \"u\": it begins at byte 128 of the file, inside tensor \"t\"");
    begin(1, 1); // padding that takes the data beyond the file, and beyond 32 bits
    text("general.alignment");
    u32(CT_GGUF_U32);
    u32((uint32_t)1 << 31);
    tensor("t", 1, 24, 0);
    data(32);
    refused("m: gguf: tensor \"t\": (1,) I8 takes 1 bytes from byte 0 of the data on, which begin "
            "at byte "
            "2147483648 of the file, but the file ends at byte 128");
    ct__text_free(&file);
}

// Cut at every byte, and with each 8 bytes replaced: a sentence, or a file that holds together.
static void try_all(ct_gguf *g, const char *bytes, size_t n) {
    ct_err err = {0};
    if (!ct__gguf_parse("m", bytes, n, g, &err)) {
        assert_true(err.code == CT_E_FORMAT && strncmp(err.text, "m: ", 3) == 0);
        return;
    }
    for (size_t i = 0; i < g->n; i++)
        assert_true(g->tensors[i].at <= n && g->tensors[i].bytes <= n - g->tensors[i].at);
    for (size_t i = 0; i < g->n_pairs; i++) {
        ct_gguf_list list = g->pairs[i].value;
        ct_gguf_text t;
        uint64_t seen = 0;
        while (list.type == CT_GGUF_STRING && ct__gguf_next(&list, &t)) seen++;
        if (list.type == CT_GGUF_STRING) assert_int_equal(seen, g->pairs[i].value.n);
        if (list.type != CT_GGUF_STRING && list.n) (void)ct__gguf_list_real(&list, list.n - 1);
    }
    ct__gguf_close(g);
}

static void damaged_files(void **state) {
    (void)state;
    static const uint64_t edges[] = {0,         1, 0x7fffffff, (uint64_t)1 << 32, (uint64_t)1 << 63,
                                     UINT64_MAX};
    ct_err err = {0};
    ct_gguf g;
    char *bytes;
    size_t n;
    assert_true(ct__file_read(MODELS "values.gguf", &bytes, &n, &err));
    for (size_t cut = 0; cut < n; cut++) {
        char *exact = malloc(cut + 1);
        memcpy(exact, bytes, cut);
        try_all(&g, exact, cut);
        free(exact);
    }
    for (size_t at = 0; at + 8 <= n; at++) {
        uint64_t old, v;
        memcpy(&old, bytes + at, 8);
        for (size_t e = 0; e < 8; e++) {
            v = e < 6 ? edges[e] : e == 6 ? old + 1 : old - 1;
            memcpy(bytes + at, &v, 8);
            try_all(&g, bytes, n);
        }
        memcpy(bytes + at, &old, 8);
    }
    ct__free(bytes);
}

// 100,000 tensors and a list of as many tokens: a time that nobody notices.
static void many(void **state) {
    (void)state;
    enum { MANY = 100000 };
    char name[40];
    ct_err err = {0};
    ct_gguf g;
    begin(MANY, 1);
    text("tokens");
    u32(CT_GGUF_ARRAY);
    u32(CT_GGUF_STRING);
    u64(MANY);
    for (int i = 0; i < MANY; i++) text("token");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i * 7919 % MANY);
        tensor(name, 8, 0, (uint64_t)i * 32);
    }
    data(32 * (size_t)MANY);
    double start = ct__now();
    assert_true(ct__gguf_parse("m", file.s, file.n, &g, &err));
    ct_gguf_list list;
    ct_gguf_text t;
    assert_true(ct__gguf_list(&g, "tokens", CT_GGUF_STRING, &list, &err));
    size_t tokens = 0;
    while (ct__gguf_next(&list, &t)) tokens++;
    double seconds = ct__now() - start;
    assert_int_equal(tokens, MANY);
    assert_int_equal(g.n, MANY);
    assert_true(seconds < 5);
    assert_true(g.arena.bytes < 200 * (size_t)MANY);
    print_message("%d tensors and tokens in %.3f s\n", MANY, seconds);
    ct__gguf_close(&g);
    ct__text_free(&file);
}

// What a file claims, and does not hold, costs no memory: keys, tensors, strings and lists of any number, in a
// process that may take 64 MB more than it has.
static void little_memory(void **state) {
    (void)state;
#ifndef __SANITIZE_ADDRESS__ // whose shadow is memory of the process, too
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        size_t pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%zu", &pages) != 1) _exit(2);
        const rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64 << 20);
        if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) != 0) _exit(2);
        for (int i = 0; i < 64; i++) {
            ct_err err = {0};
            ct_gguf g;
            for (int what = 0; what < 4; what++) {
                begin(what == 0 ? (uint64_t)1 << i : 0, what == 0   ? 0
                                                        : what == 1 ? (uint64_t)1 << i
                                                                    : 1);
                text("k");
                u32(what == 2 ? CT_GGUF_STRING : CT_GGUF_ARRAY);
                if (what == 3) u32(i % 2 ? CT_GGUF_STRING : CT_GGUF_U8);
                u64((uint64_t)1 << i);
                err = (ct_err){0};
                if (ct__gguf_parse("m", file.s, file.n, &g, &err)) ct__gguf_close(&g);
                if (err.code == CT_E_MEMORY) _exit(3);
            }
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
#endif
}

static void allocation_failures(void **state) {
    (void)state;
    ct_weights w;
    for (int64_t n = 1;; n++) {
        ct_err err = {0};
        ct__fail_alloc_after(n);
        bool ok = ct__weights_open(MODELS "parts-00001-of-00003.gguf", &w, &err);
        ct__fail_alloc_after(-1);
        if (ok) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(err.code, CT_E_MEMORY);
    }
    ct__weights_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_value),
        cmocka_unit_test(plain_tensors),
        cmocka_unit_test(blocks),
        cmocka_unit_test(blocks_without_a_reference),
        cmocka_unit_test(a_model_in_parts),
        cmocka_unit_test(faults_of_the_header),
        cmocka_unit_test(faults_of_keys),
        cmocka_unit_test(faults_of_tensors),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(many),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
