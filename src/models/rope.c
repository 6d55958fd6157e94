#include "models/rope.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/rules.h"

// ------------------------------------------------------------------------------------------- speeds

typedef struct scaling {
    const json_t *own;    // rope_parameters or rope_scaling
    const json_t *config; // whole
    double theta;
    int64_t pairs;
} scaling;

static double number(const scaling *s, const char *key, double otherwise) {
    const json_t *j = json_object_get(s->own, key);
    return json_is_number(j) ? json_number_value(j) : otherwise;
}
static double of_model(const scaling *s, const char *key, double otherwise) {
    const json_t *j = json_object_get(s->config, key);
    return json_is_number(j) ? json_number_value(j) : otherwise;
}

static double plain_speed(const scaling *s, int64_t pair) {
    return 1 / pow(s->theta, (double)pair / (double)s->pairs);
}

// Of what the context was before it was stretched.
static double original_context(const scaling *s) {
    return number(s, "original_max_position_embeddings",
                  of_model(s, "original_max_position_embeddings",
                           of_model(s, "max_position_embeddings", 2048)));
}

// Llama 3.1: slow pairs are slowed down, fast ones are not, those between in part.
static void llama3_speeds(const scaling *s, ct_rope *rope) {
    const double factor = number(s, "factor", 8), low = number(s, "low_freq_factor", 1),
                 high = number(s, "high_freq_factor", 4), context = original_context(s);
    for (int64_t i = 0; i < s->pairs; i++) {
        const double plain = plain_speed(s, i), wave = 2 * M_PI / plain;
        double smooth = high == low ? 0 : (context / wave - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        rope->speed[i] = (float)((1 - smooth) * plain / factor + smooth * plain);
    }
}

// YaRN (Peng et al. 2023), sections 3.2 to 3.4.
static double yarn_pair(const scaling *s, double turns, double context) {
    return 2 * (double)s->pairs * log(context / (turns * 2 * M_PI)) / (2 * log(s->theta));
}
static double yarn_scale(double factor, double m) {
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}
static void yarn_speeds(const scaling *s, ct_rope *rope) {
    const double context = original_context(s),
                 factor =
                     number(s, "factor", of_model(s, "max_position_embeddings", context) / context),
                 m = number(s, "mscale", 0), m_all = number(s, "mscale_all_dim", 0);
    double low = yarn_pair(s, number(s, "beta_fast", 32), context),
           high = yarn_pair(s, number(s, "beta_slow", 1), context);
    if (!json_is_false(json_object_get(s->own, "truncate"))) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, 2 * (double)s->pairs - 1);
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < s->pairs; i++) {
        const double plain = plain_speed(s, i),
                     slow = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        rope->speed[i] = (float)(plain / factor * slow + plain * (1 - slow));
    }
    const double both = m != 0 && m_all != 0 ? yarn_scale(factor, m) / yarn_scale(factor, m_all)
                                             : yarn_scale(factor, 1);
    rope->factor = number(s, "attention_factor", both);
    if (m_all != 0) rope->score_factor = yarn_scale(factor, m_all) * yarn_scale(factor, m_all);
}

// LongRoPE (Ding et al. 2024): a factor a pair, others for texts beyond the original context.
static bool long_speeds(const char *path, const scaling *s, ct_rope *rope, ct_arena *arena,
                        ct_err *err) {
    const double context = original_context(s),
                 factor =
                     number(s, "factor", of_model(s, "max_position_embeddings", context) / context);
    const json_t *list[2] = {json_object_get(s->own, "short_factor"),
                             json_object_get(s->own, "long_factor")};
    rope->long_speed = ct__arena(arena, (size_t)s->pairs * sizeof(float));
    if (!rope->long_speed) return ct__err_memory(err, CT_NOWHERE, path, 0);
    for (int which = 0; which < 2; which++) {
        if (json_array_size(list[which]) != (size_t)s->pairs)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                           "\"%s_factor\" has %zu numbers, heads turn %lld pairs",
                           which ? "long" : "short", json_array_size(list[which]),
                           (long long)s->pairs);
        for (int64_t i = 0; i < s->pairs; i++) {
            const double by = json_number_value(json_array_get(list[which], (size_t)i));
            (which ? rope->long_speed : rope->speed)[i] = (float)(plain_speed(s, i) / by);
        }
    }
    rope->long_from = context < INT32_MAX ? (int64_t)context : INT32_MAX;
    const double both =
        number(s, "attention_factor", factor <= 1 ? 1 : sqrt(1 + log(factor) / log(context)));
    rope->factor = number(s, "short_mscale", both);
    rope->long_factor = number(s, "long_mscale", both);
    return true;
}

