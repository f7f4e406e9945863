/* Making, printing and reading programs. */
#include "comm/random_program.h"

#include "base/rng.h"
#include "comm/serial.h"
#include "net/trust/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[STEP_KINDS] = {"all-reduce",
                                                   "reduce-scatter",
                                                   "reduce-scatter-v",
                                                   "all-gather",
                                                   "all-gather-v",
                                                   "reduce-scatter-segments",
                                                   "all-gather-segments",
                                                   "broadcast",
                                                   "reduce",
                                                   "gather",
                                                   "scatter",
                                                   "all-to-all",
                                                   "barrier",
                                                   "neighbors",
                                                   "send",
                                                   "fan-in"};
static const char *const how_names[WAIT_HOWS] = {"blocking", "wait", "test", "slices", "queue"};
static const char *const reduce_names[] = {"sum",  "avg", "product", "min",       "max",
                                           "band", "bor", "bxor",    "premul-sum"};
enum { REDUCTIONS = sizeof reduce_names / sizeof reduce_names[0] };

enum { ANY_TAG = 100, TABLE_MAX = 3000, LONG_ONE_IN = 24 };

const char *program_step_name(int kind) {
    return kind_names[kind];
}

uint32_t program_choice(const program_step *step, int rank, uint32_t salt, uint32_t bound) {
    uint32_t counter[4] = {step->data, (uint32_t)rank, salt, 77}, key[2] = {1, 2}, words[4];
    rp_philox4x32(counter, key, words);
    return words[0] % bound;
}

/* ---- making ---- */

static bool one_in(rpi_rng *rng, uint32_t n) {
    return rpi_rng_below(rng, n) == 0;
}

#define PICK(rng, list) (list)[rpi_rng_below(rng, sizeof(list) / sizeof *(list))]

/* Short ones as often as long ones, and the ends of the range more often than that. */
static int64_t some_count(rpi_rng *rng, int64_t most) {
    int bits = 0;
    while (most >> bits > 1) bits++;
    if (one_in(rng, 8)) return 0;
    int64_t below = INT64_C(1) << rpi_rng_below(rng, (uint32_t)bits + 1);
    int64_t count = 1 + (int64_t)rpi_rng_below(rng, (uint32_t)below);
    return count < most ? count : most;
}

static bool reduces(int kind) {
    return kind == STEP_ALL_REDUCE || kind == STEP_REDUCE_SCATTER ||
           kind == STEP_REDUCE_SCATTER_V || kind == STEP_REDUCE_SCATTER_SEGMENTS ||
           kind == STEP_REDUCE;
}

/* f32 on the grid of a codec, which are not summed. */
static bool encodes_alone(int kind) {
    return kind == STEP_NEIGHBORS || kind == STEP_ALL_GATHER_SEGMENTS;
}

static bool has_parts(int kind) {
    return kind == STEP_ALL_REDUCE || kind == STEP_REDUCE_SCATTER_SEGMENTS ||
           kind == STEP_ALL_GATHER_SEGMENTS;
}

static const char *const codecs[] = {
    "fp32",         "bf16",          "fp16",          "q4",
    "q8:bucket=64", "q3:bucket=100", "q1:bucket=512", "q4:bucket=33,rounding=stochastic"};

/* Any dtype and reduction with few elements, or f32 sums of any length with any codec. */
static void choose_reduction(rpi_rng *rng, program_step *step, int64_t bytes_max) {
    bool takes_codec = step->kind != STEP_REDUCE;
    if (one_in(rng, 2)) {
        step->dtype = RP_F32;
        step->reduce = one_in(rng, 3) ? RP_AVG : RP_SUM;
        if (takes_codec) snprintf(step->codec, sizeof step->codec, "%s", PICK(rng, codecs));
        step->count = some_count(rng, bytes_max / 4);
        return;
    }
    do {
        step->dtype = 1 + (int)rpi_rng_below(rng, RP_C128);
        step->reduce = (int)rpi_rng_below(rng, REDUCTIONS);
    } while (!serial_takes((rp_reduction)step->reduce, (rp_dtype)step->dtype));
    step->count = some_count(rng, TABLE_MAX);
}

static void choose_algorithm(rpi_rng *rng, program_step *step) {
    static const char *const names[STEP_KINDS][2] = {
        [STEP_ALL_REDUCE] = {"sra", "ring"},
        [STEP_REDUCE_SCATTER] = {"direct", "ring"},
        [STEP_REDUCE_SCATTER_V] = {"direct", "ring"},
        [STEP_ALL_GATHER] = {"direct", "ring"},
        [STEP_ALL_GATHER_V] = {"direct", "ring"},
        [STEP_REDUCE_SCATTER_SEGMENTS] = {"direct", "ring"},
        [STEP_ALL_GATHER_SEGMENTS] = {"direct", "ring"},
        [STEP_BROADCAST] = {"tree", "scatter"},
        [STEP_REDUCE] = {"direct", "scatter"},
    };
    const char *const *both = names[step->kind];
    snprintf(step->algorithm, sizeof step->algorithm, "%s",
             both[0] && !one_in(rng, 3) ? both[rpi_rng_below(rng, 2)] : "auto");
}

