// Offsets of temporary buffers in the plan's arena: buffers whose lifetimes do not overlap share memory.
//
// Greedy by size: largest first, each at the lowest offset that is free for its whole lifetime. (First come,
// first served needs up to a third more for a training step; the optimum is NP-hard.)
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "compile/memory/memplan.h"
#include "compile/schedule/program.h"

enum {
    MEMPLAN_MAX_STACKED = 4000, // with more buffers the stacking is not recorded
    MEMPLAN_MAX_BY_SIZE = 32768 // with more, placing by size would take seconds
};

typedef struct memplan_lifetime {
    uint32_t buf;
    size_t first, last; // launches that use it
    size_t bytes, offset;
} memplan_lifetime;

// Extends lifetimes to a whole loop for buffers that an iteration reads from the previous one or from
// before the loop, and for those that are read after it. A buffer that each iteration writes before reading
// it is local.
static void memplan_widen_to_loop(const ct_program *p, size_t from, size_t to,
                                  const bool *read_first, size_t *first, size_t *last) {
    for (size_t b = 0; b < p->n_bufs; b++) {
        if (last[b] < from || first[b] > to) continue;
        bool is_local = first[b] > from && last[b] < to && !read_first[b];
        if (is_local) continue;
        if (first[b] > from) first[b] = from;
        if (last[b] < to) last[b] = to;
    }
}

// begin: (n_launches) scratch.
static void memplan_widen_to_loops(const ct_program *p, size_t *begin, const bool *read_first,
                                   size_t *first, size_t *last) {
    size_t depth = 0;
    for (size_t i = 0; i < p->n_launches; i++) {
        ct_launch_kind kind = p->launches[i].kind;
        if (kind == CT_LAUNCH_LOOP || kind == CT_LAUNCH_SWITCH || kind == CT_LAUNCH_BATCH)
            begin[depth++] = i;
        if (kind != CT_LAUNCH_END || depth == 0) continue;
        size_t from = begin[--depth];
        if (p->launches[from].kind == CT_LAUNCH_LOOP)
            memplan_widen_to_loop(p, from, i, read_first, first, last);
    }
}

bool ct__plan_lifetimes(const ct_program *p, size_t *first, size_t *last, ct_err *err) {
    size_t *begin = ct__malloc((p->n_launches + 1) * sizeof *begin);
    bool *read_first = ct__calloc(p->n_bufs + 1, sizeof *read_first);
    bool ok = begin && read_first;
    for (size_t b = 0; b < p->n_bufs && ok; b++) first[b] = SIZE_MAX, last[b] = 0;
    size_t from = 0, to = 0; // range of the current batch: its launches may run concurrently
    for (size_t i = 0; i < p->n_launches && ok; i++) {
        if (p->launches[i].kind == CT_LAUNCH_BATCH)
            from = i, to = i + (size_t)p->launches[i].count + 1;
        const bool batched = i < to;
        for (uint32_t a = 0; a < p->launches[i].n_args; a++) {
            const ct_arg *arg = &p->launches[i].args[a];
            if (first[arg->buf] == SIZE_MAX) first[arg->buf] = batched ? from : i;
            last[arg->buf] = batched ? to : i;
            read_first[arg->buf] |= first[arg->buf] == i && !arg->write;
        }
    }
    if (ok) memplan_widen_to_loops(p, begin, read_first, first, last);
    ct__free(begin);
    ct__free(read_first);
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", (p->n_launches + 1) * sizeof *begin);
}

static int memplan_compare_bytes(const void *a, const void *b) {
    const memplan_lifetime *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

static bool memplan_overlap(const memplan_lifetime *a, const memplan_lifetime *b) {
    return a->first <= b->last && b->first <= a->last;
}

// A placed buffer. `placed` below is ordered by offset.
typedef struct {
    uint32_t first, last;
    size_t begin, end;
} memplan_interval;

// Returns the lowest offset with a gap for x between the placed buffers with which it overlaps in time, or
// above them.
static size_t memplan_lowest_gap(const memplan_interval *placed, size_t n,
                                 const memplan_lifetime *x) {
    size_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const memplan_interval *p = &placed[i];
        if (p->first > x->last || p->last < x->first) continue;
        if (p->begin >= top && p->begin - top >= x->bytes) break;
        if (p->end > top) top = p->end;
    }
    return top;
}