// Dynamic NTK: beyond the context theta grows with the text.
static void dynamic_speeds(const scaling *s, ct_rope *rope) {
    const double context = of_model(s, "max_position_embeddings", 2048);
    for (int64_t i = 0; i < s->pairs; i++) rope->speed[i] = (float)plain_speed(s, i);
    rope->long_from = context < INT32_MAX ? (int64_t)context : INT32_MAX;
    rope->long_factor = 1;
    rope->theta = s->theta;
    rope->grows = number(s, "factor", 1);
}

static bool make_speeds(const char *path, const scaling *s, ct_arena *arena, ct_rope *rope,
                        ct_err *err) {
    const json_t *kind = json_object_get(s->own, "rope_type");
    const char *type = json_string_value(kind ? kind : json_object_get(s->own, "type"));
    *rope = (ct_rope){.pairs = s->pairs, .factor = 1, .score_factor = 1};
    rope->speed = ct__arena(arena, (size_t)s->pairs * sizeof(float));
    if (!rope->speed) return ct__err_memory(err, CT_NOWHERE, path, 0);
    if (type && !strcmp(type, "llama3")) {
        llama3_speeds(s, rope);
    } else if (type && !strcmp(type, "yarn")) {
        yarn_speeds(s, rope);
    } else if (type && (!strcmp(type, "longrope") || !strcmp(type, "su"))) {
        return long_speeds(path, s, rope, arena, err);
    } else if (type && !strcmp(type, "dynamic")) {
        dynamic_speeds(s, rope);
    } else if (!type || !strcmp(type, "default") || !strcmp(type, "linear") ||
               !strcmp(type, "mrope")) {
        const double by = type && !strcmp(type, "linear") ? number(s, "factor", 1) : 1;
        for (int64_t i = 0; i < s->pairs; i++) rope->speed[i] = (float)(plain_speed(s, i) / by);
    } else {
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "\"rope_type\" is \"%.60s\", it must be one of: default linear dynamic yarn "
                       "longrope llama3",
                       type);
    }
    return true;
}

// What is said of the layers of a kind. Older configs have a theta for sliding layers, which are not stretched.
static scaling scaling_of(const json_t *config, const ct_spec *spec, bool sliding) {
    scaling s = {.config = config, .theta = spec->theta};
    const json_t *own = json_object_get(config, "rope_parameters");
    const json_t *by_kind = json_object_get(own, sliding ? "sliding_attention" : "full_attention");
    s.own = by_kind ? by_kind : own ? own : json_object_get(config, "rope_scaling");
    if (!own) s.theta = of_model(&s, "rotary_emb_base", s.theta);
    if (!own && sliding && spec->local_theta > 0) {
        s.own = NULL;
        s.theta = spec->local_theta;
    }
    s.theta = number(&s, "rope_theta", s.theta);
    const double fraction =
        number(&s, "partial_rotary_factor",
               of_model(&s, "partial_rotary_factor", of_model(&s, "rotary_pct", spec->turned)));
    s.pairs = spec->rotary ? spec->rotary / 2
                           : (int64_t)(fmin(fmax(fraction, 0), 1) * (double)spec->head) / 2;
    return s;
}

// Tokens of a text that a stretched context has: published configs say them or leave max_position_embeddings as it
// was. Where sliding layers turn otherwise (Gemma 3) it is what it is after stretching.
static void stretch_context(const scaling *s, ct_spec *spec) {
    const json_t *kind = json_object_get(s->own, "rope_type");
    const char *type = json_string_value(kind ? kind : json_object_get(s->own, "type"));
    const bool linear = type && !strcmp(type, "linear") && !(spec->local_theta > 0),
               others = type && (!strcmp(type, "yarn") || !strcmp(type, "dynamic"));
    if (!spec->context || !(linear || others)) return;
    const double all = number(s, "factor", 1) * original_context(s);
    if (all > (double)spec->context) spec->context = all < INT32_MAX ? (int64_t)all : INT32_MAX;
}

bool ct__rope_read(const char *path, const json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err) {
    for (int sliding = 0; sliding < 2 && spec->rope != CT_ROPE_NONE; sliding++) {
        const scaling s = scaling_of(config, spec, sliding);
        if (s.pairs < 1 || 2 * s.pairs > spec->head || !(s.theta > 0))
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                           "%lld pairs of a head of %lld numbers cannot turn by a theta of %g",
                           (long long)s.pairs, (long long)spec->head, s.theta);
        if (!make_speeds(path, &s, arena, &spec->turn[sliding], err)) return false;
        if (!sliding) stretch_context(&s, spec);
    }
    return true;
}

