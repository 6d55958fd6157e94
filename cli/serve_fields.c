// Parsing of request members by table: types, ranges and error messages use the same entries.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

const char *json_excerpt(const json_t *value) {
    static _Thread_local char room[72];
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    const size_t n = text ? strlen(text) : 0;
    snprintf(room, sizeof room, "%.60s%s", text ? text : "?", n > 60 ? "..." : "");
    free(text);
    return room;
}

static bool fields_reject_value(exchange *x, const char *where, const char *name, const char *must,
                                const json_t *value) {
    char param[160];
    snprintf(param, sizeof param, "%s%s", where, name);
    return fail_request(x, 400, param, "%s must be %s, not %s", param, must, json_excerpt(value));
}

static bool fields_parse_number(exchange *x, const char *where, const field *f,
                                const json_t *value) {
    char must[96];
    const bool whole = f->kind == FIELD_INT;
    const double v = json_is_number(value) ? json_number_value(value) : NAN;
    if (v >= f->low && v <= f->high && (!whole || floor(v) == v)) {
        *(ct_num *)f->out = CT_F(v);
        return true;
    }
    snprintf(must, sizeof must, "a %s from %.16g to %.16g", whole ? "whole number" : "number",
             f->low, f->high);
    return fields_reject_value(x, where, f->name, must, value);
}

static bool fields_parse_seed(exchange *x, const char *where, const field *f, const json_t *value) {
    const double v = json_is_real(value) ? json_real_value(value) : NAN;
    if (json_is_integer(value)) {
        *(optional_seed *)f->out = (optional_seed){true, json_integer_value(value)};
    } else if (fabs(v) <= 0x1p53 && floor(v) == v) {
        *(optional_seed *)f->out = (optional_seed){true, (int64_t)v};
    } else {
        return fields_reject_value(
            x, where, f->name, "a whole number from -9223372036854775808 to 9223372036854775807",
            value);
    }
    return true;
}

static bool fields_parse_one(exchange *x, const char *where, const field *f, json_t *value) {
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return fields_reject_value(x, where, f->name, "true or false", value);
        *(bool *)f->out = json_is_true(value);
        return true;
    case FIELD_STRING:
        if (!json_is_string(value))
            return fields_reject_value(x, where, f->name, "a string", value);
        if (strlen(json_string_value(value)) != json_string_length(value))
            return fields_reject_value(x, where, f->name, "a string without zero bytes", value);
        *(const char **)f->out = json_string_value(value);
        return true;
    case FIELD_LIST:
        if (!json_is_array(value)) return fields_reject_value(x, where, f->name, "a list", value);
        *(json_t **)f->out = value;
        return true;
    case FIELD_OBJECT:
        if (!json_is_object(value))
            return fields_reject_value(x, where, f->name, "an object", value);
        *(json_t **)f->out = value;
        return true;
    case FIELD_SEED: return fields_parse_seed(x, where, f, value);
    case FIELD_INT:
    case FIELD_NUMBER: break;
    }
    return fields_parse_number(x, where, f, value);
}

bool parse_fields(exchange *x, json_t *from, const char *where, const field *fields, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_object_get(from, fields[i].name);
        if (value && !json_is_null(value) && !fields_parse_one(x, where, &fields[i], value))
            return false;
    }
    return true;
}

// ---------------------------------------------------------------------------------------- sampling

bool parse_stop_strings(exchange *x, json_t *stop, const char *where, generation_params *w) {
    if (!stop || json_is_null(stop)) return true;
    const bool one = json_is_string(stop);
    const size_t n = one ? 1 : json_array_size(stop);
    bool ok = one || json_is_array(stop);
    for (size_t i = 0; ok && i < n && i < MAX_STOPS; i++) {
        const json_t *s = one ? stop : json_array_get(stop, i);
        w->stops[i] = json_string_value(s);
        ok = json_string_length(s) > 0 && strlen(w->stops[i]) == json_string_length(s);
    }
    w->n_stops = n;
    if (ok && n <= MAX_STOPS) return true;
    w->n_stops = 0;
    return fields_reject_value(x, where, "stop",
                               "a string or a list of at most 16, none of them empty", stop);
}

