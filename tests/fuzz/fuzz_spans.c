/* A file of questions, cut into windows, each of which is read and judged. */
#include "fuzz_input.h"

#include "train/data/span_windows.h"

#include <stdlib.h>

enum { LENGTH = 24 };

static void use(const rpi_span_questions *questions, const rpi_tokenizer *tokenizer) {
    static int32_t lists[3][LENGTH], ends[RPI_SPAN_ENDS];
    static float outside[RPI_SPAN_ENDS * LENGTH];
    rpi_span_rows rows = {lists[0], lists[1], lists[2], outside, ends};
    rpi_span_options options = {.sequence = LENGTH,
                                .stride = 5,
                                .max_answer = 4,
                                .tokens = rpi_bert_tokens_of(tokenizer)};
    rpi_span_windows *windows = NULL;
    rpi_scores scores;
    double *verdicts = NULL;
    if (rpi_span_windows_open(questions, &options, &windows) != RP_OK) return;
    int64_t count = rpi_span_windows_count(windows);
    verdicts = calloc((size_t)count, RPI_SPAN_VERDICT * sizeof *verdicts);
    for (int64_t i = 0; verdicts && i < count; i++) {
        rpi_span_window_read(windows, i, &rows, 0);
        for (int k = 0; k < LENGTH; k++) outside[k] = outside[LENGTH + k] = (float)lists[0][k];
        rpi_span_window_judge(windows, i, outside, verdicts + i * RPI_SPAN_VERDICT);
    }
    if (verdicts) (void)rpi_span_windows_score(windows, 0, count, verdicts, true, &scores);
    free(verdicts);
    rpi_span_windows_close(windows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_span_questions *questions = NULL;
    char path[64];
    int fd = -1;
    if (rpi_tokenizer_open("byte", &tokenizer) != RP_OK) return 0;
    fuzz_file(data, bytes, path, &fd);
    if (rpi_span_questions_open(path, tokenizer, bytes % 2, &questions) == RP_OK)
        use(questions, tokenizer);
    rpi_span_questions_close(questions);
    rpi_tokenizer_close(tokenizer);
    close(fd);
    return 0;
}
