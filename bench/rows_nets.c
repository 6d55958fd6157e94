// Benchmarks: convolutions, pooling, and convolutional networks.
#include <cotan/models.h>
#include <cotan/optim.h>
#include <math.h>
#include <stdlib.h>

#include "rows.h"

static const double F32 = sizeof(float);

static void nets_init_case(bench_case *c, const char *what, const char *form) {
    *c = (bench_case){0};
    snprintf(c->name, sizeof c->name, "%s%s%s", what, *form ? " " : "", form);
}

// ------------------------------------------------------------------------------------ convolutions

enum { FORWARD, DX, DW, FORMS };

typedef struct shape {
    const char *name;
    int64_t batch, in, size, out, k, stride, padding, groups;
} shape;

// Shapes of ResNets for CIFAR, with a batch of 64, and for ImageNet, with one image; of MobileNet and
// ConvNeXt.
static const shape shapes[] = {
    {"small", 32, 16, 32, 32, 3, 1, 1, 1},
    {"cifar layer1", 64, 64, 32, 64, 3, 1, 1, 1},
    {"cifar layer2", 64, 128, 16, 128, 3, 1, 1, 1},
    {"cifar layer3", 64, 256, 8, 256, 3, 1, 1, 1},
    {"cifar layer4", 64, 512, 4, 512, 3, 1, 1, 1},
    {"cifar stride 2", 64, 64, 32, 128, 3, 2, 1, 1},
    {"stem 7x7", 1, 3, 224, 64, 7, 2, 3, 1},
    {"layer1 3x3", 1, 64, 56, 64, 3, 1, 1, 1},
    {"layer3 3x3", 1, 256, 14, 256, 3, 1, 1, 1},
    {"layer4 3x3", 1, 512, 7, 512, 3, 1, 1, 1},
    {"layer3 1x1", 1, 1024, 14, 256, 1, 1, 0, 1},
    {"depthwise 3x3", 8, 96, 56, 96, 3, 1, 1, 96},
    {"depthwise 3x3 stride 2", 8, 96, 56, 96, 3, 2, 1, 96},
    {"depthwise 7x7", 8, 96, 56, 96, 7, 1, 3, 96},
    {"patches 16x16", 8, 3, 224, 192, 16, 16, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int64_t nets_output_size(const shape *s) {
    return (s->size + 2 * s->padding - s->k) / s->stride + 1;
}

// x (N, in, H, H), weight (out, in / groups, k, k), cotangent (N, out, H', H').
static size_t nets_make_conv(const bench_case *c, ct_tensor *in) {
    const shape *s = &shapes[c->size[0]];
    int64_t out = nets_output_size(s);
    in[0] = bench_numbers(CT_DIMS(s->batch, s->in, s->size, s->size), 1);
    in[1] = bench_numbers(CT_DIMS(s->out, s->in / s->groups, s->k, s->k), 2);
    in[2] = bench_numbers(CT_DIMS(s->batch, s->out, out, out), 3);
    return 3;
}

static size_t nets_record_conv(const bench_case *c, const ct_tensor *in, int64_t iteration,
                               ct_tensor *out) {
    (void)iteration;
    const shape *s = &shapes[c->size[0]];
    ct_tensor y = ct_conv(in[0], in[1], .stride = CT_INTS(s->stride),
                          .padding = CT_INTS(s->padding), .groups = s->groups);
    if (c->which == FORWARD)
        out[0] = y;
    else
        ct_grad(ct_sum(ct_mul(y, in[2])), &in[c->which == DW], 1, out);
    return 1;
}

size_t list_conv(const bench_settings *s, bench_case *out) {
    static const char *const forms[] = {"forward", "dx", "dw"};
    (void)s;
    for (int64_t i = 0; i < SHAPES * FORMS; i++) {
        const shape *of = &shapes[i / FORMS];
        bench_case *c = &out[i];
        double x = (double)(of->batch * of->in * of->size * of->size),
               weight = (double)(of->out * of->in / of->groups * of->k * of->k),
               y = (double)(of->batch * of->out * nets_output_size(of) * nets_output_size(of));
        nets_init_case(c, of->name, forms[i % FORMS]);
        c->flops = 2 * y * (double)(of->in / of->groups * of->k * of->k);
        c->bytes = (x + weight + y) * F32;
        c->size[0] = i / FORMS, c->which = (int)(i % FORMS);
        c->make = nets_make_conv, c->record = nets_record_conv;
    }
    return (size_t)SHAPES * FORMS;
}

// ----------------------------------------------------------------------------------------- pooling

enum { IMAGES = 16, CHANNELS = 64, SIDE = 112 }; // the pooling of ResNet-50

static size_t nets_make_pool(const bench_case *c, ct_tensor *in) {
    (void)c;
    in[0] = bench_numbers(CT_DIMS(IMAGES, CHANNELS, SIDE, SIDE), 1);
    in[1] = bench_numbers(CT_DIMS(IMAGES, CHANNELS, SIDE / 2, SIDE / 2), 2);
    return 2;
}

static size_t nets_record_pool(const bench_case *c, const ct_tensor *in, int64_t iteration,
                               ct_tensor *out) {
    (void)iteration;
    ct_tensor y =
        ct_max_pool(in[0], .kernel = CT_INTS(3, 3), .stride = CT_INTS(2), .padding = CT_INTS(1));
    if (c->which)
        ct_grad(ct_sum(ct_mul(y, in[1])), in, 1, out);
    else
        out[0] = y;
    return 1;
}

// Minimum traffic: x read and y written; for the gradient x and the cotangent read, dx written.
size_t list_pooling(const bench_settings *s, bench_case *out) {
    (void)s;
    for (int i = 0; i < 2; i++) {
        nets_init_case(&out[i], i ? "max_pool_grad" : "max_pool", "");
        out[i].bytes = (i ? 2.25 : 1.25) * IMAGES * CHANNELS * SIDE * SIDE * F32;
        out[i].which = i;
        out[i].make = nets_make_pool, out[i].record = nets_record_pool;
    }
    return 2;
}

// ----------------------------------------------------------------------------------------- ResNets

// The model of the current case, which the next case replaces.
static ct_resnet *model;
static ct_optim *optim;

// Makes a model with weights that other libraries can make, too: numbers around 0 with the usual
// deviation.
static bool nets_make_model(ct_resnet_config config) {
    ct_optim_free(optim);
    ct_resnet_free(model);
    optim = NULL;
    model = ct_resnet_new(&config, 1);
    if (!model) return false;
    ct_params *params = ct_resnet_params(model);
    CT_SCOPE;
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor var = ct_params_get(params, i);
        int64_t dim[4], rank = ct_rank(var);
        for (int a = 0; a < rank; a++) dim[a] = ct_dim(var, a);
        if (rank < 2) continue;
        double summed = (double)(rank == 4 ? dim[0] * dim[2] * dim[3] : 6 * dim[1]);
        ct_tensor around_0 =
            ct_sub(bench_numbers((ct_ints){rank, dim}, (uint32_t)i + 2), ct_f(0.5));
        ct_assign(var, ct_mul(around_0, ct_f(sqrt(2 / summed) / 0.2309)));
    }
    return true;
}

size_t resnet18_options(bench_settings *s, opt *out) {
    s->batch = 64;
    out[0] = (opt){"batch", OPT_INT, "N", "images a step (64)", 2, 1 << 16, .out = &s->batch};
    return 1;
}

// Images (N, 3, 32, 32) and labels (N,).
static size_t nets_make_training(const bench_case *c, ct_tensor *in) {
    int64_t batch = c->size[0];
    int32_t *labels = malloc((size_t)batch * sizeof *labels);
    bool ok = labels &&
              nets_make_model((ct_resnet_config){.depth = 18, .classes = 10, .small_images = true});
    if (ok) optim = ct_sgd(ct_resnet_params(model), .lr = 0.01, .momentum = 0.9);
    for (int64_t i = 0; ok && i < batch; i++) labels[i] = (int32_t)(i * 7919 % 10);
    in[0] = bench_numbers(CT_DIMS(batch, 3, 32, 32), 1);
    if (ok) in[1] = ct_from(labels, CT_I32, CT_DIMS(batch));
    free(labels);
    return ok && optim ? 2 : 0;
}

// Results: the loss, and a weight after the step, which depends on all gradients.
static size_t nets_record_training(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                   ct_tensor *out) {
    (void)c, (void)iteration;
    const ct_nn_mode training = {.training = true};
    out[0] = ct_cross_entropy(ct_resnet_logits(model, in[0], &training), in[1]); // ()
    ct_optim_step(optim, out[0]);
    out[1] = ct_params_find(ct_resnet_params(model), "conv1.weight"); // (64, 3, 3, 3)
    return 2;
}

// Multiply-adds of an image's convolutions and last layer, which a test verifies. The gradient has twice
// as many, except for the gradient of the image.
static const double RESNET18_CIFAR = 555422720, STEM_CIFAR = 64 * 3 * 9 * 32 * 32,
                    RESNET50 = 4089184256;

size_t list_resnet18(const bench_settings *s, bench_case *out) {
    nets_init_case(out, "step", "");
    out->size[0] = s->batch;
    out->flops = 2 * (double)s->batch * (3 * RESNET18_CIFAR - STEM_CIFAR);
    out->make = nets_make_training, out->record = nets_record_training;
    return 1;
}

static size_t nets_make_inference(const bench_case *c, ct_tensor *in) {
    (void)c;
    in[0] = bench_numbers(CT_DIMS(1, 3, 224, 224), 1);
    return nets_make_model((ct_resnet_config){.depth = 50, .classes = 1000}) ? 1 : 0;
}

static size_t nets_record_inference(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                    ct_tensor *out) {
    (void)c, (void)iteration;
    out[0] = ct_resnet_logits(model, in[0], NULL); // (1, 1000)
    return 1;
}

size_t list_resnet50(const bench_settings *s, bench_case *out) {
    (void)s;
    nets_init_case(out, "image", "");
    out->flops = 2 * RESNET50;
    out->make = nets_make_inference, out->record = nets_record_inference;
    return 1;
}
