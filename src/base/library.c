#define _GNU_SOURCE
#include "base/library.h"

#include <elf.h>
#include <stddef.h>
#include <sys/auxv.h>

// The dynamic linker is named in the program headers of programs that it loads.
bool ct__linked_statically(void) {
    const Elf64_Phdr *header = (const Elf64_Phdr *)getauxval(AT_PHDR);
    const unsigned long n = getauxval(AT_PHNUM);
    if (!header || getauxval(AT_PHENT) != sizeof *header) return false;
    for (unsigned long i = 0; i < n; i++)
        if (header[i].p_type == PT_INTERP) return false;
    return true;
}

void *ct__library_open(const char *path, int flags) {
    return ct__linked_statically() ? NULL : dlopen(path, flags);
}

const char *ct__library_error(void) {
    return ct__linked_statically() ? CT_NO_LIBRARIES : dlerror();
}
