// Detokenizes the tokens of a sequence, and finds the stop strings that end it.
#define _GNU_SOURCE // for memmem
#include <string.h>

#include "models/engine.h"
#include "models/lm_sampling.h"

// Returns the offset of the earliest stop string in the text, or (size_t)-1.
static size_t engine_text_find_stop(const ct_sequence *seq, const char *text, size_t n,
                                    const char **stop_string) {
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < seq->ask.n_stops; i++) {
        const char *stop = seq->ask.stops[i];
        const char *at = n ? memmem(text, n, stop, strlen(stop)) : NULL;
        if (!at || (size_t)(at - text) >= first) continue;
        first = (size_t)(at - text);
        *stop_string = stop;
    }
    return first;
}

// Returns the number of bytes at the end of the text that may be the beginning of a stop string.
static size_t engine_text_partial_stop(const ct_sequence *seq, const char *text, size_t n) {
    size_t longest = 0;
    for (size_t i = 0; i < seq->ask.n_stops; i++) {
        const char *stop = seq->ask.stops[i];
        size_t k = strlen(stop) - 1;
        if (k > n) k = n;
        while (k > longest && memcmp(text + n - k, stop, k) != 0) k--;
        if (k > longest) longest = k;
    }
    return longest;
}

static bool engine_text_append(ct_sequence *seq, const char *text, size_t n, bool last,
                               ct_text *ready, bool *stopped) {
    if (!text) return false;
    if (n) ct__text_bytes(&seq->pending_text, text, n);
    const size_t stop =
        engine_text_find_stop(seq, seq->pending_text.s, seq->pending_text.n, &seq->matched_stop);
    *stopped = stop != SIZE_MAX;
    const size_t n_ready =
        *stopped ? stop
        : last   ? seq->pending_text.n
                 : seq->pending_text.n -
                     engine_text_partial_stop(seq, seq->pending_text.s, seq->pending_text.n);
    if (n_ready) ct__text_bytes(ready, seq->pending_text.s, n_ready);
    if (!seq->pending_text.failed && !ready->failed) {
        seq->pending_text.n -= n_ready;
        if (n_ready)
            memmove(seq->pending_text.s, seq->pending_text.s + n_ready, seq->pending_text.n + 1);
        return true;
    }
    return ct__err_memory(&ct__ctx()->err, seq->ask.here, "engine", seq->pending_text.n + n);
}

bool ct__engine_text(ct_sequence *seq, int32_t token, ct_text *ready, bool *stopped) {
    size_t n = 0;
    *stopped = false;
    if (!seq->detokenizer) return true;
    const char *text = ct_decoder_next(seq->detokenizer, token, &n);
    return engine_text_append(seq, text, n, false, ready, stopped);
}

bool ct__engine_text_end(ct_sequence *seq, ct_text *ready, bool *stopped) {
    size_t n = 0;
    *stopped = false;
    if (!seq->detokenizer || seq->matched_stop) return true;
    const char *text = ct_decoder_end(seq->detokenizer, &n);
    return engine_text_append(seq, text, n, true, ready, stopped);
}

size_t ct__engine_likeliest(const float *scores, int64_t vocab, ct_engine_logprob *out, size_t n) {
    size_t n_found = 0;
    for (int64_t t = 0; t < vocab && n; t++) { // equal scores: the lower token id first
        const double score = (double)scores[t];
        if (n_found == n && !(score > out[n - 1].logprob)) continue;
        size_t at = n_found < n ? n_found++ : n - 1;
        while (at && out[at - 1].logprob < score) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = (ct_engine_logprob){(int32_t)t, score};
    }
    const double log_norm =
        n_found ? ct__lm_log_probability(scores, vocab, out[0].token) - out[0].logprob : 0;
    for (size_t i = 0; i < n_found; i++) out[i].logprob += log_norm;
    return n_found;
}
