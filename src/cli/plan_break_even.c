/* `redpoll plan break-even`: from which rate of the link on a codec shortens a step, and when
 * slow hosts with it are cheaper than fast ones without. A step computes for c seconds, w of
 * which cover the all-reduce of T seconds: it takes c + max(0, T - w). */
#include "base/status.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "cli/plan_words.h"
#include "plan/foresight/break_even.h"
#include "plan/foresight/node_rate.h"

#include <cjson/cJSON.h>
#include <math.h>

enum { MOST_RANKS = 16384, SIMULATED = 32 };
/* Rates that are looked at, bytes a second: 80 kbit/s to 80 Tbit/s. */
#define LEAST_RATE 1e4
#define MOST_RATE  1e13

typedef struct settings {
    const char *codec_text, *link, *local, *fast_link, *price, *fast_price;
    int64_t ranks, hosts, count, bytes;
    double step_s, backward_s, fast_step_s;
    bool json;
    rp_codec codec;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "4", 2, MOST_RANKS, "ranks of the world"),
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, MOST_RANKS, "N",
     "that the ranks are on, evenly; each is on its own when absent", NULL},
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "100MB", 4, 1e15, "BYTES",
     "of the gradients, as floats of 32 bits", NULL},
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), "0", 0, 1e14, "N",
     "parameters, instead of --size", NULL},
    RPI_ROW_CODEC(FIELD(codec_text), NULL, "q4", "codec; compared with fp32"),
    {"step", NULL, NULL, RPI_OPTION_SECONDS, FIELD(step_s), "0.5s", 1e-9, 1e6, "SECONDS",
     "that a rank computes for in a step", NULL},
    {"backward", NULL, NULL, RPI_OPTION_SECONDS, FIELD(backward_s), "0s", 0, 1e6, "SECONDS",
     "of that, which cover the all-reduce", NULL},
    RPI_ROW_LINK(FIELD(link), NULL, "10Gbit,30us", "of each host, each way"),
    RPI_ROW_LOCAL(FIELD(local), "5GB,2us", "between ranks of one host"),
    {"price", NULL, NULL, RPI_OPTION_TEXT, FIELD(price), NULL, 0, 0, "PRICE",
     "of a host: 10.4/node-hour, in any currency", rpi_check_price},
    {"fast-link", NULL, NULL, RPI_OPTION_TEXT, FIELD(fast_link), NULL, 0, 0, "RATE,LATENCY",
     "of as many other hosts, which run fp32", rpi_check_link},
    {"fast-price", NULL, NULL, RPI_OPTION_TEXT, FIELD(fast_price), NULL, 0, 0, "PRICE",
     "of one of those", rpi_check_price},
    {"fast-step", NULL, NULL, RPI_OPTION_SECONDS, FIELD(fast_step_s), NULL, 0, 1e6, "SECONDS",
     "as --step, of those; --backward is the same share of it; the same when absent", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* Hosts with a codec: the time of a step over a link. */
typedef struct side {
    rp_codec codec;
    rpi_plan_request request;
    rpi_cost_model model;
    size_t bytes;
    double step_s, backward_s;
    double price; /* of a host and hour; negative: not said */
} side;

typedef struct answer {
    double all_reduce_s, exposed_s, step_s;
} answer;

typedef struct prediction {
    side exact, lossy, fast;
    answer is[3];            /* one for each of these, over the given links */
    bool has_fast, has_cost; /* has_cost: both prices */
    /* Bytes a second; 0: at none, infinity: at every one. */
    double codec_pays_below, cheaper_from, exact_cheaper_from;
    double fast_pays_below; /* of a fast host and hour */
} prediction;

static rp_status take(const side *s, double bytes_per_s, answer *out) {
    const rpi_algorithm *algorithm;
    rpi_cost cost;
    rpi_cost_model model = s->model;
    model.bytes_per_s = bytes_per_s;
    size_t encoded = rp_codec_encoded_bytes(&s->codec, RP_F32, s->bytes / sizeof(float));
    RP_TRY(rpi_plan_all_reduce(&s->request, !rp_codec_is_exact(&s->codec, RP_F32), s->bytes,
                               encoded, &model, SIMULATED, &algorithm, &cost));
    out->all_reduce_s = cost.time_s;
    out->exposed_s = fmax(0, cost.time_s - s->backward_s);
    out->step_s = s->step_s + out->exposed_s;
    return RP_OK;
}

/* ---- the questions ---- */

static rp_status codec_is_faster(void *context, double bytes_per_s, bool *out) {
    const prediction *p = context;
    answer exact, lossy;
    RP_TRY(take(&p->exact, bytes_per_s, &exact));
    RP_TRY(take(&p->lossy, bytes_per_s, &lossy));
    *out = lossy.step_s < exact.step_s;
    return RP_OK;
}

static rp_status is_dearer(const prediction *p, const side *slow, double bytes_per_s,
                           bool *out) {
    answer a;
    RP_TRY(take(slow, bytes_per_s, &a));
    *out = a.step_s * slow->price > p->is[2].step_s * p->fast.price;
    return RP_OK;
}

static rp_status lossy_is_dearer(void *context, double bytes_per_s, bool *out) {
    const prediction *p = context;
    return is_dearer(p, &p->lossy, bytes_per_s, out);
}

static rp_status exact_is_dearer(void *context, double bytes_per_s, bool *out) {
    const prediction *p = context;
    return is_dearer(p, &p->exact, bytes_per_s, out);
}

static rp_status solve(prediction *p) {
    RP_TRY(rpi_break_even(codec_is_faster, p, LEAST_RATE, MOST_RATE, &p->codec_pays_below));
    RP_TRY(take(&p->exact, p->exact.model.bytes_per_s, &p->is[0]));
    RP_TRY(take(&p->lossy, p->lossy.model.bytes_per_s, &p->is[1]));
    if (!p->has_fast) return RP_OK;
    RP_TRY(take(&p->fast, p->fast.model.bytes_per_s, &p->is[2]));
    if (p->lossy.price >= 0)
        p->fast_pays_below =
            fmin(p->is[0].step_s, p->is[1].step_s) / p->is[2].step_s * p->lossy.price;
    if (!p->has_cost) return RP_OK;
    RP_TRY(rpi_break_even(lossy_is_dearer, p, LEAST_RATE, MOST_RATE, &p->cheaper_from));
    return rpi_break_even(exact_is_dearer, p, LEAST_RATE, MOST_RATE, &p->exact_cheaper_from);
}

/* ---- what was said ---- */

static rp_status make_side(const settings *s, const char *link, bool lossy, const char *price,
                           side *out) {
    *out = (side){.request = {.world = (int)s->ranks,
                              .mean = true,
                              .host_of = rpi_plan_layout(s->ranks, s->hosts)},
                  .bytes = (size_t)s->count * sizeof(float),
                  .step_s = s->step_s,
                  .backward_s = s->backward_s,
                  .price = -1};
    if (lossy) out->codec = s->codec;
    if (price) RP_TRY(rpi_price_parse(price, &out->price));
    return rpi_plan_model_make(link, s->local, &out->codec, &out->model);
}

static rp_status check_said(settings *s) {
    RP_TRY(rp_codec_parse(s->codec_text, &s->codec));
    if (!s->count) s->count = s->bytes / (int64_t)sizeof(float);
    if (rp_codec_is_exact(&s->codec, RP_F32))
        return RP_FAIL(INVALID, "--codec %s saves nothing; try q4", s->codec_text);
    if (s->backward_s > s->step_s)
        return RP_FAIL(INVALID, "--backward is a part of --step, and longer than that");
    if (s->hosts > s->ranks)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld ranks; say -n, too",
                       (long long)s->hosts, (long long)s->ranks);
    if (s->hosts == 1)
        return RP_FAIL(INVALID, "on one host nothing travels over --link; say --hosts 2");
    if (s->fast_price && !s->fast_link)
        return RP_FAIL(INVALID,
                       "--fast-price of hosts with which link? --fast-link 100Gbit,10us");
    return RP_OK;
}

