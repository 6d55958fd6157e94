// Shared libraries opened at run time. A statically linked program opens none: the C library could
// only open libraries built with exactly the same version, and an empty container has none.
#ifndef COTAN_BASE_LIBRARY_H
#define COTAN_BASE_LIBRARY_H

#include <dlfcn.h>
#include <stdbool.h>

// True if the program is linked statically.
bool ct__linked_statically(void);
#define CT_NO_LIBRARIES "this program is linked statically and opens no shared libraries"

// Returns NULL on failure; ct__library_error has the reason.
void *ct__library_open(const char *path, int flags); // as dlopen
const char *ct__library_error(void);                 // of the last failure, as dlerror

#endif
