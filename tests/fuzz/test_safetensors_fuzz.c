// Mutated safetensors files, 200,000 of them with a fixed seed: none may crash the reader, and what
// it accepts must obey the promises of its header. COTAN_FUZZ_SEED and COTAN_FUZZ_RUNS override.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"

enum { ROOM = 1024 };

static const char *const seeds[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,"
    "8]"
    "},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}",
    "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2],\"x\":[{\"y\":-1.5e3},null,true]"
    "},"
    "\"\\ud83d\\ude00\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[2,2]}}  ",
};
static const size_t seed_data[] = {8, 9, 2};

// Pieces that a grammar-blind mutation seldom hits.
static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "0",
    "1",
    "-0",
    "1e400",
    "1.0",
    "null",
    "true",
    "false",
    "F64",
    "BF16",
    "F6_E2M3",
    "dtype",
    "shape",
    "data_offsets",
    "__metadata__",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "\xff",
    "\xed\xa0\x80",
    "\n",
    " ",
    "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
};

static uint64_t random_state;
static uint64_t draw(void) { // splitmix64
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static size_t below(size_t n) { return (size_t)(draw() % n); }

static size_t splice(char *text, size_t n, size_t at, size_t gone, const char *in, size_t in_n) {
    if (at + gone > n) gone = n - at;
    if (n - gone + in_n > ROOM) return n;
    memmove(text + at + in_n, text + at + gone, n - at - gone);
    memcpy(text + at, in, in_n);
    return n - gone + in_n;
}

static size_t mutate(char *text, size_t n) {
    size_t at = below(n + 1);
    char c = (char)draw();
    const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
    switch (below(6)) {
    case 0: return splice(text, n, at, 1, &c, 1);
    case 1: return splice(text, n, at, below(4), "", 0);
    case 2: return splice(text, n, at, below(3), piece, strlen(piece));
    case 3: // a stretch of the text again
        if (n > 1) {
            char copy[64];
            size_t from = below(n), m = below(sizeof copy);
            if (m > n - from) m = n - from;
            memcpy(copy, text + from, m);
            return splice(text, n, at, 0, copy, m);
        }
        return n;
    case 4: // another digit
        for (size_t i = at; i < n; i++)
            if (text[i] >= '0' && text[i] <= '9') {
                text[i] = (char)('0' + below(10));
                break;
            }
        return n;
    default: // a flipped bit
        if (at < n) text[at] = (char)(text[at] ^ 1 << below(8));
        return n;
    }
}

// What ct__st_parse promises about a file that it accepts.
static void check(const ct_st *st, const char *bytes, size_t n) {
    size_t total = 0;
    for (size_t i = 0; i < st->n; i++) {
        const ct_st_entry *e = &st->entries[i];
        const char *data = e->data;
        if (data < bytes + 8 || e->bytes > (size_t)(bytes + n - data)) fail_msg("outside the file");
        if (e->begin != total) fail_msg("a hole or an overlap");
        total += e->bytes;
        char what[128];
        if (strlen(ct__st_describe(e, what, sizeof what)) >= sizeof what) fail_msg("describe");
        if (strlen(e->name) == e->name_n && ct__st_find(st, e->name) != e) fail_msg("find");
    }
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void mutated_files(void **state) {
    (void)state;
    uint64_t seed = setting("COTAN_FUZZ_SEED", 20251), runs = setting("COTAN_FUZZ_RUNS", 200000);
    size_t accepted = 0;
    print_message("seed %llu, %llu files\n", (unsigned long long)seed, (unsigned long long)runs);
    for (uint64_t run = 0; run < runs; run++) {
        random_state = seed * 0x9e3779b97f4a7c15u + run;
        size_t which = below(3), n = strlen(seeds[which]), data = seed_data[which];
        char text[ROOM];
        memcpy(text, seeds[which], n);
        for (size_t k = 1 + below(4); k; k--) n = mutate(text, n);
        if (below(8) == 0) data = below(20);
        uint64_t length = below(16) ? n : below(4) ? n + below(9) - 4 : draw();
        char *bytes = malloc(8 + n + data); // exact, so that a sanitizer sees reads beyond
        assert_non_null(bytes);
        for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
        memcpy(bytes + 8, text, n);
        memset(bytes + 8 + n, 0x55, data);
        ct_st st;
        ct_err err = {0};
        bool ok = ct__st_parse("m", bytes, 8 + n + data, &st, &err);
        if (ok)
            check(&st, bytes, 8 + n + data);
        else if (err.code != CT_E_FORMAT ||
                 (strncmp(err.text, "m: safetensors: ", 16) != 0 &&
                  strncmp(err.text, "m: this is no safetensors file: ", 32) != 0))
            fail_msg("run %llu: %s", (unsigned long long)run, err.text);
        accepted += ok;
        ct__st_close(&st);
        free(bytes);
    }
    print_message("%zu accepted\n", accepted);
    if (runs >= 200000) assert_true(accepted > 1000 && accepted < 100000); // else it tests nothing
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutated_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
