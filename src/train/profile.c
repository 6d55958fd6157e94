// Profiles as tables and as traces in Chrome's Trace Event Format, from the events that base/trace_events.h
// records.
#include "cotan/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/os.h"
#include "base/trace_events.h"
#include "base/text.h"
#include "graph/graph.h"

static const char *const profile_kind_names[CT_PROFILE_KINDS] = {
    "kernel", "copy", "op", "run", "make a plan", "compile", "user"};
static bool profile_is_launch(ct_profile_kind kind) { return kind <= CT_PROFILE_OP; }

static atomic_bool profile_active;
// guards changes of `profile_active` and `profile_last`
static pthread_mutex_t profile_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ct_trace_events spans;
    ct_profile profile;
    ct_profile_row *rows;
    ct_text table;
} profile_last;

static bool profile_begin(void) { // returns false if a profile is active
    pthread_mutex_lock(&profile_lock);
    const bool ok = !profile_active;
    if (ok) {
        ct__free(profile_last.rows);
        ct__text_free(&profile_last.table);
        memset(&profile_last, 0, sizeof profile_last);
        ct__trace_events_begin();
        profile_active = true;
    }
    pthread_mutex_unlock(&profile_lock);
    return ok;
}

bool ct_profile_begin_at(ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    const bool ok = profile_begin();
    if (!ok && ctx)
        ct__err(&ctx->err, CT_E_ARGUMENT, here, "profile",
                "a profile is under way, which ct_profile_end ends");
    return ok;
}
void ct_profile_pause(void) {
    if (profile_active) ct__trace_events_pause(true);
}
void ct_profile_resume(void) {
    if (profile_active) ct__trace_events_pause(false);
}

int64_t ct_annotate_now(void) { return ct__trace_enabled() ? ct__trace_event_now() : 0; }
void ct_annotate_end(ct_annotation *a) {
    if (!a || !a->begin || !a->name) return;
    const ct_trace_event_key what = {CT_TRACE_USER, a->name, "", a->here.file, a->here.line};
    ct__trace_event_add(&what, a->begin, 0, 0);
    a->begin = 0;
}

// ---------------------------------------------------------------------------------------------- rows

static int profile_compare_seconds(const void *a, const void *b) {
    const ct_profile_row *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool profile_list_rows(ct_machine_limits limits) {
    const ct_trace_events *s = &profile_last.spans;
    profile_last.rows = ct__malloc((s->n_rows + 1) * sizeof *profile_last.rows);
    if (!profile_last.rows) return false;
    ct_profile *p = &profile_last.profile;
    *p = (ct_profile){.rows = profile_last.rows,
                      .n_rows = s->n_rows,
                      .seconds = 1e-9 * (double)s->length,
                      .dropped_events = s->n_left_out,
                      .limits = limits};
    for (size_t i = 0; i < s->n_rows; i++) {
        const ct_trace_event_row *r = &s->rows[i];
        profile_last.rows[i] = (ct_profile_row){.kind = (ct_profile_kind)r->what.kind,
                                                .name = r->what.name,
                                                .device = r->what.device,
                                                .here = {r->what.file, r->what.line},
                                                .calls = r->calls,
                                                .seconds = 1e-9 * (double)r->total,
                                                .min_seconds = 1e-9 * (double)r->least,
                                                .max_seconds = 1e-9 * (double)r->most,
                                                .bytes = r->bytes,
                                                .flops = r->flops};
        if (profile_is_launch(profile_last.rows[i].kind))
            p->launch_seconds += profile_last.rows[i].seconds;
    }
    for (size_t i = 0; i < s->n_memory; i++)
        if (s->memory[i].bytes > p->peak_bytes) p->peak_bytes = s->memory[i].bytes;
    qsort(profile_last.rows, s->n_rows, sizeof *profile_last.rows, profile_compare_seconds);
    return true;
}

const ct_profile *ct_profile_result(void) {
    return profile_last.rows ? &profile_last.profile : NULL;
}

// --------------------------------------------------------------------------------------------- table

// Returns the time that the machine's limits allow, divided by the time taken.
static double profile_roofline_fraction(const ct_profile_row *r, const ct_machine_limits *l) {
    const double arithmetic = l->flops > 0 ? r->flops / l->flops : 0,
                 memory = l->stream_bandwidth > 0 ? r->bytes / l->stream_bandwidth : 0;
    return (arithmetic > memory ? arithmetic : memory) / r->seconds;
}

static bool profile_has_several_devices(const ct_profile *p) {
    const char *first = NULL;
    bool several = false;
    for (size_t i = 0; i < p->n_rows; i++) {
        if (!profile_is_launch(p->rows[i].kind)) continue;
        several |= first && strcmp(first, p->rows[i].device);
        first = p->rows[i].device;
    }
    return several;
}

static void profile_add_row(ct_text *t, const ct_profile_row *r, const ct_profile *p) {
    char line[64] = "";
    const char *file = r->here.file ? strrchr(r->here.file, '/') : NULL;
    if (r->here.file)
        snprintf(line, sizeof line, "%.40s:%u", file ? file + 1 : r->here.file, r->here.line);
    ct__textf(t, "%-34.34s %-22.22s %8llu %10.3f %9.4f %6.1f", r->name, line,
              (unsigned long long)r->calls, r->seconds * 1e3, r->seconds * 1e3 / (double)r->calls,
              p->seconds > 0 ? 100 * r->seconds / p->seconds : 0);
    if (profile_is_launch(r->kind) && r->seconds > 0) {
        ct__textf(t, " %8.1f %8.1f", r->bytes / r->seconds / 1e9, r->flops / r->seconds / 1e9);
        if (p->limits.flops > 0) ct__textf(t, " %6.2f", profile_roofline_fraction(r, &p->limits));
        if (profile_has_several_devices(p)) ct__textf(t, "  %s", r->device);
    }
    ct__text_add(t, "\n");
}

static void profile_add_section(ct_text *t, const char *title, bool of_launches) {
    const ct_profile *p = &profile_last.profile;
    enum { MAX_ROWS = 40 };
    size_t n = 0, more = 0;
    double rest = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        const ct_profile_row *r = &p->rows[i];
        if (profile_is_launch(r->kind) != of_launches) continue;
        if (!n++) {
            ct__textf(t, "%-34s %-22s %8s %10s %9s %6s", title, "line", "calls", "ms", "ms each",
                      "%");
            if (of_launches)
                ct__textf(t, " %8s %8s%s%s", "GB/s", "GFLOP/s",
                          p->limits.flops > 0 ? "  share" : "",
                          profile_has_several_devices(p) ? "  device" : "");
            ct__text_add(t, "\n");
        }
        if (n <= MAX_ROWS)
            profile_add_row(t, r, p);
        else
            more++, rest += r->seconds;
    }
    if (more) ct__textf(t, "%zu more of %.3f ms\n", more, rest * 1e3);
    if (n) ct__text_add(t, "\n");
}

