#include "net/bytes/frame.h"

#include "base/rng.h"
#include "harness/check.h"

enum { BYTES = 20000 };

static unsigned char data[BYTES + 64];

static void fill(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)rpi_rng_u32(&rng);
}

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *at, size_t bytes) {
    crc = ~crc;
    while (bytes-- > 0) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
    }
    return ~crc;
}

/* RFC 3720, appendix B.4, and the check value of the CRC catalogues. */
static void crc_has_the_known_answers(void) {
    unsigned char bytes[32];
    CHECK_EQ(rpi_crc32c(0, "123456789", 9), 0xe3069283U);
    CHECK_EQ(rpi_crc32c(0, "", 0), 0);
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(rpi_crc32c(0, bytes, sizeof bytes), 0x8a9136aaU);
    memset(bytes, 255, sizeof bytes);
    CHECK_EQ(rpi_crc32c(0, bytes, sizeof bytes), 0x62a8ab43U);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    CHECK_EQ(rpi_crc32c(0, bytes, sizeof bytes), 0x46dd794eU);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    CHECK_EQ(rpi_crc32c(0, bytes, sizeof bytes), 0x113fdb5cU);
}

static void crc_is_the_definition_at_any_length_and_alignment(void) {
    static const size_t lengths[] = {0,    1,    2,    7,     8,     9,     63,    64,
                                     255,  767,  768,  769,   775,   1536,  6143,  6144,
                                     6145, 6911, 6912, 12288, 12289, 13057, 19999, 20000};
    fill();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (size_t shift = 0; shift < 9; shift++)
            CHECK_MSG(rpi_crc32c(5, data + shift, lengths[i]) ==
                          bit_by_bit(5, data + shift, lengths[i]),
                      "%zu bytes at %zu", lengths[i], shift);
}

static void crc_goes_on_where_it_stopped(void) {
    fill();
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    uint32_t whole = rpi_crc32c(0, data, BYTES);
    for (int i = 0; i < 200; i++) {
        size_t cut = rpi_rng_below(&rng, BYTES + 1);
        CHECK_EQ(rpi_crc32c(rpi_crc32c(0, data, cut), data + cut, BYTES - cut), whole);
    }
}

static const rpi_frame_header full = {.key = 0x2b2c2d2e,
                                      .kind = RPI_FRAME_DATA,
                                      .round = 0x0102,
                                      .communicator = 0x03040506,
                                      .epoch = 0x0708090a,
                                      .sequence = 0x0b0c0d0e0f101112,
                                      .chunk = 0x13141516,
                                      .part = -2,
                                      .count = 0x1718191a1b1c1d1e,
                                      .signature = 0x1f202122,
                                      .operation = 0x23,
                                      .dtype = 0x24,
                                      .codec = 0x25,
                                      .bits = 0x26,
                                      .bucket = 0x2728292a};

/* docs/wire.md, byte by byte. */
static void a_sealed_frame_has_the_documented_bytes(void) {
    static const unsigned char wanted[56] = {
        0x2e, 0x2d, 0x2c, 0x2b, 3,    1,    0x02, 0x01, 0x06, 0x05, 0x04, 0x03, 0x0a, 0x09,
        0x08, 0x07, 0x12, 0x11, 0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x16, 0x15, 0x14, 0x13,
        0xfe, 0xff, 0xff, 0xff, 0x1e, 0x1d, 0x1c, 0x1b, 0x1a, 0x19, 0x18, 0x17, 0x22, 0x21,
        0x20, 0x1f, 0x23, 0x24, 0x25, 0x26, 0x2a, 0x29, 0x28, 0x27, 9,    0,    0,    0};
    unsigned char frame[80];
    memcpy(frame + 64, "123456789", 9);
    rpi_frame_seal(frame, &full, 9, true);
    for (int i = 0; i < 56; i++) CHECK_MSG(frame[i] == wanted[i], "byte %d is %d", i, frame[i]);
    CHECK(memcmp(frame + 56, "\x83\x92\x06\xe3", 4) == 0);
    uint32_t crc = bit_by_bit(bit_by_bit(0, (const unsigned char *)"RPLL", 4), frame, 60);
    CHECK(memcmp(frame + 60, &crc, 4) == 0);
    rpi_frame_seal(frame, &full, 9, false);
    CHECK(memcmp(frame + 56, "\0\0\0\0", 4) == 0);
}