static void choose_data(rpi_rng *rng, program_step *step, int64_t bytes_max) {
    if (reduces(step->kind)) {
        choose_reduction(rng, step, bytes_max);
        return;
    }
    if (encodes_alone(step->kind)) {
        step->dtype = RP_F32;
        snprintf(step->codec, sizeof step->codec, "%s", PICK(rng, codecs));
        step->count = some_count(rng, bytes_max / 4);
        return;
    }
    step->dtype = 1 + (int)rpi_rng_below(rng, RP_C128);
    step->count = some_count(rng, bytes_max / (int64_t)rp_dtype_bytes((rp_dtype)step->dtype));
}

static void choose_ranks(rpi_rng *rng, program_step *step, int index, int world) {
    step->root = (int)rpi_rng_below(rng, (uint32_t)world);
    step->peer =
        world > 1 ? (step->root + 1 + (int)rpi_rng_below(rng, (uint32_t)world - 1)) % world : 0;
    step->tag = (int)rpi_rng_below(rng, 3);
    if (step->kind != STEP_FAN_IN) return;
    step->tag = one_in(rng, 2) ? ANY_TAG : 1000 + index;
    if (step->tag == ANY_TAG) { /* messages of several such steps may change places */
        step->dtype = RP_F32;
        step->count = 64;
    }
}

static void choose_times(rpi_rng *rng, const program *p, program_step *step) {
    step->how = (int)rpi_rng_below(rng, p->progress_thread ? WAIT_HOWS : WAIT_QUEUE);
    step->lag = step->how == WAIT_BLOCKING ? 0 : (int)rpi_rng_below(rng, 9);
    step->slow = -1;
    if (!one_in(rng, 4)) return;
    step->slow = (int)rpi_rng_below(rng, (uint32_t)p->world);
    step->us = (int)rpi_rng_below(rng, one_in(rng, 6) ? 20000 : 1000);
}

/* Buffers of one rank's block that all ranks hold for a step, about. */
static int64_t copies_of(const program *p, int kind) {
    bool blocks = kind == STEP_ALL_GATHER || kind == STEP_ALL_GATHER_V ||
                  kind == STEP_ALL_TO_ALL || kind == STEP_REDUCE_SCATTER ||
                  kind == STEP_REDUCE_SCATTER_V;
    return (blocks ? p->world : 3) * (int64_t)p->world;
}

/* Of the lengths that a training job moves: long enough to fill all that lies between ranks. */
static void make_long(rpi_rng *rng, const program *p, int64_t long_max, program_step *step) {
    int64_t bytes = PROGRAM_LONG_TOTAL / copies_of(p, step->kind);
    if (bytes > long_max) bytes = long_max;
    bool grid = (reduces(step->kind) && step->kind != STEP_REDUCE) || /* others: short tables */
                encodes_alone(step->kind);
    if (step->kind == STEP_BARRIER || (reduces(step->kind) && !grid)) return;
    if (step->kind == STEP_FAN_IN && step->tag == ANY_TAG) return;
    if (grid) {
        step->dtype = RP_F32;
        step->reduce = RP_SUM;
    }
    int64_t most = bytes / (int64_t)rp_dtype_bytes((rp_dtype)step->dtype);
    step->count = most / 4 + (int64_t)rpi_rng_below(rng, (uint32_t)(most - most / 4));
}

static void make_step(rpi_rng *rng, const program *p, int index, int64_t bytes_max,
                      program_step *step) {
    *step = (program_step){.codec = "fp32", .algorithm = "auto", .parts = 1};
    do step->kind = (int)rpi_rng_below(rng, STEP_KINDS);
    while (p->world == 1 && step->kind >= STEP_SEND);
    step->comm = (int)rpi_rng_below(rng, (uint32_t)p->comms);
    step->data = rpi_rng_u32(rng);
    choose_data(rng, step, bytes_max);
    choose_algorithm(rng, step);
    choose_ranks(rng, step, index, p->world);
    if (has_parts(step->kind)) step->parts = 1 + (int)rpi_rng_below(rng, 4);
    choose_times(rng, p, step);
}

