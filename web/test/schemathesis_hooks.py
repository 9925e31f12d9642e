"""What schemathesis is told about this server: the values of its own scalars, and what a fault is."""

import json

import schemathesis
from hypothesis import strategies as st
from schemathesis.graphql import nodes

# Codes of what is the server's fault, whatever it was asked.
FAILURES = {"INTERNAL", "TIMEOUT", "UNAVAILABLE"}

# Ids of products that the demo shop has, so that something is found and changed; and any text.
KNOWN_IDS = [f"PROD-{number}" for number in range(11000, 11020)]

schemathesis.graphql.scalar(
    "ID", st.one_of(st.sampled_from(KNOWN_IDS), st.text(max_size=80), st.uuids().map(str)).map(nodes.String)
)
# Mostly such as many arguments take; lengths of pages above all.
schemathesis.graphql.scalar(
    "Int", st.one_of(st.integers(1, 100), st.integers(-(2**31), 2**31 - 1)).map(nodes.Int)
)
schemathesis.graphql.scalar(
    "String", st.one_of(st.sampled_from(["Москва", "card", "key-1"]), st.text(max_size=300)).map(nodes.String)
)
schemathesis.graphql.scalar(
    "Decimal",
    st.one_of(
        st.decimals(min_value=-1, max_value=10**6, places=2).map(str),
        st.decimals().map(str),
        st.text(max_size=40),
    ).map(nodes.String),
)
schemathesis.graphql.scalar(
    "Date", st.one_of(st.dates().map(str), st.text(max_size=20)).map(nodes.String)
)
schemathesis.graphql.scalar(
    "DateTime",
    st.one_of(st.datetimes().map(lambda at: f"{at.isoformat()}Z"), st.text(max_size=40)).map(nodes.String),
)


# schemathesis's own check takes every error of a resolver for a fault of the server, a refusal too.
@schemathesis.check
def no_failure(ctx, response, case):
    """No 5xx, no code of a failure, and always an answer of GraphQL."""
    assert response.status_code < 500, f"answered {response.status_code}"
    answer = json.loads(response.content)
    codes = {error["extensions"]["code"] for error in answer.get("errors", [])}
    assert not codes & FAILURES, f"answered with {codes & FAILURES}"
    assert answer.get("data") is not None or codes, "answered with neither data nor errors"
