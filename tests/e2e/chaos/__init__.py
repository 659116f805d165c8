"""Faults against real clusters, recorded histories, and checkers that judge them."""
