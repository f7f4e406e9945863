/* The contract of a collective that `redpoll bench` times and checks. A new one is a file that
 * describes it as an rpi_bench_kind, holds its option table and exports one `const
 * rpi_command`, a row in commands.c and a word in CMakeLists.txt.
 *
 * Every rank has blocks of `count` elements. A kind says for each block what a rank must get,
 * so that the harness can compute it without the network and compare. */
#ifndef RPI_CLI_BENCH_COLLECTIVE_H
#define RPI_CLI_BENCH_COLLECTIVE_H

#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/world.h"
#include "methods/gossip/topology_rounds.h"
#include "plan/plan.h"
#include "redpoll/window.h"

typedef struct rpi_bench_settings {
    rpi_world_settings world;
    const char *codec_text, *dtype_text, *reduce_text, *sizes_text, *algorithm, *topology,
        *device;
    int64_t count, root, iters, warmup, seed, segments;
    int64_t min_bytes, max_bytes;    /* -1: not given */
    int64_t step_factor, step_bytes; /* 0: not given */
    int64_t check;                   /* 0 or 1 */
    bool json, in_place, registered;
} rpi_bench_settings;

/* The number of blocks that a rank gives or gets. */
typedef enum rpi_bench_blocks {
    RPI_BLOCKS_NONE,
    RPI_BLOCKS_ONE,
    RPI_BLOCKS_EACH, /* one for each rank */
    RPI_BLOCKS_ONE_AT_ROOT,
    RPI_BLOCKS_EACH_AT_ROOT,
} rpi_bench_blocks;

/* One call of the collective, on this rank. */
typedef struct rpi_bench_call {
    rp_comm *comm;
    int rank, world, root;
    const void *input; /* NULL if the rank gives, or gets, no block */
    void *output;
    const rp_block *inputs, *outputs; /* the same, as lists of blocks */
    size_t count;                     /* elements of a block */
    int segments; /* each block is a list of so many segments; 0: one block */
    rp_dtype dtype;
    rp_codec codec;
    rp_collective_options options;
    rpi_topology_rounds *rounds; /* of a kind that mixes; the step says which round */
    rp_window *window;           /* of a kind that opens one */
} rpi_bench_call;

/* Where a block comes from: block `block` of the input of `rank`; or of all ranks' inputs,
 * reduced; or of the neighbours' inputs, weighted. */
enum { RPI_BENCH_EVERYBODY = -1, RPI_BENCH_NEIGHBORS = -2 };
typedef struct rpi_bench_source {
    int rank, block;
} rpi_bench_source;

typedef struct rpi_bench_kind {
    const rpi_command *command; /* its name after "bench " is the collective's */
    rpi_collective collective;  /* the collective whose algorithms can be chosen */
    rpi_bench_blocks gives, gets;
    bool in_place; /* the output starts as a copy of the input, which is not passed */
    /* the shorter of input and output may be a part of the other, at the rank's place: in
     * place, as nccl-tests say */
    bool either_place;
    bool reduces;   /* takes options.reduce */
    bool mixes;     /* takes a topology, in which neighbours have weights */
    bool has_codec; /* takes a codec */
    bool has_root;
    bool replicates; /* every rank gets the same */
    /* Bytes that a rank's link must move for one byte of the largest buffer, as nccl-tests
     * count them; NULL: not defined. */
    double (*bus_factor)(int world);
    /* NULL: a rank gets nothing */
    rpi_bench_source (*source)(const rpi_bench_call *call, int block);
    bool (*takes_dtype)(rp_dtype dtype); /* NULL: any that the other rules allow */
    const char *dtypes;                  /* those, in words */
    /* One-sided kinds open call->window before the first call, wait for themselves in start(),
     * and write the output afterwards, untimed; the harness frees the window. NULL: the kind
     * has none of this. */
    rp_status (*open)(rpi_bench_call *call);
    rp_status (*settle)(const rpi_bench_call *call);
    /* Posts the call: up to two requests. The others stay NULL. If posting fails, requests has
     * those that were posted. */
    rp_status (*start)(const rpi_bench_call *call, rp_request *requests[2]);
} rpi_bench_kind;

/* Factors that several kinds use. */
double rpi_bus_one(int world);    /* 1 */
double rpi_bus_others(int world); /* (world - 1) / world */

/* A reduce-scatter or all-gather of a list of segments: each block, which belongs to the rank
 * with its number, consists of call->segments of them. all: what every rank has; own: what this
 * one has. */
typedef rp_status (*rpi_bench_segments_start)(rp_comm *comm, const rp_owned_segment *segments,
                                              size_t count,
                                              const rp_collective_options *options,
                                              rp_request **request);
