// Makes new models of any architecture: the config of such a model, and the initialisation of its weights.
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp_env.h"
#include "models/stack.h"

// -------------------------------------------------------------------------------------------- config

typedef struct new_config_job {
    const ct_lm_sizes *sizes;
    int64_t kv_heads, hidden;
    ct_arena *arena;
    json_t *root;
} new_config_job;

static void new_config_set_int(const new_config_job *m, const char *setting, int64_t value) {
    const char *key = ct__spec_key(m->sizes->arch, setting, m->arena);
    if (key) json_object_set_new(m->root, key, json_integer(value));
}

static bool new_config_get_size(const new_config_job *m, const char *name, size_t n,
                                double *value) {
    const ct_lm_sizes *s = m->sizes;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab", s->vocab},       {"context", s->context},      {"layers", s->layers},
                 {"heads", s->heads},       {"width", s->width},          {"hidden", m->hidden},
                 {"kv_heads", m->kv_heads}, {"head", s->width / s->heads}};
    if (n == 7 && strncmp(name, "dropout", n) == 0) {
        *value = s->dropout;
        return true;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strlen(sizes[i].name) == n && strncmp(sizes[i].name, name, n) == 0) {
            *value = (double)sizes[i].value;
            return true;
        }
    char *end;
    *value = strtod(name, &end);
    return n && end == name + n;
}

// Parses a value: JSON, or a product of sizes, which is an integer of at least 1, or real if it begins with
// 1.
static json_t *new_config_parse_value(const new_config_job *m, const char *text, size_t n) {
    json_t *json = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    if (json) return json;
    double value = 1, term;
    char op = '*';
    for (const char *at = text; at < text + n;) {
        size_t length = strcspn(at, "*/;");
        if (!new_config_get_size(m, at, length, &term)) return NULL;
        value = op == '*' ? value * term : value / term;
        at += length;
        if (at < text + n) op = *at++;
    }
    if (*text == '1') return json_real(value);
    return json_integer(value < 1 ? 1 : (json_int_t)value);
}

static bool new_config_add_keys(const new_config_job *m, const char *keys, ct_err *err) {
    for (const char *at = keys; at && *at;) {
        const size_t key = strcspn(at, ":");
        size_t n = strcspn(at, ";");
        json_t *value = key < n ? new_config_parse_value(m, at + key + 1, n - key - 1) : NULL;
        const char *name = ct__arena_printf(m->arena, "%.*s", (int)(key < n ? key : n), at);
        if (!value || !name || json_object_set_new(m->root, name, value))
            return ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "architecture",
                           "\"%s\" cannot begin: its setting new has \"%.*s\"", m->sizes->arch,
                           (int)n, at);
        at += n + (at[n] == ';');
    }
    return true;
}

static void new_config_set_token(const new_config_job *m, const char *key, int64_t id) {
    json_object_set_new(m->root, key, id >= 0 ? json_integer(id) : json_null());
}

static bool new_config_fill(const new_config_job *m, const ct_spec *row, ct_err *err) {
    const ct_lm_sizes *s = m->sizes;
    json_object_set_new(m->root, "model_type", json_string(s->arch));
    json_object_set_new(m->root, "torch_dtype", json_string("float32"));
    json_object_set_new(m->root, "initializer_range", json_real(0.02));
    new_config_set_int(m, "vocab", s->vocab);
    new_config_set_int(m, "context", s->context);
    new_config_set_int(m, "layers", s->layers);
    new_config_set_int(m, "width", s->width);
    if (ct__spec_key(s->arch, "heads", m->arena)) { // else the architecture has no heads
        new_config_set_int(m, "heads", s->heads);
        new_config_set_int(m, "kv_heads", m->kv_heads);
        new_config_set_int(m, "head", s->width / s->heads);
    }
    new_config_set_int(m, "hidden", m->hidden);
    const char *eps = ct__spec_key(s->arch, "eps", m->arena);
    if (eps) json_object_set_new(m->root, eps, json_real(1e-5));
    new_config_set_token(m, "bos_token_id", s->begin >= 0 ? s->begin : s->end);
    new_config_set_token(m, "eos_token_id", s->end);
    new_config_set_token(m, "pad_token_id", s->end);
    const char *tied = ct__spec_key(s->arch, "tied", m->arena);
    if (tied) json_object_set_new(m->root, tied, json_boolean(row->tied));
    const char *bias = ct__spec_key(s->arch, "bias", m->arena);
    if (bias) json_object_set_new(m->root, bias, json_boolean(!s->no_bias));
    if (row->rope != CT_ROPE_NONE) json_object_set_new(m->root, "rope_theta", json_real(10000));
    if (row->name[CT_NAME_class]) {
        json_t *list = json_array();
        json_array_append_new(list, json_string(row->name[CT_NAME_class]));
        json_object_set_new(m->root, "architectures", list);
    }
    return new_config_add_keys(m, row->name[CT_NAME_new], err);
}

