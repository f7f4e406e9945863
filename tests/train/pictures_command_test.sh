#!/bin/sh
# `redpoll train` on folders of pictures, as the example does it. usage: ... REDPOLL EXAMPLES
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1 examples=$2
command -v python3 >/dev/null || {
    echo "skipped: there is no python3 to draw pictures"
    exit 77
}
. "$(dirname "$0")/../harness/cases.sh"

bad() {
    complain "$*"
    tail -n 5 out err
}
# redpoll_exits CODE WORDS...
redpoll_exits() {
    code=$1
    shift
    timeout 100 "$redpoll" "$@" >out 2>err
    got=$?
    if [ $got -eq "$code" ]; then pass; else bad "redpoll $*: exit code $got, not $code"; fi
}
says() {
    if grep -qE -e "$2" "$1"; then pass; else bad "$1 lacks '$2'"; fi
}

python3 "$examples/make_pictures.py" pictures --train 4 --val 2 || exit 1
python3 "$examples/make_pictures.py" again --train 4 --val 2 || exit 1
if diff -r pictures again; then pass; else bad "the same seed draws other pictures"; fi

# The example, and that resuming it changes nothing.
example() {
    to=$1
    shift
    redpoll_exits 0 train --config "$examples/resnet-pictures.yaml" --model resnet18:width=4 --image-size 16 \
        --threads 1 --out "$to" "$@"
}
example whole --epochs 3
says out 'test accuracy .* \(8 images\)'
example parts --epochs 2 --steps 1
redpoll_exits 0 train --resume parts --epochs 3 --data-threads 1 --threads 1
same whole/model.safetensors parts/model.safetensors
says parts/settings.json '"augment": *"standard"'

# An evaluation cuts pictures to the size of the run.
redpoll_exits 0 eval --model whole --json
says out '"images": *8'

# What is wrong is said before anything starts.
redpoll_exits 2 train --data images:pictures --augment crop --out none
says err "there are none, flip, standard"
redpoll_exits 2 train --data synthetic --image-size 32 --out none
says err "image-size is for folders of pictures, --data images:FOLDER, not for synthetic"
redpoll_exits 2 train --data images --out none
says err 'data images needs more than its name'
redpoll_exits 1 train --data images:nowhere --out none
says err 'there is no folder nowhere'
redpoll_exits 2 train --data images:pictures --image-size 4096 --out none

# A broken picture ends the run with its name; or is skipped, told and counted.
printf 'no picture' >pictures/train/cross/0001.png
redpoll_exits 1 train --model resnet18:width=4 --data images:pictures --image-size 16 --epochs 1 --no-checkpoint \
    --threads 1 --out broken
says err 'pictures/train/cross/0001.png: it is no JPEG or PNG.*--skip-broken'
redpoll_exits 0 train --model resnet18:width=4 --data images:pictures --image-size 16 --epochs 1 --no-checkpoint \
    --threads 1 --skip-broken --out skipped
says err 'skipped: pictures/train/cross/0001.png'
says err '1 broken picture was skipped'

# An evaluation goes on without broken ones where its run did, or where it is told to.
printf 'no picture' >"$(ls pictures/val/*/*.png | head -n 1)"
redpoll_exits 1 eval --model whole --data images:pictures
says err 'it is no JPEG or PNG.*--skip-broken'
redpoll_exits 0 eval --model whole --data images:pictures --skip-broken --json
says out '"images": *7'
redpoll_exits 0 train --resume whole --epochs 3 --skip-broken --threads 1 --out went-on
redpoll_exits 0 eval --model went-on --json
says out '"images": *7'

# Where no held-out picture is left there is nothing to evaluate, and no number of it.
for picture in pictures/val/*/*.png; do printf 'no picture' >"$picture"; done
redpoll_exits 1 train --model resnet18:width=4 --data images:pictures --image-size 16 --steps 1 --no-checkpoint \
    --threads 1 --skip-broken --out nothing
says err 'none of the 8 held-out images can be read.*--no-eval'
redpoll_exits 0 train --model resnet18:width=4 --data images:pictures --image-size 16 --steps 1 --no-checkpoint \
    --threads 1 --skip-broken --no-eval --out nothing --overwrite
finish
