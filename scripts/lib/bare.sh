# shellcheck shell=bash
# Cassandra as processes of this machine. Sourced by scripts/servers.
# shellcheck disable=SC2034,SC2154,SC2164 # shares its variables and `set -e`

java=
libraries=

need_java() {
    java=$(need_tool java)
    libraries=$cache_dir/cassandra-$CASSANDRA_VERSION
}

# Downloads to a folder beside the final one and renames it: what has the final name is complete.
need_cassandra() {
    need_java
    [[ -d $libraries ]] && return
    local maven temporary attempt
    maven=$(need_tool mvn)
    mkdir -p "$cache_dir"
    exec 7<"$cache_dir"
    flock 7
    # Somebody else may have brought it while we waited.
    if [[ ! -d $libraries ]]; then
        say "downloading Cassandra $CASSANDRA_VERSION with Maven (about 70 MB), kept in $libraries"
        temporary=$(mktemp -d "$cache_dir/.download-XXXXXX")
        downloading=$temporary
        cat >"$temporary/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>vitrina</groupId><artifactId>test-cassandra</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>$CASSANDRA_VERSION</version>
    </dependency>
  </dependencies>
</project>
POM
        for attempt in 1 2 3; do
            "$maven" -B -q -f "$temporary/pom.xml" \
                "$MAVEN_DEPENDENCY_PLUGIN:copy-dependencies" -DincludeScope=runtime \
                -DoutputDirectory="$temporary/lib" >"$temporary/log" 2>&1 7<&- 8<&- && break
            head -n 20 "$temporary/log" >&2
            ((attempt < 3)) || die "Maven could not download Cassandra $CASSANDRA_VERSION"
            say "trying again"
        done
        mv "$temporary/lib" "$libraries"
        rm -rf "$temporary"
        downloading=
    fi
    exec 7<&-
}

# What Cassandra's internals need of Java 17's modules, for the server and for its tools.
module_options() {
    local package
    for package in java.base/jdk.internal.misc java.base/java.lang.ref java.sql/java.sql \
        java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry \
        java.rmi/sun.rmi.server jdk.unsupported/sun.misc jdk.attach/sun.tools.attach \
        jdk.compiler/com.sun.tools.javac.file; do
        echo "--add-exports=$package=ALL-UNNAMED"
    done
    for package in java.base/java.io java.base/java.lang java.base/java.lang.module \
        java.base/java.lang.reflect java.base/java.math java.base/java.net java.base/java.util \
        java.base/java.util.concurrent java.base/java.util.concurrent.atomic \
        java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module \
        java.base/jdk.internal.ref java.base/jdk.internal.reflect \
        java.base/jdk.internal.util.jar java.base/sun.nio.ch \
        jdk.compiler/com.sun.tools.javac jdk.management/com.sun.management.internal; do
        echo "--add-opens=$package=ALL-UNNAMED"
    done
    echo -Djdk.attach.allowAttachSelf=true
}

# All nodes are seeds, so that any of them can start again while any other is down.
bare_seeds() {
    local n seeds=()
    for ((n = 1; n <= $(node_count); n++)); do
        seeds+=("$(node_address "$n"):$(get storage_port)")
    done
    (IFS=, && echo "${seeds[*]}")
}

# Memory and threads are cut down to what three nodes beside a compiler can have on a small
# machine. No snapshots: tests drop keyspaces all the time. No bootstrap: a new node of a cluster
# without data has nothing to fetch, and on a busy machine it may fail for want of a seed that
# answers within the shortened ring delay.
write_node_settings() {
    local n=$1 dir=$state/node$1
    mkdir -p "$dir"/{conf,data,tmp} "$state/logs"
    cat >"$dir/conf/cassandra.yaml" <<YAML
cluster_name: vitrina-$name
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: GossipingPropertyFileSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "$(bare_seeds)"
listen_address: $(node_address "$n")
rpc_address: $(node_address "$n")
storage_port: $(get storage_port)
start_native_transport: true
native_transport_port: $(get native_port)
paxos_variant: v2
auto_bootstrap: false

data_file_directories: ["$dir/data/data"]
commitlog_directory: $dir/data/commitlog
hints_directory: $dir/data/hints
saved_caches_directory: $dir/data/saved_caches
cdc_raw_directory: $dir/data/cdc_raw

commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 16MiB
commitlog_total_space: 512MiB
commitlog_disk_access_mode: legacy
memtable_heap_space: 192MiB
memtable_offheap_space: 192MiB
networking_cache_size: 64MiB
key_cache_size: 16MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_counter_writes: 8
concurrent_compactors: 1
compaction_throughput: 64MiB/s
auto_snapshot: false
disk_failure_policy: stop
YAML
    if [[ -n ${VITRINA_CASSANDRA_YAML:-} ]]; then cat "$VITRINA_CASSANDRA_YAML" >>"$dir/conf/cassandra.yaml"; fi
    printf 'dc=dc1\nrack=rack1\n' >"$dir/conf/cassandra-rackdc.properties"
    cat >"$dir/conf/logback.xml" <<'XML'
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <!-- One line of ten thousand characters at every start. -->
  <logger name="org.apache.cassandra.config.Config" level="WARN"/>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
XML
    sed 's/"INFO"/"OFF"/' "$dir/conf/logback.xml" >"$dir/conf/logback-tools.xml"
}

# The delays that are left out protect large clusters that join while they serve; here each node
# joins alone, and `start` looks at the ring itself. Where there is one node, changes of the schema are
# not forced to disk (unsafesystem): tests make thousands of tables, and nobody keeps them. One of
# three may be killed and come back, and would have forgotten its tables with all that is in them.
start_bare_node() {
    local n=$1 dir=$state/node$1 heap options forgets=true
    heap=$(node_heap)
    (($(node_count) == 1)) || forgets=false
    mapfile -t options < <(module_options)
    spawn "node$n" "$java" "${options[@]}" \
        "-Xms$heap" "-Xmx$heap" -Xss256k -XX:MaxDirectMemorySize=512M \
        -XX:+UseG1GC -XX:+ParallelRefProcEnabled -XX:MaxGCPauseMillis=300 \
        -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError \
        "-javaagent:$(echo "$libraries"/jamm-*.jar)" \
        "-Djava.io.tmpdir=$dir/tmp" "-Djna.tmpdir=$dir/tmp" \
        -Dio.netty.tryReflectionSetAccessible=true \
        "-Dlogback.configurationFile=$dir/conf/logback.xml" \
        "-Dcassandra.config=file://$dir/conf/cassandra.yaml" \
        "-Dcassandra.storagedir=$dir/data" "-Dcassandra.logdir=$state/logs" \
        "-Dcassandra.jmx.local.port=$(get "node$n/jmx_port")" \
        -Dcassandra-foreground=yes \
        -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=1000 \
        -Dcassandra.superuser_setup_delay_ms=0 "-Dcassandra.unsafesystem=$forgets" \
        -cp "$dir/conf:$libraries/*" org.apache.cassandra.service.CassandraDaemon
}

bare_nodetool() {
    local n=$1 options
    shift
    need_java
    mapfile -t options < <(module_options)
    # Its history file would be written into the home folder otherwise.
    "$java" "${options[@]}" -Xmx128M -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
        "-Duser.home=$state/node$n/tmp" \
        "-Dlogback.configurationFile=$state/node$n/conf/logback-tools.xml" \
        -cp "$state/node$n/conf:$libraries/*" org.apache.cassandra.tools.NodeTool \
        -h 127.0.0.1 -p "$(get "node$n/jmx_port")" "$@" 8<&-
}
