// cotan plan: the memory and work of a training run, without running it.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_PLANS = 8, PLOT_WIDTH = 64, PLOT_HEIGHT = 8, SHORT_NAME = 10 };

typedef struct row { // the numbers of a plan
    char name[24];
    size_t launches, kernels, new_kernels;
    uint64_t bytes, arena;
    double flops;
} row;

typedef struct listing {
    bool json;
    row rows[MAX_PLANS];
    size_t n;
    // text about the launches of a step, which is received before the memory table and printed after it.
    FILE *launches;
} listing;

// Formats "512 bytes", "3.2 kB", "50 MB": powers of 1000, three digits.
static const char *plan_cmd_format_amount(double value, const char *unit, const char *none,
                                          char out[24]) {
    static const char *const prefixes[] = {"k", "M", "G", "T", "P"};
    int prefix = -1;
    while (value >= 999.5 && prefix < 4) value /= 1000, prefix++;
    snprintf(out, 24, "%.3g %s%s", value, prefix < 0 ? none : prefixes[prefix],
             prefix < 0 ? "" : unit);
    return out;
}
static const char *bytes(uint64_t n, char out[24]) {
    return plan_cmd_format_amount((double)n, "B", "bytes", out);
}

// ------------------------------------------------------------------------------------------- JSON

static void plan_cmd_put_string(const char *text) {
    if (!text) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text < 32)
            printf("\\u%04x", (unsigned)(unsigned char)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void plan_cmd_put_location(const char *op, ct_loc here) {
    fputs("\"op\": ", stdout);
    plan_cmd_put_string(op);
    fputs(", \"file\": ", stdout);
    plan_cmd_put_string(here.file);
    printf(", \"line\": %u", here.line);
}

static void plan_cmd_put_launches(const ct_plan_cost *c) {
    fputs(", \"launches\": [", stdout);
    for (size_t i = 0; i < c->n_launches; i++) {
        const ct_plan_launch *l = &c->launches[i];
        printf("%s\n    {\"kernel\": ", i ? "," : "");
        plan_cmd_put_string(l->kernel);
        fputs(", ", stdout);
        plan_cmd_put_location(l->op, l->here);
        fputs(", \"variable\": ", stdout);
        plan_cmd_put_string(l->variable);
        printf(
            ", \"executions\": %lld, \"bytes\": %llu, \"flops\": %.17g, \"temporary_bytes\": %llu}",
            (long long)l->executions, (unsigned long long)l->bytes, l->flops,
            (unsigned long long)l->temporary_bytes);
    }
    fputs("]", stdout);
}

static void plan_cmd_put_tensors(const ct_plan_cost *c) {
    fputs(",\n   \"tensors\": [", stdout);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const ct_plan_tensor *t = &c->tensors[i];
        printf("%s\n    {\"is_variable\": %s, ", i ? "," : "", t->is_variable ? "true" : "false");
        plan_cmd_put_location(t->name, t->here);
        printf(", \"dtype\": \"%s\", \"shape\": [", t->dtype ? ct_dtype_name(t->dtype) : "");
        for (int a = 0; a < t->rank; a++) printf("%s%lld", a ? ", " : "", (long long)t->dim[a]);
        printf("], \"bytes\": %llu, \"count\": %zu}", (unsigned long long)t->bytes, t->count);
    }
    fputs("]", stdout);
}

static void plan_cmd_put_plan(const listing *l, const char *name, const ct_plan_cost *c) {
    printf("%s\n  {\"name\": \"%s\", \"kernels\": %zu, \"new_kernels\": %zu, \"bytes\": %llu, "
           "\"flops\": %.17g,\n"
           "   \"arena_bytes\": %llu, \"peak_temporary_bytes\": %llu, \"input_bytes\": %llu, "
           "\"result_bytes\": %llu, \"constant_bytes\": %llu, \"workspace_bytes\": %llu",
           l->n ? "," : "{\"plans\": [", name, c->n_kernels, c->new_kernels,
           (unsigned long long)c->bytes, c->flops, (unsigned long long)c->arena_bytes,
           (unsigned long long)c->peak_temporary_bytes, (unsigned long long)c->input_bytes,
           (unsigned long long)c->result_bytes, (unsigned long long)c->constant_bytes,
           (unsigned long long)c->workspace_bytes);
    plan_cmd_put_launches(c);
    plan_cmd_put_tensors(c);
    putchar('}');
}

