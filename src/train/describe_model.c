// Describes a model's files: parameters by type, architecture and tokenizer.
#include "train/describe_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/type.h"
#include "io/config.h"
#include "io/utf8.h"
#include "io/weights.h"

void ct__add_bytes(ct_text *out, uint64_t bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double v = (double)bytes;
    size_t unit = 0;
    for (; v >= 9999.5 && unit < 4; unit++) v /= 1000;
    ct__textf(out, "%.0f %s", v, units[unit]);
}

static const char *model_plural(uint64_t n) { return n == 1 ? "" : "s"; }

// ---------------------------------------------------------------------------------------- parameters

static bool model_has_suffix(const char *name, const char *suffix, size_t *rest) {
    *rest = strlen(name) - (ct__ends_with(name, suffix) ? strlen(suffix) : 0);
    return name[*rest] != '\0';
}

// Finds the tensor whose name differs only in its suffix; NULL: there is none.
static const ct_weight *model_find_sibling(const ct_weights *w, const ct_weight *t,
                                           const char *suffix, const char *other_suffix) {
    char name[512];
    size_t rest;
    if (!model_has_suffix(t->name, suffix, &rest) || rest + strlen(other_suffix) >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)rest, t->name, other_suffix);
    return ct__weights_find(w, name);
}

