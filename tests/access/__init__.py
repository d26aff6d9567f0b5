"""Who gets in where: keys, tenants, quotas, slow clients, and addresses that nobody shall be sent to."""
