// Reads language models from GGUF files: makes a config.json from their metadata, and maps their weight
// names.
#include "models/lm_gguf.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf.h"

// -------------------------------------------------------------------------------------------- config

// Keys below the architecture's name, and the keys of config.json that they become.
static const struct {
    const char *gguf, *config;
    bool real;
} gguf_keys[] = {
    {"block_count", "num_hidden_layers", false},
    {"context_length", "max_position_embeddings", false},
    {"embedding_length", "hidden_size", false},
    {"feed_forward_length", "intermediate_size", false},
    {"attention.head_count", "num_attention_heads", false},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"attention.sliding_window", "sliding_window", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attention.layer_norm_epsilon", "layer_norm_eps", true},
    {"attention.scale", "attention_multiplier", true},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"rope.freq_base", "rope_theta", true},
    {"rope.freq_base_swa", "rope_local_base_freq", true},
    {"rope.dimension_count", "rotary_dim", false},
    {"expert_count", "num_local_experts", false},
    {"expert_used_count", "num_experts_per_tok", false},
    {"expert_feed_forward_length", "moe_intermediate_size", false},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", false},
    {"expert_shared_count", "n_shared_experts", false},
    {"expert_group_count", "n_group", false},
    {"expert_group_used_count", "topk_group", false},
    {"expert_weights_norm", "norm_topk_prob", false},
    {"expert_weights_scale", "routed_scaling_factor", true},
    {"leading_dense_block_count", "first_k_dense_replace", false},
    {"attention.q_lora_rank", "q_lora_rank", false},
    {"attention.kv_lora_rank", "kv_lora_rank", false},
    {"embedding_scale", "embedding_multiplier", true},
    {"residual_scale", "residual_multiplier", true},
    {"logit_scale", "logits_scaling", true},
    {"use_parallel_residual", "use_parallel_residual", false},
    {"attention.causal", "is_causal", false},
    {"pooling_type", CT_LM_GGUF_POOLING, false},
};

static const ct_gguf_pair *gguf_find_key(const ct_gguf *g, const char *architecture,
                                         const char *key) {
    char name[192];
    snprintf(name, sizeof name, "%s.%s", architecture, key);
    return ct__gguf_find(g, name);
}

static void gguf_copy_key(const ct_gguf *g, const char *architecture, size_t i, json_t *config) {
    const ct_gguf_pair *pair = gguf_find_key(g, architecture, gguf_keys[i].gguf);
    if (!pair || pair->type == CT_GGUF_STRING) return;
    // A list has one value per layer; only the first one is used.
    if (!pair->value.n || pair->value.type == CT_GGUF_STRING) return;
    const int64_t value = ct__gguf_list_int(&pair->value, 0);
    json_object_set_new(config, gguf_keys[i].config,
                        gguf_keys[i].real ? json_real(ct__gguf_list_real(&pair->value, 0))
                        : pair->value.type == CT_GGUF_BOOL ? json_boolean(value)
                                                           : json_integer(value));
}

static double gguf_get_real(const ct_gguf *g, const char *architecture, const char *key,
                            double fallback) {
    const ct_gguf_pair *pair = gguf_find_key(g, architecture, key);
    return pair && pair->type != CT_GGUF_STRING && pair->value.n
               ? ct__gguf_list_real(&pair->value, 0)
               : fallback;
}

static void gguf_copy_real(json_t *to, const char *key, const ct_gguf *g, const char *architecture,
                           const char *from) {
    const double value = gguf_get_real(g, architecture, from, NAN);
    if (value == value) json_object_set_new(to, key, json_real(value));
}

// Reads a weight of rope factors, one per pair; NULL: there is none.
static json_t *gguf_read_factors(const ct_weights *files, const char *name) {
    const ct_weight *w = ct__weights_find(files, name);
    if (!w || w->dtype != CT_F32 || w->block >= 0 || w->rank != 1) return NULL;
    json_t *list = json_array();
    for (int64_t i = 0; list && i < w->dim[0]; i++) {
        float factor;
        memcpy(&factor, (const char *)w->data + 4 * i, 4); // the file's data is not aligned
        json_array_append_new(list, json_real((double)factor));
    }
    return list;
}

