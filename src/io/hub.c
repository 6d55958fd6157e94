#define _GNU_SOURCE
#include "io/hub.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "cotan/hub.h"
#include "graph/graph.h"
#include "io/utf8.h"

enum { MAX_NAME = 96, N_COMMIT = 40 };

static bool hub_is_name_part(const char *s, size_t n) {
    bool plain = n > 0 && s[0] != '-' && s[0] != '.' && s[n - 1] != '-' && s[n - 1] != '.';
    for (size_t i = 0; i < n; i++) {
        bool twice = i > 0 && s[i] == s[i - 1] && (s[i] == '-' || s[i] == '.');
        plain = plain && !twice && (isalnum((unsigned char)s[i]) || (s[i] && strchr("-_.", s[i])));
    }
    return plain;
}

bool ct__hub_is_name(const char *name) {
    const char *slash = strchr(name, '/');
    return slash && strlen(name) <= MAX_NAME && hub_is_name_part(name, (size_t)(slash - name)) &&
           hub_is_name_part(slash + 1, strlen(slash + 1));
}

static bool hub_format_path(const char *name, char *path, size_t n, ct_err *err) {
    static const char defaults[] = "/.cache/huggingface";
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *own = getenv("HOME");
    const char *slash = strchr(name, '/'), *inside = "";
    const char *base = cache && *cache ? cache : home && *home ? home : own;
    if (!base || !*base)
        return ct__err(
            err, CT_E_FILE, CT_NOWHERE, name,
            "there is no cache to look in: neither HF_HUB_CACHE, HF_HOME nor HOME is set");
    if (base == own) inside = defaults;
    int w = snprintf(path, n, "%s%s%s/models--%.*s--%s", base, inside, base == cache ? "" : "/hub",
                     (int)(slash - name), name, slash + 1);
    return (w > 0 && (size_t)w < n) ||
           ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, name,
                   "the path in the cache has %d bytes, more than %zu", w, n);
}

bool ct__hub_folder(const char *name, char *path, size_t n, ct_err *err) {
    char shown[CT_PRINTABLE];
    if (!ct__hub_is_name(name))
        return ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "hub",
                       "\"%s\" is no model's name, which is like ORG/NAME",
                       ct__printable(name, strlen(name), shown, sizeof shown));
    return hub_format_path(name, path, n, err);
}

static bool hub_is_commit(const char *s) {
    return strlen(s) == N_COMMIT && strspn(s, "0123456789abcdef") == N_COMMIT;
}

// Reads the commit of a branch or tag; false if the cache does not have it.
static bool hub_read_ref(const char *folder, const char *revision, char commit[N_COMMIT + 1]) {
    char path[8192], *text = NULL;
    ct_err ignored = {0};
    size_t n = 0;
    bool outside = strstr(revision, "..") || *revision == '/';
    int w = snprintf(path, sizeof path, "%s/refs/%s", folder, revision);
    if (outside || w < 0 || (size_t)w >= sizeof path || !ct__file_read(path, &text, &n, &ignored))
        return false;
    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
    bool ok = hub_is_commit(text);
    if (ok) memcpy(commit, text, N_COMMIT + 1);
    ct__free(text);
    return ok;
}

// ----------------------------------------------------------------------------------- files of models

// True if the tag is a word of the file's name, such as Q4_K_M, in any case.
static bool hub_has_tag(const char *name, const char *tag) {
    const size_t n = strlen(tag);
    for (const char *at = name; (at = strcasestr(at, tag)); at++) {
        const bool begins = at == name || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[n]) && at[n] != '_') return true;
    }
    return false;
}

// Returns the length of a GGUF file's name without the part number: model-00001-of-00003.gguf ->
// model.
static size_t hub_stem_length(const char *name) {
    const size_t n = strlen(name) - strlen(".gguf"), part = strlen("-00001-of-00003");
    const bool several = n > part && strncmp(name + n - 9, "-of-", 4) == 0 && name[n - part] == '-';
    return several ? n - part : n;
}

static bool hub_is_gguf(const char *name) {
    const size_t n = strlen(name), end = strlen(".gguf");
    return n > end && strcasecmp(name + n - end, ".gguf") == 0 && !strcasestr(name, "mmproj");
}

static size_t hub_number_ggufs(const char *const *names, size_t n, const char *tag, size_t *of) {
    const char *last = NULL;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        of[i] = 0;
        if (!hub_is_gguf(names[i]) || (tag && !hub_has_tag(names[i], tag))) continue;
        const size_t own = hub_stem_length(names[i]);
        found += !last || hub_stem_length(last) != own || strncmp(last, names[i], own) != 0;
        of[i] = found;
        last = names[i];
    }
    return found;
}

enum { MAX_GGUF = 1024 };
typedef struct listing {
    ct_arena arena;
    const char *names[MAX_GGUF], *inside; // inside: the subfolder that is read, or NULL
    size_t of[MAX_GGUF], n;
} listing;
static void hub_list_file(int folder, const char *name, void *user) {
    listing *l = user;
    if (!l->inside) { // large models have a folder for each tag
        l->inside = name;
        ct__for_each_entry(folder, name, hub_list_file, l);
        l->inside = NULL;
    }
    if (!hub_is_gguf(name) || l->n == MAX_GGUF) return;
    const char *own = ct__arena_printf(&l->arena, "%s%s%s", l->inside ? l->inside : "",
                                       l->inside ? "/" : "", name);
    if (own) l->names[l->n++] = own;
}

