#include "base/spans.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

enum { MOST_SPANS = 1 << 21, MOST_MEMORY = 1 << 20 };

atomic_bool ct__spans_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { // by `lock`
    ct_arena texts;
    ct_span_row *rows;
    ct_span *spans;
    ct_span_memory *memory;
    int32_t *table; // (n_table) rows by the hash of what they are of; -1: none
    size_t n_rows, rows_cap, n_spans, spans_cap, n_memory, memory_cap, n_table;
    uint64_t left_out;
    int64_t begin, paused_at, paused; // when, and for how long in all
} seen;
static atomic_uint threads, watch; // of this watch; which one it is

int64_t ct__span_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t thread_number(void) {
    static _Thread_local uint32_t number, of;
    const uint32_t now = atomic_load(&watch);
    if (of != now) number = atomic_fetch_add(&threads, 1), of = now;
    return number;
}

static void forget(void) {
    ct__arena_free(&seen.texts);
    ct__free(seen.rows);
    ct__free(seen.spans);
    ct__free(seen.memory);
    ct__free(seen.table);
    memset(&seen, 0, sizeof seen);
}

void ct__spans_forget(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&ct__spans_on, false);
    forget();
    pthread_mutex_unlock(&lock);
}

void ct__spans_begin(void) {
    pthread_mutex_lock(&lock);
    forget();
    seen.begin = ct__span_now();
    atomic_store(&threads, 0);
    atomic_fetch_add(&watch, 1);
    pthread_mutex_unlock(&lock);
    thread_number(); // the one that watches is the first
    atomic_store(&ct__spans_on, true);
}

static void pause_or_resume(bool pause) { // under the lock
    const bool on = atomic_exchange(&ct__spans_on, !pause);
    if (pause && on) seen.paused_at = ct__span_now();
    if (!pause && !on) seen.paused += ct__span_now() - seen.paused_at;
}
void ct__spans_pause(bool pause) {
    pthread_mutex_lock(&lock);
    pause_or_resume(pause);
    pthread_mutex_unlock(&lock);
}

// What other threads began before that and end later is not added: the lists stay as they are.
ct_spans ct__spans_end(void) {
    pthread_mutex_lock(&lock);
    pause_or_resume(true);
    const ct_spans all = {.rows = seen.rows,
                          .spans = seen.spans,
                          .memory = seen.memory,
                          .n_rows = seen.n_rows,
                          .n_spans = seen.n_spans,
                          .n_memory = seen.n_memory,
                          .n_left_out = seen.left_out,
                          .n_threads = atomic_load(&threads),
                          .length = seen.paused_at - seen.begin - seen.paused};
    seen.begin = 0;
    pthread_mutex_unlock(&lock);
    return all;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static uint64_t hash_of(const ct_span_what *what) {
    const char *texts[3] = {what->name, what->device, what->file ? what->file : ""};
    ct_hash h = {what->kind, what->line};
    for (int i = 0; i < 3; i++) h = ct__hash_bytes(texts[i], strlen(texts[i]), h);
    return h.lo;
}

static bool grow_table(void) {
    const size_t n = seen.n_table ? seen.n_table * 2 : 256;
    int32_t *table = ct__malloc(n * sizeof *table);
    if (!table) return false;
    memset(table, -1, n * sizeof *table);
    for (size_t i = 0; i < seen.n_rows; i++) {
        size_t at = hash_of(&seen.rows[i].what) & (n - 1);
        while (table[at] >= 0) at = (at + 1) & (n - 1);
        table[at] = (int32_t)i;
    }
    ct__free(seen.table);
    seen.table = table;
    seen.n_table = n;
    return true;
}

// The row of such spans, a new one where there is none. NULL: no memory.
static ct_span_row *row_of(const ct_span_what *what) {
    if (seen.n_rows * 2 >= seen.n_table && !grow_table()) return NULL;
    size_t at = hash_of(what) & (seen.n_table - 1);
    for (; seen.table[at] >= 0; at = (at + 1) & (seen.n_table - 1)) {
        ct_span_row *row = &seen.rows[seen.table[at]];
        if (row->what.kind == what->kind && row->what.line == what->line &&
            same_text(row->what.name, what->name) && same_text(row->what.file, what->file) &&
            same_text(row->what.device, what->device))
            return row;
    }
    if (!CT_GROW(seen.rows, seen.rows_cap, seen.n_rows + 1)) return NULL;
    ct_span_row *row = &seen.rows[seen.n_rows];
    *row = (ct_span_row){.what = *what};
    row->what.name = ct__arena_str(&seen.texts, what->name);
    row->what.device = ct__arena_str(&seen.texts, what->device);
    row->what.file = what->file ? ct__arena_str(&seen.texts, what->file) : NULL;
    if (!row->what.name || !row->what.device || (what->file && !row->what.file)) return NULL;
    seen.table[at] = (int32_t)seen.n_rows++;
    return row;
}

void ct__span_add(const ct_span_what *what, int64_t begin, double bytes, double flops) {
    const int64_t end = ct__span_now();
    const uint32_t thread = thread_number();
    pthread_mutex_lock(&lock);
    ct_span_row *row = begin >= seen.begin && seen.begin ? row_of(what) : NULL;
    if (row) {
        const int64_t ns = end - begin;
        if (!row->calls || ns < row->least) row->least = ns;
        if (ns > row->most) row->most = ns;
        row->calls++;
        row->total += ns;
        row->bytes += bytes;
        row->flops += flops;
    }
    if (row && seen.n_spans < MOST_SPANS && CT_GROW(seen.spans, seen.spans_cap, seen.n_spans + 1))
        seen.spans[seen.n_spans++] =
            (ct_span){(uint32_t)(row - seen.rows), thread, begin - seen.begin, end - seen.begin};
    else
        seen.left_out++;
    pthread_mutex_unlock(&lock);
}

void ct__span_memory_now(uint64_t bytes) {
    const int64_t at = ct__span_now();
    pthread_mutex_lock(&lock);
    if (seen.begin && seen.n_memory < MOST_MEMORY &&
        CT_GROW(seen.memory, seen.memory_cap, seen.n_memory + 1))
        seen.memory[seen.n_memory++] = (ct_span_memory){at - seen.begin, bytes};
    pthread_mutex_unlock(&lock);
}
