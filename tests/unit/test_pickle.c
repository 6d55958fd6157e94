// src/io/pickle and torch: files of torch.save, pickles that want something else, storages that do not fit.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/os.h"
#include "base/text.h"
#include "io/pickle.h"
#include "io/weights.h"
#include "io/zip.h"

#define MODELS "tests/data/models/"

enum { BUDGET = 1 << 26 };

static float number(const ct_weight *t, int i) { // of f32, aligned to 1
    float value;
    memcpy(&value, (const char *)t->data + (size_t)i * sizeof value, sizeof value);
    return value;
}

static void recorded_files(void **state) {
    (void)state;
    static const char *const paths[] = {MODELS "views.pt", MODELS "views_before_1_6.pt"};
    for (int p = 0; p < 2; p++) {
        ct_err err = {0};
        ct_weights w;
        assert_true(ct__weights_open(paths[p], &w, &err));
        assert_int_equal(w.n, 6);
        const ct_weight *t = ct__weights_find(&w, "whole");
        assert_true(t && t->dtype == CT_F32 && t->rank == 3 && t->dim[2] == 4 && t->bytes == 96);
        assert_ptr_equal(t->data, (const char *)w.files[0].map + t->at);
        assert_string_equal(t->kind, "float32");
        for (int i = 0; i < 24; i++) assert_true(number(t, i) == (float)i);
        t = ct__weights_find(&w, "inner.permuted");
        assert_true(t && t->dim[0] == 4 && t->dim[1] == 2 && t->dim[2] == 3);
        for (int i = 0; i < 24; i++)
            assert_true(number(t, i) == (float)(i % 3 * 4 + i / 3 % 2 * 12 + i / 6));
        t = ct__weights_find(&w, "inner.7");
        assert_true(t && t->rank == 2 && t->dim[0] == 3 && t->dim[1] == 2);
        for (int i = 0; i < 6; i++) assert_true(number(t, i) == (float)(12 + 2 * i));
        t = ct__weights_find(&w, "bf16");
        assert_true(t && t->dtype == CT_BF16 && t->bytes == 24);
        assert_memory_equal(t->data, "\0\0\x80\x3f\0\x40", 6);
        assert_true(ct__weights_find(&w, "parameter")->rank == 1);
        t = ct__weights_find(&w, "u16");
        assert_true(t && t->dtype == CT_U16 && t->rank == 0 && t->bytes == 2);
        assert_memory_equal(t->data, "\xff\xff", 2);
        ct__weights_close(&w);
    }
}

// --------------------------------------------------------------------------------------- bare pickles

typedef struct bad {
    const char *pickle;
    size_t n;
    const char *text; // after "m, "
} bad;
#define BAD(pickle, text)                                                                          \
    { pickle, sizeof pickle - 1, text }

