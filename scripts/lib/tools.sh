# shellcheck shell=bash
# What the scripts need on the machine: how to find it, and what to type when it is missing.
# Sourced by scripts/servers, scripts/install-tools and scripts/test; defines functions and names only.

# Every tool the scripts know, in the order in which they are reported. One that another one is
# installed with comes before it.
# shellcheck disable=SC2034 # used by the scripts that source this file
ALL_TOOLS=(java mvn redis-server node npm chromium python schemathesis cargo-deny)

# Where downloads are kept, for all clones of a user.
readonly cache_dir=${VITRINA_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/vitrina}

# The same as "engines" in web/package.json.
NODE_VERSION=20.11

# The oldest that the versions in schemathesis.txt run on.
PYTHON_VERSION=3.11
# Every version that schemathesis is installed with.
schemathesis_versions=$(dirname -- "${BASH_SOURCE[0]}")/schemathesis.txt

# The version of cargo-deny that is compiled where there is none; deny.toml is written for it.
CARGO_DENY_VERSION=0.20.2

# Debian's and Ubuntu's packages of a tool; none for one that is installed by ourselves.
tool_package() {
    case $1 in
        java) echo openjdk-17-jre-headless ;;
        mvn) echo maven ;;
        redis-server) echo redis-server ;;
        node) echo nodejs ;;
        npm) echo npm ;;
        chromium) echo chromium ;;
        python) echo python3-venv ;;
        schemathesis | cargo-deny) ;;
        *) return 1 ;;
    esac
}

# What a tool is needed for, to be read in a message.
tool_purpose() {
    case $1 in
        java) echo "Java 17, runs the Cassandra of the tests" ;;
        mvn) echo "Maven, downloads the Cassandra of the tests" ;;
        redis-server) echo "the Redis of the tests" ;;
        node) echo "Node.js $NODE_VERSION or newer, builds and tests the GraphiQL page" ;;
        npm) echo "npm, builds and tests the GraphiQL page" ;;
        chromium) echo "the browser that tests the GraphiQL page" ;;
        python) echo "Python $PYTHON_VERSION or newer with venv, runs schemathesis" ;;
        schemathesis) echo "makes up requests from the schema" ;;
        cargo-deny) echo "looks through the dependencies" ;;
    esac
}

# The commands that a reader has to type for the given tools, one per line.
tool_command() {
    local tool packages=()
    for tool in "$@"; do
        if [[ $tool == node ]] && ! distribution_has_node; then
            echo "nvm install $NODE_VERSION   # the distribution's Node.js is too old"
        elif [[ -n $(tool_package "$tool") ]]; then
            packages+=("$(tool_package "$tool")")
        fi
    done
    ((${#packages[@]} == 0)) || echo "sudo apt-get update && sudo apt-get install -y ${packages[*]}"
    for tool in "$@"; do
        [[ $tool != schemathesis && $tool != cargo-deny ]] || echo "scripts/install-tools $tool"
    done
}

# Prints the path of a tool; fails if the machine has none that will do.
find_tool() {
    case $1 in
        java) find_java17 ;;
        node) find_node ;;
        chromium) find_chromium ;;
        python) find_python ;;
        schemathesis) find_schemathesis ;;
        cargo-deny) find_cargo_deny ;;
        *) command -v "$1" ;;
    esac
}

# Cassandra 5.0 runs on Java 11 and 17 only, so a newer default Java must not be taken.
find_java17() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*17*/bin/java; do
        [[ -n $candidate && -x $candidate ]] || continue
        if "$candidate" -version 2>&1 | grep -q 'version "17[."]'; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

find_node() {
    local node
    node=$(command -v node) || return 1
    version_at_least "$("$node" --version)" "$NODE_VERSION" && echo "$node"
}

# Usage: version_at_least v20.11.1 20.11
version_at_least() {
    [[ $(printf '%s\n%s\n' "$2" "${1#v}" | sort -V | head -n 1) == "$2" ]]
}

# CHROMIUM names a browser of one's own. Ubuntu's `chromium-browser` may be a stub that
# only asks for a snap, hence the question for its version.
find_chromium() {
    local name path
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        [[ -n $name ]] || continue
        path=$(command -v "$name") || continue
        if "$path" --version >/dev/null 2>&1; then
            echo "$path"
            return
        fi
    done
    return 1
}

# Debian's Python has `venv` but cannot use it without another package.
find_python() {
    local python
    python=$(command -v python3) || return 1
    "$python" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < (${PYTHON_VERSION/./, }))" \
        2>/dev/null && echo "$python"
}

# The folder has the hash of the versions in its name, so that it never holds others.
schemathesis_folder() {
    echo "$cache_dir/schemathesis-$(sha256sum <"$schemathesis_versions" | cut -c 1-16)"
}

find_schemathesis() {
    local path
    path=$(schemathesis_folder)/bin/schemathesis
    [[ -x $path ]] && "$path" --version >/dev/null 2>&1 && echo "$path"
}

# Installs schemathesis into a virtual environment of its own; nothing else on the machine changes.
# What is made in an environment names its folder, so it is made in its place.
install_schemathesis() {
    local python folder
    python=$(find_python) || return 1
    folder=$(schemathesis_folder)
    mkdir -p "$cache_dir"
    (
        flock 9
        # Somebody else may have brought it while we waited.
        ! find_schemathesis >/dev/null || exit 0
        rm -rf "$folder"
        "$python" -m venv "$folder" &&
            "$folder/bin/pip" --quiet --disable-pip-version-check install --no-deps \
                --only-binary :all: --requirement "$schemathesis_versions" &&
            "$folder/bin/pip" --disable-pip-version-check check &&
            exit 0
        rm -rf "$folder"
        exit 1
    ) 9<"$cache_dir" >&2
}

# The folder has the version in its name, so that it never holds another.
cargo_deny_folder() { echo "$cache_dir/cargo-deny-$CARGO_DENY_VERSION"; }

# One's own first, whatever its version.
find_cargo_deny() {
    local path
    path=$(command -v cargo-deny) || path=$(cargo_deny_folder)/bin/cargo-deny
    [[ -x $path ]] && "$path" --version >/dev/null 2>&1 && echo "$path"
}

# Compiles cargo-deny without optimisation, which takes a minute, into a folder of its own.
install_cargo_deny() {
    command -v cargo >/dev/null || return 1
    mkdir -p "$cache_dir"
    (
        flock 9
        ! find_cargo_deny >/dev/null || exit 0
        cargo install --quiet --locked --debug --root "$(cargo_deny_folder)" \
            "cargo-deny@$CARGO_DENY_VERSION"
    ) 9<"$cache_dir" >&2
}

# Prints those of the given tools that the machine does not have, one per line.
missing_tools() {
    local tool
    for tool in "$@"; do
        find_tool "$tool" >/dev/null || echo "$tool"
    done
}

# Is the Node.js that apt would install new enough? Where there is no apt, nothing speaks against it.
distribution_has_node() {
    local candidate
    command -v apt-cache >/dev/null || return 0
    candidate=$(apt-cache policy nodejs | sed -n 's/^ *Candidate: *//p')
    [[ -z $candidate || $candidate == "(none)" ]] || version_at_least "$candidate" "$NODE_VERSION"
}

# Is there a container engine that answers? A client without an engine does not count.
docker_answers() {
    command -v docker >/dev/null && docker info >/dev/null 2>&1
}
