// Products whose rows are channels and taps of windows, and whose sums run over images and positions: the
// gradient of a convolution's weights. Rows of one channel are its image, each a little further on, so they
// are not packed one by one: what a chunk of k sees of a channel is copied once, with what padding puts
// around it, and the tile, which has all taps of a channel for rows, reads there what each of them sees.
#include "kinds/matmul.h"

enum {
    WIDE = 512,     // columns of a task
    SUMS = 1 << 17, // of a task: they wait in a core's second cache
    LINE = 16,      // elements of a cache line
};

typedef struct windows {
    ct_kir *k;
    const ct_matmul_spec *s;
    const ct_matmul_windows *w;
    int64_t columns, taps, span[2]; // of a padded image
    int64_t pitch, plane; // elements of a padded line; of all that a chunk sees of a channel
    int together, width;  // channels and columns of a register tile
    int64_t block, block_columns; // channels and columns of a task
    bool whole_lines;             // no chunk ends inside a line
    int64_t turned;               // elements between columns of the result on their way
    int image, b, sum, out;       // scratch: padded lines, a panel of columns, sums, 16 columns
    ct_kval at[2 * CT_MAX_RANK];
    ct_kval channel0, channels, column0, task_columns;
    ct_kval chunk, k0, kn;
    ct_kval line0, lines; // of positions, through all images
    ct_kval seen0;        // the first padded line that is seen
} windows;

static int64_t up_to(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// The first padded line that a line of positions sees; lines of all images have one number.
static ct_kval seen_by(const windows *p, ct_kval line) {
    ct_kir *k = p->k;
    ct_kval height = ct__kir_int(k, p->w->positions[0]);
    ct_kval image = ct__kir_muli(k, ct__kir_div(k, line, height), p->span[0]);
    return ct__kir_add(k, image, ct__kir_muli(k, ct__kir_mod(k, line, height), p->w->stride[0]));
}

static void zeros(const windows *p, int buf, ct_kval from, ct_kval count) {
    ct_kir *k = p->k;
    ct_kval lane = ct__kir_loop(k, CT_BIND_LANES, count, "none");
    ct__kir_store(k, buf, ct__kir_add(k, from, lane), ct__kir_const(k, p->s->dtype, 0));
    ct__kir_end(k);
}

// Opens the loop over the chunks.
static void open_chunks(windows *p) {
    ct_kir *k = p->k;
    const int64_t length = p->w->positions[1];
    ct_kval n = ct__kir_ceil_div(k, p->s->inner, CT_DOT_CHUNK), none = ct__kir_int(k, 0);
    p->chunk = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_max(k, ct__kir_int(k, 1), n), "chunk of k");
    p->k0 = ct__kir_muli(k, p->chunk, CT_DOT_CHUNK);
    p->kn = ct__kir_min(k, ct__kir_sub(k, p->s->inner, p->k0), ct__kir_int(k, CT_DOT_CHUNK));
    p->line0 = ct__kir_div(k, p->k0, ct__kir_int(k, length));
    ct_kval end = ct__kir_ceil_div(k, ct__kir_add(k, p->k0, p->kn), length);
    p->lines = ct__kir_sub(k, end, p->line0);
    p->seen0 = seen_by(p, p->line0);
    ct_kval last = seen_by(p, ct__kir_max(k, none, ct__kir_addi(k, end, -1)));
    ct_kval seen = ct__kir_addi(k, ct__kir_sub(k, last, p->seen0), p->w->taps[0]);
    seen = ct__kir_select(k, ct__kir_lt(k, none, p->kn), seen, none);
    // What the chunk sees of each channel.
    ct_kval channel = ct__kir_loop(k, CT_BIND_SEQ, p->channels, "channel");
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, seen, "line"), line = ct__kir_add(k, p->seen0, i);
    ct_kval height = ct__kir_int(k, p->span[0]), image = ct__kir_div(k, line, height);
    ct_kval to = ct__kir_add(k, ct__kir_muli(k, channel, p->plane), ct__kir_muli(k, i, p->pitch));
    ct_kval at[2] = {ct__kir_mod(k, line, height)};
    at[1] = ct__kir_loop_n(k, CT_BIND_LANES, p->span[1], "element");
    ct_kval v = p->w->value(p->s->a.env, k, ct__kir_add(k, p->channel0, channel), image, at);
    ct__kir_store(k, p->image, ct__kir_add(k, to, at[1]), v);
    for (int n_open = 0; n_open < 3; n_open++) ct__kir_end(k);
}

