#!/bin/sh
# Every benchmark that needs nothing but Redpoll; `make peers` adds PyTorch. usage: bench/run.sh BUILD
set -eu
here=$(dirname "$0")
sh "$here/codec.sh" "$1"
echo
sh "$here/collectives.sh" "$1"
sh "$here/all_reduce_link.sh" "$1"
echo
sh "$here/all_reduce_netns.sh" "$1" || [ $? -eq 77 ]
echo
sh "$here/training_link.sh" "$1"
