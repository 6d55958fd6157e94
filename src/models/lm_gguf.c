#include "models/lm_gguf.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf.h"

// --------------------------------------------------------------------------------------------- config

// Keys below the architecture's name, and what config.json calls them.
static const struct {
    const char *gguf, *config;
    bool real;
} keys[] = {
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

static const ct_gguf_pair *below(const ct_gguf *g, const char *architecture, const char *key) {
    char name[192];
    snprintf(name, sizeof name, "%s.%s", architecture, key);
    return ct__gguf_find(g, name);
}

static void copy_key(const ct_gguf *g, const char *architecture, size_t i, json_t *config) {
    const ct_gguf_pair *pair = below(g, architecture, keys[i].gguf);
    if (!pair || pair->type == CT_GGUF_STRING) return;
    // Of a list, a number a layer, the first stands for all.
    if (!pair->value.n || pair->value.type == CT_GGUF_STRING) return;
    const int64_t whole = ct__gguf_list_int(&pair->value, 0);
    json_object_set_new(config, keys[i].config,
                        keys[i].real ? json_real(ct__gguf_list_real(&pair->value, 0))
                        : pair->value.type == CT_GGUF_BOOL ? json_boolean(whole)
                                                           : json_integer(whole));
}

static double real_below(const ct_gguf *g, const char *architecture, const char *key,
                         double otherwise) {
    const ct_gguf_pair *pair = below(g, architecture, key);
    return pair && pair->type != CT_GGUF_STRING && pair->value.n
               ? ct__gguf_list_real(&pair->value, 0)
               : otherwise;
}

static void put_real(json_t *to, const char *key, const ct_gguf *g, const char *architecture,
                     const char *from) {
    const double value = real_below(g, architecture, from, NAN);
    if (value == value) json_object_set_new(to, key, json_real(value));
}

// The factors of a weight, a number a pair; NULL: there is none.
static json_t *factors_of(const ct_weights *files, const char *name) {
    const ct_weight *w = ct__weights_find(files, name);
    if (!w || w->dtype != CT_F32 || w->block >= 0 || w->rank != 1) return NULL;
    json_t *list = json_array();
    for (int64_t i = 0; list && i < w->dim[0]; i++) {
        float factor;
        memcpy(&factor, (const char *)w->data + 4 * i, 4); // a file aligns nothing
        json_array_append_new(list, json_real((double)factor));
    }
    return list;
}

static void text_below(const ct_gguf *g, const char *architecture, const char *key, char out[32]) {
    const ct_gguf_pair *pair = below(g, architecture, key);
    ct_gguf_text one;
    *out = '\0';
    if (!pair || pair->type != CT_GGUF_STRING) return;
    ct_gguf_list list = pair->value;
    if (ct__gguf_next(&list, &one))
        snprintf(out, 32, "%.*s", (int)(one.n < 31 ? one.n : 31), one.s);
}

// Llama 3's factors by which pairs are slowed down stand as a weight, and so do LongRoPE's; yarn and linear scaling
// as metadata.
static void copy_rope(const ct_weights *files, const char *architecture, json_t *config) {
    const ct_gguf *g = &files->gguf;
    char type[32];
    text_below(g, architecture, "rope.scaling.type", type);
    json_t *few = factors_of(files, "rope_factors_short.weight"),
           *many = factors_of(files, "rope_factors_long.weight");
    if (few && many) snprintf(type, sizeof type, "longrope");
    // Files of 2023 say a linear factor alone.
    const double before = real_below(g, architecture, "rope.scale_linear", 1);
    if (!*type && before > 1) snprintf(type, sizeof type, "linear");
    if (strcmp(type, "linear") && strcmp(type, "yarn") && !(few && many)) return;
    json_t *scaling = json_object();
    json_object_set_new(scaling, "rope_type", json_string(type));
    if (before > 1) json_object_set_new(scaling, "factor", json_real(before));
    put_real(scaling, "factor", g, architecture, "rope.scaling.factor");
    put_real(scaling, "original_max_position_embeddings", g, architecture,
             "rope.scaling.original_context_length");
    put_real(scaling, "beta_fast", g, architecture, "rope.scaling.yarn_beta_fast");
    put_real(scaling, "beta_slow", g, architecture, "rope.scaling.yarn_beta_slow");
    put_real(scaling, "attention_factor", g, architecture, "rope.scaling.yarn_attn_factor");
    if (few && many) {
        put_real(scaling, "attention_factor", g, architecture, "rope.scaling.attn_factor");
        json_object_set_new(scaling, "short_factor", few);
        json_object_set_new(scaling, "long_factor", many);
    }
    const double all = 10 * real_below(g, architecture, "rope.scaling.yarn_log_multiplier", 0);
    if (all != 0) { // DeepSeek's, a tenth of what it is called
        json_object_set_new(scaling, "mscale", json_real(all));
        json_object_set_new(scaling, "mscale_all_dim", json_real(all));
    }
    json_object_set_new(config, "rope_scaling", scaling);
}

// Of a head so many numbers turn.
static void copy_fraction(json_t *config) {
    const double turned = json_number_value(json_object_get(config, "rotary_dim")),
                 heads = json_number_value(json_object_get(config, "num_attention_heads"));
    double head = json_number_value(json_object_get(config, "head_dim"));
    if (head <= 0 && heads > 0)
        head = json_number_value(json_object_get(config, "hidden_size")) / heads;
    if (turned > 0 && head > 0)
        json_object_set_new(config, "partial_rotary_factor", json_real(turned / head));
}

// The row whose setting gguf= is the architecture; the first of several that fits.
static const char *type_of(const char *architecture, bool experts, char out[64]) {
    char wanted[96];
    for (size_t i = 0; ct__architectures[i]; i++) {
        const char *row = ct__architectures[i];
        snprintf(wanted, sizeof wanted, " gguf=%s ", architecture);
        if (!strstr(row, wanted)) continue;
        const char *type = experts && !strcmp(architecture, "llama") ? "mixtral" : row;
        snprintf(out, 64, "%.*s", (int)strcspn(type, ":"), type);
        return out;
    }
    return NULL;
}

static int64_t whole_of(const json_t *config, const char *key, int64_t otherwise) {
    const json_t *value = json_object_get(config, key);
    return value ? (int64_t)json_number_value(value) : otherwise;
}
static void put_whole(json_t *config, const char *key, int64_t value) {
    json_object_set_new(config, key, json_integer(value));
}

// Which layers slide: a number, all but every so-many-th, or one truth a layer.
static void copy_pattern(const ct_gguf *g, const char *architecture, json_t *config) {
    const ct_gguf_pair *pair = below(g, architecture, "attention.sliding_window_pattern");
    if (!pair || pair->type == CT_GGUF_STRING || !pair->value.n) return;
    if (pair->type != CT_GGUF_ARRAY) {
        put_whole(config, "sliding_window_pattern", ct__gguf_list_int(&pair->value, 0));
        return;
    }
    json_t *types = json_array();
    for (uint64_t i = 0; i < pair->value.n; i++)
        json_array_append_new(types,
                              json_string(ct__gguf_list_int(&pair->value, i) ? "sliding_attention"
                                                                             : "full_attention"));
    json_object_set_new(config, "layer_types", types);
}

// Heads of latent attention: what of them turns is said, and how long they are; newer files have their lengths
// beside those of the one head of the narrow vector.
static void copy_latent(const ct_gguf *g, const char *architecture, json_t *config) {
    const int64_t turned = whole_of(config, "rotary_dim", 0);
    const double key = real_below(g, architecture, "attention.key_length", 0),
                 value = real_below(g, architecture, "attention.value_length", 0),
                 gating = real_below(g, architecture, "expert_gating_func", 1);
    const int64_t head = (int64_t)real_below(g, architecture, "attention.key_length_mla", key);
    put_whole(config, "qk_rope_head_dim", turned);
    put_whole(config, "qk_nope_head_dim", head - turned);
    put_whole(config, "head_dim", head);
    put_whole(config, "v_head_dim",
              (int64_t)real_below(g, architecture, "attention.value_length_mla", value));
    put_whole(config, "num_key_value_heads", whole_of(config, "num_attention_heads", 1));
    static const char *const none[] = {"n_shared_experts", "first_k_dense_replace", "q_lora_rank"},
                             *const one[] = {"n_group", "topk_group", "routed_scaling_factor"};
    for (int i = 0; i < 3; i++) {
        put_whole(config, none[i], whole_of(config, none[i], 0));
        if (!json_object_get(config, one[i])) put_whole(config, one[i], 1);
    }
    if (gating == 2) json_object_set_new(config, "model_type", json_string("deepseek_v3"));
}

// What is so where such a file does not say it, whatever a folder's config leaves out.
static void put_usual(json_t *config) {
    const int64_t heads = whole_of(config, "num_attention_heads", 0);
    const struct {
        const char *key;
        double value;
    } usual[] = {{"num_key_value_heads", (double)heads},
                 {"head_dim", heads ? (double)(whole_of(config, "hidden_size", 0) / heads) : 0},
                 {"rope_theta", 10000},
                 {"partial_rotary_factor", 1}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i].value > 0 && !json_object_get(config, usual[i].key))
            json_object_set_new(config, usual[i].key, json_real(usual[i].value));
}

