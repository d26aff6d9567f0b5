"""Sources: messages of brokers become events of topics.

    messages     which messages of a batch are events, and the reasons of the others
    runner       consumes one source: receive, commit, acknowledge, retry
    service      all sources: create, list, delete, and run those of this dispatcher

May import `auth`, `servers`, `store` and `subscriptions`.
"""
