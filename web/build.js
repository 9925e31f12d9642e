// Builds the page into dist/, from where Cargo's build script embeds it into the binary. Every file
// but index.html has a hash in its name, so the server lets browsers keep it for ever, and is
// stored gzipped, which makes 6 MB of it 2 MB in the binary and on the wire.

import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const BASE = "/graphiql/";
const here = new URL(".", import.meta.url);
const dist = new URL("dist/", here);

const common = {
  absWorkingDir: import.meta.dirname,
  outdir: "dist",
  write: false,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome114", "firefox114", "safari16.4"], // the first with workers that are modules
  splitting: true,
  entryNames: "[name]-[hash]",
  chunkNames: "chunk-[hash]",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  define: { "process.env.NODE_ENV": '"production"' },
  // Monaco's modules import their own styles; GraphiQL's style sheet already has them.
  loader: { ".css": "empty" },
};

/** Bundles the entry points into dist/ and returns the address of each by its name. */
async function bundle(entryPoints, options = {}) {
  const { metafile, outputFiles } = await build({ ...common, ...options, entryPoints });
  for (const { path, contents } of outputFiles) {
    await writeFile(`${path}.gz`, gzipSync(contents, { level: 9 }));
  }
  const addresses = {};
  for (const [path, { entryPoint }] of Object.entries(metafile.outputs)) {
    const file = path.slice("dist/".length);
    if (entryPoint) addresses[file.slice(0, file.lastIndexOf("-"))] ??= BASE + file;
  }
  return addresses;
}

// The folder itself stays, with its .gitignore: Cargo watches it.
for (const name of await readdir(dist)) {
  if (name !== ".gitignore") await rm(new URL(name, dist), { recursive: true });
}

// GraphiQL edits GraphQL and JSON; Monaco's other languages never get in.
const workers = await bundle({
  editor: "monaco-editor/esm/vs/editor/editor.worker.js",
  graphql: "monaco-graphql/esm/graphql.worker.js",
  json: "monaco-editor/esm/vs/language/json/json.worker.js",
});
const { app } = await bundle(["app.js"], {
  define: { ...common.define, WORKERS: JSON.stringify(workers) },
});
const { style } = await bundle({ style: "graphiql/style.css" }, { loader: {} });

const html = await readFile(new URL("index.html", here), "utf8");
await writeFile(
  new URL("index.html", dist),
  html.replace("{{app}}", app).replace("{{style}}", style),
);
