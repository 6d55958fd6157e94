// The compiler driver and the kernel cache: counts, damage, hostile surroundings, error sentences.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/build.h"
#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"
#include "base/atomic.h"
#include "base/os.h"
#include "cotan/cotan.h"
#include "cotan/train.h"
#include "support/kernel_cache.h"

// ------------------------------------------------------------------- what a system may refuse

// Definitions here stand before libc's. What is not refused is passed on.
static bool refuse_links, refuse_memory;
static const char *no_programs[2]; // folders mounted noexec, as it were; "" is every one
static const char *said;

int link(const char *from, const char *to) {
    if (!refuse_links) return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EPERM;
    return -1;
}

int memfd_create(const char *name, unsigned flags) {
    int (*real)(const char *, unsigned);
    *(void **)&real = dlsym(RTLD_NEXT, "memfd_create");
    if (!refuse_memory) return real(name, flags);
    errno = EPERM;
    return -1;
}

void *dlopen(const char *path, int flags) {
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    for (int i = 0; i < 2; i++)
        if (path && no_programs[i] && strncmp(path, no_programs[i], strlen(no_programs[i])) == 0) {
            static char text[5000];
            snprintf(text, sizeof text, "%s: failed to map segment from shared object", path);
            said = text;
            return NULL;
        }
    return real(path, flags);
}

char *dlerror(void) {
    char *(*real)(void), *text = (char *)(uintptr_t)said;
    *(void **)&real = dlsym(RTLD_NEXT, "dlerror");
    said = NULL;
    return text ? text : real();
}

static const char *full[2]; // folders without room, as it were; "" is every one

int posix_fallocate(int file, off_t from, off_t bytes) {
    int (*real)(int, off_t, off_t);
    char name[40], path[4200];
    *(void **)&real = dlsym(RTLD_NEXT, "posix_fallocate");
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t n = readlink(name, path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    for (int i = 0; i < 2; i++)
        if (full[i] && strncmp(path, full[i], strlen(full[i])) == 0) return i ? EDQUOT : ENOSPC;
    return real(file, from, bytes);
}

static bool refuse_processor; // what it is cannot be read

FILE *fopen(const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!refuse_processor || strcmp(path, "/proc/cpuinfo") != 0) return real(path, mode);
    errno = EMFILE;
    return NULL;
}

static bool setuid_program; // it runs with more rights than whoever started it

unsigned long getauxval(unsigned long what) {
    unsigned long (*real)(unsigned long);
    if (what == AT_SECURE && setuid_program) return 1;
    *(void **)&real = dlsym(RTLD_NEXT, "getauxval");
    return real(what);
}

// Waiting for another process takes no time here: `while_asleep` is what happens meanwhile.
static int naps;
static void (*while_asleep)(void);

int nanosleep(const struct timespec *time, struct timespec *left) {
    (void)left;
    assert_int_equal(time->tv_sec, 0);
    naps++;
    if (while_asleep) while_asleep();
    return 0;
}

// ---------------------------------------------------------------------------------------------

static int teardown(void **state) {
    refuse_links = refuse_memory = refuse_processor = setuid_program = false;
    no_programs[0] = no_programs[1] = full[0] = full[1] = NULL;
    while_asleep = NULL;
    naps = 0;
    unsetenv("TMPDIR");
    return close_cache(state);
}

