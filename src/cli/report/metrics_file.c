#include "cli/report/metrics_file.h"

#include "base/regular_file.h"
#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_LINE = 1 << 24 };
static const double LAST_STEP = 9007199254740992.0; /* 2^53: whole numbers end there */

const char *const rpi_step_keys[RPI_STEP_VALUES] = {
    [RPI_STEP_LOSS] = "loss",
    [RPI_STEP_LR] = "lr",
    [RPI_STEP_RATE] = "images_s",
    [RPI_STEP_S] = "step_s",
    [RPI_STEP_COMPUTE_S] = "compute_s",
    [RPI_STEP_COMM_S] = "comm_s",
    [RPI_STEP_ENCODE_S] = "encode_s",
    [RPI_STEP_DECODE_S] = "decode_s",
    [RPI_STEP_EXPOSED_S] = "exposed_s",
    [RPI_STEP_SKEW_S] = "skew_s",
    [RPI_STEP_WIRE_BYTES] = "wire_bytes",
};

typedef struct reader {
    rpi_metrics_file *file;
    rpi_arena *arena;
    const char *name;
    long line;
    long torn_line; /* one that was not JSON; accepted if a start follows. 0: none */
} reader;

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static rp_status text_of(const reader *r, const cJSON *object, const char *key,
                         const char **out_text) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out_text = "";
    return cJSON_IsString(item) ? rpi_arena_copy(r->arena, item->valuestring, out_text) : RP_OK;
}

static bool has(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL;
}

/* Room for one more element. */
static rp_status reserve(size_t count, size_t *room, size_t bytes, void *in_out_pointer) {
    if (count < *room) return RP_OK;
    size_t wanted = *room ? 2 * *room : 64;
    RP_TRY(rpi_grow_array(count, wanted, bytes, "metrics", in_out_pointer));
    *room = wanted;
    return RP_OK;
}

static rp_status step_number(const reader *r, const cJSON *object, const char *key,
                             int64_t *out_step) {
    double step = number_of(object, key);
    if (!(step >= 0 && step <= LAST_STEP) || step != floor(step))
        return RP_FAIL(CORRUPT, "%s:%ld: \"%s\" is no number of steps", r->name, r->line, key);
    *out_step = (int64_t)step;
    return RP_OK;
}

/* Rows from `step` on belong to a run that ended before it could save them. */
static void forget_from(rpi_metrics_file *file, int64_t step) {
    size_t before = file->step_count;
    while (file->step_count > 0 && file->steps[file->step_count - 1].step >= step)
        file->step_count--;
    file->replaced_steps += (int64_t)(before - file->step_count);
    while (file->evaluation_count > 0 &&
           file->evaluations[file->evaluation_count - 1].step >= step)
        file->evaluation_count--;
}

/* A number of ranks, of all or along an axis; what is not said is 1. */
static double size_of(const cJSON *object, const char *key) {
    double size = number_of(object, key);
    return isnan(size) ? 1 : size;
}

static bool is_same_layout(const cJSON *a, const cJSON *b) {
    static const char *const axes[] = {"tp", "cp", "pp"};
    const cJSON *of_a = cJSON_GetObjectItemCaseSensitive(a, "options"),
                *of_b = cJSON_GetObjectItemCaseSensitive(b, "options");
    bool same = size_of(a, "ranks") == size_of(b, "ranks");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        same &= size_of(of_a, axes[i]) == size_of(of_b, axes[i]);
    return same;
}

/* Steps from `first` on are of the layout that begins there, also where the run did steps of
 * this layout again from further back. */
static void note_layout(rpi_metrics_file *file, const cJSON *header, int64_t first) {
    if (!is_same_layout(file->header, header) || first < file->layout_from)
        file->layout_from = first;
}

