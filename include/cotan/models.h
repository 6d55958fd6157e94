// Models that are written with cotan/nn.h.
#ifndef COTAN_MODELS_H
#define COTAN_MODELS_H

#include "cotan/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

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
