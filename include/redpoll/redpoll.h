/** Everything public of Redpoll in one include. */
#ifndef REDPOLL_REDPOLL_H
#define REDPOLL_REDPOLL_H

#include "redpoll/adaptive.h"
#include "redpoll/buffer.h"
#include "redpoll/codec.h"
#include "redpoll/codec_comparison.h"
#include "redpoll/comm.h"
#include "redpoll/dtype.h"
#include "redpoll/gossip.h"
#include "redpoll/local_sgd.h"
#include "redpoll/log.h"
#include "redpoll/parameter_server.h"
#include "redpoll/place.h"
#include "redpoll/rng.h"
#include "redpoll/status.h"
#include "redpoll/store.h"
#include "redpoll/version.h"
#include "redpoll/view.h"
#include "redpoll/window.h"

#endif
