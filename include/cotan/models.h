// Models written with nn.
#ifndef COTAN_MODELS_H
#define COTAN_MODELS_H

#include "cotan/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------- GPT-2

// Parameters have the names and layout of Hugging Face's GPT-2: "wte.weight" (vocab, width),
// "wpe.weight" (context, width), "h.0.attn.c_attn.weight" (width, 3 * width) ... "ln_f.weight"; the
// output layer is wte.weight again.
typedef struct ct_gpt2_config {
    int64_t vocab, context, layers, heads, width;
    bool no_bias;           // of linear layers and norms
    double dropout;         // while training
    double norm_eps;        // default 1e-5
    const char *tokens;     // what a token is: "bytes", "chars"; NULL: not said
    const char *characters; // of "chars": characters_n bytes of UTF-8, token i is character i
    size_t characters_n;
} ct_gpt2_config;
typedef struct ct_gpt2 ct_gpt2;

// Elements of all parameters; INT64_MAX where they are more than that, of NULL 0.
CT_API int64_t ct_gpt2_size(const ct_gpt2_config *config);
// The smallest published size: 12 layers, 12 heads, width 768, context 1024, vocabulary 50257.
CT_API ct_gpt2_config ct_gpt2_124m(void);

// Normal 0.02, and 0.02 / sqrt(2 * layers) for what is added to the residual stream; biases 0,
// norms 1. The values are there when it returns. NULL: see ct_error_text.
CT_API ct_gpt2 *ct_gpt2_new_at(const ct_gpt2_config *config, uint64_t seed, ct_loc here);
#define ct_gpt2_new(config, seed) ct_gpt2_new_at((config), (seed), CT_HERE)
CT_API void ct_gpt2_free(ct_gpt2 *model);
CT_API ct_params *ct_gpt2_params(ct_gpt2 *model);
CT_API const ct_gpt2_config *ct_gpt2_config_of(const ct_gpt2 *model);

// tokens (B, T) i32, T at most the context -> (B, T, width), behind the last norm. mode NULL:
// evaluation. The model's dropout is used where mode->dropout is 0 and mode->key is given.
CT_API ct_tensor ct_gpt2_hidden_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode,
                                   ct_loc here);
#define ct_gpt2_hidden(model, tokens, mode) ct_gpt2_hidden_at((model), (tokens), (mode), CT_HERE)
// -> (B, T, vocab)
CT_API ct_tensor ct_gpt2_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode,
                                   ct_loc here);
#define ct_gpt2_logits(model, tokens, mode) ct_gpt2_logits_at((model), (tokens), (mode), CT_HERE)
// -> (B, vocab): of the last position
CT_API ct_tensor ct_gpt2_next_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_loc here);
#define ct_gpt2_next_logits(model, tokens) ct_gpt2_next_logits_at((model), (tokens), CT_HERE)
// targets (B, T) i32 -> the mean cross-entropy, a scalar in nats a token. A gradient that does not fit
// into what memory is left (ct_set_memory_limit) computes as few of the model's blocks again as it
// takes, as if each were under ct_remat with CT_REMAT_NEEDED.
CT_API ct_tensor ct_gpt2_loss_at(const ct_gpt2 *model, ct_tensor tokens, ct_tensor targets,
                                 ct_nn_mode *mode, ct_loc here);
#define ct_gpt2_loss(model, tokens, targets, mode)                                                 \
    ct_gpt2_loss_at((model), (tokens), (targets), (mode), CT_HERE)

// Keys and values of `batch` texts of at most `capacity` tokens (0: the context).
typedef struct ct_gpt2_cache ct_gpt2_cache;
CT_API ct_gpt2_cache *ct_gpt2_cache_new_at(const ct_gpt2 *model, int64_t batch, int64_t capacity,
                                           ct_loc here);
#define ct_gpt2_cache_new(model, batch, capacity)                                                  \
    ct_gpt2_cache_new_at((model), (batch), (capacity), CT_HERE)
