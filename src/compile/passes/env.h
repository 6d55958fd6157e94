// Environment variables that control plans.
#ifndef COTAN_COMPILE_ENV_H
#define COTAN_COMPILE_ENV_H

#include "graph/graph.h"

// Checks the variables. False: one has a value that is not allowed; the error lists those that are.
bool ct__env_check(ct_err *err);
bool ct__env_fuses(void); // COTAN_FUSE
// COTAN_DUMP_DIR: the folder to which kernels are dumped, one file each; NULL: they are printed. Always
// NULL in a setuid program, which must not write to places that its user names.
const char *ct__env_dump_folder(void);
bool ct__env_waits_for_compiler(
    void); // COTAN_COMPILE=wait: wait for the compiler before anything runs
bool ct__env_plan_cache(uint64_t *bytes, ct_err *err); // COTAN_PLAN_CACHE, else the default

// The first n bytes of a variable's value, truncated for messages.
typedef struct ct_env_word {
    char s[24];
} ct_env_word;
ct_env_word ct__env_word(const char *text, size_t n);

#endif
