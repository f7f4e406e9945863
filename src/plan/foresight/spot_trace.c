#include "plan/foresight/spot_trace.h"

#include "base/byte_order_mark.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CELLS = 16, MOST_LINES = 4000000, SECOND = 0, NODES, EVENT, NODE, COLUMNS };
static const char *const column_names[COLUMNS] = {"second", "nodes", "event", "node"};

/* A line of a trace of events. */
typedef struct event {
    const char *node;
    int line;
    bool joins;
} event;

typedef struct reader {
    int places[COLUMNS]; /* of the columns in a line; -1: absent */
    char *cells[MOST_CELLS];
    int cell_count, column_count, line;
    rpi_spot_change *changes;
    event *events;
    int count, event_count;
} reader;

/* ---- cells ---- */

static char *trim(char *text) {
    size_t length;
    text += strspn(text, " \t\r");
    for (length = strlen(text); length && strchr(" \t\r", text[length - 1]);) length--;
    text[length] = '\0';
    return text;
}

static rp_status split(reader *r, char *line) {
    for (r->cell_count = 0; line;) {
        char *comma = strchr(line, ',');
        if (r->cell_count == MOST_CELLS)
            return RP_FAIL(INVALID, "%d columns are the most", MOST_CELLS);
        if (comma) *comma = '\0';
        r->cells[r->cell_count++] = trim(line);
        line = comma ? comma + 1 : NULL;
    }
    return RP_OK;
}

static rp_status read_header(reader *r) {
    for (int c = 0; c < COLUMNS; c++) {
        r->places[c] = -1;
        for (int i = 0; i < r->cell_count; i++) {
            if (strcmp(r->cells[i], column_names[c]) != 0) continue;
            if (r->places[c] >= 0)
                return RP_FAIL(INVALID, "the column %s stands twice", column_names[c]);
            r->places[c] = i;
        }
    }
    bool counts = r->places[NODES] >= 0, tells = r->places[EVENT] >= 0 && r->places[NODE] >= 0;
    if (r->places[SECOND] < 0 || counts == tells)
        return RP_FAIL(INVALID, "columns are second,nodes or second,event,node");
    return RP_OK;
}

static rp_status cell(const reader *r, int column, const char **out) {
    int place = r->places[column];
    *out = place < r->cell_count ? r->cells[place] : "";
    return **out ? RP_OK : RP_FAIL(INVALID, "%s is empty", column_names[column]);
}

static rp_status number(const reader *r, int column, double most, double *out) {
    const char *text;
    RP_TRY(cell(r, column, &text));
    rp_status status = rpi_parse_real(text, out);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", column_names[column]);
    if (!(*out >= 0 && *out <= most))
        return RP_FAIL(INVALID, "%s: '%s' is not from 0 to %g", column_names[column], text,
                       most);
    return RP_OK;
}

/* ---- lines ---- */

/* The row of this second: the last one, or a new one that begins with its number of nodes. */
static rp_status row_of(reader *r, double second, rpi_spot_change **out) {
    rpi_spot_change next = {.second = second};
    if (r->count) {
        rpi_spot_change *last = &r->changes[r->count - 1];
        if (second < last->second)
            return RP_FAIL(INVALID, "second %.9g is before %.9g of a line above", second,
                           last->second);
        *out = last;
        if (second <= last->second) return RP_OK;
        next.alive = last->alive;
    }
    *out = &r->changes[r->count++];
    **out = next;
    return RP_OK;
}

static rp_status take_count(reader *r, rpi_spot_change *row) {
    double nodes;
    RP_TRY(number(r, NODES, 1e7, &nodes));
    if (nodes != floor(nodes)) return RP_FAIL(INVALID, "nodes: %g is no whole number", nodes);
    int64_t more = (int64_t)nodes - row->alive;
    row->joined += more > 0 ? more : 0;
    row->lost += more < 0 ? -more : 0;
    row->alive += more;
    return RP_OK;
}

