#include "cli/rank_output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void remember(rpi_last_lines *last, const char *line, size_t length) {
    if (!last || length == 0) return;
    snprintf(last->text[last->count++ % RPI_LAST_LINES], RPI_LAST_LINE_BYTES, "%.*s",
             (int)length, line);
}

static void print_line(const rpi_rank_output *output, const char *line, size_t length) {
    remember(output->last, line, length);
    if (output->before) fputs(output->before, output->sink);
    if (output->name)
        fprintf(output->sink, "[%s] ", output->name);
    else if (!output->bare)
        fprintf(output->sink, "[%d] ", output->rank);
    fwrite(line, 1, length, output->sink); /* a line may hold any byte */
    fputc('\n', output->sink);
}

/* Print every complete line; a carriage return ends one, too, as progress bars use it. */
static void print_lines(rpi_rank_output *output) {
    size_t start = 0;
    for (;;) {
        const char *line = output->line + start;
        size_t left = output->bytes - start, length = 0;
        while (length < left && line[length] != '\n' && line[length] != '\r') length++;
        if (length == left) break;
        /* "\r\n" is one end, and "\r" alone before any letter is none. */
        if (length || line[length] == '\n') print_line(output, line, length);
        start += length + 1;
        if (line[length] == '\r' && start < output->bytes && output->line[start] == '\n')
            start++;
    }
    memmove(output->line, output->line + start, output->bytes - start);
    output->bytes -= start;
    if (output->bytes == sizeof output->line) {
        print_line(output, output->line, output->bytes);
        output->bytes = 0;
    }
}

static void close_stream(rpi_rank_output *output) {
    if (output->bytes) print_line(output, output->line, output->bytes);
    output->bytes = 0;
    if (output->fd >= 0) close(output->fd);
    output->fd = -1;
}

void rpi_rank_output_feed(rpi_rank_output *output, const char *text, size_t bytes) {
    while (bytes > 0) {
        size_t room = sizeof output->line - output->bytes;
        size_t taken = bytes < room ? bytes : room;
        memcpy(output->line + output->bytes, text, taken);
        output->bytes += taken;
        print_lines(output);
        text += taken;
        bytes -= taken;
    }
    fflush(output->sink);
}

void rpi_rank_output_take(rpi_rank_output *output) {
    while (output->fd >= 0) {
        ssize_t got =
            read(output->fd, output->line + output->bytes, sizeof output->line - output->bytes);
        if (got > 0) {
            output->bytes += (size_t)got;
            print_lines(output);
        } else if (got == 0) {
            close_stream(output);
        } else if (errno != EINTR) {
            break;
        }
    }
    fflush(output->sink);
}

void rpi_rank_output_finish(rpi_rank_output *output) {
    rpi_rank_output_take(output);
    close_stream(output);
    fflush(output->sink);
}

void rpi_last_lines_print(const rpi_last_lines *last, int rank, FILE *stream) {
    long first = last->count > RPI_LAST_LINES ? last->count - RPI_LAST_LINES : 0;
    for (long i = first; i < last->count; i++)
        fprintf(stream, "    [%d] %s\n", rank, last->text[i % RPI_LAST_LINES]);
}

FILE *rpi_rank_file_open(const char *folder, int rank) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/rank-%d.log", folder, rank);
    if (length < (int)sizeof path) return fopen(path, "we");
    errno = ENAMETOOLONG;
    return NULL;
}
