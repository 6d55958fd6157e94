// Rotary position embeddings: frequencies from a config, cos and sin tables, and the rotation.
#include "models/rope.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/rules.h"

// --------------------------------------------------------------------------------------- frequencies

typedef struct rope_params {
    const json_t *params; // rope_parameters or rope_scaling
    const json_t *config; // the whole config
    double theta;
    int64_t pairs;
} rope_params;

static double rope_get_number(const rope_params *s, const char *key, double fallback) {
    const json_t *j = json_object_get(s->params, key);
    return json_is_number(j) ? json_number_value(j) : fallback;
}
static double rope_get_model_number(const rope_params *s, const char *key, double fallback) {
    const json_t *j = json_object_get(s->config, key);
    return json_is_number(j) ? json_number_value(j) : fallback;
}

static double rope_base_freq(const rope_params *s, int64_t pair) {
    return 1 / pow(s->theta, (double)pair / (double)s->pairs);
}

// Returns the context before the extension.
static double rope_get_original_context(const rope_params *s) {
    return rope_get_number(
        s, "original_max_position_embeddings",
        rope_get_model_number(s, "original_max_position_embeddings",
                              rope_get_model_number(s, "max_position_embeddings", 2048)));
}

// Llama 3.1: low frequencies are divided by the factor, high ones are not, and those between are
// interpolated.
static void rope_llama3_freqs(const rope_params *s, ct_rope *rope) {
    const double factor = rope_get_number(s, "factor", 8),
                 low = rope_get_number(s, "low_freq_factor", 1),
                 high = rope_get_number(s, "high_freq_factor", 4),
                 context = rope_get_original_context(s);
    for (int64_t i = 0; i < s->pairs; i++) {
        const double freq = rope_base_freq(s, i), wavelength = 2 * M_PI / freq;
        double smooth = high == low ? 0 : (context / wavelength - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        rope->inv_freq[i] = (float)((1 - smooth) * freq / factor + smooth * freq);
    }
}

// YaRN (Peng et al. 2023), sections 3.2 to 3.4.
static double rope_yarn_pair(const rope_params *s, double rotations, double context) {
    return 2 * (double)s->pairs * log(context / (rotations * 2 * M_PI)) / (2 * log(s->theta));
}
static double rope_yarn_scale(double factor, double m) {
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}
static void rope_yarn_freqs(const rope_params *s, ct_rope *rope) {
    const double context = rope_get_original_context(s),
                 factor = rope_get_number(
                     s, "factor",
                     rope_get_model_number(s, "max_position_embeddings", context) / context),
                 m = rope_get_number(s, "mscale", 0),
                 m_all = rope_get_number(s, "mscale_all_dim", 0);
    double low = rope_yarn_pair(s, rope_get_number(s, "beta_fast", 32), context),
           high = rope_yarn_pair(s, rope_get_number(s, "beta_slow", 1), context);
    if (!json_is_false(json_object_get(s->params, "truncate"))) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, 2 * (double)s->pairs - 1);
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < s->pairs; i++) {
        const double freq = rope_base_freq(s, i),
                     ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        rope->inv_freq[i] = (float)(freq / factor * ramp + freq * (1 - ramp));
    }
    const double attention = m != 0 && m_all != 0
                                 ? rope_yarn_scale(factor, m) / rope_yarn_scale(factor, m_all)
                                 : rope_yarn_scale(factor, 1);
    rope->attention_factor = rope_get_number(s, "attention_factor", attention);
    if (m_all != 0)
        rope->score_scale = rope_yarn_scale(factor, m_all) * rope_yarn_scale(factor, m_all);
}

// LongRoPE (Ding et al. 2024): a factor per pair, and other factors for sequences beyond the original
// context.
static bool rope_longrope_freqs(const char *path, const rope_params *s, ct_rope *rope,
                                ct_arena *arena, ct_err *err) {
    const double context = rope_get_original_context(s),
                 factor = rope_get_number(
                     s, "factor",
                     rope_get_model_number(s, "max_position_embeddings", context) / context);
    const json_t *list[2] = {json_object_get(s->params, "short_factor"),
                             json_object_get(s->params, "long_factor")};
    rope->long_inv_freq = ct__arena(arena, (size_t)s->pairs * sizeof(float));
    if (!rope->long_inv_freq) return ct__err_memory(err, CT_NOWHERE, path, 0);
    for (int is_long = 0; is_long < 2; is_long++) {
        if (json_array_size(list[is_long]) != (size_t)s->pairs)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                           "\"%s_factor\" has %zu numbers, heads rotate %lld pairs",
                           is_long ? "long" : "short", json_array_size(list[is_long]),
                           (long long)s->pairs);
        for (int64_t i = 0; i < s->pairs; i++) {
            const double divisor = json_number_value(json_array_get(list[is_long], (size_t)i));
            (is_long ? rope->long_inv_freq : rope->inv_freq)[i] =
                (float)(rope_base_freq(s, i) / divisor);
        }
    }
    rope->original_context = context < INT32_MAX ? (int64_t)context : INT32_MAX;
    const double attention = rope_get_number(
        s, "attention_factor", factor <= 1 ? 1 : sqrt(1 + log(factor) / log(context)));
    rope->attention_factor = rope_get_number(s, "short_mscale", attention);
    rope->long_attention_factor = rope_get_number(s, "long_mscale", attention);
    return true;
}

