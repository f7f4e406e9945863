/* A configuration file. */
#include "fuzz_input.h"

#include "cli/config.h"

#include <stdbool.h>

typedef struct settings {
    const char *model;
    int64_t steps;
    double rate;
    bool overlap;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"model", NULL, "model.name", RPI_OPTION_TEXT, FIELD(model), NULL, 0, 0, "NAME", "", NULL},
    {"steps", NULL, "tokens.train_steps", RPI_OPTION_COUNT, FIELD(steps), "1", 0, 1e9, "N", "",
     NULL},
    {"lr", NULL, "optimizer.learning_rate", RPI_OPTION_REAL, FIELD(rate), "0.1", 0, 1e9, "X",
     "", NULL},
    {"overlap", NULL, "network.overlap", RPI_OPTION_FLAG, FIELD(overlap), "true", 0, 0, NULL,
     "", NULL},
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char path[64];
    int fd;
    settings target = {0};
    rpi_config *config = NULL;
    fuzz_file(data, bytes, path, &fd);
    if (rpi_config_read(path, options, &target, &config) == RP_OK) rpi_config_free(config);
    close(fd);
    return 0;
}
