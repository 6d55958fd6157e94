// The host program's locale and floating-point mode, put aside for the rest of a block: numbers are
// written, read and computed in the same way in every program.
#ifndef COTAN_BASE_PLAIN_H
#define COTAN_BASE_PLAIN_H

#include <fenv.h>
#include <locale.h>

typedef struct ct_plain {
    fenv_t modes;
    locale_t locale; // of the thread
} ct_plain;
ct_plain ct__plain_begin(void);
void ct__plain_end(const ct_plain *hosts);

// A statement; what it put aside comes back where its block ends.
#define CT_PLAIN                                                                                   \
    const ct_plain ct__hosts __attribute__((cleanup(ct__plain_end), unused)) = ct__plain_begin()

#endif
