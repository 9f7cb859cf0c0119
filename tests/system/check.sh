# For tests in shell: directory, a temporary one, and check NAME COMMAND..., which says whether the
# command succeeded, with what it printed where not.
directory=$(mktemp -d)
number=0
check() {
    number=$((number + 1))
    local name=$1
    shift
    if "$@" >"$directory/out" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$directory/out"
    fi
}

# The tree of a build, installed below $1 with the prefix $2.
install_into() {
    env OUT="$build" DESTDIR="$1" PREFIX="$2" VERSION="$(cat VERSION)" MSGPACK=msgpack scripts/install.sh
}