const char *ct_profile_table(void) {
    const ct_profile *p = &profile_last.profile;
    ct_text *t = &profile_last.table;
    if (!profile_last.rows) return "";
    if (t->n) return t->s;
    profile_add_section(t, "kernel", true);
    profile_add_section(t, "on the host", false);
    ct__textf(t, "%.3f s watched; launches took %.3f s of it (%.1f %%)", p->seconds,
              p->launch_seconds, p->seconds > 0 ? 100 * p->launch_seconds / p->seconds : 0);
    if (p->peak_bytes)
        ct__textf(t, "; peak memory of devices: %s", ct__bytes_text(p->peak_bytes).s);
    ct__text_add(t, "\n");
    if (p->limits.flops > 0)
        ct__textf(t,
                  "share: the time that %.0f GFLOP/s and %.1f GB/s ask for, over the time taken\n",
                  p->limits.flops / 1e9, p->limits.stream_bandwidth / 1e9);
    if (p->dropped_events)
        ct__textf(t, "%llu spans are in this table and not in the trace: it was full\n",
                  (unsigned long long)p->dropped_events);
    return t->failed ? "" : t->s;
}

// --------------------------------------------------------------------------------------------- trace

// Tracks of a trace: the host's threads, and a second track of each for its launches.
enum { PROCESS = 1, LAUNCH_TRACKS = 1000 };

static uint32_t profile_track(const ct_trace_event *s, ct_profile_kind kind) {
    return s->thread + (profile_is_launch(kind) ? LAUNCH_TRACKS : 0);
}

static void profile_add_names(ct_text *t, const ct_trace_events *s) {
    // (threads, is a track of launches)
    bool *used = ct__calloc(2 * s->n_threads + 1, sizeof *used);
    for (size_t i = 0; used && i < s->n_spans; i++)
        used[2 * s->spans[i].thread +
             profile_is_launch((ct_profile_kind)s->rows[s->spans[i].row].what.kind)] = true;
    ct__textf(t,
              "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":"
              "\"cotan\"}}",
              PROCESS);
    for (uint32_t i = 0; used && i < s->n_threads; i++)
        for (uint32_t is_launches = 0; is_launches < 2; is_launches++)
            if (used[2 * i + is_launches])
                ct__textf(
                    t,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"args\":"
                    "{\"name\":\"%s %u\"}}",
                    PROCESS, i + is_launches * LAUNCH_TRACKS,
                    is_launches ? "launches of thread" : "thread", i);
    ct__free(used);
}

// Written by hand, so that a program without JSON needs no library for it.
static void profile_add_quoted(ct_text *t, const char *s) {
    ct__text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
            ct__textf(t, "\\u%04x", (unsigned char)*s);
        else
            ct__text_bytes(t, s, 1);
    }
    ct__text_add(t, "\"");
}

