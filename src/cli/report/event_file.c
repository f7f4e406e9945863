#include "cli/report/event_file.h"

#include "net/bytes/frame.h"

#include <string.h>

enum { LONGEST_EVENT = 2048 };

/* Field numbers and wire types of event.proto and summary.proto. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,    /* double */
    EVENT_STEP = 2 << 3 | 0,         /* int64 */
    EVENT_FILE_VERSION = 3 << 3 | 2, /* string */
    EVENT_SUMMARY = 5 << 3 | 2,      /* message */
    SUMMARY_VALUE = 1 << 3 | 2,      /* message */
    VALUE_TAG = 1 << 3 | 2,          /* string */
    VALUE_SIMPLE = 2 << 3 | 5,       /* float */
};

typedef struct buffer {
    unsigned char bytes[LONGEST_EVENT];
    size_t used;
} buffer;

static void put_bytes(buffer *b, const void *bytes, size_t count) {
    memcpy(b->bytes + b->used, bytes, count);
    b->used += count;
}

static void put_varint(buffer *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) b->bytes[b->used++] = (unsigned char)(value | 0x80);
    b->bytes[b->used++] = (unsigned char)value;
}

static void put_text(buffer *b, int field, const char *text) {
    put_varint(b, (uint64_t)field);
    put_varint(b, strlen(text));
    put_bytes(b, text, strlen(text));
}

/* Least significant byte first on every machine. */
static void put_little(unsigned char *to, uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(bits >> (8 * i));
}

static void put_fixed(buffer *b, int field, uint64_t bits, int bytes) {
    put_varint(b, (uint64_t)field);
    put_little(b->bytes + b->used, bits, bytes);
    b->used += (size_t)bytes;
}

static void put_double(buffer *b, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(b, field, bits, 8);
}

static void put_float(buffer *b, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(b, field, bits, 4);
}

/* The checksum of data that contains a checksum would be weak, so TFRecord rotates it and adds
 * a constant. */
static uint32_t masked_crc(const void *bytes, size_t count) {
    uint32_t crc = rpi_crc32c(0, bytes, count);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void write_record(FILE *stream, const buffer *b) {
    unsigned char length[8], crc[4];
    put_little(length, b->used, 8);
    fwrite(length, 1, 8, stream);
    put_little(crc, masked_crc(length, 8), 4);
    fwrite(crc, 1, 4, stream);
    fwrite(b->bytes, 1, b->used, stream);
    put_little(crc, masked_crc(b->bytes, b->used), 4);
    fwrite(crc, 1, 4, stream);
}

void rpi_event_version(FILE *stream, double wall_time) {
    buffer b = {.used = 0};
    put_double(&b, EVENT_WALL_TIME, wall_time);
    put_text(&b, EVENT_FILE_VERSION, "brain.Event:2");
    write_record(stream, &b);
}

void rpi_event_scalars(FILE *stream, double wall_time, int64_t step, const rpi_scalar *scalars,
                       int count) {
    buffer event = {.used = 0}, summary = {.used = 0};
    for (int i = 0; i < count && i < RPI_EVENT_SCALARS; i++) {
        buffer value = {.used = 0};
        put_text(&value, VALUE_TAG, scalars[i].tag);
        put_float(&value, VALUE_SIMPLE, (float)scalars[i].value);
        put_varint(&summary, SUMMARY_VALUE);
        put_varint(&summary, value.used);
        put_bytes(&summary, value.bytes, value.used);
    }
    put_double(&event, EVENT_WALL_TIME, wall_time);
    put_varint(&event, EVENT_STEP);
    put_varint(&event, (uint64_t)step);
    put_varint(&event, EVENT_SUMMARY);
    put_varint(&event, summary.used);
    put_bytes(&event, summary.bytes, summary.used);
    write_record(stream, &event);
}