static int hub_compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Finds the first part of the only GGUF file that has the tag. Returns false without an error if
// there is none.
static bool hub_find_tagged(const char *name, const char *tag, const char *path, char *file,
                            size_t cap, ct_err *err) {
    char shown[CT_PRINTABLE];
    listing *l = ct__calloc(1, sizeof *l);
    if (!l) return ct__err_memory(err, CT_NOWHERE, name, sizeof *l);
    ct__for_each_entry(AT_FDCWD, path, hub_list_file, l);
    qsort(l->names, l->n, sizeof *l->names, hub_compare_names);
    const size_t found = *tag ? hub_number_ggufs(l->names, l->n, tag, l->of) : 0;
    ct_text list = {0};
    for (size_t i = 0, listed = 0; i < l->n; i++) {
        if (!l->of[i] || l->of[i] == listed) continue;
        listed = l->of[i];
        ct__textf(&list, "%s%s", listed > 1 ? ", " : "",
                  ct__printable(l->names[i], strlen(l->names[i]), shown, sizeof shown));
        if (listed == 1) snprintf(file, cap, "%s", l->names[i]);
    }
    if (found > 1) {
        ct__err(err, CT_E_FILE, CT_NOWHERE, name,
                "in the cache it has several GGUF files of %s: %s",
                ct__printable(tag, strlen(tag), shown, sizeof shown), list.s ? list.s : "");
        ct__err_hint(err, "name one, as ORG/NAME/FILE.gguf");
    }
    ct__text_free(&list);
    ct__arena_free(&l->arena);
    ct__free(l);
    return found == 1;
}

// Appends the file `which`, ":TAG" or "/FILE", to the path of its folder.
static bool hub_find_file(const char *name, const char *which, char *path, size_t n, ct_err *err) {
    char shown[CT_PRINTABLE];
    struct stat st;
    char tagged[4096] = "";
    const char *file = *which == ':' ? tagged : which + 1;
    if (*which == ':' && !hub_find_tagged(name, which + 1, path, tagged, sizeof tagged, err) &&
        err->code)
        return false;
    const size_t own = strlen(path);
    const bool fits = own + strlen(file) + 2 <= n;
    if (fits) snprintf(path + own, n - own, "/%s", file);
    if (fits && *file && !strstr(file, "..") && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return true;
    path[own] = '\0';
    ct__err(err, CT_E_FILE, CT_NOWHERE, name, "in the cache it has no %s%s",
            *which == ':' ? "GGUF file of " : "file ",
            ct__printable(which + 1, strlen(which + 1), shown, sizeof shown));
    return ct__err_hint(err, "download it: cotan pull %s%s", name, which);
}

static bool hub_find_snapshot(const char *name, const char *revision, char *path, size_t n,
                              ct_err *err) {
    char folder[4096], commit[N_COMMIT + 1], shown[CT_PRINTABLE];
    struct stat st;
    if (!ct__hub_folder(name, folder, sizeof folder, err)) return false;
    if (!revision) revision = "main";
    bool known = hub_is_commit(revision);
    if (known) memcpy(commit, revision, sizeof commit);
    if (!known) known = hub_read_ref(folder, revision, commit);
    int w = known ? snprintf(path, n, "%s/snapshots/%s", folder, commit) : 0;
    if (known && (w < 0 || (size_t)w >= n))
        return ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, name,
                       "the path in the cache has %d bytes, more than %zu", w, n);
    if (known && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return true;
    if (access(folder, R_OK | X_OK) != 0 && errno != ENOENT && errno != ENOTDIR)
        return ct__err_system(err, folder, "read the folder");
    ct__err(err, CT_E_FILE, CT_NOWHERE, name, "revision %s is not in the cache, %s",
            ct__printable(revision, strlen(revision), shown, sizeof shown), folder);
    return ct__err_hint(err, "download it: cotan pull %s", name);
}

bool ct__hub_find(const char *name, const char *revision, char *path, size_t n, ct_err *err) {
    char model[2 * MAX_NAME];
    const char *slash = strchr(name, '/');
    const size_t own = slash ? (size_t)(slash - name) + 1 + strcspn(slash + 1, ":/") : 0;
    if (!own || own >= sizeof model || !name[own])
        return hub_find_snapshot(name, revision, path, n, err);
    memcpy(model, name, own);
    model[own] = '\0';
    return hub_find_snapshot(model, revision, path, n, err) &&
           hub_find_file(model, name + own, path, n, err);
}

// ------------------------------------------------------------------------------------------ public

static bool hub_finish(ct_ctx *ctx, bool ok, ct_loc here, const char *op) {
    return ok || ct__err_locate(&ctx->err, here, op);
}

size_t ct_hub_match_gguf(const char *const *names, size_t n, const char *tag, size_t *group) {
    static const char op[] = "hub_match_gguf";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, names, CT_NOWHERE, op, "the list of names") ||
        !ct__given(ctx, group, CT_NOWHERE, op, "the list of numbers"))
        return 0;
    return hub_number_ggufs(names, n, tag, group);
}

bool ct_hub_folder_at(const char *name, char *path, size_t n, ct_loc here) {
    static const char op[] = "hub_folder";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, name, here, op, "the name") ||
        !ct__given(ctx, path, here, op, "the path") || ctx->err.code)
        return false;
    return hub_finish(ctx, ct__hub_folder(name, path, n, &ctx->err), here, op);
}

bool ct_hub_find_at(const char *name, const char *revision, char *path, size_t n, ct_loc here) {
    static const char op[] = "hub_find";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, name, here, op, "the name") ||
        !ct__given(ctx, path, here, op, "the path") || ctx->err.code)
        return false;
    return hub_finish(ctx, ct__hub_find(name, revision, path, n, &ctx->err), here, op);
}
