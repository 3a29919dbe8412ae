"""The names of other libraries, over delvec's own calls."""
