// Snapshots of device memory: which tensors it holds.
#include "cotan/memory.h"

#include <stdlib.h>
#include <string.h>

#include "backend/memory.h"
#include "graph/allocation_registry.h"

enum { SNAPSHOT_MAX_ROWS = 20 };

typedef struct snapshot {
    ct_memory_snapshot public; // first
    ct_memory_row *rows;
    size_t n, cap;
    ct_arena arena; // of the strings
    ct_text table;
} snapshot;

static bool snapshot_copy_row(snapshot *s, ct_memory_row row) {
    if (!CT_GROW(s->rows, s->cap, s->n + 1)) return false;
    if (row.here.file) row.here.file = ct__arena_str(&s->arena, row.here.file);
    if (row.used_at.file) row.used_at.file = ct__arena_str(&s->arena, row.used_at.file);
    row.op = ct__arena_str(&s->arena, row.op);
    row.name = ct__arena_str(&s->arena, row.name);
    row.type = ct__arena_str(&s->arena, row.type);
    s->rows[s->n++] = row;
    return row.op && row.name && row.type;
}

static bool snapshot_add_storage(const ct_storage *storage, const ct_alloc_info *note, void *user) {
    const ct_device *device = storage->owner;
    // being initialised, or only planned (a dry run)
    if (!device || device->account != &ct__account) return true;
    if (!note)
        return snapshot_copy_row(
            user,
            (ct_memory_row){.op = "", .name = "", .type = "", .bytes = storage->bytes, .count = 1});
    return snapshot_copy_row(user, (ct_memory_row){.here = note->here,
                                                   .used_at = note->wanted,
                                                   .op = note->op ? note->op : "variable",
                                                   .name = note->name,
                                                   .type = ct__type_text(&note->type).s,
                                                   .bytes = storage->bytes,
                                                   .count = 1});
}

static int snapshot_compare_locs(ct_loc a, ct_loc b) {
    const int files = strcmp(a.file ? a.file : "", b.file ? b.file : "");
    return files ? files : (a.line > b.line) - (a.line < b.line);
}

static int snapshot_compare_keys(const void *a_, const void *b_) {
    const ct_memory_row *a = a_, *b = b_;
    int order = snapshot_compare_locs(a->here, b->here);
    if (!order) order = snapshot_compare_locs(a->used_at, b->used_at);
    if (!order) order = strcmp(a->op, b->op);
    return order ? order : strcmp(a->type, b->type);
}

static int snapshot_compare_bytes(const void *a_, const void *b_) {
    const ct_memory_row *a = a_, *b = b_;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes)
                                : snapshot_compare_keys(a, b);
}

static void snapshot_merge_rows(snapshot *s) {
    size_t n = 0;
    if (s->n) qsort(s->rows, s->n, sizeof *s->rows, snapshot_compare_keys);
    for (size_t i = 0; i < s->n; i++) {
        if (!n || snapshot_compare_keys(&s->rows[n - 1], &s->rows[i]) != 0) {
            s->rows[n++] = s->rows[i];
            continue;
        }
        s->rows[n - 1].bytes += s->rows[i].bytes;
        s->rows[n - 1].count += s->rows[i].count;
    }
    s->n = n;
}

static ct_memory_snapshot *snapshot_finish(snapshot *s, bool ok) {
    if (!ok) {
        ct_ctx *ctx = ct__ctx();
        if (ctx) ct__err_memory(&ctx->err, CT_NOWHERE, "memory_snapshot", sizeof *s->rows);
        if (s) ct_memory_snapshot_free(&s->public);
        return NULL;
    }
    if (s->n) qsort(s->rows, s->n, sizeof *s->rows, snapshot_compare_bytes);
    s->public.rows = s->rows;
    s->public.n_rows = s->n;
    for (size_t i = 0; i < s->n; i++) s->public.values += s->rows[i].bytes;
    return &s->public;
}

ct_memory_snapshot *ct_memory_snapshot_take(void) {
    snapshot *s = ct__calloc(1, sizeof *s);
    const bool ok = s && ct__registry_each(snapshot_add_storage, s);
    if (ok) {
        snapshot_merge_rows(s);
        s->public.arenas = ct__account.now[CT_MEMORY_ARENAS];
        s->public.constants = ct__account.now[CT_MEMORY_CONSTANTS];
        s->public.workspaces = ct__account.now[CT_MEMORY_WORKSPACES];
    }
    return snapshot_finish(s, ok);
}

static uint64_t snapshot_growth(uint64_t after, uint64_t before) {
    return after > before ? after - before : 0;
}

ct_memory_snapshot *ct_memory_snapshot_diff(const ct_memory_snapshot *before,
                                            const ct_memory_snapshot *after) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, before, CT_NOWHERE, "memory_snapshot_diff", "the first snapshot") ||
        !ct__given(ctx, after, CT_NOWHERE, "memory_snapshot_diff", "the second snapshot"))
        return NULL;
    snapshot *s = ct__calloc(1, sizeof *s);
    bool ok = s != NULL;
    for (size_t i = 0; ok && i < after->n_rows; i++) {
        ct_memory_row row = after->rows[i];
        for (size_t k = 0; k < before->n_rows; k++) {
            if (snapshot_compare_keys(&row, &before->rows[k]) != 0) continue;
            row.bytes = snapshot_growth(row.bytes, before->rows[k].bytes);
            row.count = snapshot_growth(row.count, before->rows[k].count);
            break;
        }
        if (row.bytes || row.count) ok = snapshot_copy_row(s, row);
    }
    if (ok) {
        s->public.arenas = snapshot_growth(after->arenas, before->arenas);
        s->public.constants = snapshot_growth(after->constants, before->constants);
        s->public.workspaces = snapshot_growth(after->workspaces, before->workspaces);
    }
    return snapshot_finish(s, ok);
}

static void snapshot_write_row(ct_text *text, const ct_memory_row *row) {
    ct__textf(text, "%10s %7llu  %s", ct__bytes_text(row->bytes).s, (unsigned long long)row->count,
              *row->op ? row->op : "not known");
    if (*row->type) ct__textf(text, " %s", row->type);
    if (*row->name) ct__textf(text, " \"%s\"", row->name);
    if (row->here.file) ct__textf(text, " of %s:%u", row->here.file, row->here.line);
    if (row->used_at.file && snapshot_compare_locs(row->here, row->used_at) != 0)
        ct__textf(text, ", used at %s:%u", row->used_at.file, row->used_at.line);
    ct__text_add(text, "\n");
}

const char *ct_memory_table(ct_memory_snapshot *snapshot_) {
    snapshot *s = (snapshot *)snapshot_;
    if (!s) return "";
    ct__text_free(&s->table);
    s->table = (ct_text){0};
    ct__textf(&s->table, "%10s %7s  what, and the lines that recorded it and asked for it\n",
              "bytes", "tensors");
    for (size_t i = 0; i < s->n && i < SNAPSHOT_MAX_ROWS; i++)
        snapshot_write_row(&s->table, &s->rows[i]);
    uint64_t rest = 0, count = 0;
    for (size_t i = SNAPSHOT_MAX_ROWS; i < s->n; i++)
        rest += s->rows[i].bytes, count += s->rows[i].count;
    if (count)
        ct__textf(&s->table, "%10s %7llu  of %zu rows more\n", ct__bytes_text(rest).s,
                  (unsigned long long)count, s->n - SNAPSHOT_MAX_ROWS);
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
