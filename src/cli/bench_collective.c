/* The command behind every `redpoll bench COLLECTIVE`: words in, rows out. */
#include "cli/bench_collective.h"

#include "base/status.h"
#include "base/units.h"
#include "cli/bench_serial.h"
#include "comm/values/reductions.h"
#include "cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* Settings after parsing. */
typedef struct job {
    const rpi_bench_kind *kind;
    rpi_bench_settings s;
    rpi_bench bench;
    int64_t sizes[256];
    int size_count; /* 0: settings.count alone */
} job;

enum { MOST_SIZES = sizeof((job *)0)->sizes / sizeof(int64_t) };

static rp_status add_size(int64_t bytes, int64_t *out_sizes, int *count) {
    if (*count == MOST_SIZES)
        return RP_FAIL(INVALID, "these are more than %d sizes; take larger steps", MOST_SIZES);
    out_sizes[(*count)++] = bytes;
    return RP_OK;
}

static rp_status parse_sizes(const char *text, int64_t *out_sizes, int *out_count) {
    int count = 0;
    while (*text) {
        char word[32];
        size_t length = strcspn(text, ",");
        int64_t bytes = 0;
        if (length >= sizeof word)
            return RP_FAIL(INVALID, "'%s' holds no size; write 64KiB,1MiB", text);
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        RP_TRY(rpi_parse_bytes(word, &bytes));
        RP_TRY(add_size(bytes, out_sizes, &count));
        text += length + (text[length] == ',');
    }
    *out_count = count;
    return RP_OK;
}

rp_status rpi_check_sizes(const char *text) {
    int64_t sizes[MOST_SIZES];
    int count;
    return parse_sizes(text, sizes, &count);
}

rp_status rpi_bench_dtype_parse(const char *text, rp_dtype *out_dtype) {
    static const struct {
        const char *theirs;
        rp_dtype dtype;
    } others[] = {{"float", RP_F32},    {"half", RP_F16},  {"double", RP_F64},
                  {"int8", RP_I8},      {"uint8", RP_U8},  {"int32", RP_I32},
                  {"uint32", RP_U32},   {"int64", RP_I64}, {"uint64", RP_U64},
                  {"bfloat16", RP_BF16}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(text, others[i].theirs) == 0) return *out_dtype = others[i].dtype, RP_OK;
    return rp_dtype_parse(text, out_dtype);
}

rp_status rpi_check_dtype(const char *text) {
    rp_dtype dtype;
    return rpi_bench_dtype_parse(text, &dtype);
}

/* -b 1K -e 64M -f 2: a row for each size, in the steps of nccl-tests. */
static rp_status step_sizes(const rpi_bench_settings *s, int64_t *out_sizes, int *out_count) {
    int64_t last = s->max_bytes >= 0 ? s->max_bytes : s->min_bytes;
    int64_t bytes = s->min_bytes >= 0 ? s->min_bytes : last < 1024 ? last : 1024;
    if (s->step_factor && s->step_bytes)
        return RP_FAIL(INVALID, "-f multiplies and -i adds: one of the two");
    if (bytes > last)
        return RP_FAIL(INVALID, "sizes from %lld to %lld bytes are none", (long long)bytes,
                       (long long)last);
    if (bytes == 0 && last > 0 && !s->step_bytes)
        return RP_FAIL(INVALID,
                       "0 bytes stay 0 however often they are multiplied; begin with -b 1 "
                       "or add with -i");
    int64_t factor = s->step_factor ? s->step_factor : 2;
    *out_count = 0;
    for (; bytes <= last; bytes = s->step_bytes ? bytes + s->step_bytes : bytes * factor) {
        RP_TRY(add_size(bytes, out_sizes, out_count));
        if (bytes == last) break;
    }
    return RP_OK;
}

static rp_status choose_sizes(const rpi_bench_settings *s, int64_t *out_sizes, int *out_count) {
    bool steps = s->min_bytes >= 0 || s->max_bytes >= 0;
    if (!steps && (s->step_factor || s->step_bytes))
        return RP_FAIL(INVALID, "-f and -i lead from one size to the next: say -b and -e, too");
    if (steps && s->sizes_text)
        return RP_FAIL(INVALID,
                       "--sizes lists the sizes, and -b and -e walk through them: one of "
                       "the two");
    if (steps) return step_sizes(s, out_sizes, out_count);
    return s->sizes_text ? parse_sizes(s->sizes_text, out_sizes, out_count) : RP_OK;
}

static const char *words_of(const job *j) {
    return j->kind->command->name;
}

const rpi_command *rpi_bench_command_of(rpi_collective collective) {
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++)
        if (command->bench && command->bench->collective == collective) return command;
    return NULL;
}