// Returns the intermediate size that published models have for this width.
static int64_t new_config_default_hidden(const ct_spec *s) {
    if (s->family == CT_FAMILY_MAMBA) return 2 * s->width;
    if (s->family == CT_FAMILY_RWKV || s->mlp == CT_MLP_UNGATED) return 4 * s->width;
    return (s->width * 8 / 3 + 15) / 16 * 16;
}

static bool new_config_check(const ct_lm_sizes *sizes, const ct_spec *s, ct_err *err) {
    const struct {
        const char *option;
        int64_t asked, has;
    } options[] = {{"kv_heads", sizes->kv_heads, s->kv_lora_rank ? s->heads : s->kv_heads},
                   {"intermediate_size", sizes->hidden, s->hidden}};
    if (s->bidirectional || s->name[CT_NAME_encoder])
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, sizes->op,
                       ".arch %s is not a generative architecture, and only those can be trained",
                       sizes->arch);
    if (s->rope != CT_ROPE_NONE && (s->head % 2 || s->rotary % 2))
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, sizes->op,
                       "%" PRId64 " numbers a head, the width divided by the heads, are not even: "
                       "pairs of them are rotated by the position",
                       s->head % 2 ? s->head : s->rotary);
    for (int i = 0; i < 2; i++)
        if (options[i].asked && options[i].asked != options[i].has)
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, sizes->op,
                           ".%s %" PRId64 " is not allowed with .arch %s, where it is %" PRId64,
                           options[i].option, options[i].asked, sizes->arch, options[i].has);
    return true;
}

// Reads the row twice: the defaults depend on what the architecture is.
static bool new_config_make(new_config_job *m, ct_spec *spec, ct_err *err) {
    const ct_lm_sizes *s = m->sizes;
    m->kv_heads = s->kv_heads ? s->kv_heads : s->heads;
    m->hidden = s->hidden ? s->hidden : 4 * s->width;
    ct_spec row = {0};
    ct__spec_row(s->arch, m->arena, &row);
    row.width = s->width;
    if (!s->hidden) m->hidden = new_config_default_hidden(&row);
    if (!new_config_fill(m, &row, err)) return false;
    if (ct__spec_read(s->op, m->root, m->arena, spec, err)) return new_config_check(s, spec, err);
    if (err->code == CT_E_FORMAT) err->code = CT_E_USAGE; // there is no file yet
    return false;
}

bool ct__lm_spec_of(const ct_lm_sizes *sizes, ct_arena *arena, ct_spec *spec, json_t **root,
                    ct_err *err) {
    new_config_job m = {.sizes = sizes, .arena = arena, .root = json_object()};
    bool ok = m.root || ct__err_memory(err, CT_NOWHERE, "lm", 0);
    ok = ok && new_config_make(&m, spec, err);
    if (ok && root)
        *root = m.root;
    else
        json_decref(m.root);
    return ok;
}

// ------------------------------------------------------------------------------------ initialisation