static void plan_cmd_put_memory(const ct_lm_cost *c) {
    const struct {
        const char *name;
        uint64_t bytes;
    } fields[] = {{"total", c->total},
                  {"process", c->process},
                  {"code", c->code},
                  {"save_buffers", c->save_buffers},
                  {"devices", c->devices},
                  {"weights", c->weights},
                  {"optimizer_state", c->optimizer_state},
                  {"arenas", c->arenas},
                  {"constants", c->constants},
                  {"workspaces", c->workspaces},
                  {"grad_accumulators", c->grad_accumulators},
                  {"batches", c->batches},
                  {"loss_history", c->loss_history}};
    fputs("],\n \"memory\": {", stdout);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        printf("%s\"%s\": %llu", i ? ", " : "", fields[i].name,
               (unsigned long long)fields[i].bytes);
    if (c->capacity == UINT64_MAX)
        fputs(", \"capacity\": null", stdout);
    else
        printf(", \"capacity\": %llu", (unsigned long long)c->capacity);
    printf("},\n"
           " \"blocks\": %zu, \"recomputed_blocks\": %zu,\n"
           " \"refused\": %s}\n",
           c->blocks, c->recomputed_blocks, c->total > c->capacity ? "true" : "false");
}

// -------------------------------------------------------------------------------------- for people

static void plan_cmd_print_launches(FILE *to, const ct_plan_cost *c) {
    char moved[24], flops[24], held[24];
    fprintf(to, "\nLaunches of a step: kernel, what it does first, what it moves, computes, what "
                "temporaries\ntake meanwhile, and the largest variable that it reads\n");
    for (size_t i = 0; i < c->n_launches; i++) {
        const ct_plan_launch *l = &c->launches[i];
        char what[96];
        int n = snprintf(what, sizeof what, "%s", l->op ? l->op : "-");
        if (l->here.file && n > 0 && (size_t)n < sizeof what)
            snprintf(what + n, sizeof what - (size_t)n, " of %s:%u", l->here.file, l->here.line);
        fprintf(to, "%5zu  %-*.*s  %-42s %9s %12s %9s", i, SHORT_NAME, SHORT_NAME,
                l->kernel ? l->kernel : "op", what, bytes(l->bytes, moved),
                l->flops > 0 ? plan_cmd_format_amount(l->flops, "FLOP", "FLOP", flops) : "-",
                bytes(l->temporary_bytes, held));
        if (l->executions > 1) fprintf(to, "  %lld times", (long long)l->executions);
        if (l->variable) fprintf(to, "  %s", l->variable);
        fputc('\n', to);
    }
}

// Plots the temporaries in use over the launches; a column is the maximum of adjacent launches.
static void plan_cmd_print_plot(FILE *to, const ct_plan_cost *c) {
    size_t columns = c->n_launches < PLOT_WIDTH ? c->n_launches : PLOT_WIDTH;
    uint64_t column[PLOT_WIDTH] = {0};
    char top[24];
    if (!columns || !c->peak_temporary_bytes) return;
    for (size_t i = 0; i < c->n_launches; i++) {
        uint64_t *most = &column[i * columns / c->n_launches];
        if (c->launches[i].temporary_bytes > *most) *most = c->launches[i].temporary_bytes;
    }
    fprintf(to, "\nTemporaries over the launches of a step, up to %s in an arena of ",
            bytes(c->peak_temporary_bytes, top));
    fprintf(to, "%s\n", bytes(c->arena_bytes, top));
    for (int y = PLOT_HEIGHT; y > 0; y--) {
        double level = (double)c->peak_temporary_bytes * (y - 0.5) / PLOT_HEIGHT;
        fprintf(to, "%9s |", y == PLOT_HEIGHT ? bytes(c->peak_temporary_bytes, top) : "");
        size_t last = columns;
        while (last && (double)column[last - 1] < level) last--;
        for (size_t x = 0; x < last; x++) fputc((double)column[x] >= level ? '#' : ' ', to);
        fputc('\n', to);
    }
    fprintf(to, "%9s +", "0");
    for (size_t x = 0; x < columns; x++) fputc('-', to);
    fprintf(to, "\n%11s0%*zu\n", "", (int)columns - 1, c->n_launches - 1);
}

static void plan_cmd_print_plans(const listing *l) {
    char moved[24], flops[24], arena[24];
    printf("\n%-15s %8s %8s %8s %10s %13s %10s\n", "Plan", "launches", "kernels", "new", "moves",
           "computes", "arena");
    for (size_t i = 0; i < l->n; i++) {
        const row *r = &l->rows[i];
        printf("%-15s %8zu %8zu %8zu %10s %13s %10s\n", r->name, r->launches, r->kernels,
               r->new_kernels, bytes(r->bytes, moved),
               plan_cmd_format_amount(r->flops, "FLOP", "FLOP", flops), bytes(r->arena, arena));
    }
}

