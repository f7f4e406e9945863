"""The C interface of include/redpoll/*.h for ctypes: constants, structures, functions.

Nothing here is said twice: what a function does, blocks on and leaves true is in the headers.
Names are those of C. A test compiles the headers and compares every size, offset and constant.
Functions are bound at their first use. They release the GIL while they run, but for `QUICK`.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

from ._library import load, quick

# ---- constants ----

STATUS = {
    "OK": 0,
    "PENDING": 1,
    "INVALID": -1,
    "NOMEM": -2,
    "IO": -3,
    "TIMEOUT": -4,
    "PEER": -5,
    "MISMATCH": -6,
    "CORRUPT": -7,
    "UNSUPPORTED": -8,
    "NOT_FOUND": -9,
    "STATE": -10,
    "CANCELLED": -11,
    "INTERNAL": -12,
}
RP_OK, RP_PENDING = STATUS["OK"], STATUS["PENDING"]
RP_INVALID, RP_IO, RP_TIMEOUT = STATUS["INVALID"], STATUS["IO"], STATUS["TIMEOUT"]
RP_UNSUPPORTED, RP_STATE = STATUS["UNSUPPORTED"], STATUS["STATE"]
RP_MISMATCH = STATUS["MISMATCH"]
RP_CANCELLED = STATUS["CANCELLED"]

DTYPES = {
    "F32": 1,
    "F16": 2,
    "BF16": 3,
    "F64": 4,
    "I8": 5,
    "U8": 6,
    "I16": 7,
    "I32": 8,
    "I64": 9,
    "U16": 10,
    "U32": 11,
    "U64": 12,
    "BOOL": 13,
    "C64": 14,
    "C128": 15,
}

MEMORIES = {"HOST": 0, "CUDA": 1}

PRIORITIES = {"DEFAULT": 0, "BULK": 1, "NORMAL": 2, "URGENT": 3}

REDUCTIONS = {
    "SUM": 0,
    "AVG": 1,
    "PRODUCT": 2,
    "MIN": 3,
    "MAX": 4,
    "BAND": 5,
    "BOR": 6,
    "BXOR": 7,
    "PREMUL_SUM": 8,
}

# ---- structures ----


class rp_error(Structure):
    _fields_ = [
        ("status", c_int),
        ("message", c_char_p),
        ("file", c_char_p),
        ("line", c_int),
    ]


class rp_codec(Structure):
    _fields_ = [
        ("kind", c_void_p),
        ("bucket", c_uint32),
        ("bits", c_uint8),
        ("rounding", c_uint8),
        ("option", c_uint32 * 2),
    ]


class rp_adaptive_codec(Structure):
    _fields_ = [("codec", rp_codec), ("every", c_int64), ("fastest", c_int)]


RP_LOG_LINE = 1200
RP_ADAPTIVE_TEXT, RP_LEVELS = 96, 33
RP_MEASURED = 2 * RP_LEVELS


class rp_level_choice(Structure):
    _fields_ = [("measured", c_double * RP_MEASURED), ("level", c_int)]


RP_TRIAL_STEPS, RP_TRIAL_EXACT, RP_TRIAL_OVER = 6, 0, -1


class rp_step_trial(Structure):
    _fields_ = [
        ("steps", c_int),
        ("began_s", c_double),
        ("seconds", (c_double * RP_TRIAL_STEPS) * 2),
    ]


RP_COMPARISON_TEXT, RP_LOSSY_NEVER = 256, c_size_t(-1).value


class rp_codec_comparison(Structure):
    _fields_ = [
        ("lossy_from", c_size_t),
        ("count", c_size_t),
        ("exact_s", c_double),
        ("lossy_s", c_double),
        ("sent_bytes_s", c_double),
    ]


StoreSet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_double, c_void_p, c_size_t, POINTER(c_size_t))
StoreAdd = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_int64))
StoreRemove = CFUNCTYPE(c_int, c_void_p, c_char_p)
PlaceGet = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
Partner = CFUNCTYPE(c_int, c_void_p, c_uint64, c_int)
StoreClose = CFUNCTYPE(None, c_void_p)
StoreGetPage = CFUNCTYPE(
    c_int,
    c_void_p,
    c_char_p,
    c_int,
    c_int,
    c_double,
    c_void_p,
    c_size_t,
    POINTER(c_size_t),
    POINTER(c_int),
)


StoreCompareSet = CFUNCTYPE(
    c_int,
    c_void_p,
    c_char_p,
    c_void_p,
    c_size_t,
    c_void_p,
    c_size_t,
    c_void_p,
    c_size_t,
    POINTER(c_size_t),
)


class rp_store_ops(Structure):
    _fields_ = [
        ("set", StoreSet),
        ("get", StoreGet),
        ("add", StoreAdd),
        ("remove", StoreRemove),
        ("close", StoreClose),
        ("get_page", StoreGetPage),
        ("compare_set", StoreCompareSet),
    ]


class rp_place(Structure):
    _fields_ = [
        ("rank", c_int),
        ("world", c_int),
        ("local_rank", c_int),
        ("local_world", c_int),
        ("one_host", c_int),
        ("port", c_int),
        ("found_by", c_char * 64),
        ("host", c_char * 256),
        ("job", c_char * 192),
    ]


class rp_store(Structure):
    _fields_ = [("ops", POINTER(rp_store_ops)), ("context", c_void_p)]


class Sized(Structure):
    """Options that begin with their size, as RP_COMM_OPTIONS() and its kin do in C."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.size = sizeof(self)


