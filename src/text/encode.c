// Encoding: splits off added tokens, normalizes the rest, splits it into words and tokenizes these
// with the model.
#include <string.h>

#include "text/tokenizer.h"

enum { MAX_TEXT = 1 << 30 };

// --------------------------------------------------------------------------------------- workspace

bool ct__work_add_split(ct_work *w, uint32_t begin, uint32_t end, int32_t token) {
    if (!CT_GROW(w->next.v, w->next.cap, w->next.n + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    w->next.v[w->next.n++] = (ct_split){begin, end, token};
    return true;
}

void ct__work_use_next(ct_work *w) {
    ct_splits done = w->splits;
    w->splits = w->next;
    w->next = done;
    w->next.n = 0;
}

// Initial offsets: each byte comes from its own character.
static bool encode_init_offsets(ct_work *w) {
    ct_aligned *a = &w->buffers[w->which];
    if (!w->tracked || w->view.at) return true;
    if (!CT_GROW(a->at, a->at_cap, w->n + 1)) return ct__tokenizer_memory_error(w->t, w->err);
    for (uint32_t i = 0, used; i < w->n; i += used) {
        ct__char(w->view.s + i, w->n - i, &used);
        for (uint32_t k = i; k < i + used; k++) a->at[k] = (ct_token_span){i, i + used};
    }
    w->view.at = a->at;
    return true;
}

ct_aligned *ct__work_begin_rewrite(ct_work *w) {
    if (!encode_init_offsets(w)) return NULL;
    ct_aligned *to = &w->buffers[!w->which];
    to->n = 0;
    to->failed = false;
    to->tracked = w->tracked;
    w->next.n = 0;
    if (!ct__aligned_reserve(to, w->n + w->n / 4 + 16)) {
        ct__tokenizer_memory_error(w->t, w->err);
        return NULL;
    }
    return to;
}

bool ct__work_end_rewrite(ct_work *w, const char *what) {
    ct_aligned *to = &w->buffers[!w->which];
    if (to->failed) return ct__tokenizer_memory_error(w->t, w->err);
    if (to->n > MAX_TEXT)
        return ct__err(w->err, CT_E_DATA, CT_NOWHERE, w->t->label,
                       "%s makes more than 1 GiB of the text", what);
    w->which = !w->which;
    w->view = (ct_view){to->s, to->tracked ? to->at : NULL};
    w->n = (uint32_t)to->n;
    ct__work_use_next(w);
    return true;
}

void ct__work_free(ct_work *w) {
    if (!w) return;
    for (int i = 0; i < 2; i++) ct__aligned_free(&w->buffers[i]);
    ct__aligned_free(&w->spelled);
    ct__matcher_free(&w->matcher);
    void *all[] = {w->splits.v,    w->next.v,      w->matches.v,  w->chars, w->changes,
                   w->symbols,     w->heap,        w->best,       w->parts, w->tokens,
                   w->cache.slots, w->cache.bytes, w->cache.parts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ct__free(all[i]);
    ct__free(w);
}

// Sets the text; if it is not UTF-8, a copy with U+FFFD for invalid bytes.
static bool encode_set_text(ct_work *w, const char *text, size_t n) {
    w->which = 0;
    w->view = (ct_view){text, NULL};
    w->n = (uint32_t)n;
    w->next.n = 0;
    if (ct__utf8_bad(text, n) < n) {
        ct_aligned *to = &w->buffers[0];
        *to = (ct_aligned){to->s, to->at, 0, to->cap, to->at_cap, w->tracked, false};
        for (size_t i = 0; i < n;) {
            uint32_t cp;
            size_t used;
            bool is_valid = ct__utf8_next(text + i, n - i, &cp, &used) == CT_UTF8_OK;
            ct_token_span at = {(uint32_t)i, (uint32_t)(i + used)};
            ct__aligned_append(to, is_valid ? text + i : "\xef\xbf\xbd", is_valid ? used : 3, at);
            i += used;
        }
        if (to->failed) return ct__tokenizer_memory_error(w->t, w->err);
        w->view = (ct_view){to->s, to->tracked ? to->at : NULL};
        w->n = (uint32_t)to->n;
    }
    if (w->n && !ct__work_add_split(w, 0, w->n, -1)) return false;
    ct__work_use_next(w);
    return true;
}

// ------------------------------------------------------------------------------------ added tokens

static bool encode_is_word_char(ct_work *w, const char *s, uint32_t n, bool *ok) {
    *ok = ct__regex_find_all(&w->matcher, w->t->word_char_regex, s, n, &w->matches, w->err);
    return *ok && w->matches.n == 1 && w->matches.v[0].matched;
}

static uint32_t encode_char_before(const char *s, uint32_t begin, uint32_t at) {
    do at--;
    while (at > begin && !ct__is_char_start(s[at]));
    return at;
}

// True if a word character is directly before or after the range.
static bool encode_is_inside_word(ct_work *w, ct_split split, uint32_t begin, uint32_t end,
                                  bool *ok) {
    const char *s = w->view.s;
    uint32_t used;
    bool inside = false;
    *ok = true;
    if (begin > split.begin) {
        uint32_t last = encode_char_before(s, split.begin, begin);
        inside = encode_is_word_char(w, s + last, begin - last, ok);
    }
    if (*ok && !inside && end < split.end) {
        ct__char(s + end, split.end - end, &used);
        inside = encode_is_word_char(w, s + end, used, ok);
    }
    return inside;
}

static bool encode_split_added(ct_work *w, const ct_trie *trie, ct_split split, bool plain) {
    const char *s = w->view.s;
    uint32_t last = split.begin, used;
    for (uint32_t i = split.begin; i < split.end;) {
        int32_t index = -1;
        size_t length = trie->root[(unsigned char)s[i]]
                            ? ct__trie_longest(trie, s + i, split.end - i, &index)
                            : 0;
        if (!length) {
            i++;
            continue;
        }
        const ct_added *added = &w->t->added[index];
        uint32_t begin = i, end = i + (uint32_t)length;
        bool ok = true;
        i = end;
        if ((plain && added->special) ||
            (added->single_word && encode_is_inside_word(w, split, begin, end, &ok)))
            continue;
        if (!ok) return false;
        while (added->lstrip && begin > last) {
            uint32_t before = encode_char_before(s, last, begin);
            if (!ct__is_white(ct__char(s + before, begin - before, &used))) break;
            begin = before;
        }
        while (added->rstrip && end < split.end &&
               ct__is_white(ct__char(s + end, split.end - end, &used)))
            end += used;
        if (last < begin && !ct__work_add_split(w, last, begin, -1)) return false;
        if (!ct__work_add_split(w, begin, end, added->id)) return false;
        i = last = end;
    }
    return last == split.end || ct__work_add_split(w, last, split.end, -1);
}

static bool encode_split_all_added(ct_work *w, const ct_trie *trie, bool plain) {
    if (!trie->n_nodes) return true;
    w->next.n = 0;
    for (size_t i = 0; i < w->splits.n; i++) {
        ct_split split = w->splits.v[i];
        if (!(split.token >= 0 ? ct__work_add_split(w, split.begin, split.end, split.token)
                               : encode_split_added(w, trie, split, plain)))
            return false;
    }
    ct__work_use_next(w);
    return true;
}

// ------------------------------------------------------------------------------------------ tokens

static ct_token_span encode_origin(const ct_work *w, uint32_t begin, uint32_t end) {
    if (!w->tracked || begin == end) return (ct_token_span){0, 0};
    if (w->view.at) return (ct_token_span){w->view.at[begin].begin, w->view.at[end - 1].end};
    while (begin && !ct__is_char_start(w->view.s[begin])) begin--;
    while (end < w->n && !ct__is_char_start(w->view.s[end])) end++;
    return (ct_token_span){begin, end};
}

static bool encode_add_token(ct_work *w, int32_t id, uint32_t begin, uint32_t end) {
    if (!CT_GROW(w->tokens, w->tokens_cap, w->n_tokens + 1))
        return ct__tokenizer_memory_error(w->t, w->err);
    ct_token_span at = encode_origin(w, begin, end);
    w->tokens[w->n_tokens++] = (ct_token){id, at.begin, at.end, false};
    return true;
}

static bool encode_word(ct_work *w, uint32_t begin, uint32_t end) {
    if (!ct__model_encode_word(w, w->view.s + begin, end - begin)) return false;
    for (size_t i = 0, next = 0; i < w->n_parts; i++) {
        if (next < i) next = i;
        while (next + 1 < w->n_parts && !w->parts[next].n) next++;
        uint32_t n = w->parts[next].n, stop = begin + n < end ? begin + n : end;
        if (!encode_add_token(w, w->parts[i].id, begin, stop)) return false;
        begin += w->parts[i].n < end - begin ? w->parts[i].n : end - begin;
    }
    return true;
}

// Tokenizes each word by itself, if no token has a space inside.
static bool encode_words(ct_work *w, ct_split split) {
    const char *s = w->view.s;
    uint32_t begin = split.begin;
    if (!w->t->model.space_starts_word) return encode_word(w, split.begin, split.end);
    for (uint32_t i = split.begin + 1; i + 2 < split.end; i++) {
        if (memcmp(s + i, "\xe2\x96\x81", 3) ||
            (i >= 3 + split.begin && !memcmp(s + i - 3, "\xe2\x96\x81", 3)))
            continue;
        if (!encode_word(w, begin, i)) return false;
        begin = i;
    }
    return encode_word(w, begin, split.end);
}

// --------------------------------------------------------------------------------- post-processors

static bool encode_is_space(uint32_t cp) { return cp == ct__byte_chars[' '] || ct__is_white(cp); }

static size_t encode_count_spaces(const char *s, size_t n, bool at_end) {
    size_t count = 0;
    uint32_t used;
    while (n) {
        uint32_t at = at_end ? encode_char_before(s, 0, (uint32_t)n) : 0;
        if (!encode_is_space(ct__char(s + at, (uint32_t)(n - at), &used))) break;
        count++;
        if (!at_end) s += used;
        n -= used;
    }
    return count;
}

// Excludes a token's leading and trailing spaces from its span.
static void encode_trim_offsets(ct_work *w, const ct_step *step, const char *text, size_t n) {
    for (size_t i = 0; i < w->n_tokens; i++) {
        ct_token *x = &w->tokens[i];
        size_t size = 0;
        const char *s = ct__lexicon_text(&w->t->model.vocab, x->id, &size);
        bool added = (size_t)x->id < w->t->n_added_ids && w->t->added_by_id[x->id];
        if (added && !x->added) s = text + x->begin, size = x->end - x->begin; // as in the input
        if (!s || x->added || !size) continue;
        size_t leading = encode_count_spaces(s, size, false),
               trailing = encode_count_spaces(s, size, true);
        if (leading == 1 && step->prefix && (i == 0 || x->begin == 0)) leading = 0;
        for (; leading && x->begin < x->end; leading--) do
                x->begin++;
            while (x->begin < x->end && x->begin < n && !ct__is_char_start(text[x->begin]));
        for (; trailing && x->end > x->begin; trailing--)
            x->end = encode_char_before(text, x->begin, x->end);
    }
}

static bool encode_apply_template(ct_work *w, const ct_step *step) {
    size_t before = step->n_before, n = w->n_tokens + before + step->n_after;
    if (!CT_GROW(w->tokens, w->tokens_cap, n + 1)) return ct__tokenizer_memory_error(w->t, w->err);
    if (w->n_tokens) memmove(w->tokens + before, w->tokens, w->n_tokens * sizeof *w->tokens);
    for (size_t i = 0; i < before; i++) w->tokens[i] = (ct_token){step->before[i], 0, 0, true};
    for (size_t i = 0; i < step->n_after; i++)
        w->tokens[before + w->n_tokens + i] = (ct_token){step->after[i], 0, 0, true};
    w->n_tokens = n;
    return true;
}

bool ct__work_encode(ct_work *w, const char *text, size_t n, const ct_encode_options *options) {
    const ct_tokenizer *t = w->t;
    w->tracked = options->offsets || t->needs_offsets;
    w->n_tokens = 0;
    if (n > MAX_TEXT)
        return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, t->label,
                       "the text has %zu bytes, more than 1 GiB", n);
    bool ok = encode_set_text(w, text, n) &&
              encode_split_all_added(w, &t->added_trie, options->split_special);
    for (size_t i = 0; i < t->normalizers.n && ok; i++) ok = ct__normalize(w, &t->normalizers.v[i]);
    ok = ok && encode_split_all_added(w, &t->added_normalized_trie, options->split_special);
    for (size_t i = 0; i < t->pretokenizers.n && ok; i++)
        ok = ct__pretokenize(w, &t->pretokenizers.v[i]);
    for (size_t i = 0; i < w->splits.n && ok; i++) {
        ct_split split = w->splits.v[i];
        ok = split.token >= 0 ? encode_add_token(w, split.token, split.begin, split.end)
                              : encode_words(w, split);
    }
    for (size_t i = 0; i < t->processors.n && ok; i++) {
        const ct_step *step = &t->processors.v[i];
        if (step->kind == CT_STEP_TRIM && options->offsets)
            encode_trim_offsets(w, step, text, n);
        else if (step->kind == CT_STEP_TEMPLATE && options->add_special)
            ok = encode_apply_template(w, step);
    }
    return ok;
}
