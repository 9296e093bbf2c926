"""Sealed receipts: an append-only Merkle tree over committed receipts, with signed checkpoints."""
