#include "net/bytes/frame_kinds.h"

#define ANY      UINT32_MAX
#define JOINING  RPI_FRAME_JOINING
#define AROUND   RPI_FRAME_AROUND
#define TALKING  RPI_FRAME_TALKING
#define EITHER   RPI_FRAME_FROM_EITHER
#define SENDER   RPI_FRAME_FROM_SENDER
#define RECEIVER RPI_FRAME_FROM_RECEIVER
#define NUMBERER RPI_FRAME_FROM_NUMBERER

/* clang-format off */
const rpi_frame_rule rpi_frame_rules[RPI_FRAME_KINDS_END] = {
    /*                      name        comes to  from     payload  elements answered */
    [RPI_FRAME_DATA]     = {"data",     TALKING, EITHER,    0, ANY, true,  true},
    [RPI_FRAME_HELLO]    = {"hello",    JOINING, EITHER,    0, 0,   false, false},
    [RPI_FRAME_TIMED]    = {"timed",    AROUND,  EITHER,    1, ANY, false, false},
    [RPI_FRAME_ANNOUNCE] = {"announce", TALKING, SENDER,    0, 0,   false, true},
    [RPI_FRAME_EAGER]    = {"eager",    TALKING, EITHER,    0, ANY, true,  true},
    [RPI_FRAME_ASK]      = {"ask",      TALKING, SENDER,    0, 0,   false, true},
    [RPI_FRAME_GRANT]    = {"grant",    TALKING, RECEIVER,  0, 0,   false, false},
    [RPI_FRAME_CREDIT]   = {"credit",   TALKING, RECEIVER,  0, 0,   false, false},
    [RPI_FRAME_EXPECT]   = {"expect",   TALKING, RECEIVER,  0, 0,   false, true},
    [RPI_FRAME_PASSED]   = {"passed",   TALKING, SENDER,    0, 0,   false, false},
    [RPI_FRAME_LEFT]     = {"left",     TALKING, EITHER,    0, 0,   false, false},
    [RPI_FRAME_WINDOW]   = {"window",   TALKING, EITHER,    0, ANY, false, false},
    [RPI_FRAME_NUMBER]   = {"number",   TALKING, NUMBERER,  4, ANY, false, false},
    [RPI_FRAME_THERE]    = {"there",    TALKING, EITHER,    0, 0,   false, true},
};
/* clang-format on */
