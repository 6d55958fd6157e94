// Packed kernels: a kernel that was packed runs, and whatever else is handed in as a pack gets its sentence.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "base/mem.h"
#include "base/os.h"

// Code, constants, addresses that hang on where it is loaded, and calls of the C library: two objects, of which the
// second does not lie where the linker put it.
#define SUM(name, first)                                                                           \
    "static const f32 half_" name "[] = {" first ", 0.25f}, third_" name "[] = {3.0f, 9.0f};\n"    \
    "static const f32 *const tables_" name "[] = {half_" name ", third_" name "};\n"               \
    "void " name "(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"     \
    "    const f32 *restrict in = bufs[0];\n"                                                      \
    "    f32 *restrict out = bufs[1];\n"                                                           \
    "    __builtin_memset(scratch, 0, (u64)args[0]);\n"                                            \
    "    for (i64 i = begin; i < end; i++)\n"                                                      \
    "        out[i] = in[i] * tables_" name "[i % 2][i / 2 % 2] + (f32)*(u8 *)scratch;\n"          \
    "}\n"
static const char *const names[] = {"k_sum", "k_more"};
static const char *const texts[] = {SUM("k_sum", "0.5f"), SUM("k_more", "1.5f")};

static char folder[] = "/tmp/cotan-packed-XXXXXX", path[64];
static char *bytes; // of a sound pack
static size_t n;

static void put(const void *content, size_t size, mode_t mode) {
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), (ssize_t)size);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void progress(int64_t done, int64_t all, void *user) {
    *(int64_t *)user = done;
    assert_true(done <= all);
}

static bool write_pack(ct_err *err, size_t *kernels, size_t *size) {
    int64_t done = 0;
    ct_pack_job job = {.cores = 127, .threads = 2, .progress = progress, .user = &done};
    for (int i = 0; i < CT_PACK_LEVELS; i++)
        for (int twice = 0; twice < 2; twice++)
            for (int k = 0; k < 2; k++)
                assert_true(ct__pack_add_text(&job.texts[i], names[k], texts[k], err));
    const bool ok = ct__pack_write(&job, path, kernels, size, err);
    for (int i = 0; i < CT_PACK_LEVELS; i++) ct__pack_texts_free(&job.texts[i]);
    if (ok) assert_int_equal(done, (int64_t)*kernels);
    return ok;
}

#if defined(__x86_64__)

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
}

static int set_up(void **state) {
    (void)state;
    ct_err err = {0};
    size_t kernels, size;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/pack", folder);
    if (!write_pack(&err, &kernels, &size)) print_message("%s\n", err.text);
    assert_int_equal(err.code, CT_OK);
    // Two a level; none has products of pairs, so that two levels are enough.
    assert_int_equal(kernels, 4);
    assert_true(ct__file_read(path, &bytes, &n, &err));
    assert_int_equal(n, size);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ct__free(bytes);
    unlink(path);
    rmdir(folder);
    return 0;
}

static void refuses(const char *expected) {
    ct_err err = {0};
    char whole[500];
    snprintf(whole, sizeof whole, "kernels: %s: %s", path, expected);
    assert_false(ct__pack_load(path, &err));
    assert_string_equal(err.text, whole);
    assert_null(ct__pack_target());
}

