/* A client and a sink made by gSOAP from the WSDL, of SOAP 1.1 and the recommendation of 2011.
 *
 *     peer_gsoap DOOR TOPIC
 *
 * subscribes, asks for the status, renews, publishes two events, receives the one that matches, unsubscribes,
 * and asks once more, for the fault. What it hears is printed, a line each. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soapH.h"
#include "EventSource2011Soap11.nsmap"

static void check(struct soap *soap, int outcome, const char *what)
{
    if (outcome == SOAP_OK)
        return;
    fprintf(stderr, "%s\n", what);
    soap_print_fault(soap, stderr);
    exit(1);
}

/* The subscription that the following call is about. */
static void about(struct soap *soap, char *subscription)
{
    soap->header = soap_malloc(soap, sizeof(struct SOAP_ENV__Header));
    memset(soap->header, 0, sizeof(struct SOAP_ENV__Header));
    soap->header->e__Subscription = subscription;
}

static void publish(struct soap *soap, const char *door, char *topic, char *price)
{
    struct e__AttributeType attributes[2] = {{"GE", "symbol"}, {price, "price"}};
    struct e__EventType event;
    struct _e__Publish request;
    struct _e__PublishResponse answer;

    memset(&event, 0, sizeof event);
    memset(&request, 0, sizeof request);
    event.__sizeattribute = 2;
    event.attribute = attributes;
    request.Topic = topic;
    request.__sizeevent = 1;
    request.event_ = &event;
    check(soap, soap_call___e4__Publish(soap, door, NULL, &request, &answer), "publish");
    printf("accepted %d\n", answer.Accepted);
}

int main(int count, char **given)
{
    const char *door = given[1];
    char *topic = given[2], *subscription, url[64];
    struct soap client, sink;
    struct wsa5__AttributedURIType address;
    struct wsa5__EndpointReferenceType target;
    struct ns2__DeliveryType delivery = {&target};
    struct ns2__FilterType filter = {"price > 30", "urn:edn:filter"};
    struct _ns2__Subscribe request;
    struct _ns2__SubscribeResponse granted;
    struct _ns2__GetStatus asked;
    struct _ns2__GetStatusResponse status;
    struct _ns2__Renew renewal = {"PT2H"};
    struct _ns2__RenewResponse renewed;
    struct _ns2__Unsubscribe end;
    struct _ns2__UnsubscribeResponse ended;
    struct __e6__Event heard;
    const char *begin;
    int place;

    if (count != 3)
        return 2;
    soap_init1(&client, SOAP_XML_INDENT);
    soap_init(&sink);
    sink.accept_timeout = sink.recv_timeout = client.recv_timeout = 30;
    client.version = 1;
    if (!soap_valid_socket(soap_bind(&sink, "127.0.0.1", 0, 10)))
        check(&sink, 1, "bind");
    {
        struct sockaddr_in own;
        socklen_t size = sizeof own;
        getsockname(sink.master, (struct sockaddr *)&own, &size);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/gsoap", ntohs(own.sin_port));
    }

    memset(&address, 0, sizeof address);
    memset(&target, 0, sizeof target);
    memset(&request, 0, sizeof request);
    address.__item = url;
    target.Address = &address;
    request.Delivery = &delivery;
    request.Expires = "PT1H";
    request.Filter = &filter;
    request.e__Topic = topic;
    check(&client, soap_call___e3__Subscribe(&client, door, NULL, &request, &granted), "subscribe");
    printf("granted %s\n", granted.GrantedExpires);
    begin = strchr(granted.SubscriptionManager->ReferenceParameters->__any[0], '>') + 1;
    subscription = soap_strdup(&client, begin);
    *strchr(subscription, '<') = '\0';
    printf("subscription %s\n", subscription);

    about(&client, subscription);
    check(&client, soap_call___e3__GetStatus(&client, door, NULL, &asked, &status), "status");
    printf("status %s\n", status.GrantedExpires);
    about(&client, subscription);
    check(&client, soap_call___e3__Renew(&client, door, NULL, &renewal, &renewed), "renew");
    printf("renewed %s\n", renewed.GrantedExpires);
    client.header = NULL;

    publish(&client, door, topic, "29");
    publish(&client, door, topic, "31");
    if (!soap_valid_socket(soap_accept(&sink)))
        check(&sink, 1, "accept");
    check(&sink, soap_begin_serve(&sink), "receive");
    soap_default___e6__Event(&sink, &heard);
    if (!soap_get___e6__Event(&sink, &heard, "-e6:Event", NULL))
        check(&sink, sink.error, "read the event");
    check(&sink, soap_body_end_in(&sink) || soap_envelope_end_in(&sink) || soap_end_recv(&sink), "read to the end");
    printf("event of %s\n", heard.e__event->topic);
    for (place = 0; place < heard.e__event->__size; place++)
        printf("attribute %s\n", heard.e__event->__any[place]);
    soap_send_empty_response(&sink, 202); /* what it returns says that nothing is left to send */
    soap_closesock(&sink);

    about(&client, subscription);
    check(&client, soap_call___e3__Unsubscribe(&client, door, NULL, &end, &ended), "unsubscribe");
    about(&client, subscription);
    if (soap_call___e3__GetStatus(&client, door, NULL, &asked, &status) == SOAP_OK)
        return 1;
    printf("fault %s: %s\n", *soap_faultcode(&client), *soap_faultstring(&client));
    soap_destroy(&client);
    soap_end(&client);
    soap_done(&client);
    soap_done(&sink);
    return 0;
}
