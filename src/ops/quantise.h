// A product that reads codes where they lie.
#ifndef COTAN_OPS_QUANTISE_H
#define COTAN_OPS_QUANTISE_H

#include "graph/graph.h"

// `larger` of a product of matrices, after attention's.
ct_tensor ct__product_of_codes(const ct_match *match);

#endif
