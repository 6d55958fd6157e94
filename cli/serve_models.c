// Served models: a thread per model loads it and then runs the engine's steps.
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve.h"
#include "sha256.h"

// Errors that are sent to clients have no location in this program's sources.
static const ct_loc nowhere;

// ------------------------------------------------------------------------------------------- names

void model_set_name(model *m, const char *name, size_t name_n) {
    struct stat st;
    size_t n = strlen(m->path);
    const char *at = m->path;
    if (!name && stat(m->path, &st) == 0) { // the last component of its path
        while (n > 1 && at[n - 1] == '/') n--;
        for (size_t i = n; i-- > 0;)
            if (at[i] == '/' && i + 1 < n) {
                at += i + 1, n -= i + 1;
                break;
            }
        if (n > 5 && strncmp(at + n - 5, ".gguf", 5) == 0) n -= 5;
    }
    if (name) at = name, n = name_n;
    snprintf(m->name, sizeof m->name, "%.*s", (int)n, at);
}

const char *strip_latest_tag(const char *name, size_t *n) {
    *n = strlen(name);
    if (*n > 7 && strcmp(name + *n - 7, ":latest") == 0) *n -= 7;
    return name;
}

model *model_find(server *s, const char *name) {
    size_t n, m;
    strip_latest_tag(name, &n);
    for (size_t i = 0; i < s->n_models; i++) {
        const char *own = strip_latest_tag(s->models[i].name, &m);
        if (n == m && memcmp(own, name, n) == 0) return &s->models[i];
    }
    return NULL;
}

model *find_requested_model(exchange *x, bool writes) {
    const char *name = NULL;
    server *s = x->server;
    const field fields[] = {{"model", FIELD_STRING, .out = &name}};
    if (!parse_fields(x, x->request, "", fields, 1)) return NULL;
    model *m = name && *name ? model_find(s, name) : &s->models[0];
    if (!m) {
        buffer list = {0};
        for (size_t i = 0; i < s->n_models; i++)
            buffer_putf(&list, "%s%s", i ? ", " : "", s->models[i].name);
        fail_request(x, 404, "model", "there is no model \"%s\" here, but %s", printable(name),
                     list.v ? list.v : "none");
        free(list.v);
        return NULL;
    }
    if (model_is_truncated(m)) {
        fail_request(x, 500, NULL, "%s", truncated_message);
        return NULL;
    }
    if (writes && !m->engine) {
        fail_request(x, 400, "model", "%s does not write: it is an encoder (%s)", m->name,
                     m->is->type);
        return NULL;
    }
    return m;
}

static void model_hash_file(model *m, const char *path, sha256 *sum) {
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return;
    m->size += (uint64_t)st.st_size;
    if (st.st_mtime > m->modified) m->modified = st.st_mtime;
    char line[64];
    const int n =
        snprintf(line, sizeof line, "%lld %lld\n", (long long)st.st_size, (long long)st.st_mtime);
    sha256_update(sum, path, strlen(path));
    sha256_update(sum, line, (size_t)n);
}

// Computes size, modification time, and a digest by which clients distinguish models: of the names,
// sizes and times of its files.
static void model_hash_files(model *m) {
    sha256 sum;
    char path[4096 + 256];
    struct dirent **entries;
    sha256_init(&sum);
    const int n = scandir(m->is->path, &entries, NULL, alphasort);
    if (n < 0) model_hash_file(m, m->is->path, &sum);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", m->is->path, entries[i]->d_name);
        model_hash_file(m, path, &sum);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    sha256_finish_hex(&sum, m->digest);
}

// ----------------------------------------------------------------------------------------- loading

// True if tools change the rendered conversation.
static bool model_template_has_tools(ct_chat_template *chat) {
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"a\"}]",
                      tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"a\", "
                                "\"description\": \"a\", \"parameters\": {\"type\": \"object\", "
                                "\"properties\": {}, \"required\": []}}}]";
    const char *without = chat ? ct_chat_render_with(chat, messages, (ct_chat_options){0}) : NULL;
    char *first = without ? strdup(without) : NULL;
    const char *with =
        first ? ct_chat_render_with(chat, messages, (ct_chat_options){.tools = tools}) : NULL;
    const bool takes = with && strcmp(first, with) != 0;
    ct_error_clear(); // a template may reject such a conversation
    free(first);
    return takes;
}

