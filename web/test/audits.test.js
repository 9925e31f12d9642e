// The audit suite of GraphQL over HTTP, by the authors of graphql-http, against a real server.
//
//   npm ci && (cd .. && cargo build) && npm run audits
//
// What the specification says a server MUST or SHOULD do has to pass; what it MAY do is listed.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serverAudits } from "graphql-http";
import { Server } from "./server.js";

let server;

before(async () => {
  server = await Server.start();
});

after(async () => {
  await server?.stop();
});

for (const [manner, headers] of [
  ["as any client", {}],
  // A query by GET is taken only from a program that says it is one.
  ["as a client that sends the header for queries by GET", { "Apollo-Require-Preflight": "true" }],
]) {
  test(`passes the audits ${manner}`, async (t) => {
    const audits = serverAudits({
      url: () => `${server.origin}/graphql`,
      fetchFn: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } }),
    });
    for (const level of ["MUST", "SHOULD", "MAY"]) {
      assert.ok(audits.some(({ name }) => name.startsWith(`${level} `)), `no audit says ${level}`);
    }
    for (const audit of audits) {
      await t.test(`${audit.id} ${audit.name}`, async (t) => {
        const result = await audit.fn();
        if (result.status === "ok") return;
        const fault = `${result.reason} (answered ${result.response?.status})`;
        if (audit.name.startsWith("MAY ")) t.diagnostic(`not done: ${fault}`);
        else assert.fail(fault);
      });
    }
  });
}