class rp_comm_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("transport", c_char_p),
        ("bind_host", c_char_p),
        ("link", c_char_p),
        ("connect_timeout_s", c_double),
        ("timeout_s", c_double),
        ("strict_timeout", c_int),
        ("warn_after_s", c_double),
        ("progress_thread", c_int),
        ("chunk_bytes", c_uint32),
        ("chunks_in_flight", c_uint32),
        ("epoch", c_uint32),
        ("host", c_char_p),
        ("tls", c_int),
        ("priority", c_int),
        ("memory", c_int),
    ]


class rp_group(Structure):
    _fields_ = [
        ("ranks", POINTER(c_int)),
        ("count", c_int),
        ("options", POINTER(rp_comm_options)),
    ]


class rp_block(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t)]


class rp_segment(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("codec", rp_codec),
        ("residual", c_void_p),
        ("tensor", c_uint32),
        ("first", c_uint64),
    ]


class rp_owned_segment(Structure):
    _fields_ = [
        ("segment", rp_segment),
        ("owner", c_int),
        ("own", c_void_p),
    ]


class rp_collective_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("algorithm", c_char_p),
        ("reduce", c_int),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("root", c_int),
        ("factor", c_double),
        ("memory", c_int),
        ("stream", c_void_p),
        ("key", c_uint64),
    ]


class rp_neighbor(Structure):
    _fields_ = [("rank", c_int), ("weight", c_double)]


class rp_neighbors(Structure):
    _fields_ = [
        ("self_weight", c_double),
        ("sources", POINTER(rp_neighbor)),
        ("destinations", POINTER(rp_neighbor)),
        ("source_count", c_size_t),
        ("destination_count", c_size_t),
        ("round", c_uint64),
    ]


class rp_gossip_info(Structure):
    _fields_ = [
        ("early", c_int),
        ("exchanged", c_int),
        ("states", c_int),
        ("pushes", c_int),
        ("held", c_int),
        ("copies", c_int),
        ("gamma", c_double),
        ("topology", c_char_p),
    ]


class rp_gossip_setup(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("topology", c_char_p),
        ("algorithm", c_char_p),
        ("dtype", c_int),
        ("count", c_size_t),
        ("x", c_void_p),
        ("gradient", c_void_p),
        ("layouts", POINTER(rp_segment) * 2),
        ("layout_counts", c_size_t * 2),
        ("seed", c_uint64),
        ("gamma", c_double),
    ]


class rp_local_sgd_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("outer", c_char_p),
        ("every", c_uint64),
        ("fragments", c_uint64),
        ("delay", c_uint64),
        ("mixing", c_double),
        ("outer_rate", c_double),
        ("outer_momentum", c_double),
        ("consensus_rate", c_double),
        ("residual_decay", c_double),
        ("nesterov", c_int),
        ("fragment_of", POINTER(c_uint32)),
        ("algorithm", c_char_p),
        ("seed", c_uint64),
        ("partner", c_void_p),
        ("partner_context", c_void_p),
    ]