static bool fields_add_bias(exchange *x, const model *m, long token, const char *shown_as,
                            json_t *value, generation_params *w, size_t *n) {
    const double add = json_is_number(value)  ? json_number_value(value)
                       : json_is_false(value) ? -INFINITY // llama-server's: never
                                              : NAN;
    if (token < 0 || token >= m->is->vocab)
        return fail_request(x, 400, "logit_bias",
                            "logit_bias has numbers of tokens, from 0 to %lld, not %s",
                            (long long)m->is->vocab - 1, shown_as);
    if (!json_is_false(value) && !(add >= -100 && add <= 100)) {
        char name[32];
        snprintf(name, sizeof name, "%ld", token);
        return fields_reject_value(x, "logit_bias.", name, "a number from -100 to 100", value);
    }
    w->bias[(*n)++] = (ct_lm_logit_bias){(int32_t)token, (float)add};
    return true;
}

// Parses an object of token ids and biases, or llama-server's list of such pairs.
static bool fields_parse_logit_bias(exchange *x, const model *m, json_t *bias,
                                    generation_params *w) {
    const char *key;
    json_t *value;
    size_t i, n = 0;
    const bool pairs = json_is_array(bias);
    const ct_lm_sampling *own = &m->is->sampling; // its biases are kept
    if (!pairs && !json_is_object(bias))
        return fields_reject_value(x, "", "logit_bias", "an object", bias);
    w->bias =
        calloc(own->n_logit_bias + (pairs ? json_array_size(bias) : json_object_size(bias)) + 1,
               sizeof *w->bias);
    if (!w->bias) return fail_request(x, 500, NULL, "there is no memory for logit_bias");
    for (; n < own->n_logit_bias; n++) w->bias[n] = own->logit_bias[n];
    json_array_foreach(bias, i, value) {
        const json_t *id = json_array_get(value, 0);
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (!fields_add_bias(x, m, v <= INT32_MAX ? (long)v : -1, json_excerpt(id ? id : value),
                             json_array_get(value, 1), w, &n))
            return false;
    }
    json_object_foreach(bias, key, value) {
        char *end, quoted[80];
        const long token = strtol(key, &end, 10);
        snprintf(quoted, sizeof quoted, "\"%.64s\"", printable(key));
        if (!fields_add_bias(x, m, *key && !*end ? token : -1, quoted, value, w, &n)) return false;
    }
    w->sampling.logit_bias = w->bias;
    w->sampling.n_logit_bias = n;
    return true;
}

bool parse_eos_ids(exchange *x, const model *m, json_t *list, generation_params *w) {
    const size_t n = json_array_size(list), own = w->ignore_eos ? 0 : m->is->n_eos_ids;
    if (n > MAX_STOPS)
        return fields_reject_value(x, "", "stop_token_ids", "a list of at most 16 tokens", list);
    w->ends = calloc(own + n + 1, sizeof *w->ends);
    if (!w->ends) return fail_request(x, 500, NULL, "there is no memory for the request");
    if (own) memcpy(w->ends, m->is->eos_ids, own * sizeof *w->ends);
    w->n_ends = own;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= m->is->vocab)
            return fail_request(x, 400, "stop_token_ids",
                                "stop_token_ids has tokens, from 0 to %lld, not %s",
                                (long long)m->is->vocab - 1, json_excerpt(id));
        w->ends[w->n_ends++] = (int32_t)v;
    }
    return true;
}

sampling_fields sampling_fields_init(const ct_lm_sampling *s) {
    return (sampling_fields){.top_k = CT_F((double)s->top_k), .min_p = CT_F(s->min_p)};
}

