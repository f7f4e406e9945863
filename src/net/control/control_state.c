/* Which states of the control connection may follow which; its header has a picture. Records
 * from other ranks cause no other transition: a welcome that is repeated or late is ignored, or
 * leaves a follower a follower. */
#include "net/control/control_state.h"

#include "base/states.h"

static const rpi_states phases[] = {
    [RPI_CONTROL_OPENING] = RPI_STATE(RPI_CONTROL_OPEN) | RPI_STATE(RPI_CONTROL_GIVEN_UP),
    [RPI_CONTROL_OPEN] = RPI_STATE(RPI_CONTROL_CLOSING),
    [RPI_CONTROL_CLOSING] = 0,
    [RPI_CONTROL_GIVEN_UP] = 0,
};

static const rpi_states duties[] = {
    [RPI_CONTROL_GATHERS] = RPI_STATE(RPI_CONTROL_SERVES) | RPI_STATE(RPI_CONTROL_LEAVES),
    [RPI_CONTROL_SERVES] = RPI_STATE(RPI_CONTROL_LEAVES),
    [RPI_CONTROL_LEAVES] = 0,
};

static const rpi_states roles[] = {
    [RPI_CONTROL_LEADS] = RPI_STATE(RPI_CONTROL_SEEKS),
    [RPI_CONTROL_FOLLOWS] = RPI_STATE(RPI_CONTROL_FOLLOWS) | RPI_STATE(RPI_CONTROL_SEEKS),
    [RPI_CONTROL_SEEKS] = RPI_STATE(RPI_CONTROL_LEADS) | RPI_STATE(RPI_CONTROL_CALLS) |
                          RPI_STATE(RPI_CONTROL_ALONE),
    [RPI_CONTROL_CALLS] = RPI_STATE(RPI_CONTROL_FOLLOWS) | RPI_STATE(RPI_CONTROL_SEEKS),
    [RPI_CONTROL_ALONE] = 0,
};

void rpi_control_enter_phase(rpi_control *control, rpi_control_phase phase) {
    RPI_ENTER(phases, control->phase, phase);
}

void rpi_control_enter_duty(rpi_control *control, rpi_control_duty duty) {
    RPI_ENTER(duties, control->duty, duty);
}

void rpi_control_enter_role(rpi_control *control, rpi_control_role role) {
    RPI_ENTER(roles, control->role, role);
}

bool rpi_control_is_welcome(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool welcome = rpi_control_was_open(control);
    pthread_mutex_unlock(&control->lock);
    return welcome;
}
