// GraphiQL for Vitrina. Both pages run this file: the built one through esbuild, the one that loads
// GraphiQL from the CDN as it is, with an import map for the bare names. So: no JSX, no CSS imports.

import "#workers";
import { createElement } from "react";
import { createRoot } from "react-dom/client";
import { getOperationAST, parse } from "graphql";
import { createClient } from "graphql-ws/client";
import { GraphiQL } from "graphiql";
import { examples } from "./examples.js";

// A comment and not a made-up token: the public examples must run without one, and the server
// rightly refuses a bad one.
const DEFAULT_HEADERS = `{
  // "Authorization": "Bearer <paste the token here>"
}
`;

const FORBIDDEN = 4403; // the close code for a token that is refused

async function fetcher({ query, variables, operationName: current }, options) {
  // For a moment after a change of tabs, GraphiQL still has the name of the previous tab's operation.
  const operationName = query.includes(current) ? current : undefined;
  const payload = { query, variables, operationName };
  return isSubscription(payload) ? watch(payload, options?.headers) : post(payload, options?.headers);
}

function isSubscription({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === "subscription";
  } catch {
    return false; // the server tells what is wrong with it
  }
}

/** What GraphiQL takes for an observable. The tab's headers, with the token, go into `connection_init`. */
function watch(payload, headers) {
  const client = createClient({
    url: `${location.origin.replace(/^http/, "ws")}/graphql`,
    connectionParams: headers,
    // After a restart of the server it goes on; a token that was refused is not better the next time.
    shouldRetry: ({ code }) => code !== undefined && code !== FORBIDDEN,
  });
  const asError = (fault) =>
    fault?.code === undefined ? fault : new Error(`The connection was closed: ${fault.code} ${fault.reason}`);
  return {
    subscribe: ({ next, error, complete }) => ({
      unsubscribe: client.subscribe(payload, { next, complete, error: (fault) => error(asError(fault)) }),
    }),
  };
}

async function post(payload, headers) {
  const response = await fetch("/graphql", {
    method: "POST",
    headers: {
      Accept: "application/graphql-response+json, application/json;q=0.9",
      "Content-Type": "application/json",
      ...headers,
    },
    body: JSON.stringify(payload),
  });
  const text = await response.text();
  try {
    // GraphQL errors come with a 4xx status and a body worth showing, so the status alone is no failure.
    return JSON.parse(text);
  } catch {
    throw new Error(`The server answered ${response.status} without JSON: ${text.slice(0, 500)}`);
  }
}

// GraphiQL 5 fills the first default tab's query but not its variables, and restores both only from
// its storage: so a first visit starts with the first example in there.
if (!localStorage.getItem("graphiql:tabState")) {
  localStorage.setItem("graphiql:query", examples[0].query);
  localStorage.setItem("graphiql:variables", examples[0].variables);
}

// A staff token must not outlive the page. `shouldPersistHeaders` keeps it out of what GraphiQL stores
// of its tabs, but not out of its history.
const storage = {
  getItem: (key) => localStorage.getItem(key),
  removeItem: (key) => localStorage.removeItem(key),
  clear: () => localStorage.clear(),
  get length() {
    return localStorage.length;
  },
  setItem(key, value) {
    const isHistory = key === "graphiql:queries" || key === "graphiql:favorites";
    const withoutHeaders = (name, part) => (name === "headers" ? undefined : part);
    localStorage.setItem(key, isHistory ? JSON.stringify(JSON.parse(value), withoutHeaders) : value);
  },
};

createRoot(document.getElementById("graphiql")).render(
  createElement(
    GraphiQL,
    {
      fetcher,
      defaultTabs: examples,
      defaultHeaders: DEFAULT_HEADERS,
      defaultEditorToolsVisibility: "variables",
      shouldPersistHeaders: false,
      storage,
    },
    createElement(GraphiQL.Logo, null, "Vitrina"),
  ),
);
