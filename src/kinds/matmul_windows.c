// Products whose rows are channels and taps of windows, and whose sums run over images and positions: the
// gradient of a convolution's weights. Rows of one channel are its image at different offsets, so they are
// not packed one by one: the part of a channel that a chunk of k covers is copied once, including padding,
// and the tile, whose rows are all taps of a channel, reads each tap at its offset there.
#include "kinds/matmul.h"

enum {
    WIDE = 512,     // columns of a task
    SUMS = 1 << 17, // sums of a task: they fit in a core's L2 cache
    LINE = 16,      // elements of a cache line
};

typedef struct windows {
    ct_kir *k;
    const ct_matmul_spec *s;
    const ct_matmul_windows *w;
    int64_t columns, taps, span[2]; // of a padded image
    int64_t pitch, plane; // elements of a padded line; of the part of a channel that a chunk covers
    int tile_channels, width;     // channels and columns of a register tile
    int64_t block, block_columns; // channels and columns of a task
    bool whole_lines;             // no chunk ends inside a line
    int64_t out_pitch;            // elements between columns of the result in scratch
    int image, b, sum, out;       // scratch: padded lines, a panel of columns, sums, 16 columns
    ct_kval at[2 * CT_MAX_RANK];
    ct_kval channel0, channels, column0, task_columns;
    ct_kval chunk, k0, kn;
    ct_kval line0, lines; // lines of positions, through all images
    ct_kval first_line;   // the first padded line that the chunk covers
} windows;

static int64_t windows_round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Returns the first padded line that a line of positions covers; lines of all images are numbered
// consecutively.
static ct_kval windows_first_line(const windows *p, ct_kval line) {
    ct_kir *k = p->k;
    ct_kval height = ct__kir_int(k, p->w->positions[0]);
    ct_kval image = ct__kir_muli(k, ct__kir_div(k, line, height), p->span[0]);
    return ct__kir_add(k, image, ct__kir_muli(k, ct__kir_mod(k, line, height), p->w->stride[0]));
}

static void windows_zero(const windows *p, int buf, ct_kval from, ct_kval count) {
    ct_kir *k = p->k;
    ct_kval lane = ct__kir_loop(k, CT_BIND_LANES, count, "none");
    ct__kir_store(k, buf, ct__kir_add(k, from, lane), ct__kir_const(k, p->s->dtype, 0));
    ct__kir_end(k);
}

// Opens the loop over the chunks.
static void windows_open_chunks(windows *p) {
    ct_kir *k = p->k;
    const int64_t length = p->w->positions[1];
    ct_kval n = ct__kir_ceil_div(k, p->s->inner, CT_DOT_CHUNK), none = ct__kir_int(k, 0);
    p->chunk = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_max(k, ct__kir_int(k, 1), n), "chunk of k");
    p->k0 = ct__kir_muli(k, p->chunk, CT_DOT_CHUNK);
    p->kn = ct__kir_min(k, ct__kir_sub(k, p->s->inner, p->k0), ct__kir_int(k, CT_DOT_CHUNK));
    p->line0 = ct__kir_div(k, p->k0, ct__kir_int(k, length));
    ct_kval end = ct__kir_ceil_div(k, ct__kir_add(k, p->k0, p->kn), length);
    p->lines = ct__kir_sub(k, end, p->line0);
    p->first_line = windows_first_line(p, p->line0);
    ct_kval last = windows_first_line(p, ct__kir_max(k, none, ct__kir_addi(k, end, -1)));
    ct_kval n_lines = ct__kir_addi(k, ct__kir_sub(k, last, p->first_line), p->w->taps[0]);
    n_lines = ct__kir_select(k, ct__kir_lt(k, none, p->kn), n_lines, none);
    // Copies the lines of each channel that the chunk covers.
    ct_kval channel = ct__kir_loop(k, CT_BIND_SEQ, p->channels, "channel");
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, n_lines, "line"),
            line = ct__kir_add(k, p->first_line, i);
    ct_kval height = ct__kir_int(k, p->span[0]), image = ct__kir_div(k, line, height);
    ct_kval to = ct__kir_add(k, ct__kir_muli(k, channel, p->plane), ct__kir_muli(k, i, p->pitch));
    ct_kval at[2] = {ct__kir_mod(k, line, height)};
    at[1] = ct__kir_loop_n(k, CT_BIND_LANES, p->span[1], "element");
    ct_kval v = p->w->value(p->s->a.env, k, ct__kir_add(k, p->channel0, channel), image, at);
    ct__kir_store(k, p->image, ct__kir_add(k, to, at[1]), v);
    for (int n_open = 0; n_open < 3; n_open++) ct__kir_end(k);
}

