// Environment variables, checked when a device is opened, so that a misspelt value is an error and not
// ignored.
#include "compile/passes/env.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

// NAME=0, 1 or empty
static bool env_check_flag(const char *name, ct_err *err) {
    const char *v = getenv(name);
    if (!v || !*v || strcmp(v, "0") == 0 || strcmp(v, "1") == 0) return true;
    return ct__err(err, CT_E_USAGE, CT_NOWHERE, name, "it is \"%.40s\", not 0 or 1", v);
}

static bool env_is_one_of(const char *const *names, const char *word, size_t n) {
    for (; *names; names++)
        if (strlen(*names) == n && strncmp(*names, word, n) == 0) return true;
    return false;
}

ct_env_word ct__env_word(const char *text, size_t n) {
    ct_env_word word = {""};
    memcpy(word.s, text, n < sizeof word.s ? n : sizeof word.s - 1);
    return word;
}

static bool env_check_dump(ct_err *err) {
    static const char *const names[] = {"graph", "dot", "groups", "plan", "kernels", "cuda", NULL};
    const char *list = getenv("COTAN_DUMP");
    if (!list || !*list) return true;
    for (;; list++) {
        size_t n = strcspn(list, ",");
        if (!env_is_one_of(names, list, n)) {
            const ct_env_word word = ct__env_word(list, n);
            ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_DUMP",
                    "\"%s\" cannot be shown: graph, dot, groups, plan, kernels and cuda can, with "
                    "commas between them",
                    word.s);
            const char *near = n ? ct__nearest(word.s, names) : NULL;
            if (near) ct__err_hint(err, "did you mean %s?", near);
            return false;
        }
        list += n;
        if (!*list) return true;
    }
}

static bool env_check_folder(ct_err *err) {
    const char *folder = ct__env_dump_folder();
    struct stat info;
    if (!folder ||
        (stat(folder, &info) == 0 && S_ISDIR(info.st_mode) && access(folder, W_OK | X_OK) == 0))
        return true;
    return ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_DUMP_DIR",
                   "it is \"%.200s\", no folder that this process may write to", folder);
}

static bool env_check_compile(ct_err *err) {
    const char *v = getenv("COTAN_COMPILE");
    if (!v || !*v || strcmp(v, "wait") == 0) return true;
    ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_COMPILE", "it is \"%.40s\", not wait", v);
    return ct__err_hint(err, "unset it to have kernels interpreted while they are compiled");
}

const char *ct__env_dump_folder(void) {
    const char *folder = getenv("COTAN_DUMP_DIR");
    return folder && *folder && !getauxval(AT_SECURE) ? folder : NULL;
}

bool ct__env_waits_for_compiler(void) {
    const char *v = getenv("COTAN_COMPILE");
    return v && strcmp(v, "wait") == 0;
}

bool ct__env_plan_cache(uint64_t *bytes, ct_err *err) {
    enum { ENV_DEFAULT_MB = 256, ENV_MAX_MB = 1000000 };
    const char *text = getenv("COTAN_PLAN_CACHE"), *at = text;
    uint64_t n = 0;
    for (; at && *at >= '0' && *at <= '9' && n <= ENV_MAX_MB; at++)
        n = n * 10 + (uint64_t)(*at - '0');
    const bool is_valid = !text || !*text || (!*at && n >= 1 && n <= ENV_MAX_MB);
    *bytes = (text && *text ? n : ENV_DEFAULT_MB) * 1000000;
    return is_valid ||
           ct__err(err, CT_E_USAGE, CT_NOWHERE, "COTAN_PLAN_CACHE",
                   "it is \"%.40s\", not a whole number of MB from 1 to %d", text, ENV_MAX_MB);
}

bool ct__env_check(ct_err *err) {
    return env_check_compile(err) && env_check_flag("COTAN_FUSE", err) &&
           env_check_flag("COTAN_EXPLAIN", err) && env_check_flag("COTAN_VERIFY", err) &&
           env_check_dump(err) && env_check_folder(err);
}

bool ct__env_fuses(void) {
    const char *fuse = getenv("COTAN_FUSE");
    return !fuse || !*fuse || ct__env_flag("COTAN_FUSE");
}
