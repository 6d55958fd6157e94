// Where the Hub's cache keeps a model.
#ifndef COTAN_IO_HUB_H
#define COTAN_IO_HUB_H

#include "base/error.h"

// ORG/NAME as the Hub allows it.
bool ct__hub_is_name(const char *name);
// See cotan/hub.h.
bool ct__hub_folder(const char *name, char *path, size_t n, ct_err *err);
bool ct__hub_find(const char *name, const char *revision, char *path, size_t n, ct_err *err);

#endif
