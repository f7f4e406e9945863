#include "net/world/view_record.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rp_status rpi_member_name_check(const char *name) {
    size_t length = strlen(name);
    if (length < 1 || length >= RP_MEMBER_NAME)
        return RP_FAIL(INVALID, "member's name '%.40s' has %zu bytes; 1 to %d are allowed",
                       name, length, RP_MEMBER_NAME - 1);
    for (const char *at = name; *at; at++)
        if (*at < ' ' || *at > '~')
            return RP_FAIL(INVALID, "the member's name has a byte that is no printable ASCII "
                                    "character");
    if (name[0] == ' ')
        return RP_FAIL(INVALID, "the member's name '%s' begins with a blank", name);
    return RP_OK;
}

/* ---- writing ---- */

static size_t write_members(const rp_member *members, int count, char *text) {
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const rp_member *one = &members[i];
        used += (size_t)snprintf(text + used, RPI_STATEMENT_BYTES, "%" PRIu32 " %d %d %s\n",
                                 one->id, one->previous, (int)one->departure, one->name);
    }
    return used;
}

size_t rpi_view_record_write(const rpi_view_record *record, char *text) {
    size_t used =
        (size_t)snprintf(text, RPI_STATEMENT_BYTES, "%" PRIu32 " %" PRIu32 " %d %d\n",
                         record->number, record->first, record->count, record->left_count);
    used += write_members(record->members, record->count, text + used);
    return used + write_members(record->left, record->left_count, text + used);
}

void rpi_statement_write(const rpi_statement *statement, char text[RPI_STATEMENT_BYTES]) {
    snprintf(text, RPI_STATEMENT_BYTES, "%" PRIu64 " %" PRIu32 " %d %d %s", statement->beats,
             statement->making, statement->lost, statement->leaving, statement->name);
}

/* ---- reading ---- */

/* A number within limits, and the byte behind it. */
static bool take_number(const char **text, int64_t least, int64_t most, char behind,
                        int64_t *out_value) {
    char *end = NULL;
    bool is_number = (**text >= '0' && **text <= '9') ||
                     (**text == '-' && (*text)[1] >= '0' && (*text)[1] <= '9');
    errno = 0;
    *out_value = strtoll(*text, &end, 10);
    if (!is_number || errno || *out_value < least || *out_value > most || *end != behind)
        return false;
    *text = end + 1;
    return true;
}

/* Up to the byte that ends it. */
static bool take_name(const char **text, char behind, char name[RP_MEMBER_NAME]) {
    size_t length = 0;
    while ((*text)[length] && (*text)[length] != behind) length++;
    if (length < 1 || length >= RP_MEMBER_NAME || (*text)[length] != behind) return false;
    memset(name, 0, RP_MEMBER_NAME); /* views are the same on all members, to the last byte */
    memcpy(name, *text, length);
    *text += length + (behind != '\0');
    return rpi_member_name_check(name) == RP_OK;
}

static bool take_members(const char **text, int count, bool stay, rp_member *members) {
    for (int i = 0; i < count; i++) {
        int64_t id = 0, previous = 0, departure = 0;
        if (!take_number(text, 1, UINT32_MAX, ' ', &id) ||
            !take_number(text, stay ? -1 : 0, RP_WORLD_MOST - 1, ' ', &previous) ||
            !take_number(text, stay ? RP_MEMBER_STAYS : RP_MEMBER_LEFT,
                         stay ? RP_MEMBER_STAYS : RP_MEMBER_LATE, ' ', &departure) ||
            !take_name(text, '\n', members[i].name))
            return false;
        members[i].id = (uint32_t)id;
        members[i].previous = (int)previous;
        members[i].departure = (rp_departure)departure;
    }
    return true;
}

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool are_different(const rpi_view_record *record) {
    uint32_t ids[2 * RP_WORLD_MOST];
    int count = 0;
    for (int i = 0; i < record->count; i++) ids[count++] = record->members[i].id;
    for (int i = 0; i < record->left_count; i++) ids[count++] = record->left[i].id;
    qsort(ids, (size_t)count, sizeof ids[0], compare_ids);
    for (int i = 1; i < count; i++)
        if (ids[i] == ids[i - 1]) return false;
    return true;
}

rp_status rpi_view_record_read(const char *text, rpi_view_record *out_record) {
    int64_t number = 0, first = 0, count = 0, left = 0;
    out_record->number = out_record->first = 0;
    out_record->count = out_record->left_count = 0;
    if (!*text) return RP_OK;
    bool good = take_number(&text, 1, UINT32_MAX, ' ', &number) &&
                take_number(&text, 0, UINT32_MAX, ' ', &first) &&
                take_number(&text, 1, RP_WORLD_MOST, ' ', &count) &&
                take_number(&text, 0, RP_WORLD_MOST, '\n', &left) &&
                take_members(&text, (int)count, true, out_record->members) &&
                take_members(&text, (int)left, false, out_record->left) && !*text;
    if (!good) return RP_FAIL(CORRUPT, "what the store has as a view is none");
    out_record->number = (uint32_t)number;
    out_record->first = (uint32_t)first;
    out_record->count = (int)count;
    out_record->left_count = (int)left;
    if (!are_different(out_record))
        return RP_FAIL(CORRUPT, "the store's view %" PRIu32 " has a member twice",
                       out_record->number);
    return RP_OK;
}

rp_status rpi_statement_read(const char *text, rpi_statement *out_statement) {
    int64_t beats = 0, making = 0, lost = 0, leaving = 0;
    bool good = take_number(&text, 0, INT64_MAX, ' ', &beats) &&
                take_number(&text, 0, UINT32_MAX, ' ', &making) &&
                take_number(&text, -1, RP_WORLD_MOST - 1, ' ', &lost) &&
                take_number(&text, 0, 1, ' ', &leaving) &&
                take_name(&text, '\0', out_statement->name);
    if (!good) return RP_FAIL(CORRUPT, "what the store has of a member is no statement");
    out_statement->beats = (uint64_t)beats;
    out_statement->making = (uint32_t)making;
    out_statement->lost = (int)lost;
    out_statement->leaving = leaving != 0;
    return RP_OK;
}

int rpi_view_record_find(const rpi_view_record *record, uint32_t id) {
    for (int rank = 0; rank < record->count; rank++)
        if (record->members[rank].id == id) return rank;
    return -1;
}

uint32_t rpi_view_record_candidate(const rpi_view_record *record, uint32_t from) {
    uint32_t next = from > record->first ? from : record->first;
    for (int rank = 0; rank < record->count; rank++) {
        uint32_t id = record->members[rank].id;
        if (id >= from && id < next) next = id;
    }
    return next;
}