static rp_status predict(settings *s, prediction *p) {
    *p = (prediction){.fast_pays_below = -1};
    RP_TRY(check_said(s));
    RP_TRY(make_side(s, s->link, false, s->price, &p->exact));
    RP_TRY(make_side(s, s->link, true, s->price, &p->lossy));
    p->has_fast = s->fast_link != NULL;
    if (p->has_fast) RP_TRY(make_side(s, s->fast_link, false, s->fast_price, &p->fast));
    p->has_cost = p->has_fast && p->lossy.price >= 0 && p->fast.price >= 0;
    if (s->fast_step_s > 0) {
        p->fast.backward_s *= s->fast_step_s / p->fast.step_s;
        p->fast.step_s = s->fast_step_s;
    }
    return solve(p);
}

/* ---- for people ---- */

static const char *rate_text(double bytes_per_s, char text[RPI_NUMBER_BYTES]) {
    double mbit = bytes_per_s * 8e-6;
    if (mbit < 1000)
        snprintf(text, RPI_NUMBER_BYTES, "%.4g Mbit/s", mbit);
    else
        snprintf(text, RPI_NUMBER_BYTES, "%.4g Gbit/s", mbit / 1000);
    return text;
}

static void print_row(const settings *s, const prediction *p, int i) {
    const side *sides[] = {&p->exact, &p->lossy, &p->fast};
    const answer *a = &p->is[i];
    char texts[3][RPI_TIME_BYTES], codec[64];
    double hosts = (double)(s->hosts ? s->hosts : s->ranks);
    printf("  %-14s  %-13s  %10s  %10s  %10s  %7.2f x", i < 2 ? s->link : s->fast_link,
           rp_codec_text(&sides[i]->codec, codec, sizeof codec),
           rpi_time_text(a->all_reduce_s, texts[0]), rpi_time_text(a->exposed_s, texts[1]),
           rpi_time_text(a->step_s, texts[2]), p->is[0].step_s / a->step_s);
    if (sides[i]->price >= 0)
        printf("  %10.4g", hosts * sides[i]->price * a->step_s * 1000 / 3600);
    putchar('\n');
}