static void compiled_once_then_known_then_loaded(void **state) {
    (void)state;
    enum { N = 7 };
    made m[N];
    ct__kernel_source k[N + 1];
    for (int i = 0; i < N; i++) k[i] = kernel(&m[i], 1, i);
    k[N] = k[2]; // twice in one request
    ct_err err = {0};
    ct__build_counts before = ct__cpu_build_counts(), now;
    if (!ct__cpu_build(k, N + 1, 2, &err)) fail_msg("%s", err.text);
    now = ct__cpu_build_counts();
    assert_int_equal(now.compiled - before.compiled, N);
    assert_int_equal(now.runs - before.runs, 2); // two processes for seven kernels
    for (int i = 0; i < N; i++) {
        expect_number(&k[i], i);
        assert_true(k[i].compiled);
    }
    assert_ptr_equal(k[N].fn, k[2].fn);
    assert_int_equal(entries(cache, NULL), N); // and nothing else is left there
    struct stat st;
    assert_int_equal(stat(cache, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    before = now;
    assert_true(ct__cpu_build(k, N, 2, &err));
    now = ct__cpu_build_counts();
    assert_int_equal(now.known - before.known, N);

    before = now;
    ct__cpu_build_forget();
    assert_true(ct__cpu_build(k, N, 2, &err));
    now = ct__cpu_build_counts();
    assert_int_equal(now.loaded - before.loaded, N);
    assert_int_equal(now.runs, before.runs);
    for (int i = 0; i < N; i++) {
        expect_number(&k[i], i);
        assert_false(k[i].compiled);
    }
}

// Two starts: the first compiles all, the second loads all.
static void expect_kept(int salt) {
    made m[3];
    ct__kernel_source k[3];
    ct_err err = {0};
    for (int i = 0; i < 3; i++) k[i] = kernel(&m[i], salt, salt + i);
    for (int start = 0; start < 2; start++) {
        ct__cpu_build_forget();
        ct__build_counts before = ct__cpu_build_counts();
        if (!ct__cpu_build(k, 3, 2, &err)) fail_msg("%s", err.text);
        ct__build_counts now = ct__cpu_build_counts();
        assert_int_equal(now.compiled - before.compiled, start ? 0 : 3);
        assert_int_equal(now.loaded - before.loaded, start ? 3 : 0);
        for (int i = 0; i < 3; i++) expect_number(&k[i], salt + i);
    }
}

// The linker makes files that the group may write where the umask allows it; entries are the
// owner's.
static void the_umask_does_not_matter(void **state) {
    (void)state;
    const mode_t masks[] = {002, 000, 077, 022};
    for (int i = 0; i < 8; i++) {
        struct stat st;
        char last[256], path[600];
        refuse_links = i >= 4; // some file systems have none
        mode_t was = umask(masks[i % 4]);
        expect_kept(40 + 3 * i);
        umask(was);
        assert_int_equal(stat(cache, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        assert_int_equal(entries(cache, last), 3);
        snprintf(path, sizeof path, "%s/%s", cache, last);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        remove_tree(cache);
    }
}

// ---------------------------------------------------------------------------- folders that refuse

static void a_folder_without_programs_still_keeps_them(void **state) {
    (void)state;
    no_programs[0] = "/tmp"; // and so what lies in it
    expect_kept(70);         // from memory
    refuse_links = true;
    expect_kept(73); // and where each entry is a file of its own
    refuse_memory = true;
    no_programs[0] = cache;
    expect_kept(76); // from a folder beside
    char tmp[200];
    snprintf(tmp, sizeof tmp, "%s/tmp", root);
    assert_int_equal(mkdir(tmp, 0700), 0);
    setenv("TMPDIR", tmp, 1);
    expect_kept(79);
    no_programs[1] = tmp;
    expect_kept(82); // from /tmp
    assert_int_equal(entries(tmp, NULL), 0);
}

static void programs_refused_everywhere_are_one_sentence(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 90, 90);
    char want[700];
    ct_err err = {0};
    no_programs[0] = "";
    snprintf(want, sizeof want,
             "cpu: compiled kernels cannot be loaded: failed to map segment from shared object\n"
             "  hint: %s, memory and /tmp may hold no programs (mounted noexec?): set "
             "COTAN_CACHE_DIR or TMPDIR to a folder that may",
             cache);
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_string_equal(err.text, want);
    assert_int_equal(err.code, CT_E_FILE);
    assert_int_equal(entries(cache, NULL), 0);
    assert_int_equal(entries(root, NULL), 1); // the cache's parent
}

static void write_line(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) _exit(70);
    close(fd);
}

enum { NOT_PERMITTED = 71 };

// A user and mount namespace of its own, where this process may mount.
static void enter_namespace(void) {
    char users[64], groups[64];
    snprintf(users, sizeof users, "0 %d 1", (int)geteuid());
    snprintf(groups, sizeof groups, "0 %d 1", (int)getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(NOT_PERMITTED);
    write_line("/proc/self/setgroups", "deny");
    write_line("/proc/self/uid_map", users);
    write_line("/proc/self/gid_map", groups);
}

// The same with real mounts: compiled on a noexec file system, loaded again, and once more when it
// is read-only.
static void in_a_namespace(void) {
    made m;
    ct__kernel_source k = kernel(&m, 95, 95);
    ct_err err = {0};
    enter_namespace();
    if (!ct__make_dirs(cache, 0700, &err)) _exit(72);
    if (mount("none", cache, "tmpfs", MS_NOEXEC, "mode=0700") != 0) _exit(NOT_PERMITTED);
    for (int start = 0; start < 3; start++) {
        if (start == 2 &&
            mount("none", cache, NULL, MS_REMOUNT | MS_BIND | MS_NOEXEC | MS_RDONLY, NULL))
            _exit(73);
        ct__cpu_build_forget();
        if (!ct__cpu_build(&k, 1, 1, &err) || k.compiled != (start == 0)) {
            fprintf(stderr, "start %d: compiled %d: %s\n", start, k.compiled, err.text);
            _exit(74);
        }
        int64_t y = 0, arg = 1000;
        k.fn((void *[]){&y}, &arg, 0, 1, NULL);
        if (y != 1095) _exit(75);
    }
    _exit(0);
}

static void a_cache_mounted_noexec_or_read_only_is_used(void **state) {
    (void)state;
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) in_a_namespace();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_PERMITTED) skip(); // no namespaces for this user
    assert_int_equal(WEXITSTATUS(status), 0);
}

// Before anything else asks what processor it is: nobody may remember that it was not known.
static void an_unknown_processor_has_no_cache(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 110, 110);
    ct_err err = {0};
    refuse_processor = true;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 110);
    assert_int_equal(entries(cache, NULL), 0);
    refuse_processor = false;
    expect_kept(111);
    assert_int_equal(entries(cache, NULL), 3);
    refuse_processor = true;
    expect_kept(114); // known by now
}

