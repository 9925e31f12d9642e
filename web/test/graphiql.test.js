// Drives the built page in a real Chromium against a real server with the demo shop.
//
//   npm ci && npm run build && (cd .. && cargo build) && npm test
//
// VITRINA_BIN (see server.js) and CHROMIUM name other binaries. Leaves test/screenshot.png to look at.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { examples } from "../examples.js";
import { Server, firstExisting } from "./server.js";

const STEP_LIMIT_MS = 20_000;

const TITLES = [
  "ProductCard",
  "SeveralProducts",
  "Categories",
  "ProductsUpsert",
  "ProductsDelete",
  "StockChanged",
  "SessionStart",
  "AddToCart",
  "Checkout",
];
const [CARD, , , UPSERT, DELETE, WATCH, SESSION, CART, CHECKOUT] = TITLES;

let server, origin, browser, page;
const foreignRequests = [];
const complaints = [];

before(async () => {
  server = await Server.start();
  origin = server.origin;
  await openBrowser();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

test("opens with the nine examples in its tabs", async () => {
  const response = await page.goto(`${origin}/graphql`);
  assert.match(response.headers()["content-type"], /^text\/html/);
  assert.match(response.headers()["content-security-policy"], /script-src 'self';/, "build web/ first");
  assert.equal(await page.title(), "Vitrina — GraphiQL");
  await page.locator(".graphiql-query-editor .view-line").first().waitFor();
  assert.deepEqual(await page.locator(".graphiql-tab-button").allTextContents(), TITLES);
  assert.match(await editorText(".graphiql-editor-tool"), /"PROD-12345"/, "the first tab's variables");
});

test("runs the first example and shows the product's name", async () => {
  const { query, variables } = examples[0];
  const plain = await server.post({ query, variables: JSON.parse(variables) });
  const { name } = plain.data.product;
  assert.ok(name);

  const shown = await execute();
  assert.deepEqual(shown.data, plain.data);
  await resultContains(JSON.stringify(name));
});

test("runs the other public examples", async () => {
  await openTab("SeveralProducts");
  const { data } = await execute();
  assert.deepEqual(data.products.map((product) => product?.id ?? null), [
    "PROD-11000",
    "PROD-12345",
    null,
    "PROD-12999",
  ]);

  await openTab("Categories");
  const { data: catalogue } = await execute();
  assert.ok(catalogue.categories.length > 1);
  assert.ok(catalogue.category.productCount > 0);
  assert.equal(catalogue.category.products.nodes.length, 3);
});

test("watches the stock with the subscription example", async () => {
  const token = await server.staffToken();
  const { ids, zone } = JSON.parse(examples[5].variables);
  const set = async (quantity) => {
    const query = `mutation($entries: [StockInput!]!) { stockSet(entries: $entries) { userErrors { message } } }`;
    const variables = { entries: [{ productId: ids[0], geoZone: zone, quantity }] };
    const { data } = await server.post({ query, variables }, { Authorization: `Bearer ${token}` });
    assert.deepEqual(data.stockSet.userErrors, []);
  };
  await openTab(WATCH);
  await set(41);
  await page.getByRole("button", { name: "Execute query" }).click();
  await resultContains(`"available":41`);
  await set(3);
  await resultContains(`"available":3,"status":"LOW_STOCK"`);
  await page.getByRole("button", { name: "Stop query" }).click();
  await page.getByRole("button", { name: "Execute query" }).waitFor();

  // The headers of the tab are those of the connection: a bad token is refused.
  await fillHeaders("nonsense");
  await page.getByRole("button", { name: "Execute query" }).click();
  await resultContains("4403");
  await fillHeaders(token);
  await page.getByRole("button", { name: "Execute query" }).click();
  await resultContains(`"available":3`);
  await page.getByRole("button", { name: "Stop query" }).click();
});

test("explains the schema", async () => {
  await openTab(CARD);
  await page.getByRole("button", { name: "Show Documentation Explorer" }).click();
  const docs = page.locator(".graphiql-doc-explorer");
  await docs.getByRole("link", { name: "Query", exact: true }).click();
  await docs.getByRole("link", { name: "categories", exact: true }).waitFor();
  await resultContains("PROD-12345");
  // The schema also checks the variables, a moment after the change of tabs.
  await page.locator(".graphiql-editor-tool .squiggly-error").first().waitFor({ state: "detached" });
  await page.screenshot({ path: join(import.meta.dirname, "screenshot.png") });
});

test("shows the error of a broken query", async () => {
  await page.getByRole("button", { name: "New tab" }).click();
  await fill(".graphiql-query-editor", "query Broken { product(id: ");
  const { errors } = await execute();
  assert.ok(errors[0].message);
  await resultContains(JSON.stringify(errors[0].message));
  // GraphiQL takes an edit over into its tab a moment later. Who leaves the tab before that loses it.
  await page.locator(".graphiql-tab-button", { hasText: "Broken" }).waitFor();
});

test("refuses the staff example without a token", async () => {
  await openTab(UPSERT);
  const { errors } = await execute();
  assert.match(errors[0].extensions.code, /^(UNAUTHENTICATED|FORBIDDEN)$/);
  await resultContains(JSON.stringify(errors[0].extensions.code));
});

test("runs the staff examples with a token in the headers editor", async () => {
  const token = await server.staffToken();

  await fillHeaders(token);
  const { data } = await execute();
  assert.deepEqual(data.productsUpsert.userErrors, []);
  const written = JSON.parse(examples[3].variables).products;
  assert.deepEqual(data.productsUpsert.products.map(({ id }) => id), written.map(({ id }) => id));
  await resultContains(JSON.stringify(written[0].name));

  await openTab(DELETE);
  await fillHeaders(token);
  const { data: deletion } = await execute();
  assert.deepEqual(deletion.productsDelete.userErrors, []);
  assert.deepEqual(deletion.productsDelete.deletedIds, written.map(({ id }) => id));

  // Again, now that GraphiQL has taken over and stored everything: the token is not in there.
  await isStored(examples[4]);
  await execute();
  const stored = await page.evaluate(() => JSON.stringify(localStorage));
  assert.match(stored, /mutation ProductsDelete/);
  assert.ok(!stored.includes(token), "the token is in the browser's storage");
});

test("fills a guest's cart and buys it with the last three examples", async () => {
  await openTab(SESSION);
  const { data: begun } = await execute();
  const { token, session } = begun.sessionStart;
  assert.equal(session.geoZone, "Москва");

  await openTab(CART);
  const { errors } = await execute();
  assert.equal(errors[0].extensions.code, "UNAUTHENTICATED");
  await fillHeaders(token);
  // Twice, with one key: it is carried out once.
  for (let i = 0; i < 2; i++) {
    const { data } = await execute();
    assert.deepEqual(data.cartLinesAdd.userErrors, []);
    assert.equal(data.cartLinesAdd.cart.totalQuantity, 3);
  }
  await resultContains(`"totalQuantity":3`);

  await openTab(CHECKOUT);
  await fillHeaders(token);
  const orders = [];
  for (let i = 0; i < 2; i++) {
    const { data } = await execute();
    assert.deepEqual(data.checkout.userErrors, []);
    orders.push(data.checkout.order);
  }
  assert.equal(orders[0].status, "CREATED");
  assert.deepEqual(orders[1], orders[0]);
  await resultContains(`"${orders[0].id}"`);
  await openTab(DELETE);
});

test("comes back after a reload as it was left", async () => {
  await isStored(examples[4]);
  await page.reload();
  await page.locator(".graphiql-query-editor .view-line").first().waitFor();
  assert.deepEqual(await page.locator(".graphiql-tab-button").allTextContents(), [...TITLES, "Broken"]);
  assert.match(await editorText(".graphiql-editor-tool"), /"PROD-SAMOVAR-1"/);
});

test("needs nothing but its server, and nothing goes wrong in the browser", () => {
  assert.deepEqual(foreignRequests, []);
  assert.deepEqual(complaints, []);
});

// --- the browser ------------------------------------------------------------------------------

async function openBrowser() {
  const onPath = ["chromium", "google-chrome"].map((name) =>
    spawnSync("which", [name], { encoding: "utf8" }).stdout.trim(),
  );
  browser = await chromium.launch({
    executablePath: firstExisting("CHROMIUM", ["/usr/bin/chromium", ...onPath.filter(Boolean)]),
    // Without a sandbox, because tests run as root in containers; without everything that would
    // have the browser itself talk to somebody.
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  const context = await browser.newContext({ viewport: { width: 1600, height: 1000 } });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  context.setDefaultTimeout(STEP_LIMIT_MS);
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.origin !== origin) foreignRequests.push(url.href);
  });
  await context.addInitScript(`window.readEditor = ${readEditor}`);
  page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(error.stack ?? error.message));
  page.on("console", (message) => {
    // Violations of the content security policy arrive here too. Chromium also reports every 4xx
    // answer, and those of /graphql are what some of the tests want.
    const expected = message.location().url === `${origin}/graphql` && /\b4\d\d\b/.test(message.text());
    if (message.type() === "error" && !expected) complaints.push(message.text());
  });
}

