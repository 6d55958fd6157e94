// Describes what a file or a folder contains: `cotan info`.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "cotan/lm.h"
#include "data/corpus.h"
#include "data/idx.h"
#include "graph/graph.h"
#include "io/config.h"
#include "io/metrics.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "io/weights.h"
#include "train/checkpoint.h"
#include "train/describe_model.h"

// --------------------------------------------------------------------------------------- safetensors

static uint64_t describe_count_elements(const ct_st_entry *e) {
    uint64_t count = 1;
    // cannot overflow: checked when the file was opened
    for (size_t i = 0; i < e->rank; i++) count *= e->shape[i];
    return count;
}

static void describe_add_tensors(ct_text *out, const ct_st *st) {
    char name[CT_PRINTABLE], value[CT_PRINTABLE], type[160];
    size_t name_width = 0;
    for (size_t i = 0; i < st->n; i++) {
        size_t n =
            strlen(ct__printable(st->entries[i].name, st->entries[i].name_n, name, sizeof name));
        if (n > name_width) name_width = n;
    }
    for (size_t i = 0; i < st->n; i++) {
        const ct_st_entry *e = &st->entries[i];
        ct__textf(out, "  %-*s  %-28s ", (int)name_width,
                  ct__printable(e->name, e->name_n, name, sizeof name),
                  ct__st_describe(e, type, sizeof type));
        ct__add_bytes(out, e->bytes);
        ct__text_add(out, "\n");
    }
    size_t checksums = 0;
    for (size_t i = 0; i < st->n_metadata; i++) checksums += ct__st_is_checksum(&st->metadata[i]);
    if (st->n_metadata > checksums) ct__text_add(out, "metadata\n");
    for (size_t i = 0; i < st->n_metadata; i++)
        if (!ct__st_is_checksum(&st->metadata[i]))
            ct__textf(
                out, "  %s: %s\n",
                ct__printable(st->metadata[i].key, st->metadata[i].key_n, name, sizeof name),
                ct__printable(st->metadata[i].value, st->metadata[i].value_n, value, sizeof value));
    if (checksums) ct__text_add(out, "checksums: header and tensors are as they were written\n");
}

static bool describe_safetensors(const char *path, ct_text *out, ct_err *err) {
    ct_st st;
    uint64_t count = 0, bytes = 0;
    if (!ct__st_open(path, &st, err)) return false;
    if (!ct__st_verify(&st, path, false, err)) {
        ct__st_close(&st);
        return false;
    }
    for (size_t i = 0; i < st.n; i++) {
        count += describe_count_elements(&st.entries[i]);
        bytes += st.entries[i].bytes;
    }
    ct__textf(out, "safetensors: %zu tensor%s, %" PRIu64 " parameters, ", st.n,
              st.n == 1 ? "" : "s", count);
    ct__add_bytes(out, bytes);
    ct__text_add(out, "\n");
    describe_add_tensors(out, &st);
    ct__st_close(&st);
    return true;
}

// --------------------------------------------------------------------------------------- npy and npz

static void describe_add_array(ct_text *out, const ct_npy *npy) {
    char type[160];
    ct__textf(out, "%-28s ", ct__npy_describe(npy, type, sizeof type));
    ct__add_bytes(out, npy->bytes);
    ct__textf(out, "%s%s\n", npy->fortran && npy->rank > 1 ? ", first axis fastest" : "",
              npy->swapped ? ", big-endian" : "");
}

static bool describe_npy(const char *path, ct_text *out, ct_err *err) {
    const void *map;
    size_t n, prefix;
    ct_npy npy;
    ct_npy_name name = {path, "npy"};
    if (!ct__file_map(path, &map, &n, err)) return false;
    const void *bytes = map ? map : "";
    bool ok = ct__npy_prefix(name, bytes, n < CT_NPY_FIXED ? n : CT_NPY_FIXED, &prefix, err) &&
              ct__npy_parse(name, bytes, prefix < n ? prefix : n, n, &npy, err);
    ct__file_unmap(map, n);
    if (!ok) return false;
    ct__textf(out, "npy, version %d.0: ", npy.version);
    describe_add_array(out, &npy);
    return true;
}

