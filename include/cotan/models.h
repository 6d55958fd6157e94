// Models that are written with cotan/nn.h.
#ifndef COTAN_MODELS_H
#define COTAN_MODELS_H

#include "cotan/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------- GPT-2

// Parameters have the names and layout of Hugging Face's GPT-2: "wte.weight" (vocab, width),
// "wpe.weight" (context, width), "h.0.attn.c_attn.weight" (width, 3 * width) ... "ln_f.weight". The
// output layer is tied to wte.weight.
typedef struct ct_gpt2_config {
    int64_t vocab, context, layers, heads, width;
    bool no_bias;           // linear layers and norms have no bias
    double dropout;         // used in training only
    double norm_eps;        // default 1e-5
    const char *tokenizer;  // kind of tokens: "bytes", "chars"; NULL: unknown
    const char *characters; // for "chars": characters_n bytes of UTF-8, token i is character i
    size_t characters_n;
} ct_gpt2_config;
typedef struct ct_gpt2 ct_gpt2;

// Returns the number of elements of all parameters; INT64_MAX if it is larger than that, 0 for
// NULL.
CT_API int64_t ct_gpt2_size(const ct_gpt2_config *config);
// Returns the smallest published size: 12 layers, 12 heads, width 768, context 1024, vocabulary
// 50257.
CT_API ct_gpt2_config ct_gpt2_124m(void);

// Makes a model. Weights are normal with standard deviation 0.02, and 0.02 / sqrt(2 * layers)
// for projections into the residual stream; biases 0, norms 1. They are computed when it returns.
// NULL: see ct_error_text.
CT_API ct_gpt2 *ct_gpt2_new_at(const ct_gpt2_config *config, uint64_t seed, ct_loc here);
#define ct_gpt2_new(config, seed) ct_gpt2_new_at((config), (seed), CT_HERE)
CT_API void ct_gpt2_free(ct_gpt2 *model);
CT_API ct_params *ct_gpt2_params(ct_gpt2 *model);
CT_API const ct_gpt2_config *ct_gpt2_config_of(const ct_gpt2 *model);

// tokens (B, T) i32, with T at most the context -> (B, T, width), after the final norm. mode NULL:
// evaluation. If mode->dropout is 0 and mode->key is set, the model's dropout is used.
CT_API ct_tensor ct_gpt2_hidden_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode,
                                   ct_loc here);
#define ct_gpt2_hidden(model, tokens, mode) ct_gpt2_hidden_at((model), (tokens), (mode), CT_HERE)
// -> (B, T, vocab)
CT_API ct_tensor ct_gpt2_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode,
                                   ct_loc here);
#define ct_gpt2_logits(model, tokens, mode) ct_gpt2_logits_at((model), (tokens), (mode), CT_HERE)
// -> (B, vocab): logits at the last position
CT_API ct_tensor ct_gpt2_next_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_loc here);
#define ct_gpt2_next_logits(model, tokens) ct_gpt2_next_logits_at((model), (tokens), CT_HERE)
// targets (B, T) i32 -> the mean cross-entropy, a scalar in nats per token. If a gradient does not
// fit into the available memory (ct_set_memory_limit), it recomputes as few of the model's blocks
// as needed, as if each were under ct_remat with CT_REMAT_AUTO.
CT_API ct_tensor ct_gpt2_loss_at(const ct_gpt2 *model, ct_tensor tokens, ct_tensor targets,
                                 ct_nn_mode *mode, ct_loc here);
#define ct_gpt2_loss(model, tokens, targets, mode)                                                 \
    ct_gpt2_loss_at((model), (tokens), (targets), (mode), CT_HERE)

// KV cache of `batch` sequences of at most `capacity` tokens (0: the context).
typedef struct ct_gpt2_cache ct_gpt2_cache;
CT_API ct_gpt2_cache *ct_gpt2_cache_new_at(const ct_gpt2 *model, int64_t batch, int64_t capacity,
                                           ct_loc here);
#define ct_gpt2_cache_new(model, batch, capacity)                                                  \
    ct_gpt2_cache_new_at((model), (batch), (capacity), CT_HERE)