void program_make(uint64_t seed, const program_limits *limits, program *out) {
    static const char *const of_threads[] = {"inproc", "shm", "tcp", "tls", "shaped", "mixed"};
    static const char *const of_processes[] = {"shm", "tcp", "tls", "shaped", "mixed"};
    static const int chunks[] = {0, 0, 16384, 100000};
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 1);
    *out = (program){.processes = limits->processes, .timeout_s = 40};
    out->world = 1 + (int)rpi_rng_below(&rng, (uint32_t)limits->world_max);
    out->comms = one_in(&rng, 3) ? 1 + (int)rpi_rng_below(&rng, PROGRAM_COMMS) : 1;
    /* Who waits makes progress the communicator he waits on: others need a thread. */
    out->progress_thread = out->comms > 1 || one_in(&rng, 3);
    out->chunk_bytes = PICK(&rng, chunks);
    out->asks = one_in(&rng, 5);
    snprintf(out->transport, sizeof out->transport, "%s",
             limits->processes ? PICK(&rng, of_processes) : PICK(&rng, of_threads));
    if (strcmp(out->transport, "tls") == 0 && !rpi_tls_is_supported())
        snprintf(out->transport, sizeof out->transport, "tcp");
    out->count = 4 + (int)rpi_rng_below(&rng, (uint32_t)limits->steps_max - 3);
    for (int i = 0; i < out->count; i++) {
        int64_t bytes_max = one_in(&rng, 12) ? limits->bytes_max : limits->bytes_max / 64;
        make_step(&rng, out, i, bytes_max, &out->steps[i]);
    }
    if (!limits->long_max || !one_in(&rng, LONG_ONE_IN)) return;
    for (int k = 0; k < 2; k++)
        make_long(&rng, out, limits->long_max,
                  &out->steps[rpi_rng_below(&rng, (uint32_t)out->count)]);
}

/* Of any kind, and not always the same on all ranks: it changes when things happen, and nothing
 * else. */
static rp_priority priority_of(const program *p, int rank, int index) {
    int shift = (p->world + p->comms) % 2 ? rank : 0;
    return (rp_priority)((5 * index + 3 * p->world + shift) % (RP_PRIORITY_URGENT + 1));
}

rp_comm_options program_options(const program *p, int rank, int index, program_names *names) {
    bool mixed = strcmp(p->transport, "mixed") == 0, tls = strcmp(p->transport, "tls") == 0;
    bool shaped = strcmp(p->transport, "shaped") == 0 || mixed;
    snprintf(names->comm, sizeof names->comm, "program%d", index);
    snprintf(names->host, sizeof names->host, "host%d", rank % 2);
    return (rp_comm_options)RP_COMM_OPTIONS(.name = names->comm,
                                            .transport = shaped ? NULL
                                                         : tls  ? "tcp"
                                                                : p->transport,
                                            .tls = tls, .link = shaped ? "2Gbit,50us" : NULL,
                                            .host = mixed ? names->host : NULL,
                                            .connect_timeout_s = 3.0 * p->timeout_s,
                                            .timeout_s = p->timeout_s, .strict_timeout = 1,
                                            .warn_after_s = p->timeout_s,
                                            .progress_thread = p->progress_thread,
                                            .chunk_bytes = (uint32_t)p->chunk_bytes,
                                            .priority = priority_of(p, rank, index));
}

void program_set_secret(void) {
    setenv("REDPOLL_SECRET", "the secret of these programs", 1);
}

/* ---- as text ---- */

typedef struct writer {
    char *text;
    size_t bytes, used;
} writer;

static void put(writer *w, const char *format, ...) RP_PRINTF(2, 3);

#include <stdarg.h>

static void put(writer *w, const char *format, ...) {
    if (w->used >= w->bytes) return;
    va_list arguments;
    va_start(arguments, format);
    w->used += (size_t)vsnprintf(w->text + w->used, w->bytes - w->used, format, arguments);
    va_end(arguments);
}

static bool has_root(int kind) {
    return kind == STEP_BROADCAST || kind == STEP_REDUCE || kind == STEP_GATHER ||
           kind == STEP_SCATTER || kind == STEP_SEND || kind == STEP_FAN_IN;
}

static void put_step(writer *w, const program *p, int index) {
    const program_step *s = &p->steps[index];
    put(w, "%s", kind_names[s->kind]);
    if (p->comms > 1) put(w, " comm=%d", s->comm);
    if (has_root(s->kind)) put(w, " root=%d", s->root);
    if (s->kind == STEP_SEND) put(w, " peer=%d", s->peer);
    if (s->kind >= STEP_SEND) put(w, " tag=%d", s->tag);
    if (s->kind != STEP_BARRIER)
        put(w, " count=%lld dtype=%s data=%u", (long long)s->count,
            rp_dtype_name((rp_dtype)s->dtype), s->data);
    if (reduces(s->kind)) put(w, " reduce=%s codec=%s", reduce_names[s->reduce], s->codec);
    if (encodes_alone(s->kind)) put(w, " codec=%s", s->codec);
    if (s->parts > 1) put(w, " parts=%d", s->parts);
    if (strcmp(s->algorithm, "auto") != 0) put(w, " algorithm=%s", s->algorithm);
    if (s->how) put(w, " how=%s lag=%d", how_names[s->how], s->lag);
    if (s->slow >= 0) put(w, " slow=%d us=%d", s->slow, s->us);
    put(w, "\n");
}

