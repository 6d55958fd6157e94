// What the environment asks of plans.
#ifndef COTAN_COMPILE_ENV_H
#define COTAN_COMPILE_ENV_H

#include "graph/graph.h"

// False, with an error that names what is allowed: a variable says something that nobody reads.
bool ct__env_check(ct_err *err);
bool ct__env_fuses(void); // COTAN_FUSE
// COTAN_DUMP_DIR: the folder that kernels are dumped into, a file each; NULL: they are printed. A setuid
// program writes nowhere that its user names.
const char *ct__env_dump_folder(void);
bool ct__env_waits(void); // COTAN_COMPILE: for the compiler, before anything runs
bool ct__env_plan_cache(uint64_t *bytes, ct_err *err); // COTAN_PLAN_CACHE, else the default

// The first n bytes of a variable's text, as far as a sentence shows them.
typedef struct ct_env_word {
    char s[24];
} ct_env_word;
ct_env_word ct__env_word(const char *text, size_t n);

#endif