// What such files leave to who reads them, by architecture.
static void complete(const ct_weights *files, const char *architecture, json_t *config) {
    const ct_gguf *g = &files->gguf;
    const bool gemma2 = !strcmp(architecture, "gemma2"), gemma3 = !strcmp(architecture, "gemma3");
    if (gemma2 || gemma3) {
        const int64_t largest =
            gemma2 ? 46 : 62; // layers of the 27B, whose scores have another scale
        const bool other = whole_of(config, "num_hidden_layers", 0) == largest;
        const int64_t heads = whole_of(config, "num_attention_heads", 1);
        const int64_t mean = whole_of(config, "hidden_size", 0) / (heads > 0 ? heads : 1);
        put_whole(config, "query_pre_attn_scalar",
                  other ? mean : whole_of(config, "head_dim", mean));
        if (!json_object_get(config, "sliding_window"))
            put_whole(config, "sliding_window", gemma2 ? 4096 : 0);
    }
    if (gemma3 && !json_object_get(config, "rope_local_base_freq"))
        json_object_set_new(config, "rope_local_base_freq", json_real(10000));
    if (!strcmp(architecture, "bert")) // such files have no head
        json_object_set_new(config, "architectures", json_pack("[s]", "BertModel"));
    if (!strcmp(architecture, "qwen3moe"))
        json_object_set_new(config, "norm_topk_prob", json_true());
    if (!strcmp(architecture, "deepseek2")) copy_latent(g, architecture, config);
    if (!strcmp(architecture, "gpt-oss")) // whose yarn does not round
        json_object_set_new(json_object_get(config, "rope_scaling"), "truncate", json_false());
    const ct_weight *kinds = ct__weights_find(files, "token_types.weight");
    if (kinds && kinds->rank == 2) put_whole(config, "type_vocab_size", kinds->dim[0]);
    const ct_weight *shared = ct__weights_find(files, "blk.0.ffn_up_shexp.weight");
    if (shared && shared->rank == 2 && !json_object_get(config, "shared_expert_intermediate_size"))
        put_whole(config, "shared_expert_intermediate_size", shared->dim[0]);
}

