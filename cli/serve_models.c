// What is served: a thread a model loads it and then makes the engine's steps.
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve.h"
#include "sha256.h"

// Errors that a client is shown have no line of this program's in front.
static const ct_loc nowhere;

// ------------------------------------------------------------------------------------------- names

void name_model(model *m, const char *name, size_t name_n) {
    struct stat st;
    size_t n = strlen(m->path);
    const char *at = m->path;
    if (!name && stat(m->path, &st) == 0) { // the last part of its path
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

const char *short_name(const char *name, size_t *n) {
    *n = strlen(name);
    if (*n > 7 && strcmp(name + *n - 7, ":latest") == 0) *n -= 7;
    return name;
}

model *find_model(server *s, const char *name) {
    size_t n, m;
    short_name(name, &n);
    for (size_t i = 0; i < s->n_models; i++) {
        const char *own = short_name(s->models[i].name, &m);
        if (n == m && memcmp(own, name, n) == 0) return &s->models[i];
    }
    return NULL;
}

model *named_model(exchange *x, bool writes) {
    const char *name = NULL;
    server *s = x->server;
    const field fields[] = {{"model", FIELD_TEXT, .out = &name}};
    if (!read_fields(x, x->asked, "", fields, 1)) return NULL;
    model *m = name && *name ? find_model(s, name) : &s->models[0];
    if (!m) {
        buffer list = {0};
        for (size_t i = 0; i < s->n_models; i++)
            putf(&list, "%s%s", i ? ", " : "", s->models[i].name);
        refuse_request(x, 404, "model", "there is no model \"%s\" here, but %s", plain(name),
                       list.v ? list.v : "none");
        free(list.v);
        return NULL;
    }
    if (is_cut_short(m)) {
        refuse_request(x, 500, NULL, "%s", cut_short);
        return NULL;
    }
    if (writes && !m->engine) {
        refuse_request(x, 400, "model", "%s does not write: it is an encoder (%s)", m->name,
                       m->is->type);
        return NULL;
    }
    return m;
}

static void add_file(model *m, const char *path, sha256 *sum) {
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return;
    m->size += (uint64_t)st.st_size;
    if (st.st_mtime > m->changed) m->changed = st.st_mtime;
    char line[64];
    const int n =
        snprintf(line, sizeof line, "%lld %lld\n", (long long)st.st_size, (long long)st.st_mtime);
    sha256_add(sum, path, strlen(path));
    sha256_add(sum, line, (size_t)n);
}

// Size, time, and a digest by which clients tell models apart: of the files' names, sizes and times.
static void measure(model *m) {
    sha256 sum;
    char path[4096 + 256];
    struct dirent **entries;
    sha256_begin(&sum);
    const int n = scandir(m->is->path, &entries, NULL, alphasort);
    if (n < 0) add_file(m, m->is->path, &sum);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", m->is->path, entries[i]->d_name);
        add_file(m, path, &sum);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    sha256_hex(&sum, m->digest);
}

// ----------------------------------------------------------------------------------------- loading

// Does a conversation read otherwise where there is a tool?
static bool takes_tools(ct_chat_template *chat) {
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"a\"}]",
                      tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"a\", "
                                "\"description\": \"a\", \"parameters\": {\"type\": \"object\", "
                                "\"properties\": {}, \"required\": []}}}]";
    const char *without = chat ? ct_chat_render_with(chat, messages, (ct_chat_options){0}) : NULL;
    char *first = without ? strdup(without) : NULL;
    const char *with =
        first ? ct_chat_render_with(chat, messages, (ct_chat_options){.tools = tools}) : NULL;
    const bool takes = with && strcmp(first, with) != 0;
    ct_error_clear(); // a template may refuse such a conversation
    free(first);
    return takes;
}

// What is read for log-probabilities and vectors compiles nothing later.
static bool warm_reading(model *m) {
    enum { T = 4 };
    char why[512];
    int32_t ids[T] = {0};
    double own[T];
    int64_t rank[T];
    ct_engine_choice best[T];
    float *vectors = malloc(2 * (size_t)m->is->width * sizeof *vectors); // (2, width)
    bool ok = vectors != NULL;
    for (size_t n = T - 1; ok && n <= T; n++) { // a second size is any size from then on
        const ct_lm_text texts[2] = {{.ids = ids, .n_ids = n}, {.ids = ids, .n_ids = n - 1}};
        for (size_t k = 1; ok && k <= 2; k++)
            ok = read_vectors(m, texts, k, vectors, (ct_embed_options){.how = m->embeds}, why);
        if (ok && m->engine) ok = read_likely(m, ids, n, own, rank, best, 1, why);
    }
    free(vectors);
    if (!ok) snprintf(m->why, sizeof m->why, "%s", why);
    return ok;
}

bool files_have_changed(const model *m) {
    model now = {.is = m->is};
    measure(&now);
    return strcmp(now.digest, m->digest) != 0; // of sizes and times, too
}

static bool load(model *m) {
    static const ct_dtype types[] = {CT_F32, CT_F16, CT_BF16, CT_I8};
    const serve_settings *is = &m->server->is;
    int status;
    if (!use_machine(&is->machine, "serve", &status)) return false;
    m->is = ct_pretrained_load_at(m->path, nowhere);
    if (!m->is) return false;
    measure(m);
    id_list e = {0};
    if (!encode(m, "a", 1, false, &e)) return false;
    m->anchor = e.n ? e.ids[e.n - 1] : 0;
    free_ids(&e);
    m->takes_tools = takes_tools(m->is->chat);
    m->context = m->is->context;
    m->reader = ct_ctx_new();
    if (!m->reader) return false;
    ct_ctx *own = ct_ctx_use(m->reader);
    const bool ok = use_machine(&is->machine, "serve", &status);
    ct_wait_for_kernels();
    ct_ctx_use(own);
    if (!ct_embedding_read_at(m->is->path, m->is->lm, &m->embeds, nowhere)) return false;
    if (!ok || !m->is->writes) return ok && warm_reading(m);
    tell_unfollowed(m->name, m->is->unfollowed);
    m->context = is->context ? is->context : ct_lm_look(m->is->lm).usual_context;
    m->engine = ct_engine_new_with(m->is->lm, (ct_engine_options){.tokenizer = m->is->tokenizer,
                                                                  .texts = is->parallel,
                                                                  .waiting = is->queue,
                                                                  .context = m->context,
                                                                  .memory = is->cache,
                                                                  .dtype = types[is->cache_type],
                                                                  .guesses = is->guesses});
    return m->engine && ct_engine_warm_at(m->engine, nowhere) && warm_reading(m);
}

static bool wait_for_work(model *m) {
    pthread_mutex_lock(&m->lock);
    while (!m->work && !m->over) pthread_cond_wait(&m->wake, &m->lock);
    m->work = false;
    const bool more = !m->over;
    pthread_mutex_unlock(&m->lock);
    return more;
}

static void *serve_model(void *user) {
    model *m = user;
    atomic_store(&m->loader, ct_ctx_current());
    if (load(m)) {
        atomic_store(&m->state, MODEL_READY);
    } else {
        if (!*m->why)
            snprintf(m->why, sizeof m->why, "%s", ct_failed() ? ct_error_text() : "out of memory");
        ct_error_clear();
        atomic_store(&m->state, MODEL_BROKEN);
    }
    while (wait_for_work(m)) {
        while (m->engine && ct_engine_step_at(m->engine, nowhere)) continue;
        if (!ct_failed()) continue;
        fprintf(stderr, "cotan: serve: %s\n", ct_error_text());
        ct_error_clear();
    }
    ct_engine_free(m->engine);
    ct_ctx_free(m->reader);
    ct_pretrained_free(m->is);
    return NULL;
}

bool start_model(model *m) {
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->template_lock, NULL);
    pthread_mutex_init(&m->read_lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    return pthread_create(&m->thread, NULL, serve_model, m) == 0;
}

void wake_model(model *m) {
    pthread_mutex_lock(&m->lock);
    m->work = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

bool stop_model(model *m) {
    struct timespec until;
    pthread_mutex_lock(&m->lock);
    m->over = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    ct_ctx *loader = atomic_load(&m->loader);
    if (loader && atomic_load(&m->state) == MODEL_LOADING) ct_cancel(loader);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (pthread_timedjoin_np(m->thread, NULL, &until)) return false;
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->read_lock);
    pthread_mutex_destroy(&m->template_lock);
    pthread_mutex_destroy(&m->lock);
    return true;
}

// ----------------------------------------------------------------------------------------- reading

bool encode(model *m, const char *text, size_t n, bool add_special, id_list *to) {
    ct_encoding e = {0};
    const bool ok = ct_tokenizer_encode_with(m->is->tokenizer, text, n, &e,
                                             (ct_encode_options){.add_special = add_special});
    free_ids(to);
    to->ids = ok ? malloc((e.n + 1) * sizeof *to->ids) : NULL;
    if (to->ids) {
        memcpy(to->ids, e.ids ? (const void *)e.ids : "", e.n * sizeof *to->ids);
        to->n = e.n;
    }
    ct_encoding_free(&e);
    return to->ids != NULL;
}

void free_ids(id_list *list) {
    free(list->ids);
    *list = (id_list){0};
}

// One thread at a time reads; its errors are the reader's, until they are told.
static ct_ctx *begin_reading(model *m) {
    pthread_mutex_lock(&m->read_lock);
    return ct_ctx_use(m->reader);
}

static bool end_reading(model *m, ct_ctx *own, bool ok, char why[512]) {
    const bool cut = is_cut_short(m);
    ok = ok && !ct_failed() && !cut;
    if (!ok) {
        snprintf(why, 512, "%s",
                 cut           ? cut_short
                 : ct_failed() ? ct_error_text()
                               : "there is no memory");
        ct_error_clear();
    }
    ct_ctx_use(own);
    pthread_mutex_unlock(&m->read_lock);
    return ok;
}

bool read_vectors(model *m, const ct_lm_text *texts, size_t n, float *vectors, ct_embed_options o,
                  char why[512]) {
    ct_ctx *own = begin_reading(m);
    const bool ok = ct_lm_embed_with(m->is->lm, m->is->tokenizer, texts, n, vectors, o);
    return end_reading(m, own, ok, why);
}

bool read_classes(model *m, const ct_lm_text *texts, size_t n, float *scores, ct_embed_options o,
                  char why[512]) {
    ct_ctx *own = begin_reading(m);
    const bool ok = ct_lm_classify_with(m->is->lm, m->is->tokenizer, texts, n, scores, o);
    return end_reading(m, own, ok, why);
}

// The likeliest of a row of scores, likeliest first, and of equal ones the first.
static void find_best(const float *row, int64_t vocab, double less, ct_engine_choice *best,
                      size_t n) {
    size_t have = 0;
    for (int64_t v = 0; v < vocab; v++) {
        const double p = row[v] - less;
        size_t at = have < n ? have++ : n;
        if (at == n && (!n || !(p > best[n - 1].log_probability))) continue;
        if (at == n) at--;
        for (; at && p > best[at - 1].log_probability; at--) best[at] = best[at - 1];
        best[at] = (ct_engine_choice){(int32_t)v, p};
    }
}

static bool read_scores(const model *m, const int32_t *ids, size_t n, double *own, int64_t *rank,
                        ct_engine_choice *best, size_t n_best) {
    CT_SCOPE;
    const int64_t vocab = m->is->vocab;
    // (1, T); of any length, so that the plan of warming serves all.
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
        find_best(row, vocab, most + log(sum), best + t * n_best, n_best);
    }
    return row != NULL;
}

bool read_likely(model *m, const int32_t *ids, size_t n, double *own, int64_t *rank,
                 ct_engine_choice *best, size_t n_best, char why[512]) {
    if ((double)n * (double)m->is->vocab * sizeof(float) > MOST_SCORES) {
        snprintf(why, 512,
                 "log-probabilities of the prompt: the scores of %zu tokens take more than %d MB",
                 n, MOST_SCORES >> 20);
        return false;
    }
    ct_ctx *ctx = begin_reading(m);
    return end_reading(m, ctx, read_scores(m, ids, n, own, rank, best, n_best), why);
}