class rp_local_sgd_report(Structure):
    _fields_ = [
        ("started", c_int),
        ("finished", c_int),
        ("gradient_norm", c_double),
        ("autocorrelation", c_double),
        ("wait_s", c_double),
        ("warning", c_char_p),
    ]


RP_ANY_STALENESS, RP_PUSH_NOTES = -1, 8


class rp_parameter_push(Structure):
    _fields_ = [
        ("worker", c_int),
        ("number", c_uint64),
        ("weight", c_double),
        ("staleness", c_int64),
        ("updates", c_int64),
        ("notes", POINTER(c_double)),
    ]


class rp_parameter_merge(Structure):
    _fields_ = [
        ("first", c_size_t),
        ("count", c_size_t),
        ("values", c_void_p),
        ("gradient", c_void_p),
        ("pushes", POINTER(rp_parameter_push)),
        ("push_count", c_int),
        ("weight", c_double),
        ("is_complete", c_int),
        ("version", c_uint64),
        ("step", c_uint64),
    ]


Merge = CFUNCTYPE(c_int, c_void_p, POINTER(rp_parameter_merge))


class rp_parameter_server_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("servers", c_int),
        ("staleness", c_int64),
        ("quorum", c_int),
        ("grace_s", c_double),
        ("goes_on", c_int),
        ("workers", c_int),
        ("seed", c_uint64),
        ("merge", Merge),
        ("context", c_void_p),
    ]


class rp_delayed_nesterov(Structure):
    _fields_ = [
        ("outer_rate", c_double),
        ("outer_momentum", c_double),
        ("delay", c_uint64),
        ("pushes", c_uint64),
        ("momentum", c_void_p),
        ("buffer", c_void_p),
    ]


class rp_parameter_report(Structure):
    _fields_ = [("wait_s", c_double), ("staleness", c_int64), ("updates", c_int64)]


