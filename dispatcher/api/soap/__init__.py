"""The SOAP door: `POST /soap` and `GET /soap?wsdl`.

    door          the ASGI endpoint: a message in, an answer or a fault out
    operations    what a message may ask for, by the name of its element
    eventing      Subscribe, Renew, GetStatus, Unsubscribe (WS-Eventing, both vocabularies)
    publishing    Publish, one event or many
    management    topics and routes: create, delete, enumerate
    faults        our errors as faults
    wsdl          the description that toolkits generate clients from

The same topics, subscriptions and events as over REST: every operation ends in the calls that the REST routes
make. Nothing else in the dispatcher knows of SOAP.
"""