async function openTab(title) {
  await page.getByRole("tab", { name: title, exact: true }).click();
}

/** Presses the button, and returns what the server answered. */
async function execute() {
  const [response] = await Promise.all([
    page.waitForResponse(`${origin}/graphql`),
    page.getByRole("button", { name: "Execute query" }).click(),
  ]);
  return response.json();
}

/**
 * GraphiQL stores a change of tabs some time later, the query and the variables each in its own. A
 * page that is left between the two comes back with a tab too many.
 */
async function isStored({ query, variables }) {
  await page.waitForFunction(
    ([query, variables]) =>
      localStorage.getItem("graphiql:query") === query && localStorage.getItem("graphiql:variables") === variables,
    [query, variables],
  );
}

async function fillHeaders(token) {
  await page.getByRole("button", { name: "Headers", exact: true }).click();
  await fill(".graphiql-editor-tool", JSON.stringify({ Authorization: `Bearer ${token}` }));
}

/** Pastes over the text of the visible editor in a part of the page. Typing would close its brackets twice. */
async function fill(part, text) {
  await page.evaluate((text) => navigator.clipboard.writeText(text), text);
  await page.locator(`${part} .monaco-editor:visible`).click();
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.press("ControlOrMeta+V");
}

async function resultContains(text) {
  const expected = text.replace(/\s/g, "");
  await page.waitForFunction((text) => readEditor(".graphiql-response").includes(text), expected);
}

function editorText(part) {
  return page.evaluate((part) => readEditor(part), part);
}

/**
 * In the page: what the visible editor shows, without white space, because Monaco indents the lines
 * that it wraps. It keeps its lines in no order.
 */
function readEditor(part) {
  return [...document.querySelectorAll(`${part} .view-line`)]
    .filter((line) => line.checkVisibility())
    .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
    .map((line) => line.textContent)
    .join("")
    .replace(/\s/g, "");
}
