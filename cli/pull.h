// What the two halves of `cotan pull` share: which files (pull.c), and how one is brought (pull_file.c).
#ifndef COTAN_CLI_PULL_H
#define COTAN_CLI_PULL_H

#include "http.h"

enum { MOST_PATH = 4096, COMMIT_DIGITS = 40 };

typedef struct pull {
    const char *endpoint, *token; // token NULL: none
    char name[128];               // ORG/NAME
    const char *revision;
    char commit[COMMIT_DIGITS + 1];
    char folder[MOST_PATH]; // of the model in the cache
    bool quiet;
} pull;

// What was brought, or stands where it was to come from.
typedef struct pull_file {
    char *name;
    int64_t size; // -1: not known
} pull_file;

// Requests of a path below the endpoint, or a file of the model; redirects are followed and what may
// come another time is tried again. False: what is wrong has been said.
bool pull_text(const pull *p, const char *path, char **text, size_t *n);
bool pull_bring(const pull *p, const pull_file *file);
bool pull_make_folders(const char *path, bool last); // last: of the path's last part as well
// Says it to standard error, behind "cotan: pull: "; always false.
bool pull_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pull_watch_signals(void);
bool pull_interrupted(void);
// A name of a file that leads nowhere but into its folder.
bool pull_is_plain(const char *name);

#endif
