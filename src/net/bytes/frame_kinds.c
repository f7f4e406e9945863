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
    /*                         name           comes to  from     payload  elements answered */
    [RPI_FRAME_DATA]        = {"data",        TALKING, EITHER,    0, ANY, true,  true},
    [RPI_FRAME_HELLO]       = {"hello",       JOINING, EITHER,    0, 0,   false, false},
    [RPI_FRAME_TIMED]       = {"timed",       AROUND,  EITHER,    1, ANY, false, false},
    [RPI_FRAME_RTS]         = {"RTS",         TALKING, SENDER,    0, 0,   false, true},
    [RPI_FRAME_EAGER]       = {"eager",       TALKING, EITHER,    0, ANY, true,  true},
    [RPI_FRAME_CTS_REQUEST] = {"CTS request", TALKING, SENDER,    0, 0,   false, true},
    [RPI_FRAME_CTS]         = {"CTS",         TALKING, RECEIVER,  0, 0,   false, false},
    [RPI_FRAME_CREDIT]      = {"credit",      TALKING, RECEIVER,  0, 0,   false, false},
    [RPI_FRAME_PROBE]       = {"probe",       TALKING, RECEIVER,  0, 0,   false, true},
    [RPI_FRAME_REJECT]      = {"reject",      TALKING, SENDER,    0, 0,   false, false},
    [RPI_FRAME_FIN]         = {"FIN",         TALKING, EITHER,    0, 0,   false, false},
    [RPI_FRAME_WINDOW]      = {"window",      TALKING, EITHER,    0, ANY, false, false},
    [RPI_FRAME_NUMBER]      = {"number",      TALKING, NUMBERER,  4, ANY, false, false},
    [RPI_FRAME_PING]        = {"ping",        TALKING, EITHER,    0, 0,   false, true},
};
/* clang-format on */
