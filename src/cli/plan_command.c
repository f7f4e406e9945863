/* `redpoll plan`: print the schedule of a collective and predict its time. */
#include "cli/commands.h"

#include "base/status.h"
#include "base/suggest.h"
#include "cli/bench_collective.h"
#include "cli/bench_serial.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "comm/world/link_costs.h"
#include "plan/algorithms.h"
#include "plan/choose.h"
#include "redpoll/adaptive.h"
#include "redpoll/codec_comparison.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *algorithm, *codec_text, *dtype_text, *reduce_text, *link, *local, *links;
    int64_t ranks, hosts, cores, rank, root, count, bytes, chunk_bytes;
    bool steps, brief, json;
    bool picks;      /* codec auto: exact where the codec is not clearly faster */
    rpi_bench bench; /* what the bench of the same words would measure */
} settings;

static rp_status check_links(const char *text) {
    rpi_cost_model model;
    return rpi_link_costs_parse(text, &model);
}

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "4", 1, 16384, "ranks of the world"),
    RPI_ROW_ALGORITHM(FIELD(algorithm), NULL,
                      "as redpoll info lists them; what a run would choose when absent", NULL),
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "100MB", 0, 1e15, "BYTES",
     "of the largest buffer of a rank: a vector, or the blocks of all ranks together", NULL},
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), NULL, 0, 1e14, "N",
     "elements of a vector or of each block, instead of --size", NULL},
    {"dtype", NULL, NULL, RPI_OPTION_TEXT, FIELD(dtype_text), "f32", 0, 0, "TYPE",
     "f32, f16, bf16, f64, i8 ... i64, u8 ... u64, bool, c64 or c128", rpi_check_dtype},
    {"codec", NULL, NULL, RPI_OPTION_TEXT, FIELD(codec_text), "fp32", 0, 0, "CODEC",
     "codec; fp32 is exact, redpoll info lists all; auto: the faster one of fp32 and v4",
     rpi_check_adaptive_codec},
    {"reduce", NULL, NULL, RPI_OPTION_TEXT, FIELD(reduce_text), "sum", 0, 0, "NAME",
     "sum, avg, product, min, max, band, bor, bxor or premul-sum", rpi_check_reduction},
    RPI_ROW_LINK(FIELD(link), NULL, "1Gbit,50us", "of each host, each way"),
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, 16384, "N",
     "that the ranks are on, evenly; each is on its own when absent", NULL},
    {"cores", NULL, NULL, RPI_OPTION_COUNT, FIELD(cores), NULL, 1, 65536, "N",
     "of each host, which its ranks share; one for each rank when absent", NULL},
    RPI_ROW_LOCAL(FIELD(local), "5GB,2us", "between ranks of one host"),
    {"links", NULL, NULL, RPI_OPTION_TEXT, FIELD(links), NULL, 0, 0, "BETWEEN/INSIDE",
     "by which a run would choose, as redpoll bench link prints them; nominal ones when absent",
     check_links},
    {"steps", NULL, NULL, RPI_OPTION_FLAG, FIELD(steps), NULL, 0, 0, NULL,
     "the schedule of a rank, too, step by step", NULL},
    {"rank", NULL, NULL, RPI_OPTION_COUNT, FIELD(rank), NULL, 0, 16383, "R",
     "whose steps to print; 0 when absent", NULL},
    {"root", NULL, NULL, RPI_OPTION_COUNT, FIELD(root), "0", 0, 16383, "R",
     "of a broadcast, reduce, gather or scatter", NULL},
    {"chunk", NULL, NULL, RPI_OPTION_BYTES, FIELD(chunk_bytes), NULL, 1, 1e9, "BYTES",
     "in flight as one piece; the executor's choice when absent", NULL},
    {"brief", NULL, NULL, RPI_OPTION_FLAG, FIELD(brief), NULL, 0, 0, NULL,
     "the prediction of the chosen one alone", NULL},
    RPI_ROW_JSON(FIELD(json), "the prediction as one JSON object (docs/json.md)"),
    {0},
};

/* Properties that only some collectives have, and the option of their benches that says which.
 */
static const struct {
    const char *name, *of_bench;
} varying[] = {{"size", "count"},         {"count", "count"}, {"dtype", "dtype"},
               {"codec", "codec"},        {"root", "root"},   {"reduce", "reduce"},
               {"algorithm", "algorithm"}};