json_t *ct__lm_gguf_config(const ct_weights *files, ct_err *err) {
    const ct_gguf *g = &files->gguf;
    char architecture[64], type[64];
    ct_gguf_text text;
    if (!ct__gguf_text(g, "general.architecture", &text, err)) return NULL;
    snprintf(architecture, sizeof architecture, "%.*s", (int)(text.n < 63 ? text.n : 63), text.s);
    const bool experts = below(g, architecture, "expert_count") != NULL;
    if (!type_of(architecture, experts, type)) {
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, g->label,
                "\"general.architecture\" is \"%.60s\", an architecture that is not known",
                architecture);
        return NULL;
    }
    json_t *config = json_object();
    if (!config) {
        ct__err_memory(err, CT_NOWHERE, g->label, 0);
        return NULL;
    }
    json_object_set_new(config, "model_type", json_string(type));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) copy_key(g, architecture, i, config);
    copy_rope(files, architecture, config);
    copy_pattern(g, architecture, config);
    complete(files, architecture, config);
    copy_fraction(config);
    put_usual(config);
    const ct_weight *embed = ct__weights_find(files, "token_embd.weight");
    if (embed && embed->rank == 2)
        json_object_set_new(config, "vocab_size", json_integer(embed->dim[0]));
    json_object_set_new(config, "tie_word_embeddings",
                        json_boolean(!ct__weights_find(files, "output.weight")));
    return config;
}