static void a_packed_kernel_runs(void **state) {
    (void)state;
    ct_err err = {0};
    put(bytes, n, 0644);
    if (!has_avx2()) {
        refuses("it has kernels for processors with AVX2, AVX-512, and this one is none of them\n"
                "  hint: recreate it with cotan pack");
        return;
    }
    assert_true(ct__pack_load(path, &err));
    assert_non_null(ct__pack_level());
    assert_true(ct__pack_target()->lanes == 8 || ct__pack_target()->lanes == 16);
    assert_true(ct__pack_target()->cores >= ct__cores_allowed() || ct__pack_target()->cores == 64);
    assert_null(ct__pack_find("another text"));
    for (int k = 0; k < 2; k++) {
        const ct__kernel_fn each = ct__pack_find(texts[k]);
        const float in[4] = {8, 8, 8, 8}, expected[4] = {k ? 12 : 4, 24, 2, 72};
        float out[4] = {0};
        unsigned char scratch[64] = {7};
        const int64_t args[] = {64};
        assert_non_null(each);
        each((void *const[]){(void *)(uintptr_t)in, out}, args, 0, 4, scratch);
        assert_memory_equal(out, expected, sizeof out);
    }
    const ct__kernel_fn sum = ct__pack_find(texts[0]);
    // Built as any kernel is, without a compiler.
    ct__kernel_source source = {.name = names[0], .text = texts[0]};
    const uint64_t before = ct__counters.kernels_packed, compiled = ct__counters.kernels_compiled;
    assert_true(ct__cpu_build(&source, 1, 1, &err));
    assert_true(source.fn == sum && ct__counters.kernels_packed == before + 1);
    assert_int_equal(ct__counters.kernels_compiled, compiled);
    ct__cpu_build_end();
    assert_null(ct__pack_target());
}

static void nothing_is_writable_and_code(void **state) {
    (void)state;
    ct_err err = {0};
    char line[512], rights[8];
    put(bytes, n, 0644);
    if (!has_avx2()) return;
    assert_true(ct__pack_load(path, &err));
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    const uintptr_t code = (uintptr_t)ct__pack_find(texts[0]);
    bool found = false;
    unsigned long begin, end;
    while (fgets(line, sizeof line, maps)) {
        assert_int_equal(sscanf(line, "%lx-%lx %7s", &begin, &end, rights), 3);
        if (code < begin || code >= end) continue;
        assert_string_equal(rights, "r-xp");
        found = true;
    }
    fclose(maps);
    assert_true(found);
    ct__cpu_build_end();
}

static void other_files_are_refused(void **state) {
    (void)state;
    put("hello", 5, 0644);
    refuses("it is no file of packed kernels\n  hint: recreate it with cotan pack");
    put("", 0, 0644);
    refuses("it is no file of packed kernels\n  hint: recreate it with cotan pack");
}

static void short_and_long_files_are_refused(void **state) {
    (void)state;
    char expected[200];
    for (size_t cut = 8; cut < n; cut += 1 + n / 50) {
        put(bytes, cut, 0644);
        snprintf(
            expected, sizeof expected,
            "the file ends early: %zu bytes of it are there\n  hint: recreate it with cotan pack",
            cut);
        refuses(expected);
    }
    char *longer = malloc(n + 1);
    assert_non_null(longer);
    memcpy(longer, bytes, n);
    longer[n] = 0;
    put(longer, n + 1, 0644);
    free(longer);
    snprintf(expected, sizeof expected,
             "the file has data after its end, %zu bytes\n  hint: recreate it with cotan pack", n);
    refuses(expected);
}

