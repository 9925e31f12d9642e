// schemathesis makes up requests from the schema and asks a real server: no answer may be a failure.
//
//   (cd .. && cargo build && scripts/install-tools schemathesis) && SCHEMATHESIS=… npm run fuzz
//
// SCHEMATHESIS names the command (the folder is told by scripts/install-tools --help);
// VITRINA_TEST_SEED makes it ask something else than every time.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Server, firstExisting } from "./server.js";

const SEED = process.env.VITRINA_TEST_SEED ?? "1";
// Requests for each field of Query and Mutation: as many as take a minute together.
const AS_ANYBODY = 8;
const AS_STAFF = 16;

let server, folder;

before(async () => {
  server = await Server.start();
  // schemathesis leaves notes where it runs.
  folder = await mkdtemp(join(tmpdir(), "vitrina-fuzz-"));
});

after(async () => {
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

test("answers whatever anybody asks", async () => {
  await fuzz(AS_ANYBODY, []);
});

test("answers whatever staff ask", async () => {
  await fuzz(AS_STAFF, ["--header", `Authorization: Bearer ${await server.staffToken()}`]);
});

test("nothing went wrong that no answer told of", () => {
  assert.deepEqual(server.failures, []);
});

async function fuzz(examples, more) {
  const args = ["run", `${server.origin}/graphql`, "--seed", SEED, "--max-examples", examples, ...more];
  // Nothing is kept from one run to the next: a seed always asks the same.
  args.push("--checks", "no_failure", "--generation-database", "none", "--no-color", "--warnings", "off");
  const hooks = join(import.meta.dirname, "schemathesis_hooks.py");
  const env = { ...process.env, SCHEMATHESIS_HOOKS: hooks, PYTHONDONTWRITEBYTECODE: "1" };
  const options = { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] };
  const schemathesis = spawn(firstExisting("SCHEMATHESIS", []), args, options);
  let told = "";
  for (const stream of [schemathesis.stdout, schemathesis.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (told += text));
  }
  const ended = await new Promise((resolve, reject) => {
    schemathesis.once("error", reject).once("close", (code, signal) => resolve(code ?? signal));
  });
  console.log(told);
  assert.equal(ended, 0, "schemathesis has found something; it is told above");
}
