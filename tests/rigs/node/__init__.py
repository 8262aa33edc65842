"""What runs on nodes: pilots, login helpers and sandboxes, with real or scripted hubs."""