static ct_kval load_column(windows *p, ct_kval outer, ct_kval last, ct_kval column) {
    const int n = p->s->n_inner_axes > 1 ? p->s->n_inner_axes : 1;
    ct__unflatten(p->k, outer, n - 1, p->s->inner_axis, p->at);
    p->at[n - 1] = last;
    p->at[n] = column;
    return ct__source_load(p->k, &p->s->b, n + 1, p->at);
}

// A panel of columns: 16 columns and 16 steps of k at a time are turned in registers, where those lie side
// by side.
static void pack_columns(windows *p, ct_kval column, ct_kval valid) {
    ct_kir *k = p->k;
    const ct_matmul_spec *s = p->s;
    const bool joined = s->n_inner_axes <= 1;
    ct_kval length = joined ? s->inner : s->inner_axis[s->n_inner_axes - 1], lane, step,
            x[CT_LANES];
    int64_t n = 0;
    const bool turns =
        ct__kir_is_int(k, length, &n) && n % CT_LANES == 0 && p->columns % CT_LANES == 0;
    ct_kval many = turns ? ct__kir_div(k, p->kn, ct__kir_int(k, CT_LANES)) : p->kn;
    ct_kval group = ct__kir_int(k, 0);
    if (turns) {
        ct_kval groups = ct__kir_div(k, valid, ct__kir_int(k, CT_LANES));
        group = ct__kir_muli(k, ct__kir_loop(k, CT_BIND_SEQ, groups, "16 columns"), CT_LANES);
    }
    step = ct__kir_loop(k, CT_BIND_SEQ, many, turns ? "16 steps of k" : "k");
    if (turns) step = ct__kir_muli(k, step, CT_LANES);
    ct_kval at = ct__kir_add(k, p->k0, step), outer = ct__kir_div(k, at, length);
    ct_kval last = joined ? at : ct__kir_mod(k, at, length);
    lane = turns ? ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column")
                 : ct__kir_loop(k, CT_BIND_LANES, valid, "column");
    const int each = turns ? CT_LANES : 1;
    ct_kval own = ct__kir_add(k, group, lane);
    for (int i = 0; i < each; i++)
        x[i] = load_column(p, outer, ct__kir_addi(k, last, i), ct__kir_add(k, column, own));
    for (int i = 0; i < each; i++) {
        ct_kval to = ct__kir_muli(k, ct__kir_addi(k, step, i), p->width);
        ct__kir_store(k, p->b, ct__kir_add(k, to, own), x[i]);
    }
    for (int open = turns ? 3 : 2; open > 0; open--) ct__kir_end(k);
}