static const double new_init_std = 0.02;

ct_nn_init ct__lm_begins(const ct_spec *s, int name) {
    CT_DEFAULT_ENV;
    switch (name) {
    case CT_NAME_embed_norm:
    case CT_NAME_final_norm:
    case CT_NAME_output_norm:
    case CT_NAME_attn_norm:
    case CT_NAME_attn_post:
    case CT_NAME_cross_norm:
    case CT_NAME_mlp_norm:
    case CT_NAME_mlp_post:
    case CT_NAME_q_norm:
    case CT_NAME_k_norm:
    case CT_NAME_q_a_norm:
    case CT_NAME_kv_a_norm:
    case CT_NAME_first_norm: return s->norm == CT_LM_NORM_RMS1 ? CT_NN_ZEROS : CT_NN_ONES;
    case CT_NAME_ssm_skip: return CT_NN_ONES;
    case CT_NAME_logit_bias:
    case CT_NAME_router_bias: return CT_NN_ZEROS;
    // Weights that add to the residual stream start smaller, so that their sum over the layers has the size
    // of one.
    case CT_NAME_o:
    case CT_NAME_down:
    case CT_NAME_expert_down:
    case CT_NAME_shared_down:
    case CT_NAME_ssm_out: return CT_NN_NORMAL(new_init_std / sqrt(2 * (double)s->layers));
    // The standard deviation of the uniform values that Mamba's authors draw.
    case CT_NAME_ssm_conv: return CT_NN_NORMAL(1 / sqrt(3 * (double)s->conv));
    case CT_NAME_ssm_step: return CT_NN_NORMAL(1 / sqrt(3 * (double)s->step_rank));
    default: return CT_NN_NORMAL(new_init_std);
    }
}

// Returns the initial value of element i of n of an RWKV weight, as its authors define it (time_mix and
// channel_mix of RWKV 4).
static double new_init_rwkv_value(const ct_spec *s, int64_t layer, int name, int64_t i, int64_t n) {
    const double depth = s->layers > 1 ? (double)layer / (double)(s->layers - 1) : 0,
                 depth_left = 1 - (double)layer / (double)s->layers, at = (double)i / (double)n,
                 position = n > 1 ? (double)i / (double)(n - 1) : 0;
    switch (name) {
    case CT_NAME_decay: return -5 + 8 * pow(position, 0.7 + 1.3 * depth);
    case CT_NAME_bonus: return log(0.3) + 0.5 * (double)((i + 1) % 3 - 1);
    case CT_NAME_mix_v: return pow(at, depth_left) + 0.3 * depth;
    case CT_NAME_mix_r: return pow(at, 0.5 * depth_left);
    default: return pow(at, depth_left);
    }
}

// Returns the bias whose softplus is step i of n; the steps are evenly spaced in the logarithm from 0.001
// to 0.1.
static double new_init_step_bias(int64_t i, int64_t n) {
    const double step = 0.001 * pow(100, ((double)i + 0.5) / (double)n);
    return step + log(-expm1(-step));
}

static bool new_init_is_random(int name, bool bias) {
    switch (name) {
    case CT_NAME_mix_k:
    case CT_NAME_mix_v:
    case CT_NAME_mix_r:
    case CT_NAME_mlp_mix_k:
    case CT_NAME_mlp_mix_r:
    case CT_NAME_decay:
    case CT_NAME_bonus:
    case CT_NAME_ssm_decay: return bias;
    case CT_NAME_ssm_step: return !bias;
    default: return true;
    }
}