// ---------------------------------------------------------------------------------------------- names

static const struct {
    int name;
    const char *gguf;
} names[] = {
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
    {CT_NAME_joined_qkv, "attn_qkv"},
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
    {CT_NAME_shared_switch, "ffn_gate_inp_shexp"},
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

// Llama 3.1's way of stretching comes as a factor a pair.
static bool slow_down(const ct_weights *files, ct_spec *s, bool *used, ct_err *err) {
    const ct_weight *w = ct__weights_find(files, "rope_freqs.weight");
    if (!w) return true;
    if (s->rope == CT_ROPE_NONE || w->dtype != CT_F32 || w->block >= 0 || w->rank != 1 ||
        w->dim[0] != s->turn[0].pairs)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, w->path,
                       "\"rope_freqs.weight\" has %" PRId64 " numbers (%s), %" PRId64 " pairs turn",
                       w->rank ? w->dim[0] : 1, w->kind, s->turn[0].pairs);
    for (int64_t i = 0; i < s->turn[0].pairs; i++) {
        float factor;
        memcpy(&factor, (const char *)w->data + 4 * i, 4); // a file aligns nothing
        for (int sliding = 0; sliding < 2; sliding++) s->turn[sliding].speed[i] /= factor;
    }
    used[w - files->entries] = true;
    return true;
}

// Weights that the config was made of.
static void use_factors(const ct_weights *files, const ct_spec *s, bool *used) {
    static const char *const own[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    for (int i = 0; i < 2 && s->turn[0].long_speed; i++) {
        const ct_weight *w = ct__weights_find(files, own[i]);
        if (w) used[w - files->entries] = true;
    }
}

bool ct__lm_gguf_adapt(const ct_weights *files, ct_spec *s, bool *used, ct_err *err) {
    use_factors(files, s, used);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (s->name[names[i].name]) s->name[names[i].name] = names[i].gguf;
    s->in_out = s->expert_in_out = 0; // all weights are (out, in)
    if (s->norm == CT_LM_NORM_RMS1) s->norm = CT_LM_NORM_RMS;
    if (s->qkv == CT_QKV_BY_HEAD) s->qkv = CT_QKV_JOINED;
    if (!strcmp(s->type, "gpt_oss")) { // gates and what they gate stand apart
        s->name[CT_NAME_mlp_norm] = "post_attention_norm";
        s->name[CT_NAME_expert_gate_up] = NULL;
        s->name[CT_NAME_expert_gate] = "ffn_gate_exps.weight";
        s->name[CT_NAME_expert_up] = "ffn_up_exps.weight";
    }
    if (s->order == CT_ORDER_POST) { // BERT's norms stand behind what they norm
        s->name[CT_NAME_attn_norm] = "attn_output_norm";
        s->name[CT_NAME_mlp_norm] = "layer_output_norm";
    }
    if (s->latent && ct__weights_find(files, "blk.0.attn_k_b.weight")) {
        s->name[CT_NAME_kv_b] = NULL;
        s->name[CT_NAME_k_b] = "attn_k_b";
        s->name[CT_NAME_v_b] = "attn_v_b";
    }
    // Rows of queries and keys have been put into another order, so that neighbours turn together.
    if (s->gguf_pairs) s->rope = CT_ROPE_PAIRS;
    return slow_down(files, s, used, err);
}