rp_status rpi_bench_start_segments(const rpi_bench_call *call, const rp_block *all,
                                   const void *own, rpi_bench_segments_start start,
                                   rp_request **out_request);

/* The table of a collective's bench says which options the collective takes. The command that
 * times it; NULL: there is none. */
const rpi_command *rpi_bench_command_of(rpi_collective collective);
/* RP_INVALID: this collective does not take the option, but another one does; `written` is the
 * option as the user wrote it. An option that no collective knows passes. */
rp_status rpi_bench_takes(const rpi_command *command, const char *name, const char *written);

/* Runs the command: parses, starts ranks if asked to, joins, measures each size, and prints. */
int rpi_bench_run(const rpi_bench_kind *kind, int argc, char **argv);

/* ---- the harness behind it ---- */

/* What ranks agree on, after parsing. */
typedef struct rpi_bench {
    const rpi_bench_kind *kind;
    rp_comm *comm;
    rp_dtype dtype;
    rp_codec codec;
    rp_reduction reduce;
    const char *algorithm; /* NULL: chosen for each size */
    const char *topology;  /* of a kind that mixes */
    int root, iters, warmup;
    int segments; /* of a block: rpi_bench_call */
    uint64_t seed;
    bool progress_thread;
    bool unchecked;  /* results are not compared */
    bool one_place;  /* do not also measure in place where that is possible */
    bool registered; /* input and output are in buffers of rp_buffer_allocate() */
    bool on_cuda;    /* they are in memory of a GPU */
    bool one_clock;  /* the link is shaped, and all ranks are on one host */
} rpi_bench;

/* Checks what would fail on every rank: a reduction, dtype, codec, algorithm or root that do
 * not go together, or a world (0: not known yet) in which they are not possible. */
rp_status rpi_bench_check(const rpi_bench *bench, int64_t world);

/* All times are those of the slowest rank. */
typedef struct rpi_bench_row {
    size_t count;
    double bytes;          /* of the largest buffer that a rank has */
    const char *algorithm; /* the one that ran; NULL if it has no name */
    double time_s, time_min_s, time_max_s;
    double in_place_time_s; /* 0: the collective cannot be in place, or it was not asked for */
    double wire_bytes;      /* in one call, sent by the rank that sent most */
    double error;           /* relative, L2 */
    bool replicas_equal;
    bool correct; /* rounding and the codec explain the error */
} rpi_bench_row;

/* The blocks of `count` elements in the largest buffer of a rank. */
int rpi_bench_most_blocks(const rpi_bench_kind *kind, int world);
/* Elements of a block with which the largest buffer has at most `bytes`; at least 1, except for
 * 0 bytes. */
size_t rpi_bench_count(const rpi_bench_kind *kind, rp_dtype dtype, int world, int64_t bytes);
/* Collective. Every rank gets the same row. */
rp_status rpi_bench_measure(const rpi_bench *bench, size_t count, rpi_bench_row *out_row);

bool rpi_bench_is_lossy(const rpi_bench *bench);
void rpi_bench_print_title(const rpi_bench *bench);
void rpi_bench_print_row(const rpi_bench *bench, const rpi_bench_row *row);
void rpi_bench_print_json(const rpi_bench *bench, const rpi_bench_row *row);

/* ---- texts and rows of the option tables ---- */

#define RPI_BENCH_ABOUT(sentence)                                                              \
    sentence " What every rank gets is compared with the serial answer: exit code 1 when it "  \
             "is wrong.\n\nWith -n it starts that many ranks on this machine; without, a "     \
             "process started by redpoll run, torchrun, mpirun or srun joins that world."

#define RPI_BENCH_FIELD(name) offsetof(rpi_bench_settings, name)

#define RPI_BENCH_NOTES                                                                        \
    "For those who come from nccl-tests: -b, -e, -f, -i, -w, -c, -d, -o and -r mean what "     \
    "they "                                                                                    \
    "mean there, and bandwidths are counted as there. -n is the number of ranks; their -n is " \
    "--iters."

/* clang-format off */
#define RPI_BENCH_OPTIONS                                                                      \
    RPI_WORLD_OPTIONS(rpi_bench_settings, world),                                              \
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(world.hosts), NULL, 1, 65535, "N", \
     "count the ranks as being on N hosts, evenly; --link then shapes between these only",     \
     NULL},                                                                                    \
    {"progress-thread", NULL, NULL, RPI_OPTION_FLAG, RPI_BENCH_FIELD(world.progress_thread),   \
     NULL, 0, 0, NULL, "let a thread move the transfers, as training does", NULL},            \
    RPI_ROW_ITERS(RPI_BENCH_FIELD(iters), "5"),                                                \
    RPI_ROW_WARMUP(RPI_BENCH_FIELD(warmup), "1"),                                              \
    RPI_ROW_JSON(RPI_BENCH_FIELD(json), "one JSON object a size (docs/json.md)")

