/* A figure as a file of its own, and as a part of the page. */
#include "cli/report/figure.h"
#include "cli/report/markup.h"
#include "cli/report/stylesheet.h"

#include <string.h>

enum {
    MARGIN = 16,      /* around a figure in a file of its own */
    LETTER = 7,       /* width of one, about, at 12 px */
    SAMPLE = 34,      /* of a legend, with its gap */
    LEGEND_LINE = 20, /* height */
    LONGEST_LABEL = 48,
    SHORT_LABEL = 36,  /* if there are many: two are side by side */
    MOST_OPEN = 16,    /* entries of a legend on the page; further ones are folded, and are in
                        * the table */
    CAPTION_LINE = 15, /* height */
    CAPTION_LETTERS = 106, /* of a line */
};

void rpi_figure_key(FILE *stream, const char *class, bool is_line) {
    fprintf(stream, "<svg class=\"key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\">");
    if (is_line)
        fprintf(stream, "<g class=\"%s\"><path class=\"line\" d=\"M1 5H25\"/></g></svg>",
                class);
    else
        fprintf(stream, "<rect class=\"%s\" x=\"4\" width=\"18\" height=\"10\"/></svg>", class);
}

typedef struct legend {
    int count;
    bool lines;
} legend;

static legend legend_of(const rpi_figure *figure) {
    return figure->rows ? (legend){figure->key_count, false}
                        : (legend){figure->series_count, true};
}

/* One entry: its class, and its label cut to size. */
static const char *entry_of(const rpi_figure *figure, int index, char class[32], char *label,
                            size_t bytes) {
    int limit = legend_of(figure).count > MOST_OPEN ? SHORT_LABEL : LONGEST_LABEL;
    if (figure->rows) {
        snprintf(class, 32, "%s", figure->keys[index].class);
        return rpi_markup_cut(figure->keys[index].label, limit, label, bytes);
    }
    rpi_style_class(figure->series[index].style, class);
    return rpi_markup_cut(figure->series[index].label, limit, label, bytes);
}

/* Entries are placed from left to right like words; returns the height. Without a stream it
 * only computes that. */
static int flow_legend(FILE *stream, const rpi_figure *figure) {
    legend l = legend_of(figure);
    int x = 0, y = 0;
    for (int i = 0; i < l.count; i++) {
        char class[32], label[4 * LONGEST_LABEL + 8];
        entry_of(figure, i, class, label, sizeof label);
        int width = SAMPLE + LETTER * rpi_markup_length(label) + 14;
        if (x > 0 && x + width > RPI_CHART_WIDTH) {
            x = 0;
            y += LEGEND_LINE;
        }
        if (stream) {
            fprintf(stream, "<g class=\"%s\" transform=\"translate(%d %d)\">",
                    l.lines ? class : "", x, y);
            if (l.lines)
                fprintf(stream, "<path class=\"line\" d=\"M0 6H26\"/>");
            else
                fprintf(stream, "<rect class=\"%s\" y=\"1\" width=\"18\" height=\"10\"/>",
                        class);
            fprintf(stream, "<text x=\"%d\" y=\"10\">", SAMPLE - (l.lines ? 0 : 8));
            rpi_markup_text(stream, label);
            fprintf(stream, "</text></g>\n");
        }
        x += width;
    }
    return l.count ? y + LEGEND_LINE + 8 : 0;
}

static void write_accessible(FILE *stream, const rpi_figure *figure, const char *id) {
    fprintf(stream, "<title id=\"%s-title\">", id);
    rpi_markup_text(stream, figure->title);
    fprintf(stream, "</title><desc id=\"%s-desc\">", id);
    rpi_markup_text(stream, figure->summary);
    fprintf(stream, "</desc>\n");
}

/* Bytes of the words that fit into one line of a caption. */
static size_t line_bytes(const char *text) {
    size_t kept = 0;
    for (size_t at = 0; text[at] && at <= CAPTION_LETTERS; at++)
        if (text[at + 1] == ' ' || !text[at + 1]) kept = at + 1;
    return kept ? kept : strlen(text);
}

/* Without a stream only the height is computed. */
static int flow_caption(FILE *stream, const char *text, int x, int y) {
    int height = 0;
    while (*text) {
        size_t bytes = line_bytes(text);
        height += CAPTION_LINE;
        if (stream) {
            char line[2 * CAPTION_LETTERS];
            snprintf(line, sizeof line, "%.*s", (int)bytes, text);
            fprintf(stream, "<text class=\"caption\" x=\"%d\" y=\"%d\">", x, y + height - 4);
            rpi_markup_text(stream, line);
            fprintf(stream, "</text>\n");
        }
        text += bytes;
        while (*text == ' ') text++;
    }
    return height;
}

