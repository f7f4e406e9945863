#include "plan/topologies/graph_text.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "plan/rational.h"
#include "plan/topologies/topology.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- fractions ---- */

static rp_status fail_fraction(const char *text) {
    return RP_FAIL(INVALID, "'%s' is no weight; 0.25, 1/3 and 1 are", text);
}

/* The continued fraction of the value, as far as needed: the simplest fraction within `far`. */
static rpi_rational simplest_near(double value, double far) {
    int64_t before = 1, times = (int64_t)value, over_before = 0, over = 1;
    double rest = value - (double)times;
    while (fabs((double)times / (double)over - value) > far && over < INT32_MAX && rest > 0) {
        double turned = 1 / rest;
        int64_t term = (int64_t)turned, next;
        rest = turned - (double)term;
        next = term * times + before;
        before = times;
        times = next;
        next = term * over + over_before;
        over_before = over;
        over = next;
    }
    return rpi_rational_of(times, over);
}

static rp_status parse_decimal(const char *text, rpi_rational *out_value) {
    enum { EXACT_DIGITS = 9 };
    const char *point = strchr(text, '.');
    size_t digits = point ? strlen(point + 1) : 0;
    char *end;
    double value = rpi_strtod(text, &end);
    if (*end || end == text || strspn(text, "-0123456789.") != strlen(text) || !(value < 1e9))
        return fail_fraction(text);
    if (value < 0)
        return RP_FAIL(INVALID, "the weight %s is negative; 0 or more are allowed", text);
    if (digits > EXACT_DIGITS) {
        *out_value = simplest_near(value, 0.5 * pow(10, -(double)(digits < 15 ? digits : 15)));
        return RP_OK;
    }
    int64_t over = 1;
    for (size_t i = 0; i < digits; i++) over *= 10;
    *out_value = rpi_rational_of(llround(value * (double)over), over);
    return RP_OK;
}

rp_status rpi_fraction_parse(const char *text, rpi_fraction *out_fraction) {
    const char *slash = strchr(text, '/');
    rpi_rational value = {0, 1};
    if (slash) {
        char *end, *last;
        long long times = strtoll(text, &end, 10), over = strtoll(slash + 1, &last, 10);
        if (end != slash || end == text || last == slash + 1 || *last || over <= 0)
            return fail_fraction(text);
        if (times < 0)
            return RP_FAIL(INVALID, "the weight %s is negative; 0 or more are allowed", text);
        value = rpi_rational_of(times, over);
    } else {
        RP_TRY(parse_decimal(text, &value));
    }
    if (value.times > INT32_MAX || value.over > INT32_MAX)
        return RP_FAIL(INVALID, "the weight %s has more than 31 bits", text);
    *out_fraction = (rpi_fraction){(int32_t)value.times, (int32_t)value.over};
    return RP_OK;
}

/* ---- lines ---- */

typedef enum form { NO_FORM, EDGES, MATRIX } form;

typedef struct reader {
    rpi_graph_text *graph;
    int ranks, line;
    form form;
    bool undirected, weighed, unweighed;
    rpi_weight_rule rule; /* GIVEN: none was named */
    int row;              /* of a matrix, in this round */
    int rounds_room;
} reader;

static rp_status append(reader *r, rpi_mixing_entry link) {
    rpi_graph_text *graph = r->graph;
    if (graph->used == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 64;
        RP_TRY(rpi_grow_array(graph->used, room, sizeof *graph->links, "edges of a file",
                              &graph->links));
        graph->room = room;
    }
    graph->links[graph->used++] = link;
    return RP_OK;
}

static rp_status begin_round(reader *r) {
    rpi_graph_text *graph = r->graph;
    if (graph->rounds + 2 > r->rounds_room) {
        int room = 2 * r->rounds_room + 8;
        RP_TRY(rpi_grow_array((size_t)r->rounds_room, (size_t)room, sizeof *graph->first,
                              "rounds of a file", &graph->first));
        r->rounds_room = room;
    }
    graph->first[graph->rounds++] = graph->used;
    graph->first[graph->rounds] = graph->used;
    r->row = 0;
    return RP_OK;
}

static rp_status end_round(reader *r) {
    if (r->form == MATRIX && r->row != r->ranks)
        return RP_FAIL(INVALID, "the matrix has %d rows for %d ranks", r->row, r->ranks);
    r->graph->first[r->graph->rounds] = r->graph->used;
    return RP_OK;
}

static rp_status parse_rank(const reader *r, const char *word, int *out_rank) {
    char *end;
    long rank = strtol(word, &end, 10);
    if (*end || end == word)
        return RP_FAIL(INVALID, "'%s' is no rank; an edge is FROM TO or FROM TO WEIGHT", word);
    if (rank < 0 || rank >= r->ranks)
        return RP_FAIL(INVALID, "rank %ld is not in a world of %d", rank, r->ranks);
    *out_rank = (int)rank;
    return RP_OK;
}

static rp_status read_edge(reader *r, char **words, int count) {
    rpi_mixing_entry link = {0};
    if (count < 2 || count > 3)
        return RP_FAIL(INVALID, "%d words; an edge is FROM TO or FROM TO WEIGHT", count);
    RP_TRY(parse_rank(r, words[0], &link.from));
    RP_TRY(parse_rank(r, words[1], &link.to));
    if (count == 3) RP_TRY(rpi_fraction_parse(words[2], &link.weight));
    *(count == 3 ? &r->weighed : &r->unweighed) = true;
    if (r->weighed && r->unweighed)
        return RP_FAIL(INVALID,
                       "some edges have weights and some have none; write all or none");
    RP_TRY(append(r, link));
    if (!r->undirected || link.from == link.to) return RP_OK;
    return append(r,
                  (rpi_mixing_entry){.to = link.from, .from = link.to, .weight = link.weight});
}

