# Completion of xopctl for bash. Operators are asked of the daemon that the command line names.
_xopctl() {
    local word=${COMP_WORDS[COMP_CWORD]} verb= server=() i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -s | --server) server+=(-s "${COMP_WORDS[++i]}") ;;
        --ca | --cert | --key | --token-file) server+=("${COMP_WORDS[i]}" "${COMP_WORDS[++i]}") ;;
        --insecure-token) server+=(--insecure-token) ;;
        ops | run | verify | bench | stats | top | ping | doctor | op | help) verb=${COMP_WORDS[i]} ; break ;;
        esac
    done
    local options= names=
    case $verb in
    '') names='ops run verify bench stats top ping doctor op help version' options='--server --ca --cert --key --token-file --insecure-token --help --version' ;;
    ops) options='--json' ;;
    run) options='--in --grad --out --attr --dtype --deadline --backward --check --no-shm --json' ;;
    verify) options='--dtype --shape --seed --reference --json' ;;
    bench)
        options='--shape --dtype --backward --attr --clients --inflight --path --no-shm --seconds
            --spin-us --flood --compare --report --json'
        ;;
    stats) options='--watch --count --json' ;;
    top) options='--by --sort --interval --count --json' ;;
    ping) options='--json' ;;
    doctor) options='--config --json' ;;
    op)
        names='new build check install'
        options='--c --cuda --output --arch --reference --dtype --shape --seed --no-sanitizer --json
            --directory'
        ;;
    help) names='ops run verify bench stats top ping doctor op' ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
        return
    fi
    case $verb in
    ops | run | verify | bench)
        names=$(xopctl "${server[@]}" ops 2>/dev/null | awk 'NR > 1 { print $1 }')
        ;;
    esac
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    build | check | install | --output | --directory)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    --path) mapfile -t COMPREPLY < <(compgen -W 'inline shm resident' -- "$word") ;;
    --by) mapfile -t COMPREPLY < <(compgen -W 'operators clients' -- "$word") ;;
    --in | --grad | --out | --report | --config) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$names" -- "$word") ;;
    esac
}
complete -F _xopctl xopctl