static bool describe_add_arrays(struct ct_npz *npz, ct_text *out, ct_err *err) {
    char name[CT_PRINTABLE];
    size_t name_width = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < npz->n; i++) {
        const char *s = npz->entries[i].name;
        size_t n = strlen(ct__printable(s, strlen(s), name, sizeof name));
        if (n > name_width) name_width = n;
        bytes += npz->entries[i].zip.bytes;
    }
    ct__textf(out, "npz: %zu array%s, ", npz->n, npz->n == 1 ? "" : "s");
    ct__add_bytes(out, bytes);
    ct__text_add(out, "\n");
    for (size_t i = 0; i < npz->n; i++) {
        ct_npy npy;
        const char *s = npz->entries[i].name;
        if (!ct__npz_read_header(npz, &npz->entries[i], &npy, err)) return false;
        ct__textf(out, "  %-*s  ", (int)name_width, ct__printable(s, strlen(s), name, sizeof name));
        describe_add_array(out, &npy);
    }
    return true;
}

static bool describe_npz(const char *path, ct_text *out, ct_err *err) {
    struct ct_npz npz;
    if (!ct__npz_open(path, &npz, err)) return false;
    bool ok = describe_add_arrays(&npz, out, err);
    ct__npz_close(&npz);
    return ok;
}

// -------------------------------------------------------------------------------------- idx and gzip

static bool describe_idx(const char *path, ct_text *out, ct_err *err) {
    const void *map;
    size_t n;
    ct_idx array;
    char type[160];
    uint64_t dims[CT_MAX_RANK];
    if (!ct__file_map(path, &map, &n, err)) return false;
    bool ok = ct__idx_parse(path, map ? map : "", n, &array, err);
    ct__file_unmap(map, n);
    if (!ok) return false;
    for (int64_t a = 0; a < array.rank; a++) dims[a] = (uint64_t)array.dims[a];
    ct__textf(
        out, "idx: %-28s ",
        ct__shape_text(type, sizeof type, ct_dtype_name(array.dtype), (size_t)array.rank, dims, 0));
    ct__add_bytes(out, n - array.begin);
    ct__text_add(out, "\n");
    return true;
}

// MNIST's files are gzip files.
static bool describe_gzip(const char *path, ct_text *out, ct_err *err) {
    ct_file file;
    if (!ct__file_handle_open(path, &file, err)) return false;
    ct__text_add(out, "gzip: ");
    ct__add_bytes(out, file.n);
    ct__textf(out, ", packed; unpack it: gunzip %s\n", path);
    ct__file_handle_close(&file);
    return true;
}

// ------------------------------------------------------------------------------------- training runs

static bool describe_add_model(const ct_config *config, ct_text *out, ct_err *err) {
    const char *model, *tokens = "", *vocabulary;
    char shown[CT_PRINTABLE];
    size_t n, tokens_n = 0, vocabulary_n;
    int64_t layers, heads, width, context, vocab;
    if (!ct__config_string(config, "model_type", &model, &n, err) ||
        !ct__config_int(config, "n_layer", 1, INT32_MAX, &layers, err) ||
        !ct__config_int(config, "n_head", 1, INT32_MAX, &heads, err) ||
        !ct__config_int(config, "n_embd", 1, INT32_MAX, &width, err) ||
        !ct__config_int(config, "n_positions", 1, INT32_MAX, &context, err) ||
        !ct__config_int(config, "vocab_size", 1, INT32_MAX, &vocab, err))
        return false;
    ct__textf(out,
              "model: %s, %" PRId64 " layer%s, %" PRId64 " head%s, width %" PRId64
              ", context %" PRId64 "\n",
              ct__printable(model, n, shown, sizeof shown), layers, layers == 1 ? "" : "s", heads,
              heads == 1 ? "" : "s", width, context);
    if (ct__config_has(config, "tokenizer") &&
        !ct__config_string(config, "tokenizer", &tokens, &tokens_n, err))
        return false;
    ct__textf(out, "vocabulary: %" PRId64 " %s", vocab,
              tokens_n ? ct__printable(tokens, tokens_n, shown, sizeof shown) : "tokens");
    if (ct__config_has(config, "vocabulary")) {
        char list[4 * CT_PRINTABLE];
        if (!ct__config_string(config, "vocabulary", &vocabulary, &vocabulary_n, err)) return false;
        if (vocabulary_n)
            ct__textf(out, ": %s", ct__printable(vocabulary, vocabulary_n, list, sizeof list));
    }
    ct__text_add(out, "\n");
    return true;
}

