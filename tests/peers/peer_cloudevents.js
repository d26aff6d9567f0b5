// A producer, subscriber and sink made of npm `cloudevents`, all in one: the whole way of an event.
//
//     node peer_cloudevents.js FOLDER DISPATCHER TOPIC MODE
//
// FOLDER is where `cloudevents` is installed, MODE is binary, structured or batch. It listens on a free port, subscribes
// there through the Subscriptions API, publishes in MODE, reads what is delivered to it with the library until all that
// it wants has come, and unsubscribes. What it saw is printed as JSON, a line each.
const [folder, dispatcher, topic, mode] = process.argv.slice(2);
const { CloudEvent, HTTP } = require(require.resolve('cloudevents', { paths: [folder] }));
const http = require('http');

const say = (what, value) => console.log(JSON.stringify([what, value]));

const made = (number, price) =>
  new CloudEvent({
    id: `js-${mode}-${number}`,
    source: '/shops/js',
    type: 'org.example.sold',
    // The library escapes no headers, so that in binary mode only ASCII goes.
    subject: mode === 'binary' ? 'mate' : 'maté',
    data: { price, item: { name: 'mate' } },
  });

async function call(method, path, headers, body) {
  const answer = await fetch(dispatcher + path, { method, headers, body });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

async function publish(events) {
  const path = `/v1/topics/${topic}/events`;
  if (mode === 'batch') {
    // It reads batches and writes none: they are an array of its structured events.
    const headers = { 'content-type': 'application/cloudevents-batch+json' };
    return call('POST', path, headers, JSON.stringify(events));
  }
  let accepted = 0;
  for (const event of events) {
    const message = mode === 'structured' ? HTTP.structured(event) : HTTP.binary(event);
    accepted += (await call('POST', path, message.headers, message.body)).accepted;
  }
  return { accepted };
}

async function main() {
  let heard = 0;
  const sink = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const message = { headers: request.headers, body: Buffer.concat(parts).toString() };
      const read = HTTP.toEvent(message);
      for (const event of Array.isArray(read) ? read : [read]) {
        event.validate();
        const { id, source, type, subject, data, subscription } = event;
        say('event', { id, source, type, subject, data, subscription });
        heard += 1;
      }
      say('delivered', request.headers['content-type']);
      response.writeHead(204).end();
    });
  });
  await new Promise((resolve) => sink.listen(0, '127.0.0.1', resolve));

  const json = { 'content-type': 'application/json' };
  const subscription = await call(
    'POST',
    '/cloudevents/subscriptions',
    json,
    JSON.stringify({
      config: { topic },
      source: '/shops/js',
      filters: [{ suffix: { type: '.sold' } }, { 'urn:edn:filter': 'price > 30' }],
      sink: `http://127.0.0.1:${sink.address().port}/`,
      protocol: 'HTTP',
      protocolsettings: { format: `cloudevents-${mode}` },
    }),
  );
  say('subscription', subscription.id);
  say('accepted', (await publish([made(1, 99), made(2, 1), made(3, 31)])).accepted);
  const until = Date.now() + 30000;
  while (heard < 2 && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20));
  await call('DELETE', `/cloudevents/subscriptions/${subscription.id}`, {}, undefined);
  sink.close();
  sink.closeAllConnections();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