static bool has_option(const rpi_command *command, const char *name) {
    for (const rpi_option *option = command->options; option->name; option++)
        if (strcmp(option->name, name) == 0) return true;
    return false;
}

enum { MOST_NAMED = 4 }; /* a longer list helps nobody */

rp_status rpi_bench_takes(const rpi_command *command, const char *name, const char *written) {
    char others[256] = "";
    int count = 0;
    const rpi_command *other;
    if (has_option(command, name)) return RP_OK;
    for (int i = 0; (other = rpi_command_at(i)) != NULL; i++) {
        if (!other->bench || !has_option(other, name)) continue;
        size_t used = strlen(others);
        snprintf(others + used, sizeof others - used, "%s%s", count++ ? ", " : "",
                 strchr(other->name, ' ') + 1);
    }
    if (count == 0) return RP_OK;
    return RP_FAIL(
        INVALID, "%s takes no --%s: leave it out%s%s", strchr(command->name, ' ') + 1, written,
        count <= MOST_NAMED ? "; it is for " : "", count <= MOST_NAMED ? others : "");
}

/* The option of any collective that a word names; NULL: none has it. */
static const rpi_option *option_of_any(const char *word) {
    const rpi_command *command;
    for (int i = 0; (command = rpi_command_at(i)) != NULL; i++) {
        const rpi_option *option =
            command->bench ? rpi_options_find(command->options, word) : NULL;
        if (option) return option;
    }
    return NULL;
}

/* Refuses options of other collectives with a clearer message than "unknown". */
static rp_status check_words(const rpi_command *command, int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const rpi_option *option = option_of_any(argv[i]);
        if (option && !rpi_options_find(command->options, argv[i]))
            RP_TRY(rpi_bench_takes(command, option->name, option->name));
    }
    return RP_OK;
}

static rp_status check_world(const rpi_bench *b, const rpi_algorithm *algorithm,
                             int64_t world) {
    if (b->root >= world)
        return RP_FAIL(INVALID, "--root %d is not in a world of %lld", b->root,
                       (long long)world);
    if (b->kind->collective == RPI_SENDRECV && world < 2)
        return RP_FAIL(INVALID, "send-recv is between two ranks or more; -n says how many");
    if (b->kind->mixes) {
        rpi_topology_rounds *rounds = NULL;
        RP_TRY(rpi_topology_rounds_open(b->topology, (int)world, 0, &rounds));
        rpi_topology_rounds_close(rounds);
    }
    if (algorithm && !rpi_algorithm_fits(algorithm, (int)world))
        return RP_FAIL(INVALID,
                       "%s '%s' does not work in a world of %lld; 'redpoll info' lists "
                       "the others",
                       rpi_collective_name(algorithm->collective), algorithm->name,
                       (long long)world);
    return RP_OK;
}