// The folders that compilers were to write in, without what is random in their names.
static void expect_compiled_in(const char *folder) {
    char path[300], *output = NULL;
    size_t n = 0;
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/said", root);
    assert_true(ct__file_read(path, &output, &n, &err));
    char *random = strstr(output, "build-");
    assert_non_null(random);
    random[strlen("build-")] = '\0';
    assert_string_equal(output, folder);
    free(output);
    unlink(path);
}

// Sets COTAN_CC to a compiler behind a script, whose first line this is.
static void scripted_compiler(const char *line) {
    char path[300], script[1500];
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/scripted-cc", root);
    snprintf(script, sizeof script, "#!/bin/sh\n%s\nexec %s \"$@\"\n", line,
             own_compiler ? own_compiler : "cc");
    assert_true(ct__file_replace(path, script, strlen(script), 0700, &err));
    setenv("COTAN_CC", path, 1);
}

static void a_full_folder_is_passed_over(void **state) {
    (void)state;
    made m[3];
    ct_err err = {0};
    char tmp[200], line[300], want[300];
    snprintf(tmp, sizeof tmp, "%s/tmp", root);
    assert_int_equal(mkdir(tmp, 0700), 0);
    setenv("TMPDIR", tmp, 1);
    snprintf(line, sizeof line, "for word; do case $word in *.so) echo $word >%s/said;; esac; done",
             root);
    scripted_compiler(line);
    for (int i = 0; i < 3; i++) {
        ct__kernel_source k = kernel(&m[i], 120, i);
        if (i > 0) full[0] = cache;
        if (i > 1) full[1] = tmp;
        if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
        expect_number(&k, i);
        snprintf(want, sizeof want, "%s/%sbuild-",
                 i == 0   ? cache
                 : i == 1 ? tmp
                          : "/tmp",
                 i ? "cotan-" : "");
        expect_compiled_in(want);
        assert_int_equal(entries(cache, NULL), i + 1); // what is made is kept where that fits
        assert_int_equal(entries(tmp, NULL), 0);
    }
    made last;
    ct__kernel_source k = kernel(&last, 120, 3);
    full[0] = "";
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_string_equal(
        err.text, "cpu: no folder to compile kernels in: neither the cache, TMPDIR nor /tmp: No "
                  "space left on device\n"
                  "  hint: free space in one of them, or set TMPDIR to a folder with free space");
    assert_int_equal(err.code, CT_E_FILE);
    assert_int_equal(entries(cache, NULL), 3);
    assert_int_equal(entries(tmp, NULL), 0);
}

static void a_relative_cache_is_refused(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 97, 97);
    ct_err err = {0};
    setenv("COTAN_CACHE_DIR", "some/cache", 1);
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_string_equal(err.text, "cpu: COTAN_CACHE_DIR is \"some/cache\", not an absolute path");
    assert_int_equal(err.code, CT_E_USAGE);
}

