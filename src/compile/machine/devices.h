// Lists the available devices, for programs and for the doctor.
#ifndef COTAN_COMPILE_DEVICES_H
#define COTAN_COMPILE_DEVICES_H

#include "cotan/profile.h"
#include "base/error.h"

// ct_devices, with an error that is not the context's.
bool ct__devices(bool measure, ct_device_fn callback, void *user, ct_err *err);

#endif
