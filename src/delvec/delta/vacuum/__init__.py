"""What may be deleted: references, retention, VACUUM, clean-up of the log."""
