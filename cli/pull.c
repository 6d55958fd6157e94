// cotan pull: downloads a model from the Hugging Face Hub, or a mirror of it, into the cache.
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <cotan/hub.h>

#include "cli.h"
#include "pull.h"

enum { MAX_FILES = 100000 };

typedef struct files {
    pull_file *v;
    size_t n;
} files;

typedef struct pull_request {
    char model[128];     // ORG/NAME
    const char *tag;     // of GGUF files: Q4_K_M; NULL: none
    const char *file;    // only this file; NULL: not given
    const char *include; // NULL: the files that a model needs
} pull_request;

// ------------------------------------------------------------------------------------- the listing

static void pull_free_files(files *list) {
    for (size_t i = 0; i < list->n; i++) free(list->v[i].name);
    free(list->v);
}

// {"sha": ..., "siblings": [{"rfilename": ..., "size": ...}, ...]}
static bool pull_parse_listing(pull *p, const json_t *root, files *list) {
    const json_t *siblings = json_object_get(root, "siblings"), *one;
    const char *sha = json_string_value(json_object_get(root, "sha"));
    size_t i;
    if (!sha || strlen(sha) != COMMIT_DIGITS || strspn(sha, "0123456789abcdef") != COMMIT_DIGITS)
        return pull_error("%s: the list of its files names no commit", p->name);
    memcpy(p->commit, sha, sizeof p->commit);
    if (!json_is_array(siblings) || json_array_size(siblings) > MAX_FILES)
        return pull_error("%s: the list of its files is none, or has more than %d", p->name,
                          MAX_FILES);
    list->v = calloc(json_array_size(siblings) + 1, sizeof *list->v);
    if (!list->v) return pull_error("out of memory");
    json_array_foreach(siblings, i, one) {
        const char *name = json_string_value(json_object_get(one, "rfilename"));
        const json_t *size = json_object_get(one, "size");
        if (!name || !pull_is_safe_path(name))
            return pull_error("%s: a file of the list has the name \"%s\", which may not be used",
                              p->name, name ? printable(name) : "");
        bool known = json_is_integer(size) && json_integer_value(size) >= 0;
        list->v[i] = (pull_file){strdup(name), known ? json_integer_value(size) : -1};
        if (!list->v[i].name) return pull_error("out of memory");
        list->n = i + 1;
    }
    return true;
}

static json_t *pull_fetch_json(const pull *p, const char *path, const char *what) {
    char *text = NULL;
    size_t n = 0;
    json_error_t fault;
    if (!pull_fetch_text(p, path, &text, &n)) return NULL;
    json_t *root = json_loadb(text, n, 0, &fault);
    free(text);
    if (!root)
        pull_error("%s: %s is not JSON: line %d, column %d: %s", p->name, what, fault.line,
                   fault.column, printable(fault.text));
    return root;
}

static bool pull_list_files(pull *p, files *list) {
    char path[2048];
    snprintf(path, sizeof path, "/api/models/%s/revision/%s?blobs=true", p->name, p->revision);
    json_t *root = pull_fetch_json(p, path, "the list of its files");
    bool ok = root && pull_parse_listing(p, root, list);
    json_decref(root);
    return ok;
}

// -------------------------------------------------------------------------------------- the choice

static const pull_file *pull_find_file(const files *list, const char *name) {
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->v[i].name, name) == 0) return &list->v[i];
    return NULL;
}

static bool pull_ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcasecmp(name + n - m, end) == 0;
}

// True for small files that any use of a model may need.
static bool pull_is_small_file(const char *name) {
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "spiece.model",
                                        "sentencepiece.bpe.model",
                                        "tekken.json",
                                        "*.tiktoken",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "additional_chat_templates/*.jinja",
                                        "modules.json",
                                        "config_sentence_transformers.json",
                                        "sentence_bert_config.json",
                                        "[0-9]_*/config.json",
                                        "[0-9]_*/model.safetensors",
                                        "preprocessor_config.json",
                                        "processor_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fnmatch(names[i], name, FNM_PATHNAME) == 0) return true;
    return false;
}

