// src/io/weights: a model's weights by name, of one file or of shards, and what an index gets wrong.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/weights.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cotan-weights-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int remove_folder(void **state) {
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_folder(const char *name) {
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const int64_t s23[] = {2, 3}, s4[] = {4}, s0[] = {0};

// One tensor, called `name`, as F32 (2, 3).
static void write_one(const char *file, const char *name) {
    ct_err err = {0};
    const ct_st_out out = {name, CT_F32, 2, s23, weights};
    assert_true(ct__st_write(in_folder(file), &out, 1, NULL, 0, &err));
}

static void write_text(const char *name, const char *text) {
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void write_index(const char *map) {
    char text[1000];
    snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 48}, \"weight_map\": %s}", map);
    write_text("model.safetensors.index.json", text);
}

// Opening `path` fails with the sentence, in which %s stands for the folder.
__attribute__((format(printf, 2, 3))) static void refused(const char *path, const char *format,
                                                          ...) {
    char wanted[CT_ERROR_TEXT];
    ct_err err = {0};
    ct_weights w;
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    assert_false(ct__weights_open(path, &w, &err));
    assert_string_equal(err.text, wanted);
    assert_null(w.entries);
}

static void one_file(void **state) {
    (void)state;
    ct_err err = {0};
    ct_weights w;
    const ct_st_out outs[] = {{"w.a", CT_F32, 2, s23, weights},
                              {"codes", CT_F4, 1, s4, "\x21\x43"},
                              {"empty", CT_BF16, 1, s0, NULL}};
    const char *path = in_folder("model.safetensors");
    assert_true(ct__st_write(path, outs, 3, NULL, 0, &err));
    for (int whole = 0; whole < 2; whole++) { // the file, and its folder
        assert_true(ct__weights_open(whole ? folder : path, &w, &err));
        assert_int_equal(w.n, 3);
        assert_int_equal(w.n_files, 1);
        const ct_weight *a = ct__weights_find(&w, "w.a");
        assert_non_null(a);
        assert_int_equal(a->dtype, CT_F32);
        assert_int_equal(a->block, -1);
        assert_int_equal(a->rank, 2);
        assert_int_equal(a->dim[0], 2);
        assert_int_equal(a->dim[1], 3);
        assert_int_equal(a->bytes, sizeof weights);
        assert_memory_equal(a->data, weights, sizeof weights);
        assert_string_equal(a->path, path);
        assert_string_equal(a->kind, "F32");
        assert_ptr_equal(a->data, (const char *)w.files[0].map + a->at);
        assert_memory_equal(ct__weights_find(&w, "codes")->data, "\x21\x43", 2);
        assert_int_equal(ct__weights_find(&w, "empty")->bytes, 0);
        assert_null(ct__weights_find(&w, "w"));
        ct__weights_close(&w);
    }
    assert_string_equal(err.text, "");
}

static void shards(void **state) {
    (void)state;
    ct_err err = {0};
    ct_weights w;
    write_one("model-1.safetensors", "a");
    write_one("model-2.safetensors", "b");
    write_index("{\"b\": \"model-2.safetensors\", \"a\": \"model-1.safetensors\"}");
    assert_true(ct__weights_open(folder, &w, &err));
    assert_int_equal(w.n, 2);
    assert_int_equal(w.n_files, 2);
    assert_string_equal(ct__weights_find(&w, "b")->path, in_folder("model-2.safetensors"));
    assert_memory_equal(ct__weights_find(&w, "b")->data, weights, sizeof weights);
    assert_string_equal(ct__weights_find(&w, "a")->path, in_folder("model-1.safetensors"));
    ct__weights_close(&w);
}