static const bad bads[] = {
    // What others would call.
    BAD("\x80\x02"
        "cposix\nsystem\nX\x02\0\0\0id\x85R.",
        "byte 2: the global 'posix.system' is none of those that data needs; code in files is "
        "never run"),
    BAD("\x80\x04\x8c\x08"
        "builtins\x8c\x04"
        "eval\x93.",
        "byte 18: the global 'builtins.eval' is none of those that data needs; code in files is "
        "never run"),
    BAD("\x80\x02"
        "ctorch._utils\n_rebuild_from_type_v2\n.",
        "byte 2: the global 'torch._utils._rebuild_from_type_v2' is none of those that data needs; "
        "code in files is never run"),
    BAD("c\x1b[2J\n\n.", "byte 0: the global '\\u001b[2J.' is none of those that data needs; code "
                         "in files is never run"),
    BAD("(S'id'\nios\nsystem\n.", "byte 1: opcode 0x53 is none that data needs"),
    BAD("(ios\nsystem\n.", "byte 1: opcode 0x69 is none that data needs"),
    BAD("(o.", "byte 1: opcode 0x6f is none that data needs"),
    BAD("N)\x81.", "byte 2: opcode 0x81 is none that data needs"),
    BAD("N)}\x92.", "byte 3: opcode 0x92 is none that data needs"),
    BAD("\x82\x01.", "byte 0: opcode 0x82 is none that data needs"),
    BAD("P0\n.", "byte 0: opcode 0x50 is none that data needs"),
    BAD("\x8f.", "byte 0: opcode 0x8f is none that data needs"),
    // What is called, and with what.
    BAD("N)R.", "byte 2: NoneType is called, it is no function"),
    BAD("ccollections\nOrderedDict\n]R.",
        "byte 26: collections.OrderedDict is called with a list, not with a tuple"),
    BAD("ccollections\nOrderedDict\n)R)R.", "byte 28: OrderedDict is called, it is no function"),
    BAD("ccollections\nOrderedDict\nN\x85R.",
        "byte 27: collections.OrderedDict is called with (NoneType)"),
    BAD("ctorch\nfloat32\n)R.", "byte 16: dtype is called, it is no function"),
    BAD("ctorch\nFloatStorage\n)R.", "byte 21: FloatStorage is called, it is no function"),
    BAD("ctorch\nSize\nK\x01\x85R.", "byte 15: torch.Size is called with (int)"),
    BAD("ctorch._utils\n_rebuild_parameter\nN\x85R.",
        "byte 35: torch._utils._rebuild_parameter is called with (NoneType)"),
    BAD("ctorch._utils\n_rebuild_tensor_v2\n(NK\0))tR.",
        "byte 40: torch._utils._rebuild_tensor_v2 is called with (NoneType, int, tuple, tuple)"),
    BAD("ctorch._utils\n_rebuild_tensor_v3\n)R.",
        "byte 34: torch._utils._rebuild_tensor_v3 is called with ()"),
    BAD("]}b.", "byte 2: elements are put into list, not into OrderedDict"),
    BAD("}]b.", "byte 2: elements are put into dict, not into OrderedDict"),
    BAD("NQ.",
        "byte 1: a persistent id is a NoneType, not (\"storage\", class, key, device, elements)"),
    BAD("(X\x07\0\0\0storagectorch\nfloat32\nX\x01\0\0\0"
        "0X\0\0\0\0K\1tQ.",
        "byte 42: a storage is of class dtype, which is none"),
    BAD("(X\x07\0\0\0storagectorch\nHalfStorage\nX\x01\0\0\0"
        "0X\0\0\0\0J\xff\xff\xff\xfftQ.",
        "byte 49: storage '0' has -1 elements on ''"),
    BAD("(X\x07\0\0\0storagectorch\nHalfStorage\nX\x01\0\0\0"
        "0X\0\0\0\0K\1)tQ.",
        "byte 47: storage '0' is a view of another, which Cotan does not read"),
    // The stack, its marks, the memo.
    BAD(".", "byte 0: an operand is missing on the stack"),
    BAD("NN.", "byte 2: more than one object is left on the stack"),
    BAD("(N.", "byte 2: more than one object is left on the stack"),
    BAD("0.", "byte 0: an operand is missing on the stack"),
    BAD("N(0.", "byte 2: an operand is missing on the stack"),
    BAD("N(\x86.", "byte 2: an operand is missing on the stack"),
    BAD("t.", "byte 0: a mark is missing on the stack"),
    BAD("1.", "byte 0: a mark is missing on the stack"),
    BAD("N(e.", "byte 2: elements are put into NoneType, not into list"),
    BAD("]NNs.", "byte 3: elements are put into list, not into dict"),
    BAD("}Na.", "byte 2: elements are put into dict, not into list"),
    BAD("}(Nu.", "byte 3: a key has no value"),
    BAD("(u.", "byte 1: elements are put into nothing, not into dict"),
    BAD("q\0.", "byte 0: an operand is missing on the stack"),
    BAD("h\0.", "byte 0: object 0 of the memo is read and was not written"),
    BAD("Nq\1h\0.", "byte 3: object 0 of the memo is read and was not written"),
    BAD("Nr\xff\xff\xff\xff.",
        "byte 1: object 4294967295 of the memo is further than there are opcodes"),
    BAD("j\xff\xff\xff\xff.", "byte 0: object 4294967295 of the memo is read and was not written"),
    // Lengths, and ends.
    BAD("", "byte 0: 1 bytes are needed, 0 are left"),
    BAD("N", "byte 1: 1 bytes are needed, 0 are left"),
    BAD("J\0\0.", "byte 0: 4 bytes are needed, 3 are left"),
    BAD("X\xff\xff\xff\xff.", "byte 0: 4294967295 bytes are needed, 1 are left"),
    BAD("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        "byte 0: 18446744073709551615 bytes are needed, 1 are left"),
    BAD("\x8b\xff\xff\xff\xff.", "byte 0: 4294967295 bytes are needed, 1 are left"),
    BAD("X\x01\0\0\0\xff.", "byte 0: a string is no UTF-8"),
    BAD("ctorch\nSize", "byte 0: the name of a global has no end"),
    BAD("\x80\x01.", "byte 0: the pickle is of protocol 1, PyTorch's files are of 2"),
    BAD("\x80\x06.", "byte 0: the pickle is of protocol 6, PyTorch's files are of 2"),
};

static bool read_pickle(const void *bytes, size_t n, ct_err *err) {
    ct_pickle p = {.label = "m", .budget = BUDGET};
    ct_pickle_value *v;
    size_t at = 0;
    bool ok = ct__pickle_read(&p, bytes, n, &at, &v, err);
    ct__arena_free(&p.arena);
    return ok;
}

static void pickles_that_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        char wanted[CT_ERROR_TEXT], *exact = malloc(bads[i].n + 1);
        ct_err err = {0};
        memcpy(exact, bads[i].pickle, bads[i].n);
        assert_false(read_pickle(exact, bads[i].n, &err));
        free(exact);
        snprintf(wanted, sizeof wanted, "m, %s", bads[i].text);
        assert_string_equal(err.text, wanted);
    }
}