static bool pull_select_file(const pull *p, const files *list, bool *chosen, const char *name) {
    const pull_file *file = pull_find_file(list, name);
    if (!file)
        return pull_error("%s: its index names \"%s\", and there is no such file", p->name,
                          printable(name));
    chosen[file - list->v] = true;
    return true;
}

// Selects the weight files that an index names.
static bool pull_select_index(const pull *p, const files *list, const char *index, bool *chosen) {
    char path[2048];
    const char *key;
    json_t *value;
    snprintf(path, sizeof path, "/%s/resolve/%s/%s", p->name, p->commit, index);
    json_t *root = pull_fetch_json(p, path, index);
    if (!root) return false;
    json_t *map = json_object_get(root, "weight_map");
    bool ok = json_is_object(map) || pull_error("%s: %s has no weight_map", p->name, index);
    json_object_foreach(map, key, value) ok =
        ok &&
        pull_select_file(p, list, chosen, json_is_string(value) ? json_string_value(value) : "");
    json_decref(root);
    return ok && pull_select_file(p, list, chosen, index);
}

// Selects the weights of one format: by an index, or else the single file, or else all in the top
// directory. *found: there are some.
static bool pull_select_weights(const pull *p, const files *list, const char *one, const char *end,
                                bool *chosen, bool *found) {
    char index[128];
    snprintf(index, sizeof index, "%s.index.json", one);
    *found = true;
    if (pull_find_file(list, index)) return pull_select_index(p, list, index, chosen);
    if (pull_find_file(list, one)) return pull_select_file(p, list, chosen, one);
    *found = false;
    for (size_t i = 0; i < list->n; i++)
        if (pull_ends_with(list->v[i].name, end) && !strchr(list->v[i].name, '/'))
            *found = chosen[i] = true;
    return true;
}

// Selects one GGUF file, or all parts of a split one.
static bool pull_select_gguf(const pull *p, const files *list, const char *tag, bool *chosen) {
    char listing[400] = "";
    const char **names = calloc(list->n + 1, sizeof *names);
    size_t *of = calloc(list->n + 1, sizeof *of), last = 0;
    bool allocated = names && of;
    for (size_t i = 0; allocated && i < list->n; i++) names[i] = list->v[i].name;
    const size_t several = allocated ? ct_hub_match_gguf(names, list->n, tag, of) : 0;
    for (size_t i = 0; allocated && i < list->n; i++) {
        if (!of[i]) continue;
        chosen[i] = of[i] == 1;
        if (of[i] == last) continue;
        last = of[i];
        strncat(listing, *listing ? ", " : "", sizeof listing - strlen(listing) - 1);
        strncat(listing, printable(names[i]), sizeof listing - strlen(listing) - 1);
    }
    free(names);
    free(of);
    if (!allocated) return pull_error("out of memory");
    if (several == 1) return true;
    if (!several && tag)
        return pull_error("%s: it has no GGUF file of %s", p->name, printable(tag));
    if (!several)
        return pull_error(
            "%s: it has no weights: neither safetensors nor .bin nor GGUF; --include chooses files",
            p->name);
    return pull_error("%s: there are several; name one, as ORG/NAME:TAG or ORG/NAME/FILE.gguf: %s",
                      p->name, listing);
}

static bool pull_select_model(const pull *p, const files *list, bool *chosen) {
    bool found = false;
    for (size_t i = 0; i < list->n; i++) chosen[i] = pull_is_small_file(list->v[i].name);
    if (!pull_select_weights(p, list, "model.safetensors", ".safetensors", chosen, &found))
        return false;
    if (!found && !pull_select_weights(p, list, "pytorch_model.bin", ".bin", chosen, &found))
        return false;
    return found || pull_select_gguf(p, list, NULL, chosen);
}

static bool pull_select(const pull *p, const pull_request *w, const files *list, bool *chosen) {
    size_t n = 0;
    if (w->tag) return pull_select_gguf(p, list, w->tag, chosen);
    if (!w->include && !w->file) return pull_select_model(p, list, chosen);
    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->v[i].name;
        chosen[i] = w->file ? strcmp(name, w->file) == 0 : fnmatch(w->include, name, 0) == 0;
        n += chosen[i];
    }
    return n > 0 || pull_error("%s: no file of it is \"%s\"", p->name,
                               printable(w->file ? w->file : w->include));
}

