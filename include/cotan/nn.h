// Modules: parameters with dotted names, and layers as small structs of variables with plain
// functions. Nothing here is more than variables and ops of cotan.h.
#ifndef COTAN_NN_H
#define COTAN_NN_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// -------------------------------------------------------------------------------------- parameters

// How a parameter is initialised.
typedef enum {
    CT_NN_INIT_DEFAULT,
    CT_NN_INIT_ZEROS,
    CT_NN_INIT_ONES,
    CT_NN_INIT_NORMAL
} ct_nn_init_kind;
typedef struct ct_nn_init {
    ct_nn_init_kind kind; // CT_NN_INIT_DEFAULT: the layer's default
    double std;           // standard deviation of the normal distribution around 0
} ct_nn_init;
#ifdef __cplusplus
#define CT_NN_ZEROS (ct_nn_init{CT_NN_INIT_ZEROS, 0})
#define CT_NN_ONES (ct_nn_init{CT_NN_INIT_ONES, 0})
#define CT_NN_NORMAL(std) (ct_nn_init{CT_NN_INIT_NORMAL, (std)})
#else
#define CT_NN_ZEROS ((ct_nn_init){CT_NN_INIT_ZEROS, 0})
#define CT_NN_ONES ((ct_nn_init){CT_NN_INIT_ONES, 0})
#define CT_NN_NORMAL(std) ((ct_nn_init){CT_NN_INIT_NORMAL, (std)})
#endif

enum { CT_NN_MAX_PATH = 192 }; // maximum length of a parameter's name, including its end

