// Tells Monaco, GraphiQL's editor, where its workers are. The build defines WORKERS: their hashed
// addresses by Monaco's label.

globalThis.MonacoEnvironment = {
  getWorker: (_id, label) => new Worker(WORKERS[label] ?? WORKERS.editor, { type: "module" }),
};