static bool describe_config(const char *path, ct_text *out, ct_err *err) {
    ct_config config;
    if (!ct__config_read(path, &config, err)) return false;
    bool ok = describe_add_model(&config, out, err);
    ct__config_close(&config);
    return ok;
}

// Returns the number of steps of the weights that were evaluated in the line of this step: as many as the
// step's index, but one more in the last line of a run, or of a run that was to end there.
static int64_t describe_evaluated_steps(const char *config_path, int64_t step) {
    ct_config config, training = {0};
    ct_err ignored = {0};
    int64_t newest = 0;
    if (!ct__config_read(config_path, &config, &ignored)) return step;
    bool is_known =
        ct__config_child(&config, "training", &training, &ignored) &&
        ct__config_int(&training, "last_evaluated_step", 0, INT64_MAX, &newest, &ignored);
    ct__config_close(&training);
    ct__config_close(&config);
    return is_known && newest == step + 1 ? newest : step;
}

static bool describe_add_metrics(const char *path, const char *config_path, ct_text *out,
                                 ct_err *err) {
    static const char *const names[] = {"loss", "val_loss"};
    ct_series s[2] = {{.keep_all = true}, {.keep_all = true}};
    if (!ct__metrics_read(path, names, 2, s, err)) return false;
    if (s[0].n)
        ct__textf(out, "training: %zu steps, loss %.4f at first and %.4f at last\n", s[0].n,
                  s[0].y[0], s[0].y[s[0].n - 1]);
    if (s[1].n) {
        int64_t steps = describe_evaluated_steps(config_path, (int64_t)s[1].last_step);
        ct__textf(out, "validation: loss %.4f after %" PRId64 " step%s\n", s[1].y[s[1].n - 1],
                  steps, steps == 1 ? "" : "s");
    }
    ct__series_free(&s[0]);
    ct__series_free(&s[1]);
    return true;
}

static bool describe_has_file(const char *folder, const char *name, char *path, size_t cap) {
    struct stat st;
    int n = snprintf(path, cap, "%s%s%s", folder, ct__ends_with(folder, "/") ? "" : "/", name);
    return n > 0 && (size_t)n < cap && stat(path, &st) == 0;
}

// Describes a run's metrics alone; the configuration beside them says what the last line's loss belongs
// to.
static bool describe_metrics(const char *path, ct_text *out, ct_err *err) {
    char config[4096];
    int folder = (int)(strlen(path) - strlen("metrics.jsonl"));
    int n = snprintf(config, sizeof config, "%.*sconfig.json", folder, path);
    if (n < 0 || (size_t)n >= sizeof config)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "the path is too long");
    if (!describe_add_metrics(path, config, out, err)) return false;
    if (!out->n) ct__text_add(out, "metrics: no losses\n");
    return true;
}

static bool describe_run(const char *folder, ct_text *out, ct_err *err) {
    char path[4096], config[4096];
    if (describe_has_file(folder, "config.json", config, sizeof config) &&
        !describe_config(config, out, err))
        return false;
    if (describe_has_file(folder, "metrics.jsonl", path, sizeof path) &&
        !describe_add_metrics(path, config, out, err))
        return false;
    return !describe_has_file(folder, "model.safetensors", path, sizeof path) ||
           describe_safetensors(path, out, err);
}

