// cotan devices: lists the devices and their throughput.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <cotan/profile.h>

#include "cli.h"

typedef struct {
    bool json;
    int n_shown;
} listing;

// Formats a rate for the table: "31.2 GB/s"; "-" if it was not measured.
static const char *devices_format_rate(char text[24], double per_second, const char *unit) {
    snprintf(text, 24, per_second > 0 ? "%.3g %s" : "-", per_second / 1e9, unit);
    return text;
}

static void devices_print_row(const ct_device_info *d, void *user) {
    listing *l = user;
    char memory[24] = "-", read[24], flops[24];
    if (l->n_shown++ == 0)
        printf("%-10s  %-8s  %-10s  %-13s  %s\n", "device", "memory", "reads", "products",
               "what it is");
    if (d->memory) snprintf(memory, sizeof memory, "%.1f GB", (double)d->memory / 1e9);
    printf("%-10s  %-8s  %-10s  %-13s  ", d->name, memory,
           devices_format_rate(read, d->read_bandwidth, "GB/s"),
           devices_format_rate(flops, d->flops, "GFLOP/s"));
    if (!d->usable) fputs("not usable: ", stdout);
    put_escaped(stdout, d->description, strlen(d->description), "");
    putchar('\n');
    flush_output(); // measuring the next device may take a while
}

// Prints one line per device. Strings of drivers are escaped as JSON needs it.
static void devices_print_json(const ct_device_info *d, void *user) {
    (void)user;
    printf("{\"device\": \"%s\", \"usable\": %s, \"memory\": %" PRIu64
           ", \"read_bandwidth\": %.0f, \"flops\": %.0f, \"description\": \"",
           d->name, d->usable ? "true" : "false", d->memory, d->read_bandwidth, d->flops);
    for (const char *c = d->description; *c; c++) {
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
        {"list", OPT_FLAG, NULL, "only lists them, without measuring", .out = &quick},
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
    if (!options_parse(&c, argc, argv, NULL, &status)) return status;
    return ct_devices(!quick, l.json ? devices_print_json : devices_print_row, &l) ? EXIT_DONE
                                                                                   : report_error();
}
