// What a well-made storefront on Node.js needs for the same answers: Fastify and Mercurius (compiled
// queries, batching loaders), the Cassandra driver with prepared statements, the same tables, the same
// consistency, the same ages of what is cached. `cargo bench --bench mixed -- mix cassandra` starts it
// where `npm ci` was run here, and measures it beside Vitrina.
//
// It has what those loads ask for and no more: no limits, no log, no checks of what comes in, no
// idempotency of carts, no checkout. All of that is in its favour.
//
//   RIVAL_NODES=127.0.0.1:9042 RIVAL_KEYSPACE=… RIVAL_SECRET=… node server.js
//
// serves twice, with caches and without, and prints the two ports.

import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";
import cassandra from "cassandra-driver";
import { createVerifier } from "fast-jwt";
import Fastify from "fastify";
import mercurius from "mercurius";

const { types } = cassandra;
const ONE = types.consistencies.localOne;
const QUORUM = types.consistencies.localQuorum;

// As long as Vitrina keeps them where it has no Redis.
const CARD_MILLIS = 500;
const PAGE_MILLIS = 250;
const STOCK_MILLIS = 200;
const MAX_ENTRIES = 50_000;
const LOW_STOCK = 5;
const CART_SECONDS = 30 * 24 * 3600;

const { RIVAL_NODES, RIVAL_KEYSPACE, RIVAL_SECRET } = process.env;
const client = new cassandra.Client({
  contactPoints: RIVAL_NODES.split(","),
  localDataCenter: "dc1",
  keyspace: RIVAL_KEYSPACE,
  encoding: { set: Set },
});

const run = (query, values, consistency) =>
  client.execute(query, values, { prepare: true, consistency });

const schema = `
  scalar Decimal
  type Money { amount: Decimal! currencyCode: String! }
  type Attribute { name: String! value: String! }
  type Stock { available: Int! status: String! }
  type Product {
    id: ID! name: String! imageUrl: String category: Category! price: Money!
    attributes: [Attribute!]! stock(geoZone: String!): Stock
  }
  type PageInfo { hasNextPage: Boolean! endCursor: String }
  type ProductConnection { nodes: [Product!]! pageInfo: PageInfo! }
  input PriceRange { min: Decimal max: Decimal }
  type Category {
    name: String!
    products(first: Int!, after: String, price: PriceRange): ProductConnection!
  }
  type OrderLine { productId: ID! quantity: Int! }
  type Order { id: ID! status: String! createdAt: String! total: Money! lines: [OrderLine!]! }
  type OrderConnection { nodes: [Order!]! pageInfo: PageInfo! }
  type UserError { code: String! }
  type Cart { totalQuantity: Int! }
  type CartPayload { cart: Cart! userErrors: [UserError!]! }
  input CartLineInput { productId: ID! quantity: Int! }
  type Query {
    product(id: ID!): Product
    category(name: String!): Category
    orders(first: Int!, after: String): OrderConnection!
  }
  type Mutation { cartLinesAdd(lines: [CartLineInput!]!, idempotencyKey: String): CartPayload! }
`;

/** Keeps what `read` gives for a while; whoever asks meanwhile gets the same. */
function cached(millis, read) {
  const entries = new Map();
  return (key) => {
    const now = performance.now();
    const entry = entries.get(key);
    if (entry && entry.until > now) return entry.value;
    if (entries.size >= MAX_ENTRIES) entries.clear();
    const value = read(key);
    entries.set(key, { until: now + millis, value });
    value.catch(() => entries.delete(key));
    return value;
  };
}

async function readCard(id) {
  const found = await run(
    "SELECT name, description, category, price, currency, attrs, image_url, created_at, " +
      "updated_at, version FROM product_by_id WHERE product_id = ?",
    [id],
    ONE,
  );
  const row = found.first();
  if (!row) return null;
  const attributes = Object.entries(row.attrs ?? {}).map(([name, value]) => ({ name, value }));
  return {
    id,
    name: row.name,
    imageUrl: row.image_url,
    category: { name: row.category },
    price: { amount: row.price.toString(), currencyCode: row.currency },
    attributes,
  };
}

async function readStock(key) {
  const [id, zone] = JSON.parse(key);
  const found = await run(
    "SELECT quantity, reserved, version, updated_at FROM inventory_by_product_geo " +
      "WHERE product_id = ? AND geo_zone = ?",
    [id, zone],
    QUORUM,
  );
  const row = found.first();
  if (!row) return null;
  const available = row.quantity.toNumber() - row.reserved.toNumber();
  const status =
    available <= 0 ? "OUT_OF_STOCK" : available <= LOW_STOCK ? "LOW_STOCK" : "IN_STOCK";
  return { available, status };
}

