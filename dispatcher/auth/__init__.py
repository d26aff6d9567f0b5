"""Who calls, with which rights, and how much they may use: keys, guard, quotas, browsers, audit.

May import `store`.
"""