static ct_kval windows_load_column(windows *p, ct_kval outer, ct_kval last, ct_kval column) {
    const int n = p->s->n_inner_axes > 1 ? p->s->n_inner_axes : 1;
    ct__unflatten(p->k, outer, n - 1, p->s->inner_axis, p->at);
    p->at[n - 1] = last;
    p->at[n] = column;
    return ct__source_load(p->k, &p->s->b, n + 1, p->at);
}

// Packs a panel of columns: 16 columns and 16 steps of k at a time are transposed in registers if k is
// contiguous.
static void windows_pack_columns(windows *p, ct_kval column, ct_kval valid) {
    ct_kir *k = p->k;
    const ct_matmul_spec *s = p->s;
    const bool single_axis = s->n_inner_axes <= 1;
    ct_kval length = single_axis ? s->inner : s->inner_axis[s->n_inner_axes - 1], lane, step,
            x[CT_LANES];
    int64_t n = 0;
    const bool transposes =
        ct__kir_is_int(k, length, &n) && n % CT_LANES == 0 && p->columns % CT_LANES == 0;
    ct_kval steps = transposes ? ct__kir_div(k, p->kn, ct__kir_int(k, CT_LANES)) : p->kn;
    ct_kval group = ct__kir_int(k, 0);
    if (transposes) {
        ct_kval groups = ct__kir_div(k, valid, ct__kir_int(k, CT_LANES));
        group = ct__kir_muli(k, ct__kir_loop(k, CT_BIND_SEQ, groups, "16 columns"), CT_LANES);
    }
    step = ct__kir_loop(k, CT_BIND_SEQ, steps, transposes ? "16 steps of k" : "k");
    if (transposes) step = ct__kir_muli(k, step, CT_LANES);
    ct_kval at = ct__kir_add(k, p->k0, step), outer = ct__kir_div(k, at, length);
    ct_kval last = single_axis ? at : ct__kir_mod(k, at, length);
    lane = transposes ? ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column")
                      : ct__kir_loop(k, CT_BIND_LANES, valid, "column");
    const int each = transposes ? CT_LANES : 1;
    ct_kval own = ct__kir_add(k, group, lane);
    for (int i = 0; i < each; i++)
        x[i] = windows_load_column(p, outer, ct__kir_addi(k, last, i), ct__kir_add(k, column, own));
    for (int i = 0; i < each; i++) {
        ct_kval to = ct__kir_muli(k, ct__kir_addi(k, step, i), p->width);
        ct__kir_store(k, p->b, ct__kir_add(k, to, own), x[i]);
    }
    for (int open = transposes ? 3 : 2; open > 0; open--) ct__kir_end(k);
}

