// Profiles as tables and as traces of Chrome's Trace Event Format, of what base/spans.h saw.
#include "cotan/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/os.h"
#include "base/spans.h"
#include "base/text.h"
#include "graph/graph.h"

static const char *const kind_names[CT_PROFILE_KINDS] = {"kernel",      "copy",    "op",  "run",
                                                         "make a plan", "compile", "user"};
static bool launches(ct_profile_kind kind) { return kind <= CT_PROFILE_OP; }

static atomic_bool under_way;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what changes it, and of `last`
static struct {
    ct_spans spans;
    ct_profile profile;
    ct_profile_row *rows;
    ct_text table;
} last;

static bool begin(void) { // false: one is under way
    pthread_mutex_lock(&lock);
    const bool ok = !under_way;
    if (ok) {
        ct__free(last.rows);
        ct__text_free(&last.table);
        memset(&last, 0, sizeof last);
        ct__spans_begin();
        under_way = true;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

bool ct_profile_begin_at(ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    const bool ok = begin();
    if (!ok && ctx)
        ct__err(&ctx->err, CT_E_ARGUMENT, here, "profile",
                "a profile is under way, which ct_profile_end ends");
    return ok;
}
void ct_profile_pause(void) {
    if (under_way) ct__spans_pause(true);
}
void ct_profile_resume(void) {
    if (under_way) ct__spans_pause(false);
}

int64_t ct_annotate_now(void) { return ct__watched() ? ct__span_now() : 0; }
void ct_annotate_end(ct_annotation *a) {
    if (!a || !a->begin || !a->name) return;
    const ct_span_what what = {CT_SPAN_USER, a->name, "", a->here.file, a->here.line};
    ct__span_add(&what, a->begin, 0, 0);
    a->begin = 0;
}

// ------------------------------------------------------------------------------------------- rows

static int longest_first(const void *a, const void *b) {
    const ct_profile_row *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool list_rows(ct_limits limits) {
    const ct_spans *s = &last.spans;
    last.rows = ct__malloc((s->n_rows + 1) * sizeof *last.rows);
    if (!last.rows) return false;
    ct_profile *p = &last.profile;
    *p = (ct_profile){.rows = last.rows,
                      .n_rows = s->n_rows,
                      .seconds = 1e-9 * (double)s->length,
                      .left_out = s->n_left_out,
                      .limits = limits};
    for (size_t i = 0; i < s->n_rows; i++) {
        const ct_span_row *r = &s->rows[i];
        last.rows[i] = (ct_profile_row){.kind = (ct_profile_kind)r->what.kind,
                                        .name = r->what.name,
                                        .device = r->what.device,
                                        .here = {r->what.file, r->what.line},
                                        .calls = r->calls,
                                        .seconds = 1e-9 * (double)r->total,
                                        .least = 1e-9 * (double)r->least,
                                        .most = 1e-9 * (double)r->most,
                                        .bytes = r->bytes,
                                        .flops = r->flops};
        if (launches(last.rows[i].kind)) p->launches += last.rows[i].seconds;
    }
    for (size_t i = 0; i < s->n_memory; i++)
        if (s->memory[i].bytes > p->peak_bytes) p->peak_bytes = s->memory[i].bytes;
    qsort(last.rows, s->n_rows, sizeof *last.rows, longest_first);
    return true;
}

const ct_profile *ct_profile_seen(void) { return last.rows ? &last.profile : NULL; }

// ------------------------------------------------------------------------------------------- table

// The time that the machine's limits ask for, over the time taken.
static double share_of_limits(const ct_profile_row *r, const ct_limits *l) {
    const double arithmetic = l->flops > 0 ? r->flops / l->flops : 0,
                 memory = l->stream > 0 ? r->bytes / l->stream : 0;
    return (arithmetic > memory ? arithmetic : memory) / r->seconds;
}

static bool on_several_devices(const ct_profile *p) {
    const char *first = NULL;
    bool several = false;
    for (size_t i = 0; i < p->n_rows; i++) {
        if (!launches(p->rows[i].kind)) continue;
        several |= first && strcmp(first, p->rows[i].device);
        first = p->rows[i].device;
    }
    return several;
}

static void add_row(ct_text *t, const ct_profile_row *r, const ct_profile *p) {
    char line[64] = "";
    const char *file = r->here.file ? strrchr(r->here.file, '/') : NULL;
    if (r->here.file)
        snprintf(line, sizeof line, "%.40s:%u", file ? file + 1 : r->here.file, r->here.line);
    ct__textf(t, "%-34.34s %-22.22s %8llu %10.3f %9.4f %6.1f", r->name, line,
              (unsigned long long)r->calls, r->seconds * 1e3, r->seconds * 1e3 / (double)r->calls,
              p->seconds > 0 ? 100 * r->seconds / p->seconds : 0);
    if (launches(r->kind) && r->seconds > 0) {
        ct__textf(t, " %8.1f %8.1f", r->bytes / r->seconds / 1e9, r->flops / r->seconds / 1e9);
        if (p->limits.flops > 0) ct__textf(t, " %6.2f", share_of_limits(r, &p->limits));
        if (on_several_devices(p)) ct__textf(t, "  %s", r->device);
    }
    ct__text_add(t, "\n");
}

static void add_part(ct_text *t, const char *title, bool of_launches) {
    const ct_profile *p = &last.profile;
    enum { MOST = 40 };
    size_t n = 0, more = 0;
    double rest = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        const ct_profile_row *r = &p->rows[i];
        if (launches(r->kind) != of_launches) continue;
        if (!n++) {
            ct__textf(t, "%-34s %-22s %8s %10s %9s %6s", title, "line", "calls", "ms", "ms each",
                      "%");
            if (of_launches)
                ct__textf(t, " %8s %8s%s%s", "GB/s", "GFLOP/s",
                          p->limits.flops > 0 ? "  share" : "",
                          on_several_devices(p) ? "  device" : "");
            ct__text_add(t, "\n");
        }
        if (n <= MOST)
            add_row(t, r, p);
        else
            more++, rest += r->seconds;
    }
    if (more) ct__textf(t, "%zu more of %.3f ms\n", more, rest * 1e3);
    if (n) ct__text_add(t, "\n");
}

const char *ct_profile_table(void) {
    const ct_profile *p = &last.profile;
    ct_text *t = &last.table;
    if (!last.rows) return "";
    if (t->n) return t->s;
    add_part(t, "kernel", true);
    add_part(t, "on the host", false);
    ct__textf(t, "%.3f s watched; launches took %.3f s of it (%.1f %%)", p->seconds, p->launches,
              p->seconds > 0 ? 100 * p->launches / p->seconds : 0);
    if (p->peak_bytes) ct__textf(t, "; devices held %s at most", ct__bytes_text(p->peak_bytes).s);
    ct__text_add(t, "\n");
    if (p->limits.flops > 0)
        ct__textf(t,
                  "share: the time that %.0f GFLOP/s and %.1f GB/s ask for, over the time taken\n",
                  p->limits.flops / 1e9, p->limits.stream / 1e9);
    if (p->left_out)
        ct__textf(t, "%llu spans are in this table and not in the trace: it was full\n",
                  (unsigned long long)p->left_out);
    return t->failed ? "" : t->s;
}

// ------------------------------------------------------------------------------------------- trace

// Tracks of a trace: the host's threads, and of each of them one for what its launches do.
enum { PROCESS = 1, LAUNCHES = 1000 };

static uint32_t track_of(const ct_span *s, ct_profile_kind kind) {
    return s->thread + (launches(kind) ? LAUNCHES : 0);
}

static void add_names(ct_text *t, const ct_spans *s) {
    bool *used = ct__calloc(2 * s->n_threads + 1, sizeof *used); // (threads, of launches?)
    for (size_t i = 0; used && i < s->n_spans; i++)
        used[2 * s->spans[i].thread +
             launches((ct_profile_kind)s->rows[s->spans[i].row].what.kind)] = true;
    ct__textf(t,
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":"
              "\"cotan\"}}",
              PROCESS);
    for (uint32_t i = 0; used && i < s->n_threads; i++)
        for (uint32_t of = 0; of < 2; of++)
            if (used[2 * i + of])
                ct__textf(
                    t,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"args\":"
                    "{\"name\":\"%s %u\"}}",
                    PROCESS, i + of * LAUNCHES, of ? "launches of thread" : "thread", i);
    ct__free(used);
}

// By hand, so that a program without JSON needs no library for it.
static void add_quoted(ct_text *t, const char *s) {
    ct__text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
            ct__textf(t, "\\u%04x", (unsigned char)*s);
        else
            ct__text_bytes(t, s, 1);
    }
    ct__text_add(t, "\"");
}

static void add_span(ct_text *t, const ct_spans *s, const ct_span *span) {
    const ct_span_row *r = &s->rows[span->row];
    const ct_profile_kind kind = (ct_profile_kind)r->what.kind;
    ct__text_add(t, ",\n{\"name\":");
    add_quoted(t, r->what.name);
    ct__textf(
        t, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{",
        kind_names[kind], PROCESS, track_of(span, kind), 1e-3 * (double)span->begin,
        1e-3 * (double)(span->end - span->begin));
    if (r->what.file) {
        char line[16];
        snprintf(line, sizeof line, ":%u", r->what.line);
        ct_text at = {0};
        ct__text_add(&at, r->what.file);
        ct__text_add(&at, line);
        ct__text_add(t, "\"line\":");
        add_quoted(t, at.s ? at.s : "");
        ct__text_free(&at);
    }
    if (launches(kind)) {
        ct__textf(t, "%s\"device\":", r->what.file ? "," : "");
        add_quoted(t, r->what.device);
        ct__textf(t, ",\"bytes\":%.0f,\"flops\":%.0f", r->bytes / (double)r->calls,
                  r->flops / (double)r->calls);
    }
    ct__text_add(t, "}}");
}

// A thousandth of the watch apart at least: thousands of steps would make a trace that no viewer opens.
static void add_memory(ct_text *t, const ct_spans *s) {
    int64_t next = 0;
    for (size_t i = 0; i < s->n_memory; i++) {
        const ct_span_memory *m = &s->memory[i];
        const bool final = i + 1 == s->n_memory || s->memory[i + 1].at >= next;
        if (m->at < next && !final) continue;
        ct__textf(t,
                  ",\n{\"name\":\"memory\",\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":"
                  "{\"bytes\":%llu}}",
                  PROCESS, 1e-3 * (double)m->at, (unsigned long long)m->bytes);
        next = m->at + s->length / 10000;
    }
}

static bool write_trace(const char *path, ct_err *err) {
    const ct_spans *s = &last.spans;
    ct_atomic file;
    ct_text t = {0};
    if (!ct__atomic_begin(&file, path, 0, err)) return false;
    ct__text_add(&t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    add_names(&t, s);
    add_memory(&t, s);
    bool ok = true;
    for (size_t i = 0; i < s->n_spans && ok; i++) {
        add_span(&t, s, &s->spans[i]);
        if (t.n < 1 << 20) continue;
        ok = !t.failed && ct__atomic_put(&file, t.s, t.n, err);
        t.n = 0;
    }
    ct__text_add(&t, "\n]}\n");
    ok = ok && !t.failed && ct__atomic_put(&file, t.s, t.n, err) && ct__atomic_place(&file, err);
    if (!ok) {
        ct__err_memory(err, CT_NOWHERE, "profile", t.n); // unless the reason stands there
        ct__atomic_abandon(&file);
    }
    ct__text_free(&t);
    return ok;
}

// --------------------------------------------------------------------------------------------- end

static bool list_and_write(const char *trace, bool measure, ct_loc here, ct_err *err) {
    ct_limits limits = {0};
    last.spans = ct__spans_end();
    if (measure && ct_measure_limits(&limits, ct__cores_allowed(), true)) ct_limits_free();
    if (!list_rows(limits)) return ct__err_memory(err, here, "profile", last.spans.n_rows);
    return !trace || write_trace(trace, err);
}
static bool end(const char *trace, bool measure, ct_loc here, ct_err *err) {
    pthread_mutex_lock(&lock);
    const bool is = atomic_exchange(&under_way, false);
    const bool ok = is && list_and_write(trace, measure, here, err);
    pthread_mutex_unlock(&lock);
    return is ? ok
              : ct__err(err, CT_E_ARGUMENT, here, "profile",
                        "none is under way: ct_profile_begin begins one");
}

bool ct_profile_end_at(const char *trace, bool measure, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_err err = {0};
    return end(trace, measure, here, ctx ? &ctx->err : &err);
}

// ---------------------------------------------------------------------- asked for by the environment

static const char *asked; // the file; NULL: nothing

void ct__profile_begins(void) {
    static atomic_bool looked;
    if (atomic_exchange(&looked, true)) return;
    asked = getenv("COTAN_PROFILE");
    if (asked && !*asked) asked = NULL;
    if (asked) begin();
}

void ct__profile_ends(void) {
    ct_err err = {0};
    if (asked && under_way) {
        const bool ok = end(asked, true, CT_NOWHERE, &err);
        fputs(ct_profile_table(), stderr);
        if (ok)
            fprintf(stderr, "cotan: the trace is %s; ui.perfetto.dev shows it\n", asked);
        else
            fprintf(stderr, "cotan: %s\n", err.text);
    }
    under_way = false;
    ct__free(last.rows);
    ct__text_free(&last.table);
    memset(&last, 0, sizeof last);
    ct__spans_forget();
}

__attribute__((destructor)) static void process_ends(void) {
    if (asked && !ct__forked()) ct__profile_ends();
}
