// A real server with the demo shop in a folder of its own, for the tests beside this file.
// VITRINA_BIN names its binary; without it, it is what cargo has built.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const START_LIMIT_MS = 60_000; // a debug build fills the demo shop slowly
const STOP_LIMIT_MS = 10_000;
const LOG_CHARS = 10_000; // of the end of the log, for whoever looks at a server that failed

export class Server {
  /** Where it listens: `http://127.0.0.1:1234`. */
  origin;
  /** The lines of its log that tell of a failure. */
  failures = [];
  #process;
  #store;
  #log = "";
  #failure;
  #vitrina = firstExisting("VITRINA_BIN", [
    join(import.meta.dirname, "../../target/release/vitrina"),
    join(import.meta.dirname, "../../target/debug/vitrina"),
  ]);
  // The same secret signs the staff token and checks it.
  #env = { ...process.env, VITRINA_JWT_SECRET: randomBytes(32).toString("hex") };

  /** A server that is ready. Who starts it stops it. */
  static async start() {
    const server = new Server();
    try {
      await server.#start();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  async #start() {
    this.#store = await mkdtemp(join(tmpdir(), "vitrina-web-"));
    const port = await freePort();
    this.origin = `http://127.0.0.1:${port}`;
    const args = ["serve", "--listen", `127.0.0.1:${port}`, "--store", `embedded:${this.#store}`];
    const options = { env: this.#env, stdio: ["ignore", "pipe", "pipe"] };
    this.#process = spawn(this.#vitrina, [...args, "--log", "json"], options);
    // A test runner that is told to stop skips `after`; the server must not stay behind.
    process.on("exit", () => this.#process.kill("SIGKILL"));
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        this.#log = `${this.#log}${line}\n`.slice(-LOG_CHARS);
        // A panic is told of by Rust itself, as plain text.
        if (/"level":"ERROR"|panicked at/.test(line)) this.failures.push(line);
      });
    }
    this.#process.once("error", (error) => (this.#failure = error.message));
    this.#process.once("exit", (code, signal) => (this.#failure ??= `it ended with ${code ?? signal}`));

    const deadline = Date.now() + START_LIMIT_MS;
    while (!(await this.#isReady())) {
      if (Date.now() > deadline) this.#failure ??= `it was not ready after ${START_LIMIT_MS} ms`;
      if (this.#failure) throw new Error(`${this.#vitrina} did not start: ${this.#failure}\n${this.#log}`);
      await delay(50);
    }
  }

  async #isReady() {
    try {
      return (await fetch(`${this.origin}/health/ready`)).ok;
    } catch {
      return false; // not listening yet
    }
  }

  /** Ends it and takes its folder away. */
  async stop() {
    const server = this.#process;
    if (server?.pid && server.exitCode === null && server.signalCode === null) {
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGTERM");
      const timer = setTimeout(() => server.kill("SIGKILL"), STOP_LIMIT_MS);
      await ended;
      clearTimeout(timer);
    }
    if (this.#store) await rm(this.#store, { recursive: true, force: true });
  }

  /** Posts a GraphQL request; its answer. */
  async post(body, more = {}) {
    const headers = { "Content-Type": "application/json", ...more };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return (await fetch(`${this.origin}/graphql`, init)).json();
  }

  /** A token of a member of staff. */
  async staffToken() {
    const args = ["token", "--user", "me", "--role", "staff"];
    const { stdout } = await promisify(execFile)(this.#vitrina, args, { env: this.#env });
    return stdout.trim();
  }
}

/** What a variable names, or the first of the paths that exists. */
export function firstExisting(variable, paths) {
  const found = process.env[variable] ?? paths.find((path) => existsSync(path));
  assert.ok(found, `set ${variable}: none of ${paths.join(", ")} exists`);
  return found;
}

async function freePort() {
  const probe = createServer();
  await new Promise((resolve, reject) => probe.once("error", reject).listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
