"""Backups: consistent images of a cluster's state, in a folder or in S3, and the way back."""
