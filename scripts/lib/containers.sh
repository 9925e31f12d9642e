# shellcheck shell=bash
# The servers as containers. Sourced by scripts/servers.
# shellcheck disable=SC2034,SC2154,SC2164 # shares its variables and `set -e`

container() { echo "vitrina-test-$name-$1"; }
container_running() { [[ $(docker inspect -f '{{.State.Running}}' "$(container "$1")" 2>/dev/null) == true ]]; }

need_image() {
    docker image inspect "$1" >/dev/null 2>&1 && return
    say "downloading the image $1, kept by the container engine"
    docker pull --quiet "$1" >/dev/null
}

# Each node tells clients the loopback address on which its port is published, so that a driver
# that discovers the cluster finds every node. All are seeds (a name that nobody has is passed over),
# so that any can start again while another is down. The image has no variable for the Paxos variant.
create_cassandra_container() {
    local n=$1 heap
    heap=$(node_heap)
    docker network inspect "$(container net)" >/dev/null 2>&1 ||
        docker network create "$(container net)" >/dev/null
    need_image "$CASSANDRA_IMAGE"
    docker run --detach --name "$(container "node$n")" \
        --network "$(container net)" \
        --publish "$(node_address "$n"):$(get native_port):9042" \
        --env "CASSANDRA_CLUSTER_NAME=vitrina-$name" \
        --env "CASSANDRA_SEEDS=$(container node1),$(container node2),$(container node3)" \
        --env "CASSANDRA_BROADCAST_RPC_ADDRESS=$(node_address "$n")" \
        --env CASSANDRA_ENDPOINT_SNITCH=GossipingPropertyFileSnitch \
        --env CASSANDRA_DC=dc1 --env CASSANDRA_RACK=rack1 --env CASSANDRA_NUM_TOKENS=16 \
        --env "MAX_HEAP_SIZE=$heap" --env HEAP_NEWSIZE=256M \
        --env "JVM_EXTRA_OPTS=-Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=1000 -Dcassandra.superuser_setup_delay_ms=0 -Dcassandra.unsafesystem=true" \
        --entrypoint bash "$CASSANDRA_IMAGE" -c '
            sed -i -E "/^(paxos_variant|auto_bootstrap|auto_snapshot):/d" /etc/cassandra/cassandra.yaml
            printf "\n%s" "paxos_variant: v2" "auto_bootstrap: false" "auto_snapshot: false" "" \
                >>/etc/cassandra/cassandra.yaml
            exec docker-entrypoint.sh cassandra -f' >/dev/null
}

create_redis_container() {
    need_image "$REDIS_IMAGE"
    docker run --detach --name "$(container redis)" \
        --publish "127.0.0.1:$(get redis_port):6379" \
        "$REDIS_IMAGE" redis-server --save '' --appendonly no >/dev/null
}
