// Reading of input files and standard input.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

char *read_stream(FILE *file, size_t *n) {
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

char *read_file_or_stdin(const char *caller, const char *path, size_t *n) {
    const bool input = !path || strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "rb");
    errno = file ? 0 : errno;
    char *all = file ? read_stream(file, n) : NULL;
    if (!all)
        fprintf(stderr, "cotan: %s: %s cannot be read: %s\n", caller,
                input ? "standard input" : printable(path), strerror(errno ? errno : ENOMEM));
    if (file && !input) fclose(file);
    return all;
}