static void gguf_get_string(const ct_gguf *g, const char *architecture, const char *key,
                            char out[32]) {
    const ct_gguf_pair *pair = gguf_find_key(g, architecture, key);
    ct_gguf_text one;
    *out = '\0';
    if (!pair || pair->type != CT_GGUF_STRING) return;
    ct_gguf_list list = pair->value;
    if (ct__gguf_next(&list, &one))
        snprintf(out, 32, "%.*s", (int)(one.n < 31 ? one.n : 31), one.s);
}

// Converts rope scaling: Llama 3's factors are stored as a weight, and so are LongRoPE's; yarn and linear
// scaling are metadata.
static void gguf_copy_rope(const ct_weights *files, const char *architecture, json_t *config) {
    const ct_gguf *g = &files->gguf;
    char type[32];
    gguf_get_string(g, architecture, "rope.scaling.type", type);
    json_t *short_factors = gguf_read_factors(files, "rope_factors_short.weight"),
           *long_factors = gguf_read_factors(files, "rope_factors_long.weight");
    if (short_factors && long_factors) snprintf(type, sizeof type, "longrope");
    // Files of 2023 have a linear factor only.
    const double linear_factor = gguf_get_real(g, architecture, "rope.scale_linear", 1);
    if (!*type && linear_factor > 1) snprintf(type, sizeof type, "linear");
    if (strcmp(type, "linear") && strcmp(type, "yarn") && !(short_factors && long_factors)) return;
    json_t *scaling = json_object();
    json_object_set_new(scaling, "rope_type", json_string(type));
    if (linear_factor > 1) json_object_set_new(scaling, "factor", json_real(linear_factor));
    gguf_copy_real(scaling, "factor", g, architecture, "rope.scaling.factor");
    gguf_copy_real(scaling, "original_max_position_embeddings", g, architecture,
                   "rope.scaling.original_context_length");
    gguf_copy_real(scaling, "beta_fast", g, architecture, "rope.scaling.yarn_beta_fast");
    gguf_copy_real(scaling, "beta_slow", g, architecture, "rope.scaling.yarn_beta_slow");
    gguf_copy_real(scaling, "attention_factor", g, architecture, "rope.scaling.yarn_attn_factor");
    if (short_factors && long_factors) {
        gguf_copy_real(scaling, "attention_factor", g, architecture, "rope.scaling.attn_factor");
        json_object_set_new(scaling, "short_factor", short_factors);
        json_object_set_new(scaling, "long_factor", long_factors);
    }
    const double mscale =
        10 * gguf_get_real(g, architecture, "rope.scaling.yarn_log_multiplier", 0);
    if (mscale != 0) { // DeepSeek's, stored as a tenth of its value
        json_object_set_new(scaling, "mscale", json_real(mscale));
        json_object_set_new(scaling, "mscale_all_dim", json_real(mscale));
    }
    json_object_set_new(config, "rope_scaling", scaling);
}

// Converts the number of rotated elements to the fraction of a head.
static void gguf_copy_rotary_fraction(json_t *config) {
    const double rotary_dim = json_number_value(json_object_get(config, "rotary_dim")),
                 heads = json_number_value(json_object_get(config, "num_attention_heads"));
    double head = json_number_value(json_object_get(config, "head_dim"));
    if (head <= 0 && heads > 0)
        head = json_number_value(json_object_get(config, "hidden_size")) / heads;
    if (rotary_dim > 0 && head > 0)
        json_object_set_new(config, "partial_rotary_factor", json_real(rotary_dim / head));
}

// Finds the row whose setting gguf= is the architecture; the first one if there are several.
static const char *gguf_find_model_type(const char *architecture, bool experts, char out[64]) {
    char pattern[96];
    for (size_t i = 0; ct__architectures[i]; i++) {
        const char *row = ct__architectures[i];
        snprintf(pattern, sizeof pattern, " gguf=%s ", architecture);
        if (!strstr(row, pattern)) continue;
        const char *type = experts && !strcmp(architecture, "llama") ? "mixtral" : row;
        snprintf(out, 64, "%.*s", (int)strcspn(type, ":"), type);
        return out;
    }
    return NULL;
}

static int64_t gguf_config_int(const json_t *config, const char *key, int64_t fallback) {
    const json_t *value = json_object_get(config, key);
    return value ? (int64_t)json_number_value(value) : fallback;
}
static void gguf_set_int(json_t *config, const char *key, int64_t value) {
    json_object_set_new(config, key, json_integer(value));
}

