// Places of temporary buffers in the plan's arena: buffers whose lives do not meet share memory.
//
// Largest first, each at the lowest place that is free for its whole life. (First come, first
// served needs up to a third more for a training step; an exact answer is NP-hard.)
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "compile/memory/memplan.h"
#include "compile/schedule/program.h"

enum {
    MANY = 4000,     // buffers above which it is not noted what lies above what,
    TOO_MANY = 32768 // and those above which the search by size would take seconds
};

typedef struct life {
    uint32_t buf;
    size_t first, last; // launches that touch it
    size_t bytes, offset;
} life;

// What a launch of a loop needs of the iteration before, or of before the loop, lives through the
// loop, as does what is needed behind it. What an iteration writes before it reads it is its own.
static void widen_to_loop(const ct_program *p, size_t from, size_t to, const bool *read_first,
                          size_t *first, size_t *last) {
    for (size_t b = 0; b < p->n_bufs; b++) {
        if (last[b] < from || first[b] > to) continue;
        bool own = first[b] > from && last[b] < to && !read_first[b];
        if (own) continue;
        if (first[b] > from) first[b] = from;
        if (last[b] < to) last[b] = to;
    }
}

// begin: (n_launches) scratch.
static void widen_to_loops(const ct_program *p, size_t *begin, const bool *read_first,
                           size_t *first, size_t *last) {
    size_t depth = 0;
    for (size_t i = 0; i < p->n_launches; i++) {
        ct_launch_kind kind = p->launches[i].kind;
        if (kind == CT_LAUNCH_LOOP || kind == CT_LAUNCH_SWITCH || kind == CT_LAUNCH_BATCH)
            begin[depth++] = i;
        if (kind != CT_LAUNCH_END || depth == 0) continue;
        size_t from = begin[--depth];
        if (p->launches[from].kind == CT_LAUNCH_LOOP)
            widen_to_loop(p, from, i, read_first, first, last);
    }
}

bool ct__plan_lives(const ct_program *p, size_t *first, size_t *last, ct_err *err) {
    size_t *begin = ct__malloc((p->n_launches + 1) * sizeof *begin);
    bool *read_first = ct__calloc(p->n_bufs + 1, sizeof *read_first);
    bool ok = begin && read_first;
    for (size_t b = 0; b < p->n_bufs && ok; b++) first[b] = SIZE_MAX, last[b] = 0;
    size_t from = 0, to = 0; // of the batch around: its launches may run at once
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
    if (ok) widen_to_loops(p, begin, read_first, first, last);
    ct__free(begin);
    ct__free(read_first);
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", (p->n_launches + 1) * sizeof *begin);
}

static int larger_first(const void *a, const void *b) {
    const life *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

static bool meet(const life *a, const life *b) {
    return a->first <= b->last && b->first <= a->last;
}

// A placed one; `placed` below are these, the lowest first.
typedef struct {
    uint32_t first, last;
    size_t begin, end;
} spot;

// The lowest place with room for x between those of the n placed ones that it meets, or behind them.
static size_t lowest_gap(const spot *placed, size_t n, const life *x) {
    size_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const spot *p = &placed[i];
        if (p->first > x->last || p->last < x->first) continue;
        if (p->begin >= top && p->begin - top >= x->bytes) break;
        if (p->end > top) top = p->end;
    }
    return top;
}

