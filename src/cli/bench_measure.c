/* Times one size of a collective, counts its bytes, and compares the result of every rank with
 * the serial answer. */
#include "cli/bench_collective.h"
#include "cli/bench_memory.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/bench_serial.h"
#include "comm/core/communicator.h"
#include "redpoll/buffer.h"

#include <math.h>
#include <sched.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* elements handled at once when inputs are made and compared */

typedef struct measurement {
    const rpi_bench *bench;
    rpi_bench_call call;
    int given, got; /* blocks of input and output */
    unsigned char *input, *output;
    rpi_bench_memory memory;
    unsigned char *both;         /* in place: input and output in one; else NULL */
    rp_block *blocks;            /* world of input, world of output */
    void *raw;                   /* PIECE elements */
    rpi_wide *widened, *sums;    /* PIECE each */
    double *times;               /* iters: of the slowest rank */
    const rp_neighbors *checked; /* of the call whose result is checked, where there are such */
    double agreement_s;          /* how long the ranks took to agree on when to start */
} measurement;

static int blocks_of(rpi_bench_blocks blocks, const rpi_bench_call *call) {
    bool at_root = blocks == RPI_BLOCKS_ONE_AT_ROOT || blocks == RPI_BLOCKS_EACH_AT_ROOT;
    bool each = blocks == RPI_BLOCKS_EACH || blocks == RPI_BLOCKS_EACH_AT_ROOT;
    if (blocks == RPI_BLOCKS_NONE || (at_root && call->rank != call->root)) return 0;
    return each ? call->world : 1;
}

int rpi_bench_most_blocks(const rpi_bench_kind *kind, int world) {
    rpi_bench_call root = {.world = world};
    int given = blocks_of(kind->gives, &root), got = blocks_of(kind->gets, &root);
    return given > got ? given : got;
}

size_t rpi_bench_count(const rpi_bench_kind *kind, rp_dtype dtype, int world, int64_t bytes) {
    size_t block = rp_dtype_bytes(dtype) * (size_t)rpi_bench_most_blocks(kind, world);
    size_t count = (size_t)bytes / block;
    return count || bytes == 0 ? count : 1;
}

bool rpi_bench_is_lossy(const rpi_bench *bench) {
    return bench->kind->has_codec && !rp_codec_is_exact(&bench->codec, bench->dtype);
}

double rpi_bus_one(int world) {
    (void)world;
    return 1;
}

double rpi_bus_others(int world) {
    return (double)(world - 1) / world;
}

/* ---- buffers ---- */

static size_t block_bytes(const measurement *m) {
    return m->call.count * rp_dtype_bytes(m->call.dtype);
}

static rp_block *cut(const measurement *m, unsigned char *buffer, int count,
                     rp_block *out_blocks) {
    for (int b = 0; b < count; b++)
        out_blocks[b] = (rp_block){buffer + (size_t)b * block_bytes(m), m->call.count};
    return count ? out_blocks : NULL;
}

static rp_status take_buffer(measurement *m, int blocks, const char *what,
                             unsigned char **out_buffer) {
    size_t bytes = (size_t)blocks * block_bytes(m);
    void *buffer = NULL;
    if (!m->bench->registered) {
        RP_TRY(rpi_alloc_array((size_t)blocks, block_bytes(m), what, out_buffer));
        return rpi_bench_memory_add(&m->memory, *out_buffer, bytes);
    }
    RP_TRY(rp_buffer_allocate(bytes ? bytes : 1, &buffer));
    *out_buffer = buffer;
    return RP_OK;
}

static void give_buffer(const measurement *m, unsigned char *buffer) {
    if (m->bench->registered)
        (void)rp_buffer_free(buffer); /* no call is in flight any more */
    else
        rpi_free(buffer);
}

