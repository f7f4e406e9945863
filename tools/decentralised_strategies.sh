# shellcheck shell=sh disable=SC2034,SC2154 # read by tools/decentralised.sh: $form is its
# What `make decentralised` compares. A strategy is a name in `names` and a line of strategy_of:
# words of `redpoll train`, and how many ranks it has beside those that learn. All of them learn by
# the same optimizer, rate and global batch, so that the strategy alone differs; but DiLoCo, whose
# outer momentum takes the place of a part of the rate, has its own where a form says so.
names="all-reduce all-reduce-q4"
names="$names ring ring-awc exponential one-peer base-q8 ring-exact exponential-exact choco-q4"
names="$names local-sgd slowmo diloco diloco-q4 streaming-q4 noloco-q4 sparseloco"
names="$names server server-q4 server-stale server-quorum server-local-q4"

# Those of the figures: more lines than colours would tell nobody anything.
drawn="all-reduce ring ring-exact choco-q4 local-sgd diloco-q4 server-stale"

strategy_of() {
    case $1 in
    all-reduce) echo "--strategy all-reduce" ;;
    all-reduce-q4) echo "--strategy all-reduce --codec q4" ;;
    ring | exponential) echo "--strategy gossip:topology=$1" ;;
    ring-awc) echo "--strategy gossip:topology=ring,algorithm=awc" ;;
    one-peer) echo "--strategy gossip:topology=one-peer-exponential" ;;
    base-q8) echo "--strategy gossip:topology=base --codec q8" ;;
    ring-exact) echo "--strategy gossip:topology=ring,algorithm=exact-diffusion" ;;
    exponential-exact) echo "--strategy gossip:topology=exponential:symmetric=on,algorithm=exact-diffusion" ;;
    choco-q4) echo "--strategy gossip:algorithm=choco --codec q4" ;;
    local-sgd) echo "--strategy local-sgd:every=20" ;;
    slowmo) echo "--strategy local-sgd:outer=slowmo,every=20" ;;
    diloco) echo "--strategy local-sgd:outer=diloco,every=20,outer-momentum=$outer_momentum $outer_rate" ;;
    diloco-q4) echo "$(strategy_of diloco) --codec q4" ;;
    streaming-q4) echo "--strategy local-sgd:outer=diloco,every=20,fragments=2,delay=1,outer-momentum=$outer_momentum $outer_rate --codec q4" ;;
    noloco-q4) echo "--strategy local-sgd:outer=noloco,every=20 --codec q4" ;;
    sparseloco) echo "--strategy local-sgd:outer=sparseloco,every=20 --codec topk:k=64,bucket=4096,values=q2" ;;
    server) echo "--strategy parameter-server" ;;
    server-q4) echo "$(strategy_of server) --codec q4" ;;
    server-stale) echo "--strategy parameter-server:servers=1,staleness=4" ;;
    server-quorum) echo "--strategy parameter-server:servers=1,staleness=inf,quorum=$((learners * 3 / 4))" ;;
    server-local-q4) echo "--strategy async-local-sgd:servers=1,every=20,outer-momentum=.6 --codec q4" ;;
    esac
}

# Ranks of a run: a server that does nothing else comes on top of those that learn.
ranks_of() {
    case $(strategy_of "$1") in
    *servers=1*) echo $((learners + 1)) ;;
    *) echo "$learners" ;;
    esac
}

# The forms: steps that no exchange of local steps divides, so that the last evaluation lies between two.
form_is() {
    data="fashion-mnist"
    recipe="--global-batch-size 64 --optimizer adamw --lr 0.001"
    seeds='1 2 3' splits='iid by-label' links=none learners=8 more=
    outer_momentum=.6 outer_rate=
    case $1 in
    full) # an epoch, to a rate of 0
        model=resnet20 steps=938 outer_momentum=.8 outer_rate='--lr .02'
        recipe="--global-batch-size 64 --optimizer sgd --momentum 0.9 --weight-decay 1e-4 --lr 0.05 --lr-schedule cosine"
        ;;
    quick) model=mlp steps=310 seeds=1 more=--no-checkpoint ;;
    smallest)
        model=mlp:hidden=16 data="synthetic --train-images 64 --test-images 32" learners=4
        steps=22 seeds=1 splits=by-label more=--no-checkpoint
        ;;
    esac
}
