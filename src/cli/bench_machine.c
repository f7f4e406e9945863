/* `redpoll bench machine`: measures this machine for `redpoll plan train --machine`. */
#include "cli/bench_machine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/machine_file.h"
#include "cli/numbers.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    rpi_world_settings world;
    const char *out, *folder;
    int64_t rounds, threads;
    bool thorough, json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_WORLD_OPTIONS(settings, world),
    {"out", "o", NULL, RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0, "FILE",
     "for redpoll plan train --machine FILE", NULL},
    {"iters", NULL, NULL, RPI_OPTION_COUNT, FIELD(rounds), "5", 1, RPI_MACHINE_ROUNDS, "N",
     "rounds, in each of which all is measured once; the median counts", NULL},
    {"thorough", NULL, NULL, RPI_OPTION_FLAG, FIELD(thorough), NULL, 0, 0, NULL,
     "larger shapes, too: several times as long", NULL},
    {"threads", NULL, NULL, RPI_OPTION_COUNT, FIELD(threads), NULL, 1, 4096, "N",
     "of each rank; its share of the cores when absent", NULL},
    {"folder", NULL, NULL, RPI_OPTION_TEXT, FIELD(folder), ".", 0, 0, "FOLDER",
     "on the disk that is measured", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object, what -o writes (docs/json.md)"),
    {0},
};