// An account of the system may have a HOME that nobody made: root would make it.
static void no_home_is_made(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 98, 98);
    ct_err err = {0};
    struct stat st;
    char home[100];
    snprintf(home, sizeof home, "%s/home", root);
    unsetenv("COTAN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 98);
    assert_int_equal(entries(root, NULL), 0);
    assert_int_equal(mkdir(home, 0700), 0);
    expect_kept(99);
    snprintf(cache, sizeof cache, "%s/.cache/cotan", home);
    assert_int_equal(stat(cache, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(entries(cache, NULL), 3);
}

// Entries of one group are links to one file.
static void a_group_is_one_file(void **state) {
    (void)state;
    made m[2];
    ct__kernel_source k[2] = {kernel(&m[0], 2, 0), kernel(&m[1], 2, 1)};
    ct_err err = {0};
    char last[256], path[600];
    assert_true(ct__cpu_build(k, 2, 1, &err));
    assert_int_equal(entries(cache, last), 2);
    snprintf(path, sizeof path, "%s/%s", cache, last);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 2);
}

// The one entry of the cache, as a file that this process has not loaded.
static void fresh_entry(char path[600]) {
    char last[256], *bytes = NULL;
    size_t n = 0;
    ct_err err = {0};
    assert_int_equal(entries(cache, last), 1);
    snprintf(path, 600, "%s/%s", cache, last);
    assert_true(ct__file_read(path, &bytes, &n, &err));
    assert_true(ct__file_replace(path, bytes, n, 0700, &err));
    free(bytes);
    ct__cpu_build_forget();
}

// A sound entry outlives a moment without descriptors.
static void what_cannot_be_read_now_stays(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 44, 44);
    ct_err err = {0};
    char path[600], *file;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    fresh_entry(path);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool ok = ct__cpu_build(&k, 1, 1, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(ok);
    file = strstr(err.text, "/g0.c: ");
    assert_non_null(file);
    assert_string_equal(file, "/g0.c: cannot create: Too many open files");
    assert_int_equal(access(path, F_OK), 0);
    err = (ct_err){0};
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    assert_false(k.compiled);
    expect_number(&k, 44);
}

// One that is whole and cannot be loaded here is replaced by one that can.
static void what_cannot_be_loaded_is_replaced(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 45, 45);
    ct_err err = {0};
    char path[600];
    struct stat before, after;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    fresh_entry(path);
    assert_int_equal(stat(path, &before), 0);
    no_programs[0] = path;
    no_programs[1] = "/tmp/cotan-load-";
    refuse_memory = true;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    assert_true(k.compiled);
    expect_number(&k, 45);
    assert_int_equal(entries(cache, NULL), 1);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
}

// ------------------------------------------------------------------ two processes, the same kernel

// Sets COTAN_CC to a compiler that says that it was started and then waits to be let go, at most
// half a minute.
static void slow_compiler(void) {
    char path[300], script[1000];
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/slow-cc", root);
    snprintf(script, sizeof script,
             "#!/bin/sh\n: >%s/started\nn=0\n"
             "while [ ! -e %s/go ] && [ $n -lt 1500 ]; do sleep 0.02; n=$((n + 1)); done\n"
             "exec %s \"$@\"\n",
             root, root, own_compiler ? own_compiler : "cc");
    assert_true(ct__file_replace(path, script, strlen(script), 0700, &err));
    setenv("COTAN_CC", path, 1);
}

static void let_go(void) {
    char path[300];
    ct_err err = {0};
    snprintf(path, sizeof path, "%s/go", root);
    assert_true(ct__file_write(path, "", 0, &err));
}

// A child, in a group of its own, whose compiler was started and waits.
static pid_t compiling_child(ct__kernel_source k) {
    char path[300];
    snprintf(path, sizeof path, "%s/started", root);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ct_err err = {0};
        setpgid(0, 0);
        _exit(ct__cpu_build(&k, 1, 1, &err) ? 0 : 1);
    }
    while (access(path, F_OK) != 0) sched_yield();
    return child;
}

static void let_go_at_the_third(void) {
    if (naps == 3) let_go();
    if (naps >= 3) poll(NULL, 0, 20);
}

static void what_another_process_compiles_is_waited_for(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 41, 41);
    ct_err err = {0};
    int status;
    slow_compiler();
    pid_t child = compiling_child(k);
    while_asleep = let_go_at_the_third;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    assert_false(k.compiled);
    assert_true(naps >= 3);
    expect_number(&k, 41);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static pid_t to_be_killed;

static void kill_at_the_third(void) {
    if (naps != 3) return;
    assert_int_equal(kill(-to_be_killed, SIGKILL), 0);
    assert_int_equal(waitpid(to_be_killed, NULL, 0), to_be_killed);
    let_go();
}

static void a_process_that_died_is_not_waited_for(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 42, 42);
    ct_err err = {0};
    slow_compiler();
    to_be_killed = compiling_child(k);
    while_asleep = kill_at_the_third;
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    assert_true(k.compiled);
    assert_int_equal(naps, 3);
    expect_number(&k, 42);
}