rp_status rpi_check_device(const char *text) {
    if (strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no device; cpu or cuda", text);
}

static rp_status check_device(const rpi_bench *b) {
    const rpi_cuda_library *cuda = NULL;
    if (!b->on_cuda) return RP_OK;
    if (b->registered)
        return RP_FAIL(INVALID, "--registered is of memory of the host, --device cuda is not");
    if (b->kind->open)
        return RP_FAIL(UNSUPPORTED, "%s takes memory of the host only", b->kind->command->name);
    return rpi_cuda_open(&cuda);
}

rp_status rpi_bench_check(const rpi_bench *b, int64_t world) {
    const rpi_algorithm *algorithm = NULL;
    char text[64];
    if (b->kind->reduces) RP_TRY(rpi_reduction_check(b->reduce, b->dtype, &b->codec));
    bool complex = b->dtype == RP_C64 || b->dtype == RP_C128;
    if (b->kind->mixes && !rp_dtype_is_float(b->dtype) && !complex)
        return RP_FAIL(INVALID, "--dtype %s: weights go with floats and complex numbers",
                       rp_dtype_name(b->dtype));
    if (b->kind->takes_dtype && !b->kind->takes_dtype(b->dtype))
        return RP_FAIL(INVALID, "--dtype %s: %s takes %s", rp_dtype_name(b->dtype),
                       b->kind->command->name, b->kind->dtypes);
    RP_TRY(check_device(b));
    if (!rp_codec_supports(&b->codec, b->dtype))
        return RP_FAIL(UNSUPPORTED, "codec %s does not take %s",
                       rp_codec_text(&b->codec, text, sizeof text), rp_dtype_name(b->dtype));
    if (b->algorithm) RP_TRY(rpi_algorithm_find(b->kind->collective, b->algorithm, &algorithm));
    return world ? check_world(b, algorithm, world) : RP_OK;
}

/* What would fail on every rank is reported once, before any rank is started. */
static rp_status check(const job *j) {
    RP_TRY(rpi_world_check(&j->s.world));
    return rpi_bench_check(&j->bench, j->s.world.ranks);
}

/* Sets texts for which this collective has no option to NULL, and its numbers to 0. */
static rp_status resolve(job *j) {
    rpi_bench_settings *s = &j->s;
    j->bench = (rpi_bench){.kind = j->kind,
                           .dtype = RP_U8,
                           .algorithm = s->algorithm,
                           .topology = s->topology,
                           .root = (int)s->root,
                           .iters = (int)s->iters,
                           .warmup = (int)s->warmup,
                           .segments = (int)s->segments,
                           .seed = (uint64_t)s->seed,
                           .progress_thread = s->world.progress_thread,
                           .unchecked = s->dtype_text && !s->check,
                           .one_place = !s->in_place,
                           .registered = s->registered,
                           .on_cuda = s->device && strcmp(s->device, "cuda") == 0};
    if (s->dtype_text) RP_TRY(rpi_bench_dtype_parse(s->dtype_text, &j->bench.dtype));
    if (s->codec_text) RP_TRY(rp_codec_parse(s->codec_text, &j->bench.codec));
    if (s->reduce_text) RP_TRY(rpi_reduce_parse(s->reduce_text, &j->bench.reduce));
    RP_TRY(choose_sizes(s, j->sizes, &j->size_count));
    if (j->bench.on_cuda) s->world.memory = RP_MEMORY_CUDA;
    s->world.greeting = s->json ? stderr : stdout; /* JSON stands alone */
    return check(j);
}

static rp_status read_settings(int argc, char **argv, job *j, bool *wants_help) {
    const rpi_option *options = j->kind->command->options;
    RP_TRY(rpi_options_defaults(options, &j->s));
    j->s.min_bytes = j->s.max_bytes = -1; /* not said */
    RP_TRY(rpi_options_environment(options, getenv, &j->s));
    rp_status status = rpi_options_parse(options, argc, argv, &j->s, NULL, wants_help);
    if (status == RP_INVALID) RP_TRY(check_words(j->kind->command, argc, argv));
    RP_TRY(status);
    return *wants_help ? RP_OK : resolve(j);
}

static rp_status verdict(const rpi_bench_row *row) {
    if (!row->correct)
        return RP_FAIL(CORRUPT, "the result is wrong, by %g of it: please report this",
                       row->error);
    if (!row->replicas_equal)
        return RP_FAIL(CORRUPT, "the ranks hold different results: please report this");
    return RP_OK;
}

/* Every rank stops at the first wrong row; rank 0 reports it. */
static rp_status measure_sizes(const job *j) {
    const rpi_bench *bench = &j->bench;
    bool speaks = rp_comm_rank(bench->comm) == 0;
    int rows = j->size_count ? j->size_count : 1;
    if (speaks && !j->s.json) rpi_bench_print_title(bench);
    for (int i = 0; i < rows; i++) {
        rpi_bench_row row;
        size_t count = j->size_count ? rpi_bench_count(j->kind, bench->dtype,
                                                       rp_comm_world(bench->comm), j->sizes[i])
                                     : (size_t)j->s.count;
        RP_TRY(rpi_bench_measure(bench, count, &row));
        if (speaks && j->s.json) rpi_bench_print_json(bench, &row);
        if (speaks && !j->s.json) rpi_bench_print_row(bench, &row);
        rp_status status = verdict(&row);
        if (status != RP_OK) return speaks ? status : RP_OK;
    }
    return RP_OK;
}

static int run_rank(job *j) {
    rpi_world world = {0};
    rp_status status = rpi_world_join(&j->s.world, &world);
    j->bench.comm = world.comm;
    j->bench.one_clock = j->s.world.link && world.local_ranks == world.ranks;
    if (status == RP_OK) status = rpi_bench_check(&j->bench, world.ranks);
    if (status == RP_OK) status = measure_sizes(j);
    int code = status == RP_OK        ? RPI_EXIT_DONE
               : status == RP_INVALID ? rpi_command_misused(words_of(j), status)
                                      : rpi_command_failed(status);
    rpi_world_leave(&world);
    return code;
}

int rpi_bench_run(const rpi_bench_kind *kind, int argc, char **argv) {
    job j = {.kind = kind};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &j, &wants_help);
    if (status != RP_OK) return rpi_command_misused(words_of(&j), status);
    if (wants_help) {
        rpi_command_print_help(kind->command, stdout);
        return RPI_EXIT_DONE;
    }
    if (rpi_world_must_launch(&j.s.world))
        return rpi_world_launch(&j.s.world, words_of(&j), argc, argv);
    return run_rank(&j);
}
