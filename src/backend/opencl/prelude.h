// The text before every generated kernel: prelude.inc as a string, made by the build.
#ifndef COTAN_BACKEND_OPENCL_PRELUDE_H
#define COTAN_BACKEND_OPENCL_PRELUDE_H

extern const char ct__opencl_prelude[];

#endif
