// Shared libraries that are opened while the program runs. Where the program is linked statically none is: the C
// library could open only what was built with the very same one, and an empty container has none.
#ifndef COTAN_BASE_LIBRARY_H
#define COTAN_BASE_LIBRARY_H

#include <dlfcn.h>
#include <stdbool.h>

// Is the program linked statically?
bool ct__linked_statically(void);
#define CT_NO_LIBRARIES "this program is linked statically and opens no shared libraries"

// NULL: ct__library_error says why.
void *ct__library_open(const char *path, int flags); // as dlopen
const char *ct__library_error(void); // of the last one that was not opened, as dlerror

#endif