// True if the folder has a model that cotan train did not write. Its own have the sizes under GPT-2's keys,
// and at most model.safetensors.
static bool describe_has_model(const char *folder) {
    char path[4096];
    ct_config config;
    ct_err ignored = {0};
    if (!describe_has_file(folder, "config.json", path, sizeof path))
        return !describe_has_file(folder, "model.safetensors", path, sizeof path) &&
               !describe_has_file(folder, "metrics.jsonl", path, sizeof path) &&
               ct__weights_are_in(folder);
    if (!ct__config_read(path, &config, &ignored)) return false;
    bool is_own = ct__config_has(&config, "n_layer");
    ct__config_close(&config);
    if (!is_own) return ct__weights_are_in(folder);
    return !describe_has_file(folder, "model.safetensors", path, sizeof path) &&
           ct__weights_are_in(folder);
}

// Describes the folder of a run that was never saved.
static bool describe_unsaved_run(const char *folder, ct_text *out, ct_err *err) {
    char path[4096];
    ct__textf(out, "a run that has not saved yet: there is no model\n");
    return !describe_has_file(folder, "metrics.jsonl", path, sizeof path) ||
           describe_add_metrics(path, "", out, err);
}

// True for a run's folder of saves, each of which is a folder with a model.
static bool describe_has_saves(const char *folder) {
    char name[64], path[4096];
    int64_t *steps;
    size_t n;
    ct_err ignored = {0};
    if (!ct__checkpoint_list_in(folder, &steps, &n, &ignored)) return false;
    if (n) snprintf(name, sizeof name, "step-%" PRId64 "/model.safetensors", steps[0]);
    ct__free(steps);
    return n && describe_has_file(folder, name, path, sizeof path);
}

static bool describe_saves(const char *folder, ct_text *out, ct_err *err) {
    int64_t *steps;
    size_t n;
    if (!ct__checkpoint_list_in(folder, &steps, &n, err)) return false;
    ct__textf(out, "%zu save%s of a run, %s a folder for cotan info and cotan sample\n", n,
              n == 1 ? "" : "s", n == 1 ? "which is" : "the latest first: each is");
    for (size_t i = 0; i < n; i++)
        ct__textf(out, "  %s%sstep-%" PRId64 "\n", folder, ct__ends_with(folder, "/") ? "" : "/",
                  steps[i]);
    ct__free(steps);
    return true;
}

// ---------------------------------------------------------------------------------------------- text

typedef struct text_census {
    size_t lines, chars, invalid, distinct, first_invalid;
    unsigned char seen[0x110000 / 8];
} text_census;

static void describe_count_text(text_census *c, const unsigned char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used;
        if (ct__utf8_next(text + i, n - i, &cp, &used) != CT_UTF8_OK) {
            if (!c->invalid++) c->first_invalid = i;
            i += used;
            continue;
        }
        c->chars++;
        c->lines += cp == '\n';
        if (!(c->seen[cp / 8] >> (cp % 8) & 1)) c->distinct++;
        c->seen[cp / 8] |= (unsigned char)(1 << (cp % 8));
        i += used;
    }
    c->lines += n > 0 && text[n - 1] != '\n';
}

static void describe_add_chars(ct_text *out, const text_census *c) {
    ct_text list = {0};
    char one[4], shown[4 * CT_PRINTABLE];
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        if (c->seen[cp / 8] >> (cp % 8) & 1) ct__text_bytes(&list, one, ct__utf8_put(cp, one));
    ct__textf(out, "vocabulary as characters: %zu: %s\n", c->distinct,
              list.failed ? "..." : ct__printable(list.s, list.n, shown, sizeof shown));
    ct__text_free(&list);
}