// --------------------------------------------------------------------------------------- the whole

static int pull_print_selection(const files *list, const bool *chosen) {
    int64_t all = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (!chosen[i]) continue;
        if (list->v[i].size >= 0)
            printf("%14" PRId64 "  ", list->v[i].size);
        else
            printf("%14s  ", "?");
        put_escaped(stdout, list->v[i].name, strlen(list->v[i].name), "");
        putchar('\n');
        all += list->v[i].size > 0 ? list->v[i].size : 0;
    }
    printf("%14" PRId64 "  bytes in all\n", all);
    return EXIT_DONE;
}

// Writes refs/REVISION, which contains the commit, after all files are downloaded, so that a revision
// that is found is complete.
static bool pull_write_ref(const pull *p) {
    char path[MAX_PATH], temporary[MAX_PATH + 16];
    if (strcmp(p->revision, p->commit) == 0) return true;
    int n = snprintf(path, sizeof path, "%s/refs/%s", p->dir, p->revision);
    if (n < 0 || (size_t)n >= sizeof path)
        return pull_error("%s: the path is too long", printable(p->revision));
    if (!pull_make_directories(path)) return false;
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid());
    FILE *file = fopen(temporary, "we");
    bool ok = file && fputs(p->commit, file) >= 0;
    if (file && fclose(file) != 0) ok = false;
    if (ok && rename(temporary, path) == 0) return true;
    pull_error("%s: cannot write: %s", printable(path), strerror(errno));
    unlink(temporary);
    return false;
}

static bool pull_fetch_all(const pull *p, const files *list, const bool *chosen) {
    for (size_t i = 0; i < list->n; i++)
        if (chosen[i] && !pull_fetch_file(p, &list->v[i])) return false;
    return pull_write_ref(p);
}

static int pull_report_interrupted(const pull *p) {
    fprintf(
        stderr,
        "\n"
        "cotan: pull: %s: interrupted; the downloaded part is kept, and the same command resumes\n",
        p->name);
    return EXIT_INTERRUPTED;
}

static int pull_run(pull *p, const pull_request *w, bool dry) {
    files list = {0};
    const char *missing = http_unavailable_reason();
    if (missing) return pull_error("%s", missing), EXIT_FAILED;
    pull_install_signal_handlers();
    int status = EXIT_FAILED;
    bool *chosen = NULL, ok = pull_list_files(p, &list);
    if (ok) {
        chosen = calloc(list.n + 1, sizeof *chosen);
        ok = chosen && pull_select(p, w, &list, chosen);
    }
    if (ok && dry) {
        status = pull_print_selection(&list, chosen);
    } else if (ok && pull_fetch_all(p, &list, chosen)) {
        printf("%s/snapshots/%s\n", p->dir, p->commit);
        status = EXIT_DONE;
    }
    if (status != EXIT_DONE && pull_interrupted()) status = pull_report_interrupted(p);
    free(chosen);
    pull_free_files(&list);
    return status;
}

// Parses ORG/NAME, ORG/NAME:TAG, ORG/NAME/FILE. False: it is none of them.
static bool pull_parse_name(const char *what, pull_request *w) {
    const char *slash = strchr(what, '/');
    size_t n = slash ? (size_t)(slash - what) + 1 + strcspn(slash + 1, "/:") : 0;
    if (!n || n >= sizeof w->model) return false;
    memcpy(w->model, what, n);
    w->model[n] = '\0';
    if (what[n] == ':') w->tag = what + n + 1;
    if (what[n] == '/') w->file = what + n + 1;
    return (!w->tag || *w->tag) && (!w->file || pull_is_safe_path(w->file));
}

static bool pull_is_revision(const char *revision) {
    return pull_is_safe_path(revision) && !strpbrk(revision, " ?#%&") && strlen(revision) < 200;
}

// HF_HUB_OFFLINE: finds the model in the cache, without a connection.
static int pull_find_offline(const pull *p) {
    char path[MAX_PATH];
    if (!ct_hub_find_at(p->name, p->revision, path, sizeof path, CT_NOWHERE)) return report_error();
    puts(path);
    return EXIT_DONE;
}