// Prefetches each tile's share of what is packed next: of the next panel, and with the first panel also of
// the lines that the next chunk covers.
static void windows_prefetch_columns(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const int n = p->s->n_inner_axes;
    const int64_t tiles = p->block / p->tile_channels, each = (p->width + tiles - 1) / tiles;
    ct_kval next = ct__kir_addi(k, panel, p->width), none = ct__kir_int(k, 0);
    ct_kval has_next = ct__kir_lt(k, next, p->task_columns);
    ct_kval from = ct__kir_addi(k, p->k0, CT_DOT_CHUNK);
    from = ct__kir_select(k, has_next, p->k0, from);
    ct_kval column = ct__kir_add(k, p->column0, ct__kir_select(k, has_next, next, none));
    column = ct__kir_add(k, column, ct__kir_muli(k, tile, each));
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, each, "column wanted soon");
    ct_kval line = ct__kir_loop_n(k, CT_BIND_SEQ, CT_DOT_CHUNK / LINE, "cache line");
    ct_kval at = ct__kir_add(k, from, ct__kir_muli(k, line, LINE));
    ct_kval length = n > 1 ? p->s->inner_axis[n - 1] : p->s->inner;
    ct_kval outer = ct__kir_div(k, at, length);
    ct__kir_set_prefetch_mode(k, true);
    windows_load_column(p, outer, n > 1 ? ct__kir_mod(k, at, length) : at,
                        ct__kir_add(k, column, i));
    ct__kir_set_prefetch_mode(k, false);
    ct__kir_end_n(k, 2);
}
static void windows_prefetch_lines(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const ct_matmul_windows *w = p->w;
    if (w->positions[1] < LINE) return;
    ct_kval none = ct__kir_int(k, 0), first = ct__kir_bin(k, CT_K_EQ, panel, none);
    ct_kval own = ct__kir_muli(k, tile, p->tile_channels), at[2];
    own = ct__kir_add(
        k, p->channel0,
        ct__kir_add(k, own, ct__kir_loop_n(k, CT_BIND_SEQ, p->tile_channels, "channel")));
    ct_kval i =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_select(k, first, p->lines, none), "line wanted soon");
    ct_kval line = windows_first_line(p, ct__kir_add(k, ct__kir_add(k, p->line0, p->lines), i));
    line = ct__kir_addi(k, line, w->taps[0] / 2);
    ct_kval height = ct__kir_int(k, p->span[0]), image = ct__kir_div(k, line, height);
    at[0] = ct__kir_mod(k, line, height);
    ct_kval j = ct__kir_loop_n(k, CT_BIND_SEQ, w->stride[0], "line of them");
    at[0] = ct__kir_add(k, at[0], j);
    ct_kval part =
        ct__kir_loop_n(k, CT_BIND_SEQ, w->positions[1] * w->stride[1] / LINE, "cache line");
    at[1] = ct__kir_addi(k, ct__kir_muli(k, part, LINE), LINE / 2);
    ct__kir_set_prefetch_mode(k, true);
    w->value(p->s->a.env, k, own, image, at);
    ct__kir_set_prefetch_mode(k, false);
    ct__kir_end_n(k, 4);
}

// Computes the chunk's chains of fused multiply-adds, and adds them to the sums of the chunks before.
static void windows_multiply_tile(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const ct_matmul_windows *w = p->w;
    const int rows = p->tile_channels * (int)p->taps;
    ct_kval acc[CT_TILE_ROWS], zero = ct__kir_const(k, p->s->dtype, 0);
    ct_kval j = ct__kir_loop_n(k, CT_BIND_TILE, p->width, "column");
    for (int r = 0; r < rows; r++) acc[r] = ct__kir_reg(k, zero);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, p->lines, "line"), line = ct__kir_add(k, p->line0, i);
    ct_kval base = ct__kir_muli(k, line, w->positions[1]), begin = base, x;
    ct_kval from =
        ct__kir_muli(k, ct__kir_sub(k, windows_first_line(p, line), p->first_line), p->pitch);
    from = ct__kir_add(k, from, ct__kir_muli(k, tile, p->tile_channels * p->plane));
    if (p->whole_lines) {
        x = ct__kir_loop_n(k, CT_BIND_SEQ, w->positions[1], "position");
    } else {
        ct_kval end =
            ct__kir_min(k, ct__kir_add(k, p->k0, p->kn), ct__kir_addi(k, base, w->positions[1]));
        begin = ct__kir_max(k, p->k0, base);
        from = ct__kir_add(k, from, ct__kir_muli(k, ct__kir_sub(k, begin, base), w->stride[1]));
        x = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, begin), "position");
    }
    ct_kval step = ct__kir_add(k, ct__kir_sub(k, begin, p->k0), x);
    ct_kval b = ct__kir_load(k, p->b, ct__kir_add(k, ct__kir_muli(k, step, p->width), j));
    from = ct__kir_add(k, from, ct__kir_muli(k, x, w->stride[1]));
    for (int r = 0; r < rows; r++) {
        const int64_t tap = r % p->taps;
        const int64_t at = r / p->taps * p->plane + tap / w->taps[1] * p->pitch + tap % w->taps[1];
        ct_kval a = ct__kir_load(k, p->image, ct__kir_addi(k, from, at));
        ct__kir_set(k, acc[r], ct__kir_fma(k, a, b, ct__kir_get(k, acc[r])));
    }
    ct__kir_end_n(k, 2);
    ct_kval to = ct__kir_muli(k, tile, rows * p->block_columns);
    to = ct__kir_add(k, ct__kir_add(k, to, panel), j);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), p->chunk));
    for (int r = 0; r < rows; r++) {
        ct_kval before = ct__kir_load(k, p->sum, ct__kir_addi(k, to, r * p->block_columns));
        ct__kir_set(k, acc[r], ct__kir_add(k, before, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    for (int r = 0; r < rows; r++)
        ct__kir_store(k, p->sum, ct__kir_addi(k, to, r * p->block_columns), ct__kir_get(k, acc[r]));
    ct__kir_end(k);
}

// Stores the sums in the layout of the result, where rows are adjacent: 16 x 16 of them are transposed in
// registers.
static void windows_store_result(windows *p) {
    ct_kir *k = p->k;
    ct_kval rows = ct__kir_muli(k, p->channels, p->taps), x[CT_LANES];
    ct_kval group =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, p->task_columns, CT_LANES), "16 columns");
    group = ct__kir_muli(k, group, CT_LANES);
    ct_kval some = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, rows, CT_LANES), "16 rows");
    some = ct__kir_muli(k, some, CT_LANES);
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "row");
    ct_kval row = ct__kir_add(k, some, lane);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, row, p->block_columns), group);
    for (int i = 0; i < CT_LANES; i++) x[i] = ct__kir_load(k, p->sum, ct__kir_addi(k, from, i));
    for (int i = 0; i < CT_LANES; i++)
        ct__kir_store(k, p->out, ct__kir_addi(k, row, i * p->out_pitch), x[i]);
    ct__kir_end_n(k, 2);
    ct_kval rest = ct__kir_min(k, ct__kir_sub(k, p->task_columns, group), ct__kir_int(k, CT_LANES));
    ct_kval column = ct__kir_loop(k, CT_BIND_SEQ, rest, "column of the result");
    row = ct__kir_loop(k, CT_BIND_LANES, rows, "row");
    ct_kval v = ct__kir_load(k, p->out, ct__kir_add(k, ct__kir_muli(k, column, p->out_pitch), row));
    p->at[0] = ct__kir_add(k, ct__kir_muli(k, p->channel0, p->taps), row);
    p->at[1] = ct__kir_add(k, p->column0, ct__kir_add(k, group, column));
    ct__sink_store(k, &p->s->c, 2, p->at, v);
    ct__kir_end_n(k, 3);
}