// Converts the sliding layers: a number, for all but every n-th layer, or a bool per layer.
static void gguf_copy_layer_types(const ct_gguf *g, const char *architecture, json_t *config) {
    const ct_gguf_pair *pair = gguf_find_key(g, architecture, "attention.sliding_window_pattern");
    if (!pair || pair->type == CT_GGUF_STRING || !pair->value.n) return;
    if (pair->type != CT_GGUF_ARRAY) {
        gguf_set_int(config, "sliding_window_pattern", ct__gguf_list_int(&pair->value, 0));
        return;
    }
    json_t *types = json_array();
    for (uint64_t i = 0; i < pair->value.n; i++)
        json_array_append_new(types,
                              json_string(ct__gguf_list_int(&pair->value, i) ? "sliding_attention"
                                                                             : "full_attention"));
    json_object_set_new(config, "layer_types", types);
}

// Converts the head sizes of latent attention: the file has the rotated part and the length of a head;
// newer files have both lengths beside those of the single latent head.
static void gguf_copy_latent(const ct_gguf *g, const char *architecture, json_t *config) {
    const int64_t rotary_dim = gguf_config_int(config, "rotary_dim", 0);
    const double key = gguf_get_real(g, architecture, "attention.key_length", 0),
                 value = gguf_get_real(g, architecture, "attention.value_length", 0),
                 gating = gguf_get_real(g, architecture, "expert_gating_func", 1);
    const int64_t head = (int64_t)gguf_get_real(g, architecture, "attention.key_length_mla", key);
    gguf_set_int(config, "qk_rope_head_dim", rotary_dim);
    gguf_set_int(config, "qk_nope_head_dim", head - rotary_dim);
    gguf_set_int(config, "head_dim", head);
    gguf_set_int(config, "v_head_dim",
                 (int64_t)gguf_get_real(g, architecture, "attention.value_length_mla", value));
    gguf_set_int(config, "num_key_value_heads", gguf_config_int(config, "num_attention_heads", 1));
    static const char *const default_0[] = {"n_shared_experts", "first_k_dense_replace",
                                            "q_lora_rank"},
                             *const default_1[] = {"n_group", "topk_group",
                                                   "routed_scaling_factor"};
    for (int i = 0; i < 3; i++) {
        gguf_set_int(config, default_0[i], gguf_config_int(config, default_0[i], 0));
        if (!json_object_get(config, default_1[i])) gguf_set_int(config, default_1[i], 1);
    }
    if (gating == 2) json_object_set_new(config, "model_type", json_string("deepseek_v3"));
}

