// Start reading at ct__svg_loss. All coordinates are written by `svg_put_fixed`, which prints one
// decimal from integers: the file depends neither on the locale nor on the last bits of a
// floating-point printer.
#include "io/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "io/utf8.h"

enum {
    WIDTH = 880,
    HEIGHT = 520,
    LEFT = 72,
    RIGHT = 76, // space for the last value beside its point
    TOP = 86,
    BOTTOM = 58,
};

#define INK "#1f2937"
#define MUTED "#6b7280"
#define GRID "#e5e7eb"
#define RAW "#a5c8f0"
#define SMOOTH "#1d5fbf"
#define VAL "#d9480f"

typedef struct axis {
    double low, high, step; // ticks at multiples of step
    double from, to;        // pixels
} axis;

typedef struct plot {
    ct_text *text;
    axis x, y;
} plot;

// ----------------------------------------------------------------------------------------- numbers

static void svg_put_fixed(ct_text *text, double value, int decimals) {
    int64_t scale = 1;
    for (int i = 0; i < decimals; i++) scale *= 10;
    int64_t n = llround(value * (double)scale), size = n < 0 ? -n : n;
    ct__textf(text, "%s%" PRId64, n < 0 ? "-" : "", size / scale);
    if (decimals) ct__textf(text, ".%0*" PRId64, decimals, size % scale);
}

// Writes a tick's label: integers in groups of three, else as many decimals as the step needs;
// "2.5e9" if that would be long.
static void svg_put_label(ct_text *text, double value, double step) {
    int decimals = 0, exponent = 0;
    if (fabs(value) >= 1e7 || (value != 0 && step < 1e-5)) {
        for (; fabs(value) >= 9.9999; value /= 10) exponent++;
        for (; fabs(value) < 0.99999; value *= 10) exponent--;
        decimals = fabs(value - round(value)) > 0.05;
    } else {
        for (double s = step; decimals < 5 && fabs(s - round(s)) > 1e-6 * s; s *= 10) decimals++;
    }
    if (!exponent && !decimals && fabs(value) >= 1000) { // below 10 million
        int n = (int)lround(fabs(value));
        ct__text_add(text, value < 0 ? "-" : "");
        if (n >= 1000000)
            ct__textf(text, "%d,%03d,%03d", n / 1000000, n / 1000 % 1000, n % 1000);
        else
            ct__textf(text, "%d,%03d", n / 1000, n % 1000);
        return;
    }
    svg_put_fixed(text, value, decimals);
    if (exponent) ct__textf(text, "e%d", exponent);
}

