#include "cli/rank_output.h"

#include "cli/visible_text.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void remember(rpi_last_lines *last, const char *line, size_t length) {
    if (!last || length == 0) return;
    size_t at = (size_t)(last->count++ % RPI_LAST_LINES);
    bool fits = length <= RPI_LAST_LINE_BYTES;
    last->bytes[at] = fits ? length : rpi_visible_break(line, RPI_LAST_LINE_BYTES);
    memcpy(last->text[at], line, last->bytes[at]);
}

bool rpi_output_is_shown(FILE *sink, bool is_raw) {
    return !is_raw && isatty(fileno(sink)) == 1;
}

/* A line may hold any byte. */
static void put_text(const char *text, size_t bytes, bool is_shown, FILE *sink) {
    if (is_shown)
        rpi_visible_put(text, bytes, sink);
    else
        fwrite(text, 1, bytes, sink);
    fputc('\n', sink);
}

static void print_line(const rpi_rank_output *output, const char *line, size_t length) {
    if (output->before) fputs(output->before, output->sink);
    if (output->name)
        fprintf(output->sink, "[%s] ", output->name);
    else
        fprintf(output->sink, "[%d] ", output->rank);
    put_text(line, length, output->is_shown, output->sink);
}

/* Standard error that nobody reads, now or from the start, is no loss. A loss on standard
 * output is found when the command ends. */
static void look_for_loss(rpi_rank_output *output) {
    if (output->sink != stderr || output->has_lost || !ferror(stderr)) return;
    output->has_lost = errno != EPIPE && errno != EBADF;
    clearerr(stderr);
}

static bool ends_line(char last) {
    return last == '\n' || last == '\r';
}

/* How many bytes of the buffer can be written: those up to the last end of a line, or all of
 * them where there is no end of a line and the buffer is full, or with `all`. */
static size_t ready_bytes(const rpi_rank_output *output, bool all) {
    size_t bytes = output->bytes;
    while (!all && bytes > 0 && !ends_line(output->line[bytes - 1])) bytes--;
    if (bytes > 0 || output->bytes < sizeof output->line) return bytes;
    return rpi_visible_break(output->line, output->bytes);
}

/* A carriage return ends a line, too, as progress bars use it. "\r\n" is one end, and a "\r"
 * before any letter is none. Lines that are in the file already are only remembered. */
static void take_lines(rpi_rank_output *output, size_t bytes, size_t filed) {
    size_t start = 0;
    while (start < bytes) {
        const char *line = output->line + start;
        size_t left = bytes - start, length = 0;
        while (length < left && !ends_line(line[length])) length++;
        char end = length < left ? line[length] : '\0';
        bool is_one = length > 0 || (end == '\n' && !output->after_return);
        if (is_one) remember(output->last, line, length);
        if (is_one && start >= filed) print_line(output, line, length);
        look_for_loss(output);
        /* What follows a piece of a long line may be its end alone, too. */
        output->after_return = end != '\n' && (length > 0 || output->after_return);
        start += length + (length < left);
    }
}

static void take_buffer(rpi_rank_output *output, bool all) {
    size_t bytes = ready_bytes(output, all), filed = 0;
    if (output->file) filed = rpi_rank_file_write(output->file, output, output->line, bytes);
    take_lines(output, bytes, filed);
    memmove(output->line, output->line + bytes, output->bytes - bytes);
    output->bytes -= bytes;
}

static void close_stream(rpi_rank_output *output) {
    take_buffer(output, true);
    output->after_return = false;
    if (output->fd >= 0) close(output->fd);
    output->fd = -1;
}

void rpi_rank_output_feed(rpi_rank_output *output, const char *text, size_t bytes) {
    while (bytes > 0) {
        size_t room = sizeof output->line - output->bytes;
        size_t taken = bytes < room ? bytes : room;
        memcpy(output->line + output->bytes, text, taken);
        output->bytes += taken;
        take_buffer(output, false);
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
            take_buffer(output, false);
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

void rpi_last_lines_print(const rpi_last_lines *last, int rank, bool is_shown, FILE *stream) {
    long first = last->count > RPI_LAST_LINES ? last->count - RPI_LAST_LINES : 0;
    for (long i = first; i < last->count; i++) {
        fprintf(stream, "    [%d] ", rank);
        put_text(last->text[i % RPI_LAST_LINES], last->bytes[i % RPI_LAST_LINES], is_shown,
                 stream);
    }
}
