// A published model whole: weights, tokenizer, template, and what its files say of generation.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/os.h"
#include "cotan/engine.h"
#include "cotan/hub.h"
#include "io/weights.h"
#include "models/generation.h"

typedef struct loaded {
    ct_pretrained is; // first: what the user has
    char *path;
    int32_t *ends;
    ct_arena arena; // what its sampling names
} loaded;

// A file that no model can be alone, such as its config.json: only a GGUF file has all that one needs.
static bool is_a_part(const char *path) {
    char head[4] = "";
    struct stat st;
    const char *end = strrchr(path, '.');
    if (stat(path, &st) || !S_ISREG(st.st_mode) || (end && !strcmp(end, ".gguf"))) return false;
    FILE *file = fopen(path, "re");
    const bool gguf = !file || (fread(head, 1, 4, file) == 4 && !memcmp(head, "GGUF", 4));
    if (file) fclose(file);
    return !gguf;
}

static bool refuse_part(const char *path, ct_loc here) {
    char config[4096 + 16];
    struct stat st;
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + (slash == path) : 1;
    ct_err *err = &ct__ctx()->err;
    ct__fail(ct__ctx(), CT_E_FILE, here, "pretrained_load", "%s: this file alone is no model",
             path);
    snprintf(config, sizeof config, "%.*s/config.json", n, slash ? path : ".");
    if (stat(config, &st))
        ct__err_hint(err, "a model is a folder, a GGUF file, or ORG/NAME that cotan pull brought");
    else
        ct__err_hint(err, "its folder is what to name: %.*s", n, slash ? path : ".");
    return false;
}

// A folder or file that is there, or ORG/NAME in the Hub's cache.
static bool find(loaded *m, const char *name, ct_loc here) {
    char found[4096];
    struct stat st;
    if (ct__is_absent(name)) {
        const char *slash = strchr(name, '/'), *end = strrchr(name, '.');
        const bool file = end && (!strcmp(end, ".gguf") || !strcmp(end, ".safetensors"));
        if (!slash || slash == name || *name == '.' || (file && !strchr(slash + 1, '/'))) {
            ct__fail(ct__ctx(), CT_E_FILE, here, "pretrained_load",
                     "%s: there is no such file or folder", name);
            ct__err_hint(&ct__ctx()->err, "a model is a folder, a GGUF file, or ORG/NAME that "
                                          "cotan pull brought");
            return false;
        }
        if (!ct_hub_find_at(name, NULL, found, sizeof found, here)) return false;
        name = found;
    }
    if (stat(name, &st)) {
        ct__err_system(&ct__ctx()->err, name, "open");
        return ct__err_place(&ct__ctx()->err, here, "pretrained_load");
    }
    if (is_a_part(name)) return refuse_part(name, here);
    if (ct__weights_are_foreign(name, &ct__ctx()->err))
        return ct__err_place(&ct__ctx()->err, here, "pretrained_load");
    m->path = ct__strdup(name);
    m->is.path = m->path;
    return m->path || ct__err_memory(&ct__ctx()->err, here, "pretrained_load", strlen(name));
}

static bool find_ends(loaded *m, ct_loc here) {
    const size_t n = ct_tokenizer_ends(m->is.tokenizer, NULL, 0);
    int64_t *ids = ct__malloc((n + 1) * sizeof *ids);
    m->ends = ct__malloc((n + 1) * sizeof *m->ends);
    if (!ids || !m->ends) {
        ct__free(ids);
        return ct__err_memory(&ct__ctx()->err, here, "pretrained_load", n * sizeof *ids);
    }
    ct_tokenizer_ends(m->is.tokenizer, ids, n);
    for (size_t i = 0; i < n; i++) m->ends[i] = (int32_t)ids[i];
    ct__free(ids);
    m->is.ends = m->ends;
    m->is.n_ends = n;
    return true;
}

// Special tokens may stand behind those that the weights know, such as one for images (Gemma 3): a text that has one is
// refused when it comes.
static bool vocabulary_fits(const loaded *m, ct_loc here) {
    const int64_t n = ct_tokenizer_size(m->is.tokenizer);
    int64_t id = m->is.vocab;
    while (id < n && (!ct_tokenizer_piece(m->is.tokenizer, id, NULL) ||
                      ct_tokenizer_is_special(m->is.tokenizer, id)))
        id++;
    if (id >= n) return true;
    ct__fail(ct__ctx(), CT_E_DATA, here, "pretrained_load",
             "the tokenizer of %s has %lld tokens, its weights know %lld", m->path, (long long)n,
             (long long)m->is.vocab);
    return false;
}

static bool load(loaded *m, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!find(m, path, here)) return false;
    m->is.tokenizer = ct_tokenizer_load_at(m->path, here);
    m->is.lm =
        m->is.tokenizer ? ct_lm_load_with(m->path, (ct_lm_load_options){.here = here}) : NULL;
    if (!m->is.lm || !find_ends(m, here)) return false;
    const ct_lm_tokens ends = {m->ends, m->is.n_ends};
    if (!ct__generation_read(m->path, m->is.lm, &ends, &m->arena, &m->is.sampling,
                             &m->is.unfollowed, &ctx->err))
        return false;
    m->is.chat = ct_chat_template_load_at(m->path, here);
    if (!m->is.chat && ct_error_code() != CT_E_FILE) return false;
    if (!m->is.chat) ct_error_clear(); // there is no template: it was not made for conversations
    const ct_spec *s = &m->is.lm->spec;
    m->is.type = s->type;
    m->is.context = s->context;
    m->is.vocab = s->vocab;
    m->is.width = s->width;
    m->is.writes = ct_lm_look(m->is.lm).writes;
    return vocabulary_fits(m, here);
}

ct_pretrained *ct_pretrained_load_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "pretrained_load", "the path") || ctx->err.code)
        return NULL;
    loaded *m = ct__calloc(1, sizeof *m);
    if (!m) {
        ct__err_memory(&ctx->err, here, "pretrained_load", sizeof *m);
    } else if (load(m, path, here)) {
        return &m->is;
    }
    ct_pretrained_free(m ? &m->is : NULL);
    return NULL;
}

void ct_pretrained_free(ct_pretrained *model) {
    loaded *m = (loaded *)model;
    if (!m) return;
    ct_chat_template_free(m->is.chat);
    ct_lm_free(m->is.lm);
    ct_tokenizer_free(m->is.tokenizer);
    ct__free(m->path);
    ct__free(m->ends);
    ct__arena_free(&m->arena);
    ct__free(m);
}