static rp_status read_row(reader *r, char **words, int count) {
    if (r->row >= r->ranks || count != r->ranks)
        return RP_FAIL(INVALID,
                       "row %d with %d numbers; %d ranks have as many rows and columns", r->row,
                       count, r->ranks);
    r->weighed = true;
    for (int column = 0; column < count; column++) {
        rpi_mixing_entry link = {.to = r->row, .from = column};
        RP_TRY(rpi_fraction_parse(words[column], &link.weight));
        if (link.weight.times || column == r->row) RP_TRY(append(r, link));
    }
    r->row++;
    return RP_OK;
}

static rp_status set_ranks(reader *r, const char *word) {
    char *end;
    long ranks = strtol(word, &end, 10);
    if (*end || end == word) return RP_FAIL(INVALID, "'%s' is no number of ranks", word);
    if (ranks == r->ranks) return RP_OK;
    return RP_FAIL(INVALID, "the graph is of %ld ranks; the world has %d", ranks, r->ranks);
}

static rp_status set_weights(reader *r, const char *word) {
    for (int rule = RPI_WEIGHTS_UNIFORM; rpi_weight_rule_name(rule); rule++)
        if (strcmp(rpi_weight_rule_name(rule), word) == 0) {
            r->rule = (rpi_weight_rule)rule;
            return RP_OK;
        }
    return RP_FAIL(INVALID, "weights '%s'; uniform, sender and metropolis-hastings are allowed",
                   word);
}

static rp_status set_form(reader *r, form wanted) {
    if (r->form)
        return RP_FAIL(INVALID, "a second list or matrix; write 'round' before a next");
    r->form = wanted;
    return begin_round(r);
}

static rp_status next_round(reader *r) {
    if (!r->form) return RP_FAIL(INVALID, "'round' before 'edges' or 'matrix'");
    RP_TRY(end_round(r));
    return begin_round(r);
}

static rp_status read_words(reader *r, char **words, int count) {
    const char *first = words[0];
    if (isdigit((unsigned char)*first) || *first == '-' || *first == '.') {
        if (!r->form)
            return RP_FAIL(INVALID, "numbers before a line that says 'edges' or 'matrix'");
        return r->form == EDGES ? read_edge(r, words, count) : read_row(r, words, count);
    }
    if (strcmp(first, "ranks") == 0 && count == 2) return set_ranks(r, words[1]);
    if (strcmp(first, "weights") == 0 && count == 2) return set_weights(r, words[1]);
    if (strcmp(first, "edges") == 0 && count == 1) return set_form(r, EDGES);
    if (strcmp(first, "matrix") == 0 && count == 1) return set_form(r, MATRIX);
    if (strcmp(first, "round") == 0 && count == 1) return next_round(r);
    if (strcmp(first, "undirected") == 0 && count == 1) {
        r->undirected = true;
        return r->form ? RP_FAIL(INVALID, "'undirected' stands before 'edges'") : RP_OK;
    }
    return RP_FAIL(INVALID,
                   "'%s' is none of: ranks N, weights RULE, undirected, edges, matrix, round",
                   first);
}

static rp_status read_line(reader *r, char *line, char **words) {
    char *comment = strchr(line, '#'), *rest = NULL;
    int count = 0;
    if (comment) *comment = '\0';
    for (char *word = strtok_r(line, " \t\r,", &rest); word;
         word = strtok_r(NULL, " \t\r,", &rest)) {
        if (count == RPI_TOPOLOGY_RANKS) return RP_FAIL(INVALID, "more than %d words", count);
        words[count++] = word;
    }
    return count ? read_words(r, words, count) : RP_OK;
}

static rp_status read_lines(reader *r, char *text, char **words) {
    rp_status status = RP_OK;
    for (char *line = text; line && status == RP_OK; r->line++) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        status = read_line(r, line, words);
        line = end ? end + 1 : NULL;
    }
    if (status == RP_OK && r->form) status = end_round(r);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "line %d: ", r->line);
}

/* Undirected edges have weights with which averages stay right, directed ones have not. */
static rp_status choose_rule(reader *r) {
    if (r->weighed && r->rule != RPI_WEIGHTS_GIVEN)
        return RP_FAIL(INVALID, "it names a rule for weights (%s), and gives weights",
                       rpi_weight_rule_name((int)r->rule));
    if (r->rule == RPI_WEIGHTS_GIVEN && !r->weighed)
        r->rule = r->undirected ? RPI_WEIGHTS_METROPOLIS : RPI_WEIGHTS_UNIFORM;
    r->graph->weights = r->rule;
    return RP_OK;
}

rp_status rpi_graph_text_read(char *text, int ranks, rpi_graph_text *out_graph) {
    reader r = {.graph = out_graph, .ranks = ranks};
    char **words = NULL;
    *out_graph = (rpi_graph_text){0};
    RP_TRY(rpi_alloc_array(RPI_TOPOLOGY_RANKS, sizeof *words, "a line of a graph", &words));
    rp_status status = read_lines(&r, text, words);
    rpi_free(words);
    RP_TRY(status);
    if (!r.form) return RP_FAIL(INVALID, "there is no line that says 'edges' or 'matrix'");
    return choose_rule(&r);
}

void rpi_graph_text_free(rpi_graph_text *graph) {
    rpi_free(graph->links);
    rpi_free(graph->first);
    *graph = (rpi_graph_text){0};
}