static rp_status take_header(reader *r, cJSON *object) {
    rpi_metrics_file *file = r->file;
    double first = number_of(object, "first_step");
    if (first >= 1 && first <= LAST_STEP) forget_from(file, (int64_t)first);
    if (file->header) {
        RP_TRY(reserve(file->resumed_count, &file->resumed_room, sizeof *file->resumed,
                       &file->resumed));
        file->resumed[file->resumed_count++] = first >= 1 ? (int64_t)first : 0;
        if (first >= 1 && first <= LAST_STEP) note_layout(file, object, (int64_t)first);
    } else if (first > 1 && first <= LAST_STEP) {
        /* Resumed from another folder, which has the earlier steps. */
        RP_TRY(reserve(0, &file->resumed_room, sizeof *file->resumed, &file->resumed));
        file->resumed[file->resumed_count++] = (int64_t)first;
    }
    cJSON_Delete(file->header);
    file->header = cJSON_Duplicate(object, true);
    if (!file->header) return RP_FAIL(NOMEM, "no memory for the header of %s", r->name);
    file->closed = file->stopped = false;
    file->picture = NULL;
    file->memory_bytes = NAN;
    file->error = NULL;
    return RP_OK;
}

static rp_status take_step(reader *r, cJSON *object) {
    rpi_metrics_file *file = r->file;
    rpi_step_row row;
    RP_TRY(step_number(r, object, "step", &row.step));
    forget_from(file, row.step);
    bool tokens = has(object, "tokens_s");
    if (tokens) file->unit = "tokens";
    for (int i = 0; i < RPI_STEP_VALUES; i++)
        row.values[i] =
            number_of(object, tokens && i == RPI_STEP_RATE ? "tokens_s" : rpi_step_keys[i]);
    RP_TRY(reserve(file->step_count, &file->step_room, sizeof row, &file->steps));
    file->steps[file->step_count++] = row;
    return RP_OK;
}

static rp_status take_evaluation(reader *r, cJSON *object) {
    rpi_metrics_file *file = r->file;
    rpi_evaluation_row row = {
        .accuracy = number_of(object, "test_accuracy"),
        .loss = number_of(object, "test_loss"),
        .perplexity = number_of(object, "test_perplexity"),
        .consensus = number_of(object, "consensus_distance"),
        .images =
            number_of(object, has(object, "test_tokens") ? "test_tokens" : "test_images")};
    RP_TRY(step_number(r, object, "evaluated_step", &row.step));
    while (file->evaluation_count > 0 &&
           file->evaluations[file->evaluation_count - 1].step >= row.step)
        file->evaluation_count--;
    RP_TRY(reserve(file->evaluation_count, &file->evaluation_room, sizeof row,
                   &file->evaluations));
    file->evaluations[file->evaluation_count++] = row;
    return RP_OK;
}

static rp_status take_closing(reader *r, cJSON *object) {
    r->file->closed = true;
    r->file->stopped = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "stopped"));
    r->file->memory_bytes = number_of(object, "memory_bytes");
    return RP_OK;
}

static rp_status take_picture(reader *r, cJSON *object) {
    return rpi_report_picture_read(object, r->arena, &r->file->picture);
}

static rp_status take_failure(reader *r, cJSON *object) {
    RP_TRY(step_number(r, object, "failed_step", &r->file->failed_step));
    return text_of(r, object, "error", &r->file->error);
}