// Dynamic NTK: beyond the context theta grows with the length of the sequence.
static void rope_dynamic_freqs(const rope_params *s, ct_rope *rope) {
    const double context = rope_get_model_number(s, "max_position_embeddings", 2048);
    for (int64_t i = 0; i < s->pairs; i++) rope->inv_freq[i] = (float)rope_base_freq(s, i);
    rope->original_context = context < INT32_MAX ? (int64_t)context : INT32_MAX;
    rope->long_attention_factor = 1;
    rope->theta = s->theta;
    rope->dynamic_factor = rope_get_number(s, "factor", 1);
}

static bool rope_make_freqs(const char *path, const rope_params *s, ct_arena *arena, ct_rope *rope,
                            ct_err *err) {
    const json_t *kind = json_object_get(s->params, "rope_type");
    const char *type = json_string_value(kind ? kind : json_object_get(s->params, "type"));
    *rope = (ct_rope){.pairs = s->pairs, .attention_factor = 1, .score_scale = 1};
    rope->inv_freq = ct__arena(arena, (size_t)s->pairs * sizeof(float));
    if (!rope->inv_freq) return ct__err_memory(err, CT_NOWHERE, path, 0);
    if (type && !strcmp(type, "llama3")) {
        rope_llama3_freqs(s, rope);
    } else if (type && !strcmp(type, "yarn")) {
        rope_yarn_freqs(s, rope);
    } else if (type && (!strcmp(type, "longrope") || !strcmp(type, "su"))) {
        return rope_longrope_freqs(path, s, rope, arena, err);
    } else if (type && !strcmp(type, "dynamic")) {
        rope_dynamic_freqs(s, rope);
    } else if (!type || !strcmp(type, "default") || !strcmp(type, "linear") ||
               !strcmp(type, "mrope")) {
        const double divisor =
            type && !strcmp(type, "linear") ? rope_get_number(s, "factor", 1) : 1;
        for (int64_t i = 0; i < s->pairs; i++)
            rope->inv_freq[i] = (float)(rope_base_freq(s, i) / divisor);
    } else {
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "\"rope_type\" is \"%.60s\", it must be one of: default linear dynamic yarn "
                       "longrope llama3",
                       type);
    }
    return true;
}

// Reads the parameters of full or sliding layers. Older configs have a theta for sliding layers, whose
// context is not extended.
static rope_params rope_read_params(const json_t *config, const ct_spec *spec, bool sliding) {
    rope_params s = {.config = config, .theta = spec->theta};
    const json_t *params = json_object_get(config, "rope_parameters");
    const json_t *of_kind =
        json_object_get(params, sliding ? "sliding_attention" : "full_attention");
    s.params = of_kind ? of_kind : params ? params : json_object_get(config, "rope_scaling");
    if (!params) s.theta = rope_get_model_number(&s, "rotary_emb_base", s.theta);
    if (!params && sliding && spec->local_theta > 0) {
        s.params = NULL;
        s.theta = spec->local_theta;
    }
    s.theta = rope_get_number(&s, "rope_theta", s.theta);
    const double fraction = rope_get_number(
        &s, "partial_rotary_factor",
        rope_get_model_number(&s, "partial_rotary_factor",
                              rope_get_model_number(&s, "rotary_pct", spec->rotary_fraction)));
    s.pairs = spec->rotary ? spec->rotary / 2
                           : (int64_t)(fmin(fmax(fraction, 0), 1) * (double)spec->head) / 2;
    return s;
}

// Sets the extended context: published configs have it in max_position_embeddings, or keep the original one
// there. Where sliding layers have other frequencies (Gemma 3) it is the one after extension.
static void rope_extend_context(const rope_params *s, ct_spec *spec) {
    const json_t *kind = json_object_get(s->params, "rope_type");
    const char *type = json_string_value(kind ? kind : json_object_get(s->params, "type"));
    const bool linear = type && !strcmp(type, "linear") && !(spec->local_theta > 0),
               others = type && (!strcmp(type, "yarn") || !strcmp(type, "dynamic"));
    if (!spec->context || !(linear || others)) return;
    const double extended = rope_get_number(s, "factor", 1) * rope_get_original_context(s);
    if (extended > (double)spec->context)
        spec->context = extended < INT32_MAX ? (int64_t)extended : INT32_MAX;
}