// Returns 1, 2 or 5 times a power of ten, so that about `count` steps cover the range.
static double svg_nice_step(double range, int count) {
    double rough = range / count, power = 1;
    while (power * 10 <= rough) power *= 10;
    while (power > rough) power /= 10;
    double times = rough / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static double svg_position(const axis *a, double value) {
    double fraction = (value - a->low) / (a->high - a->low);
    // Values outside are clipped by the viewer, but the number must be one that every viewer
    // accepts.
    fraction = !(fraction > -1) ? -1 : fraction > 2 ? 2 : fraction;
    return a->from + fraction * (a->to - a->from);
}

// Continues a path, or starts a new one; "h0" makes a point without neighbours a dot.
static void svg_put_point(plot *p, bool drawing, double x, double y) {
    ct__text_add(p->text, drawing ? "L" : "M");
    svg_put_fixed(p->text, svg_position(&p->x, x), 1);
    ct__text_add(p->text, " ");
    svg_put_fixed(p->text, svg_position(&p->y, y), 1);
    if (!drawing) ct__text_add(p->text, "h0");
}

// ------------------------------------------------------------------------------------------ series

static int svg_compare_values(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// True for values far from overflow, so that no range or position is infinite.
static bool svg_is_plottable(double value) { return fabs(value) < 1e100; }

static void svg_extend_axis(axis *a, double value) {
    if (!svg_is_plottable(value)) return;
    if (value < a->low) a->low = value;
    if (value > a->high) a->high = value;
}

static void svg_extend_axis_all(axis *a, const double *values, size_t n) {
    for (size_t i = 0; i < n; i++) svg_extend_axis(a, values[i]);
}

// Finds the vertical range: the validation loss, and the training loss without its 0.5% highest and
// lowest values, since spikes would flatten everything else. The smoothed curve is added later.
// `scratch` has room for train->n doubles.
static void svg_find_range(axis *y, const ct_series *train, const ct_series *val, double *scratch) {
    size_t finite = 0;
    svg_extend_axis_all(y, val->y, val->n);
    for (size_t i = 0; i < train->n; i++)
        if (svg_is_plottable(train->y[i])) scratch[finite++] = train->y[i];
    if (!finite) return;
    qsort(scratch, finite, sizeof *scratch, svg_compare_values);
    svg_extend_axis(y, scratch[finite / 200]);
    svg_extend_axis(y, scratch[finite - 1 - finite / 200]);
}

// Rounds the vertical range to ticks; the horizontal one stays tight. The bounds keep the range of
// huge or equal values above zero.
static void svg_round_axis(axis *a, bool tight) {
    if (!(a->low <= a->high)) a->low = 0, a->high = 1; // no finite value
    double size = fmax(fabs(a->low), fabs(a->high));
    if (a->high - a->low < fmax(1e-9, 1e-9 * size)) {
        double half = fmax(0.5, 1e-3 * size);
        a->low -= tight ? 0 : half;
        a->high += half;
    }
    a->step = svg_nice_step(a->high - a->low, tight ? 8 : 7);
    if (tight && a->step < 1) a->step = 1; // steps are integers
    if (tight) {                           // 0 .. 1999 ends at the tick of 2000
        double end = ceil(a->high / a->step) * a->step;
        if (end - a->high < 0.01 * (a->high - a->low)) a->high = end;
        return;
    }
    a->low = floor(a->low / a->step + 0.02) * a->step;
    a->high = ceil(a->high / a->step - 0.02) * a->step;
}

// ---------------------------------------------------------------------------------------- elements

static void svg_put_escaped(ct_text *text, const char *s) {
    char shown[84]; // as many as fit the width
    for (ct__printable(s, strlen(s), shown, sizeof shown), s = shown; *s; s++) {
        const char *name = *s == '&'   ? "&amp;"
                           : *s == '<' ? "&lt;"
                           : *s == '>' ? "&gt;"
                           : *s == '"' ? "&quot;"
                                       : NULL;
        if (name)
            ct__text_add(text, name);
        else
            ct__text_bytes(text, s, 1);
    }
}

static void svg_begin(plot *p, const char *title) {
    ct__textf(
        p->text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"system-ui, -apple-system, "
        "'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"13\">\n<title>",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    svg_put_escaped(p->text, title);
    // A white background, so that the text is readable in viewers of any colour.
    ct__textf(
        p->text,
        "</title>\n<rect width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#ffffff\"/>\n"
        "<clipPath id=\"area\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n"
        "<text x=\"%d\" y=\"34\" font-size=\"17\" font-weight=\"600\" fill=\"" INK "\">",
        WIDTH, HEIGHT, LEFT, TOP - 2, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 4, LEFT);
    svg_put_escaped(p->text, title);
    ct__text_add(p->text, "</text>\n");
}

static void svg_put_axes(plot *p) {
    ct_text *t = p->text;
    ct__text_add(t, "<g fill=\"" MUTED "\" stroke-width=\"1\">\n");
    for (double k = ceil(p->y.low / p->y.step - 1e-6);
         k * p->y.step <= p->y.high + 1e-6 * p->y.step; k++) {
        double at = svg_position(&p->y, k * p->y.step);
        ct__textf(t, "<path d=\"M%d ", LEFT);
        svg_put_fixed(t, at, 1);
        ct__textf(t, "H%d\" stroke=\"" GRID "\"/><text x=\"%d\" y=\"", WIDTH - RIGHT, LEFT - 10);
        svg_put_fixed(t, at + 4.5, 1);
        ct__text_add(t, "\" text-anchor=\"end\">");
        svg_put_label(t, k * p->y.step, p->y.step);
        ct__text_add(t, "</text>\n");
    }
    for (double k = ceil(p->x.low / p->x.step - 1e-6);
         k * p->x.step <= p->x.high + 1e-6 * p->x.step; k++) {
        double at = svg_position(&p->x, k * p->x.step);
        ct__text_add(t, "<path d=\"M");
        svg_put_fixed(t, at, 1);
        ct__textf(t, " %dv5\" stroke=\"" MUTED "\"/><text x=\"", HEIGHT - BOTTOM);
        svg_put_fixed(t, at, 1);
        ct__textf(t, "\" y=\"%d\" text-anchor=\"middle\">", HEIGHT - BOTTOM + 21);
        svg_put_label(t, k * p->x.step, p->x.step);
        ct__text_add(t, "</text>\n");
    }
    ct__textf(t,
              "<path d=\"M%d %dH%d\" stroke=\"" MUTED "\"/>\n"
              "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"" INK "\">step</text>\n"
              "<text transform=\"translate(22 %d) rotate(-90)\" text-anchor=\"middle\" fill=\"" INK
              "\">loss (nats a token)</text>\n</g>\n",
              LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 14,
              TOP + (HEIGHT - TOP - BOTTOM) / 2);
}

static void svg_open_path(plot *p, const char *colour, const char *width) {
    ct__textf(p->text,
              "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\" "
              "stroke-linecap=\"round\" clip-path=\"url(#area)\" d=\"",
              colour, width);
}

// Draws the raw loss: for each column of pixels, one stroke from the least to the greatest value.
static void svg_put_raw_line(plot *p, const ct_series *train) {
    bool drawing = false;
    svg_open_path(p, RAW, "1");
    for (size_t i = 0; i < train->n;) {
        double least = INFINITY, most = -INFINITY, x = train->x[i];
        double column = floor(svg_position(&p->x, x) + 0.5);
        for (; i < train->n && floor(svg_position(&p->x, train->x[i]) + 0.5) == column; i++) {
            if (!svg_is_plottable(train->y[i])) continue;
            if (train->y[i] < least) least = train->y[i];
            if (train->y[i] > most) most = train->y[i];
        }
        if (!(least <= most)) {
            drawing = false;
            continue;
        }
        svg_put_point(p, drawing, x, most);
        if (least < most) svg_put_point(p, true, x, least);
        drawing = true;
    }
    ct__text_add(p->text, "\"/>\n");
}

// Returns the mean around step i over a fortieth of the run, with weights that decrease to both
// sides. It is centred, so that it does not lag, and narrower near the beginning, so that it starts
// at the first loss. A spike counts as `limit` at most: one of 1e30 would hide everything else.
static double svg_smooth_at(const ct_series *raw, size_t i, double limit) {
    size_t half = raw->n / 40, reach = i < half ? i : half;
    double sum = 0, weights = 0;
    for (size_t k = i - reach; k < raw->n && k <= i + reach; k++) {
        double weight = 1 - fabs((double)k - (double)i) / (double)(reach + 1);
        if (!svg_is_plottable(raw->y[k])) continue;
        sum += weight * fmin(raw->y[k], limit);
        weights += weight;
    }
    return sum / weights;
}

// Computes the smoothed loss at the first step and at the last one of every two columns of pixels.
static bool svg_smooth_series(const plot *p, const ct_series *train, double limit,
                              ct_series *smooth) {
    bool drawing = false, gap = true, ok = true;
    for (size_t i = 0; i < train->n && ok; i++) {
        bool finite = svg_is_plottable(train->y[i]);
        bool last = i + 1 == train->n || svg_is_plottable(train->y[i + 1]) != finite ||
                    floor(svg_position(&p->x, train->x[i + 1]) / 2) !=
                        floor(svg_position(&p->x, train->x[i]) / 2);
        if (finite && (!drawing || last))
            ok = ct__series_add(smooth, train->x[i], svg_smooth_at(train, i, limit));
        else if (!finite && !gap)
            ok = ct__series_add(smooth, train->x[i], NAN);
        drawing = finite;
        gap = !finite;
    }
    return ok;
}

static void svg_put_line(plot *p, const ct_series *series, const char *colour) {
    bool drawing = false;
    svg_open_path(p, colour, "2");
    for (size_t i = 0; i < series->n; i++) {
        if (svg_is_plottable(series->y[i])) svg_put_point(p, drawing, series->x[i], series->y[i]);
        drawing = svg_is_plottable(series->y[i]);
    }
    ct__text_add(p->text, "\"/>\n");
}

static bool svg_find_last(const ct_series *series, size_t *at) {
    for (size_t i = series->n; i-- > 0;)
        if (svg_is_plottable(series->y[i])) {
            *at = i;
            return true;
        }
    return false;
}

static void svg_put_val_line(plot *p, const ct_series *val) {
    size_t last, stride = val->n / 200 + 1; // every stride-th point is marked
    svg_put_line(p, val, VAL);
    ct__text_add(p->text, "<g fill=\"" VAL "\" stroke=\"#ffffff\" stroke-width=\"1.5\">\n");
    bool any = svg_find_last(val, &last);
    for (size_t i = 0; any && i <= last; i++) {
        if (!svg_is_plottable(val->y[i]) || (i % stride && i != last)) continue;
        ct__text_add(p->text, "<circle r=\"4\" cx=\"");
        svg_put_fixed(p->text, svg_position(&p->x, val->x[i]), 1);
        ct__text_add(p->text, "\" cy=\"");
        svg_put_fixed(p->text, svg_position(&p->y, val->y[i]), 1);
        ct__text_add(p->text, "\"/>\n");
    }
    ct__text_add(p->text, "</g>\n");
    if (!any) return;
    ct__text_add(p->text, "<text font-weight=\"600\" fill=\"" VAL "\" x=\"");
    svg_put_fixed(p->text, svg_position(&p->x, val->x[last]) + 9, 1);
    ct__text_add(p->text, "\" y=\"");
    svg_put_fixed(p->text, svg_position(&p->y, val->y[last]) + 4.5, 1);
    ct__text_add(p->text, "\">");
    svg_put_label(p->text, val->y[last], fabs(val->y[last]) < 1000 ? 1e-4 : 1);
    ct__text_add(p->text, "</text>\n");
}

static void svg_put_legend(plot *p, bool train, bool val) {
    static const struct {
        const char *colour, *width, *name;
        int room;
    } rows[] = {
        {RAW, "2", "training loss", 134},
        {SMOOTH, "2.5", "smoothed", 112},
        {VAL, "2.5", "validation loss", 0},
    };
    int x = LEFT;
    for (int i = 0; i < 3; i++) {
        if (!(i == 2 ? val : train)) continue;
        ct__textf(p->text,
                  "<path d=\"M%d 57h20\" stroke=\"%s\" stroke-width=\"%s\" "
                  "stroke-linecap=\"round\"/>",
                  x, rows[i].colour, rows[i].width);
        if (i == 2)
            ct__textf(p->text, "<circle cx=\"%d\" cy=\"57\" r=\"4\" fill=\"" VAL "\"/>", x + 10);
        ct__textf(p->text, "<text x=\"%d\" y=\"61.5\" fill=\"" INK "\">%s</text>\n", x + 28,
                  rows[i].name);
        x += rows[i].room;
    }
}

// The validation losses are drawn point by point; longer series are thinned to this many points.
enum { MAX_VAL = 2000 };

static bool svg_thin_series(const ct_series *val, ct_series *out) {
    size_t stride = val->n / MAX_VAL + 1;
    bool ok = true;
    for (size_t i = 0; i < val->n && ok; i++)
        if (i % stride == 0 || i + 1 == val->n) ok = ct__series_add(out, val->x[i], val->y[i]);
    return ok;
}

void ct__svg_loss(ct_text *text, const char *title, const ct_series *train, const ct_series *val) {
    plot p = {.text = text,
              .x = {.low = INFINITY, .high = -INFINITY, .from = LEFT, .to = WIDTH - RIGHT},
              .y = {.low = INFINITY, .high = -INFINITY, .from = HEIGHT - BOTTOM, .to = TOP}};
    ct_series thinned = {.keep_all = true}, smooth = {.keep_all = true};
    double *scratch = ct__malloc(train->n * sizeof *scratch);
    svg_extend_axis_all(&p.x, train->x, train->n);
    svg_extend_axis_all(&p.x, val->x, val->n);
    svg_round_axis(&p.x, true);
    bool ok = scratch && svg_thin_series(val, &thinned);
    if (ok) svg_find_range(&p.y, train, &thinned, scratch);
    // A high limit: the large losses at the beginning of a run stay below it.
    ok = ok && svg_smooth_series(&p, train, p.y.high + 2 * (p.y.high - p.y.low), &smooth);
    if (!ok) {
        text->failed = true;
    } else {
        svg_extend_axis_all(&p.y, smooth.y, smooth.n);
        svg_round_axis(&p.y, false);
        svg_begin(&p, title);
        svg_put_axes(&p);
        if (train->n) svg_put_raw_line(&p, train), svg_put_line(&p, &smooth, SMOOTH);
        if (thinned.n) svg_put_val_line(&p, &thinned);
        svg_put_legend(&p, train->n > 0, thinned.n > 0);
        ct__text_add(text, "</svg>\n");
    }
    ct__series_free(&thinned);
    ct__series_free(&smooth);
    ct__free(scratch);
}

bool ct__svg_loss_write(const char *path, const char *title, const ct_series *train,
                        const ct_series *val, ct_err *err) {
    CT_TEXT text = {0};
    ct__svg_loss(&text, title, train, val);
    bool ok = !text.failed || ct__err_memory(err, CT_NOWHERE, path, text.cap * 2);
    ok = ok && ct__file_write(path, text.s, text.n, err);
    return ok;
}