static int windows_max_tile_rows(const ct_target *target, ct_dtype dtype) {
    // Number of vectors of 16 lanes that the registers hold, minus some for operands.
    const int n_vectors = target->registers * target->lanes / CT_LANES;
    return (n_vectors >= 32 ? n_vectors - n_vectors / 8 : n_vectors - 2) /
           (dtype == CT_F64 ? 2 : 1);
}

// Each chunk of k copies whole lines. For longer lines, as of audio, that would take most of the time and
// memory.
enum { MAX_LINE = 4 * CT_DOT_CHUNK };

bool ct__matmul_has_windows(const ct_target *target, ct_dtype dtype, const ct_matmul_windows *w) {
    const int64_t taps = w->taps[0] * w->taps[1];
    return taps <= CT_TILE_ROWS && taps <= windows_max_tile_rows(target, dtype) &&
           w->positions[0] > 0 && w->positions[1] > 0 && w->positions[1] <= MAX_LINE &&
           w->channels > 0;
}

// Chooses tasks for all cores, each with sums that fit in cache.
static void windows_choose_blocking(windows *p) {
    const ct_matmul_windows *w = p->w;
    const int64_t cores = p->s->target.cores > 0 ? p->s->target.cores : 1;
    const int max_rows = windows_max_tile_rows(&p->s->target, p->s->dtype);
    p->taps = w->taps[0] * w->taps[1];
    const int rows = max_rows / 2 >= p->taps ? max_rows / 2 : (int)p->taps;
    p->tile_channels = p->taps > 1 ? rows / (int)p->taps : ct__matmul_tile_rows(w->channels, rows);
    p->width = p->columns > CT_LANES && 2 * p->tile_channels * p->taps <= max_rows ? 2 * CT_LANES
                                                                                   : CT_LANES;
    int64_t parts = (p->columns + WIDE - 1) / WIDE;
    if (w->channels < 4 * cores * p->tile_channels && parts < cores) parts = cores;
    p->block_columns = windows_round_up((p->columns + parts - 1) / parts, p->width);
    parts = (p->columns + p->block_columns - 1) / p->block_columns;
    int64_t max_channels = SUMS / (p->block_columns * p->taps);
    if (max_channels < p->tile_channels) max_channels = p->tile_channels;
    int64_t blocks = (w->channels + max_channels - 1) / max_channels;
    while (blocks * parts % cores && blocks * p->tile_channels < w->channels) blocks++;
    p->block = windows_round_up((w->channels + blocks - 1) / blocks, p->tile_channels);
}