const char *program_text(const program *p, char *text, size_t bytes) {
    writer w = {text, bytes, 0};
    put(&w,
        "program world=%d transport=%s processes=%d comms=%d progress_thread=%d chunk=%d "
        "asks=%d timeout=%d\n",
        p->world, p->transport, p->processes, p->comms, p->progress_thread, p->chunk_bytes,
        p->asks, p->timeout_s);
    for (int i = 0; i < p->count; i++) put_step(&w, p, i);
    return text;
}

static int find_name(const char *word, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

/* False: no such key, or no such value. */
static bool set_of_program(program *p, const char *key, const char *value) {
    static const struct {
        const char *key;
        size_t offset;
    } numbers[] = {{"world", offsetof(program, world)},
                   {"processes", offsetof(program, processes)},
                   {"comms", offsetof(program, comms)},
                   {"progress_thread", offsetof(program, progress_thread)},
                   {"chunk", offsetof(program, chunk_bytes)},
                   {"asks", offsetof(program, asks)},
                   {"timeout", offsetof(program, timeout_s)}};
    if (strcmp(key, "transport") == 0)
        return snprintf(p->transport, sizeof p->transport, "%s", value) > 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            *(int *)(void *)((char *)p + numbers[i].offset) = atoi(value);
            return true;
        }
    return false;
}

static bool set_of_step(program_step *s, const char *key, const char *value) {
    rp_dtype dtype;
    static const struct {
        const char *key;
        size_t offset;
    } numbers[] = {
        {"comm", offsetof(program_step, comm)},   {"root", offsetof(program_step, root)},
        {"peer", offsetof(program_step, peer)},   {"tag", offsetof(program_step, tag)},
        {"parts", offsetof(program_step, parts)}, {"lag", offsetof(program_step, lag)},
        {"slow", offsetof(program_step, slow)},   {"us", offsetof(program_step, us)}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            *(int *)(void *)((char *)s + numbers[i].offset) = atoi(value);
            return true;
        }
    if (strcmp(key, "count") == 0) return (s->count = atoll(value)) >= 0;
    if (strcmp(key, "data") == 0) return (s->data = (uint32_t)strtoul(value, NULL, 10), true);
    if (strcmp(key, "dtype") == 0)
        return rp_dtype_parse(value, &dtype) == RP_OK && (s->dtype = (int)dtype) != 0;
    if (strcmp(key, "reduce") == 0)
        return (s->reduce = find_name(value, reduce_names, REDUCTIONS)) >= 0;
    if (strcmp(key, "how") == 0) return (s->how = find_name(value, how_names, WAIT_HOWS)) >= 0;
    if (strcmp(key, "codec") == 0) return snprintf(s->codec, sizeof s->codec, "%s", value) > 0;
    if (strcmp(key, "algorithm") == 0)
        return snprintf(s->algorithm, sizeof s->algorithm, "%s", value) > 0;
    return false;
}

/* One line; the words behind the first are key=value. */
static bool parse_line(char *line, program *p) {
    char *rest = NULL, *word = strtok_r(line, " ", &rest);
    if (!word) return true;
    program_step *step = NULL;
    if (strcmp(word, "program") != 0) {
        if (p->count == PROGRAM_STEPS) return false;
        step = &p->steps[p->count++];
        *step = (program_step){.codec = "fp32",
                               .algorithm = "auto",
                               .parts = 1,
                               .slow = -1,
                               .dtype = RP_F32,
                               .kind = find_name(word, kind_names, STEP_KINDS)};
        if (step->kind < 0) return false;
    }
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        char *value = strchr(word, '=');
        if (!value) return false;
        *value++ = '\0';
        if (!(step ? set_of_step(step, word, value) : set_of_program(p, word, value)))
            return false;
    }
    return true;
}

bool program_parse(const char *text, program *out) {
    char copy[PROGRAM_TEXT];
    snprintf(copy, sizeof copy, "%s", text);
    *out = (program){.world = 2, .comms = 1, .transport = "tcp", .timeout_s = 10};
    char *rest = NULL;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!parse_line(line, out)) return false;
    bool sound = out->world >= 1 && out->world <= PROGRAM_RANKS && out->comms >= 1 &&
                 out->comms <= PROGRAM_COMMS;
    for (int i = 0; i < out->count; i++) sound &= out->steps[i].comm < out->comms;
    return sound;
}