// The place among n in the order of where they begin.
static size_t rank_of(const spot *placed, size_t n, size_t begin) {
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

// placed: room for n. Gives the arena's size.
static size_t by_size(life *lives, size_t n, spot *placed) {
    size_t top = 0;
    if (n > 1) qsort(lives, n, sizeof *lives, larger_first);
    for (size_t i = 0; i < n; i++) {
        life *x = &lives[i];
        x->offset = lowest_gap(placed, i, x);
        const size_t end = x->offset + x->bytes, at = rank_of(placed, i, x->offset);
        memmove(&placed[at + 1], &placed[at], (i - at) * sizeof *placed);
        placed[at] = (spot){(uint32_t)x->first, (uint32_t)x->last, x->offset, end};
        if (end > top) top = end;
    }
    return top;
}

// ------------------------------------------------------------------------------------------------
// for very many: in order of time, each takes the smallest gap that has room when its life begins

static int earlier_first(const void *a, const void *b) {
    const life *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}
static int ends_first(const void *a, const void *b) {
    const life *x = *(life *const *)a, *y = *(life *const *)b;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

// gap: (n) what is free below the top, the lowest first. One more joins those that it touches.
static size_t give_back(spot *gap, size_t n, size_t begin, size_t end) {
    const size_t at = rank_of(gap, n, begin);
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
        gap[at] = (spot){.begin = begin, .end = end};
        n++;
    }
    return n;
}

// ends: room for n. Gives the arena's size.
static size_t by_time(life *lives, size_t n, spot *gap, const life **ends) {
    size_t top = 0, dead = 0, n_gaps = 0;
    qsort(lives, n, sizeof *lives, earlier_first);
    for (size_t i = 0; i < n; i++) ends[i] = &lives[i];
    qsort(ends, n, sizeof *ends, ends_first);
    for (size_t i = 0; i < n; i++) {
        for (; ends[dead]->last < lives[i].first; dead++)
            n_gaps =
                give_back(gap, n_gaps, ends[dead]->offset, ends[dead]->offset + ends[dead]->bytes);
        size_t best = n_gaps;
        for (size_t g = 0; g < n_gaps; g++) {
            const size_t room = gap[g].end - gap[g].begin;
            if (room >= lives[i].bytes &&
                (best == n_gaps || room < gap[best].end - gap[best].begin))
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

// ------------------------------------------------------------------------------- for other sizes

static int lower_first(const void *a, const void *b) {
    const life *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->buf < y->buf ? -1 : x->buf > y->buf;
}

// Which buffers each one lies directly above, so that places for other sizes are found by adding up.
// What is already below one of these is left out.
static bool note_stacking(ct_program *p, life *lives, size_t n) {
    ct_stacking *s = &p->stacking;
    size_t words = (n + 63) / 64, cap = 4 * n + 1;
    uint64_t *under = ct__calloc(n * words + 1, sizeof *under); // (n, n) bits: lies below, somehow
    s->n = 0;
    s->buf = ct__arena(p->arena, (n + 1) * sizeof *s->buf);
    s->first = ct__arena(p->arena, (n + 1) * sizeof *s->first);
    s->below = ct__arena(p->arena, cap * sizeof *s->below);
    bool ok = under && s->buf && s->first && s->below;
    uint32_t edges = 0;
    if (n > 1) qsort(lives, n, sizeof *lives, lower_first);
    for (size_t i = 0; i < n && ok; i++) {
        uint64_t *mine = under + i * words;
        s->buf[i] = lives[i].buf;
        s->first[i] = edges;
        for (size_t j = i; j-- > 0 && ok;) {
            if (!meet(&lives[j], &lives[i]) || mine[j / 64] >> j % 64 & 1) continue;
            if (edges == cap) { // room for twice as many
                uint32_t *more = ct__arena(p->arena, 2 * cap * sizeof *more);
                if (!(ok = more != NULL)) break;
                memcpy(more, s->below, edges * sizeof *more);
                s->below = more;
                cap *= 2;
            }
            s->below[edges++] = (uint32_t)j;
            for (size_t w = 0; w < words; w++) mine[w] |= under[j * words + w];
            mine[j / 64] |= 1ull << j % 64;
        }
    }
    ct__free(under);
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
    life *lives = ct__calloc(p->n_bufs + 1, sizeof *lives);
    spot *placed = ct__calloc(p->n_bufs + 1, sizeof *placed);
    const life **ends = ct__calloc(p->n_bufs + 1, sizeof *ends);
    size_t *first = ct__malloc((p->n_bufs + 1) * sizeof *first), n = 0;
    size_t *last = ct__malloc((p->n_bufs + 1) * sizeof *last);
    bool ok = lives && placed && ends && first && last;
    if (!ok) ct__err_memory(err, CT_NOWHERE, "plan", (p->n_bufs + 1) * sizeof *lives);
    ok = ok && ct__plan_lives(p, first, last, err);
    for (size_t b = 0; b < p->n_bufs && ok; b++) {
        if (p->bufs[b].kind != CT_BUF_TEMP) continue;
        p->bufs[b].offset = 0;
        if (first[b] == SIZE_MAX) continue;
        lives[n++] = (life){.buf = (uint32_t)b,
                            .first = first[b],
                            .last = last[b],
                            .bytes = ct__round_up(p->bufs[b].bytes + p->guard, 64)};
    }
    if (ok)
        p->arena_bytes =
            n <= TOO_MANY ? by_size(lives, n, placed) : by_time(lives, n, placed, ends);
    for (size_t i = 0; i < n; i++) p->bufs[lives[i].buf].offset = lives[i].offset;
    p->stacking.n = 0;
    if (ok && n && n <= MANY && p->symbols && ct__symbols_count(p->symbols) &&
        !note_stacking(p, lives, n))
        ok = ct__err_memory(err, CT_NOWHERE, "plan", n * n / 8);
    ct__free(lives);
    ct__free(placed);
    ct__free(ends);
    ct__free(first);
    ct__free(last);
    return ok;
}
