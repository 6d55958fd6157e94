// Text of the tokens that a request gets, and the stop strings that end it.
#define _GNU_SOURCE // memmem
#include <string.h>

#include "base/mem.h"
#include "models/engine.h"
#include "models/lm_sampling.h"

// Where the earliest stop string begins in the text, or (size_t)-1.
static size_t find_stop(const ct_writing *w, const char *text, size_t n, const char **found) {
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < w->ask.n_stops; i++) {
        const char *stop = w->ask.stops[i];
        const char *at = n ? memmem(text, n, stop, strlen(stop)) : NULL;
        if (!at || (size_t)(at - text) >= first) continue;
        first = (size_t)(at - text);
        *found = stop;
    }
    return first;
}

// Bytes at the end of the text that a stop string may begin with.
static size_t may_begin(const ct_writing *w, const char *text, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < w->ask.n_stops; i++) {
        const char *stop = w->ask.stops[i];
        size_t k = strlen(stop) - 1;
        if (k > n) k = n;
        while (k > most && memcmp(text + n - k, stop, k) != 0) k--;
        if (k > most) most = k;
    }
    return most;
}

static bool add(ct_writing *w, const char *text, size_t n, bool last, ct_text *told,
                bool *stopped) {
    if (!text) return false;
    if (n) ct__text_bytes(&w->held, text, n);
    const size_t stop = find_stop(w, w->held.s, w->held.n, &w->found);
    *stopped = stop != SIZE_MAX;
    const size_t out = *stopped ? stop
                       : last   ? w->held.n
                                : w->held.n - may_begin(w, w->held.s, w->held.n);
    if (out) ct__text_bytes(told, w->held.s, out);
    if (!w->held.failed && !told->failed) {
        w->held.n -= out;
        if (out) memmove(w->held.s, w->held.s + out, w->held.n + 1);
        return true;
    }
    return ct__err_memory(&ct__ctx()->err, w->ask.here, "engine", w->held.n + n);
}

bool ct__engine_text(ct_writing *w, int32_t token, ct_text *told, bool *stopped) {
    size_t n = 0;
    *stopped = false;
    if (!w->decoder) return true;
    const char *text = ct_decoder_next(w->decoder, token, &n);
    return add(w, text, n, false, told, stopped);
}

bool ct__engine_text_end(ct_writing *w, ct_text *told, bool *stopped) {
    size_t n = 0;
    *stopped = false;
    if (!w->decoder || w->found) return true;
    const char *text = ct_decoder_end(w->decoder, &n);
    return add(w, text, n, true, told, stopped);
}

size_t ct__engine_likeliest(const float *scores, int64_t vocab, ct_engine_choice *out, size_t n) {
    size_t have = 0;
    for (int64_t t = 0; t < vocab && n; t++) { // equal ones: the lower number first
        const double score = (double)scores[t];
        if (have == n && !(score > out[n - 1].log_probability)) continue;
        size_t at = have < n ? have++ : n - 1;
        while (at && out[at - 1].log_probability < score) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = (ct_engine_choice){(int32_t)t, score};
    }
    const double shift =
        have ? ct__lm_log_probability(scores, vocab, out[0].token) - out[0].log_probability : 0;
    for (size_t i = 0; i < have; i++) out[i].log_probability += shift;
    return have;
}