// Runs embeddings and log-probabilities once, so that requests compile nothing.
static bool model_warm_up_reader(model *m) {
    enum { T = 4 };
    char why[512];
    int32_t ids[T] = {0};
    double own[T];
    int64_t rank[T];
    ct_engine_logprob best[T];
    float *vectors = malloc(2 * (size_t)m->is->width * sizeof *vectors); // (2, width)
    bool ok = vectors != NULL;
    for (size_t n = T - 1; ok && n <= T; n++) { // after a second size the plan has a dynamic size
        const ct_lm_text texts[2] = {{.ids = ids, .n_ids = n}, {.ids = ids, .n_ids = n - 1}};
        for (size_t k = 1; ok && k <= 2; k++)
            ok = model_embed_texts(m, texts, k, vectors,
                                   (ct_embed_options){.pooling = m->embedding}, why);
        if (ok && m->engine) ok = model_prompt_logprobs(m, ids, n, own, rank, best, 1, why);
    }
    free(vectors);
    if (!ok) snprintf(m->error, sizeof m->error, "%s", why);
    return ok;
}

bool model_files_changed(const model *m) {
    model now = {.is = m->is};
    model_hash_files(&now);
    return strcmp(now.digest, m->digest) != 0; // of sizes and times, too
}

static bool model_load(model *m) {
    static const ct_dtype types[] = {CT_F32, CT_F16, CT_BF16, CT_I8};
    const serve_settings *is = &m->server->is;
    int status;
    if (!machine_apply(&is->machine, "serve", &status)) return false;
    m->is = ct_pretrained_load_with(
        m->path, (ct_pretrained_options){.activations = activations_dtype(is->activations)});
    if (!m->is) return false;
    model_hash_files(m);
    id_list e = {0};
    if (!model_encode(m, "a", 1, false, &e)) return false;
    m->anchor_token = e.n ? e.ids[e.n - 1] : 0;
    id_list_free(&e);
    m->supports_tools = model_template_has_tools(m->is->chat);
    m->context = m->is->context;
    m->reader_ctx = ct_ctx_new();
    if (!m->reader_ctx) return false;
    ct_ctx *own = ct_ctx_use(m->reader_ctx);
    const bool ok = machine_apply(&is->machine, "serve", &status);
    ct_set_synchronous_compilation();
    ct_ctx_use(own);
    if (!ct_pooling_config_read_at(m->is->path, m->is->lm, &m->embedding, nowhere)) return false;
    if (!ok || !m->is->is_generative) return ok && model_warm_up_reader(m);
    warn_unsupported_generation(m->name, m->is->unsupported_generation_keys);
    m->context = is->context ? is->context : ct_lm_info(m->is->lm).default_context;
    m->engine =
        ct_engine_new_with(m->is->lm, (ct_engine_options){.tokenizer = m->is->tokenizer,
                                                          .max_sequences = is->max_sequences,
                                                          .max_queued = is->max_queued,
                                                          .context = m->context,
                                                          .prefill_chunk = is->prefill_chunk,
                                                          .cache_memory = is->cache_bytes,
                                                          .cache_dtype = types[is->cache_type],
                                                          .max_draft_tokens = is->speculate});
    return m->engine && ct_engine_warm_up_at(m->engine, nowhere) && model_warm_up_reader(m);
}

static bool model_wait_for_work(model *m) {
    pthread_mutex_lock(&m->lock);
    while (!m->has_work && !m->is_stopping) pthread_cond_wait(&m->wake, &m->lock);
    m->has_work = false;
    const bool more = !m->is_stopping;
    pthread_mutex_unlock(&m->lock);
    return more;
}

static void *model_thread(void *user) {
    model *m = user;
    atomic_store(&m->loader_ctx, ct_ctx_current());
    if (model_load(m)) {
        atomic_store(&m->state, MODEL_READY);
    } else {
        if (!*m->error)
            snprintf(m->error, sizeof m->error, "%s",
                     ct_failed() ? ct_error_text() : "out of memory");
        ct_error_clear();
        atomic_store(&m->state, MODEL_FAILED);
    }
    while (model_wait_for_work(m)) {
        while (m->engine && ct_engine_step_at(m->engine, nowhere)) continue;
        if (!ct_failed()) continue;
        fprintf(stderr, "cotan: serve: %s\n", ct_error_text());
        ct_error_clear();
    }
    ct_engine_free(m->engine);
    ct_ctx_free(m->reader_ctx);
    ct_pretrained_free(m->is);
    return NULL;
}

bool model_start(model *m) {
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->template_lock, NULL);
    pthread_mutex_init(&m->reader_lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    return pthread_create(&m->thread, NULL, model_thread, m) == 0;
}

void model_wake(model *m) {
    pthread_mutex_lock(&m->lock);
    m->has_work = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

bool model_stop(model *m) {
    struct timespec until;
    pthread_mutex_lock(&m->lock);
    m->is_stopping = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    ct_ctx *loader = atomic_load(&m->loader_ctx);
    if (loader && atomic_load(&m->state) == MODEL_LOADING) ct_cancel(loader);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (pthread_timedjoin_np(m->thread, NULL, &until)) return false;
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->reader_lock);
    pthread_mutex_destroy(&m->template_lock);
    pthread_mutex_destroy(&m->lock);
    return true;
}