static void a_process_that_hangs_is_waited_for_a_minute(void **state) {
    (void)state;
    made m[2];
    ct__kernel_source k[2] = {kernel(&m[0], 43, 0), kernel(&m[1], 43, 1)};
    ct_err err = {0};
    slow_compiler();
    pid_t child = compiling_child(k[0]);
    assert_int_equal(kill(-child, SIGSTOP), 0);
    let_go();
    if (!ct__cpu_build(k, 2, 1, &err)) fail_msg("%s", err.text);
    assert_true(k[0].compiled && k[1].compiled);
    assert_int_equal(naps, 3000); // of 20 ms
    for (int i = 0; i < 2; i++) expect_number(&k[i], i);
    assert_int_equal(kill(-child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

// ------------------------------------------------------------------- two threads of one process

typedef struct {
    pthread_t thread;
    ct__kernel_source k[2];
    int n;
    bool ok;
    ct_err err;
} request;

static void *requested(void *arg) {
    request *r = arg;
    r->ok = ct__cpu_build(r->k, (size_t)r->n, 1, &r->err);
    return NULL;
}

// Two requests at once, each in a thread of its own.
static void request_both(request r[2]) {
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, requested, &r[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(r[i].thread, NULL), 0);
        if (!r[i].ok) fail_msg("%s", r[i].err.text);
    }
}

// Sets COTAN_CC to a compiler that works once so many of it were started, and gives up after half a
// minute.
static void compilers_that_meet(int many) {
    char line[600];
    snprintf(line, sizeof line,
             ": >%s/compiler-$$; n=0\n"
             "until [ $(ls %s | grep -c ^compiler-) -ge %d ]; do\n"
             "  n=$((n + 1)); [ $n -lt 1500 ] || exit 1; sleep 0.02\n"
             "done",
             root, root, many);
    scripted_compiler(line);
}

// Each compiler ends only when the other was started: a lock around compilers would not end.
static void threads_compile_side_by_side(void **state) {
    (void)state;
    made m[2];
    request r[2] = {{.k = {kernel(&m[0], 140, 0)}, .n = 1}, {.k = {kernel(&m[1], 140, 1)}, .n = 1}};
    compilers_that_meet(2);
    request_both(r);
    for (int i = 0; i < 2; i++) {
        assert_true(r[i].k[0].compiled);
        expect_number(&r[i].k[0], i);
    }
    assert_int_equal(entries(cache, NULL), 2);
}

// Of a kernel that both need, one thread's compiler is waited for by the other, each in turn.
static void what_another_thread_compiles_is_waited_for(void **state) {
    (void)state;
    made m[3];
    for (int turn = 0; turn < 20; turn++) {
        ct__kernel_source shared = kernel(&m[0], 150 + turn, 0);
        request r[2] = {{.k = {shared, kernel(&m[1], 150 + turn, 1)}, .n = 2},
                        {.k = {kernel(&m[2], 150 + turn, 2), shared}, .n = 2}};
        ct__build_counts before = ct__cpu_build_counts();
        request_both(r);
        assert_int_equal(ct__cpu_build_counts().compiled - before.compiled, 3);
        assert_int_equal(r[0].k[0].compiled + r[1].k[1].compiled, 1);
        assert_ptr_equal(r[0].k[0].fn, r[1].k[1].fn);
        expect_number(&r[0].k[0], 0);
        expect_number(&r[0].k[1], 1);
        expect_number(&r[1].k[0], 2);
    }
}

// When the compiler of one fails, who waited for it tries with its own.
static void a_thread_does_not_wait_for_one_that_failed(void **state) {
    (void)state;
    made m;
    char line[400];
    request r[2] = {{.k = {kernel(&m, 180, 0)}, .n = 1}, {.k = {kernel(&m, 180, 0)}, .n = 1}};
    snprintf(line, sizeof line, "mkdir %s/first 2>/dev/null && exit 1", root);
    scripted_compiler(line);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, requested, &r[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(r[i].thread, NULL), 0);
    assert_int_equal(r[0].ok + r[1].ok, 1);
    expect_number(&r[r[1].ok].k[0], 0);
    assert_non_null(strstr(r[r[0].ok].err.text, "it made nothing and gave no reason"));
}

static void a_folder_others_may_write_is_not_used(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 4, 4);
    ct_err err = {0};
    assert_true(ct__make_dirs(cache, 0700, &err));
    chmod(cache, 0777);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 4);
    assert_int_equal(entries(cache, NULL), 0);
}

static void without_any_folder_it_still_runs(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 5, 5);
    ct_err err = {0};
    setenv("COTAN_CACHE_DIR", "/proc/nothing/here", 1);
    setenv("TMPDIR", root, 1);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 5);
    assert_int_equal(entries(root, NULL), 0); // the private folder is gone
    unsetenv("TMPDIR");
}

