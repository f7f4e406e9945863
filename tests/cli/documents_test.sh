#!/bin/sh
# What the tables of options become: no line of help is wider than a terminal, and every option of
# every table stands in its manual page and in the completions, which bash, zsh and fish load and
# use. usage: documents_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
skip() { echo "skipped $1: there is no $2 here"; }

# The commands with their options as the Markdown of all tables has them: "train --model".
"$redpoll" info --options | awk '
    /^## redpoll / { sub("## redpoll ", ""); command = $0 }
    /^\| `-/ { for (i = 2; i < NF; i++) { word = $i; gsub("[`,]", "", word)
        if (word ~ /^-/) { print command "\t" word } else if (word == "|") break } }' >options
commands=$("$redpoll" --help | sed -n 's/^  \([a-z][a-z -]*[a-z]\)  *[a-z].*/\1/p' | sed 's/  .*//')
[ "$(wc -l <options)" -gt 200 ] || complain "only $(wc -l <options) options are found"
[ "$(echo "$commands" | wc -l)" -ge 17 ] || complain "only these commands are found: $commands"

# ---- width ----

narrow() { # FILE WHAT
    if awk 'length($0) > 80 { print; wide = 1 } END { exit wide }' "$1" >wide; then pass; else
        complain "$2 is wider than 80 columns: $(head -n 2 wide)"
    fi
}
"$redpoll" --help >help && narrow help "redpoll --help"
"$redpoll" bench --help >help && narrow help "redpoll bench --help"
echo "$commands" | while read -r command; do
    # shellcheck disable=SC2086 # one or two words
    "$redpoll" help $command >"help of $command" || echo "redpoll help $command fails"
done >noise
[ -s noise ] && complain "$(cat noise)"
for file in "help of "*; do narrow "$file" "$file"; done
"$redpoll" info >help && narrow help "redpoll info"

# ---- manual pages ----

"$redpoll" man >pages
for page in $(cat pages); do "$redpoll" man "$page" >"$page.1" || complain "no page $page"; done
[ "$("$redpoll" man trian 2>&1 >noise | grep -c "no page 'trian'")" -eq 1 ] || complain "man trian is a page"
# Each page says what it is about in words of its own.
twice=$(for page in *.1; do sed -n '/^.SH NAME/{n;s/^[^ ]* //;p}' "$page"; done | sort | uniq -d)
[ -z "$twice" ] || complain "two pages are for the same: $twice"
grep -q 'several commands' ./*.1 && complain "a group of commands has no summary"
tab=$(printf '\t')
while IFS=$tab read -r command option; do
    page="redpoll-$(echo "$command" | tr ' ' -).1"
    grep -qF -e "fB$(printf '%s\n' "$option" | sed 's/-/\\-/g')\\fR" "$page" 2>noise ||
        complain "$page lacks $option"
done <options
for name in REDPOLL_LOG REDPOLL_ISA; do grep -q "$name" redpoll.1 || complain "redpoll.1 lacks $name"; done
if command -v man >noise && man --version >noise 2>&1 && command -v groff >noise; then
    for page in *.1; do
        warnings=$(LC_ALL=C man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >noise)
        if [ -z "$warnings" ]; then pass; else complain "man warns of $page: $warnings"; fi
    done
else
    skip "the warnings of man" "man with groff"
fi
if command -v mandoc >noise; then
    for page in *.1; do # no date: pages are those of the version, which they name
        warnings=$(mandoc -T lint -W warning "$page" | grep -v 'missing date')
        if [ -z "$warnings" ]; then pass; else complain "mandoc warns of $page: $warnings"; fi
    done
else
    skip "the warnings of mandoc" mandoc
fi

# ---- completions ----

for shell in bash zsh fish; do
    "$redpoll" completion $shell >completion.$shell || complain "no completion for $shell"
done
while IFS=$tab read -r command option; do
    grep -F "'$command')" completion.bash | grep -qF -e "$option " || complain "bash: $command lacks $option"
    awk -v start="'$command') _arguments" 'index($0, start) { on = 1 } on { print } on && /;;/ { exit }' completion.zsh |
        grep -qE -e "^ +'${option}[=+]?\[" || complain "zsh: $command lacks $option"
    bare=$(printf '%s\n' "$option" | sed 's/^-*//')
    grep -E "^complete -c redpoll -n '__redpoll_is $command' " completion.fish |
        grep -qE -e " -(l|s) $bare( |$)" || complain "fish: $command lacks $option"
done <options

