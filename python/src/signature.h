// Functions and methods with PyTorch's signatures.
#ifndef COTAN_PYTHON_SIGNATURE_H
#define COTAN_PYTHON_SIGNATURE_H

#include "core.h"

extern PyMethodDef signature_functions[];

#endif
