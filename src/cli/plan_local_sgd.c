/* `redpoll plan local-sgd`: the share of time in which ranks compute if they exchange every so
 * many steps. A window of h = every / fragments steps of t seconds ends with an exchange of T
 * seconds, d steps of which lie under training: h t / (h t + max(0, T - d t)). */
#include "base/status.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "plan/algorithms.h"
#include "plan/choose.h"
#include "redpoll/local_sgd.h"

#include <cjson/cJSON.h>
#include <math.h>

enum { MOST_RANKS = 4096 };

typedef struct settings {
    const char *codec_text, *link, *local;
    int64_t every, fragments, delay, ranks, hosts, count, bytes;
    double step_s;
    bool json;
    rp_codec codec;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"every", NULL, NULL, RPI_OPTION_COUNT, FIELD(every), "100", 0, 1e9, "N",
     "steps from one exchange of a parameter to the next", NULL},
    {"fragments", NULL, NULL, RPI_OPTION_COUNT, FIELD(fragments), "1", 0, 1e9, "N",
     "parts of the model, exchanged in turn", NULL},
    {"delay", NULL, NULL, RPI_OPTION_COUNT, FIELD(delay), "0", 0, 1e9, "N",
     "steps under which an exchange travels", NULL},
    {"step", NULL, NULL, RPI_OPTION_SECONDS, FIELD(step_s), "0.5s", 1e-9, 1e6, "SECONDS",
     "that a rank computes for in a step", NULL},
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "4", 1, MOST_RANKS, "ranks of the world"),
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "100MB", 4, 1e15, "BYTES",
     "of the parameters, as floats of 32 bits", NULL},
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), "0", 0, 1e14, "N",
     "parameters, instead of --size", NULL},
    RPI_ROW_CODEC(FIELD(codec_text), NULL, "fp32", "codec; fp32 is exact"),
    RPI_ROW_LINK(FIELD(link), NULL, "50Mbit,5ms", "of each host, each way"),
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, MOST_RANKS, "N",
     "that the ranks are on, evenly; each is on its own when absent", NULL},
    RPI_ROW_LOCAL(FIELD(local), "5GB,2us", "between ranks of one host"),
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

typedef struct prediction {
    const rpi_algorithm *algorithm; /* NULL: a rank alone */
    rpi_cost cost;                  /* of one exchange */
    double window_s;                /* of computing */
    double exposed_s;               /* of an exchange */
    double utilisation;
    double wire_bytes; /* a rank and step */
} prediction;

static rp_status price(const settings *s, size_t count, prediction *p) {
    bool lossy = !rp_codec_is_exact(&s->codec, RP_F32);
    size_t bytes = count * sizeof(float);
    size_t encoded = rp_codec_encoded_bytes(&s->codec, RP_F32, count);
    rpi_cost_model model;
    rpi_plan_request request = {
        .world = (int)s->ranks, .mean = true, .host_of = rpi_plan_layout(s->ranks, s->hosts)};
    if (s->ranks == 1) return RP_OK;
    RP_TRY(rpi_plan_model_make(s->link, s->local, &s->codec, &model));
    RP_TRY(rpi_algorithm_choose(RPI_ALL_REDUCE, &request, lossy, bytes, &rpi_nominal_links,
                                &p->algorithm));
    return rpi_plan_cost(p->algorithm, &request, bytes, encoded, &model, &p->cost);
}

static rp_status predict(const settings *s, int64_t every, int64_t fragments, int64_t delay,
                         prediction *out) {
    size_t count = ((size_t)s->count + (size_t)fragments - 1) / (size_t)fragments;
    prediction p = {0};
    RP_TRY(price(s, count, &p));
    int64_t window = every / fragments;
    double steps = (double)window, under_s = (double)delay * s->step_s;
    p.window_s = steps * s->step_s;
    p.exposed_s = fmax(0, p.cost.time_s - under_s);
    p.utilisation = p.window_s / (p.window_s + p.exposed_s);
    p.wire_bytes = p.cost.wire_bytes / steps;
    *out = p;
    return RP_OK;
}

/* ---- for people ---- */

static void print_what(const settings *s) {
    char codec[64], time[RPI_TIME_BYTES];
    printf("local SGD: an exchange every %lld steps of %s, %lld fragment%s, delay %lld\n",
           (long long)s->every, rpi_time_text(s->step_s, time), (long long)s->fragments,
           s->fragments == 1 ? "" : "s", (long long)s->delay);
    printf("%lld ranks, %.1f MB as %s; link %s\n", (long long)s->ranks, 4e-6 * (double)s->count,
           rp_codec_text(&s->codec, codec, sizeof codec), s->link);
}