CT_API void ct_gpt2_cache_free(ct_gpt2_cache *cache);
// Decodes the next tokens (B, T), the first of which has index `position` (an integer scalar:
// ct_i(n), an operand, so that a new value never compiles) -> logits after the last of them (B,
// vocab). Writes their keys and values to the cache. One call for all tokens and one call per token
// give the same bits.
CT_API ct_tensor ct_gpt2_decode_at(const ct_gpt2 *model, ct_gpt2_cache *cache, ct_tensor tokens,
                                   ct_tensor position, ct_loc here);
#define ct_gpt2_decode(model, cache, tokens, position)                                             \
    ct_gpt2_decode_at((model), (cache), (tokens), (position), CT_HERE)

// Saves and loads DIR/model.safetensors and DIR/config.json, with the names of Hugging Face's
// files. False or NULL: see ct_error_text. Loading accepts names with or without "transformer.", a
// stored copy of the output layer, and the masks that old files contain. Checksums in the files,
// such as those of `cotan train`, are verified.
CT_API CT_MUST_USE bool ct_gpt2_save_at(const ct_gpt2 *model, const char *dir, ct_loc here);
#define ct_gpt2_save(model, dir) ct_gpt2_save_at((model), (dir), CT_HERE)
CT_API CT_MUST_USE ct_gpt2 *ct_gpt2_load_at(const char *dir, ct_loc here);
#define ct_gpt2_load(dir) ct_gpt2_load_at((dir), CT_HERE)
// Loads the weights alone into an existing model.
CT_API CT_MUST_USE bool ct_gpt2_load_weights_at(ct_gpt2 *model, const char *path, ct_loc here);
#define ct_gpt2_load_weights(model, path) ct_gpt2_load_weights_at((model), (path), CT_HERE)

// ------------------------------------------------------------------------------------------ ResNet

// Residual networks as in torchvision; the stride of a bottleneck is at its 3x3 convolution.
// Parameters and running statistics have torchvision's names and layout: "conv1.weight" (64, 3, 7,
// 7), "bn1.weight", "layer1.0.conv1.weight" ... "layer2.0.downsample.0.weight" ... "fc.weight"
// (classes, width), "fc.bias"; "bn1.running_mean".
typedef struct ct_resnet_config {
    int64_t depth; // 18 or 34: basic blocks; 50: bottlenecks
    int64_t classes;
    // As for CIFAR: the first convolution is 3x3 with stride 1 and is not followed by pooling.
    bool small_images;
    ct_dtype dtype; // of parameters and running statistics; default f32
} ct_resnet_config;
typedef struct ct_resnet ct_resnet;

// Makes a model. Convolutions are normal with standard deviation sqrt(2 / (out * k * k)); norms 1,
// biases 0. They are computed when it returns. NULL: see ct_error_text.
CT_API ct_resnet *ct_resnet_new_at(const ct_resnet_config *config, uint64_t seed, ct_loc here);
#define ct_resnet_new(config, seed) ct_resnet_new_at((config), (seed), CT_HERE)
CT_API void ct_resnet_free(ct_resnet *model);
CT_API ct_params *ct_resnet_params(ct_resnet *model);
// Returns the running means and variances of the norms.
CT_API ct_params *ct_resnet_running_stats(ct_resnet *model);
// images (N, 3, H, W) -> logits (N, classes). In training, norms use the statistics of the batch,
// and each call assigns the running statistics; in evaluation (mode NULL) they use the latter.
CT_API ct_tensor ct_resnet_logits_at(const ct_resnet *model, ct_tensor images,
                                     const ct_nn_mode *mode, ct_loc here);
#define ct_resnet_logits(model, images, mode)                                                      \
    ct_resnet_logits_at((model), (images), (mode), CT_HERE)
// Saves parameters and running statistics as a safetensors file that torchvision's model loads, and
// loads one of torchvision's, whose batch counts are ignored. False: see ct_error_text; the model
// is unchanged.
CT_API CT_MUST_USE bool ct_resnet_save_weights_at(const ct_resnet *model, const char *path,
                                                  ct_loc here);
#define ct_resnet_save_weights(model, path) ct_resnet_save_weights_at((model), (path), CT_HERE)
CT_API CT_MUST_USE bool ct_resnet_load_weights_at(ct_resnet *model, const char *path, ct_loc here);
#define ct_resnet_load_weights(model, path) ct_resnet_load_weights_at((model), (path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