enum { VARYING = sizeof varying / sizeof varying[0] };

static const char *collective_name_at(int index) {
    return index < RPI_COLLECTIVES ? rpi_collective_name((rpi_collective)index) : NULL;
}

/* The words that may follow `plan`: the last ones are commands of their own; then NULL. */
static const char *word_at(int index) {
    static const char *const others[] = {"gossip",  "local-sgd",  "pipeline", "failures",
                                         "cost",    "break-even", "train",    "check",
                                         "scaling", NULL};
    enum { OTHERS = sizeof others / sizeof others[0] };
    if (index < RPI_COLLECTIVES) return collective_name_at(index);
    return index < RPI_COLLECTIVES + OTHERS ? others[index - RPI_COLLECTIVES] : NULL;
}

static const char *collective_at(const void *context, int index) {
    (void)context;
    return word_at(index);
}

typedef struct prediction {
    const rpi_algorithm *algorithm;
    rpi_plan_request request;
    size_t bytes, encoded;
    rpi_cost_model model;
    rpi_cost_model links; /* by which the algorithm is chosen */
    rpi_cost cost;
    char codec[64], other[64]; /* other: what codec auto did not pick; else "" */
    double other_s;
} prediction;

/* Chooses what the bench of the collective measures: for send-recv, all neighbours at once. */
static rp_status choose(const settings *s, prediction *p) {
    const rpi_bench *b = &s->bench;
    if (b->kind->collective == RPI_SENDRECV) {
        p->algorithm = &rpi_algorithm_neighbours;
        return RP_OK;
    }
    if (s->algorithm)
        return rpi_algorithm_find(b->kind->collective, s->algorithm, &p->algorithm);
    return rpi_algorithm_choose(b->kind->collective, &p->request, rpi_bench_is_lossy(b),
                                p->bytes, &p->links, &p->algorithm);
}

static rp_status cost_of(const prediction *p, const rpi_algorithm *algorithm,
                         rpi_cost *out_cost) {
    return rpi_plan_cost(algorithm, &p->request, p->bytes, p->encoded, &p->model, out_cost);
}

/* Seconds in which a core goes from one rank to the next where many ranks share few cores and
 * each turn is a wake-up: fitted to 64 ranks on two cores. */
#define CROWD_TURN_S 35e-6

/* Ranks that share cores also wait for their turns, and frames keep cores busy. */
static void share_cores(const settings *s, prediction *p) {
    if (!s->cores) return;
    int64_t hosts = s->hosts ? s->hosts : s->ranks, widest = (s->ranks + hosts - 1) / hosts;
    bool crowd = rpi_is_oversubscribed((long)widest, (long)s->cores);
    p->links.cores = p->model.cores = (int)s->cores;
    p->model.turn_s = crowd ? CROWD_TURN_S : rpi_nominal_links.turn_s;
    p->model.frame_s = rpi_nominal_links.frame_s;
    p->model.inside_frame_s = rpi_nominal_links.inside_frame_s;
}

static rp_status predict_codec(const settings *s, prediction *p) {
    const rpi_bench *b = &s->bench;
    int world = (int)s->ranks;
    p->request = (rpi_plan_request){.world = world,
                                    .rank = (int)s->rank,
                                    .root = (int)s->root,
                                    .mean = b->kind->reduces && b->reduce == RP_AVG,
                                    .host_of = rpi_plan_layout(s->ranks, s->hosts)};
    size_t blocks = (size_t)rpi_bench_most_blocks(b->kind, world);
    p->bytes = blocks * (size_t)s->count * rp_dtype_bytes(b->dtype);
    p->encoded = blocks * rp_codec_encoded_bytes(&b->codec, b->dtype, (size_t)s->count);
    RP_TRY(rpi_plan_model_make(s->link, s->local, &b->codec, &p->model));
    p->model.chunk_bytes = (size_t)s->chunk_bytes;
    RP_TRY(rpi_link_costs_parse(s->links, &p->links));
    share_cores(s, p);
    rp_codec_text(&b->codec, p->codec, sizeof p->codec);
    RP_TRY(choose(s, p));
    return cost_of(p, p->algorithm, &p->cost);
}

