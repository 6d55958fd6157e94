// The specification of a language model: its sizes, the variants of its parts and the names of its weights,
// which a row of the table of architectures and a model's config.json define together.
//
// A row is a line of settings, "type: like=OTHER key=value ...". A value is a number, a word or a name; or,
// with $, the value of a key in config.json. Alternatives are separated by bars, and the first that is
// present counts:
//         gemma: like=llama class=GemmaForCausalLM norm=rms1 act=$hidden_activation|$hidden_act tied=1
// A key that is null counts as missing; with $? it is 0. The last alternative is the default of the
// architecture's class in transformers, since published configs leave out keys that have their default. So
// another architecture of a known family is one more line (architectures.c).
#ifndef COTAN_MODELS_SPEC_H
#define COTAN_MODELS_SPEC_H

#include "base/error.h"
#include "base/mem.h"

// Integer settings, in the order in which they are evaluated, each with the default for a row that does not
// set it. A product or quotient of two may name settings above it.
#define CT_SPEC_INTS(F)                                                                            \
    F(vocab, "$vocab_size")                                                                        \
    F(context, "$max_position_embeddings|$n_positions|$context_length|0") /* 0: no limit */        \
    F(layers, "$num_hidden_layers|$n_layer|$num_layers|$n_layers")                                 \
    F(width, "$hidden_size|$n_embd|$d_model|$dim")                                                 \
    F(heads, "$num_attention_heads|$n_head|$num_heads|$n_heads|1")                                 \
    F(kv_heads, "$num_key_value_heads|heads")                                                      \
    F(head, "$head_dim|width/heads") /* head_dim of queries and keys */                            \
    F(value_head, "head")                                                                          \
    F(hidden, "$intermediate_size|$n_inner|$d_ff|$hidden_dim|4*width")                             \
    F(tied, "$tie_word_embeddings|0") /* the output layer is the embedding */                      \
    F(in_out, "0")                    /* linear weights are (in, out), not (out, in) */            \
    F(bare, "0") /* new models name weights without the prefix that all names share */             \
    F(bias, "1") /* 0: there are no biases, and files have zeros in their place */                 \
    F(norm_bias, "0")                                                                              \
    F(qkv_bias, "0")                                                                               \
    F(out_bias, "0")                                                                               \
    F(mlp_bias, "0")                                                                               \
    F(head_bias, "0")                                                                              \
    F(rotary, "0") /* head elements that are rotated; 0: the fraction $partial_rotary_factor */    \
    F(window,                                                                                      \
      "0") /* keys that a query of a sliding layer attends to, including its own; 0: all */        \
    F(sliding, "1") /* layers that no list names: n: all but every n-th, -n: but 0, n, 2 n */      \
    F(use_sliding_window, "$use_sliding_window|1") /* 0: no layer slides, whatever the window */   \
    F(first_sliding, "$max_window_layers|0")                                                       \
    F(chunk, "0")      /* keys and queries attend within chunks of so many (layers in a list) */   \
    F(gguf_pairs, "0") /* in GGUF files neighbours rotate together, where else halves do */        \
    F(rope_interval, "0") /* every so many layers has no rope; 0: all have */                      \
    F(parallel, "0")      /* attention and MLP read the same input and are added together */       \
    F(bidirectional, "0")                                                                          \
    F(types, "0")           /* number of token types (segments) */                                 \
    F(positions, "context") /* rows of the position embedding, where there is one */               \
    F(first_position, "0")  /* its row for the first token */                                      \
    F(embed_sqrt, "0")      /* embeddings are multiplied by sqrt(width) */                         \
    F(tune_queries, "0")    /* queries of layers without rope are scaled by position */            \
    F(experts, "0")                                                                                \
    F(experts_per_token, "$num_experts_per_tok|1") /* experts per token */                         \
    F(expert_hidden, "hidden")                                                                     \
    F(shared_hidden, "0")                                                                          \
    F(dense_hidden, "hidden") /* of layers without experts in a model that has some */             \
    F(renormalise, "0")       /* the chosen experts' weights are normalised to sum to 1 */         \
    F(groups, "1")            /* groups of experts, of which top_groups are considered */          \
    F(top_groups, "1")                                                                             \
    F(dense_first, "0")   /* layers before the first with experts */                               \
    F(sparse_step, "1")   /* every so many layers has experts */                                   \
    F(expert_in_out, "0") /* experts' weights are (experts, in, out) */                            \
    F(expert_bias, "0")                                                                            \
    F(q_lora_rank, "0")  /* latent attention: rank of the queries' projection */                   \
    F(kv_lora_rank, "0") /* latent attention: rank of keys and values; 0: not latent */            \
    F(nope_head, "0")    /* head elements that are not rotated */                                  \
    F(state, "0")        /* state space: size of a channel's state */                              \
    F(conv, "0")         /* taps of its convolution */                                             \
    F(step_rank, "0")                                                                              \
    F(conv_bias, "1")                                                                              \
    F(attn_width, "width") /* RWKV: width of the time mixing */                                    \
    F(logit_sqrt, "0")     /* logits are divided by sqrt(width) */                                 \
    F(buckets, "0") /* buckets of relative positions, whose scores the first layer learns */       \
    F(max_distance, "128") /* relative position from which on all share a bucket */                \
    F(decoder_start,                                                                               \
      "$decoder_start_token_id|0") // first token of the decoder, where there is an encoder