bool ct__rope_read(const char *path, const json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err) {
    for (int sliding = 0; sliding < 2 && spec->rope != CT_ROPE_NONE; sliding++) {
        const rope_params s = rope_read_params(config, spec, sliding);
        if (s.pairs < 1 || 2 * s.pairs > spec->head || !(s.theta > 0))
            return ct__err(
                err, CT_E_FORMAT, CT_NOWHERE, path,
                "%lld pairs of a head of %lld numbers cannot be rotated by a theta of %g",
                (long long)s.pairs, (long long)spec->head, s.theta);
        if (!rope_make_freqs(path, &s, arena, &spec->ropes[sliding], err)) return false;
        if (!sliding) rope_extend_context(&s, spec);
    }
    return true;
}

// ------------------------------------------------------------------------------------------ rotation

// Returns the frequencies of a sequence beyond the context: theta grows by the factor by which the context
// would be extended.
static ct_tensor rope_dynamic_freq(const ct_rope *rope, int64_t length, ct_loc here) {
    float *freqs = ct__calloc((size_t)rope->pairs, sizeof *freqs);
    if (!freqs) {
        ct__err_memory(&ct__ctx()->err, here, "rope", (size_t)rope->pairs * sizeof *freqs);
        return CT_NONE;
    }
    const double pairs = (double)rope->pairs,
                 growth = rope->dynamic_factor * (double)length / (double)rope->original_context -
                          (rope->dynamic_factor - 1),
                 theta = rope->theta * pow(growth, pairs > 1 ? pairs / (pairs - 1) : 1);
    for (int64_t i = 0; i < rope->pairs; i++) freqs[i] = (float)(1 / pow(theta, (double)i / pairs));
    ct_tensor result = ct_const_at(freqs, CT_F32, CT_DIMS(rope->pairs), here);
    ct__free(freqs);
    return result;
}

ct_rope_tables ct__rope_at(const ct_rope *rope, ct_tensor positions, int64_t length, ct_loc here) {
    const bool is_long = rope->original_context && length > rope->original_context;
    const double factor = is_long ? rope->long_attention_factor : rope->attention_factor;
    ct_tensor freqs = is_long && rope->dynamic_factor > 0
                          ? rope_dynamic_freq(rope, length, here)
                          : ct_const_at(is_long ? rope->long_inv_freq : rope->inv_freq, CT_F32,
                                        CT_DIMS(rope->pairs), here);
    ct_tensor p = ct_cast_at(positions, CT_F32, here);
    ct_ints dims = {ct_rank(p) + 2, NULL};
    int64_t sizes[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(p); a++) sizes[a] = ct__size_like(p, a);
    sizes[dims.n - 2] = sizes[dims.n - 1] = 1;
    dims.v = sizes;
    ct_tensor angle = ct_mul_at(ct_reshape_at(p, dims, here), freqs, here); // (..., 1, pairs)
    ct_rope_tables tables = {ct_cos_at(angle, here), ct_sin_at(angle, here)};
    if (factor != 1) {
        tables.cos = ct_mul_at(tables.cos, ct_f(factor), here);
        tables.sin = ct_mul_at(tables.sin, ct_f(factor), here);
    }
    return tables;
}

// x[..., from], x[..., from + step] ... up to `to`
static ct_tensor rope_slice(ct_tensor x, int64_t from, int64_t to, int64_t step, ct_loc here) {
    return ct_slice_with((ct_slice_args){.x = x,
                                         .axes = CT_AXES(-1),
                                         .start = CT_INTS(from),
                                         .stop = CT_INTS(to),
                                         .step = CT_INTS(step),
                                         .here = here});
}

ct_tensor ct__rope_apply(const ct_spec *spec, const ct_rope *rope, ct_rope_tables tables,
                         ct_tensor x, bool first, ct_loc here) {
    if (!ct_ok(x)) return x;
    const int64_t n = rope->pairs, head = ct_dim(x, -1), from = first ? 0 : head - 2 * n;
    const bool half = spec->rope == CT_ROPE_HALF;
    ct_tensor a = half ? rope_slice(x, from, from + n, 1, here)
                       : rope_slice(x, from, from + 2 * n, 2, here),
              b = half ? rope_slice(x, from + n, from + 2 * n, 1, here)
                       : rope_slice(x, from + 1, from + 2 * n, 2, here); // (..., heads, pairs)
    ct_tensor part[3];
    int parts = 0;
    if (from) part[parts++] = rope_slice(x, 0, from, 1, here);
    ct_tensor rotated_a =
                  ct_sub_at(ct_mul_at(a, tables.cos, here), ct_mul_at(b, tables.sin, here), here),
              rotated_b =
                  ct_add_at(ct_mul_at(b, tables.cos, here), ct_mul_at(a, tables.sin, here), here);
    // Queries and keys get the same order of elements and only meet in a dot product, so the pairs are not
    // interleaved again.
    part[parts++] = rotated_a;
    part[parts++] = rotated_b;
    ct_tensor all = ct_concat_at(part, parts, -1, here);
    if (from + 2 * n == head) return all;
    ct_tensor two[2] = {all, rope_slice(x, from + 2 * n, head, 1, here)};
    return ct_concat_at(two, 2, -1, here);
}