// ------------------------------------------------------------------------------------------- turning

// Of a text beyond the context that theta grows with: theta times what the context would be stretched by.
static ct_tensor grown_speed(const ct_rope *rope, int64_t length, ct_loc here) {
    float *speed = ct__calloc((size_t)rope->pairs, sizeof *speed);
    if (!speed) {
        ct__err_memory(&ct__ctx()->err, here, "rope", (size_t)rope->pairs * sizeof *speed);
        return CT_NONE;
    }
    const double pairs = (double)rope->pairs,
                 by = rope->grows * (double)length / (double)rope->long_from - (rope->grows - 1),
                 theta = rope->theta * pow(by, pairs > 1 ? pairs / (pairs - 1) : 1);
    for (int64_t i = 0; i < rope->pairs; i++) speed[i] = (float)(1 / pow(theta, (double)i / pairs));
    ct_tensor made = ct_const_at(speed, CT_F32, CT_DIMS(rope->pairs), here);
    ct__free(speed);
    return made;
}

ct_turned ct__rope_at(const ct_rope *rope, ct_tensor positions, int64_t length, ct_loc here) {
    const bool is_long = rope->long_from && length > rope->long_from;
    const double factor = is_long ? rope->long_factor : rope->factor;
    ct_tensor speed = is_long && rope->grows > 0
                          ? grown_speed(rope, length, here)
                          : ct_const_at(is_long ? rope->long_speed : rope->speed, CT_F32,
                                        CT_DIMS(rope->pairs), here);
    ct_tensor p = ct_cast_at(positions, CT_F32, here);
    ct_ints dims = {ct_rank(p) + 2, NULL};
    int64_t sizes[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(p); a++) sizes[a] = ct__size_like(p, a);
    sizes[dims.n - 2] = sizes[dims.n - 1] = 1;
    dims.v = sizes;
    ct_tensor angle = ct_mul_at(ct_reshape_at(p, dims, here), speed, here); // (..., 1, pairs)
    ct_turned turned = {ct_cos_at(angle, here), ct_sin_at(angle, here)};
    if (factor != 1) {
        turned.cos = ct_mul_at(turned.cos, ct_f(factor), here);
        turned.sin = ct_mul_at(turned.sin, ct_f(factor), here);
    }
    return turned;
}

// x[..., from], x[..., from + step] ... up to `to`
static ct_tensor cut(ct_tensor x, int64_t from, int64_t to, int64_t step, ct_loc here) {
    return ct_slice_with((ct_slice_args){.x = x,
                                         .axes = CT_AXES(-1),
                                         .start = CT_INTS(from),
                                         .stop = CT_INTS(to),
                                         .step = CT_INTS(step),
                                         .here = here});
}

ct_tensor ct__rope_apply(const ct_spec *spec, const ct_rope *rope, ct_turned turned, ct_tensor x,
                         bool first, ct_loc here) {
    if (!ct_ok(x)) return x;
    const int64_t n = rope->pairs, head = ct_dim(x, -1), from = first ? 0 : head - 2 * n;
    const bool half = spec->rope == CT_ROPE_HALF;
    ct_tensor a = half ? cut(x, from, from + n, 1, here) : cut(x, from, from + 2 * n, 2, here),
              b = half ? cut(x, from + n, from + 2 * n, 1, here)
                       : cut(x, from + 1, from + 2 * n, 2, here); // (..., heads, pairs)
    ct_tensor part[3];
    int parts = 0;
    if (from) part[parts++] = cut(x, 0, from, 1, here);
    ct_tensor turned_a =
                  ct_sub_at(ct_mul_at(a, turned.cos, here), ct_mul_at(b, turned.sin, here), here),
              turned_b =
                  ct_add_at(ct_mul_at(b, turned.cos, here), ct_mul_at(a, turned.sin, here), here);
    // Queries and keys get the same order of numbers, and meet in a sum: pairs need not go back between.
    part[parts++] = turned_a;
    part[parts++] = turned_b;
    ct_tensor all = ct_concat_at(part, parts, -1, here);
    if (from + 2 * n == head) return all;
    ct_tensor two[2] = {all, cut(x, from + 2 * n, head, 1, here)};
    return ct_concat_at(two, 2, -1, here);
}
