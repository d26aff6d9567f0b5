"""What publishers will send: its storage, its enforcement, and what follows for subscribers and publishers.

    service    create, change and end advertisements
    guard      check published events against their publisher's advertisements
    compiled   a topic's advertisements in the form of kernels
    reach      which subscriptions no advertisement can match
    wanted     whether anybody listens to what is advertised
    documents  JSON Schema and AsyncAPI documents

May import `auth`, `routing`, `servers`, `store` and `subscriptions`.
"""
