"""The SOAP interface: `POST /soap` and `GET /soap?wsdl`.

    endpoint      the ASGI app: reads a message, runs its operation, writes a reply or a fault
    operations    requests, replies, and the table of operations
    eventing      Subscribe, Renew, GetStatus, Unsubscribe (WS-Eventing, both vocabularies)
    publishing    Publish
    management    topics and routes: create, delete, enumerate
    faults        converts errors to faults
    wsdl          the WSDL, from which toolkits generate clients

Topics, subscriptions and events are those of REST: operations make the same calls as the REST routes. Nothing
else in the dispatcher depends on SOAP.
"""
