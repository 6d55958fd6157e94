// What stands in the place of others' functions in a program that is linked statically (COTAN_STATIC): of the dynamic
// linker, by the linker's --wrap, and of GnuTLS, which libmicrohttpd names and does not call, for connections are not
// encrypted.
#include <stddef.h>

void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *library, const char *name);
int __wrap_dlclose(void *library);
char *__wrap_dlerror(void);
int cotan_no_tls(void); // all of GnuTLS; the build lists its names

void *__wrap_dlopen(const char *path, int flags) { return (void)path, (void)flags, NULL; }
void *__wrap_dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
int __wrap_dlclose(void *library) { return (void)library, 0; }
char *__wrap_dlerror(void) { return NULL; }
int cotan_no_tls(void) { return 0; }