/* Predicts codec auto as a run decides it: lossy where that is clearly faster. */
static rp_status predict(settings *s, prediction *p) {
    prediction exact = {0};
    rp_codec lossy = s->bench.codec;
    RP_TRY(predict_codec(s, p));
    if (!s->picks) return RP_OK;
    s->bench.codec = (rp_codec){0};
    RP_TRY(predict_codec(s, &exact));
    if (p->cost.time_s < exact.cost.time_s * (1 - RP_COMPARISON_GAIN)) {
        s->bench.codec = lossy;
        p->other_s = exact.cost.time_s;
        memcpy(p->other, exact.codec, sizeof p->other);
        return RP_OK;
    }
    exact.other_s = p->cost.time_s;
    memcpy(exact.other, p->codec, sizeof exact.other);
    *p = exact;
    return RP_OK;
}

static void print_json(const settings *s, const prediction *p) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", rpi_collective_name(s->bench.kind->collective));
    cJSON_AddNumberToObject(object, "ranks", (double)s->ranks);
    cJSON_AddNumberToObject(object, "hosts", (double)(s->hosts ? s->hosts : s->ranks));
    cJSON_AddNumberToObject(object, "bytes", (double)p->bytes);
    cJSON_AddStringToObject(object, "codec", p->codec);
    cJSON_AddNumberToObject(object, "encoded_bytes", (double)p->encoded);
    cJSON_AddStringToObject(object, "algorithm", p->algorithm->name);
    cJSON_AddNumberToObject(object, "link_bytes_s", p->model.bytes_per_s);
    cJSON_AddNumberToObject(object, "link_latency_s", p->model.latency_s);
    cJSON_AddNumberToObject(object, "local_bytes_s", p->model.inside_bytes_per_s);
    cJSON_AddNumberToObject(object, "local_latency_s", p->model.inside_latency_s);
    cJSON_AddNumberToObject(object, "time_s", p->cost.time_s);
    cJSON_AddNumberToObject(object, "wire_bytes", p->cost.wire_bytes);
    cJSON_AddNumberToObject(object, "host_bytes", p->cost.host_bytes);
    cJSON_AddNumberToObject(object, "wire_s", p->cost.wire_s);
    cJSON_AddNumberToObject(object, "encode_s", p->cost.encode_s);
    cJSON_AddNumberToObject(object, "decode_s", p->cost.decode_s);
    cJSON_AddNumberToObject(object, "frames", (double)p->cost.frames);
    if (s->cores) cJSON_AddNumberToObject(object, "cores", (double)s->cores);
    if (p->other[0]) cJSON_AddStringToObject(object, "other_codec", p->other);
    if (p->other[0]) cJSON_AddNumberToObject(object, "other_time_s", p->other_s);
    rpi_command_print_json(object);
}

static rp_status print_schedule(const prediction *p) {
    rpi_schedule schedule;
    RP_TRY(rpi_schedule_build(p->algorithm, &p->request, &schedule));
    rpi_schedule_print(stdout, &schedule);
    rpi_schedule_destroy(&schedule);
    printf("\n");
    return RP_OK;
}

/* Prints one line of the table; what is too large to simulate has no price. */
static rp_status print_candidate(const settings *s, const prediction *p,
                                 const rpi_algorithm *algorithm) {
    rpi_cost cost = {0};
    const char *words = "";
    char time[RPI_TIME_BYTES] = "?";
    rp_status status = cost_of(p, algorithm, &cost);
    if (status != RP_OK && status != RP_UNSUPPORTED) return status;
    if (status == RP_OK) rpi_time_text(cost.time_s, time);
    RP_TRY(rpi_algorithm_verdict(algorithm, &p->request, rpi_bench_is_lossy(&s->bench),
                                 p->bytes, &p->links, &words));
    bool lossless = !rpi_bench_is_lossy(&s->bench) || strcmp(words, "exact codecs only") != 0;
    printf("%c %-14s  %10s  %10.2f  %7lld  %s\n", algorithm == p->algorithm ? '*' : ' ',
           algorithm->name, lossless ? time : "-", cost.host_bytes * 1e-6,
           (long long)cost.frames, words);
    return RP_OK;
}

