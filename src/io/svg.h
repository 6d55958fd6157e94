// loss.svg: the training loss, raw and smoothed, and the validation loss over the steps.
#ifndef COTAN_IO_SVG_H
#define COTAN_IO_SVG_H

#include "base/error.h"
#include "base/text.h"
#include "io/metrics.h"

// Writes the plot as text. Equal series give equal bytes in any locale; the text stays below about
// 100 KB, however long they are. Values that are not finite leave gaps.
void ct__svg_loss(ct_text *text, const char *title, const ct_series *train, const ct_series *val);
// Does the same into a file, which is replaced atomically.
bool ct__svg_loss_write(const char *path, const char *title, const ct_series *train,
                        const ct_series *val, ct_err *err);

#endif
