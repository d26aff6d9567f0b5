// A client made by npm `soap` from the WSDL, of SOAP 1.1 or 1.2 and the submission of 2004.
//
//     node peer_npm.js FOLDER DOOR TOPIC SINK PORT
//
// FOLDER is where `soap` is installed, PORT the suffix of the ports to use: Soap11 or Soap12. It subscribes, asks for
// the status, renews, publishes two events, unsubscribes, and asks once more, for the fault. What it hears is
// printed as JSON, a line each; it waits for a line of input before it unsubscribes.
const [folder, door, topic, sink, version] = process.argv.slice(2);
const soap = require(require.resolve('soap', { paths: [folder] }));

const say = (what, value) => console.log(JSON.stringify([what, value]));

async function main() {
  const options = { forceSoap12Headers: version === 'Soap12' };
  const client = await soap.createClientAsync(`${door}?wsdl`, options);
  const service = client.EventDistribution;
  const call = (port, operation, message) =>
    new Promise((resolve, reject) =>
      service[port + version][operation](message, (error, answer) => (error ? reject(error) : resolve(answer))),
    );

  const made = await call('EventSource2004', 'Subscribe', {
    Delivery: { NotifyTo: { Address: sink } },
    Expires: 'PT1H',
    Filter: { attributes: { Dialect: 'urn:edn:filter' }, $value: 'price > 30' },
    Topic: topic,
  });
  say('granted', made.Expires);
  const subscription = made.SubscriptionManager.ReferenceParameters.Subscription;
  const name = typeof subscription === 'object' ? subscription.$value : subscription;
  say('subscription', name);
  client.addSoapHeader({ Subscription: name }, '', 'e', 'urn:edn:soap');
  say('status', (await call('EventSource2004', 'GetStatus', {})).Expires);
  say('renewed', (await call('EventSource2004', 'Renew', { Expires: 'PT2H' })).Expires);
  const event = (price) => ({
    attribute: [
      { attributes: { name: 'symbol' }, $value: 'GE' },
      { attributes: { name: 'price' }, $value: price },
    ],
  });
  say('accepted', (await call('Publishing', 'Publish', { Topic: topic, event: [event(29), event(31)] })).Accepted);
  await new Promise((resolve) => process.stdin.once('data', resolve));
  process.stdin.unref();
  await call('EventSource2004', 'Unsubscribe', {});
  try {
    await call('EventSource2004', 'GetStatus', {});
  } catch (error) {
    say('fault', error.message);
  }
}

main().catch((error) => {
  console.error(error.message, error.response && error.response.data);
  process.exit(1);
});