// Returns the index of the first of n intervals that begins at `begin` or later.
static size_t memplan_find_position(const memplan_interval *placed, size_t n, size_t begin) {
    size_t low = 0;
    while (low < n) {
        const size_t middle = low + (n - low) / 2;
        if (placed[middle].begin < begin)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

// placed: capacity for n. Returns the arena's size.
static size_t memplan_place_by_size(memplan_lifetime *lives, size_t n, memplan_interval *placed) {
    size_t top = 0;
    if (n > 1) qsort(lives, n, sizeof *lives, memplan_compare_bytes);
    for (size_t i = 0; i < n; i++) {
        memplan_lifetime *x = &lives[i];
        x->offset = memplan_lowest_gap(placed, i, x);
        const size_t end = x->offset + x->bytes, at = memplan_find_position(placed, i, x->offset);
        memmove(&placed[at + 1], &placed[at], (i - at) * sizeof *placed);
        placed[at] = (memplan_interval){(uint32_t)x->first, (uint32_t)x->last, x->offset, end};
        if (end > top) top = end;
    }
    return top;
}

// ------------------------------------------------------------------------------ very many buffers
// In order of time, each takes the smallest gap that is large enough (best fit).

static int memplan_compare_first(const void *a, const void *b) {
    const memplan_lifetime *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}
static int memplan_compare_last(const void *a, const void *b) {
    const memplan_lifetime *x = *(memplan_lifetime *const *)a, *y = *(memplan_lifetime *const *)b;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

// gap: (n) free intervals below the top, in order. Adds one and merges it with its neighbours.
static size_t memplan_free_interval(memplan_interval *gap, size_t n, size_t begin, size_t end) {
    const size_t at = memplan_find_position(gap, n, begin);
    const bool below = at && gap[at - 1].end == begin, above = at < n && gap[at].begin == end;
    if (below && above) {
        gap[at - 1].end = gap[at].end;
        memmove(&gap[at], &gap[at + 1], (n - at - 1) * sizeof *gap);
        return n - 1;
    }
    if (below) {
        gap[at - 1].end = end;
    } else if (above) {
        gap[at].begin = begin;
    } else {
        memmove(&gap[at + 1], &gap[at], (n - at) * sizeof *gap);
        gap[at] = (memplan_interval){.begin = begin, .end = end};
        n++;
    }
    return n;
}

// ends: capacity for n. Returns the arena's size.
static size_t memplan_place_by_time(memplan_lifetime *lives, size_t n, memplan_interval *gap,
                                    const memplan_lifetime **ends) {
    size_t top = 0, n_freed = 0, n_gaps = 0;
    qsort(lives, n, sizeof *lives, memplan_compare_first);
    for (size_t i = 0; i < n; i++) ends[i] = &lives[i];
    qsort(ends, n, sizeof *ends, memplan_compare_last);
    for (size_t i = 0; i < n; i++) {
        for (; ends[n_freed]->last < lives[i].first; n_freed++)
            n_gaps = memplan_free_interval(gap, n_gaps, ends[n_freed]->offset,
                                           ends[n_freed]->offset + ends[n_freed]->bytes);
        size_t best = n_gaps;
        for (size_t g = 0; g < n_gaps; g++) {
            const size_t gap_bytes = gap[g].end - gap[g].begin;
            if (gap_bytes >= lives[i].bytes &&
                (best == n_gaps || gap_bytes < gap[best].end - gap[best].begin))
                best = g;
        }
        if (best == n_gaps) {
            lives[i].offset = top;
            top += lives[i].bytes;
            continue;
        }
        lives[i].offset = gap[best].begin;
        gap[best].begin += lives[i].bytes;
        if (gap[best].begin < gap[best].end) continue;
        memmove(&gap[best], &gap[best + 1], (n_gaps - best - 1) * sizeof *gap);
        n_gaps--;
    }
    return top;
}

// ----------------------------------------------------------------------------------- other sizes

static int memplan_compare_offset(const void *a, const void *b) {
    const memplan_lifetime *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

// Records which buffers are directly below each one, so that offsets for other sizes are found by adding
// sizes. Buffers that are below one of these are left out.
static bool memplan_record_stacking(ct_program *p, memplan_lifetime *lives, size_t n) {
    ct_stacking *s = &p->stacking;
    size_t words = (n + 63) / 64, cap = 4 * n + 1;
    // (n, n) bits: is below, directly or not
    uint64_t *below_bits = ct__calloc(n * words + 1, sizeof *below_bits);
    s->n = 0;
    s->buf = ct__arena(p->arena, (n + 1) * sizeof *s->buf);
    s->first = ct__arena(p->arena, (n + 1) * sizeof *s->first);
    s->below = ct__arena(p->arena, cap * sizeof *s->below);
    bool ok = below_bits && s->buf && s->first && s->below;
    uint32_t edges = 0;
    if (n > 1) qsort(lives, n, sizeof *lives, memplan_compare_offset);
    for (size_t i = 0; i < n && ok; i++) {
        uint64_t *row = below_bits + i * words;
        s->buf[i] = lives[i].buf;
        s->first[i] = edges;
        for (size_t j = i; j-- > 0 && ok;) {
            if (!memplan_overlap(&lives[j], &lives[i]) || row[j / 64] >> j % 64 & 1) continue;
            if (edges == cap) { // double the capacity
                uint32_t *more = ct__arena(p->arena, 2 * cap * sizeof *more);
                if (!(ok = more != NULL)) break;
                memcpy(more, s->below, edges * sizeof *more);
                s->below = more;
                cap *= 2;
            }
            s->below[edges++] = (uint32_t)j;
            for (size_t w = 0; w < words; w++) row[w] |= below_bits[j * words + w];
            row[j / 64] |= 1ull << j % 64;
        }
    }
    ct__free(below_bits);
    if (!ok) return false;
    s->first[n] = edges;
    s->n = n;
    return true;
}

size_t ct__restack(ct_program *p) {
    const ct_stacking *s = &p->stacking;
    size_t top = 0;
    for (size_t i = 0; i < s->n; i++) {
        ct_buf *buf = &p->bufs[s->buf[i]];
        buf->offset = 0;
        for (uint32_t e = s->first[i]; e < s->first[i + 1]; e++) {
            const ct_buf *below = &p->bufs[s->buf[s->below[e]]];
            const size_t end = below->offset + ct__round_up(below->bytes + p->guard, 64);
            if (end > buf->offset) buf->offset = end;
        }
        const size_t end = buf->offset + ct__round_up(buf->bytes + p->guard, 64);
        if (end > top) top = end;
    }
    return top;
}

bool ct__plan_memory(ct_program *p, ct_err *err) {
    memplan_lifetime *lives = ct__calloc(p->n_bufs + 1, sizeof *lives);
    memplan_interval *placed = ct__calloc(p->n_bufs + 1, sizeof *placed);
    const memplan_lifetime **ends = ct__calloc(p->n_bufs + 1, sizeof *ends);
    size_t *first = ct__malloc((p->n_bufs + 1) * sizeof *first), n = 0;
    size_t *last = ct__malloc((p->n_bufs + 1) * sizeof *last);
    bool ok = lives && placed && ends && first && last;
    if (!ok) ct__err_memory(err, CT_NOWHERE, "plan", (p->n_bufs + 1) * sizeof *lives);
    ok = ok && ct__plan_lifetimes(p, first, last, err);
    for (size_t b = 0; b < p->n_bufs && ok; b++) {
        if (p->bufs[b].kind != CT_BUF_TEMP) continue;
        p->bufs[b].offset = 0;
        if (first[b] == SIZE_MAX) continue;
        lives[n++] = (memplan_lifetime){.buf = (uint32_t)b,
                                        .first = first[b],
                                        .last = last[b],
                                        .bytes = ct__round_up(p->bufs[b].bytes + p->guard, 64)};
    }
    if (ok)
        p->arena_bytes = n <= MEMPLAN_MAX_BY_SIZE ? memplan_place_by_size(lives, n, placed)
                                                  : memplan_place_by_time(lives, n, placed, ends);
    for (size_t i = 0; i < n; i++) p->bufs[lives[i].buf].offset = lives[i].offset;
    p->stacking.n = 0;
    if (ok && n && n <= MEMPLAN_MAX_STACKED && p->symbols && ct__symbols_count(p->symbols) &&
        !memplan_record_stacking(p, lives, n))
        ok = ct__err_memory(err, CT_NOWHERE, "plan", n * n / 8);
    ct__free(lives);
    ct__free(placed);
    ct__free(ends);
    ct__free(first);
    ct__free(last);
    return ok;
}