// Sets the defaults of GGUF files, which differ from those of config.json.
static void gguf_set_defaults(json_t *config) {
    const int64_t heads = gguf_config_int(config, "num_attention_heads", 0);
    const struct {
        const char *key;
        double value;
    } defaults[] = {
        {"num_key_value_heads", (double)heads},
        {"head_dim", heads ? (double)(gguf_config_int(config, "hidden_size", 0) / heads) : 0},
        {"rope_theta", 10000},
        {"partial_rotary_factor", 1}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (defaults[i].value > 0 && !json_object_get(config, defaults[i].key))
            json_object_set_new(config, defaults[i].key, json_real(defaults[i].value));
}

// Adds what such files leave to the reader, by architecture.
static void gguf_complete(const ct_weights *files, const char *architecture, json_t *config) {
    const ct_gguf *g = &files->gguf;
    const bool gemma2 = !strcmp(architecture, "gemma2"), gemma3 = !strcmp(architecture, "gemma3");
    if (gemma2 || gemma3) {
        const int64_t largest =
            gemma2 ? 46 : 62; // number of layers of the 27B model, whose attention scale differs
        const bool is_largest = gguf_config_int(config, "num_hidden_layers", 0) == largest;
        const int64_t heads = gguf_config_int(config, "num_attention_heads", 1);
        const int64_t width_per_head =
            gguf_config_int(config, "hidden_size", 0) / (heads > 0 ? heads : 1);
        gguf_set_int(config, "query_pre_attn_scalar",
                     is_largest ? width_per_head
                                : gguf_config_int(config, "head_dim", width_per_head));
        if (!json_object_get(config, "sliding_window"))
            gguf_set_int(config, "sliding_window", gemma2 ? 4096 : 0);
    }
    if (gemma3 && !json_object_get(config, "rope_local_base_freq"))
        json_object_set_new(config, "rope_local_base_freq", json_real(10000));
    if (!strcmp(architecture, "bert")) // such files have no head
        json_object_set_new(config, "architectures", json_pack("[s]", "BertModel"));
    if (!strcmp(architecture, "qwen3moe"))
        json_object_set_new(config, "norm_topk_prob", json_true());
    if (!strcmp(architecture, "deepseek2")) gguf_copy_latent(g, architecture, config);
    if (!strcmp(architecture, "gpt-oss")) // its yarn does not round
        json_object_set_new(json_object_get(config, "rope_scaling"), "truncate", json_false());
    const ct_weight *token_types = ct__weights_find(files, "token_types.weight");
    if (token_types && token_types->rank == 2)
        gguf_set_int(config, "type_vocab_size", token_types->dim[0]);
    const ct_weight *shared = ct__weights_find(files, "blk.0.ffn_up_shexp.weight");
    if (shared && shared->rank == 2 && !json_object_get(config, "shared_expert_intermediate_size"))
        gguf_set_int(config, "shared_expert_intermediate_size", shared->dim[0]);
}

json_t *ct__lm_gguf_config(const ct_weights *files, ct_err *err) {
    const ct_gguf *g = &files->gguf;
    char architecture[64], type[64];
    ct_gguf_text text;
    if (!ct__gguf_text(g, "general.architecture", &text, err)) return NULL;
    snprintf(architecture, sizeof architecture, "%.*s", (int)(text.n < 63 ? text.n : 63), text.s);
    const bool experts = gguf_find_key(g, architecture, "expert_count") != NULL;
    if (!gguf_find_model_type(architecture, experts, type)) {
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, g->label,
                "\"general.architecture\" is \"%.60s\", an architecture that is not known",
                architecture);
        return NULL;
    }
    json_t *config = json_object();
    if (!config) return ct__null_memory(err, CT_NOWHERE, g->label, 0);
    json_object_set_new(config, "model_type", json_string(type));
    for (size_t i = 0; i < sizeof gguf_keys / sizeof *gguf_keys; i++)
        gguf_copy_key(g, architecture, i, config);
    gguf_copy_rope(files, architecture, config);
    gguf_copy_layer_types(g, architecture, config);
    gguf_complete(files, architecture, config);
    gguf_copy_rotary_fraction(config);
    gguf_set_defaults(config);
    const ct_weight *embed = ct__weights_find(files, "token_embd.weight");
    if (embed && embed->rank == 2)
        json_object_set_new(config, "vocab_size", json_integer(embed->dim[0]));
    json_object_set_new(config, "tie_word_embeddings",
                        json_boolean(!ct__weights_find(files, "output.weight")));
    return config;
}

// -------------------------------------------------------------------------------------- weight names

static const struct {
    int name;
    const char *gguf;
} gguf_names[] = {
    {CT_NAME_layer, "blk.%"},
    {CT_NAME_embed, "token_embd"},
    {CT_NAME_position_table, "position_embd"},
    {CT_NAME_type_table, "token_types"},
    {CT_NAME_embed_norm, "token_embd_norm"},
    {CT_NAME_final_norm, "output_norm"},
    {CT_NAME_output, "output"},
    {CT_NAME_attn_norm, "attn_norm"},
    {CT_NAME_attn_post, "post_attention_norm"},
    {CT_NAME_mlp_norm, "ffn_norm"},
    {CT_NAME_mlp_post, "post_ffw_norm"},
    {CT_NAME_q, "attn_q"},
    {CT_NAME_k, "attn_k"},
    {CT_NAME_v, "attn_v"},
    {CT_NAME_fused_qkv, "attn_qkv"},
    {CT_NAME_o, "attn_output"},
    {CT_NAME_q_norm, "attn_q_norm"},
    {CT_NAME_k_norm, "attn_k_norm"},
    {CT_NAME_sinks, "attn_sinks.weight"},
    {CT_NAME_gate, "ffn_gate"},
    {CT_NAME_up, "ffn_up"},
    {CT_NAME_gate_up, "ffn_up"},
    {CT_NAME_down, "ffn_down"},
    {CT_NAME_router, "ffn_gate_inp"},
    {CT_NAME_router_bias, "exp_probs_b.bias"},
    {CT_NAME_expert_gate, "ffn_gate_exps.weight"},
    {CT_NAME_expert_up, "ffn_up_exps.weight"},
    {CT_NAME_expert_down, "ffn_down_exps.weight"},
    {CT_NAME_shared_expert_gate, "ffn_gate_inp_shexp"},
    {CT_NAME_shared_gate, "ffn_gate_shexp"},
    {CT_NAME_shared_up, "ffn_up_shexp"},
    {CT_NAME_shared_down, "ffn_down_shexp"},
    {CT_NAME_q_a, "attn_q_a"},
    {CT_NAME_q_a_norm, "attn_q_a_norm"},
    {CT_NAME_q_b, "attn_q_b"},
    {CT_NAME_kv_a, "attn_kv_a_mqa"},
    {CT_NAME_kv_a_norm, "attn_kv_a_norm"},
    {CT_NAME_kv_b, "attn_kv_b"},
};

