// Measures the cost of a step before the device begins: recording, the plan's key, its lookup and
// binding.
//   build/bench/record [ROUNDS [LAYERS]]
// Records the training step of GPT-2 (loss, gradients, clipped AdamW) on device ref, with small
// widths, which do not affect these costs. After the first runs the device's submit is replaced by
// one that does nothing, so that a step's time is the library's overhead. Prints medians over
// rounds. The goals are at most 60 ns a node for recording, checking and hashing, and 0.1 ms for a
// step of 1,000 nodes. Nodes are ops and leaves (a read of a variable, a number, a batch); the cost
// of an op with its leaves is printed, too. The optimizer's nodes are large: for each parameter one
// with 14 operands, three outputs and three assignments.
#include <cotan/lm.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "compile/plan.h"

enum { TOKENS = 8, MAX_ROUNDS = 100000 };

static bool record_submit_nothing(ct_device *device, const ct_command *commands, size_t n,
                                  ct_err *err) {
    (void)device, (void)commands, (void)n, (void)err;
    return true;
}

typedef struct {
    double loss, record, order, end; // seconds; `record` is of the whole step
    uint64_t loss_ops, ops;
} cost;

static int record_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double record_median(const cost *costs, int n, size_t field) {
    static double v[MAX_ROUNDS];
    for (int i = 0; i < n; i++) v[i] = *(const double *)((const char *)&costs[i] + field);
    qsort(v, (size_t)n, sizeof *v, record_compare_doubles);
    return v[n / 2];
}

// Runs one step. The key is made one time more than necessary to measure it alone; that time is not
// in `end`.
static cost record_step(ct_lm *model, ct_optim *optim, ct_order *order) {
    int32_t ids[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t before = ct_get_stats().nodes;
    double begin = ct__now(), forward, recorded, ordered;
    uint64_t loss_ops;
    {
        CT_SCOPE;
        ct_tensor in = ct_from(ids, CT_I32, CT_DIMS(1, TOKENS)); // (B, T)
        ct_nn_mode mode = {.training = true};
        ct_tensor loss = ct_lm_loss(model, in, in, &mode); // ()
        forward = ct__now();
        loss_ops = ct__nodes_recorded() - before;
        ct_optim_step(optim, loss);
        ct_metric("loss", loss);
        ct_ctx *ctx = ct__ctx();
        recorded = ct__now();
        ct__order(ctx, order, ctx->roots, ctx->n_roots);
        ordered = ct__now();
    }
    double ended = ct__now();
    return (cost){forward - begin, recorded - begin, ordered - recorded,
                  ended - ordered, loss_ops,         ct__nodes_recorded() - before};
}

static bool record_measure(const char *name, int layers, int rounds) {
    ct_lm_config config = {
        .vocab = 16, .context = TOKENS, .layers = layers, .heads = 2, .width = 4};
    ct_lm *model = ct_lm_new(&config, 1);
    ct_optim *optim =
        model ? ct_adamw(ct_lm_params(model), .lr = 1e-3, .clip = 1.0, .weight_decay = CT_F(0.1))
              : NULL;
    ct_order order = {0};
    cost *costs = calloc((size_t)rounds, sizeof *costs);
    bool ok = optim && costs;
    if (ok) {
        for (int i = 0; i < 3; i++) record_step(model, optim, &order);
        ct_executor *engine = ct__ctx()->device;
        ct_device *device = engine->device;
        const ct_backend *real = device->backend;
        ct_backend idle = *real;
        idle.submit = record_submit_nothing;
        uint64_t made = ct_get_stats().plans_made;
        device->backend = &idle;
        for (int i = 0; i < rounds; i++) costs[i] = record_step(model, optim, &order);
        device->backend = real;
        ok = ct_get_stats().plans_made == made && !ct_failed();
        double ops = (double)costs[0].ops, nodes = (double)order.n,
               loss_ops = (double)costs[0].loss_ops,
               loss = record_median(costs, rounds, offsetof(cost, loss)) * 1e9,
               record = record_median(costs, rounds, offsetof(cost, record)) * 1e9,
               key = record_median(costs, rounds, offsetof(cost, order)) * 1e9,
               end = record_median(costs, rounds, offsetof(cost, end)) * 1e9;
        printf("%s: %.0f nodes, %.0f of them ops\n", name, nodes, ops);
        printf(
            "  recorded in %.1f us, %.1f of them for the loss (%.0f ops, %.1f ns each); hashed in "
            "%.1f us\n",
            record / 1e3, loss / 1e3, loss_ops, loss / loss_ops, key / 1e3);
        printf("  recorded and hashed: %.1f ns a node (%.1f an op)\n", (record + key) / nodes,
               (record + key) / ops);
        printf("  all of a step: %.1f us, per 1,000 nodes %.3f ms (%.3f per 1,000 ops)\n",
               (record + end) / 1e3, (record + end) / nodes / 1e3, (record + end) / ops / 1e3);
    }
    if (!ok) fprintf(stderr, "%s\n", ct_failed() ? ct_error_text() : "a plan was made again");
    free(costs);
    ct__order_free(&order);
    ct_optim_free(optim);
    ct_lm_free(model);
    return ok;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 2000;
    if (rounds < 1 || rounds > MAX_ROUNDS)
        return fprintf(stderr, "1 to %d rounds\n", MAX_ROUNDS), 2;
    if (!ct_set_device("ref")) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    int layers = argc > 2 ? atoi(argv[2]) : 0;
    if (layers) return !record_measure("step", layers, rounds);
    return !(record_measure("step of 4 layers", 4, rounds) &&
             record_measure("step of 12 layers", 12, rounds) &&
             record_measure("step of 27 layers", 27, rounds));
}
