// Checks whether a machine has what Cotan needs: `cotan doctor`.
#define _GNU_SOURCE
#include <dirent.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <utf8proc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "backend/cpu/build.h"
#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "compile/check/check.h"
#include "compile/machine/devices.h"
#include "compile/passes/env.h"
#include "cotan/train.h"
#include "graph/graph.h"

typedef struct {
    ct_finding_fn each;
    void *user;
    bool sound; // no check failed so far
} doctor;

static void doctor_report(doctor *d, ct_health health, const char *component,
                          const ct_text *details, const char *hint) {
    if (health == CT_HEALTH_BAD) d->sound = false;
    if (details->s) details->s[strcspn(details->s, "\n")] = '\0'; // without the error's own hint
    if (!d->each) return;
    d->each(&(ct_finding){.name = component,
                          .health = health,
                          .found = details->s ? details->s : "",
                          .hint = hint ? hint : ""},
            d->user);
}

// ------------------------------------------------------------------------------------------- machine

static void doctor_check_processor(doctor *d) {
    CT_TEXT text = {0};
    ct_health health = CT_HEALTH_GOOD;
    const char *hint = NULL;
    ct__cpu_about(&text);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma")) {
        health = CT_HEALTH_POOR;
        hint = "each multiply-add is a call of libm: use a processor of 2013 or later for training";
    }
#endif
    doctor_report(d, health, "processor", &text, hint);
}

static void doctor_check_cores(doctor *d) {
    CT_TEXT text = {0};
    ct_err err = {0};
    const char *threads_env = getenv("COTAN_THREADS");
    int allowed = ct__cores_allowed();
    ct_device *device = ct__device_open("cpu", &err); // which reads the environment
    ct__textf(&text, "%d core%s allowed", allowed, allowed == 1 ? "" : "s");
    if (threads_env && *threads_env) ct__textf(&text, ", COTAN_THREADS=%.20s", threads_env);
    // Other settings that opening a device reads have lines of their own.
    ct_err other = {0};
    bool is_reported =
        (!ct__cache_check(&other) || !ct__cc_check(&other)) && strcmp(err.text, other.text) == 0;
    bool failed = !device && !is_reported;
    if (failed) ct__textf(&text, ": %s", err.text);
    doctor_report(d, failed ? CT_HEALTH_BAD : CT_HEALTH_GOOD, "cores", &text,
                  failed ? "unset COTAN_THREADS, or set it to 1 to 256" : NULL);
    ct__device_close(device);
}

static void doctor_check_memory(doctor *d) {
    enum { MIN_MB = 500 }; // MB: what the smallest model needs, with some reserve
    CT_TEXT text = {0};
    double mb = (double)ct__available_bytes() / 1e6;
    ct__textf(&text, "%.0f MB available to this process", mb);
    if (ct_memory_limit())
        ct__textf(&text, ", limited to %.0f MB", (double)ct_memory_limit() / 1e6);
    bool is_low = mb < MIN_MB;
    doctor_report(d, is_low ? CT_HEALTH_POOR : CT_HEALTH_GOOD, "memory", &text,
                  is_low ? "end other programs, or raise the limit of the control group" : NULL);
}

// The variables that Cotan reads, the first SHOWN of them in the line of the settings, and those of the
// repository's tests and scripts; without their common prefix.
enum { SHOWN = 7 };
// clang-format off
static const char *const doctor_variables[] = {
    "DEVICE", "CHECK", "COMPILE", "DUMP", "EXPLAIN", "FUSE", "VERIFY", "CACHE_DIR", "CC", "MARCH",
    "THREADS", "BUILD", "DATA", "DOCS", "EMULATOR", "FUZZ_BATCH", "FUZZ_COUNT", "FUZZ_COMPILED",
    "FUZZ_EMPTY", "FUZZ_ONLY", "FUZZ_RUNS", "FUZZ_SEED", "GOLDEN", "INTERRUPTS", "LAPACK",
    "ARCHITECTURES", "LLAMA_CPP", "OPENCL_LIBRARY", "CURL_LIBRARY", "HTTP_LIBRARY", "API_KEY",
    "TOKENIZER_LINES", "DEVICE_LIBRARY", "FUZZ_DEVICE", "DUMP_DIR", "TEST_KIR", "TEST_NVRTC",
    "NATIVE", "PARITY_DEVICES", "PLAN_CACHE", "PROFILE", "RS", "TEST_ALL", "TEST_DEVICES",
    "TEST_PART", "BF16_DOT", NULL,
};
// clang-format on

static bool doctor_is_variable(const char *name, size_t n) {
    for (const char *const *v = doctor_variables; *v; v++)
        if (strlen(*v) == n && memcmp(*v, name, n) == 0) return true;
    return false;
}

