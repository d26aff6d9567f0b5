"""Conformance of stores: the promises of `dispatcher.store.interface`, for every engine."""
