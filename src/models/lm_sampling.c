// Logits processors, in the order of Hugging Face's, and the sampling of a token.
#include "models/lm_sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/fp_env.h"
#include "base/threefry.h"

typedef struct logit_candidate {
    float score;
    int32_t token;
} logit_candidate;

static double sampling_option(ct_num n, double fallback) {
    return n.given || n.value != 0 ? n.value : fallback;
}

// ----------------------------------------------------------------------------------------- penalties

// Penalises the tokens of the sequence, each once or as often as it occurs.
static void sampling_penalise(float *scores, int64_t vocab, const int32_t *tokens, size_t n,
                              size_t prompt, const ct_lm_sampling *s, int32_t *count) {
    const float repetition = (float)sampling_option(s->repetition_penalty, 1);
    const double frequency = s->frequency_penalty, presence = s->presence_penalty;
    if (repetition == 1 && frequency == 0 && presence == 0) return;
    memset(count, 0, (size_t)vocab * sizeof *count);
    for (size_t i = 0; i < n; i++) {
        const int32_t t = tokens[i];
        if (t < 0 || t >= vocab || count[t]) continue;
        count[t] = 1;
        scores[t] = scores[t] < 0 ? scores[t] * repetition : scores[t] / repetition;
    }
    memset(count, 0, (size_t)vocab * sizeof *count);
    for (size_t i = prompt; i < n; i++)
        if (tokens[i] >= 0 && tokens[i] < vocab) count[tokens[i]]++;
    for (int64_t t = 0; t < vocab; t++)
        if (count[t]) scores[t] -= (float)(frequency * count[t] + presence);
}

static void sampling_add_bias(float *scores, int64_t vocab, const ct_lm_sampling *s) {
    for (size_t i = 0; i < s->n_logit_bias; i++)
        if (s->logit_bias[i].token >= 0 && s->logit_bias[i].token < vocab)
            scores[s->logit_bias[i].token] += s->logit_bias[i].bias;
}

// Excludes the last token of each banned sequence whose other tokens the text ends with.
static void sampling_ban_words(float *scores, int64_t vocab, const int32_t *tokens, size_t n,
                               const ct_lm_sampling *s) {
    for (size_t i = 0; i < s->n_banned; i++) {
        const ct_lm_tokens *b = &s->banned[i];
        if (!b->n || b->n - 1 > n || b->v[b->n - 1] < 0 || b->v[b->n - 1] >= vocab) continue;
        if (memcmp(tokens + n - (b->n - 1), b->v, (b->n - 1) * sizeof *tokens) == 0)
            scores[b->v[b->n - 1]] = -INFINITY;
    }
}

// Excludes the tokens that would repeat an n-gram: those that followed earlier occurrences of the last n -
// 1 tokens.
static void sampling_ban_ngrams(float *scores, int64_t vocab, const int32_t *tokens, size_t n,
                                const ct_lm_sampling *s) {
    const size_t last = (size_t)s->no_repeat_ngram_size - 1;
    if (s->no_repeat_ngram_size < 1) return;
    for (size_t i = 0; last < n && i < n - last; i++)
        if (tokens[i + last] >= 0 && tokens[i + last] < vocab &&
            memcmp(tokens + i, tokens + n - last, last * sizeof *tokens) == 0)
            scores[tokens[i + last]] = -INFINITY;
}

// ---------------------------------------------------------------------------------------- truncation