// Reports a variable that is set but never read, if its name is similar to one that is. Others may be the
// user's own.
static bool doctor_find_misspelt(ct_text *text) {
    for (char *const *e = environ; e && *e; e++) {
        if (strncmp(*e, "COTAN_", 6) != 0) continue;
        const char *name = *e + 6;
        size_t n = strcspn(name, "=");
        if (!name[n] || !name[n + 1] || doctor_is_variable(name, n)) continue;
        const ct_env_word word = ct__env_word(name, n);
        const char *closest = ct__nearest(word.s, doctor_variables);
        if (!closest) continue;
        ct__textf(text, "nobody reads COTAN_%s: is COTAN_%s meant?", word.s, closest);
        return true;
    }
    return false;
}

// Reports the settings of the environment as a run reads them.
static void doctor_check_settings(doctor *d) {
    CT_TEXT text = {0};
    ct_err err = {0};
    unsigned checks;
    const char *device_env = getenv("COTAN_DEVICE");
    bool ok = ct__env_check(&err) && ct__check_parse_env(&checks, &err);
    if (ok && device_env && *device_env) {
        ct_device *device = ct__device_open(device_env, &err);
        ct__device_close(device);
        ok = device || err.code != CT_E_DEVICE;
        if (!ok) ct__text_add(&text, "COTAN_DEVICE: ");
    }
    if (!ok)
        ct__text_add(&text, err.text);
    else
        ok = !doctor_find_misspelt(&text);
    for (int i = 0; i < SHOWN && ok; i++) {
        char name[32];
        snprintf(name, sizeof name, "COTAN_%s", doctor_variables[i]);
        const char *value = getenv(name);
        if (value && *value) ct__textf(&text, "%s%s=%.40s", text.n ? ", " : "", name, value);
    }
    if (!text.n) ct__text_add(&text, "the usual ones: the environment asks for no other");
    doctor_report(d, ok ? CT_HEALTH_GOOD : CT_HEALTH_BAD, "settings", &text,
                  ok ? NULL : "unset that variable, or set it as described by cotan help");
}

// -------------------------------------------------------------------------------- compiler and cache

static const char doctor_probe_kernel[] =
    "void k_probe(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"
    "    (void)args, (void)begin, (void)end, (void)scratch;\n"
    "    *(i32 *)bufs[0] = 42;\n"
    "}\n";

static void doctor_check_compiler(doctor *d) {
    CT_TEXT text = {0};
    ct_err err = {0};
    ct_cc cc;
    const char *missing = ct__cc_missing();
    if (missing) {
        ct__textf(&text, "%s: kernels are interpreted: the same bits, several times slower",
                  *missing ? missing : "none is used (COTAN_CC=none)");
        doctor_report(d, *missing ? CT_HEALTH_POOR : CT_HEALTH_GOOD, "compiler", &text,
                      *missing ? ct__cc_missing_hint() : NULL);
        return;
    }
    int answer = 0;
    ct__kernel_source kernel = {.name = "k_probe", .text = doctor_probe_kernel};
    double begin = ct__now();
    // Compiles without the cache: its contents do not show whether the compiler works now.
    bool ok = ct__cc_find(&cc, &err) && ct__cpu_build_uncached(&kernel, &err);
    if (ok) kernel.fn((void *[]){&answer}, NULL, 0, 1, NULL);
    if (ok && answer == 42) {
        ct__textf(&text, "%s%s%s: a kernel was compiled in %.0f ms", cc.path,
                  ct__cc_native() ? "" : " ", ct__cc_native() ? "" : cc.machine,
                  1e3 * (ct__now() - begin));
        doctor_report(d, CT_HEALTH_GOOD, "compiler", &text, NULL);
    } else {
        ct__text_add(&text, ok ? "what it compiled gives a wrong answer" : err.text);
        doctor_report(d, CT_HEALTH_BAD, "compiler", &text,
                      ct__cc_native()
                          ? "install gcc or clang, set COTAN_CC to one, or to none to have kernels "
                            "interpreted"
                          : "unset COTAN_MARCH, or set it to an architecture that the compiler "
                            "knows and this processor runs; else repair the compiler");
    }
}

static void doctor_count_files(const char *folder, size_t *n, double *bytes) {
    DIR *dir = opendir(folder);
    *n = 0;
    *bytes = 0;
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (e->d_name[0] == '.') continue; // the lock file
        if (fstatat(dirfd(dir), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode)) continue;
        ++*n;
        *bytes += (double)st.st_size;
    }
    closedir(dir);
}

