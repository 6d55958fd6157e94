#include "support/kir_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cpu/build.h"
#include "backend/cpu/interp.h"
#include "compile/render/render_c.h"
#include "support/kir_gpu.h"

void kir_run(ct_kir *k, void *const *bufs, const int64_t *args, int pieces) {
    const char *device = getenv("COTAN_TEST_KIR");
    if (device && strcmp(device, "opencl") == 0) {
        if (!kir_gpu_present()) fail_msg("there is no OpenCL device");
        kir_gpu_run(k, bufs, args, pieces);
        ct__kir_free(k);
        return;
    }
    ct_err err = {0};
    ct_text text = {0};
    char name[40];
    if (!ct__render_c(k, &text, name, &err)) {
        ct__kir_print(k, &text);
        print_error("%s\n", text.s ? text.s : "");
        fail_msg("%s", err.text);
    }
    ct__kernel_source source = {.name = name, .text = text.s, .ir = k};
    if (!ct__cpu_build(&source, 1, 1, &err)) {
        print_error("%s\n", text.s);
        fail_msg("%s", err.text);
    }
    size_t bytes = source.interp ? ct__interp_scratch(source.interp) : ct__kir_scratch(k);
    void *scratch = bytes ? ct__aligned(64, bytes) : NULL;
    int64_t grid = ct__kir_grid(k, args);
    for (int p = 0; p < pieces; p++)
        if (source.interp)
            (void)ct__interp_run(source.interp, bufs, args, grid * p / pieces,
                                 grid * (p + 1) / pieces, scratch, NULL);
        else
            source.fn(bufs, args, grid * p / pieces, grid * (p + 1) / pieces, scratch);
    ct__free(scratch);
    ct__text_free(&text);
    ct__kir_free(k);
}