static rp_status allocate(measurement *m) {
    size_t world = (size_t)m->call.world;
    m->given = blocks_of(m->bench->kind->gives, &m->call);
    m->got = blocks_of(m->bench->kind->gets, &m->call);
    if (m->bench->on_cuda)
        RP_TRY(rpi_bench_memory_open(&m->memory, m->call.rank, m->call.world));
    if (m->given) RP_TRY(take_buffer(m, m->given, "the input", &m->input));
    if (m->got) RP_TRY(take_buffer(m, m->got, "the output", &m->output));
    RP_TRY(rpi_alloc_array(2 * world, sizeof *m->blocks, "blocks", &m->blocks));
    RP_TRY(rpi_alloc_array(PIECE, rp_dtype_bytes(m->call.dtype), "a piece", &m->raw));
    RP_TRY(rpi_alloc_array(PIECE, sizeof *m->widened, "a piece", &m->widened));
    RP_TRY(rpi_alloc_array(PIECE, sizeof *m->sums, "a piece", &m->sums));
    RP_TRY(rpi_alloc_array((size_t)m->bench->iters, sizeof *m->times, "times", &m->times));
    m->call.input = m->input;
    m->call.output = m->output;
    m->call.inputs = cut(m, m->input, m->given, m->blocks);
    m->call.outputs = cut(m, m->output, m->got, m->blocks + world);
    return RP_OK;
}

/* Makes input and output one buffer: the shorter of the two is the part of the longer that
 * belongs to this rank. The input is kept elsewhere, and copied there for each call. */
static rp_status go_in_place(measurement *m) {
    size_t bytes = block_bytes(m), own = bytes * (size_t)m->call.rank;
    int most = m->given > m->got ? m->given : m->got;
    RP_TRY(take_buffer(m, most, "the buffer", &m->both));
    unsigned char *input = m->both + (m->got > m->given && m->given ? own : 0);
    unsigned char *output = m->both + (m->given > m->got && m->got ? own : 0);
    m->call.input = m->given ? input : NULL;
    m->call.output = m->got ? output : NULL;
    m->call.inputs = cut(m, input, m->given, m->blocks);
    m->call.outputs = cut(m, output, m->got, m->blocks + m->call.world);
    return RP_OK;
}

static void free_buffers(measurement *m) {
    rpi_bench_memory_close(&m->memory);
    give_buffer(m, m->both);
    give_buffer(m, m->input);
    give_buffer(m, m->output);
    rpi_free(m->blocks);
    rpi_free(m->raw);
    rpi_free(m->widened);
    rpi_free(m->sums);
    rpi_free(m->times);
}

static rp_status reset_buffers(measurement *m) {
    size_t bytes = (size_t)m->got * block_bytes(m);
    if (m->bench->kind->in_place && bytes) memcpy(m->output, m->input, bytes);
    if (m->both && m->given)
        memcpy((unsigned char *)(uintptr_t)m->call.input, m->input,
               (size_t)m->given * block_bytes(m));
    return rpi_bench_memory_upload(&m->memory);
}

/* ---- calls ---- */

/* The largest value of all ranks, by an all-reduce: if many ranks share few cores this costs
 * one turn of each, while in a gather one rank would wait for all others. */
static rp_status max_over_ranks(rp_comm *comm, double value, double *out_max) {
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX);
    rp_segment segment = {.data = &value, .count = 1, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(comm, &segment, 1, &options));
    *out_max = value;
    return RP_OK;
}

static rp_status call_once(measurement *m) {
    rp_request *requests[2] = {NULL, NULL};
    rpi_bench_call call = rpi_bench_memory_call(&m->memory, &m->call);
    rp_status status = m->bench->kind->start(&call, requests);
    for (int i = 0; i < 2; i++) {
        rp_status waited = requests[i] ? rp_request_wait(&requests[i]) : RP_OK;
        if (status == RP_OK) status = waited;
    }
    m->call.options.step++;
    return status;
}

static void wait_until(int64_t at_ns) {
    enum { WAKING_NS = 200 * 1000 }; /* a process that sleeps may wake so much too late */
    rpi_sleep_until_ns(at_ns - WAKING_NS);
    while (rpi_now_ns() < at_ns) sched_yield();
}