static rp_status read_bench(const reader *r, const cJSON *object, rpi_report_bench_row *row) {
    const struct {
        const char *key, **text;
    } texts[] = {{"op", &row->op},
                 {"codec", &row->codec},
                 {"algorithm", &row->algorithm},
                 {"transport", &row->transport},
                 {"dtype", &row->dtype},
                 {"isa", &row->isa}};
    const struct {
        const char *key;
        double *number;
    } numbers[] = {{"ranks", &row->ranks},
                   {"count", &row->count},
                   {"bytes", &row->bytes},
                   {"time_s", &row->time_s},
                   {"time_min_s", &row->time_min_s},
                   {"time_max_s", &row->time_max_s},
                   {"algbw_bytes_s", &row->algbw},
                   {"busbw_bytes_s", &row->busbw},
                   {"wire_bytes", &row->wire_bytes},
                   {"rel_l2_error", &row->error},
                   {"encode_bytes_s", &row->encode_bytes_s},
                   {"decode_add_bytes_s", &row->decode_add_bytes_s},
                   {"memcpy_bytes_s", &row->memcpy_bytes_s},
                   {"encoded_bytes", &row->encoded_bytes}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        RP_TRY(text_of(r, object, texts[i].key, texts[i].text));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        *numbers[i].number = number_of(object, numbers[i].key);
    row->is_codec = !row->op[0];
    row->is_plan = has(object, "link_bytes_s");
    row->feedback = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "error_feedback"));
    return RP_OK;
}

static rp_status take_bench(reader *r, cJSON *object) {
    rpi_metrics_file *file = r->file;
    rpi_report_bench_row row = {0};
    RP_TRY(read_bench(r, object, &row));
    RP_TRY(reserve(file->bench_count, &file->bench_room, sizeof row, &file->bench));
    file->bench[file->bench_count++] = row;
    return RP_OK;
}

/* The kind of an object, by the key that only it has. */
static const struct {
    const char *key;
    rp_status (*take)(reader *r, cJSON *object);
} kinds[] = {
    {"step", take_step},
    {"evaluated_step", take_evaluation},
    {"redpoll", take_header},
    {"images_s_median", take_closing},
    {"tokens_s_median", take_closing},
    {"failed_step", take_failure},
    {"picture_step", take_picture},
    {"op", take_bench},
    {"encode_bytes_s", take_bench},
};

/* Objects of kinds that this version does not know are ignored. */
static rp_status take(reader *r, cJSON *object) {
    if (r->torn_line && has(object, "redpoll")) {
        r->file->torn_lines++;
        r->torn_line = 0;
    }
    if (r->torn_line)
        return RP_FAIL(CORRUPT, "%s:%ld: not JSON; one object a line is wanted (docs/json.md)",
                       r->name, r->torn_line);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (has(object, kinds[i].key)) return kinds[i].take(r, object);
    return RP_OK;
}

/* Other programs write NaN and Infinity, which JSON does not have: replaced by null. */
static void mend_numbers(char *line) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN", "-inf", "inf", "nan"};
    bool quoted = false;
    for (char *at = line; *at; at++) {
        if (*at == '\\' && at[1]) {
            at++;
            continue;
        }
        if (*at == '"') quoted = !quoted;
        for (size_t i = 0; !quoted && i < sizeof words / sizeof words[0]; i++) {
            size_t length = strlen(words[i]);
            if (strncmp(at, words[i], length) != 0) continue;
            memset(at, ' ', length);
            /* A word of three letters has no room for null: replaced by a number that reads as
             * none. */
            memcpy(at, length >= 4 ? "null" : "{} ", length >= 4 ? 4 : 3);
            break;
        }
    }
}

static cJSON *parse(const char *line, size_t bytes) {
    const char *end = NULL;
    cJSON *object = cJSON_ParseWithLengthOpts(line, bytes, &end, false);
    if (!object) return NULL;
    for (; end < line + bytes; end++)
        if (*end != ' ' && *end != '\t' && *end != '\r' && *end != '\n') break;
    if (cJSON_IsObject(object) && end >= line + bytes) return object;
    cJSON_Delete(object);
    return NULL;
}

/* A run that died in the middle of a line and was resumed: the header may follow the incomplete
 * line. */
static cJSON *parse_behind_torn(reader *r, const char *line, size_t bytes) {
    const char *start = bytes > 1 ? strstr(line + 1, "{\"redpoll\":") : NULL;
    cJSON *object = start ? parse(start, bytes - (size_t)(start - line)) : NULL;
    if (object) r->file->torn_lines++;
    return object;
}

