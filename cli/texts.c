// Texts that commands read, and how far they are.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

char *read_all(FILE *file, size_t *n) {
    char *all = NULL;
    size_t cap = 0, got;
    *n = 0;
    do {
        if (cap - *n < 65536) {
            char *more = realloc(all, cap = cap * 2 + 65537);
            if (!more) {
                free(all);
                return NULL;
            }
            all = more;
        }
        got = fread(all + *n, 1, cap - *n - 1, file);
        *n += got;
    } while (got);
    if (ferror(file)) {
        free(all);
        return NULL;
    }
    all[*n] = '\0';
    return all;
}

char *read_file_or_input(const char *caller, const char *path, size_t *n) {
    const bool input = !path || strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "rb");
    errno = file ? 0 : errno;
    char *all = file ? read_all(file, n) : NULL;
    if (!all)
        fprintf(stderr, "cotan: %s: %s cannot be read: %s\n", caller,
                input ? "standard input" : plain(path), strerror(errno ? errno : ENOMEM));
    if (file && !input) fclose(file);
    return all;
}

void show_progress(const char *what, int64_t done, int64_t all) {
    if (isatty(STDERR_FILENO) != 1) return;
    fprintf(stderr, "\r%s: %lld of %lld\x1b[K", plain(what), (long long)done, (long long)all);
    if (done == all) fputs("\r\x1b[K", stderr);
    fflush(stderr);
}
