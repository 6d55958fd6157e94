// Stubs for a statically linked program (COTAN_STATIC): for the dynamic linker, by the linker's --wrap,
// and for GnuTLS, which libmicrohttpd references but does not call, since connections are not encrypted.
#include <stddef.h>

void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *library, const char *name);
int __wrap_dlclose(void *library);
char *__wrap_dlerror(void);
int cotan_no_tls(
    void); // the linker resolves every function of GnuTLS to it; CMake passes their names

void *__wrap_dlopen(const char *path, int flags) { return (void)path, (void)flags, NULL; }
void *__wrap_dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
int __wrap_dlclose(void *library) { return (void)library, 0; }
char *__wrap_dlerror(void) { return NULL; }
int cotan_no_tls(void) { return 0; }