/* Options of collectives that move elements. One-letter names are those of nccl-tests, except
 * -n. */
#define RPI_BENCH_VECTOR_OPTIONS(elements)                                                     \
    RPI_BENCH_OPTIONS,                                                                         \
    {"count", NULL, NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(count), elements, 0, 1e11, "N",    \
     "elements of a block: the collective's own argument of this name", NULL},                 \
    {"sizes", NULL, NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(sizes_text), NULL, 0, 0,            \
     "BYTES,...", "instead of --count: sizes of the largest buffer, a row each",               \
     rpi_check_sizes},                                                                         \
    RPI_BENCH_ROW_SIZE("min-bytes", "b", min_bytes, 0, "instead of --sizes: the first size"),  \
    RPI_BENCH_ROW_SIZE("max-bytes", "e", max_bytes, 0, "no size above this; the first alone "  \
                       "when absent"),                                                         \
    {"step-factor", "f", NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(step_factor), NULL, 2, 1e9,   \
     "N", "each size is so many times the one before; 2 when absent", NULL},                   \
    RPI_BENCH_ROW_SIZE("step-bytes", "i", step_bytes, 1, "or so much more than the one "       \
                       "before"),                                                              \
    {"dtype", "d", NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(dtype_text), "f32", 0, 0, "TYPE",    \
     "f32, f16, bf16, f64, i8 ... i64, u8 ... u64, bool, c64 or c128; or as nccl-tests call "  \
     "them", rpi_check_dtype},                                                                 \
    {"check", "c", NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(check), "1", 0, 1, "0|1",           \
     "0: results are not compared with the serial answer", NULL},                              \
    {"registered", NULL, NULL, RPI_OPTION_FLAG, RPI_BENCH_FIELD(registered), NULL, 0, 0, NULL, \
     "input and output in buffers that ranks of one host read in place", NULL},                \
    {"device", NULL, NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(device), "cpu", 0, 0, "DEVICE",    \
     "cpu; cuda: input and output lie in memory of a GPU, of those here the next for each "    \
     "rank", rpi_check_device},                                                                \
    RPI_ROW_SEED(RPI_BENCH_FIELD(seed), "of the inputs")
#define RPI_BENCH_ROW_SIZE(name, alias, field, least, help)                                    \
    {name, alias, NULL, RPI_OPTION_BYTES, RPI_BENCH_FIELD(field), NULL, least, 1e15, "BYTES",  \
     help, NULL}
#define RPI_BENCH_SEGMENTS_OPTION                                                              \
    {"segments", NULL, NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(segments), NULL, 1, 1e6, "N",    \
     "pass each block as a list of N segments with their owner, one operation for all", NULL}
#define RPI_BENCH_PLACE_OPTION                                                                 \
    {"in-place", NULL, NULL, RPI_OPTION_FLAG, RPI_BENCH_FIELD(in_place), "true", 0, 0, NULL,   \
     "--no-in-place: not with the shorter buffer inside of the longer one, too", NULL}
#define RPI_BENCH_ALGORITHM_OPTION                                                             \
    RPI_ROW_ALGORITHM(RPI_BENCH_FIELD(algorithm), NULL,                                        \
                      "as redpoll info lists them; chosen by cost when absent", NULL)
#define RPI_BENCH_CODEC_OPTION                                                                 \
    RPI_ROW_CODEC(RPI_BENCH_FIELD(codec_text), NULL, "fp32", "codec; fp32 is exact, redpoll info lists all")
#define RPI_BENCH_REDUCE_OPTION                                                                \
    {"reduce", "o", NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(reduce_text), "sum", 0, 0, "NAME", \
     "sum, avg, product, min, max, band, bor, bxor or premul-sum", rpi_check_reduction}
#define RPI_BENCH_ROOT_OPTION                                                                  \
    {"root", "r", NULL, RPI_OPTION_COUNT, RPI_BENCH_FIELD(root), "0", 0, 65535, "R",          \
     "the rank that has or gets all", NULL}
/* clang-format on */

rp_status rpi_check_sizes(const char *text);
rp_status rpi_check_dtype(const char *text);
rp_status rpi_check_device(const char *text);
/* By our name or by that of nccl-tests ("float", "int32"). */
rp_status rpi_bench_dtype_parse(const char *text, rp_dtype *out_dtype);

#endif
