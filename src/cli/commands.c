#include "cli/commands.h"

#include "base/status.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rpi_command *const catalogue[] = {
    &rpi_command_train,
    &rpi_command_run,
    &rpi_command_doctor,
    &rpi_command_data_tokenize,
    &rpi_command_data_info,
    &rpi_command_data_decode,
    &rpi_command_bench_all_reduce,
    &rpi_command_bench_reduce_scatter,
    &rpi_command_bench_all_gather,
    &rpi_command_bench_broadcast,
    &rpi_command_bench_reduce,
    &rpi_command_bench_gather,
    &rpi_command_bench_scatter,
    &rpi_command_bench_all_to_all,
    &rpi_command_bench_neighbor_all_reduce,
    &rpi_command_bench_window_put,
    &rpi_command_bench_send_recv,
    &rpi_command_bench_barrier,
    &rpi_command_bench_codec,
    &rpi_command_bench_link,
    &rpi_command_plan,
    &rpi_command_plan_gossip,
    &rpi_command_plan_local_sgd,
    &rpi_command_plan_failures,
    &rpi_command_plan_cost,
    &rpi_command_plan_break_even,
    &rpi_command_eval,
    &rpi_command_generate,
    &rpi_command_export,
    &rpi_command_report,
    &rpi_command_info,
    &rpi_command_man,
    &rpi_command_completion,
};

const rpi_command *rpi_command_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}

int rpi_command_failed(rp_status status) {
    if (rp_last_error()->status != RP_OK)
        fprintf(stderr, "redpoll: %s\n", rp_last_error()->message);
    else
        fprintf(stderr, "redpoll: %s\n", rp_status_text(status));
    return RPI_EXIT_FAILED;
}

int rpi_command_misused(const char *command, rp_status status) {
    (void)rpi_command_failed(status);
    fprintf(stderr, "redpoll: 'redpoll %s --help' shows the usage\n", command);
    return RPI_EXIT_USAGE;
}

int rpi_command_print(const rpi_command *command, int argc, char **argv,
                      rp_status (*print)(const char *word)) {
    const char *word = NULL;
    rpi_positional positional = {.words = &word, .capacity = 1};
    bool wants_help = false;
    rp_status status =
        rpi_options_parse(command->options, argc, argv, NULL, &positional, &wants_help);
    if (status == RP_OK && wants_help)
        rpi_command_print_help(command, stdout);
    else if (status == RP_OK)
        status = print(word);
    return status == RP_OK ? RPI_EXIT_DONE : rpi_command_misused(command->name, status);
}

static rp_status read_settings(const rpi_option *options, int argc, char **argv, void *settings,
                               const char **word, bool *wants_help) {
    rpi_positional positional = {.words = word, .capacity = 1};
    RP_TRY(rpi_options_defaults(options, settings));
    RP_TRY(rpi_options_environment(options, getenv, settings));
    return rpi_options_parse(options, argc, argv, settings, word ? &positional : NULL,
                             wants_help);
}

int rpi_command_work(const rpi_command *command, int argc, char **argv, void *settings,
                     const char **word, rp_status (*work)(void *settings)) {
    bool wants_help = false;
    rp_status status = read_settings(command->options, argc, argv, settings, word, &wants_help);
    if (status != RP_OK) return rpi_command_misused(command->name, status);
    if (wants_help) {
        rpi_command_print_help(command, stdout);
        return RPI_EXIT_DONE;
    }
    status = work(settings);
    if (status == RP_INVALID) return rpi_command_misused(command->name, status);
    return status == RP_OK ? RPI_EXIT_DONE : rpi_command_failed(status);
}

int rpi_command_finish(int code) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (errno != EPIPE)
        fprintf(stderr, "redpoll: cannot write to standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
    return code == RPI_EXIT_DONE ? RPI_EXIT_FAILED : code;
}

void rpi_command_print_json(cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}
