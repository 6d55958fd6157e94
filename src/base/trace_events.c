#include "base/trace_events.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

enum { MAX_EVENTS = 1 << 21, MAX_MEMORY_SAMPLES = 1 << 20 };

atomic_bool ct__trace_events_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { // guarded by `lock`
    ct_arena texts;
    ct_trace_event_row *rows;
    ct_trace_event *spans;
    ct_trace_memory *memory;
    int32_t *table; // (n_table) rows by the hash of their key; -1: none
    size_t n_rows, rows_cap, n_spans, spans_cap, n_memory, memory_cap, n_table;
    uint64_t left_out;
    int64_t begin, paused_at, paused; // when, and the total of earlier pauses
} trace;
static atomic_uint threads, trace_number; // threads of this trace; number of traces so far

int64_t ct__trace_event_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t trace_thread_number(void) {
    static _Thread_local uint32_t number, of;
    const uint32_t now = atomic_load(&trace_number);
    if (of != now) number = atomic_fetch_add(&threads, 1), of = now;
    return number;
}

static void trace_free(void) {
    ct__arena_free(&trace.texts);
    ct__free(trace.rows);
    ct__free(trace.spans);
    ct__free(trace.memory);
    ct__free(trace.table);
    memset(&trace, 0, sizeof trace);
}

void ct__trace_events_clear(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&ct__trace_events_on, false);
    trace_free();
    pthread_mutex_unlock(&lock);
}

void ct__trace_events_begin(void) {
    pthread_mutex_lock(&lock);
    trace_free();
    trace.begin = ct__trace_event_now();
    atomic_store(&threads, 0);
    atomic_fetch_add(&trace_number, 1);
    pthread_mutex_unlock(&lock);
    trace_thread_number(); // the profiling thread is number 0
    atomic_store(&ct__trace_events_on, true);
}

static void trace_set_paused(bool pause) { // `lock` is held
    const bool on = atomic_exchange(&ct__trace_events_on, !pause);
    if (pause && on) trace.paused_at = ct__trace_event_now();
    if (!pause && !on) trace.paused += ct__trace_event_now() - trace.paused_at;
}
void ct__trace_events_pause(bool pause) {
    pthread_mutex_lock(&lock);
    trace_set_paused(pause);
    pthread_mutex_unlock(&lock);
}

// Events of other threads that end later are not added: the lists no longer change.
ct_trace_events ct__trace_events_end(void) {
    pthread_mutex_lock(&lock);
    trace_set_paused(true);
    const ct_trace_events all = {.rows = trace.rows,
                                 .spans = trace.spans,
                                 .memory = trace.memory,
                                 .n_rows = trace.n_rows,
                                 .n_spans = trace.n_spans,
                                 .n_memory = trace.n_memory,
                                 .n_left_out = trace.left_out,
                                 .n_threads = atomic_load(&threads),
                                 .length = trace.paused_at - trace.begin - trace.paused};
    trace.begin = 0;
    pthread_mutex_unlock(&lock);
    return all;
}

static bool trace_same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static uint64_t trace_hash_key(const ct_trace_event_key *what) {
    const char *texts[3] = {what->name, what->device, what->file ? what->file : ""};
    ct_hash h = {what->kind, what->line};
    for (int i = 0; i < 3; i++) h = ct__hash_bytes(texts[i], strlen(texts[i]), h);
    return h.lo;
}

static bool trace_grow_table(void) {
    const size_t n = trace.n_table ? trace.n_table * 2 : 256;
    int32_t *table = ct__malloc(n * sizeof *table);
    if (!table) return false;
    memset(table, -1, n * sizeof *table);
    for (size_t i = 0; i < trace.n_rows; i++) {
        size_t at = trace_hash_key(&trace.rows[i].what) & (n - 1);
        while (table[at] >= 0) at = (at + 1) & (n - 1);
        table[at] = (int32_t)i;
    }
    ct__free(trace.table);
    trace.table = table;
    trace.n_table = n;
    return true;
}

// Returns the row of such events, added if absent. NULL: no memory.
static ct_trace_event_row *trace_find_row(const ct_trace_event_key *what) {
    if (trace.n_rows * 2 >= trace.n_table && !trace_grow_table()) return NULL;
    size_t at = trace_hash_key(what) & (trace.n_table - 1);
    for (; trace.table[at] >= 0; at = (at + 1) & (trace.n_table - 1)) {
        ct_trace_event_row *row = &trace.rows[trace.table[at]];
        if (row->what.kind == what->kind && row->what.line == what->line &&
            trace_same_text(row->what.name, what->name) &&
            trace_same_text(row->what.file, what->file) &&
            trace_same_text(row->what.device, what->device))
            return row;
    }
    if (!CT_GROW(trace.rows, trace.rows_cap, trace.n_rows + 1)) return NULL;
    ct_trace_event_row *row = &trace.rows[trace.n_rows];
    *row = (ct_trace_event_row){.what = *what};
    row->what.name = ct__arena_str(&trace.texts, what->name);
    row->what.device = ct__arena_str(&trace.texts, what->device);
    row->what.file = what->file ? ct__arena_str(&trace.texts, what->file) : NULL;
    if (!row->what.name || !row->what.device || (what->file && !row->what.file)) return NULL;
    trace.table[at] = (int32_t)trace.n_rows++;
    return row;
}

void ct__trace_event_add(const ct_trace_event_key *what, int64_t begin, double bytes,
                         double flops) {
    const int64_t end = ct__trace_event_now();
    const uint32_t thread = trace_thread_number();
    pthread_mutex_lock(&lock);
    ct_trace_event_row *row = begin >= trace.begin && trace.begin ? trace_find_row(what) : NULL;
    if (row) {
        const int64_t ns = end - begin;
        if (!row->calls || ns < row->least) row->least = ns;
        if (ns > row->most) row->most = ns;
        row->calls++;
        row->total += ns;
        row->bytes += bytes;
        row->flops += flops;
    }
    if (row && trace.n_spans < MAX_EVENTS &&
        CT_GROW(trace.spans, trace.spans_cap, trace.n_spans + 1))
        trace.spans[trace.n_spans++] = (ct_trace_event){(uint32_t)(row - trace.rows), thread,
                                                        begin - trace.begin, end - trace.begin};
    else
        trace.left_out++;
    pthread_mutex_unlock(&lock);
}

void ct__trace_memory_add(uint64_t bytes) {
    const int64_t at = ct__trace_event_now();
    pthread_mutex_lock(&lock);
    if (trace.begin && trace.n_memory < MAX_MEMORY_SAMPLES &&
        CT_GROW(trace.memory, trace.memory_cap, trace.n_memory + 1))
        trace.memory[trace.n_memory++] = (ct_trace_memory){at - trace.begin, bytes};
    pthread_mutex_unlock(&lock);
}