static void plan_cmd_print_memory(const ct_lm_cost *c) {
    uint64_t named = c->weights + c->optimizer_state + c->grad_accumulators + c->arenas +
                     c->constants + c->workspaces;
    const struct {
        const char *name, *what;
        uint64_t bytes;
    } lines[] = {{"weights", "", c->weights},
                 {"state", "of the optimizer", c->optimizer_state},
                 {"sums", "of gradients, over the batches of a step", c->grad_accumulators},
                 {"arenas", "of the plans' temporaries", c->arenas},
                 {"constants", "", c->constants},
                 {"workspaces", "of kernels", c->workspaces},
                 {"other tensors", "batches, metrics, the sample's cache",
                  c->devices > named ? c->devices - named : 0},
                 {"copies", "of weights or state, while they are saved", c->save_buffers},
                 {"batches", "on the host, as they are drawn", c->batches},
                 {"curves", "of the losses, on the host, for their plot", c->loss_history},
                 {"code", "compiled kernels", c->code},
                 {"process", "the program and the text", c->process},
                 {"all", "", c->total}};
    char text[24];
    printf("\nMemory, at most\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        // A step has one micro-batch.
        if (!lines[i].bytes && strcmp(lines[i].name, "sums") == 0) continue;
        printf("%-15s %10s%s%s\n", lines[i].name, bytes(lines[i].bytes, text),
               *lines[i].what ? "  " : "", lines[i].what);
    }
}

// ----------------------------------------------------------------------------------------- command

static void plan_cmd_on_plan(const char *name, const ct_plan_cost *c, void *user) {
    listing *l = user;
    if (l->n == MAX_PLANS) return;
    if (l->json) {
        plan_cmd_put_plan(l, name, c);
    } else if (strcmp(name, "step") == 0) {
        plan_cmd_print_launches(l->launches, c);
        plan_cmd_print_plot(l->launches, c);
    }
    row *r = &l->rows[l->n++];
    *r = (row){.launches = c->n_launches,
               .kernels = c->n_kernels,
               .new_kernels = c->new_kernels,
               .bytes = c->bytes,
               .arena = c->arena_bytes,
               .flops = c->flops};
    snprintf(r->name, sizeof r->name, "%s", name);
}

static void plan_cmd_on_event(const ct_lm_event *event, void *user) {
    const listing *l = user;
    if (event->kind == CT_LM_MODEL && !l->json) printf("%s\n", event->text);
}

static const char text[] =
    "Shows what cotan train will do with the same options, without doing it: the memory that the\n"
    "run will need, its plans, the launches of a step with the bytes they move and the operations\n"
    "they compute, and the memory over a step. Nothing is compiled, run or written. Exit status\n"
    "2: cotan train would refuse the run now, because it does not fit into memory. The first line\n"
    "reports whether gradients recompute blocks of the model to fit. Sizes that are not given are\n"
    "chosen as cotan train chooses them, for which a product is compiled and timed.\n";

static const char examples[] =
    "  cotan plan --data book.txt                            # what would be chosen, what it "
    "takes\n"
    "  cotan plan --data book.txt --layers 12 --width 768 --context 256 --batch 8\n"
    "  cotan plan --data book.txt --json | jq .memory.total  # bytes, for a script\n"
    "  cotan plan --data book.txt --memory-limit 2GB         # the model that fits into 2 GB\n";

// Options of train that do not affect the cost of a run.
static const char resumed[] =
    "is not allowed for a plan: a resumed run needs what it needed before";
static const char written[] = "is not allowed for a plan, which writes nothing";
static const excluded_option refusals[] = {{"out", written},
                                           {"overwrite", written},
                                           {"resume", resumed},
                                           {"resume-step", resumed},
                                           {NULL, NULL}};

int run_plan(int argc, char **argv) {
    train_settings s;
    listing l = {0};
    const opt json = {"json", OPT_FLAG, NULL, "all of it as one JSON object", .out = &l.json};
    char needed[24], room[24], *launches = NULL;
    size_t n;
    int status;
    command c = {.name = "plan",
                 .usage = "--data PATH... [options]",
                 .text = text,
                 .examples = examples,
                 .excluded = refusals};
    if (!train_options_parse(&c, &s, &json, argc, argv, &status)) return status;
    s.train.on_event = plan_cmd_on_event;
    s.train.user = &l;
    l.launches = open_memstream(&launches, &n);
    ct_lm_cost cost;
    bool planned = l.launches && ct_lm_plan(&s.train, plan_cmd_on_plan, &l, &cost);
    if (!l.launches || fclose(l.launches) != 0) {
        fputs("cotan: plan: out of memory\n", stderr);
        free(launches);
        return EXIT_FAILED;
    }
    if (planned && l.json) {
        plan_cmd_put_memory(&cost);
    } else if (planned) {
        plan_cmd_print_memory(&cost);
        plan_cmd_print_plans(&l);
        fputs(launches, stdout);
    }
    free(launches);
    if (!planned) return report_error();
    if (cost.total <= cost.capacity) return EXIT_DONE;
    flush_output();
    return usage_error("plan: cotan train will refuse this: %s are needed, %s %s",
                       bytes(cost.total, needed),
                       cost.capacity_is_limit ? "the limit is" : "this machine has left",
                       bytes(cost.capacity, room));
}