// They are read in a process that is killed when it opens, starts or connects anything.
static void nothing_outside_is_touched(void **state) {
    (void)state;
#define KILLED(number)                                                                             \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILLED(SYS_openat),
        KILLED(SYS_execve),
        KILLED(SYS_socket),
        KILLED(SYS_clone),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            _exit(errno == EINVAL || errno == ENOSYS ? 0 : 2); // a system without filters
        for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
            ct_err err = {0};
            if (read_pickle(bads[i].pickle, bads[i].n, &err)) _exit(3);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// A million lists in each other, and integers of all lengths.
static void pickles_that_are_read(void **state) {
    (void)state;
    enum { DEEP = 1000000 };
    ct_err err = {0};
    char *deep = malloc(2 * DEEP);
    memset(deep, ']', DEEP);
    memset(deep + DEEP, 'a', DEEP - 1);
    deep[2 * DEEP - 1] = '.';
    assert_true(read_pickle(deep, 2 * DEEP, &err));
    free(deep);
    static const char whole[] =
        "(K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\0\x8a\1\xff\x8a\2\xff\0\x8a\x08\0\0\0\0\0\0\0\x80t.";
    static const int64_t want[] = {255, 65535, -2, 0, -1, 255, INT64_MIN};
    ct_pickle p = {.label = "m", .budget = BUDGET};
    ct_pickle_value *v;
    size_t used = 0;
    assert_true(ct__pickle_read(&p, whole, sizeof whole - 1, &used, &v, &err));
    assert_int_equal(used, sizeof whole - 1);
    assert_int_equal(v->count, 7);
    for (size_t i = 0; i < v->count; i++) assert_true(v->items[i]->integer == want[i]);
    ct__arena_free(&p.arena);
    static const char real[] = "G\x3f\xe0\0\0\0\0\0\0.behind";
    used = 0;
    assert_true(ct__pickle_read(&p, real, sizeof real - 1, &used, &v, &err));
    assert_true(v->real == 0.5 && used == 10);
    ct__arena_free(&p.arena);
    assert_string_equal(err.text, "");
}

// What the memo holds once may be used over and over: what that makes is counted.
static void what_would_grow(void **state) {
    (void)state;
    static const char storage[] = "X\7\0\0\0storageq\0ctorch\nHalfStorage\nq\1",
                      size[] = "ctorch\nSize\nq\0";
    ct_err err = {0};
    ct_text text = {0};
    ct__text_add(&text, "(");
    ct__text_bytes(&text, storage, sizeof storage - 1);
    ct__text_bytes(&text, "X\1\1\0\0", 5);
    for (int i = 0; i < 257; i++) ct__text_add(&text, "7");
    ct__text_add(&text, "h");
    ct__text_bytes(&text, "\0K\1tQ.", 6);
    assert_false(read_pickle(text.s, text.n, &err));
    assert_string_equal(err.text,
                        "m, byte 303: a storage's key has 257 bytes, at most 256 are read");
    ct__text_free(&text);

    ct__text_add(&text, "((");
    ct__text_bytes(&text, storage, sizeof storage - 1);
    ct__text_bytes(&text,
                   "X\1\0\0\0"
                   "7h\0K\1tq\2",
                   13);
    for (int i = 0; i < 600000; i++) ct__text_bytes(&text, "h\2Q", 3);
    ct__text_add(&text, "t.");
    err = (ct_err){0};
    assert_false(read_pickle(text.s, text.n, &err));
    assert_string_equal(
        err.text,
        "m, byte 786484: its objects take more than 67108864 bytes, 16 times the file and 64 MiB");
    ct__text_free(&text);

    ct__text_add(&text, "(");
    ct__text_bytes(&text, size, sizeof size - 1);
    ct__text_add(&text, "(");
    for (int i = 0; i < 100000; i++) ct__text_bytes(&text, "K\1", 2);
    ct__text_bytes(&text, "t\x85q\1", 4);
    for (int i = 0; i < 100000; i++) ct__text_bytes(&text, "h\0h\1R", 5);
    ct__text_add(&text, "t.");
    ct_pickle p = {.label = "m", .budget = BUDGET};
    ct_pickle_value *v;
    size_t used = 0;
    err = (ct_err){0};
    assert_false(ct__pickle_read(&p, text.s, text.n, &used, &v, &err));
    assert_string_equal(
        err.text,
        "m, byte 200439: its objects take more than 67108864 bytes, 16 times the file and 64 MiB");
    assert_true(p.arena.bytes < 50 * text.n);
    ct__arena_free(&p.arena);
    ct__text_free(&text);
}

// ------------------------------------------------------------------------------------------- archives

static char path[80];

// An archive with this pickle and a storage "0" of six f32.
static void write_archive(const void *pickle, size_t n, const char *order, bool deflate) {
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    const ct_zip_chunk pkl = {pickle, n}, bytes = {numbers, sizeof numbers},
                       text = {order ? order : "", order ? strlen(order) : 0};
    ct_err err = {0};
    ct_atomic_file file;
    assert_true(ct__atomic_file_begin(&file, path, 0666, &err));
    ct_zip_out out = {.file = &file};
    bool ok = ct__zip_add(&out, "m/data.pkl", &pkl, 1, true, &err);
    ok = ok && (!order || ct__zip_add(&out, "m/byteorder", &text, 1, false, &err));
    ok =
        ok && ct__zip_add(&out, "m/data/0", &bytes, 1, deflate, &err) && ct__zip_finish(&out, &err);
    ct__zip_out_free(&out);
    assert_true(ok && ct__atomic_file_commit(&file, &err));
}

// {"t": a tensor of storage `key` of `elements` f32}; its offset, sizes and strides as pickled integers.
static size_t pickle_tensor(char *to, const char *key, unsigned char elements, const char *offset,
                            const char *sizes, size_t sizes_n, const char *strides,
                            size_t strides_n) {
    char *at = to;
#define PUT(text) (memcpy(at, text, sizeof text - 1), at += sizeof text - 1)
    PUT("\x80\x02}X\x01\0\0\0tctorch._utils\n_rebuild_tensor_v2\n(("
        "X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0");
    *at++ = *key;
    PUT("X\0\0\0\0K");
    *at++ = (char)elements;
    PUT("tQ");
    memcpy(at, offset, 2), at += 2;
    PUT("(");
    memcpy(at, sizes, sizes_n), at += sizes_n;
    PUT("t(");
    memcpy(at, strides, strides_n), at += strides_n;
    PUT("t\x89NtRs.");
    return (size_t)(at - to);
}

static void refused(const char *text) {
    char wanted[CT_ERROR_TEXT];
    ct_err err = {0};
    ct_weights w;
    assert_false(ct__weights_open(path, &w, &err));
    snprintf(wanted, sizeof wanted, "%s: pytorch: %s", path, text);
    assert_string_equal(err.text, wanted);
}

static void storages_that_do_not_fit(void **state) {
    (void)state;
    char p[400];
    ct_err err = {0};
    ct_weights w;
#define TENSOR(key, elements, offset, sizes, strides)                                              \
    write_archive(p,                                                                               \
                  pickle_tensor(p, key, elements, offset, sizes, sizeof sizes - 1, strides,        \
                                sizeof strides - 1),                                               \
                  NULL, false)
    TENSOR("0", 6, "K\1", "K\5", "K\1");
    assert_true(ct__weights_open(path, &w, &err));
    assert_int_equal(w.n, 1);
    assert_memory_equal((const char *)w.entries[0].data + 16, (&(float){6}), sizeof(float));
    ct__weights_close(&w);
    TENSOR("0", 6, "K\2", "K\5", "K\1");
    refused("data.pkl, byte 104: a tensor of sizes (5,) and strides (1,) from element 2 on reads "
            "element 6, its storage '0' has 6");
    TENSOR("0", 6, "K\0", "K\2K\2", "K\3K\3");
    refused("data.pkl, byte 108: a tensor of sizes (2, 2) and strides (3, 3) from element 0 on "
            "reads element 6, its storage '0' has 6");
    // 2^59 times 2 and more.
    TENSOR("0", 6, "K\0", "\x8a\x08\0\0\0\0\0\0\0\x08K\4", "K\0K\0");
    refused(
        "data.pkl, byte 116: a tensor's sizes (576460752303423488, 4) multiply to 2^60 or more");
    TENSOR("0", 6, "K\0", "K\2", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
    refused("data.pkl, byte 112: a tensor's stride is (9223372036854775807,): whole numbers from 0 "
            "to 2^60 must be there");
    TENSOR("0", 6, "K\0", "\x8a\x08\0\0\0\0\0\0\0\x04", "K\0");
    refused("data.pkl, byte 112: its objects take more than 67114176 bytes, 16 times the file and "
            "64 MiB");
    TENSOR("0", 6, "K\0", "K\xffK\xff", "K\0K\0");
    refused("tensor \"t\": what are views in another order take more bytes than the file");
    TENSOR("0", 6, "K\0", "K\1", "\x8a\x01\xff");
    refused("data.pkl, byte 105: a tensor's stride is (-1,): whole numbers from 0 to 2^60 must be "
            "there");
    TENSOR("0", 5, "K\0", "K\1", "K\1");
    refused(
        "data.pkl, byte 90: storage '0' has 5 elements of float32, 20 bytes, its record has 24");
    TENSOR("1", 6, "K\0", "K\1", "K\1");
    refused("data.pkl, byte 90: the record of storage '1' is missing");
    size_t n = pickle_tensor(p, "0", 6, "K\0", "K\1", 2, "K\1", 2);
    write_archive(p, n, "big", false);
    refused("its numbers have the other byte order (big-endian), which is not supported");
    write_archive(p, n, "little", true);
    refused("\"m/data/0\" is packed, which PyTorch does not do");
}

static void dicts_that_are_no_tree(void **state) {
    (void)state;
    static const char itself[] = "}q\0X\1\0\0\0ah\0s.", list[] = "].";
    char deep[400], *at = deep;
    write_archive(itself, sizeof itself - 1, NULL, false);
    refused("a dict is in two places, or in itself");
    write_archive(list, sizeof list - 1, NULL, false);
    refused("it holds no dict of tensors by name");
    for (int i = 0; i < 40; i++, at += 7) memcpy(at, "}X\1\0\0\0a", 7);
    *at++ = 'N';
    memset(at, 's', 40);
    at[40] = '.';
    write_archive(deep, (size_t)(at + 41 - deep), NULL, false);
    refused("dicts in dicts, more than 32 deep");
    char *long_name = malloc(1200);
    memcpy(long_name, "}X\1\4\0\0", 6);
    memset(long_name + 6, 'n', 1025);
    memcpy(long_name + 6 + 1025, "}s.", 3);
    write_archive(long_name, 6 + 1025 + 3, NULL, false);
    refused("the name of a tensor has 1025 bytes, at most 1024 are read");
    free(long_name);
}

static void what_is_no_file_of_torch(void **state) {
    (void)state;
    FILE *f = fopen(path, "w");
    fputs("\x80\x02nothing", f);
    fclose(f);
    refused("it begins with \"\\x80\\x02nothin\", as nothing that torch.save writes");
    f = fopen(path, "w");
    fclose(f);
    refused("it begins with \"\", as nothing that torch.save writes");
}

// Cut at every byte, each byte flipped, and memory that runs out: a sentence, or tensors in the file.
static void damaged_files(void **state) {
    (void)state;
    static const char *const paths[] = {MODELS "views.pt", MODELS "views_before_1_6.pt"};
    for (int p = 0; p < 2; p++) {
        ct_err err = {0};
        ct_weights w;
        char *bytes;
        size_t n;
        assert_true(ct__file_read(paths[p], &bytes, &n, &err));
        for (size_t i = 0; i < 2 * n; i++) {
            size_t cut = i < n ? i : n;
            if (i >= n) bytes[i - n] = (char)~bytes[i - n];
            FILE *f = fopen(path, "w");
            assert_int_equal(fwrite(bytes, 1, cut, f), cut);
            fclose(f);
            if (i >= n) bytes[i - n] = (char)~bytes[i - n];
            err = (ct_err){0};
            if (ct__weights_open(path, &w, &err)) {
                for (size_t k = 0; k < w.n; k++)
                    assert_true(w.entries[k].at + w.entries[k].bytes <= n);
                ct__weights_close(&w);
            } else {
                assert_memory_equal(err.text, path, strlen(path));
            }
        }
        ct__free(bytes);
        for (int64_t k = 1;; k++) {
            err = (ct_err){0};
            ct__fail_alloc_after(k);
            bool ok = ct__weights_open(paths[p], &w, &err);
            ct__fail_alloc_after(-1);
            if (ok) break;
            assert_int_equal(err.code, CT_E_MEMORY);
        }
        ct__weights_close(&w);
    }
}

static int make_path(void **state) {
    (void)state;
    strcpy(path, "/tmp/cotan-pickle-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    unlink(path);
    strcat(path, ".pt");
    return 0;
}

static int remove_path(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_path, remove_path)
    const struct CMUnitTest tests[] = {
        TEST(recorded_files),
        TEST(pickles_that_are_refused),
        TEST(nothing_outside_is_touched),
        TEST(pickles_that_are_read),
        TEST(what_would_grow),
        TEST(storages_that_do_not_fit),
        TEST(dicts_that_are_no_tree),
        TEST(what_is_no_file_of_torch),
        TEST(damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