static void windows_make_scratch(windows *p) {
    ct_kir *k = p->k;
    const ct_matmul_windows *w = p->w;
    const int64_t length = w->positions[1], height = w->positions[0];
    for (int a = 0; a < 2; a++) p->span[a] = (w->positions[a] - 1) * w->stride[a] + w->taps[a];
    p->whole_lines = CT_DOT_CHUNK % length == 0;
    const int64_t lines =
        p->whole_lines ? CT_DOT_CHUNK / length : (CT_DOT_CHUNK + length - 2) / length + 1;
    const int64_t edges = (lines + height - 2) / height; // between images
    int64_t seen = (lines - 1) * w->stride[0] + w->taps[0];
    if (w->taps[0] > w->stride[0]) seen += edges * (w->taps[0] - w->stride[0]);
    p->pitch = p->span[1];
    // An odd number of cache lines, so that channels do not map to few sets of the L1 cache.
    p->plane = windows_round_up(seen * p->pitch, 2 * LINE) + LINE;
    const int64_t rows = windows_round_up(p->block * p->taps, CT_LANES);
    p->out_pitch = rows + LINE;
    p->image = ct__kir_local(k, p->s->dtype, p->block * p->plane);
    p->b = ct__kir_local(k, p->s->dtype, (int64_t)CT_DOT_CHUNK * p->width);
    p->sum = ct__kir_local(k, p->s->dtype, rows * p->block_columns);
    p->out = ct__kir_local(k, p->s->dtype, CT_LANES * p->out_pitch);
}

void ct__template_windows(ct_kir *k, const ct_matmul_spec *s) {
    windows p = {.k = k, .s = s, .w = s->windows};
    // out of memory, which the kernel reports
    if (!ct__kir_is_int(k, s->columns, &p.columns)) return;
    windows_choose_blocking(&p);
    windows_make_scratch(&p);
    const int64_t blocks = (p.w->channels + p.block - 1) / p.block,
                  parts = (p.columns + p.block_columns - 1) / p.block_columns;
    ct_kval task = ct__kir_loop_n(k, CT_BIND_ROWS, blocks * parts, "block");
    ct_kval part = ct__kir_int(k, parts);
    p.column0 = ct__kir_muli(k, ct__kir_mod(k, task, part), p.block_columns);
    p.channel0 = ct__kir_muli(k, ct__kir_div(k, task, part), p.block);
    p.channels = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, p.w->channels), p.channel0),
                             ct__kir_int(k, p.block));
    p.task_columns = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, p.columns), p.column0),
                                 ct__kir_int(k, p.block_columns));
    ct_kval tiles = ct__kir_ceil_div(k, p.channels, p.tile_channels);
    if (p.w->channels % p.tile_channels) { // channels after the last one
        ct_kval from = ct__kir_muli(k, p.channels, p.plane);
        ct_kval end = ct__kir_muli(k, tiles, p.tile_channels * p.plane);
        windows_zero(&p, p.image, from, ct__kir_sub(k, end, from));
    }
    if (p.columns % p.width)
        windows_zero(&p, p.b, ct__kir_int(k, 0), ct__kir_int(k, (int64_t)CT_DOT_CHUNK * p.width));
    windows_open_chunks(&p);
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, p.task_columns, p.width),
                                 "panel of columns");
    panel = ct__kir_muli(k, panel, p.width);
    ct_kval valid = ct__kir_min(k, ct__kir_sub(k, p.task_columns, panel), ct__kir_int(k, p.width));
    windows_pack_columns(&p, ct__kir_add(k, p.column0, panel), valid);
    ct_kval tile = ct__kir_loop(k, CT_BIND_SEQ, tiles, "tile");
    windows_prefetch_columns(&p, tile, panel);
    windows_prefetch_lines(&p, tile, panel);
    windows_multiply_tile(&p, tile, panel);
    ct__kir_end_n(k, 3);
    windows_store_result(&p);
    ct__kir_end(k);
}