static void children_of_the_program_are_left_alone(void **state) {
    (void)state;
    made m[2];
    ct__kernel_source k = kernel(&m[0], 6, 6);
    ct_err err = {0};
    pid_t child = fork();
    if (child == 0) _exit(7);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child); // still ours to reap
    assert_int_equal(WEXITSTATUS(status), 7);

    struct sigaction old, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGCHLD, &ignore, &old);
    k = kernel(&m[1], 6, 7);
    bool ok = ct__cpu_build(&k, 1, 1, &err);
    sigaction(SIGCHLD, &old, NULL);
    if (!ok) fail_msg("with SIGCHLD ignored: %s", err.text);
    expect_number(&k, 7);
}

// A compiler's wrapper may leave something running that holds what it inherited.
static void what_a_compiler_leaves_running_is_not_waited_for(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 130, 130);
    ct_err err = {0};
    char line[500], over[300];
    snprintf(over, sizeof over, "%s/over", root);
    snprintf(line, sizeof line,
             "(n=0; while [ ! -e %s/go ] && [ $n -lt 1000 ]; do sleep 0.02; n=$((n + 1)); done\n"
             ": >%s) &",
             root, over);
    scripted_compiler(line);
    if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
    expect_number(&k, 130);
    assert_int_equal(access(over, F_OK), -1); // it still runs
    let_go();
    while (access(over, F_OK) != 0) sched_yield();
}

static void expect_failure(ct__kernel_source *k, const char *want) {
    ct_err err = {0};
    assert_false(ct__cpu_build(k, 1, 1, &err));
    assert_int_equal(err.code, CT_E_COMPILER);
    assert_string_equal(err.text, want);
    assert_int_equal(entries(cache, NULL), 0); // no litter
}

#define HINT                                                                                       \
    "\n  hint: install gcc or clang, set COTAN_CC to one, or to none to have kernels interpreted"

static void failures_are_one_sentence(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 8, 8);
    setenv("COTAN_CC", "no-such-compiler", 1);
    expect_failure(&k,
                   "cpu: no working C compiler: COTAN_CC names no program: no-such-compiler" HINT);
    setenv("COTAN_CC", "/bin/false", 1);
    char *real = realpath("/bin/false", NULL), want[300];
    snprintf(want, sizeof want,
             "cpu: no working C compiler: %s: it made nothing and gave no reason" HINT, real);
    expect_failure(&k, want);
    free(real);
    unsetenv("COTAN_CC");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", root, 1);
    expect_failure(&k, "cpu: no working C compiler: neither cc, gcc nor clang is on PATH" HINT);
    setenv("PATH", "", 1);
    expect_failure(&k, "cpu: no working C compiler: neither cc, gcc nor clang is on PATH" HINT);
    setenv("PATH", path, 1);
    free(path);

    ct_err err = {0};
    k.text = "int broken(\n";
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_non_null(strstr(err.text, "error: "));

    // it says that all is well, and makes nothing
    setenv("COTAN_CC", "/bin/true", 1);
    real = realpath("/bin/true", NULL);
    snprintf(want, sizeof want,
             "cpu: no working C compiler: %s: it made nothing and gave no reason" HINT, real);
    expect_failure(&k, want);
    free(real);
}

// ----------------------------------------------------------------------------- interpreted instead

static char logged[2000];
static void note_log(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)user;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s|", text);
}

// Runs two steps whose kernels differ from those of other salts, in a context of their own, and
// leaves in `logged` what they told.
static void run_plans(int salt) {
    ct_ctx *own = ct_ctx_new(), *before = ct_ctx_use(own);
    assert_non_null(own);
    ct_set_log(note_log, NULL);
    logged[0] = '\0';
    assert_true(ct_set_device("cpu"));
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        const float x[2] = {1, 2};
        ct_tensor y = ct_from(x, CT_F32, CT_DIMS(2));
        for (int k = 0; k <= i; k++) y = ct_add(ct_mul(y, y), ct_f(salt));
        const float *values = ct_data(y);
        if (!values) fail_msg("%s", ct_error_text());
        float want[2] = {(float)(1 + salt), (float)(4 + salt)};
        for (int k = 0; k < 2; k++)
            assert_true(values[k] == (i ? want[k] * want[k] + (float)salt : want[k]));
    }
    ct_ctx_free(ct_ctx_use(before));
}