static void kinds_are_those_of_the_table(void) {
    unsigned char frame[64];
    for (int kind = 0; kind < 256; kind++) {
        rpi_frame_header header = full, got;
        header.kind = (uint8_t)kind;
        rpi_frame_seal(frame, &header, 0, true);
        CHECK_EQ(rpi_frame_open(frame, sizeof frame, true, &got),
                 kind >= 1 && kind < RPI_FRAME_KINDS_END ? RP_OK : RP_CORRUPT);
    }
}

/* Of the line of docs/wire.md that numbers them: "1 data, 2 hello, ..." */
static void read_names(char *line, size_t bytes) {
    FILE *file = fopen(WIRE_DOCUMENT, "r");
    line[0] = '\0';
    while (file && fgets(line, (int)bytes, file) && !strstr(line, "| kind | 1 data")) continue;
    if (file) fclose(file);
}

static void kinds_have_the_names_of_the_document(void) {
    char line[2000], wanted[64];
    read_names(line, sizeof line);
    for (int kind = 1; kind < RPI_FRAME_KINDS_END; kind++) {
        const rpi_frame_rule *rule = rpi_frame_rule_of(kind);
        REQUIRE(rule && rule->name);
        snprintf(wanted, sizeof wanted, " %d %s%s", kind, rule->name,
                 kind + 1 < RPI_FRAME_KINDS_END ? "," : " |");
        CHECK_MSG(strstr(line, wanted), "docs/wire.md does not have '%s'", wanted);
    }
    CHECK(!rpi_frame_rule_of(0) && !rpi_frame_rule_of(RPI_FRAME_KINDS_END));
    CHECK(!rpi_frame_rule_of(-1));
}

/* Each kind in each state of a link: what a new kind may do is said here, too. */
typedef struct arrival {
    rpi_frame_kind kind;
    rpi_link_phase phase;
    bool empty, full; /* it may come without a payload, and with one */
} arrival;

static const arrival arrivals[] = {
    {RPI_FRAME_HELLO, RPI_FRAME_JOINING, true, false},
    {RPI_FRAME_TIMED, RPI_FRAME_AROUND, false, true},
    {RPI_FRAME_DATA, RPI_FRAME_TALKING, true, true},
    {RPI_FRAME_RTS, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_EAGER, RPI_FRAME_TALKING, true, true},
    {RPI_FRAME_CTS_REQUEST, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_CTS, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_CREDIT, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_PROBE, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_REJECT, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_FIN, RPI_FRAME_TALKING, true, false},
    {RPI_FRAME_WINDOW, RPI_FRAME_TALKING, true, true},
    {RPI_FRAME_NUMBER, RPI_FRAME_TALKING, false, true},
    {RPI_FRAME_PING, RPI_FRAME_TALKING, true, false},
};
enum { ARRIVALS = sizeof arrivals / sizeof arrivals[0] };

static void kinds_come_where_they_may(void) {
    bool seen[RPI_FRAME_KINDS_END] = {false};
    for (int i = 0; i < ARRIVALS; i++)
        for (rpi_link_phase phase = RPI_FRAME_JOINING; phase <= RPI_FRAME_TALKING; phase++) {
            const arrival *row = &arrivals[i];
            rpi_frame_header header = {.kind = (uint8_t)row->kind};
            seen[row->kind] = true;
            CHECK_EQ(rpi_frame_may_come(&header, phase), row->phase == phase && row->empty);
            header.bytes = 4;
            CHECK_EQ(rpi_frame_may_come(&header, phase), row->phase == phase && row->full);
        }
    for (int kind = 1; kind < RPI_FRAME_KINDS_END; kind++)
        CHECK_MSG(seen[kind], "kind %d has no row in `arrivals`", kind);
    for (int kind = RPI_FRAME_KINDS_END; kind < 256; kind++)
        CHECK(
            !rpi_frame_may_come(&(rpi_frame_header){.kind = (uint8_t)kind}, RPI_FRAME_TALKING));
}