/* Prints every algorithm with its price, and why it was chosen or not. */
static rp_status print_candidates(const settings *s, const prediction *p) {
    const rpi_algorithm *it;
    if (s->bench.kind->collective == RPI_SENDRECV) return RP_OK;
    printf("  %-14s  %10s  %10s  %7s  %s\n", "algorithm", "time", "MB a host", "frames", "");
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++)
        if (it->collective == s->bench.kind->collective) RP_TRY(print_candidate(s, p, it));
    printf("\n");
    return RP_OK;
}

/* Prints the link costs by which the algorithm was chosen, where it was chosen. */
static void print_links(const settings *s, const prediction *p) {
    char text[RPI_LINK_COSTS_TEXT];
    if (s->algorithm || s->bench.kind->collective == RPI_SENDRECV) return;
    printf("chosen by %s links, %s\n", s->links ? "these" : "nominal",
           rpi_link_costs_text(&p->links, text));
}

static void print_prediction(const settings *s, const prediction *p) {
    const rpi_bench_kind *kind = s->bench.kind;
    char texts[4][RPI_TIME_BYTES];
    printf("%s by %s, %lld ranks", rpi_collective_name(kind->collective), p->algorithm->name,
           (long long)s->ranks);
    if (s->hosts) printf(" on %lld host%s", (long long)s->hosts, s->hosts == 1 ? "" : "s");
    if (s->cores) printf(" of %lld core%s", (long long)s->cores, s->cores == 1 ? "" : "s");
    if (kind->gives != RPI_BLOCKS_NONE)
        printf(", %.1f MB as %s", (double)p->bytes * 1e-6, p->codec);
    if (kind->has_codec) printf(" (%.1f MB encoded)", (double)p->encoded * 1e-6);
    printf(", link %s", s->link);
    if (s->hosts) printf(", inside %s", s->local);
    printf("\n");
    print_links(s, p);
    if (p->other[0])
        printf("codec auto: %s; %s would take %s\n", p->codec, p->other,
               rpi_time_text(p->other_s, texts[0]));
    printf("predicted: %s; %.2f MB sent by a rank in %lld frame%s (%s on the wire), "
           "encoding %s, decoding %s\n",
           rpi_time_text(p->cost.time_s, texts[0]), p->cost.wire_bytes * 1e-6,
           (long long)p->cost.frames, p->cost.frames == 1 ? "" : "s",
           rpi_time_text(p->cost.wire_s, texts[1]), rpi_time_text(p->cost.encode_s, texts[2]),
           rpi_time_text(p->cost.decode_s, texts[3]));
}

static rp_status find_collective(const char *word, settings *s) {
    char hint[64];
    for (int c = 0; c < RPI_COLLECTIVES; c++) {
        if (strcmp(word, collective_name_at(c)) != 0) continue;
        s->bench.kind = rpi_bench_command_of((rpi_collective)c)->bench;
        return RP_OK;
    }
    return RP_FAIL(INVALID, "no collective '%s'%s", word,
                   rpi_suggest_text(word, collective_at, NULL, hint, sizeof hint));
}

/* Refuses what a bench of this collective would refuse, with the same message. */
static rp_status check_words(const settings *s, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const rpi_option *option = rpi_options_find(options, argv[i]);
        for (int v = 0; option && v < VARYING; v++)
            if (strcmp(option->name, varying[v].name) == 0)
                RP_TRY(rpi_bench_takes(s->bench.kind->command, varying[v].of_bench,
                                       varying[v].name));
    }
    return RP_OK;
}

/* If bits are chosen for each tensor, the mean number of bits stands for them. */
static rp_status read_codec(settings *s) {
    rp_adaptive_codec codec;
    RP_TRY(rp_adaptive_codec_parse(s->codec_text, &codec));
    s->bench.codec = codec.codec;
    s->picks = codec.fastest;
    return codec.every ? rp_level_like(&codec.codec, &s->bench.codec) : RP_OK;
}

/* Checks only those values that the collective has: the others come from defaults and
 * variables. */
