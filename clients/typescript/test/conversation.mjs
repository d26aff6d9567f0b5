// Goes through the client against the network at EDN_URL, with the key EDN_KEY if it is set, and prints what it saw as JSON.
import assert from "node:assert/strict";
import { Edn, EdnError } from "../dist/index.js";

const url = process.env.EDN_URL ?? "http://127.0.0.1:8080";
const edn = new Edn({ url, ...(process.env.EDN_KEY ? { key: process.env.EDN_KEY } : {}) });

const topic = await edn.putTopic("typescript", { symbol: "string", price: "number" });
assert.deepEqual(topic.attributes, { symbol: "string", price: "number" });

const subscription = await edn.subscribe({ topic: "typescript", filter: { price: { gt: 30 } } });
const ids = await edn.publish("typescript", [29, 31, 32, 33].map((price) => ({ symbol: "GE", price })));
const again = await edn.publish("typescript", { symbol: "KO", price: 34 }, "once");
assert.deepEqual(await edn.publish("typescript", { symbol: "KO", price: 34 }, "once"), again, "published once");

async function take(count, after) {
  const seen = [];
  for await (const notification of edn.stream(subscription.id, after === undefined ? {} : { after })) {
    seen.push(notification);
    if (seen.length === count) break;
  }
  return seen;
}
const first = await take(2);
const rest = await take(2, first[1].position);

// Every call of the interface is typed; refusals are exceptions with the place of the error.
const listed = await edn.api.GET("/v1/subscriptions", { params: { query: { topic: "typescript" } } });
const refused = await edn.subscribe({ topic: "typescript", filter: "price > dear" }).then(
  () => assert.fail("a wrong filter was accepted"),
  (error) => error,
);
assert.ok(refused instanceof EdnError);
const unknown = await new Edn({ url, key: "wrong" }).publish("nowhere", {}).catch((error) => error.status);
assert.throws(() => new Edn({ url: "localhost:8080" }), /must begin with http/);

// The end of the subscription ends the stream.
const ending = (async () => {
  for await (const _ of edn.stream(subscription.id, { after: rest[1].position }));
  return "ended";
})();
await edn.unsubscribe(subscription.id);
const gone = await take(1).catch((error) => error.status);

console.log(
  JSON.stringify({
    accepted: ids.length,
    prices: [...first, ...rest].map((one) => one.event.attributes.price),
    listed: listed.data.subscriptions.map((one) => one.id === subscription.id),
    refused: { status: refused.status, pointer: refused.pointer },
    unknown,
    stream: await ending,
    gone,
  }),
);
