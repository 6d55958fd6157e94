// Which token comes next: scores as options bend them, in the order of Hugging Face's processors, and a draw.
#include "models/lm_sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/plain.h"
#include "base/threefry.h"

typedef struct candidate {
    float score;
    int32_t token;
} candidate;

static double option(ct_num n, double otherwise) {
    return n.given || n.value != 0 ? n.value : otherwise;
}

// ------------------------------------------------------------------------------------------ penalties

// Tokens of the text, each once or as often as it stands there.
static void penalise(float *scores, int64_t vocab, const int32_t *text, size_t n, size_t prompt,
                     const ct_lm_sampling *s, int32_t *count) {
    const float repeated = (float)option(s->repetition_penalty, 1);
    const double often = s->frequency_penalty, present = s->presence_penalty;
    if (repeated == 1 && often == 0 && present == 0) return;
    memset(count, 0, (size_t)vocab * sizeof *count);
    for (size_t i = 0; i < n; i++) {
        const int32_t t = text[i];
        if (t < 0 || t >= vocab || count[t]) continue;
        count[t] = 1;
        scores[t] = scores[t] < 0 ? scores[t] * repeated : scores[t] / repeated;
    }
    memset(count, 0, (size_t)vocab * sizeof *count);
    for (size_t i = prompt; i < n; i++)
        if (text[i] >= 0 && text[i] < vocab) count[text[i]]++;
    for (int64_t t = 0; t < vocab; t++)
        if (count[t]) scores[t] -= (float)(often * count[t] + present);
}

static void add_bias(float *scores, int64_t vocab, const ct_lm_sampling *s) {
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].token >= 0 && s->bias[i].token < vocab)
            scores[s->bias[i].token] += s->bias[i].add;
}

// The last token of a sequence that is banned, where the text ends with all before it.
static void ban(float *scores, int64_t vocab, const int32_t *text, size_t n,
                const ct_lm_sampling *s) {
    for (size_t i = 0; i < s->n_banned; i++) {
        const ct_lm_tokens *b = &s->banned[i];
        if (!b->n || b->n - 1 > n || b->v[b->n - 1] < 0 || b->v[b->n - 1] >= vocab) continue;
        if (memcmp(text + n - (b->n - 1), b->v, (b->n - 1) * sizeof *text) == 0)
            scores[b->v[b->n - 1]] = -INFINITY;
    }
}

// What followed the last tokens of the text, one less than may repeat, wherever they stand in it.
static void ban_repeats(float *scores, int64_t vocab, const int32_t *text, size_t n,
                        const ct_lm_sampling *s) {
    const size_t last = (size_t)s->no_repeat_ngram_size - 1;
    if (s->no_repeat_ngram_size < 1) return;
    for (size_t i = 0; last < n && i < n - last; i++)
        if (text[i + last] >= 0 && text[i + last] < vocab &&
            memcmp(text + i, text + n - last, last * sizeof *text) == 0)
            scores[text[i + last]] = -INFINITY;
}

// --------------------------------------------------------------------------------------- what remains

static int best_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

