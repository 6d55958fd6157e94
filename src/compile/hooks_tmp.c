#include "graph/graph.h"
const ct_hooks ct__hooks = {0};