static void new_init_assign(const ct_lm *lm, int64_t layer, int name, ct_tensor var, ct_loc here) {
    CT_DEFAULT_ENV;
    const ct_spec *s = &lm->spec;
    const int64_t n = ct_size(var);
    int64_t dims[CT_MAX_RANK];
    float *values = ct__malloc((size_t)n * sizeof *values);
    if (!values) {
        ct__err_memory(&ct__ctx()->err, here, "lm", (size_t)n * sizeof *values);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(name == CT_NAME_ssm_decay  ? log((double)(i % s->state + 1))
                            : name == CT_NAME_ssm_step ? new_init_step_bias(i, n)
                                                       : new_init_rwkv_value(s, layer, name, i, n));
    for (int a = 0; a < ct_rank(var); a++) dims[a] = ct_dim(var, a);
    ct_assign_at(var, ct_from_at(values, CT_F32, (ct_ints){ct_rank(var), dims}, here), here);
    ct__free(values);
}

void ct__lm_begin(const ct_lm *lm, int64_t layer, int name, const ct_weight_pair *w, ct_loc here) {
    if (!ct_ok(w->weight)) return;
    if (!new_init_is_random(name, false)) new_init_assign(lm, layer, name, w->weight, here);
    if (w->bias.bits && !new_init_is_random(name, true))
        new_init_assign(lm, layer, name, w->bias, here);
}

ct_lm *ct__lm_new(const ct_lm_sizes *sizes, uint64_t seed, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_lm *lm = ct__calloc(1, sizeof *lm);
    if (!lm) return ct__null_memory(&ctx->err, here, "lm", sizeof *lm);
    lm->is_new = lm->trainable = true;
    lm->seed = seed;
    lm->params = ct_params_new();
    bool ok = lm->params || ct__err_memory(&ctx->err, here, "lm", sizeof *lm);
    ok = ok && ct__config_new("config.json", &lm->config, &ctx->err);
    if (ok) {
        json_decref(lm->config.root);
        lm->config.root = NULL;
        ok = ct__lm_spec_of(sizes, &lm->arena, &lm->spec, &lm->config.root, &ctx->err);
        if (ok && lm->spec.bare) ct__spec_drop_prefix(&lm->spec);
    }
    if (ok) {
        CT_SCOPE; // its end runs the assignments of the first values
        ok = ct__stack_make(lm, here);
    }
    if (ok && !ctx->err.code) return lm;
    ct_lm_free(lm);
    return NULL;
}

// Checks what has no meaning, and no place in a config.
static bool new_check(const ct_lm_config *c, ct_loc here) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"vocab", c->vocab},
                 {"context", c->context},
                 {"layers", c->layers},
                 {"heads", c->heads},
                 {"width", c->width}};
    ct_ctx *ctx = ct__ctx();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > INT32_MAX)
            return ct__refuse(ctx, CT_E_ARGUMENT, here, "lm_new",
                              "%s is %" PRId64 ", it must be 1 to %d", sizes[i].name,
                              sizes[i].value, INT32_MAX);
    if (c->width % c->heads)
        ct__fail(ctx, CT_E_ARGUMENT, here, "lm_new",
                 "width %" PRId64 " is no multiple of %" PRId64 " heads", c->width, c->heads);
    else if (!(c->dropout >= 0 && c->dropout < 1))
        ct__fail(ctx, CT_E_ARGUMENT, here, "lm_new", "dropout is %g, it must be from 0 to below 1",
                 c->dropout);
    return !ctx->err.code;
}

ct_lm *ct_lm_new_at(const ct_lm_config *config, uint64_t seed, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, config, here, "lm_new", "the config") || ctx->err.code ||
        !new_check(config, here))
        return NULL;
    const char *arch = config->arch ? config->arch : "gpt2";
    const ct_lm_sizes sizes = {.op = arch,
                               .arch = arch,
                               .vocab = config->vocab,
                               .context = config->context,
                               .layers = config->layers,
                               .heads = config->heads,
                               .width = config->width,
                               .kv_heads = config->kv_heads,
                               .hidden = config->intermediate_size,
                               .begin = -1,
                               .end = -1,
                               .no_bias = config->no_bias,
                               .dropout = config->dropout};
    ct_lm *lm = ct__lm_new(&sizes, seed, here);
    if (!lm) ct__err_locate(&ctx->err, here, "lm_new");
    return lm;
}