# in_bash WORDS... -- WANTED...: what bash offers for these words contains the wanted ones
cat >complete.bash <<'END'
source completion.bash || exit 1
complete -p redpoll | grep -q _redpoll || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_redpoll 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
END
in_bash() { bash complete.bash "$@" >offered 2>err || complain "bash does not load it: $(cat err)"; }
offered() { # SHELL WANTED...
    shell=$1
    shift
    for word in "$@"; do
        if grep -qwF -e "$word" offered; then pass; else complain "$shell offers no $word but $(head -n 5 offered | tr '\n' ' ')"; fi
    done
}
not_offered() { grep -qwF -e "$2" offered && complain "$1 offers $2 here"; }
if command -v bash >noise; then
    in_bash redpoll t && offered bash train && not_offered bash plan
    in_bash redpoll '' && offered bash train run bench plan info help
    in_bash redpoll bench all- && offered bash all-reduce all-gather all-to-all && not_offered bash codec
    in_bash redpoll train --mod && offered bash --model && not_offered bash --link
    in_bash redpoll train --model r && offered bash resnet18 resnet20 && not_offered bash mlp
    in_bash redpoll train --codec = q && offered bash q4 && not_offered bash bf16
    in_bash redpoll bench all-reduce --tr && offered bash --transport
    in_bash redpoll bench all-reduce --transport '' && offered bash auto shm tcp
    in_bash redpoll verify --pp && offered bash --pp && not_offered bash --tolerance
    in_bash redpoll verify --model vi && offered bash vit
    in_bash redpoll plan b && offered bash broadcast barrier
    in_bash redpoll plan g && offered bash gossip gather
    in_bash redpoll plan gather --lo && offered bash --local
    in_bash redpoll plan gossip --top && offered bash --topology && not_offered bash --root
    in_bash redpoll plan pipeline --schedule z && offered bash zb-h1 zb-v && not_offered bash 1f1b
    in_bash redpoll plan gossip --topology b && offered bash base && not_offered bash ring
    in_bash redpoll help bench g && offered bash gather
    in_bash redpoll completion '' && offered bash bash zsh fish
    touch some-settings.yaml
    in_bash redpoll train --config some && offered bash some-settings.yaml
else
    skip "completion in bash" bash
fi
if command -v fish >noise; then
    export HOME="$folder" XDG_CONFIG_HOME="$folder" XDG_DATA_HOME="$folder"
    in_fish() { fish -c "source completion.fish; complete -C '$1'" >offered 2>err || complain "fish: $(cat err)"; }
    in_fish 'redpoll t' && offered fish train
    in_fish 'redpoll bench all-' && offered fish all-reduce all-gather
    in_fish 'redpoll train --mod' && offered fish --model && not_offered fish --link
    in_fish 'redpoll train --model ' && offered fish resnet18 mlp
    in_fish 'redpoll bench all-reduce --reduce ' && offered fish sum premul-sum
    in_fish 'redpoll plan b' && offered fish broadcast barrier
    in_fish 'redpoll plan g' && offered fish gossip gather
    in_fish 'redpoll plan gossip --topology ' && offered fish base ring
else
    skip "completion in fish" fish
fi
# zsh completes in its line editor only: one on a terminal of script(1) is typed at.
if command -v zsh >noise && command -v script >noise; then
    mkdir functions && cp completion.zsh functions/_redpoll
    cat >.zshrc <<END
PS1='ready> '
fpath=($folder/functions \$fpath)
autoload -Uz compinit && compinit -u -d $folder/dump
zstyle ':completion:*' list-prompt ''
unsetopt list_beep
LISTMAX=1000
END
    type_at_zsh() { # LINE SECONDS
        { sleep "$2" && printf '%s\t' "$1" && sleep "$2" && printf '\025exit\n' && sleep 0.3; } |
            ZDOTDIR=$folder TERM=dumb script -qefc "stty cols 100 rows 50; zsh -i" /dev/null >offered 2>&1
    }
    # in_zsh LINE WANTED...: a unique completion is typed out, others are listed. A busy machine is
    # given longer between the keys.
    in_zsh() {
        line=$1
        shift
        for seconds in 1.5 5 15; do
            type_at_zsh "$line" $seconds
            grep -qwF -e "$1" offered && break
        done
        offered zsh "$@"
    }
    in_zsh 'redpoll tr' train
    in_zsh 'redpoll bench all-' all-reduce all-gather
    in_zsh 'redpoll train --mode' --model=
    in_zsh 'redpoll train --model=resnet' resnet18 resnet20
    in_zsh 'redpoll plan b' broadcast barrier
    in_zsh 'redpoll plan gossip --topol' --topology=
else
    skip "completion in zsh" "zsh, or no script"
fi

finish