// Applies Llama 3.1's context extension, which is stored as a factor per pair.
static bool gguf_scale_frequencies(const ct_weights *files, ct_spec *s, bool *used, ct_err *err) {
    const ct_weight *w = ct__weights_find(files, "rope_freqs.weight");
    if (!w) return true;
    if (s->rope == CT_ROPE_NONE || w->dtype != CT_F32 || w->block >= 0 || w->rank != 1 ||
        w->dim[0] != s->ropes[0].pairs)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, w->path,
                       "\"rope_freqs.weight\" has %" PRId64 " numbers (%s), %" PRId64 " pairs turn",
                       w->rank ? w->dim[0] : 1, w->kind, s->ropes[0].pairs);
    for (int64_t i = 0; i < s->ropes[0].pairs; i++) {
        float factor;
        memcpy(&factor, (const char *)w->data + 4 * i, 4); // the file's data is not aligned
        for (int sliding = 0; sliding < 2; sliding++) s->ropes[sliding].inv_freq[i] /= factor;
    }
    used[w - files->entries] = true;
    return true;
}

// Marks the weights that the config was made from as used.
static void gguf_mark_factors(const ct_weights *files, const ct_spec *s, bool *used) {
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    for (int i = 0; i < 2 && s->ropes[0].long_inv_freq; i++) {
        const ct_weight *w = ct__weights_find(files, names[i]);
        if (w) used[w - files->entries] = true;
    }
}

bool ct__lm_gguf_adapt(const ct_weights *files, ct_spec *s, bool *used, ct_err *err) {
    gguf_mark_factors(files, s, used);
    for (size_t i = 0; i < sizeof gguf_names / sizeof *gguf_names; i++)
        if (s->name[gguf_names[i].name]) s->name[gguf_names[i].name] = gguf_names[i].gguf;
    s->in_out = s->expert_in_out = 0; // all weights are (out, in)
    if (s->norm == CT_LM_NORM_RMS1) s->norm = CT_LM_NORM_RMS;
    if (s->qkv == CT_QKV_BY_HEAD) s->qkv = CT_QKV_FUSED;
    if (!strcmp(s->type, "gpt_oss")) { // gate and up are separate weights
        s->name[CT_NAME_mlp_norm] = "post_attention_norm";
        s->name[CT_NAME_expert_gate_up] = NULL;
        s->name[CT_NAME_expert_gate] = "ffn_gate_exps.weight";
        s->name[CT_NAME_expert_up] = "ffn_up_exps.weight";
    }
    if (s->order == CT_ORDER_POST) { // BERT's norms are named after the outputs that they normalise
        s->name[CT_NAME_attn_norm] = "attn_output_norm";
        s->name[CT_NAME_mlp_norm] = "layer_output_norm";
    }
    if (s->kv_lora_rank && ct__weights_find(files, "blk.0.attn_k_b.weight")) {
        s->name[CT_NAME_kv_b] = NULL;
        s->name[CT_NAME_k_b] = "attn_k_b";
        s->name[CT_NAME_v_b] = "attn_v_b";
    }
    // Rows of queries and keys have been permuted so that neighbours rotate together.
    if (s->gguf_pairs) s->rope = CT_ROPE_PAIRS;
    return gguf_scale_frequencies(files, s, used, err);
}