bool sampling_apply_fields(exchange *x, const char *where, ct_lm_sampling *s,
                           const sampling_fields *given) {
    // Logits divided by less would not be finite; tokens other than the most likely one would be
    // impossible anyway.
    if (s->temperature.given && s->temperature.value < 1e-5) s->temperature = CT_F(0);
    s->seed = given->seed.given ? (uint64_t)given->seed.value : random_number();
    s->top_k = given->top_k.value > 0 ? (int64_t)given->top_k.value : 0;
    s->min_p = given->min_p.value;
    s->presence_penalty = given->presence.value;
    s->frequency_penalty = given->frequency.value;
    const bool penalises = s->presence_penalty != 0 || s->frequency_penalty != 0 ||
                           (s->repetition_penalty.given && s->repetition_penalty.value != 1);
    if (!penalises || !given->penalty_window.given || given->penalty_window.value < 0) return true;
    char param[64];
    snprintf(param, sizeof param, "%srepeat_last_n", where);
    return fail_request(x, 400, param,
                        "%s: penalties count all tokens of the sequence, not the last %.0f; use -1",
                        param, given->penalty_window.value);
}

// Parses the maximum number of tokens. -1 means no limit, as in llama-server and like a missing member;
// 0 is allowed if only the prompt is requested.
static bool fields_parse_max_tokens(exchange *x, generation_params *w, const char *name) {
    char must[80];
    const int least = w->allows_zero_tokens ? 0 : 1;
    const json_t *value = json_object_get(x->request, name);
    const double v = json_is_number(value) ? json_number_value(value) : NAN;
    if (!value || json_is_null(value)) return true;
    if (v == -1) {
        w->most = (ct_num){0};
        return true;
    }
    if (v >= least && v <= 1e9 && floor(v) == v) {
        w->most = CT_F(v);
        return true;
    }
    snprintf(must, sizeof must, "a whole number from %d to 1000000000, or -1", least);
    return fields_reject_value(x, "", name, must, value);
}

bool parse_generation_params(exchange *x, model *m, generation_params *w, const char *most_name) {
    ct_lm_sampling *s = &w->sampling;
    *s = m->is->sampling;
    sampling_fields given = sampling_fields_init(s);
    ct_num n = CT_F(1), least = CT_F((double)s->min_new_tokens);
    bool skip_special = true;
    json_t *bias = json_object_get(x->request, "logit_bias"), *stop_ids = NULL;
    const field fields[] = {
        {"temperature", FIELD_NUMBER, 0, 2, &s->temperature},
        {"top_p", FIELD_NUMBER, 0, 1, &s->top_p},
        {"n", FIELD_INT, 1, 64, &n},
        {"presence_penalty", FIELD_NUMBER, -2, 2, &given.presence},
        {"frequency_penalty", FIELD_NUMBER, -2, 2, &given.frequency},
        {"seed", FIELD_SEED, .out = &given.seed},
        {"min_p", FIELD_NUMBER, 0, 1, &given.min_p},
        {"top_k", FIELD_INT, -1, 1e9, &given.top_k},
        {"typical_p", FIELD_NUMBER, 0.001, 1, &s->typical_p},
        {"repeat_penalty", FIELD_NUMBER, 0.01, 100, &s->repetition_penalty},
        {"repetition_penalty", FIELD_NUMBER, 0.01, 100, &s->repetition_penalty},
        {"repeat_last_n", FIELD_INT, -1, 1e9, &given.penalty_window},
        {"min_tokens", FIELD_INT, 0, 1e9, &least},
        {"ignore_eos", FIELD_BOOL, .out = &w->ignore_eos},
        {"skip_special_tokens", FIELD_BOOL, .out = &skip_special},
        {"stop_token_ids", FIELD_LIST, .out = &stop_ids},
    };
    if (!fields_parse_max_tokens(x, w, most_name) ||
        !fields_parse_max_tokens(x, w, "max_completion_tokens") ||
        !parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields))
        return false;
    w->n = (int64_t)n.value;
    w->include_special = !skip_special;
    s->min_new_tokens = (int64_t)least.value;
    return sampling_apply_fields(x, "", s, &given) && parse_eos_ids(x, m, stop_ids, w) &&
           parse_stop_strings(x, json_object_get(x->request, "stop"), "", w) &&
           (!bias || json_is_null(bias) || fields_parse_logit_bias(x, m, bias, w));
}

void generation_params_free(generation_params *w) {
    free(w->bias);
    free(w->ends);
}
