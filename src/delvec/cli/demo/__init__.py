"""`delvec demo`: a walk through what delvec does, every number computed."""