static void print_prediction(const settings *s, const prediction *p) {
    char time[2][RPI_TIME_BYTES];
    printf("predicted: %.1f %% of the time is computing\n", 100 * p->utilisation);
    if (!p->algorithm) return;
    printf(
        "  every %lld steps an all-reduce by %s: %s and %.3f MB of a rank, %s of it exposed\n",
        (long long)(s->every / s->fragments), p->algorithm->name,
        rpi_time_text(p->cost.time_s, time[0]), 1e-6 * p->cost.wire_bytes,
        rpi_time_text(p->exposed_s, time[1]));
    double under_s = (double)s->delay * s->step_s, steps = ceil(p->cost.time_s / s->step_s);
    int64_t window = s->every / s->fragments;
    bool fits = steps < (double)window; /* else no such delay is allowed */
    if (p->exposed_s > 0 && under_s > 0)
        printf("  a link of %.1f Mbit/s hides it", 8e-6 * p->cost.wire_bytes / under_s);
    if (p->exposed_s > 0 && fits)
        printf("%s a delay of %.0f steps%s", under_s > 0 ? ", or" : " ", steps,
               under_s > 0 ? "" : " hides it");
    if (p->exposed_s > 0 && (fits || under_s > 0)) putchar('\n');
}

/* Prints the results of other numbers of local steps, at once and in these fragments. */
static rp_status print_others(const settings *s) {
    static const int64_t others[] = {1, 8, 32, 128, 512};
    printf("other numbers of steps, whole and at once:\n");
    printf("  every   computing   MB a step and rank\n");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        prediction p;
        RP_TRY(predict(s, others[i], 1, 0, &p));
        printf("  %5lld   %7.2f %%   %.3f\n", (long long)others[i], 100 * p.utilisation,
               1e-6 * p.wire_bytes);
    }
    return RP_OK;
}

/* ---- for programs ---- */

static void print_json(const settings *s, const prediction *p) {
    char codec[64];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "local-sgd");
    cJSON_AddNumberToObject(object, "every", (double)s->every);
    cJSON_AddNumberToObject(object, "fragments", (double)s->fragments);
    cJSON_AddNumberToObject(object, "delay", (double)s->delay);
    cJSON_AddNumberToObject(object, "ranks", (double)s->ranks);
    cJSON_AddNumberToObject(object, "hosts", (double)(s->hosts ? s->hosts : s->ranks));
    cJSON_AddNumberToObject(object, "bytes", 4 * (double)s->count);
    cJSON_AddStringToObject(object, "codec", rp_codec_text(&s->codec, codec, sizeof codec));
    cJSON_AddNumberToObject(object, "step_s", s->step_s);
    if (p->algorithm) cJSON_AddStringToObject(object, "algorithm", p->algorithm->name);
    cJSON_AddNumberToObject(object, "exchange_s", p->cost.time_s);
    cJSON_AddNumberToObject(object, "exchange_wire_bytes", p->cost.wire_bytes);
    cJSON_AddNumberToObject(object, "exposed_s", p->exposed_s);
    cJSON_AddNumberToObject(object, "utilisation", p->utilisation);
    cJSON_AddNumberToObject(object, "wire_bytes", p->wire_bytes);
    rpi_command_print_json(object);
}

/* ---- the command ---- */

static rp_status resolve(settings *s) {
    rp_local_sgd_options o = RP_LOCAL_SGD_OPTIONS();
    RP_TRY(rp_codec_parse(s->codec_text, &s->codec));
    RP_TRY(rp_local_sgd_defaults("diloco", &o));
    o.every = (uint64_t)s->every;
    o.fragments = (uint64_t)s->fragments;
    o.delay = (uint64_t)s->delay;
    RP_TRY(rp_local_sgd_check(&o, 0));
    if (!s->count) s->count = s->bytes / (int64_t)sizeof(float);
    if (s->hosts > s->ranks)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld ranks; say -n, too",
                       (long long)s->hosts, (long long)s->ranks);
    return RP_OK;
}

static rp_status work(void *context) {
    settings *s = context;
    prediction p;
    RP_TRY(resolve(s));
    RP_TRY(predict(s, s->every, s->fragments, s->delay, &p));
    if (s->json) {
        print_json(s, &p);
        return RP_OK;
    }
    print_what(s);
    print_prediction(s, &p);
    return p.algorithm ? print_others(s) : RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_local_sgd, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_local_sgd = {
    .name = "plan local-sgd",
    .summary = "how much of the time ranks compute, for so many local steps",
    .about =
        "Predicts what `redpoll train --strategy local-sgd` (average, slowmo and diloco) "
        "leaves "
        "of a link: what an exchange takes, how much of it training waits for, and which share "
        "of the time is computing. With fragments each exchange is that of a part; with a "
        "delay "
        "it lies under the next steps. docs/decentralised.md has more.",
    .examples = "  redpoll plan local-sgd --every 100 -n 4 --size 124MB --link 50Mbit,5ms\n"
                "  redpoll plan local-sgd --every 100 --fragments 4 --delay 2 --codec q4 \\\n"
                "      --step 0.5s --json\n",
    .options = options,
    .run = run,
};