// The section that this machine would take.
static const ct_pack_level *own_level(void) {
    const ct_pack_level *levels =
        (const ct_pack_level *)(const void *)(bytes + sizeof(ct_pack_header));
    return &levels[__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")];
}

static void a_changed_byte_is_noticed(void **state) {
    (void)state;
    static const char damaged[] = "the file is damaged: what it holds is not what was written\n"
                                  "  hint: recreate it with cotan pack";
    char *copy = malloc(n);
    assert_non_null(copy);
    const size_t places[] = {offsetof(ct_pack_header, n_levels), sizeof(ct_pack_header) + 8,
                             own_level()->begin, own_level()->begin + own_level()->bytes - 1,
                             own_level()->begin + own_level()->bytes / 2};
    for (size_t i = 0; i < (has_avx2() ? 5 : 2); i++) {
        memcpy(copy, bytes, n);
        copy[places[i]] ^= 4;
        put(copy, n, 0644);
        refuses(damaged);
    }
    free(copy);
}

static void packs_of_other_programs_are_refused(void **state) {
    (void)state;
    ct_pack_header *h = malloc(n);
    assert_non_null(h);
    memcpy(h, bytes, n);
    strcpy(h->version, "9.9.9\x1b");
    put(h, n, 0644);
    refuses("it was packed by Cotan 9.9.9?, this is " CT_VERSION
            "\n  hint: recreate it with cotan pack");
    memcpy(h, bytes, n);
    strcpy(h->numerics, "1 plain");
    put(h, n, 0644);
    refuses("its kernels compute by the rules \"1 plain\", this program by \"" CT_NUMERICS_KERNELS
            "\"\n  hint: recreate it with cotan pack");
    memcpy(h, bytes, n);
    h->prelude.lo ^= 1;
    put(h, n, 0644);
    refuses("it was packed by another build of Cotan " CT_VERSION
            "\n  hint: recreate it with cotan pack");
    free(h);
}

static void packs_for_other_processors_are_refused(void **state) {
    (void)state;
    ct_err err = {0};
    bool pairs;
    assert_true(ct__cpu_pairs(&pairs, &err));
    ct_pack_header *h = malloc(n);
    assert_non_null(h);
    memcpy(h, bytes, n);
    ct_pack_level *levels = (ct_pack_level *)(h + 1);
    levels[0].pairs = levels[1].pairs = pairs ? CT_PAIRS_WITHOUT : CT_PAIRS_WITH;
    h->hash = ct__pack_header_hash(h);
    put(h, n, 0644);
    free(h);
    refuses("it has kernels for processors with AVX2, AVX-512, and this one is none of them\n"
            "  hint: recreate it with cotan pack");
}

static void files_that_others_may_write_are_refused(void **state) {
    (void)state;
    put(bytes, n, 0666);
    refuses("others may write it, and it is code\n  hint: chmod go-w takes them the right");
    unlink(path);
    ct_err err = {0};
    assert_false(ct__pack_load(path, &err));
    assert_int_equal(err.code, CT_E_FILE);
}

static void what_calls_more_is_not_packed(void **state) {
    (void)state;
    ct_err err = {0};
    size_t kernels, size;
    char elsewhere[80];
    snprintf(elsewhere, sizeof elsewhere, "%s/none", folder);
    ct_pack_job job = {.cores = 1, .threads = 1};
    static const char calls[] =
        "int system(const char *);\n"
        "void k_sum(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"
        "    system(bufs[0]);\n"
        "}\n";
    for (int i = 0; i < CT_PACK_LEVELS; i++)
        assert_true(ct__pack_add_text(&job.texts[i], names[0], calls, &err));
    assert_false(ct__pack_write(&job, elsewhere, &kernels, &size, &err));
    for (int i = 0; i < CT_PACK_LEVELS; i++) ct__pack_texts_free(&job.texts[i]);
    assert_string_equal(err.text,
                        "kernels: what the compiler made cannot be packed: it calls system");
    assert_int_equal(access(elsewhere, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_kernel_runs),
        cmocka_unit_test(nothing_is_writable_and_code),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(short_and_long_files_are_refused),
        cmocka_unit_test(a_changed_byte_is_noticed),
        cmocka_unit_test(packs_of_other_programs_are_refused),
        cmocka_unit_test(packs_for_other_processors_are_refused),
        cmocka_unit_test(files_that_others_may_write_are_refused),
        cmocka_unit_test(what_calls_more_is_not_packed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

#else

static void kernels_are_packed_for_x86_alone(void **state) {
    (void)state;
    ct_err err = {0};
    size_t kernels, size;
    snprintf(path, sizeof path, "/tmp/cotan-no-pack");
    assert_false(write_pack(&err, &kernels, &size));
    assert_int_equal(err.code, CT_E_COMPILER); // which knows no such machine
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_are_packed_for_x86_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