static void doctor_check_cache(doctor *d) {
    CT_TEXT text = {0};
    ct_err err = {0};
    ct_cache c;
    size_t n;
    double bytes;
    if (!ct__cache_open(&c, &err)) {
        ct__text_add(&text, err.text);
        doctor_report(d, CT_HEALTH_BAD, "cache", &text,
                      "unset COTAN_CACHE_DIR, or name an absolute path");
    } else if (c.forbidden) {
        ct__text_add(&text, c.why);
        doctor_report(d, CT_HEALTH_GOOD, "cache", &text, NULL);
    } else if (!c.folder[0]) {
        const char *cache_env = getenv("COTAN_CACHE_DIR");
        ct__textf(&text, "none is usable, every process compiles its kernels again: %s", c.why);
        doctor_report(
            d, CT_HEALTH_POOR, "cache", &text,
            cache_env && *cache_env
                ? "unset COTAN_CACHE_DIR, or give it a folder that belongs to you and that nobody "
                  "else may write"
                : "set COTAN_CACHE_DIR to a folder that belongs to you and that nobody else may "
                  "write");
    } else {
        doctor_count_files(c.folder, &n, &bytes);
        ct__textf(&text, "%s: %zu files, %.1f MB", c.folder, n, bytes / 1e6);
        doctor_report(d, CT_HEALTH_GOOD, "cache", &text, NULL);
    }
}

static void doctor_check_libraries(doctor *d) {
    CT_TEXT text = {0};
    char pcre[64]; // "10.42 2022-12-11"
    pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    ct__textf(&text, "jansson %s, zlib %s, PCRE2 %.*s, utf8proc %s", jansson_version_str(),
              zlibVersion(), (int)strcspn(pcre, " "), pcre, utf8proc_version());
    doctor_report(d, CT_HEALTH_GOOD, "libraries", &text, NULL);
}

// ----------------------------------------------------------------------------------------- self-test

// Computes the same small step on both devices: products, exponentials and a gradient.
static bool doctor_small_step(const char *device, float *out, size_t n) {
    if (!ct_set_device(device)) return false;
    ct_set_synchronous_compilation(); // the compiled kernels are to be checked
    CT_SCOPE;
    ct_tensor i = ct_iota(CT_F32, CT_DIMS(24, 36), 1), g; // (24, 36)
    ct_tensor x = ct_sin(ct_add(i, ct_iota(CT_F32, CT_DIMS(24, 36), 0)));
    ct_tensor loss = ct_mean(ct_softmax(ct_matmul(x, ct_permute(x, CT_AXES(1, 0)))));
    loss = ct_add(loss, ct_mean(ct_exp(x)));
    ct_grad(loss, &x, 1, &g);
    const float *values = ct_data(g);
    if (values) memcpy(out, values, n * sizeof *out);
    return values != NULL;
}

static void doctor_self_test(doctor *d) {
    enum { N = 24 * 36 };
    float *computed = ct__malloc(2 * N * sizeof *computed), *expected = computed + N;
    ct_ctx *new_ctx = ct_ctx_new(), *outer = new_ctx ? ct_ctx_use(new_ctx) : NULL;
    CT_TEXT text = {0};
    double max_error = 0;
    bool ok = computed && new_ctx && doctor_small_step("ref", expected, N) &&
              doctor_small_step("cpu", computed, N);
    for (int i = 0; i < N && ok; i++) {
        double error = (double)computed[i] - (double)expected[i];
        if (!(error * error <= max_error * max_error)) max_error = error;
    }
    bool agrees = max_error * max_error <= 1e-12;
    if (!ok)
        ct__text_add(&text, new_ctx ? ct_error_text() : "out of memory");
    else
        ct__textf(&text, "a step with its gradient %s the reference: off by %.1e",
                  agrees ? "agrees with" : "differs from", max_error < 0 ? -max_error : max_error);
    doctor_report(d, ok && agrees ? CT_HEALTH_GOOD : CT_HEALTH_BAD, "device cpu", &text,
                  ok && agrees ? NULL
                  : d->sound   ? "please report it with the lines above"
                               : "fix what is bad above first");
    if (new_ctx) {
        ct_error_clear();
        ct_ctx_use(outer);
        ct_ctx_free(new_ctx);
    }
    ct__free(computed);
}

// Adds a device to the single line of devices; `cotan devices` has the details.
static void doctor_add_device(const ct_device_info *info, void *user) {
    ct_text *text = user;
    if (text->n) ct__text_add(text, "; ");
    if (info->usable)
        ct__textf(text, "%s", info->name);
    else
        ct__textf(text, "no %s: %s", info->name, info->description);
}

static void doctor_check_devices(doctor *d) {
    CT_TEXT text = {0};
    ct_err err = {0};
    const bool loaded = ct__devices(false, doctor_add_device, &text, &err);
    if (!loaded) ct__textf(&text, "; %s", err.text);
    doctor_report(
        d, loaded ? CT_HEALTH_GOOD : CT_HEALTH_BAD, "devices", &text,
        loaded ? NULL : "unset COTAN_DEVICE_LIBRARY, or let it name libraries that can be loaded");
}

bool ct_diagnose(ct_finding_fn each, void *user) {
    doctor d = {each, user, true};
    doctor_check_processor(&d);
    doctor_check_cores(&d);
    doctor_check_memory(&d);
    doctor_check_settings(&d);
    doctor_check_compiler(&d);
    doctor_check_cache(&d);
    doctor_check_libraries(&d);
    doctor_self_test(&d);
    doctor_check_devices(&d); // last: a driver that is queried may write files of its own
    return d.sound;
}