async function readPage(key) {
  const [category, first, after] = JSON.parse(key);
  const columns = "product_id, price, name, image_url, currency";
  const rows = after
    ? await run(
        `SELECT ${columns} FROM products_by_category_bucket WHERE category = ? AND bucket = 0 ` +
          "AND (price, product_id) > (?, ?) LIMIT ?",
        [category, types.BigDecimal.fromString(after[0]), after[1], first + 1],
        ONE,
      )
    : await run(
        `SELECT ${columns} FROM products_by_category_bucket WHERE category = ? AND bucket = 0 LIMIT ?`,
        [category, first + 1],
        ONE,
      );
  const nodes = rows.rows.slice(0, first).map((row) => ({
    id: row.product_id,
    name: row.name,
    imageUrl: row.image_url,
    price: { amount: row.price.toString(), currencyCode: row.currency },
  }));
  const last = nodes.at(-1);
  const endCursor =
    last && Buffer.from(JSON.stringify([last.price.amount, last.id])).toString("base64url");
  return { nodes, pageInfo: { hasNextPage: rows.rows.length > first, endCursor } };
}

const verify = createVerifier({ key: RIVAL_SECRET, algorithms: ["HS256"], cache: 40_000 });

/** A shop; with `keep` it remembers what it has read. */
async function serve(keep) {
  const card = keep ? cached(CARD_MILLIS, readCard) : readCard;
  const stock = keep ? cached(STOCK_MILLIS, readStock) : readStock;
  const page = keep ? cached(PAGE_MILLIS, readPage) : readPage;
  const resolvers = {
    Query: {
      product: (_, { id }) => card(id),
      category: (_, { name }) => ({ name }),
      orders: async (_, { first }, { user }) => {
        const owner = `user:${user}`;
        const months = await run(
          "SELECT month FROM order_months_by_user WHERE user_id = ? LIMIT 400",
          [owner],
          QUORUM,
        );
        const orders = [];
        for (const { month } of months.rows) {
          const found = await run(
            "SELECT body FROM orders_by_user WHERE user_id = ? AND month = ? LIMIT ?",
            [owner, month, first + 1 - orders.length],
            QUORUM,
          );
          orders.push(...found.rows.map((row) => JSON.parse(row.body)));
          if (orders.length > first) break;
        }
        const nodes = orders.slice(0, first).map((order) => ({
          id: order.id,
          status: order.status.toUpperCase(),
          createdAt: new Date(Number(order.created_at) / 1000).toISOString(),
          total: { amount: order.total.amount, currencyCode: order.total.currency },
          lines: order.lines.map((line) => ({ productId: line.product, quantity: line.units })),
        }));
        return { nodes, pageInfo: { hasNextPage: orders.length > first, endCursor: null } };
      },
    },
    Mutation: {
      cartLinesAdd: async (_, { lines }, { user }) => {
        const owner = `rival:${user}`;
        const [log, ...cards] = await Promise.all([
          run(
            "SELECT part, at, operation_id, body FROM carts_by_user WHERE user_id = ? " +
              "AND part < 3 LIMIT 17",
            [owner],
            QUORUM,
          ),
          ...lines.map((line) => card(line.productId)),
        ]);
        const added = lines.map((line, place) => ({
          product: line.productId,
          units: line.quantity,
          name: cards[place].name,
          price: cards[place].price,
          imageUrl: cards[place].imageUrl,
        }));
        await run(
          "INSERT INTO carts_by_user (user_id, part, at, operation_id, body) " +
            "VALUES (?, 2, ?, ?, ?) USING TTL ?",
          [owner, types.Long.fromNumber(Date.now() * 1000), randomUUID(), JSON.stringify(added), CART_SECONDS],
          QUORUM,
        );
        let totalQuantity = added.reduce((sum, line) => sum + line.units, 0);
        for (const row of log.rows) {
          for (const line of JSON.parse(row.body)) totalQuantity += line.units;
        }
        return { userErrors: [], cart: { totalQuantity } };
      },
    },
    Category: {
      products: ({ name }, { first, after }) => {
        const from = after && JSON.parse(Buffer.from(after, "base64url").toString());
        return page(JSON.stringify([name, first, from ?? null]));
      },
    },
  };
  const loaders = {
    Product: {
      stock: {
        loader: (asked) =>
          Promise.all(
            asked.map(({ obj, params }) => stock(JSON.stringify([obj.id, params.geoZone]))),
          ),
        // A loader's own cache lives for one request, like Vitrina's.
      },
    },
  };
  const app = Fastify();
  await app.register(mercurius, {
    schema,
    resolvers,
    loaders,
    jit: 1,
    path: "/graphql",
    context: (request) => {
      const header = request.headers.authorization;
      return { user: header && verify(header.slice("Bearer ".length)).sub };
    },
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  return app.server.address().port;
}

await client.connect();
const ports = [await serve(true), await serve(false)];
writeSync(1, `${ports.join(" ")}\n`);
process.stdin.on("end", () => process.exit(0)).resume();
