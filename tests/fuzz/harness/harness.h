// What the harnesses share. Each file of this folder gives libFuzzer's entry point for one reader;
// `make fuzz` runs them, test_corpus.c replays their corpus.
#ifndef COTAN_FUZZ_HARNESS_H
#define COTAN_FUZZ_HARNESS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

// A promise that a reader broke. Stays on in every build.
#define EXPECT(holds)                                                                              \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
