// Estimates how long the interpreter takes, to decide whether a kernel that is not compiled yet is
// interpreted.
#include <math.h>

#include "backend/cpu/interp.h"
#include "backend/cpu/interp_code.h"

// Nanoseconds: of an instruction on a strip of lanes; of an access to scattered lanes or to a
// single lane; of an instruction in a register tile, which runs as a whole; of a math function.
static const double NS_STRIP = 5, NS_SCATTERED = 200, NS_TILE = 0.25, NS_MATH = 150;

// True if the loop's body multiplies and adds 16 lanes, as a register tile does.
static bool interp_cost_is_tile(const ct_kir *k, ct_kval loop) {
    for (ct_kval v = loop + 1; v < k->ins[loop].end; v++)
        if (k->ins[v].op == CT_K_LOOP) return false;
    for (ct_kval v = loop + 1; v < k->ins[loop].end; v++)
        if (k->ins[v].op == CT_K_FMA && k->ins[v].lanes == CT_LANES) return true;
    return false;
}

static double interp_cost_of(const ct_kshape *shape, const ct_kins *ins) {
    switch (ins->op) {
    case CT_K_CONST:
    case CT_K_LOOP:
    case CT_K_PREFETCH:
    case CT_K_SPLAT: return 0;
    case CT_K_MATH: return NS_MATH;
    case CT_K_LOAD:
    case CT_K_STORE:
        return shape[ins->a].vary == CT_VARYING ||
                       (shape[ins->a].vary == CT_AFFINE && shape[ins->a].stride != 1)
                   ? NS_SCATTERED
                   : NS_STRIP;
    default: return NS_STRIP;
    }
}

double ct__interp_ns(const ct_kir *k, const int64_t *args) {
    double *times = ct__calloc(k->n + 1, sizeof *times), ns = 0;
    ct_kshape *shape = ct__calloc(k->n + 1, sizeof *shape);
    bool *tile = ct__calloc(k->n + 1, sizeof *tile);
    bool known = times && shape && tile && ct__kir_trip_counts(k, args, CT_STRIP, times);
    if (known) ct__kir_shapes(k, CT_STRIP, shape);
    for (size_t i = 0; i < k->n && known; i++) {
        const ct_kins *ins = &k->ins[i];
        if (ins->op == CT_K_LOOP) tile[i] = interp_cost_is_tile(k, (ct_kval)i);
        double cost = ins->in >= 0 && tile[ins->in] ? NS_TILE : interp_cost_of(shape, ins);
        ns += cost * (ins->in >= 0 ? times[ins->in] : 1);
    }
    ct__free(times);
    ct__free(shape);
    ct__free(tile);
    return known ? ns : INFINITY;
}