// Whoever starts a setuid program chooses its environment, which a compiler would obey.
static void a_setuid_program_starts_no_compiler(void **state) {
    (void)state;
    made m;
    ct__kernel_source k = kernel(&m, 100, 100);
    ct_err err = {0};
    ct__build_counts before = ct__cpu_build_counts();
    setenv("COTAN_CC", own_compiler ? own_compiler : "cc", 1); // is not obeyed either
    setuid_program = true;
    run_plans(3);
    assert_string_equal(logged,
                        "cpu: a setuid program starts no compiler: kernels are interpreted, "
                        "several times slower|");
    assert_int_equal(ct__cpu_build_counts().interpreted - before.interpreted, 2);
    assert_int_equal(ct__cpu_build_counts().runs, before.runs);
    assert_false(ct__cpu_build(&k, 1, 1, &err)); // without its IR it cannot be interpreted
    assert_string_equal(err.text, "cpu: a setuid program starts no compiler");
    assert_int_equal(err.code, CT_E_COMPILER);
    assert_int_equal(ct__cpu_build_counts().runs, before.runs);
    assert_int_equal(access(cache, F_OK), -1);
}

static void note_finding(const ct_finding *f, void *user) {
    char *text = user;
    if (strcmp(f->name, "compiler") != 0 && strcmp(f->name, "cache") != 0) return;
    size_t n = strlen(text);
    snprintf(text + n, 600 - n, "%d %s: %s; mend it: %s|", f->health, f->name, f->found, f->hint);
}

// What it lacks it lacks by design: no advice would give it a compiler or a cache.
static void the_doctor_of_a_setuid_program_advises_nothing(void **state) {
    (void)state;
    char text[600] = "";
    setuid_program = true;
    assert_true(ct_diagnose(note_finding, text));
    assert_string_equal(text,
                        "1 compiler: a setuid program starts no compiler: kernels are interpreted: "
                        "the same bits, several times slower; mend it: |"
                        "0 cache: a setuid program has none; mend it: |");
}

static void without_room_kernels_are_interpreted(void **state) {
    (void)state;
    ct__build_counts before = ct__cpu_build_counts();
    setenv("COTAN_COMPILE", "wait", 1);
    full[0] = "";
    run_plans(5);
    assert_string_equal(
        logged, "cpu: no folder takes what is compiled, neither the cache, TMPDIR nor /tmp: "
                "kernels are interpreted, several times slower\n"
                "  hint: free space in one of them, or set TMPDIR to a folder with free space|");
    assert_int_equal(ct__cpu_build_counts().interpreted - before.interpreted, 2);
    assert_int_equal(ct__cpu_build_counts().runs, before.runs);
    assert_int_equal(entries(cache, NULL), 0);
    full[0] = NULL;
    run_plans(6);
    assert_string_equal(logged, "");
    assert_int_equal(ct__cpu_build_counts().compiled - before.compiled, 2);
    unsetenv("COTAN_COMPILE");
}

// A kernel that tells whether it was compiled for what every machine of its kind has.
static const char plain_or_not[] =
    "void k_plain(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"
    "#if defined(__SSE3__) || defined(__ARM_FEATURE_ATOMICS)\n"
    "    *(i64 *)bufs[0] = 2;\n"
    "#else\n"
    "    *(i64 *)bufs[0] = 1;\n"
    "#endif\n"
    "}\n";

static void kernels_for_another_machine(void **state) {
    (void)state;
#if defined(__aarch64__)
    const char *plain = "armv8-a", *more = "armv8.1-a";
#else
    const char *plain = "x86-64", *more = "x86-64-v2";
#endif
    ct_err err = {0};
    char *before = getenv("COTAN_MARCH") ? strdup(getenv("COTAN_MARCH")) : NULL;
    for (int i = 0; i < 4; i++) { // each of them compiled once
        ct__kernel_source k = {.name = "k_plain", .text = plain_or_not};
        int64_t answer = 0;
        setenv("COTAN_MARCH", i % 2 ? more : plain, 1);
        if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
        assert_int_equal(k.compiled, i < 2);
        k.fn((void *[]){&answer}, NULL, 0, 1, NULL);
        assert_int_equal(answer, 1 + i % 2);
    }
    assert_int_equal(entries(cache, NULL), 2);

    ct__kernel_source k = {.name = "k_plain", .text = plain_or_not};
    setenv("COTAN_MARCH", "x86-64 -fplugin=x", 1);
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_int_equal(err.code, CT_E_USAGE);
    assert_string_equal(
        err.text, "cpu: COTAN_MARCH is \"x86-64 -fplugin=x\", not the name of an architecture");
    ct_ctx *other = ct_ctx_new();
    assert_non_null(other);
    ct_ctx_use(other);
    assert_false(ct_set_device("cpu")); // told when the device is opened
    assert_string_equal(ct_error_text(), err.text);
    ct_error_clear();
    ct_ctx_free(ct_ctx_use(NULL));
    setenv("COTAN_MARCH", "pdp-11", 1); // as the compiler says it, which is none to be installed
    err = (ct_err){0};
    assert_false(ct__cpu_build(&k, 1, 1, &err));
    assert_int_equal(err.code, CT_E_COMPILER);
    assert_non_null(strstr(err.text, "pdp-11"));
    const char *hint = strstr(err.text, "\n");
    assert_non_null(hint);
    assert_string_equal(
        hint, "\n  hint: unset COTAN_MARCH, or set it to a machine that the compiler knows");
    before ? setenv("COTAN_MARCH", before, 1) : unsetenv("COTAN_MARCH");
    free(before);
}

