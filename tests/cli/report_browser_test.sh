#!/bin/sh
# Pages of `redpoll report` in a headless Chromium: light, dark and narrow, with the pictures kept
# for people to look at. usage: report_browser_test.sh REDPOLL OUTPUT_FOLDER
set -u
for browser in chromium chromium-browser google-chrome ''; do
    [ -n "$browser" ] || {
        echo "skipped: no Chromium (Debian: apt-get install chromium)"
        exit 77
    }
    command -v "$browser" >/dev/null 2>&1 && break
done
command -v python3 >/dev/null 2>&1 || {
    echo "skipped: no python3"
    exit 77
}
exec python3 "$(dirname "$0")/report_browser_test.py" "$1" "$2" "$browser"