static void what_was_sealed_opens(void) {
    unsigned char frame[64 + 300];
    fill();
    for (size_t bytes = 0; bytes <= 300; bytes++)
        for (int checksum = 0; checksum < 2; checksum++) {
            memcpy(frame + 64, data, bytes);
            rpi_frame_seal(frame, &full, bytes, checksum);
            rpi_frame_header got;
            REQUIRE_OK(rpi_frame_open(frame, 64 + bytes, checksum, &got));
            CHECK_EQ(got.bytes, bytes);
            CHECK_EQ(got.sequence, full.sequence);
            CHECK_EQ(got.part, full.part);
        }
}

static void any_flipped_bit_is_noticed(void) {
    unsigned char frame[64 + 100];
    fill();
    memcpy(frame + 64, data, 100);
    rpi_frame_seal(frame, &full, 100, true);
    for (size_t bit = 0; bit < 8 * sizeof frame; bit++) {
        rpi_frame_header got = {.key = 7};
        frame[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_MSG(rpi_frame_open(frame, sizeof frame, true, &got) == RP_CORRUPT, "bit %zu",
                  bit);
        CHECK_EQ(got.key, 7);
        frame[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void damage_is_named(void) {
    unsigned char frame[64 + 9] = {0};
    rpi_frame_header got;
    CHECK_FAILS(rpi_frame_open("GET / HTTP/1.1\r\n", 16, true, &got), CORRUPT, "shorter");
    memset(frame, 'G', sizeof frame);
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame, true, &got), CORRUPT, "no frame");
    rpi_frame_seal(frame, &full, 9, true);
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame - 1, true, &got), CORRUPT,
                "says 9 bytes of payload and carries 8");
    frame[64] ^= 1;
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame, true, &got), CORRUPT, "payload is damaged");
    CHECK_OK(rpi_frame_open(frame, sizeof frame, false, &got));
    frame[20] ^= 1;
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame, false, &got), CORRUPT, "header is damaged");
    rpi_frame_header odd = full;
    odd.kind = RPI_FRAME_KINDS_END;
    rpi_frame_seal(frame, &odd, 9, true);
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame, true, &got), CORRUPT, "unknown kind 15");
    rpi_frame_seal(frame, &full, 9, true);
    frame[4] = 1;
    CHECK_FAILS(rpi_frame_open(frame, sizeof frame, true, &got), CORRUPT, "version 1");
}

/* A ring of more than 8,192 ranks has more rounds than the field has room for. */
static void rounds_leave_the_flags_alone(void) {
    const unsigned flags = RPI_FRAME_EXACT | RPI_FRAME_BEFORE_OPEN;
    for (unsigned round = 0; round < 1u << 16; round++) {
        unsigned said = rpi_frame_round(round);
        CHECK((said & flags) == 0 && (round > RPI_FRAME_ROUNDS || said == round));
    }
}

CASES({"rounds_leave_the_flags_alone", rounds_leave_the_flags_alone},
      {"crc_has_the_known_answers", crc_has_the_known_answers},
      {"crc_is_the_definition_at_any_length_and_alignment",
       crc_is_the_definition_at_any_length_and_alignment},
      {"crc_goes_on_where_it_stopped", crc_goes_on_where_it_stopped},
      {"a_sealed_frame_has_the_documented_bytes", a_sealed_frame_has_the_documented_bytes},
      {"kinds_are_those_of_the_table", kinds_are_those_of_the_table},
      {"kinds_have_the_names_of_the_document", kinds_have_the_names_of_the_document},
      {"kinds_come_where_they_may", kinds_come_where_they_may},
      {"what_was_sealed_opens", what_was_sealed_opens},
      {"any_flipped_bit_is_noticed", any_flipped_bit_is_noticed},
      {"damage_is_named", damage_is_named})
