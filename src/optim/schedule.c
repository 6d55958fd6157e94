// Learning rates as functions of the step.
#include <math.h>

#include "base/fp_env.h"
#include "cotan/optim.h"

// Not inlined, so that no part of it is computed outside the caller's floating-point environment guard.
__attribute__((noinline)) static double schedule_builtin_lr(const ct_schedule *schedule,
                                                            int64_t step) {
    double lr = schedule->lr, low = schedule->min_lr;
    if (step < schedule->warmup) return lr * (double)(step + 1) / (double)(schedule->warmup + 1);
    if (schedule->shape == CT_LR_CONSTANT) return lr;
    if (step >= schedule->steps) return low;
    double done =
        (double)(step - schedule->warmup) / (double)(schedule->steps - schedule->warmup); // 0 to 1
    if (schedule->shape == CT_LR_LINEAR) return lr + (low - lr) * done;
    return low + 0.5 * (1 + cos(3.14159265358979323846 * done)) * (lr - low);
}

double ct_schedule_lr(const ct_schedule *schedule, int64_t step) {
    if (!schedule) return NAN;
    if (schedule->custom) return schedule->custom(step, schedule->user);
    CT_DEFAULT_ENV;
    return schedule_builtin_lr(schedule, step);
}