// Each tile asks for its share of what is packed next: of the next panel, and with the first panel of the
// lines that the next chunk sees of its channels.
static void ask_for_columns(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const int n = p->s->n_inner_axes;
    const int64_t tiles = p->block / p->together, each = (p->width + tiles - 1) / tiles;
    ct_kval next = ct__kir_addi(k, panel, p->width), none = ct__kir_int(k, 0);
    ct_kval more = ct__kir_lt(k, next, p->task_columns);
    ct_kval from = ct__kir_addi(k, p->k0, CT_DOT_CHUNK);
    from = ct__kir_select(k, more, p->k0, from);
    ct_kval column = ct__kir_add(k, p->column0, ct__kir_select(k, more, next, none));
    column = ct__kir_add(k, column, ct__kir_muli(k, tile, each));
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, each, "column wanted soon");
    ct_kval line = ct__kir_loop_n(k, CT_BIND_SEQ, CT_DOT_CHUNK / LINE, "cache line");
    ct_kval at = ct__kir_add(k, from, ct__kir_muli(k, line, LINE));
    ct_kval length = n > 1 ? p->s->inner_axis[n - 1] : p->s->inner;
    ct_kval outer = ct__kir_div(k, at, length);
    ct__kir_prefetches(k, true);
    load_column(p, outer, n > 1 ? ct__kir_mod(k, at, length) : at, ct__kir_add(k, column, i));
    ct__kir_prefetches(k, false);
    ct__kir_end(k);
    ct__kir_end(k);
}
static void ask_for_lines(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const ct_matmul_windows *w = p->w;
    if (w->positions[1] < LINE) return;
    ct_kval none = ct__kir_int(k, 0), first = ct__kir_bin(k, CT_K_EQ, panel, none);
    ct_kval own = ct__kir_muli(k, tile, p->together), at[2];
    own = ct__kir_add(k, p->channel0,
                      ct__kir_add(k, own, ct__kir_loop_n(k, CT_BIND_SEQ, p->together, "channel")));
    ct_kval i =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_select(k, first, p->lines, none), "line wanted soon");
    ct_kval line = seen_by(p, ct__kir_add(k, ct__kir_add(k, p->line0, p->lines), i));
    line = ct__kir_addi(k, line, w->taps[0] / 2);
    ct_kval height = ct__kir_int(k, p->span[0]), image = ct__kir_div(k, line, height);
    at[0] = ct__kir_mod(k, line, height);
    ct_kval j = ct__kir_loop_n(k, CT_BIND_SEQ, w->stride[0], "line of them");
    at[0] = ct__kir_add(k, at[0], j);
    ct_kval part =
        ct__kir_loop_n(k, CT_BIND_SEQ, w->positions[1] * w->stride[1] / LINE, "cache line");
    at[1] = ct__kir_addi(k, ct__kir_muli(k, part, LINE), LINE / 2);
    ct__kir_prefetches(k, true);
    w->value(p->s->a.env, k, own, image, at);
    ct__kir_prefetches(k, false);
    for (int open = 0; open < 4; open++) ct__kir_end(k);
}

// The chunk's chains of fused multiply-adds, put to the sums of those before.
static void multiply(windows *p, ct_kval tile, ct_kval panel) {
    ct_kir *k = p->k;
    const ct_matmul_windows *w = p->w;
    const int rows = p->together * (int)p->taps;
    ct_kval acc[CT_TILE_ROWS], zero = ct__kir_const(k, p->s->dtype, 0);
    ct_kval j = ct__kir_loop_n(k, CT_BIND_TILE, p->width, "column");
    for (int r = 0; r < rows; r++) acc[r] = ct__kir_reg(k, zero);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, p->lines, "line"), line = ct__kir_add(k, p->line0, i);
    ct_kval base = ct__kir_muli(k, line, w->positions[1]), begin = base, x;
    ct_kval from = ct__kir_muli(k, ct__kir_sub(k, seen_by(p, line), p->seen0), p->pitch);
    from = ct__kir_add(k, from, ct__kir_muli(k, tile, p->together * p->plane));
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
    ct__kir_end(k);
    ct__kir_end(k);
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

// The sums as the result has them, with rows side by side: 16 x 16 of them are turned in registers.
static void finish(windows *p) {
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
        ct__kir_store(k, p->out, ct__kir_addi(k, row, i * p->turned), x[i]);
    ct__kir_end(k);
    ct__kir_end(k);
    ct_kval rest = ct__kir_min(k, ct__kir_sub(k, p->task_columns, group), ct__kir_int(k, CT_LANES));
    ct_kval column = ct__kir_loop(k, CT_BIND_SEQ, rest, "column of the result");
    row = ct__kir_loop(k, CT_BIND_LANES, rows, "row");
    ct_kval v = ct__kir_load(k, p->out, ct__kir_add(k, ct__kir_muli(k, column, p->turned), row));
    p->at[0] = ct__kir_add(k, ct__kir_muli(k, p->channel0, p->taps), row);
    p->at[1] = ct__kir_add(k, p->column0, ct__kir_add(k, group, column));
    ct__sink_store(k, &p->s->c, 2, p->at, v);
    for (int open = 0; open < 3; open++) ct__kir_end(k);
}

static int most_rows(const ct_target *target, ct_dtype dtype) {
    // Values of 16 lanes that the registers hold, less some for operands.
    const int room = target->registers * target->lanes / CT_LANES;
    return (room >= 32 ? room - room / 8 : room - 2) / (dtype == CT_F64 ? 2 : 1);
}

