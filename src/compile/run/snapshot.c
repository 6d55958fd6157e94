// What the memory of devices is taken by.
#include "cotan/memory.h"

#include <stdlib.h>
#include <string.h>

#include "backend/memory.h"
#include "graph/live.h"

enum { MOST_SHOWN = 20 };

typedef struct snapshot {
    ct_memory_snapshot public; // first
    ct_memory_row *rows;
    size_t n, cap;
    ct_arena arena; // of the texts
    ct_text table;
} snapshot;

static bool copy_row(snapshot *s, ct_memory_row row) {
    if (!CT_GROW(s->rows, s->cap, s->n + 1)) return false;
    if (row.here.file) row.here.file = ct__arena_str(&s->arena, row.here.file);
    if (row.wanted.file) row.wanted.file = ct__arena_str(&s->arena, row.wanted.file);
    row.what = ct__arena_str(&s->arena, row.what);
    row.name = ct__arena_str(&s->arena, row.name);
    row.type = ct__arena_str(&s->arena, row.type);
    s->rows[s->n++] = row;
    return row.what && row.name && row.type;
}

static bool add_live(const ct_storage *storage, const ct_alloc_info *note, void *user) {
    const ct_device *device = storage->owner;
    if (!device || device->account != &ct__account) return true; // not there yet, or only planned
    if (!note)
        return copy_row(
            user, (ct_memory_row){
                      .what = "", .name = "", .type = "", .bytes = storage->bytes, .count = 1});
    return copy_row(user, (ct_memory_row){.here = note->here,
                                          .wanted = note->wanted,
                                          .what = note->op ? note->op : "variable",
                                          .name = note->name,
                                          .type = ct__type_text(&note->type).s,
                                          .bytes = storage->bytes,
                                          .count = 1});
}

static int compare_locs(ct_loc a, ct_loc b) {
    const int files = strcmp(a.file ? a.file : "", b.file ? b.file : "");
    return files ? files : (a.line > b.line) - (a.line < b.line);
}

static int compare_keys(const void *a_, const void *b_) {
    const ct_memory_row *a = a_, *b = b_;
    int order = compare_locs(a->here, b->here);
    if (!order) order = compare_locs(a->wanted, b->wanted);
    if (!order) order = strcmp(a->what, b->what);
    return order ? order : strcmp(a->type, b->type);
}

static int compare_bytes(const void *a_, const void *b_) {
    const ct_memory_row *a = a_, *b = b_;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes)
                                : compare_keys(a, b);
}

static void join_rows(snapshot *s) {
    size_t n = 0;
    if (s->n) qsort(s->rows, s->n, sizeof *s->rows, compare_keys);
    for (size_t i = 0; i < s->n; i++) {
        if (!n || compare_keys(&s->rows[n - 1], &s->rows[i]) != 0) {
            s->rows[n++] = s->rows[i];
            continue;
        }
        s->rows[n - 1].bytes += s->rows[i].bytes;
        s->rows[n - 1].count += s->rows[i].count;
    }
    s->n = n;
}

static ct_memory_snapshot *finish(snapshot *s, bool ok) {
    if (!ok) {
        ct_ctx *ctx = ct__ctx();
        if (ctx) ct__err_memory(&ctx->err, CT_NOWHERE, "memory_snapshot", sizeof *s->rows);
        if (s) ct_memory_snapshot_free(&s->public);
        return NULL;
    }
    if (s->n) qsort(s->rows, s->n, sizeof *s->rows, compare_bytes);
    s->public.rows = s->rows;
    s->public.n_rows = s->n;
    for (size_t i = 0; i < s->n; i++) s->public.values += s->rows[i].bytes;
    return &s->public;
}

ct_memory_snapshot *ct_memory_snapshot_take(void) {
    snapshot *s = ct__calloc(1, sizeof *s);
    const bool ok = s && ct__registry_each(add_live, s);
    if (ok) {
        join_rows(s);
        s->public.arenas = ct__account.now[CT_MEMORY_ARENAS];
        s->public.constants = ct__account.now[CT_MEMORY_CONSTANTS];
        s->public.workspaces = ct__account.now[CT_MEMORY_WORKSPACES];
    }
    return finish(s, ok);
}

static uint64_t more(uint64_t after, uint64_t before) {
    return after > before ? after - before : 0;
}

ct_memory_snapshot *ct_memory_grown(const ct_memory_snapshot *before,
                                    const ct_memory_snapshot *after) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, before, CT_NOWHERE, "memory_grown", "the first snapshot") ||
        !ct__given(ctx, after, CT_NOWHERE, "memory_grown", "the second snapshot"))
        return NULL;
    snapshot *s = ct__calloc(1, sizeof *s);
    bool ok = s != NULL;
    for (size_t i = 0; ok && i < after->n_rows; i++) {
        ct_memory_row row = after->rows[i];
        for (size_t k = 0; k < before->n_rows; k++) {
            if (compare_keys(&row, &before->rows[k]) != 0) continue;
            row.bytes = more(row.bytes, before->rows[k].bytes);
            row.count = more(row.count, before->rows[k].count);
            break;
        }
        if (row.bytes || row.count) ok = copy_row(s, row);
    }
    if (ok) {
        s->public.arenas = more(after->arenas, before->arenas);
        s->public.constants = more(after->constants, before->constants);
        s->public.workspaces = more(after->workspaces, before->workspaces);
    }
    return finish(s, ok);
}

static void put_row(ct_text *text, const ct_memory_row *row) {
    ct__textf(text, "%10s %7llu  %s", ct__bytes_text(row->bytes).s, (unsigned long long)row->count,
              *row->what ? row->what : "not known");
    if (*row->type) ct__textf(text, " %s", row->type);
    if (*row->name) ct__textf(text, " \"%s\"", row->name);
    if (row->here.file) ct__textf(text, " of %s:%u", row->here.file, row->here.line);
    if (row->wanted.file && compare_locs(row->here, row->wanted) != 0)
        ct__textf(text, ", wanted at %s:%u", row->wanted.file, row->wanted.line);
    ct__text_add(text, "\n");
}

const char *ct_memory_table(ct_memory_snapshot *snapshot_) {
    snapshot *s = (snapshot *)snapshot_;
    if (!s) return "";
    ct__text_free(&s->table);
    s->table = (ct_text){0};
    ct__textf(&s->table, "%10s %7s  what, and the lines that recorded it and asked for it\n",
              "bytes", "tensors");
    for (size_t i = 0; i < s->n && i < MOST_SHOWN; i++) put_row(&s->table, &s->rows[i]);
    uint64_t rest = 0, count = 0;
    for (size_t i = MOST_SHOWN; i < s->n; i++) rest += s->rows[i].bytes, count += s->rows[i].count;
    if (count)
        ct__textf(&s->table, "%10s %7llu  of %zu rows more\n", ct__bytes_text(rest).s,
                  (unsigned long long)count, s->n - MOST_SHOWN);
    const ct_memory_snapshot *p = &s->public;
    ct__textf(&s->table, "%10s          tensors; temporaries %s, constants %s, workspaces %s\n",
              ct__bytes_text(p->values).s, ct__bytes_text(p->arenas).s,
              ct__bytes_text(p->constants).s, ct__bytes_text(p->workspaces).s);
    return s->table.failed ? "" : s->table.s;
}

void ct_memory_snapshot_free(ct_memory_snapshot *snapshot_) {
    snapshot *s = (snapshot *)snapshot_;
    if (!s) return;
    ct__free(s->rows);
    ct__text_free(&s->table);
    ct__arena_free(&s->arena);
    ct__free(s);
}