static void profile_add_span(ct_text *t, const ct_trace_events *s, const ct_trace_event *span) {
    const ct_trace_event_row *r = &s->rows[span->row];
    const ct_profile_kind kind = (ct_profile_kind)r->what.kind;
    ct__text_add(t, ",\n{\"name\":");
    profile_add_quoted(t, r->what.name);
    ct__textf(
        t, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{",
        profile_kind_names[kind], PROCESS, profile_track(span, kind), 1e-3 * (double)span->begin,
        1e-3 * (double)(span->end - span->begin));
    if (r->what.file) {
        char line[16];
        snprintf(line, sizeof line, ":%u", r->what.line);
        ct_text at = {0};
        ct__text_add(&at, r->what.file);
        ct__text_add(&at, line);
        ct__text_add(t, "\"line\":");
        profile_add_quoted(t, at.s ? at.s : "");
        ct__text_free(&at);
    }
    if (profile_is_launch(kind)) {
        ct__textf(t, "%s\"device\":", r->what.file ? "," : "");
        profile_add_quoted(t, r->what.device);
        ct__textf(t, ",\"bytes\":%.0f,\"flops\":%.0f", r->bytes / (double)r->calls,
                  r->flops / (double)r->calls);
    }
    ct__text_add(t, "}}");
}

// Samples are at least a ten-thousandth of the profile apart: thousands of steps would make a trace that no
// viewer opens.
static void profile_add_memory(ct_text *t, const ct_trace_events *s) {
    int64_t next = 0;
    for (size_t i = 0; i < s->n_memory; i++) {
        const ct_trace_memory *m = &s->memory[i];
        const bool final = i + 1 == s->n_memory || s->memory[i + 1].at >= next;
        if (m->at < next && !final) continue;
        ct__textf(t,
                  ",\n{\"name\":\"memory\",\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":"
                  "{\"bytes\":%llu}}",
                  PROCESS, 1e-3 * (double)m->at, (unsigned long long)m->bytes);
        next = m->at + s->length / 10000;
    }
}

static bool profile_write_trace(const char *path, ct_err *err) {
    const ct_trace_events *s = &profile_last.spans;
    ct_atomic_file file;
    ct_text t = {0};
    if (!ct__atomic_file_begin(&file, path, 0, err)) return false;
    ct__text_add(&t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    profile_add_names(&t, s);
    profile_add_memory(&t, s);
    bool ok = true;
    for (size_t i = 0; i < s->n_spans && ok; i++) {
        profile_add_span(&t, s, &s->spans[i]);
        if (t.n < 1 << 20) continue;
        ok = !t.failed && ct__atomic_file_write(&file, t.s, t.n, err);
        t.n = 0;
    }
    ct__text_add(&t, "\n]}\n");
    ok = ok && !t.failed && ct__atomic_file_write(&file, t.s, t.n, err) &&
         ct__atomic_file_rename(&file, err);
    if (!ok) {
        ct__err_memory(err, CT_NOWHERE, "profile", t.n); // keeps an earlier error
        ct__atomic_file_abandon(&file);
    }
    ct__text_free(&t);
    return ok;
}

// ----------------------------------------------------------------------------------------------- end

static bool profile_finish(const char *trace, bool measure, ct_loc here, ct_err *err) {
    ct_machine_limits limits = {0};
    profile_last.spans = ct__trace_events_end();
    if (measure && ct_measure_machine_limits(&limits, ct__cores_allowed(), true))
        ct_machine_limits_free();
    if (!profile_list_rows(limits))
        return ct__err_memory(err, here, "profile", profile_last.spans.n_rows);
    return !trace || profile_write_trace(trace, err);
}
static bool profile_end(const char *trace, bool measure, ct_loc here, ct_err *err) {
    pthread_mutex_lock(&profile_lock);
    const bool is = atomic_exchange(&profile_active, false);
    const bool ok = is && profile_finish(trace, measure, here, err);
    pthread_mutex_unlock(&profile_lock);
    return is ? ok
              : ct__err(err, CT_E_ARGUMENT, here, "profile",
                        "none is under way: ct_profile_begin begins one");
}

bool ct_profile_end_at(const char *trace, bool measure, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_err err = {0};
    return profile_end(trace, measure, here, ctx ? &ctx->err : &err);
}

// ------------------------------------------------------------- profiles requested by the environment

static const char *profile_env_path; // the file; NULL: none

void ct__profile_start_from_env(void) {
    static atomic_bool checked;
    if (atomic_exchange(&checked, true)) return;
    profile_env_path = getenv("COTAN_PROFILE");
    if (profile_env_path && !*profile_env_path) profile_env_path = NULL;
    if (profile_env_path) profile_begin();
}

void ct__profile_stop(void) {
    ct_err err = {0};
    if (profile_env_path && profile_active) {
        const bool ok = profile_end(profile_env_path, true, CT_NOWHERE, &err);
        fputs(ct_profile_table(), stderr);
        if (ok)
            fprintf(stderr, "cotan: the trace is %s; ui.perfetto.dev shows it\n", profile_env_path);
        else
            fprintf(stderr, "cotan: %s\n", err.text);
    }
    profile_active = false;
    ct__free(profile_last.rows);
    ct__text_free(&profile_last.table);
    memset(&profile_last, 0, sizeof profile_last);
    ct__trace_events_clear();
}

__attribute__((destructor)) static void profile_at_exit(void) {
    if (profile_env_path && !ct__forked()) ct__profile_stop();
}
