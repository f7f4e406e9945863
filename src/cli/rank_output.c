#include "cli/rank_output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void print_line(const rpi_rank_output *output, const char *line, size_t length) {
    fprintf(output->sink, "%s[%d] %.*s\n", output->before ? output->before : "", output->rank,
            (int)length, line);
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
    close(output->fd);
    output->fd = -1;
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
    if (output->fd >= 0) close_stream(output);
    fflush(output->sink);
}
