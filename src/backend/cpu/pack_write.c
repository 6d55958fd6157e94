// Makes a pack: compiles the kernels of each level and writes the file.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cache.h"
#include "backend/cpu/cc.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/prelude.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/atomic.h"

enum { GROUP_KERNELS = 24, GROUP_BYTES = 1 << 20 }; // kernels per compiler; disk space per compiler

bool ct__pack_add_text(ct_pack_texts *t, const char *name, const char *text, ct_err *err) {
    const ct_hash key = ct__pack_key(text);
    for (size_t i = 0; i < t->n; i++)
        if (ct__hash_equal(t->v[i].key, key)) return true;
    if (!CT_GROW(t->v, t->cap, t->n + 1))
        return ct__err_memory(err, CT_NOWHERE, "kernels", sizeof *t->v);
    struct ct_pack_text *to = &t->v[t->n];
    *to = (struct ct_pack_text){.name = ct__strdup(name), .text = ct__strdup(text), .key = key};
    if (to->name && to->text) return ++t->n;
    ct__free(to->name);
    ct__free(to->text);
    return ct__err_memory(err, CT_NOWHERE, "kernels", strlen(text));
}

void ct__pack_texts_free(ct_pack_texts *t) {
    for (size_t i = 0; i < t->n; i++) {
        ct__free(t->v[i].name);
        ct__free(t->v[i].text);
    }
    ct__free(t->v);
    *t = (ct_pack_texts){0};
}

// ----------------------------------------------------------------------------------------- compiling

typedef struct {
    const ct_pack_job *job;
    ct_cc cc;
    char folder[4096];
    int64_t done, all;
} work;

static bool pack_write_group(const work *w, int group, const struct ct_pack_text *v, size_t n,
                             ct_err *err) {
    char path[4200];
    CT_TEXT text = {0};
    const char *texts[GROUP_KERNELS];
    for (size_t i = 0; i < n; i++) texts[i] = v[i].text;
    ct__prelude_add(&text, texts, n);
    for (size_t i = 0; i < n; i++) ct__text_add(&text, v[i].text);
    snprintf(path, sizeof path, "%s/g%d.c", w->folder, group);
    return text.failed ? ct__err_memory(err, CT_NOWHERE, "kernels", text.n)
                       : ct__file_replace(path, text.s, text.n, 0600, err);
}

static bool pack_add_group(const work *w, int group, const struct ct_pack_text *v, size_t n,
                           ct_pack_span *span, ct_err *err) {
    char path[4200], *bytes = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/g%d.so", w->folder, group);
    const bool ok = ct__file_read(path, &bytes, &size, err) &&
                    ct__pack_add_object(span, bytes, size, v, n, err);
    ct__free(bytes);
    return ok;
}

// Runs as many compilers at once as there are threads.
static bool pack_compile(work *w, const ct_pack_texts *t, ct_pack_span *span, ct_err *err) {
    const size_t threads = w->job->threads > 0 ? (size_t)w->job->threads : 1;
    size_t each = (t->n + threads - 1) / threads;
    if (each > GROUP_KERNELS) each = GROUP_KERNELS;
    for (size_t at = 0; at < t->n;) {
        const size_t begin = at;
        int groups = 0;
        for (; at < t->n && (size_t)groups < threads; at += each, groups++)
            if (!pack_write_group(w, groups, t->v + at, t->n - at < each ? t->n - at : each, err))
                return false;
        if (at > t->n) at = t->n;
        if (!ct__cc_run(&w->cc, w->folder, groups, err)) return false;
        for (int g = 0; g < groups; g++) {
            const size_t from = begin + (size_t)g * each, n = at - from < each ? at - from : each;
            if (!pack_add_group(w, g, t->v + from, n, span, err)) return false;
        }
        w->done += (int64_t)(at - begin);
        if (w->job->progress) w->job->progress(w->done, w->all, w->job->user);
    }
    return true;
}

static int pack_order_by_key(const void *a, const void *b) {
    const ct_hash x = ((const ct_pack_kernel *)a)->key, y = ((const ct_pack_kernel *)b)->key;
    return x.hi != y.hi ? (x.hi < y.hi ? -1 : 1) : x.lo < y.lo ? -1 : x.lo > y.lo;
}

// ------------------------------------------------------------------------------------------- writing

