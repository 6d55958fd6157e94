// Replaces the host program's locale and floating-point mode by the defaults for the rest of a
// block: numbers are written, read and computed alike in every program.
#ifndef COTAN_BASE_FP_ENV_H
#define COTAN_BASE_FP_ENV_H

#include <fenv.h>
#include <locale.h>

typedef struct ct_saved_env {
    fenv_t modes;
    locale_t locale; // of this thread
} ct_saved_env;
ct_saved_env ct__default_env_begin(void);
void ct__default_env_end(const ct_saved_env *saved);

// Declares a guard variable; the host's settings are restored at the end of the block.
#define CT_DEFAULT_ENV                                                                             \
    const ct_saved_env ct__saved_env __attribute__((cleanup(ct__default_env_end), unused)) =       \
        ct__default_env_begin()

#endif