static const rpi_machine_part *const parts[] = {
    &rpi_machine_layers, &rpi_machine_memory, &rpi_machine_codecs,
    &rpi_machine_sums,   &rpi_machine_steps,  &rpi_machine_disk,
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* ---- rounds ---- */

static rp_status run_rounds(rpi_machine_bench *b, void **selves) {
    for (int round = 0; round < b->rounds; round++)
        for (int i = 0; i < PARTS; i++) RP_TRY(parts[i]->run(b, selves[i]));
    return RP_OK;
}

static rp_status measure(rpi_machine_bench *b) {
    void *selves[PARTS] = {NULL};
    rp_status status = RP_OK;
    for (int i = 0; i < PARTS && status == RP_OK; i++) status = parts[i]->open(b, &selves[i]);
    if (status == RP_OK) status = run_rounds(b, selves);
    for (int i = 0; i < PARTS; i++) parts[i]->close(selves[i]);
    return status;
}

/* ---- what is said of the machine ---- */

static void read_cpu(char *text, size_t bytes) {
    char line[256];
    FILE *stream = fopen("/proc/cpuinfo", "re");
    snprintf(text, bytes, "unknown");
    while (stream && fgets(line, sizeof line, stream)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (stream) (void)fclose(stream);
}

static void describe(const rpi_machine_bench *b, rpi_machine_account *a) {
    a->ranks = b->ranks;
    a->threads = b->threads;
    a->memory_bytes =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / b->ranks;
    read_cpu(a->cpu, sizeof a->cpu);
}

static void print_size(const rpi_machine_item *item, char *text, size_t bytes) {
    const rpi_machine_work_info *info = rpi_machine_work_at((int)item->work);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < RPI_RATE_SIDES && info->sides[i] && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%.0f", i ? " " : "",
                                 info->sides[i], item->at[i]);
}

static const char *value_text(const rpi_machine_item *item, double value,
                              char text[RPI_TIME_BYTES]) {
    const char *unit = rpi_machine_work_at((int)item->work)->unit;
    if (strcmp(unit, "s") == 0) return rpi_time_text(value, text);
    if (strcmp(unit, "bytes") == 0)
        snprintf(text, RPI_TIME_BYTES, "%.4g MB", value * 1e-6);
    else
        snprintf(text, RPI_TIME_BYTES, "%.4g %s", value * 1e-9,
                 strcmp(unit, "flop/s") == 0 ? "GFLOP/s" : "GB/s");
    return text;
}

static void print_item(const rpi_machine_item *item) {
    const rpi_machine_work_info *info = rpi_machine_work_at((int)item->work);
    char size[96], texts[3][RPI_TIME_BYTES];
    print_size(item, size, sizeof size);
    printf("  %-10s %-14s %-10s %-28s %15s  %15s to %s\n", info->name, item->name,
           info->passes[0] ? info->passes[item->pass] : "", size,
           value_text(item, item->value, texts[0]), value_text(item, item->low, texts[1]),
           value_text(item, item->high, texts[2]));
}

static void print_account(const rpi_machine_account *a, const settings *s, double seconds) {
    printf("%s, %d rank%s at the same time, %d thread%s each, median of %lld rounds, %.1f s\n",
           a->cpu, a->ranks, a->ranks == 1 ? "" : "s", a->threads, a->threads == 1 ? "" : "s",
           (long long)s->rounds, seconds);
    printf("  %-10s %-14s %-10s %-28s %15s  %s\n", "what", "", "", "size", "median",
           "8 of 10 repeats");
    for (int i = 0; i < a->count; i++) print_item(&a->items[i]);
    if (s->out) printf("written to %s; redpoll plan train --machine %s\n", s->out, s->out);
}

static rp_status report(rpi_machine_bench *b, const settings *s, double seconds) {
    rpi_machine_account *a = NULL;
    RP_TRY(rpi_alloc(sizeof *a, "an account", &a));
    describe(b, a);
    rp_status status = rpi_machine_bench_account(b, a);
    if (status == RP_OK && s->out) status = rpi_machine_file_write(s->out, a);
    if (status == RP_OK && s->json) rpi_command_print_json(rpi_machine_json(a));
    if (status == RP_OK && !s->json) print_account(a, s, seconds);
    rpi_free(a);
    return status;
}

/* ---- the command ---- */

static void say_what(const settings *s) {
    if (s->json) return;
    printf("measures, %lld times:\n", (long long)s->rounds);
    for (int i = 0; i < PARTS; i++) printf("  %s\n", parts[i]->what);
    rpi_command_flush();
}

static rp_status run_bench(const settings *s, const rpi_world *world) {
    rpi_machine_bench *b = NULL;
    RP_TRY(rpi_alloc(sizeof *b, "items", &b));
    b->comm = world->comm;
    b->ranks = world->ranks;
    b->threads = s->threads ? (int)s->threads : world->cores;
    b->rounds = (int)s->rounds;
    b->thorough = s->thorough;
    b->folder = s->folder;
    if (world->rank == 0) say_what(s);
    int64_t start = rpi_now_ns();
    rp_status status = measure(b);
    if (status == RP_OK && world->rank == 0)
        status = report(b, s, rpi_seconds(rpi_now_ns() - start));
    rpi_free(b);
    return status;
}

static rp_status check(const settings *s) {
    if (s->world.link)
        return RP_FAIL(INVALID, "--link is not of this machine: plan train --link says it");
    if (access(s->folder, W_OK) != 0)
        return RP_FAIL(INVALID, "--folder %s: %s", s->folder, strerror(errno));
    return rpi_world_check(&s->world);
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, NULL, wants_help));
    return *wants_help ? RP_OK : check(s);
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rpi_world world = {0};
    s.world.progress_thread = true; /* as training has it */
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("bench machine", status);
    if (wants_help) {
        rpi_command_print_help(&rpi_command_bench_machine, stdout);
        return RPI_EXIT_DONE;
    }
    if (rpi_world_must_launch(&s.world))
        return rpi_world_launch(&s.world, "bench machine", argc, argv);
    status = rpi_world_join(&s.world, &world);
    if (status == RP_OK) status = run_bench(&s, &world);
    int code = status == RP_OK ? RPI_EXIT_DONE : rpi_command_failed(status);
    rpi_world_leave(&world);
    return code;
}

const rpi_command rpi_command_bench_machine = {
    .name = "bench machine",
    .summary = "measure this machine, for redpoll plan train --machine",
    .about =
        "Measures what a rank of this machine does while -n of them do the same: matrix "
        "products, attention and the rest of a transformer's layers by shape and dtype, "
        "forward "
        "and backward, through the engine that trains; copies of memory, AdamW, codecs, "
        "all-reduces among the ranks, a step of training with next to nothing in it, and a "
        "file "
        "on the disk. All is measured once in each round, so that a slow spell meets all "
        "alike; "
        "an item is what is usual of its rounds, beside what 8 of 10 were between. "
        "docs/planning.md says what becomes of them.",
    .examples = "  redpoll bench machine -n 2 -o here.json\n"
                "  redpoll plan train --machine here.json --global-batch-size 32 \\\n"
                "      --model gpt2:layers=4,hidden=256,heads=4,vocabulary=257\n",
    .options = options,
    .run = run,
};
