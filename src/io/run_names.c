#include "io/run_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// "step-N" with `end` behind it?
static bool names_step(const char *name, const char *end, int64_t *step) {
    char again[64];
    if (sscanf(name, "step-%" SCNd64, step) != 1 || *step < 0) return false;
    snprintf(again, sizeof again, "step-%" PRId64 "%s", *step, end);
    return strcmp(again, name) == 0;
}

bool ct__names_save(const char *name, int64_t *step) { return names_step(name, "", step); }

bool ct__names_unfinished_save(const char *name) {
    int64_t step;
    int number;
    char end[24];
    if (names_step(name, CT_SAVE_UNFINISHED, &step)) return true;
    if (sscanf(name, "step-%*[0-9].%d", &number) != 1) return false;
    snprintf(end, sizeof end, ".%d" CT_SAVE_UNFINISHED, number);
    return number > 1 && names_step(name, end, &step);
}
