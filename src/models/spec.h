// What a language model is: its sizes, the variants of its parts and the names of its weights, which a
// row of the table of architectures and a model's config.json say together.
//
// A row is a line of settings, "type: like=OTHER key=value ...". A value is a number, a word or a name; or, with
// $, what config.json has under a key. Alternatives stand between bars, the first that is there counts:
//     gemma: like=llama class=GemmaForCausalLM norm=rms1 act=$hidden_activation|$hidden_act tied=1
// A key that is null is as one that is left out; with $? it is 0. The last alternative is what the architecture's authors
// have where the key is left out, as their library's class has it: published configs leave out what is so.
// So another architecture of a known family is one more line (architectures.c).
#ifndef COTAN_MODELS_SPEC_H
#define COTAN_MODELS_SPEC_H

#include "base/error.h"
#include "base/mem.h"

// Whole numbers, in the order in which they are worked out, with what stands for one that a row does
// not set: a product or quotient of two may name numbers above it.
#define CT_SPEC_INTS(F)                                                                            \
    F(vocab, "$vocab_size")                                                                        \
    F(context, "$max_position_embeddings|$n_positions|$context_length|0") /* 0: no end */          \
    F(layers, "$num_hidden_layers|$n_layer|$num_layers|$n_layers")                                 \
    F(width, "$hidden_size|$n_embd|$d_model|$dim")                                                 \
    F(heads, "$num_attention_heads|$n_head|$num_heads|$n_heads|1")                                 \
    F(kv_heads, "$num_key_value_heads|heads")                                                      \
    F(head, "$head_dim|width/heads") /* width of a head's queries and keys */                      \
    F(value_head, "head")                                                                          \
    F(hidden, "$intermediate_size|$n_inner|$d_ff|$hidden_dim|4*width")                             \
    F(tied, "$tie_word_embeddings|0") /* the output layer is the embedding */                      \
    F(in_out, "0")                    /* linear weights are (in, out), not (out, in) */            \
    F(norm_bias, "0")                                                                              \
    F(qkv_bias, "0")                                                                               \
    F(out_bias, "0")                                                                               \
    F(mlp_bias, "0")                                                                               \
    F(head_bias, "0")                                                                              \
    F(rotary, "0")  /* numbers of a head that turn; 0: the fraction $partial_rotary_factor */      \
    F(window, "0")  /* keys that a query of a sliding layer sees, its own the last; 0: all */      \
    F(sliding, "1") /* layers that no list names: n: all but every n-th, -n: but 0, n, 2 n */      \
    F(slides, "$use_sliding_window|1") /* 0: none does, whatever the window */                     \
    F(first_sliding, "$max_window_layers|0")                                                       \
    F(chunk, "0") /* keys and queries see each other in chunks of so many (layers in a list) */    \
    F(gguf_pairs, "0")    /* in GGUF files neighbours turn together, where else halves do */       \
    F(rope_interval, "0") /* every so many layers does not turn; 0: all do */                      \
    F(parallel, "0")      /* attention and MLP read the same and are added at once */              \
    F(bidirectional, "0")                                                                          \
    F(types, "0")           /* kinds of tokens (segments) */                                       \
    F(positions, "context") /* rows of the table of positions, where there is one */               \
    F(first_position, "0")  /* where in it a text begins */                                        \
    F(embed_sqrt, "0")      /* embeddings are multiplied by sqrt(width) */                         \
    F(tune_queries, "0")    /* queries of layers without rotation grow with position */            \
    F(experts, "0")                                                                                \
    F(top, "$num_experts_per_tok|1") /* experts of a token */                                      \
    F(expert_hidden, "hidden")                                                                     \
    F(shared_hidden, "0")                                                                          \
    F(dense_hidden, "hidden") /* of layers without experts in a model that has some */             \
    F(renormalise, "0")       /* what the chosen experts weigh adds up to 1 */                     \
    F(groups, "1")            /* of experts, of which top_groups are looked into */                \
    F(top_groups, "1")                                                                             \
    F(dense_first, "0")   /* layers before the first with experts */                               \
    F(sparse_step, "1")   /* every so many layers has experts */                                   \
    F(expert_in_out, "0") /* experts' weights are (experts, in, out) */                            \
    F(expert_bias, "0")                                                                            \
    F(query_rank, "0") /* latent attention: width of what queries are made of */                   \
    F(latent, "0")     /* width of what keys and values are made of; 0: no latent */               \
    F(plain_head, "0") /* numbers of a head that do not turn */                                    \
    F(state, "0")      /* state space: numbers of a channel's state */                             \
    F(conv, "0")       /* taps of its convolution */                                               \
    F(step_rank, "0")                                                                              \
    F(conv_bias, "1")                                                                              \
    F(attn_width, "width") /* RWKV: of its time mixing */                                          \
    F(logit_sqrt, "0")     /* logits are divided by sqrt(width) */                                 \
    F(buckets, "0")        /* of relative positions, of which the first layer learns scores */     \
    F(farthest, "128")     /* relative position from which on all share a bucket */                \
    F(begin,                                                                                       \
      "$decoder_start_token_id|0") /* what is written begins with, where another text is read */

