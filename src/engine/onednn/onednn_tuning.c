#include "engine/onednn/onednn_tuning.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A line of the file is a key, a space, and what was chosen: "direct" or "winograd". The key
 * is the geometry in words, which holds all that decides. */
enum { KEY_BYTES = RPI_DNN_GEOMETRY_TEXT };

typedef struct choice {
    char key[KEY_BYTES];
    bool winograd;
} choice;

struct rpi_dnn_tuning {
    char *file; /* NULL: by the rule */
    choice *choices;
    size_t count;
};

/* ---- the rule ---- */

bool rpi_dnn_winograd_fits(const rpi_dnn_geometry *geometry) {
    return geometry->window_height == 3 && geometry->window_width == 3 &&
           geometry->stride == 1 && !geometry->is_bf16;
}

/* Tiles of 4 x 4 outputs in all images. */
static int64_t winograd_tiles(const rpi_dnn_geometry *geometry) {
    enum { TILE = 4 };
    const int64_t rows = geometry->height + 2 * geometry->padding - 2;
    const int64_t columns = geometry->width + 2 * geometry->padding - 2;
    return geometry->batch * ((rows + TILE - 1) / TILE) * ((columns + TILE - 1) / TILE);
}

/* Measured on Zen 4 over 16 to 512 channels, images of 4 to 32 pixels, batches of 1 to 64, one
 * and two threads, and on Zen 5: with fewer tiles the matrices are too thin, with fewer
 * channels the transforms outweigh the products, and below about 0.1 ms of work the start-up
 * does. */
bool rpi_dnn_winograd_pays(const rpi_dnn_geometry *geometry) {
    enum { LEAST_TILES = 32, LEAST_CHANNELS = 32 };
    const double least_flops = 2e7;
    int64_t rows = geometry->height + 2 * geometry->padding - 2;
    int64_t columns = geometry->width + 2 * geometry->padding - 2;
    double flops = 18.0 * (double)(geometry->batch * rows * columns) *
                   (double)(geometry->channels * geometry->filters);
    return winograd_tiles(geometry) >= LEAST_TILES && geometry->channels >= LEAST_CHANNELS &&
           geometry->filters >= LEAST_CHANNELS && flops >= least_flops;
}

/* ---- the file ---- */

static const char *const algorithm_names[] = {"direct", "winograd"};

void rpi_dnn_geometry_text(const rpi_dnn_geometry *g, char text[RPI_DNN_GEOMETRY_TEXT]) {
    static const char *const directions[] = {"forward", "backward-data", "backward-weights"};
    snprintf(text, RPI_DNN_GEOMETRY_TEXT,
             "%d %s n%lld c%lld h%lld w%lld k%lld r%lld s%lld stride%d padding%d threads%d%s",
             DNNL_VERSION_MAJOR, directions[g->direction], (long long)g->batch,
             (long long)g->channels, (long long)g->height, (long long)g->width,
             (long long)g->filters, (long long)g->window_height, (long long)g->window_width,
             g->stride, g->padding, g->threads, g->is_bf16 ? " bf16" : "");
}

/* key: less than KEY_BYTES long. */
static rp_status remember(rpi_dnn_tuning *tuning, const char *key, bool winograd) {
    RP_TRY(rpi_grow_array(tuning->count, tuning->count + 1, sizeof *tuning->choices,
                          "algorithm choices", &tuning->choices));
    choice *it = &tuning->choices[tuning->count++];
    memcpy(it->key, key, strlen(key) + 1);
    it->winograd = winograd;
    return RP_OK;
}

/* A line that is not understood is left out: it is measured again. */
static rp_status read_line(rpi_dnn_tuning *tuning, char *line) {
    line[strcspn(line, "\n")] = 0;
    char *space = strrchr(line, ' ');
    if (!space || space - line >= KEY_BYTES) return RP_OK;
    *space = 0;
    for (int winograd = 0; winograd < 2; winograd++)
        if (!strcmp(space + 1, algorithm_names[winograd]))
            return remember(tuning, line, winograd);
    return RP_OK;
}

static rp_status read_file(rpi_dnn_tuning *tuning) {
    FILE *stream = fopen(tuning->file, "re");
    if (!stream && errno == ENOENT) return RP_OK;
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open tuning file %s", tuning->file);
    char line[KEY_BYTES + 32];
    rp_status status = RP_OK;
    while (status == RP_OK && fgets(line, sizeof line, stream))
        status = read_line(tuning, line);
    if (status == RP_OK && ferror(stream))
        status = RP_FAIL_ERRNO(IO, "cannot read tuning file %s", tuning->file);
    fclose(stream);
    return status;
}

/* One short write in append mode, so that lines of several ranks do not mix. */
static rp_status append(const rpi_dnn_tuning *tuning, const char *key, bool winograd) {
    FILE *stream = fopen(tuning->file, "ae");
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot write tuning file %s", tuning->file);
    int written = fprintf(stream, "%s %s\n", key, algorithm_names[winograd]);
    if (fclose(stream) != 0 || written < 0)
        return RP_FAIL_ERRNO(IO, "cannot write tuning file %s", tuning->file);
    return RP_OK;
}

/* A measurement on a busy machine says little: it overrules the rule by a clear margin only. */
static bool clearly_quicker(const rpi_dnn_geometry *geometry, double direct, double winograd) {
    const double margin = 0.9;
    if (rpi_dnn_winograd_pays(geometry)) return direct >= margin * winograd;
    return winograd < margin * direct;
}

/* ---- the contract ---- */

rp_status rpi_dnn_tuning_create(const char *file, rpi_dnn_tuning **out_tuning) {
    rpi_dnn_tuning *tuning = NULL;
    RP_TRY(rpi_alloc(sizeof *tuning, "tuning", &tuning));
    rp_status status = file ? rpi_strdup(file, &tuning->file) : RP_OK;
    if (status == RP_OK && file) status = read_file(tuning);
    if (status != RP_OK) {
        rpi_dnn_tuning_destroy(tuning);
        return status;
    }
    *out_tuning = tuning;
    return RP_OK;
}

void rpi_dnn_tuning_destroy(rpi_dnn_tuning *tuning) {
    if (!tuning) return;
    rpi_free(tuning->file);
    rpi_free(tuning->choices);
    rpi_free(tuning);
}

rp_status rpi_dnn_tuning_choose(rpi_dnn_tuning *tuning, const rpi_dnn_geometry *geometry,
                                rpi_dnn_measure measure, void *context, bool *out_winograd) {
    if (!tuning->file) {
        *out_winograd = rpi_dnn_winograd_pays(geometry);
        return RP_OK;
    }
    char key[KEY_BYTES];
    rpi_dnn_geometry_text(geometry, key);
    /* The first line of a key counts, should two ranks have measured it at once. */
    for (size_t i = 0; i < tuning->count; i++) {
        if (strcmp(tuning->choices[i].key, key) != 0) continue;
        *out_winograd = tuning->choices[i].winograd;
        return RP_OK;
    }
    double direct = 0, winograd = 0;
    RP_TRY(measure(context, false, &direct));
    RP_TRY(measure(context, true, &winograd));
    rpi_log(RP_LOG_DEBUG, "%s: direct %.3f ms, winograd %.3f ms", key, 1e3 * direct,
            1e3 * winograd);
    *out_winograd = clearly_quicker(geometry, direct, winograd);
    RP_TRY(remember(tuning, key, *out_winograd));
    return append(tuning, key, *out_winograd);
}
