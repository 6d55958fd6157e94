// A matrix product in oneDNN (2.x, as in Debian) of operands in row-major order, or transposed, for
// bench/peers/worker.py.
#include <dnnl.h>
#include <stdlib.h>

typedef struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t matmul;
    dnnl_memory_t memory[3]; // A, B, C
} product;

product *onednn_new(int64_t m, int64_t k, int64_t n, int transposed_a, int transposed_b);
int onednn_run(product *p, float *a, float *b, float *c);

static int onednn_make_memory(product *p, dnnl_memory_desc_t *d, int which, int64_t rows,
                              int64_t columns, int transposed) {
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, dnnl_f32, strides) ||
           dnnl_memory_create(&p->memory[which], d, p->engine, DNNL_MEMORY_NONE);
}

// C (m, n) = A (m, k) x B (k, n). Returns NULL if it fails. The object lives until the process
// ends.
product *onednn_new(int64_t m, int64_t k, int64_t n, int transposed_a, int transposed_b) {
    product *p = calloc(1, sizeof *p);
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t matmul_desc;
    dnnl_primitive_desc_t desc;
    if (!p || dnnl_engine_create(&p->engine, dnnl_cpu, 0) ||
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) ||
        onednn_make_memory(p, &a, 0, m, k, transposed_a) ||
        onednn_make_memory(p, &b, 1, k, n, transposed_b) || onednn_make_memory(p, &c, 2, m, n, 0) ||
        dnnl_matmul_desc_init(&matmul_desc, &a, &b, NULL, &c) ||
        dnnl_primitive_desc_create(&desc, &matmul_desc, NULL, p->engine, NULL) ||
        dnnl_primitive_create(&p->matmul, desc))
        return NULL;
    return p;
}

int onednn_run(product *p, float *a, float *b, float *c) {
    if (dnnl_memory_set_data_handle(p->memory[0], a) ||
        dnnl_memory_set_data_handle(p->memory[1], b) ||
        dnnl_memory_set_data_handle(p->memory[2], c))
        return 1;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->memory[0]},
                                    {DNNL_ARG_WEIGHTS, p->memory[1]},
                                    {DNNL_ARG_DST, p->memory[2]}};
    return dnnl_primitive_execute(p->matmul, p->stream, 3, args) || dnnl_stream_wait(p->stream);
}