#define CT_SPEC_REALS(F)                                                                           \
    F(usual_eps, "1e-5") /* usual: where the config does not say it */                             \
    F(eps, "$rms_norm_eps|$layer_norm_eps|$layer_norm_epsilon|$norm_epsilon|$norm_eps|usual_eps")  \
    F(usual_theta, "10000")                                                                        \
    F(theta, "$rope_theta|usual_theta")                                                            \
    F(local_theta, "$rope_local_base_freq|$local_rope_theta|0") /* of sliding layers; 0: theta */  \
    F(turned, "1")   /* fraction of a head that turns, where the config does not say it */         \
    F(scale, "0")    /* of scores; 0: 1 / sqrt(scale_of) */                                        \
    F(scale_of, "0") /* 0: the width of a head */                                                  \
    F(softcap, "0")  /* of scores */                                                               \
    F(final_softcap, "0")                                                                          \
    F(embed_scale, "1")                                                                            \
    F(residual_scale, "1")                                                                         \
    F(logit_scale, "1") /* what logits are divided by */                                           \
    F(routed_scale, "1")                                                                           \
    F(limit, "0") /* of gates and what they gate; 0: none */                                       \
    F(gate_alpha, "1.702")                                                                         \
    F(tune_scale, "0.1")                                                                           \
    F(tune_floor, "8192")                                                                          \
    F(jitter, "0.01")

// Kinds: a word of a list.
#define CT_SPEC_KINDS(F)                                                                           \
    F(family, "decoder", "decoder encoder mamba rwkv")                                             \
    F(norm, "rms", "rms rms1 layer") /* rms1: weights are 1 less than they act */                  \
    F(order, "pre", "pre post")      /* norms before attention and MLP, or behind the sums */      \
    F(qkv, "split", "split joined by_head")    /* by_head: (heads, 3, head) */                     \
    F(qk_norm, "none", "none head whole unit") /* unit: without weights, behind the rotation */    \
    F(rope, "half", "none half pairs")         /* which numbers turn together */                   \
    F(act, "$hidden_act|$hidden_activation|$activation_function|$activation|silu",                 \
      "silu gelu gelu_new gelu_pytorch_tanh gelu_fast relu swish relu2 quick_gelu tanh")           \
    F(mlp, "gated",                                                                                \
      "gated joined plain relu gated-gelu gated-silu") /* joined: gate and up are one weight */    \
    F(score_act, "tanh", "tanh relu act")  /* behind score_dense; act: the model's own */          \
    F(score_pool, "last", "cls mean last") /* of which tokens classes get their scores */          \
    F(routing, "softmax", "softmax chosen sigmoid scaled mixer") /* see moe.c */

// Names of weights, without ".weight". Those of the model whole, and those below a layer's own name. In
// `layer` a % stands for the layer's number, in experts' a # for the expert's. `encoder` is the row of the model
// whose result the layers look at, `class` Hugging Face's name of the model, `gguf` GGUF's. `new` is what the config of a
// new model has beside its sizes, "key:value;key:value": values are JSON, or products and quotients of numbers and of
// vocab, context, layers, heads, kv_heads, width, hidden and head. What begins with score is the head of a model of the
// same architecture that tells classes of texts apart, ...ForSequenceClassification.
// clang-format off
#define CT_SPEC_NAMES(F)                                                                           \
    F(class) F(gguf) F(encoder) F(new) F(layer) F(embed) F(position_table) F(type_table) F(embed_norm)    \
    F(final_norm) F(output_dense) F(output_norm) F(output) F(logit_bias)                             \
    F(score_dense) F(score_norm) F(score_output)

