// A cache of kernels in a folder of the test's own, and kernels whose results tell them apart. Include it in one
// file of a program.
#ifndef COTAN_TESTS_KERNEL_CACHE_H
#define COTAN_TESTS_KERNEL_CACHE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/build.h"

static char *own_compiler; // COTAN_CC of the environment: for another machine it is another one
static char root[64];      // a folder of this run; holds the cache
static char cache[128];

static inline void keep_own_compiler(void) {
    own_compiler = getenv("COTAN_CC") ? strdup(getenv("COTAN_CC")) : NULL;
}

static inline void use_own_compiler(void) {
    own_compiler ? setenv("COTAN_CC", own_compiler, 1) : unsetenv("COTAN_CC");
}

static inline int open_cache(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/cotan-test-cc-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/a/cache", root);
    setenv("COTAN_CACHE_DIR", cache, 1);
    use_own_compiler();
    ct__cpu_build_forget();
    return 0;
}

static inline void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char inner[600];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) >= (int)sizeof inner) continue;
        if (unlink(inner) != 0) remove_tree(inner);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static inline int close_cache(void **state) {
    (void)state;
    chmod(cache, 0700);
    remove_tree(root);
    use_own_compiler();
    unsetenv("COTAN_CACHE_DIR");
    return 0;
}

// A kernel that stores a number; the salt makes texts differ between tests.
typedef struct {
    char name[40];
    char text[400];
} made;

static inline ct__kernel_source kernel(made *m, int salt, int number) {
    char name[40];
    snprintf(name, sizeof name, "k_%d_%d", salt, number);
    memcpy(m->name, name, sizeof name);
    snprintf(m->text, sizeof m->text,
             "void %s(void *const *bufs, const i64 *args, i64 begin, i64 end, void *scratch) {\n"
             "    for (i64 i = begin; i < end; i++) ((i64 *)bufs[0])[i] = %d + args[0];\n}\n",
             name, number);
    return (ct__kernel_source){.name = m->name, .text = m->text};
}

static inline void expect_number(const ct__kernel_source *k, int number) {
    int64_t y[2] = {0}, arg = 1000;
    assert_non_null(k->fn);
    k->fn((void *[]){y}, &arg, 1, 2, NULL);
    assert_int_equal(y[0], 0);
    assert_int_equal(y[1], number + 1000);
}

static inline int entries(const char *path, char last[256]) {
    int n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            if (last) snprintf(last, 256, "%s", e->d_name);
            n++;
        }
    if (dir) closedir(dir);
    return n;
}

#endif
