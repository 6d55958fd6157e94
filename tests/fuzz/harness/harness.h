// What the harnesses share. Each file of this folder gives libFuzzer's entry point for one reader;
// `make fuzz` runs them, test_corpus.c replays their corpus.
#ifndef COTAN_FUZZ_HARNESS_H
#define COTAN_FUZZ_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

// A promise that a reader broke. Stays on in every build.
#define EXPECT(holds)                                                                              \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

// The path of a file with these bytes, for readers that open files. It lies in memory, and the next
// call writes over it.
static inline const char *harness_file(const uint8_t *bytes, size_t n) {
    static char path[40];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        EXPECT(fd >= 0 && fchmod(fd, 0600) == 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    EXPECT(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n);
    return path;
}

// Does a message begin with the file and these words?
static inline bool harness_said(const char *text, const char *path, const char *words) {
    size_t n = strlen(path);
    return strncmp(text, path, n) == 0 && strncmp(text + n, ": ", 2) == 0 &&
           strncmp(text + n + 2, words, strlen(words)) == 0;
}

#endif