/* Ranks leave a barrier up to a latency apart, and a rank that starts early by that much has
 * sent its part before the others read their clocks. On a shaped link that would be most of the
 * time. If all ranks are on one host they read the same clock, and agree on an instant. */
static rp_status start_together(measurement *m, int64_t *out_start_ns) {
    RP_TRY(rp_barrier(m->call.comm));
    *out_start_ns = rpi_now_ns();
    if (!m->bench->one_clock || m->call.world == 1) return RP_OK;
    double at_s = rpi_seconds(*out_start_ns) + 2 * m->agreement_s;
    RP_TRY(max_over_ranks(m->call.comm, at_s, &at_s));
    m->agreement_s = fmax(m->agreement_s, rpi_seconds(rpi_now_ns() - *out_start_ns));
    *out_start_ns = (int64_t)(at_s * 1e9);
    wait_until(*out_start_ns);
    return RP_OK;
}

static rp_status time_once(measurement *m, double *out_seconds) {
    int64_t start;
    RP_TRY(reset_buffers(m));
    RP_TRY(start_together(m, &start));
    RP_TRY(call_once(m));
    return max_over_ranks(m->call.comm, rpi_seconds(rpi_now_ns() - start), out_seconds);
}

static rp_status measure_time(measurement *m, rpi_bench_row *row) {
    int iters = m->bench->iters;
    double warmup;
    int64_t start;
    RP_TRY(start_together(m, &start)); /* how long does it take? */
    for (int i = 0; i < m->bench->warmup; i++) RP_TRY(time_once(m, &warmup));
    for (int i = 0; i < iters; i++) RP_TRY(time_once(m, &m->times[i]));
    row->time_s = rpi_median(m->times, iters); /* sorts them */
    row->time_min_s = m->times[0];
    row->time_max_s = m->times[iters - 1];
    return RP_OK;
}

static uint64_t bytes_sent(rp_comm *comm) {
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    return stats.wire_bytes_sent;
}

/* Bytes of one call alone, without the barrier and the exchange of times. The result of this
 * call is also checked, so that nothing of an earlier one may be left. */
static rp_status measure_bytes(measurement *m, rpi_bench_row *row) {
    if (m->got) memset(m->call.output, 0xa5, (size_t)m->got * block_bytes(m));
    RP_TRY(reset_buffers(m));
    if (m->call
            .rounds) /* all that is checked is of a cycle's first round, and has neighbours */
        m->call.options.step = 0;
    uint64_t before = bytes_sent(m->call.comm);
    RP_TRY(call_once(m));
    double sent = (double)(bytes_sent(m->call.comm) - before);
    RP_TRY(rpi_bench_memory_download(&m->memory));
    if (m->bench->kind->settle) RP_TRY(m->bench->kind->settle(&m->call));
    if (m->call.rounds) RP_TRY(rpi_topology_rounds_at(m->call.rounds, 0, &m->checked));
    return max_over_ranks(m->call.comm, sent, &row->wire_bytes);
}

/* ---- the check ---- */

static size_t piece_at(size_t first, size_t end) {
    return end - first < PIECE ? end - first : PIECE;
}

/* Elements first ... of one block of a rank's input. */
static void widen_input(const measurement *m, int rank, int block, size_t first, size_t n,
                        rpi_wide *out) {
    uint64_t at = (uint64_t)block * m->call.count + first;
    rpi_serial_input(m->bench->seed, rank, m->call.dtype, at, n, m->raw);
    rpi_serial_widen(m->call.dtype, m->raw, n, out);
}

static void add_squares(const measurement *m, size_t n, rpi_distance *distance) {
    double scale = m->bench->reduce == RP_SUM   ? 1.0
                   : m->bench->reduce == RP_AVG ? 1.0 / m->call.world / m->call.world
                                                : 0.0;
    for (size_t i = 0; i < n && scale > 0; i++)
        distance->inputs +=
            scale * (m->widened[i].re * m->widened[i].re + m->widened[i].im * m->widened[i].im);
}