static void describe_add_census(ct_text *out, const text_census *c, const ct_corpus *corpus,
                                bool nul) {
    bool is_text = !nul && !c->invalid;
    ct__textf(out, "%s: %zu bytes", is_text ? "text" : "not UTF-8 text", corpus->bytes);
    if (corpus->files > 1) ct__textf(out, " in %zu files", corpus->files);
    if (corpus->skipped)
        ct__textf(out, " (%zu hidden, binary or irregular ones, or a run's own, left out)",
                  corpus->skipped);
    if (!is_text) {
        if (c->invalid)
            ct__textf(out, "; the first that is no character is byte %zu", c->first_invalid);
        else
            ct__text_add(out, "; there are zero bytes in it");
        ct__text_add(out, "\n");
        return;
    }
    ct__textf(out, ", %zu characters, %zu lines\n", c->chars, c->lines);
    describe_add_chars(out, c);
}

static bool describe_text(const char *path, ct_text *out, ct_err *err) {
    ct_corpus corpus;
    if (!ct__corpus_read(&path, 1, CT_TOKENS_BYTES, NULL, &corpus, err)) return false;
    text_census *c = ct__calloc(1, sizeof *c);
    unsigned char *text = ct__malloc(corpus.n + 1);
    bool ok = (c && text) || ct__err_memory(err, CT_NOWHERE, path, corpus.n + sizeof *c);
    if (ok) {
        for (size_t i = 0; i < corpus.n; i++) text[i] = (unsigned char)corpus.tokens[i];
        describe_count_text(c, text, corpus.n);
        describe_add_census(out, c, &corpus, corpus.n && memchr(text, '\0', corpus.n));
    }
    ct__free(text);
    ct__free(c);
    ct__corpus_free(&corpus);
    return ok;
}

// ---------------------------------------------------------------------------------- parts of a model

// Files of a published model's folder that describe nothing by themselves.
static const struct {
    const char *name, *what;
} describe_model_parts[] = {
    {"config.json", "its configuration"},
    {"generation_config.json", "default generation settings"},
    {"tokenizer.json", "its tokenizer"},
    {"tokenizer.model", "its tokenizer"},
    {"tokenizer_config.json", "settings of its tokenizer"},
    {"special_tokens_map.json", "special tokens of its tokenizer"},
    {"added_tokens.json", "special tokens of its tokenizer"},
    {"vocab.json", "the vocabulary of its tokenizer"},
    {"vocab.txt", "the vocabulary of its tokenizer"},
    {"merges.txt", "the merges of its tokenizer"},
    {"chat_template.jinja", "its chat template"},
    {"chat_template.json", "its chat template"},
    {"model.safetensors.index.json", "which of its files holds which weights"},
    {"pytorch_model.bin.index.json", "which of its files holds which weights"},
    {"README.md", "model card"},
};

