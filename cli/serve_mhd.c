#include "serve_mhd.h"

mhd_functions mhd;

#define FUNCTIONS(X)                                                                               \
    X(start_daemon)                                                                                \
    X(quiesce_daemon)                                                                              \
    X(stop_daemon)                                                                                 \
    X(get_connection_info)                                                                         \
    X(lookup_connection_value)                                                                     \
    X(create_response_from_buffer)                                                                 \
    X(create_response_from_callback)                                                               \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)

#ifdef COTAN_STATIC

// Their types are those of the members of mhd_functions: only the addresses are used.
#define X(name) extern const char MHD_##name[];
FUNCTIONS(X)
#undef X

const char *mhd_unavailable_reason(void) {
#define X(name) mhd.name = (__typeof__(mhd.name))(uintptr_t)MHD_##name;
    FUNCTIONS(X)
#undef X
    return NULL;
}

#else

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mhd_unavailable_reason(void) {
    static char why[512];
    const char *asked = getenv("COTAN_HTTP_LIBRARY");
    const char *name = asked && *asked ? asked : "libmicrohttpd.so.12";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, sizeof why,
                 "cotan serve needs libmicrohttpd, and %s is not there; install it (Debian: "
                 "libmicrohttpd12, Fedora and Arch: libmicrohttpd)",
                 name);
        return why;
    }
    const struct {
        const char *name;
        void *to;
    } functions[] = {
#define X(name) {"MHD_" #name, &mhd.name},
        FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) {
            snprintf(why, sizeof why, "%s has no %s: it is no libmicrohttpd", name,
                     functions[i].name);
            return why;
        }
        memcpy(functions[i].to, &found, sizeof found);
    }
    return NULL;
}

#endif