static void add_weighed(const measurement *m, rpi_bench_source source, double weight,
                        size_t first, size_t n, rpi_distance *distance) {
    widen_input(m, source.rank, source.block, first, n, m->widened);
    for (size_t i = 0; i < n; i++) {
        rpi_wide x = {.re = weight * m->widened[i].re, .im = weight * m->widened[i].im};
        m->sums[i].re += x.re;
        m->sums[i].im += x.im;
        distance->inputs += x.re * x.re + x.im * x.im;
    }
}

/* The weighted sum of the last call's round, into m->sums. */
static void mix(const measurement *m, int block, size_t first, size_t n,
                rpi_distance *distance) {
    const rp_neighbors *lists = m->checked;
    rpi_bench_source own = {m->call.rank, block};
    memset(m->sums, 0, n * sizeof *m->sums);
    add_weighed(m, own, lists->self_weight, first, n, distance);
    for (size_t i = 0; i < lists->source_count; i++) {
        rpi_bench_source source = {lists->sources[i].rank, block};
        add_weighed(m, source, lists->sources[i].weight, first, n, distance);
    }
}

/* The answer, into m->sums. */
static void answer(const measurement *m, rpi_bench_source source, size_t first, size_t n,
                   rpi_distance *distance) {
    rp_reduction reduce = m->bench->reduce;
    if (source.rank == RPI_BENCH_NEIGHBORS) {
        mix(m, source.block, first, n, distance);
        return;
    }
    if (source.rank != RPI_BENCH_EVERYBODY) {
        widen_input(m, source.rank, source.block, first, n, m->sums);
        return;
    }
    rpi_serial_begin(reduce, m->call.dtype, n, m->sums);
    for (int r = 0; r < m->call.world; r++) {
        widen_input(m, r, source.block, first, n, m->widened);
        rpi_serial_add(reduce, m->call.dtype, r, m->widened, n, m->sums);
        add_squares(m, n, distance);
    }
    rpi_serial_end(reduce, m->call.world, n, m->sums);
}

static void compare_block(const measurement *m, int block, size_t begin, size_t end,
                          rpi_distance *distance) {
    rpi_bench_source source = m->bench->kind->source(&m->call, block);
    const unsigned char *result =
        (const unsigned char *)m->call.output + (size_t)block * block_bytes(m);
    for (size_t first = begin; first < end; first += PIECE) {
        size_t n = piece_at(first, end);
        answer(m, source, first, n, distance);
        rpi_serial_widen(m->call.dtype, result + first * rp_dtype_bytes(m->call.dtype), n,
                         m->widened);
        rpi_serial_compare(m->call.dtype, m->widened, m->sums, n, distance);
    }
}

/* The share that one encoding of Gaussian values loses. */
static rp_status codec_loss(const measurement *m, double *out_loss) {
    rp_dtype dtype = m->call.dtype;
    const rp_codec *codec = &m->call.codec;
    size_t bytes = rp_codec_encoded_bytes(codec, dtype, PIECE);
    rpi_distance distance = {0};
    void *encoded = NULL;
    *out_loss = 0;
    if (!rpi_bench_is_lossy(m->bench)) return RP_OK;
    RP_TRY(rpi_alloc(bytes, "a sample", &encoded));
    widen_input(m, 0, 0, 0, PIECE, m->sums);
    rp_status status = rp_codec_encode(codec, dtype, m->raw, PIECE, NULL, encoded, &bytes);
    if (status == RP_OK)
        status = rp_codec_decode(codec, dtype, encoded, bytes, PIECE, NULL, m->raw);
    rpi_serial_widen(dtype, m->raw, PIECE, m->widened);
    rpi_serial_compare(dtype, m->widened, m->sums, PIECE, &distance);
    *out_loss = rpi_distance_error(&distance);
    rpi_free(encoded);
    return status;
}

