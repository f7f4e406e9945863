/* How fast folders of pictures become batches: pictures_bench FOLDER SIZE AUGMENT PICTURES
 * [FILE]
 *
 * Deals batches of 32 with one decoding thread until so many pictures have come, and prints
 * pictures a second of processor time, of all threads: what else runs on the machine hardly
 * changes it. FILE: the held-out pictures' numbers are written to it, f32.
 * bench/peers/pictures.py puts torchvision beside it. */
#include "base/status.h"
#include "train/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 32 };

static double processor_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Batches that were decoded ahead count in the time, and not in the pictures. */
static rp_status deal(rpi_source *source, int64_t pictures) {
    rpi_source_batch batch;
    int64_t done = 0;
    double start = processor_s();
    for (int64_t step = 0; done < pictures; step++, done += batch.count)
        RP_TRY(rpi_source_deal(source, step, &batch));
    printf("%.2f\n", (double)done / (processor_s() - start));
    return RP_OK;
}

static rp_status write_held_out(rpi_source *source, const char *path) {
    size_t elements = 3 * (size_t)source->shape.height * (size_t)source->shape.width;
    FILE *stream = fopen(path, "wb");
    rp_status status = stream ? RP_OK : RP_FAIL_ERRNO(IO, "cannot write %s", path);
    for (int64_t first = 0; status == RP_OK && first < source->test_count; first += BATCH) {
        rpi_source_batch batch;
        int64_t left = source->test_count - first;
        status = rpi_source_hold_out(source, first, left < BATCH ? left : BATCH, &batch);
        size_t count = elements * (size_t)batch.count;
        if (status == RP_OK && fwrite(batch.inputs[0], sizeof(float), count, stream) != count)
            status = RP_FAIL_ERRNO(IO, "cannot write %s", path);
    }
    if (stream) fclose(stream);
    return status;
}

static rp_status run(char **words) {
    char data[1024];
    rpi_source source;
    snprintf(data, sizeof data, "images:%s", words[0]);
    rpi_source_options options = {
        .data = data,
        .seed = 1,
        .pictures = {.augment = words[2], .size = strtol(words[1], NULL, 10), .threads = 1},
        .global_batch = BATCH,
        .most = BATCH,
        .world = 1};
    RP_TRY(rpi_source_open(&options, &source));
    rp_status status = deal(&source, strtol(words[3], NULL, 10));
    if (status == RP_OK && words[4]) status = write_held_out(&source, words[4]);
    rpi_source_close(&source);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "usage: pictures_bench FOLDER SIZE AUGMENT PICTURES [FILE]\n");
        return 2;
    }
    if (run(argv + 1) == RP_OK) return 0;
    fprintf(stderr, "pictures_bench: %s\n", rp_last_error()->message);
    return 1;
}