// A builder, passed by value: a parameter set, the dotted path in it under which a layer creates
// its parameters, and the seed of initial values. The initial value of a parameter depends only on
// the seed, its full name and its shape, so that other parameters can be added or removed.
typedef struct ct_nn_builder {
    ct_params *params;
    uint64_t seed;
    bool skip_init;            // parameters get no initial values: they will be loaded
    ct_dtype dtype;            // of the parameters; default f32
    char path[CT_NN_MAX_PATH]; // "h.0.attn"; "" at the root
} ct_nn_builder;
CT_API ct_nn_builder ct_nn_builder_for(ct_params *params, uint64_t seed);
// Returns a builder of a nested path: ct_nn_builder_child(builder, "h.%d", i).
CT_API ct_nn_builder ct_nn_builder_child(ct_nn_builder builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Adds a parameter and assigns its initial value; both run with the next plan.
CT_API ct_tensor ct_nn_param_at(ct_nn_builder builder, const char *name, ct_ints dims,
                                ct_nn_init init, ct_loc here);
#define ct_nn_param(builder, name, dims, init)                                                     \
    ct_nn_param_at((builder), (name), (dims), (init), CT_HERE)
CT_API int64_t ct_params_size(const ct_params *params); // number of elements of all variables

// Saves every variable of the set in a safetensors file; the same values give the same bytes.
// False: see ct_error_text.
CT_API CT_MUST_USE bool ct_params_save_at(const ct_params *params, const char *path, ct_loc here);
#define ct_params_save(params, path) ct_params_save_at((params), (path), CT_HERE)
// Assigns to each variable of the set the value stored under its name. The file must have exactly
// these names and shapes. Floats of another dtype are converted.
CT_API CT_MUST_USE bool ct_params_load_at(ct_params *params, const char *path, ct_loc here);
#define ct_params_load(params, path) ct_params_load_at((params), (path), CT_HERE)

// ------------------------------------------------------------------------------------------- modes

// Training or evaluation, an argument of layers that behave differently. The zero value is
// evaluation. The n-th dropout recorded with a mode draws from `key` folded with n: use a new mode
// and key for each step.
typedef struct ct_nn_mode {
    bool training;
    float dropout;       // probability that an element is dropped in training
    ct_tensor key;       // (2,) u32: ct_random_key; needed in training with dropout > 0
    uint32_t n_dropouts; // number of dropouts recorded so far
} ct_nn_mode;
// mode NULL: evaluation.
CT_API ct_tensor ct_nn_dropout_at(ct_tensor x, ct_nn_mode *mode, ct_loc here);
#define ct_nn_dropout(x, mode) ct_nn_dropout_at((x), (mode), CT_HERE)

// ------------------------------------------------------------------------------------------ layers

// Linear layer: x (..., in) -> (..., out). The weight is stored in the layout of the model's file:
// (in, out) as in GPT-2, or with .out_in (out, in) as in PyTorch's Linear.
typedef struct ct_nn_linear {
    ct_tensor weight, bias; // bias (out,), or CT_NONE
    bool out_in;
} ct_nn_linear;
typedef struct ct_nn_linear_options {
    int64_t in, out;
    bool no_bias, out_in;
    ct_nn_init init; // of the weight; default normal 0.02; the bias is zero
    ct_loc here;
} ct_nn_linear_options;
CT_API ct_nn_linear ct_nn_linear_with(ct_nn_builder builder, ct_nn_linear_options options);
#define ct_nn_linear_new(builder, ...)                                                             \
    ct_nn_linear_with((builder), (ct_nn_linear_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_linear_apply_at(const ct_nn_linear *layer, ct_tensor x, ct_loc here);
#define ct_nn_linear_apply(layer, x) ct_nn_linear_apply_at((layer), (x), CT_HERE)

// Embedding: ids (...) -> (..., width), rows of the weight (count, width).
typedef struct ct_nn_embedding {
    ct_tensor weight;
} ct_nn_embedding;
typedef struct ct_nn_embedding_options {
    int64_t count, width;
    ct_nn_init init; // default normal 0.02
    ct_loc here;
} ct_nn_embedding_options;
CT_API ct_nn_embedding ct_nn_embedding_with(ct_nn_builder builder, ct_nn_embedding_options options);
#define ct_nn_embedding_new(builder, ...)                                                          \
    ct_nn_embedding_with((builder), (ct_nn_embedding_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_embedding_apply_at(const ct_nn_embedding *layer, ct_tensor ids, ct_loc here);
#define ct_nn_embedding_apply(layer, ids) ct_nn_embedding_apply_at((layer), (ids), CT_HERE)

// Convolution: x (N, in, ...) with 1 to 3 spatial axes -> (N, out, ...), with weight (out, in /
// groups, ...), or with .transposed (in, out / groups, ...), as PyTorch stores them. The options
// are those of ct_conv and ct_conv_transpose.
enum { CT_NN_MAX_SPATIAL = 3 };
typedef struct ct_nn_sizes { // values of an option, at most two per axis
    int64_t n, v[2 * CT_NN_MAX_SPATIAL];
} ct_nn_sizes;
typedef struct ct_nn_conv {
    ct_tensor weight, bias; // bias (out,), or CT_NONE
    int64_t in, groups;
    ct_nn_sizes stride, padding, dilation, output_padding;
    bool same, transposed;
} ct_nn_conv;
// kernel: one size per axis, CT_INTS(3, 3) for images. groups: default 1; the number of channels
// makes it a depthwise convolution. output_padding is only for .transposed. init: of the weight,
// default normal with standard deviation sqrt(2 / fan-in) (He et al. 2015); the bias is zero.
typedef struct ct_nn_conv_options {
    int64_t in, out;
    ct_ints kernel;
    ct_ints stride, padding, dilation, output_padding;
    int64_t groups;
    bool same, transposed, no_bias;
    ct_nn_init init;
    ct_loc here;
} ct_nn_conv_options;
CT_API ct_nn_conv ct_nn_conv_with(ct_nn_builder builder, ct_nn_conv_options options);
#define ct_nn_conv_new(builder, ...)                                                               \
    ct_nn_conv_with((builder), (ct_nn_conv_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_conv_apply_at(const ct_nn_conv *layer, ct_tensor x, ct_loc here);
#define ct_nn_conv_apply(layer, x) ct_nn_conv_apply_at((layer), (x), CT_HERE)

// Layer norm, or with .rms RMS norm, over the last axis.
typedef struct ct_nn_norm {
    ct_tensor weight, bias; // (width,); bias may be CT_NONE, and always is with rms
    double eps;
    bool rms;
} ct_nn_norm;
typedef struct ct_nn_norm_options {
    int64_t width;
    bool no_bias, rms;
    double eps; // default 1e-5
    ct_loc here;
} ct_nn_norm_options;
CT_API ct_nn_norm ct_nn_norm_with(ct_nn_builder builder, ct_nn_norm_options options);
#define ct_nn_norm_new(builder, ...)                                                               \
    ct_nn_norm_with((builder), (ct_nn_norm_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_norm_apply_at(const ct_nn_norm *layer, ct_tensor x, ct_loc here);
#define ct_nn_norm_apply(layer, x) ct_nn_norm_apply_at((layer), (x), CT_HERE)

// Group norm of x (N, C, ...): weight and bias (C,), which may be CT_NONE.
typedef struct ct_nn_group_norm {
    ct_tensor weight, bias;
    int64_t channels, groups;
    double eps;
} ct_nn_group_norm;
typedef struct ct_nn_group_norm_options {
    int64_t channels, groups; // groups: default 1; the number of channels makes it an instance norm
    bool no_affine;           // neither weight nor bias
    double eps;               // default 1e-5
    ct_loc here;
} ct_nn_group_norm_options;
CT_API ct_nn_group_norm ct_nn_group_norm_with(ct_nn_builder builder,
                                              ct_nn_group_norm_options options);
#define ct_nn_group_norm_new(builder, ...)                                                         \
    ct_nn_group_norm_with((builder), (ct_nn_group_norm_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_group_norm_apply_at(const ct_nn_group_norm *layer, ct_tensor x, ct_loc here);
#define ct_nn_group_norm_apply(layer, x) ct_nn_group_norm_apply_at((layer), (x), CT_HERE)

// Batch norm. In training it normalises over all images of a batch, and each call also assigns the
// running statistics; in evaluation it uses those.
typedef struct ct_nn_batch_norm {
    ct_tensor weight, bias; // (C,), or CT_NONE
    ct_tensor mean, var;    // (C,) running statistics: "running_mean" and "running_var"
    double eps, momentum;
} ct_nn_batch_norm;
typedef struct ct_nn_batch_norm_options {
    int64_t channels;
    bool no_affine;       // neither weight nor bias
    double eps, momentum; // default 1e-5; 0.1: weight of a batch in the running statistics
    ct_loc here;
} ct_nn_batch_norm_options;
// running: where the running statistics are created, in another set than the parameters, since no
// optimizer may update them. With the same path they have PyTorch's names.
CT_API ct_nn_batch_norm ct_nn_batch_norm_with(ct_nn_builder builder, ct_nn_builder running,
                                              ct_nn_batch_norm_options options);
#define ct_nn_batch_norm_new(builder, running, ...)                                                \
    ct_nn_batch_norm_with((builder), (running),                                                    \
                          (ct_nn_batch_norm_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_batch_norm_apply_at(const ct_nn_batch_norm *layer, ct_tensor x,
                                           const ct_nn_mode *mode, ct_loc here);
#define ct_nn_batch_norm_apply(layer, x, mode)                                                     \
    ct_nn_batch_norm_apply_at((layer), (x), (mode), CT_HERE)

typedef enum {
    CT_NN_GELU_TANH, // the default, as in GPT-2
    CT_NN_GELU,
    CT_NN_SILU,
    CT_NN_RELU,
    CT_NN_TANH,
    CT_NN_IDENTITY
} ct_nn_activation;
CT_API ct_tensor ct_nn_activate_at(ct_nn_activation which, ct_tensor x, ct_loc here);
#define ct_nn_activate(which, x) ct_nn_activate_at((which), (x), CT_HERE)

// MLP: x (..., width) -> hidden -> (..., width), with two linear layers, "c_fc" and "c_proj".
typedef struct ct_nn_mlp {
    ct_nn_linear fc, proj;
    ct_nn_activation activation;
} ct_nn_mlp;
typedef struct ct_nn_mlp_options {
    int64_t width, hidden; // hidden: default 4 * width
    bool no_bias;
    ct_nn_activation activation;
    ct_nn_init init, proj_init; // of the weights; default normal 0.02
    ct_loc here;
} ct_nn_mlp_options;
CT_API ct_nn_mlp ct_nn_mlp_with(ct_nn_builder builder, ct_nn_mlp_options options);
#define ct_nn_mlp_new(builder, ...)                                                                \
    ct_nn_mlp_with((builder), (ct_nn_mlp_options){__VA_ARGS__, .here = CT_HERE})
CT_API ct_tensor ct_nn_mlp_apply_at(const ct_nn_mlp *layer, ct_tensor x, ct_nn_mode *mode,
                                    ct_loc here);
#define ct_nn_mlp_apply(layer, x, mode) ct_nn_mlp_apply_at((layer), (x), (mode), CT_HERE)

// Causal multi-head self-attention: x (B, T, width) -> (B, T, width). One linear layer "c_attn"
// computes queries, keys and values; "c_proj" is the output projection.
typedef struct ct_nn_attention {
    ct_nn_linear attn, proj;
    int64_t heads, width;
} ct_nn_attention;
typedef struct ct_nn_attention_options {
    int64_t width, heads; // width must be a multiple of heads
    bool no_bias;
    ct_nn_init init, proj_init; // of the weights; default normal 0.02
    ct_loc here;
} ct_nn_attention_options;
CT_API ct_nn_attention ct_nn_attention_with(ct_nn_builder builder, ct_nn_attention_options options);
#define ct_nn_attention_new(builder, ...)                                                          \
    ct_nn_attention_with((builder), (ct_nn_attention_options){__VA_ARGS__, .here = CT_HERE})
// KV cache of earlier positions, each (B, heads, capacity, width / heads): variables.
typedef struct ct_nn_cache {
    ct_tensor k, v;
} ct_nn_cache;
CT_API ct_nn_cache ct_nn_cache_new_at(ct_nn_builder builder, const ct_nn_attention *layer,
                                      int64_t batch, int64_t capacity, ct_loc here);
#define ct_nn_cache_new(builder, layer, batch, capacity)                                           \
    ct_nn_cache_new_at((builder), (layer), (batch), (capacity), CT_HERE)
// cache: NULL, or the KV cache to which the keys and values of x are written, from index `position`
// on (an integer scalar, an operand). A query then attends to all positions up to its own.
CT_API ct_tensor ct_nn_attention_apply_at(const ct_nn_attention *layer, ct_tensor x,
                                          const ct_nn_cache *cache, ct_tensor position,
                                          ct_nn_mode *mode, ct_loc here);
#define ct_nn_attention_apply(layer, x, mode)                                                      \
    ct_nn_attention_apply_at((layer), (x), NULL, CT_NONE, (mode), CT_HERE)
#define ct_nn_attention_apply_cached(layer, x, cache, position)                                    \
    ct_nn_attention_apply_at((layer), (x), (cache), (position), NULL, CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