static rp_status take_event(reader *r, rpi_spot_change *row) {
    const char *what;
    event *e = &r->events[r->event_count++];
    RP_TRY(cell(r, EVENT, &what));
    RP_TRY(cell(r, NODE, &e->node));
    e->line = r->line;
    e->joins = strcmp(what, "join") == 0;
    if (!e->joins && strcmp(what, "lost") != 0)
        return RP_FAIL(INVALID, "event: '%.40s' is not join or lost", what);
    row->joined += e->joins;
    row->lost += !e->joins;
    row->alive += e->joins ? 1 : -1;
    return RP_OK;
}

static rp_status take_line(reader *r, char *line, bool *has_header) {
    double second;
    rpi_spot_change *row;
    line = trim(line);
    if (!*line || *line == '#') return RP_OK;
    RP_TRY(split(r, line));
    if (!*has_header) {
        *has_header = true;
        r->column_count = r->cell_count;
        return read_header(r);
    }
    if (r->cell_count > r->column_count)
        return RP_FAIL(INVALID, "%d cells, and the first line names %d; numbers have no commas",
                       r->cell_count, r->column_count);
    RP_TRY(number(r, SECOND, 1e12, &second));
    RP_TRY(row_of(r, second, &row));
    return r->places[NODES] >= 0 ? take_count(r, row) : take_event(r, row);
}

/* ---- the whole ---- */

static int by_node(const void *a, const void *b) {
    const event *x = a, *y = b;
    int order = strcmp(x->node, y->node);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* A node may join, be lost, and join again, in this order. */
static rp_status check_events(reader *r) {
    if (r->event_count > 1)
        qsort(r->events, (size_t)r->event_count, sizeof *r->events, by_node);
    for (int i = 0; i < r->event_count; i++) {
        const event *e = &r->events[i], *before = i ? e - 1 : NULL;
        bool is_there = before && strcmp(before->node, e->node) == 0 && before->joins;
        if (e->joins == is_there)
            return RP_FAIL(INVALID, "line %d: node %.40s %s", e->line, e->node,
                           is_there ? "joins, and is there" : "is lost, and is not there");
    }
    return RP_OK;
}

static rp_status read_lines(reader *r, char *text) {
    bool has_header = false;
    text = rpi_after_byte_order_mark(text);
    for (r->line = 1; text; r->line++) {
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        rp_status status = take_line(r, text, &has_header);
        if (status != RP_OK) return rpi_fail_context(status, "line %d: ", r->line);
        text = end ? end + 1 : NULL;
    }
    RP_TRY(check_events(r));
    if (r->count < 2)
        return RP_FAIL(INVALID, "a trace needs two seconds at least: its last line is its end");
    return RP_OK;
}

rp_status rpi_spot_trace_parse(char *text, rpi_spot_trace *out) {
    reader r = {.count = 0};
    size_t lines = 1;
    for (const char *at = text; *at; at++) lines += *at == '\n';
    if (lines > MOST_LINES)
        return RP_FAIL(INVALID, "%zu lines; %d are the most", lines, MOST_LINES);
    RP_TRY(rpi_alloc_array(lines, sizeof *r.changes, "a trace", &r.changes));
    rp_status status = rpi_alloc_array(lines, sizeof *r.events, "events", &r.events);
    if (status == RP_OK) status = read_lines(&r, text);
    rpi_free(r.events);
    if (status != RP_OK) {
        rpi_free(r.changes);
        return status;
    }
    *out = (rpi_spot_trace){r.changes, r.count};
    return RP_OK;
}

rpi_spot_facts rpi_spot_trace_facts(const rpi_spot_trace *t) {
    rpi_spot_facts f = {.seconds = t->changes[t->count - 1].second - t->changes[0].second};
    for (int i = 0; i < t->count; i++) {
        const rpi_spot_change *c = &t->changes[i];
        double length_s = i + 1 < t->count ? c[1].second - c->second : 0;
        f.node_seconds += (double)c->alive * length_s;
        if (c->alive > f.most_nodes) f.most_nodes = c->alive;
        f.lost += c->lost;
        f.bursts += c->lost > 0;
        if (c->lost > f.largest_burst) f.largest_burst = c->lost;
    }
    return f;
}
