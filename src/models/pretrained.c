// Loads a published model: weights, tokenizer, chat template, and the sampling options of its files.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/os.h"
#include "cotan/engine.h"
#include "cotan/hub.h"
#include "io/weights.h"
#include "models/generation.h"

typedef struct pretrained_model {
    ct_pretrained is; // the public part; must be the first field
    char *path;
    int32_t *ends;
    ct_arena arena; // owns what its sampling options point to
} pretrained_model;

// True for a file that cannot be a model by itself, such as config.json: only a GGUF file is complete.
static bool pretrained_is_incomplete(const char *path) {
    char head[4] = "";
    struct stat st;
    const char *end = strrchr(path, '.');
    if (stat(path, &st) || !S_ISREG(st.st_mode) || (end && !strcmp(end, ".gguf"))) return false;
    FILE *file = fopen(path, "re");
    const bool gguf = !file || (fread(head, 1, 4, file) == 4 && !memcmp(head, "GGUF", 4));
    if (file) fclose(file);
    return !gguf;
}

static bool pretrained_refuse_file(const char *path, ct_loc here) {
    char config[4096 + 16];
    struct stat st;
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + (slash == path) : 1;
    ct_err *err = &ct__ctx()->err;
    ct__fail(ct__ctx(), CT_E_FILE, here, "pretrained_load", "%s: this file alone is no model",
             path);
    snprintf(config, sizeof config, "%.*s/config.json", n, slash ? path : ".");
    if (stat(config, &st))
        ct__err_hint(err,
                     "a model is a folder, a GGUF file, or ORG/NAME that cotan pull downloaded");
    else
        ct__err_hint(err, "its folder is what to name: %.*s", n, slash ? path : ".");
    return false;
}

// Finds a folder or file, or ORG/NAME in the Hub's cache.
static bool pretrained_find(pretrained_model *m, const char *name, ct_loc here) {
    char found[4096];
    struct stat st;
    if (ct__is_absent(name)) {
        const char *slash = strchr(name, '/'), *end = strrchr(name, '.');
        const bool file = end && (!strcmp(end, ".gguf") || !strcmp(end, ".safetensors"));
        if (!slash || slash == name || *name == '.' || (file && !strchr(slash + 1, '/'))) {
            ct__fail(ct__ctx(), CT_E_FILE, here, "pretrained_load",
                     "%s: there is no such file or folder", name);
            return ct__err_hint(&ct__ctx()->err,
                                "a model is a folder, a GGUF file, or ORG/NAME that "
                                "cotan pull downloaded");
        }
        if (!ct_hub_find_at(name, NULL, found, sizeof found, here)) return false;
        name = found;
    }
    if (stat(name, &st)) {
        ct__err_system(&ct__ctx()->err, name, "open");
        return ct__err_locate(&ct__ctx()->err, here, "pretrained_load");
    }
    if (pretrained_is_incomplete(name)) return pretrained_refuse_file(name, here);
    if (ct__weights_are_foreign(name, &ct__ctx()->err))
        return ct__err_locate(&ct__ctx()->err, here, "pretrained_load");
    m->path = ct__strdup(name);
    m->is.path = m->path;
    return m->path || ct__err_memory(&ct__ctx()->err, here, "pretrained_load", strlen(name));
}

static bool pretrained_find_eos(pretrained_model *m, ct_loc here) {
    const size_t n = ct_tokenizer_eos_ids(m->is.tokenizer, NULL, 0);
    int64_t *ids = ct__malloc((n + 1) * sizeof *ids);
    m->ends = ct__malloc((n + 1) * sizeof *m->ends);
    if (!ids || !m->ends) {
        ct__free(ids);
        return ct__err_memory(&ct__ctx()->err, here, "pretrained_load", n * sizeof *ids);
    }
    ct_tokenizer_eos_ids(m->is.tokenizer, ids, n);
    for (size_t i = 0; i < n; i++) m->ends[i] = (int32_t)ids[i];
    ct__free(ids);
    m->is.eos_ids = m->ends;
    m->is.n_eos_ids = n;
    return true;
}

// Checks the vocabulary size. Special tokens may have ids beyond those of the weights, such as one for
// images (Gemma 3): a text that has one is refused when it is used.
static bool pretrained_check_vocab(const pretrained_model *m, ct_loc here) {
    const int64_t n = ct_tokenizer_size(m->is.tokenizer);
    int64_t id = m->is.vocab;
    while (id < n && (!ct_tokenizer_piece(m->is.tokenizer, id, NULL) ||
                      ct_tokenizer_is_special(m->is.tokenizer, id)))
        id++;
    if (id >= n) return true;
    return ct__refuse(ct__ctx(), CT_E_DATA, here, "pretrained_load",
                      "the tokenizer of %s has %lld tokens, its weights know %lld", m->path,
                      (long long)n, (long long)m->is.vocab);
}

static bool pretrained_load(pretrained_model *m, const char *path, ct_pretrained_options options) {
    ct_ctx *ctx = ct__ctx();
    const ct_loc here = options.here;
    const ct_lm_load_options lm_options = {.activations = options.activations, .here = here};
    if (!pretrained_find(m, path, here)) return false;
    m->is.tokenizer = ct_tokenizer_load_at(m->path, here);
    m->is.lm = m->is.tokenizer ? ct_lm_load_with(m->path, lm_options) : NULL;
    if (!m->is.lm || !pretrained_find_eos(m, here)) return false;
    const ct_lm_tokens ends = {m->ends, m->is.n_eos_ids};
    if (!ct__generation_read(m->path, m->is.lm, &ends, &m->arena, &m->is.sampling,
                             &m->is.unsupported_generation_keys, &ctx->err))
        return false;
    m->is.chat = ct_chat_template_load_at(m->path, here);
    if (!m->is.chat && ct_error_code() != CT_E_FILE) return false;
    // there is no template: the model was not made for conversations
    if (!m->is.chat) ct_error_clear();
    const ct_spec *s = &m->is.lm->spec;
    m->is.type = s->type;
    m->is.context = s->context;
    m->is.vocab = s->vocab;
    m->is.width = s->width;
    m->is.is_generative = ct_lm_info(m->is.lm).is_generative;
    return pretrained_check_vocab(m, here);
}

ct_pretrained *ct_pretrained_load_with(const char *path, ct_pretrained_options options) {
    ct_ctx *ctx = ct__ctx();
    const ct_loc here = options.here;
    if (!ctx || !ct__given(ctx, path, here, "pretrained_load", "the path") || ctx->err.code)
        return NULL;
    pretrained_model *m = ct__calloc(1, sizeof *m);
    if (!m) {
        ct__err_memory(&ctx->err, here, "pretrained_load", sizeof *m);
    } else if (pretrained_load(m, path, options)) {
        return &m->is;
    }
    ct_pretrained_free(m ? &m->is : NULL);
    return NULL;
}

void ct_pretrained_free(ct_pretrained *model) {
    pretrained_model *m = (pretrained_model *)model;
    if (!m) return;
    ct_chat_template_free(m->is.chat);
    ct_lm_free(m->is.lm);
    ct_tokenizer_free(m->is.tokenizer);
    ct__free(m->path);
    ct__free(m->ends);
    ct__arena_free(&m->arena);
    ct__free(m);
}
