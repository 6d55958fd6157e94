// The classes and case mappings of characters, as Python's str methods have them.
#include "text/jinja_value.h"

#include "text/jinja_unicode.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))

unsigned ct__uc_class(uint32_t cp) {
    size_t low = 0, high = COUNT(classes); // the first one begins at 0
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (classes[middle] >> 11 <= cp)
            low = middle;
        else
            high = middle;
    }
    return classes[low] & 2047;
}

static size_t unicode_map(uint32_t cp, const int32_t *runs, size_t n, const uint32_t *several,
                          size_t m, uint32_t out[3]) {
    for (size_t i = 0; i < m; i += 4)
        if (several[i] == cp) {
            size_t used = 0;
            while (used < 3 && several[i + 1 + used]) out[used] = several[i + 1 + used], used++;
            return used;
        }
    size_t low = 0, high = n / 4;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[4 * middle + 1] < (int32_t)cp)
            low = middle + 1;
        else
            high = middle;
    }
    const int32_t *run = runs + 4 * low;
    bool in = low < n / 4 && run[0] <= (int32_t)cp && ((int32_t)cp - run[0]) % run[2] == 0;
    out[0] = in ? (uint32_t)((int32_t)cp + run[3]) : cp;
    return 1;
}

size_t ct__uc_upper(uint32_t cp, uint32_t out[3]) {
    return unicode_map(cp, upper_runs, COUNT(upper_runs), upper_several, COUNT(upper_several), out);
}

size_t ct__uc_title(uint32_t cp, uint32_t out[3]) {
    return unicode_map(cp, title_runs, COUNT(title_runs), title_several, COUNT(title_several), out);
}

size_t ct__uc_lower(uint32_t cp, uint32_t out[3]) {
    return unicode_map(cp, lower_runs, COUNT(lower_runs), lower_several, COUNT(lower_several), out);
}