// ----------------------------------------------------------------------------------------- reading

bool model_encode(model *m, const char *text, size_t n, bool add_special, id_list *to) {
    ct_encoding e = {0};
    const bool ok = ct_tokenizer_encode_with(m->is->tokenizer, text, n, &e,
                                             (ct_encode_options){.add_special = add_special});
    id_list_free(to);
    to->ids = ok ? malloc((e.n + 1) * sizeof *to->ids) : NULL;
    if (to->ids) {
        memcpy(to->ids, e.ids ? (const void *)e.ids : "", e.n * sizeof *to->ids);
        to->n = e.n;
    }
    ct_encoding_free(&e);
    return to->ids != NULL;
}

void id_list_free(id_list *list) {
    free(list->ids);
    *list = (id_list){0};
}

// One thread at a time uses the reader context, whose errors are reported by model_unlock_reader.
static ct_ctx *model_lock_reader(model *m) {
    pthread_mutex_lock(&m->reader_lock);
    return ct_ctx_use(m->reader_ctx);
}

static bool model_unlock_reader(model *m, ct_ctx *own, bool ok, char why[512]) {
    const bool cut = model_is_truncated(m);
    ok = ok && !ct_failed() && !cut;
    if (!ok) {
        snprintf(why, 512, "%s",
                 cut           ? truncated_message
                 : ct_failed() ? ct_error_text()
                               : "there is no memory");
        ct_error_clear();
    }
    ct_ctx_use(own);
    pthread_mutex_unlock(&m->reader_lock);
    return ok;
}

bool model_embed_texts(model *m, const ct_lm_text *texts, size_t n, float *vectors,
                       ct_embed_options o, char why[512]) {
    ct_ctx *own = model_lock_reader(m);
    const bool ok = ct_lm_embed_with(m->is->lm, m->is->tokenizer, texts, n, vectors, o);
    return model_unlock_reader(m, own, ok, why);
}

bool model_classify_texts(model *m, const ct_lm_text *texts, size_t n, float *scores,
                          ct_embed_options o, char why[512]) {
    ct_ctx *own = model_lock_reader(m);
    const bool ok = ct_lm_classify_with(m->is->lm, m->is->tokenizer, texts, n, scores, o);
    return model_unlock_reader(m, own, ok, why);
}

// Finds the most likely tokens of a row of logits, most likely first, and among equal ones the first.
static void model_top_logprobs(const float *row, int64_t vocab, double less,
                               ct_engine_logprob *best, size_t n) {
    size_t have = 0;
    for (int64_t v = 0; v < vocab; v++) {
        const double p = row[v] - less;
        size_t at = have < n ? have++ : n;
        if (at == n && (!n || !(p > best[n - 1].logprob))) continue;
        if (at == n) at--;
        for (; at && p > best[at - 1].logprob; at--) best[at] = best[at - 1];
        best[at] = (ct_engine_logprob){(int32_t)v, p};
    }
}

static bool model_compute_logprobs(const model *m, const int32_t *ids, size_t n, double *own,
                                   int64_t *rank, ct_engine_logprob *best, size_t n_best) {
    CT_SCOPE;
    const int64_t vocab = m->is->vocab;
    // (1, T), with a dynamic length, so that the plan of the warm-up is used for all.
    ct_tensor tokens = ct_from_at(ids, CT_I32, CT_DIMS(1, CT_DYN((int64_t)n)), nowhere);
    const float *row =
        ct_data_at(ct_lm_logits_at(m->is->lm, tokens, NULL, nowhere), nowhere); // (1, T, vocab)
    for (size_t t = 1; row && t < n; t++, row += vocab) {
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < vocab; v++) most = row[v] > most ? row[v] : most;
        for (int64_t v = 0; v < vocab; v++) sum += exp(row[v] - most);
        own[t] = row[ids[t]] - most - log(sum);
        rank[t] = 1;
        for (int64_t v = 0; v < vocab; v++) rank[t] += row[v] > row[ids[t]];
        model_top_logprobs(row, vocab, most + log(sum), best + t * n_best, n_best);
    }
    return row != NULL;
}

bool model_prompt_logprobs(model *m, const int32_t *ids, size_t n, double *own, int64_t *rank,
                           ct_engine_logprob *best, size_t n_best, char why[512]) {
    if ((double)n * (double)m->is->vocab * sizeof(float) > MAX_LOGITS_BYTES) {
        snprintf(why, 512,
                 "log-probabilities of the prompt: the scores of %zu tokens take more than %d MB",
                 n, MAX_LOGITS_BYTES >> 20);
        return false;
    }
    ct_ctx *ctx = model_lock_reader(m);
    return model_unlock_reader(m, ctx, model_compute_logprobs(m, ids, n, own, rank, best, n_best),
                               why);
}
