// Finds a model in the Hugging Face hub's cache.
#ifndef COTAN_IO_HUB_H
#define COTAN_IO_HUB_H

#include "base/error.h"

// True for ORG/NAME as the hub allows it.
bool ct__hub_is_name(const char *name);
// See cotan/hub.h.
bool ct__hub_folder(const char *name, char *path, size_t n, ct_err *err);
bool ct__hub_find(const char *name, const char *revision, char *path, size_t n, ct_err *err);

#endif
