#!/bin/sh
# report_test.py by the system's Python, which needs nothing else. usage: report_test.sh REDPOLL
command -v python3 >/dev/null 2>&1 || {
    echo "skipped: no python3 to read pages, tables and event files with"
    exit 77
}
exec python3 "$(dirname "$0")/report_test.py" "$1"