static void print_from(const char *what, double bytes_per_s) {
    char rate[RPI_NUMBER_BYTES];
    if (bytes_per_s == 0)
        printf("  %s: over every link\n", what);
    else if (isinf(bytes_per_s))
        printf("  %s: over no link\n", what);
    else
        printf("  %s: from %s on\n", what, rate_text(bytes_per_s, rate));
}

static void print_codec(const settings *s, const prediction *p) {
    char rate[RPI_NUMBER_BYTES];
    double below = p->codec_pays_below;
    if (below == 0)
        printf("%s shortens no step\n", s->codec_text);
    else if (isinf(below))
        printf("%s shortens a step over every link\n", s->codec_text);
    else
        printf("%s shortens a step where a host's link has less than %s\n", s->codec_text,
               rate_text(below, rate));
}

static void print_prediction(const settings *s, const prediction *p) {
    printf("  %-14s  %-13s  %10s  %10s  %10s  %9s%s\n", "link", "codec", "all-reduce",
           "exposed", "step", "as fast", s->price || s->fast_price ? "  1000 steps" : "");
    for (int i = 0; i < (p->has_fast ? 3 : 2); i++) print_row(s, p, i);
    print_codec(s, p);
    if (p->has_cost) {
        printf("cheaper than %s at %s:\n", s->fast_link, s->fast_price);
        print_from("with the codec", p->cheaper_from);
        print_from("with fp32", p->exact_cheaper_from);
    }
    if (p->fast_pays_below >= 0)
        printf("%s is the cheaper one below %.4g a node and hour\n", s->fast_link,
               p->fast_pays_below);
}

/* ---- for programs ---- */

static void add_answer(cJSON *object, const char *name, const answer *a) {
    cJSON *all = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(all, "all_reduce_s", a->all_reduce_s);
    cJSON_AddNumberToObject(all, "exposed_s", a->exposed_s);
    cJSON_AddNumberToObject(all, "step_s", a->step_s);
}

/* A rate, or null where there is none. */
static void add_rate(cJSON *object, const char *name, double bytes_per_s) {
    if (isinf(bytes_per_s))
        cJSON_AddNullToObject(object, name);
    else
        cJSON_AddNumberToObject(object, name, bytes_per_s);
}

static void print_json(const settings *s, const prediction *p) {
    char codec[64];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "break-even");
    cJSON_AddNumberToObject(object, "ranks", (double)s->ranks);
    cJSON_AddNumberToObject(object, "hosts", (double)(s->hosts ? s->hosts : s->ranks));
    cJSON_AddNumberToObject(object, "bytes", 4 * (double)s->count);
    cJSON_AddStringToObject(object, "codec", rp_codec_text(&s->codec, codec, sizeof codec));
    add_answer(object, "fp32", &p->is[0]);
    add_answer(object, "compressed", &p->is[1]);
    if (p->has_fast) add_answer(object, "fast", &p->is[2]);
    add_rate(object, "codec_pays_below_bytes_s", p->codec_pays_below);
    if (p->has_cost) {
        add_rate(object, "compressed_cheaper_from_bytes_s", p->cheaper_from);
        add_rate(object, "fp32_cheaper_from_bytes_s", p->exact_cheaper_from);
    }
    if (p->fast_pays_below >= 0)
        cJSON_AddNumberToObject(object, "fast_pays_below_per_node_hour", p->fast_pays_below);
    rpi_command_print_json(object);
}

static rp_status work(void *context) {
    settings *s = context;
    prediction p;
    RP_TRY(predict(s, &p));
    if (s->json)
        print_json(s, &p);
    else
        print_prediction(s, &p);
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_break_even, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_break_even = {
    .name = "plan break-even",
    .summary = "from which rate of the link on a codec pays, and slow hosts do",
    .about =
        "Solves for the rate of a host's link below which a codec makes steps of data-parallel "
        "training shorter, and, with prices, for the rate from which on these hosts are "
        "cheaper than as many others with a faster link and fp32. The codec is as fast as "
        "measured here and now. docs/planning.md has more.",
    .examples = "  redpoll plan break-even -n 16 --hosts 4 --count 124439808 --step 0.5s \\\n"
                "      --backward 0.3s --link 10Gbit,30us --price 10.4/node-hour \\\n"
                "      --fast-link 100Gbit,10us --fast-price 24.5/node-hour\n",
    .options = options,
    .run = run,
};
