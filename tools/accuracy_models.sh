# shellcheck shell=sh disable=SC2154,SC2034 # read by tools/accuracy.sh: $shape and $runs are its
# The models of docs/accuracy.md, their data and recipes. A model is a name in `names`, and what it has
# below: data_of (text, questions or pictures), metric_of (a key of metrics.jsonl), options_of.
names="resnet18 vit transformer-xl gpt2 gpt2-kjv bert"

prepare_pictures() { :; }

data_of() {
    case $1 in
    transformer-xl | gpt2*) echo text ;;
    bert) echo questions ;;
    *) echo pictures ;;
    esac
}

metric_of() {
    case $1 in
    transformer-xl | gpt2*) echo test_perplexity ;;
    bert) echo test_f1 ;;
    *) echo test_accuracy ;;
    esac
}

# steps_of NAME: of the full form, and of the quick one
steps_of() {
    case $1-$shape in
    resnet18-full) echo 938 ;; # two epochs
    resnet18-quick) echo 100 ;;
    vit-full) echo 938 ;;
    vit-quick) echo 150 ;;
    gpt2-kjv-full) echo 600 ;;
    gpt2-kjv-quick) echo 30 ;;
    bert-full) echo 2000 ;;
    bert-quick) echo 600 ;;
    *-full) echo 1500 ;;
    *-quick) echo 150 ;;
    esac
}

options_of() {
    adamw="--optimizer adamw --weight-decay 0.1 --decay weights --clip 1 --lr-schedule cosine"
    text="--data tokens:$runs/kjv --seq-length 64 --global-batch-size 16"
    questions="spans:$runs/birds/train.json,validation=$runs/birds/validation.json,tokenizer=bert:$runs/birds"
    steps=$(steps_of "$1")
    case $1 in
    resnet18)
        echo "--model resnet18:width=16 --data fashion-mnist --global-batch-size 128 --lr 0.1 --lr-schedule cosine --steps $steps"
        ;;
    vit)
        echo "--model vit:layers=4,hidden=96,heads=3 --data fashion-mnist --global-batch-size 128 $adamw --lr 2e-3 --lr-warmup-steps 20 --steps $steps"
        ;;
    transformer-xl)
        echo "--model transformer-xl:layers=3,hidden=128,heads=4,head=32,inner=512,memory=64,vocabulary=2048 $text $adamw --lr 1e-3 --lr-warmup-steps 20 --steps $steps --eval-every $((steps / 5)) --eval-images 200"
        ;;
    gpt2)
        echo "--model gpt2:layers=3,hidden=128,heads=4,vocabulary=2048,positions=64 $text $adamw --lr 3e-3 --lr-warmup-steps 20 --steps $steps --eval-every $((steps / 5)) --eval-images 200"
        ;;
    gpt2-kjv)
        echo "--model gpt2:layers=6,hidden=384,heads=6,vocabulary=2048,positions=128 --data tokens:$runs/kjv --seq-length 128 --global-batch-size 16 $adamw --lr 1e-3 --lr-warmup-steps 20 --steps $steps --eval-every $((steps / 5)) --eval-images 100"
        ;;
    bert)
        echo "--model bert:layers=2,hidden=64,heads=4,vocabulary=51,positions=32,spans=on --data $questions --seq-length 32 --global-batch-size 64 --optimizer adamw --weight-decay 0.01 --decay weights --clip 1 --lr-schedule linear --lr 3e-3 --lr-warmup-steps 50 --steps $steps"
        ;;
    esac
}
