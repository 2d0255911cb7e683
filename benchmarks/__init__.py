"""Measurements of the package: what a training step costs beside the machine's limit and beside its peers."""