static int sampling_compare(const void *a, const void *b) {
    const logit_candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

// Returns the k-th largest score (k at least 1, at most n); the candidates are reordered.
static float sampling_kth_largest(logit_candidate *c, int64_t n, int64_t k) {
    for (int64_t low = 0, high = n - 1;;) {
        const float pivot = c[low + (high - low) / 2].score;
        int64_t i = low, j = high;
        while (i <= j) {
            while (c[i].score > pivot) i++;
            while (c[j].score < pivot) j--;
            if (i > j) break;
            const logit_candidate t = c[i];
            c[i++] = c[j];
            c[j--] = t;
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return pivot;
    }
}

static int64_t sampling_collect_finite(const float *scores, int64_t vocab, logit_candidate *c) {
    int64_t n = 0;
    for (int64_t t = 0; t < vocab; t++)
        if (scores[t] > -INFINITY) c[n++] = (logit_candidate){scores[t], (int32_t)t};
    return n;
}

static void sampling_top_k(float *scores, int64_t vocab, int64_t k, logit_candidate *c) {
    const int64_t n = sampling_collect_finite(scores, vocab, c);
    if (k < 1 || k >= n) return;
    const float threshold = sampling_kth_largest(c, n, k);
    for (int64_t t = 0; t < vocab; t++)
        if (scores[t] < threshold) scores[t] = -INFINITY;
}

static double sampling_max(const float *scores, int64_t vocab) {
    double max = -INFINITY;
    for (int64_t t = 0; t < vocab; t++) max = fmax(max, (double)scores[t]);
    return max;
}
static double sampling_sum_exp(const float *scores, int64_t vocab, double max) {
    double sum = 0;
    for (int64_t t = 0; t < vocab; t++) sum += exp((double)scores[t] - max);
    return sum;
}

// Top-p: keeps the most probable tokens that together have probability p (Holtzman et al. 2020). Tokens
// that are too improbable to matter are excluded before anything is sorted: all of them together have less
// than 1 - p.
static void sampling_top_p(float *scores, int64_t vocab, double p, logit_candidate *c) {
    if (p >= 1) return;
    const double max = sampling_max(scores, vocab), total = sampling_sum_exp(scores, vocab, max);
    const double threshold = log(fmax((1 - p) / (double)vocab, 1e-300) * total) + max;
    int64_t n = 0;
    double excluded = 0; // weight of the excluded tokens
    for (int64_t t = 0; t < vocab; t++) {
        if (scores[t] < threshold) {
            excluded += exp((double)scores[t] - max);
            scores[t] = -INFINITY;
        } else {
            c[n++] = (logit_candidate){scores[t], (int32_t)t};
        }
    }
    qsort(c, (size_t)n, sizeof *c, sampling_compare);
    for (int64_t i = n - 1; i > 0; i--) {
        excluded += exp((double)c[i].score - max);
        if (excluded > (1 - p) * total) break;
        scores[c[i].token] = -INFINITY;
    }
}

// Min-p: keeps tokens of at least p times the probability of the most probable one.
static void sampling_min_p(float *scores, int64_t vocab, double p) {
    const double threshold = sampling_max(scores, vocab) + log(p);
    for (int64_t t = 0; t < vocab && p > 0; t++)
        if (scores[t] < threshold) scores[t] = -INFINITY;
}

// Typical sampling: keeps the tokens whose surprisal is closest to the entropy, until they have probability
// p (Meister et al. 2023).
static void sampling_typical(float *scores, int64_t vocab, double p, logit_candidate *c) {
    if (p >= 1) return;
    const double max = sampling_max(scores, vocab), total = sampling_sum_exp(scores, vocab, max);
    double entropy = 0, sum = 0;
    const int64_t n = sampling_collect_finite(scores, vocab, c);
    for (int64_t i = 0; i < n; i++) {
        const double log_p = (double)c[i].score - max - log(total);
        entropy -= exp(log_p) * log_p;
    }
    for (int64_t i = 0; i < n; i++)
        c[i].score = (float)-fabs(-((double)c[i].score - max - log(total)) - entropy);
    qsort(c, (size_t)n, sizeof *c, sampling_compare);
    int64_t n_kept = 0;
    while (n_kept < n && sum < p) sum += exp((double)scores[c[n_kept++].token] - max) / total;
    for (int64_t i = n_kept; i < n; i++) scores[c[i].token] = -INFINITY;
}

bool ct_lm_process_logits(float *logits, int64_t vocab, const int32_t *ids, size_t n,
                          size_t n_prompt, const ct_lm_sampling *s) {
    CT_DEFAULT_ENV;
    if (!logits || !s || vocab < 1 || (n && !ids)) return false;
    logit_candidate *c = ct__malloc((size_t)vocab * sizeof *c);
    if (!c) return false;
    sampling_add_bias(logits, vocab, s);
    sampling_penalise(logits, vocab, ids, n, n_prompt, s, (int32_t *)(void *)c);
    sampling_ban_words(logits, vocab, ids, n, s);
    sampling_ban_ngrams(logits, vocab, ids, n, s);
    const double temperature = sampling_option(s->temperature, 1);
    // greedy: the most probable token, which the next processors might exclude
    if (temperature == 0) {
        ct__free(c);
        return true;
    }
    if (temperature != 1)
        for (int64_t t = 0; t < vocab; t++) logits[t] = (float)((double)logits[t] / temperature);
    sampling_top_k(logits, vocab, s->top_k, c);
    sampling_top_p(logits, vocab, sampling_option(s->top_p, 1), c);
    sampling_min_p(logits, vocab, s->min_p);
    sampling_typical(logits, vocab, sampling_option(s->typical_p, 1), c);
    ct__free(c);
    return true;
}

bool ct__lm_bend(float *scores, int64_t vocab, const int32_t *tokens, size_t n, size_t prompt,
                 const ct_lm_sampling *s, const int32_t *eos_ids, size_t n_eos_ids) {
    const bool can_end = (int64_t)(n - prompt) >= s->min_new_tokens && (int64_t)n >= s->min_length;
    for (size_t i = 0; i < n_eos_ids && !can_end; i++)
        if (eos_ids[i] >= 0 && eos_ids[i] < vocab) scores[eos_ids[i]] = -INFINITY;
    return ct_lm_process_logits(scores, vocab, tokens, n, prompt, s);
}

// ------------------------------------------------------------------------------------------ sampling

double ct__lm_uniform(uint64_t seed, uint64_t k) {
    const ct_u32x2 key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const ct_u32x2 bits = ct__threefry(key, (ct_u32x2){{(uint32_t)k, (uint32_t)(k >> 32)}});
    return (double)(((uint64_t)bits.v[1] << 32 | bits.v[0]) >> 11) * 0x1p-53;
}

int32_t ct__lm_draw_token(const float *scores, int64_t vocab, const ct_lm_sampling *s, uint64_t k) {
    CT_DEFAULT_ENV;
    int32_t best = -1;
    double sum = 0;
    for (int64_t t = 0; t < vocab; t++) {
        if (isnan(scores[t]) || scores[t] == INFINITY) return -1;
        if (scores[t] > -INFINITY && (best < 0 || scores[t] > scores[best])) best = (int32_t)t;
    }
    if (best < 0 || sampling_option(s->temperature, 1) == 0) return best;
    const double max = (double)scores[best];
    double target = ct__lm_uniform(s->seed, k) * sampling_sum_exp(scores, vocab, max);
    for (int64_t t = 0; t < vocab; t++) {
        sum = exp((double)scores[t] - max);
        if (sum > 0 && target < sum) return (int32_t)t;
        target -= sum;
    }
    return best; // rounding left the sum just below the target
}

double ct__lm_log_probability(const float *scores, int64_t vocab, int32_t token) {
    CT_DEFAULT_ENV;
    const double max = sampling_max(scores, vocab);
    return (double)scores[token] - max - log(sampling_sum_exp(scores, vocab, max));
}