// models--x--y/{blobs,snapshots}: what is in a snapshot are links.
static void shards_of_the_hubs_cache(void **state) {
    (void)state;
    ct_err err = {0};
    ct_weights w;
    assert_int_equal(mkdir(in_folder("models--x--y"), 0700), 0);
    assert_int_equal(mkdir(in_folder("models--x--y/blobs"), 0700), 0);
    assert_int_equal(mkdir(in_folder("models--x--y/snapshots"), 0700), 0);
    assert_int_equal(mkdir(in_folder("models--x--y/snapshots/c0"), 0700), 0);
    write_one("models--x--y/blobs/1f", "a");
    write_index("{\"a\": \"model-1.safetensors\"}");
    assert_int_equal(rename(in_folder("model.safetensors.index.json"),
                            in_folder("models--x--y/snapshots/c0/model.safetensors.index.json")),
                     0);
    const char *link = in_folder("models--x--y/snapshots/c0/model-1.safetensors");
    assert_int_equal(symlink("../../blobs/1f", link), 0);
    assert_true(ct__weights_open(in_folder("models--x--y/snapshots/c0"), &w, &err));
    assert_memory_equal(ct__weights_find(&w, "a")->data, weights, sizeof weights);
    ct__weights_close(&w);
    // Not to what lies beside the repository.
    assert_int_equal(unlink(link), 0);
    write_one("1f", "a");
    assert_int_equal(symlink("../../../1f", link), 0);
    refused(in_folder("models--x--y/snapshots/c0"),
            "%s/models--x--y/snapshots/c0/model.safetensors.index.json: weight_map: shard "
            "\"model-1.safetensors\" is a link that leads out of %s/models--x--y",
            folder, folder);
}

static void what_an_index_gets_wrong(void **state) {
    (void)state;
    static const char *const outside[] = {"../m", "/etc/passwd", "a/b",       "..", ".",
                                          "",     "a\\\\b",      "\\u001b[2J"},
                             *const shown[] = {"..\\/m", "\\/etc/passwd", "a/b",       "..", ".",
                                               "",       "a\\\\b",        "\\u001b[2J"};
    char index[100], map[100];
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder);
    write_one("1.safetensors", "a");
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        snprintf(map, sizeof map, "{\"a\": \"%s\"}", outside[i]);
        write_index(map);
        refused(folder,
                "%s: weight_map: tensor \"a\" is in \"%s\", which names no file of the folder "
                "itself",
                index, shown[i]);
    }
    write_index("{\"a\": \"2.safetensors\"}");
    refused(folder,
            "%s: weight_map: shard \"2.safetensors\" cannot be found: No such file or directory",
            index);
    write_index("{\"a\": 2}");
    refused(folder, "%s: weight_map: what tensor \"a\" has is no file's name", index);
    write_index("{\"a\": \"a\\u0000\"}");
    refused(folder,
            "%s: not JSON: line 1, column 62: \\\\u0000 is not allowed without JSON_ALLOW_NUL near "
            "'\\\"a\\\\u0000\\\"'",
            index);
    write_index("[]");
    refused(folder, "%s: weight_map is no object of the tensors' files, by name", index);
    write_index("{}");
    refused(folder, "%s: weight_map is no object of the tensors' files, by name", index);
    write_index("{\"a\": \"1.safetensors\", \"a\": \"1.safetensors\"}");
    refused(folder, "%s: not JSON: line 1, column 73: duplicate object key near '\\\"a\\\"'",
            index);
    write_index("{\"a\": \"1.safetensors\", \"b\": \"1.safetensors\"}");
    refused(folder, "%s: weight_map: tensor \"b\" is not in \"1.safetensors\", where it should be",
            index);
    write_one("2.safetensors", "b");
    write_index("{\"a\": \"1.safetensors\", \"b\": \"1.safetensors\", \"c\": \"2.safetensors\"}");
    refused(folder, "%s: weight_map: tensor \"b\" is not in \"1.safetensors\", where it should be",
            index);
    write_one("2.safetensors", "a");
    write_index("{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}");
    refused(folder, "%s/2.safetensors: tensor \"a\" comes twice: it is also in %s/1.safetensors",
            folder, folder);
    assert_int_equal(unlink(in_folder("2.safetensors")), 0);
    assert_int_equal(mkfifo(in_folder("2.safetensors"), 0600), 0);
    refused(folder, "%s/2.safetensors: not a regular file", folder);
    assert_int_equal(unlink(in_folder("2.safetensors")), 0);
    assert_int_equal(symlink("/etc/passwd", in_folder("2.safetensors")), 0);
    refused(folder, "%s: weight_map: shard \"2.safetensors\" is a link that leads out of %s", index,
            folder);
    assert_int_equal(unlink(in_folder("2.safetensors")), 0);
    assert_int_equal(symlink("../", in_folder("up")), 0);
    assert_int_equal(symlink("up/2.safetensors", in_folder("2.safetensors")), 0);
    refused(folder,
            "%s: weight_map: shard \"2.safetensors\" cannot be found: No such file or directory",
            index);
}