static rp_status read_line(reader *r, char *line, size_t bytes) {
    bool whole = line[bytes - 1] == '\n';
    size_t blank = strspn(line, " \t\r\n");
    if (blank == bytes) return RP_OK;
    cJSON *object = parse(line, bytes);
    if (!object) {
        mend_numbers(line);
        object = parse(line, bytes);
    }
    if (!object) object = parse_behind_torn(r, line, bytes);
    if (!object && !whole) {
        r->file->last_line_torn = true;
        return RP_OK;
    }
    if (!object) {
        if (!r->torn_line) r->torn_line = r->line;
        return RP_OK;
    }
    rp_status status = take(r, object);
    cJSON_Delete(object);
    return status;
}

static rp_status read_lines(reader *r, FILE *stream) {
    char *line = NULL;
    size_t room = 0;
    rp_status status = RP_OK;
    ssize_t bytes = 0;
    while (status == RP_OK && (bytes = getline(&line, &room, stream)) > 0) {
        r->line++;
        status = bytes > LONGEST_LINE
                     ? RP_FAIL(CORRUPT, "%s:%ld: a line of %zd bytes; no object is so long",
                               r->name, r->line, bytes)
                     : read_line(r, line, (size_t)bytes);
    }
    free(line);
    if (status == RP_OK && ferror(stream))
        status = RP_FAIL_ERRNO(IO, "cannot read %s", r->name);
    return status;
}

static rp_status check_contents(const reader *r) {
    const rpi_metrics_file *file = r->file;
    if (r->torn_line)
        return RP_FAIL(CORRUPT, "%s:%ld: not JSON; one object a line is wanted (docs/json.md)",
                       r->name, r->torn_line);
    if (!file->header && !file->step_count && !file->evaluation_count && !file->bench_count &&
        !file->last_line_torn && r->line > 0)
        return RP_FAIL(CORRUPT,
                       "%s holds nothing that redpoll train or redpoll bench --json writes",
                       r->name);
    return RP_OK;
}

rp_status rpi_metrics_file_read(FILE *stream, const char *name, rpi_arena *arena,
                                rpi_metrics_file *out_file) {
    rpi_metrics_file file = {.unit = "images", .memory_bytes = NAN};
    reader r = {.file = &file, .arena = arena, .name = name};
    rp_status status = read_lines(&r, stream);
    if (status == RP_OK) status = check_contents(&r);
    if (status != RP_OK)
        rpi_metrics_file_close(&file);
    else
        *out_file = file;
    return status;
}

void rpi_metrics_file_close(rpi_metrics_file *file) {
    rpi_free(file->steps);
    rpi_free(file->evaluations);
    rpi_free(file->bench);
    rpi_free(file->resumed);
    cJSON_Delete(file->header);
    *file = (rpi_metrics_file){0};
}

static rp_status find(const char *path, char *file, size_t bytes) {
    struct stat facts;
    snprintf(file, bytes, "%s", path);
    if (stat(path, &facts) != 0) return RP_FAIL_ERRNO(IO, "cannot read %s", path);
    if (!S_ISDIR(facts.st_mode)) return RP_OK;
    int length = snprintf(file, bytes, "%s/metrics.jsonl", path);
    if ((size_t)length >= bytes) return RP_FAIL(IO, "the path %s is too long", path);
    if (access(file, F_OK) == 0) return RP_OK;
    return RP_FAIL(IO,
                   "%s holds no metrics.jsonl: name a folder that redpoll train wrote to "
                   "(--out), or a file of redpoll bench --json",
                   path);
}

rp_status rpi_metrics_file_open(const char *path, rpi_arena *arena,
                                rpi_metrics_file *out_file) {
    char file[4096];
    RP_TRY(find(path, file, sizeof file));
    FILE *stream = NULL;
    int64_t bytes = 0;
    RP_TRY(rpi_regular_file_open(file, &stream, &bytes));
    rp_status status = rpi_metrics_file_read(stream, file, arena, out_file);
    fclose(stream);
    return status;
}
