// Shared by the two parts of `cotan pull`: the selection of files (pull.c) and the download of one file
// (pull_file.c).
#ifndef COTAN_CLI_PULL_H
#define COTAN_CLI_PULL_H

#include "http_client.h"

enum { MAX_PATH = 4096, COMMIT_DIGITS = 40 };

typedef struct pull {
    const char *endpoint, *token; // token NULL: none
    char name[128];               // ORG/NAME
    const char *revision;
    char commit[COMMIT_DIGITS + 1];
    char dir[MAX_PATH]; // of the model in the cache
    bool quiet;
} pull;

// A file of the model.
typedef struct pull_file {
    char *name;
    int64_t size; // -1: unknown
} pull_file;

// Fetches a path below the endpoint as text, or a file of the model into the cache. Redirects are
// followed, and transient failures are retried. False: the error has been printed.
bool pull_fetch_text(const pull *p, const char *path, char **text, size_t *n);
bool pull_fetch_file(const pull *p, const pull_file *file);
// Creates the folders that the path is in.
bool pull_make_directories(const char *path);
// Prints an error to standard error after "cotan: pull: "; always returns false.
bool pull_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pull_install_signal_handlers(void);
bool pull_interrupted(void);
// True if the file name cannot refer to anything outside its directory.
bool pull_is_safe_path(const char *name);

#endif
