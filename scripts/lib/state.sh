# shellcheck shell=bash
# The servers of one name: where their state is kept, which processes are theirs, whether they are
# ready. Sourced by scripts/servers.
# shellcheck disable=SC2034,SC2154,SC2164 # shares its variables and `set -e`

# ---------------------------------------------------------------------------------------------
# State: one folder per name, one small file per value. A name exists when its `mode` is written.

name=default
state=

set_name() {
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$ ]] || die "not a usable name: '$1'"
    name=$1
    state=$base_dir/$name
}

get() { cat "$state/$1" 2>/dev/null; }
put() { echo "$2" >"$state/$1"; }
mode() { get mode; }
node_count() { get nodes || echo 0; }
has_redis() { [[ -e $state/redis_port ]]; }
node_address() { echo "127.0.0.$1"; }
node_heap() { echo "${VITRINA_CASSANDRA_HEAP:-$( (($(node_count) > 1)) && echo 1536M || echo 1G)}"; }

# Serialises the commands that change one name. The folder itself is the lock, so that stop leaves
# nothing behind; it may have been removed while we waited for it, then we begin again.
lock_state() {
    while :; do
        mkdir -p "$state"
        exec 8<"$state" || continue
        flock 8
        [[ $state -ef /proc/self/fd/8 ]] && return
    done
}

# Chooses `count` free ports into the array `ports`. The lock and the look at the other names keep
# two starts at the same time from choosing the same one.
ports=()
choose_ports() {
    local count=$1 port taken
    ports=()
    exec 7<"$base_dir"
    flock 7
    taken=" $(cat "$base_dir"/*/reserved_ports 2>/dev/null | tr "\n" " " || true) "
    while ((${#ports[@]} < count)); do
        port=$((PORT_FIRST + (RANDOM * 32768 + RANDOM) % (PORT_LAST - PORT_FIRST + 1)))
        [[ $taken == *" $port "* ]] && continue
        port_in_use "$port" && continue
        ports+=("$port")
        taken+="$port "
    done
    printf '%s\n' "${ports[@]}" >>"$state/reserved_ports"
    exec 7<&-
}

port_in_use() {
    local n
    for n in 1 2 3; do
        if (exec 3<>"/dev/tcp/$(node_address "$n")/$1") 2>/dev/null; then return 0; fi
    done
    return 1
}

# ---------------------------------------------------------------------------------------------
# Processes of ours

# Each server has a folder of its own as its working directory. That tells whether a recorded
# process id still means our process: neither a reused id nor a changed title can deceive it.
is_ours() {
    local pid=$1 dir=$2
    [[ -n $pid && $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$dir" ]]
}

running_pid() {
    local dir=$state/$1 pid
    pid=$(get "$1/pid") || return 1
    is_ours "$pid" "$dir" && echo "$pid"
}

# Runs a server in the background, away from our terminal and with none of our files open.
# Usage: spawn FOLDER COMMAND...
spawn() {
    local what=$1
    shift
    # Before the process exists, so that it is recognisable as ours from its first moment.
    pushd "$state/$what" >/dev/null
    setsid "$@" </dev/null >>"$state/logs/$what.log" 2>&1 7<&- 8<&- &
    put "$what/pid" "$!"
    disown "$!"
    popd >/dev/null
}

# Their data is thrown away, so there is nothing to shut down in order; and a frozen process would
# not hear a polite signal.
end_process() {
    local what=$1 dir=$state/$1 pid i
    pid=$(running_pid "$what") || return 0
    kill -KILL "$pid" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do
        is_ours "$pid" "$dir" || break
        sleep 0.1
    done
    rm -f "$dir/pid"
}

# ---------------------------------------------------------------------------------------------
# Readiness

# Asks for the options of the CQL protocol (v4): only a node that serves clients answers SUPPORTED.
cql_answers() {
    local reply
    reply=$(
        exec 2>/dev/null
        exec 3<>"/dev/tcp/$1/$2" || exit 1
        printf '\x04\x00\x00\x00\x05\x00\x00\x00\x00' >&3
        timeout 2 head -c 5 <&3 | od -An -tx1 | tr -d ' \n'
    ) || return 1
    [[ $reply == 8400000006 ]]
}

redis_answers() {
    local reply
    reply=$(
        exec 2>/dev/null
        exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
        printf 'PING\r\n' >&3
        timeout 2 head -c 5 <&3
    ) || return 1
    [[ $reply == +PONG ]]
}

# Usage: wait_until "WHAT" ALIVE_COMMAND -- READY_COMMAND; both are words of this script.
wait_until() {
    local what=$1 alive=() deadline=$((SECONDS + ready_timeout))
    shift
    while [[ $1 != -- ]]; do
        alive+=("$1")
        shift
    done
    shift
    until "$@"; do
        "${alive[@]}" >/dev/null || die "$what ended before it was ready"
        ((SECONDS < deadline)) || die "$what was not ready within $ready_timeout s"
        sleep 0.3
    done
}

# Usage: sees_up N ADDRESS...; does node N see all of them up and normal?
sees_up() {
    local n=$1 status address
    shift
    status=$(run_nodetool "$n" status 2>/dev/null) || return 1
    for address in "$@"; do
        grep -q "^UN  *${address//./\\.} " <<<"$status" || return 1
    done
}
