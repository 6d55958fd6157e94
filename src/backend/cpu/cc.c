#define _GNU_SOURCE
#include "backend/cpu/cc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/library.h"
#include "base/mem.h"
#include "base/os.h"

extern char **environ;

#if defined(__aarch64__)
static const char native[] = "-mcpu=native";
#else
static const char native[] = "-march=native";
#endif
static const char *const flags[] = {
    "-O2",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-nostartfiles", // a kernel needs no startup code
    "-pipe",
    "-std=gnu17",
    "-w",
    "-Werror=implicit-function-declaration", // gnu17 would leave it to the dynamic linker
    "-x",
    "c",
};
enum { NFLAGS = sizeof flags / sizeof *flags };

// ------------------------------------------------------------------------------------ finding it

static bool cc_is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool cc_search(const char *name, char path[4096]) {
    if (strchr(name, '/')) {
        char *real = realpath(name, NULL);
        bool ok = real && strlen(real) < 4096 && cc_is_program(real);
        if (ok) memcpy(path, real, strlen(real) + 1);
        free(real);
        return ok;
    }
    const char *dirs = getenv("PATH");
    if (!dirs) dirs = "/usr/bin:/bin";
    for (const char *d = dirs; *d;) {
        const char *end = strchrnul(d, ':');
        // an empty or relative part means the current folder: a compiler is never run from there
        int n = *d == '/' ? snprintf(path, 4096, "%.*s/%s", (int)(end - d), d, name) : -1;
        if (n > 0 && n < 4096 && cc_is_program(path)) return true;
        d = *end ? end + 1 : end;
    }
    return false;
}

// Hashes what -march=native depends on, as far as a program can read it; false if it cannot be
// read.
static bool cc_hash_cpu(ct_hash *hash) {
    static const char *const keys[] = {"flags", "Features", "model name", "CPU part"};
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return false;
    char *s = NULL;
    size_t cap = 0;
    unsigned seen = 0;
    while (seen != 15 && getline(&s, &cap, f) > 0)
        for (unsigned i = 0; i < 4; i++) {
            if ((seen >> i & 1) || strncmp(s, keys[i], strlen(keys[i])) != 0) continue;
            seen |= 1u << i;
            *hash = ct__hash_bytes(s, strlen(s), *hash);
        }
    bool whole = !ferror(f);
    free(s);
    fclose(f);
    return whole && seen;
}

// Reads that once; a failure, e.g. for lack of descriptors, is not remembered.
static bool cc_identify_cpu(ct_hash *hash) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool known;
    static ct_hash found;
    ct_hash seen = {0, 0};
    pthread_mutex_lock(&lock);
    if (!known && (known = cc_hash_cpu(&seen))) found = seen;
    bool ok = known;
    *hash = found;
    pthread_mutex_unlock(&lock);
    return ok;
}

static void cc_identify(ct_cc *cc) {
    ct_hash cpu;
    struct stat st = {0};
    cc->identified = cc_identify_cpu(&cpu);
    cc->identified = stat(cc->path, &st) == 0 && cc->identified;
    int64_t file[4] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec, (int64_t)st.st_mtim.tv_nsec,
                       (int64_t)st.st_ino};
    cc->id = ct__hash_bytes(cc->path, strlen(cc->path), cpu);
    cc->id = ct__hash_bytes(file, sizeof file, cc->id);
    for (int i = 0; i < NFLAGS; i++)
        cc->id = ct__hash_bytes(flags[i], strlen(flags[i]) + 1, cc->id);
    cc->id = ct__hash_bytes(cc->machine, strlen(cc->machine), cc->id);
}

static const char *cc_env(const char *name) {
    const char *asked = getauxval(AT_SECURE) ? NULL : getenv(name);
    return asked && *asked ? asked : NULL;
}
static const char *cc_env_compiler(void) { return cc_env("COTAN_CC"); }

// ------------------------------------------------------------------------- the machine it is for

static const char *cc_env_machine(void) {
    const char *asked = cc_env("COTAN_MARCH");
    return asked && strcmp(asked, "native") != 0 ? asked : NULL;
}

bool ct__cc_native(void) { return !cc_env_machine(); }

bool ct__cc_check(ct_err *err) {
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._";
    const char *asked = cc_env_machine();
    size_t n = asked ? strspn(asked, name) : 0, most = sizeof((ct_cc *)0)->machine - 8;
    return !asked || (asked[n] == '\0' && n < most) ||
           ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                   "COTAN_MARCH is \"%.60s\", not the name of an architecture", asked);
}

static void cc_choose_machine(ct_cc *cc) {
    const char *asked = cc_env_machine();
    snprintf(cc->machine, sizeof cc->machine, "%s%s", asked ? "-march=" : native,
             asked ? asked : "");
}

// Reports that no compiler works. An unknown machine is recognized by its name in the compiler's
// message, in any language.
static bool cc_report_missing(ct_err *err, const char *what, const char *detail) {
    const char *asked = cc_env_machine();
    ct__err(err, CT_E_COMPILER, CT_NOWHERE, "cpu", "no working C compiler: %s%s", what, detail);
    return ct__err_hint(
        err, "%s",
        asked && strstr(detail, asked)
            ? "unset COTAN_MARCH, or set it to a machine that the compiler knows"
            : "install gcc or clang, set COTAN_CC to one, or to none to have kernels "
              "interpreted");
}