// The k-th largest score (k at least 1, at most n); the candidates come into another order.
static float largest(candidate *c, int64_t n, int64_t k) {
    for (int64_t low = 0, high = n - 1;;) {
        const float pivot = c[low + (high - low) / 2].score;
        int64_t i = low, j = high;
        while (i <= j) {
            while (c[i].score > pivot) i++;
            while (c[j].score < pivot) j--;
            if (i > j) break;
            const candidate t = c[i];
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

static int64_t finite_ones(const float *scores, int64_t vocab, candidate *c) {
    int64_t n = 0;
    for (int64_t t = 0; t < vocab; t++)
        if (scores[t] > -INFINITY) c[n++] = (candidate){scores[t], (int32_t)t};
    return n;
}

static void keep_top(float *scores, int64_t vocab, int64_t k, candidate *c) {
    const int64_t n = finite_ones(scores, vocab, c);
    if (k < 1 || k >= n) return;
    const float least = largest(c, n, k);
    for (int64_t t = 0; t < vocab; t++)
        if (scores[t] < least) scores[t] = -INFINITY;
}

static double most_of(const float *scores, int64_t vocab) {
    double most = -INFINITY;
    for (int64_t t = 0; t < vocab; t++) most = fmax(most, (double)scores[t]);
    return most;
}
static double weight_of_all(const float *scores, int64_t vocab, double most) {
    double sum = 0;
    for (int64_t t = 0; t < vocab; t++) sum += exp((double)scores[t] - most);
    return sum;
}

// The likeliest that together have p (Holtzman et al. 2020). What is too unlikely to count is left out before
// anything is sorted: all such tokens together have less than 1 - p.
static void keep_nucleus(float *scores, int64_t vocab, double p, candidate *c) {
    if (p >= 1) return;
    const double most = most_of(scores, vocab), all = weight_of_all(scores, vocab, most);
    const double small = log(fmax((1 - p) / (double)vocab, 1e-300) * all) + most;
    int64_t n = 0;
    double left = 0; // weight of those that were left out
    for (int64_t t = 0; t < vocab; t++) {
        if (scores[t] < small) {
            left += exp((double)scores[t] - most);
            scores[t] = -INFINITY;
        } else {
            c[n++] = (candidate){scores[t], (int32_t)t};
        }
    }
    qsort(c, (size_t)n, sizeof *c, best_first);
    for (int64_t i = n - 1; i > 0; i--) {
        left += exp((double)c[i].score - most);
        if (left > (1 - p) * all) break;
        scores[c[i].token] = -INFINITY;
    }
}

// At least a part p as likely as the likeliest.
static void keep_likely(float *scores, int64_t vocab, double p) {
    const double least = most_of(scores, vocab) + log(p);
    for (int64_t t = 0; t < vocab && p > 0; t++)
        if (scores[t] < least) scores[t] = -INFINITY;
}

// Those whose surprise is nearest to the expected one, as many as have p together (Meister et al. 2023).
static void keep_typical(float *scores, int64_t vocab, double p, candidate *c) {
    if (p >= 1) return;
    const double most = most_of(scores, vocab), all = weight_of_all(scores, vocab, most);
    double entropy = 0, sum = 0;
    const int64_t n = finite_ones(scores, vocab, c);
    for (int64_t i = 0; i < n; i++) {
        const double log_p = (double)c[i].score - most - log(all);
        entropy -= exp(log_p) * log_p;
    }
    for (int64_t i = 0; i < n; i++)
        c[i].score = (float)-fabs(-((double)c[i].score - most - log(all)) - entropy);
    qsort(c, (size_t)n, sizeof *c, best_first);
    int64_t kept = 0;
    while (kept < n && sum < p) sum += exp((double)scores[c[kept++].token] - most) / all;
    for (int64_t i = kept; i < n; i++) scores[c[i].token] = -INFINITY;
}

bool ct_lm_process(float *scores, int64_t vocab, const int32_t *text, size_t n, size_t prompt,
                   const ct_lm_sampling *s) {
    CT_PLAIN;
    if (!scores || !s || vocab < 1 || (n && !text)) return false;
    candidate *c = ct__malloc((size_t)vocab * sizeof *c);
    if (!c) return false;
    add_bias(scores, vocab, s);
    penalise(scores, vocab, text, n, prompt, s, (int32_t *)(void *)c);
    ban(scores, vocab, text, n, s);
    ban_repeats(scores, vocab, text, n, s);
    const double temperature = option(s->temperature, 1);
    if (temperature == 0) { // the likeliest token, which what follows might leave out
        ct__free(c);
        return true;
    }
    if (temperature != 1)
        for (int64_t t = 0; t < vocab; t++) scores[t] = (float)((double)scores[t] / temperature);
    keep_top(scores, vocab, s->top_k, c);
    keep_nucleus(scores, vocab, option(s->top_p, 1), c);
    keep_likely(scores, vocab, s->min_p);
    keep_typical(scores, vocab, option(s->typical_p, 1), c);
    ct__free(c);
    return true;
}

bool ct__lm_bend(float *scores, int64_t vocab, const int32_t *text, size_t n, size_t prompt,
                 const ct_lm_sampling *s, const int32_t *ends, size_t n_ends) {
    const bool may_end = (int64_t)(n - prompt) >= s->min_new_tokens && (int64_t)n >= s->min_length;
    for (size_t i = 0; i < n_ends && !may_end; i++)
        if (ends[i] >= 0 && ends[i] < vocab) scores[ends[i]] = -INFINITY;
    return ct_lm_process(scores, vocab, text, n, prompt, s);
}

// ---------------------------------------------------------------------------------------------- draws

double ct__lm_uniform(uint64_t seed, uint64_t k) {
    const ct_u32x2 key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const ct_u32x2 bits = ct__threefry(key, (ct_u32x2){{(uint32_t)k, (uint32_t)(k >> 32)}});
    return (double)(((uint64_t)bits.v[1] << 32 | bits.v[0]) >> 11) * 0x1p-53;
}

int32_t ct__lm_draw_token(const float *scores, int64_t vocab, const ct_lm_sampling *s, uint64_t k) {
    CT_PLAIN;
    int32_t best = -1;
    double sum = 0;
    for (int64_t t = 0; t < vocab; t++) {
        if (isnan(scores[t]) || scores[t] == INFINITY) return -1;
        if (scores[t] > -INFINITY && (best < 0 || scores[t] > scores[best])) best = (int32_t)t;
    }
    if (best < 0 || option(s->temperature, 1) == 0) return best;
    const double most = (double)scores[best];
    double left = ct__lm_uniform(s->seed, k) * weight_of_all(scores, vocab, most);
    for (int64_t t = 0; t < vocab; t++) {
        sum = exp((double)scores[t] - most);
        if (sum > 0 && left < sum) return (int32_t)t;
        left -= sum;
    }
    return best; // a rounding away from the last one
}

double ct__lm_log_probability(const float *scores, int64_t vocab, int32_t token) {
    CT_PLAIN;
    const double most = most_of(scores, vocab);
    return (double)scores[token] - most - log(weight_of_all(scores, vocab, most));
}
