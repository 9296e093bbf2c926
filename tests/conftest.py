"""Fixtures for every test."""