static bool cc_find_on_path(char path[4096]) {
    return cc_search("cc", path) || cc_search("gcc", path) || cc_search("clang", path);
}

static const char none_on_path[] = "neither cc, gcc nor clang is on PATH";
static const char setuid_refused[] = "a setuid program starts no compiler";

static const char linked_statically[] =
    "a program that is linked statically loads packed kernels (cotan pack) and no compiled ones";

const char *ct__cc_missing(void) {
    char path[4096];
    const char *asked = cc_env_compiler();
    if (ct__linked_statically() && !(asked && strcmp(asked, "none") == 0)) return linked_statically;
    if (getauxval(AT_SECURE)) return setuid_refused;
    if (asked) return strcmp(asked, "none") == 0 ? "" : NULL;
    return cc_find_on_path(path) ? NULL : none_on_path;
}
const char *ct__cc_missing_hint(void) {
    if (ct__linked_statically()) return "load packed kernels: ct_kernels_load, or COTAN_KERNELS";
    return getauxval(AT_SECURE) ? NULL : "install gcc or clang";
}

bool ct__cc_find(ct_cc *cc, ct_err *err) {
    const char *asked = cc_env_compiler();
    if (getauxval(AT_SECURE))
        return ct__err(err, CT_E_COMPILER, CT_NOWHERE, "cpu", "%s", setuid_refused);
    if (!ct__cc_check(err)) return false;
    if (asked) {
        if (!cc_search(asked, cc->path))
            return cc_report_missing(err, "COTAN_CC names no program: ", asked);
    } else if (!cc_find_on_path(cc->path)) {
        return cc_report_missing(err, none_on_path, "");
    }
    cc->environment = environ;
    cc->options = NULL;
    cc_choose_machine(cc);
    cc_identify(cc);
    return true;
}

// ------------------------------------------------------------------------------------ running it

typedef struct {
    pid_t pid;
    int failed; // errno, if it did not start
} process;

static process cc_launch(const ct_cc *cc, const char *folder, int i) {
    char in[4200], out[4200], messages[4200];
    snprintf(in, sizeof in, "%s/g%d.c", folder, i);
    snprintf(out, sizeof out, "%s/g%d.so", folder, i);
    snprintf(messages, sizeof messages, "%s/g%d.err", folder, i);
    char *argv[NFLAGS + 12];
    int n = 0;
    argv[n++] = (char *)(uintptr_t)cc->path;
    for (int j = 0; j < NFLAGS; j++) argv[n++] = (char *)(uintptr_t)flags[j];
    if (cc->options)
        for (const char *const *o = cc->options; *o; o++) argv[n++] = (char *)(uintptr_t)*o;
    else
        argv[n++] = (char *)(uintptr_t)cc->machine;
    argv[n++] = in;
    argv[n++] = "-o";
    argv[n++] = out;
    argv[n++] = "-lm";
    argv[n] = NULL;
    process p = {.pid = -1};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#endif
    posix_spawnattr_init(&attr);
    // The compiler gets a process group of its own: Ctrl-C at a terminal is for the program, and a
    // compiler killed by it would leave kernels interpreted.
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    p.failed = posix_spawnp(&p.pid, cc->path, &actions, &attr, argv, cc->environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return p;
}

// Waits for the process itself, never for "any child" or for its children. If the program ignores
// SIGCHLD or reaps children itself, the status is lost; then the output file decides.
static bool cc_wait_for(const process *p) {
    int status = 0;
    pid_t r;
    while ((r = waitpid(p->pid, &status, 0)) < 0 && errno == EINTR) {
    }
    return r < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Copies the most informative line of the compiler's messages.
static void cc_first_error_line(const char *folder, int i, char *line, size_t size) {
    char path[4200], *bytes = NULL;
    size_t n = 0;
    ct_err ignored = {0};
    snprintf(path, sizeof path, "%s/g%d.err", folder, i);
    snprintf(line, size, "it made nothing and gave no reason");
    if (!ct__file_read(path, &bytes, &n, &ignored)) return;
    const char *at = strstr(bytes, "error");
    if (!at) at = bytes;
    while (at > bytes && at[-1] != '\n') at--;
    size_t length = strcspn(at, "\n");
    if (length >= size) length = size - 1;
    if (length) {
        memcpy(line, at, length);
        line[length] = '\0';
        for (char *c = line; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
    ct__free(bytes);
}

bool ct__cc_run(const ct_cc *cc, const char *folder, int count, ct_err *err) {
    process *p = ct__malloc((size_t)count * sizeof *p);
    if (!p) return ct__err_memory(err, CT_NOWHERE, "cpu", (size_t)count * sizeof *p);
    for (int i = 0; i < count; i++) p[i] = cc_launch(cc, folder, i);
    bool ok = true;
    for (int i = 0; i < count; i++) {
        char path[4200], line[300], what[4400];
        if (p[i].failed) {
            snprintf(what, sizeof what, "%s does not start: ", cc->path);
            ok = cc_report_missing(err, what, strerror(p[i].failed));
            continue;
        }
        bool fine = cc_wait_for(&p[i]);
        snprintf(path, sizeof path, "%s/g%d.so", folder, i);
        if (fine && access(path, R_OK) == 0) continue;
        cc_first_error_line(folder, i, line, sizeof line);
        snprintf(what, sizeof what, "%s: ", cc->path);
        ok = cc_report_missing(err, what, line);
    }
    ct__free(p);
    return ok;
}