class rp_window_setup(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("data", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("sources", POINTER(c_int)),
        ("destinations", POINTER(c_int)),
        ("source_count", c_size_t),
        ("destination_count", c_size_t),
        ("codec", rp_codec),
        ("zero_slots", c_int),
        ("follow_p", c_int),
    ]


class rp_window_send(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("targets", POINTER(rp_neighbor)),
        ("count", c_size_t),
        ("scales", c_int),
        ("self_weight", c_double),
        ("mutex", c_int),
    ]


class rp_window_mix(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("self_weight", c_double),
        ("sources", POINTER(rp_neighbor)),
        ("count", c_size_t),
        ("mean", c_int),
        ("reset", c_int),
        ("mutex", c_int),
        ("timeout_s", c_double),
    ]


class rp_comm_stats(Structure):
    _fields_ = [
        ("operations", c_uint64),
        ("wire_bytes_sent", c_uint64),
        ("wire_bytes_received", c_uint64),
        ("value_bytes_sent", c_uint64),
        ("encode_s", c_double),
        ("decode_s", c_double),
        ("wait_s", c_double),
        ("busy_s", c_double),
    ]


STRUCTURES = (
    rp_error,
    rp_codec,
    rp_adaptive_codec,
    rp_level_choice,
    rp_codec_comparison,
    rp_step_trial,
    rp_place,
    rp_store_ops,
    rp_store,
    rp_comm_options,
    rp_group,
    rp_block,
    rp_segment,
    rp_owned_segment,
    rp_collective_options,
    rp_neighbor,
    rp_neighbors,
    rp_gossip_info,
    rp_gossip_setup,
    rp_local_sgd_options,
    rp_local_sgd_report,
    rp_parameter_push,
    rp_parameter_merge,
    rp_parameter_server_options,
    rp_parameter_report,
    rp_delayed_nesterov,
    rp_window_setup,
    rp_window_send,
    rp_window_mix,
    rp_comm_stats,
)

# ---- functions ----

_comm = _request = _completions = _data = c_void_p  # handles and addresses: plain integers
_out = c_void_p  # byref() of a handle, or None
_codec = POINTER(rp_codec)
_options = POINTER(rp_collective_options)
_blocks = POINTER(rp_block)
_segments = POINTER(rp_segment)
_owned_segments = POINTER(rp_owned_segment)
_neighbors = POINTER(rp_neighbors)
_gossip = _local = _server = _window = _operation = c_void_p
_dtype = c_int

# What each operation takes between the communicator and the request.
COLLECTIVES: dict[str, list[Any]] = {
    "all_reduce": [_segments, c_size_t, _options],
    "reduce_scatter": [_data, _data, c_size_t, _dtype, _codec, _options],
    "reduce_scatter_v": [_blocks, _data, _dtype, _codec, _options],
    "reduce_scatter_segments": [_owned_segments, c_size_t, _options],
    "all_gather": [_data, _data, c_size_t, _dtype, _codec, _options],
    "all_gather_v": [_data, _blocks, _dtype, _codec, _options],
    "all_gather_segments": [_owned_segments, c_size_t, _options],
    "broadcast": [_data, c_size_t, _dtype, _options],
    "reduce": [_data, _data, c_size_t, _dtype, _options],
    "gather": [_data, c_size_t, _blocks, _dtype, _options],
    "scatter": [_blocks, _data, c_size_t, _dtype, _options],
    "all_to_all": [_blocks, _blocks, _dtype, _options],
    "barrier": [],
    "neighbor_all_reduce": [_segments, POINTER(c_void_p), c_size_t, _neighbors, _options],
    "send_with": [_data, c_size_t, _dtype, c_int, c_int, _options],
    "recv_with": [_data, c_size_t, _dtype, c_int, c_int, _options],
    "recv_any_with": [_data, c_size_t, _dtype, c_int, _options],
}

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rp_version": (c_char_p, []),
    "rp_status_name": (c_char_p, [c_int]),
    "rp_last_error": (POINTER(rp_error), []),
    "rp_codec_parse": (c_int, [c_char_p, _codec]),
    "rp_codec_text": (c_char_p, [_codec, c_char_p, c_size_t]),
    "rp_codec_is_exact": (c_int, [_codec, _dtype]),
    "rp_codec_supports": (c_int, [_codec, _dtype]),
    "rp_codec_granule": (c_size_t, [_codec]),
    "rp_codec_encoded_bytes": (c_size_t, [_codec, _dtype, c_size_t]),
    "rp_adaptive_codec_parse": (c_int, [c_char_p, POINTER(rp_adaptive_codec)]),
    "rp_adaptive_codec_text": (c_char_p, [POINTER(rp_adaptive_codec), c_char_p]),
    "rp_level_codec": (c_int, [_codec, c_int, _codec]),
    "rp_level_like": (c_int, [_codec, _codec]),
    "rp_levels_measure": (c_int, [_codec, _data, _data, c_size_t, _data]),
    "rp_step_trial_begin": (c_int, [POINTER(rp_step_trial), c_double]),
    "rp_step_trial_times": (c_int, [POINTER(rp_step_trial), _data]),
    "rp_step_trial_gains": (c_int, [_data]),
    "rp_codec_compare": (
        c_int,
        [_comm, _codec, c_size_t, c_int, c_char_p, POINTER(rp_codec_comparison)],
    ),
    "rp_codec_comparison_text": (c_char_p, [POINTER(rp_codec_comparison), _codec, c_char_p]),
    "rp_levels_choose": (c_int, [_codec, POINTER(rp_level_choice), c_size_t]),
    "rp_store_connect": (c_int, [c_char_p, c_int, c_double, POINTER(rp_store)]),
    "rp_store_close": (None, [POINTER(rp_store)]),
    "rp_comm_create": (
        c_int,
        [POINTER(rp_store), c_int, c_int, POINTER(rp_comm_options), _out],
    ),
    "rp_place_find": (c_int, [PlaceGet, c_void_p, c_int64, POINTER(rp_place)]),
    "rp_comm_join": (c_int, [POINTER(rp_comm_options), _out]),
    "rp_comm_rank": (c_int, [_comm]),
    "rp_comm_world": (c_int, [_comm]),
    "rp_comm_group": (
        c_int,
        [_comm, POINTER(c_int), c_int, POINTER(rp_comm_options), _out],
    ),
    "rp_comm_replace": (
        c_int,
        [POINTER(rp_store), c_int, c_int, POINTER(rp_comm_options), POINTER(c_int)],
    ),
    "rp_buffer_allocate": (c_int, [c_size_t, _out]),
    "rp_buffer_free": (c_int, [c_void_p]),
    "rp_bind_addresses": (c_int, [c_char_p, c_char_p, c_size_t]),
    "rp_comm_survivors": (c_int, [_comm, POINTER(rp_comm_options), POINTER(c_int), _out]),
    "rp_comm_group_start": (
        c_int,
        [_comm, POINTER(c_int), c_int, POINTER(rp_comm_options), _out, _out],
    ),
    "rp_comm_groups": (c_int, [_comm, POINTER(rp_group), c_size_t, POINTER(c_void_p)]),
    "rp_comm_revoke": (c_int, [_comm]),
    "rp_comm_destroy": (None, [_comm]),
    "rp_comm_transport": (c_char_p, [_comm]),
    "rp_comm_get_stats": (None, [_comm, POINTER(rp_comm_stats)]),
    "rp_comm_attend": (None, [_comm]),
    "rp_comm_leave": (None, [_comm]),
    "rp_comm_set_timeout": (c_int, [_comm, c_double]),
    "rp_comm_abort": (None, [_comm, c_int, c_char_p]),
    "rp_comm_status": (c_int, [_comm]),
    "rp_comm_forget": (None, [_comm]),
    "rp_gossip_check": (c_int, [c_char_p, c_char_p, c_int, POINTER(rp_gossip_info)]),
    "rp_gossip_create": (c_int, [_comm, POINTER(rp_gossip_setup), _out]),
    "rp_gossip_destroy": (None, [_gossip]),
    "rp_gossip_advise": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rp_gossip_get_info": (None, [_gossip, POINTER(rp_gossip_info)]),
    "rp_gossip_state": (c_void_p, [_gossip, c_int]),
    "rp_gossip_push_weight": (c_double, [_gossip]),
    "rp_gossip_resume": (c_int, [_gossip, c_double]),
    "rp_gossip_post": (c_int, [_gossip, c_int64, c_double, _out]),
    "rp_gossip_apply": (c_int, [_gossip, c_double]),
    "rp_gossip_alone": (c_int, [_gossip, c_double]),
    "rp_local_sgd_defaults": (c_int, [c_char_p, POINTER(rp_local_sgd_options)]),
    "rp_local_sgd_check": (c_int, [POINTER(rp_local_sgd_options), c_size_t]),
    "rp_outer_momentum": (c_double, [c_char_p, c_uint64]),
    "rp_local_sgd_advise": (c_int, [POINTER(rp_local_sgd_options), c_char_p, c_size_t]),
    "rp_local_sgd_create": (
        c_int,
        [_comm, _segments, c_size_t, POINTER(rp_local_sgd_options), _out],
    ),
    "rp_local_sgd_destroy": (None, [_local]),
    "rp_local_sgd_step": (
        c_int,
        [_local, POINTER(c_void_p), c_double, POINTER(rp_local_sgd_report)],
    ),
    "rp_local_sgd_restart": (c_int, [_local, POINTER(c_void_p), c_uint64]),
    "rp_local_sgd_settle": (c_int, [_local]),
    "rp_local_sgd_steps": (c_uint64, [_local]),
    "rp_local_sgd_in_flight": (c_int, [_local]),
    "rp_local_sgd_state_count": (c_int, [_local]),
    "rp_local_sgd_state_name": (c_char_p, [_local, c_int]),
    "rp_local_sgd_state": (c_void_p, [_local, c_int, c_size_t]),
    "rp_local_sgd_resume": (c_int, [_local, c_uint64]),
    "rp_momentum_watch_create": (c_int, [c_size_t, c_double, c_double, POINTER(c_void_p)]),
    "rp_momentum_watch_destroy": (None, [c_void_p]),
    "rp_momentum_watch_look": (
        c_int,
        [c_void_p, c_void_p, c_uint64, POINTER(c_double), POINTER(c_char_p)],
    ),
    "rp_parameter_server_check": (c_int, [POINTER(rp_parameter_server_options), c_int]),
    "rp_parameter_server_create": (
        c_int,
        [_comm, _segments, c_size_t, POINTER(rp_parameter_server_options), _out],
    ),
    "rp_parameter_server_destroy": (None, [_server]),
    "rp_parameter_server_begin": (c_int, [_server, _data, c_uint64, c_uint64]),
    "rp_parameter_server_goes_on": (c_int, [_server]),
    "rp_parameter_server_push": (
        c_int,
        [_server, c_double, POINTER(c_double), POINTER(rp_parameter_report)],
    ),
    "rp_parameter_server_stop": (None, [_server]),
    "rp_parameter_server_name": (None, [_server, POINTER(c_int)]),
    "rp_parameter_server_end": (c_int, [_server]),
    "rp_parameter_server_gather": (c_int, [_server, _data]),
    "rp_parameter_server_confirm": (c_int, [_server, c_int, POINTER(c_int)]),
    "rp_parameter_server_comm": (c_void_p, [_server]),
    "rp_parameter_server_lost": (c_char_p, [_server, c_int]),
    "rp_parameter_server_abort": (None, [_server, c_int, c_char_p]),
    "rp_delayed_nesterov_check": (c_int, [POINTER(rp_delayed_nesterov)]),
    "rp_delayed_nesterov_advise": (
        c_int,
        [POINTER(rp_delayed_nesterov), c_uint64, c_char_p, c_size_t],
    ),
    "rp_delayed_nesterov_merge": (c_int, [c_void_p, POINTER(rp_parameter_merge)]),
    "rp_window_create": (c_int, [_comm, POINTER(rp_window_setup), _out]),
    "rp_window_free": (c_int, [_out]),
    "rp_window_put": (c_int, [_window, _data, c_size_t, POINTER(rp_window_send), _out]),
    "rp_window_accumulate": (c_int, [_window, _data, c_size_t, POINTER(rp_window_send), _out]),
    "rp_window_get": (c_int, [_window, POINTER(rp_neighbor), c_size_t, c_int, _out]),
    "rp_window_wait": (c_int, [_out, c_double]),
    "rp_window_test": (c_int, [_operation]),
    "rp_window_operation_free": (None, [_out]),
    "rp_window_flush": (c_int, [_window, c_double]),
    "rp_window_update": (c_int, [_window, POINTER(rp_window_mix), _data]),
    "rp_window_version": (c_uint64, [_window, c_int]),
    "rp_window_p": (c_double, [_window]),
    "rp_window_follow_p": (c_int, [_window, c_int]),
    "rp_window_read": (c_int, [_window, c_int, _data, POINTER(c_double)]),
    "rp_window_lock": (c_int, [_window, POINTER(c_int), c_size_t, c_int, c_double]),
    "rp_window_waited": (None, [c_double]),
    "rp_window_unlock": (c_int, [_window, POINTER(c_int), c_size_t, c_int]),
    "rp_request_wait_for": (c_int, [_request, c_double]),
    "rp_memory_check": (c_int, [c_int]),
    "rp_request_wait_stream": (c_int, [_request, c_void_p]),
    "rp_request_wait_stream_for": (c_int, [_request, c_void_p, c_double]),
    "rp_request_free": (c_int, [_out]),
    "rp_request_source": (c_int, [_request]),
    "rp_request_notify": (c_int, [_request, _completions, c_uint64]),
    "rp_completions_create": (c_int, [_out]),
    "rp_completions_destroy": (None, [_completions]),
    "rp_completions_wait": (
        c_int,
        [_completions, c_double, POINTER(c_uint64), c_size_t, POINTER(c_size_t)],
    ),
    "rp_completions_wake": (None, [_completions]),
    "rp_completions_keep_log": (c_int, [_completions]),
    "rp_completions_take_line": (c_int, [_completions, POINTER(c_int), c_char_p, c_size_t]),
    "rp_log_set_level": (None, [c_int]),
}
QUICK = {"rp_comm_attend", "rp_comm_leave", "rp_request_free", "rp_request_source"}
"""Functions that never wait: they keep the GIL, which another thread could hold for
milliseconds before it is given back."""

for _name, _between in COLLECTIVES.items():
    FUNCTIONS[f"rp_{_name}_start"] = (c_int, [_comm, *_between, _out])


def _bind(name: str) -> Any:
    library = quick() if name in QUICK else load()
    function = getattr(library, name)
    function.restype, function.argtypes = FUNCTIONS[name]
    return function


def __getattr__(name: str) -> Any:
    """The function `rp_...` of the library, bound at its first use."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = globals()[name] = _bind(name)
    return function
