# Sourced by every suite: where things are cached, how the server under test is started and stopped.
#
#   REDIS_PORT, REDIS_HOST   test the server that already listens there (host default 127.0.0.1). The suites empty it:
#                            one that holds keys is refused unless SUITE_FLUSH=1.
#   REDIS_PASSWORD           the password that this server asks for; a server started here asks for none
#   SUITE_SERVER             what is started when no REDIS_PORT is given: brooklet (default), redis (the real one, to check
#                            the suites themselves), or shorn (the real one without the commands that Brooklet lacks)
#   BROOKLET_BIN             the command that serves; default: what cargo builds
#   SUITE_DIR                where the store of a started server lies; default: a new directory under TMPDIR
#
# After `start_server`, HOST and PORT tell where it listens; what it prints is in $work/server.log, and both are gone at
# exit. Needs bash, coreutils and python3.

set -euo pipefail

suites=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/brooklet-suites
work=$(mktemp -d)
store=
server_pid=
given=

die() { printf '%s\n' "$*" >&2; exit 2; }

need() {
    local tool
    for tool; do
        command -v "$tool" >/dev/null || die "there is no $tool here; install it (see ${suites##*/}/README.md)"
    done
}

cleanup() {
    local code=$?
    trap - EXIT
    # A server that was given is left as empty as it was, for the next suite.
    [[ -z $given ]] || ask FLUSHALL >/dev/null || true
    stop_server
    [[ -z $store ]] || rm -rf "$store"
    rm -rf "$work"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# One command, told inline; the first line of the reply.
ask() {
    local reply
    exec 9<>"/dev/tcp/$HOST/$PORT" || return 1
    [[ -z ${REDIS_PASSWORD:-} ]] || { printf 'AUTH %s\r\n' "$REDIS_PASSWORD" >&9; read -r -t 60 reply <&9; }
    printf '%s\r\n' "$*" >&9
    read -r -t 60 reply <&9 || { exec 9<&-; return 1; }
    exec 9<&-
    printf '%s\n' "${reply%$'\r'}"
}

# The one place that knows how each server is started: it listens on $PORT, its files are in $store, and it takes the place
# of the shell that launches it.
launch() {
    case ${SUITE_SERVER:=brooklet} in
    brooklet)
        local command=(cargo run --quiet --release --locked --manifest-path "$suites/../../../Cargo.toml" -p brooklet-cli --features full --)
        [[ -z ${BROOKLET_BIN:-} ]] || command=("$BROOKLET_BIN")
        exec "${command[@]}" serve "$store/suite.brooklet" --listen "127.0.0.1:$PORT" --http "" ;;
    redis)
        exec redis-server --port "$PORT" --bind 127.0.0.1 --dir "$store" --save '' --appendonly no ;;
    shorn)
        exec "$suites/tcl/shorn" --port "$PORT" --bind 127.0.0.1 --dir "$store" --save '' --appendonly no ;;
    *)
        die "SUITE_SERVER is brooklet, redis or shorn, not $SUITE_SERVER" ;;
    esac
}

start_server() {
    local keys
    if [[ -n ${REDIS_PORT:-} ]]; then
        HOST=${REDIS_HOST:-127.0.0.1} PORT=$REDIS_PORT
        [[ $(ask PING) == +PONG ]] || die "no server answers PING on $HOST:$PORT (does it want REDIS_PASSWORD?)"
        keys=$(ask DBSIZE)
        [[ $keys == :0 || -n ${SUITE_FLUSH:-} ]] ||
            die "the server on $HOST:$PORT holds ${keys#:} keys, which the suites would delete; set SUITE_FLUSH=1 if they may"
        [[ $keys == :0 ]] || ask FLUSHALL >/dev/null
        given=1
        return
    fi
    unset REDIS_PASSWORD
    [[ ${SUITE_SERVER:=brooklet} == brooklet ]] || need redis-server
    store=$(mktemp -d "${SUITE_DIR:-${TMPDIR:-/tmp}}/brooklet-suite.XXXXXX")
    HOST=127.0.0.1 PORT=$(free_port)
    launch >"$work/server.log" 2>&1 &
    server_pid=$!
    # A first build takes minutes.
    local deadline=$((SECONDS + ${SUITE_START_LIMIT:-900}))
    until [[ $(ask PING 2>/dev/null) == +PONG ]]; do
        if ! kill -0 "$server_pid" 2>/dev/null || ((SECONDS > deadline)); then
            tail -n 20 "$work/server.log" >&2
            die "the server ($SUITE_SERVER) did not start; above is the end of what it printed"
        fi
        sleep 0.05
    done
}

stop_server() {
    [[ -n $server_pid ]] || return 0
    kill -TERM "$server_pid" 2>/dev/null || true
    # One that does not end when it is told must not keep the suite from ending.
    local waited
    for ((waited = 0; waited < 1200; waited++)); do
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$server_pid" 2>/dev/null && echo "the server did not end in 60 seconds when it was told to" >&2
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}

# limit SECONDS COMMAND...: run it, end it when it takes longer.
limit() {
    local seconds=$1 code=0
    shift
    timeout --kill-after=10 "$seconds" "$@" || code=$?
    [[ $code != 124 ]] || echo "ended after $seconds seconds: $*" >&2
    return $code
}

# venv NAME REQUIREMENTS: a Python environment in the cache, made once for each content of the requirements; sets python.
venv() {
    need python3
    local mark
    mark=$( (python3 --version; cat "$2") | sha256sum | cut -c 1-12)
    local dir=$cache/python-$1-$mark
    python=$dir/bin/python
    [[ ! -e $dir/done ]] || return 0
    rm -rf "$dir"
    mkdir -p "$cache"
    limit 120 python3 -m venv "$dir" || die "python3 -m venv fails; on Debian, apt-get install python3-venv"
    limit 300 "$python" -m pip install --quiet --disable-pip-version-check --no-input -r "$2" ||
        die "pip could not install $2"
    touch "$dir/done"
}
