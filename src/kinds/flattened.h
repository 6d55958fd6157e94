// Values of the graph for templates that expect few axes: each run of neighbouring axes is flattened to one.
#ifndef COTAN_KINDS_FLATTENED_H
#define COTAN_KINDS_FLATTENED_H

#include "kinds/emit.h"
#include "kinds/template.h"

enum { CT_MAX_FLATTENED = 4 };

// A value whose axes start[g] .. start[g + 1] - 1 are axis g of the template.
typedef struct ct_flattened {
    ct_emit *e;
    ct_val v;
    ct_dtype as; // the dtype in which elements are read
    int groups, start[CT_MAX_FLATTENED + 1];
} ct_flattened;

// start: (groups) the first axis of each group.
ct_flattened ct__join(ct_emit *e, ct_val v, ct_dtype as, int groups, const int *start);
ct_kval ct__flattened_size(const ct_flattened *j, int group);
ct_source ct__flattened_source(ct_flattened *j); // j must live as long as the source
ct_sink ct__flattened_sink(ct_flattened *j);

#endif
