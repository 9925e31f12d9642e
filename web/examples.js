// The worked examples that GraphiQL opens as tabs. Both pages use this file: the built one bundles
// it, the one that loads GraphiQL from the CDN imports it as it is, so it stays plain JavaScript
// without imports. GraphiQL takes a tab's title from the name of its operation.

const asJson = (value) => JSON.stringify(value, null, 2);

export const examples = [
  {
    query: `# A product card. Press ▶ or Ctrl-Enter.
# The id is in the Variables pane below; the
# demo shop has PROD-11000 … PROD-12999.

query ProductCard($id: ID!) {
  product(id: $id) {
    id
    name
    category {
      name
    }
    price {
      amount
      currencyCode
    }
    attributes {
      name
      value
    }
    imageUrl
  }
}
`,
    variables: asJson({ id: "PROD-12345" }),
  },
  {
    query: `# Several products in one request, up to 250 ids.
# The answer keeps their order, and the unknown one
# is null: it does not spoil the rest.

query SeveralProducts($ids: [ID!]!) {
  products(ids: $ids) {
    id
    name
    price {
      amount
      currencyCode
    }
  }
}
`,
    variables: asJson({ ids: ["PROD-11000", "PROD-12345", "PROD-NO-SUCH", "PROD-12999"] }),
  },
  {
    query: `# The shop's categories with how many products each
# one has, and a page of one of them. For the next page
# add after: "…" with the endCursor of this one.

query Categories($name: String!) {
  categories {
    name
    productCount
  }
  category(name: $name) {
    name
    productCount
    products(first: 3, sort: PRICE_ASC, price: { min: "10000", max: "50000" }) {
      nodes {
        id
        name
        price {
          amount
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
}
`,
    variables: asJson({ name: "Электроника" }),
  },
  {
    query: `# For staff: creates products, or replaces those
# that exist. It needs a staff token:
#
#   1. In a shell, with the server's VITRINA_JWT_SECRET
#      if it was given one:
#        vitrina token --user me --role staff
#   2. In the Headers pane below, uncomment the line
#      and put the token after "Bearer ".
#
# The batch is checked as a whole: all that is wrong
# comes back in userErrors, each with its path, and
# nothing is written. Try a price of "-1".

mutation ProductsUpsert($products: [ProductInput!]!) {
  productsUpsert(products: $products) {
    products {
      id
      name
      price {
        amount
        currencyCode
      }
    }
    userErrors {
      code
      field
      message
    }
  }
}
`,
    variables: asJson({
      products: [
        {
          id: "PROD-SAMOVAR-1",
          name: "Самовар электрический «Тульский», 3 л",
          description: "Самовар с автоматическим отключением, роспись «Хохлома».",
          category: "Бытовая техника",
          price: { amount: "12990.00", currencyCode: "RUB" },
          attributes: [
            { name: "Объём", value: "3 л" },
            { name: "Мощность", value: "2000 Вт" },
          ],
        },
        {
          id: "PROD-PODSTAKANNIK-1",
          name: "Подстаканник «Паровоз», мельхиор",
          category: "Дом и кухня",
          price: { amount: "2490.50" },
        },
      ],
    }),
  },
  {
    query: `# For staff: deletes what the previous example made.
# Each tab has its own headers: put the staff token
# into this one's too.

mutation ProductsDelete($ids: [ID!]!) {
  productsDelete(ids: $ids) {
    deletedIds
    userErrors {
      code
      field
      message
    }
  }
}
`,
    variables: asJson({ ids: ["PROD-SAMOVAR-1", "PROD-PODSTAKANNIK-1"] }),
  },
  {
    query: `# Watches the stock of products in a zone, over a
# WebSocket: as it is now, and then whenever it changes.
# Press ■ to stop. To see a change, run this in another
# tab, with a staff token in its headers:
#
#   mutation {
#     stockSet(entries: [{ productId: "PROD-12345",
#       geoZone: "Москва", quantity: 3 }]) {
#       userErrors { message }
#     }
#   }

subscription StockChanged($ids: [ID!]!, $zone: String!) {
  stockChanged(productIds: $ids, geoZone: $zone) {
    product {
      id
      name
    }
    available
    status
    updatedAt
  }
}
`,
    variables: asJson({ ids: ["PROD-12345"], zone: "Москва" }),
  },
  {
    query: `# Begins a guest's session. Copy the token from the
# answer into the headers of the next tab: it is good
# for 30 days after it was last used, and so is the cart.

mutation SessionStart($input: SessionInput) {
  sessionStart(input: $input) {
    token
    session {
      id
      geoZone
    }
    userErrors {
      code
      field
      message
    }
  }
}
`,
    variables: asJson({ input: { deviceType: "web", geoZone: "Москва" } }),
  },
  {
    query: `# Puts products into the cart. It needs a token in the
# Headers pane below: the guest's of the tab before, or a
# customer's (vitrina token --user anna).
#
# With the same idempotencyKey it is carried out once,
# however often you press ▶. Then ask for
#   { cart { totalQuantity } }
# or watch with
#   subscription { cartChanged { totalQuantity } }

mutation AddToCart($lines: [CartLineInput!]!, $key: String) {
  cartLinesAdd(lines: $lines, idempotencyKey: $key) {
    cart {
      totalQuantity
      subtotal {
        amount
        currencyCode
      }
      lines {
        name
        quantity
        total {
          amount
        }
      }
      notices {
        code
        message
      }
    }
    userErrors {
      code
      field
      message
    }
  }
}
`,
    variables: asJson({
      lines: [
        { productId: "PROD-12345", quantity: 2 },
        { productId: "PROD-11000", quantity: 1 },
      ],
      key: "first try",
    }),
  },
  {
    query: `# Makes an order of the cart of the tab before, with
# the same token in the headers: all of it or nothing.
# With one idempotencyKey there is one order, however
# often you press ▶. Why there is none is in userErrors:
# try another key with geoZone "Москва".
#
# Then look at it, and cancel it:
#   { orders(first: 5) { nodes { id status } } }
#   mutation { orderCancel(id: "…") { order { status } } }

mutation Checkout($input: CheckoutInput!) {
  checkout(input: $input) {
    order {
      id
      status
      total {
        amount
        currencyCode
      }
      lines {
        name
        quantity
        total {
          amount
        }
      }
      paymentDueAt
      timeline {
        type
        at
      }
    }
    shortages {
      productId
      requested
      available
    }
    userErrors {
      code
      field
      message
    }
  }
}
`,
    variables: asJson({
      input: {
        idempotencyKey: "order-1",
        geoZone: "Казань",
        paymentMethod: "card",
        shippingAddress: {
          city: "Москва",
          street: "Тверская, 1",
          recipient: "Анна",
        },
      },
    }),
  },
];