CT_API void ct_gpt2_cache_free(ct_gpt2_cache *cache);
// The next T tokens (B, T), the first of which has place `position` (an integer scalar: ct_i(n), an
// operand, so that a new one never compiles) -> logits behind the last of them (B, vocab). Their
// keys and values are written to the cache. All at once or one by one gives the same bits.
CT_API ct_tensor ct_gpt2_decode_at(const ct_gpt2 *model, ct_gpt2_cache *cache, ct_tensor tokens,
                                   ct_tensor position, ct_loc here);
#define ct_gpt2_decode(model, cache, tokens, position)                                             \
    ct_gpt2_decode_at((model), (cache), (tokens), (position), CT_HERE)

// DIR/model.safetensors and DIR/config.json, with the names that Hugging Face's files have. False
// or NULL: see ct_error_text. Loading accepts names with or without "transformer.", a stored copy
// of the output layer, and the masks that old files hold. Checksums that the files hold, as those
// of `cotan train` do, are compared.
CT_API CT_MUST_USE bool ct_gpt2_save_at(const ct_gpt2 *model, const char *dir, ct_loc here);
#define ct_gpt2_save(model, dir) ct_gpt2_save_at((model), (dir), CT_HERE)
CT_API CT_MUST_USE ct_gpt2 *ct_gpt2_load_at(const char *dir, ct_loc here);
#define ct_gpt2_load(dir) ct_gpt2_load_at((dir), CT_HERE)
// The weights alone, into a model that is there.
CT_API CT_MUST_USE bool ct_gpt2_load_weights_at(ct_gpt2 *model, const char *path, ct_loc here);
#define ct_gpt2_load_weights(model, path) ct_gpt2_load_weights_at((model), (path), CT_HERE)

// ------------------------------------------------------------------------------------------ ResNet

// Residual networks as torchvision has them, the stride of a bottleneck being that of its 3x3.
// Parameters and running statistics have its names and layout: "conv1.weight" (64, 3, 7, 7),
// "bn1.weight", "layer1.0.conv1.weight" ... "layer2.0.downsample.0.weight" ... "fc.weight"
// (classes, width), "fc.bias"; "bn1.running_mean".
typedef struct ct_resnet_config {
    int64_t depth; // 18 or 34: basic blocks; 50: bottlenecks
    int64_t classes;
    bool small_images; // as for CIFAR: the first convolution is 3x3 without stride, nothing is
                       // pooled behind it
    ct_dtype dtype;    // of the parameters and running statistics; default f32
} ct_resnet_config;
typedef struct ct_resnet ct_resnet;

// Convolutions normal with deviation sqrt(2 / (out * k * k)); norms 1, biases 0. The values are
// there when it returns. NULL: see ct_error_text.
CT_API ct_resnet *ct_resnet_new_at(const ct_resnet_config *config, uint64_t seed, ct_loc here);
#define ct_resnet_new(config, seed) ct_resnet_new_at((config), (seed), CT_HERE)
CT_API void ct_resnet_free(ct_resnet *model);
CT_API ct_params *ct_resnet_params(ct_resnet *model);
CT_API ct_params *ct_resnet_running(ct_resnet *model); // running means and variances of the norms
// images (N, 3, H, W) -> (N, classes). While training, norms are over the batch, and each call
// assigns the running statistics; mode NULL: evaluation, by these.
CT_API ct_tensor ct_resnet_logits_at(const ct_resnet *model, ct_tensor images,
                                     const ct_nn_mode *mode, ct_loc here);
#define ct_resnet_logits(model, images, mode)                                                      \
    ct_resnet_logits_at((model), (images), (mode), CT_HERE)
// Parameters and running statistics, a safetensors file that torchvision's model loads, and that of
// torchvision's, whose counts of batches are passed over. False: see ct_error_text, and the model
// is as it was.
CT_API CT_MUST_USE bool ct_resnet_save_weights_at(const ct_resnet *model, const char *path,
                                                  ct_loc here);
#define ct_resnet_save_weights(model, path) ct_resnet_save_weights_at((model), (path), CT_HERE)
CT_API CT_MUST_USE bool ct_resnet_load_weights_at(ct_resnet *model, const char *path, ct_loc here);
#define ct_resnet_load_weights(model, path) ct_resnet_load_weights_at((model), (path), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
