"""Judges of recorded histories. Each takes operations and returns a `Verdict`; none does IO."""