// Stored arrays lie in the mapping, deflated ones are unpacked.
static void arrays(void **state) {
    (void)state;
    const ct_npz_out outs[] = {{"a", CT_F32, 2, s23, weights}, {"b.c", CT_I64, 1, s0, NULL}};
    for (int deflate = 0; deflate < 2; deflate++) {
        ct_err err = {0};
        ct_weights w;
        assert_true(ct__npz_write(in_folder("weights.npz"), outs, 2, deflate, &err));
        assert_true(ct__weights_are_in(folder));
        assert_true(ct__weights_open(folder, &w, &err));
        assert_string_equal(w.format, "npz");
        const ct_weight *a = ct__weights_find(&w, "a"), *b = ct__weights_find(&w, "b.c");
        assert_true(a && a->dtype == CT_F32 && a->rank == 2 && a->dim[1] == 3 &&
                    a->bytes == sizeof weights);
        assert_memory_equal(a->data, weights, sizeof weights);
        assert_true((a->data == (const char *)w.files[0].map + a->at) == !deflate);
        assert_string_equal(a->kind, "<f4");
        assert_true(b && b->dtype == CT_I64 && b->bytes == 0);
        ct__weights_close(&w);
    }
}

static void what_is_no_weights(void **state) {
    (void)state;
    assert_false(ct__weights_are_in(folder));
    refused(folder,
            "%s: the folder has no weights: there is none of model.safetensors, "
            "pytorch_model.bin, their .index.json, weights.npz, *.gguf",
            folder);
    refused(in_folder("absent"), "%s/absent: cannot open: No such file or directory", folder);
    write_text("model.safetensors", "");
    refused(folder,
            "%s/model.safetensors: safetensors: the file has 0 bytes, but the length of the header "
            "alone takes 8",
            folder);
    write_text("axes.safetensors", "");
    FILE *f = fopen(in_folder("axes.safetensors"), "w");
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775808],"
                                 "\"data_offsets\":[0,0]}}";
    fputc((int)strlen(header), f);
    fwrite("\0\0\0\0\0\0\0", 1, 7, f);
    fputs(header, f);
    fclose(f);
    refused(in_folder("axes.safetensors"),
            "%s/axes.safetensors: safetensors: tensor \"a\": (0, 9223372036854775808) u8 has an "
            "axis longer than 9223372036854775807",
            folder);
}

// Wherever memory runs out, that is said, and nothing is left.
static void allocation_failures(void **state) {
    (void)state;
    ct_weights w;
    write_one("model-1.safetensors", "a");
    write_index("{\"a\": \"model-1.safetensors\"}");
    for (int64_t n = 1;; n++) {
        ct_err err = {0};
        ct__fail_alloc_after(n);
        bool ok = ct__weights_open(folder, &w, &err);
        ct__fail_alloc_after(-1);
        if (ok) {
            assert_true(n > 5);
            break;
        }
        assert_true(err.code == CT_E_MEMORY || strstr(err.text, "not JSON"));
    }
    ct__weights_close(&w);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(one_file),
        TEST(shards),
        TEST(shards_of_the_hubs_cache),
        TEST(what_an_index_gets_wrong),
        TEST(arrays),
        TEST(what_is_no_weights),
        TEST(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