static uint64_t model_count_elements(const ct_weight *t) {
    uint64_t n = 1;
    for (size_t i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

// Counts the parameters of the model that a tensor holds: scales hold none, and quantised tensors as many
// as they represent (an MLX scale covers `group` values).
static uint64_t model_count_parameters(const ct_weights *w, const ct_weight *t, int64_t group) {
    static const char *const pairs[][2] = {{".scales", ".weight"},
                                           {".biases", ".weight"},
                                           {"_scales", "_blocks"},
                                           {"_scale_inv", ""},
                                           {"_scale", ""}};
    const ct_weight *scales = NULL;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const ct_weight *sibling = model_find_sibling(w, t, pairs[i][0], pairs[i][1]);
        if (sibling && (i > 1 || sibling->dtype == CT_U32)) return 0;
    }
    if (t->dtype == CT_U32 && (scales = model_find_sibling(w, t, ".weight", ".scales")))
        return model_count_elements(scales) * (uint64_t)group;
    if (t->dtype == CT_U8 && model_find_sibling(w, t, "_blocks", "_scales"))
        return 2 * model_count_elements(t);
    return model_count_elements(t);
}

typedef struct model_type_row { // a type of tensors
    const char *name;
    uint64_t tensors, parameters, bytes;
} model_type_row;

static int model_compare_bytes(const void *a, const void *b) {
    const model_type_row *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

enum { MAX_TYPES = 64 };

static size_t model_count_types(const ct_weights *w, int64_t group, model_type_row types[MAX_TYPES],
                                model_type_row *total) {
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        const ct_weight *t = &w->entries[i];
        const char *name = t->dtype ? ct_dtype_name(t->dtype) : t->kind;
        uint64_t count = model_count_parameters(w, t, group);
        size_t k = 0;
        while (k < n && strcmp(types[k].name, name) != 0) k++;
        if (k == MAX_TYPES)
            types[--k].name = "others"; // an npz file has a type per length of strings
        if (k == n) types[n++] = (model_type_row){.name = name};
        model_type_row *rows[] = {&types[k], total};
        for (int r = 0; r < 2; r++) {
            rows[r]->tensors++;
            rows[r]->parameters += count;
            rows[r]->bytes += t->bytes;
        }
    }
    qsort(types, n, sizeof *types, model_compare_bytes);
    return n;
}

static void model_add_types(ct_text *out, const model_type_row *types, size_t n) {
    char shown[CT_PRINTABLE];
    ct__textf(out, "  %-10s %8s %16s  size\n", "type", "tensors", "parameters");
    for (size_t i = 0; i < n; i++) {
        ct__textf(out, "  %-10s %8" PRIu64 " %16" PRIu64 "  ",
                  ct__printable(types[i].name, strlen(types[i].name), shown, sizeof shown),
                  types[i].tensors, types[i].parameters);
        ct__add_bytes(out, types[i].bytes);
        ct__text_add(out, "\n");
    }
}

static void model_add_files(ct_text *out, const ct_weights *w) {
    char shown[CT_PRINTABLE];
    for (size_t i = 0; i < w->n_files; i++) {
        const char *path = w->files[i].path, *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        ct__textf(out, "  %s  ", ct__printable(name, strlen(name), shown, sizeof shown));
        ct__add_bytes(out, w->files[i].n);
        ct__text_add(out, "\n");
    }
}

static void model_add_tensors(ct_text *out, const ct_weights *w) {
    char name[CT_PRINTABLE], type[160];
    size_t name_width = 0;
    for (size_t i = 0; i < w->n; i++) {
        const char *s = w->entries[i].name;
        size_t n = strlen(ct__printable(s, strlen(s), name, sizeof name));
        if (n > name_width) name_width = n;
    }
    for (size_t i = 0; i < w->n; i++) {
        const ct_weight *t = &w->entries[i];
        uint64_t dims[CT_MAX_RANK];
        for (size_t k = 0; k < t->rank; k++) dims[k] = (uint64_t)t->dim[k];
        ct__textf(out, "  %-*s  %-28s ", (int)name_width,
                  ct__printable(t->name, strlen(t->name), name, sizeof name),
                  ct__shape_text(type, sizeof type, t->dtype ? ct_dtype_name(t->dtype) : t->kind,
                                 t->rank, dims, 0));
        ct__add_bytes(out, t->bytes);
        ct__text_add(out, "\n");
    }
}

// -------------------------------------------------------------------------------------- architecture

static const struct {
    const char *hub, *gpt2, *gguf; // keys of config.json, of GPT-2's config.json, and of GGUF
    const char *before, *after, *plural;
} model_sizes[] = {
    {"num_hidden_layers", "n_layer", "block_count", "", " layer", "s"},
    {"num_attention_heads", "n_head", "attention.head_count", "", " head", "s"},
    {"num_key_value_heads", "", "attention.head_count_kv", "", " of keys and values", ""},
    {"num_local_experts", "num_experts", "expert_count", "", " expert", "s"},
    {"hidden_size", "n_embd", "embedding_length", "width ", "", ""},
    {"max_position_embeddings", "n_positions", "context_length", "context ", "", ""},
    {"vocab_size", "", "vocab_size", "vocabulary ", "", ""},
};
enum { N_MODEL_SIZES = sizeof model_sizes / sizeof *model_sizes };

static void model_add_architecture(ct_text *out, const char *name, size_t n,
                                   const int64_t values[N_MODEL_SIZES]) {
    char shown[CT_PRINTABLE];
    ct__textf(out, "model: %s", n ? ct__printable(name, n, shown, sizeof shown) : "unknown");
    for (size_t i = 0; i < N_MODEL_SIZES; i++)
        if (values[i])
            ct__textf(out, ", %s%" PRId64 "%s%s", model_sizes[i].before, values[i],
                      model_sizes[i].after, values[i] == 1 ? "" : model_sizes[i].plural);
    ct__text_add(out, "\n");
}

static ct_gguf_text model_gguf_string(const ct_gguf *g, const char *key) {
    ct_gguf_text text = {0};
    ct_err ignored = {0};
    if (ct__gguf_find(g, key) && !ct__gguf_text(g, key, &text, &ignored)) text.n = 0;
    return text;
}

static void model_add_gguf(ct_text *out, const ct_gguf *g) {
    char key[CT_PRINTABLE + 64], shown[CT_PRINTABLE];
    int64_t values[N_MODEL_SIZES] = {0};
    ct_err ignored = {0};
    ct_gguf_list tokens = {0};
    ct_gguf_text name = model_gguf_string(g, "general.architecture"),
                 title = model_gguf_string(g, "general.name");
    ct_gguf_text tokenizer = model_gguf_string(g, "tokenizer.ggml.model"),
                 pretokenizer = model_gguf_string(g, "tokenizer.ggml.pre");
    for (size_t i = 0; i < N_MODEL_SIZES && name.n < CT_PRINTABLE; i++) {
        snprintf(key, sizeof key, "%.*s.%s", (int)name.n, name.s, model_sizes[i].gguf);
        if (ct__gguf_find(g, key)) (void)ct__gguf_int(g, key, 0, INT64_MAX, &values[i], &ignored);
    }
    model_add_architecture(out, name.s, name.n, values);
    if (title.n) ct__textf(out, "name: %s\n", ct__printable(title.s, title.n, shown, sizeof shown));
    if (!tokenizer.n) {
        ct__text_add(out, "tokenizer: none");
    } else {
        ct__textf(out, "tokenizer: %s",
                  ct__printable(tokenizer.s, tokenizer.n, shown, sizeof shown));
        if (pretokenizer.n)
            ct__textf(out, " (%s)",
                      ct__printable(pretokenizer.s, pretokenizer.n, shown, sizeof shown));
        if (ct__gguf_list(g, "tokenizer.ggml.tokens", CT_GGUF_STRING, &tokens, &ignored))
            ct__textf(out, ", %" PRIu64 " tokens", tokens.n);
    }
    ct__textf(out, ", %s chat template\n",
              model_gguf_string(g, "tokenizer.chat_template").n ? "with a" : "no");
}

static bool model_has_file(const char *folder, const char *name) {
    struct stat st;
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0;
}

static bool model_has_template(const char *folder) {
    ct_config config;
    ct_err ignored = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    if (model_has_file(folder, "chat_template.jinja") ||
        model_has_file(folder, "chat_template.json"))
        return true;
    if (!model_has_file(folder, "tokenizer_config.json") ||
        !ct__config_read(path, &config, &ignored))
        return false;
    bool has = ct__config_has(&config, "chat_template");
    ct__config_close(&config);
    return has;
}

static void model_add_quantisation(ct_text *out, const ct_config *config, int64_t *group) {
    ct_config q = {0};
    ct_err ignored = {0};
    const char *method;
    char shown[CT_PRINTABLE];
    size_t n;
    int64_t bits;
    if (ct__config_child(config, "quantization_config", &q, &ignored) &&
        ct__config_string(&q, "quant_method", &method, &n, &ignored)) {
        ct__textf(out, "quantised: %s\n", ct__printable(method, n, shown, sizeof shown));
    } else {
        ct__config_close(&q);
        ignored = (ct_err){0};
        if (ct__config_child(config, "quantization", &q, &ignored) &&
            ct__config_int(&q, "bits", 1, 16, &bits, &ignored) &&
            ct__config_int(&q, "group_size", 1, 1 << 16, group, &ignored))
            ct__textf(out, "quantised: %" PRId64 " bits in groups of %" PRId64 " (MLX)\n", bits,
                      *group);
    }
    ct__config_close(&q);
}

// Describes config.json: its own values or, for a multimodal model, those of text_config.
static bool model_add_config(ct_text *out, const char *folder, int64_t *group, ct_err *err) {
    static const char *const tokenizers[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                             "vocab.txt"};
    ct_config config, inner = {0};
    char path[4096];
    const char *type = "", *tokenizer = "none";
    size_t n = 0;
    int64_t values[N_MODEL_SIZES] = {0};
    ct_err ignored = {0};
    int length = snprintf(path, sizeof path, "%s/config.json", folder);
    if (length < 0 || (size_t)length >= sizeof path || !model_has_file(folder, "config.json"))
        return true;
    if (!ct__config_read(path, &config, err)) return false;
    if (ct__config_has(&config, "text_config"))
        (void)ct__config_child(&config, "text_config", &inner, &ignored);
    if (ct__config_has(&config, "model_type"))
        (void)ct__config_string(&config, "model_type", &type, &n, &ignored);
    for (size_t i = 0; i < N_MODEL_SIZES; i++) {
        const ct_config *const configs[] = {&config, &inner};
        for (int k = 0; k < 4 && !values[i]; k++) {
            const char *key = k % 2 ? model_sizes[i].gpt2 : model_sizes[i].hub;
            ignored = (ct_err){0};
            if (configs[k / 2]->root && ct__config_has(configs[k / 2], key))
                (void)ct__config_int(configs[k / 2], key, 0, INT64_MAX, &values[i], &ignored);
        }
    }
    model_add_architecture(out, type, n, values);
    model_add_quantisation(out, &config, group);
    ct__config_close(&inner);
    ct__config_close(&config);
    for (size_t i = sizeof tokenizers / sizeof *tokenizers; i-- > 0;)
        if (model_has_file(folder, tokenizers[i])) tokenizer = tokenizers[i];
    ct__textf(out, "tokenizer: %s, %s chat template\n", tokenizer,
              model_has_template(folder) ? "with a" : "no");
    return true;
}

bool ct__describe_model(const char *path, ct_text *out, ct_err *err) {
    ct_weights w;
    struct stat st;
    model_type_row types[MAX_TYPES], total = {0};
    int64_t group = 64;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!ct__weights_open(path, &w, err)) return false;
    bool ok = !folder || model_add_config(out, path, &group, err);
    if (ok) {
        size_t n = model_count_types(&w, group, types, &total);
        if (w.gguf.version) model_add_gguf(out, &w.gguf);
        ct__textf(out, "weights: %s, %" PRIu64 " tensor%s, %" PRIu64 " parameter%s, ", w.format,
                  total.tensors, model_plural(total.tensors), total.parameters,
                  model_plural(total.parameters));
        ct__add_bytes(out, total.bytes);
        if (w.n_files > 1) ct__textf(out, " in %zu files", w.n_files);
        ct__text_add(out, "\n");
        if (w.n_files > 1) model_add_files(out, &w);
        if (folder || w.gguf.version)
            model_add_types(out, types, n);
        else
            model_add_tensors(out, &w);
    }
    ct__weights_close(&w);
    return ok;
}
