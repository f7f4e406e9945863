#include "train/data/picture_set.h"

#include "base/log.h"
#include "train/pictures/picture.h"

#include <stdio.h>
#include <string.h>

enum { WARNINGS = 10 }; /* the rest are counted */

rp_status rpi_picture_set_open(rpi_picture_set *set, bool skips_broken) {
    RP_TRY(rpi_alloc((size_t)set->folder->count / 8 + 1, "broken pictures", &set->is_broken));
    set->skips_broken = skips_broken;
    pthread_mutex_init(&set->lock, NULL);
    return RP_OK;
}

void rpi_picture_set_close(rpi_picture_set *set) {
    if (!set->is_broken) return;
    if (set->broken)
        rpi_log(RP_LOG_WARNING, "%s: %lld broken picture%s skipped", set->folder->path,
                (long long)set->broken, set->broken == 1 ? " was" : "s were");
    pthread_mutex_destroy(&set->lock);
    rpi_free(set->is_broken);
    set->is_broken = NULL;
}

/* ---- one picture ---- */

static rpi_resampling choose(const rpi_picture_reader *reader, int width, int height) {
    const rpi_picture_set *set = reader->set;
    rpi_resampling how;
    if (set->augmentation)
        rpi_augment(set->augmentation, &reader->draw, width, height, set->size, &how);
    else
        rpi_centre_crop(width, height, set->size, &how);
    return how;
}

static int reduce(void *context, int width, int height) {
    rpi_resampling how = choose(context, width, height);
    return rpi_resampling_reduction(&how);
}

static rp_status begin(void *context, int width, int height, int by) {
    rpi_picture_reader *reader = context;
    rpi_resampling how = choose(reader, width, height);
    return rpi_resampler_begin(&reader->resampler, &how, by);
}

static void take_row(void *context, int y, const uint8_t *rgb) {
    rpi_picture_reader *reader = context;
    rpi_resampler_row(&reader->resampler, y, rgb);
}

static rp_status decode(rpi_picture_reader *reader, const char *path, uint8_t *out_rgb) {
    char *bytes = NULL;
    size_t count = 0;
    RP_TRY(rpi_regular_file_read(path, RPI_PICTURE_MOST_BYTES, &bytes, &count));
    rpi_picture_sink sink = {
        .context = reader, .reduce = reduce, .begin = begin, .row = take_row};
    rp_status status = rpi_picture_decode((const uint8_t *)bytes, count, &sink);
    rpi_free(bytes);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", path);
    rpi_resampler_finish(&reader->resampler, out_rgb);
    return RP_OK;
}

/* ---- broken ones ---- */

static bool is_known_broken(rpi_picture_set *set, int64_t picture) {
    pthread_mutex_lock(&set->lock);
    bool is_broken = set->is_broken[picture / 8] >> picture % 8 & 1;
    pthread_mutex_unlock(&set->lock);
    return is_broken;
}

/* Of one that several threads met at once each tells, but it is counted once. */
static void note_broken(rpi_picture_set *set, int64_t picture, const char *message) {
    pthread_mutex_lock(&set->lock);
    uint8_t bit = (uint8_t)(1u << picture % 8);
    bool is_new = !(set->is_broken[picture / 8] & bit);
    set->is_broken[picture / 8] |= bit;
    set->broken += is_new;
    bool tells = is_new && set->broken <= WARNINGS;
    bool is_last = set->broken == WARNINGS;
    pthread_mutex_unlock(&set->lock);
    if (tells)
        rpi_log(RP_LOG_WARNING, "skipped: %s%s", message,
                is_last ? "; further ones are only counted" : "");
}

static rp_status read_picture(rpi_picture_set *set, rpi_picture_reader *reader, int64_t picture,
                              uint8_t *out_rgb) {
    char path[RPI_PATH_BYTES], message[RPI_ERROR_BYTES];
    if (is_known_broken(set, picture)) return RP_CORRUPT;
    RP_TRY(rpi_picture_folder_path(set->folder, picture, path));
    rp_status status = decode(reader, path, out_rgb);
    if (status != RP_CORRUPT) return status;
    snprintf(message, sizeof message, "%s", rp_last_error()->message);
    if (!set->skips_broken)
        return RP_FAIL(CORRUPT, "%s; repair or remove it, or go on without: --skip-broken",
                       message);
    note_broken(set, picture, message);
    return RP_CORRUPT;
}

rp_status rpi_picture_set_read(rpi_picture_set *set, rpi_picture_reader *reader, int64_t sample,
                               int64_t epoch, uint8_t *out_rgb, int32_t *out_label) {
    reader->set = set;
    reader->draw = (rpi_draw){.seed = set->seed, .epoch = epoch, .picture = sample};
    for (int64_t tried = 0; tried < set->count; tried++) {
        int64_t at = (sample + tried) % set->count;
        int64_t picture = set->indices ? set->indices[at] : at;
        rp_status status = read_picture(set, reader, picture, out_rgb);
        bool is_skipped = status == RP_CORRUPT && set->skips_broken;
        if (status != RP_OK && !is_skipped) return status;
        *out_label = is_skipped ? RPI_LABEL_IGNORED : set->folder->pictures[picture].label;
        if (!is_skipped) return RP_OK;
        if (set->augmentation) continue; /* another in its place */
        memset(out_rgb, 0, (size_t)set->size * (size_t)set->size * RPI_PICTURE_CHANNELS);
        return RP_OK;
    }
    return RP_FAIL(CORRUPT, "none of the %lld pictures in %s can be read",
                   (long long)set->count, set->folder->path);
}

void rpi_picture_reader_close(rpi_picture_reader *reader) {
    rpi_resampler_close(&reader->resampler);
}
