#include "io/run_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// True if the name is "step-N" followed by `end`.
static bool run_matches_step_name(const char *name, const char *end, int64_t *step) {
    char expected[64];
    if (sscanf(name, "step-%" SCNd64, step) != 1 || *step < 0) return false;
    snprintf(expected, sizeof expected, "step-%" PRId64 "%s", *step, end);
    return strcmp(expected, name) == 0;
}

bool ct__is_save_name(const char *name, int64_t *step) {
    return run_matches_step_name(name, "", step);
}

bool ct__is_unfinished_save_name(const char *name) {
    int64_t step;
    int number;
    char end[24];
    if (run_matches_step_name(name, CT_SAVE_UNFINISHED, &step)) return true;
    if (sscanf(name, "step-%*[0-9].%d", &number) != 1) return false;
    snprintf(end, sizeof end, ".%d" CT_SAVE_UNFINISHED, number);
    return number > 1 && run_matches_step_name(name, end, &step);
}
