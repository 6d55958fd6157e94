// GET /metrics in the format of Prometheus, and GET /health.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static const int codes[] = {200, 204, 400, 401, 403, 404, 405, 413, 415, 429, 499, 500, 501, 503};
enum { CODES = sizeof codes / sizeof *codes, MAX_ROUTES = 64, BUCKETS = 12 };
static const double bounds[BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

typedef struct histogram {
    uint64_t counts[BUCKETS + 1];
    uint64_t n;
    double sum;
} histogram;

struct metrics {
    pthread_mutex_t lock;
    uint64_t requests[MAX_ROUTES + 1][CODES]; // the last row counts unknown paths
    histogram first, each;
};

metrics *metrics_new(void) {
    metrics *m = calloc(1, sizeof *m);
    if (m) pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(metrics *m) {
    if (m) pthread_mutex_destroy(&m->lock);
    free(m);
}

void metrics_count_request(metrics *m, const route *r, int code) {
    const size_t row = r ? (size_t)(r - routes) : MAX_ROUTES;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < CODES; i++) m->requests[row][i] += codes[i] == code;
    pthread_mutex_unlock(&m->lock);
}

static void metrics_observe(histogram *h, double seconds) {
    int i = 0;
    while (i < BUCKETS && seconds > bounds[i]) i++;
    h->counts[i]++;
    h->n++;
    h->sum += seconds;
}

void metrics_count_choice(metrics *m, const choice *c) {
    if (!c->written) return;
    pthread_mutex_lock(&m->lock);
    metrics_observe(&m->first, c->first);
    if (c->written > 1) metrics_observe(&m->each, (c->all - c->first) / (double)(c->written - 1));
    pthread_mutex_unlock(&m->lock);
}

// ------------------------------------------------------------------------------------------ telling

static void metrics_put_header(buffer *out, const char *name, const char *kind, const char *help) {
    buffer_putf(out, "# HELP cotan_%s %s\n# TYPE cotan_%s %s\n", name, help, name, kind);
}

static void metrics_put_histogram(buffer *out, const char *name, const char *help,
                                  const histogram *h) {
    uint64_t below = 0;
    metrics_put_header(out, name, "histogram", help);
    for (int i = 0; i < BUCKETS; i++) {
        below += h->counts[i];
        buffer_putf(out, "cotan_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i],
                    (unsigned long long)below);
    }
    buffer_putf(out, "cotan_%s_bucket{le=\"+Inf\"} %llu\ncotan_%s_sum %.9g\ncotan_%s_count %llu\n",
                name, (unsigned long long)h->n, name, h->sum, name, (unsigned long long)h->n);
}

static void metrics_put_requests(buffer *out, const metrics *m) {
    metrics_put_header(out, "http_requests_total", "counter", "Requests by endpoint and status.");
    for (size_t r = 0; r <= MAX_ROUTES; r++)
        for (int i = 0; i < CODES; i++)
            if (m->requests[r][i])
                buffer_putf(out, "cotan_http_requests_total{endpoint=\"%s\",code=\"%d\"} %llu\n",
                            r < n_routes ? routes[r].path : "other", codes[i],
                            (unsigned long long)m->requests[r][i]);
}

// Writes a label value, without the characters that would end it.
static void metrics_put_label(buffer *out, const char *name) {
    for (; *name; name++)
        if (*name != '"' && *name != '\\' && *name != '\n') buffer_put(out, name, 1);
}

static void metrics_put_engines(buffer *out, server *s) {
    static const struct {
        const char *name, *kind, *help;
        size_t at;
    } rows[] = {
        {"sequences_running", "gauge", "Sequences that are being generated.",
         offsetof(ct_engine_metrics, running)},
        {"sequences_queued", "gauge", "Sequences in the queue.",
         offsetof(ct_engine_metrics, queued)},
        {"pages", "gauge", "Pages of the KV cache.", offsetof(ct_engine_metrics, pages)},
        {"pages_used", "gauge", "Pages in use by running sequences.",
         offsetof(ct_engine_metrics, pages_used)},
        {"pages_shared", "gauge", "Pages shared by several sequences.",
         offsetof(ct_engine_metrics, pages_shared)},
        {"steps_total", "counter", "Passes of the model.", offsetof(ct_engine_metrics, steps)},
        {"prefilled_tokens_total", "counter", "Prompt tokens that were computed.",
         offsetof(ct_engine_metrics, prefilled_tokens)},
        {"cached_tokens_total", "counter", "Prompt tokens whose keys and values were in the cache.",
         offsetof(ct_engine_metrics, cached_tokens)},
        {"generated_tokens_total", "counter", "Tokens that were generated.",
         offsetof(ct_engine_metrics, generated_tokens)},
        {"sequences_preempted_total", "counter",
         "Sequences whose pages were taken to make room for others.",
         offsetof(ct_engine_metrics, preempted)},
        {"sequences_finished_total", "counter", "Sequences that finished.",
         offsetof(ct_engine_metrics, finished)},
        {"sequences_cancelled_total", "counter", "Sequences whose clients disconnected.",
         offsetof(ct_engine_metrics, cancelled)},
        {"sequences_failed_total", "counter", "Sequences that failed.",
         offsetof(ct_engine_metrics, failed)},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        metrics_put_header(out, rows[r].name, rows[r].kind, rows[r].help);
        for (size_t i = 0; i < s->n_models; i++) {
            const model *m = &s->models[i];
            if (atomic_load(&m->state) != MODEL_READY || !m->engine) continue;
            const ct_engine_metrics state = ct_engine_stats(m->engine);
            int64_t value;
            memcpy(&value, (const char *)&state + rows[r].at, sizeof value);
            buffer_putf(out, "cotan_%s{model=\"", rows[r].name);
            metrics_put_label(out, m->name);
            buffer_putf(out, "\"} %lld\n", (long long)value);
        }
    }
}

static void metrics_put_kernels(buffer *out) {
    const ct_stats s = ct_get_stats();
    const struct {
        const char *from;
        uint64_t n;
    } kernels[] = {
        {"compiler", s.kernels_compiled}, {"cache", s.kernels_loaded}, {"pack", s.kernels_packed}};
    metrics_put_header(out, "kernels_total", "counter", "Kernels by where they came from.");
    for (int i = 0; i < 3; i++)
        buffer_putf(out, "cotan_kernels_total{from=\"%s\"} %llu\n", kernels[i].from,
                    (unsigned long long)kernels[i].n);
    metrics_put_header(out, "launches_interpreted_total", "counter",
                       "Launches of kernels that were not compiled.");
    buffer_putf(out, "cotan_launches_interpreted_total %llu\n",
                (unsigned long long)s.launches_interpreted);
}

bool handle_metrics(exchange *x) {
    metrics *m = x->server->metrics;
    x->content_type = "text/plain; version=0.0.4";
    pthread_mutex_lock(&m->lock);
    metrics_put_requests(&x->out, m);
    metrics_put_histogram(&x->out, "time_to_first_token_seconds",
                          "From a text's arrival to its first token.", &m->first);
    metrics_put_histogram(&x->out, "time_per_token_seconds",
                          "Of a text's further tokens, on average.", &m->each);
    pthread_mutex_unlock(&m->lock);
    metrics_put_engines(&x->out, x->server);
    metrics_put_kernels(&x->out);
    return true;
}

bool handle_health(exchange *x) {
    const server *s = x->server;
    for (size_t i = 0; i < s->n_models; i++)
        if (atomic_load(&s->models[i].state) != MODEL_READY) {
            x->code = 503;
            x->retry_after = 5;
            return reply_json(x, json_pack("{s:s}", "status", "loading"));
        }
    return reply_json(x, json_pack("{s:s}", "status", "ok"));
}
