#include "cli/report/tensorboard.h"

#include "base/folder.h"
#include "base/status.h"
#include "cli/report/event_file.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { LONGEST_PATH = 3900, LONGEST_NAME = 120 };

static const char *const tags[RPI_STEP_VALUES] = {
    [RPI_STEP_LOSS] = "train/loss",
    [RPI_STEP_LR] = "train/lr",
    [RPI_STEP_RATE] = NULL, /* by its unit */
    [RPI_STEP_S] = "time/step_s",
    [RPI_STEP_COMPUTE_S] = "time/compute_s",
    [RPI_STEP_COMM_S] = "time/comm_s",
    [RPI_STEP_ENCODE_S] = "time/encode_s",
    [RPI_STEP_DECODE_S] = "time/decode_s",
    [RPI_STEP_EXPOSED_S] = "time/exposed_s",
    [RPI_STEP_SKEW_S] = "time/skew_s",
    [RPI_STEP_WIRE_BYTES] = "network/wire_bytes",
};

/* A label as the name of a folder: letters of any language stay, characters with a meaning in
 * paths or shells are replaced. */
static void folder_name(const char *label, char name[LONGEST_NAME]) {
    int length = 0;
    for (; *label && length < LONGEST_NAME - 1; label++) {
        unsigned char byte = (unsigned char)*label;
        bool keeps = byte >= 0x80 || isalnum(byte) || strchr("-_.,=+@ ", byte);
        if (length == 0 && byte == '.') keeps = false;
        name[length++] = keeps ? (char)byte : '_';
    }
    if (length == 0) name[length++] = '_';
    name[length] = '\0';
}

/* A loss that is not a number is kept; other such values are unknown. */
static void write_step(FILE *stream, double wall_time, const rpi_step_row *row,
                       const char *unit) {
    rpi_scalar scalars[RPI_STEP_VALUES];
    int count = 0;
    for (int v = 0; v < RPI_STEP_VALUES; v++) {
        if (isnan(row->values[v]) && v != RPI_STEP_LOSS) continue;
        const char *tag = tags[v]                       ? tags[v]
                          : strcmp(unit, "tokens") == 0 ? "train/tokens_s"
                                                        : "train/images_s";
        scalars[count++] = (rpi_scalar){tag, row->values[v]};
    }
    rpi_event_scalars(stream, wall_time, row->step, scalars, count);
}

static void write_evaluation(FILE *stream, double wall_time, const rpi_evaluation_row *row) {
    rpi_scalar scalars[] = {{"test/accuracy", row->accuracy},
                            {"test/loss", row->loss},
                            {"test/perplexity", row->perplexity}};
    rpi_event_scalars(stream, wall_time, row->step, scalars, isnan(row->perplexity) ? 2 : 3);
}

/* Times are those of the last start plus the steps' times since; evaluations come right after
 * their step. */
static void write_events(FILE *stream, double start, const rpi_metrics_file *file) {
    size_t evaluation = 0;
    double now = start;
    rpi_event_version(stream, start);
    for (size_t i = 0; i < file->step_count; i++) {
        const rpi_step_row *row = &file->steps[i];
        if (isfinite(row->values[RPI_STEP_S])) now += row->values[RPI_STEP_S];
        write_step(stream, now, row, file->unit);
        for (; evaluation < file->evaluation_count &&
               file->evaluations[evaluation].step <= row->step;
             evaluation++)
            write_evaluation(stream, now, &file->evaluations[evaluation]);
    }
    for (; evaluation < file->evaluation_count; evaluation++)
        write_evaluation(stream, now, &file->evaluations[evaluation]);
}

rp_status rpi_tensorboard_write(const char *folder, const char *label,
                                const rpi_metrics_file *file, rpi_output_file *out_file) {
    char name[LONGEST_NAME], path[LONGEST_PATH + LONGEST_NAME + 64];
    if (strlen(folder) > LONGEST_PATH) return RP_FAIL(IO, "the path %s is too long", folder);
    folder_name(label, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    RP_TRY(rpi_folder_make(path));
    const cJSON *time = cJSON_GetObjectItemCaseSensitive(file->header, "time");
    double start = cJSON_IsNumber(time) && time->valuedouble > 0 ? floor(time->valuedouble) : 0;
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/events.out.tfevents.%010.0f.redpoll",
             start < 1e12 ? start : 0);
    RP_TRY(rpi_output_open(path, out_file));
    write_events(out_file->stream, start, file);
    rp_status status = rpi_output_finish(out_file);
    if (status != RP_OK) rpi_output_discard(out_file);
    return status;
}