#define CT_SPEC_REALS(F)                                                                           \
    F(default_eps, "1e-5") /* default_: the default where the config has no value */               \
    F(eps,                                                                                         \
      "$rms_norm_eps|$layer_norm_eps|$layer_norm_epsilon|$norm_epsilon|$norm_eps|default_eps")     \
    F(default_theta, "10000")                                                                      \
    F(theta, "$rope_theta|default_theta")                                                          \
    F(local_theta, "$rope_local_base_freq|$local_rope_theta|0") /* of sliding layers; 0: theta */  \
    F(rotary_fraction, "1") /* of a head that is rotated, where the config has no value */         \
    F(scale, "0")           /* of attention scores; 0: 1 / sqrt(scale_of) */                       \
    F(scale_of, "0")        /* 0: head_dim */                                                      \
    F(softcap, "0")         /* of attention scores */                                              \
    F(final_softcap, "0")                                                                          \
    F(embed_scale, "1")                                                                            \
    F(residual_scale, "1")                                                                         \
    F(logit_scale, "1") /* divisor of the logits */                                                \
    F(routed_scale, "1")                                                                           \
    F(swiglu_limit, "0") /* clamp of gates and of what they gate; 0: none */                       \
    F(gate_alpha, "1.702")                                                                         \
    F(tune_scale, "0.1")                                                                           \
    F(tune_floor, "8192")                                                                          \
    F(jitter, "0.01")

// Settings whose value is a word of a list.
#define CT_SPEC_KINDS(F)                                                                           \
    F(family, "decoder", "decoder encoder mamba rwkv")                                             \
    F(norm, "rms", "rms rms1 layer") /* rms1: multiplies by 1 + weight */                          \
    F(order, "pre", "pre post") /* norms before attention and MLP, or after the residual sums */   \
    F(qkv, "split", "split fused by_head")     /* by_head: (heads, 3, head) */                     \
    F(qk_norm, "none", "none head whole unit") /* unit: without weights, after the rotation */     \
    F(rope, "half", "none half pairs")         /* which elements rotate together */                \
    F(act, "$hidden_act|$hidden_activation|$activation_function|$activation|silu",                 \
      "silu gelu gelu_new gelu_pytorch_tanh gelu_fast relu swish relu2 quick_gelu tanh")           \
    F(mlp, "gated",                                                                                \
      "gated fused ungated relu gated-gelu gated-silu") /* fused: gate and up are one weight */    \
    F(score_act, "tanh", "tanh relu act")  /* after score_dense; act: the model's own */           \
    F(score_pool, "last", "cls mean last") /* pooling of the tokens for the classification head */ \
    F(routing, "softmax", "softmax topk_softmax sigmoid scaled mixer") // see stack_experts.c

// Names of weights, without ".weight": those outside of layers, and those within a layer, which are
// relative to its name. In `layer` a % is replaced by the layer's number, in experts' names a # by the
// expert's. `encoder` is the row of the encoder whose output the layers attend to, `class` is Hugging
// Face's name of the model, `gguf` is GGUF's. `new` has further keys of a new model's config,
// "key:value;key:value": values are JSON, or products and quotients of numbers and of vocab, context,
// layers, heads, kv_heads, width, hidden, head and dropout. Names that begin with score belong to the classification
// head of ...ForSequenceClassification, a model of the same architecture.
// clang-format off
#define CT_SPEC_NAMES(F)                                                                           \
    F(class) F(gguf) F(encoder) F(new) F(layer) F(embed) F(position_table) F(type_table) F(embed_norm) \
    F(final_norm) F(output_dense) F(output_norm) F(output) F(logit_bias)                           \
    F(score_dense) F(score_norm) F(score_output)

#define CT_SPEC_LAYER_NAMES(F)                                                                     \
    F(attn_norm) F(attn_post) F(cross_norm) F(mlp_norm) F(mlp_post)                                \
    F(q) F(k) F(v) F(fused_qkv) F(o) F(q_norm) F(k_norm) F(sinks) F(relative)                      \
    F(q_a) F(q_a_norm) F(q_b) F(kv_a) F(kv_a_norm) F(kv_b) F(k_b) F(v_b)                           \
    F(cross_q) F(cross_k) F(cross_v) F(cross_o)                                                    \
    F(gate) F(up) F(ungated_up) F(gate_up) F(down)                                                 \
    F(router) F(router_bias) F(expert_gate) F(expert_up) F(expert_gate_up) F(expert_down)          \
    F(shared_gate) F(shared_up) F(shared_down) F(shared_expert_gate)                               \
    F(ssm_in) F(ssm_conv) F(ssm_x) F(ssm_step) F(ssm_decay) F(ssm_skip) F(ssm_out)                 \
    F(first_norm) F(mix_k) F(mix_v) F(mix_r) F(decay) F(bonus) F(r) F(mlp_mix_k) F(mlp_mix_r)      \
    F(mlp_r)