/* The allowed error: none if elements are only moved or selected. */
static rp_status allowed_loss(const measurement *m, double *out_loss) {
    rp_reduction reduce = m->bench->reduce;
    bool rounds = m->bench->kind->mixes;
    rounds |= m->bench->kind->reduces && (reduce == RP_SUM || reduce == RP_AVG ||
                                          reduce == RP_PRODUCT || reduce == RP_PREMUL_SUM);
    RP_TRY(codec_loss(m, out_loss));
    if (rounds || *out_loss > 0) *out_loss += rpi_dtype_rounding(m->call.dtype);
    return RP_OK;
}

/* Is the input unchanged? A call must only read it. */
static bool input_is_intact(const measurement *m) {
    size_t bytes = rp_dtype_bytes(m->call.dtype), count = (size_t)m->given * m->call.count;
    for (size_t first = 0; first < count; first += PIECE) {
        size_t n = piece_at(first, count);
        rpi_serial_input(m->bench->seed, m->call.rank, m->call.dtype, first, n, m->raw);
        if (memcmp(m->raw, m->input + first * bytes, n * bytes) != 0) return false;
    }
    return true;
}

/* Every rank compares its result, or its share of the common result. */
static rp_status measure_error(measurement *m, rpi_bench_row *row) {
    size_t count = m->call.count, rank = (size_t)m->call.rank, world = (size_t)m->call.world;
    bool share = m->bench->kind->replicates;
    rpi_distance distance = {0};
    double loss;
    for (int b = 0; b < m->got; b++)
        compare_block(m, b, share ? count * rank / world : 0,
                      share ? count * (rank + 1) / world : count, &distance);
    if (!m->bench->kind->in_place && !m->both && !input_is_intact(m))
        distance.difference = INFINITY;
    rp_segment segment = {
        .data = &distance, .count = sizeof distance / sizeof(double), .dtype = RP_F64};
    RP_TRY(rp_all_reduce(m->call.comm, &segment, 1, NULL));
    RP_TRY(allowed_loss(m, &loss));
    bool sums = m->bench->kind->reduces || m->bench->kind->mixes;
    row->error = rpi_distance_error(&distance);
    row->correct = rpi_distance_is_within(&distance, loss, sums ? m->call.world : 1);
    return RP_OK;
}

/* Sends data to the next rank and receives that of the one before. */
static rp_status pass_on(rp_comm *comm, const void *mine, size_t bytes, void *theirs) {
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    rp_request *receive = NULL, *send = NULL;
    RP_TRY(rp_recv_start(comm, theirs, bytes, RP_U8, (rank + world - 1) % world, 0, &receive));
    rp_status sent = rp_send_start(comm, mine, bytes, RP_U8, (rank + 1) % world, 0, &send);
    if (sent == RP_OK) sent = rp_request_wait(&send);
    RP_TRY(rp_request_wait(&receive));
    return sent;
}

/* Compares byte by byte, each rank with the next: if all neighbours agree, all ranks do. */
static rp_status compare_replicas(measurement *m, rpi_bench_row *row) {
    size_t bytes = (size_t)m->got * block_bytes(m), most = PIECE * sizeof *m->sums;
    const unsigned char *output = m->call.output;
    double differs = 0;
    row->replicas_equal = true;
    if (m->call.world == 1 || !m->bench->kind->replicates) return RP_OK;
    for (size_t first = 0; first < bytes; first += most) {
        size_t n = bytes - first < most ? bytes - first : most;
        RP_TRY(pass_on(m->call.comm, output + first, n, m->sums));
        if (memcmp(m->sums, output + first, n) != 0) differs = 1;
    }
    RP_TRY(max_over_ranks(m->call.comm, differs, &differs));
    row->replicas_equal = differs == 0;
    return RP_OK;
}

/* ---- one size ---- */

/* The algorithm that the user names, or that the communicator would choose; none for a call
 * that cannot be told. */
