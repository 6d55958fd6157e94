// Which devices there are, for programs and for the doctor.
#ifndef COTAN_TRAIN_DEVICES_H
#define COTAN_TRAIN_DEVICES_H

#include "cotan/profile.h"
#include "base/error.h"

// ct_devices, with its error apart from any context's.
bool ct__devices(bool measure, ct_device_fn each, void *user, ct_err *err);

#endif