// ------------------------------------------------------------------------------ another compiler

// A program that starts the compiler of this run; `more` makes its file another one.
static void write_compiler(const char *path, const char *more) {
    ct_cc cc;
    ct_err err = {0};
    use_own_compiler();
    if (!ct__cc_find(&cc, &err)) fail_msg("%s", err.text);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n# %s\nexec '%s' \"$@\"\n", more, cc.path);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("COTAN_CC", path, 1);
}

// A kernel is of the compiler that made it: neither one at another path nor a newer one at the same
// path finds it, since both may compile it to other bits.
static void another_compiler_compiles_anew(void **state) {
    (void)state;
    char path[2][200];
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/cc%d", root, i);
    static const struct {
        int which;
        const char *more; // NULL: the file stays
        bool anew;
    } steps[] = {{0, "one", true}, {0, NULL, false},     {1, "one", true},
                 {0, NULL, false}, {0, "another", true}, {1, NULL, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        made m;
        ct__kernel_source k = kernel(&m, 700, 7);
        ct_err err = {0};
        if (steps[i].more) write_compiler(path[steps[i].which], steps[i].more);
        setenv("COTAN_CC", path[steps[i].which], 1);
        ct__cpu_build_forget();
        if (!ct__cpu_build(&k, 1, 1, &err)) fail_msg("%s", err.text);
        if (k.compiled != steps[i].anew) fail_msg("step %d: compiled %d", (int)i, (int)k.compiled);
        expect_number(&k, 7);
    }
    assert_int_equal(entries(cache, NULL), 3);
}

int main(void) {
    keep_own_compiler();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_unknown_processor_has_no_cache, open_cache, teardown),
        cmocka_unit_test_setup_teardown(another_compiler_compiles_anew, open_cache, teardown),
        cmocka_unit_test_setup_teardown(compiled_once_then_known_then_loaded, open_cache, teardown),
        cmocka_unit_test_setup_teardown(the_umask_does_not_matter, open_cache, teardown),
        cmocka_unit_test_setup_teardown(a_group_is_one_file, open_cache, teardown),
        cmocka_unit_test_setup_teardown(a_folder_without_programs_still_keeps_them, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(programs_refused_everywhere_are_one_sentence, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_cache_mounted_noexec_or_read_only_is_used, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_full_folder_is_passed_over, open_cache, teardown),
        cmocka_unit_test_setup_teardown(a_relative_cache_is_refused, open_cache, teardown),
        cmocka_unit_test_setup_teardown(no_home_is_made, open_cache, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_now_stays, open_cache, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_loaded_is_replaced, open_cache, teardown),
        cmocka_unit_test_setup_teardown(what_another_process_compiles_is_waited_for, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_that_died_is_not_waited_for, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_that_hangs_is_waited_for_a_minute, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(threads_compile_side_by_side, open_cache, teardown),
        cmocka_unit_test_setup_teardown(what_another_thread_compiles_is_waited_for, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_thread_does_not_wait_for_one_that_failed, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_others_may_write_is_not_used, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_any_folder_it_still_runs, open_cache, teardown),
        cmocka_unit_test_setup_teardown(children_of_the_program_are_left_alone, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(failures_are_one_sentence, open_cache, teardown),
        cmocka_unit_test_setup_teardown(what_a_compiler_leaves_running_is_not_waited_for,
                                        open_cache, teardown),
        cmocka_unit_test_setup_teardown(without_room_kernels_are_interpreted, open_cache, teardown),
        cmocka_unit_test_setup_teardown(a_setuid_program_starts_no_compiler, open_cache, teardown),
        cmocka_unit_test_setup_teardown(the_doctor_of_a_setuid_program_advises_nothing, open_cache,
                                        teardown),
        cmocka_unit_test_setup_teardown(kernels_for_another_machine, open_cache, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
