// Launches that do not need each other as one: a BATCH.
//
// A launch moves forward into an earlier batch if everything that it needs, or would disturb, has run
// before that. What a batch makes lives through all of it, so those join that make few temporaries:
// updates of variables, sums over gradients. Nothing crosses a loop or a choice, and no update of a variable a call
// that may end the run. Kernels and their arguments stay what they were, and so do all bits.
#include <string.h>

#include "compile/passes/env.h"
#include "compile/schedule/batch.h"

// Bytes of temporaries that a launch of a batch makes at most, or one in so many of what it reads.
enum { FEW = 1024, SMALL_PART = 256 };

// Where launches run is counted from 1; those of a batch share their place.
typedef struct {
    ct_program *p;
    const ct_graph *graph;
    uint32_t *same_as;      // (n_bufs) the first buffer that is the same storage
    size_t *written, *read; // (n_bufs) the last place where it is; 0: nowhere
    size_t *place;          // (n_launches)
    size_t *members;        // (n_launches + 1) by place
    size_t *begun;          // (n_begun) places that others can join, in order
    size_t n_begun, n_places;
    size_t called; // the last place of a call
} batching;

// A variable's new value lies where its old one does.
static void note_storages(const batching *b, const ct_graph *graph, uint32_t *of_leaf,
                          uint32_t *of_root) {
    const ct_program *p = b->p;
    for (size_t i = 0; i < graph->n_leaves; i++) of_leaf[i] = UINT32_MAX;
    for (size_t i = 0; i < graph->n_roots; i++) of_root[i] = UINT32_MAX;
    for (size_t i = 0; i < p->n_bufs; i++)
        if (p->bufs[i].kind == CT_BUF_LEAF) of_leaf[p->bufs[i].index] = (uint32_t)i;
    for (size_t i = 0; i < p->n_bufs; i++) {
        const ct_buf *buf = &p->bufs[i];
        b->same_as[i] = (uint32_t)i;
        if (buf->kind != CT_BUF_ROOT) continue;
        const int32_t leaf = graph->roots[buf->index].leaf;
        if (graph->roots[buf->index].kind == CT_ROOT_ASSIGN && leaf >= 0 &&
            of_leaf[leaf] != UINT32_MAX)
            of_root[buf->index] = of_leaf[leaf];
        if (of_root[buf->index] == UINT32_MAX) of_root[buf->index] = (uint32_t)i;
        b->same_as[i] = of_root[buf->index];
    }
}

static bool can_join(const ct_program *p, const ct_launch *l) {
    size_t made = 0, read = 0;
    if (l->kind != CT_LAUNCH_KERNEL && l->kind != CT_LAUNCH_COPY) return false;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const ct_buf *buf = &p->bufs[l->args[a].buf];
        if (!l->args[a].write && !ct__marked(buf->size)) read += buf->bytes;
        if (!l->args[a].write || buf->kind != CT_BUF_TEMP) continue;
        if (ct__marked(buf->size)) return false; // no choice rests on a length
        made += buf->bytes;
    }
    return made <= FEW || made <= read / SMALL_PART;
}

// The last place of what must run before a launch.
static size_t place_before(const batching *b, const ct_launch *l) {
    size_t last = 0;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const uint32_t buf = b->same_as[l->args[a].buf];
        if (b->written[buf] > last) last = b->written[buf];
        if (!l->args[a].write) continue;
        if (b->read[buf] > last) last = b->read[buf];
        const ct_buf *own = &b->p->bufs[l->args[a].buf];
        const bool assigns =
            own->kind == CT_BUF_ROOT && b->graph->roots[own->index].kind == CT_ROOT_ASSIGN;
        if (assigns && b->called > last) last = b->called;
    }
    return last;
}