static void write_line(FILE *stream, const char *class, int y, const char *text) {
    fprintf(stream, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, MARGIN, y);
    rpi_markup_text(stream, text);
    fprintf(stream, "</text>\n");
}

void rpi_figure_write_file(FILE *stream, const rpi_figure *figure, const char *subtitle) {
    int width = RPI_CHART_WIDTH + 2 * MARGIN;
    int legend_top = MARGIN + 30 + (subtitle ? 20 : 0);
    int chart_top = legend_top + flow_legend(NULL, figure);
    int caption_top = chart_top + rpi_chart_height(figure) + 4;
    int height = caption_top + flow_caption(NULL, figure->caption, 0, 0) + MARGIN;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title %s-desc\">\n",
            width, height, width, height, figure->name, figure->name);
    write_accessible(stream, figure, figure->name);
    fprintf(stream, "<style>\n");
    rpi_stylesheet_figure(stream);
    fprintf(stream, "</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n",
            width, height);
    write_line(stream, "heading", MARGIN + 14, figure->title);
    if (subtitle) write_line(stream, "subtitle", MARGIN + 36, subtitle);
    fprintf(stream, "<g transform=\"translate(%d %d)\">\n", MARGIN, legend_top);
    flow_legend(stream, figure);
    fprintf(stream, "</g>\n<g transform=\"translate(%d %d)\">\n", MARGIN, chart_top);
    rpi_chart_draw(stream, figure, figure->name);
    fprintf(stream, "</g>\n");
    flow_caption(stream, figure->caption, MARGIN, caption_top);
    fprintf(stream, "</svg>\n");
}

static void write_legend(FILE *stream, const rpi_figure *figure) {
    legend l = legend_of(figure);
    if (l.count == 0) return;
    bool folded = l.count > MOST_OPEN;
    if (folded)
        fprintf(stream, "<details class=\"legend\"><summary>Legend of %d lines</summary>\n",
                l.count);
    fprintf(stream, "<ul class=\"legend\">");
    for (int i = 0; i < l.count; i++) {
        char class[32], label[4 * LONGEST_LABEL + 8];
        entry_of(figure, i, class, label, sizeof label);
        fprintf(stream, "<li>");
        rpi_figure_key(stream, class, l.lines);
        fprintf(stream, "<span>");
        rpi_markup_text(stream, label);
        fprintf(stream, "</span></li>");
    }
    fprintf(stream, folded ? "</ul></details>\n" : "</ul>\n");
}

static void write_table(FILE *stream, const rpi_table *table, int number) {
    if (table->rows == 0) return;
    fprintf(stream,
            "<details><summary>Figure %d as a table</summary>\n"
            "<div class=\"scroll\"><table><caption>The values of figure %d</caption>\n<thead>",
            number, number);
    for (int r = 0; r < table->rows; r++) {
        fprintf(stream, "<tr>");
        for (int c = 0; c < table->columns; c++) {
            const char *tag = r == 0 || c == 0 ? "th" : "td";
            const char *scope = r == 0 ? " scope=\"col\"" : c == 0 ? " scope=\"row\"" : "";
            fprintf(stream, "<%s%s%s>", tag, scope, c ? " class=\"n\"" : "");
            const char *cell = table->cells[(size_t)r * (size_t)table->columns + (size_t)c];
            rpi_markup_text(stream, cell ? cell : "");
            fprintf(stream, "</%s>", tag);
        }
        fprintf(stream, r == 0 ? "</tr></thead>\n<tbody>" : "</tr>\n");
    }
    fprintf(stream, "</tbody></table></div></details>\n");
}

void rpi_figure_write_page(FILE *stream, const rpi_figure *figure, int number) {
    char id[32];
    snprintf(id, sizeof id, "figure-%d", number);
    fprintf(stream, "<figure id=\"%s\">\n<h3>", figure->name);
    rpi_markup_text(stream, figure->title);
    fprintf(stream, "</h3>\n");
    write_legend(stream, figure);
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-labelledby=\"%s-title %s-desc\">\n",
            RPI_CHART_WIDTH, rpi_chart_height(figure), id, id);
    write_accessible(stream, figure, id);
    rpi_chart_draw(stream, figure, id);
    fprintf(stream, "</svg>\n<figcaption><b>Figure %d.</b> ", number);
    rpi_markup_text(stream, figure->caption);
    fprintf(stream, "</figcaption>\n");
    write_table(stream, &figure->table, number);
    fprintf(stream, "</figure>\n");
}
