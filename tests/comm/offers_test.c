/* Numbers that another rank offers: which can be, how many are kept, and what takes them back.
 */
#include "comm/protocol/offers.h"

#include "harness/check.h"

enum { WORLD = 3, FROM = 2, MOST_OFFERS = 16384, MOST_BYTES = 64 << 20 };

static rpi_connection connections[WORLD];
static rpi_context context;

static void begin(void) {
    memset(connections, 0, sizeof connections);
    context = (rpi_context){.rank = 0, .world = WORLD, .connections = connections};
}

static rp_status offer(uint32_t numberer, uint32_t number) {
    static const char identity[] = "members and a name";
    rpi_frame_header header = {.kind = RPI_FRAME_NUMBER,
                               .communicator = numberer,
                               .epoch = number,
                               .bytes = sizeof identity};
    return rpi_offer_take(&context, FROM, &header, identity);
}

static void they_are_found_until_they_are_taken_back(void) {
    begin();
    for (uint32_t number = 1; number <= 3; number++) REQUIRE_OK(offer(FROM + 1, number));
    CHECK_EQ(context.offer_count, 3);
    CHECK_EQ(connections[FROM].offered, 3);
    const rpi_offer *second = rpi_offer_find(&context, FROM + 1, 2);
    REQUIRE(second);
    CHECK_EQ(second->number, 2);
    CHECK(!rpi_offer_find(&context, FROM, 2) && !rpi_offer_find(&context, FROM + 1, 4));
    rpi_offer_take_back(&context, FROM + 1, 2);
    CHECK(!rpi_offer_find(&context, FROM + 1, 2));
    CHECK(rpi_offer_find(&context, FROM + 1, 1) && rpi_offer_find(&context, FROM + 1, 3));
    CHECK_EQ(context.offer_count, 2);
    rpi_offer_take_back(&context, FROM + 1, 1);
    rpi_offer_take_back(&context, FROM + 1, 3);
    CHECK_EQ(context.offer_count, 0);
    CHECK_EQ(context.offer_bytes, 0);
    rpi_offers_free(&context);
}

static void numbers_go_up_and_are_the_ranks_own(void) {
    begin();
    REQUIRE_OK(offer(FROM + 1, 5));
    CHECK_FAILS(offer(FROM + 1, 5), MISMATCH, "rank 2 offered the number 5");
    CHECK_FAILS(offer(FROM + 1, 4), MISMATCH, "whose last was 5");
    CHECK_FAILS(offer(FROM, 6), MISMATCH, "of communicators of 2");
    CHECK_FAILS(offer(FROM + 1, RPI_NUMBER_MAX + 1), MISMATCH, "rank 2 offered the number");
    REQUIRE_OK(offer(FROM + 1, RPI_NUMBER_MAX));
    rpi_offers_free(&context);
}

static void too_many_are_refused(void) {
    begin();
    context.offer_count = MOST_OFFERS - 1;
    REQUIRE_OK(offer(FROM + 1, 1));
    CHECK_FAILS(offer(FROM + 1, 2), MISMATCH, "while 16384 are being made");
    rpi_offers_free(&context);
    begin();
    context.offer_bytes = MOST_BYTES;
    REQUIRE_OK(offer(FROM + 1, 1));
    CHECK_FAILS(offer(FROM + 1, 2), MISMATCH, "rank 2 began with a communicator");
    rpi_offers_free(&context);
}

CASES({"they are found until they are taken back", they_are_found_until_they_are_taken_back},
      {"numbers go up and are the rank's own", numbers_go_up_and_are_the_ranks_own},
      {"too many are refused", too_many_are_refused})