static void pack_free_span(ct_pack_span *s) {
    ct__text_free(&s->kernels);
    ct__text_free(&s->segments);
    ct__text_free(&s->relocations);
    ct__text_free(&s->imports);
    ct__text_free(&s->code);
}

// Appends the section to the file.
static bool pack_add_section(ct_pack_span *s, ct_text *file, ct_pack_level *level, ct_err *err) {
    const ct_text *const tables[] = {&s->kernels, &s->segments, &s->relocations, &s->imports};
    size_t code_at = sizeof s->section;
    bool ok = !s->code.failed && !file->failed;
    for (size_t i = 0; i < 4; i++) {
        code_at += tables[i]->n;
        ok = ok && !tables[i]->failed;
    }
    if (!ok) return ct__err_memory(err, CT_NOWHERE, "kernels", s->code.n);
    if (s->kernels.n)
        qsort(s->kernels.s, s->section.n_kernels, sizeof(ct_pack_kernel), pack_order_by_key);
    for (uint64_t i = 0; i < s->section.n_segments; i++)
        ((ct_pack_segment *)(void *)s->segments.s)[i].from += code_at;
    while (file->n % 8) ct__text_bytes(file, "", 1);
    level->begin = file->n;
    ct__text_bytes(file, &s->section, sizeof s->section);
    for (size_t i = 0; i < 4; i++)
        if (tables[i]->n) ct__text_bytes(file, tables[i]->s, tables[i]->n);
    if (s->code.n) ct__text_bytes(file, s->code.s, s->code.n);
    if (file->failed) return ct__err_memory(err, CT_NOWHERE, "kernels", s->code.n);
    level->bytes = file->n - level->begin;
    level->hash = ct__hash_bytes(file->s + level->begin, level->bytes, (ct_hash){0, 0});
    return true;
}

static bool pack_add_level(work *w, int level, ct_text *file, ct_pack_level *to, ct_err *err) {
    ct_pack_span span = {0};
    const ct_pack_texts *t = &w->job->texts[level];
    w->cc.options = ct__levels[level].options;
    const bool ok = pack_compile(w, t, &span, err) && pack_add_section(&span, file, to, err);
    pack_free_span(&span);
    return ok;
}

static bool pack_write_levels(work *w, int n, ct_text *file, ct_err *err) {
    ct_pack_header header;
    ct_pack_level levels[CT_PACK_LEVELS] = {0};
    ct__pack_identity(&header);
    header.n_levels = (uint64_t)n;
    ct__text_bytes(file, &header, sizeof header);
    ct__text_bytes(file, levels, (size_t)n * sizeof *levels);
    for (int i = 0; i < n; i++) {
        const bool pairs = ct__levels[i].target.pairs;
        levels[i] = (ct_pack_level){.level = (uint32_t)i, .cores = w->job->cores};
        levels[i].pairs = !w->job->pairs ? CT_PAIRS_ANY : pairs ? CT_PAIRS_WITH : CT_PAIRS_WITHOUT;
        if (!pack_add_level(w, i, file, &levels[i], err)) return false;
    }
    header.bytes = file->n;
    memcpy(file->s + sizeof header, levels, (size_t)n * sizeof *levels);
    memcpy(file->s, &header, sizeof header);
    header.hash = ct__pack_header_hash((const ct_pack_header *)(const void *)file->s);
    memcpy(file->s, &header, sizeof header);
    return true;
}

bool ct__pack_write(const ct_pack_job *job, const char *path, size_t *kernels, size_t *bytes,
                    ct_err *err) {
    work w = {.job = job};
    ct_cache cache;
    CT_TEXT file = {0};
    const int n =
        CT_PACK_LEVELS -
        !job->pairs; // without products of pairs, the last level would equal the one before
    for (int i = 0; i < n; i++) w.all += (int64_t)job->texts[i].n;
    if (!ct__cc_find(&w.cc, err) || !ct__cache_open(&cache, err)) return false;
    const char *refused =
        ct__cache_make_work_folder(&cache, (uint64_t)job->threads * GROUP_BYTES, w.folder);
    if (refused)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, "kernels", "no folder to compile kernels in: %s",
                       refused);
    bool ok = pack_write_levels(&w, n, &file, err);
    ct__cache_remove_work_folder(w.folder);
    ok = ok && ct__file_replace(path, file.s, file.n, 0644, err);
    *kernels = (size_t)w.all;
    *bytes = file.n;
    return ok;
}