static rp_status choose_algorithm(measurement *m, rpi_bench_row *row) {
    const rpi_bench *bench = m->bench;
    const rpi_algorithm *algorithm = NULL;
    row->algorithm = bench->algorithm;
    bool is_one = bench->kind->collective == RPI_SENDRECV || bench->kind->open;
    if (bench->algorithm || is_one) return RP_OK;
    if (bench->kind->mixes) {
        row->algorithm = "direct";
        return RP_OK;
    }
    RP_TRY(rpi_choices_find(&m->call.comm->choices, bench->kind->collective, m->call.world,
                            rpi_bench_is_lossy(bench), (size_t)row->bytes, &algorithm));
    row->algorithm = algorithm->name;
    return RP_OK;
}

static void fill_input(measurement *m) {
    size_t count = (size_t)m->given * m->call.count;
    for (size_t first = 0; first < count; first += PIECE)
        rpi_serial_input(m->bench->seed, m->call.rank, m->call.dtype, first,
                         piece_at(first, count),
                         m->input + first * rp_dtype_bytes(m->call.dtype));
}

static rp_status measure_calls(measurement *m, rpi_bench_row *row) {
    RP_TRY(measure_time(m, row));
    RP_TRY(measure_bytes(m, row));
    row->correct = row->replicas_equal = true;
    if (m->bench->unchecked) return RP_OK;
    RP_TRY(measure_error(m, row));
    return compare_replicas(m, row);
}

/* Measures the same in place; the worse error counts. */
static rp_status measure_in_place(measurement *m, rpi_bench_row *row) {
    rpi_bench_row other = *row;
    RP_TRY(go_in_place(m));
    RP_TRY(measure_calls(m, &other));
    row->in_place_time_s = other.time_s;
    row->error = fmax(row->error, other.error);
    row->correct = row->correct && other.correct;
    row->replicas_equal = row->replicas_equal && other.replicas_equal;
    return RP_OK;
}

static rp_status measure(measurement *m, rpi_bench_row *row) {
    RP_TRY(allocate(m));
    if (m->bench->kind->mixes)
        RP_TRY(rpi_topology_rounds_open(m->bench->topology, m->call.world, m->call.rank,
                                        &m->call.rounds));
    RP_TRY(choose_algorithm(m, row));
    m->call.options.algorithm = row->algorithm;
    fill_input(m);
    if (m->bench->kind->open) RP_TRY(m->bench->kind->open(&m->call));
    RP_TRY(measure_calls(m, row));
    RP_TRY(rp_window_free(&m->call.window));
    if (m->bench->kind->in_place) row->in_place_time_s = row->time_s;
    if (!m->bench->kind->either_place || m->bench->one_place) return RP_OK;
    return measure_in_place(m, row);
}

rp_status rpi_bench_measure(const rpi_bench *bench, size_t count, rpi_bench_row *out_row) {
    int rank = rp_comm_rank(bench->comm), world = rp_comm_world(bench->comm);
    measurement m = {
        .bench = bench,
        .call = {.comm = bench->comm,
                 .rank = rank,
                 .world = world,
                 .root = bench->root,
                 .count = count,
                 .segments = bench->segments,
                 .dtype = bench->dtype,
                 .codec = bench->codec,
                 .options = RP_COLLECTIVE_OPTIONS(.reduce = bench->reduce, .seed = bench->seed,
                                                  .root = bench->root,
                                                  .factor = rpi_serial_factor(rank))}};
    rpi_bench_row row = {.count = count,
                         .bytes = (double)rpi_bench_most_blocks(bench->kind, world) *
                                  (double)count * (double)rp_dtype_bytes(bench->dtype)};
    rp_status status = measure(&m, &row);
    rpi_kept_error reason; /* a window that is left after a failure */
    if (m.call.window) rpi_error_keep(&reason);
    bool is_left = m.call.window != NULL;
    (void)rp_window_free(&m.call.window);
    if (is_left) rpi_error_put_back(&reason);
    rpi_topology_rounds_close(m.call.rounds);
    free_buffers(&m);
    if (status == RP_OK) *out_row = row;
    return status;
}
