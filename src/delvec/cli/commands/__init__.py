"""One module for each theme of `delvec --help`, imported when it is called."""