// Each chunk of k copies whole lines: of longer ones, of sound, that were most of the time and memory.
enum { LONGEST_LINE = 4 * CT_DOT_CHUNK };

bool ct__matmul_has_windows(const ct_target *target, ct_dtype dtype, const ct_matmul_windows *w) {
    const int64_t taps = w->taps[0] * w->taps[1];
    return taps <= CT_TILE_ROWS && taps <= most_rows(target, dtype) && w->positions[0] > 0 &&
           w->positions[1] > 0 && w->positions[1] <= LONGEST_LINE && w->channels > 0;
}

// Tasks for all cores, of which each has sums that stay near.
static void choose(windows *p) {
    const ct_matmul_windows *w = p->w;
    const int64_t cores = p->s->target.cores > 0 ? p->s->target.cores : 1;
    const int most = most_rows(&p->s->target, p->s->dtype);
    p->taps = w->taps[0] * w->taps[1];
    const int rows = most / 2 >= p->taps ? most / 2 : (int)p->taps;
    p->together = p->taps > 1 ? rows / (int)p->taps : ct__matmul_tile_rows(w->channels, rows);
    p->width = p->columns > CT_LANES && 2 * p->together * p->taps <= most ? 2 * CT_LANES : CT_LANES;
    int64_t parts = (p->columns + WIDE - 1) / WIDE;
    if (w->channels < 4 * cores * p->together && parts < cores) parts = cores;
    p->block_columns = up_to((p->columns + parts - 1) / parts, p->width);
    parts = (p->columns + p->block_columns - 1) / p->block_columns;
    int64_t most_channels = SUMS / (p->block_columns * p->taps);
    if (most_channels < p->together) most_channels = p->together;
    int64_t blocks = (w->channels + most_channels - 1) / most_channels;
    while (blocks * parts % cores && blocks * p->together < w->channels) blocks++;
    p->block = up_to((w->channels + blocks - 1) / blocks, p->together);
}

static void make_scratch(windows *p) {
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
    // An odd number of cache lines, so that channels do not lie in few sets of the first cache.
    p->plane = up_to(seen * p->pitch, 2 * LINE) + LINE;
    const int64_t rows = up_to(p->block * p->taps, CT_LANES);
    p->turned = rows + LINE;
    p->image = ct__kir_local(k, p->s->dtype, p->block * p->plane);
    p->b = ct__kir_local(k, p->s->dtype, (int64_t)CT_DOT_CHUNK * p->width);
    p->sum = ct__kir_local(k, p->s->dtype, rows * p->block_columns);
    p->out = ct__kir_local(k, p->s->dtype, CT_LANES * p->turned);
}

void ct__template_windows(ct_kir *k, const ct_matmul_spec *s) {
    windows p = {.k = k, .s = s, .w = s->windows};
    if (!ct__kir_is_int(k, s->columns, &p.columns)) return; // no memory, which the kernel says
    choose(&p);
    make_scratch(&p);
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
    ct_kval tiles = ct__kir_ceil_div(k, p.channels, p.together);
    if (p.w->channels % p.together) { // channels beyond the last one
        ct_kval from = ct__kir_muli(k, p.channels, p.plane);
        ct_kval end = ct__kir_muli(k, tiles, p.together * p.plane);
        zeros(&p, p.image, from, ct__kir_sub(k, end, from));
    }
    if (p.columns % p.width)
        zeros(&p, p.b, ct__kir_int(k, 0), ct__kir_int(k, (int64_t)CT_DOT_CHUNK * p.width));
    open_chunks(&p);
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, p.task_columns, p.width),
                                 "panel of columns");
    panel = ct__kir_muli(k, panel, p.width);
    ct_kval valid = ct__kir_min(k, ct__kir_sub(k, p.task_columns, panel), ct__kir_int(k, p.width));
    pack_columns(&p, ct__kir_add(k, p.column0, panel), valid);
    ct_kval tile = ct__kir_loop(k, CT_BIND_SEQ, tiles, "tile");
    ask_for_columns(&p, tile, panel);
    ask_for_lines(&p, tile, panel);
    multiply(&p, tile, panel);
    for (int open = 0; open < 3; open++) ct__kir_end(k);
    finish(&p);
    ct__kir_end(k);
}
