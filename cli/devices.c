// cotan devices: which devices there are, and what they do in a second.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <cotan/profile.h>

#include "cli.h"

typedef struct {
    bool json;
    int shown;
} listing;

// A rate, in the table: "31.2 GB/s"; "-" where it was not measured.
static const char *rate(char text[24], double per_second, const char *unit) {
    snprintf(text, 24, per_second > 0 ? "%.3g %s" : "-", per_second / 1e9, unit);
    return text;
}

static void show_row(const ct_device_info *d, void *user) {
    listing *l = user;
    char memory[24] = "-", read[24], flops[24];
    if (l->shown++ == 0)
        printf("%-10s  %-8s  %-10s  %-13s  %s\n", "device", "memory", "reads", "products",
               "what it is");
    if (d->memory) snprintf(memory, sizeof memory, "%.1f GB", (double)d->memory / 1e9);
    printf("%-10s  %-8s  %-10s  %-13s  ", d->name, memory, rate(read, d->read, "GB/s"),
           rate(flops, d->flops, "GFLOP/s"));
    if (!d->usable) fputs("not usable: ", stdout);
    put_visible(stdout, d->what, strlen(d->what), "");
    putchar('\n');
    flush_output(); // the next one may take a while
}

// A line a device; names and words of drivers are escaped as far as they need it.
static void show_json(const ct_device_info *d, void *user) {
    (void)user;
    printf("{\"device\": \"%s\", \"usable\": %s, \"memory\": %" PRIu64
           ", \"read\": %.0f, \"flops\": %.0f, \"what\": \"",
           d->name, d->usable ? "true" : "false", d->memory, d->read, d->flops);
    for (const char *c = d->what; *c; c++) {
        if (*c == '"' || *c == '\\') putchar('\\');
        if ((unsigned char)*c < ' ')
            printf("\\u%04x", (unsigned)*c);
        else
            putchar(*c);
    }
    puts("\"}");
    flush_output();
}

int run_devices(int argc, char **argv) {
    listing l = {0};
    bool quick = false;
    opt opts[] = {
        {"no-measure", OPT_FLAG, NULL, "only list them", .out = &quick},
        {"json", OPT_FLAG, NULL, "an object a line, in bytes and a second", .out = &l.json}};
    command c = {
        .name = "devices",
        .usage = "[options]",
        .text = "Lists the devices that --device and COTAN_DEVICE take: their memory, how fast a "
                "sum of\n"
                "256 MB reads it, how fast two matrices of 1,024 by 1,024 f32 are multiplied, and "
                "what\n"
                "they are; or why one cannot be used. Measuring takes a second or two a device.\n",
        .examples = "  cotan devices\n"
                    "  cotan devices --json | jq -r 'select(.usable).device'\n"
                    "  cotan train --data book.txt --device opencl\n",
        .opts = opts,
        .n = sizeof opts / sizeof *opts,
    };
    int status;
    if (!parse(&c, argc, argv, NULL, &status)) return status;
    return ct_devices(!quick, l.json ? show_json : show_row, &l) ? EXIT_DONE : fail();
}
