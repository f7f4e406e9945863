#include "cli/command.h"

#include "base/status.h"
#include "base/wrap.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static bool is_own(const rpi_command *command, const char *name) {
    for (const rpi_option *o = command->options; o->name; o++)
        if (strcmp(o->name, name) == 0) return true;
    return false;
}

const rpi_option *rpi_command_option_at(const rpi_command *command, int index) {
    for (const rpi_option *o = command->options; o->name; o++)
        if (index-- == 0) return o;
    for (const rpi_option *o = command->also ? command->also->options : NULL; o && o->name; o++)
        if (!is_own(command, o->name) && index-- == 0) return o;
    return NULL;
}

/* ---- help ---- */

void rpi_command_print_row(const char *head, const char *text, FILE *stream) {
    fprintf(stream, "  %-22s ", head);
    rpi_print_wrapped(stream, text, 25, 25);
}

/* "  topology=NAME          whom a rank ... [base]" */
static void print_inner(const rpi_inner_options *inner, FILE *stream) {
    fprintf(stream, "\nbehind --%s %s and a colon, with commas between them:\n", inner->option,
            inner->name);
    for (const rpi_option *o = inner->table; o->name; o++) {
        char head[64], text[512];
        snprintf(head, sizeof head, "%s=%s", o->name, o->value);
        snprintf(text, sizeof text, "%s%s%s%s", o->help, o->fallback ? " [" : "",
                 o->fallback ? o->fallback : "", o->fallback ? "]" : "");
        rpi_command_print_row(head, text, stream);
    }
}

void rpi_command_print_help(const rpi_command *command, FILE *stream) {
    fprintf(stream, "usage: redpoll %s %s\n\n", command->name,
            command->words ? command->words : "[OPTIONS]");
    rpi_print_wrapped(stream, command->about, 0, 0);
    if (command->options->name) fputc('\n', stream);
    rpi_options_help(command->options, stream);
    if (command->also)
        fprintf(stream, "\nand the options of redpoll %s ('redpoll %s --help')\n",
                command->also->name, command->also->name);
    for (int i = 0; command->inner_at && command->inner_at(i).name; i++) {
        rpi_inner_options inner = command->inner_at(i);
        print_inner(&inner, stream);
    }
    if (command->notes) {
        fputc('\n', stream);
        rpi_print_wrapped(stream, command->notes, 0, 0);
    }
    fprintf(stream, "\nexamples:\n%s", command->examples);
}

/* ---- running ---- */

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

void rpi_command_flush(void) {
    sigset_t pipe;
    if (fflush(stdout) == 0 || errno != EPIPE) return;
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigprocmask(SIG_UNBLOCK, &pipe, NULL);
}

void rpi_command_print_json(cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}