static const char *describe_basename(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// True for the config.json of a run, which has the sizes under GPT-2's keys.
static bool describe_is_run_config(const char *path) {
    ct_config config;
    ct_err ignored = {0};
    if (strcmp(describe_basename(path), "config.json") != 0) return false;
    // describe_config reports what is wrong with it
    if (!ct__config_read(path, &config, &ignored)) return true;
    bool is_own = ct__config_has(&config, "n_layer") || ct__config_has(&config, "n_head") ||
                  ct__config_has(&config, "n_embd");
    ct__config_close(&config);
    return is_own;
}

static bool describe_has_published(const char *folder) {
    char path[4096];
    ct_config config;
    ct_err ignored = {0};
    if (ct__weights_are_in(folder)) return true;
    if (!describe_has_file(folder, "config.json", path, sizeof path) ||
        !ct__config_read(path, &config, &ignored))
        return false;
    bool published =
        ct__config_has(&config, "model_type") || ct__config_has(&config, "architectures");
    ct__config_close(&config);
    return published;
}

// Describes the role of a file in its model's folder. Returns false if it is not part of a model.
static bool describe_add_part(const char *path, ct_text *out) {
    char folder[4096];
    const char *name = describe_basename(path);
    const int n = name > path + 1 ? (int)(name - path) - 1 : (int)(name - path);
    snprintf(folder, sizeof folder, "%.*s", n ? n : 1, n ? path : ".");
    if (!describe_has_published(folder)) return false;
    for (size_t i = 0; i < sizeof describe_model_parts / sizeof *describe_model_parts; i++) {
        if (strcmp(describe_model_parts[i].name, name) != 0) continue;
        ct__textf(out, "part of a model: %s; the folder is what to name: cotan info %s\n",
                  describe_model_parts[i].what, folder);
        return true;
    }
    return false;
}

// ------------------------------------------------------------------------------ choice of the format

typedef bool (*describe_fn)(const char *path, ct_text *out, ct_err *err);

// Chooses by content: the length of a safetensors header, then the header's '{'; the first bytes of npy,
// IDX and gzip files. (A zip archive may contain anything: an npz file is recognised only by its name.)
static describe_fn describe_by_content(const char *path) {
    unsigned char head[9];
    FILE *f = fopen(path, "re");
    if (!f) return describe_text;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    if (n == sizeof head && head[8] == '{' && !head[4] && !head[5] && !head[6] && !head[7])
        return describe_safetensors;
    if (n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0) return describe_npy;
    if (n >= 4 && memcmp(head, "GGUF", 4) == 0) return ct__describe_model;
    bool is_torch =
        ct__ends_with(path, ".bin") || ct__ends_with(path, ".pt") || ct__ends_with(path, ".pth");
    if (is_torch && n >= 4 &&
        (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "\x80\2\x8a\n", 4) == 0))
        return ct__describe_model;
    if (n >= 3 && memcmp(head, "\x1f\x8b\x08", 3) == 0) return describe_gzip;
    return ct__idx_begins(head, n) ? describe_idx : describe_text;
}

static bool describe_any(const char *path, ct_text *out, ct_err *err) {
    char inner[4096];
    struct stat st;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_folder && ct__weights_are_foreign(path, err)) return false;
    if (is_folder && describe_has_model(path))
        return ct__describe_model(path, out, err) &&
               (!describe_has_file(path, "metrics.jsonl", inner, sizeof inner) ||
                describe_metrics(inner, out, err));
    if (is_folder && (describe_has_file(path, "config.json", inner, sizeof inner) ||
                      describe_has_file(path, "model.safetensors", inner, sizeof inner)))
        return describe_run(path, out, err);
    if (describe_has_saves(path)) return describe_saves(path, out, err);
    if (describe_has_file(path, "metrics.jsonl", inner, sizeof inner))
        return describe_unsaved_run(path, out, err);
    if (ct__ends_with(path, ".safetensors")) return describe_safetensors(path, out, err);
    if (ct__ends_with(path, ".gguf")) return ct__describe_model(path, out, err);
    if (describe_is_run_config(path)) return describe_config(path, out, err);
    if (ct__ends_with(path, ".npy")) return describe_npy(path, out, err);
    if (ct__ends_with(path, ".npz")) return describe_npz(path, out, err);
    bool is_regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (is_regular && (strcmp(path, "metrics.jsonl") == 0 || ct__ends_with(path, "/metrics.jsonl")))
        return describe_metrics(path, out, err);
    if (is_regular && describe_add_part(path, out)) return true;
    return (is_regular ? describe_by_content(path) : describe_text)(path, out, err);
}

bool ct_describe(const char *path, ct_write_fn write, void *user) {
    ct_ctx *ctx = ct__ctx();
    CT_TEXT out = {0};
    if (!ctx || !ct__given(ctx, path, CT_NOWHERE, "describe", "the path") ||
        !ct__given(ctx, (void *)(uintptr_t)write, CT_NOWHERE, "describe",
                   "the callback for the text") ||
        ctx->err.code)
        return false;
    bool ok = describe_any(path, &out, &ctx->err);
    ok = ok && (!out.failed || ct__err_memory(&ctx->err, CT_NOWHERE, path, out.cap * 2));
    ok = ok && (write(out.s, out.n, user) ||
                ct__err(&ctx->err, CT_E_FILE, CT_NOWHERE, path, "the text could not be written"));
    return ok;
}