// The first batch behind a place; 0: none.
static size_t batch_behind(const batching *b, size_t place) {
    size_t low = 0, high = b->n_begun;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (b->begun[middle] > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low < b->n_begun ? b->begun[low] : 0;
}

static void choose_place(batching *b, size_t at, bool inside) {
    const ct_launch *l = &b->p->launches[at];
    const bool joins = !inside && can_join(b->p, l);
    size_t place = joins ? batch_behind(b, place_before(b, l)) : 0;
    if (!place) {
        place = ++b->n_places;
        if (joins) b->begun[b->n_begun++] = place;
    }
    b->place[at] = place;
    if (l->kind == CT_LAUNCH_NODE) b->called = place;
    b->members[place]++;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const uint32_t buf = b->same_as[l->args[a].buf];
        size_t *last = l->args[a].write ? &b->written[buf] : &b->read[buf];
        if (place > *last) *last = place;
    }
}

static void choose_places(batching *b) {
    size_t depth = 0;
    for (size_t i = 0; i < b->p->n_launches; i++) {
        const ct_launch_kind kind = b->p->launches[i].kind;
        depth += kind == CT_LAUNCH_LOOP || kind == CT_LAUNCH_SWITCH;
        if (depth) b->n_begun = 0;
        choose_place(b, i, depth > 0);
        depth -= kind == CT_LAUNCH_END;
    }
}

static void add_markers(const batching *b, ct_launch *launches) {
    for (size_t place = 1, at = 0; place <= b->n_places; place++) {
        const size_t n = b->members[place];
        if (n > 1) {
            launches[at] = (ct_launch){
                .kind = CT_LAUNCH_BATCH, .node = launches[at + 1].node, .count = (int64_t)n};
            launches[at + n + 1] = (ct_launch){.kind = CT_LAUNCH_END};
        }
        at += n > 1 ? n + 2 : n;
    }
}

// The launches in the order of their places, each batch between its marker and an END.
static bool put_in_batches(batching *b) {
    ct_program *p = b->p;
    size_t *next = b->begun, n = 0; // (n_places + 1) where the next launch of a place goes
    for (size_t place = 1; place <= b->n_places; place++) {
        const bool many = b->members[place] > 1;
        next[place] = n + many;
        n += b->members[place] + (many ? 2 : 0);
    }
    if (b->n_places == p->n_launches) return true; // none
    ct_launch *launches = ct__calloc(n, sizeof *launches);
    if (!launches) return false;
    for (size_t i = 0; i < p->n_launches; i++) {
        ct_launch *to = &launches[next[b->place[i]]++];
        *to = p->launches[i];
        to->batched = b->members[b->place[i]] > 1;
    }
    add_markers(b, launches);
    ct__free(p->launches);
    p->launches = launches;
    p->n_launches = p->launches_cap = n;
    return true;
}

bool ct__batch_launches(ct_program *p, const ct_graph *graph, ct_err *err) {
    const size_t n = p->n_launches + 1, n_bufs = p->n_bufs + 1;
    batching b = {.p = p,
                  .graph = graph,
                  .same_as = ct__calloc(n_bufs, sizeof *b.same_as),
                  .written = ct__calloc(n_bufs, sizeof *b.written),
                  .read = ct__calloc(n_bufs, sizeof *b.read),
                  .place = ct__calloc(n, sizeof *b.place),
                  .members = ct__calloc(n, sizeof *b.members),
                  .begun = ct__calloc(n, sizeof *b.begun)};
    uint32_t *of_leaf = ct__calloc(graph->n_leaves + 1, sizeof *of_leaf);
    uint32_t *of_root = ct__calloc(graph->n_roots + 1, sizeof *of_root);
    bool ok =
        b.same_as && b.written && b.read && b.place && b.members && b.begun && of_leaf && of_root;
    if (ok && ct__env_fuses()) {
        note_storages(&b, graph, of_leaf, of_root);
        choose_places(&b);
        ok = put_in_batches(&b);
    }
    ct__free(b.same_as);
    ct__free(b.written);
    ct__free(b.read);
    ct__free(b.place);
    ct__free(b.members);
    ct__free(b.begun);
    ct__free(of_leaf);
    ct__free(of_root);
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", n * sizeof(ct_launch));
}
