// Values of the graph for templates that expect few axes: each run of neighbouring axes is flattened to one.
#ifndef COTAN_KINDS_JOINED_H
#define COTAN_KINDS_JOINED_H

#include "kinds/emit.h"
#include "kinds/template.h"

enum { CT_MOST_JOINED = 4 };

// A value whose axes start[g] .. start[g + 1] - 1 are axis g of the template.
typedef struct ct_joined {
    ct_emit *e;
    ct_val v;
    ct_dtype as; // the dtype in which elements are read
    int groups, start[CT_MOST_JOINED + 1];
} ct_joined;

// start: (groups) the first axis of each group.
ct_joined ct__join(ct_emit *e, ct_val v, ct_dtype as, int groups, const int *start);
ct_kval ct__joined_size(const ct_joined *j, int group);
ct_source ct__joined_source(ct_joined *j); // j must live as long as the source
ct_sink ct__joined_sink(ct_joined *j);

#endif