static rp_status resolve(settings *s) {
    rpi_bench *b = &s->bench;
    bool moves = b->kind->gives != RPI_BLOCKS_NONE;
    b->dtype = RP_U8;
    b->algorithm = s->algorithm;
    if (!b->kind->has_root) s->root = 0;
    b->root = (int)s->root;
    if (moves) RP_TRY(rpi_bench_dtype_parse(s->dtype_text, &b->dtype));
    if (b->kind->has_codec) RP_TRY(read_codec(s));
    if (b->kind->reduces) RP_TRY(rpi_reduce_parse(s->reduce_text, &b->reduce));
    if (!moves)
        s->count = 0;
    else if (s->count < 0)
        s->count = (int64_t)rpi_bench_count(b->kind, b->dtype, (int)s->ranks, s->bytes);
    if (s->rank >= 0) s->steps = true;
    if (s->rank < 0) s->rank = 0;
    if (s->hosts > s->ranks)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld ranks; say -n, too",
                       (long long)s->hosts, (long long)s->ranks);
    if (s->rank >= s->ranks)
        return RP_FAIL(INVALID, "--rank %lld is not in a world of %lld", (long long)s->rank,
                       (long long)s->ranks);
    return rpi_bench_check(b, s->ranks);
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    const char *words[1];
    rpi_positional positional = {.words = words, .capacity = 1};
    RP_TRY(rpi_options_defaults(options, s));
    s->count = s->rank = -1; /* not said */
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &positional, wants_help));
    if (*wants_help) return RP_OK;
    if (positional.count == 0) return RP_FAIL(INVALID, "which collective? all-reduce, for one");
    RP_TRY(find_collective(words[0], s));
    RP_TRY(check_words(s, argc, argv));
    return resolve(s);
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("plan", status);
    if (wants_help) {
        rpi_command_print_help(&rpi_command_plan, stdout);
        return RPI_EXIT_DONE;
    }
    prediction p = {0};
    status = predict(&s, &p);
    if (status == RP_INVALID || status == RP_NOT_FOUND || status == RP_UNSUPPORTED)
        return rpi_command_misused("plan", status);
    bool all = !s.brief && !s.json;
    if (status == RP_OK && all && s.steps) status = print_schedule(&p);
    if (status == RP_OK && all) status = print_candidates(&s, &p);
    if (status != RP_OK) return rpi_command_failed(status);
    if (s.json)
        print_json(&s, &p);
    else
        print_prediction(&s, &p);
    return RPI_EXIT_DONE;
}

const rpi_command rpi_command_plan = {
    .name = "plan",
    .summary = "predict what collectives take, and print their steps",
    .words = "COLLECTIVE [OPTIONS]",
    .about =
        "Predicts the time of every algorithm, says which one a run would choose and why, and "
        "prints its steps when asked. Each host's link has a rate and a latency, which its "
        "ranks "
        "share, and encoding and decoding run as fast as measured here and now. The choice is "
        "made by nominal links (10Gbit,20us), as in a run, or by those of --links: 'redpoll "
        "bench "
        "link' measures them, and REDPOLL_LINKS tells runs. "
        "COLLECTIVE is all-reduce, reduce-scatter, all-gather, broadcast, barrier, send-recv, "
        "reduce, gather, scatter or all-to-all. The same words behind 'redpoll bench' measure "
        "what is predicted. 'redpoll plan gossip' does the same for averaging with neighbours, "
        "'redpoll plan local-sgd' for exchanges every so many steps, 'redpoll plan pipeline' "
        "for "
        "the stages of a pipeline; 'redpoll plan failures' "
        "says what failures take of a training, and how often to save, 'redpoll plan spot' "
        "what a trace of spot nodes leaves of it; 'redpoll plan cost' "
        "what a training costs, 'redpoll plan break-even' from which rate of the link on a "
        "codec pays; 'redpoll plan train' predicts whole trainings, and 'redpoll plan check' "
        "says how well.",
    .examples =
        "  redpoll plan all-reduce --algorithm sra --ranks 8 --size 100MB \\\n"
        "      --link 1Gbit,50us\n"
        "  redpoll plan all-reduce --ranks 64 --hosts 8 --size 100MB --codec q4 \\\n"
        "      --link 10Gbit,20us --local 10GB/s,1us\n"
        "  redpoll plan all-reduce --ranks 4 --hosts 2 --rank 1 --algorithm two-level\n",
    .options = options,
    .word_at = word_at,
    .run = run,
};
