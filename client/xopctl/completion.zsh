#compdef xopctl
# Completion of xopctl for zsh. Operators are asked of the daemon that the command line names.
local verb= i
local -a server options names
for ((i = 2; i < CURRENT; i++)); do
    case ${words[i]} in
    -s | --server) server+=(-s "${words[++i]}") ;;
    --ca | --cert | --key | --token-file) server+=(${words[i]} "${words[++i]}") ;;
    --insecure-token) server+=(--insecure-token) ;;
    ops | run | verify | bench | stats | top | ping | doctor | op | help) verb=${words[i]} ; break ;;
    esac
done
case $verb in
'')
    names=(ops run verify bench stats top ping doctor op help version)
    options=(--server --ca --cert --key --token-file --insecure-token --help --version)
    ;;
ops) options=(--json) ;;
run) options=(--in --grad --out --attr --dtype --deadline --backward --check --no-shm --json) ;;
verify) options=(--dtype --shape --seed --reference --json) ;;
bench)
    options=(--shape --dtype --backward --attr --clients --inflight --path --no-shm --seconds
        --spin-us --flood --compare --report --json)
    ;;
stats) options=(--watch --count --json) ;;
top) options=(--by --sort --interval --count --json) ;;
ping) options=(--json) ;;
doctor) options=(--config --json) ;;
op)
    names=(new build check install)
    options=(--c --cuda --output --arch --reference --dtype --shape --seed --no-sanitizer --json
        --directory)
    ;;
help) names=(ops run verify bench stats top ping doctor op) ;;
esac
case ${words[CURRENT - 1]} in
--path) compadd inline shm resident ; return ;;
--by) compadd operators clients ; return ;;
build | check | install | --output | --directory | --in | --grad | --out | --report | --config | --ca | --cert | --key | --token-file) _files ; return ;;
esac
if [[ ${words[CURRENT]} == -* ]]; then
    compadd -- $options
    return
fi
case $verb in
ops | run | verify | bench)
    names=(${(f)"$(xopctl $server ops 2>/dev/null | awk 'NR > 1 { print $1 }')"})
    ;;
esac
compadd -- $names
