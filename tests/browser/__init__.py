"""The dashboard in headless Chromium, over a running network."""