#define CT_SPEC_LAYER_NAMES(F)                                                                     \
    F(attn_norm) F(attn_post) F(cross_norm) F(mlp_norm) F(mlp_post)                                \
    F(q) F(k) F(v) F(joined_qkv) F(o) F(q_norm) F(k_norm) F(sinks) F(relative)                     \
    F(q_a) F(q_a_norm) F(q_b) F(kv_a) F(kv_a_norm) F(kv_b) F(k_b) F(v_b)                           \
    F(cross_q) F(cross_k) F(cross_v) F(cross_o)                                                    \
    F(gate) F(up) F(plain_up) F(gate_up) F(down)                                                               \
    F(router) F(router_bias) F(expert_gate) F(expert_up) F(expert_gate_up) F(expert_down)          \
    F(shared_gate) F(shared_up) F(shared_down) F(shared_switch)                                    \
    F(ssm_in) F(ssm_conv) F(ssm_x) F(ssm_step) F(ssm_decay) F(ssm_skip) F(ssm_out)                 \
    F(first_norm) F(mix_k) F(mix_v) F(mix_r) F(decay) F(bonus) F(r) F(mlp_mix_k) F(mlp_mix_r)      \
    F(mlp_r)
// clang-format on

enum {
#define F(name) CT_NAME_##name,
    CT_SPEC_NAMES(F) CT_NAME_WHOLE, // names from here on stand below a layer's
    CT__BEFORE_LAYER_NAMES = CT_NAME_WHOLE - 1,
    CT_SPEC_LAYER_NAMES(F) CT_NAMES_ALL,
#undef F
};

typedef enum ct_layer_sight { CT_SIGHT_FULL, CT_SIGHT_SLIDING, CT_SIGHT_CHUNK } ct_layer_sight;
typedef struct ct_layer_spec {
    ct_layer_sight sight;
    bool rotates, experts;
} ct_layer_spec;

// How fast each pair of a head's numbers turns: radians a position.
typedef struct ct_rope {
    float *speed, *long_speed; // (pairs); long_speed: of texts longer than long_from, or NULL
    int64_t pairs, long_from;  // long_from: 0: texts of all lengths turn alike
    double long_factor;        // `factor` of texts longer than long_from
    double theta, grows;       // dynamic: theta grows with what such a text has more, by this
    double factor;             // what turned numbers are multiplied by
    double score_factor;       // what scores are multiplied by (DeepSeek's mscale, squared)
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
    const char *name[CT_NAMES_ALL]; // NULL: there is none
    ct_layer_spec *layer;           // (layers)
    ct_rope turn[2];                // of full layers, of sliding ones
} ct_spec;

enum { CT_FAMILY_DECODER, CT_FAMILY_ENCODER, CT_FAMILY_MAMBA, CT_FAMILY_RWKV };
enum { CT_LM_NORM_RMS, CT_LM_NORM_RMS1, CT_LM_NORM_LAYER };
enum { CT_ORDER_PRE, CT_ORDER_POST };
enum { CT_QKV_SPLIT, CT_QKV_JOINED, CT_QKV_BY_HEAD };
enum { CT_QK_NONE, CT_QK_HEAD, CT_QK_WHOLE, CT_QK_UNIT };
enum { CT_ROPE_NONE, CT_ROPE_HALF, CT_ROPE_PAIRS };
enum { CT_MLP_GATED, CT_MLP_JOINED, CT_MLP_PLAIN };
enum { CT_SCORE_TANH, CT_SCORE_RELU, CT_SCORE_ACT };
enum { CT_SCORE_OF_CLS, CT_SCORE_OF_MEAN, CT_SCORE_OF_LAST };
enum { CT_ROUTE_SOFTMAX, CT_ROUTE_CHOSEN, CT_ROUTE_SIGMOID, CT_ROUTE_SCALED, CT_ROUTE_MIXER };

struct json_t;
// Of the config at `path` (for messages). What it points to lies in the arena, or is constant. An
// architecture that nobody knows is an error that names the nearest.
bool ct__spec_read(const char *path, const struct json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err);
// The same by the row `type`, whatever the config says that it is.
bool ct__spec_read_as(const char *type, const char *path, const struct json_t *config,
                      ct_arena *arena, ct_spec *spec, ct_err *err);
// Takes the rows of the file that COTAN_ARCHITECTURES names, once.
bool ct__spec_own_rows(ct_err *err);
bool ct__spec_is_known(const char *type);
const char *ct__spec_nearest(const char *type, ct_arena *arena); // NULL: none is near
// What the row `type` says by itself: what hangs on a config's keys is 0, or what stands for them.
void ct__spec_row(const char *type, ct_arena *arena, ct_spec *spec);
// The key that config.json has a setting under, by the row `type`; NULL: it is not that simple.
const char *ct__spec_key(const char *type, const char *setting, ct_arena *arena);
extern const char *const ct__architectures[]; // rows; NULL at the end

#endif
