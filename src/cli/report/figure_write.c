/* A figure as a file of its own, and as a part of the page. */
#include "cli/report/figure.h"
#include "cli/report/markup.h"
#include "cli/report/stylesheet.h"

enum {
    MARGIN = 16,      /* around a figure that stands alone */
    LETTER = 7,       /* width of one, about, at 12 px */
    SAMPLE = 34,      /* of a legend, with its gap */
    LEGEND_LINE = 20, /* height */
    LONGEST_LABEL = 48,
};

void rpi_figure_key(FILE *stream, const char *class, bool is_line) {
    fprintf(stream, "<svg class=\"key\" viewBox=\"0 0 26 10\" aria-hidden=\"true\">");
    if (is_line)
        fprintf(stream, "<g class=\"%s\"><path class=\"line\" d=\"M1 5H25\"/></g></svg>",
                class);
    else
        fprintf(stream, "<rect class=\"%s\" x=\"8\" width=\"18\" height=\"10\"/></svg>", class);
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
    if (figure->rows) {
        snprintf(class, 32, "%s", figure->keys[index].class);
        return rpi_markup_cut(figure->keys[index].label, LONGEST_LABEL, label, bytes);
    }
    rpi_style_class(figure->series[index].style, class);
    return rpi_markup_cut(figure->series[index].label, LONGEST_LABEL, label, bytes);
}

/* Entries flow from left to right like words; returns the height. Without a stream, only that.
 */
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
                fprintf(stream,
                        "<rect class=\"%s\" x=\"8\" y=\"1\" width=\"18\" height=\"10\"/>",
                        class);
            fprintf(stream, "<text x=\"%d\" y=\"10\">", SAMPLE);
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

void rpi_figure_write_file(FILE *stream, const rpi_figure *figure) {
    int legend_height = flow_legend(NULL, figure);
    int width = RPI_CHART_WIDTH + 2 * MARGIN;
    int top = MARGIN + 30, chart_top = top + legend_height;
    int height = chart_top + rpi_chart_height(figure) + MARGIN / 2;
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title %s-desc\">\n",
            width, height, width, height, figure->name, figure->name);
    write_accessible(stream, figure, figure->name);
    fprintf(stream, "<style>\n");
    rpi_stylesheet_figure(stream);
    fprintf(stream,
            "</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n"
            "<text class=\"heading\" x=\"%d\" y=\"%d\">",
            width, height, MARGIN, MARGIN + 14);
    rpi_markup_text(stream, figure->title);
    fprintf(stream, "</text>\n<g transform=\"translate(%d %d)\">\n", MARGIN, top);
    flow_legend(stream, figure);
    fprintf(stream, "</g>\n<g transform=\"translate(%d %d)\">\n", MARGIN, chart_top);
    rpi_chart_draw(stream, figure, figure->name);
    fprintf(stream, "</g>\n</svg>\n");
}

static void write_legend(FILE *stream, const rpi_figure *figure) {
    legend l = legend_of(figure);
    if (l.count == 0) return;
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
    fprintf(stream, "</ul>\n");
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