static bool pull_env_is_on(const char *variable) {
    const char *value = getenv(variable);
    return value && (!strcmp(value, "1") || !strcasecmp(value, "true") ||
                     !strcasecmp(value, "yes") || !strcasecmp(value, "on"));
}

// Reads the endpoint and the token from the environment. False: they are not valid; the error has been
// printed.
static bool pull_read_environment(pull *p, char endpoint[512]) {
    const char *given = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN");
    if (!given || !*given) given = "https://huggingface.co";
    size_t n = strlen(given);
    while (n > 0 && given[n - 1] == '/') n--;
    snprintf(endpoint, 512, "%.*s", n < 512 ? (int)n : 0, given);
    p->endpoint = endpoint;
    if (!http_same_origin(endpoint, endpoint))
        return pull_error("HF_ENDPOINT is \"%s\", and not like https://huggingface.co",
                          printable(given));
    p->token = token && *token ? token : NULL;
    for (const char *c = p->token ? p->token : ""; *c; c++)
        if (*c <= ' ' || *c == 127 || strlen(p->token) > 1000)
            return pull_error(
                "HF_TOKEN holds what no token does: blanks, line ends or other signs");
    return true;
}

int run_pull(int argc, char **argv) {
    const char *what = NULL, *revision = "main", *include = NULL;
    bool dry = false, quiet = false;
    opt opts[] = {{"revision", OPT_PATH, "NAME", "a branch, a tag or a commit; default main",
                   .out = &revision},
                  {"include", OPT_PATH, "GLOB", "the files whose names match, instead of a model's",
                   .out = &include},
                  {"dry-run", OPT_FLAG, NULL, "only list the files, with their bytes", .out = &dry},
                  {"quiet", OPT_FLAG, NULL, "print only errors and the folder", .out = &quiet}};
    command c = {
        .name = "pull",
        .usage = "ORG/NAME[:TAG] | ORG/NAME/FILE [options]",
        .operand = "ORG/NAME",
        .text =
            "Downloads a model from the Hugging Face Hub into the cache that huggingface_hub\n"
            "uses, and prints the folder: configuration, tokenizer, chat template and weights\n"
            "(safetensors, else .bin, else the one GGUF file). With a TAG, such as Q4_K_M, the\n"
            "GGUF file that has it; with a FILE, that one. Interrupted downloads are resumed,\n"
            "sizes and checksums are verified, and existing files are not downloaded again.\n"
            "\n"
            "Environment: HF_TOKEN (sent to the Hub alone), HF_ENDPOINT (a mirror), HF_HUB_CACHE\n"
            "or HF_HOME (the cache), HF_HUB_OFFLINE=1 (only use the cache),\n"
            "COTAN_CURL_LIBRARY (else libcurl.so.4).\n",
        .examples = "  cotan pull Qwen/Qwen3-0.6B\n"
                    "  cotan pull org/model-GGUF:Q4_K_M --dry-run\n"
                    "  cotan pull org/model --include \"*.json\"\n",
        .opts = opts,
        .n = sizeof opts / sizeof *opts,
    };
    int status;
    char endpoint[512];
    pull_request w = {0};
    pull p = {0};
    if (!options_parse(&c, argc, argv, &what, &status)) return status;
    if (!pull_parse_name(what, &w))
        return usage_error(
            "pull: \"%s\" is no model of the Hub, which is like ORG/NAME, ORG/NAME:TAG "
            "or ORG/NAME/FILE",
            printable(what));
    if ((w.tag || w.file) && include)
        return usage_error("pull: --include goes with ORG/NAME alone");
    if (!pull_is_revision(revision))
        return usage_error("pull: --revision cannot be \"%s\"", printable(revision));
    w.include = include;
    memcpy(p.name, w.model, sizeof p.name);
    p.revision = revision;
    p.quiet = quiet;
    if (!ct_hub_folder_at(p.name, p.dir, sizeof p.dir, CT_NOWHERE)) return report_error();
    if (pull_env_is_on("HF_HUB_OFFLINE")) return pull_find_offline(&p);
    return pull_read_environment(&p, endpoint) ? pull_run(&p, &w, dry) : EXIT_FAILED;
}