// clang-format on

enum {
#define F(name) CT_NAME_##name,
    CT_SPEC_NAMES(F) CT_NAME_WHOLE, // names from here on are relative to a layer's name
    CT__BEFORE_LAYER_NAMES = CT_NAME_WHOLE - 1,
    CT_SPEC_LAYER_NAMES(F) CT_NAMES_ALL,
#undef F
};

typedef enum ct_layer_mask {
    CT_LAYER_MASK_FULL,
    CT_LAYER_MASK_SLIDING,
    CT_LAYER_MASK_CHUNKED
} ct_layer_mask;
typedef struct ct_layer_spec {
    ct_layer_mask mask;
    bool has_rope, experts;
} ct_layer_spec;

// The rotary frequencies of each pair of a head's elements, in radians per position.
typedef struct ct_rope {
    // (pairs); long_inv_freq: of sequences longer than original_context, or NULL
    float *inv_freq, *long_inv_freq;
    int64_t pairs, original_context; // original_context: 0: all lengths have the same frequencies
    double long_attention_factor;    // attention_factor of sequences longer than original_context
    // dynamic_factor: theta grows by it with the length beyond original_context (dynamic NTK)
    double theta, dynamic_factor;
    double attention_factor; // factor of the rotated elements
    double score_scale;      // factor of the attention scores (DeepSeek's mscale, squared)
} ct_rope;

typedef struct ct_spec {
    const char *type; // config.json's model_type
#define F(name, ...) int64_t name;
    CT_SPEC_INTS(F)
#undef F
#define F(name, ...) double name;
    CT_SPEC_REALS(F)
#undef F
#define F(name, ...) int name;
    CT_SPEC_KINDS(F)
#undef F
    const char *name[CT_NAMES_ALL]; // NULL: there is no such weight
    ct_layer_spec *layer;           // (layers)
    ct_rope ropes[2];               // of full layers, and of sliding layers
} ct_spec;

enum { CT_FAMILY_DECODER, CT_FAMILY_ENCODER, CT_FAMILY_MAMBA, CT_FAMILY_RWKV };
enum { CT_LM_NORM_RMS, CT_LM_NORM_RMS1, CT_LM_NORM_LAYER };
enum { CT_ORDER_PRE, CT_ORDER_POST };
enum { CT_QKV_SPLIT, CT_QKV_FUSED, CT_QKV_BY_HEAD };
enum { CT_QK_NONE, CT_QK_HEAD, CT_QK_WHOLE, CT_QK_UNIT };
enum { CT_ROPE_NONE, CT_ROPE_HALF, CT_ROPE_PAIRS };
enum { CT_MLP_GATED, CT_MLP_FUSED, CT_MLP_UNGATED };
enum { CT_SCORE_TANH, CT_SCORE_RELU, CT_SCORE_ACT };
enum { CT_SCORE_OF_CLS, CT_SCORE_OF_MEAN, CT_SCORE_OF_LAST };
enum { CT_ROUTE_SOFTMAX, CT_ROUTE_TOPK_SOFTMAX, CT_ROUTE_SIGMOID, CT_ROUTE_SCALED, CT_ROUTE_MIXER };

struct json_t;
// Reads the spec of the config at `path` (for messages). What it points to is allocated in the arena, or is
// constant. An unknown architecture is an error that suggests the closest one.
bool ct__spec_read(const char *path, const struct json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err);
// Does the same with the row `type`, whatever model_type the config has.
bool ct__spec_read_as(const char *type, const char *path, const struct json_t *config,
                      ct_arena *arena, ct_spec *spec, ct_err *err);
// Adds the rows of the file that COTAN_ARCHITECTURES names, once.
bool ct__spec_own_rows(ct_err *err);
bool ct__spec_is_known(const char *type);
// Checks a row: its settings exist, what it needs is there, and what excludes each other is not. The error names
// the row.
bool ct__spec_check_row(const char *row, ct_err *err);
const char *ct__spec_nearest(const char *type, ct_arena *arena); // NULL: none is similar
// Fills the spec from the row `type` alone: settings that depend on a config's keys are 0, or have their
// default.
void ct__spec_row(const char *type, ct_arena *arena, ct_spec *spec);
// Returns the config.json key of a setting in the row `type`; NULL: the setting is not a single key.
const char *ct__spec_key(const char *type, const char *setting, ct_arena *arena);
// Removes the prefix that all names of weights share: "transformer." of "transformer.wte".
void ct__spec_drop_prefix(ct_spec *spec);
extern const char *const ct__architectures[]; // rows; NULL at the end

#endif
